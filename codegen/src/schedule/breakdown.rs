//! Breakdown of a schedule's predicted time.

use super::Schedule;

/// The predicted times of an item, microseconds. The phases are listed back to back, although waits and arithmetic may
/// alternate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ItemTime {
    /// From the start of the launch until the worker takes the item.
    pub begin_us: f64,
    /// Waiting for producers' tiles, including refilling the ring afterward, or for slabs.
    pub wait_us: f64,
    /// Main loop.
    pub math_us: f64,
    /// Epilogue.
    pub fixed_us: f64,
    /// Writing or adding slabs.
    pub split_us: f64,
}

impl ItemTime {
    /// When the worker is free again.
    pub fn end_us(&self) -> f64 {
        self.begin_us + self.wait_us + self.math_us + self.fixed_us + self.split_us
    }
}

/// How a worker spends its time, microseconds; the sum is the length of the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Main loops.
    pub math_us: f64,
    /// Epilogues.
    pub fixed_us: f64,
    /// Waiting for producers' tiles, including refilling the ring afterward, or for slabs.
    pub wait_us: f64,
    /// Writing or adding slabs.
    pub split_us: f64,
    /// Launch latency and idle time.
    pub idle_us: f64,
}

/// Breakdown of a schedule's predicted time.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    /// Length, as [`Schedule::predicted_us`].
    pub total_us: f64,
    /// See [`super::floor_us`].
    pub floor_us: f64,
    /// The chosen strategy, in words.
    pub strategy: String,
    /// Times of each item of the sequence.
    pub items: Vec<ItemTime>,
    /// Time spent by each worker.
    pub workers: Vec<Totals>,
    /// Begin of the first and end of the last item, by stage.
    pub stages: Vec<(f64, f64)>,
}

impl Breakdown {
    pub(super) fn new(
        schedule: &Schedule,
        items: Vec<ItemTime>,
        floor_us: f64,
        strategy: String,
    ) -> Breakdown {
        let total_us = schedule.predicted_us;
        let totals = |list: &Vec<u32>| {
            let mut sum = Totals { idle_us: total_us, ..Totals::default() };
            for time in list.iter().map(|i| &items[*i as usize]) {
                sum.math_us += time.math_us;
                sum.fixed_us += time.fixed_us;
                sum.wait_us += time.wait_us;
                sum.split_us += time.split_us;
                sum.idle_us -= time.end_us() - time.begin_us;
            }
            sum
        };
        let workers = schedule.lists.iter().map(totals).collect();
        let count = schedule.sequence.iter().map(|item| item.stage.0 + 1).max().unwrap_or(0);
        let mut stages = vec![(f64::INFINITY, 0.0f64); count];
        for (item, time) in schedule.sequence.iter().zip(&items) {
            let span = &mut stages[item.stage.0];
            *span = (span.0.min(time.begin_us), span.1.max(time.end_us()));
        }
        Breakdown { total_us, floor_us, strategy, items, workers, stages }
    }

    /// The mean over all workers.
    pub fn mean(&self) -> Totals {
        let share = 1.0 / self.workers.len().max(1) as f64;
        self.workers.iter().fold(Totals::default(), |sum, w| Totals {
            math_us: sum.math_us + w.math_us * share,
            fixed_us: sum.fixed_us + w.fixed_us * share,
            wait_us: sum.wait_us + w.wait_us * share,
            split_us: sum.split_us + w.split_us * share,
            idle_us: sum.idle_us + w.idle_us * share,
        })
    }
}
