//! Activations in float64, with error bounds of their float32 forms.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use cusync_gen::graph::Activation;

use super::bound::{UNIT, sigmoid_times};

/// Relative error of Phi(-|x|) in kernels, which fit its logarithm, with the roundings of that; and the absolute error
/// of x Phi(x) beyond the fit.
const PHI: f64 = 2e-5;
const BEYOND: f64 = 1e-9;

/// An activation of a value with error bound `off`, and the error bound of the result: a bound of the slope times
/// `off`, and the errors of the arithmetic.
pub(super) fn activated(activation: Activation, x: f64, off: f64) -> (f64, f64) {
    match activation {
        Activation::Identity => (x, off),
        Activation::Relu => (x.max(0.0), off),
        Activation::GeluTanh => {
            let u = (2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3));
            // x sigmoid(2 u) is the same function as 0.5 x (1 + tanh u).
            sigmoid_times(x, 2.0 * u, 1.13 * off)
        }
        Activation::Silu => sigmoid_times(x, x, 1.1 * off),
        Activation::GeluErf => {
            let phi = |x: f64| 0.5 * libm::erfc(-x * FRAC_1_SQRT_2);
            let value = x * phi(x);
            (value, 1.13 * off + PHI * x.abs() * phi(-x.abs()) + 2.0 * UNIT * value.abs() + BEYOND)
        }
        Activation::QuickGelu => sigmoid_times(x, 1.702 * x, 1.1 * off),
        Activation::SquaredRelu => {
            let value = x.max(0.0).powi(2);
            (value, (2.0 * x.abs() + off) * off + UNIT * value)
        }
        Activation::Relu6 => (x.clamp(0.0, 6.0), off),
        Activation::HardSwish => {
            let value = x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
            (value, 1.5 * off + 4.0 * UNIT * x.abs())
        }
        Activation::Sigmoid => sigmoid_times(1.0, x, 0.25 * off),
        // Kernels compute 2 sigmoid(2 x) - 1.
        Activation::Tanh => (x.tanh(), off + 8.0 * UNIT),
        Activation::Scale(factor) => {
            let (factor, value) = (f64::from(factor), f64::from(factor) * x);
            (value, factor.abs() * off + UNIT * value.abs())
        }
        Activation::Clamp(low, high) => (x.clamp(low.into(), high.into()), off),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_cover_errors_of_the_argument() {
        let others = [Activation::Scale(-2.5), Activation::Clamp(-0.5, 3.0)];
        for activation in Activation::ALL.into_iter().chain(others) {
            for x in (-4000..=4000).map(|step| f64::from(step) / 250.0) {
                let (expected, wide) = activated(activation, x, 1e-3);
                for moved in [x - 1e-3, x + 1e-3] {
                    let off = (activated(activation, moved, 0.0).0 - expected).abs();
                    assert!(off <= wide * (1.0 + 1e-9), "{activation:?} near {x}: {off}, bound {wide}");
                }
            }
        }
    }

    #[test]
    fn activations_have_their_textbook_values() {
        let values = [
            (Activation::GeluErf, 1.0, 0.841344746),
            (Activation::GeluErf, -2.0, -0.045500264),
            (Activation::GeluTanh, 1.0, 0.841191991),
            (Activation::QuickGelu, 1.0, 0.845795766),
            (Activation::Silu, -1.0, -0.268941421),
            (Activation::SquaredRelu, 1.5, 2.25),
            (Activation::SquaredRelu, -1.5, 0.0),
            (Activation::Relu6, 7.0, 6.0),
            (Activation::HardSwish, 1.0, 2.0 / 3.0),
            (Activation::HardSwish, -3.5, 0.0),
            (Activation::Sigmoid, 0.5, 0.622459331),
            (Activation::Tanh, -0.5, -0.462117157),
            (Activation::Scale(-0.125), 3.0, -0.375),
            (Activation::Clamp(-1.0, 2.0), -1.5, -1.0),
            (Activation::Clamp(-1.0, 2.0), 0.5, 0.5),
            (Activation::Clamp(-1.0, 2.0), 2.5, 2.0),
        ];
        for (activation, x, expected) in values {
            let (found, _) = activated(activation, x, 0.0);
            assert!((found - expected).abs() < 1e-8, "{activation:?} of {x}: {found}");
        }
    }
}
