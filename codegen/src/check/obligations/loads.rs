//! `order` of what a share is the sum of: its warps bring the k-blocks in any order, each of them once.

use super::{grid_tiles, slice_name, slice_subject};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::{StageId, When};

/// Every k-block of what a stage writes is loaded once in each share.
pub(super) fn order(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    c.graph.dependences.iter().find_map(|d| {
        let stage = &c.graph.stages[d.consumer.0];
        let once = stage.operands[d.operand].kind.when() == When::Epilogue;
        let shares = c.launch.shares().is_some();
        let k_blocks = if once { 1 } else { stage.k_blocks };
        let mut shares = grid_tiles(stage).filter(|tile| shares && !stage.writes(*tile).1.is_empty());
        shares.find_map(|tile| {
            let mut loads = vec![0; k_blocks as usize];
            let mut outside = None;
            p.events(d.consumer, tile, 0, &mut |event| match event {
                Event::Load { operand, k_block } | Event::Multicast { operand, k_block, .. }
                    if operand == d.operand =>
                {
                    match loads.get_mut(k_block as usize) {
                        Some(loads) => *loads += 1,
                        None => outside = Some(k_block),
                    }
                }
                _ => {}
            });
            let tensor = &c.graph.tensors[stage.operands[d.operand].tensor.0].name;
            let fault = match (outside, loads.iter().position(|n| *n != 1)) {
                (Some(k), _) => format!("loads k-block {k} of `{tensor}`, which has {k_blocks}"),
                (None, Some(k)) if loads[k] == 0 => format!("never loads k-block {k} of `{tensor}`"),
                (None, Some(k)) => format!("loads k-block {k} of `{tensor}` {} times", loads[k]),
                (None, None) => return None,
            };
            Some(refute(c, p, d.consumer, tile, &fault))
        })
    })
}

fn refute(
    c: &Candidate,
    p: &dyn TileProgram,
    stage: StageId,
    tile: crate::sync::Tile,
    fault: &str,
) -> Refutation {
    let subject = slice_subject(p, stage, tile, 0).unwrap_or(Subject::Stage(stage));
    Refutation::new(Obligation::Order, subject, format!("{} {fault}", slice_name(c, p, stage, tile, 0)))
        .help("a share is the sum of all k-blocks, each of them once")
}
