//! Partial sums of split tiles: a slab has one writer and one reader, and the reader waits for it.

use std::collections::HashMap;

use super::{extent_tiles, slice_name, slice_subject};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::StageId;
use crate::policy::Tile;

/// What one CTA of an item does with slabs.
#[derive(Default)]
struct Use {
    contributes: Vec<u32>,
    /// Slab, and whether its flag had been awaited.
    adds: Vec<(u32, bool)>,
}

impl Use {
    fn of(p: &dyn TileProgram, stage: StageId, tile: Tile, slice: u32) -> Use {
        let mut all = Use::default();
        let mut awaited = Vec::new();
        p.events(stage, tile, slice, &mut |event| match event {
            Event::Contribute { slab } => all.contributes.push(slab),
            Event::Await { slab } => awaited.push(slab),
            Event::Add { slab } => all.adds.push((slab, awaited.contains(&slab))),
            Event::Wait { .. } | Event::Load { .. } | Event::Multicast { .. } => {}
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

/// The finisher of a tile adds the sums of exactly the other items of the tile, each behind its flag.
pub(super) fn cover(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    split_tiles(c, p, |stage, tile, slices| {
        let uses: Vec<Use> = (0..slices).map(|slice| Use::of(p, stage, tile, slice)).collect();
        let slice_of = |wanted: &dyn Fn(&Use) -> bool| uses.iter().position(wanted).map(|s| s as u32);
        for (slice, one) in uses.iter().enumerate() {
            let at = (stage, tile, slice as u32);
            for (n, &(slab, awaited)) in one.adds.iter().enumerate() {
                if !awaited {
                    let fault = format!("adds slab {slab} without having seen its flag");
                    return Some(
                        refute(c, p, Obligation::Cover, at, &fault)
                            .help("await the flag, with an acquire, first"),
                    );
                }
                if one.adds[..n].iter().any(|(other, _)| *other == slab) {
                    return Some(refute(c, p, Obligation::Cover, at, &format!("adds slab {slab} twice")));
                }
                if slice_of(&|u| u.contributes.contains(&slab)).is_none() {
                    let holds = writer(c, p, slab).map_or_else(
                        || "nobody writes".into(),
                        |(s, t, slice)| format!("{} writes", slice_name(c, p, s, t, slice)),
                    );
                    return Some(
                        refute(c, p, Obligation::Cover, at, &format!("adds slab {slab}, which {holds}"))
                            .help("a tile is the sum of its own parts"),
                    );
                }
            }
            if let Some(slab) =
                one.contributes.iter().find(|s| slice_of(&|u| u.adds.iter().any(|(a, _)| a == *s)).is_none())
            {
                let fault =
                    format!("leaves its sums in slab {slab}, which the finisher of the tile does not add");
                return Some(refute(c, p, Obligation::Cover, at, &fault));
            }
        }
        None
    })
}

fn writer(c: &Candidate, p: &dyn TileProgram, slab: u32) -> Option<Slice> {
    let mut found = None;
    split_tiles(c, p, |stage, tile, slices| {
        let writes = |slice: &u32| Use::of(p, stage, tile, *slice).contributes.contains(&slab);
        found = found.or_else(|| (0..slices).find(writes).map(|slice| (stage, tile, slice)));
        None
    });
    found
}

/// No slab is written twice in a run: nothing would order the second writer behind the reader of the first sums.
pub(super) fn reuse(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    let schedule = c.schedule.as_ref()?;
    let ends = c.practice.full_run_boundary && (!c.practice.early_launch || c.practice.dependency_wait);
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
            Use::of(p, stage, tile, slice).contributes.into_iter().find_map(|slab| {
                // Each CTA of a cluster has a slab of its own under the number.
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
