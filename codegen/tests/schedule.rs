//! Schedules of the `fused` executor: what must hold of every one, and how good they are.

use std::collections::HashMap;

use cusync_gen::device::{CostModel, Device};
use cusync_gen::graph::{Graph, OperandKind, gemm_chain};
use cusync_gen::policy::{Tile, producers_of};
use cusync_gen::schedule::{Item, Mode, Part, Request, Schedule, build, explain, floor_us};
use proptest::prelude::*;

const GPT3: &str = include_str!("../../policies/gpt3_mlp.ron");
const LLAMA: &str = include_str!("../../policies/llama65_mlp.ron");
const DIAMOND: &str = include_str!("../../policies/diamond.ron");

const WIDE: (u32, u32, u32) = (128, 256, 64);
const TALL: (u32, u32, u32) = (256, 128, 64);

fn cost() -> CostModel {
    Device::named("h200").expect("shipped").cost_model()
}

fn shipped(source: &str, m: u64, tile: (u32, u32, u32)) -> Graph {
    let spec = cusync_gen::spec::parse(source, "shipped").expect("a shipped spec");
    let resolved = spec.resolve(&[("M".into(), m)]).expect("sound");
    resolved.graph(&vec![tile; resolved.stages.len()]).expect("small")
}

fn request(cost: &CostModel, cluster: (u32, u32)) -> Request<'_> {
    Request { workers: 132 / (cluster.0 * cluster.1), cluster, mode: Mode::Static, splits: true, cost }
}

/// Panics unless the schedule computes every tile once, in an order in which needed items come first.
fn assert_sound(graph: &Graph, schedule: &Schedule, workers: u32) {
    let (cm, cn) = schedule.cluster;
    let mut parts: HashMap<(usize, u32, u32), Vec<(usize, Item)>> = HashMap::new();
    for (place, item) in schedule.sequence.iter().enumerate() {
        assert!(item.k_begin < item.k_end, "{item:?} is empty");
        parts.entry((item.stage.0, item.m, item.n)).or_default().push((place, *item));
    }
    let mut slab_used = vec![0; schedule.slabs as usize];
    // By CTA tile: the place of the last of its parts.
    let mut complete: HashMap<(usize, u32, u32), usize> = HashMap::new();
    for (s, stage) in graph.stages.iter().enumerate() {
        for m in 0..stage.grid.0.div_ceil(cm) {
            for n in 0..stage.grid.1.div_ceil(cn) {
                let mut of_tile = parts.remove(&(s, m, n)).expect("every tile has an item");
                let (last, finisher) = *of_tile.last().expect("one part at least");
                match finisher.part {
                    Part::Whole => assert_eq!(of_tile.len(), 1),
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

#[test]
fn shipped_pipelines_have_sound_schedules() {
    let cost = cost();
    for (source, sizes) in [
        (GPT3, &[1, 37, 200, 256, 512, 768, 1000, 2048][..]),
        (LLAMA, &[1, 37, 200, 256, 512, 768, 1000, 2048]),
        (DIAMOND, &[37, 300]),
    ] {
        for &m in sizes {
            for (tile, cluster) in
                [(WIDE, (1, 1)), (TALL, (1, 1)), ((128, 128, 64), (1, 1)), (WIDE, (2, 1)), (TALL, (1, 2))]
            {
                let graph = shipped(source, m, tile);
                let request = request(&cost, cluster);
                let (schedule, why) = explain(&graph, &request);
                assert_sound(&graph, &schedule, request.workers);
                let floor = floor_us(&graph, &request);
                assert!(floor < schedule.predicted_us, "{floor} us at least");
                let mean = why.mean();
                println!(
                    "{} M={m} {tile:?} {cluster:?}: {:.1} us, floor {floor:.1}, math {:.1} fixed {:.1} wait {:.1} split {:.1} idle {:.1}; {}",
                    graph.name,
                    schedule.predicted_us,
                    mean.math_us,
                    mean.fixed_us,
                    mean.wait_us,
                    mean.split_us,
                    mean.idle_us,
                    why.strategy,
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_chains_have_sound_schedules(
        m in 1u32..900,
        widths in proptest::collection::vec(1u32..120, 2..5),
        workers in 1u32..24,
        tile in prop_oneof![Just(WIDE), Just(TALL), Just((64, 256, 64)), Just((128, 128, 64))],
        cluster in prop_oneof![Just((1, 1)), Just((2, 1)), Just((1, 2))],
        splits in any::<bool>(),
    ) {
        let widths: Vec<u32> = widths.into_iter().map(|w| w * 16).collect();
        let graph = gemm_chain("random", m, &widths).graph(&vec![tile; widths.len() - 1]).expect("small");
        let cost = cost();
        let schedule = build(&graph, &Request { workers, cluster, mode: Mode::Dynamic, splits, cost: &cost });
        assert_sound(&graph, &schedule, workers);
        prop_assert!(splits || schedule.slabs == 0);
    }
}
