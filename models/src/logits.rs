//! Logits of a step.

use cusync::codegen::graph::Element;
use cusync::element::Bits;

/// Logits of some sequences, one row for each.
#[derive(Clone, Debug)]
pub struct Logits<'a> {
    bits: &'a [u16],
    /// Slot of each row.
    slots: Vec<usize>,
    width: usize,
    vocabulary: usize,
    element: Element,
    /// Logits are the values times this, which is positive.
    factor: f32,
}

impl<'a> Logits<'a> {
    pub(crate) fn new(
        bits: &'a [u16],
        slots: Vec<usize>,
        width: usize,
        vocabulary: usize,
        element: Element,
        factor: f32,
    ) -> Logits<'a> {
        Logits { bits, slots, width, vocabulary, element, factor }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn bits(&self, row: usize) -> &[u16] {
        let first = self.slots[row] * self.width;
        &self.bits[first..first + self.vocabulary]
    }

    /// The values of a row, one per token of the vocabulary.
    pub fn row(&self, row: usize) -> Vec<f32> {
        let bits = self.bits(row);
        let mut values = vec![0.0; bits.len()];
        self.element.widen(bits, &mut values);
        values.iter_mut().for_each(|value| *value *= self.factor);
        values
    }

    /// The token with the largest value of a row; the first of several.
    pub fn best(&self, row: usize) -> u32 {
        let bits = self.bits(row);
        // Bits of floats, ordered as integers.
        let ordered = |bits: u16| if bits & 0x8000 == 0 { bits | 0x8000 } else { !bits };
        let most = bits.iter().map(|b| ordered(*b)).max().unwrap_or(0);
        bits.iter().position(|b| ordered(*b) == most).unwrap_or(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_token_is_that_of_the_largest_value() {
        for element in [Element::F16, Element::Bf16] {
            let values = [-3.0, -0.5, 0.25, 7.0, 7.0, -9.0, 0.0, 100.0];
            let mut bits = vec![0; 16];
            element.round(&values, &mut bits[8..]);
            element.round(&[-4.0, -2.0, -2.5, -8.0, -2.0, -9.0, -3.0, 100.0], &mut bits[..8]);
            // The last column is padding.
            let logits = Logits::new(&bits, vec![1, 0], 8, 7, element, 1.0);
            assert_eq!((logits.best(0), logits.best(1)), (3, 1));
            assert_eq!(logits.row(0), values[..7]);
            let doubled = Logits { factor: 2.0, ..logits };
            assert_eq!(doubled.row(0), values[..7].iter().map(|value| 2.0 * value).collect::<Vec<_>>());
        }
    }
}
