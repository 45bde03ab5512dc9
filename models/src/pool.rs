//! Pages of 64 tokens that the sequences of a model take from a pool, and give back.

/// Tokens of a page.
pub const PAGE: usize = 64;

/// The pages of each slot. Two slots never have a page in common.
pub(crate) struct Pool {
    /// Pages of the pool for tokens of sequences.
    pages: usize,
    /// Entries of a slot in the table.
    columns: usize,
    /// The pages of each slot, then a page of its own for a step that does not name the slot, which writes behind its
    /// last token, then -1, which a kernel reports.
    table: Vec<i32>,
    held: Vec<usize>,
    free: Vec<i32>,
}

impl Pool {
    /// Pages for `tokens` tokens of all sequences, of which each slot has at most `context`.
    pub(crate) fn new(slots: usize, context: usize, tokens: usize) -> Pool {
        // A full sequence has an entry behind its last token, too.
        let columns = (context + 1).div_ceil(PAGE);
        let pages = tokens.div_ceil(PAGE);
        let mut table = vec![-1; slots * columns];
        for (slot, entries) in table.chunks_mut(columns).enumerate() {
            entries[0] = (pages + slot) as i32;
        }
        Pool { pages, columns, table, held: vec![0; slots], free: (0..pages as i32).rev().collect() }
    }

    /// Pages for tokens of sequences.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Pages that no slot has.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// The page of each entry of each slot.
    pub(crate) fn table(&self) -> &[i32] {
        &self.table
    }

    /// The page of each entry of a slot.
    pub(crate) fn entries(&self, slot: usize) -> &[i32] {
        &self.table[slot * self.columns..(slot + 1) * self.columns]
    }

    /// Pages that some slots lack to have these numbers of tokens.
    pub(crate) fn lacks(&self, lengths: impl Iterator<Item = (usize, usize)>) -> usize {
        lengths.map(|(slot, tokens)| tokens.div_ceil(PAGE).saturating_sub(self.held[slot])).sum()
    }

    /// Gives a slot pages for so many tokens, and takes back those that it does not need. `None`, and no change: too few
    /// are free.
    pub(crate) fn resize(&mut self, slot: usize, tokens: usize) -> Option<()> {
        let (held, wanted) = (self.held[slot], tokens.div_ceil(PAGE));
        if held == wanted {
            return Some(());
        }
        let entries = &mut self.table[slot * self.columns..(slot + 1) * self.columns];
        if wanted > held {
            let rest = self.free.len().checked_sub(wanted - held)?;
            entries[held..wanted]
                .iter_mut()
                .zip(self.free.drain(rest..).rev())
                .for_each(|(e, page)| *e = page);
        } else {
            self.free.extend(entries[wanted..held].iter().rev());
        }
        entries[wanted..].fill(-1);
        if let Some(entry) = entries.get_mut(wanted) {
            *entry = (self.pages + slot) as i32;
        }
        self.held[slot] = wanted;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slots_never_share_a_page() {
        let (slots, context) = (5, 640);
        let mut pool = Pool::new(slots, context, 20 * PAGE);
        let mut lengths = vec![0; slots];
        let (mut state, mut refused) = (1u32, 0);
        for _ in 0..10_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (slot, tokens) = (state as usize >> 16 & 0xff, (state >> 8) as usize % (context + 1));
            let slot = slot % slots;
            let before = pool.table().to_vec();
            let lacks = pool.lacks([(slot, tokens)].into_iter());
            if pool.resize(slot, tokens).is_some() {
                lengths[slot] = tokens;
            } else {
                refused += 1;
                assert!(lacks > pool.free() && before == pool.table(), "a refusal changes nothing");
            }
            let mut seen = HashSet::new();
            for (slot, &length) in lengths.iter().enumerate() {
                let entries = pool.entries(slot);
                let own = length.div_ceil(PAGE);
                assert!(entries[..own].iter().all(|page| (0..20).contains(page) && seen.insert(*page)));
                assert!(entries.get(own).is_none_or(|page| *page == 20 + slot as i32));
                assert!(entries.iter().skip(own + 1).all(|page| *page == -1));
            }
            assert_eq!(seen.len() + pool.free(), 20);
        }
        assert!(refused > 100, "the pool is too small for all");
    }
}
