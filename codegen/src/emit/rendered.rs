//! The files of `policies/rendered`: source text in, file contents out.

use super::{handle, header};
use crate::check::{Candidate, Executor, Plan, check};
use crate::device::{DEVICES, Device};
use crate::diagnostic::Diagnostic;
use crate::graph::{Op, Resolved, StageId, StatedOrder};
use crate::spec;

/// The plan that is rendered of a spec: its default dims, the first device profile, one stream a stage. What the spec
/// leaves open is chosen plainly: whole waves of tiles, row-major, a slot a row.
///
/// # Errors
/// Faults of the spec, and obligations that do not hold.
pub fn rendered_plan(name: &str, source: &str) -> Result<Plan, Diagnostic> {
    let resolved = spec::parse(source, &format!("policies/{name}.ron"))?.resolve(&[])?;
    let candidate = candidate(&resolved, &DEVICES[0])?;
    let dependences = candidate.graph.dependences.clone();
    check(candidate).map_err(|refutation| refutation.to_diagnostic(&resolved, &dependences))
}

/// Names and contents of the files rendered of the spec `name`.ron.
///
/// # Errors
/// Those of [`rendered_plan`].
pub fn rendered_files(name: &str, source: &str) -> Result<Vec<(String, String)>, Diagnostic> {
    let plan = rendered_plan(name, source)?;
    Ok(vec![(format!("{name}.h"), header(&plan)), (format!("{name}.rs"), handle(&plan))])
}

fn candidate(resolved: &Resolved, device: &Device) -> Result<Candidate, Diagnostic> {
    let mut tiles = Vec::new();
    for (index, stage) in resolved.stages.iter().enumerate() {
        let packed = if stage.op == Op::GatedGemm { 2 * stage.n } else { stage.n };
        // Time of the stage's waves, in elements of one SM.
        let cost = |tile: &(u32, u32, u32)| {
            let count = u64::from(stage.m.div_ceil(tile.0)) * u64::from(packed.div_ceil(tile.1));
            count.div_ceil(u64::from(device.sms)) * u64::from(tile.0) * u64::from(tile.1)
        };
        tiles.extend(resolved.kernel_candidates(StageId(index), device)?.into_iter().min_by_key(cost));
    }
    let mut candidate = Candidate::new(resolved.graph(&tiles)?, device.clone(), Executor::Streams);
    for (order, stage) in candidate.orders.iter_mut().zip(&resolved.stages) {
        if let Some(StatedOrder::Is(stated)) = stage.stated_order.as_ref().map(|o| &o.value) {
            *order = stated.clone();
        }
    }
    for (choice, dependence) in candidate.edges.iter_mut().zip(&candidate.graph.dependences) {
        let Some(stated) = resolved.stated_edge(dependence) else { continue };
        if let Some(policy) = &stated.policy {
            choice.policy = policy.value.clone();
        }
        if let Some(wait_at) = &stated.wait_at {
            choice.wait_at = wait_at.value;
        }
    }
    Ok(candidate)
}
