//! Semaphore slots: monotonic counters, posted with release, waited for with acquire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether a monotonic 32-bit counter has reached `want`; correct across wrap-around while the two are less
/// than 2^31 apart. Mirrors `reached` of csrc/include/cusync/policy.hpp.
pub(super) fn reached(have: u32, want: u32) -> bool {
    have.wrapping_sub(want).cast_signed() >= 0
}

/// Value of a slot when the posts of run `epoch` (from 0) are complete; mirrors `wait_value` there.
pub(super) fn wait_value(epoch: u32, posts: u32) -> u32 {
    epoch.wrapping_add(1).wrapping_mul(posts)
}

/// Reason why a wait ended without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// No tile was finished within the time limit.
    TimedOut,
    /// Another worker failed.
    Aborted,
}

/// The slots of a pipeline.
pub(super) struct Semaphores {
    slots: Vec<AtomicU32>,
    /// Total number of tiles finished, on all devices of a group: distinguishes a slow producer from a missing post.
    progress: Arc<AtomicU64>,
    aborted: AtomicBool,
    timeout: Duration,
}

impl Semaphores {
    pub(super) fn new(slots: u32, timeout: Duration) -> Self {
        Semaphores {
            slots: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            progress: Arc::default(),
            aborted: AtomicBool::new(false),
            timeout,
        }
    }

    /// Resets to the state before the first run.
    pub(super) fn reset(&mut self) {
        self.slots.iter_mut().for_each(|s| *s.get_mut() = 0);
        *self.aborted.get_mut() = false;
    }

    pub(super) fn post(&self, slot: u32, value: u32) {
        self.slots[slot as usize].fetch_add(value, Ordering::Release);
    }

    /// Counts finished tiles together with other devices.
    pub(super) fn share_progress(&mut self, progress: &Arc<AtomicU64>) {
        self.progress = Arc::clone(progress);
    }

    /// Records a finished tile.
    pub(super) fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    pub(super) fn aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Checks once; if true, everything before the posts is visible.
    pub(super) fn ready(&self, slot: u32, want: u32) -> bool {
        reached(self.value(slot), want)
    }

    /// A slot's value.
    pub(super) fn value(&self, slot: u32) -> u32 {
        self.slots[slot as usize].load(Ordering::Acquire)
    }

    /// Spins until the slot has its value. Returns whether it had to spin.
    pub(super) fn wait(&self, slot: u32, want: u32) -> Result<bool, Unmet> {
        self.spin(|| self.ready(slot, want))
    }

    /// Spins until `done`. Bounded: it fails if no tile was finished within the time limit, and the number of tiles
    /// is finite. Returns whether it had to spin.
    pub(super) fn spin(&self, mut done: impl FnMut() -> bool) -> Result<bool, Unmet> {
        if done() {
            return Ok(false);
        }
        let mut seen = self.progress.load(Ordering::Relaxed);
        let mut since = Instant::now();
        for round in 0_u64.. {
            match round {
                0..64 => std::hint::spin_loop(),
                64..256 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
            if done() {
                break;
            }
            if self.aborted() {
                return Err(Unmet::Aborted);
            }
            let progress = self.progress.load(Ordering::Relaxed);
            if progress != seen {
                (seen, since) = (progress, Instant::now());
            } else if since.elapsed() > self.timeout {
                return Err(Unmet::TimedOut);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wrap() {
        let posts = 3;
        let last = u32::MAX / posts;
        assert!(reached(wait_value(last, posts), wait_value(last, posts)));
        assert!(!reached(wait_value(last, posts), wait_value(last + 1, posts)));
        assert!(reached(wait_value(last + 1, posts), wait_value(last, posts)));
    }

    /// A run's wait passes after its last post, and in no earlier state of the slot, whatever the counter's
    /// value.
    #[test]
    fn a_wait_passes_with_the_last_post_of_its_run() {
        let mut looks = 0u64;
        for posts in (1..=132).chain([1056, 4095, 65_536, 1 << 20]) {
            let near = |epoch: u32| (0..5).map(move |i| epoch.wrapping_sub(2).wrapping_add(i));
            // Epochs at which the counter, half of it, or the epoch itself wraps.
            let epochs = [0, (1 << 31) / posts, u32::MAX / posts, u32::MAX / 2, u32::MAX];
            for epoch in epochs.into_iter().flat_map(near) {
                let begin = epoch.wrapping_mul(posts);
                let all = (0..=posts.min(300)).chain(posts.saturating_sub(300)..=posts);
                for made in all {
                    let have = begin.wrapping_add(made);
                    assert_eq!(
                        reached(have, wait_value(epoch, posts)),
                        made == posts,
                        "{made} of {posts} posts of run {epoch}"
                    );
                    assert!(reached(have, wait_value(epoch.wrapping_sub(1), posts)), "run {epoch}");
                    looks += 2;
                }
            }
        }
        assert!(looks > 1_000_000, "{looks}");
    }

    #[test]
    fn an_unmet_wait_ends_in_time_and_says_what_it_saw() {
        let slots = Semaphores::new(2, Duration::from_millis(20));
        slots.post(1, 4);
        assert_eq!(slots.wait(1, 4), Ok(false));
        assert_eq!((slots.wait(1, 5), slots.value(1)), (Err(Unmet::TimedOut), 4));
        slots.abort();
        assert_eq!(slots.wait(0, 1), Err(Unmet::Aborted));
    }
}
