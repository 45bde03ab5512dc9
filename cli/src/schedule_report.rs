//! The report of `cusync schedule`.

use std::path::PathBuf;

use cusync_dag::{
    Arena, Dependences, Direction, Form, FormPrediction, Join, KernelSchedule, LaunchPlan, NodeDependence,
    NodeId, NodeWork, Program, ProvedPlan, RefinedEdge,
};
use cusync_gen::device::Profile;
use serde::Serialize;

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
    /// Ids of nodes that it waits for only to reuse the memory of their temporary buffers.
    pub(crate) reuses: Vec<u32>,
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
    /// Their limit.
    pub(crate) memory_limit: Option<u64>,
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

/// A kernel at programmatic edges that only its declaration shows to be built for them.
#[derive(Serialize)]
pub(crate) struct UnverifiedReport {
    pub(crate) node: u32,
    pub(crate) why: String,
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
    pub(crate) unverified: Vec<UnverifiedReport>,
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

/// The report of a schedule, with the proved plan of its form.
pub(crate) fn report(
    program: &Program,
    schedule: &KernelSchedule,
    proved: &ProvedPlan,
    device: &Profile,
) -> ProgramReport {
    let KernelSchedule { dependences, full, .. } = schedule;
    let copies = program.nodes().iter().filter(|n| n.kernel().is_none()).count();
    let (arena, buffers) = (proved.arena(), program.buffers());
    let own = buffers.iter().zip(&arena.places).filter(|(_, place)| place.is_none()).map(|(b, _)| b.bytes);
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
            arena_bytes: arena.bytes,
            memory_limit: None,
        },
        forms: schedule.predictions.iter().map(form).collect(),
        nodes: nodes(program, schedule, &plan, (&order, arena)),
        joins: plan.joins().to_vec(),
        dependences: edges(dependences),
        refinement: refinement(schedule),
        unverified: proved
            .unverified()
            .map(|(node, why)| UnverifiedReport { node: node.0, why: why.into() })
            .collect(),
        buffer_bytes: buffers.iter().map(|b| b.bytes).sum(),
        allocated_bytes: own.sum::<u64>() + arena.bytes,
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
    (order, arena): (&[usize], &Arena),
) -> Vec<NodeReport> {
    let count = program.nodes().len();
    let mut edges = vec![Vec::new(); count];
    let (mut held_by, mut reuses) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    plan.edges().iter().for_each(|e| edges[e.after].push((e.before as u32, e.kind)));
    let mut joins = vec![Vec::new(); count];
    for (id, join) in plan.joins().iter().enumerate() {
        join.after.iter().for_each(|&after| joins[after].push(id));
    }
    schedule.gates().iter().for_each(|(before, after)| held_by[after.index()].push(before.0));
    schedule.reuse().iter().for_each(|(before, after)| reuses[after.index()].push(before.0));
    let (streams, priorities) = (schedule.streams(schedule.form), plan.priorities(count));
    let node = |&index: &usize| {
        let node = &program.nodes()[index];
        let temporary = |access: &cusync_dag::Access| {
            let buffer = access.buffer.index();
            arena.places[buffer].map(|place| (program.buffers()[buffer].name.clone(), place))
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
            waits_for: awaited
                .filter(|before| !held_by[index].contains(before) && !reuses[index].contains(before))
                .collect(),
            held_by: held_by[index].clone(),
            reuses: reuses[index].clone(),
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
