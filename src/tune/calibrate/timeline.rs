//! Costs of a chain kernel's parts, from the start and end times of its items.

use cusync_gen::graph::StageId;
use cusync_gen::schedule::Part;

use crate::runtime::{ItemTrace, percentile};

/// Costs derived from a run's items, microseconds; `None` if there are too few items.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct ItemTimes {
    /// A k-block of a whole tile.
    pub k_block_us: Option<f64>,
    /// From the first copy of a worker's first item to its multiplication.
    pub fill_us: Option<f64>,
    /// From the last multiplication of a whole tile to the next item.
    pub epilogue_us: Option<f64>,
    /// From the end of a tile's epilogue until a stalled consumer has loaded it.
    pub passed_on_us: Option<f64>,
    /// Writing partial sums to a slab.
    pub slab_write_us: Option<f64>,
    /// Reading and adding a slab that is already there.
    pub slab_read_us: Option<f64>,
}

/// Minimum number of items for a median.
const FEWEST: usize = 8;

impl ItemTimes {
    /// Costs from the items of one run, for a chain whose stages have the same grid and whose stage 1, if
    /// any, reads the rows of stage 0.
    pub fn from_items(items: &[ItemTrace]) -> ItemTimes {
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1e-3;
        let whole = || items.iter().filter(|t| t.item.part == Part::Whole && t.math_end > t.loaded);
        let k_block = whole().filter(|t| t.item.k_end > t.item.k_begin + 8).map(|t| {
            let blocks = t.item.k_end - t.item.k_begin;
            us(t.loaded, t.math_end) / f64::from(blocks)
        });
        let first = items.iter().filter(|t| {
            let same_cta = |o: &&ItemTrace| (o.worker, o.cta) == (t.worker, t.cta);
            t.item.stage == StageId(0) && items.iter().filter(same_cta).all(|o| o.begin >= t.begin)
        });
        let fill = first.filter(|t| t.ready <= t.loaded).map(|t| us(t.begin.max(t.ready), t.loaded));
        let epilogue_us = median(whole().map(|t| us(t.math_end, t.end)).collect());
        let writes = items.iter().filter(|t| matches!(t.item.part, Part::Contribute { .. }));
        let reads = items.iter().filter_map(|t| match t.item.part {
            // The shortest of them did not wait for others.
            Part::Finish { slabs, .. } if slabs > 0 => {
                Some((us(t.math_end, t.end) - epilogue_us?) / f64::from(slabs))
            }
            _ => None,
        });
        ItemTimes {
            k_block_us: median(k_block.collect()),
            fill_us: median(fill.collect()),
            epilogue_us,
            passed_on_us: median(passed_on(items).collect()),
            slab_write_us: median(writes.map(|t| us(t.math_end, t.end)).collect()),
            slab_read_us: at(reads.collect(), 0.1).filter(|us| *us > 0.0),
        }
    }

    /// Rate of one SM, TFLOP/s, for the MMA tile of a CTA.
    pub fn tflops(&self, (m, n, k): (u32, u32, u32)) -> Option<f64> {
        let flop = 2.0 * f64::from(m) * f64::from(n) * f64::from(k);
        self.k_block_us.map(|us| flop / us * 1e-6)
    }
}

/// Minimum delay of a post after the end of its tile, which has to be stored first.
const UNSEEN_NS: u64 = 500;

/// Consumers that stalled before their first k-block: time from the end of its producer tile, the first of
/// their row, to its arrival.
fn passed_on(items: &[ItemTrace]) -> impl Iterator<Item = f64> + '_ {
    let consumers = items.iter().filter(|t| t.item.stage == StageId(1) && t.item.k_begin == 0);
    consumers.filter_map(|t| {
        let made = |o: &&ItemTrace| {
            o.item.stage == StageId(0) && (o.item.m, o.item.n) == (t.item.m, 0) && o.item.part.finishes()
        };
        let end = items.iter().filter(made).map(|o| o.end).max()?;
        // It had turned to the item before the post could be seen, so only the producer delayed it.
        (t.begin < end + UNSEEN_NS && t.loaded > end).then(|| (t.loaded - end) as f64 * 1e-3)
    })
}

fn median(values: Vec<f64>) -> Option<f64> {
    at(values, 0.5)
}

fn at(mut values: Vec<f64>, fraction: f64) -> Option<f64> {
    (values.len() >= FEWEST).then(|| percentile(&mut values, fraction))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync_gen::schedule::Item;

    fn item(worker: u32, stage: usize, (m, n): (u32, u32), part: Part, times: [f64; 5]) -> ItemTrace {
        let item = Item { stage: StageId(stage), m, n, k_begin: 0, k_end: 64, part };
        let [begin, ready, loaded, math_end, end] = times.map(|us| 1_000_000 + (us * 1e3) as u64);
        ItemTrace { worker, cta: 0, sm: worker, item, begin, ready, loaded, math_end, end }
    }

    #[test]
    fn the_parts_of_items_are_told_apart() {
        let mut items = Vec::new();
        for worker in 0..10 {
            // Fill 0.8, 64 k-blocks of 0.5, epilogue 3.
            items.push(item(worker, 0, (worker, 0), Part::Whole, [0.0, 0.0, 0.8, 32.8, 35.8]));
            // Stalls from 35.8 until 38.3, 2.5 after its producer's end.
            items.push(item(worker, 1, (worker, 1), Part::Whole, [35.8 - 0.5, 37.0, 38.3, 70.3, 73.3]));
            // An item that begins just after that end also counts; the next one finds its tile posted.
            items.push(item(10 + worker, 1, (worker, 2), Part::Whole, [36.1, 37.0, 38.3, 70.3, 73.3]));
            items.push(item(worker, 1, (worker, 3), Part::Whole, [73.3, 73.5, 74.1, 106.1, 109.1]));
        }
        let times = ItemTimes::from_items(&items);
        let close = |have: Option<f64>, want: f64| have.is_some_and(|have| (have - want).abs() < 2e-3);
        assert!(close(times.k_block_us, 0.5) && close(times.fill_us, 0.8), "{times:?}");
        assert!(close(times.epilogue_us, 3.0) && close(times.passed_on_us, 2.5), "{times:?}");
        assert_eq!((times.slab_write_us, times.slab_read_us), (None, None), "no tile was cut");
        let rate = times.tflops((128, 256, 64)).expect("there is a k-block");
        assert!((rate - 2.0 * 128.0 * 256.0 * 64.0 / 0.5 * 1e-6).abs() < 0.1, "{rate}");
    }

    #[test]
    fn slabs_are_read_in_the_least_time_and_written_in_the_median() {
        let mut items = Vec::new();
        for i in 0..20u32 {
            items.push(item(i, 0, (i, 0), Part::Whole, [0.0, 0.0, 1.0, 33.0, 36.0]));
            items.push(item(i, 0, (i, 1), Part::Contribute { slab: i }, [36.0, 36.0, 36.0, 50.0, 53.5]));
            // Epilogue 3, two slabs of 4, and up to 19 of waiting.
            let end = 60.0 + 3.0 + 8.0 + f64::from(i);
            let part = Part::Finish { first: 0, slabs: 2 };
            items.push(item(i, 0, (i, 2), part, [53.5, 53.5, 53.5, 60.0, end]));
        }
        let times = ItemTimes::from_items(&items);
        assert!(times.slab_write_us.is_some_and(|us| (us - 3.5).abs() < 2e-3), "{times:?}");
        assert!(times.slab_read_us.is_some_and(|us| (4.0..5.5).contains(&us)), "{times:?}");
    }

    #[test]
    fn too_few_items_tell_nothing() {
        let few: Vec<_> =
            (0..7).map(|w| item(w, 0, (w, 0), Part::Whole, [0.0, 0.0, 1.0, 33.0, 36.0])).collect();
        assert_eq!(ItemTimes::from_items(&few), ItemTimes::default());
        assert_eq!(ItemTimes::from_items(&[]), ItemTimes::default());
    }
}
