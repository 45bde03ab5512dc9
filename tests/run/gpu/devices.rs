//! Sums over two GPUs are right and have the same bits on both, whichever GPU is ahead. A GPU that never runs is an error.

use std::time::Duration;

use cusync::device::{Device, kernels_of};
use cusync::ffi;
use cusync::runtime::{Error, Options};
use cusync::{Group, SessionError};
use cusync_gen::check::Executor;

use crate::common::{gpu, quick};

/// Shares of unequal size, an attention, biases, and every kind of epilogue that a sum can have.
const PAGE: &str = r#"Pipeline(
    name: "halves", element: Bf16, devices: 2,
    dims: { "B": 8, "S": 300, "E": 520, "HQ": 8, "HKV": 2, "D": 64, "I": 1048 },
    stages: [
        Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)",
            input_norm: InputNorm(gain: "g1(E)")),
        Attention(name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", rotary: "cs(S,D)",
            cache: Cache(keys: "K(B,HKV,S,D)", values: "V(B,HKV,S,D)", lengths: "n(B)"), out: "A(B,HQ*D)"),
        Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", all_reduce: true, residual: "X(B,E)", out: "H(B,E)"),
        GatedGemm(name: "gate_up", a: "H(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", out: "Y(B,I)",
            input_norm: InputNorm(gain: "g2(E)")),
        Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", bias: "b(E)", all_reduce: true, residual: "H(B,E)", out: "Z(B,E)"),
        Gemm(name: "last", a: "Z(B,E)", b: "Wl(E,E)", epilogue: Relu, all_reduce: true, out: "L(B,E)"),
    ],
)"#;

/// Two Hopper GPUs, or a line that says why the test is skipped.
fn two() -> Option<[Device; 2]> {
    let hopper = |ordinal| Device::open(ordinal).ok().filter(|device| device.capability() == (9, 0));
    let found = hopper(0).zip(hopper(1)).filter(|_| !kernels_of(ffi::CUSYNC_FAMILY_DECODE).is_empty());
    if found.is_none() {
        println!("skipped: needs two GPUs of compute capability 9.0, and kernels for them");
    }
    found.map(|(first, second)| [first, second])
}

/// A group on the GPUs with random inputs.
fn group(devices: &[Device; 2], rows: u64, options: Options, seed: u64) -> Group {
    let mut group = Group::on_gpus(PAGE, &[("B", rows)], devices, options).expect("planned");
    fill(&mut group, seed);
    group
}

/// Random weights and caches, and equal values of what all devices have: the hidden states and the last bias.
fn fill(group: &mut Group, seed: u64) {
    group.set_random(seed).expect("inputs fit");
    for device in 0..group.devices() {
        let session = group.session_mut(device).expect("it is there");
        for name in ["X", "b"] {
            let (rows, cols) = session.shape(name).expect("an input");
            let values: Vec<f32> =
                (0..rows * cols).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
            session.set_f32(name, &values).expect("it fits");
        }
    }
}

fn outputs(group: &Group) -> [Vec<Vec<f32>>; 2] {
    [0, 1].map(|device| {
        let session = group.session(device).expect("there are two");
        ["H", "Z", "L"].map(|name| session.read_f32(name).expect("it ran")).to_vec()
    })
}

fn error(found: &[f32], expected: &[f32]) -> f64 {
    let norm =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
}

#[test]
fn sums_over_gpus_are_those_of_the_host() {
    let Some(_turn) = gpu() else { return };
    let Some(devices) = two() else { return };
    let sizes: &[u64] = if quick() { &[1, 32] } else { &[1, 2, 5, 8, 9, 16, 17, 32] };
    for &rows in sizes {
        let mut found = group(&devices, rows, Options::default(), 3 + rows);
        let mut expected = Group::on_host(PAGE, &[("B", rows)]).expect("planned");
        fill(&mut expected, 3 + rows);
        expected.run().expect("right");
        let [want, _] = outputs(&expected);
        let mut first = None;
        for run in 0..4 {
            found.run().expect("right");
            let [one, two] = outputs(&found);
            assert!(one == two, "{rows} rows, run {run}: the GPUs have different bits");
            for (name, (found, want)) in ["H", "Z", "L"].iter().zip(one.iter().zip(&want)) {
                let error = error(found, want);
                assert!(error < 1e-2, "{rows} rows, run {run}: {name} is off by {error}");
            }
            assert!(
                *first.get_or_insert(one.clone()) == one,
                "{rows} rows: run {run} has other bits than run 0"
            );
        }
    }
}

#[test]
fn a_gpu_that_is_ahead_or_late_changes_nothing() {
    let Some(_turn) = gpu() else { return };
    let Some(devices) = two() else { return };
    for rows in [1, 32] {
        let mut group = group(&devices, rows, Options::default(), 40);
        group.run().expect("right");
        let first = outputs(&group);
        let runs = if quick() { 300 } else { 3000 };
        // Each GPU is held up in turn: by its host now and then, and once for a tenth of a second.
        group
            .each(&|device, session| {
                for run in 0..runs {
                    if run % 97 == 31 * device {
                        std::thread::sleep(Duration::from_micros(400));
                    }
                    if run == 200 + device {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    let pipeline = session.pipeline()?;
                    pipeline.run(Executor::Fused)?;
                    if run % 50 == 0 {
                        pipeline.synchronize()?;
                    }
                }
                Ok(session.pipeline()?.synchronize()?)
            })
            .expect("right");
        assert!(outputs(&group) == first, "{rows} rows: other bits after {runs} runs");
    }
}

const ROLE: &str = "CUSYNC_ALONE_CHILD";

/// The child process: one of two GPUs runs alone, and its context is lost.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let devices = two().expect("the parent saw two");
    let mut group = group(&devices, 4, Options { timeout_ns: 160_000_000, ..Options::default() }, 5);
    group.run().expect("both run");
    let pipeline = group.session_mut(0).expect("it is there").pipeline().expect("on a GPU");
    pipeline.run(Executor::Fused).expect("queued");
    let error = pipeline.synchronize().expect_err("the other GPU does not run");
    println!("{error}");
    // Run 2 uses the other set of places, which has no sums yet.
    let Error::NoSums { stage, device: 0, sender: 1, have: 0, want: 2, .. } = &error else {
        panic!("not the error of a missing sum: {error}")
    };
    assert_eq!(stage, "project");
    assert!(matches!(pipeline.run(Executor::Fused), Err(Error::Poisoned(_))));
}

#[test]
fn a_gpu_that_never_runs_is_named() {
    let Some(_turn) = gpu() else { return };
    let Some(_) = two() else { return };
    let child = std::process::Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", "devices::child", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .output()
        .expect("the child starts");
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{}\n{out}{err}", child.status);
    assert!(out.contains("stage project: device 0 waited 0.1 s for the sums of device 1"), "{out}{err}");
}

#[test]
fn a_group_needs_as_many_gpus_as_its_page_states() {
    let Some(gpu) = gpu() else { return };
    let one = [gpu.device.clone()];
    let error = Group::on_gpus(PAGE, &[], &one, Options::default()).err().expect("one GPU is too few");
    assert!(matches!(error, SessionError::Runtime(Error::Unsupported(_))), "{error}");
    let same = [gpu.device.clone(), gpu.device.clone()];
    let error = Group::on_gpus(PAGE, &[], &same, Options::default()).err().expect("the same GPU twice");
    assert!(error.to_string().contains("the same GPU"), "{error}");
}
