//! `cusync explain`: shows the decisions of a plan and the reasons.

use std::collections::BTreeMap;

use cusync::runtime::executor_name;
use cusync_gen::check::{Executor, Plan};
use cusync_gen::emit::StageView;
use cusync_gen::sync::WaitAt;
use serde::Serialize;

use super::check::{decode, dims, schedule};
use super::devices::{DevicesReport, devices_line};
use super::fault::Fault;
use super::print::{Answer, Page, json};
use super::prove::Proof;
use super::report::{
    DecodeReport, EdgeReport, ObstacleReport, PredictionReport, ScheduleReport, TimeReport, decode_line,
    prediction, schedule_line, signed_percent, title,
};
use super::target::Target;

pub(crate) fn explain(target: &Target) -> Result<ExplainReport, Fault> {
    let mut proof = Proof::for_executor(target, target.executor)?;
    let (executor, predicted, note) = (proof.executor, proof.predicted(), proof.note.take());
    let (decisions, obstacles) = (proof.decisions(), std::mem::take(&mut proof.obstacles));
    let plan = proof.plan()?;
    Ok(ExplainReport {
        pipeline: plan.graph().name.clone(),
        dims: dims(plan.graph()),
        device: plan.device().name.clone(),
        executor: executor_name(executor),
        start: plan.launch().start().into(),
        stages: stages(&plan),
        edges: edges(&plan),
        choices: decisions
            .into_iter()
            .map(|c| ChoiceReport {
                subject: c.subject,
                decision: c.decision,
                stated: c.stated,
                reason: c.reason,
                alternatives: c.alternatives,
            })
            .collect(),
        schedule: schedule(plan.graph(), plan.device(), plan.launch().lists()),
        decode: decode(plan.launch().shares()),
        devices: DevicesReport::of_graph(plan.graph()),
        predicted,
        note,
        obstacles,
    })
}

/// Stages of a plan.
pub(crate) fn stages(plan: &Plan) -> Vec<StageView> {
    StageView::from_graph(plan.graph(), plan.launch(), plan.device())
}

/// Edges of a plan.
pub(crate) fn edges(plan: &Plan) -> Vec<EdgeReport> {
    let report = |(id, edge): (usize, &cusync_gen::check::EdgePlan)| {
        let d = edge.dependence();
        let operand = &plan.graph().stages[d.consumer.0].operands[d.operand];
        EdgeReport {
            name: plan.edge_name(id),
            operand: format!("{:?}", operand.kind),
            view: operand.view.map(|view| (view.rows, view.cols)),
            policy: edge.policy().to_string(),
            wait_at: match edge.wait_at() {
                WaitAt::PerKBlock => "k-block".into(),
                WaitAt::Start => "start".into(),
            },
            slots: edge.slots().slot_count,
        }
    };
    plan.edges().iter().enumerate().map(report).collect()
}

#[derive(Serialize)]
pub(crate) struct ChoiceReport {
    pub(crate) subject: String,
    pub(crate) decision: String,
    pub(crate) stated: bool,
    pub(crate) reason: String,
    pub(crate) alternatives: Vec<(String, f64)>,
}

#[derive(Serialize)]
pub(crate) struct ExplainReport {
    pub(crate) pipeline: String,
    pub(crate) dims: BTreeMap<String, u32>,
    pub(crate) device: String,
    pub(crate) executor: &'static str,
    pub(crate) start: String,
    pub(crate) stages: Vec<StageView>,
    pub(crate) edges: Vec<EdgeReport>,
    pub(crate) choices: Vec<ChoiceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<ScheduleReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decode: Option<DecodeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<DevicesReport>,
    pub(crate) predicted: Option<PredictionReport>,
    /// Reason why the device cannot run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// Obstacles that keep executors from running it.
    pub(crate) obstacles: Vec<ObstacleReport>,
}

impl Answer for ExplainReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!("{} for {} on {}", title(&self.pipeline, &self.dims), self.executor, self.device));
        match &self.note {
            Some(note) => page.line(note),
            // Sessions run jobs, and only on request.
            None => {
                let others = self.obstacles.iter().filter(|o| o.executor != Executor::Copilot.name());
                others.for_each(|o| page.line(format!("{} cannot run it: {}", o.executor, o.sentence())));
            }
        }
        page.line(format!("start guarantee: {}", self.start));
        page.table(
            ["stage", "M x N x K", "tile", "tiles", "waves", "order"],
            self.stages.iter().map(stage_row),
        );
        page.table(
            ["dependence", "operand", "policy", "waits at", "slots"],
            self.edges.iter().map(|e| {
                [e.name.clone(), e.read(), e.policy.clone(), e.wait_at.clone(), e.slots.to_string()]
            }),
        );
        self.schedule.iter().for_each(|s| page.line(schedule_line(s)));
        self.schedule.iter().filter_map(|s| s.shares.as_ref()).for_each(|t| page.line(shares_line(t)));
        self.decode.iter().for_each(|d| page.line(decode_line(d)));
        self.devices.iter().for_each(|d| page.line(devices_line(d)));
        for c in &self.choices {
            let stated = if c.stated { " (stated)" } else { "" };
            page.line(format!("{}: {}{stated}: {}", c.subject, c.decision, c.reason));
            for (other, us) in &c.alternatives {
                let more = self.predicted.as_ref().map(|p| us / p.synchronised_us - 1.0);
                let more = more.map(|more| format!(" ({})", signed_percent(more))).unwrap_or_default();
                page.line(format!("    {other}: {us:.1} us predicted{more}"));
            }
        }
        if let Some(p) = &self.predicted {
            page.line(prediction(p));
        }
    }
}

fn stage_row(s: &StageView) -> [String; 6] {
    let (m, n, k) = s.shape;
    [
        s.name.clone(),
        format!("{m} x {n} x {k}"),
        format!("{} x {} x {}", s.tile.0, s.tile.1, s.tile.2),
        format!("{} x {} = {}", s.grid.0, s.grid.1, s.tiles),
        format!("{:.2}", s.waves),
        s.order.clone(),
    ]
}

fn shares_line(t: &TimeReport) -> String {
    let total = t.math_us + t.fixed_us + t.wait_us + t.split_us + t.idle_us;
    let share = |us: f64| format!("{:.1} %", us / total * 100.0);
    format!(
        "of a worker's predicted time: {} multiplying, {} ring fills and epilogues, {} waiting, {} partial sums, {} idle",
        share(t.math_us),
        share(t.fixed_us),
        share(t.wait_us),
        share(t.split_us),
        share(t.idle_us)
    )
}
