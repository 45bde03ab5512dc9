//! Which producer tiles a consumer's k-block must wait for: the Rust side of `wait_box` in `policy.hpp`.

use std::ops::Range;

use super::{SlotMap, Tile, WaitAt};
use crate::graph::{Axis, Dependence, Footprint, Graph};

/// A box of producer tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TileBox {
    /// Rows of tiles.
    pub m: Range<u32>,
    /// Columns of tiles.
    pub n: Range<u32>,
}

impl TileBox {
    const EMPTY: TileBox = TileBox { m: 0..0, n: 0..0 };

    /// Whether no tile is in it.
    pub fn is_empty(&self) -> bool {
        self.m.is_empty() || self.n.is_empty()
    }

    /// Its tiles, row by row.
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + use<> {
        let (m, n) = (self.m.clone(), self.n.clone());
        m.flat_map(move |m| n.clone().map(move |n| Tile { m, n }))
    }
}

/// The producer tiles whose output consumer tile `tile` reads at k-block `k`, or a box around them.
pub fn producers_of(graph: &Graph, dependence: &Dependence, tile: Tile, k: u32) -> TileBox {
    let operand = &graph.stages[dependence.consumer.0].operands[dependence.operand];
    producers_over(graph, dependence, &operand.footprint, tile, &(k..k + 1))
}

/// Elements of an axis read at the k-blocks `ks`, or the smallest interval that holds them.
fn range_over(axis: &Axis, length: u32, tile: Tile, ks: &Range<u32>) -> Range<u32> {
    let last = ks.end - 1;
    let moved = i64::from(axis.k.unsigned_abs()) * i64::from(last - ks.start);
    let extent = i32::try_from(i64::from(axis.extent) + moved).unwrap_or(i32::MAX);
    let first = if axis.k < 0 { last } else { ks.start };
    Axis { extent, ..*axis }.range(length, tile.m, tile.n, first)
}

/// A box around the producer tiles whose output consumer tile `tile` reads at the k-blocks `ks`, which are not empty.
fn producers_over(
    graph: &Graph,
    dependence: &Dependence,
    footprint: &Footprint,
    tile: Tile,
    ks: &Range<u32>,
) -> TileBox {
    let operand = &graph.stages[dependence.consumer.0].operands[dependence.operand];
    let tensor = &graph.tensors[operand.tensor.0];
    let (rows, cols) = graph.stages[dependence.producer.0].out_tile;
    let r = range_over(&footprint.rows, tensor.rows, tile, ks);
    let c = range_over(&footprint.cols, tensor.cols, tile, ks);
    if r.is_empty() || c.is_empty() {
        return TileBox::EMPTY;
    }
    TileBox { m: r.start / rows..r.end.div_ceil(rows), n: c.start / cols..c.end.div_ceil(cols) }
}

/// The producer tiles to wait for just before the dependent load of k-block `k` of the work item that covers k-blocks
/// `ks`; empty when nothing new is needed.
pub fn wait_box(
    graph: &Graph,
    dependence: &Dependence,
    slots: &SlotMap,
    at: WaitAt,
    tile: Tile,
    k: u32,
    ks: &Range<u32>,
) -> TileBox {
    let first = k == ks.start;
    let operand = &graph.stages[dependence.consumer.0].operands[dependence.operand];
    let over = |ks: &Range<u32>| producers_over(graph, dependence, operand.window(slots), tile, ks);
    if at == WaitAt::Start {
        return if first { over(ks) } else { TileBox::EMPTY };
    }
    let now = over(&(k..k + 1));
    if first || now.is_empty() {
        return now;
    }
    let before = over(&(k - 1..k));
    let again = match slots.table {
        // The device does not read a table only to find that it can skip a wait.
        Some(_) => now == before,
        None => slots.covering(&now) == slots.covering(&before),
    };
    if again { TileBox::EMPTY } else { now }
}

impl SlotMap {
    /// The slots that hold the tiles of a box, each once, ascending.
    pub fn covering(&self, tiles: &TileBox) -> Vec<u32> {
        if tiles.is_empty() {
            return Vec::new();
        }
        let mut slots: Vec<u32> = if self.table.is_some() || self.stride_n > 0 {
            tiles.tiles().map(|tile| self.slot_of(tile)).collect()
        } else {
            // A block at a time: a row policy's box may hold hundreds of tiles and one slot.
            let rows = tiles.m.start / self.block.0..tiles.m.end.div_ceil(self.block.0);
            let cols = tiles.n.start / self.block.1..tiles.n.end.div_ceil(self.block.1);
            rows.flat_map(|r| cols.clone().map(move |c| (r, c))).map(|(r, c)| r * self.slots_n + c).collect()
        };
        slots.sort_unstable();
        slots.dedup();
        slots
    }
}
