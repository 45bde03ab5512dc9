//! Attention from its definition, query by query, in float64.

use cusync_gen::graph::{Attend, Attention, Cache, Element, Heads, OperandKind, PAGE, Scores};
use rayon::prelude::*;

use super::bound::{Expected, SIGMAS, UNIT, inner_rounding, inner_underflow, sum_error};
use super::gemm::{HeadNorm, rotate};
use super::{Matrix, round};

/// Inputs of an attention.
pub(super) struct Reads<'a> {
    pub(super) qkv: &'a Matrix,
    /// Keys, then values.
    pub(super) cache: Option<[&'a Matrix; 2]>,
    pub(super) lengths: Option<&'a Matrix>,
    pub(super) pages: Option<&'a Matrix>,
    pub(super) rotary: Option<&'a Matrix>,
    /// Norm of the heads of queries and keys.
    pub(super) norm: Option<&'a HeadNorm>,
    /// Number of query heads; the heads behind them are those of keys.
    pub(super) queries: usize,
}

/// A key and a value.
type Token = [Vec<f64>; 2];

impl Reads<'_> {
    /// Head `head` of a token of QKV, rotated to a position if there is a rotary table.
    fn rotated(&self, token: usize, head: usize, dim: usize, position: usize) -> Vec<f64> {
        let (values, _) = self.rotated_with_slack(token, head, dim, position);
        values.into_iter().map(f64::from).collect()
    }

    /// [`Self::rotated`] in float32, with the error bound of float32 arithmetic.
    fn rotated_with_slack(
        &self,
        token: usize,
        head: usize,
        dim: usize,
        position: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        let mut values = self.qkv.data[token * self.qkv.cols + head * dim..][..dim].to_vec();
        let mut slack = vec![0.0; dim];
        if let Some(norm) = self.norm {
            norm.apply(head < self.queries, &mut values, &mut slack);
        }
        if let Some(table) = self.rotary {
            rotate(&mut values, &mut slack, &table.data[position * table.cols..][..table.cols]);
        }
        (values, slack)
    }

    fn plain(&self, token: usize, head: usize, dim: usize) -> Vec<f64> {
        let row = &self.qkv.data[token * self.qkv.cols + head * dim..][..dim];
        row.iter().map(|x| f64::from(*x)).collect()
    }

    /// Row of a cache with token `at` of a sequence and head; `None` if its page is outside the pool.
    fn row(&self, heads: &Heads, cache: &Cache, sequence: usize, head: usize, at: usize) -> Option<usize> {
        let (kv, page_tokens) = (heads.kv as usize, PAGE as usize);
        let Some(pages) = self.pages else {
            return Some((sequence * kv + head) * cache.capacity as usize + at);
        };
        let page = pages.data[sequence * pages.cols + at / page_tokens];
        let pool = cache.pages.unwrap_or(0) as f32;
        (0.0..pool).contains(&page).then(|| (page as usize * kv + head) * page_tokens + at % page_tokens)
    }

    /// A token of the cache.
    fn cached(&self, row: usize) -> Token {
        self.cache.map_or([vec![], vec![]], |both| {
            both.map(|m| m.data[row * m.cols..(row + 1) * m.cols].iter().map(|x| f64::from(*x)).collect())
        })
    }

    /// Cache rows of a sequence's tokens and of the next one; `None` if there is no room for one more, or a
    /// page is outside the pool.
    fn rows(&self, shape: &Attend, sequence: usize, head: usize) -> Option<Vec<usize>> {
        let length = self.lengths?.data[sequence];
        let fits = (0.0..shape.cache.capacity as f32).contains(&length);
        let tokens = if fits { length as usize } else { return None };
        (0..=tokens).map(|at| self.row(&shape.heads, &shape.cache, sequence, head, at)).collect()
    }

    /// For each sequence of a prompt, the number of its cached tokens; `None` if the cache has no room for the prompt
    /// behind them, or a page is outside the pool.
    fn cached_tokens(&self, shape: &Attention) -> Vec<Option<usize>> {
        let tokens = shape.tokens as usize;
        let cached = |sequence: usize| {
            let Some(cache) = shape.cache else { return Some(0) };
            let length = self.lengths.map_or(0.0, |lengths| lengths.data[sequence]);
            let room = cache.capacity as f32 - tokens as f32;
            let past = (0.0..=room).contains(&length).then_some(length as usize)?;
            let row = |at| self.row(&shape.heads, &cache, sequence, 0, at);
            (0..past + tokens).all(|at| row(at).is_some()).then_some(past)
        };
        (0..self.qkv.rows / tokens).map(cached).collect()
    }
}

/// Roundings inside an attention.
struct Roundings {
    /// Relative rounding of a weight.
    weight: f64,
    /// Absolute rounding of a weight below the smallest normal number.
    underflow: f64,
    /// Relative rounding of a query element, for queries that the stage rotates.
    query: f64,
}

impl Roundings {
    fn new(element: Element, reads: &Reads<'_>) -> Roundings {
        let (weight, underflow) = (inner_rounding(element), inner_underflow(element));
        Roundings { weight, underflow, query: if reads.rotary.is_some() { weight } else { 0.0 } }
    }
}

/// Writes softmax(scores) V of one query to `out`, and its error bound to `slack`.
fn mix(
    query: &[f64],
    tokens: &[Token],
    (shape, roundings): (&Scores, &Roundings),
    out: &mut [f32],
    slack: &mut [f32],
) {
    let scale = f64::from(shape.scale);
    let mut scores = Vec::with_capacity(tokens.len());
    // Error bound of each score: an independent rounding of each query element, and that of the sum.
    let mut off = Vec::with_capacity(tokens.len());
    for [key, _] in tokens {
        let (mut dot, mut magnitude, mut squares) = (0.0, 0.0, 0.0);
        for product in query.iter().zip(key).map(|(q, k)| q * k) {
            dot += product;
            magnitude += product.abs();
            squares += product * product;
        }
        let rounded = roundings.query * (SIGMAS * (squares / 3.0).sqrt()).min(magnitude);
        let error = scale * (rounded + sum_error(query.len(), magnitude));
        // A tanh has a slope of at most 1. Kernels compute it as 2 sigmoid(2 x) - 1, a few units off for any x.
        let (score, error) = match shape.softcap.map(f64::from) {
            Some(cap) => {
                let score = cap * (dot * scale / cap).tanh();
                (score, error + UNIT * (8.0 * cap + 2.0 * score.abs()))
            }
            None => (dot * scale, error),
        };
        scores.push(score);
        off.push(error);
    }
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    let weights: Vec<(f64, f64)> = scores
        .iter()
        .zip(&off)
        .map(|(score, off)| {
            let below = largest - score;
            let weight = (-below).exp();
            total += weight;
            // Both the argument of the exponential and its result are rounded.
            let relative = roundings.weight + off + UNIT * (8.0 + 4.0 * (below + score.abs()));
            (weight, relative * weight + roundings.underflow)
        })
        .collect();
    let mut sums = vec![[0.0f64; 2]; query.len()];
    for ((weight, _), [_, value]) in weights.iter().zip(tokens) {
        for (sum, value) in sums.iter_mut().zip(value) {
            sum[0] += weight * value;
            sum[1] += weight * value.abs();
        }
    }
    for (column, (([sum, magnitude], out), slack)) in sums.iter().zip(out).zip(slack).enumerate() {
        let mixed = sum / total;
        let (mut squares, mut linear) = (0.0, 0.0);
        for ((_, off), [_, value]) in weights.iter().zip(tokens) {
            // An error in a weight changes both the weighted sum and the divisor.
            let moved = off / total * (value[column].abs() + mixed.abs());
            squares += moved * moved;
            linear += moved;
        }
        let rounded = linear.min(SIGMAS * (squares / 3.0).sqrt());
        *slack = (rounded + sum_error(tokens.len() + 8, magnitude / total)) as f32;
        *out = mixed as f32;
    }
}

/// Every query of a prompt with the tokens of its sequence.
pub(super) fn attend(shape: &Attention, reads: &Reads<'_>, element: Element) -> Expected {
    let Heads { query, kv, dim, .. } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    let (rows, each) = (reads.qkv.rows, shape.tokens as usize);
    let roundings = Roundings::new(element, reads);
    let mut made = Expected::exact(Matrix { rows, cols: heads * dim, data: vec![0.0; rows * heads * dim] });
    let cached = reads.cached_tokens(shape);
    // One head of a sequence after another, so that its keys and values are rotated once.
    let mixed: Vec<_> = (0..rows / each * kv_heads)
        .into_par_iter()
        .filter_map(|at| Some((at, cached[at / kv_heads]?)))
        .map(|(at, past)| {
            let (sequence, kv) = (at / kv_heads, at % kv_heads);
            let first = sequence * each;
            let token = |i: usize| {
                let key = reads.rotated(first + i, heads + kv, dim, past + i);
                [key, reads.plain(first + i, heads + kv_heads + kv, dim)]
            };
            let row = |at| shape.cache.and_then(|cache| reads.row(&shape.heads, &cache, sequence, kv, at));
            let before = (0..past).filter_map(row).map(|row| reads.cached(row));
            let tokens: Vec<Token> = before.chain((0..each).map(token)).collect();
            let group = heads / kv_heads;
            let queries = (0..each * group).into_par_iter().map(|at| (at / group, kv * group + at % group));
            let mixed = queries.map(|(i, head)| {
                let seen = past + if shape.causal { i + 1 } else { each };
                let from = shape.scores.first_seen((past + i) as u32) as usize;
                let query = reads.rotated(first + i, head, dim, past + i);
                let (mut out, mut slack) = (vec![0.0; dim], vec![0.0; dim]);
                mix(&query, &tokens[from..seen], (&shape.scores, &roundings), &mut out, &mut slack);
                (first + i, head, out, slack)
            });
            mixed.collect::<Vec<_>>()
        })
        .collect();
    for (token, head, out, slack) in mixed.into_iter().flatten() {
        let at = (token * heads + head) * dim;
        made.values.data[at..at + dim].copy_from_slice(&out);
        made.slack[at..at + dim].copy_from_slice(&slack);
    }
    made
}

/// Every new token with the cached tokens of its sequence; zeros if the cache has no room for it. Its key is
/// rounded, as later runs will find it; `appended`: the cache already contains the key, rounded by the run
/// under test.
pub(super) fn generate(shape: &Attend, reads: &Reads<'_>, element: Element, appended: bool) -> Expected {
    let Heads { query, kv, dim, .. } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    let rows = reads.qkv.rows;
    let roundings = Roundings::new(element, reads);
    let mut made = Expected::exact(Matrix { rows, cols: heads * dim, data: vec![0.0; rows * heads * dim] });
    let parts = made.values.data.par_chunks_mut(dim).zip(made.slack.par_chunks_mut(dim));
    parts.enumerate().for_each(|(at, (out, slack))| {
        let (sequence, head) = (at / heads, at % heads);
        let shared = head / (heads / kv_heads);
        let Some(rows) = reads.rows(shape, sequence, shared) else { return };
        let position = rows.len() - 1;
        let mut tokens: Vec<Token> = rows[..position].iter().map(|row| reads.cached(*row)).collect();
        if appended {
            tokens.push(reads.cached(rows[position]));
        } else {
            let (mut key, _) = reads.rotated_with_slack(sequence, heads + shared, dim, position);
            round(element, &mut key);
            let key = key.into_iter().map(f64::from).collect();
            tokens.push([key, reads.plain(sequence, heads + kv_heads + shared, dim)]);
        }
        let seen = &tokens[shape.scores.first_seen(position as u32) as usize..];
        let query = reads.rotated(sequence, head, dim, position);
        mix(&query, seen, (&shape.scores, &roundings), out, slack);
    });
    made
}

/// Keys and values of a cache after a run: the rows of new tokens change, the others are unchanged where
/// known.
struct Appended([Expected; 2]);

impl Appended {
    /// `before`: contents of the cache; `None` if unknown.
    fn new(shape: [&Matrix; 2], before: Option<[&Matrix; 2]>) -> Appended {
        let kept = |i: usize| Expected {
            values: before.map_or(shape[i], |before| before[i]).clone(),
            slack: vec![if before.is_some() { -1.0 } else { f32::INFINITY }; shape[i].data.len()],
        };
        Appended([kept(0), kept(1)])
    }

    fn put(&mut self, row: usize, key: (Vec<f32>, Vec<f32>), value: Vec<f64>) {
        let value: Vec<f32> = value.into_iter().map(|x| x as f32).collect();
        let exact = vec![-1.0; value.len()];
        for (made, (values, slack)) in self.0.iter_mut().zip([key, (value, exact)]) {
            let at = row * made.values.cols;
            made.values.data[at..at + values.len()].copy_from_slice(&values);
            made.slack[at..at + slack.len()].copy_from_slice(&slack);
        }
    }

    fn done(self) -> Vec<(OperandKind, Expected)> {
        [OperandKind::CachedKeys, OperandKind::CachedValues].into_iter().zip(self.0).collect()
    }
}

/// The cache after a prompt.
pub(super) fn filled(
    shape: &Attention,
    reads: &Reads<'_>,
    before: Option<[&Matrix; 2]>,
) -> Vec<(OperandKind, Expected)> {
    let (Some(cache), Some(both)) = (shape.cache, reads.cache) else { return Vec::new() };
    let mut after = Appended::new(both, before);
    let Heads { query, kv, dim, .. } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    let cached = reads.cached_tokens(shape);
    for (token, head) in (0..reads.qkv.rows).flat_map(|t| (0..kv_heads).map(move |h| (t, h))) {
        let sequence = token / shape.tokens as usize;
        let Some(past) = cached[sequence] else { continue };
        let at = past + token % shape.tokens as usize;
        let Some(row) = reads.row(&shape.heads, &cache, sequence, head, at) else { continue };
        let key = reads.rotated_with_slack(token, heads + head, dim, at);
        after.put(row, key, reads.plain(token, heads + kv_heads + head, dim));
    }
    after.done()
}

/// The cache after one more token per sequence.
pub(super) fn appended(
    shape: &Attend,
    reads: &Reads<'_>,
    before: Option<[&Matrix; 2]>,
) -> Vec<(OperandKind, Expected)> {
    let Some(both) = reads.cache else { return Vec::new() };
    let mut after = Appended::new(both, before);
    let Heads { query, kv, dim, .. } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    for (sequence, head) in (0..reads.qkv.rows).flat_map(|t| (0..kv_heads).map(move |h| (t, h))) {
        let Some(rows) = reads.rows(shape, sequence, head) else { continue };
        let position = rows.len() - 1;
        let key = reads.rotated_with_slack(sequence, heads + head, dim, position);
        after.put(rows[position], key, reads.plain(sequence, heads + kv_heads + head, dim));
    }
    after.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<'a>(qkv: &'a Matrix, rotary: Option<&'a Matrix>) -> Reads<'a> {
        Reads { qkv, cache: None, lengths: None, pages: None, rotary, norm: None, queries: 0 }
    }

    #[test]
    fn attention_by_hand() {
        // Two tokens, two heads of one column that share keys and values: columns are q0, q1, k, v.
        let heads = Heads { query: 2, kv: 1, dim: 1, norm: None };
        let scores = Scores::usual(1);
        let shape = Attention {
            heads,
            scores,
            causal: true,
            sequences: 1,
            tokens: 2,
            cache: None,
            expected: None,
            rotary: false,
        };
        let qkv = Matrix { rows: 2, cols: 4, data: vec![1.0, 5.0, 0.5, 3.0, 2.0, 0.0, 1.5, 7.0] };
        let weight = (2.0f64 * 0.5).exp() / ((2.0f64 * 0.5).exp() + (2.0f64 * 1.5).exp());
        let mixed = (weight * 3.0 + (1.0 - weight) * 7.0) as f32;
        // The first token attends only to itself; a query of zero weights both tokens equally.
        assert_eq!(attend(&shape, &reads(&qkv, None), Element::F16).values.data, [3.0, 3.0, mixed, 5.0]);
        let open =
            attend(&Attention { causal: false, ..shape }, &reads(&qkv, None), Element::F16).values.data;
        assert!(open[0] > 3.0 && open[3] == 5.0, "{open:?}");
        // As two sequences, each token is alone.
        let alone = Attention { sequences: 2, tokens: 1, causal: false, ..shape };
        assert_eq!(attend(&alone, &reads(&qkv, None), Element::F16).values.data, [3.0, 3.0, 7.0, 7.0]);
    }

    #[test]
    fn a_token_is_rotated_appended_and_sees_those_before() {
        // One head of two columns. Position 1 is a quarter turn: (x, y) becomes (-y, x).
        let heads = Heads { query: 1, kv: 1, dim: 2, norm: None };
        let table = Matrix { rows: 2, cols: 2, data: vec![1.0, 0.0, 0.0, 1.0] };
        let (keys, values) = (
            Matrix { rows: 4, cols: 2, data: vec![1.0, 0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0] },
            Matrix { rows: 4, cols: 2, data: vec![10.0, 20.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0] },
        );
        // The second sequence has no room.
        let lengths = Matrix { rows: 1, cols: 2, data: vec![1.0, 2.0] };
        let row = [0.0, -3.0, 0.0, -3.0, 30.0, 40.0];
        let qkv = Matrix { rows: 2, cols: 6, data: [row, row].concat() };
        let (cache, scores) = (Cache { capacity: 2, pages: None }, Scores::usual(2));
        let shape = Attend { heads, scores, cache, rotary: true, expected: 2 };
        let reads =
            Reads { cache: Some([&keys, &values]), lengths: Some(&lengths), ..reads(&qkv, Some(&table)) };
        // Query and new key become (3, 0): scores 3 and 9 over sqrt(2).
        let other = (-6.0f64 / 2.0f64.sqrt()).exp();
        let (weight, total) = (other, 1.0 + other);
        let wanted = [(weight * 10.0 + 30.0) / total, (weight * 20.0 + 40.0) / total].map(|x| x as f32);
        assert_eq!(
            generate(&shape, &reads, Element::F16, false).values.data,
            [wanted[0], wanted[1], 0.0, 0.0]
        );
        let after = appended(&shape, &reads, reads.cache);
        assert_eq!(after[0].1.values.data, [1.0, 0.0, 3.0, 0.0, 9.0, 9.0, 9.0, 9.0]);
        assert_eq!(after[1].1.values.data, [10.0, 20.0, 30.0, 40.0, 9.0, 9.0, 9.0, 9.0]);
        // With one page per token of a pool of three, this would be another row: here all 64 tokens are on
        // page 1, or have no page.
        let pages = Matrix { rows: 2, cols: 1, data: vec![1.0, 3.0] };
        let paged = Reads { pages: Some(&pages), ..reads };
        let pool = Cache { capacity: 64, pages: Some(3) };
        assert_eq!(paged.row(&heads, &pool, 0, 0, 5), Some(69));
        assert_eq!(paged.row(&heads, &pool, 1, 0, 5), None);
    }
}
