//! Tiles that `check` takes as alike do the same, and nothing that matters is passed over.

use super::changed::Changed;
use super::{overlapped, plans, policies, shipped};
use cusync_gen::check::{Candidate, Event, Generated, Strands, TileProgram, judge_program};
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::sync::{Policy, Tile, WaitAt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// Judges a candidate with and without skipping alike tiles; the verdicts must match word for word for every
/// obligation. Returns whether it is proved.
fn same_verdict(c: &Candidate, change: impl Fn(Event) -> Option<Event> + Copy) -> bool {
    let program = Generated::new(c);
    let classes = judge_program(c, &Changed::new(&program, change, true));
    let each = judge_program(c, &Changed::new(&program, change, false));
    assert_eq!(classes, each, "{c:?}");
    each.proved()
}

/// The tiles of a stage that have events.
fn tiles(program: &Generated, graph: &Graph, stage: StageId) -> impl Iterator<Item = Tile> + use<> {
    let (gm, gn) = program.extent(graph, stage);
    (0..gm).flat_map(move |m| (0..gn).map(move |n| Tile { m, n }))
}

/// The events of an edge in all slices of a tile, with the areas that its loads read.
fn events_of_edge(
    (c, program): (&Candidate, &Generated),
    edge: usize,
    tile: Tile,
    events: impl Fn(u32, &mut dyn FnMut(Event)),
) -> Vec<Vec<(Event, Vec<String>)>> {
    let d = &c.graph.dependences[edge];
    let stage = &c.graph.stages[d.consumer.0];
    let slices = program.slices(&c.graph, d.consumer, tile);
    let in_slice = |slice| {
        let mut list = Vec::new();
        events(slice, &mut |event| {
            let mut read = Vec::new();
            let ours = match &event {
                Event::Wait { edge: other, .. } => *other == edge,
                Event::Load { operand, k_block } => {
                    let tensor = &c.graph.tensors[stage.operands[*operand].tensor.0];
                    stage.reads(*operand, tensor, (tile.m, tile.n), *k_block, &mut |rows, cols| {
                        read.push(format!("{rows:?} {cols:?}"));
                    });
                    *operand == d.operand
                }
                Event::Multicast { operand, .. } => *operand == d.operand,
                _ => false,
            };
            if ours {
                list.push((event, read));
            }
        });
        list
    };
    (0..slices).map(in_slice).collect()
}

/// Checks a generated program's claims about its strands.
fn strands_are_as_they_say(c: &Candidate) {
    let program = Generated::new(c);
    for stage in (0..c.graph.stages.len()).map(StageId) {
        for tile in tiles(&program, &c.graph, stage) {
            for slice in 0..program.slices(&c.graph, stage, tile) {
                let (mut stated, mut found) = (Vec::new(), Vec::new());
                program.stores(stage, tile, slice, &mut |units, all| stated.push((units, all)));
                program.events(stage, tile, slice, &mut |event| match event {
                    Event::Store { units, of } => found.push((units, of)),
                    _ => assert!(found.is_empty(), "something behind a store of {c:?}"),
                });
                assert_eq!(stated, found, "stores of {tile:?} of stage {stage:?} of {c:?}");
                let holds = |from_strands: bool| {
                    // Waits and posts, in turn.
                    let (mut needs, mut all) = (BTreeSet::new(), Vec::new());
                    let mut note = |event: Event| match event {
                        Event::Wait { .. } | Event::Await { .. } => {
                            needs.insert(format!("{event:?}"));
                        }
                        Event::Contribute { slab } => all.push((std::mem::take(&mut needs), slab)),
                        _ => {}
                    };
                    if from_strands {
                        program.holds(stage, tile, slice, &mut note);
                    } else {
                        program.events(stage, tile, slice, &mut note);
                    }
                    (all, needs)
                };
                assert_eq!(holds(true), holds(false), "{tile:?} of stage {stage:?} of {c:?}");
            }
        }
    }
    if program.strands().is_none() {
        return;
    }
    for (edge, d) in c.graph.dependences.iter().enumerate() {
        let by = c.graph.stages[d.consumer.0].reads_by(d.operand);
        let all: Vec<Tile> = tiles(&program, &c.graph, d.consumer).collect();
        let whole = |tile| {
            events_of_edge((c, &program), edge, tile, |slice, f| program.events(d.consumer, tile, slice, f))
        };
        for (i, &tile) in all.iter().enumerate() {
            let events = whole(tile);
            let strand = |from| {
                events_of_edge((c, &program), edge, tile, |slice, f| {
                    program.strand(edge, tile, slice, from, f)
                })
            };
            assert_eq!(strand(0), events, "edge {edge} at {tile:?} of {c:?}");
            // Compare arbitrary pairs of tiles, not only those that `check` compares.
            let other = all[i * 7 % all.len()];
            if let Some(from) = program.grows(edge, other, tile).filter(|_| other.n == tile.n && !by.0) {
                let grown = [whole(other).remove(0), strand(from).remove(0)].concat();
                assert_eq!(vec![grown], events, "edge {edge} from {other:?} to {tile:?} of {c:?}");
            }
            let reads_same = (other.m == tile.m || !by.0) && (other.n == tile.n || !by.1);
            if program.alike(edge, tile, other) && reads_same {
                assert_eq!(events, whole(other), "edge {edge} at {tile:?} and {other:?} of {c:?}");
            }
        }
    }
    for stage in (0..c.graph.stages.len()).map(StageId) {
        for tile in tiles(&program, &c.graph, stage) {
            for slice in 0..program.slices(&c.graph, stage, tile) {
                program.events(stage, tile, slice, &mut |event| {
                    if let Event::Wait { edge, .. } = event {
                        assert_eq!(c.graph.dependences[edge].consumer, stage, "{c:?}");
                    }
                });
            }
        }
    }
}

/// A plan with an error in its waits.
fn mistaken(rng: &mut SmallRng, c: &Candidate) -> Candidate {
    let mut wrong = c.clone();
    let edge = rng.random_range(0..c.edges.len());
    let d = c.graph.dependences[edge].clone();
    let (rows, cols) = c.graph.stages[d.producer.0].out_tile();
    let footprint = &mut wrong.graph.stages[d.consumer.0].operands[d.operand].footprint;
    let axis = if rng.random() { &mut footprint.rows } else { &mut footprint.cols };
    match rng.random_range(0..7) {
        0 => axis.extent -= rng.random_range(1..=rows as i32),
        1 => axis.offset += rng.random_range(-1..=1) * rows as i32,
        2 => axis.offset += rng.random_range(-1..=1) * cols as i32,
        3 => axis.m += rng.random_range(-2..=2),
        4 => axis.n += rng.random_range(-2..=2),
        5 => axis.k += rng.random_range(-2..=2),
        _ => wrong.edges[edge].wait_at = WaitAt::Start,
    }
    wrong
}

/// Draws a plan that has edges.
fn drawn(rng: &mut SmallRng) -> Candidate {
    loop {
        let mut c = plans::draw(rng);
        // Above the SM count for which all placements are explored: that exploration is slow and irrelevant here.
        c.device.sms = c.device.sms.max(17);
        if !c.edges.is_empty() {
            return c;
        }
    }
}

#[test]
fn tiles_are_alike_only_where_they_do_the_same() {
    let mut rng = SmallRng::seed_from_u64(3);
    for _ in 0..60 {
        let c = drawn(&mut rng);
        strands_are_as_they_say(&c);
        strands_are_as_they_say(&mistaken(&mut rng, &c));
    }
    for (_, resolved) in shipped(false) {
        for policy in policies() {
            strands_are_as_they_say(&overlapped(&resolved, &policy, WaitAt::PerKBlock));
        }
    }
}

#[test]
fn nothing_is_passed_over_that_matters() {
    let mut rng = SmallRng::seed_from_u64(4);
    let (mut proved, mut refuted) = (0, 0);
    let mut count = |verdict| *if verdict { &mut proved } else { &mut refuted } += 1;
    for _ in 0..40 {
        let base = drawn(&mut rng);
        for _ in 0..4 {
            let c = if rng.random() { base.clone() } else { mistaken(&mut rng, &base) };
            count(same_verdict(&c, Some));
            // One slot of an edge: no wait, a smaller value, or a wait for another slot.
            let (edge, slot) = (rng.random_range(0..c.edges.len()), rng.random_range(0..6));
            let by = rng.random_range(0..3);
            count(same_verdict(&c, |event| match event {
                Event::Wait { edge: e, slot: s, value } if (e, s) == (edge, slot) => match by {
                    0 => None,
                    1 => Some(Event::Wait { edge, slot, value: value - 1 }),
                    _ => Some(Event::Wait { edge, slot: slot + 1, value }),
                },
                other => Some(other),
            }));
        }
    }
    for (_, resolved) in shipped(false) {
        let base = overlapped(&resolved, &Policy::Row, WaitAt::PerKBlock);
        count(same_verdict(&base, Some));
        (0..2).for_each(|_| count(same_verdict(&mistaken(&mut rng, &base), Some)));
    }
    assert!(proved > 50 && refuted > 50, "{proved} proved, {refuted} refuted");
}
