//! Token generation: the next token of every sequence attends to the cached tokens and to itself, and is appended.
//!
//! Tile (b, h) of the output holds the query heads of sequence b that share head h of keys and values. It has one
//! k-block, because the number of tokens it attends to is known only on the device. The keys and values of the new
//! token come from QKV and never from the cache, so no stage reads rows appended in the same run.

use std::ops::Range;

use super::{Cache, Heads, PAGE, Scores, constant, in_qkv};
use crate::device::Operation;
use crate::graph::op::{At, Bound, Constant, Cost, MmaTile, Rules, Tiles};
use crate::graph::{Axis, Footprint, Operand, OperandKind, Stage};

/// Attention of one new token per sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attend {
    /// Its heads.
    pub heads: Heads,
    /// How it weighs tokens.
    pub scores: Scores,
    /// The cache with earlier tokens.
    pub cache: Cache,
    /// Whether queries and keys are rotated by their position.
    pub rotary: bool,
    /// Tokens per sequence, including the new one, assumed in predictions; the actual lengths are known only on the
    /// device.
    pub expected: u32,
}

impl Attend {
    /// Its only tile shape: one sequence, the query heads that share keys and values, and all tokens.
    fn tile(&self) -> MmaTile {
        (1, self.heads.group() * self.heads.dim, self.cache.capacity)
    }

    /// Rows and columns of an operand that tile (m, n) may read, or of a cache that it may change.
    fn box_of(&self, kind: OperandKind, (m, n): (u32, u32)) -> (Range<u32>, Range<u32>) {
        let Attend { heads, cache, .. } = self;
        let rows = match kind {
            OperandKind::CachedKeys | OperandKind::CachedValues => match cache.pages {
                // The page table selects the pages, so any of them may be read.
                Some(pages) => 0..pages * heads.kv * PAGE,
                None => {
                    let first = cache.row(heads, m, 0, n, 0);
                    first..first + cache.capacity
                }
            },
            OperandKind::Lengths => return (0..1, m..m + 1),
            OperandKind::QueryGain | OperandKind::KeyGain => 0..1,
            OperandKind::Pages => return (m..m + 1, 0..cache.capacity / PAGE),
            // Any position may be read.
            OperandKind::Rotary => 0..cache.capacity,
            _ => return (m..m + 1, heads.columns_of(kind, n)),
        };
        (rows, 0..heads.dim)
    }
}

impl Rules for Attend {
    fn name(&self) -> &'static str {
        "Attention"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Attend)
    }

    fn label(&self) -> String {
        let Heads { query, kv, dim, .. } = self.heads;
        let paged = if self.cache.pages.is_some() { "paged " } else { "" };
        let (capacity, scores) = (self.cache.capacity, self.scores.suffix(dim));
        format!(
            "attention of a token, {query} heads of {dim} columns, a {paged}cache of {kv} for {capacity} \
             tokens,{scores}"
        )
    }

    fn noun(&self) -> &'static str {
        "attention"
    }

    fn tiles(&self, _: u32) -> Tiles {
        Tiles::Own {
            list: vec![self.tile()],
            meaning: "(1, columns of the heads that share keys and values, capacity)",
            of_kernel: false,
        }
    }

    fn takes(&self, tile: MmaTile, _: u32) -> bool {
        tile == self.tile()
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its keys and values")
    }

    fn k_blocks_of(&self, _: &Stage, _: u32) -> u32 {
        1
    }

    fn operand_shape(&self, kind: OperandKind, (m, ..): (u32, u32, u32)) -> Option<(u32, u32)> {
        let Attend { heads, cache, .. } = self;
        match kind {
            OperandKind::CachedKeys | OperandKind::CachedValues => {
                let rows = cache.pages.map_or(m.saturating_mul(cache.capacity), |p| p.saturating_mul(PAGE));
                Some((rows.saturating_mul(heads.kv), heads.dim))
            }
            OperandKind::Lengths => Some((1, m)),
            OperandKind::Pages => Some((m, cache.capacity / PAGE)),
            OperandKind::Rotary => Some((cache.capacity, heads.dim)),
            OperandKind::QueryGain | OperandKind::KeyGain => Some((1, heads.dim)),
            _ => in_qkv(kind).then_some((m, heads.columns())),
        }
    }

    fn footprint(&self, kind: OperandKind, _: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        let boxes = [(0, 0), (1, 0), (0, 1)].map(|tile| self.box_of(kind, tile));
        let axis = |[here, below, right]: [&Range<u32>; 3]| {
            let number = |x: u32| i32::try_from(x).ok();
            let (start, end) = (number(here.start)?, number(here.end)?);
            let by = |other: &Range<u32>| number(other.start)?.checked_sub(start);
            Some(Axis { m: by(below)?, n: by(right)?, k: 0, offset: start, extent: end - start })
        };
        let rows = axis(boxes.each_ref().map(|area| &area.0))?;
        let cols = axis(boxes.each_ref().map(|area| &area.1))?;
        Some((Footprint { rows, cols }, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        let area = |tile| self.box_of(operand.kind, tile);
        (area((1, 0)) != area((0, 0)), area((0, 1)) != area((0, 0)))
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        let (rows, cols) = self.box_of(at.operand.kind, at.tile);
        f(rows, cols);
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        constant(kind)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: false, products: 0.0, bound: Bound::Bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprints_are_what_is_read_at_every_tile() {
        let heads = Heads { query: 8, kv: 2, dim: 64, norm: Some(1e-6) };
        for pages in [None, Some(11)] {
            let (cache, scores) = (Cache { capacity: 256, pages }, Scores::usual(64));
            let shape = Attend { heads, scores, cache, rotary: true, expected: 256 };
            for kind in [
                OperandKind::Query,
                OperandKind::Key,
                OperandKind::Value,
                OperandKind::CachedKeys,
                OperandKind::CachedValues,
                OperandKind::Lengths,
                OperandKind::Pages,
                OperandKind::Rotary,
                OperandKind::QueryGain,
                OperandKind::KeyGain,
            ] {
                let (footprint, _) = shape.footprint(kind, shape.tile()).expect("small");
                for tile in [(0, 0), (0, 1), (2, 0), (3, 1)] {
                    let (rows, cols) = shape.box_of(kind, tile);
                    let at = |axis: &Axis| axis.range(u32::MAX, tile.0, tile.1, 0);
                    assert_eq!((at(&footprint.rows), at(&footprint.cols)), (rows, cols), "{kind:?} {tile:?}");
                }
            }
        }
    }
}
