//! Invariants of every schedule.

use std::collections::HashMap;

use cusync_gen::graph::{Graph, OperandKind, producers_of};
use cusync_gen::schedule::{Item, Part, Schedule};
use cusync_gen::sync::Tile;

/// Panics unless the schedule computes every tile once, in an order with dependencies first.
pub(crate) fn assert_sound(graph: &Graph, schedule: &Schedule, workers: u32) {
    let (cm, cn) = schedule.cluster;
    let mut parts: HashMap<(usize, u32, u32), Vec<(usize, Item)>> = HashMap::new();
    for (place, item) in schedule.sequence.iter().enumerate() {
        assert!(item.k_begin < item.k_end, "{item:?} is empty");
        parts.entry((item.stage.0, item.m, item.n)).or_default().push((place, *item));
    }
    let mut slab_used = vec![0; schedule.slabs as usize];
    // By CTA tile: the position of the last of its parts.
    let mut complete: HashMap<(usize, u32, u32), usize> = HashMap::new();
    for (s, stage) in graph.stages.iter().enumerate() {
        for m in 0..stage.grid.0.div_ceil(cm) {
            for n in 0..stage.grid.1.div_ceil(cn) {
                let mut of_tile = parts.remove(&(s, m, n)).expect("every tile has an item");
                let (last, finisher) = *of_tile.last().expect("one part at least");
                match finisher.part {
                    Part::Whole => assert_eq!(of_tile.len(), 1),
                    Part::Share { first, parts, .. } => {
                        assert_eq!(of_tile.len(), parts as usize);
                        for (_, item) in &of_tile {
                            let Part::Share { first: slab, parts: count, part } = item.part else {
                                panic!("{item:?} shares no tile")
                            };
                            assert_eq!((slab, count), (first, parts));
                            slab_used[(first + part) as usize] += 1;
                        }
                    }
                    Part::Contribute { .. } => panic!("{finisher:?} comes after the part that finishes"),
                    Part::Finish { first, slabs } => {
                        let mut left: Vec<u32> = (first..first + slabs).collect();
                        assert_eq!(left.len() + 1, of_tile.len());
                        for (_, item) in &of_tile[..of_tile.len() - 1] {
                            let Part::Contribute { slab } = item.part else {
                                panic!("{item:?} is no contribution")
                            };
                            left.retain(|s| *s != slab);
                            slab_used[slab as usize] += 1;
                        }
                        assert!(left.is_empty(), "slabs {left:?} of {finisher:?} have no writer");
                    }
                }
                of_tile.sort_by_key(|(_, item)| item.k_begin);
                let mut k = 0;
                for (_, item) in &of_tile {
                    assert_eq!(item.k_begin, k, "a gap or an overlap along k before {item:?}");
                    k = item.k_end;
                }
                assert_eq!(k, stage.k_blocks);
                for i in m * cm..((m + 1) * cm).min(stage.grid.0) {
                    for j in n * cn..((n + 1) * cn).min(stage.grid.1) {
                        complete.insert((s, i, j), last);
                    }
                }
            }
        }
    }
    assert!(parts.is_empty(), "items outside the grids: {parts:?}");
    assert!(slab_used.iter().all(|used| *used == 1), "a slab has not exactly one writer");
    for (place, item) in schedule.sequence.iter().enumerate() {
        let stage = &graph.stages[item.stage.0];
        for dependence in graph.dependences.iter().filter(|d| d.consumer == item.stage) {
            let kind = stage.operands[dependence.operand].kind;
            let at_the_end = matches!(kind, OperandKind::Bias | OperandKind::Residual);
            if at_the_end && matches!(item.part, Part::Contribute { .. }) {
                continue;
            }
            for i in item.m * cm..((item.m + 1) * cm).min(stage.grid.0) {
                for j in item.n * cn..((item.n + 1) * cn).min(stage.grid.1) {
                    for k in if at_the_end { 0..1 } else { item.k_begin..item.k_end } {
                        for t in producers_of(graph, dependence, Tile { m: i, n: j }, k).tiles() {
                            let before = complete[&(dependence.producer.0, t.m, t.n)];
                            assert!(before < place, "{item:?} comes before what it reads");
                        }
                    }
                }
            }
        }
    }
    assert_eq!(schedule.lists.len(), workers as usize);
    let mut listed = vec![0; schedule.sequence.len()];
    for list in &schedule.lists {
        assert!(list.is_sorted_by(|a, b| a < b), "a list is not in the order of the sequence");
        list.iter().for_each(|i| listed[*i as usize] += 1);
    }
    assert!(listed.iter().all(|times| *times == 1), "lists are not a partition of the sequence");
}
