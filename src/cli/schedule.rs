//! `cusync schedule`: from serial code to concurrent kernels.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use cusync_dag::{
    Dependence, Dependences, Direction, Form, KernelSchedule, Lane, MAX_SOURCE, NodeId, Program, RefinedEdge,
    SHIPPED, ScheduleOptions, allocate, parse, schedule as plan, shipped,
};
use cusync_gen::device::Profile;
use serde::Serialize;

use super::fault::{Fault, nearest};
use super::print::{Answer, Output, Page, json};
use super::target::{dim, profile};

#[derive(Args)]
pub(crate) struct ScheduleArgs {
    /// A RON file, or the name of a program that ships
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
    /// Ids of nodes on other streams.
    pub(crate) waits_for: Vec<u32>,
    /// Ids of nodes of higher priority that it does not depend on and waits for all the same.
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
    /// Whether others imply it.
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

/// Waits for tiles of the chosen form.
#[derive(Serialize)]
pub(crate) struct RefinementReport {
    /// Edges whose tiles wait for tiles.
    pub(crate) edges: Vec<TileReport>,
    /// Most tiles that one CTA waits for.
    pub(crate) most_waits: usize,
    /// Kernels that let the next begin to launch before they wait.
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
    /// Names, in the order of issue.
    pub(crate) order: Vec<String>,
    pub(crate) critical_us: f64,
    pub(crate) chosen: ChosenReport,
    pub(crate) forms: Vec<FormReport>,
    pub(crate) nodes: Vec<NodeReport>,
    pub(crate) dependences: Vec<DependenceReport>,
    pub(crate) refinement: RefinementReport,
    /// Memory of all buffers, and with those shared that are never alive together, bytes.
    pub(crate) buffer_bytes: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) why: Vec<String>,
    pub(crate) source: String,
    /// What each stream is for; for people.
    #[serde(skip)]
    pub(crate) lanes: Vec<String>,
}

pub(crate) fn schedule(args: &ScheduleArgs, output: &Output) -> Result<ProgramReport, Fault> {
    let device = profile(&args.device)?;
    let (text, origin) = find(&args.file)?;
    let program = parse(&text, &args.dims, &device)
        .map_err(|d| Fault::input(d.render(&text, &origin, output.color)))?
        .repeat(args.repeat.into())
        .map_err(|e| Fault::input(e.to_string()))?;
    let streams = args.streams.map(usize::from);
    let schedule =
        plan(&program, &ScheduleOptions { streams, device: device.clone(), ..ScheduleOptions::default() });
    Ok(report(&program, &schedule, &device))
}

fn report(program: &Program, schedule: &KernelSchedule, device: &Profile) -> ProgramReport {
    let KernelSchedule { dependences, full, chosen, .. } = schedule;
    let copies = program.nodes().iter().filter(|n| n.kernel().is_none()).count();
    let name = |id: NodeId| program.node(id).name.clone();
    let memory = allocate(program, dependences);
    let gates = schedule.admission.as_ref().map_or(&[][..], |admission| &admission.gates);
    let waits = |id: NodeId| full.waits.iter().filter(move |w| w.after == id).map(|w| w.before);
    let node = |&id: &NodeId| NodeReport {
        name: name(id),
        id: id.0,
        us: program.node(id).us,
        level: schedule.times.level[id.index()],
        stream: full.stream[id.index()],
        priority: schedule.priority[id.index()],
        waits_for: waits(id).filter(|b| !gates.contains(&(*b, id))).map(|b| b.0).collect(),
        held_by: gates.iter().filter(|gate| gate.1 == id).map(|gate| gate.0.0).collect(),
        start_us: schedule.timeline.start[id.index()],
        end_us: schedule.timeline.end[id.index()],
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
        order: full.order.iter().map(|&id| name(id)).collect(),
        critical_us: schedule.times.critical_us(),
        chosen: ChosenReport {
            form: schedule.form,
            streams: if schedule.form.is_serial() { 1 } else { chosen.streams() },
            waits: if schedule.form.is_serial() { 0 } else { chosen.waits.len() },
            predicted_us: schedule.predicted_us(),
        },
        forms: schedule
            .predictions
            .iter()
            .map(|p| FormReport { form: p.form, streams: p.streams, us: p.us, name: p.form.name() })
            .collect(),
        nodes: full.order.iter().map(node).collect(),
        dependences: edges(dependences),
        refinement: refinement(schedule),
        buffer_bytes: program.buffers().iter().map(|b| b.bytes).sum(),
        allocated_bytes: memory.bytes(),
        why: schedule.why.clone(),
        source: device.programs.source.clone(),
        lanes: full.lanes.iter().map(lane).collect(),
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
    let report = |(edge, reduced): (&Dependence, bool)| DependenceReport {
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

/// The text of a program and where it came from.
fn find(file: &str) -> Result<(String, String), Fault> {
    if let Some(text) = shipped(file) {
        return Ok((text.into(), format!("dags/{file}.ron")));
    }
    let path = Path::new(file);
    match path.metadata() {
        Ok(meta) if !meta.is_file() => {
            Err(Fault::input(format!("{file} is not a file")).help("name a RON file"))
        }
        Ok(meta) if meta.len() > MAX_SOURCE as u64 => {
            let message = format!("{file} has {} bytes: a program has at most {MAX_SOURCE}", meta.len());
            Err(Fault::input(message).help("is it a program?"))
        }
        Ok(_) => match std::fs::read_to_string(path) {
            Ok(text) => Ok((text, file.into())),
            Err(e) => {
                Err(Fault::input(format!("{file} cannot be read: {e}")).help("a program is UTF-8 text"))
            }
        },
        Err(_) => {
            let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
            let near = nearest(file, names.iter().copied()).map(|n| format!("did you mean `{n}`? "));
            let ways = format!("give the path of a RON file, or one of {}", names.join(", "));
            Err(Fault::input(format!("no program `{file}`: neither a file nor one that ships"))
                .help(near.unwrap_or_default() + &ways))
        }
    }
}

impl Answer for ProgramReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    /// Nodes in the order of issue, the predicted forms and the reasons.
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
            "{} on {}: {} kernels, {} copies, {} dependences, {} after reduction; {} streams, {} waits",
            self.program,
            self.device,
            self.kernels,
            self.copies,
            self.edges,
            self.reduced_edges,
            self.streams,
            self.waits
        ));
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
