//! The producer tiles that a consumer's k-block must wait for: the Rust counterpart of `wait_box` in `policy.hpp`.
//! Programs for `check`, predictions, schedules and timelines all derive waits here.

use std::ops::Range;

use super::{Axis, Dependence, EdgeNumbers, Graph, Partition, StageId, TileBox, When};
use crate::sync::{SlotMap, Tile, WaitAt};

/// The producer tiles that consumer tile `tile` reads from at k-block `k`, or a bounding box.
pub fn producers_of(graph: &Graph, dependence: &Dependence, tile: Tile, k: u32) -> TileBox {
    let operand = &graph.stages[dependence.consumer.0].operands[dependence.operand];
    let (tensor, reads) = (&graph.tensors[operand.tensor.0], &operand.footprint);
    let partition = graph.stages[dependence.producer.0].partition;
    let boxes = Boxes::new((&reads.rows, &reads.cols), (tensor.rows, tensor.cols), partition, tile);
    boxes.over(&(k..k + 1))
}

/// The elements along one axis that a consumer tile reads, as a function of the k-block.
#[derive(Clone, Debug)]
struct Reach {
    /// First element at k-block 0, elements per k-block step, elements read per k-block.
    begin: i64,
    k: i64,
    extent: i64,
    /// Elements of the axis.
    length: i64,
}

impl Reach {
    fn new(axis: &Axis, length: u32, at: Tile) -> Reach {
        let begin = i64::from(axis.m) * i64::from(at.m)
            + i64::from(axis.n) * i64::from(at.n)
            + i64::from(axis.offset);
        Reach { begin, k: axis.k.into(), extent: axis.extent.into(), length: length.into() }
    }

    /// The smallest interval that contains the elements read at a nonempty range of k-blocks.
    fn over(&self, ks: &Range<u32>) -> Range<u32> {
        let last = ks.end - 1;
        let first = if self.k < 0 { last } else { ks.start };
        let moved = self.k.abs() * i64::from(last - ks.start);
        let begin = self.begin + self.k * i64::from(first);
        let clip = |x: i64| x.clamp(0, self.length) as u32;
        let (begin, end) = (clip(begin), clip(begin + (self.extent + moved).min(i32::MAX.into())));
        begin..end.max(begin)
    }
}

/// Bounding boxes of the producer tiles that a consumer tile reads, as a function of the k-block.
#[derive(Clone, Debug)]
struct Boxes {
    rows: Reach,
    cols: Reach,
    /// The partition of the producer's output, and its size.
    partition: Partition,
    size: (u32, u32),
}

impl Boxes {
    fn new((rows, cols): (&Axis, &Axis), size: (u32, u32), partition: Partition, tile: Tile) -> Boxes {
        Boxes { rows: Reach::new(rows, size.0, tile), cols: Reach::new(cols, size.1, tile), partition, size }
    }

    fn over(&self, ks: &Range<u32>) -> TileBox {
        let (rows, cols) = (self.rows.over(ks), self.cols.over(ks));
        if rows.is_empty() || cols.is_empty() {
            return TileBox::EMPTY;
        }
        self.partition.meeting(self.size, &rows, &cols)
    }
}

/// The waits of a work item on one edge, k-block by k-block.
#[derive(Clone, Debug)]
pub struct WaitWalk<'a> {
    slots: &'a SlotMap,
    at: WaitAt,
    ks: Range<u32>,
    boxes: Boxes,
    /// The tiles read at the previous k-block.
    before: TileBox,
}

impl<'a> WaitWalk<'a> {
    /// The waits on an edge of the work item of `tile` that covers k-blocks `ks`. `made`: how the producer's output is
    /// divided.
    pub fn new(edge: &'a EdgeNumbers, made: Partition, tile: Tile, ks: Range<u32>) -> Self {
        let awaited = edge.policy.awaited_in(made, edge.tensor.0);
        let boxes = Boxes::new((&edge.rows, &edge.cols), edge.tensor, awaited, tile);
        WaitWalk { slots: &edge.policy, at: edge.wait_at, ks, boxes, before: TileBox::EMPTY }
    }

    /// Continues at k-block `k` as if the previous one had just been visited.
    pub fn skip_to(&mut self, k: u32) {
        if k > self.ks.start {
            self.before = self.boxes.over(&(k - 1..k));
        }
    }

    /// Whether the k-blocks after the last requested one need no other slots.
    pub(crate) fn settled(&self) -> bool {
        let one_column = self.slots.table.is_none() && self.slots.slots_n == 1;
        let fixed = self.boxes.rows.k == 0 && (self.boxes.cols.k == 0 || one_column);
        self.at == WaitAt::Start || fixed && !self.before.is_empty()
    }

    /// The producer tiles to wait for just before the dependent load of k-block `k`; empty if nothing new is needed.
    /// K-blocks must be requested in order.
    pub fn at(&mut self, k: u32) -> TileBox {
        let first = k == self.ks.start;
        if self.at == WaitAt::Start {
            return if first { self.boxes.over(&self.ks) } else { TileBox::EMPTY };
        }
        let now = self.boxes.over(&(k..k + 1));
        let before = std::mem::replace(&mut self.before, now.clone());
        if first || now.is_empty() {
            return now;
        }
        // The device does not read a table just to skip a wait.
        let again = now == before
            || self.slots.table.is_none() && self.slots.cover(&now) == self.slots.cover(&before);
        if again { TileBox::EMPTY } else { now }
    }
}

/// Whether the waits of a stage's tiles differ between its rows, and between its columns.
pub fn waits_differ(graph: &Graph, stage: StageId) -> (bool, bool) {
    let own = graph.dependences.iter().filter(|d| d.consumer == stage);
    let varies = own.map(|d| graph.stages[stage.0].operands[d.operand].footprint.varies());
    varies.fold((false, false), |by, one| (by.0 || one.0, by.1 || one.1))
}

/// Calls `f` with every wait on one edge of the work item of `tile` that covers k-blocks `ks`: the k-block and the
/// producer's tiles. Operands that are read once, before or after the main loop, are waited for at the first k-block.
pub fn each_wait(
    edge: &EdgeNumbers,
    made: Partition,
    tile: Tile,
    ks: Range<u32>,
    f: &mut dyn FnMut(u32, TileBox),
) {
    let once = edge.operand.when() != When::Each || edge.wait_at == WaitAt::Start;
    let mut walk = WaitWalk::new(edge, made, tile, ks.clone());
    for k in ks.start..if once { ks.start + 1 } else { ks.end } {
        let tiles = walk.at(k);
        if !tiles.is_empty() {
            f(k, tiles);
        }
    }
}

/// The slots of a box of tiles, if they follow from ranges: rows and columns of slots. Columns wrap around: they begin
/// at `first`, and the last of `columns` is followed by 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cover {
    rows: Range<u32>,
    first: u32,
    count: u32,
    columns: u32,
}

impl SlotMap {
    /// The slots of a box, for a policy without a table.
    fn cover(&self, tiles: &TileBox) -> Cover {
        if tiles.is_empty() {
            return Cover { rows: 0..0, first: 0, count: 0, columns: 0 };
        }
        let rows = tiles.m.start / self.block.0..tiles.m.end.div_ceil(self.block.0);
        if self.stride_n > 0 {
            let columns = self.stride_n;
            let count = (tiles.n.end - tiles.n.start).min(columns);
            // A box at least as wide as the stride covers every slot of its rows, wherever it begins.
            let first = if count == columns { 0 } else { tiles.n.start % columns };
            return Cover { rows, first, count, columns };
        }
        let first = tiles.n.start / self.block.1;
        let count = tiles.n.end.div_ceil(self.block.1) - first;
        Cover { rows, first, count, columns: self.slots_n }
    }

    /// Calls `f` with each slot that contains tiles of a box, once, ascending.
    pub fn each_covering(&self, tiles: &TileBox, f: &mut dyn FnMut(u32)) {
        if self.slot_count == 0 {
            return;
        }
        if let Some((table, _)) = &self.table {
            let at = |tile: Tile| table[(tile.m * self.grid.1 + tile.n) as usize];
            let mut slots: Vec<u32> = tiles.tiles().map(at).collect();
            slots.sort_unstable();
            slots.dedup();
            return slots.into_iter().for_each(f);
        }
        let Cover { rows, first, count, columns } = self.cover(tiles);
        let around = (first + count).saturating_sub(columns);
        for row in rows {
            let base = row * self.slots_n;
            (0..around).chain(first..first + count - around).for_each(|column| f(base + column));
        }
    }

    /// Each slot that contains tiles of a box, once, ascending.
    pub fn covering(&self, tiles: &TileBox) -> Vec<u32> {
        let mut slots = Vec::new();
        self.each_covering(tiles, &mut |slot| slots.push(slot));
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Footprint;
    use crate::sync::Policy;

    #[test]
    fn the_slots_of_a_box_are_those_of_its_tiles() {
        let grid = (5, 7);
        let table: Vec<u32> = (0..35).map(|i| i * 11 % 13).collect();
        for policy in [
            Policy::Tile,
            Policy::Row,
            Policy::Batched { rows: 2, cols: 3 },
            Policy::Strided(1),
            Policy::Strided(3),
            Policy::Strided(9),
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
                // This comparison decides whether a wait is skipped.
                if let Some((other, slots)) = before.filter(|_| map.table.is_none()) {
                    let same = map.cover(&tiles) == map.cover(&other);
                    assert_eq!(same, slots == expected, "{policy:?} {tiles:?} {other:?}");
                }
                before = Some((tiles, expected));
            }
        }
    }

    #[test]
    fn a_walk_waits_where_each_k_block_alone_says() {
        let chain = crate::graph::gemm_chain("c", 100, &[64, 90, 70]);
        let mut graph = chain.graph(&[(16, 8, 16), (32, 16, 8)]).expect("small");
        let dependence = graph.dependences[0].clone();
        let axes = |extent: i32| {
            let with = move |m, k, offset| Axis { m, n: 3, k, offset, extent };
            [-32, 0, 32].into_iter().flat_map(move |m| {
                [-9, 0, 5, 8].into_iter().flat_map(move |k| [-7, 0].map(|offset| with(m, k, offset)))
            })
        };
        for (rows, cols) in axes(20).flat_map(|rows| axes(9).map(move |cols| (rows, cols))) {
            graph.stages[1].operands[0].footprint = Footprint { rows, cols };
            for policy in [Policy::Tile, Policy::Row, Policy::Strided(3), Policy::Table(vec![7; 84])] {
                let map = policy.on(graph.stages[0].grid);
                for (at, ks) in
                    [(WaitAt::PerKBlock, 0..12), (WaitAt::PerKBlock, 5..9), (WaitAt::Start, 2..12)]
                {
                    let (tile, made) = (Tile { m: 1, n: 2 }, graph.stages[0].partition);
                    let edge = EdgeNumbers::new(&graph, 0, map.clone(), at);
                    let mut walk = WaitWalk::new(&edge, made, tile, ks.clone());
                    for k in ks.clone() {
                        // A walk that knows only the previous k-block.
                        let mut short = WaitWalk::new(&edge, made, tile, ks.clone());
                        if k > ks.start {
                            short.before = short.boxes.over(&(k - 1..k));
                        }
                        let alone = short.at(k);
                        assert_eq!(walk.at(k), alone, "{rows:?} {cols:?} {policy:?} {at:?} {k} of {ks:?}");
                    }
                    // Over several k-blocks, the box contains that of each one.
                    let over = Boxes::new((&rows, &cols), edge.tensor, made, tile).over(&ks);
                    for k in ks.clone() {
                        let one = producers_of(&graph, &dependence, tile, k);
                        assert!(one.tiles().all(|t| over.m.contains(&t.m) && over.n.contains(&t.n)));
                    }
                }
            }
        }
    }
}
