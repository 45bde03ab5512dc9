//! Decode plans as pipelines on a GPU: right to 2e-3 with shared weights, released originals and every kind of edge.

use crate::common::{Gpu, assert_right, assert_runs_right, pipeline, plan_of};
use crate::fused::{STATIC, expected, fused, hopper};
use cusync::runtime::{Options, Overlap, Overrides, Pipeline, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::Element;

pub(crate) fn decode(gpu: &Gpu, source: &str, m: u32, element: Element) -> Plan {
    let overrides = Overrides {
        dims: vec![("M".into(), m.into())],
        element: Some(element),
        decode: true,
        ..Overrides::default()
    };
    plan_of(gpu, source, &overrides, Executor::Fused)
}

/// Sets of inputs whose weights are laid out once and shared; the originals let go of; every kind of edge.
#[test]
fn decode_plans_run_as_pipelines() {
    let Some(gpu) = hopper() else { return };
    for name in ["gpt3_mlp", "llama65_mlp", "llama3_70b_mlp", "two_gemms"] {
        let source = shipped(name).expect("it ships");
        for (m, element) in [(1, Element::F16), (8, Element::Bf16), (16, Element::F16), (37, Element::F16)] {
            let plan = decode(&gpu, source, m, element);
            let label = format!("{name} M = {m} {element:?}");
            let (mut inputs, reference) = expected(&gpu, &plan, 2, m);
            assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
            for edges in [Overlap::Plain, Overlap::Captured, Overlap::All] {
                let options = Options { overlap: edges, ..Options::default() };
                let mut pipeline =
                    Pipeline::with_options(&plan, &gpu.device, options).unwrap_or_else(|e| panic!("{e}"));
                let mut all = || -> cusync::runtime::Result<Vec<_>> {
                    inputs.bind_decode(&mut pipeline)?;
                    pipeline.release_originals()?;
                    pipeline.poison_outputs()?;
                    pipeline.run_set(Executor::Fused, 1)?;
                    let graph = pipeline.capture(Executor::Fused, &[0, 1, 1, 0])?;
                    pipeline.poison_outputs()?;
                    pipeline.replay(&graph)?;
                    pipeline.replay(&graph)?;
                    reference.compare(&mut pipeline)
                };
                assert_right(
                    &format!("{label} {edges:?}"),
                    &all().unwrap_or_else(|e| panic!("{label}: {e}")),
                );
            }
        }
    }
}

/// A decode kernel and a chain kernel leave the semaphores of their pipelines to themselves.
#[test]
fn decode_plans_run_beside_chains() {
    let Some(gpu) = hopper() else { return };
    let source = shipped("gpt3_mlp").expect("it ships");
    let plans = [decode(&gpu, source, 32, Element::F16), fused(&gpu, "gpt3_mlp", 32, STATIC)];
    let (inputs, reference) = expected(&gpu, &plans[0], 1, 4);
    let mut pair = plans.each_ref().map(|plan| pipeline(&gpu, plan, &inputs, Options::default()));
    let mut all = || -> cusync::runtime::Result<()> {
        for pipeline in &mut pair {
            pipeline.prepare()?;
            pipeline.poison_outputs()?;
        }
        for _ in 0..500 {
            pair.iter_mut().try_for_each(|pipeline| pipeline.run(Executor::Fused))?;
        }
        for pipeline in &mut pair {
            assert_right("side by side", &reference.compare(pipeline)?);
        }
        Ok(())
    };
    all().unwrap_or_else(|e| panic!("{e}"));
}
