//! `cusync check`.

use cusync::runtime::executor_name;
use cusync_gen::check::Executor;
use cusync_gen::graph::Graph;

use super::fault::Fault;
use super::prove::Proof;
use super::report::CheckReport;
use super::request::Target;

/// The executor that a device is planned for where none is stated.
pub(crate) fn usual_executor(target: &Target) -> Executor {
    let by_arch = if target.device.arch >= 90 { Executor::Programmatic } else { Executor::Streams };
    target.executor.unwrap_or(by_arch)
}

/// Dims by name.
pub(crate) fn dims(graph: &Graph) -> std::collections::BTreeMap<String, u32> {
    graph.dims.iter().cloned().collect()
}

pub(crate) fn check(target: &Target) -> Result<CheckReport, Fault> {
    let executor = usual_executor(target);
    let proof = Proof::of(target, executor)?;
    let graph = &proof.candidate().graph;
    Ok(CheckReport {
        verdict: if proof.proved() { "proved" } else { "refuted" },
        pipeline: graph.name.clone(),
        dims: dims(graph),
        device: target.device.name.into(),
        executor: executor_name(executor),
        obligations: proof.obligations,
        refutations: proof.refutations,
    })
}
