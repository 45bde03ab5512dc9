//! Schedules of the `fused` executor: what must hold of every one, and how good they are.

use std::collections::HashMap;

use cusync_gen::device::{CostModel, Device, FUSED_KERNELS};
use cusync_gen::graph::{Graph, OperandKind, gemm_chain};
use cusync_gen::policy::{Tile, producers_of};
use cusync_gen::schedule::{
    Breakdown, Item, Mode, Part, Request, Schedule, Wanted, build, choose, explain, floor_us,
};
use proptest::prelude::*;

const GPT3: &str = include_str!("../../policies/gpt3_mlp.ron");
const LLAMA: &str = include_str!("../../policies/llama65_mlp.ron");
const LLAMA3: &str = include_str!("../../policies/llama3_70b_mlp.ron");
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

/// Panics unless the predicted times keep to the waits: nothing is used before it is posted and seen.
fn assert_times(graph: &Graph, schedule: &Schedule, why: &Breakdown, cost: &CostModel) {
    const NOTHING: f64 = 1e-6;
    let (cm, cn) = schedule.cluster;
    let mut end_of_math = Vec::new();
    let mut done: HashMap<(usize, u32, u32), f64> = HashMap::new();
    for (item, time) in schedule.sequence.iter().zip(&why.items) {
        let end = time.end_us();
        let before_end =
            if matches!(item.part, Part::Contribute { .. }) { 0.0 } else { time.fixed_us - cost.fill_us };
        end_of_math.push(end - before_end - time.split_us);
        if !matches!(item.part, Part::Contribute { .. }) {
            done.insert((item.stage.0, item.m, item.n), end + cost.post_us);
        }
        assert!(end + cost.post_us <= schedule.predicted_us + NOTHING);
        assert!(time.math_us > 0.0 && time.wait_us >= 0.0 && time.begin_us >= cost.launch_us - NOTHING);
    }
    for list in &schedule.lists {
        for pair in list.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|i| why.items[i as usize]);
            assert!(b.begin_us >= a.end_us() - NOTHING, "a worker does two things at once");
        }
    }
    let mut slab_us = vec![0.0; schedule.slabs as usize];
    for (i, (item, time)) in schedule.sequence.iter().zip(&why.items).enumerate() {
        match item.part {
            Part::Whole => {}
            Part::Contribute { slab } => slab_us[slab as usize] = time.end_us() + cost.handoff_us,
            Part::Finish { first, slabs } => {
                for slab in first..first + slabs {
                    assert!(time.end_us() >= slab_us[slab as usize], "a slab is used before it is written");
                }
            }
        }
        let stage = &graph.stages[item.stage.0];
        let k_us = time.math_us / f64::from(item.k_end - item.k_begin);
        for dependence in graph.dependences.iter().filter(|d| d.consumer == item.stage) {
            if stage.operands[dependence.operand].kind != OperandKind::A {
                continue;
            }
            let tile = Tile { m: item.m * cm, n: item.n * cn };
            for k in item.k_begin..item.k_end {
                for t in producers_of(graph, dependence, tile, k).tiles() {
                    let ready =
                        done[&(dependence.producer.0, t.m / cm, t.n / cn)] + cost.handoff_us + cost.fill_us;
                    let earliest = ready + f64::from(item.k_end - k) * k_us;
                    // Where slabs are waited for, the arithmetic ends before that.
                    let latest = end_of_math[i];
                    assert!(latest >= earliest - NOTHING, "{item:?} ends at {latest} and can at {earliest}");
                }
            }
        }
    }
    let mean = why.mean();
    let sum = mean.math_us + mean.fixed_us + mean.wait_us + mean.split_us + mean.idle_us;
    assert!((sum - schedule.predicted_us).abs() < 1e-3);
}

/// MMA tile and cluster.
type Shape = ((u32, u32, u32), (u32, u32));

const SHAPES: [Shape; 6] = [
    (WIDE, (1, 1)),
    (TALL, (1, 1)),
    ((128, 128, 64), (1, 1)),
    ((128, 192, 64), (1, 1)),
    (WIDE, (2, 1)),
    (TALL, (1, 2)),
];

#[test]
fn shipped_pipelines_have_sound_schedules() {
    let cost = cost();
    for (source, sizes) in [
        (GPT3, &[1, 37, 200, 256, 512, 768, 1000, 2048][..]),
        (LLAMA, &[1, 37, 200, 256, 512, 768, 1000, 2048]),
        (LLAMA3, &[37, 256, 1000]),
        (DIAMOND, &[37, 300]),
    ] {
        for (&m, (tile, cluster)) in sizes.iter().flat_map(|m| SHAPES.map(|shape| (m, shape))) {
            let graph = shipped(source, m, tile);
            let request = request(&cost, cluster);
            let (schedule, why) = explain(&graph, &request);
            assert_sound(&graph, &schedule, request.workers);
            assert_times(&graph, &schedule, &why, &cost);
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

/// What an order row by row of whole tiles would take, from nothing but the cost model: a model of its own in a few lines.
fn row_by_row_us(graph: &Graph, workers: usize, cost: &CostModel) -> f64 {
    let mut free = vec![cost.launch_us; workers];
    let mut done = vec![vec![0.0; 0]; graph.stages.len()];
    for (s, stage) in graph.stages.iter().enumerate() {
        let k_us =
            2.0 * f64::from(stage.mma_tile.0) * f64::from(stage.mma_tile.1) * 64.0 / (cost.sm_tflops * 1e6);
        done[s] = vec![0.0; stage.tiles() as usize];
        for tile in 0..stage.tiles() {
            let (worker, at) =
                free.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).expect("workers");
            let (m, n) = (tile / stage.grid.1, tile % stage.grid.1);
            let mut end = at + cost.fill_us + f64::from(stage.k_blocks) * k_us;
            for dependence in graph.dependences.iter().filter(|d| d.consumer.0 == s) {
                for k in 0..stage.k_blocks {
                    for t in producers_of(graph, dependence, Tile { m, n }, k).tiles() {
                        let width = graph.stages[dependence.producer.0].grid.1;
                        let ready =
                            done[dependence.producer.0][(t.m * width + t.n) as usize] + cost.handoff_us;
                        end = f64::max(end, ready + cost.fill_us + f64::from(stage.k_blocks - k) * k_us);
                    }
                }
            }
            free[worker] = end + cost.epilogue_us;
            done[s][tile as usize] = free[worker] + cost.post_us;
        }
    }
    free.into_iter().fold(0.0, f64::max) + cost.post_us
}

#[test]
fn cutting_never_loses_to_whole_tiles_row_by_row() {
    let cost = cost();
    for (source, sizes) in [(GPT3, [37, 200, 512, 1000]), (LLAMA, [37, 200, 512, 1000])] {
        for m in sizes {
            let graph = shipped(source, m, WIDE);
            let schedule = build(&graph, &request(&cost, (1, 1)));
            let whole = build(&graph, &Request { splits: false, ..request(&cost, (1, 1)) });
            assert_eq!(whole.slabs, 0);
            assert!(schedule.predicted_us <= whole.predicted_us);
            // The other model leaves out memory, which may cost some per cent.
            let simple = row_by_row_us(&graph, 132, &cost);
            assert!(whole.predicted_us < simple * 1.06, "M={m}: {} against {simple}", whole.predicted_us);
        }
    }
}

/// All workers busy to the end: the even share is everything but waits and idle workers, with the launch before and the last
/// store after it.
#[test]
fn uneven_sizes_end_near_the_even_share() {
    let cost = cost();
    for (source, m, tile, within) in [
        (GPT3, 256, TALL, 1.04),
        (GPT3, 256, WIDE, 1.05),
        (GPT3, 512, WIDE, 1.02),
        (GPT3, 768, WIDE, 1.02),
        (GPT3, 1536, WIDE, 1.01),
        (LLAMA, 200, TALL, 1.15),
        (LLAMA, 512, WIDE, 1.05),
        (LLAMA, 1000, TALL, 1.02),
        (LLAMA, 2048, WIDE, 1.02),
    ] {
        let graph = shipped(source, m, tile);
        let (schedule, why) = explain(&graph, &request(&cost, (1, 1)));
        let mean = why.mean();
        let share = cost.launch_us + mean.math_us + mean.fixed_us + mean.split_us + cost.post_us;
        let ratio = schedule.predicted_us / share;
        println!("{} M={m}: {:.1} us, even share {share:.1}, {ratio:.3}", graph.name, schedule.predicted_us);
        assert!(ratio < within, "M={m}: {ratio} of the even share");
        assert!(schedule.predicted_us < 1.4 * why.floor_us);
    }
}

#[test]
fn the_fused_kernel_is_chosen_by_predicted_time() {
    let device = Device::named("h200").expect("shipped");
    let cost = cost();
    let wanted = Wanted { device, mode: Mode::Static, splits: true, cost: &cost };
    for (m, source) in [37, 200, 256, 512, 2048].into_iter().flat_map(|m| [(m, GPT3), (m, LLAMA)]) {
        let chosen = choose(&wanted, FUSED_KERNELS, |tile| Some(shipped(source, m, tile))).expect("kernels");
        let workers = device.resident_clusters(chosen.kernel.cluster.0 * chosen.kernel.cluster.1);
        assert_eq!(chosen.tried.len(), FUSED_KERNELS.len());
        assert_sound(&chosen.graph, &chosen.schedule, workers);
        assert_eq!(chosen.graph.stages[0].mma_tile, chosen.kernel.tile);
        println!("{} M={m}: {:?}", chosen.graph.name, chosen.tried);
        // No kernel that was passed over is better.
        for kernel in FUSED_KERNELS {
            let other = build(&shipped(source, m, kernel.tile), &request(&cost, kernel.cluster));
            assert!(chosen.schedule.predicted_us <= other.predicted_us + 1e-6);
        }
    }
    // A shape that the spec does not allow is left out.
    let only =
        choose(&wanted, FUSED_KERNELS, |tile| (tile == TALL).then(|| shipped(GPT3, 512, tile))).expect("one");
    assert_eq!(only.kernel.tile, TALL);
    assert!(choose(&wanted, FUSED_KERNELS, |_| None).is_none());
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
        let (schedule, why) = explain(&graph, &Request { workers, cluster, mode: Mode::Dynamic, splits, cost: &cost });
        assert_sound(&graph, &schedule, workers);
        assert_times(&graph, &schedule, &why, &cost);
        prop_assert!(splits || schedule.slabs == 0);
    }
}

/// Release only: `cargo test --release -p cusync-gen --test schedule -- --ignored --nocapture`.
#[test]
#[ignore = "times the scheduler; means something in a release build"]
fn a_schedule_takes_less_than_a_millisecond() {
    let cost = cost();
    for (source, m, tile) in [
        (GPT3, 256, WIDE),
        (GPT3, 1024, WIDE),
        (GPT3, 4096, WIDE),
        (GPT3, 4096, (128, 128, 64)),
        (LLAMA, 4096, WIDE),
        (LLAMA, 4096, (128, 128, 64)),
    ] {
        let graph = shipped(source, m, tile);
        let mut times: Vec<f64> = (0..31)
            .map(|_| {
                let begin = std::time::Instant::now();
                let schedule = build(&graph, &request(&cost, (1, 1)));
                let time = begin.elapsed().as_secs_f64() * 1e6;
                assert!(schedule.predicted_us > 0.0);
                time
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{} M={m} {tile:?}: {:.0} us", graph.name, times[15]);
        let most = if m == 4096 { 1000.0 } else { 2000.0 };
        assert!(cfg!(debug_assertions) || times[15] < most, "{} us", times[15]);
    }
}
