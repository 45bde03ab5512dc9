//! One function an obligation: `None` when it is proved, else a counterexample.

mod grids;
mod launch;
mod memory;
mod slots;

use super::{Candidate, Obligation, Refutation, TileProgram};

pub(super) use grids::well_formed;

/// Decides one obligation.
pub(super) fn judge(obligation: Obligation, c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    match obligation {
        Obligation::Order => grids::order(c),
        Obligation::Bounds => grids::bounds(c, p),
        Obligation::Cover => slots::cover(c, p),
        Obligation::Count => slots::count(c, p),
        Obligation::Acyclic => launch::acyclic(c),
        Obligation::Progress => launch::progress(c),
        Obligation::Reuse => memory::reuse(c, p),
        Obligation::Replay => memory::replay(c),
        Obligation::Visible => memory::visible(c),
    }
}

/// Whether semaphores carry the dependences; a chain held together by kernel boundaries relies on stream order instead.
fn has_semaphores(c: &Candidate) -> bool {
    c.executor != super::Executor::Serial && c.coupling == super::Coupling::Tiles
}

/// `stage(m, n)`, as counterexamples name a tile.
fn tile_name(c: &Candidate, stage: crate::graph::StageId, tile: crate::policy::Tile) -> String {
    format!("{}({}, {})", c.graph.stages[stage.0].name, tile.m, tile.n)
}

/// The tiles of a stage's grid, row by row.
fn grid_tiles(stage: &crate::graph::Stage) -> impl Iterator<Item = crate::policy::Tile> + use<> {
    let (gm, gn) = stage.grid;
    (0..gm).flat_map(move |m| (0..gn).map(move |n| crate::policy::Tile { m, n }))
}
