//! Attention over one sequence: which parts of the fused QKV matrix a tile reads.
//!
//! Rows of QKV are tokens. Its columns are the heads of the queries, then those of the keys, then those of the values,
//! `dim` columns each. Tile (m, h) of the output is a block of queries of head h; its k-blocks are steps over the keys
//! and values of the head that `group` query heads share.

use std::ops::Range;

use super::fit::Fit;
use super::{Axis, Footprint, OperandKind};

/// The shape of an attention stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; they divide the query heads.
    pub kv_heads: u32,
    /// Columns of a head.
    pub dim: u32,
    /// Whether a token sees itself and earlier tokens only.
    pub causal: bool,
}

impl Attention {
    /// Query heads that share a key and value head.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// The columns of QKV that query head `head` reads as its queries, keys or values; empty for other operands.
    pub fn columns(&self, kind: OperandKind, head: u32) -> Range<u32> {
        let shared = head / self.group();
        let at = match kind {
            OperandKind::Query => head,
            OperandKind::Key => self.heads + shared,
            OperandKind::Value => self.heads + self.kv_heads + shared,
            _ => return 0..0,
        };
        at * self.dim..(at + 1) * self.dim
    }

    /// The first token that queries `.. end` do not see, of `tokens`.
    pub fn visible(&self, end: u32, tokens: u32) -> u32 {
        if self.causal { end.min(tokens) } else { tokens }
    }

    /// What a tile of `rows` queries reads at steps of `step` tokens, as affine ranges. Exact, but for the keys and values
    /// of groups that are neither one head nor all: those columns move in jumps, and the range holds a jump more.
    pub(super) fn footprint(&self, kind: OperandKind, rows: u32, step: u32) -> Option<Footprint> {
        let (rows, step) = (i32::try_from(rows).ok()?, i32::try_from(step).ok()?);
        let dim = i64::from(self.dim);
        let mut columns = Fit::new(&[(0, 0), (dim / i64::from(self.group()), 0), (dim, 0)]);
        (0..self.heads).for_each(|head| columns.add(head, 0, &self.columns(kind, head)));
        let (n, _, offset, extent) = columns.best()?;
        let along_m = Axis { m: rows, extent: rows, ..Axis::default() };
        let along_k = Axis { k: step, extent: step, ..Axis::default() };
        Some(Footprint {
            rows: if kind == OperandKind::Query { along_m } else { along_k },
            cols: Axis { m: 0, n, k: 0, offset, extent },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(heads: u32, kv_heads: u32) -> Attention {
        Attention { heads, kv_heads, dim: 128, causal: true }
    }

    #[test]
    fn columns_of_a_head_are_its_own_and_its_groups() {
        let grouped = shape(8, 2);
        assert_eq!(grouped.columns(OperandKind::Query, 5), 640..768);
        assert_eq!(grouped.columns(OperandKind::Key, 3), 1024..1152);
        assert_eq!(grouped.columns(OperandKind::Key, 4), 1152..1280);
        assert_eq!(grouped.columns(OperandKind::Value, 7), 1408..1536);
    }

    #[test]
    fn affine_columns_are_exact_for_one_head_and_for_all_and_tight_between() {
        let extent = |a: Attention, kind| a.footprint(kind, 64, 64).expect("small").cols;
        for kind in [OperandKind::Query, OperandKind::Key, OperandKind::Value] {
            let each = extent(shape(12, 12), kind);
            assert_eq!((each.n, each.extent), (128, 128));
        }
        let shared = extent(shape(8, 1), OperandKind::Value);
        assert_eq!((shared.n, shared.offset, shared.extent), (0, 9 * 128, 128));
        // Groups of four move by 128 every fourth head: 32 columns a head, at most 96 behind.
        let grouped = extent(shape(8, 2), OperandKind::Key);
        assert_eq!((grouped.n, grouped.extent), (32, 128 + 96));
        for (a, kind) in [(shape(8, 2), OperandKind::Key), (shape(12, 4), OperandKind::Value)] {
            let axis = extent(a, kind);
            for head in 0..a.heads {
                let (held, read) = (axis.range(u32::MAX, 0, head, 0), a.columns(kind, head));
                assert!(held.start <= read.start && read.end <= held.end, "{a:?} {head}: {held:?} {read:?}");
            }
        }
    }
}
