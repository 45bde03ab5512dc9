//! A thousand runs, mixing graph replays and eager launches, over several weight sets: the epoch on the device keeps
//! up.

use crate::common::{assert_right, dim, executors, gpu, pipeline, plan};
use cusync::runtime::verify::Reference;
use cusync::runtime::{Error, InputSets, Options};
use cusync_gen::check::Executor;

const RUNS: usize = 1000;

#[test]
fn a_thousand_runs_stay_right() {
    let Some(gpu) = gpu() else { return };
    for (name, m) in [("two_gemms", 512), ("gpt3_mlp", 64), ("llama65_mlp", 200), ("diamond", 512)] {
        for executor in executors(&gpu) {
            let plan = plan(&gpu, name, &dim("M", m), executor);
            let inputs = InputSets::random(plan.graph(), &gpu.device, 2, 21).expect("inputs fit");
            let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
            let reference = Reference::new(&mut pipeline, 0).expect("the reference runs");
            let mut all = || -> cusync::runtime::Result<()> {
                let single = pipeline.capture(executor, &[0])?;
                let both = pipeline.capture(executor, &[1, 0])?;
                let mut checked = 0;
                for run in 0..RUNS {
                    let check = run % 100 == 99;
                    if check {
                        pipeline.poison_outputs()?;
                    }
                    // Every kind ends with set 0; serial runs in between must not disturb the counters.
                    match run % 7 {
                        0 | 3 => pipeline.run(executor)?,
                        1 => pipeline.replay(&both)?,
                        5 => {
                            pipeline.run_set(Executor::Serial, 1)?;
                            pipeline.run(executor)?;
                        }
                        _ => pipeline.replay(&single)?,
                    }
                    if check {
                        let label = format!("{name} {executor:?} run {run}");
                        assert_right(&label, &reference.compare(&mut pipeline)?);
                        checked += 1;
                    }
                }
                assert_eq!(checked, RUNS / 100);
                Ok(())
            };
            all().unwrap_or_else(|e| panic!("{name} {executor:?}: {e}"));
        }
    }
}

#[test]
fn a_graph_of_another_pipeline_is_refused() {
    let Some(gpu) = gpu() else { return };
    let plan = plan(&gpu, "two_gemms", &dim("M", 64), Executor::Streams);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 22).expect("inputs fit");
    let mut one = pipeline(&gpu, &plan, &inputs, Options::default());
    let mut other = pipeline(&gpu, &plan, &inputs, Options::default());
    let graph = one.capture(Executor::Streams, &[0]).expect("captures");
    assert!(matches!(other.replay(&graph), Err(Error::Unsupported(_))));
}

#[test]
fn an_executor_without_a_proof_is_refused() {
    let Some(gpu) = gpu() else { return };
    let plan = plan(&gpu, "two_gemms", &dim("M", 64), Executor::Streams);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 23).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let refused = pipeline.run(Executor::Programmatic);
    assert!(matches!(refused, Err(Error::NotProved { .. })), "{refused:?}");
}

#[test]
fn an_output_that_was_not_written_is_noticed() {
    let Some(gpu) = gpu() else { return };
    let plan = plan(&gpu, "two_gemms", &dim("M", 64), Executor::Serial);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 24).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let reference = Reference::new(&mut pipeline, 0).expect("the reference runs");
    pipeline.poison_outputs().expect("fills");
    let outputs = reference.compare(&mut pipeline).expect("compares");
    assert!(outputs[0].relative_l2 == f64::INFINITY && outputs.iter().all(|o| !o.verified), "{outputs:?}");
}
