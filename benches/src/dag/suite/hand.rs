//! Hand-written streams and events, one function per benchmark. Nodes are numbered in recording order.

use cusync_dag::StreamPlan;

/// Nodes in order, each on the lane that lists it, and waits between lanes.
fn lanes(lanes: &[&[usize]], waits: &[(usize, usize)]) -> StreamPlan {
    let mut order: Vec<(usize, usize)> =
        lanes.iter().enumerate().flat_map(|(lane, nodes)| nodes.iter().map(move |&n| (n, lane))).collect();
    order.sort_unstable();
    StreamPlan { order, waits: waits.to_vec(), ..StreamPlan::default() }
}

pub(super) fn vec() -> StreamPlan {
    lanes(&[&[0, 2], &[1]], &[(1, 2)])
}

pub(super) fn independent(kernels: usize) -> StreamPlan {
    StreamPlan { order: (0..kernels).map(|k| (k, k)).collect(), ..StreamPlan::default() }
}

/// Uploads next to the kernels that need them: x, square(x), y, square(y), reduce, download.
pub(super) fn vec_with_copies() -> StreamPlan {
    lanes(&[&[0, 1, 4, 5], &[2, 3]], &[(3, 4)])
}

/// One stream per kernel, with its upload and its download. Uploads precede their kernels, downloads follow
/// all kernels.
pub(super) fn independent_with_copies(kernels: usize) -> StreamPlan {
    let all = 0..2 * kernels;
    let mut order: Vec<(usize, usize)> = all.map(|node| (node, node / 2)).collect();
    order.extend((0..kernels).map(|k| (2 * kernels + k, k)));
    StreamPlan { order, ..StreamPlan::default() }
}

pub(super) fn ml() -> StreamPlan {
    lanes(&[&[0, 2, 4, 6, 9], &[1, 3, 5, 7, 8]], &[(8, 9)])
}

/// Authorities on one stream, hubs on the other; they cross twice and meet at the reset.
pub(super) fn hits(iterations: usize) -> StreamPlan {
    let mut plan = StreamPlan::default();
    for first in (0..iterations).map(|i| 7 * i) {
        plan.order.extend((0..7).map(|k| (first + k, usize::from([1, 3, 5].contains(&k)))));
        plan.waits.extend([(0, 5), (1, 4), (5, 6)].map(|(a, b)| (first + a, first + b)));
        if first > 0 {
            plan.waits.push((first - 1, first + 1));
        }
    }
    plan
}

pub(super) fn img() -> StreamPlan {
    lanes(&[&[1, 4, 5, 7, 9, 10], &[0, 3], &[2, 8], &[6]], &[(4, 6), (6, 7), (8, 9), (3, 10)])
}

pub(super) fn dl() -> StreamPlan {
    lanes(&[&[0, 2, 4, 6, 7], &[1, 3, 5]], &[(5, 6)])
}

/// One stream per chain of three; the join on the first.
pub(super) fn chains(width: usize) -> StreamPlan {
    let join = 3 * width;
    let mut order: Vec<(usize, usize)> = (0..join).map(|node| (node, node / 3)).collect();
    order.push((join, 0));
    let waits = (1..width).map(|chain| (3 * chain + 2, join)).collect();
    StreamPlan { order, waits, ..StreamPlan::default() }
}
