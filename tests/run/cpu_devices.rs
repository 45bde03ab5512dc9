//! Groups of devices on host threads: sums over devices are right, and equal on all devices to the bit.

use std::collections::HashMap;

use cusync::inputs::Inputs;
use cusync::prelude::*;
use cusync::reference::{Judge, ReferenceError};
use cusync::runtime::cpu::{CpuOptions, Workers};
use cusync::runtime::{Overrides, plan_text};

/// Two MLPs in a row. `devices` devices have a part of the inner columns each.
fn spec(devices: u32) -> String {
    format!(
        r#"Pipeline(name: "chain", dims: {{ "M": 5, "H": 136, "I": 72 }}, devices: {devices}, stages: [
            Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
            Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)", all_reduce: true, bias: "c(H)", residual: "X(M,H)"),
            Gemm(name: "again", a: "Z(M,H)", b: "W3(H,I)", out: "U(M,I)"),
            Gemm(name: "end", a: "U(M,I)", b: "W4(I,H)", out: "V(M,H)", all_reduce: true, residual: "Z(M,H)",
                residual_at: BeforeActivation, epilogue: Relu),
        ])"#
    )
}

/// A plan for a device with few workers, whose shares differ in size.
fn plan(devices: u32, m: u64, executor: Executor) -> Plan {
    let h200 = Profile::named("h200").expect("it ships");
    let few = Profile { sms: 5, ..h200.clone() };
    let overrides = Overrides { dims: vec![("M".into(), m)], ..Overrides::default() };
    plan_text(&spec(devices), "chain", &overrides, &few, executor).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a group with new inputs each time. The tensors that all devices have are the same on all.
fn verify(plan: &Plan, options: CpuOptions, runs: u64) {
    let mut group = Group::of_plan(plan, options);
    let devices = group.devices();
    assert_eq!(devices, plan.graph().devices() as usize);
    for run in 0..runs {
        group.set_random(100 * run).expect("small");
        for name in ["X", "c"] {
            let (rows, cols) = group.session(0).expect("a device").shape(name).expect("a tensor");
            let values: Vec<f32> =
                (0..rows * cols).map(|i| ((i as u64 * 7 + run) % 19) as f32 / 16.0 - 0.5).collect();
            for device in 0..devices {
                group.session_mut(device).and_then(|s| s.set_f32(name, &values)).expect("an input");
            }
        }
        group.run().unwrap_or_else(|e| panic!("run {run}: {e}"));
        let judged = group.verify().expect("it ran");
        assert_eq!(judged.len(), devices);
        for (device, tensor) in
            judged.iter().enumerate().flat_map(|(d, list)| list.iter().map(move |t| (d, t)))
        {
            assert!(tensor.verified, "device {device} of {devices}, run {run}: {tensor}");
        }
        for name in ["Z", "V"] {
            let read = |device| group.session(device).and_then(|s| s.read_f32(name)).expect("it ran");
            let bits = |device| read(device).into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert!((1..devices).all(|device| bits(device) == bits(0)), "{name} differs in run {run}");
        }
        let parts = |device| group.session(device).and_then(|s| s.read_f32("Y")).expect("it ran");
        assert_ne!(parts(0), parts(1), "each device has weights of its own");
    }
}

#[test]
fn tiles_are_summed_over_devices() {
    for devices in [2, 3, 4, 8] {
        for m in [1, 5, 32] {
            for workers in [Workers::Pool, Workers::TeamPerStage] {
                let options = CpuOptions { threads: 2, workers, ..CpuOptions::default() };
                verify(&plan(devices, m, Executor::Cpu), options, 5);
            }
        }
    }
}

#[test]
fn shares_of_decode_plans_are_summed_over_devices() {
    for devices in [2, 3, 4, 8] {
        for m in [1, 5, 32] {
            let plan = plan(devices, m, Executor::Fused);
            let shares = plan.launch().shares().expect("a decode plan");
            let columns: Vec<u32> = shares
                .work
                .sequence
                .iter()
                .filter(|item| item.stage.0 == 1)
                .map(|item| {
                    plan.graph().stages[1].writes(cusync_gen::sync::Tile { m: item.m, n: item.n }).1.len()
                        as u32
                })
                .collect();
            assert!(columns.iter().any(|width| *width != columns[0]), "shares of unequal size: {columns:?}");
            verify(&plan, CpuOptions::default(), 5);
        }
    }
}

#[test]
fn a_device_of_a_group_does_not_run_alone() {
    let mut group = Group::of_plan(&plan(2, 1, Executor::Cpu), CpuOptions::default());
    assert!(matches!(group.run(), Err(SessionError::Device { device: 0, .. })), "it has no inputs");
    group.set_random(1).expect("small");
    assert!(matches!(group.verify(), Err(SessionError::Elsewhere(_))));
    let alone = group.session_mut(1).expect("a device").run();
    assert!(alone.expect_err("refused").to_string().contains("Group::run"));
    assert!(matches!(group.session(2).err(), Some(SessionError::NoDevice { device: 2, devices: 2 })));
    group.run().expect("all run");
    group.run().expect("again");
}

#[test]
fn sums_are_judged_with_the_operands_of_all_devices() {
    let plan = plan(2, 5, Executor::Cpu);
    let graph = plan.graph();
    let inputs = [1, 2].map(|seed| Inputs::random(graph, seed));
    let alone = Judge::new(graph, &inputs[0], HashMap::new());
    assert!(matches!(alone.err(), Some(ReferenceError::Devices { devices: 2, have: 1, .. })));
    let mut group = Group::of_plan(&plan, CpuOptions::default());
    group.set_random(1).expect("small");
    group.run().expect("all run");
    let read = |device: usize, name: &str| group.session(device).and_then(|s| s.read_f32(name)).ok();
    let judge = Judge::with_devices(graph, inputs.iter().collect(), HashMap::new()).expect("all have inputs");
    let verified = |found: &dyn Fn(usize, &str) -> Option<Vec<f32>>| {
        let judged = judge.compare_device(0, found).expect("it ran");
        judged.into_iter().filter(|tensor| !tensor.verified).map(|tensor| tensor.tensor).collect::<Vec<_>>()
    };
    assert!(verified(&read).is_empty());
    // The other device had other activations.
    let other = |device: usize, name: &str| read(if name == "Y" { 0 } else { device }, name);
    assert_eq!(verified(&other), ["Z"]);
}
