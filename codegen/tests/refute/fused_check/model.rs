//! `progress` against a second, naive model on randomly shuffled lists.

use super::*;
use cusync_gen::graph::{OperandKind, producers_of};

use proptest::prelude::*;

/// Three stages; the last reads the first two as operand A, operand B and residual.
fn diamond() -> Graph {
    let source = r#"Pipeline(name: "d", dims: { "M": 384, "K": 256 }, stages: [
        Gemm(name: "left", a: "X(M,512)", b: "W(512,K)", out: "L(M,K)"),
        Gemm(name: "right", a: "V(K,512)", b: "U(512,512)", out: "R(K,512)"),
        Gemm(name: "join", a: "L(M,K)", b: "R(K,512)", residual: "Q(M,512)", out: "Z(M,512)"),
        Gemm(name: "last", a: "Z(M,512)", b: "T(512,512)", residual: "Z(M,512)", out: "E(M,512)"),
    ])"#;
    cusync_gen::graph::graph_with_tile(source, TILE).expect("a sound spec")
}

/// Whether workers that follow the lists finish: advances the list heads until none moves.
fn ends(graph: &Graph, schedule: &Schedule) -> bool {
    let (rows, cols) = schedule.cluster;
    let mut done = vec![false; schedule.sequence.len()];
    let mut given = vec![false; schedule.sequence.len()];
    let mut heads = vec![0; schedule.lists.len()];
    let complete = |done: &[bool], stage: StageId, m: u32, n: u32| {
        let of_tile = |i: &Item| (i.stage, i.m, i.n) == (stage, m / rows, n / cols);
        schedule.sequence.iter().zip(done).all(|(item, done)| *done || !of_tile(item))
    };
    let reads = |done: &[bool], item: &Item| {
        let stage = &graph.stages[item.stage.0];
        graph.dependences.iter().filter(|d| d.consumer == item.stage).all(|d| {
            let late = matches!(stage.operands[d.operand].kind, OperandKind::Bias | OperandKind::Residual);
            let ks = match (late, item.part.finishes()) {
                (true, true) => 0..1,
                (true, false) => 0..0,
                (false, _) => item.k_begin..item.k_end,
            };
            ks.into_iter().all(|k| {
                (0..rows * cols).all(|cta| {
                    let tile = Tile { m: item.m * rows + cta / cols, n: item.n * cols + cta % cols };
                    let outside = tile.m >= stage.grid.0 || tile.n >= stage.grid.1;
                    outside
                        || producers_of(graph, d, tile, k)
                            .tiles()
                            .all(|t| complete(done, d.producer, t.m, t.n))
                })
            })
        })
    };
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (head, list) in heads.iter_mut().zip(&schedule.lists) {
            while let Some(&index) = list.get(*head) {
                let item = &schedule.sequence[index as usize];
                if !given[index as usize] {
                    if !reads(&done, item) {
                        break;
                    }
                    // Its sums are available to the finisher.
                    (given[index as usize], moved) = (true, true);
                }
                let others = schedule
                    .sequence
                    .iter()
                    .zip(&given)
                    .filter(|(other, _)| (other.stage, other.m, other.n) == (item.stage, item.m, item.n));
                if item.part.finishes() && !others.into_iter().all(|(_, given)| *given) {
                    break;
                }
                (done[index as usize], *head, moved) = (true, *head + 1, true);
            }
        }
    }
    heads.iter().zip(&schedule.lists).all(|(head, list)| *head == list.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn lists_end_where_a_naive_model_ends(
        cluster in prop_oneof![Just((1, 1)), Just((2, 1)), Just((1, 2))],
        workers in 1..6u32,
        cut in 0..5u32,
        share in any::<bool>(),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..4usize), 0..4),
    ) {
        let graph = diamond();
        let mut schedule = dealt(&graph, cluster, workers, cut);
        if share {
            // Tiles split into two contributions and a finisher now share the epilogue instead.
            schedule.sequence.retain(|i| i.part.finishes() || i.k_begin == 0);
            schedule.slabs = 0;
            for at in 0..schedule.sequence.len() {
                let Part::Finish { .. } = schedule.sequence[at].part else { continue };
                let (first, k) = (schedule.slabs, schedule.sequence[at].k_begin);
                schedule.sequence[at].part = Part::Share { first, parts: 2, part: 1 };
                schedule.sequence[at - 1].part = Part::Share { first, parts: 2, part: 0 };
                schedule.sequence[at - 1].k_end = k;
                schedule.slabs += 2;
            }
            schedule.lists = vec![Vec::new(); workers as usize];
            (0..schedule.sequence.len()).for_each(|i| schedule.lists[i % workers as usize].push(i as u32));
        }
        for (a, b, reach) in swaps {
            // Swap an item with one a few places later, or with one of another list.
            let a = a.index(schedule.sequence.len());
            let b = (a + reach * b.index(8)).min(schedule.sequence.len() - 1);
            let at = |s: &Schedule, item: usize| {
                let place_in = |l: &Vec<u32>| l.iter().position(|i| *i as usize == item);
                s.lists.iter().enumerate().find_map(|(w, l)| place_in(l).map(|p| (w, p))).expect("in a list")
            };
            let ((w, p), (v, q)) = (at(&schedule, a), at(&schedule, b));
            (schedule.lists[w][p], schedule.lists[v][q]) = (b as u32, a as u32);
        }
        let naive = ends(&graph, &schedule);
        let c = scheduled(graph, schedule);
        let report = judge(&c);
        prop_assert!(report.refutations.iter().all(|r| r.obligation == Obligation::Progress), "{:?}", report);
        prop_assert_eq!(report.proved(), naive, "{:?}", report);
    }
}
