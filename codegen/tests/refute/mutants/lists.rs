//! Mutations of work lists.

use cusync_gen::schedule::{Hand, Part, Schedule};
use rand::Rng;
use rand::rngs::SmallRng;

use super::mutate::Kind;

/// Two random places in the lists: worker, position.
fn two(rng: &mut SmallRng, schedule: &Schedule) -> Option<((usize, usize), (usize, usize))> {
    let places: Vec<(usize, usize)> = schedule
        .lists
        .iter()
        .enumerate()
        .flat_map(|(w, list)| (0..list.len()).map(move |at| (w, at)))
        .collect();
    let (a, b) = (rng.random_range(0..places.len()), rng.random_range(0..places.len()));
    (a != b).then(|| (places[a], places[b]))
}

pub(super) fn change(rng: &mut SmallRng, schedule: &mut Schedule, kind: Kind) -> Option<()> {
    let of_static = schedule.mode == Hand::Fixed;
    let items = schedule.sequence.len();
    match kind {
        Kind::SwapItems if of_static => {
            let ((w, p), (v, q)) = two(rng, schedule)?;
            let (a, b) = (schedule.lists[w][p], schedule.lists[v][q]);
            (schedule.lists[w][p], schedule.lists[v][q]) = (b, a);
        }
        Kind::SwapItems => {
            let (a, b) = (rng.random_range(0..items), rng.random_range(0..items));
            (a != b).then(|| schedule.sequence.swap(a, b))?;
        }
        Kind::MoveItem if of_static => {
            let ((w, p), _) = two(rng, schedule)?;
            let item = schedule.lists[w].remove(p);
            let to = rng.random_range(0..schedule.lists.len());
            let at = rng.random_range(0..=schedule.lists[to].len());
            schedule.lists[to].insert(at, item);
        }
        Kind::MoveItem => {
            let item = schedule.sequence.remove(rng.random_range(0..items));
            schedule.sequence.insert(rng.random_range(0..items), item);
        }
        Kind::DropItem if of_static => {
            let ((w, p), _) = two(rng, schedule)?;
            schedule.lists[w].remove(p);
        }
        Kind::DropItem => drop(schedule.sequence.remove(rng.random_range(0..items))),
        Kind::RepeatItem if of_static => {
            let ((w, p), (v, q)) = two(rng, schedule)?;
            let item = schedule.lists[w][p];
            schedule.lists[v].insert(q, item);
        }
        Kind::RepeatItem => {
            let item = schedule.sequence[rng.random_range(0..items)];
            schedule.sequence.insert(rng.random_range(0..items), item);
        }
        Kind::MoveCut => {
            let at = rng.random_range(0..items);
            let item = &mut schedule.sequence[at];
            let before = (item.k_begin, item.k_end);
            match rng.random_range(0..4) {
                0 => item.k_begin += 1,
                1 => item.k_end += 1,
                2 => item.k_begin = item.k_begin.saturating_sub(1),
                _ => item.k_end -= 1,
            }
            (before != (item.k_begin, item.k_end)).then_some(())?;
        }
        Kind::ShiftSlab => {
            let slabs = schedule.slabs;
            let with = |p: &Part| !matches!(p, Part::Whole);
            let at: Vec<usize> = (0..items).filter(|i| with(&schedule.sequence[*i].part)).collect();
            if at.is_empty() {
                return None;
            }
            let part = &mut schedule.sequence[at[rng.random_range(0..at.len())]].part;
            let before = *part;
            match part {
                Part::Contribute { slab } => *slab = rng.random_range(0..slabs + 1),
                Part::Finish { first, slabs: n } => match rng.random_range(0..3) {
                    0 => *first = rng.random_range(0..slabs + 1),
                    1 => *n += 1,
                    _ => *n -= 1,
                },
                Part::Share { first, parts, part } => match rng.random_range(0..3) {
                    0 => *first = rng.random_range(0..slabs + 1),
                    1 => *parts = rng.random_range(1..3),
                    _ => *part = rng.random_range(0..2),
                },
                Part::Whole => return None,
            }
            (before != *part).then_some(())?;
        }
        Kind::GrowCluster => {
            let other = [(1, 1), (2, 1), (1, 2), (1, 3), (3, 1), (2, 2)][rng.random_range(0..6)];
            (other != schedule.cluster).then(|| schedule.cluster = other)?;
        }
        Kind::AddWorkers => {
            let more = rng.random_range(1..12);
            for _ in 0..more {
                let mut list = Vec::new();
                // Some of the new workers take over the last item of the longest list.
                if of_static && rng.random() {
                    let longest = schedule.lists.iter_mut().max_by_key(|l| l.len())?;
                    list.extend(longest.pop());
                }
                schedule.lists.push(list);
            }
        }
        _ => return None,
    }
    Some(())
}
