//! Attention over the sequences of a prompt, or over their next tokens: the parts of the fused QKV matrix that a tile
//! reads.
//!
//! Tile (m, h) of the output is a block of queries of head h in one sequence. Its k-blocks are steps over the keys and
//! values of that sequence, of the head that `group` query heads share. With a cache, the tiles of the first of these
//! heads append the keys and values of their own tokens. With lengths, a tile also reads the cached tokens of its
//! sequence. Keys and values of the prompt come from QKV and never from the cache, so no tile reads rows that are
//! appended in the same run.

use std::ops::Range;

use super::{Cache, Heads, PAGE, Scores, constant, in_qkv};
use crate::device::Operation;
use crate::graph::fit::Fit;
use crate::graph::op::{At, Bound, Constant, Cost, MmaTile, Rules, Tiles};
use crate::graph::{Axis, Footprint, Operand, OperandKind, Stage};
use crate::obstacle::Obstacle;
use crate::sync::Policy;

/// Queries per tile and tokens per step over its keys and values. Plans for a GPU use the last entry; plans for the
/// `cpu` executor use the others, too.
const TILES: &[(u32, u32)] = &[(64, 64), (128, 64), (KERNEL_TOKENS, KERNEL_TOKENS)];

/// Queries per planned tile, and tokens per step (`CUSYNC_PROMPT_TOKENS`). The kernel divides such tiles further.
const KERNEL_TOKENS: u32 = 128;

/// Maximum columns of a head, in specs and kernels.
pub(super) const MAX_HEAD: u32 = 256;

/// Achieved fraction of the matrix rate: published kernels with causal masks and heads of 128 columns, on H100.
const EFFICIENCY: f64 = 0.6;

/// Whole-sequence attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Its heads.
    pub heads: Heads,
    /// How it weighs tokens.
    pub scores: Scores,
    /// Whether a token attends only to itself and earlier tokens of its sequence.
    pub causal: bool,
    /// Sequences, stored one after another in the rows of QKV.
    pub sequences: u32,
    /// Tokens per sequence.
    pub tokens: u32,
    /// The cache to which keys and values are appended, at a sequence's first row or behind its cached tokens; `None` if
    /// they are not.
    pub cache: Option<Cache>,
    /// Tokens per sequence, those of the prompt included, assumed in predictions, if lengths state how many are cached;
    /// `None`: none are.
    pub expected: Option<u32>,
    /// Whether queries and keys are rotated by their position in their sequence.
    pub rotary: bool,
}

impl Attention {
    /// The columns of QKV that query head `head` reads as queries, keys or values; empty for other operands.
    pub fn columns(&self, kind: OperandKind, head: u32) -> Range<u32> {
        let (Heads { dim, .. }, group) = (self.heads, self.heads.group());
        let shared = self.heads.columns_of(kind, head / group);
        let skip = if kind == OperandKind::Query { head % group * dim } else { 0 };
        shared.start + skip..(shared.start + skip + dim).min(shared.end)
    }

    /// The first token of the sequence that contains a tile of `rows` queries.
    fn first(&self, m: u32, rows: u32) -> u32 {
        m.saturating_mul(rows) / self.tokens * self.tokens
    }

    /// The tokens that tile row `m` of `rows` queries may attend to.
    pub fn visible(&self, m: u32, rows: u32) -> Range<u32> {
        let first = self.first(m, rows);
        let end = first + self.tokens;
        first..if self.causal { (m + 1).saturating_mul(rows).min(end) } else { end }
    }

    /// Tokens of each sequence that predictions assume to be cached when a run begins.
    pub fn cached(&self) -> u32 {
        self.expected.map_or(0, |expected| expected.saturating_sub(self.tokens))
    }

    /// Steps of `step` tokens over the tokens that predictions assume to be cached.
    pub(crate) fn cached_steps(&self, step: u32) -> u32 {
        self.cached().div_ceil(step)
    }

    /// Steps of `step` tokens that a window hides from all queries of tile row `m`; the kernel skips them.
    pub(crate) fn hidden_steps(&self, m: u32, rows: u32, step: u32) -> u32 {
        let position = m.saturating_mul(rows) - self.first(m, rows);
        self.scores.first_seen(self.cached() + position) / step
    }

    /// Affine ranges that a tile of `rows` queries reads in steps of `step` tokens. They are exact, except for the
    /// keys and values of groups that are neither one head nor all, and of sequences with several tiles: those advance
    /// in jumps, and the range is one jump longer.
    fn box_around(&self, kind: OperandKind, rows: u32, step: u32) -> Option<Footprint> {
        let dim = i64::from(self.heads.dim);
        let mut columns = Fit::new(&[(0, 0), (dim / i64::from(self.heads.group()), 0), (dim, 0)]);
        (0..self.heads.query).for_each(|head| columns.add(head, 0, &self.columns(kind, head)));
        let (n, _, offset, extent) = columns.best()?;
        let cols = Axis { m: 0, n, k: 0, offset, extent };
        let (high, wide) = (i32::try_from(rows).ok()?, i32::try_from(step).ok()?);
        if kind == OperandKind::Query {
            return Some(Footprint { rows: Axis { m: high, extent: high, ..Axis::default() }, cols });
        }
        let along_k = Axis { k: wide, extent: wide, ..Axis::default() };
        if self.sequences == 1 {
            return Some(Footprint { rows: along_k, cols });
        }
        let mut tokens = Fit::new(&[(i64::from(rows), i64::from(step))]);
        for m in 0..(self.sequences * self.tokens).div_ceil(rows) {
            let first = self.first(m, rows);
            for k in [0, self.tokens.div_ceil(step) - 1] {
                let begin = first + k * step;
                tokens.add(m, k, &(begin..(begin + step).min(first + self.tokens)));
            }
        }
        let (m, k, offset, extent) = tokens.best()?;
        Some(Footprint { rows: Axis { m, n: 0, k, offset, extent }, cols })
    }

    /// Rows of a cache for all sequences; those of a paged cache may be anywhere.
    fn cache_rows(&self) -> u32 {
        let tokens = self.cache.map_or(0, |cache| match cache.pages {
            Some(pages) => pages.saturating_mul(PAGE),
            None => self.sequences.saturating_mul(cache.capacity),
        });
        tokens.saturating_mul(self.heads.kv)
    }
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
        let Heads { query, kv, dim, .. } = self.heads;
        let scores = self.scores.suffix(dim);
        let behind = if self.expected.is_some() { " behind cached tokens" } else { "" };
        format!("{causal}attention{behind}, {query} heads of {dim} columns, {kv} of keys and values,{scores}")
    }

    fn noun(&self) -> &'static str {
        "attention"
    }

    fn tiles(&self, _: u32) -> Tiles {
        let meaning = "(queries, columns of a head, tokens of a step)";
        let tile = |&(rows, step): &(u32, u32)| (rows, self.heads.dim, step);
        let mut list: Vec<MmaTile> = TILES.iter().map(tile).filter(|tile| self.takes(*tile, 0)).collect();
        // Sequences that are shorter than a kernel's block of queries, or no multiple of it, form blocks of their own.
        if list.is_empty() || (self.sequences > 1 && !self.tokens.is_multiple_of(KERNEL_TOKENS)) {
            list.extend(TILES.iter().map(|&(_, step)| (self.tokens, self.heads.dim, step)));
            list.dedup();
        }
        Tiles::Own { list, meaning, of_kernel: false }
    }

    fn takes(&self, tile: MmaTile, _: u32) -> bool {
        // All queries of a tile belong to one sequence.
        tile.1 == self.heads.dim && tile.0 > 0 && (self.sequences == 1 || self.tokens.is_multiple_of(tile.0))
    }

    fn unsplit(&self) -> Option<&'static str> {
        Some("is not split along its keys and values")
    }

    fn unfit(&self, tile: MmaTile) -> Option<Obstacle> {
        let (rows, _, step) = tile;
        // The kernel appends 64 tokens at a time.
        let ragged = self.expected.is_some() && !self.tokens.is_multiple_of(PAGE);
        Some(if self.rotary {
            Obstacle::new("rotates what it reads, which kernels of whole sequences do not")
                .help("state a RotatedGemm where queries and keys are made")
        } else if self.cache.is_some_and(|cache| cache.pages.is_some()) {
            Obstacle::new("fills the pages of a cache, which no kernel does")
                .help("fill a cache without pages")
        } else if ragged {
            let tokens = self.tokens;
            Obstacle::new(format!(
                "continues sequences by {tokens} tokens, which kernels do by multiples of {PAGE}"
            ))
            .numbers(tokens, PAGE)
            .help(format!("continue them by {} tokens", tokens.next_multiple_of(PAGE)))
        } else if (rows != KERNEL_TOKENS && rows != self.tokens) || step != KERNEL_TOKENS {
            Obstacle::new(format!(
                "has tiles of {rows} queries and {step} keys, and plans for a GPU have {KERNEL_TOKENS} of both"
            ))
        } else {
            return None;
        })
    }

    fn unfit_beside_others(&self) -> Option<Obstacle> {
        Some(Obstacle::new("is Attention over a prompt, whose kernel neither waits nor posts"))
    }

    fn k_blocks_of(&self, stage: &Stage, m: u32) -> u32 {
        (self.visible(m, stage.out_tile().0).len() as u32).div_ceil(stage.mma_tile.2)
    }

    fn operand_shape(&self, kind: OperandKind, (m, ..): (u32, u32, u32)) -> Option<(u32, u32)> {
        match kind {
            OperandKind::CachedKeys | OperandKind::CachedValues => Some((self.cache_rows(), self.heads.dim)),
            OperandKind::Pages => Some((self.sequences, self.cache?.capacity / PAGE)),
            OperandKind::Lengths => self.expected.map(|_| (1, self.sequences)),
            OperandKind::Rotary => {
                Some((self.cache.map_or(self.tokens, |cache| cache.capacity), self.heads.dim))
            }
            _ => in_qkv(kind).then_some((m, self.heads.columns())),
        }
    }

    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)> {
        if in_qkv(kind) {
            return Some((self.box_around(kind, tile.0, tile.2)?, None));
        }
        // Inputs need no waits: any part of them may be read.
        let all = Axis { extent: i32::MAX, ..Axis::default() };
        Some((Footprint { rows: all, cols: all }, None))
    }

    fn reads_by(&self, operand: &Operand) -> (bool, bool) {
        // A causal mask changes the number of steps of a row, not the steps.
        let several = in_qkv(operand.kind) && self.sequences > 1;
        (operand.kind == OperandKind::Query || several, in_qkv(operand.kind))
    }

    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>)) {
        let kind = at.operand.kind;
        let tokens = match kind {
            OperandKind::Query => at.rows(),
            OperandKind::Key | OperandKind::Value => {
                let first = self.first(at.tile.0, at.stage.mma_tile.0);
                let step = At::along(at.k, at.stage.mma_tile.2, self.tokens);
                first + step.start..first + step.end
            }
            _ => return f(0..at.shape.0, 0..at.shape.1),
        };
        f(tokens, self.columns(kind, at.tile.1));
    }

    fn constant(&self, kind: OperandKind) -> Option<Constant> {
        constant(kind)
    }

    /// Queries, keys and values of a head are one block of head columns apart: their tiles share a slot if each head
    /// has its own keys and tile boundaries coincide with head boundaries.
    fn policy(&self, _: &Operand, columns: u32) -> Option<Policy> {
        let Heads { query, kv, dim, .. } = self.heads;
        let all = query * dim;
        let fits = query == kv && all.is_multiple_of(columns);
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

    fn shape(query: u32, kv: u32) -> Attention {
        let heads = Heads { query, kv, dim: 128, norm: None };
        let scores = Scores::usual(128);
        Attention {
            heads,
            scores,
            causal: true,
            sequences: 1,
            tokens: 512,
            cache: None,
            expected: None,
            rotary: false,
        }
    }

    #[test]
    fn columns_of_a_head_are_its_own_and_its_groups() {
        let grouped = shape(8, 2);
        assert_eq!(grouped.columns(OperandKind::Query, 5), 640..768);
        assert_eq!(grouped.columns(OperandKind::Key, 3), 1024..1152);
        assert_eq!(grouped.columns(OperandKind::Key, 4), 1152..1280);
        assert_eq!(grouped.columns(OperandKind::Value, 7), 1408..1536);
        assert_eq!(grouped.columns(OperandKind::Rotary, 7), 0..0);
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
        // Groups of four advance by 128 every fourth head: 32 columns per head, lagging by at most 96.
        let grouped = extent(shape(8, 2), OperandKind::Key);
        assert_eq!((grouped.n, grouped.extent), (32, 128 + 96));
        for (a, kind) in [(shape(8, 2), OperandKind::Key), (shape(12, 4), OperandKind::Value)] {
            let axis = extent(a, kind);
            for head in 0..a.heads.query {
                let (held, read) = (axis.range(u32::MAX, 0, head, 0), a.columns(kind, head));
                assert!(held.start <= read.start && read.end <= held.end, "{a:?} {head}: {held:?} {read:?}");
            }
        }
    }

    #[test]
    fn a_window_hides_whole_steps_of_its_own_sequence() {
        let scores = Scores { window: Some(100), ..Scores::usual(128) };
        let prompt = Attention { scores, sequences: 2, tokens: 512, ..shape(4, 4) };
        let hidden: Vec<u32> = (0..8).map(|m| prompt.hidden_steps(m, 128, 64)).collect();
        // Row 256 sees tokens 157 to 256.
        assert_eq!(hidden, [0, 0, 2, 4, 0, 0, 2, 4]);
        assert_eq!(shape(4, 4).hidden_steps(3, 128, 64), 0);
    }

    #[test]
    fn kernels_take_a_tile_of_every_prompt_that_is_promised() {
        for (sequences, tokens) in (1..=520).flat_map(|tokens| [(1, tokens), (3, tokens)]) {
            let prompt = Attention { sequences, tokens, ..shape(4, 4) };
            let Tiles::Own { list, .. } = prompt.tiles(1) else { panic!("tiles of its own") };
            assert!(list.iter().all(|tile| prompt.takes(*tile, 0)), "{sequences} x {tokens}: {list:?}");
            let fits = list.iter().any(|tile| prompt.unfit(*tile).is_none());
            assert!(fits, "{sequences} x {tokens}: {list:?}");
        }
    }

    #[test]
    fn affine_rows_hold_the_steps_of_every_sequence() {
        for (sequences, tokens, rows, step) in [(3, 128, 64, 64), (5, 100, 100, 64), (2, 256, 128, 128)] {
            let shape = Attention { sequences, tokens, ..shape(4, 4) };
            let axis = shape.box_around(OperandKind::Key, rows, step).expect("small").rows;
            for m in 0..sequences * tokens / rows {
                let first = m * rows / tokens * tokens;
                assert_eq!(
                    shape.visible(m, rows),
                    first..(m + 1) * rows,
                    "a causal tile sees its own sequence"
                );
                for k in 0..tokens.div_ceil(step) {
                    let (begin, end) = (first + k * step, (first + (k + 1) * step).min(first + tokens));
                    let held = axis.range(u32::MAX, m, 0, k);
                    assert!(held.start <= begin && end <= held.end, "{m} {k}: {held:?} of {begin}..{end}");
                }
            }
        }
    }
}
