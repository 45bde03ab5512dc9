//! 16-bit floats as bits.
//!
//! ```
//! use cusync::codegen::graph::Element;
//! use cusync::element::Bits;
//!
//! let (mut bits, mut wide) = ([0; 2], [0.0; 2]);
//! Element::F16.round(&[1.5, 0.1], &mut bits);
//! Element::F16.widen(&bits, &mut wide);
//! assert_eq!(wide, [1.5, 0.099975586]);
//! ```

use cusync_gen::graph::Element;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// The transpose of a row-major matrix of `cols` columns.
pub(crate) fn transposed<T: Copy>(matrix: &[T], cols: usize) -> Vec<T> {
    /// Side of the squares that are read at once, so that rows that are far apart stay in a cache.
    const SQUARE: usize = 64;
    let rows = matrix.len().checked_div(cols).unwrap_or(0);
    let mut out = matrix.to_vec();
    for (top, left) in squares(rows, cols, SQUARE) {
        for col in left..cols.min(left + SQUARE) {
            for row in top..rows.min(top + SQUARE) {
                out[col * rows + row] = matrix[row * cols + col];
            }
        }
    }
    out
}

/// First rows and columns of the squares of a matrix.
fn squares(rows: usize, cols: usize, side: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(side).flat_map(move |top| (0..cols).step_by(side).map(move |left| (top, left)))
}

/// Conversions of an element type, on whole slices because those are vectorized.
pub trait Bits {
    /// Widens; exact.
    fn widen(self, bits: &[u16], out: &mut [f32]);
    /// Rounds to nearest even.
    fn round(self, values: &[f32], out: &mut [u16]);
    /// A quiet NaN: outputs contain it before a run, to expose elements that are unwritten or read early.
    fn poison(self) -> u16;
    /// Distance from 1 to the next value.
    fn epsilon(self) -> f32;
    /// Short name, as printed in reports.
    fn name(self) -> &'static str;
}

impl Bits for Element {
    fn widen(self, bits: &[u16], out: &mut [f32]) {
        match self {
            Element::F16 => bits.reinterpret_cast::<f16>().convert_to_f32_slice(out),
            Element::Bf16 => bits.reinterpret_cast::<bf16>().convert_to_f32_slice(out),
        }
    }

    fn round(self, values: &[f32], out: &mut [u16]) {
        match self {
            Element::F16 => out.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values),
            Element::Bf16 => out.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(values),
        }
    }

    fn poison(self) -> u16 {
        match self {
            Element::F16 => f16::NAN.to_bits(),
            Element::Bf16 => bf16::NAN.to_bits(),
        }
    }

    fn epsilon(self) -> f32 {
        match self {
            Element::F16 => f16::EPSILON.to_f32(),
            Element::Bf16 => bf16::EPSILON.to_f32(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Element::F16 => "fp16",
            Element::Bf16 => "bf16",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transpose_has_rows_for_columns() {
        for (rows, cols) in [(1, 1), (3, 5), (64, 64), (70, 130), (129, 1), (0, 4), (0, 0)] {
            let matrix: Vec<usize> = (0..rows * cols).collect();
            let turned = transposed(&matrix, cols);
            let expected: Vec<usize> =
                (0..cols).flat_map(|col| (0..rows).map(move |row| row * cols + col)).collect();
            assert_eq!(turned, expected, "{rows} x {cols}");
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_and_poison_is_nan() {
        for element in [Element::F16, Element::Bf16] {
            let e = element.epsilon();
            let mut bits = [0; 4];
            element.round(&[1.0 + e, 1.0 + 0.5 * e, 1.0 + 1.5 * e, -0.0], &mut bits);
            let mut back = [0.0; 4];
            element.widen(&bits, &mut back);
            assert_eq!(back, [1.0 + e, 1.0, 1.0 + 2.0 * e, -0.0]);
            element.widen(&[element.poison()], &mut back[..1]);
            assert!(back[0].is_nan());
        }
    }
}
