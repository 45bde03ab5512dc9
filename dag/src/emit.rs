//! A proved plan as C++ for CUDA, and a schedule as a Graphviz graph.

use std::collections::{BTreeSet, HashSet};

use cusync_gen::emit::fill;
use serde::Serialize;

use super::dependence::analyse;
use super::distribute::Join;
use super::plan::{Launches, ProvedPlan};
use super::program::{Access, Direction, Node, NodeWork, Program};
use super::schedule::KernelSchedule;
use super::steps::LaunchStep;

#[derive(Serialize)]
struct CudaView {
    version: &'static str,
    title: String,
    name: String,
    command: String,
    form: String,
    dependences: usize,
    graph: bool,
    arena_bytes: u64,
    temporaries: Vec<TemporaryView>,
    nodes: Vec<NodeView>,
    /// The rank of the priority of each stream that is created, separated by commas.
    streams: String,
    ranks: usize,
    events: usize,
    steps: Vec<StepView>,
    order: Vec<AddedView>,
    joined: bool,
}

#[derive(Serialize)]
struct TemporaryView {
    name: String,
    first: u64,
    end: u64,
}

#[derive(Serialize)]
struct NodeView {
    name: String,
    about: String,
}

/// A step of the host.
#[derive(Serialize)]
struct StepView {
    kind: &'static str,
    name: String,
    event: usize,
    stream: String,
}

/// A node that is added to a graph.
#[derive(Serialize)]
struct AddedView {
    id: usize,
    name: String,
    /// Whether later nodes wait for it.
    used: bool,
    stream: usize,
    before: String,
    /// The joins that are added before it.
    joins: Vec<JoinView>,
}

#[derive(Serialize)]
struct JoinView {
    id: usize,
    before: String,
}

/// The C++ source of a proved plan: a class that launches the kernels and copies of a caller, for CUDA 13 alone. It
/// names the form of the plan and the `command` that regenerates it.
pub fn cuda(plan: &ProvedPlan, form: &str, command: &str) -> String {
    let program = &plan.program;
    let arena = plan.arena();
    let temporary = |((buffer, place), name): ((&super::Buffer, &Option<u64>), String)| {
        place.map(|first| TemporaryView { name, first, end: first + buffer.bytes })
    };
    let buffers = identifiers(program.buffers().iter().map(|b| b.name.as_str()));
    let temporaries =
        program.buffers().iter().zip(&arena.places).zip(buffers).filter_map(temporary).collect();
    let names = identifiers(program.nodes().iter().map(|n| n.name.as_str()));
    let about = |(name, node): (&String, &Node)| NodeView { name: name.clone(), about: about(program, node) };
    let mut view = CudaView {
        version: env!("CARGO_PKG_VERSION"),
        title: printable(program.name()),
        name: program.name().chars().map(word).collect(),
        command: printable(command),
        form: printable(form),
        dependences: analyse(program).edges.len(),
        graph: false,
        arena_bytes: arena.bytes,
        temporaries,
        nodes: names.iter().zip(program.nodes()).map(about).collect(),
        streams: String::new(),
        ranks: 1,
        events: 0,
        steps: Vec::new(),
        order: Vec::new(),
        joined: false,
    };
    match plan.launches() {
        // No form has programmatic or captured streams. Such a plan is emitted as plain launches with full edges, which
        // keep every dependence.
        Launches::Streams { steps, programmatic: _, captured: _ } => {
            let (streams, ranks) = ranks(&steps.priorities);
            let created: Vec<String> = streams.iter().map(usize::to_string).collect();
            (view.streams, view.ranks, view.events) = (created.join(", "), ranks, steps.events);
            // The caller's stream is the first.
            let stream = |lane: usize| match lane {
                0 => "main".to_owned(),
                _ => format!("streams_[{}]", lane - 1),
            };
            let step = |step: &LaunchStep| match *step {
                LaunchStep::Run { node, lane, .. } => {
                    StepView { kind: "run", name: names[node].clone(), event: 0, stream: stream(lane) }
                }
                LaunchStep::Record { event, lane } => {
                    StepView { kind: "record", name: String::new(), event, stream: stream(lane) }
                }
                LaunchStep::Wait { event, lane } => {
                    StepView { kind: "wait", name: String::new(), event, stream: stream(lane) }
                }
            };
            view.steps = steps.steps.iter().map(step).collect();
        }
        Launches::Graph { order, before, joins, priorities } => {
            let (rank, ranks) = ranks(priorities);
            let streams: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
            (view.graph, view.streams, view.ranks) = (true, streams.join(", "), ranks);
            let joined = joins.iter().flat_map(|join| &join.before).copied();
            let used: HashSet<usize> = before.iter().flatten().map(|(node, _)| *node).chain(joined).collect();
            let (mut opens, mut passes) = (vec![Vec::new(); names.len()], vec![Vec::new(); names.len()]);
            for (id, join) in joins.iter().enumerate() {
                join.after.iter().take(1).for_each(|&first| opens[first].push(id));
                join.after.iter().for_each(|&after| passes[after].push(format!("full(j{id})")));
            }
            let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
            let join = |&id: &usize| JoinView {
                id,
                before: list(&mut joins[id].before.iter().map(|node| format!("n{node}"))),
            };
            let edge = |&(node, early): &(usize, bool)| {
                format!("{}(n{node})", if early { "programmatic" } else { "full" })
            };
            let added = |&id: &usize| AddedView {
                id,
                name: names[id].clone(),
                used: used.contains(&id),
                stream: rank.get(id).copied().unwrap_or(0),
                before: list(&mut before[id].iter().map(edge).chain(passes[id].iter().cloned())),
                joins: opens[id].iter().map(join).collect(),
            };
            view.order = order.iter().map(added).collect();
            view.joined = !joins.is_empty();
        }
    }
    fill(include_str!("../templates/program.cu.tera"), &view)
}

/// The rank of each priority, 0 the highest, and the number of ranks, at least 1.
fn ranks(priorities: &[i32]) -> (Vec<usize>, usize) {
    let distinct: BTreeSet<i32> = priorities.iter().copied().collect();
    let rank = |p: &i32| distinct.range(p..).count() - 1;
    (priorities.iter().map(rank).collect(), distinct.len().max(1))
}

/// A node's launch and accesses.
fn about(program: &Program, node: &Node) -> String {
    let three = |[x, y, z]: [u32; 3]| match (y, z) {
        (1, 1) => x.to_string(),
        _ => format!("{x} x {y} x {z}"),
    };
    let mut text = match &node.work {
        NodeWork::Kernel(kernel) => {
            let launch = &kernel.launch;
            let shared = match launch.shared_bytes {
                0 => String::new(),
                bytes => format!(", {bytes} bytes of shared memory"),
            };
            let early = if kernel.programmatic { ", programmatic" } else { "" };
            format!("kernel, {} CTAs of {} threads{shared}{early}", three(launch.grid), three(launch.block))
        }
        NodeWork::Copy { direction: Direction::HostToDevice, bytes } => {
            format!("copy of {bytes} bytes to the device")
        }
        NodeWork::Copy { direction: Direction::DeviceToHost, bytes } => {
            format!("copy of {bytes} bytes to the host")
        }
    };
    let named = |access: &Access| {
        let buffer = &program.buffers()[access.buffer.index()];
        let name = printable(&buffer.name);
        match access.bytes == (0..buffer.bytes) {
            true => name,
            false => format!("{name}[{}..{}]", access.bytes.start, access.bytes.end),
        }
    };
    let mut list = |verb: &str, wanted: fn(&Access) -> bool| {
        let names: Vec<String> = node.accesses.iter().filter(|a| wanted(a)).map(named).collect();
        if !names.is_empty() {
            text.push_str(&format!("; {verb} {}", names.join(", ")));
        }
    };
    list("reads", |a| !a.mode.writes());
    list("writes", |a| !a.mode.reads());
    list("updates", |a| a.mode.reads() && a.mode.writes());
    // A backslash at the end would continue the comment.
    text + "."
}

/// One line of text.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Words that no member can be called: keywords, macros of compilers and headers, and our own types.
const TAKEN: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t \
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield \
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if \
    inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public \
    register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch \
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile \
    wchar_t while xor xor_eq linux unix assert errno stdin stdout stderr major minor Launcher Launchers Temporaries";

fn word(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '_' }
}

/// A distinct C++ name for each name: the name itself if it is one, is free and has no other meaning.
fn identifiers<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let mut taken: HashSet<String> = TAKEN.split_whitespace().map(str::to_owned).collect();
    let whole = |name: &str| name.chars().map(word).collect::<String>();
    let name = |(index, name): (usize, &str)| {
        let mut found = whole(name);
        // Names of capitals may be macros, and those that begin with an underscore belong to the compiler.
        if !found.starts_with(|c: char| c.is_ascii_alphabetic()) {
            found.insert(0, 'n');
        }
        if !found.contains(|c: char| c.is_ascii_lowercase()) && found.len() > 2 {
            found.push_str("_n");
        }
        while !taken.insert(found.clone()) {
            found = format!("{found}_{index}");
        }
        found
    };
    names.enumerate().map(name).collect()
}

#[derive(Serialize)]
struct DotView {
    title: String,
    form: &'static str,
    nodes: Vec<DotNode>,
    edges: Vec<DotEdge>,
    joins: Vec<Join>,
}

#[derive(Serialize)]
struct DotNode {
    id: usize,
    title: String,
    us: String,
    stream: u32,
    /// 1 to 12.
    color: u32,
}

#[derive(Serialize)]
struct DotEdge {
    before: usize,
    after: usize,
    kind: &'static str,
    gate: bool,
    /// Whether it only lets temporaries reuse memory.
    reuse: bool,
}

/// The chosen plan of a program as a Graphviz graph. Gates are dashed, dependences for the
/// reuse of memory dotted, joins are points.
pub fn dot(program: &Program, schedule: &KernelSchedule) -> String {
    let escaped = |text: &str| printable(text).replace('\\', "\\\\").replace('"', "\\\"");
    let streams = schedule.streams(schedule.form);
    let [gates, reuse] =
        [schedule.gates(), schedule.reuse()].map(|pairs| pairs.iter().copied().collect::<HashSet<_>>());
    let node = |(id, (node, &stream)): (usize, (&Node, &u32))| DotNode {
        id,
        title: escaped(&node.name),
        us: format!("{:.1}", node.us),
        stream,
        color: stream % 12 + 1,
    };
    let edge = |edge: super::PlanEdge| {
        let pair = (edge.before.into(), edge.after.into());
        let (gate, reuse) = (gates.contains(&pair), reuse.contains(&pair));
        DotEdge { before: edge.before, after: edge.after, kind: edge.kind, gate, reuse }
    };
    let plan = schedule.plan(program, schedule.form);
    let view = DotView {
        title: escaped(program.name()),
        form: schedule.form.name(),
        nodes: program.nodes().iter().zip(&streams).enumerate().map(node).collect(),
        edges: plan.edges().into_iter().map(edge).collect(),
        joins: plan.joins().to_vec(),
    };
    fill(include_str!("../templates/program.dot.tera"), &view)
}
