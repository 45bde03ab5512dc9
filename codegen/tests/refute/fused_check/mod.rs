//! Mutants of sound schedules of the fused executor, each refuted for the right reason.

mod in_turn;
mod kernels;
mod lists;
mod model;
mod shares;
mod tiles;

use crate::changed::{mutated, only, posting};
use cusync_gen::check::{Candidate, Event, Launch, Obligation, Report, judge, linearise};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::schedule::{Hand, Item, Part, Schedule};
use cusync_gen::sync::Tile;

const TILE: (u32, u32, u32) = (128, 128, 64);

/// Two stages of 4 x 8 tiles and 16 k-blocks.
fn mlp() -> Graph {
    let source = r#"Pipeline(name: "mlp", dims: { "M": 512, "H": 1024, "I": 1024 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ])"#;
    cusync_gen::graph::graph_with_tile(source, TILE).expect("a sound spec")
}

/// Stages one after another, tiles row by row, dealt round-robin to the workers; the last `cut` cluster tiles of each
/// stage are split along k into two contributions and a finisher.
fn dealt(graph: &Graph, cluster: (u32, u32), workers: u32, cut: u32) -> Schedule {
    let mut sequence = Vec::new();
    let mut slabs = 0;
    for (s, stage) in graph.stages.iter().enumerate() {
        let (rows, cols) = (stage.grid.0.div_ceil(cluster.0), stage.grid.1.div_ceil(cluster.1));
        for i in 0..rows * cols {
            let k_end = stage.k_blocks;
            let whole =
                Item { stage: StageId(s), m: i / cols, n: i % cols, k_begin: 0, k_end, part: Part::Whole };
            if i + cut < rows * cols || k_end < 3 {
                sequence.push(whole);
                continue;
            }
            let third = k_end / 3;
            let part = |k_begin, k_end, part| Item { k_begin, k_end, part, ..whole };
            sequence.push(part(0, third, Part::Contribute { slab: slabs }));
            sequence.push(part(third, 2 * third, Part::Contribute { slab: slabs + 1 }));
            sequence.push(part(2 * third, k_end, Part::Finish { first: slabs, slabs: 2 }));
            slabs += 2;
        }
    }
    let mut lists = vec![Vec::new(); workers as usize];
    (0..sequence.len()).for_each(|i| lists[i % workers as usize].push(i as u32));
    Schedule { cluster, mode: Hand::Fixed, sequence, lists, slabs, predicted_us: 0.0 }
}

fn scheduled(graph: Graph, schedule: Schedule) -> Candidate {
    let device = Profile::named("h200").expect("shipped").clone();
    Candidate::launched(graph, device, Launch::Lists(schedule))
}

/// Eight workers, six split tiles per stage.
fn sound() -> Candidate {
    let graph = mlp();
    let schedule = dealt(&graph, (1, 1), 8, 6);
    scheduled(graph, schedule)
}

fn edit(change: impl FnOnce(&mut Schedule)) -> Candidate {
    let mut c = sound();
    change(c.launch.lists_mut().expect("a schedule"));
    c
}

/// Positions of a tile's items in the sequence.
fn items_of(schedule: &Schedule, stage: usize, m: u32, n: u32) -> Vec<usize> {
    let in_tile = |item: &Item| (item.stage, item.m, item.n) == (StageId(stage), m, n);
    (0..schedule.sequence.len()).filter(|i| in_tile(&schedule.sequence[*i])).collect()
}

/// Removes an item from the sequence and from its list.
fn remove(schedule: &mut Schedule, index: usize) {
    schedule.sequence.remove(index);
    for list in &mut schedule.lists {
        list.retain(|i| *i as usize != index);
        list.iter_mut().filter(|i| **i as usize > index).for_each(|i| *i -= 1);
    }
}

/// Expects this obligation alone to be refuted, with all of these in the text.
#[track_caller]
fn refuted(c: &Candidate, obligation: Obligation, says: &[&str]) {
    only(&judge(c), obligation, says);
}

/// Judges the plan with each tile's posts repeated this many times.
fn repeating(c: &Candidate, times: usize) -> Report {
    posting(c, |_, _, posts| posts.repeat(times))
}
