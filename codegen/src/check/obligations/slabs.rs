//! Partial sums of split tiles: a slab has one writer, readers wait for it, and stored results are complete.

use std::collections::HashMap;
use std::ops::Range;

use super::{extent_tiles, slice_name, slice_subject};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::{Partition, StageId};
use crate::schedule::decode::is_in_pairs;
use crate::sync::Tile;

/// Slab operations of one CTA of an item.
#[derive(Default)]
struct Use {
    contributes: Vec<u32>,
    /// Slabs awaited before the first store.
    awaits: Vec<u32>,
    /// Slab, and whether its flag was awaited first.
    adds: Vec<(u32, bool)>,
    /// Units of the tile that it stores after its additions, and the number of units in a tile.
    stores: Vec<(Range<u32>, u32)>,
}

impl Use {
    fn for_slice(p: &dyn TileProgram, stage: StageId, tile: Tile, slice: u32) -> Use {
        let mut all = Use::default();
        p.events(stage, tile, slice, &mut |event| match event {
            Event::Contribute { slab } => all.contributes.push(slab),
            // Awaiting after the store does not order it.
            Event::Await { .. } if !all.stores.is_empty() => {}
            Event::Await { slab } => all.awaits.push(slab),
            // Sums added after the store are not stored.
            Event::Add { .. } if !all.stores.is_empty() => {}
            Event::Add { slab } => all.adds.push((slab, all.awaits.contains(&slab))),
            Event::Store { units, of: in_tile } => all.stores.push((units, in_tile)),
            Event::Wait { .. } | Event::Load { .. } | Event::Multicast { .. } | Event::Warp { .. } => {}
        });
        all
    }
}

/// A slice of a tile, for messages.
type Slice = (StageId, Tile, u32);

fn refute(c: &Candidate, p: &dyn TileProgram, obligation: Obligation, at: Slice, fault: &str) -> Refutation {
    let (stage, tile, slice) = at;
    let subject = slice_subject(p, stage, tile, slice).unwrap_or(Subject::Stage(stage));
    Refutation::new(obligation, subject, format!("{} {fault}", slice_name(c, p, stage, tile, slice)))
}

/// Slices that use slabs, tile by tile.
fn split_tiles(
    c: &Candidate,
    p: &dyn TileProgram,
    mut f: impl FnMut(StageId, Tile, u32) -> Option<Refutation>,
) -> Option<Refutation> {
    (0..c.graph.stages.len()).map(StageId).find_map(|stage| {
        extent_tiles(c, p, stage).find_map(|tile| {
            let slices = p.slices(&c.graph, stage, tile);
            if slices > 1 { f(stage, tile, slices) } else { None }
        })
    })
}

/// Each item that stores a part of a tile has added the sums of all other items of the tile, each after awaiting its
/// flag. In a decode kernel, a share computed by a pair of workers is stored only after awaiting the other's sums.
pub(super) fn cover(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    if c.launch.shares().is_some() {
        return pairs(c, p);
    }
    c.launch.lists()?;
    split_tiles(c, p, |stage, tile, slices| {
        let uses: Vec<Use> = (0..slices).map(|slice| Use::for_slice(p, stage, tile, slice)).collect();
        let name = |slice: usize| slice_name(c, p, stage, tile, slice as u32);
        for (slice, one) in uses.iter().enumerate() {
            let fault =
                |fault: String| Some(refute(c, p, Obligation::Cover, (stage, tile, slice as u32), &fault));
            for (n, &(slab, awaited)) in one.adds.iter().enumerate() {
                if !awaited {
                    let fault = fault(format!("adds slab {slab} without having seen its flag"));
                    return fault.map(|r| r.help("await the flag, with an acquire, first"));
                }
                if one.adds[..n].iter().any(|(other, _)| *other == slab) {
                    return fault(format!("adds slab {slab} twice"));
                }
                let of_tile = uses.iter().position(|u| u.contributes.contains(&slab));
                if of_tile == Some(slice) {
                    return fault(format!("adds slab {slab}, which holds its own sums"));
                }
                if of_tile.is_none() {
                    let holds = writer(c, p, slab).map_or_else(
                        || "nobody writes".into(),
                        |(s, t, slice)| format!("{} writes", slice_name(c, p, s, t, slice)),
                    );
                    return fault(format!("adds slab {slab}, which {holds}"))
                        .map(|r| r.help("a tile is the sum of its own parts"));
                }
            }
            if one.stores.iter().all(|(units, _)| units.is_empty()) {
                continue;
            }
            for (other, theirs) in uses.iter().enumerate().filter(|(other, _)| *other != slice) {
                let added = |slab: &u32| one.adds.iter().any(|(a, _)| a == slab);
                if theirs.contributes.is_empty() {
                    return fault(format!(
                        "finishes without the sums of {}, which leaves them nowhere",
                        name(other)
                    ));
                }
                if let Some(slab) = theirs.contributes.iter().find(|slab| !added(slab)) {
                    return fault(format!("finishes without slab {slab}, the sums of {}", name(other)));
                }
            }
        }
        None
    })
}

/// Each share of a pair leaves sums for the other in its own slab, and is stored after awaiting the other's sums.
fn pairs(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    let workers = c.launch.shares()?.workers();
    c.graph.stages.iter().enumerate().find_map(|(s, this_stage)| {
        let stage = StageId(s);
        let Partition::Even { parts } = this_stage.partition else { return None };
        if !is_in_pairs(&c.graph, this_stage, workers) {
            return None;
        }
        let uses: Vec<Use> = (0..parts).map(|n| Use::for_slice(p, stage, Tile { m: 0, n }, 0)).collect();
        (0..parts).zip(&uses).find_map(|(n, own)| {
            let (tile, other) = (Tile { m: 0, n }, Tile { m: 0, n: n ^ 1 });
            let fault = |fault: String| Some(refute(c, p, Obligation::Cover, (stage, tile, 0), &fault));
            let name = slice_name(c, p, stage, other, 0);
            let [left] = uses[other.n as usize].contributes[..] else {
                return fault(format!(
                    "is half of a pair with {name}, which does not leave its sums in one slab"
                ));
            };
            let writers = uses.iter().filter(|each| each.contributes.contains(&left)).count();
            if writers > 1 {
                return fault(format!("awaits slab {left}, which {writers} shares write"));
            }
            if !own.awaits.contains(&left) {
                return fault(format!("may be stored without the sums of {name}, which are in slab {left}"))
                    .map(|r| r.help("await them before the share is stored"));
            }
            None
        })
    })
}

fn writer(c: &Candidate, p: &dyn TileProgram, slab: u32) -> Option<Slice> {
    let mut found = None;
    split_tiles(c, p, |stage, tile, slices| {
        let writes = |slice: &u32| Use::for_slice(p, stage, tile, *slice).contributes.contains(&slab);
        found = found.or_else(|| (0..slices).find(writes).map(|slice| (stage, tile, slice)));
        None
    });
    found
}

/// No slab is written twice in a run: nothing would order the second writer after the reader of the first sums.
pub(super) fn reuse(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    let schedule = c.launch.lists()?;
    let ends = c.contract.full_run_boundary && (!c.contract.overlap || c.contract.dependency_wait);
    if !ends && schedule.slabs > 0 {
        return Some(
            Refutation::new(
                Obligation::Reuse,
                Subject::Pipeline,
                "the next run may overwrite slab 0 before it is read",
            )
            .fact("runs overlap: nothing orders a contribution behind the finisher of the run before")
            .help("put every store behind the end of the run before: `griddepcontrol.wait`"),
        );
    }
    let (rows, cols) = schedule.cluster;
    let mut writers: HashMap<(u32, u32, u32), Slice> = HashMap::new();
    split_tiles(c, p, |stage, tile, slices| {
        (0..slices).find_map(|slice| {
            let at = (stage, tile, slice);
            Use::for_slice(p, stage, tile, slice).contributes.into_iter().find_map(|slab| {
                // Each CTA of a cluster has its own slab under this number.
                let before = writers.insert((slab, tile.m % rows, tile.n % cols), at)?;
                let other = slice_name(c, p, before.0, before.1, before.2);
                Some(
                    refute(
                        c,
                        p,
                        Obligation::Reuse,
                        at,
                        &format!("may overwrite slab {slab} before it is read"),
                    )
                    .fact(format!("in the same run {other} writes it too"))
                    .help("give every contribution of a run a slab of its own"),
                )
            })
        })
    })
}
