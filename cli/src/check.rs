//! `cusync check`: proves a plan, or refutes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use cusync::runtime::executor_name;
use cusync_gen::check::{Generated, certificate};
use cusync_gen::device::Profile;
use cusync_gen::graph::Graph;
use cusync_gen::schedule::decode::Decode;
use cusync_gen::schedule::{Breakdown, Part, Schedule, ScheduleRequest, time};
use serde::Serialize;

use super::devices::{DevicesReport, devices_line};
use super::fault::Fault;
use super::files;
use super::print::{Answer, Page, json};
use super::prove::Proof;
use super::report::{
    AxiomReport, DecodeReport, ObligationReport, ObstacleReport, PredictionReport, ScheduleReport,
    TimeReport, axioms, decode_line, prediction, schedule_line, title,
};
use super::target::{Target, TargetArgs};

/// Arguments of `check`.
#[derive(Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Write a certificate with witnesses for a second checker (xtask/certificate.py), with a line for each
    /// chain kernel that runs one stage
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

/// The verdict on a plan.
#[derive(Serialize)]
pub(crate) struct CheckReport {
    pub(crate) verdict: &'static str,
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) device: String,
    pub(crate) executor: &'static str,
    pub(crate) obligations: Vec<ObligationReport>,
    /// Premises of the proof, if `proved`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) axioms: Vec<AxiomReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<ScheduleReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decode: Option<DecodeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<DevicesReport>,
    /// Null if the plan is refuted, or if the model cannot price every stage.
    pub(crate) predicted: Option<PredictionReport>,
    /// Reason why the device cannot run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// Obstacles that keep executors from running it.
    pub(crate) obstacles: Vec<ObstacleReport>,
    /// Readable text, one per refutation; not in JSON.
    #[serde(skip)]
    pub(crate) refutations: Vec<String>,
}

impl Answer for CheckReport {
    fn good(&self) -> bool {
        self.verdict == "proved"
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        let verdict = page.good(self.verdict == "proved", self.verdict);
        page.line(format!(
            "{} for {} on {}: {verdict}",
            title(&self.pipeline, &self.dims),
            self.executor,
            self.device
        ));
        page.table(
            ["obligation", "verdict"],
            self.obligations.iter().map(|o| [o.id.to_owned(), o.verdict.to_owned()]),
        );
        if !self.axioms.is_empty() {
            page.line("proved, given:");
            self.axioms.iter().for_each(|axiom| page.line(format!("  {}: {}", axiom.id, axiom.statement)));
        }
        self.schedule.iter().for_each(|s| page.line(schedule_line(s)));
        self.decode.iter().for_each(|d| page.line(decode_line(d)));
        self.devices.iter().for_each(|d| page.line(devices_line(d)));
        self.predicted.iter().for_each(|p| page.line(prediction(p)));
        self.note.iter().for_each(|note| page.line(note));
        self.refutations.iter().for_each(|refutation| page.line(refutation));
    }
}

/// Dims by name.
pub(crate) fn dims(graph: &Graph) -> BTreeMap<String, u32> {
    graph.dims.iter().cloned().collect()
}

/// Runs the command.
pub(crate) fn run(args: CheckArgs) -> Result<CheckReport, Fault> {
    let target = args.target.resolve()?;
    let (report, proof) = judged(&target)?;
    if let Some(file) = args.certificate {
        let candidate = proof.candidate();
        let mut lines = String::new();
        for judged in std::iter::once(candidate.clone()).chain(candidate.alone().map(|(_, alone)| alone)) {
            let written = certificate(&judged, &Generated::new(&judged)).map_err(|refutation| {
                let message = format!("there is nothing to certify: {refutation}");
                Fault::refuted(refutation.obligation.id(), message)
            })?;
            lines += &format!("{written}\n");
        }
        files::write(&file, &lines)?;
    }
    Ok(report)
}

pub(crate) fn judged(target: &Target) -> Result<(CheckReport, Proof), Fault> {
    let mut proof = Proof::for_executor(target, target.executor)?;
    let graph = &proof.candidate().graph;
    let launch = &proof.candidate().launch;
    let schedule = schedule(graph, &target.device, launch.lists());
    let axioms = if proof.proved() { axioms(graph, launch, target.device.arch) } else { Vec::new() };
    let decode = decode(launch.shares());
    let devices = DevicesReport::of_graph(graph);
    let report = CheckReport {
        verdict: if proof.proved() { "proved" } else { "refuted" },
        pipeline: graph.name.clone(),
        dims: dims(graph),
        device: target.device.name.clone(),
        executor: executor_name(proof.executor),
        obligations: std::mem::take(&mut proof.obligations),
        axioms,
        schedule,
        decode,
        devices,
        predicted: proof.predicted(),
        note: proof.note.take(),
        obstacles: std::mem::take(&mut proof.obstacles),
        refutations: proof.refutations.iter().map(|d| target.source.render(d)).collect(),
    };
    Ok((report, proof))
}

/// Schedule as numbers.
pub(crate) fn schedule(
    graph: &Graph,
    device: &Profile,
    schedule: Option<&Schedule>,
) -> Option<ScheduleReport> {
    let schedule = schedule?;
    let tile = graph.kernel_tile();
    let mean = breakdown(graph, device, schedule).mean();
    let count = |select: &dyn Fn(&Part) -> bool| schedule.sequence.iter().filter(|i| select(&i.part)).count();
    Some(ScheduleReport {
        mode: schedule.mode.name(),
        tile: [tile.0, tile.1, tile.2],
        cluster: [schedule.cluster.0, schedule.cluster.1],
        workers: schedule.lists.len(),
        items: schedule.sequence.len(),
        longest_list: schedule.lists.iter().map(Vec::len).max().unwrap_or(0),
        split_tiles: count(&|part| matches!(part, Part::Finish { .. } | Part::Share { part: 0, .. })),
        parts: count(&|part| *part != Part::Whole),
        slabs: schedule.slabs,
        predicted_us: schedule.predicted_us,
        shares: Some(TimeReport {
            math_us: mean.math_us,
            fixed_us: mean.fixed_us,
            wait_us: mean.wait_us,
            split_us: mean.split_us,
            idle_us: mean.idle_us,
        }),
    })
}

/// Breakdown of a schedule's predicted time.
fn breakdown(graph: &Graph, device: &Profile, schedule: &Schedule) -> Breakdown {
    let request = ScheduleRequest {
        workers: schedule.lists.len() as u32,
        cluster: schedule.cluster,
        mode: schedule.mode,
        splits: schedule.slabs > 0,
        cost: &device.cost_model(graph.operations()),
    };
    time(graph, &request, schedule)
}

/// Decode plan as numbers.
pub(crate) fn decode(decode: Option<&Decode>) -> Option<DecodeReport> {
    decode.map(|d| DecodeReport { workers: d.workers(), width: d.width, predicted_us: d.work.predicted_us })
}
