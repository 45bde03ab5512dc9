//! Tests the checker of notes: it accepts the notes of a sound run and detects every change to them.

use std::collections::{HashMap, HashSet};

use super::{Judged, Key, OPERANDS, candidate};
use crate::common::dim;
use crate::fused::{DYNAMIC, STATIC};
use cusync::ffi::{self, cusync_note as Note};
use cusync::runtime::{ChainOverride, Overrides, plan_text, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Profile;
use cusync_gen::sync::Tile;

fn note(key: Key, event: u32, at: u32, value: u32) -> Note {
    Note { event, stage: key.0, m: key.1, n: key.2, item: key.3, at, value }
}

/// Notes of a run in which items proceed as their waits are satisfied.
fn sound(judged: &Judged<'_>) -> Vec<Note> {
    let items = &judged.items;
    let (mut notes, mut posted): (Vec<Note>, HashMap<(u32, u32), u32>) = Default::default();
    let (mut open, mut given): (Vec<&Key>, HashSet<u32>) = (items.keys().collect(), HashSet::new());
    while !open.is_empty() {
        let before = open.len();
        open.retain(|key| {
            let expected = &items[key];
            let met = |(slot, value): &(u32, u32)| {
                posted.get(&(judged.poster(key.0), *slot)).is_some_and(|have| have >= value)
            };
            if !expected.waits.iter().all(met) || !expected.takes.iter().all(|slab| given.contains(slab)) {
                if expected.gives.is_empty()
                    || !expected.waits.iter().all(met)
                    || expected.gives.iter().all(|g| given.contains(g))
                {
                    return true;
                }
                given.extend(&expected.gives);
                return true;
            }
            for (slot, value) in &expected.waits {
                notes.push(note(**key, ffi::CUSYNC_EVENT_WAIT, *slot, *value));
            }
            for ((role, k), _) in &expected.loads {
                notes.push(note(**key, ffi::CUSYNC_EVENT_LOAD, *role, *k));
            }
            for slab in &expected.gives {
                notes.push(note(**key, ffi::CUSYNC_EVENT_GIVE, *slab, 0));
            }
            given.extend(&expected.gives);
            for slab in &expected.takes {
                notes.push(note(**key, ffi::CUSYNC_EVENT_TAKE, *slab, 0));
            }
            for (role, _) in &expected.late {
                notes.push(note(**key, ffi::CUSYNC_EVENT_LOAD, *role, 0));
            }
            let unit = expected.units.clone();
            unit.clone().for_each(|u| notes.push(note(**key, ffi::CUSYNC_EVENT_STORE, u, 0)));
            let slices = items.range((key.0, key.1, key.2, 0)..=(key.0, key.1, key.2, u32::MAX));
            let finishing = slices.filter(|(_, expected)| !expected.units.is_empty()).count() as u32;
            if !unit.is_empty() {
                for (slot, amount) in judged.posts(key.0, Tile { m: key.1, n: key.2 }) {
                    notes.push(note(**key, ffi::CUSYNC_EVENT_POST, slot, amount / finishing));
                    let poster = if judged.c.launch.shares().is_some() { key.0 } else { 0 };
                    *posted.entry((poster, slot)).or_default() += amount / finishing;
                }
            }
            false
        });
        assert!(
            open.len() < before || open.iter().any(|k| !items[k].gives.is_empty()),
            "the plan stands still"
        );
    }
    notes
}

fn plans() -> Vec<Plan> {
    let device = Profile::named("h200").expect("shipped");
    let plan = |source: &str, m: Option<u64>, executor, chain: Option<ChainOverride>, decode| {
        let dims = m.map(|m| ("M".into(), m)).into_iter().collect();
        let overrides = Overrides { dims, chain, decode, ..Overrides::default() };
        plan_text(source, "test.ron", &overrides, device, executor).unwrap_or_else(|e| panic!("{e}"))
    };
    let small = shipped("two_gemms").expect("it ships");
    vec![
        plan_text(small, "test.ron", &dim("M", 256), device, Executor::Streams).expect("a plan"),
        plan(OPERANDS, None, Executor::Fused, Some(STATIC), false),
        plan(small, Some(512), Executor::Fused, Some(DYNAMIC), false),
        plan(small, Some(8), Executor::Fused, None, true),
        {
            let dims = vec![("B".into(), 5), ("S".into(), 256)];
            let overrides = Overrides { dims, ..Overrides::default() };
            let layer = shipped("llama3_70b_layer").expect("it ships");
            plan_text(layer, "test.ron", &overrides, device, Executor::Fused).expect("a plan")
        },
    ]
}

#[test]
fn sound_notes_conform_and_changed_ones_do_not() {
    for plan in plans() {
        let c = candidate(&plan);
        let judged = Judged::new(&c);
        let notes = sound(&judged);
        let label = format!("{} {:?}", plan.graph().name, plan.executor());
        assert_eq!(judged.deviation(0, &notes), None, "{label}");
        let mut changes = 0;
        let step = (notes.len() / 150).max(1);
        for at in (0..notes.len()).step_by(step) {
            let mut without = notes.clone();
            let gone = without.remove(at);
            let units = notes
                .iter()
                .filter(|n| n.event == gone.event && (n.stage, n.m, n.n) == (gone.stage, gone.m, gone.n));
            // Queries, keys and values may wait for the same slot.
            let alone = notes.iter().filter(|n| **n == gone).count() == 1;
            // A tile at an edge of an output may have fewer units than others.
            if alone && (gone.event != ffi::CUSYNC_EVENT_STORE || units.count() == 1) {
                assert!(judged.deviation(0, &without).is_some(), "{label}: without {gone:?}");
            }
            // Waits are repeated; everything else is done once.
            if gone.event != ffi::CUSYNC_EVENT_WAIT && gone.event != ffi::CUSYNC_EVENT_TAKE {
                let mut twice = notes.clone();
                twice.insert(at, gone);
                let twice_given = gone.event == ffi::CUSYNC_EVENT_GIVE;
                assert!(twice_given || judged.deviation(0, &twice).is_some(), "{label}: twice {gone:?}");
            }
            if gone.event == ffi::CUSYNC_EVENT_WAIT {
                let mut early = without.clone();
                early.insert(0, gone);
                assert!(judged.deviation(0, &early).is_some(), "{label}: before all posts {gone:?}");
                let mut late = without;
                late.push(gone);
                assert!(!alone || judged.deviation(0, &late).is_some(), "{label}: behind its loads {gone:?}");
                let mut old = notes.clone();
                old[at].value -= 1;
                assert!(judged.deviation(0, &old).is_some(), "{label}: with too few posts {gone:?}");
            }
            changes += 1;
        }
        assert!(changes > 20, "{label}: {changes} changes");
        println!("{label}: {} notes, {changes} of them changed, each change found", notes.len());
    }
}
