//! Schedules of the `fused` executor: invariants of every schedule, and their quality.

mod replay;
mod sound;

use cusync_gen::device::{ChainKernel, CostModel, L2Cost, Operations, Profile, TileRate};
use cusync_gen::graph::{Graph, gemm_chain, producers_of};
use cusync_gen::schedule::{Hand, ScheduleRequest, Wanted, build, choose, explain, floor_us};
use cusync_gen::sync::Tile;
use proptest::prelude::*;
use replay::{assert_times, replay};
use sound::assert_sound;

const GPT3: &str = include_str!("../../../../policies/gpt3_mlp.ron");
const LLAMA: &str = include_str!("../../../../policies/llama65_mlp.ron");
const LLAMA3: &str = include_str!("../../../../policies/llama3_70b_mlp.ron");
const DIAMOND: &str = include_str!("../../../../policies/diamond.ron");

const WIDE: (u32, u32, u32) = (128, 256, 64);
const TALL: (u32, u32, u32) = (256, 128, 64);
/// The second stage reads the first stage's output as operand B: whole columns of it.
const COLUMNS: &str = r#"Pipeline(
    name: "columns",
    dims: { "M": 512, "K": 1536, "N": 1024 },
    stages: [
        Gemm(name: "weights", a: "U(K,N)", b: "V(N,N)", out: "P(K,N)"),
        Gemm(name: "apply", a: "X(M,K)", b: "P(K,N)", out: "Z(M,N)"),
    ],
)"#;

/// Constants for the scheduler tests: like an H200's, but simplified and independent of the profiles.
fn cost() -> CostModel {
    let shipped = Profile::named("h200").expect("shipped").cost_model(Operations::products());
    let rate = |tile, cluster, rate, epilogue_us| TileRate {
        tile,
        cluster,
        rate,
        epilogue_us,
        gate_us: if tile == (128, 192) { 3.5 } else { 0.0 },
        first_us: 0.0,
        slabs: 1.0,
    };
    CostModel {
        sm_tflops: 6.2,
        alone_tflops: 0.0,
        l2: L2Cost::default(),
        rates: vec![
            rate((64, 256), (1, 1), 0.8, 2.0),
            rate((128, 128), (1, 1), 0.86, 1.6),
            rate((128, 192), (1, 1), 1.0, 2.2),
            rate((128, 256), (1, 1), 0.985, 3.7),
            rate((256, 128), (1, 1), 0.985, 3.7),
            rate((128, 256), (2, 1), 1.01, 3.7),
            rate((256, 128), (1, 2), 1.01, 3.7),
        ],
        unhidden: 0.1,
        gelu_us: 3.4,
        slab_write_us: 3.0,
        slab_read_us: 4.0,
        ..shipped
    }
}

fn shipped(source: &str, m: u64, tile: (u32, u32, u32)) -> Graph {
    let spec = cusync_gen::spec::parse(source, "shipped").expect("a shipped spec");
    let resolved = spec.resolve(&[("M".into(), m)]).expect("sound");
    resolved.graph(&vec![tile; resolved.stages.len()]).expect("small")
}

fn request(cost: &CostModel, cluster: (u32, u32)) -> ScheduleRequest<'_> {
    ScheduleRequest { workers: 132 / (cluster.0 * cluster.1), cluster, mode: Hand::Fixed, splits: true, cost }
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
        (DIAMOND, &[37, 300, 2000]),
        (COLUMNS, &[37, 300, 2000]),
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

/// Time of a row-by-row order of whole tiles, from the cost model alone: an independent model in a few lines.
fn row_by_row_us(graph: &Graph, workers: usize, cost: &CostModel) -> f64 {
    let mut free = vec![cost.launch_us + cost.fill_us; workers];
    let mut done = vec![vec![0.0; 0]; graph.stages.len()];
    for (s, stage) in graph.stages.iter().enumerate() {
        let k_us =
            2.0 * f64::from(stage.mma_tile.0) * f64::from(stage.mma_tile.1) * 64.0 / (cost.sm_tflops * 1e6);
        done[s] = vec![0.0; stage.tiles() as usize];
        for tile in 0..stage.tiles() {
            let (worker, at) =
                free.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).expect("workers");
            let (m, n) = (tile / stage.grid.1, tile % stage.grid.1);
            let mut end = at + f64::from(stage.k_blocks) * k_us;
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
            let shape = cost.tile_rate((stage.mma_tile.0, stage.mma_tile.1), (1, 1));
            free[worker] =
                end + cost.epilogue_us(stage.op.epilogue().activation, (stage.op.is_gated(), false), &shape);
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
            let whole = build(&graph, &ScheduleRequest { splits: false, ..request(&cost, (1, 1)) });
            assert_eq!(whole.slabs, 0);
            assert!(schedule.predicted_us <= whole.predicted_us);
            // The other model ignores memory, which may cost a few per cent.
            let simple = row_by_row_us(&graph, 132, &cost);
            assert!(whole.predicted_us < simple * 1.06, "M={m}: {} against {simple}", whole.predicted_us);
        }
    }
}

/// All workers stay busy to the end: the even share is everything except waits and idle workers, including the launch
/// before and the last store after.
#[test]
fn uneven_sizes_end_near_the_even_share() {
    let cost = cost();
    for (source, m, tile, within) in [
        (GPT3, 256, TALL, 1.12),
        (GPT3, 256, WIDE, 1.12),
        (GPT3, 512, WIDE, 1.05),
        (GPT3, 768, WIDE, 1.05),
        (GPT3, 1536, WIDE, 1.04),
        (LLAMA, 200, TALL, 1.15),
        (LLAMA, 512, WIDE, 1.08),
        (LLAMA, 1000, TALL, 1.04),
        (LLAMA, 2048, WIDE, 1.04),
    ] {
        let graph = shipped(source, m, tile);
        let (schedule, why) = explain(&graph, &request(&cost, (1, 1)));
        let mean = why.mean();
        let share =
            cost.launch_us + cost.fill_us + mean.math_us + mean.fixed_us + mean.split_us + cost.post_us;
        let ratio = schedule.predicted_us / share;
        println!("{} M={m}: {:.1} us, even share {share:.1}, {ratio:.3}", graph.name, schedule.predicted_us);
        assert!(ratio < within, "M={m}: {ratio} of the even share");
        assert!(schedule.predicted_us < 1.55 * why.floor_us);
    }
}

/// The sequence is ordered by predicted start times, so workers that draw from it match their lists.
#[test]
fn drawing_from_the_sequence_takes_as_long_as_the_lists() {
    let cost = cost();
    for (source, m) in [200, 512, 768, 1000, 2048].into_iter().flat_map(|m| [(GPT3, m), (LLAMA, m)]) {
        for (tile, cluster) in [(WIDE, (1, 1)), (TALL, (1, 2))] {
            let graph = shipped(source, m, tile);
            let request = ScheduleRequest { mode: Hand::Drawn, ..request(&cost, cluster) };
            let (schedule, why) = explain(&graph, &request);
            let (_, drawn_us) = replay(&graph, &schedule, &why, &cost, true);
            let ratio = drawn_us / schedule.predicted_us;
            assert!(ratio < 1.03, "{} M={m} {tile:?}: {ratio}", graph.name);
        }
    }
}

/// The chain kernels for GEMMs.
fn kernels() -> impl Iterator<Item = &'static ChainKernel> {
    ChainKernel::running(Operations::products())
}

#[test]
fn the_fused_kernel_is_chosen_by_predicted_time() {
    let device = Profile::named("h200").expect("shipped");
    let cost = cost();
    let wanted = Wanted { device, mode: Hand::Fixed, splits: true, cost: &cost };
    for (m, source) in [37, 200, 256, 512, 2048].into_iter().flat_map(|m| [(m, GPT3), (m, LLAMA)]) {
        let chosen =
            choose(&wanted, kernels(), |kernel| Some(shipped(source, m, kernel.tile))).expect("kernels");
        let workers = device.resident_clusters(chosen.kernel.cluster.0 * chosen.kernel.cluster.1);
        assert_eq!(chosen.tried.len(), kernels().count());
        assert_sound(&chosen.graph, &chosen.schedule, workers);
        assert_eq!(chosen.graph.stages[0].mma_tile, chosen.kernel.tile);
        println!("{} M={m}: {:?}", chosen.graph.name, chosen.tried);
        // No rejected kernel is better, apart from what splitting a stage in two can gain.
        for kernel in kernels() {
            let other = build(&shipped(source, m, kernel.tile), &request(&cost, kernel.cluster));
            assert!(chosen.schedule.predicted_us <= other.predicted_us * 1.04 + 1e-6);
        }
    }
    // A shape that the spec does not allow is skipped.
    let only =
        choose(&wanted, kernels(), |kernel| (kernel.tile == TALL).then(|| shipped(GPT3, 512, kernel.tile)))
            .expect("one");
    assert_eq!(only.kernel.tile, TALL);
    assert!(choose(&wanted, kernels(), |_| None).is_none());
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
        let (schedule, why) = explain(&graph, &ScheduleRequest { workers, cluster, mode: Hand::Drawn, splits, cost: &cost });
        assert_sound(&graph, &schedule, workers);
        assert_times(&graph, &schedule, &why, &cost);
        prop_assert!(splits || schedule.slabs == 0);
    }
}

/// Release only: `cargo test --release -p cusync-gen --test run schedule -- --ignored --nocapture`.
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
