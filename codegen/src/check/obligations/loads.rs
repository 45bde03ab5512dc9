//! `order` of loads: every k-block that other stages write is loaded before the tile is stored. The warps of a share
//! load the k-blocks in any order, each of them once.

use std::ops::Range;

use super::{StageTile, grid_tiles, slice_name, slice_subject};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::{StageId, When};
use crate::sync::Tile;

/// Rows and columns of a tensor.
pub(super) type Rect = (Range<u32>, Range<u32>);

/// Calls `f` with each region that a load reads: operand, k-block, region of its tensor.
pub(super) fn regions(
    c: &Candidate,
    stage: StageId,
    tile: Tile,
    load: &Event,
    f: &mut dyn FnMut(usize, u32, Rect),
) {
    match load {
        Event::Load { operand, k_block } => {
            let stage = &c.graph.stages[stage.0];
            let tensor = &c.graph.tensors[stage.operands[*operand].tensor.0];
            stage.reads(*operand, tensor, (tile.m, tile.n), *k_block, &mut |rows, cols| {
                f(*operand, *k_block, (rows, cols));
            });
        }
        Event::Multicast { operand, k_block, rows, cols } => {
            f(*operand, *k_block, (rows.clone(), cols.clone()));
        }
        Event::Wait { .. }
        | Event::Warp { .. }
        | Event::Contribute { .. }
        | Event::Await { .. }
        | Event::Add { .. }
        | Event::Store { .. } => {}
    }
}

/// Every k-block that a stage writes is loaded by each tile that reads it, in the slice that sums it up.
pub(super) fn order(
    c: &Candidate,
    p: &dyn TileProgram,
    unloaded: Option<(StageTile, u32, usize, u32)>,
    unshared: bool,
) -> Option<Refutation> {
    let Some(((stage, tile), slice, edge, k_block)) = unloaded else {
        return unshared.then(|| of_shares(c, p)).flatten();
    };
    let operand = c.graph.dependences[edge].operand;
    let tensor = &c.graph.tensors[c.graph.stages[stage.0].operands[operand].tensor.0].name;
    let subject = slice_subject(p, stage, tile, slice).unwrap_or(Subject::Edge(edge));
    let name = slice_name(c, p, stage, tile, slice);
    let message = format!("{name} stores what it has not loaded: k-block {k_block} of `{tensor}`");
    let refutation = Refutation::new(Obligation::Order, subject, message);
    Some(refutation.help(
        "load every k-block of every operand that a stage writes before the sums are passed on or stored",
    ))
}

/// The CTAs of a worker load slices for each other. Returns the first k-block of `ks` for which their combined loads
/// miss something that one of them needs.
pub(super) fn together(
    c: &Candidate,
    p: &dyn TileProgram,
    (stage, tile): StageTile,
    slice: u32,
    edge: usize,
    ks: &Range<u32>,
) -> Option<u32> {
    let (this_stage, operand) = (&c.graph.stages[stage.0], c.graph.dependences[edge].operand);
    let tensor = &c.graph.tensors[this_stage.operands[operand].tensor.0];
    let (rows, cols) = c.launch.cluster();
    let (m, n) = (tile.m / rows * rows, tile.n / cols * cols);
    let mates = || (m..m + rows).flat_map(move |m| (n..n + cols).map(move |n| Tile { m, n }));
    // Loads of each CTA for itself, and loads for all CTAs.
    let (mut own, mut shared) = (Vec::<(Tile, u32)>::new(), Vec::<(u32, Rect)>::new());
    for mate in mates() {
        let mut note = |event| match event {
            Event::Load { operand: o, k_block } if o == operand => own.push((mate, k_block)),
            Event::Multicast { operand: o, k_block, rows, cols } if o == operand => {
                shared.push((k_block, (rows, cols)));
            }
            _ => {}
        };
        match p.strands() {
            Some(strands) => strands.strand(edge, mate, slice, 0, &mut note),
            None => p.events(stage, mate, slice, &mut note),
        }
    }
    own.sort_unstable_by_key(|(tile, k)| (tile.m, tile.n, *k));
    let loads = |tile: &Tile, k: u32| {
        own.binary_search_by_key(&(tile.m, tile.n, k), |(tile, k)| (tile.m, tile.n, *k)).is_ok()
    };
    shared.sort_by_key(|(k, _)| *k);
    let inside = |t: &Tile| t.m < this_stage.grid.0 && t.n < this_stage.grid.1;
    let each = this_stage.operands[operand].kind.when() == When::Each;
    ks.clone().filter(|_| each).find(|k| {
        let from = |k: u32| shared.partition_point(|(other, _)| *other < k);
        let brought = &shared[from(*k)..from(k + 1)];
        mates().filter(inside).any(|mate| {
            let mut missing = false;
            this_stage.reads(operand, tensor, (mate.m, mate.n), *k, &mut |rows, cols| {
                missing |= !loads(&mate, *k) && !covered(&(rows, cols), brought);
            });
            missing
        })
    })
}

/// Whether boxes that span the full width or height of an area cover it completely.
fn covered((rows, cols): &Rect, boxes: &[(u32, Rect)]) -> bool {
    let within =
        |outer: &Range<u32>, inner: &Range<u32>| outer.start <= inner.start && inner.end <= outer.end;
    let along = |whole: &Range<u32>, part: &dyn Fn(&Rect) -> Option<Range<u32>>| {
        let mut reached = whole.start;
        let further = |at: u32| {
            let parts = boxes.iter().filter_map(|(_, region)| part(region));
            parts.filter(|part| part.start <= at && at < part.end).map(|part| part.end).max()
        };
        while reached < whole.end {
            let Some(end) = further(reached) else { return false };
            reached = end;
        }
        true
    };
    along(cols, &|(r, c)| within(r, rows).then(|| c.clone()))
        || along(rows, &|(r, c)| within(c, cols).then(|| r.clone()))
}

/// The k-blocks of a dependence's operand.
pub(super) fn k_blocks(c: &Candidate, edge: usize) -> u32 {
    let d = &c.graph.dependences[edge];
    let stage = &c.graph.stages[d.consumer.0];
    if stage.operands[d.operand].kind.when() == When::Epilogue { 1 } else { stage.k_blocks }
}

/// Every k-block that a stage writes is loaded once in each share.
fn of_shares(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    c.graph.dependences.iter().enumerate().find_map(|(edge, d)| {
        let stage = &c.graph.stages[d.consumer.0];
        let k_blocks = k_blocks(c, edge);
        let mut shares = grid_tiles(stage).filter(|tile| !stage.writes(*tile).1.is_empty());
        shares.find_map(|tile| {
            let mut loads = vec![0; k_blocks as usize];
            let (mut outside, mut late, mut stored) = (None, None, false);
            p.events(d.consumer, tile, 0, &mut |event| match event {
                Event::Store { .. } => stored = true,
                Event::Load { operand, k_block } | Event::Multicast { operand, k_block, .. }
                    if operand == d.operand && stored =>
                {
                    late = Some(k_block);
                }
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
                (None, None) => format!("loads k-block {} of `{tensor}` after its store", late?),
            };
            Some(refute(c, p, d.consumer, tile, &fault))
        })
    })
}

fn refute(c: &Candidate, p: &dyn TileProgram, stage: StageId, tile: Tile, fault: &str) -> Refutation {
    let subject = slice_subject(p, stage, tile, 0).unwrap_or(Subject::Stage(stage));
    Refutation::new(Obligation::Order, subject, format!("{} {fault}", slice_name(c, p, stage, tile, 0)))
        .help("a share is the sum of all k-blocks, each of them once")
}
