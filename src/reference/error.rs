//! How far a result is from its reference.

use cusync_gen::graph::Element;

use crate::element::Bits;

/// Bound of the relative L2 norm.
pub const TOLERANCE: f64 = 2e-3;

/// Distance of a result x from its reference y.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Difference {
    /// max |x - y| / max |y|; infinite when x holds a NaN or an infinity.
    pub max_rel: f64,
    /// ||x - y|| / ||y||, Euclidean.
    pub rel_l2: f64,
}

/// What counts as right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Bound of [`Difference::max_rel`].
    pub max_rel: f64,
    /// Bound of [`Difference::rel_l2`].
    pub rel_l2: f64,
}

impl Tolerance {
    /// 2e-3 in norm. Element-wise 2e-3 plus one spacing of the element type, because two sums that differ in the last
    /// bit of float32 may round to neighbouring values.
    pub fn of(element: Element) -> Self {
        Tolerance { max_rel: TOLERANCE + f64::from(element.epsilon()), rel_l2: TOLERANCE }
    }

    /// Whether a difference is within it. NaN never is.
    pub fn holds(&self, difference: &Difference) -> bool {
        difference.max_rel <= self.max_rel && difference.rel_l2 <= self.rel_l2
    }
}

/// Compares a result with its reference; different lengths are infinitely far apart.
pub fn compare(x: &[f32], y: &[f32]) -> Difference {
    let infinite = Difference { max_rel: f64::INFINITY, rel_l2: f64::INFINITY };
    if x.len() != y.len() || x.iter().any(|v| !v.is_finite()) {
        return infinite;
    }
    let (mut worst, mut largest, mut error, mut norm) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    for (&x, &y) in x.iter().zip(y) {
        let (x, y) = (f64::from(x), f64::from(y));
        let d = (x - y).abs();
        worst = worst.max(d);
        largest = largest.max(y.abs());
        error += d * d;
        norm += y * y;
    }
    let ratio = |d: f64, s: f64| if d == 0.0 { 0.0 } else { d / s };
    Difference { max_rel: ratio(worst, largest), rel_l2: ratio(error.sqrt(), norm.sqrt()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_is_zero_and_poison_is_infinite() {
        assert_eq!(compare(&[1.0, -2.0], &[1.0, -2.0]), Difference::default());
        assert_eq!(compare(&[1.0, f32::NAN], &[1.0, -2.0]).max_rel, f64::INFINITY);
        assert_eq!(compare(&[1.0], &[1.0, -2.0]).rel_l2, f64::INFINITY);
        let all_wrong = compare(&[0.1, 0.0], &[0.0, 0.0]);
        assert!(!Tolerance::of(Element::Bf16).holds(&all_wrong));
    }

    #[test]
    fn ratios_are_of_the_largest_and_of_the_norm() {
        let d = compare(&[3.0, 4.5], &[3.0, 4.0]);
        assert!((d.max_rel - 0.125).abs() < 1e-12 && (d.rel_l2 - 0.1).abs() < 1e-12);
        assert!(!Tolerance::of(Element::F16).holds(&d));
    }
}
