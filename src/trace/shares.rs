//! The kinds of time of an SM.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::runtime::ItemTrace;

/// Microseconds of an average SM, by what its CTA's arithmetic did. The five kinds add up to `span_us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// From an item's first k-block in shared memory to its last k-block multiplied. Stalls inside the loop, for late copies
    /// or for waits of later k-blocks, are in it.
    pub math_us: f64,
    /// From the last multiplication until the results have left the registers: activation, partial sums and waits for those of
    /// others, stores.
    pub epilogue_us: f64,
    /// From then to its first k-block in shared memory, where the waits came first.
    pub load_us: f64,
    /// From turning to an item until its waits are satisfied, or its first k-block has arrived, whichever is first.
    pub wait_us: f64,
    /// The rest: before an SM's first item and after its last, between kernels, and SMs without items.
    pub idle_us: f64,
    /// From the first item's beginning to the last one's end, over all SMs.
    pub span_us: f64,
}

impl Shares {
    /// Of the items of one run on a GPU of `sms` SMs.
    pub(super) fn of(items: &[ItemTrace], sms: u32) -> Shares {
        let begin = items.iter().map(|t| t.begin).min().unwrap_or(0);
        let end = items.iter().map(|t| t.end).max().unwrap_or(0);
        let mut by_sm: BTreeMap<u32, Vec<&ItemTrace>> = BTreeMap::new();
        items.iter().for_each(|t| by_sm.entry(t.sm).or_default().push(t));
        let mut sums = [0u64; 4];
        for list in by_sm.values_mut() {
            list.sort_by_key(|t| (t.begin, t.end));
            // A time that precedes the one before it cost nothing: the load warp runs ahead of the arithmetic. It also notes
            // that an item is ready when the last of its waits is satisfied, which may be long after the first loads.
            let mut now = begin;
            for t in list {
                now = now.max(t.begin);
                let ready = t.ready.min(t.loaded);
                for (sum, next) in sums.iter_mut().zip([ready, t.loaded, t.math_end, t.end]) {
                    *sum += next.saturating_sub(now);
                    now = now.max(next);
                }
            }
        }
        let average = |ns: u64| ns as f64 * 1e-3 / f64::from(sms.max(1));
        let [wait_us, load_us, math_us, epilogue_us] = sums.map(average);
        let span_us = (end - begin) as f64 * 1e-3;
        let idle_us = span_us - (wait_us + load_us + math_us + epilogue_us);
        Shares { math_us, epilogue_us, load_us, wait_us, idle_us, span_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync_gen::graph::StageId;
    use cusync_gen::schedule::{Item, Part};

    fn item(sm: u32, times: [u64; 5]) -> ItemTrace {
        let item = Item { stage: StageId(0), m: 0, n: 0, k_begin: 0, k_end: 1, part: Part::Whole };
        let [begin, ready, loaded, math_end, end] = times.map(|us| us * 1000);
        ItemTrace { worker: sm, cta: 0, sm, item, begin, ready, loaded, math_end, end }
    }

    #[test]
    fn waits_of_later_k_blocks_count_as_arithmetic() {
        let shares = Shares::of(&[item(0, [0, 7, 3, 10, 11])], 1);
        assert_eq!((shares.wait_us, shares.load_us, shares.math_us), (3.0, 0.0, 7.0));
    }

    #[test]
    fn the_kinds_add_up_to_the_span() {
        // SM 0 is busy throughout; SM 1 begins late, ends early and waits; two more do nothing.
        let items = [
            item(0, [100, 101, 103, 110, 112]),
            // Ready and loaded while the item before was in its epilogue.
            item(0, [112, 105, 106, 118, 120]),
            item(1, [104, 108, 109, 113, 114]),
        ];
        let shares = Shares::of(&items, 4);
        assert_eq!(shares.span_us, 20.0);
        assert_eq!(shares.wait_us, (1.0 + 4.0) / 4.0);
        assert_eq!(shares.load_us, (2.0 + 1.0) / 4.0);
        assert_eq!(shares.math_us, (7.0 + 6.0 + 4.0) / 4.0);
        assert_eq!(shares.epilogue_us, (2.0 + 2.0 + 1.0) / 4.0);
        let sum = shares.math_us + shares.epilogue_us + shares.load_us + shares.wait_us + shares.idle_us;
        assert!((sum - shares.span_us).abs() < 1e-9);
        assert_eq!(Shares::of(&[], 4), Shares::default());
    }
}
