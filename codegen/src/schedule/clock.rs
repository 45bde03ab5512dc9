//! Completion times of tiles and items under a cost model.

use std::ops::Range;

use super::needs::Need;
use super::problem::{ItemCost, Problem};

/// A need, and the time at which the last of its tiles is available.
#[derive(Clone, Copy, Debug)]
struct ReadyNeed {
    begin: u32,
    end: u32,
    at_us: f64,
    /// See [`Clock::set_key`].
    key: f64,
}

/// The needs of a stage once all its producers are scheduled.
pub(super) struct Readiness {
    classes: Vec<Class>,
    k_blocks: u32,
}

#[derive(Default)]
struct Class {
    needs: Vec<ReadyNeed>,
    /// Earliest end of the arithmetic of all k-blocks, and the largest key.
    whole_us: f64,
    whole_key: f64,
    /// When the last need of a k-block is available.
    latest_us: f64,
    /// No k-block can be multiplied before this: the time of the first need, if every k-block has one.
    first_us: f64,
    /// When the epilogue's reads are available.
    late_us: f64,
}

/// Completion times of cluster tiles, by stage and row-major tile index.
#[derive(Clone)]
pub(super) struct Clock {
    done: Vec<Vec<f64>>,
    keys: Vec<Vec<f64>>,
}

impl Clock {
    pub(super) fn new(problem: &Problem) -> Clock {
        let zeros: Vec<Vec<f64>> = problem.stages.iter().map(|s| vec![0.0; s.tiles() as usize]).collect();
        Clock { done: zeros.clone(), keys: zeros }
    }

    /// Records when a tile is stored and posted.
    pub(super) fn complete(&mut self, stage: usize, tile: usize, done: f64) {
        self.done[stage][tile] = done;
    }

    /// Records a tile's key in the sequence: a time no earlier than that of any tile it needs.
    pub(super) fn set_key(&mut self, stage: usize, tile: usize, key: f64) {
        self.keys[stage][tile] = key;
    }

    /// The readiness of tiles with these needs; the tiles that they name must be complete.
    pub(super) fn ready<'n>(
        &self,
        problem: &Problem,
        needs: impl IntoIterator<Item = &'n Vec<Need>>,
        k_blocks: u32,
        cost: &ItemCost,
    ) -> Readiness {
        let of_class = |needs: &Vec<Need>| {
            let mut class = Class { needs: Vec::with_capacity(needs.len()), ..Class::default() };
            let (mut first_us, mut covered) = (f64::INFINITY, 0);
            for need in needs {
                let (producer, width) = (need.producer.0, problem.stages[need.producer.0].grid.1);
                let (mut done, mut key) = (0.0f64, 0.0f64);
                for row in need.rows.clone() {
                    for tile in
                        (row * width + need.cols.start) as usize..(row * width + need.cols.end) as usize
                    {
                        done = done.max(self.done[producer][tile]);
                        key = key.max(self.keys[producer][tile]);
                    }
                }
                class.whole_key = class.whole_key.max(key);
                let seen = done + problem.cost.handoff_us;
                let at_us = seen + cost.fill_us;
                let Range { start: begin, end } = need.ks;
                if begin >= k_blocks {
                    class.late_us = class.late_us.max(seen);
                } else {
                    class.latest_us = class.latest_us.max(at_us);
                    first_us = first_us.min(at_us);
                    covered = if begin <= covered { end.max(covered) } else { covered };
                    class.whole_us = class.whole_us.max(at_us + f64::from(k_blocks - begin) * cost.k_us);
                }
                class.needs.push(ReadyNeed { begin, end, at_us, key });
            }
            class.first_us = if covered >= k_blocks { first_us } else { 0.0 };
            class
        };
        Readiness { classes: needs.into_iter().map(of_class).collect(), k_blocks }
    }
}

impl Readiness {
    /// End of the arithmetic of k-blocks `k0..k1` of a tile of `class`, on a worker that is free at `free`.
    pub(super) fn math_end(&self, class: usize, k0: u32, k1: u32, free: f64, cost: &ItemCost) -> f64 {
        let class = &self.classes[class];
        let undisturbed = free + f64::from(k1 - k0) * cost.k_us;
        if k0 == 0 && k1 == self.k_blocks {
            return undisturbed.max(class.whole_us);
        }
        if class.latest_us <= free {
            return undisturbed;
        }
        let waits = class.needs.iter().filter(|need| need.begin < k1 && need.end > k0);
        waits.fold(undisturbed, |end, need| {
            end.max(need.at_us + f64::from(k1 - need.begin.max(k0)) * cost.k_us)
        })
    }

    /// When the epilogue's reads are available.
    pub(super) fn late_us(&self, class: usize) -> f64 {
        self.classes[class].late_us
    }

    /// Largest key among the needs of k-blocks `k0..k1`, and of the epilogue if `finishes`.
    pub(super) fn key(&self, class: usize, k0: u32, k1: u32, finishes: bool) -> f64 {
        let class = &self.classes[class];
        if k0 == 0 && k1 == self.k_blocks && finishes {
            return class.whole_key;
        }
        let late = |need: &ReadyNeed| finishes && need.begin >= self.k_blocks;
        let used = class.needs.iter().filter(|need| (need.begin < k1 && need.end > k0) || late(need));
        used.fold(0.0, |key, need| key.max(need.key))
    }

    /// Upper bound on the k-blocks of a part with arithmetic that ends by `deadline`, for any choice of k-blocks.
    pub(super) fn room_by(&self, class: usize, free: f64, deadline: f64, cost: &ItemCost) -> u32 {
        blocks_in(deadline - free.max(self.classes[class].first_us), cost).min(self.k_blocks)
    }

    /// Maximum number of k-blocks just before `k1` with arithmetic that ends by `deadline`, on a worker that is free
    /// at `free`.
    pub(super) fn blocks_by(&self, class: usize, k1: u32, free: f64, deadline: f64, cost: &ItemCost) -> u32 {
        let blocks = |us: f64| blocks_in(us, cost);
        let most = blocks(deadline - free).min(k1);
        let class = &self.classes[class];
        if class.latest_us + f64::from(most) * cost.k_us <= deadline {
            return most;
        }
        let needs = class.needs.iter().filter(|need| need.begin < k1);
        needs.fold(most, |most, need| {
            let within = blocks(deadline - need.at_us);
            if within >= k1 - need.begin { most } else { most.min(within.max(k1.saturating_sub(need.end))) }
        })
    }
}

/// The k-blocks that fit into a time. The cast rounds down and maps negative values to 0.
fn blocks_in(us: f64, cost: &ItemCost) -> u32 {
    (us / cost.k_us + 1e-9) as u32
}
