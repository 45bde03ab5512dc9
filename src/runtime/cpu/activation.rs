//! Activations in float32.

use cusync_gen::graph::Activation;

/// Applies an activation to every value.
pub(super) fn activate(activation: Activation, values: &mut [f32]) {
    let function: fn(f32) -> f32 = match activation {
        Activation::Identity => return,
        Activation::GeluTanh => gelu_tanh,
        Activation::Relu => relu,
        Activation::Silu => |x| x * sigmoid(x),
        Activation::GeluErf => |x| 0.5 * x * libm::erfcf(-x * std::f32::consts::FRAC_1_SQRT_2),
        Activation::QuickGelu => |x| x * sigmoid(1.702 * x),
        Activation::SquaredRelu => |x| relu(x) * relu(x),
        Activation::Relu6 => |x| if x > 6.0 { 6.0 } else { relu(x) },
        Activation::HardSwish => |x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0),
        Activation::Sigmoid => sigmoid,
        Activation::Tanh => f32::tanh,
        Activation::Scale(factor) => return values.iter_mut().for_each(|x| *x *= factor),
        // Keeps NaN.
        Activation::Clamp(low, high) => return values.iter_mut().for_each(|x| *x = x.clamp(low, high)),
    };
    values.iter_mut().for_each(|x| *x = function(*x));
}

/// max(x, 0), which keeps NaN.
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
}
