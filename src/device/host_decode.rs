//! Layout arithmetic of the decode kernels, compiled for the host: where a weight is, which worker posts a
//! column tile, which worker attends to which tokens.

use crate::ffi;

/// Weights of one stage, laid out for `workers` workers, or for as many parts of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightLayout {
    /// Whether each feature has a gate and an up row.
    pub gated: bool,
    /// Length of a row.
    pub k: u32,
    /// Features: columns of the output.
    pub n: u32,
    /// Workers (CTAs).
    pub workers: u32,
}

impl WeightLayout {
    fn operation(&self) -> u32 {
        if self.gated { ffi::CUSYNC_GATED_GEMM } else { ffi::CUSYNC_GEMM }
    }

    /// Bytes of all weights.
    pub fn bytes(&self) -> u64 {
        // SAFETY: arithmetic only.
        unsafe { ffi::cusync_repacked_bytes(self.operation(), self.k, self.n) }
    }

    /// Byte offset of element `k` of a feature's plain (or gate) row, or of its up row.
    pub fn offset(&self, feature: u32, up: bool, k: u32) -> u64 {
        let up = u32::from(up);
        // SAFETY: arithmetic only.
        unsafe {
            ffi::cusync_host_decode_weight(self.operation(), self.k, self.n, self.workers, feature, up, k)
        }
    }

    /// Order of the k-blocks in which a worker's weights are loaded in chunks of about `chunk_bytes`, and the
    /// order for its activations.
    pub fn order(&self, chunk_bytes: u32, worker: u32) -> (Vec<u32>, Vec<u32>) {
        let walk = |by_chunks: u32| {
            let mut blocks = vec![0; self.k.div_ceil(64) as usize];
            // SAFETY: arithmetic that writes at most the capacity.
            let count = unsafe {
                ffi::cusync_host_decode_order(
                    self.operation(),
                    self.k,
                    self.n,
                    self.workers,
                    chunk_bytes,
                    worker,
                    by_chunks,
                    blocks.as_mut_ptr(),
                    blocks.len() as u32,
                )
            };
            blocks.resize(count as usize, u32::MAX);
            blocks
        };
        (walk(1), walk(0))
    }
}

/// Whether neighboring workers of the attention kernel for `width` tokens compute a product together, by the
/// kernels' own arithmetic.
pub fn in_pairs(gated: bool, (k, n): (u32, u32), workers: u32, width: u32) -> bool {
    let operation = if gated { ffi::CUSYNC_GATED_GEMM } else { ffi::CUSYNC_GEMM };
    // SAFETY: arithmetic only.
    unsafe { ffi::cusync_host_decode_in_pairs(operation, k, n, workers, width) != 0 }
}

/// A worker's share of a product, and its k-blocks in the order of multiplication.
pub fn share(product: &ffi::cusync_shared_product, worker: u32) -> (ffi::cusync_share, Vec<u32>) {
    let (mut share, mut blocks) = (ffi::cusync_share::default(), vec![0; product.k.div_ceil(64) as usize]);
    // SAFETY: arithmetic that writes one share, and at most as many k-blocks as the capacity.
    let count = unsafe {
        let room = (blocks.as_mut_ptr(), blocks.len() as u32);
        ffi::cusync_host_decode_share(product, worker, &raw mut share, room.0, room.1)
    };
    blocks.truncate(count as usize);
    (share, blocks)
}

/// Maximum distance between the two warpgroups of a CTA in chunks of `1 << chunk_shift` k-blocks, with
/// `slots` slots of activations and a ring of at most `max_chunks` chunks of weights.
pub fn turn_lead(slots: u32, chunk_shift: u32, max_chunks: u32) -> u32 {
    // SAFETY: arithmetic only.
    unsafe { ffi::cusync_host_decode_lead(slots, chunk_shift, max_chunks) }
}

/// Segments of each worker of an attention stage, for each (sequence, key/value head).
pub fn attention_segments(
    lengths: &[i32],
    capacity: u32,
    kv_heads: u32,
    workers: u32,
) -> Vec<Vec<ffi::cusync_segment>> {
    let mut sums = vec![0; 2 * lengths.len() + 2];
    let mut segments = |worker: u32, room: &mut [ffi::cusync_segment]| {
        // SAFETY: arithmetic that reads one length per sequence and writes at most the capacity.
        unsafe {
            ffi::cusync_host_attention_segments(
                lengths.as_ptr(),
                lengths.len() as u32,
                capacity,
                kv_heads,
                workers,
                worker,
                sums.as_mut_ptr(),
                room.as_mut_ptr(),
                room.len() as u32,
            )
        }
    };
    let one = |worker| {
        let count = segments(worker, &mut []);
        let mut found = vec![ffi::cusync_segment::default(); count as usize];
        segments(worker, &mut found);
        found
    };
    (0..workers).map(one).collect()
}

#[cfg(test)]
mod tests {
    use cusync_gen::graph::share_begin;

    use super::*;

    const SHAPES: [(bool, u32, u32, u32); 9] = [
        (false, 64, 264, 132),
        (false, 128, 6144, 132),
        (false, 200, 1000, 132),
        (false, 72, 40, 132),
        (false, 8, 1, 1),
        (true, 64, 2752, 132),
        (true, 136, 3584, 132),
        (true, 192, 1000, 7),
        (true, 72, 24, 132),
    ];

    fn layouts() -> impl Iterator<Item = WeightLayout> {
        SHAPES.into_iter().map(|(gated, k, n, workers)| WeightLayout { gated, k, n, workers })
    }

    #[test]
    fn every_weight_has_a_place_of_its_own() {
        for layout in layouts() {
            let mut taken = vec![false; layout.bytes() as usize / 2];
            for feature in 0..layout.n {
                for up in [false, true].into_iter().take(1 + usize::from(layout.gated)) {
                    for k in 0..layout.k {
                        let at = layout.offset(feature, up, k) as usize;
                        assert!(at.is_multiple_of(2) && !std::mem::replace(&mut taken[at / 2], true));
                    }
                }
            }
            let rows = u64::from(layout.n) * (1 + u64::from(layout.gated));
            assert_eq!(layout.bytes(), rows * u64::from(layout.k.div_ceil(64)) * 128, "{layout:?}");
        }
    }

    /// A worker's rows are contiguous through all of its k-blocks. So in a copy of any run of them to a place
    /// of the same phase, the 16-byte pieces of global row r are permuted by r modulo 8, which is how WGMMA
    /// reads 128-byte rows. A gated stage has 8 gate rows, then the 8 up rows of the same features, and fewer
    /// in a short last group.
    #[test]
    fn copies_bring_rows_where_the_tensor_cores_look() {
        for layout in layouts() {
            let (sides, blocks) = (1 + u32::from(layout.gated), layout.k.div_ceil(64));
            for worker in 0..layout.workers {
                let first = share_begin(layout.n, layout.workers, worker);
                let count = share_begin(layout.n, layout.workers, worker + 1) - first;
                let start = u64::from(first * sides) * u64::from(blocks) * 128;
                for feature in 0..count {
                    for up in [false, true].into_iter().take(sides as usize) {
                        let group = 8.min(count - feature / 8 * 8);
                        let in_block = match layout.gated {
                            false => feature,
                            true => feature / 8 * 16 + u32::from(up) * group + feature % 8,
                        };
                        for k in 0..layout.k {
                            let within = (layout.offset(first + feature, up, k) - start) as u32;
                            let row = k / 64 * count * sides + in_block;
                            assert_eq!(within / 128, row, "{layout:?} worker {worker} feature {feature}");
                            let piece = (k % 64 / 8) ^ (row % 8);
                            assert_eq!(within % 128, piece * 16 + k % 8 * 2, "{layout:?} k {k}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn each_k_block_comes_once_weights_and_activations_in_one_order() {
        for (n, k) in
            [(6144, 12288), (12288, 6144), (8192, 2752), (2752, 8192), (2744, 344), (72, 8), (1000, 520)]
        {
            for workers in [132, 66, 7, 3, 1] {
                for chunk_bytes in [1, 12 << 10, 32 << 10, 48 << 10] {
                    for gated in [false, true] {
                        let layout = WeightLayout { gated, k, n, workers };
                        for worker in 0..workers {
                            let (mut weights, activations) = layout.order(chunk_bytes, worker);
                            assert_eq!(weights, activations, "{layout:?} worker {worker}");
                            weights.sort_unstable();
                            let owns = share_begin(n, workers, worker) < share_begin(n, workers, worker + 1);
                            let want: Vec<u32> =
                                if owns { (0..k.div_ceil(64)).collect() } else { Vec::new() };
                            assert_eq!(weights, want, "{layout:?} worker {worker}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn plan_and_kernel_agree_on_pairs() {
        use cusync_gen::schedule::decode;
        for k in [64, 4032, 4033, 4096, 8192, 12288] {
            for n in [64, 131, 132, 1280, 3072, 3168, 3169, 4608, 8192] {
                for workers in [1, 2, 66, 131, 132] {
                    for (gated, width) in [(false, 32), (true, 32), (false, 8), (false, 16), (false, 64)] {
                        let (own, case) =
                            (in_pairs(gated, (k, n), workers, width), (k, n, gated, workers, width));
                        assert_eq!(own, decode::in_pairs((k, n), gated, workers, width), "{case:?}");
                    }
                }
            }
        }
        assert!(in_pairs(false, (8192, 1280), 132, 32) && in_pairs(false, (8192, 3072), 132, 32));
    }

    /// Invariant of pairs: each worker has the k-blocks that the other lacks, for the rows of both; the
    /// weights of these rows are laid out as for half as many workers. Its own rows are the features that it
    /// has without pairs, so its posts do not change.
    #[test]
    fn a_pair_has_each_k_block_once_and_each_row_in_both() {
        for (k, n, workers) in
            [(8192, 1280, 132), (8192, 3072, 132), (4104, 133, 132), (4160, 500, 22), (12288, 47, 2)]
        {
            for chunk_bytes in [1, 12 << 10, 32 << 10] {
                let layout = WeightLayout { gated: false, k, n, workers: workers / 2 };
                for pair in 0..workers / 2 {
                    let mut all = Vec::new();
                    let mut taken = 0;
                    for worker in [2 * pair, 2 * pair + 1] {
                        let product = ffi::cusync_shared_product {
                            operation: ffi::CUSYNC_GEMM,
                            k,
                            n,
                            workers,
                            chunk_bytes,
                            paired: 1,
                            round: 0,
                            rounds: 1,
                        };
                        let (share, blocks) = share(&product, worker);
                        let own = share_begin(n, workers, worker)..share_begin(n, workers, worker + 1);
                        let both = share_begin(n, workers, 2 * pair)..share_begin(n, workers, 2 * pair + 2);
                        assert_eq!(share.first..share.first + share.count, own);
                        assert_eq!((share.rows, share.lead), (both.end - both.start, own.start - both.start));
                        // The copy of its first k-blocks begins at row 0 of the swizzle.
                        let first = blocks.iter().min().copied().expect("each has some");
                        assert_eq!(
                            layout.offset(both.start, false, first * 64),
                            share.offset,
                            "{k} x {n}, worker {worker}"
                        );
                        assert!(share.offset.is_multiple_of(1024) || first * share.rows % 8 == 0);
                        assert!(share.chunks > 0 && share.chunks <= blocks.len() as u32);
                        taken += blocks.len();
                        all.extend(blocks);
                    }
                    all.sort_unstable();
                    assert_eq!(taken, all.len());
                    assert_eq!(all, (0..k.div_ceil(64)).collect::<Vec<_>>(), "{k} x {n}, pair {pair}");
                }
            }
        }
    }

    /// Invariant of rounds: a worker's parts are contiguous and together equal its share without rounds; each
    /// comes with all k-blocks, and its weights are laid out as for one worker per part.
    #[test]
    fn the_rounds_of_a_worker_are_its_share_part_by_part() {
        for (gated, k, n, workers, rounds) in [
            (true, 128, 18944, 132, 3),
            (false, 200, 151_936, 132, 5),
            (false, 64, 700, 2, 2),
            (true, 72, 40, 7, 2),
        ] {
            let parts = WeightLayout { gated, k, n, workers: workers * rounds };
            for worker in 0..workers {
                let mut next = share_begin(n, workers, worker);
                for round in 0..rounds {
                    let operation = parts.operation();
                    let product = ffi::cusync_shared_product {
                        operation,
                        k,
                        n,
                        workers,
                        chunk_bytes: 12 << 10,
                        paired: 0,
                        round,
                        rounds,
                    };
                    let (share, mut blocks) = share(&product, worker);
                    let case = format!("{parts:?}, worker {worker}, round {round}");
                    assert_eq!(share.first, next, "{case}");
                    assert_eq!((share.rows, share.lead), (share.count * (1 + u32::from(gated)), 0), "{case}");
                    next += share.count;
                    blocks.sort_unstable();
                    let all = if share.count > 0 { k.div_ceil(64) } else { 0 };
                    assert_eq!(blocks, (0..all).collect::<Vec<_>>(), "{case}");
                    // Checks the first 16 bytes; the swizzle may have moved them within their row.
                    if share.count > 0 {
                        assert_eq!(parts.offset(share.first, false, 0) / 128 * 128, share.offset, "{case}");
                    }
                }
                assert_eq!(next, share_begin(n, workers, worker + 1), "{parts:?}, worker {worker}");
            }
        }
    }

    /// Every unit has one owner, work is balanced, the parts of a head are in separate slabs where the
    /// reducing worker expects them, and each head is finished once: one post per sequence, whatever the
    /// lengths.
    fn judge_segments(lengths: &[i32], capacity: u32, heads: u32, workers: u32) {
        let case = format!("{lengths:?} of {capacity}, {heads} heads, {workers} workers");
        let units = |n: i32| if n < 0 || n >= capacity as i32 { 1 } else { n as u32 / 64 + 1 };
        let all: u32 = lengths.iter().map(|&n| heads * units(n)).sum();
        let (mut taken, mut most) = (vec![false; all as usize], 0);
        let mut slabs = std::collections::HashSet::new();
        let mut parts = vec![Vec::new(); lengths.len() * heads as usize];
        for segments in attention_segments(lengths, capacity, heads, workers) {
            most = most.max(segments.iter().map(|s| s.end - s.begin).sum());
            for (place, s) in segments.iter().enumerate() {
                assert!(s.begin < s.end && s.first <= s.begin && s.end <= s.last, "{case}");
                assert_eq!(s.last - s.first, units(lengths[s.sequence as usize]), "{case}");
                let again = |unit| std::mem::replace(&mut taken[unit as usize], true);
                assert!(!(s.begin..s.end).any(again), "{case}");
                let whole = (s.begin, s.end) == (s.first, s.last);
                assert_eq!(s.parts > 1, !whole, "{case}");
                if !whole {
                    assert!(s.slab < 2 * workers && slabs.insert(s.slab), "{case}: slab {}", s.slab);
                    assert_eq!(s.slab, s.slab_of_part, "{case}");
                    assert!(place < 2, "{case}: parts come before what is whole");
                }
                parts[(s.sequence * heads + s.head) as usize].push(s.parts);
            }
        }
        assert!(taken.into_iter().all(|taken| taken), "{case}");
        for parts in parts {
            assert!(parts.iter().all(|&p| p as usize == parts.len()) && !parts.is_empty(), "{case}");
        }
        assert!(most <= all.div_ceil(workers).max(5) * 3 / 2, "{case}: {most} units of {all}");
    }

    #[test]
    fn each_head_is_finished_once_whatever_the_lengths() {
        for workers in [1, 2, 5, 132] {
            for heads in [1, 2, 3] {
                for a in (-1..330).step_by(9) {
                    judge_segments(&[a], 320, heads, workers);
                    for b in [-7, 0, 1, 62, 63, 64, 65, 127, 200, 319, 320] {
                        judge_segments(&[a, b], 320, heads, workers);
                        judge_segments(&[b, a, i32::MAX], 320, heads, workers);
                    }
                }
            }
        }
        let mut seed = 7_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        for _ in 0..300 {
            let (sequences, heads, workers) = (1 + random(64), 1 + random(12), 1 + random(140));
            let mut length = |i: u32| random(if i.is_multiple_of(4) { 70 } else { 2050 }) as i32 - 1;
            let lengths: Vec<i32> = (0..sequences).map(&mut length).collect();
            judge_segments(&lengths, 2048, heads, workers);
        }
    }
}
