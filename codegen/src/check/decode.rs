//! Limits of the decode kernels.

use super::{Candidate, Obligation, Refutation, Subject};
use crate::graph::{Partition, StageId};
use crate::schedule::Schedule;
use crate::schedule::decode::{Decode, parts_of, policy, producer_of, unfit, width_of, work};
use crate::sync::WaitAt;

/// Why the kernel would not follow the plan: it derives its work from the number of workers alone.
pub(super) fn unfollowed(c: &Candidate, plan: &Decode) -> Option<Refutation> {
    let refute = |subject, message| Some(Refutation::new(Obligation::Bounds, subject, message));
    let (graph, workers) = (&c.graph, plan.workers());
    if c.device.arch != 90 {
        let message = format!("decode kernels are for sm_90a, and {} is sm_{}", c.device.name, c.device.arch);
        return refute(Subject::Pipeline, message);
    }
    if let Some(why) = unfit(graph, workers) {
        return refute(Subject::Pipeline, format!("no decode kernel runs this chain: {why}"));
    }
    for (s, stage) in graph.stages.iter().enumerate() {
        let tiled = !stage.op.is_gemm() && matches!(stage.partition, Partition::Tiles { .. });
        let parts = parts_of(stage, workers);
        let fault = if stage.partition != (Partition::Even { parts }) && !tiled {
            format!("is cut into {} shares for {workers} workers, which make {parts}", stage.grid.1)
        } else if width_of(graph, stage.m) != Some(plan.width) {
            format!("has {} rows, and the kernel is for {}", stage.m, plan.width)
        } else if producer_of(graph, stage).is_some_and(|p| p.0 >= s) {
            "reads what a later stage writes".into()
        } else {
            continue;
        };
        return refute(Subject::Stage(StageId(s)), format!("`{}` {fault}", stage.name));
    }
    for (edge, (choice, d)) in c.edges.iter().zip(&graph.dependences).enumerate() {
        let kernel = policy(graph, d);
        if choice.policy != kernel || choice.wait_at != WaitAt::PerKBlock {
            let (name, planned) = (c.edge_name(edge), &choice.policy);
            let message = format!("a decode kernel waits by {kernel} for {name}, and not by {planned}");
            return refute(Subject::Edge(edge), message);
        }
    }
    let kernel = work(graph, workers);
    let list = |source: &Schedule, worker: usize| -> Vec<_> {
        source.lists[worker].iter().map(|item| source.sequence[*item as usize]).collect()
    };
    let other = (0..workers as usize).find(|w| list(&plan.work, *w) != list(&kernel, *w))?;
    let refutation = Refutation::new(
        Obligation::Bounds,
        Subject::Pipeline,
        format!("worker {other} has other work than share {other} of each stage in turn"),
    );
    Some(refutation.fact("a decode kernel follows no lists: a worker's number determines its work"))
}
