//! Grouped and depthwise convolutions on a GPU: right for filters, strides, paddings and dilations of every kind, with
//! bias, activation and residual, and bit-identical in every run.

use crate::common::{Gpu, assert_right, plan_of};
use crate::fused::{expected, hopper};
use crate::fused_runs::assert_repeats;
use cusync::runtime::{Overrides, shipped};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

/// A launch per stage, eager and as a graph, each on poisoned outputs; all runs have the same bits.
fn repeats(gpu: &Gpu, source: &str, dims: &[(&str, u64)], element: Element) {
    let overrides = Overrides {
        dims: dims.iter().map(|(name, size)| ((*name).into(), *size)).collect(),
        element: Some(element),
        ..Overrides::default()
    };
    let plan = plan_of(gpu, source, &overrides, Executor::Serial);
    let label = format!("{} {dims:?} {element:?}: {source}", plan.graph().name);
    let (inputs, reference) = expected(gpu, &plan, 1, 3);
    assert_repeats(gpu, &label, (&plan, &inputs), &mut |label, pipeline, _| {
        assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
    });
}

/// Images, filter, groups, and output image; then stride, padding and dilation.
type Shape = ([u32; 4], [u32; 2], [u32; 2], [[u32; 2]; 3]);

/// Groups, and output channels, follow the filter. Rows of 1, 4 and other numbers of pixels, vectors that fill a CTA and
/// others that do not, filters of one tap and of the most taps that a kernel holds.
const SHAPES: [Shape; 12] = [
    ([2, 56, 56, 144], [3, 3], [144, 144], [[1, 1], [1, 1], [1, 1]]),
    ([3, 28, 29, 96], [3, 3], [96, 96], [[2, 2], [1, 1], [1, 1]]),
    ([1, 14, 14, 960], [5, 5], [960, 960], [[1, 1], [2, 2], [1, 1]]),
    ([2, 17, 13, 8], [7, 7], [8, 8], [[1, 1], [3, 3], [1, 1]]),
    ([1, 33, 21, 136], [3, 3], [136, 136], [[1, 1], [2, 2], [2, 2]]),
    ([1, 9, 40, 24], [2, 4], [24, 24], [[1, 3], [0, 5], [3, 2]]),
    ([2, 20, 20, 16], [15, 17], [16, 16], [[1, 1], [7, 8], [1, 1]]),
    ([5, 4, 4, 72], [1, 1], [72, 72], [[1, 1], [0, 0], [1, 1]]),
    // Groups of several channels, in and out: wider than a vector, narrower, and of sizes that do not divide one.
    ([1, 14, 14, 256], [3, 3], [32, 256], [[1, 1], [1, 1], [1, 1]]),
    ([2, 15, 9, 64], [3, 3], [8, 128], [[2, 1], [1, 1], [1, 2]]),
    ([1, 8, 8, 24], [3, 3], [8, 24], [[1, 1], [1, 1], [1, 1]]),
    ([1, 8, 8, 16], [3, 3], [16, 48], [[1, 1], [1, 1], [1, 1]]),
];

fn every_shape(element: Element) {
    let Some(gpu) = hopper() else { return };
    for ([images, height, width, channels], [r, s], [groups, features], [stride, padding, dilation]) in SHAPES
    {
        let along = |length: u32, taps: u32, axis: usize| {
            (length + 2 * padding[axis] - dilation[axis] * (taps - 1) - 1) / stride[axis] + 1
        };
        let out = format!("{images},{},{},{features}", along(height, r, 0), along(width, s, 1));
        let inner = channels / groups;
        for more in [
            String::new(),
            format!(r#"bias: "b({features})", epilogue: Relu, "#),
            format!(r#"bias: "b({features})", residual: "R({out})", epilogue: Gelu, "#),
            format!(r#"residual: "R({out})", residual_at: BeforeActivation, epilogue: Relu, "#),
        ] {
            let source = format!(
                r#"Pipeline(name: "grouped", dims: {{}}, stages: [
                    Conv2d(name: "conv", input: "X({images},{height},{width},{channels})", filter: "F({r},{s},{inner},{features})",
                        groups: {groups}, stride: ({}, {}), padding: ({}, {}), dilation: ({}, {}), {more}out: "Y({out})"),
                ])"#,
                stride[0], stride[1], padding[0], padding[1], dilation[0], dilation[1],
            );
            repeats(&gpu, &source, &[], element);
        }
    }
}

#[test]
fn groups_and_filters_of_every_shape_f16() {
    every_shape(Element::F16);
}

#[test]
fn groups_and_filters_of_every_shape_bf16() {
    every_shape(Element::Bf16);
}

#[test]
fn inverted_residuals_of_mobilenet() {
    let Some(gpu) = hopper() else { return };
    let source = shipped("mobilenetv2").expect("it ships");
    for (side, channels, expanded) in [(56, 24, 144), (28, 32, 192), (14, 96, 576), (7, 160, 960)] {
        for (images, element) in [(1, Element::F16), (3, Element::Bf16)] {
            let dims = [("B", images), ("HW", side), ("C", channels), ("E", expanded)];
            repeats(&gpu, source, &dims, element);
        }
    }
}
