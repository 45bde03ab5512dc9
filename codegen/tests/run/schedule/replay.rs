//! A second, slow and simple model of a schedule's times.

use std::collections::HashMap;

use cusync_gen::device::CostModel;
use cusync_gen::graph::{Graph, OperandKind, producers_of};
use cusync_gen::schedule::{Breakdown, Part, Schedule};
use cusync_gen::sync::Tile;

/// Runs a schedule with an independent model, k-block by k-block, using the prediction's times for k-blocks, fills,
/// epilogues and slabs: returns the end of each item, and the total length. Workers follow their lists, or take the
/// next item in the sequence when free.
pub(crate) fn replay(
    graph: &Graph,
    schedule: &Schedule,
    why: &Breakdown,
    cost: &CostModel,
    draw: bool,
) -> (Vec<f64>, f64) {
    let (cm, cn) = schedule.cluster;
    let mut worker_of = vec![0; schedule.sequence.len()];
    for (worker, list) in schedule.lists.iter().enumerate() {
        list.iter().for_each(|i| worker_of[*i as usize] = worker);
    }
    let mut free = vec![cost.launch_us + cost.fill_us; schedule.lists.len()];
    let mut seen: HashMap<(usize, u32, u32), f64> = HashMap::new();
    let mut slab_seen = vec![0.0; schedule.slabs as usize];
    let mut ends = Vec::new();
    let mut sharers: Vec<(usize, f64)> = Vec::new();
    for (i, (item, time)) in schedule.sequence.iter().zip(&why.items).enumerate() {
        let worker = if draw {
            (0..free.len()).min_by(|a, b| f64::total_cmp(&free[*a], &free[*b])).expect("workers")
        } else {
            worker_of[i]
        };
        let k_us = time.math_us / f64::from(item.k_end - item.k_begin);
        let stage = &graph.stages[item.stage.0];
        let reads_at = |k: u32, at_the_end: bool| {
            let mut at = 0.0f64;
            for d in graph.dependences.iter().filter(|d| d.consumer == item.stage) {
                let kind = stage.operands[d.operand].kind;
                if matches!(kind, OperandKind::Bias | OperandKind::Residual) != at_the_end {
                    continue;
                }
                for m in item.m * cm..((item.m + 1) * cm).min(stage.grid.0) {
                    for n in item.n * cn..((item.n + 1) * cn).min(stage.grid.1) {
                        for t in producers_of(graph, d, Tile { m, n }, k).tiles() {
                            at = at.max(seen[&(d.producer.0, t.m / cm, t.n / cn)]);
                        }
                    }
                }
            }
            at
        };
        let mut now = free[worker];
        for k in item.k_begin..item.k_end {
            now = now.max(reads_at(k, false) + cost.fill_us) + k_us;
        }
        match item.part {
            Part::Contribute { slab } => {
                now += time.split_us;
                slab_seen[slab as usize] = now + cost.handoff_us;
            }
            Part::Finish { first, slabs } => {
                for slab in first..first + slabs {
                    now = now.max(slab_seen[slab as usize]) + time.split_us / f64::from(slabs);
                }
            }
            Part::Whole => {}
            Part::Share { parts, part, .. } => {
                // The parts follow each other: the last one knows when all have left their sums.
                let write = time.split_us * cost.slab_write_us / (cost.slab_write_us + cost.slab_read_us);
                sharers.push((worker, now + write + cost.handoff_us));
                if part + 1 < parts {
                    free[worker] = f64::INFINITY;
                    ends.push(0.0);
                    continue;
                }
                let left = sharers.iter().map(|s| s.1).fold(0.0, f64::max);
                now = left + time.split_us - write;
            }
        }
        if !matches!(item.part, Part::Contribute { .. }) {
            now = now.max(reads_at(0, true)) + time.fixed_us;
            seen.insert((item.stage.0, item.m, item.n), now + cost.post_us + cost.handoff_us);
        }
        for (other, _) in sharers.drain(..) {
            free[other] = now;
        }
        free[worker] = now;
        ends.push(now);
        if let Part::Share { parts, .. } = item.part {
            let begin = ends.len() - parts as usize;
            ends[begin..].fill(now);
        }
    }
    (ends, free.into_iter().fold(0.0, f64::max) + cost.post_us)
}

/// Panics unless the predicted times match a replay and add up.
pub(crate) fn assert_times(graph: &Graph, schedule: &Schedule, why: &Breakdown, cost: &CostModel) {
    const NOTHING: f64 = 1e-6;
    let (ends, total_us) = replay(graph, schedule, why, cost, false);
    for ((item, time), end) in schedule.sequence.iter().zip(&why.items).zip(ends) {
        assert!(
            (time.end_us() - end).abs() < NOTHING,
            "{item:?} ends at {end}, said to be at {}",
            time.end_us()
        );
        assert!(time.math_us > 0.0 && time.begin_us >= cost.launch_us - NOTHING);
    }
    assert!(
        (total_us - schedule.predicted_us).abs() < NOTHING,
        "{total_us} against {}",
        schedule.predicted_us
    );
    for list in &schedule.lists {
        for pair in list.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|i| why.items[i as usize]);
            assert!((b.begin_us - a.end_us()).abs() < NOTHING, "a worker pauses or does two things at once");
        }
    }
    let mean = why.mean();
    let sum = mean.math_us + mean.fixed_us + mean.wait_us + mean.split_us + mean.idle_us;
    assert!((sum - schedule.predicted_us).abs() < 1e-3);
}
