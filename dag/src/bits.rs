//! A matrix of bits, a row for each node.

/// Rows of bits.
#[derive(Clone, Debug)]
pub(crate) struct BitMatrix {
    words: usize,
    bits: Vec<u64>,
    /// Whether a row may have set bits.
    used: Vec<bool>,
}

impl BitMatrix {
    /// `rows` rows of `columns` bits, all clear.
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let words = columns.div_ceil(64);
        BitMatrix { words, bits: vec![0; words * rows], used: vec![false; rows] }
    }

    /// Whether a bit is set.
    pub(crate) fn get(&self, row: usize, column: usize) -> bool {
        self.bits[row * self.words + column / 64] >> (column % 64) & 1 == 1
    }

    /// Sets a bit.
    pub(crate) fn set(&mut self, row: usize, column: usize) {
        self.used[row] = true;
        self.bits[row * self.words + column / 64] |= 1 << (column % 64);
    }

    /// Clears a row.
    pub(crate) fn clear(&mut self, row: usize) {
        self.used[row] = false;
        self.bits[row * self.words..][..self.words].fill(0);
    }

    /// Adds the bits of row `other` to a row. The two rows must differ.
    pub(crate) fn add(&mut self, row: usize, other: usize) {
        if !self.used[other] {
            return;
        }
        self.used[row] = true;
        let (low, high) = (row.min(other), row.max(other));
        let (head, tail) = self.bits.split_at_mut(high * self.words);
        let (low_row, high_row) = (&mut head[low * self.words..][..self.words], &mut tail[..self.words]);
        let (to, from) = if row > other { (high_row, low_row) } else { (low_row, high_row) };
        for (to, from) in to.iter_mut().zip(from.iter()) {
            *to |= from;
        }
    }

    /// Adds bit `other` and the whole row of `other` to a row. The two rows must differ.
    pub(crate) fn inherit(&mut self, row: usize, other: usize) {
        self.add(row, other);
        self.set(row, other);
    }

    /// The last bit before column `end` that is set in `row` and clear in row `not`.
    pub(crate) fn last_only(&self, row: usize, not: usize, end: usize) -> Option<usize> {
        let (row, not) = (self.row(row), self.row(not));
        (0..end.div_ceil(64)).rev().find_map(|at| {
            let below = if (at + 1) * 64 > end { u64::MAX >> (64 - end % 64) } else { u64::MAX };
            let left = row[at] & !not[at] & below;
            (left != 0).then(|| at * 64 + 63 - left.leading_zeros() as usize)
        })
    }

    /// The first bit that is set in `row` and clear in row `there` of another matrix of as many columns.
    pub(crate) fn first_missing(&self, row: usize, other: &BitMatrix, there: usize) -> Option<usize> {
        let words = self.row(row).iter().zip(other.row(there)).enumerate();
        let bit = |(at, (&own, &there)): (usize, (&u64, &u64))| {
            let left = own & !there;
            (left != 0).then(|| at * 64 + left.trailing_zeros() as usize)
        };
        words.map(bit).find_map(|bit| bit)
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..][..self.words]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bit_agrees_with_single_bits() {
        for (start, end) in [(0, 0), (0, 1), (0, 64), (3, 64), (63, 65), (5, 200), (64, 128), (199, 200)] {
            let mut bits = BitMatrix::new(2, 200);
            (start..end).for_each(|at| bits.set(0, at));
            for at in 0..200 {
                let last = (start..end.min(at)).last();
                assert_eq!(bits.last_only(0, 1, at), last, "{start}..{end} before {at}");
            }
            assert_eq!(bits.first_missing(0, &bits, 1), (start..end).next());
            bits.inherit(1, 0);
            assert_eq!(bits.first_missing(0, &bits, 1), None);
            assert_eq!(bits.last_only(0, 1, 200), None);
            bits.clear(0);
            assert!((0..200).all(|at| !bits.get(0, at)));
        }
    }
}
