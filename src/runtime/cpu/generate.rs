//! A tile of token generation: the queries of one sequence that share a key/value head, with all of its
//! tokens.

use cusync_gen::graph::{Attend, Cache, Heads, OperandKind, PAGE, Stage};

use super::CpuPipeline;
use super::attention::{Softmax, normalise_heads, rotate};
use super::memory::Box2;
use super::tile::{Place, Scratch, Stop};

/// Keys and values of a sequence and head.
pub(super) struct Cached<'a> {
    pub(super) heads: &'a Heads,
    pub(super) cache: &'a Cache,
    pub(super) sequence: usize,
    pub(super) head: usize,
    /// The sequence's row of the page table.
    pub(super) table: Option<Vec<i32>>,
}

impl Cached<'_> {
    /// Cache row of a token; `None` if its page is outside the pool.
    pub(super) fn row(&self, token: usize) -> Option<usize> {
        let page = page_of(self.cache, self.table.as_deref(), token as u32)?;
        let (sequence, head) = (self.sequence as u32, self.head as u32);
        Some(self.cache.row(self.heads, sequence, page, head, token as u32) as usize)
    }

    /// Whether there is room for `tokens` tokens, and their pages are in the pool.
    pub(super) fn has_room(&self, tokens: usize) -> bool {
        let fits = tokens <= self.cache.capacity as usize;
        fits && (0..tokens).step_by(PAGE as usize).all(|token| self.row(token).is_some())
    }
}

impl CpuPipeline {
    /// Computes and stores a tile, and appends its token. A sequence without room for its token gets zeros
    /// and appends nothing; the run ends with an error after all other work is done.
    pub(super) fn generate(
        &self,
        place: &Place<'_>,
        shape: &Attend,
        scratch: &mut Scratch,
    ) -> Result<(), Stop> {
        let Place { work, stage, tile, at, .. } = place;
        self.wait_for(place, work.k.start, &work.k, |_| true, scratch)?;
        let (sequence, head) = (tile.m as usize, tile.n as usize);
        let cached = Cached {
            heads: &shape.heads,
            cache: &shape.cache,
            sequence,
            head,
            table: self.table(stage, &shape.cache, sequence),
        };
        let length = self.length(stage, sequence);
        let made = match blocks(&cached, length) {
            Some(blocks) => self.attend_to(place, shape, &cached, length as usize, &blocks),
            None => vec![0.0; at.cols],
        };
        self.memory.store(stage.out, *at, &made);
        Ok(())
    }

    /// Cached tokens of a sequence, as given; 0 without lengths.
    pub(super) fn length(&self, stage: &Stage, sequence: usize) -> i32 {
        let lengths = stage.operand(OperandKind::Lengths);
        lengths.map_or(0, |lengths| self.memory.integers(lengths.tensor, sequence, 1)[0])
    }

    /// A sequence's row of the page table.
    pub(super) fn table(&self, stage: &Stage, cache: &Cache, sequence: usize) -> Option<Vec<i32>> {
        let pages = (cache.capacity / PAGE) as usize;
        Some(self.memory.integers(
            stage.operand(OperandKind::Pages).map(|o| o.tensor)?,
            sequence * pages,
            pages,
        ))
    }

    /// Computes the row of the output; all numbers are in range.
    fn attend_to(
        &self,
        place: &Place<'_>,
        shape: &Attend,
        cached: &Cached<'_>,
        length: usize,
        blocks: &[(usize, usize)],
    ) -> Vec<f32> {
        let Place { stage, at, .. } = place;
        let (dim, group, head) = (shape.heads.dim as usize, shape.heads.group() as usize, cached.head as u32);
        let part = |kind: OperandKind| {
            let columns = shape.heads.columns_of(kind, head);
            let mut values = vec![0.0; columns.len()];
            if let Some(operand) = stage.operand(kind) {
                let at = Box2 { row: at.row, col: columns.start as usize, rows: 1, cols: columns.len() };
                self.memory.load_operand(operand, at, &mut values);
            }
            values
        };
        let (mut queries, mut key, value) =
            (part(OperandKind::Query), part(OperandKind::Key), part(OperandKind::Value));
        if let Some(epsilon) = shape.heads.norm {
            normalise_heads(&mut queries, dim, epsilon, &self.gain(stage, OperandKind::QueryGain, dim));
            normalise_heads(&mut key, dim, epsilon, &self.gain(stage, OperandKind::KeyGain, dim));
        }
        if let Some(angles) = self.angles(stage, length, 1, dim) {
            rotate(&mut queries, dim, |_| &angles);
            rotate(&mut key, dim, |_| &angles);
        }
        let both = [(OperandKind::CachedKeys, key), (OperandKind::CachedValues, value)];
        let mut softmax = Softmax::new(queries, group, dim, &shape.scores);
        let seen = shape.scores.first_seen(length as u32) as usize;
        let mut first = 0;
        for &(row, tokens) in blocks {
            let last = first + tokens > length;
            let [keys, values] = [0, 1].map(|side| {
                let (kind, new) = &both[side];
                let mut values = vec![0.0; tokens * dim];
                let Some(id) = stage.operand(*kind).map(|o| o.tensor) else { return values };
                let old = tokens - usize::from(last);
                if old > 0 {
                    let at = Box2 { row, col: 0, rows: old, cols: dim };
                    self.memory.load(id, at, &mut values[..old * dim]);
                }
                if last {
                    // Attention uses the rounded values, as later runs will find them, without reading them
                    // back.
                    let at = Box2 { row: row + old, col: 0, rows: 1, cols: dim };
                    self.memory.store(id, at, new);
                    self.memory.rounded(new, &mut values[old * dim..]);
                }
                values
            });
            softmax.step(&keys, &values, tokens, |_| seen.saturating_sub(first)..tokens);
            first += tokens;
        }
        softmax.finish()
    }

    /// Gain of the heads of queries or keys.
    pub(super) fn gain(&self, stage: &Stage, kind: OperandKind, dim: usize) -> Vec<f32> {
        let mut gain = vec![1.0; dim];
        if let Some(id) = stage.operand(kind).map(|o| o.tensor) {
            self.memory.load(id, Box2 { row: 0, col: 0, rows: 1, cols: dim }, &mut gain);
        }
        gain
    }

    /// Rows of the rotary table from a position on; `None` if there is none.
    pub(super) fn angles(&self, stage: &Stage, position: usize, rows: usize, dim: usize) -> Option<Vec<f32>> {
        let id = stage.operand(OperandKind::Rotary).map(|o| o.tensor)?;
        let mut angles = vec![0.0; rows * dim];
        self.memory.load(id, Box2 { row: position, col: 0, rows, cols: dim }, &mut angles);
        Some(angles)
    }
}

/// First row and token count of each run of up to one page of cached tokens, and of the new token; `None` if
/// the cache has no room for it or a page is outside the pool.
fn blocks(cached: &Cached<'_>, length: i32) -> Option<Vec<(usize, usize)>> {
    let tokens = u32::try_from(length).ok().filter(|length| *length < cached.cache.capacity)? as usize;
    let page = PAGE as usize;
    let block = |first: usize| Some((cached.row(first)?, page.min(tokens + 1 - first)));
    (0..=tokens).step_by(page).map(block).collect()
}

/// Page that holds token `at` of a sequence, from the page table; the first page for a cache without pages.
/// `None` if it is outside the pool.
fn page_of(cache: &Cache, table: Option<&[i32]>, at: u32) -> Option<u32> {
    let (Some(table), Some(pool)) = (table, cache.pages) else { return Some(0) };
    let page = u32::try_from(*table.get((at / PAGE) as usize)?).ok()?;
    (page < pool).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_on_the_page_of_its_64() {
        let cache = Cache { capacity: 128, pages: Some(5) };
        assert_eq!(page_of(&cache, Some(&[4, 5]), 63), Some(4));
        assert_eq!(page_of(&cache, Some(&[4, 5]), 64), None, "outside the pool");
        assert_eq!(page_of(&cache, Some(&[-1, 0]), 0), None);
        assert_eq!(page_of(&Cache { pages: None, ..cache }, None, 100), Some(0));
    }
}
