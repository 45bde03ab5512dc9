//! One function per obligation: `None` if it is proved, otherwise a counterexample.

mod before;
mod devices;
mod explore;
mod grids;
mod launch;
mod lists;
mod loads;
mod memory;
mod posts;
mod scan;
mod schedule;
mod slabs;
mod slots;
mod state;
mod stores;

use super::{Candidate, Obligation, Refutation, TileProgram};

/// The fault that prevents any further evaluation.
pub(super) fn well_formed(c: &Candidate) -> Option<Refutation> {
    grids::well_formed(c).or_else(|| schedule::well_formed(c))
}

pub(super) use lists::{linear_extension, order_of_ends};
pub(super) use scan::Scan;
#[cfg(feature = "fault-injection")]
pub(super) use {explore::Explored, launch::both_ways};

/// Decides one obligation from the results of the scan over all tiles.
pub(super) fn judge(
    obligation: Obligation,
    c: &Candidate,
    p: &dyn TileProgram,
    scan: &Scan,
) -> Option<Refutation> {
    match obligation {
        Obligation::Order => grids::order(c)
            .or_else(|| stores::order(c, p, scan))
            .or_else(|| devices::order(c, p))
            .or_else(|| loads::order(c, p, scan.unloaded, scan.unshared)),
        Obligation::Bounds => grids::bounds(c, p, scan).or_else(|| devices::bounds(c, p)),
        Obligation::Cover => {
            slots::cover(c, p, scan).or_else(|| slabs::cover(c, p)).or_else(|| devices::cover(c, p))
        }
        Obligation::Count => slots::count(c, p, scan).or_else(|| devices::count(c, p)),
        Obligation::Acyclic => launch::acyclic(c, scan),
        Obligation::Progress => {
            launch::progress(c, p, scan).or_else(|| lists::progress(c, p)).or_else(|| devices::progress(c, p))
        }
        Obligation::Reuse => memory::reuse(c, p)
            .or_else(|| slabs::reuse(c, p))
            .or_else(|| state::reuse(c))
            .or_else(|| devices::reuse(c)),
        Obligation::Replay => memory::replay(c).or_else(|| state::replay(c)),
        Obligation::Visible => {
            memory::visible(c).or_else(|| state::visible(c)).or_else(|| devices::visible(c))
        }
    }
}

/// `stage(m, n)`, as counterexamples name a tile, or `share n of stage`.
fn tile_name(c: &Candidate, stage: crate::graph::StageId, tile: crate::sync::Tile) -> String {
    super::parts::tile_name(&c.graph.stages[stage.0], tile)
}

/// The tiles of a stage's grid, row by row.
fn grid_tiles(stage: &crate::graph::Stage) -> impl Iterator<Item = crate::sync::Tile> + use<> {
    let (gm, gn) = stage.grid;
    (0..gm).flat_map(move |m| (0..gn).map(move |n| crate::sync::Tile { m, n }))
}

/// A tile, in the order in which tiles are judged.
type StageTile = (crate::graph::StageId, crate::sync::Tile);

/// Every tile with events: those of the grid and, in a cluster at its edge, CTAs that only load for others.
fn extent_tiles(
    c: &Candidate,
    p: &dyn TileProgram,
    stage: crate::graph::StageId,
) -> impl Iterator<Item = crate::sync::Tile> + use<> {
    let (gm, gn) = p.extent(&c.graph, stage);
    (0..gm).flat_map(move |m| (0..gn).map(move |n| crate::sync::Tile { m, n }))
}

/// The tiles of a stage, starting at a tile that may belong to another stage.
fn from(
    begin: StageTile,
    c: &Candidate,
    p: &dyn TileProgram,
    stage: crate::graph::StageId,
) -> impl Iterator<Item = crate::sync::Tile> + use<> {
    extent_tiles(c, p, stage).skip_while(move |tile| (stage, *tile) < begin)
}

/// `stage(m, n)`, with the slice's position in a schedule: `down(0, 3) (item 5 of worker 17)`.
fn slice_name(
    c: &Candidate,
    p: &dyn TileProgram,
    stage: crate::graph::StageId,
    tile: crate::sync::Tile,
    slice: u32,
) -> String {
    let name = tile_name(c, stage, tile);
    match p.place(stage, tile, slice) {
        Some(place) => format!("{name} ({place})"),
        None => name,
    }
}

/// A slice as the subject of a refutation, if it has a position in a schedule.
fn slice_subject(
    p: &dyn TileProgram,
    stage: crate::graph::StageId,
    tile: crate::sync::Tile,
    slice: u32,
) -> Option<super::Subject> {
    p.place(stage, tile, slice).map(|place| super::Subject::Item { stage, place })
}
