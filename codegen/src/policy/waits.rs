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
        None => slots.cover(&now) == slots.cover(&before),
    };
    if again { TileBox::EMPTY } else { now }
}

/// The slots of a box of tiles, where they follow from ranges: rows and columns of slots. Columns go around: they begin at
/// `first`, and after the last of `of` comes 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cover {
    rows: Range<u32>,
    first: u32,
    count: u32,
    of: u32,
}

impl SlotMap {
    /// The slots of a box, of a policy that is no table.
    fn cover(&self, tiles: &TileBox) -> Cover {
        if tiles.is_empty() {
            return Cover { rows: 0..0, first: 0, count: 0, of: 0 };
        }
        let rows = tiles.m.start / self.block.0..tiles.m.end.div_ceil(self.block.0);
        if self.stride_n > 0 {
            let of = self.stride_n;
            let count = (tiles.n.end - tiles.n.start).min(of);
            // A box as wide as the stride has every slot of its rows, wherever it begins.
            let first = if count == of { 0 } else { tiles.n.start % of };
            return Cover { rows, first, count, of };
        }
        let first = tiles.n.start / self.block.1;
        let count = tiles.n.end.div_ceil(self.block.1) - first;
        Cover { rows, first, count, of: self.slots_n }
    }

    /// Calls `f` with the slots that hold the tiles of a box, each once, ascending.
    pub fn each_covering(&self, tiles: &TileBox, f: &mut dyn FnMut(u32)) {
        if let Some((table, _)) = &self.table {
            let at = |tile: Tile| table[(tile.m * self.grid.1 + tile.n) as usize];
            let mut slots: Vec<u32> = tiles.tiles().map(at).collect();
            slots.sort_unstable();
            slots.dedup();
            return slots.into_iter().for_each(f);
        }
        let Cover { rows, first, count, of } = self.cover(tiles);
        let around = (first + count).saturating_sub(of);
        for row in rows {
            let base = row * self.slots_n;
            (0..around).chain(first..first + count - around).for_each(|column| f(base + column));
        }
    }

    /// The slots that hold the tiles of a box, each once, ascending.
    pub fn covering(&self, tiles: &TileBox) -> Vec<u32> {
        let mut slots = Vec::new();
        self.each_covering(tiles, &mut |slot| slots.push(slot));
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    #[test]
    fn the_slots_of_a_box_are_those_of_its_tiles() {
        let grid = (5, 7);
        let table: Vec<u32> = (0..35).map(|i| i * 11 % 13).collect();
        for policy in [
            Policy::Tile,
            Policy::Row,
            Policy::Batched { rows: 2, cols: 3 },
            Policy::Strided { stride: 1 },
            Policy::Strided { stride: 3 },
            Policy::Strided { stride: 9 },
            Policy::ConvHalo,
            Policy::Table(table),
        ] {
            let map = policy.on(grid);
            let ranges =
                |length: u32| (0..=length).flat_map(move |begin| (begin..=length).map(move |end| begin..end));
            let boxes = ranges(5).flat_map(|m| ranges(7).map(move |n| TileBox { m: m.clone(), n }));
            let mut before: Option<(TileBox, Vec<u32>)> = None;
            for tiles in boxes {
                let mut expected: Vec<u32> = tiles.tiles().map(|tile| map.slot_of(tile)).collect();
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(map.covering(&tiles), expected, "{policy:?} {tiles:?}");
                // What decides whether a wait is left out.
                if let Some((other, slots)) = before.filter(|_| map.table.is_none()) {
                    let same = map.cover(&tiles) == map.cover(&other);
                    assert_eq!(same, slots == expected, "{policy:?} {tiles:?} {other:?}");
                }
                before = Some((tiles, expected));
            }
        }
    }
}
