//! `order` of stores: every unit of every tile is stored once.

use std::ops::Range;

use super::scan::Scan;
use super::{grid_tiles, slice_name, slice_subject};
use crate::check::{Candidate, Obligation, Refutation, Subject, TileProgram};
use crate::graph::StageId;
use crate::sync::Tile;

/// The items of a tile together store each of its units once. Without a schedule, the slices of a tile are combined
/// and the last one to arrive stores it, whichever that is, so each slice that sums anything must store the whole
/// tile.
pub(super) fn order(c: &Candidate, p: &dyn TileProgram, scan: &Scan) -> Option<Refutation> {
    (0..c.graph.stages.len()).map(StageId).find_map(|stage| {
        let this_stage = &c.graph.stages[stage.0];
        grid_tiles(this_stage).filter(|tile| !this_stage.writes(*tile).1.is_empty()).find_map(|tile| {
            let slices = scan.slices(c, p, (stage, tile));
            if c.launch.work().is_some() {
                return stored_once(c, p, (stage, tile), 0..slices);
            }
            (0..slices).find_map(|slice| {
                let sums = !scan.sums(c, (stage, tile), slice).0.is_empty();
                let stores = || each(p, stage, tile, slice, &mut |_, _| {}) > 0;
                if sums || stores() { stored_once(c, p, (stage, tile), slice..slice + 1) } else { None }
            })
        })
    })
}

/// Calls `f` with the units that a slice stores and the units of its tile. Returns the number of stores.
fn each(
    p: &dyn TileProgram,
    stage: StageId,
    tile: Tile,
    slice: u32,
    f: &mut dyn FnMut(Range<u32>, u32),
) -> u32 {
    let mut count = 0;
    p.stores(stage, tile, slice, &mut |units, in_tile| {
        count += 1;
        f(units, in_tile);
    });
    count
}

/// Slices that together store each unit of a tile once.
fn stored_once(
    c: &Candidate,
    p: &dyn TileProgram,
    (stage, tile): (StageId, Tile),
    slices: Range<u32>,
) -> Option<Refutation> {
    let (mut count, mut whole) = (0, 0);
    for slice in slices.clone() {
        count += each(p, stage, tile, slice, &mut |units, in_tile| {
            whole += u32::from(in_tile > 0 && units == (0..in_tile))
        });
    }
    if (count, whole) == (1, 1) {
        return None;
    }
    let mut stores: Vec<(Range<u32>, u32, u32)> = Vec::new();
    for slice in slices.clone() {
        each(p, stage, tile, slice, &mut |units, in_tile| stores.push((units, in_tile, slice)));
    }
    let refute = |slice: u32, fault: String| {
        let subject = slice_subject(p, stage, tile, slice).unwrap_or(Subject::Stage(stage));
        let name = slice_name(c, p, stage, tile, slice);
        Some(
            Refutation::new(Obligation::Order, subject, format!("{name} {fault}"))
                .help("store each unit of each tile once"),
        )
    };
    let Some((_, all, _)) = stores.first().cloned() else {
        return refute(slices.start, "is never stored".into());
    };
    stores.sort_by_key(|(units, ..)| (units.start, units.end));
    let mut done = 0;
    for (units, in_tile, slice) in &stores {
        if *in_tile != all {
            return refute(*slice, format!("is a tile of {in_tile} units and of {all}"));
        }
        if units.start != done {
            let fault = if units.start < done { "stores again" } else { "leaves no slice to store" };
            let (from, to) = (done.min(units.start), done.max(units.start));
            return refute(*slice, format!("{fault} units {from}..{to} of the {in_tile} of its tile"));
        }
        done = units.end;
    }
    let (_, in_tile, slice) = stores.last()?;
    (done != *in_tile || done == 0)
        .then(|| refute(*slice, format!("is of a tile of {in_tile} units of which only {done} are stored")))
        .flatten()
}
