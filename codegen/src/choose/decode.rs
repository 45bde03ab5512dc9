//! The `fused` executor's choice for few tokens: a decode kernel.

use super::obstacles::{beyond_kernels, without_lists};
use crate::check::{Candidate, Choice, Launch};
use crate::device::{Operations, Profile};
use crate::diagnostic::Diagnostic;
use crate::graph::{Graph, PAGE, Resolved, ResolvedStage, StageId};
use crate::obstacle::Obstacle;
use crate::schedule::decode::{COLUMN_TILE, Decode, decode as share_out, widths};

/// The tile of a GEMM before it is cut into shares; its depth is the kernel's k-block.
const NOMINAL_TILE: (u32, u32, u32) = (64, 128, 64);

/// Why decode kernels cannot run a chain.
pub(super) fn unfit(resolved: &Resolved, device: &Profile) -> Option<Obstacle> {
    shared_out(resolved, device).err()
}

/// The graph cut into even shares, and the work of its workers.
fn shared_out(resolved: &Resolved, device: &Profile) -> Result<(Graph, Decode), Obstacle> {
    without_lists(device).or_else(|| beyond_kernels(resolved)).map_or(Ok(()), Err)?;
    let nominal = |stage: &ResolvedStage| stage.op.is_gemm() && stage.op.rules().takes(NOMINAL_TILE, stage.n);
    let tile = |s: usize| match nominal(&resolved.stages[s]) {
        true => Ok(NOMINAL_TILE),
        false => resolved.kernel_candidates(StageId(s), device).map(|tiles| tiles[0]),
    };
    let tiles: Vec<_> = (0..resolved.stages.len()).map(tile).collect::<Result<_, _>>()?;
    let shares = share_out(&resolved.graph(&tiles)?, device)?;
    let stated = |s: &ResolvedStage| s.stated_tile.is_some() || s.stated_order.is_some();
    if !resolved.edges.is_empty() || resolved.stages.iter().any(stated) {
        return Err(Obstacle::new("tiles, orders or policies are stated, and a decode kernel has its own")
            .help("leave them out"));
    }
    Ok(shares)
}

/// The decode kernel for a chain with few tokens.
///
/// # Errors
/// The chain has no decode plan: it has too many rows, a stage reads more than weights and the previous stage's
/// output, or the spec states tiles, orders or policies, which decode kernels do not support.
pub fn decode(resolved: &Resolved, device: &Profile) -> Result<Candidate, Diagnostic> {
    let (graph, plan) = shared_out(resolved, device).map_err(|why| {
        let most = widths(resolved.operations()).max().or(widths(Operations::default()).max()).unwrap_or(0);
        Diagnostic::new("no-kernel", format!("no decode kernel runs this chain: {why}")).help(format!(
            "it takes a chain of GEMMs with constant weights, attentions with caches, normalisations, and at most {most} rows"
        ))
    })?;
    let workers = plan.workers();
    let mut c = Candidate::launched(graph, device.clone(), Launch::Shares(plan));
    c.choices = vec![Choice {
        subject: "decode kernel".into(),
        decision: format!("{workers} CTAs, each with an equal share of every stage's columns"),
        stated: false,
        reason: format!(
            "with {} rows the weights take most of the time: every SM streams its share of them, and activations are awaited \
             by tiles of {COLUMN_TILE} columns",
            c.graph.stages.first().map_or(0, |s| s.m)
        ),
        alternatives: Vec::new(),
    }];
    let attended = c.graph.stages.iter().filter_map(|stage| Some((stage, stage.op.attend()?)));
    let shared = attended.map(|(stage, shape)| Choice {
        subject: format!("shares of {}", stage.name),
        decision: format!("units of {PAGE} tokens of a sequence and head, about as many for every CTA that has any"),
        stated: false,
        reason: format!(
            "lengths are read in every run, so ragged batches are balanced; times are predicted with {} tokens a sequence",
            shape.expected
        ),
        alternatives: Vec::new(),
    });
    c.choices.extend(shared.collect::<Vec<_>>());
    Ok(c)
}
