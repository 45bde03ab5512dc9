//! Mechanisms that keep consumers off SMs that producers still need (gates, for kernels without triggers), and that
//! keep workers from waiting for workers without an SM.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{assert_runs_right, gpu, pipeline, plan};
use crate::faults::Expected;
use crate::fused::{expected, hopper};
use cusync::device::{
    Arg, DeviceBuffer, Event, Kernel, KernelCall, LaunchAttributes, Module, Shape, Stream, TimeoutReport,
    WorkDistribution,
};
use cusync::runtime::{InputSets, Options, Overrides, Result, plan_text, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::sync::Policy;

/// The plan of a shipped spec for sm_80 kernels, which also run on every later GPU.
fn older(gpu: &crate::common::Gpu, name: &str, m: u64) -> Plan {
    let mut profile = gpu.device.profile().expect("checked when the GPU was opened");
    profile.arch = 80;
    let dims = vec![("M".into(), m)];
    let overrides = Overrides { dims, policy: Some(Policy::Row), ..Overrides::default() };
    let source = shipped(name).expect("it ships");
    plan_text(source, "test.ron", &overrides, &profile, Executor::Streams).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn streams_of_kernels_for_sm80_are_right() {
    let Some(gpu) = gpu() else { return };
    for (name, m) in [("two_gemms", 256), ("diamond", 512), ("llama65_mlp", 200)] {
        let plan = older(&gpu, name, m);
        assert!(plan.launch().has_gates(plan.device().arch) && plan.launch().has_semaphores());
        let (inputs, reference) = expected(&gpu, &plan, 1, 51);
        assert_runs_right(&gpu, &format!("{name} M = {m} sm_80"), &plan, &inputs, &reference);
    }
}

/// A gate on its own stream, before a kernel that is launched later: work after the gate runs after that launch, in the
/// second run too, although the counter keeps the first run's value.
#[test]
fn a_gate_waits_for_the_draws_of_its_run() {
    let Some(gpu) = gpu() else { return };
    let plan = older(&gpu, "two_gemms", 256);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 52).expect("inputs fit");
    let pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let attempt = || -> Result<()> {
        let mut args = pipeline.alone(0, 0)?;
        let WorkDistribution::Order { order, .. } = args.work else {
            panic!("a kernel of a stage has an order")
        };
        args.work = WorkDistribution::Order { order, drawn: true };
        let tickets = Arc::new(DeviceBuffer::zeroed(&gpu.device, 1, "a counter")?);
        args.sync.tickets = Some((tickets.clone(), 0));
        args.sync.report = Some(Arc::new(TimeoutReport::new(&gpu.device)?));
        let kernel = Kernel::new(&gpu.device, args)?;
        let runs = DeviceBuffer::zeroed(&gpu.device, 1, "words of gates")?;
        let (behind, before) = (Stream::new(&gpu.device)?, Stream::new(&gpu.device)?);
        let event = || Event::timing(&gpu.device);
        let (begun, passed, launched) = (event()?, event()?, event()?);
        for run in 1..=3u64 {
            behind.record(&begun)?;
            kernel.hold_back(&behind, &runs, 0, (0, 1))?;
            behind.record(&passed)?;
            std::thread::sleep(Duration::from_millis(20));
            before.record(&launched)?;
            kernel.launch(LaunchAttributes { stream: &before, started: None, programmatic: false })?;
            behind.synchronize()?;
            before.synchronize()?;
            let (after, waited) = (passed.us_since(&launched)?, passed.us_since(&begun)?);
            println!("run {run}: {waited:.0} us behind the gate, {after:.1} us after the launch");
            assert!(after > 0.0 && waited > 10_000.0, "run {run}: {waited} us, {after} us after the launch");
            let (tiles, workers) = (u64::from(order.grid_m * order.grid_n), u64::from(kernel.grid().0));
            let mut drawn = [0];
            tickets.download(&mut drawn)?;
            assert_eq!(drawn[0], run * (tiles + workers), "tickets of {run} runs");
        }
        Ok(())
    };
    attempt().unwrap_or_else(|e| panic!("{e}"));
}

/// Workers that wait for each other start together: another kernel that holds 16 SMs for longer than the wait limit
/// only delays a plain launch.
#[test]
fn work_that_keeps_some_sms_delays_a_plain_launch() {
    const KEPT_NS: u32 = 50_000_000;
    let Some(gpu) = hopper() else { return };
    let attempt = |m: u64| -> Result<()> {
        let overrides = Overrides { dims: vec![("M".into(), m)], ..Overrides::default() };
        let plan = plan(&gpu, "llama65_mlp", &overrides, Executor::Fused);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 53)?;
        let options = Options { timeout_ns: 5_000_000, ..Options::default() };
        let mut pipeline = pipeline(&gpu, &plan, &inputs, options);
        pipeline.run(Executor::Fused)?;
        let expected = Expected::new(&mut pipeline)?;
        let delay = Arc::new(DeviceBuffer::from_slice(&gpu.device, &[KEPT_NS], "a delay")?);
        let mut args = vec![Arg::Null; 6];
        args.extend([0u32; 6].map(Arg::U32));
        args.extend([Arg::Words(delay, 0), Arg::Null]);
        let shape = Shape { grid: [48, 1, 1], block: [1024, 1, 1], shared_bytes: 0 };
        let keeper = KernelCall::new(&Module::suite(&gpu.device)?.function("spin")?, shape, &args)?;
        let beside = Stream::new(&gpu.device)?;
        pipeline.poison_outputs()?;
        pipeline.synchronize()?;
        let event = || Event::timing(&gpu.device);
        let (begin, kept, ended) = (event()?, event()?, event()?);
        beside.record(&begin)?;
        beside.launch(&keeper, false)?;
        beside.record(&kept)?;
        std::thread::sleep(Duration::from_millis(5));
        pipeline.run(Executor::Fused)?;
        pipeline.stream().record(&ended)?;
        expected.compare(&pipeline)?;
        assert!(expected.differing(&mut pipeline)?.is_empty(), "M = {m}: another result");
        beside.synchronize()?;
        let [kept, ended] = [kept, ended].map(|event| event.us_since(&begin));
        let (kept, ended) = (kept?, ended?);
        println!("M = {m}: ends at {ended:.0} us beside a kernel that keeps 16 SMs until {kept:.0} us");
        assert!(ended > kept, "M = {m}: the other kernel kept no SM that was needed");
        Ok(())
    };
    for m in [8, 512] {
        attempt(m).unwrap_or_else(|e| panic!("M = {m}: {e}"));
    }
}
