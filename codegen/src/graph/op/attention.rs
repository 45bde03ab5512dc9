//! Attention over one sequence: which parts of the fused QKV matrix a tile reads.
//!
//! Rows of QKV are tokens. Its columns are the heads of the queries, then those of the keys, then those of the values,
//! `dim` columns each. Tile (m, h) of the output is a block of queries of head h; its k-blocks are steps over the keys
//! and values of the head that `group` query heads share.

use std::ops::Range;

use super::{Activation, At, Bound, Constant, Cost, MmaTile, Rules, Stated, Tiles};
use crate::device::Operation;
use crate::diagnostic::Diagnostic;
use crate::graph::fit::Fit;
use crate::graph::{Axis, Footprint, Operand, OperandKind, Stage};
use crate::spec::AttentionSpec;
use crate::sync::Policy;

/// Queries of a tile and tokens of a step over its keys and values. There are no kernels of it yet; plans for the `cpu`
/// executor and predictions use these.
const TILES: &[(u32, u32)] = &[(64, 64), (128, 64), (128, 128)];

/// Most columns of a head: what the tensor memory of any kernel's accumulators bounds.
const MAX_HEAD: u32 = 256;

/// What it reaches of the matrix rate: published kernels, with causal masks and heads of 128 columns, on H100.
const EFFICIENCY: f64 = 0.6;

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
    fn box_around(&self, kind: OperandKind, rows: u32, step: u32) -> Option<Footprint> {
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

/// The shape of an attention, all of whose tensors agree with it.
pub(super) fn lower(spec: &AttentionSpec, stated: &Stated<'_>) -> Result<Attention, Diagnostic> {
    let heads = stated.dims.size(&spec.heads, "the number of heads")?;
    let kv_heads = match &spec.kv_heads {
        Some(kv_heads) => stated.dims.size(kv_heads, "the number of key and value heads")?,
        None => heads,
    };
    if !heads.is_multiple_of(kv_heads) {
        let at = spec.kv_heads.as_ref().map_or(spec.heads.span, |e| e.span);
        return Err(Diagnostic::new(
            "bad-heads",
            format!("{heads} heads cannot share {kv_heads} keys and values evenly"),
        )
        .at(at, format!("{kv_heads} key and value heads"))
        .also(spec.heads.span, format!("{heads} query heads"))
        .help("the number of key and value heads divides the number of heads"));
    }
    let (qkv, out) = (stated.tensor(0), stated.out());
    let slices = u64::from(heads) + 2 * u64::from(kv_heads);
    let dim = u64::from(qkv.cols) / slices;
    if dim == 0 || dim * slices != u64::from(qkv.cols) {
        let message = format!("the columns of `{}` are not {slices} heads", qkv.name);
        return Err(Diagnostic::new("bad-heads", message)
            .at(stated.reads[0].span, format!("{} columns", qkv.cols))
            .also(spec.heads.span, format!("{heads} of queries, {kv_heads} of keys, {kv_heads} of values"))
            .help("QKV has (heads + 2 * kv_heads) * D columns: queries, then keys, then values"));
    }
    if (out.rows, u64::from(out.cols)) != (qkv.rows, u64::from(heads) * dim) {
        let message = format!("`{}` must be {} x {}", out.name, qkv.rows, u64::from(heads) * dim);
        return Err(Diagnostic::new("shape-mismatch", message)
            .at(stated.out.span, format!("{} x {} here", out.rows, out.cols))
            .also(stated.reads[0].span, format!("{} tokens, {slices} heads of {dim} columns", qkv.rows))
            .help("the output has a row a token, and heads * D columns"));
    }
    if dim > u64::from(MAX_HEAD) || dim % 8 != 0 {
        return Err(Diagnostic::new(
            "bad-heads",
            format!("a head of `{}` has {dim} columns", stated.stage.name.value),
        )
        .at(stated.reads[0].span, format!("{} columns in {slices} heads", qkv.cols))
        .help(format!("a head has a multiple of 8 columns (16 bytes), {MAX_HEAD} at most")));
    }
    Ok(Attention { heads, kv_heads, dim: dim as u32, causal: spec.causal })
}

impl Rules for Attention {
    fn name(&self) -> &'static str {
        "Attention"
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation::Attention)
    }

    fn label(&self) -> String {
        let causal = if self.causal { "causal " } else { "" };
        let Attention { heads, dim, kv_heads, .. } = self;
        format!("{causal}attention, {heads} heads of {dim} columns, {kv_heads} of keys and values,")
    }

    fn activation(&self) -> Activation {
        Activation::Identity
    }

    fn noun(&self) -> &'static str {
        "attention"
    }

    fn tiles(&self, _: u32) -> Tiles {
        let meaning = "(queries, columns of a head, tokens of a step)";
        Tiles::Own { list: TILES.iter().map(|&(rows, step)| (rows, self.dim, step)).collect(), meaning }
    }

    fn takes(&self, tile: MmaTile, _: u32) -> bool {
        tile.1 == self.dim
    }

    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        (tile.0, tile.1)
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its keys and values")
    }

    fn k_blocks(&self, k: u32, tile: MmaTile) -> u32 {
        k.div_ceil(tile.2)
    }

    fn elements(&self, stage: &Stage, k_block: u32) -> Range<u32> {
        At::along(k_block, stage.mma_tile.2, stage.k)
    }

    fn k_blocks_of(&self, stage: &Stage, m: u32) -> u32 {
        let end = (m + 1).saturating_mul(stage.out_tile().0);
        self.visible(end, stage.k).div_ceil(stage.mma_tile.2)
    }

    fn operand_shape(&self, kind: OperandKind, (m, ..): (u32, u32, u32)) -> Option<(u32, u32)> {
        let qkv = matches!(kind, OperandKind::Query | OperandKind::Key | OperandKind::Value);
        qkv.then_some((m, (self.heads + 2 * self.kv_heads) * self.dim))
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        Some((self.box_around(kind, tile.0, tile.2)?, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        // A causal mask gives rows more or fewer steps, and changes none.
        (operand.kind == OperandKind::Query, true)
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        let tokens = match at.operand.kind {
            OperandKind::Query => at.rows(),
            _ => At::along(at.k, at.stage.mma_tile.2, at.tensor.rows),
        };
        f(tokens, self.columns(at.operand.kind, at.tile.1));
    }

    fn constant(&self, _: OperandKind) -> Option<Constant> {
        None
    }

    fn has_halo(&self) -> bool {
        false
    }

    /// Queries, keys and values of a head lie the heads' columns apart: their tiles share a slot where each head has keys of
    /// its own and the tiles end with heads.
    fn policy(&self, _: &Operand, columns: u32) -> Option<Policy> {
        let all = self.heads * self.dim;
        let fits = self.heads == self.kv_heads && all.is_multiple_of(columns);
        fits.then(|| Policy::Strided(all / columns))
    }

    fn cost(&self) -> Cost {
        // Queries with keys, and weights with values.
        Cost { gemm: false, products: 2.0, bound: Bound::Rate(EFFICIENCY) }
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
        let extent = |a: Attention, kind| a.box_around(kind, 64, 64).expect("small").cols;
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
