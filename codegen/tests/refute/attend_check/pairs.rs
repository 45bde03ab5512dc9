//! Pairs of workers that share the k-tiles of a product: each awaits its half and the other's sums.

use super::{among, layer, planned};
use crate::changed::{mutated, only};
use cusync_gen::check::{Event, Obligation, judge};
use cusync_gen::graph::StageId;
use cusync_gen::schedule::decode::is_in_pairs;
use cusync_gen::sync::Tile;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Changes the events of the warps that load the worker's own half of a share's k-tiles, or the other half. The warps
/// of the share's own worker come first, followed by the same number of warps of the other worker.
fn of_half(events: Vec<Event>, others: bool, change: impl Fn(Event) -> Option<Event>) -> Vec<Event> {
    let warps = events.iter().filter(|event| matches!(event, Event::Warp { .. })).count() as u32;
    let (mut here, mut changed) = (false, Vec::new());
    for event in events {
        match &event {
            Event::Warp { warp } => here = (*warp >= warps / 2) == others,
            Event::Wait { .. } | Event::Load { .. } => {}
            _ => here = false,
        }
        changed.extend(if here { change(event) } else { Some(event) });
    }
    changed
}

#[test]
fn half_of_what_a_pair_of_workers_awaits_is_not_enough() {
    let c = planned(&layer(32, "RmsNorm", 8192));
    assert_eq!(judge(&c).refutations, []);
    let paired: Vec<usize> =
        (0..7).filter(|s| is_in_pairs(&c.graph, &c.graph.stages[*s], c.device.sms)).collect();
    assert_eq!(paired, [1], "QKV has 128 k-tiles and 1536 columns");
    // For one share or for all: the waits of one worker's warps for the norm's rows.
    for (others, everywhere) in [(true, true), (true, false), (false, true), (false, false)] {
        let is = |stage: StageId, tile: Tile| stage.0 == 1 && (everywhere || tile.n == 7);
        let early = mutated(&c, |stage, tile, _, events| {
            let wait = |event| (!matches!(event, Event::Wait { .. })).then_some(event);
            if is(stage, tile) { of_half(events, others, wait) } else { events }
        });
        let share = format!("share {} of qkv", if everywhere { 0 } else { 7 });
        only(&early, Obligation::Cover, &[&share, "may read `N1` before first(0, 0)"]);
        let lost = mutated(&c, |stage, tile, _, events| {
            let load = |event| (!matches!(event, Event::Load { .. })).then_some(event);
            if is(stage, tile) { of_half(events, others, load) } else { events }
        });
        only(&lost, Obligation::Order, &[&share, "never loads k-block"]);
    }
    // Mutate the wait of share 7 for share 6: no wait, another pair's sums, its own sums, or a wait that comes after
    // the store.
    let slab = |n: u32| c.device.sms + n;
    let report = |change: &dyn Fn(Vec<Event>) -> Vec<Event>| {
        mutated(
            &c,
            |stage, tile, _, events| if (stage.0, tile.n) == (1, 7) { change(events) } else { events },
        )
    };
    let instead = |to: u32| {
        report(&|events| {
            let other = |e| if e == (Event::Await { slab: slab(6) }) { Event::Await { slab: to } } else { e };
            events.into_iter().map(other).collect()
        })
    };
    let never = report(&|events| events.into_iter().filter(|e| !matches!(e, Event::Await { .. })).collect());
    let late = report(&|mut events| {
        let at = events.iter().position(|e| matches!(e, Event::Await { .. })).expect("it awaits");
        let wait = events.remove(at);
        events.push(wait);
        events
    });
    for unawaited in [never, instead(slab(8)), instead(slab(7)), late] {
        let says = ["share 7 of qkv", "may be stored without the sums of share 6 of qkv", "in slab 138"];
        only(&unawaited, Obligation::Cover, &says);
    }
    // A share contributes nothing, or writes to another pair's slab: the consumer hangs or gets the wrong sums.
    let silent =
        report(&|events| events.into_iter().filter(|e| !matches!(e, Event::Contribute { .. })).collect());
    among(&silent, Obligation::Cover);
    let twice = report(&|events| {
        let elsewhere =
            |e| if matches!(e, Event::Contribute { .. }) { Event::Contribute { slab: slab(9) } } else { e };
        events.into_iter().map(elsewhere).collect()
    });
    among(&twice, Obligation::Cover);
    // Both wait before they contribute anything.
    let stuck = mutated(&c, |stage, _, _, mut events| {
        let at = events.iter().position(|e| matches!(e, Event::Contribute { .. }));
        if let Some(at) = at.filter(|_| stage.0 == 1) {
            events.swap(at, at + 1);
        }
        events
    });
    only(&stuck, Obligation::Progress, &["share", "qkv"]);
}

/// A random change to one event of one share of a pair: lost or moved, or all waits of one of its warps lost or too
/// small.
#[test]
fn no_event_of_a_pair_of_workers_is_one_too_many() {
    let c = planned(&layer(32, "RmsNorm", 8192));
    let (qkv, sms) = (StageId(1), c.device.sms);
    let mut rng = SmallRng::seed_from_u64(12);
    let mut drawn = [0; 4];
    for round in 0..64 {
        let share = rng.random_range(0..c.graph.stages[qkv.0].tiles());
        let elsewhere = sms + (share + rng.random_range(2..sms - 2)) % sms;
        let (lot, kind, lose) = (rng.random_range(0..usize::MAX), round % 4, rng.random_bool(0.5));
        let report = mutated(&c, |stage, tile, _, mut events| {
            if (stage, tile.n) != (qkv, share) {
                return events;
            }
            let of_kind = |event: &Event| match event {
                Event::Warp { .. } => kind == 0,
                Event::Load { .. } => kind == 1,
                Event::Await { .. } => kind == 2,
                Event::Contribute { .. } => kind == 3,
                _ => false,
            };
            let places: Vec<usize> = (0..events.len()).filter(|i| of_kind(&events[*i])).collect();
            let at = places[lot % places.len()];
            match &mut events[at] {
                Event::Warp { .. } => {
                    let loads = |event: &Event| matches!(event, Event::Wait { .. } | Event::Load { .. });
                    let end =
                        events[at + 1..].iter().position(|e| !loads(e)).map_or(events.len(), |n| at + 1 + n);
                    let of_warp = events.splice(at + 1..end, []).collect::<Vec<_>>();
                    let changed = of_warp.into_iter().filter_map(|event| match event {
                        Event::Wait { .. } if lose => None,
                        Event::Wait { edge, slot, value } => {
                            Some(Event::Wait { edge, slot, value: value - 1 })
                        }
                        other => Some(other),
                    });
                    let changed: Vec<Event> = changed.collect();
                    events.splice(at + 1..at + 1, changed);
                }
                Event::Await { slab } | Event::Contribute { slab } if !lose => *slab = elsewhere,
                _ => drop(events.remove(at)),
            }
            events
        });
        drawn[kind] += 1;
        assert!(!report.refutations.is_empty(), "share {share}, kind {kind}, lot {lot}, lost {lose}");
    }
    assert_eq!(drawn, [16; 4]);
}
