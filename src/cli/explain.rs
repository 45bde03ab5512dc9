//! `cusync explain`: what a plan holds, and why.

use cusync::runtime::executor_name;
use cusync_gen::check::{Executor, Plan};
use cusync_gen::choose::{order_name, policy_name};
use cusync_gen::graph::StageId;
use cusync_gen::schedule::decode::{COLUMN_TILE, slots_of};
use cusync_gen::sync::WaitAt;

use super::check::{decode, dims, schedule, usual_executor};
use super::fault::Fault;
use super::prove::Proof;
use super::report::{ChoiceReport, EdgeReport, ExplainReport, PredictionReport, StageReport};
use super::request::Target;

pub(crate) fn explain(target: &Target) -> Result<ExplainReport, Fault> {
    let executor = usual_executor(target);
    let proof = Proof::of(target, executor)?;
    let decisions = proof.decisions(executor);
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
        decode: decode(plan.graph(), plan.launch().shares()),
        predicted: predicted(&plan, executor),
    })
}

/// A plan's stages.
pub(crate) fn stages(plan: &Plan) -> Vec<StageReport> {
    let of = |(index, s): (usize, &cusync_gen::graph::Stage)| StageReport {
        name: s.name.clone(),
        shape: [s.m, s.n, s.k],
        tile: [s.mma_tile.0, s.mma_tile.1, s.mma_tile.2],
        grid: [s.grid.0, s.grid.1],
        tiles: s.tiles(),
        k_blocks: s.k_blocks,
        waves: f64::from(s.tiles()) / f64::from(plan.device().sms),
        order: match plan.launch().kernel(StageId(index)) {
            Some(kernel) => order_name(&kernel.order),
            None => "by schedule".into(),
        },
    };
    plan.graph().stages.iter().enumerate().map(of).collect()
}

/// A plan's edges.
pub(crate) fn edges(plan: &Plan) -> Vec<EdgeReport> {
    let of = |(id, edge): (usize, &cusync_gen::check::EdgePlan)| {
        let d = edge.dependence();
        let kind = plan.graph().stages[d.consumer.0].operands[d.operand].kind;
        EdgeReport {
            name: plan.edge_name(id),
            operand: format!("{kind:?}"),
            policy: match plan.launch().shares() {
                // Its slots are its own; the policy is that of the graph's tiles, which it does not run.
                Some(_) => format!("a slot for each {COLUMN_TILE} columns"),
                None => policy_name(edge.policy()),
            },
            wait_at: match edge.wait_at() {
                WaitAt::PerKBlock => "k-block".into(),
                WaitAt::Start => "start".into(),
            },
            slots: match plan.launch().shares() {
                Some(_) => slots_of(&plan.graph().stages[d.producer.0]),
                None => edge.slots().slot_count,
            },
        }
    };
    plan.edges().iter().enumerate().map(of).collect()
}

/// The predicted times of a plan made for an executor, where a model made its choices.
pub(crate) fn predicted(plan: &Plan, executor: Executor) -> Option<PredictionReport> {
    plan.predicted().map(|p| PredictionReport {
        device: plan.device().name.clone(),
        executor: executor_name(executor),
        serial_us: p.serial_us,
        synchronised_us: p.synchronised_us,
    })
}
