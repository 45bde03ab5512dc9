//! Blocks of today's models on a GPU, by our kernels alone and with cuBLASLt's products.

use crate::common::{assert_runs_right, plan_of};
use crate::fused::{expected, hopper};
use cusync::runtime::Overrides;
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

#[test]
fn blocks_of_todays_models() {
    let Some(gpu) = hopper() else { return };
    let blocks = [
        include_str!("../data/blocks/bert.ron"),
        include_str!("../data/blocks/clip.ron"),
        include_str!("../data/blocks/gemma2.ron"),
        include_str!("../data/blocks/mistral.ron"),
        include_str!("../data/blocks/mobilenet3.ron"),
        include_str!("../data/blocks/phi3.ron"),
        include_str!("../data/blocks/qwen3.ron"),
    ];
    for (source, element) in blocks.into_iter().flat_map(|s| [(s, Element::F16), (s, Element::Bf16)]) {
        for executor in [Executor::Serial, Executor::Library] {
            let overrides = Overrides { element: Some(element), ..Overrides::default() };
            let plan = plan_of(&gpu, source, &overrides, executor);
            let label = format!("{} {element:?} {executor:?}", plan.graph().name);
            let (inputs, reference) = expected(&gpu, &plan, 1, 6);
            assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
        }
    }
}

/// A chain kernel waits for the tiles of a tensor that it reads under another shape.
#[test]
fn heads_that_a_chain_kernel_normalises() {
    let Some(gpu) = hopper() else { return };
    for (tokens, heads) in [(96, 8), (200, 32), (5, 3)] {
        let dims = vec![("T".into(), tokens), ("HQ".into(), heads)];
        let overrides = Overrides { dims, ..Overrides::default() };
        let plan = plan_of(&gpu, include_str!("../data/blocks/qwen3.ron"), &overrides, Executor::Fused);
        let (inputs, reference) = expected(&gpu, &plan, 1, 6);
        assert_runs_right(&gpu, &format!("heads {tokens} x {heads}"), &plan, &inputs, &reference);
    }
}
