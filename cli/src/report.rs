//! Common parts of the answers of several commands, with their text.

use std::collections::BTreeMap;

use cusync_gen::check::{Axiom, Executor, Launch};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, Resolved};
use cusync_gen::obstacle::Obstacle;
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct ObligationReport {
    pub(crate) id: &'static str,
    pub(crate) verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counterexample: Option<String>,
}

/// First obstacle that keeps an executor from running a pipeline on a device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ObstacleReport {
    pub(crate) executor: &'static str,
    /// Null if the obstacle is the whole pipeline, the device, or a statement of the spec.
    pub(crate) stage: Option<String>,
    pub(crate) reason: String,
    /// The offending number, and its limit or required multiple.
    pub(crate) have: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) help: Option<String>,
}

impl ObstacleReport {
    /// Stage and reason.
    pub(crate) fn sentence(&self) -> String {
        self.stage.iter().map(|stage| format!("stage `{stage}` ")).collect::<String>() + &self.reason
    }
}

/// Obstacles that keep executors from running a pipeline on a device.
pub(crate) fn obstacles(resolved: &Resolved, device: &Profile) -> Vec<ObstacleReport> {
    let report = |(executor, o): (Executor, Obstacle)| ObstacleReport {
        executor: executor.name(),
        stage: o.stage,
        reason: o.reason,
        have: o.numbers.map(|(have, _)| have),
        limit: o.numbers.map(|(_, limit)| limit),
        help: o.help,
    };
    choose::obstacles(resolved, device).into_iter().map(report).collect()
}

/// A premise of a proof.
#[derive(Serialize)]
pub(crate) struct AxiomReport {
    pub(crate) id: &'static str,
    pub(crate) statement: &'static str,
    /// Obligations that use it.
    pub(crate) used_by: Vec<&'static str>,
}

/// Premises of the proof of a launch.
pub(crate) fn axioms(graph: &Graph, launch: &Launch, arch: u32) -> Vec<AxiomReport> {
    let report = |axiom: Axiom| AxiomReport {
        id: axiom.id(),
        statement: axiom.statement(),
        used_by: axiom.used_by().iter().map(|o| o.id()).collect(),
    };
    Axiom::for_launch(graph, launch, arch).into_iter().map(report).collect()
}

/// The work lists of the fused executor.
#[derive(Serialize)]
pub(crate) struct ScheduleReport {
    /// `static` or `dynamic`.
    pub(crate) mode: &'static str,
    /// MMA tile per CTA.
    pub(crate) tile: [u32; 3],
    /// CTAs per worker.
    pub(crate) cluster: [u32; 2],
    pub(crate) workers: usize,
    pub(crate) items: usize,
    pub(crate) longest_list: usize,
    /// Tiles that are split along k, and the total number of their parts.
    pub(crate) split_tiles: usize,
    pub(crate) parts: usize,
    pub(crate) slabs: u32,
    pub(crate) predicted_us: f64,
    /// Breakdown of a worker's predicted time, on average.
    pub(crate) shares: Option<TimeReport>,
}

/// Time of a worker by activity, microseconds; the sum is the length of the schedule.
#[derive(Serialize)]
pub(crate) struct TimeReport {
    pub(crate) math_us: f64,
    /// Ring fills and epilogues.
    pub(crate) fixed_us: f64,
    pub(crate) wait_us: f64,
    /// Writing and adding slabs.
    pub(crate) split_us: f64,
    pub(crate) idle_us: f64,
}

/// The plan of a decode kernel.
#[derive(Serialize)]
pub(crate) struct DecodeReport {
    pub(crate) workers: u32,
    /// Width of the kernel in tokens.
    pub(crate) width: u32,
    pub(crate) predicted_us: f64,
}

#[derive(Serialize)]
pub(crate) struct EdgeReport {
    pub(crate) name: String,
    pub(crate) operand: String,
    /// Rows and columns as which the consumer reads a tensor of another shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) view: Option<(u32, u32)>,
    pub(crate) policy: String,
    pub(crate) wait_at: String,
    pub(crate) slots: u32,
}

impl EdgeReport {
    /// The operand, and the shape of its view.
    pub(crate) fn read(&self) -> String {
        self.view.map_or_else(
            || self.operand.clone(),
            |(rows, cols)| format!("{}, read as {rows} x {cols}", self.operand),
        )
    }
}

#[derive(Serialize)]
pub(crate) struct PredictionReport {
    pub(crate) device: String,
    pub(crate) executor: &'static str,
    /// The kind of kernel or launch.
    pub(crate) kernel: &'static str,
    /// Whether it is the best predicted executor on the device.
    pub(crate) best: bool,
    /// Best serial chain; null if a stage has no kernel of its own.
    pub(crate) serial_us: Option<f64>,
    pub(crate) synchronised_us: f64,
}

pub(crate) fn title(name: &str, dims: &BTreeMap<String, u32>) -> String {
    let dims: Vec<_> = dims.iter().map(|(n, v)| format!("{n} = {v}")).collect();
    format!("{name} ({})", dims.join(", "))
}

pub(crate) fn schedule_line(s: &ScheduleReport) -> String {
    let splits = match s.split_tiles {
        0 => "no tile split".into(),
        n => format!("{n} tiles split into {} parts ({} slabs)", s.parts, s.slabs),
    };
    format!(
        "schedule: {} workers of {} x {} CTAs, tile {} x {} x {}; {} items, {splits}; {} lists, the longest {}; {:.1} us predicted",
        s.workers,
        s.cluster[0],
        s.cluster[1],
        s.tile[0],
        s.tile[1],
        s.tile[2],
        s.items,
        s.mode,
        s.longest_list,
        s.predicted_us
    )
}

pub(crate) fn decode_line(d: &DecodeReport) -> String {
    format!(
        "decode: {} workers, each an equal share of every stage's columns; {} tokens wide; {:.1} us predicted",
        d.workers, d.width, d.predicted_us
    )
}

/// One line: `best: decode kernel, 72.0 us, 1.42x over serial launches`.
pub(crate) fn prediction(p: &PredictionReport) -> String {
    let word = if p.best { "best: " } else { "" };
    if p.kernel == Executor::Serial.name() {
        let why = if p.best { ": nothing else is predicted to be faster" } else { "" };
        return format!("{word}serial launches, {:.1} us{why}", p.synchronised_us);
    }
    let over = p
        .serial_us
        .filter(|us| *us != p.synchronised_us)
        .map(|us| format!(", {:.2}x over serial launches", us / p.synchronised_us));
    format!("{word}{}, {:.1} us{}", p.kernel, p.synchronised_us, over.unwrap_or_default())
}

/// `1 wait`, `2 waits`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A fraction as a percent value with sign; values that round to zero are positive.
pub(crate) fn signed_percent(share: f64) -> String {
    let rounded = (share * 1000.0).round() / 10.0;
    // Adding zero makes a negative zero positive.
    format!("{:+.1} %", rounded + 0.0)
}
