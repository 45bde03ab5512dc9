//! Malformed programs and graphs: each is refuted quickly and without a panic.

use crate::changed::mutated;
use cusync_gen::check::{Candidate, Event, How, Launch, Obligation, check, judge};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, Partition, StageId, TensorId};
use cusync_gen::schedule::{Hand, Item, Part, Schedule};
use cusync_gen::sync::{Order, Policy, Tile};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const MLP: &str = r#"Pipeline(name: "mlp", dims: { "M": 256, "H": 256, "I": 512 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", residual: "Y2(M,H)", out: "Z(M,H)"),
    Gemm(name: "last", a: "Z(M,H)", b: "W3(H,H)", residual: "Z(M,H)", out: "L(M,H)"),
])"#;

fn mlp() -> Graph {
    cusync_gen::graph::graph_with_tile(MLP, (128, 128, 64)).expect("a sound spec")
}

fn h200() -> Profile {
    Profile::named("h200").expect("shipped").clone()
}

/// Whole tiles in graph order, except the first, which is split in two along k.
fn lists(graph: &Graph, cluster: (u32, u32)) -> Schedule {
    let mut sequence = Vec::new();
    for (s, stage) in graph.stages.iter().enumerate() {
        let (rows, cols) = (stage.grid.0.div_ceil(cluster.0), stage.grid.1.div_ceil(cluster.1));
        for (m, n) in (0..rows).flat_map(|m| (0..cols).map(move |n| (m, n))) {
            let whole =
                Item { stage: StageId(s), m, n, k_begin: 0, k_end: stage.k_blocks, part: Part::Whole };
            if sequence.is_empty() {
                sequence.push(Item { k_end: 1, part: Part::Contribute { slab: 0 }, ..whole });
                sequence.push(Item { k_begin: 1, part: Part::Finish { first: 0, slabs: 1 }, ..whole });
            } else {
                sequence.push(whole);
            }
        }
    }
    let items = 0..sequence.len() as u32;
    let lists = (0..4).map(|w| items.clone().filter(|i| i % 4 == w).collect()).collect();
    Schedule { cluster, mode: Hand::Fixed, sequence, lists, slabs: 1, predicted_us: 0.0 }
}

/// Groups larger than the grid keep an order a bijection and do not overflow; empty groups are refuted.
#[test]
fn groups_that_no_grid_has() {
    for group in [0, 1, 3, 1 << 31, u32::MAX] {
        for order in [Order::GroupedRows(group), Order::GroupedColumns(group)] {
            let mut c = Candidate::new(mlp(), h200(), How::STREAMS);
            c.launch.kernels_mut().iter_mut().for_each(|kernel| kernel.order = order.clone());
            assert_eq!(judge(&c).proved(), group > 0, "{order:?}");
        }
    }
}

/// A sound plan for every kind of launch.
fn candidates() -> Vec<Candidate> {
    let hows = [How::Serial, How::STREAMS, How::Programmatic, How::Host];
    let mut all: Vec<Candidate> = hows.map(|how| Candidate::new(mlp(), h200(), how)).into();
    let mut split = Candidate::new(mlp(), h200(), How::STREAMS);
    split.graph.stages[1].split_k = 3;
    all.push(split);
    for cluster in [(1, 1), (2, 1), (1, 2)] {
        all.push(Candidate::launched(mlp(), h200(), Launch::Lists(lists(&mlp(), cluster))));
    }
    for c in &all {
        assert_eq!(judge(c).refutations, [], "{:?}", c.launch);
    }
    all
}

/// The change is refuted for `order` on every launch, with these words.
fn refuted(says: &str, change: impl Fn(StageId, Tile, u32, Vec<Event>) -> Vec<Event> + Copy) {
    for c in candidates() {
        assert_eq!(mutated(&c, |_, _, _, events| events).refutations, [], "{:?}", c.launch);
        let report = mutated(&c, change);
        let order =
            report.refutation(Obligation::Order).unwrap_or_else(|| panic!("proved: {says}, {:?}", c.launch));
        assert!(order.message.contains(says), "{order}");
    }
}

fn is_load(event: &Event) -> bool {
    matches!(event, Event::Load { .. } | Event::Multicast { .. })
}

fn is_store(event: &Event) -> bool {
    matches!(event, Event::Store { .. })
}

#[test]
fn a_program_without_loads() {
    refuted("stores what it has not loaded", |_, _, _, events| {
        events.into_iter().filter(|e| !is_load(e)).collect()
    });
}

#[test]
fn one_k_block_of_one_tile_is_not_loaded() {
    refuted("stores what it has not loaded: k-block 3 of `Y`", |stage, tile, _, events| {
        let here = stage == StageId(1) && tile == Tile { m: 1, n: 0 };
        let gone = |e: &Event| match e {
            Event::Load { operand: 0, k_block: 3 } | Event::Multicast { operand: 0, k_block: 3, .. } => here,
            _ => false,
        };
        events.into_iter().filter(|e| !gone(e)).collect()
    });
}

#[test]
fn a_residual_is_not_loaded_or_too_late() {
    let of_z = |e: &Event| matches!(e, Event::Load { operand, k_block: 0 } if *operand == 2);
    refuted("stores what it has not loaded: k-block 0 of `Z`", |stage, _, _, events| {
        events.into_iter().filter(|e| stage != StageId(2) || !of_z(e)).collect()
    });
    refuted("stores what it has not loaded: k-block 0 of `Z`", |stage, _, _, mut events| {
        if stage == StageId(2)
            && let Some(at) = events.iter().position(of_z)
        {
            let late = events.remove(at);
            events.push(late);
        }
        events
    });
}

#[test]
fn a_program_without_stores_or_with_one_too_many() {
    refuted("is never stored", |_, _, _, events| events.into_iter().filter(|e| !is_store(e)).collect());
    refuted("stores again", |stage, tile, _, mut events| {
        let store = events.iter().find(|e| is_store(e)).cloned();
        events.extend(store.filter(|_| stage == StageId(2) && tile == Tile { m: 1, n: 1 }));
        events
    });
    refuted("of which only 1 are stored", |_, _, _, mut events| {
        for event in &mut events {
            if let Event::Store { of, .. } = event {
                *of += 1;
            }
        }
        events.iter_mut().for_each(|e| {
            if let Event::Store { units, .. } = e {
                *units = 0..1
            }
        });
        events
    });
}

#[test]
fn a_cluster_that_does_not_bring_all_that_its_ctas_need() {
    let mut clusters: Vec<Candidate> = candidates();
    // Adjacent CTAs share operand A, which other stages write.
    clusters.retain(|c| c.launch.cluster() == (1, 2));
    assert_eq!(clusters.len(), 1);
    for c in clusters {
        let report = mutated(&c, |_, _, _, mut events| {
            for event in &mut events {
                if let Event::Multicast { rows, cols, .. } = event {
                    // Half of its share.
                    *rows = rows.start..rows.start + (rows.len() as u32).div_ceil(2);
                    *cols = cols.start..cols.start + (cols.len() as u32).div_ceil(2);
                }
            }
            events
        });
        let order = report.refutation(Obligation::Order).expect("refuted");
        assert!(order.message.contains("has not loaded"), "{order}");
    }
}

fn bounds(c: &Candidate) -> String {
    let report = judge(c);
    report.refutations.first().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn two_tensors_with_one_producer() {
    for mut c in candidates() {
        let other = c.graph.tensors.iter().position(|t| t.name == "Y2").expect("an input");
        c.graph.tensors[other].producer = Some(StageId(0));
        assert!(
            bounds(&c).contains("`Y2` is said to be written by `up`, which writes `Y`"),
            "{}",
            bounds(&c)
        );
        assert!(check(c).is_err());
    }
}

#[test]
fn producers_out_of_order() {
    for mut c in candidates() {
        if c.launch.work().is_some() {
            continue;
        }
        // Swap the first two stages in the graph, with all references to them.
        let swap = |s: StageId| StageId([1, 0, 2][s.0]);
        c.graph.stages.swap(0, 1);
        c.graph.tensors.iter_mut().for_each(|t| t.producer = t.producer.map(swap));
        for d in &mut c.graph.dependences {
            (d.producer, d.consumer) = (swap(d.producer), swap(d.consumer));
        }
        c.launch.kernels_mut().iter_mut().for_each(|k| k.stage = swap(k.stage));
        // The launch is unchanged. The graph's order only decides which of two tensors in one memory is older.
        assert_eq!(judge(&c).refutations, [], "{:?}", c.launch);
        let tensor = |name: &str| c.graph.tensors.iter().position(|t| t.name == name).expect("a tensor");
        let (last, before) = (tensor("L"), tensor("Z"));
        c.graph.tensors[last].alias = Some(TensorId(before));
        let refutation = check(c).expect_err("the graph lists a consumer first");
        assert!(refutation.message.contains("`down` stands before `up`, which it reads"), "{refutation}");
    }
}

#[test]
fn empty_and_overflowing_grids() {
    for base in candidates() {
        for grid in [(0, 0), (0, 4), (4, 0), (u32::MAX, u32::MAX), (1 << 16, 1 << 16), (2, 3)] {
            let mut c = base.clone();
            c.graph.stages[1].grid = grid;
            assert!(bounds(&c).contains("`down` has a grid of"), "{grid:?}: {}", bounds(&c));
        }
        for partition in [
            Partition::Tiles { rows: 0, cols: 128 },
            Partition::Tiles { rows: 128, cols: 0 },
            Partition::Tiles { rows: 1, cols: 1 },
            Partition::Even { parts: 0 },
            Partition::Even { parts: u32::MAX },
        ] {
            let mut c = base.clone();
            c.graph.stages[1].partition = partition;
            assert!(!bounds(&c).is_empty(), "{partition:?}");
            // Even if the grid matches.
            if !matches!(partition, Partition::Tiles { rows: 0, .. } | Partition::Tiles { cols: 0, .. }) {
                c.graph.stages[1].grid = partition.grid((256, 256));
                assert!(!bounds(&c).is_empty(), "{partition:?}");
            }
        }
    }
}

/// Changes one number in a candidate.
fn corrupt(rng: &mut SmallRng, c: &mut Candidate) {
    let number = |rng: &mut SmallRng| {
        *[0, 1, 2, 3, 64, 1 << 16, 1 << 24, u32::MAX - 1, u32::MAX].choose(rng).expect("some")
    };
    let (stages, tensors) = (c.graph.stages.len(), c.graph.tensors.len());
    let (s, t) = (rng.random_range(0..stages), rng.random_range(0..tensors));
    let some_stage = |rng: &mut SmallRng| StageId(rng.random_range(0..stages + 2));
    let some_tensor = |rng: &mut SmallRng| TensorId(rng.random_range(0..tensors + 2));
    match rng.random_range(0..16) {
        0 => c.graph.stages[s].grid = (number(rng), number(rng)),
        1 => c.graph.stages[s].k_blocks = number(rng),
        2 => c.graph.stages[s].split_k = number(rng),
        3 => c.graph.stages[s].mma_tile = (number(rng), number(rng), number(rng)),
        4 => c.graph.stages[s].out = some_tensor(rng),
        5 => {
            (c.graph.stages[s].m, c.graph.stages[s].n, c.graph.stages[s].k) =
                (number(rng), number(rng), number(rng))
        }
        6 => c.graph.tensors[t].producer = Some(some_stage(rng)),
        7 => c.graph.tensors[t].alias = Some(some_tensor(rng)),
        8 => (c.graph.tensors[t].rows, c.graph.tensors[t].cols) = (number(rng), number(rng)),
        9 => {
            let d = rng.random_range(0..c.graph.dependences.len());
            let d = &mut c.graph.dependences[d];
            (d.producer, d.consumer, d.operand) = (some_stage(rng), some_stage(rng), rng.random_range(0..4));
        }
        10 => {
            let operands = c.graph.stages[s].operands.len();
            let operand = &mut c.graph.stages[s].operands[rng.random_range(0..operands)];
            match rng.random_range(0..3) {
                0 => operand.tensor = some_tensor(rng),
                1 => operand.footprint.rows.extent = number(rng) as i32,
                _ => operand.footprint.cols.offset = number(rng) as i32,
            }
        }
        11 => {
            let edge = rng.random_range(0..c.edges.len());
            c.edges[edge].policy = match rng.random_range(0..3) {
                0 => Policy::Strided(number(rng)),
                1 => Policy::Batched { rows: number(rng), cols: number(rng) },
                _ => Policy::Table(vec![number(rng); rng.random_range(0..9)]),
            };
        }
        12 => c.device.sms = number(rng),
        13 => {
            let number = number(rng);
            c.launch.kernels_mut().iter_mut().for_each(|k| k.ctas_per_sm = number);
        }
        14 => {
            let (by, value) = (rng.random_range(0..8), number(rng));
            if let Some(schedule) = c.launch.lists_mut() {
                let at = rng.random_range(0..schedule.sequence.len());
                let item = &mut schedule.sequence[at];
                match by {
                    0 => item.m = value,
                    1 => item.n = value,
                    2 => item.k_begin = value,
                    3 => item.k_end = value,
                    4 => item.part = Part::Finish { first: value, slabs: value },
                    5 => item.part = Part::Share { first: value, parts: value, part: value },
                    6 => schedule.cluster = (value, value),
                    _ => schedule.lists[0][0] = value,
                }
            }
        }
        _ => c.graph.stages[s].partition = Partition::Tiles { rows: number(rng), cols: number(rng) },
    }
}

#[test]
fn no_number_anywhere_makes_check_panic_or_hang() {
    let mut rng = SmallRng::seed_from_u64(7);
    let all = candidates();
    let (mut refuted, mut panics) = (0, 0);
    for _ in 0..4000 {
        let mut c = all.choose(&mut rng).expect("some").clone();
        for _ in 0..rng.random_range(1..3) {
            corrupt(&mut rng, &mut c);
        }
        match std::panic::catch_unwind(|| judge(&c).proved()) {
            Ok(proved) => refuted += u32::from(!proved),
            Err(_) => panics += 1,
        }
    }
    assert_eq!(panics, 0);
    assert!(refuted > 3000, "{refuted}");
}
