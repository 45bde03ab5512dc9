//! A pipeline inside another program: borrowed memory, a foreign stream that captures, forks whose graphs replay
//! concurrently, and the previously current context.

// The tests act as the foreign code, which has raw handles instead of types.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys;
use cusync::device::{Device, DeviceBuffer, Stream};
use cusync::runtime::verify::Reference;
use cusync::runtime::{InputSets, Options, Overrides, Pipeline, percentile};
use cusync_gen::check::Executor;

use crate::common::{Gpu, assert_right, executors, gpu, pipeline, plan, quick};

/// The executors, including `fused` if the GPU supports it.
fn all(gpu: &Gpu) -> Vec<Executor> {
    let mut all = executors(gpu);
    if gpu.device.capability().0 == 9 {
        all.push(Executor::Fused);
    }
    all
}

fn rows(m: u64) -> Overrides {
    Overrides { dims: vec![("M".into(), m)], ..Overrides::default() }
}

/// A stream that foreign code created through the driver.
fn foreign_stream() -> sys::CUstream {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the caller has entered a context; `raw` outlives the call.
    let made = unsafe { sys::cuStreamCreate(&mut raw, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
    raw
}

#[test]
fn an_mlp_in_borrowed_memory_runs_in_a_foreign_capture() {
    let Some(gpu) = gpu() else { return };
    for executor in all(&gpu) {
        let plan = plan(&gpu, "llama65_mlp", &rows(16), executor);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 5).expect("inputs fit");
        let mut ours = pipeline(&gpu, &plan, &inputs, Options::default());
        let reference = Reference::new(&mut ours, 0).expect("the reference runs");
        let mut pipeline = Pipeline::new(&plan, &gpu.device).expect("memory");
        let names: Vec<String> = pipeline.inputs().map(str::to_owned).collect();
        let mut lent = Vec::new();
        for name in names {
            // `inputs` owns the memory and outlives the pipeline.
            let tensor = ours.tensor(0, &name).expect("bound");
            // SAFETY: live device memory of `len` values that nothing writes.
            let borrowed = unsafe { DeviceBuffer::borrow(&gpu.device, tensor.pointer(), tensor.len()) };
            pipeline.bind(&name, Arc::new(borrowed.expect("aligned"))).expect("an input");
            lent.push(tensor);
        }
        // The result is also written in place.
        let z = plan.graph().tensors.iter().position(|t| t.name == "Z").expect("a tensor of the spec");
        let result =
            DeviceBuffer::<u16>::zeroed(&gpu.device, plan.graph().tensors[z].elements() as usize, "Z");
        let result = result.expect("memory");
        // SAFETY: live device memory of `len` values that nothing else writes.
        let borrowed = unsafe { DeviceBuffer::borrow(&gpu.device, result.pointer(), result.len()) };
        pipeline.bind("Z", Arc::new(borrowed.expect("aligned"))).expect("a result");
        let own = DeviceBuffer::zeroed(&gpu.device, 16, "Y").expect("memory");
        assert!(pipeline.bind("Y", Arc::new(own)).is_err(), "what stages read is the pipeline's own affair");
        pipeline.prepare().expect("ready");
        let _entered = gpu.device.enter().expect("a context");
        let raw = foreign_stream();
        // SAFETY: a live stream of this context, destroyed below, after the pipeline's runs are over.
        let stream = unsafe { Stream::from_raw(&gpu.device, raw.cast()) };
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: captures a live stream on this thread; everything outlives the calls.
        unsafe {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            assert_eq!(sys::cuStreamBeginCapture_v2(raw, mode), sys::CUresult::CUDA_SUCCESS);
            pipeline.run_on(executor, &stream).expect("captured");
            pipeline.run_on(executor, &stream).expect("captured");
            assert_eq!(sys::cuStreamEndCapture(raw, &mut graph), sys::CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0), sys::CUresult::CUDA_SUCCESS);
        }
        for _ in 0..50 {
            // SAFETY: both are live.
            assert_eq!(unsafe { sys::cuGraphLaunch(exec, raw) }, sys::CUresult::CUDA_SUCCESS);
        }
        pipeline.run_on(executor, &stream).expect("eager runs and replays mix");
        stream.synchronize().expect("right");
        assert_right(&format!("{executor:?}"), &reference.compare(&mut pipeline).expect("compared"));
        // The verified data is in the borrowed memory.
        let judged = pipeline.tensor(0, "Z").expect("a result");
        assert_eq!(judged.pointer(), result.pointer(), "{executor:?}");
        // SAFETY: none of them is still running.
        unsafe {
            sys::cuGraphExecDestroy(exec);
            sys::cuGraphDestroy(graph);
            sys::cuStreamDestroy_v2(raw);
        }
        drop((pipeline, lent, result));
    }
}

#[test]
fn graphs_of_two_forks_replay_side_by_side() {
    let Some(gpu) = gpu() else { return };
    let replays = if quick() { 500 } else { 10_000 };
    for executor in all(&gpu) {
        let plan = plan(&gpu, "two_gemms", &rows(64), executor);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 6).expect("inputs fit");
        let mut one = pipeline(&gpu, &plan, &inputs, Options::default());
        let reference = Reference::new(&mut one, 0).expect("the reference runs");
        let mut two = one.fork().expect("memory");
        two.run(executor).expect("queued");
        one.run(executor).expect("queued");
        let graphs =
            [one.capture(executor, &[0]).expect("captures"), two.capture(executor, &[0]).expect("captures")];
        for _ in 0..replays {
            one.replay(&graphs[0]).expect("queued");
            two.replay(&graphs[1]).expect("queued");
        }
        one.synchronize().expect("right");
        two.synchronize().expect("right");
        for pipeline in [&mut one, &mut two] {
            assert_right(&format!("{executor:?}"), &reference.compare(pipeline).expect("compared"));
        }
        assert!(two.replay(&graphs[0]).is_err(), "a graph is its pipeline's");
    }
}

#[test]
fn fewer_tokens_than_planned_need_no_new_plan() {
    let Some(gpu) = gpu() else { return };
    for executor in all(&gpu) {
        let plan = plan(&gpu, "llama65_mlp", &rows(64), executor);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 9).expect("inputs fit");
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
        let outputs = |pipeline: &mut Pipeline| {
            pipeline.run(executor).expect("queued");
            pipeline.synchronize().expect("right");
            let z = pipeline.tensor(0, "Z").expect("an output");
            let mut bits = vec![0; z.len()];
            z.download(&mut bits).expect("copied");
            bits
        };
        let all = outputs(&mut pipeline);
        let x = pipeline.tensor(0, "X").expect("bound");
        let mut given = vec![0; x.len()];
        x.download(&mut given).expect("copied");
        let mut tokens = given.clone();
        for m in [48, 17, 1].into_iter().cycle().take(30) {
            // NaNs, so that a write by another row is detected.
            tokens.copy_from_slice(&given);
            tokens[m * x.len() / 64..].fill(0xffff);
            x.upload(&tokens).expect("copied");
            let found = outputs(&mut pipeline);
            assert_eq!(found[..m * all.len() / 64], all[..m * all.len() / 64], "{executor:?} {m} rows");
        }
    }
}

#[test]
fn the_current_context_is_given_back() {
    let Some(gpu) = gpu() else { return };
    let (mut foreign, mut now) = (std::ptr::null_mut(), std::ptr::null_mut());
    let _entered = gpu.device.enter().expect("a context");
    // SAFETY: everything outlives the calls; the context is destroyed below.
    unsafe {
        assert_eq!(
            sys::cuCtxCreate_v4(&mut foreign, std::ptr::null_mut(), 0, 0),
            sys::CUresult::CUDA_SUCCESS
        );
        assert_eq!(sys::cuCtxSetCurrent(foreign), sys::CUresult::CUDA_SUCCESS);
    }
    let plan = plan(&gpu, "two_gemms", &rows(64), Executor::Serial);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 7).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    pipeline.run(Executor::Serial).expect("queued");
    pipeline.synchronize().expect("right");
    drop(pipeline);
    // SAFETY: as above.
    unsafe { assert_eq!(sys::cuCtxGetCurrent(&mut now), sys::CUresult::CUDA_SUCCESS) };
    assert_eq!(now, foreign, "what was current is current");
    // Memory of the foreign context itself. SAFETY: the context stays live until all of it is dropped.
    let own = unsafe { Device::from_context(foreign.cast()) }.expect("a context");
    let buffer = DeviceBuffer::from_slice(&own, &[7u32; 64], "a test").expect("memory");
    let mut back = [0; 64];
    buffer.download(&mut back).expect("copied");
    assert_eq!(back, [7; 64]);
    drop((buffer, own));
    // SAFETY: none of its objects remain.
    unsafe { sys::cuCtxDestroy_v2(foreign) };
}

#[test]
fn a_run_costs_the_host_little() {
    let Some(gpu) = gpu() else { return };
    let hopper = gpu.device.capability().0 == 9;
    let executor = if hopper { Executor::Fused } else { Executor::Serial };
    for (name, dim) in [("llama65_mlp", "M"), ("llama3_70b_generate", "B")] {
        if dim == "B" && !hopper {
            continue;
        }
        let overrides = Overrides { dims: vec![(dim.into(), 8)], ..Overrides::default() };
        let plan = plan(&gpu, name, &overrides, executor);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 8).expect("inputs fit");
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
        let stream = Stream::new(&gpu.device).expect("a stream");
        let graph = pipeline.capture(executor, &[0]).expect("captures");
        // Alternate, so that a temporarily slow host affects both.
        let mut medians = [Vec::new(), Vec::new()];
        for at in 0..400 {
            let begin = Instant::now();
            match at % 2 {
                0 => pipeline.run_on(executor, &stream).expect("queued"),
                _ => pipeline.replay(&graph).expect("queued"),
            }
            medians[at % 2].push(begin.elapsed().as_secs_f64() * 1e6);
            stream.synchronize().expect("right");
            pipeline.synchronize().expect("right");
        }
        let [run, replay] = medians.map(|mut times| percentile(&mut times, 0.5));
        println!("{name}: host time of a run: median {run:.2} us, of a graph's replay {replay:.2} us");
        assert!(run < 8.0 * replay, "{name}: {run:.2} and {replay:.2} us");
    }
}
