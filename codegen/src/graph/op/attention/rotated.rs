//! The product that makes the queries, keys and values of a prompt, with queries and keys rotated by their position, and
//! before that normalized if the heads have a norm. On a GPU it is a plain product, followed by a kernel that rotates
//! its heads. This rotates each token once; an attention that rotates its operands does so for each block of queries.

use std::ops::Range;

use super::Heads;
use crate::device::{ChainKernel, KERNELS, Operation};
use crate::graph::op::{At, Bound, Constant, Cost, MmaTile, Rules, Tiles, gemm};
use crate::graph::{Axis, Footprint, Operand, OperandKind};
use crate::obstacle::Obstacle;

/// A GEMM with the heads of an attention in its output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotated {
    /// The heads of the attention.
    pub heads: Heads,
    /// Tokens per sequence: row r has position r modulo this, behind the cached tokens of its sequence.
    pub tokens: u32,
    /// Positions with angles, if lengths state how many tokens of each sequence are cached; `None`: none are.
    pub positions: Option<u32>,
}

/// The tiles of the kernels that run the product.
fn kernel_tiles() -> impl Iterator<Item = MmaTile> {
    let own =
        KERNELS.iter().filter(|kernel| kernel.operations.contains(Operation::Gemm)).map(|kernel| kernel.tile);
    own.chain(ChainKernel::running([Operation::Gemm].into_iter().collect()).map(|kernel| kernel.tile))
}

impl Rotated {
    /// Whether an operand is for the heads of the product, and not for the product: the kernel that rotates reads it.
    pub fn is_of_heads(kind: OperandKind) -> bool {
        matches!(
            kind,
            OperandKind::Rotary | OperandKind::Lengths | OperandKind::QueryGain | OperandKind::KeyGain
        )
    }

    /// Rotated columns: those of queries and keys.
    pub fn columns(&self) -> u32 {
        (self.heads.query + self.heads.kv) * self.heads.dim
    }

    /// Whether tiles of a width end at head boundaries, so that each contains both elements of its pairs.
    fn whole(&self, columns: u32) -> bool {
        columns.is_multiple_of(self.heads.dim)
    }
}

impl Rules for Rotated {
    fn name(&self) -> &'static str {
        "RotatedGemm"
    }

    fn operation(&self) -> Option<Operation> {
        // That of the product; a kernel of its own rotates.
        Some(Operation::Gemm)
    }

    fn label(&self) -> String {
        let Heads { query, kv, dim, .. } = self.heads;
        format!("gemm, {query} heads of queries and {kv} of keys, {dim} columns each, rotated")
    }

    fn noun(&self) -> &'static str {
        "GEMM"
    }

    fn tiles(&self, _: u32) -> Tiles {
        let whole: Vec<MmaTile> = kernel_tiles().filter(|tile| self.whole(tile.1)).collect();
        // Host threads run any tile.
        let head = self.heads.dim;
        let host = || vec![(64, 64u32.next_multiple_of(head), 64)];
        let meaning = "(rows, columns of whole heads, depth of a k-block)";
        Tiles::Own { list: if whole.is_empty() { host() } else { whole }, meaning, of_kernel: true }
    }

    fn takes(&self, tile: MmaTile, _: u32) -> bool {
        self.whole(tile.1)
    }

    fn unfit(&self, tile: MmaTile) -> Option<Obstacle> {
        let (columns, head) = (tile.1, self.heads.dim);
        let cut = || format!("has heads of {head} columns, which its tiles of {columns} columns cut");
        let all = || format!("has heads of {head} columns, which the tiles of all kernels cut");
        if !self.whole(columns) {
            return Some(Obstacle::new(cut()).numbers(columns, head));
        }
        // A thread rotates 8 pairs, and the threads of a head that is normalized are a power of two (`cusync_rotate`).
        let (eights, normed) = (head / 16, self.heads.norm.is_some());
        if head % 16 != 0 || (normed && !eights.is_power_of_two()) {
            let noun = if normed { "normalized heads" } else { "heads" };
            let text = format!("has {noun} of {head} columns, which no kernel rotates");
            return Some(Obstacle::new(text));
        }
        (!kernel_tiles().any(|other| other == tile)).then(|| Obstacle::new(all()))
    }

    fn unfit_beside_others(&self) -> Option<Obstacle> {
        Some(Obstacle::new(
            "is RotatedGemm, whose heads a second kernel rotates once the product is complete",
        ))
    }

    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)> {
        match kind {
            OperandKind::Rotary => Some((self.positions.unwrap_or(self.tokens), self.heads.dim)),
            OperandKind::Lengths => self.positions.map(|_| (1, size.0 / self.tokens)),
            OperandKind::QueryGain | OperandKind::KeyGain => Some((1, self.heads.dim)),
            other => gemm::operand_shape(other, size),
        }
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        if Rotated::is_of_heads(kind) {
            // Inputs need no waits: any part of them may be read.
            let all = Axis { extent: i32::MAX, ..Axis::default() };
            return Some((Footprint { rows: all, cols: all }, None));
        }
        Some((gemm::footprint(kind, (tile.0, tile.1), tile.2)?, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        match operand.kind {
            kind if Rotated::is_of_heads(kind) => (false, false),
            kind => gemm::reads_by(kind),
        }
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        match at.operand.kind {
            kind if Rotated::is_of_heads(kind) => f(0..at.shape.0, 0..at.shape.1),
            _ => gemm::reads(at, f),
        }
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        super::constant(kind).filter(|_| Rotated::is_of_heads(kind))
    }

    fn in_library(&self, has: &dyn Fn(OperandKind) -> bool) -> bool {
        !has(OperandKind::Bias)
    }

    fn cost(&self) -> Cost {
        Cost { gemm: true, products: 1.0, bound: Bound::Kernel }
    }
}
