//! Normalization of groups of channels on a GPU: right for groups of any width, shares that fit in shared memory and
//! shares that do not, and bit-identical in every run.

use crate::common::{Gpu, assert_right, plan_of, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::assert_repeats as repeats;
use cusync::runtime::{Overrides, shipped};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

/// Images that are an input, and images that another stage writes.
const BOTH: &str = r#"Pipeline(
    name: "group_norms",
    dims: { "B": 1, "HW": 7, "C": 64, "G": 8 },
    stages: [
        GroupNorm(name: "first", input: "X(B,HW,HW,C)", groups: "G", gain: "g(C)", bias: "b(C)", epilogue: Silu, out: "Y(B,HW,HW,C)"),
        GroupNorm(name: "second", input: "Y(B,HW,HW,C)", groups: "G", gain: "h(C)", bias: "c(C)", epsilon: 1e-6, out: "Z(B,HW,HW,C)"),
    ],
)"#;

/// Pixels along a side, channels and groups. The first three are resolutions of Stable Diffusion.
const SHAPES: [(u64, u64, u64); 10] = [
    (64, 320, 32),
    (32, 640, 32),
    (16, 1280, 32),
    (7, 64, 8),
    // Groups of 1, 3 and 4 channels, one of more vectors than a CTA has threads, and images of one pixel.
    (9, 40, 40),
    (13, 24, 8),
    (33, 128, 32),
    (2, 8192, 1),
    (1, 64, 8),
    // 4 MB in a group: more than the shared memory of a cluster.
    (512, 8, 1),
];

/// A launch per stage, eager and as a graph, each on poisoned outputs; all runs have the same bits.
fn assert_repeats(gpu: &Gpu, source: &str, dims: &[(&str, u64)], element: Element) {
    let overrides = Overrides {
        dims: dims.iter().map(|(name, size)| ((*name).into(), *size)).collect(),
        element: Some(element),
        ..Overrides::default()
    };
    let plan = plan_of(gpu, source, &overrides, Executor::Serial);
    let label = format!("{} {dims:?} {element:?}", plan.graph().name);
    let (inputs, reference) = expected(gpu, &plan, 1, 3);
    repeats(gpu, &label, (&plan, &inputs), &mut |label, pipeline, _| {
        assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
    });
}

/// Clusters of every size: they shrink as images are added.
fn every_shape(element: Element) {
    let Some(gpu) = hopper() else { return };
    for (side, channels, groups) in SHAPES {
        for images in if quick() { vec![1, 5] } else { vec![1, 2, 5, 16] } {
            let dims = [("B", images), ("HW", side), ("C", channels), ("G", groups)];
            assert_repeats(&gpu, BOTH, &dims, element);
        }
    }
}

#[test]
fn groups_of_every_shape_f16() {
    every_shape(Element::F16);
}

#[test]
fn groups_of_every_shape_bf16() {
    every_shape(Element::Bf16);
}

#[test]
fn residual_blocks_of_stable_diffusion() {
    let Some(gpu) = hopper() else { return };
    let source = shipped("sd_resnet").expect("it ships");
    for (side, channels) in [(64, 320), (32, 640), (16, 1280), (8, 1280)] {
        for (images, element) in [(1, Element::F16), (2, Element::Bf16)] {
            assert_repeats(&gpu, source, &[("B", images), ("HW", side), ("C", channels)], element);
        }
    }
}
