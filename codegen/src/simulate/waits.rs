//! What the tiles of a predicted run wait for.

use std::ops::Range;

use super::TileCost;
use crate::check::Candidate;
use crate::device::Device;
use crate::graph::{Op, OperandKind, StageId};
use crate::sync::{SlotMap, Tile, WaitAt, WaitWalk};

/// The waits of all stages under the policies of a candidate. Orders do not change them.
pub(crate) struct Waiting {
    pub(super) maps: Vec<SlotMap>,
    pub(super) stages: Vec<Waits>,
}

impl Waiting {
    pub(crate) fn of(candidate: &Candidate) -> Waiting {
        let maps = candidate.slot_maps();
        let stages = 0..candidate.graph.stages.len();
        let stages = stages.map(|s| Waits::of(candidate, &maps, StageId(s))).collect();
        Waiting { maps, stages }
    }
}

/// A wait: k-block, edge, and where its slots lie in those of the stage.
type Wait = (u32, usize, Range<usize>);

/// The waits of a stage's tiles, by tile row and column as far as they differ.
pub(super) struct Waits {
    per_tile: Vec<Vec<Wait>>,
    slots: Vec<u32>,
    grid_n: u32,
    /// Rows and columns along which waits differ; tiles that agree share an entry.
    by: (bool, bool),
    /// k-blocks of the tiles of each row, and of the longest.
    k_blocks: Vec<u32>,
    most: u32,
}

impl Waits {
    fn of(candidate: &Candidate, maps: &[SlotMap], stage: StageId) -> Waits {
        let graph = &candidate.graph;
        let consumer = &graph.stages[stage.0];
        let edges: Vec<usize> = (0..maps.len()).filter(|e| graph.dependences[*e].consumer == stage).collect();
        let footprints = edges.iter().map(|e| &consumer.operands[graph.dependences[*e].operand].footprint);
        // A causal mask makes rows differ whatever they wait for.
        let by = footprints.fold((matches!(consumer.op, Op::Attention(_)), false), |by, f| {
            (by.0 || f.rows.m != 0 || f.cols.m != 0, by.1 || f.rows.n != 0 || f.cols.n != 0)
        });
        let rows = if by.0 { consumer.grid.0 } else { 1 };
        let cols = if by.1 { consumer.grid.1 } else { 1 };
        let mut per_tile = Vec::with_capacity((rows * cols) as usize);
        let mut slots = Vec::new();
        for (m, n) in (0..rows).flat_map(|m| (0..cols).map(move |n| (m, n))) {
            let tile = Tile { m, n };
            let ks = 0..consumer.k_blocks_of(m);
            let mut list = Vec::new();
            for &edge in &edges {
                let dependence = &graph.dependences[edge];
                let once = matches!(
                    consumer.operands[dependence.operand].kind,
                    OperandKind::Bias | OperandKind::Residual
                );
                let at = candidate.edges[edge].wait_at;
                let last = if once || at == WaitAt::Start { 1 } else { ks.end };
                let mut walk = WaitWalk::new(graph, dependence, &maps[edge], at, tile, ks.clone());
                for k in 0..last {
                    let tiles = walk.at(k);
                    if !tiles.is_empty() {
                        let k = if once { ks.end } else { k };
                        let begin = slots.len();
                        maps[edge].each_covering(&tiles, &mut |slot| slots.push(slot));
                        list.push((k, edge, begin..slots.len()));
                    }
                }
            }
            list.sort_by_key(|(k, ..)| *k);
            per_tile.push(list);
        }
        let k_blocks = (0..rows).map(|m| consumer.k_blocks_of(m).max(1)).collect();
        Waits { per_tile, slots, grid_n: cols, by, k_blocks, most: consumer.k_blocks.max(1) }
    }

    /// End of a tile that starts at `start`, and the time it spends waiting; `note` is told edge, slot, begin and end of each
    /// wait. While it waits for its first slots, the ring
    /// fills with the operand that nobody produces.
    pub(super) fn run(
        &self,
        (stage, tile): (StageId, Tile),
        start: f64,
        cost: &TileCost,
        ready: &[Vec<f64>],
        device: &Device,
        note: &mut impl FnMut(usize, u32, f64, f64),
    ) -> (f64, f64) {
        let m = if self.by.0 { tile.m } else { 0 };
        let row = m * self.grid_n + if self.by.1 { tile.n } else { 0 };
        let k_blocks = self.k_blocks[m as usize];
        let whole = cost.tile_us(stage, tile, f64::from(k_blocks) / f64::from(self.most), false);
        let per_k = (whole - cost.fixed_us).max(0.0) / f64::from(k_blocks);
        let (mut now, mut k_done, mut waited) = (start, 0, 0.0);
        for (k, edge, slots) in &self.per_tile[row as usize] {
            now += f64::from(k - k_done) * per_k;
            now += device.wait_us + slots.len().saturating_sub(1) as f64 * device.look_us;
            k_done = *k;
            let slots = &self.slots[slots.clone()];
            let at = |s: u32| ready[*edge][s as usize];
            let seen_us = device.post_us + device.handoff_us;
            let posted = slots.iter().map(|s| at(*s)).fold(0.0, f64::max) + seen_us;
            if posted > now {
                let last = slots.iter().copied().max_by(|a, b| at(*a).total_cmp(&at(*b)));
                note(*edge, last.unwrap_or(0), now, posted);
                waited += posted - now;
                let ahead = (posted - now).min(cost.prefetch_us);
                now = posted - if *k == 0 { ahead } else { 0.0 };
            }
        }
        (now + f64::from(k_blocks - k_done.min(k_blocks)) * per_k + cost.fixed_us, waited)
    }
}
