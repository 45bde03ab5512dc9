//! Custom stages with kernels of their own, compiled by NVRTC, between products of the library.

use std::collections::HashMap;

use crate::common::{Gpu, assert_right, executors, gpu, pipeline, plan_of};
use cusync::device::{Error as DeviceError, KernelCode};
use cusync::reference::{CustomReference, Matrix, Wrong};
use cusync::runtime::verify::{Accuracy, Reference};
use cusync::runtime::{Error, InputSets, Options, Overrides, Pipeline};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::Element;
use cusync_gen::sync::Policy;

const ROLE: &str = "CUSYNC_CUSTOM_CHILD";

const NORM: &str = include_str!("../../../examples/custom/norm.ron");
const NORM_KERNEL: &str = include_str!("../../../examples/custom/norm.cu");

/// Adds blocks of columns along k, and a row of an input. It has two consumers.
const FOLD: &str = r#"Pipeline(name: "folded", dims: { "M": 200, "H": 512 }, stages: [
    Gemm(name: "before", a: "X(M,H)", b: "W0(H,H)", out: "Y(M,H)"),
    Custom(
        name: "fold", tile: (32, 64), k_blocks: "H/64", writes: "N(M,64)",
        reads: [
            Read(tensor: "Y(M,H)", rows: "32*m..32*m + 32", cols: "64*k..64*k + 64"),
            Read(tensor: "C(8,64)", rows: "0..1", cols: "0..64"),
        ],
    ),
    Gemm(name: "left", a: "N(M,64)", b: "W1(64,H)", out: "L(M,H)"),
    Gemm(name: "right", a: "L(M,H)", b: "W2(H,64)", residual: "N(M,64)", out: "R(M,64)"),
])"#;

/// Its tiles have constant sizes from the plan's header; threads keep their sums in registers.
const FOLD_KERNEL: &str = r#"
#include <cusync/custom.cuh>
#include "folded.h"
using S = cusync::plans::folded::stage_fold;

extern "C" __global__ void unused(int) {}

extern "C" __global__ void __launch_bounds__(128) fold(const __grid_constant__ cusync_custom parameters) {
  cusync::CustomStage stage(parameters);
  while (stage.next_tile()) {
    constexpr uint32_t kEach = S::tile_rows * S::tile_cols / 128;
    float sums[kEach] = {};
    for (uint32_t k = 0; k < stage.k_blocks(); ++k) {
      stage.wait(0, k);
      stage.wait(1, k);
      auto const [rows, cols] = stage.box(0, k);
      for (uint32_t i = 0; i < kEach; ++i) {
        uint32_t const at = i * 128 + threadIdx.x, row = rows.begin + at / S::tile_cols;
        if (row < rows.end) sums[i] += stage.load(0, row, cols.begin + at % S::tile_cols);
      }
    }
    auto const [rows, cols] = stage.box();
    for (uint32_t i = 0; i < kEach; ++i) {
      uint32_t const at = i * 128 + threadIdx.x, row = rows.begin + at / S::tile_cols, col = at % S::tile_cols;
      if (row < rows.end) stage.store(row, col, sums[i] + stage.load(1, 0, col));
    }
    stage.post();
  }
}"#;

fn normalise(reads: &[Matrix]) -> Matrix {
    let mut out = reads[0].clone();
    for row in out.data.chunks_mut(out.cols) {
        let squares: f32 = row.iter().map(|x| x * x).sum();
        let scale = (squares / row.len() as f32 + 1e-6).sqrt().recip();
        row.iter_mut().for_each(|x| *x *= scale);
    }
    out
}

fn fold(reads: &[Matrix]) -> Matrix {
    let (y, c) = (&reads[0], &reads[1]);
    let row = |row: &[f32]| -> Vec<f32> {
        (0..64).map(|col| row.iter().skip(col).step_by(64).sum::<f32>() + c.data[col]).collect()
    };
    Matrix { rows: y.rows, cols: 64, data: y.data.chunks(y.cols).flat_map(row).collect() }
}

/// A pipeline with a Custom stage, and the stage's kernel and reference.
struct Case {
    spec: &'static str,
    stage: &'static str,
    kernel: &'static str,
    form: fn(&[Matrix]) -> Matrix,
}

const CASES: [Case; 2] = [
    Case { spec: NORM, stage: "norm", kernel: NORM_KERNEL, form: normalise },
    Case { spec: FOLD, stage: "fold", kernel: FOLD_KERNEL, form: fold },
];

/// A plan that waits for tiles, unless it is serial.
fn overlapped(gpu: &Gpu, spec: &str, rows: u64, element: Element, executor: Executor) -> Plan {
    let overrides = Overrides {
        dims: vec![("M".into(), rows), ("H".into(), 512)],
        element: Some(element),
        policy: Some(Policy::Row),
        ..Overrides::default()
    };
    plan_of(gpu, spec, &overrides, executor)
}

/// Sets the kernel; `false`, and a line that says so, without NVRTC.
fn with_kernel(pipeline: &mut Pipeline, stage: &str, kernel: &str) -> bool {
    match pipeline.set_kernel(stage, &KernelCode::source("own.cu", kernel)) {
        Ok(()) => true,
        Err(Error::Device(DeviceError::NoLibrary(name))) => {
            println!("skipped: no {name}");
            false
        }
        Err(other) => panic!("{stage}: {other}"),
    }
}

#[test]
fn kernels_of_ones_own_run_between_products() {
    let Some(gpu) = gpu() else { return };
    let executors = executors(&gpu).into_iter().chain([Executor::Library]);
    for (executor, case) in executors.flat_map(|executor| CASES.iter().map(move |case| (executor, case))) {
        for (rows, element) in [(8, Element::F16), (200, Element::Bf16), (1500, Element::F16)] {
            let label = format!("{} of {rows} rows, {element:?}, {executor:?}", case.stage);
            let plan = overlapped(&gpu, case.spec, rows, element, executor);
            let inputs = InputSets::random(plan.graph(), &gpu.device, 2, 41).expect("inputs fit");
            let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
            if !with_kernel(&mut pipeline, case.stage, case.kernel) {
                return;
            }
            let forms =
                HashMap::from([(case.stage.to_owned(), Box::new(case.form) as CustomReference<'static>)]);
            let reference = Reference::with_forms(&mut pipeline, 0, forms).expect("the reference runs");
            let mut all = || -> cusync::runtime::Result<()> {
                let (one, both) = (pipeline.capture(executor, &[0])?, pipeline.capture(executor, &[1, 0])?);
                // Eager runs, graph replays, and serial runs in between, which must not disturb the counters.
                for run in 0..24 {
                    pipeline.poison_outputs()?;
                    match run % 4 {
                        0 => pipeline.run(executor)?,
                        1 => pipeline.replay(&one)?,
                        2 => pipeline.replay(&both)?,
                        _ => {
                            pipeline.run_set(Executor::Serial, 1)?;
                            pipeline.run(executor)?;
                        }
                    }
                    let outputs = reference.compare(&mut pipeline)?;
                    assert_eq!(outputs.len(), plan.graph().stages.len(), "{label}: every stage is compared");
                    assert_right(&format!("{label}, run {run}"), &outputs);
                }
                Ok(())
            };
            all().unwrap_or_else(|e| panic!("{label}: {e}"));
        }
    }
}

#[test]
fn a_fork_has_the_same_kernels() {
    let Some(gpu) = gpu() else { return };
    let plan = overlapped(&gpu, NORM, 200, Element::F16, Executor::Streams);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 42).expect("inputs fit");
    let mut first = pipeline(&gpu, &plan, &inputs, Options::default());
    if !with_kernel(&mut first, "norm", NORM_KERNEL) {
        return;
    }
    let mut fork = first.fork().expect("memory for two");
    let reference = Reference::new(&mut first, 0).expect("the reference runs");
    fork.poison_outputs().expect("memory");
    fork.run(Executor::Streams).expect("it is queued");
    first.run(Executor::Streams).expect("it is queued");
    assert_right("first", &reference.compare(&mut first).expect("it ran"));
    let forked = Reference::new(&mut fork, 0).expect("the reference runs");
    assert_right("fork", &forked.compare(&mut fork).expect("it ran"));
}

/// Verdicts on a run by a kernel, without a form for it.
fn given(gpu: &Gpu, kernel: &str) -> Option<Vec<Accuracy>> {
    let plan = overlapped(gpu, NORM, 200, Element::F16, Executor::Serial);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 43).expect("inputs fit");
    let mut pipeline = pipeline(gpu, &plan, &inputs, Options::default());
    if !with_kernel(&mut pipeline, "norm", kernel) {
        return None;
    }
    let reference = Reference::new(&mut pipeline, 0).expect("the reference runs");
    pipeline.poison_outputs().expect("memory");
    pipeline.run(Executor::Serial).expect("it is queued");
    Some(reference.compare(&mut pipeline).expect("it ends"))
}

#[test]
fn what_a_kernel_stores_is_taken_as_given_and_must_be_stored() {
    let Some(gpu) = gpu() else { return };
    let Some(outputs) = given(&gpu, NORM_KERNEL) else { return };
    let names: Vec<&str> = outputs.iter().map(|output| output.tensor.as_str()).collect();
    assert_eq!(names, ["Y", "Z"], "N is taken as given");
    assert_right("around the kernel", &outputs);
    let lazy = NORM_KERNEL.replace("row < rows.end; ++row", "row < rows.end; row += 2");
    let outputs = given(&gpu, &lazy).expect("NVRTC was there");
    let verdict = outputs.iter().find(|output| output.tensor == "N").expect("it is noticed");
    assert_eq!(verdict.wrong, Some(Wrong::NoNumber(1, 0)), "{verdict}");
}

#[test]
fn kernels_that_do_not_fit_are_refused_by_name() {
    let Some(gpu) = gpu() else { return };
    let plan = overlapped(&gpu, NORM, 200, Element::F16, Executor::Streams);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 44).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    assert_eq!(pipeline.run(Executor::Streams), Err(Error::NoKernel("norm".into())));
    let mut refused = |stage: &str, kernel: &str| {
        let code = KernelCode::source("own.cu", kernel);
        pipeline.set_kernel(stage, &code).expect_err("it does not fit").to_string()
    };
    let error = refused("before", NORM_KERNEL);
    assert!(error.contains("no custom stage `before`"), "{error}");
    let error = refused("norm", "extern \"C\" __global__ void other(int) {}");
    if error.contains("pip install") {
        println!("skipped: {error}");
        return;
    }
    assert!(error.contains("own.cu: the parameters of `other`"), "{error}");
    let error = refused("norm", "__global__ void one(int) {}\n__global__ void two(int) {}");
    assert!(error.contains("there is no kernel `norm`") && error.contains("two"), "{error}");
    let error = refused("norm", "extern \"C\" __global__ void norm(int x) { x = }");
    assert!(error.contains("own.cu(1): error"), "{error}");
}

/// The child process: a kernel forgets to post. Without the variable it does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let executor = if role == "streams" { Executor::Streams } else { Executor::Programmatic };
    let gpu = gpu().expect("the parent saw a GPU");
    let plan = overlapped(&gpu, NORM, 512, Element::F16, executor);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 45).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let forgets = NORM_KERNEL.replace("stage.post();", "");
    assert!(with_kernel(&mut pipeline, "norm", &forgets), "the parent saw NVRTC");
    pipeline.run(executor).expect("kernels are queued");
    let error = pipeline.synchronize().expect_err("no post ever comes");
    println!("{error}");
    let Error::Starved { edge, consumer, .. } = &error else { panic!("not a starved edge: {error}") };
    assert_eq!((edge.as_str(), consumer.as_str()), ("norm -> after (N)", "after"));
}

#[test]
fn a_kernel_that_forgets_its_post_ends_in_an_error_that_names_the_edge() {
    let Some(gpu) = gpu() else { return };
    match KernelCode::source("own.cu", NORM_KERNEL).compile(gpu.device.capability(), None) {
        Ok(_) => {}
        Err(DeviceError::NoLibrary(name)) => return println!("skipped: no {name}"),
        Err(other) => panic!("{other}"),
    }
    for executor in executors(&gpu).into_iter().filter(|e| *e != Executor::Serial) {
        let role = cusync::runtime::executor_name(executor);
        let this = std::env::current_exe().expect("this binary has a path");
        let child = std::process::Command::new(this)
            .args(["--exact", "custom::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .output()
            .expect("the child starts");
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success(), "{role}: {}\n{out}{err}", child.status);
        assert!(out.contains("edge norm -> after (N): after tile"), "{role}:\n{out}{err}");
    }
}
