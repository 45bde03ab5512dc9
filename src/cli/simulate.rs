//! `cusync simulate`: what the model predicts for every executor.

use cusync::runtime::executor_name;
use cusync_gen::check::Executor;
use cusync_gen::simulate::{simulate as predict, simulate_serial};

use super::check::{breakdown, dims, usual_executor};
use super::fault::Fault;
use super::prove::Proof;
use super::report::{PredictedStage, PredictedTime, SimulateReport};
use super::request::SimulateRequest;
use super::trace;

pub(crate) fn simulate(request: &SimulateRequest) -> Result<SimulateReport, Fault> {
    let target = &request.target;
    let chosen_for = usual_executor(target);
    // A chain kernel has its own tiles; kernels launched one by one are predicted at those chosen for them.
    let by_kernel = if chosen_for.how().is_some() { chosen_for } else { Executor::Programmatic };
    let proof = Proof::of(target, by_kernel)?;
    let mut executors = vec![Executor::Serial, Executor::Streams];
    if target.device.arch >= 90 {
        executors.push(Executor::Programmatic);
    }
    if let Some(file) = &request.file {
        trace::write(&trace::predictions(target, &executors)?, file)?;
    }
    let candidate = proof.candidate();
    let graph = &candidate.graph;
    let serial_us = simulate_serial(candidate).total_us;
    let mut times: Vec<PredictedTime> = executors
        .into_iter()
        .map(|executor| {
            let serial = executor == Executor::Serial;
            let timeline = if serial { simulate_serial(candidate) } else { predict(candidate) };
            let stages = graph.stages.iter().zip(&timeline.stages);
            PredictedTime {
                executor: executor_name(executor),
                time_us: timeline.total_us,
                speedup: serial_us / timeline.total_us,
                stages: stages
                    .map(|(s, &(begin_us, end_us))| PredictedStage { name: s.name.clone(), begin_us, end_us })
                    .collect(),
            }
        })
        .collect();
    match Proof::of(target, Executor::Fused) {
        Ok(proof) => {
            let fused = proof.candidate();
            let time = fused.launch.predicted_us();
            let spans = fused.launch.lists().and_then(|s| breakdown(&fused.graph, &target.device, s));
            let spans = spans.map(|b| b.stages).unwrap_or_default();
            let stages = fused.graph.stages.iter().zip(spans);
            if let Some(time_us) = time.filter(|_| proof.proved()) {
                times.push(PredictedTime {
                    executor: executor_name(Executor::Fused),
                    time_us,
                    speedup: serial_us / time_us,
                    stages: stages
                        .map(|(s, (begin_us, end_us))| PredictedStage {
                            name: s.name.clone(),
                            begin_us,
                            end_us,
                        })
                        .collect(),
                });
            }
        }
        // Not every chain and device has chain kernels; who asks for them is told.
        Err(fault) if chosen_for == Executor::Fused => return Err(fault),
        Err(_) => {}
    }
    Ok(SimulateReport {
        pipeline: graph.name.clone(),
        dims: dims(graph),
        device: target.device.name.clone(),
        source: target.device.source.clone(),
        chosen_for: executor_name(chosen_for),
        times,
    })
}
