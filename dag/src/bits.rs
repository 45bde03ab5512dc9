//! A square matrix of bits.

/// One row of bits per node.
#[derive(Clone, Debug)]
pub(crate) struct BitMatrix {
    words: usize,
    bits: Vec<u64>,
    /// Whether a row may have set bits.
    used: Vec<bool>,
}

impl BitMatrix {
    /// `n` x `n`, all clear.
    pub(crate) fn new(n: usize) -> Self {
        let words = n.div_ceil(64);
        BitMatrix { words, bits: vec![0; words * n], used: vec![false; n] }
    }

    /// Whether a bit is set.
    pub(crate) fn get(&self, row: usize, column: usize) -> bool {
        self.bits[row * self.words + column / 64] >> (column % 64) & 1 == 1
    }

    /// Adds bit `other` and the whole row of `other` to a row. The two rows must differ.
    pub(crate) fn inherit(&mut self, row: usize, other: usize) {
        self.used[row] = true;
        if !self.used[other] {
            self.bits[row * self.words + other / 64] |= 1 << (other % 64);
            return;
        }
        let (low, high) = (row.min(other), row.max(other));
        let (head, tail) = self.bits.split_at_mut(high * self.words);
        let (low_row, high_row) = (&mut head[low * self.words..][..self.words], &mut tail[..self.words]);
        let (to, from) = if row > other { (high_row, low_row) } else { (low_row, high_row) };
        for (to, from) in to.iter_mut().zip(from.iter()) {
            *to |= from;
        }
        to[other / 64] |= 1 << (other % 64);
    }
}
