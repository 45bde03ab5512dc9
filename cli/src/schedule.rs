//! `cusync schedule`: from serial code to concurrent kernels.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use cusync::trace::{page, scheduled};
use cusync_dag::{
    Dependences, Direction, Form, FormPrediction, Join, KernelSchedule, LaunchPlan, NodeDependence, NodeId,
    NodeWork, Program, ProvedPlan, RefinedEdge, ScheduleOptions, allocate, cuda, dot, parse,
    schedule as plan,
};
use cusync_gen::device::Profile;
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Page, json};
use super::render::command;
use super::report::{counted, signed_percent};
use super::source::{PROGRAMS, SourceText};
use super::target::{dim, profile};

#[derive(Args)]
pub(crate) struct ScheduleArgs {
    /// A RON file, `-` for standard input, or the name of a shipped program (`cusync list`)
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    choices: ScheduleChoices,
}

/// All but the program.
#[derive(Args)]
pub(crate) struct ScheduleChoices {
    /// Override the default of a dim; may be repeated
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    pub(crate) dims: Vec<(String, u64)>,
    /// GPU to schedule for: h200, h100, a100, l40s, or a RON file with a profile
    #[arg(long, value_name = "NAME or FILE", default_value = "h200")]
    pub(crate) device: String,
    /// Run at most this many kernels at a time: streams, or lanes of a graph
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) streams: Option<u16>,
    /// Take this form instead of the best, such as branch-graph
    #[arg(long, value_name = "FORM", value_parser = form_id)]
    pub(crate) form: Option<Form>,
    /// Issue the program this many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// Write the chosen plan: a timeline (.html), a Graphviz graph (.dot) or CUDA C++ (.cu)
    #[arg(short, long, value_name = "FILE", value_parser = plan_file)]
    pub(crate) output: Option<PathBuf>,
    /// Print every node, every form and the reasons too
    #[arg(long)]
    pub(crate) all: bool,
}

pub(crate) fn form_id(id: &str) -> Result<Form, String> {
    serde_json::from_value(id.into()).map_err(|e| e.to_string())
}

/// Accepts file names to which plans can be written.
pub(crate) fn plan_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "dot" | "cu") => Ok(path),
        _ => Err("the name must end in .html (a timeline), .dot (a graph) or .cu (CUDA C++)".into()),
    }
}

#[derive(Serialize)]
pub(crate) struct NodeReport {
    pub(crate) name: String,
    pub(crate) id: u32,
    /// `kernel`, `to-device` or `to-host`.
    pub(crate) kind: &'static str,
    pub(crate) us: f64,
    pub(crate) level: u32,
    pub(crate) stream: u32,
    pub(crate) priority: i32,
    /// Ids of the nodes that it waits for: those on other streams or, in a graph, all.
    pub(crate) waits_for: Vec<u32>,
    /// Ids of higher-priority nodes that it waits for although it does not depend on them.
    pub(crate) held_by: Vec<u32>,
    /// Every node that it directly waits for in the plan, and how: `full`, `programmatic`, or `stream` for the node
    /// before it on the same stream of launches.
    pub(crate) edges: Vec<(u32, &'static str)>,
    /// The joins that it waits for.
    pub(crate) joins: Vec<usize>,
    /// Temporary buffers that it accesses, each with its first byte in the arena.
    pub(crate) temporaries: Vec<(String, u64)>,
    pub(crate) start_us: f64,
    pub(crate) end_us: f64,
}

#[derive(Serialize)]
pub(crate) struct DependenceReport {
    pub(crate) before: u32,
    /// The last of many consecutive ids from `before` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) through: Option<u32>,
    pub(crate) after: u32,
    /// Some of `RAW`, `WAR` and `WAW`.
    pub(crate) hazards: Vec<&'static str>,
    /// Whether other dependences imply it.
    pub(crate) implied: bool,
}

#[derive(Serialize)]
pub(crate) struct FormReport {
    pub(crate) form: Form,
    pub(crate) streams: usize,
    pub(crate) us: f64,
    #[serde(skip)]
    pub(crate) name: &'static str,
    /// For tasks of several priorities.
    #[serde(skip)]
    pub(crate) harm: &'static str,
}

#[derive(Serialize)]
pub(crate) struct ChosenReport {
    pub(crate) form: Form,
    pub(crate) streams: usize,
    pub(crate) waits: usize,
    pub(crate) predicted_us: f64,
    /// The best of the other forms.
    pub(crate) runner_up: Option<FormReport>,
    /// Bytes of the temporary buffers of the plan, in one arena.
    pub(crate) arena_bytes: u64,
}

#[derive(Serialize)]
pub(crate) struct TileReport {
    pub(crate) before: u32,
    pub(crate) after: u32,
    pub(crate) gain_us: f64,
}

/// A kernel with tiles that waits for whole kernels.
#[derive(Serialize)]
pub(crate) struct KeptReport {
    pub(crate) node: u32,
    pub(crate) why: &'static str,
}

/// Waits for tiles in the chosen form.
#[derive(Serialize)]
pub(crate) struct RefinementReport {
    /// Edges on which tiles wait for tiles.
    pub(crate) edges: Vec<TileReport>,
    /// Maximum number of tiles that one CTA waits for.
    pub(crate) most_waits: usize,
    /// Kernels that let the next kernel launch before they wait.
    pub(crate) early: Vec<u32>,
    pub(crate) kept: Vec<KeptReport>,
}

#[derive(Serialize)]
pub(crate) struct ProgramReport {
    pub(crate) program: String,
    pub(crate) device: String,
    pub(crate) kernels: usize,
    pub(crate) copies: usize,
    pub(crate) edges: usize,
    pub(crate) reduced_edges: usize,
    pub(crate) streams: usize,
    pub(crate) waits: usize,
    /// Names in issue order.
    pub(crate) order: Vec<String>,
    pub(crate) critical_us: f64,
    pub(crate) chosen: ChosenReport,
    pub(crate) forms: Vec<FormReport>,
    pub(crate) nodes: Vec<NodeReport>,
    pub(crate) joins: Vec<Join>,
    pub(crate) dependences: Vec<DependenceReport>,
    pub(crate) refinement: RefinementReport,
    /// Bytes of all buffers, and bytes if buffers that are never alive together share memory.
    pub(crate) buffer_bytes: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) why: Vec<String>,
    pub(crate) source: String,
    #[serde(skip)]
    pub(crate) all: bool,
    #[serde(skip)]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) fn schedule(args: &ScheduleArgs) -> Result<ProgramReport, Fault> {
    scheduled_by(&args.choices, || SourceText::find(&args.file, &PROGRAMS), &command())
}

/// The same; `command` is named in files that it writes.
pub(crate) fn scheduled_by(
    args: &ScheduleChoices,
    source: impl FnOnce() -> Result<SourceText, Fault>,
    command: &str,
) -> Result<ProgramReport, Fault> {
    args.output.as_deref().map_or(Ok(()), files::ensure_writable)?;
    let device = profile(&args.device)?;
    let source = source()?;
    let program = parse(&source.text, &args.dims, &device)
        .map_err(|d| source.refused(&d))?
        .repeat(args.repeat.into())
        .map_err(|e| Fault::from(cusync::programs::Error::from(e)))?;
    let streams = args.streams.map(usize::from);
    let forms = args.form.map_or(Form::ALL.to_vec(), |form| vec![form]);
    let schedule = plan(
        &program,
        &ScheduleOptions { streams, device: device.clone(), forms, ..ScheduleOptions::default() },
    );
    if let (Some(form), Some(most), []) = (args.form, args.streams, &schedule.predictions[..]) {
        let message = format!("{} takes more than {}", form.name(), counted(most.into(), "stream"));
        return Err(Fault::input("unsupported", message).help("raise --streams, or leave --form out"));
    }
    let proved = schedule.plan(&program, schedule.form).prove(&program);
    let proved = proved.map_err(|e| Fault::from(cusync::programs::Error::from(e)))?;
    if let Some(file) = &args.output {
        write(file, &program, &schedule, &proved, (&device, command))?;
    }
    Ok(ProgramReport { all: args.all, output: args.output.clone(), ..report(&program, &schedule, &device) })
}

/// Writes the chosen plan, depending on the file name.
fn write(
    file: &Path,
    program: &Program,
    schedule: &KernelSchedule,
    proved: &ProvedPlan,
    (device, command): (&Profile, &str),
) -> Result<(), Fault> {
    let text = match file.extension().and_then(|e| e.to_str()) {
        Some("html") => page(&scheduled(program, schedule, &device.name)),
        Some("dot") => dot(program, schedule),
        _ => cuda(proved, schedule.form.name(), command),
    };
    files::write(file, &text)
}

fn report(program: &Program, schedule: &KernelSchedule, device: &Profile) -> ProgramReport {
    let KernelSchedule { dependences, full, .. } = schedule;
    let copies = program.nodes().iter().filter(|n| n.kernel().is_none()).count();
    let memory = allocate(program, dependences);
    let (_, arena_bytes) = memory.arena(program);
    // The chosen plan, in its own order.
    let plan = schedule.plan(program, schedule.form);
    let order: Vec<usize> = match &plan {
        LaunchPlan::Streams(plan) => plan.order.iter().map(|(node, _)| *node).collect(),
        LaunchPlan::Graph(plan) => plan.order.clone(),
    };
    let mut streams = schedule.streams(schedule.form);
    streams.sort_unstable();
    streams.dedup();
    ProgramReport {
        program: program.name().into(),
        device: device.name.clone(),
        kernels: program.nodes().len() - copies,
        copies,
        edges: dependences.edges.len(),
        reduced_edges: dependences.reduced_edges().count(),
        streams: full.streams(),
        waits: full.wait_count(),
        order: order.iter().map(|&index| program.nodes()[index].name.clone()).collect(),
        critical_us: schedule.times.critical_us(),
        chosen: ChosenReport {
            form: schedule.form,
            streams: streams.len(),
            waits: plan.wait_count(),
            predicted_us: schedule.predicted_us(),
            runner_up: schedule.runner_up().map(form),
            arena_bytes,
        },
        forms: schedule.predictions.iter().map(form).collect(),
        nodes: nodes(program, schedule, &plan, &order),
        joins: plan.joins().to_vec(),
        dependences: edges(dependences),
        refinement: refinement(schedule),
        buffer_bytes: program.buffers().iter().map(|b| b.bytes).sum(),
        allocated_bytes: memory.bytes(),
        why: schedule.why.clone(),
        source: device.programs.source.clone(),
        all: false,
        output: None,
    }
}

fn form(p: &FormPrediction) -> FormReport {
    let harm = match p.harm {
        0 => "",
        1 => "; it slows the highest tasks",
        _ => "; it starves tasks",
    };
    FormReport { form: p.form, streams: p.streams, us: p.us, name: p.form.name(), harm }
}

/// Nodes of a plan in its order.
fn nodes(
    program: &Program,
    schedule: &KernelSchedule,
    plan: &LaunchPlan,
    order: &[usize],
) -> Vec<NodeReport> {
    let count = program.nodes().len();
    let (mut edges, mut held_by) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    plan.edges().iter().for_each(|e| edges[e.after].push((e.before as u32, e.kind)));
    let mut joins = vec![Vec::new(); count];
    for (id, join) in plan.joins().iter().enumerate() {
        join.after.iter().for_each(|&after| joins[after].push(id));
    }
    schedule.gates().iter().for_each(|(before, after)| held_by[after.index()].push(before.0));
    let (streams, priorities) = (schedule.streams(schedule.form), plan.priorities(count));
    let (places, _) = allocate(program, &schedule.dependences).arena(program);
    let node = |&index: &usize| {
        let node = &program.nodes()[index];
        let temporary = |access: &cusync_dag::Access| {
            let buffer = access.buffer.index();
            places[buffer].map(|place| (program.buffers()[buffer].name.clone(), place))
        };
        let mut temporaries: Vec<_> = node.accesses.iter().filter_map(temporary).collect();
        temporaries.sort_unstable();
        temporaries.dedup();
        let awaited = edges[index].iter().filter(|(_, kind)| *kind != "stream").map(|(before, _)| *before);
        NodeReport {
            name: node.name.clone(),
            id: index as u32,
            kind: match node.work {
                NodeWork::Kernel(_) => "kernel",
                NodeWork::Copy { direction: Direction::HostToDevice, .. } => "to-device",
                NodeWork::Copy { direction: Direction::DeviceToHost, .. } => "to-host",
            },
            us: node.us,
            level: schedule.times.level[index],
            stream: streams[index],
            priority: priorities[index],
            waits_for: awaited.filter(|before| !held_by[index].contains(before)).collect(),
            held_by: held_by[index].clone(),
            edges: edges[index].clone(),
            joins: joins[index].clone(),
            temporaries,
            start_us: schedule.timeline.start[index],
            end_us: schedule.timeline.end[index],
        }
    };
    order.iter().map(node).collect()
}

fn tile(tile: &RefinedEdge) -> TileReport {
    TileReport { before: tile.edge.before.0, after: tile.edge.after.0, gain_us: tile.gain_us }
}

fn refinement(schedule: &KernelSchedule) -> RefinementReport {
    let found = &schedule.refinement;
    let early = found.nodes.iter().enumerate().filter(|(_, node)| node.early);
    RefinementReport {
        edges: found.edges.iter().map(tile).collect(),
        most_waits: found.most_waits(),
        early: early.map(|(node, _)| node as u32).collect(),
        kept: found.kept.iter().map(|(node, why)| KeptReport { node: node.0, why }).collect(),
    }
}

/// Dependences of one node on so many consecutive ones are one row: all pairs of a dense program would be millions.
const LONG_RUN: u32 = 32;

fn edges(dependences: &Dependences) -> Vec<DependenceReport> {
    let report = |edge: &NodeDependence, implied: bool| DependenceReport {
        before: edge.before.0,
        through: None,
        after: edge.after.0,
        hazards: [
            (edge.hazards.read_after_write, "RAW"),
            (edge.hazards.write_after_read, "WAR"),
            (edge.hazards.write_after_write, "WAW"),
        ]
        .into_iter()
        .filter_map(|(holds, name)| holds.then_some(name))
        .collect(),
        implied,
    };
    let mut found: Vec<DependenceReport> = Vec::new();
    // Edges that differ by their first id only, which counts up: the first of them, and their number.
    let mut run: Option<(NodeDependence, bool, u32)> = None;
    let mut flush = |run: Option<(NodeDependence, bool, u32)>| {
        let Some((first, implied, count)) = run else { return };
        let edge = |n| NodeDependence { before: NodeId(first.before.0 + n), ..first };
        match count < LONG_RUN {
            true => found.extend((0..count).map(|n| report(&edge(n), implied))),
            false => {
                let through = Some(first.before.0 + count - 1);
                found.push(DependenceReport { through, ..report(&first, implied) });
            }
        }
    };
    for edge in dependences.edges.iter() {
        let implied = dependences.implies(&edge);
        run = match run {
            Some((first, same, count))
                if same == implied
                    && edge == (NodeDependence { before: NodeId(first.before.0 + count), ..first }) =>
            {
                Some((first, same, count + 1))
            }
            other => {
                flush(other);
                Some((edge, implied, 1))
            }
        };
    }
    flush(run);
    found
}

impl Answer for ProgramReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    /// The chosen form and the runner-up; with `--all`, nodes in the order of issue, all forms and the reasons.
    fn page(&self, page: &mut Page) {
        let chosen = &self.chosen;
        let time = |form: Form| self.forms.iter().find(|f| f.form == form).map(|f| f.us);
        let serial = time(Form::SERIAL);
        let over = |us: f64| serial.map_or("-".into(), |serial| format!("{:.2}x", serial / us));
        let gain =
            serial.map_or(String::new(), |_| format!(", {} over serial launches", over(chosen.predicted_us)));
        page.line(format!(
            "{} on {}: {}, {} copies, {} dependences, {} after reduction",
            self.program,
            self.device,
            counted(self.kernels, "kernel"),
            self.copies,
            self.edges,
            self.reduced_edges,
        ));
        let word = if chosen.runner_up.is_some() { "best" } else { "form" };
        page.line(format!(
            "{word}: {}, {:.1} us{gain}; {}, {}",
            self.name(chosen.form),
            chosen.predicted_us,
            counted(chosen.streams, "stream"),
            counted(chosen.waits, "wait")
        ));
        if let Some(next) = &chosen.runner_up {
            let more = signed_percent(next.us / chosen.predicted_us - 1.0);
            page.line(format!("next: {}, {:.1} us ({more}){}", next.name, next.us, next.harm));
        }
        if self.all {
            self.rest(page, over);
        }
        self.output.iter().for_each(|file| page.line(format!("wrote {}", file.display())));
    }
}

impl ProgramReport {
    fn name(&self, form: Form) -> &'static str {
        self.forms.iter().find(|f| f.form == form).map_or("", |f| f.name)
    }

    fn rest(&self, page: &mut Page, over: impl Fn(f64) -> String) {
        let names: BTreeMap<u32, &str> = self.nodes.iter().map(|n| (n.id, n.name.as_str())).collect();
        let node = |n: &NodeReport| {
            let nodes =
                n.waits_for.iter().chain(&n.held_by).filter_map(|id| names.get(id).map(|n| (*n).to_owned()));
            let join = |&id: &usize| format!("join {id} of {}", counted(self.joins[id].before.len(), "node"));
            let waits: Vec<String> = nodes.chain(n.joins.iter().map(join)).collect();
            [
                n.name.clone(),
                format!("{:.1}", n.us),
                n.stream.to_string(),
                waits.join(", "),
                format!("{:.1}", n.start_us),
                format!("{:.1}", n.end_us),
            ]
        };
        page.table(["node", "us", "stream", "waits for", "starts", "ends"], self.nodes.iter().map(node));
        let form =
            |f: &FormReport| [f.name.into(), f.streams.to_string(), format!("{:.1}", f.us), over(f.us)];
        page.table(["form", "streams", "predicted us", "over serial"], self.forms.iter().map(form));
        self.why.iter().for_each(|why| page.line(why));
        if self.allocated_bytes < self.buffer_bytes {
            page.line(format!(
                "memory: {} bytes instead of {}: buffers that are never alive together share it",
                self.allocated_bytes, self.buffer_bytes
            ));
        }
        page.line(format!("costs: {}", self.source));
    }
}
