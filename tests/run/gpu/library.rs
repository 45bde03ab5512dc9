//! The `library` executor on a GPU: right to 2e-3 however each stage is computed, eager and replayed, with several
//! input sets.

use crate::common::{Gpu, assert_right, assert_runs_right, gpu, pipeline, plan_of, quick};
use crate::fused::expected;
use cusync::device::{CublasLt, Stream};
use cusync::runtime::verify::Reference;
use cusync::runtime::{Options, Overrides, shipped};
use cusync_gen::check::Executor;
use cusync_gen::graph::Element;

/// Every epilogue: those that cuBLASLt fuses, and a residual after an activation, which it cannot fuse.
const EPILOGUES: &str = r#"Pipeline(
    name: "epilogues",
    dims: { "M": 100, "H": 512 },
    stages: [
        Gemm(name: "biased", a: "X(M,H)", b: "A(H,1024)", bias: "c(1024)", epilogue: Gelu, out: "U(M,1024)"),
        Gemm(name: "rectified", a: "U(M,1024)", b: "B(1024,H)", bias: "d(H)", epilogue: Relu, out: "V(M,H)"),
        Gemm(name: "added", a: "V(M,H)", b: "C(H,H)", bias: "e(H)", residual: "X(M,H)", out: "W(M,H)"),
        Gemm(name: "late", a: "W(M,H)", b: "D(H,H)", epilogue: Relu, residual: "V(M,H)", out: "Z(M,H)"),
    ],
)"#;

fn installed() -> Option<Gpu> {
    let gpu = gpu()?;
    if !CublasLt::is_installed() {
        println!("skipped: cuBLASLt is not installed");
        return None;
    }
    Some(gpu)
}

#[test]
fn products_of_the_library_are_right() {
    let Some(gpu) = installed() else { return };
    let sizes = if quick() { vec![37] } else { vec![1, 37, 512] };
    for (source, name) in [
        (EPILOGUES, "epilogues"),
        (shipped("gpt3_mlp").expect("it ships"), "gpt3_mlp"),
        (shipped("llama65_mlp").expect("it ships"), "llama65_mlp"),
    ] {
        for m in &sizes {
            for element in [Element::F16, Element::Bf16] {
                let overrides = Overrides {
                    dims: vec![("M".into(), *m)],
                    element: Some(element),
                    ..Overrides::default()
                };
                let plan = plan_of(&gpu, source, &overrides, Executor::Library);
                let (inputs, reference) = expected(&gpu, &plan, 1, *m as u32);
                assert_runs_right(&gpu, &format!("{name} M = {m} {element:?}"), &plan, &inputs, &reference);
                let mut again = pipeline(&gpu, &plan, &inputs, Options::default());
                again.prepare().expect("memory");
                assert!(again.by_library().all(|stage| stage != "late"), "cuBLASLt has no such epilogue");
            }
        }
    }
}

/// cuBLASLt's GEMM followed by our rotation; `library` uses it or our GEMM, whichever is faster.
#[test]
fn heads_of_the_librarys_product_are_rotated() {
    let Some(gpu) = installed().filter(|gpu| gpu.device.capability().0 >= 9) else { return };
    for (heads, kv_heads, dim) in [(8, 1, 128), (4, 2, 64)] {
        for element in [Element::F16, Element::Bf16] {
            let source = format!(
                r#"Pipeline(name: "heads", dims: {{ "S": 100, "E": 512, "HQ": {heads}, "HKV": {kv_heads}, "D": {dim} }}, stages: [
                    RotatedGemm(name: "qkv", a: "X(2*S,E)", b: "W(E,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "2",
                        rotary: "cs(S+28,D)", out: "QKV(2*S,(HQ+2*HKV)*D)"),
                ])"#
            );
            let overrides = Overrides { element: Some(element), ..Overrides::default() };
            let plan = plan_of(&gpu, &source, &overrides, Executor::Library);
            let (inputs, reference) = expected(&gpu, &plan, 1, 3);
            let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
            pipeline.prepare().expect("memory");
            pipeline.poison_outputs().expect("memory");
            let bound = pipeline.bound_stage(0, 0).expect("bound");
            let stream = Stream::new(&gpu.device).expect("a stream");
            CublasLt::new(&gpu.device, bound, true)
                .expect("an algorithm")
                .launch(&stream)
                .expect("it is queued");
            stream.synchronize().expect("it runs");
            assert_right(
                &format!("{heads} heads of {dim} {element:?}"),
                &reference.compare(&mut pipeline).expect("compared"),
            );
        }
    }
}

#[test]
fn sets_of_weights_share_what_was_decided() {
    let Some(gpu) = installed() else { return };
    let overrides = Overrides { dims: vec![("M".into(), 256)], ..Overrides::default() };
    let plan = plan_of(&gpu, shipped("llama65_mlp").expect("it ships"), &overrides, Executor::Library);
    let (inputs, _) = expected(&gpu, &plan, 2, 5);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    for set in [0, 1] {
        pipeline.poison_outputs().expect("memory");
        pipeline.run_set(Executor::Library, set).expect("it is queued");
        pipeline.synchronize().expect("it runs");
        let reference = Reference::new(&mut pipeline, set).expect("a reference");
        assert_right(&format!("set {set}"), &reference.compare(&mut pipeline).expect("a comparison"));
    }
}
