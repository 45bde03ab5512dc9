//! Bound memory is checked against the proof, with GPU buffers.

use std::sync::Arc;

use crate::attends::PAGED;
use crate::common::{Gpu, gpu, plan, plan_of};
use crate::fused::hopper;
use cusync::Session;
use cusync::device::DeviceBuffer;
use cusync::element::Bits;
use cusync::runtime::{Error, InputSets, Options, Overrides, Pipeline, TensorBuffer};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

/// A pipeline A B -> C, C D -> E with tensors of equal size.
fn two_gemms(gpu: &Gpu) -> Pipeline {
    let overrides = Overrides { dims: vec![("M".into(), 512)], ..Overrides::default() };
    let plan = plan(gpu, "two_gemms", &overrides, Executor::Serial);
    Pipeline::new(&plan, &gpu.device).expect("memory")
}

fn buffer(gpu: &Gpu) -> TensorBuffer {
    Arc::new(DeviceBuffer::zeroed(&gpu.device, 512 * 512, "a tensor").expect("memory"))
}

fn refused(pipeline: &mut Pipeline, name: &str, tensor: &TensorBuffer, why: &str) {
    match pipeline.bind(name, tensor.clone()) {
        Err(Error::Bound(fault)) => assert!(fault.contains(why), "{name}: {fault}"),
        other => panic!("{name} is bound: {other:?}"),
    }
}

#[test]
fn memory_that_the_proof_does_not_know_is_refused() {
    let Some(gpu) = gpu() else { return };
    let mut one = two_gemms(&gpu);
    let between = one.tensor(0, "C").expect("the pipeline's own");
    refused(&mut one, "A", &between, "C is there");
    refused(&mut one, "D", &between, "C is there");

    let result = buffer(&gpu);
    one.bind("E", result.clone()).expect("a result of its own");
    refused(&mut one, "A", &result, "E is there");

    let input = buffer(&gpu);
    one.bind("A", input.clone()).expect("an input of its own");
    refused(&mut one, "B", &input, "A is there");
    // A buffer that overlaps by one row is not separate memory.
    let whole = Arc::new(DeviceBuffer::<u16>::zeroed(&gpu.device, 513 * 512, "more").expect("memory"));
    // SAFETY: a part of live memory; its owner outlives it.
    #[allow(unsafe_code)]
    let part = |row: usize| unsafe {
        let at = whole.pointer().cast::<u16>().wrapping_add(row * 512).cast();
        Arc::new(DeviceBuffer::borrow(&gpu.device, at, 512 * 512).expect("aligned"))
    };
    one.bind("B", part(0)).expect("memory of its own");
    refused(&mut one, "D", &part(1), "B is there");

    // The result of one run may be an activation of another, but not its weight.
    let mut other = two_gemms(&gpu);
    refused(&mut other, "B", &result, "another run writes");
    other.bind("A", result).expect("an activation is read behind the wait for the run before");
}

/// Lengths and page numbers are checked against bound memory like other inputs, and caches count as written by runs.
#[test]
fn integers_and_caches_have_memory_of_their_own() {
    let Some(gpu) = hopper() else { return };
    let plan = plan_of(&gpu, PAGED, &Overrides::default(), Executor::Fused);
    let mut one = Pipeline::new(&plan, &gpu.device).expect("memory");
    let between = one.tensor(0, "QKV").expect("the pipeline's own");
    // SAFETY: parts of live memory; their owners outlive them.
    #[allow(unsafe_code)]
    let integers = |tensor: &TensorBuffer| unsafe {
        Arc::new(DeviceBuffer::<i32>::borrow(&gpu.device, tensor.pointer(), 5).expect("aligned"))
    };
    let refused_as = |result: cusync::runtime::Result<()>, why: &str| match result {
        Err(Error::Bound(fault)) => assert!(fault.contains(why), "{fault}"),
        other => panic!("it is bound: {other:?}"),
    };
    refused_as(one.bind_integers("n", integers(&between)), "that a run writes: QKV is there");
    let keys = plan.graph().tensors.iter().find(|t| t.name == "K").expect("a cache").elements() as usize;
    let cache: TensorBuffer = Arc::new(DeviceBuffer::zeroed(&gpu.device, keys, "a cache").expect("memory"));
    one.bind("K", cache.clone()).expect("memory of its own");
    refused_as(one.bind_integers("n", integers(&cache)), "that a run writes: K is there");
    refused_as(one.bind("V", cache), "that a run writes: K is there");

    // A fork appends to its own caches.
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 2).expect("inputs fit");
    let mut first = Pipeline::new(&plan, &gpu.device).expect("memory");
    inputs.bind(&mut first).expect("inputs");
    let mut fork = first.fork().expect("memory");
    match fork.run(Executor::Fused) {
        Err(Error::Unbound { tensor, set: 0 }) => assert!(["K", "V"].contains(&&*tensor), "{tensor}"),
        other => panic!("{other:?}"),
    }
    for name in ["K", "V"] {
        let own = DeviceBuffer::zeroed(&gpu.device, keys, name).expect("memory");
        fork.bind(name, Arc::new(own)).expect("memory of its own");
    }
    fork.run(Executor::Fused).expect("queued");
    fork.synchronize().expect("all have room");
}

#[test]
fn weights_kept_as_rows_of_outputs_are_transposed() {
    let Some(gpu) = gpu() else { return };
    let session = |[up, down, layout]: [&str; 3], executor| {
        let spec = format!(
            r#"Pipeline(name: "kept", dims: {{ "M": 8, "H": 256, "I": 512 }}, stages: [
                GatedGemm(name: "up", a: "X(M,H)", gate: "G({up})", up: "U({up})", layout: {layout}, out: "Y(M,I)"),
                Gemm(name: "down", a: "Y(M,I)", b: "V({down})", layout: {layout}, out: "Z(M,H)")])"#
        );
        Session::on_gpu(&spec, &[], &gpu.device, Some(executor), Options::default()).expect("planned")
    };
    let mut executors = vec![Executor::Serial];
    executors.extend((gpu.device.capability().0 == 9).then_some(Executor::Fused));
    for executor in executors {
        let mut plain = session(["H,I", "I,H", "KN"], executor);
        let mut kept = session(["I,H", "H,I", "NK"], executor);
        for name in plain.inputs() {
            let (rows, cols) = plain.shape(&name).expect("an input");
            let value = |i: usize| ((i * 37) % 64) as f32 / 256.0 - 0.125;
            plain.set_f32(&name, &(0..rows * cols).map(value).collect::<Vec<_>>()).expect("set");
            if name == "X" {
                kept.set_f32(&name, &(0..rows * cols).map(value).collect::<Vec<_>>()).expect("set");
                continue;
            }
            let turned = (0..rows * cols).map(|i| value(i % rows * cols + i / rows));
            let turned: Vec<f32> = turned.collect();
            if name == "V" {
                kept.set_f32(&name, &turned).expect("set");
                continue;
            }
            let mut bits = vec![0; turned.len()];
            Element::F16.round(&turned, &mut bits);
            let memory = DeviceBuffer::from_slice(&gpu.device, &bits, &name).expect("memory");
            kept.bind(&name, Arc::new(memory)).expect("bound");
        }
        plain.run().expect("it runs");
        kept.run().expect("it runs");
        for name in ["Z", "X"] {
            assert_eq!(plain.read_f32(name).expect("it ran"), kept.read_f32(name).expect("it ran"), "{name}");
        }
        let (straight, turned) = (plain.read_f32("G").expect("set"), kept.read_f32("G").expect("bound"));
        assert_eq!((straight[1], straight[512]), (turned[256], turned[1]));
    }
}
