//! Error bounds of correct results, and checks against them.
//!
//! A stage is verified from the operands that it read, so the bounds cover only the arithmetic of that stage:
//! float32 sums in any order, special-function unit results, softmax weights rounded for the tensor cores,
//! and a final rounding to the element type. [`Expected`] holds the bound of everything but the final
//! rounding, per element; [`judge`] adds half a spacing of the element type for it.
//!
//! # Bounds
//! *Sums*: a float32 sum of n products is off by at most [`sum_error`] of its largest partial sum. Additions
//! that round to nearest are a random walk, `sqrt(n)` units of 2^-24; tensor cores add 16 products at a time
//! and truncate towards zero, one unit of 2^-23 each.
//!
//! *Roundings inside a stage* (of weights, of rotated queries) are independent: their contributions are added
//! as squares, and [`SIGMAS`] standard deviations are allowed, but never more than the sum of all
//! contributions.
//!
//! *Norm*: roundings are uniform within half a spacing h, so their mean square is h^2 / 3. The norm of the
//! errors may exceed that by the random deviation of such a sum, considering that rows may be equal, and by
//! the other bounds.

use cusync_gen::graph::Element;

use super::Matrix;

/// The unit roundoff of float32.
pub(super) const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// Standard deviations allowed for a sum of independent roundings; one in 5e8 exceeds them.
pub(super) const SIGMAS: f64 = 6.0;

/// Bound of a result with inexactly known operands, relative to its largest magnitude.
pub(super) const UNKNOWN_OPERANDS: f64 = 2e-3;

/// Maximum error of a float32 sum of `terms` products, added in any order. `largest`: largest magnitude of
/// its partial sums.
pub(super) fn sum_error(terms: usize, largest: f64) -> f64 {
    let terms = terms as f64;
    (4.0 * terms.sqrt() + terms / 8.0) * UNIT * largest
}

/// x sigmoid(t). The error bound includes `off` and the float32 errors of the exponential, whose argument is
/// rounded, and of the quotient.
pub(super) fn sigmoid_times(x: f64, t: f64, off: f64) -> (f64, f64) {
    let value = x / (1.0 + (-t).exp());
    (value, off + UNIT * value.abs() * (8.0 + 4.0 * t.abs()))
}

/// Maximum change of a magnitude by rounding to an element: half a spacing of the values around it.
fn half_spacing(element: Element, magnitude: f64) -> f64 {
    // Significand bits after the leading one, and the exponent of the smallest normal number.
    let (digits, least) = match element {
        Element::F16 => (10, -14),
        Element::Bf16 => (7, -126),
    };
    let exponent = ((magnitude as f32).to_bits() >> 23 & 0xFF) as i32 - 127;
    2f64.powi(exponent.max(least) - digits - 1)
}

/// The largest finite value.
fn largest_of(element: Element) -> f64 {
    match element {
        Element::F16 => half::f16::MAX.to_f64(),
        Element::Bf16 => half::bf16::MAX.to_f64(),
    }
}

/// Relative error of a value rounded to an element inside a stage. Kernels for bf16 also multiply the
/// rounding remainder.
pub(super) fn inner_rounding(element: Element) -> f64 {
    match element {
        Element::F16 => 2f64.powi(-11),
        Element::Bf16 => 2f64.powi(-16),
    }
}

/// Standard deviation of the relative error of a value rounded to an element, at most: errors are uniform.
pub(super) fn rounding_deviation(element: Element) -> f64 {
    let half_unit = match element {
        Element::F16 => 2f64.powi(-11),
        Element::Bf16 => 2f64.powi(-8),
    };
    half_unit / 3f64.sqrt()
}

/// Variance of the error of rounding a magnitude to an element: errors are uniform.
pub(super) fn rounding_variance(element: Element, magnitude: f64) -> f64 {
    half_spacing(element, magnitude).powi(2) / 3.0
}

/// Additional rounding error of such a value below the smallest normal number.
pub(super) fn inner_underflow(element: Element) -> f64 {
    match element {
        Element::F16 => 2f64.powi(-25),
        Element::Bf16 => 0.0,
    }
}

/// Expected contents of a tensor by its stage's definition, before rounding to the element type.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The values.
    pub values: Matrix,
    /// Error bound of each value before rounding; negative if the element must be exactly this value,
    /// infinite if the expected value is unknown.
    pub slack: Vec<f32>,
}

impl Expected {
    pub(super) fn exact(values: Matrix) -> Expected {
        Expected { slack: vec![0.0; values.data.len()], values }
    }

    /// Widens the bounds for a result whose operands are known to a few digits only.
    pub(super) fn of_unknown_operands(mut self) -> Expected {
        let largest = self.values.data.iter().fold(0f32, |a, x| a.max(x.abs()));
        self.slack.iter_mut().for_each(|s| *s += UNKNOWN_OPERANDS as f32 * largest);
        self
    }

    /// Adds a rounding to the element type, for a stage that stores a result and reads it again.
    pub(super) fn round_once_more(&mut self, element: Element) {
        for (slack, value) in self.slack.iter_mut().zip(&self.values.data) {
            *slack += half_spacing(element, f64::from(value.abs())) as f32;
        }
    }
}

/// An element beyond its bound.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Offender {
    /// Row.
    pub row: usize,
    /// Column.
    pub col: usize,
    /// Actual value; `None`: not a number.
    pub found: Option<f64>,
    /// Expected value.
    pub expected: f64,
    /// Error bound; `None`: its magnitude exceeds the element type.
    pub bound: Option<f64>,
}

/// Reason why a tensor is wrong.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// The first element beyond its bound.
    Element(Offender),
    /// All elements are within their bounds, but their combined error is too large: relative L2 norm, and its
    /// bound.
    Norm(f64, f64),
    /// First element that overflows the element type. The arithmetic is not to blame.
    Overflow(Offender),
    /// The first element of a given tensor that is not a number, by row and column: the kernel of its Custom stage did
    /// not store it, or made it from infinities.
    NoNumber(usize, usize),
    /// The definition gives no finite value for any element, because an operand has none: nothing could be
    /// compared.
    Unknown,
}

/// Comparison of a tensor with the result expected from the operands that its stage read.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Accuracy {
    /// Name of the tensor.
    pub tensor: String,
    /// ||x - y|| / ||y||; infinite if an element is not a number.
    pub relative_l2: f64,
    /// max |x - y| / max |y|; likewise.
    pub relative_max: f64,
    /// Largest |x - y| in units of its bound: at most 1 if all are correct.
    pub of_bound: f64,
    /// ||x - z|| / ||z||, with z the result of the whole pipeline from its inputs: includes the roundings of
    /// all earlier stages, so it does not decide correctness. `None` if unknown.
    pub end_to_end: Option<f64>,
    /// Whether every element and the norm are within their bounds.
    pub verified: bool,
    /// Reason why not.
    pub wrong: Option<Wrong>,
}

impl std::fmt::Display for Accuracy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |found: Option<f64>| found.map_or("no number".into(), |x| format!("{x:.6e}"));
        match &self.wrong {
            None => write!(f, "{}: right, off by at most {:.2} of the bounds", self.tensor, self.of_bound),
            Some(Wrong::Element(Offender { row, col, found, expected, bound })) => {
                let (found, bound) = (number(*found), bound.unwrap_or(f64::INFINITY));
                write!(f, "{}({row}, {col}) is {found}, not {expected:.6e} +- {bound:.1e}", self.tensor)
            }
            Some(Wrong::Norm(norm, bound)) => {
                write!(f, "{} is off by {norm:.2e} in norm, where {bound:.2e} are allowed", self.tensor)
            }
            Some(Wrong::Overflow(Offender { row, col, expected, .. })) => write!(
                f,
                "{}({row}, {col}) is {expected:.6e}, which overflows the element type\n  help: use `element: Bf16`, or smaller weights",
                self.tensor
            ),
            Some(Wrong::NoNumber(row, col)) => {
                write!(
                    f,
                    "{}({row}, {col}) is no number: the kernel of its stage did not store one",
                    self.tensor
                )
            }
            Some(Wrong::Unknown) => {
                write!(f, "{} cannot be judged: its operands hold infinities or no numbers", self.tensor)
            }
        }
    }
}

/// Compares a tensor of `element`s, widened, with its expected contents. `name`: name of the tensor.
pub fn judge(name: &str, element: Element, found: &[f32], expected: &Expected) -> Accuracy {
    let Expected { values, slack } = expected;
    let (mut difference, mut norm) = (0f64, 0f64);
    // Squares of all roundings: their mean, and the variance of each, h^4 (1 / 5 - 1 / 9).
    let (mut mean, mut variance, mut slacks) = (0f64, 0f64, 0f64);
    let (mut largest_difference, mut largest, mut of_bound) = (0f64, 0f64, 0f64);
    let (mut beyond, mut overflow) = (None, None);
    let (mut compared, mut undefined) = (0usize, 0usize);
    let cols = values.cols.max(1);
    let most = largest_of(element);
    let same_length = found.len() == values.data.len();
    for (at, ((x, y), slack)) in found.iter().zip(&values.data).zip(slack).enumerate() {
        let (x, y, slack) = (f64::from(*x), f64::from(*y), f64::from(*slack));
        if slack == f64::INFINITY {
            continue;
        }
        // Computed from operands that had overflowed.
        if !y.is_finite() {
            undefined += 1;
            continue;
        }
        compared += 1;
        let half = half_spacing(element, y.abs() + slack.max(0.0));
        let bound = if slack < 0.0 { 0.0 } else { slack + half };
        let offender = |bound| Offender {
            row: at / cols,
            col: at % cols,
            found: x.is_finite().then_some(x),
            expected: y,
            bound,
        };
        if !x.is_finite() && y.abs() + bound > most && !x.is_nan() && x.signum() == y.signum() {
            overflow.get_or_insert_with(|| offender(None));
            continue;
        }
        let apart = (x - y).abs();
        // NaN compares as false.
        let within = apart <= bound;
        if !within {
            beyond.get_or_insert_with(|| offender(Some(bound)));
        }
        let apart = if apart.is_finite() { apart } else { f64::INFINITY };
        of_bound = of_bound.max(if apart == 0.0 { 0.0 } else { apart / bound });
        largest_difference = largest_difference.max(apart);
        largest = largest.max(y.abs());
        difference += apart * apart;
        norm += y * y;
        mean += half * half / 3.0;
        variance += half.powi(4) * 4.0 / 45.0;
        slacks += slack * slack;
    }
    let allowed = mean + SIGMAS * (values.rows as f64 * variance).sqrt() + slacks;
    let ratio = |d: f64, s: f64| if d == 0.0 { 0.0 } else { d / s };
    let relative_l2 = ratio(difference.sqrt(), norm.sqrt());
    let excess = difference > allowed;
    let wrong = match (beyond, overflow) {
        _ if !same_length => Some(Wrong::Norm(f64::INFINITY, 0.0)),
        (Some(offender), _) => Some(Wrong::Element(offender)),
        (None, Some(offender)) => Some(Wrong::Overflow(offender)),
        (None, None) if compared == 0 && undefined > 0 => Some(Wrong::Unknown),
        (None, None) if excess => Some(Wrong::Norm(relative_l2, ratio(allowed.sqrt(), norm.sqrt()))),
        (None, None) => None,
    };
    Accuracy {
        tensor: name.into(),
        relative_l2,
        relative_max: ratio(largest_difference, largest),
        of_bound,
        end_to_end: None,
        verified: wrong.is_none(),
        wrong,
    }
}

/// The verdict on a tensor whose values are taken as given; `None` if all are numbers. `cols`: columns of the tensor.
pub(super) fn judge_given(name: &str, found: &[f32], cols: usize) -> Option<Accuracy> {
    let at = found.iter().position(|x| x.is_nan())?;
    Some(Accuracy {
        tensor: name.into(),
        relative_l2: f64::INFINITY,
        relative_max: f64::INFINITY,
        of_bound: f64::INFINITY,
        end_to_end: None,
        verified: false,
        wrong: Some(Wrong::NoNumber(at / cols.max(1), at % cols.max(1))),
    })
}

/// ||x - y|| / ||y||, Euclidean; infinite if the lengths differ or x contains a NaN or infinity.
pub(crate) fn relative_l2(x: &[f32], y: &[f32]) -> f64 {
    if x.len() != y.len() || x.iter().any(|v| !v.is_finite()) {
        return f64::INFINITY;
    }
    let (mut error, mut norm) = (0.0_f64, 0.0_f64);
    for (&x, &y) in x.iter().zip(y) {
        let (x, y) = (f64::from(x), f64::from(y));
        error += (x - y) * (x - y);
        norm += y * y;
    }
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}

/// The worst of several outputs, as one pair (relative L2, relative maximum).
pub fn worst(list: &[Accuracy]) -> (f64, f64) {
    list.iter().fold((0.0, 0.0), |(l2, max), a| (a.relative_l2.max(l2), a.relative_max.max(max)))
}

/// Description of the first wrong tensor; `None` if there are tensors and all are correct.
pub fn first_wrong(list: &[Accuracy]) -> Option<String> {
    let first = list.iter().find(|judged| !judged.verified).map(Accuracy::to_string);
    first.or_else(|| list.is_empty().then(|| "nothing was compared".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Bits;

    fn expected(values: &[f32], cols: usize, slack: f32) -> Expected {
        let data = values.to_vec();
        let values = Matrix { rows: data.len() / cols, cols, data };
        Expected { slack: vec![slack; values.data.len()], values }
    }

    fn stored(element: Element, values: &[f32]) -> Vec<f32> {
        let (mut bits, mut back) = (vec![0; values.len()], vec![0.0; values.len()]);
        element.round(values, &mut bits);
        element.widen(&bits, &mut back);
        back
    }

    #[test]
    fn half_a_spacing_is_what_rounding_takes_at_most() {
        for element in [Element::F16, Element::Bf16] {
            let values: Vec<f32> = (1..4000).map(|i| (i as f32 * 0.37).powi(3) * 1e-6 + 1e-7).collect();
            let mut largest = 0.0f64;
            for (value, back) in values.iter().zip(stored(element, &values)) {
                let of_half = f64::from((back - value).abs()) / half_spacing(element, f64::from(*value));
                assert!(of_half <= 1.0, "{element:?} {value}");
                largest = largest.max(of_half);
            }
            assert!(largest > 0.99, "{element:?}: the bound is not tight");
        }
    }

    #[test]
    fn a_rounded_result_is_right_and_its_neighbour_is_not() {
        for element in [Element::F16, Element::Bf16] {
            let values: Vec<f32> = (0..512).map(|i| (i as f32 - 255.5) * 0.0123).collect();
            let expected = expected(&values, 64, 1e-6);
            let right = stored(element, &values);
            assert!(judge("Y", element, &right, &expected).verified);
            let mut off = right.clone();
            off[77] *= 1.0 + 2.0 * element.epsilon();
            let judged = judge("Y", element, &stored(element, &off), &expected);
            let Some(Wrong::Element(offender)) = judged.wrong else { panic!("{judged:?}") };
            assert_eq!((offender.row, offender.col), (1, 13));
            assert!(judged.of_bound > 1.0 && judged.to_string().contains("Y(1, 13)"), "{judged}");
            off[78] = f32::NAN;
            assert_eq!(judge("Y", element, &off, &expected).relative_l2, f64::INFINITY);
            assert!(!judge("Y", element, &right[1..], &expected).verified, "another length");
        }
    }

    #[test]
    fn results_that_are_cut_off_instead_of_rounded_are_found_in_norm() {
        // Each is within half a spacing of some correct sum, given the error bound of sums.
        let values: Vec<f32> = (0..4096).map(|i| 1.0 + i as f32 * 1.234e-4).collect();
        let cut: Vec<f32> = values.iter().map(|x| f32::from_bits(x.to_bits() & !0xFFFF)).collect();
        let mut expected = expected(&values, 512, 0.0);
        assert!(matches!(judge("Y", Element::Bf16, &cut, &expected).wrong, Some(Wrong::Element(_))));
        // The bounds of elements alone would accept a result with a systematic bias.
        let near: Vec<f32> = values.iter().map(|x| x + 0.0039).collect();
        expected.slack.fill(1e-5);
        let judged = judge("Y", Element::Bf16, &near, &expected);
        assert!(matches!(judged.wrong, Some(Wrong::Norm(..))), "{judged:?}");
    }

    #[test]
    fn overflow_is_told_apart_and_named() {
        let expected = expected(&[1.0, -7e4, 3.0, 9e4], 2, 1e-3);
        let judged = judge("Y", Element::F16, &[1.0, f32::NEG_INFINITY, 3.0, f32::INFINITY], &expected);
        let Some(Wrong::Overflow(offender)) = judged.wrong else { panic!("{judged:?}") };
        assert_eq!((offender.row, offender.col, offender.expected), (0, 1, -7e4));
        assert!(judged.to_string().contains("overflows"), "{judged}");
        // An infinity is wrong if it has the other sign, or if the value fits the element type.
        let judged = judge("Y", Element::F16, &[1.0, f32::INFINITY, 3.0, f32::INFINITY], &expected);
        assert!(matches!(judged.wrong, Some(Wrong::Element(o)) if o.col == 1), "{judged:?}");
        let judged = judge("Y", Element::F16, &[f32::INFINITY, f32::NEG_INFINITY, 3.0, 0.0], &expected);
        assert!(matches!(judged.wrong, Some(Wrong::Element(o)) if o.col == 0), "{judged:?}");
        // Results computed from it cannot be compared.
        let after = self::expected(&[f32::INFINITY, 2.0], 2, 0.0);
        assert!(judge("Z", Element::F16, &[f32::NAN, 2.0], &after).verified);
        let nothing = self::expected(&[f32::NAN, f32::INFINITY], 2, 0.0);
        assert_eq!(judge("Z", Element::F16, &[f32::NAN, 1.0], &nothing).wrong, Some(Wrong::Unknown));
    }

    #[test]
    fn values_that_must_not_change_are_compared_bit_for_bit() {
        let kept = expected(&[1.0, 2.0], 2, -1.0);
        assert!(judge("K", Element::F16, &[1.0, 2.0], &kept).verified);
        // Below a power of two the spacing is half as large: this is half a spacing off.
        assert!(!judge("K", Element::F16, &[1.0 - f32::EPSILON * 4096.0, 2.0], &kept).verified);
        let unknown = expected(&[1.0, 2.0], 2, f32::INFINITY);
        assert!(judge("K", Element::F16, &[9.0, f32::NAN], &unknown).verified);
    }
}
