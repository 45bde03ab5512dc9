//! Attention: queries, keys and values in one matrix, and the cache of earlier tokens.
//!
//! Rows of QKV are tokens. Its columns are the heads of the queries, then those of the keys, then those of the values,
//! `dim` columns each. A prompt contains whole sequences, or with lengths their next tokens (`prompt.rs`). Generation
//! processes one token per sequence, which attends to the cached tokens and is appended to the cache (`generate.rs`).

mod generate;
mod prompt;
mod rotated;
mod scores;

use std::ops::Range;

pub use generate::Attend;
pub use prompt::Attention;
pub use rotated::Rotated;
pub use scores::Scores;

use super::{Constant, Op, Stated, gemm};
use crate::diagnostic::{Diagnostic, Span};
use crate::graph::{OperandKind, Tensor};
use crate::spec::{AttentionSpec, HeadsSpec, TensorUse};

/// Tokens per page of a cache, and per load of a kernel.
pub const PAGE: u32 = 64;
/// The heads of an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// Query heads.
    pub query: u32,
    /// Key and value heads; their number divides the query heads.
    pub kv: u32,
    /// Columns of a head.
    pub dim: u32,
    /// Added to the mean of squares of each head of queries and keys, which is normalized before it is rotated; `None`:
    /// heads are not normalized.
    pub norm: Option<f32>,
}

impl Heads {
    /// Query heads per key and value head.
    pub fn group(&self) -> u32 {
        self.query / self.kv
    }

    /// Columns of the matrix of queries, keys and values.
    pub fn columns(&self) -> u32 {
        (self.query + 2 * self.kv) * self.dim
    }

    /// The columns of QKV for head `head` of keys or values, or for the queries that share it; empty for operands that
    /// are not in QKV.
    pub fn columns_of(&self, kind: OperandKind, head: u32) -> Range<u32> {
        let (first, heads) = match kind {
            OperandKind::Query => (head * self.group(), self.group()),
            OperandKind::Key => (self.query + head, 1),
            OperandKind::Value => (self.query + self.kv + head, 1),
            _ => return 0..0,
        };
        first * self.dim..(first + heads) * self.dim
    }
}

/// A cache of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    /// Maximum tokens per sequence.
    pub capacity: u32,
    /// Pages of [`PAGE`] tokens in the pool shared by all sequences; `None` if every sequence has its own rows.
    pub pages: Option<u32>,
}

impl Cache {
    /// The row of the cache's tensors that holds token `token` of a sequence and head. `page` is the page with that
    /// token; it is ignored without pages.
    pub fn row(&self, heads: &Heads, sequence: u32, page: u32, head: u32, token: u32) -> u32 {
        match self.pages {
            None => (sequence * heads.kv + head) * self.capacity + token,
            Some(_) => (page * heads.kv + head) * PAGE + token % PAGE,
        }
    }
}

/// Whether an operand lies in the matrix of queries, keys and values.
fn in_qkv(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::Query | OperandKind::Key | OperandKind::Value)
}

/// Operands that no stage may write: all except the matrix of queries, keys and values.
fn constant(kind: OperandKind) -> Option<Constant> {
    (!in_qkv(kind)).then_some(Constant {
        code: "produced-cache",
        message: "the cache, its lengths and pages, the rotary table and gains must be inputs",
        note: "a tile reads them without waiting; what is appended to a cache is there for the next run",
        help: "make it an input of the pipeline",
    })
}

/// An attention, after checking its tensors, and the length of its reduction.
pub(super) fn lower(spec: &AttentionSpec, stated: &Stated<'_>) -> Result<(Op, u32), Diagnostic> {
    let heads = heads(&spec.qkv, stated, (stated.tensor(0), stated.reads[0].span))?;
    outputs(stated, heads)?;
    let tokens = stated.tensor(0).rows;
    let sequences = sequences(&spec.qkv, stated, tokens)?;
    // With a cache but without sequences, every token is the next one of a separate sequence.
    let generates = spec.cache.is_some() && sequences.is_none();
    let continues = spec.cache.is_some() && operand(stated, OperandKind::Lengths).is_some();
    if let Some(expected) = spec.expected.as_ref().filter(|_| !continues) {
        return Err(Diagnostic::new("bad-cache", "`expected` is for a cache with lengths")
            .at(expected.span, "nothing to expect")
            .help("remove it: only such a cache has as many tokens as a run finds in it"));
    }
    let batch = if generates { tokens } else { sequences.unwrap_or(1) };
    let cache = Caching { spec, stated, heads, batch, generates }.cache()?;
    let positions = cache.map_or(tokens / batch, |cache| cache.capacity);
    let rotary = rotary(stated, heads, positions)?;
    normed(&spec.qkv, stated, heads, generates && rotary)?;
    let scores = scores::lower(spec, stated, heads.dim, generates)?;
    Ok(match cache.filter(|_| generates) {
        Some(cache) => {
            let expected = expected(spec, stated, cache, 1)?;
            (Op::Attend(Attend { heads, scores, cache, rotary, expected }), cache.capacity)
        }
        None => {
            let causal = spec.causal.as_ref().is_none_or(|causal| causal.value);
            let tokens = tokens / batch;
            let expected = match cache.filter(|_| continues) {
                Some(cache) => Some(expected(spec, stated, cache, tokens)?),
                None => None,
            };
            let prompt =
                Attention { heads, scores, causal, sequences: batch, tokens, cache, expected, rotary };
            (Op::Attention(prompt), tokens)
        }
    })
}

/// A product with rotated queries and keys, and the length of its reduction.
pub(super) fn lower_rotated(spec: &HeadsSpec, stated: &Stated<'_>) -> Result<(Op, u32), Diagnostic> {
    let k = gemm::lower(stated)?;
    let heads = heads(spec, stated, (stated.out(), stated.out.span))?;
    let rows = stated.out().rows;
    let sequences = sequences(spec, stated, rows)?.unwrap_or(1);
    let tokens = rows / sequences;
    rotary(stated, heads, tokens)?;
    normed(spec, stated, heads, true)?;
    let positions = match operand(stated, OperandKind::Lengths) {
        Some((lengths, _, span)) if (lengths.rows, lengths.cols) != (1, sequences) => {
            return Err(wrong_lengths(lengths, span, sequences)
                .also(stated.out.span, format!("{sequences} sequences of {tokens} tokens")));
        }
        Some(_) => operand(stated, OperandKind::Rotary).map(|(table, ..)| table.rows),
        None => None,
    };
    Ok((Op::RotatedGemm(Rotated { heads, tokens, positions }), k))
}

/// The stated number of sequences that `tokens` tokens belong to.
fn sequences(spec: &HeadsSpec, stated: &Stated<'_>, tokens: u32) -> Result<Option<u32>, Diagnostic> {
    let Some(at) = &spec.sequences else { return Ok(None) };
    let sequences = stated.dims.size(at, "the number of sequences")?;
    if tokens.is_multiple_of(sequences) {
        return Ok(Some(sequences));
    }
    let message = format!("{tokens} tokens are not {sequences} sequences of one length");
    Err(Diagnostic::new("bad-sequences", message)
        .at(at.span, format!("{sequences} sequences"))
        .also(stated.reads[0].span, format!("{tokens} tokens"))
        .help("the rows of QKV are the tokens of the first sequence, then of the next; all have as many"))
}

/// The heads, checked against QKV, which is stated at `at`.
fn heads(spec: &HeadsSpec, stated: &Stated<'_>, (qkv, at): (&Tensor, Span)) -> Result<Heads, Diagnostic> {
    let query = stated.dims.size(&spec.heads, "the number of heads")?;
    let kv = match &spec.kv_heads {
        Some(kv_heads) => stated.dims.size(kv_heads, "the number of key and value heads")?,
        None => query,
    };
    if !query.is_multiple_of(kv) {
        let stated = spec.kv_heads.as_ref().map_or(spec.heads.span, |e| e.span);
        return Err(Diagnostic::new(
            "bad-heads",
            format!("{query} heads cannot share {kv} keys and values evenly"),
        )
        .at(stated, format!("{kv} key and value heads"))
        .also(spec.heads.span, format!("{query} query heads"))
        .help("the number of key and value heads divides the number of heads"));
    }
    let slices = u64::from(query) + 2 * u64::from(kv);
    let dim = u64::from(qkv.cols) / slices;
    if dim == 0 || dim * slices != u64::from(qkv.cols) {
        let message = format!("the columns of `{}` are not {slices} heads", qkv.name);
        return Err(Diagnostic::new("bad-heads", message)
            .at(at, format!("{} columns", qkv.cols))
            .also(spec.heads.span, format!("{query} of queries, {kv} of keys, {kv} of values"))
            .help("QKV has (heads + 2 * kv_heads) * D columns: queries, then keys, then values"));
    }
    if dim > u64::from(prompt::MAX_HEAD) || dim % 8 != 0 {
        return Err(Diagnostic::new(
            "bad-heads",
            format!("a head of `{}` has {dim} columns", stated.stage.name.value),
        )
        .at(at, format!("{} columns in {slices} heads", qkv.cols))
        .help(format!("a head has a multiple of 8 columns (16 bytes), {} at most", prompt::MAX_HEAD)));
    }
    let norm = spec.norm.as_ref().map(|epsilon| epsilon.value as f32);
    Ok(Heads { query, kv, dim: dim as u32, norm })
}

/// Checks the norm of heads: its gains, its epsilon, and whether the stage `rotates` heads one by one.
fn normed(spec: &HeadsSpec, stated: &Stated<'_>, heads: Heads, rotates: bool) -> Result<(), Diagnostic> {
    let Some(epsilon) = &spec.norm else { return Ok(()) };
    let fault = |message: &str| Diagnostic::new("bad-heads", message);
    if !rotates {
        return Err(fault("heads are normalized where they are rotated")
            .at(epsilon.span, "this stage rotates no single token")
            .help("state `rotary` too; for a prompt, state both at the `RotatedGemm` that makes QKV"));
    }
    if !(epsilon.value > 0.0 && (epsilon.value as f32).is_finite() && epsilon.value as f32 > 0.0) {
        return Err(fault("the epsilon of a norm is positive")
            .at(epsilon.span, "not a positive float32")
            .help("epsilon keeps a head of zeros from a division by zero: 1e-6 is usual"));
    }
    for kind in [OperandKind::QueryGain, OperandKind::KeyGain] {
        let Some((gain, _, span)) = operand(stated, kind) else { continue };
        if (gain.rows, gain.cols) != (1, heads.dim) {
            return Err(fault(&format!("`{}` does not scale heads of {} columns", gain.name, heads.dim))
                .at(span, format!("{} x {} here", gain.rows, gain.cols))
                .help(format!("a gain has {} values, one for each column of a head", heads.dim)));
        }
    }
    Ok(())
}

/// Checks that the output has one row per token, and all heads.
fn outputs(stated: &Stated<'_>, heads: Heads) -> Result<(), Diagnostic> {
    let (qkv, out) = (stated.tensor(0), stated.out());
    let columns = u64::from(heads.query) * u64::from(heads.dim);
    if (out.rows, u64::from(out.cols)) == (qkv.rows, columns) {
        return Ok(());
    }
    let slices = heads.query + 2 * heads.kv;
    let message = format!("`{}` must be {} x {columns}", out.name, qkv.rows);
    Err(Diagnostic::new("shape-mismatch", message)
        .at(stated.out.span, format!("{} x {} here", out.rows, out.cols))
        .also(stated.reads[0].span, format!("{} tokens, {slices} heads of {} columns", qkv.rows, heads.dim))
        .help("the output has a row a token, and heads * D columns"))
}

/// The tokens per sequence assumed in predictions, `new` ones included: as stated, or a full cache.
fn expected(spec: &AttentionSpec, stated: &Stated<'_>, cache: Cache, new: u32) -> Result<u32, Diagnostic> {
    let Some(expr) = &spec.expected else { return Ok(cache.capacity) };
    let tokens = stated.dims.size(expr, "the expected number of tokens")?;
    if (new..=cache.capacity).contains(&tokens) {
        return Ok(tokens);
    }
    let message = format!("{tokens} tokens are expected in a cache for {}", cache.capacity);
    let place = if tokens < new { "fewer than a run appends" } else { "more than it holds" };
    Err(Diagnostic::new("bad-cache", message).at(expr.span, place).help(format!(
        "times are predicted for this many tokens per sequence, new ones included: state {new} to the capacity"
    )))
}

/// The error of lengths that are not one for each sequence.
fn wrong_lengths(lengths: &Tensor, span: Span, sequences: u32) -> Diagnostic {
    let message = format!("the lengths `{}` are not one for each of {sequences} sequences", lengths.name);
    Diagnostic::new("bad-cache", message)
        .at(span, format!("{} x {} here", lengths.rows, lengths.cols))
        .help("lengths are \"n(B)\": an int32 for each sequence")
}

/// Whether there is a rotary table, which must have a row for each of `positions` positions.
fn rotary(stated: &Stated<'_>, heads: Heads, positions: u32) -> Result<bool, Diagnostic> {
    let Some((table, _, span)) = operand(stated, OperandKind::Rotary) else { return Ok(false) };
    if table.cols == heads.dim && table.rows >= positions {
        return Ok(true);
    }
    let message =
        format!("`{}` does not rotate heads of {} columns at {positions} positions", table.name, heads.dim);
    Err(Diagnostic::new("bad-rotary", message)
        .at(span, format!("{} x {} here", table.rows, table.cols))
        .note("row p holds the cosines of the angles at position p, then their sines: D / 2 of each")
        .help(format!("it has {} columns, and {positions} rows or more", heads.dim)))
}

/// The tensor of an operand, as stated, with its location.
fn operand<'a>(stated: &'a Stated<'_>, kind: OperandKind) -> Option<(&'a Tensor, &'a TensorUse, Span)> {
    let at = stated.reads.iter().position(|read| read.kind == kind)?;
    Some((stated.tensor(at), &stated.stage.reads[at].1, stated.reads[at].span))
}

/// A cache as stated.
struct Caching<'a> {
    spec: &'a AttentionSpec,
    stated: &'a Stated<'a>,
    heads: Heads,
    /// Sequences.
    batch: u32,
    /// Whether every token is the next one of a separate sequence.
    generates: bool,
}

impl Caching<'_> {
    /// The cache, after checking its tensors; `None` if none is stated.
    fn cache(&self) -> Result<Option<Cache>, Diagnostic> {
        let pages = operand(self.stated, OperandKind::Pages);
        let Some(at) = self.spec.cache else {
            return match pages {
                Some((_, _, span)) => Err(Diagnostic::new("bad-cache", "pages need a cache")
                    .at(span, "no `cache` is stated")
                    .help("state `cache: Cache(keys: \"K(N,HKV,64,D)\", values: ..., lengths: \"n(B)\")`")),
                None => Ok(None),
            };
        };
        self.kinds(at)?;
        let Heads { kv, dim, .. } = self.heads;
        let [pool, stated_kv, tokens, columns] = self.axes(OperandKind::CachedKeys)?;
        let capacity = match pages {
            Some((table, _, span)) => {
                if table.rows != self.batch {
                    return Err(self.wrong(
                        "pages",
                        span,
                        table,
                        format!("a row for each of {} sequences", self.batch),
                    ));
                }
                table.cols.saturating_mul(PAGE)
            }
            None => tokens,
        };
        let (first, rows) = if pages.is_some() { (pool, PAGE) } else { (self.batch, tokens) };
        for kind in [OperandKind::CachedKeys, OperandKind::CachedValues] {
            let axes = self.axes(kind)?;
            if axes == [first, kv, rows, dim] && [pool, stated_kv, tokens, columns] == axes {
                continue;
            }
            let Some((tensor, _, span)) = operand(self.stated, kind) else { continue };
            let [a, b, c, d] = axes;
            let per = if pages.is_some() { "a page of the pool" } else { "a sequence" };
            return Err(Diagnostic::new(
                "bad-cache",
                format!("`{}` must be {first} x {kv} x {rows} x {dim}", tensor.name),
            )
            .at(span, format!("{a} x {b} x {c} x {d} here"))
            .also(self.stated.reads[0].span, format!("{} sequences, {kv} heads of {dim} columns", self.batch))
            .help(format!("keys and values have {per}, a head, a token and its columns along their axes")));
        }
        let tokens = self.stated.tensor(0).rows / self.batch;
        if !self.generates && tokens > capacity {
            let message = format!("a cache for {capacity} tokens takes no sequences of {tokens}");
            return Err(Diagnostic::new("bad-cache", message)
                .at(at, format!("{capacity} tokens a sequence"))
                .also(self.stated.reads[0].span, format!("{} sequences of {tokens} tokens", self.batch))
                .help("a prompt fills the first rows of a cache: let it hold the whole prompt"));
        }
        Ok(Some(Cache { capacity, pages: pages.map(|_| pool) }))
    }

    /// Checks that caches support the heads, and that lengths are given exactly where they are read.
    fn kinds(&self, at: Span) -> Result<(), Diagnostic> {
        let lengths = operand(self.stated, OperandKind::Lengths);
        let continues = self.generates || lengths.is_some();
        if let Some(causal) = self.spec.causal.as_ref().filter(|c| continues && !c.value) {
            return Err(Diagnostic::new(
                "bad-cache",
                "the next tokens of a sequence see all before them and none after",
            )
            .at(causal.span, "there is nothing to unmask")
            .help("remove it, or state the `sequences` of a prompt without `lengths`"));
        }
        match lengths {
            None if self.generates => Err(Diagnostic::new(
                "bad-cache",
                "nothing says how many tokens the cache holds",
            )
            .at(at, "no lengths")
            .help(
                "add `lengths: \"n(B)\"`, an int32 for each sequence; for a prompt, state its `sequences`",
            )),
            Some((lengths, _, span)) if (lengths.rows, lengths.cols) != (1, self.batch) => {
                let rows = format!("{} sequences", self.batch);
                Err(wrong_lengths(lengths, span, self.batch).also(self.stated.reads[0].span, rows))
            }
            None | Some(_) => Ok(()),
        }
    }

    fn wrong(&self, noun: &str, span: Span, tensor: &Tensor, wanted: String) -> Diagnostic {
        Diagnostic::new("bad-cache", format!("the {noun} `{}` are not {wanted}", tensor.name))
            .at(span, format!("{} x {} here", tensor.rows, tensor.cols))
            .also(self.stated.reads[0].span, format!("{} sequences", self.batch))
            .help("lengths are \"n(B)\", and pages \"P(B,S/64)\": a row a sequence, a column for every 64 tokens")
    }

    /// The axes of the keys or values.
    fn axes(&self, kind: OperandKind) -> Result<[u32; 4], Diagnostic> {
        let mut axes = [0; 4];
        if let Some((_, used, _)) = operand(self.stated, kind) {
            for (axis, expr) in axes.iter_mut().zip(&used.args) {
                *axis = self.stated.dims.size(expr, "an axis")?;
            }
        }
        Ok(axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_head_are_its_own_and_its_groups() {
        let heads = Heads { query: 8, kv: 2, dim: 128, norm: None };
        assert_eq!(heads.columns_of(OperandKind::Query, 1), 512..1024);
        assert_eq!(heads.columns_of(OperandKind::Key, 0), 1024..1152);
        assert_eq!(heads.columns_of(OperandKind::Value, 1), 1408..1536);
        assert_eq!((heads.group(), heads.columns()), (4, 1536));
    }

    #[test]
    fn rows_of_a_cache_are_a_sequences_or_a_pages() {
        let heads = Heads { query: 8, kv: 2, dim: 128, norm: None };
        let contiguous = Cache { capacity: 256, pages: None };
        assert_eq!(contiguous.row(&heads, 3, 0, 1, 100), (3 * 2 + 1) * 256 + 100);
        let paged = Cache { capacity: 256, pages: Some(9) };
        assert_eq!(paged.row(&heads, 3, 7, 1, 100), (7 * 2 + 1) * 64 + 36);
    }
}
