//! The engine behind tile predictions: workers that process one item after another.

use std::collections::VecDeque;

/// A time in microseconds with a total order; never NaN here.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Time(pub(crate) f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// When each worker is free: an SM slot for CTAs, or a persistent CTA (or cluster) of a chain kernel.
#[derive(Clone, Default)]
pub(crate) struct WorkerTimes {
    pub(crate) free: Vec<f64>,
}

impl WorkerTimes {
    /// Workers that are all free at `at`.
    pub(crate) fn new(count: usize, at: f64) -> WorkerTimes {
        WorkerTimes { free: vec![at; count] }
    }

    /// Hands items out in order, each to the first free worker. `work` receives the item, the worker and when it is
    /// free, and returns when it is free again.
    pub(crate) fn hand_out<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut work: impl FnMut(T, u32, f64) -> f64,
    ) {
        // Ends mostly come in order, so a sorted queue beats a heap.
        let mut queue: VecDeque<(Time, u32)> = self.by_free_time().into();
        for item in items {
            let Some((Time(free), worker)) = queue.pop_front() else { return };
            let end = Time(work(item, worker, free));
            self.free[worker as usize] = end.0;
            if queue.back().is_none_or(|last| last.0 <= end) {
                queue.push_back((end, worker));
            } else {
                queue.insert(queue.partition_point(|other| other.0 <= end), (end, worker));
            }
        }
    }

    /// Workers with the times at which they are free, ascending.
    pub(crate) fn by_free_time(&self) -> Vec<(Time, u32)> {
        let mut workers: Vec<(Time, u32)> =
            self.free.iter().enumerate().map(|(w, at)| (Time(*at), w as u32)).collect();
        workers.sort_unstable();
        workers
    }

    /// The worker that is free first.
    pub(crate) fn first(&self) -> u32 {
        let free_at = |worker: &usize| Time(self.free[*worker]);
        (0..self.free.len()).min_by_key(free_at).unwrap_or(0) as u32
    }

    /// When all are free.
    pub(crate) fn end(&self) -> f64 {
        self.free.iter().copied().fold(0.0, f64::max)
    }
}
