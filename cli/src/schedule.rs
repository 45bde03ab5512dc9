//! `cusync schedule`: from serial code to concurrent kernels.

use std::collections::BTreeMap;

use clap::Args;
use cusync_dag::{
    Dependences, Direction, Form, KernelSchedule, Lane, LaunchPlan, NodeDependence, NodeId, Program,
    RefinedEdge, ScheduleOptions, allocate, parse, schedule as plan,
};
use cusync_gen::device::Profile;
use serde::Serialize;

use super::fault::Fault;
use super::print::{Answer, Page, json};
use super::report::counted;
use super::source::{PROGRAMS, SourceText};
use super::target::{dim, profile};

#[derive(Args)]
pub(crate) struct ScheduleArgs {
    /// A RON file, `-` for standard input, or the name of a shipped program (`cusync list`)
    #[arg(value_name = "FILE")]
    file: String,
    /// Override the default of a dim; may be repeated
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    dims: Vec<(String, u64)>,
    /// GPU to schedule for: h200, h100, a100, l40s, or a RON file with a profile
    #[arg(long, value_name = "NAME or FILE", default_value = "h200")]
    device: String,
    /// Use at most this many streams for kernels
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,
    /// Issue the program this many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
}

#[derive(Serialize)]
pub(crate) struct NodeReport {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) us: f64,
    pub(crate) level: u32,
    pub(crate) stream: u32,
    pub(crate) priority: i32,
    /// Ids of the nodes that it waits for: those on other streams or, in a graph, all.
    pub(crate) waits_for: Vec<u32>,
    /// Ids of higher-priority nodes that it waits for although it does not depend on them.
    pub(crate) held_by: Vec<u32>,
    pub(crate) start_us: f64,
    pub(crate) end_us: f64,
}

#[derive(Serialize)]
pub(crate) struct DependenceReport {
    pub(crate) before: u32,
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
}

#[derive(Serialize)]
pub(crate) struct ChosenReport {
    pub(crate) form: Form,
    pub(crate) streams: usize,
    pub(crate) waits: usize,
    pub(crate) predicted_us: f64,
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
    pub(crate) dependences: Vec<DependenceReport>,
    pub(crate) refinement: RefinementReport,
    /// Bytes of all buffers, and bytes if buffers that are never alive together share memory.
    pub(crate) buffer_bytes: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) why: Vec<String>,
    pub(crate) source: String,
    /// Purpose of each stream, as readable text.
    #[serde(skip)]
    pub(crate) lanes: Vec<String>,
}

pub(crate) fn schedule(args: &ScheduleArgs) -> Result<ProgramReport, Fault> {
    let device = profile(&args.device)?;
    let source = SourceText::find(&args.file, &PROGRAMS)?;
    let program = parse(&source.text, &args.dims, &device)
        .map_err(|d| source.refused(&d))?
        .repeat(args.repeat.into())
        .map_err(|e| Fault::from(cusync::programs::Error::from(e)))?;
    let streams = args.streams.map(usize::from);
    let schedule =
        plan(&program, &ScheduleOptions { streams, device: device.clone(), ..ScheduleOptions::default() });
    Ok(report(&program, &schedule, &device))
}

fn report(program: &Program, schedule: &KernelSchedule, device: &Profile) -> ProgramReport {
    let KernelSchedule { dependences, full, .. } = schedule;
    let copies = program.nodes().iter().filter(|n| n.kernel().is_none()).count();
    let name = |id: NodeId| program.node(id).name.clone();
    let memory = allocate(program, dependences);
    let gates = schedule.admission.as_ref().map_or(&[][..], |admission| &admission.gates);
    // The chosen plan, in its own order.
    let plan = schedule.plan(program, schedule.form);
    let (order, waits): (Vec<usize>, Vec<(usize, usize)>) = match &plan {
        LaunchPlan::Streams(plan) => (plan.order.iter().map(|(node, _)| *node).collect(), plan.waits.clone()),
        LaunchPlan::Graph(plan) => {
            (plan.order.clone(), plan.edges.iter().map(|(b, a, _)| (*b, *a)).collect())
        }
    };
    let streams = schedule.distribution(schedule.form);
    let node = |&index: &usize| {
        let id = NodeId(index as u32);
        let befores =
            || waits.iter().filter(move |(_, after)| *after == index).map(|(b, _)| NodeId(*b as u32));
        let held = |before: &NodeId| gates.contains(&(*before, id));
        NodeReport {
            name: name(id),
            id: id.0,
            us: program.node(id).us,
            level: schedule.times.level[index],
            stream: if schedule.form.is_serial() { 0 } else { streams.stream[index] },
            priority: schedule.priority[index],
            waits_for: befores().filter(|b| !held(b)).map(|b| b.0).collect(),
            held_by: gates.iter().filter(|gate| gate.1 == id).map(|gate| gate.0.0).collect(),
            start_us: schedule.timeline.start[index],
            end_us: schedule.timeline.end[index],
        }
    };
    ProgramReport {
        program: program.name().into(),
        device: device.name.clone(),
        kernels: program.nodes().len() - copies,
        copies,
        edges: dependences.edges.len(),
        reduced_edges: dependences.reduced.len(),
        streams: full.streams(),
        waits: full.waits.len(),
        order: order.iter().map(|&index| name(NodeId(index as u32))).collect(),
        critical_us: schedule.times.critical_us(),
        chosen: ChosenReport {
            form: schedule.form,
            streams: if schedule.form.is_serial() { 1 } else { streams.streams() },
            waits: waits.len(),
            predicted_us: schedule.predicted_us(),
        },
        forms: schedule
            .predictions
            .iter()
            .map(|p| FormReport { form: p.form, streams: p.streams, us: p.us, name: p.form.name() })
            .collect(),
        nodes: order.iter().map(node).collect(),
        dependences: edges(dependences),
        refinement: refinement(schedule),
        buffer_bytes: program.buffers().iter().map(|b| b.bytes).sum(),
        allocated_bytes: memory.bytes(),
        why: schedule.why.clone(),
        source: device.programs.source.clone(),
        lanes: if schedule.form.is_serial() {
            vec!["all".into()]
        } else {
            streams.lanes.iter().map(lane).collect()
        },
    }
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

fn lane(lane: &Lane) -> String {
    match lane {
        Lane::Kernels { priority: 0 } => "kernels".into(),
        Lane::Kernels { priority } => format!("kernels, priority {priority}"),
        Lane::Copies(Direction::HostToDevice) => "copies to the device".into(),
        Lane::Copies(Direction::DeviceToHost) => "copies to the host".into(),
    }
}

fn edges(dependences: &Dependences) -> Vec<DependenceReport> {
    let mut reduced = vec![false; dependences.edges.len()];
    dependences.reduced.iter().for_each(|&i| reduced[i] = true);
    let report = |(edge, reduced): (&NodeDependence, bool)| DependenceReport {
        before: edge.before.0,
        after: edge.after.0,
        hazards: [
            (edge.hazards.read_after_write, "RAW"),
            (edge.hazards.write_after_read, "WAR"),
            (edge.hazards.write_after_write, "WAW"),
        ]
        .into_iter()
        .filter_map(|(holds, name)| holds.then_some(name))
        .collect(),
        implied: !reduced,
    };
    dependences.edges.iter().zip(reduced).map(report).collect()
}

impl Answer for ProgramReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    /// Nodes in issue order, the predicted forms and the reasons.
    fn page(&self, page: &mut Page) {
        let names: BTreeMap<u32, &str> = self.nodes.iter().map(|n| (n.id, n.name.as_str())).collect();
        let node = |n: &NodeReport| {
            let waits: Vec<_> =
                n.waits_for.iter().chain(&n.held_by).filter_map(|id| names.get(id).copied()).collect();
            let lane = self.lanes.get(n.stream as usize).map_or("", String::as_str);
            [
                n.name.clone(),
                format!("{:.1}", n.us),
                format!("{} ({lane})", n.stream),
                waits.join(", "),
                format!("{:.1}", n.start_us),
                format!("{:.1}", n.end_us),
            ]
        };
        let serial = self.forms.iter().find(|f| f.form == Form::SERIAL).map(|f| f.us);
        let form = |f: &FormReport| {
            let mark =
                if f.form == self.chosen.form { format!("{} (chosen)", f.name) } else { f.name.into() };
            let over = serial.map_or(String::new(), |s| format!("{:.2}x", s / f.us));
            [mark, f.streams.to_string(), format!("{:.1}", f.us), over]
        };
        page.line(format!(
            "{} on {}: {}, {} copies, {} dependences, {} after reduction; with all concurrency {}, {}",
            self.program,
            self.device,
            counted(self.kernels, "kernel"),
            self.copies,
            self.edges,
            self.reduced_edges,
            counted(self.streams, "stream"),
            counted(self.waits, "wait")
        ));
        let chosen = &self.chosen;
        let name = self.forms.iter().find(|f| f.form == chosen.form).map_or("", |f| f.name);
        let counts = (counted(chosen.streams, "stream"), counted(chosen.waits, "wait"));
        let over = serial
            .map_or(String::new(), |s| format!(", {:.2}x over serial launches", s / chosen.predicted_us));
        page.line(format!("best: {name}, {:.1} us{over}; {}, {}", chosen.predicted_us, counts.0, counts.1));
        page.table(["node", "us", "stream", "waits for", "starts", "ends"], self.nodes.iter().map(node));
        page.table(["form", "streams", "predicted us", "over serial"], self.forms.iter().map(form));
        self.why.iter().for_each(|why| page.line(why));
        if self.allocated_bytes < self.buffer_bytes {
            page.line(format!(
                "memory: {} bytes instead of {}, buffers sharing it that are never alive together",
                self.allocated_bytes, self.buffer_bytes
            ));
        }
        page.line(format!("costs: {}", self.source));
    }
}
