//! Attention from its definition, query by query, in float64.

use cusync_gen::graph::{Attend, Attention, Cache, Element, Heads, OperandKind, PAGE, Rotated};
use rayon::prelude::*;

use super::{Matrix, round};

/// What an attention reads.
pub(super) struct Reads<'a> {
    pub(super) qkv: &'a Matrix,
    /// Keys, then values.
    pub(super) cache: Option<[&'a Matrix; 2]>,
    pub(super) lengths: Option<&'a Matrix>,
    pub(super) pages: Option<&'a Matrix>,
    pub(super) rotary: Option<&'a Matrix>,
}

/// A key and a value.
type Token = [Vec<f64>; 2];

impl Reads<'_> {
    /// Head `head` of a token of QKV, rotated to a position where there is a table.
    fn rotated(&self, token: usize, head: usize, dim: usize, position: usize) -> Vec<f64> {
        let x: Vec<f64> = self.plain(token, head, dim);
        let Some(table) = self.rotary else { return x };
        let half = dim / 2;
        let angle = |i: usize| f64::from(table.data[position * table.cols + i]);
        (0..dim)
            .map(|i| match i.checked_sub(half) {
                None => x[i] * angle(i) - x[i + half] * angle(i + half),
                Some(j) => x[i] * angle(j) + x[j] * angle(j + half),
            })
            .collect()
    }

    fn plain(&self, token: usize, head: usize, dim: usize) -> Vec<f64> {
        let row = &self.qkv.data[token * self.qkv.cols + head * dim..][..dim];
        row.iter().map(|x| f64::from(*x)).collect()
    }

    /// The row of a cache with token `at` of a sequence and head; `None` where its page is not in the pool.
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

    /// Tokens that a sequence has in the cache, and the rows of those and of the next in it; `None` where it has no room for
    /// one more, or a page lies outside the pool.
    fn rows(&self, shape: &Attend, sequence: usize, head: usize) -> Option<Vec<usize>> {
        let length = self.lengths?.data[sequence];
        let fits = (0.0..shape.cache.capacity as f32).contains(&length);
        let tokens = if fits { length as usize } else { return None };
        (0..=tokens).map(|at| self.row(&shape.heads, &shape.cache, sequence, head, at)).collect()
    }
}

/// Queries and keys rotated, each row by the position of its token.
pub(crate) fn rotate(shape: &Rotated, qkv: Matrix, table: &Matrix) -> Matrix {
    let dim = shape.heads.dim as usize;
    let reads = Reads { qkv: &qkv, cache: None, lengths: None, pages: None, rotary: Some(table) };
    let mut data = qkv.data.clone();
    data.par_chunks_mut(qkv.cols).enumerate().for_each(|(token, row)| {
        let position = token % shape.tokens as usize;
        for (head, out) in row[..shape.columns() as usize].chunks_mut(dim).enumerate() {
            out.iter_mut().zip(reads.rotated(token, head, dim, position)).for_each(|(x, y)| *x = y as f32);
        }
    });
    Matrix { data, ..qkv }
}

/// softmax(q K^T / sqrt(d)) V of one query.
fn mix(query: &[f64], tokens: &[Token]) -> Vec<f32> {
    let scores: Vec<f64> = tokens
        .iter()
        .map(|[key, _]| {
            let dot: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            dot / (query.len() as f64).sqrt()
        })
        .collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut sums = vec![0.0; query.len()];
    for (weight, [_, value]) in weights.iter().zip(tokens) {
        sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight * value);
    }
    sums.into_iter().map(|sum| (sum / total) as f32).collect()
}

/// Every query of a prompt with the tokens of its sequence.
pub(super) fn attend(shape: &Attention, reads: &Reads<'_>) -> Matrix {
    let Heads { query, kv, dim } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    let (rows, each) = (reads.qkv.rows, shape.tokens as usize);
    let mut out = Matrix { rows, cols: heads * dim, data: vec![0.0; rows * heads * dim] };
    // A head of a sequence after the other: its keys and values are rotated once.
    let made: Vec<_> = (0..rows / each * kv_heads)
        .into_par_iter()
        .map(|at| {
            let (first, kv) = (at / kv_heads * each, at % kv_heads);
            let token = |i: usize| {
                let key = reads.rotated(first + i, heads + kv, dim, i);
                [key, reads.plain(first + i, heads + kv_heads + kv, dim)]
            };
            let tokens: Vec<Token> = (0..each).map(token).collect();
            let group = heads / kv_heads;
            let queries = (0..each * group).into_par_iter().map(|at| (at / group, kv * group + at % group));
            let mixed = queries.map(|(i, head)| {
                let seen = if shape.causal { i + 1 } else { each };
                let query = reads.rotated(first + i, head, dim, i);
                (first + i, head, mix(&query, &tokens[..seen]))
            });
            mixed.collect::<Vec<_>>()
        })
        .collect();
    for (token, head, row) in made.into_iter().flatten() {
        out.data[(token * heads + head) * dim..][..dim].copy_from_slice(&row);
    }
    out
}

/// Every new token with those of its sequence in the cache; zeros where the cache has no room for it. Its key is rounded, as
/// later runs will find it.
pub(super) fn generate(shape: &Attend, reads: &Reads<'_>, element: Element) -> Matrix {
    let Heads { query, kv, dim } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    let rows = reads.qkv.rows;
    let mut out = Matrix { rows, cols: heads * dim, data: vec![0.0; rows * heads * dim] };
    out.data.par_chunks_mut(dim).enumerate().for_each(|(at, out)| {
        let (sequence, head) = (at / heads, at % heads);
        let shared = head / (heads / kv_heads);
        let Some(rows) = reads.rows(shape, sequence, shared) else { return };
        let position = rows.len() - 1;
        let mut tokens: Vec<Token> = rows[..position].iter().map(|row| reads.cached(*row)).collect();
        let mut key: Vec<f32> =
            reads.rotated(sequence, heads + shared, dim, position).iter().map(|x| *x as f32).collect();
        round(element, &mut key);
        let key = key.into_iter().map(f64::from).collect();
        tokens.push([key, reads.plain(sequence, heads + kv_heads + shared, dim)]);
        out.copy_from_slice(&mix(&reads.rotated(sequence, head, dim, position), &tokens));
    });
    out
}

/// A cache after a run, keys or values: the new tokens' rows are others.
struct Appended {
    cache: [Matrix; 2],
}

impl Appended {
    fn put(&mut self, row: usize, token: Token) {
        for (matrix, values) in self.cache.iter_mut().zip(token) {
            let to = &mut matrix.data[row * matrix.cols..(row + 1) * matrix.cols];
            to.iter_mut().zip(values).for_each(|(to, x)| *to = x as f32);
        }
    }

    fn done(mut self, element: Element) -> Vec<(OperandKind, Matrix)> {
        self.cache.iter_mut().for_each(|m| round(element, &mut m.data));
        [OperandKind::CachedKeys, OperandKind::CachedValues].into_iter().zip(self.cache).collect()
    }
}

/// The cache after a prompt.
pub(super) fn filled(shape: &Attention, reads: &Reads<'_>, element: Element) -> Vec<(OperandKind, Matrix)> {
    let (Some(cache), Some(both)) = (shape.cache, reads.cache) else { return Vec::new() };
    let mut after = Appended { cache: both.map(Matrix::clone) };
    let Heads { query, kv, dim } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    for (token, head) in (0..reads.qkv.rows).flat_map(|t| (0..kv_heads).map(move |h| (t, h))) {
        let (sequence, at) = (token / shape.tokens as usize, token % shape.tokens as usize);
        let Some(row) = reads.row(&shape.heads, &cache, sequence, head, at) else { continue };
        let key = reads.rotated(token, heads + head, dim, at);
        after.put(row, [key, reads.plain(token, heads + kv_heads + head, dim)]);
    }
    after.done(element)
}

/// The cache after a token of each sequence.
pub(super) fn appended(shape: &Attend, reads: &Reads<'_>, element: Element) -> Vec<(OperandKind, Matrix)> {
    let Some(both) = reads.cache else { return Vec::new() };
    let mut after = Appended { cache: both.map(Matrix::clone) };
    let Heads { query, kv, dim } = shape.heads;
    let (heads, kv_heads, dim) = (query as usize, kv as usize, dim as usize);
    for (sequence, head) in (0..reads.qkv.rows).flat_map(|t| (0..kv_heads).map(move |h| (t, h))) {
        let Some(rows) = reads.rows(shape, sequence, head) else { continue };
        let position = rows.len() - 1;
        let key = reads.rotated(sequence, heads + head, dim, position);
        after.put(rows[position], [key, reads.plain(sequence, heads + kv_heads + head, dim)]);
    }
    after.done(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<'a>(qkv: &'a Matrix, rotary: Option<&'a Matrix>) -> Reads<'a> {
        Reads { qkv, cache: None, lengths: None, pages: None, rotary }
    }

    #[test]
    fn attention_by_hand() {
        // Two tokens, two heads of one column that share keys and values: columns are q0, q1, k, v.
        let heads = Heads { query: 2, kv: 1, dim: 1 };
        let shape = Attention { heads, causal: true, sequences: 1, tokens: 2, cache: None, rotary: false };
        let qkv = Matrix { rows: 2, cols: 4, data: vec![1.0, 5.0, 0.5, 3.0, 2.0, 0.0, 1.5, 7.0] };
        let weight = (2.0f64 * 0.5).exp() / ((2.0f64 * 0.5).exp() + (2.0f64 * 1.5).exp());
        let mixed = (weight * 3.0 + (1.0 - weight) * 7.0) as f32;
        // The first token sees itself only; a query of zero weighs both tokens alike.
        assert_eq!(attend(&shape, &reads(&qkv, None)).data, [3.0, 3.0, mixed, 5.0]);
        let open = attend(&Attention { causal: false, ..shape }, &reads(&qkv, None)).data;
        assert!(open[0] > 3.0 && open[3] == 5.0, "{open:?}");
        // As two sequences each token is alone.
        let alone = Attention { sequences: 2, tokens: 1, causal: false, ..shape };
        assert_eq!(attend(&alone, &reads(&qkv, None)).data, [3.0, 3.0, 7.0, 7.0]);
    }

    #[test]
    fn a_token_is_rotated_appended_and_sees_those_before() {
        // One head of two columns. Position 1 is a quarter of a turn: (x, y) becomes (-y, x).
        let heads = Heads { query: 1, kv: 1, dim: 2 };
        let table = Matrix { rows: 2, cols: 2, data: vec![1.0, 0.0, 0.0, 1.0] };
        let (keys, values) = (
            Matrix { rows: 4, cols: 2, data: vec![1.0, 0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0] },
            Matrix { rows: 4, cols: 2, data: vec![10.0, 20.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0] },
        );
        // The second sequence has no room.
        let lengths = Matrix { rows: 1, cols: 2, data: vec![1.0, 2.0] };
        let row = [0.0, -3.0, 0.0, -3.0, 30.0, 40.0];
        let qkv = Matrix { rows: 2, cols: 6, data: [row, row].concat() };
        let shape = Attend { heads, cache: Cache { capacity: 2, pages: None }, rotary: true, expected: 2 };
        let reads =
            Reads { cache: Some([&keys, &values]), lengths: Some(&lengths), ..reads(&qkv, Some(&table)) };
        // Query and new key become (3, 0): scores 3 and 9 over sqrt(2).
        let other = (-6.0f64 / 2.0f64.sqrt()).exp();
        let (weight, total) = (other, 1.0 + other);
        let wanted = [(weight * 10.0 + 30.0) / total, (weight * 20.0 + 40.0) / total].map(|x| x as f32);
        assert_eq!(generate(&shape, &reads, Element::F16).data, [wanted[0], wanted[1], 0.0, 0.0]);
        let after = appended(&shape, &reads, Element::F16);
        assert_eq!(after[0].1.data, [1.0, 0.0, 3.0, 0.0, 9.0, 9.0, 9.0, 9.0]);
        assert_eq!(after[1].1.data, [10.0, 20.0, 30.0, 40.0, 9.0, 9.0, 9.0, 9.0]);
        // A page for each token of a pool of three would be another row: here all 64 tokens are on page 1, or nowhere.
        let pages = Matrix { rows: 2, cols: 1, data: vec![1.0, 3.0] };
        let paged = Reads { pages: Some(&pages), ..reads };
        let pool = Cache { capacity: 64, pages: Some(3) };
        assert_eq!(paged.row(&heads, &pool, 0, 0, 5), Some(69));
        assert_eq!(paged.row(&heads, &pool, 1, 0, 5), None);
    }
}
