//! Kernel programs on a GPU: every form of every benchmark matches its reference, order holds under delays, copies
//! upload and download data, and a captured stream can be rescheduled.

use std::sync::Arc;

use cusync::device::{Device, Image, Module, Stream};
use cusync::programs::{AddressMap, BoundRecording, Calls, Declaration, Error, Executable};
use cusync_bench::dag::SpinProgram;
use cusync_bench::dag::suite::{Case, NAMES, SizeClass, WITH_COPIES, case, case_with_copies};
use cusync_dag::{
    Admit, BufferId, Evidence, Form, KernelSchedule, NodeId, Program, Recording, Refine, ScheduleOptions,
    StreamPlan, refine, schedule,
};
use cusync_gen::device::DEVICES;

use crate::common::{Gpu, gpu, quick};

struct Rig {
    _gpu: Gpu,
    device: Device,
    module: Module,
    main: Arc<Stream>,
    forms: Vec<Form>,
}

fn rig() -> Option<Rig> {
    let gpu = gpu()?;
    let device = gpu.device.clone();
    let module = Module::suite(&device).expect("built with the other kernels");
    let main = Arc::new(Stream::new(&device).expect("a stream"));
    let early = device.capability().0 >= 9;
    let forms = Form::ALL.into_iter().filter(|f| early || !f.is_programmatic()).collect();
    Some(Rig { _gpu: gpu, device, module, main, forms })
}

impl Rig {
    fn schedule(&self, program: &Program) -> KernelSchedule {
        self.admitted(program, Admit::Model)
    }

    fn admitted(&self, program: &Program, admit: Admit) -> KernelSchedule {
        let options = ScheduleOptions { forms: self.forms.clone(), admit, ..ScheduleOptions::default() };
        schedule(program, &options).expect("no limit")
    }
}

fn suite_case(name: &str) -> Case {
    case(name, SizeClass::Small).expect("a name of the suite").expect("a valid program")
}

fn run_once(bound: &BoundRecording, exec: &Executable, case: &Case) -> Result<(), String> {
    bound.reset(&case.outputs()).expect("reset");
    exec.launch().expect("launched");
    exec.synchronize().map_err(|e| e.to_string())?;
    case.checks.iter().try_for_each(|check| check.verify(&bound.download(check.buffer).expect("downloaded")))
}

#[test]
fn every_form_of_every_benchmark_is_right() {
    let Some(rig) = rig() else { return };
    for name in NAMES {
        let case = suite_case(name);
        let bound = BoundRecording::new(&case.recording, &rig.device, &rig.module).expect("bound");
        let schedule = rig.schedule(bound.program());
        for &form in &rig.forms {
            let exec = bound.executable(&rig.main, &schedule, form).expect("built");
            for run in 0..2 {
                run_once(&bound, &exec, &case)
                    .unwrap_or_else(|e| panic!("{name}, {}, {run}: {e}", form.name()));
            }
        }
        let by_hand = bound.calls().planned(&rig.main, case.hand.clone()).expect("built");
        run_once(&bound, &by_hand, &case).unwrap_or_else(|e| panic!("{name}, by hand: {e}"));
        let captured = bound.calls().planned(&rig.main, case.hand.clone().captured()).expect("captured");
        run_once(&bound, &captured, &case).unwrap_or_else(|e| panic!("{name}, captured: {e}"));
    }
}

#[test]
fn outputs_that_nothing_wrote_are_seen() {
    let Some(rig) = rig() else { return };
    let case = suite_case("VEC");
    let bound = BoundRecording::new(&case.recording, &rig.device, &rig.module).expect("bound");
    bound.reset(&case.outputs()).expect("reset");
    let words = bound.download(case.checks[0].buffer).expect("downloaded");
    assert!(case.checks[0].verify(&words).is_err(), "poison passed for a result");
}

#[test]
fn copies_bring_inputs_and_fetch_results() {
    let Some(rig) = rig() else { return };
    for name in WITH_COPIES {
        let case = case_with_copies(name, SizeClass::Small).expect("a name").expect("a valid program");
        let bound = BoundRecording::new(&case.recording, &rig.device, &rig.module).expect("bound");
        let by_hand = bound.calls().planned(&rig.main, case.hand.clone()).expect("built");
        run_once(&bound, &by_hand, &case).unwrap_or_else(|e| panic!("{name} with copies, by hand: {e}"));
    }
    for name in ["VEC", "ML", "IMG", "DL"] {
        let plain = suite_case(name);
        let recording = plain.recording.with_copies(&plain.outputs()).expect("a valid program");
        let case = Case { recording, ..plain };
        let bound = BoundRecording::new(&case.recording, &rig.device, &rig.module).expect("bound");
        let schedule = rig.schedule(bound.program());
        for &form in &rig.forms {
            let exec = bound.executable(&rig.main, &schedule, form).expect("built");
            run_once(&bound, &exec, &case)
                .unwrap_or_else(|e| panic!("{name} with copies, {}: {e}", form.name()));
        }
    }
}

#[test]
fn orders_hold_under_injected_delays() {
    let Some(rig) = rig() else { return };
    for seed in 0..if quick() { 10 } else { 60 } {
        let program = match seed % 2 {
            0 => SpinProgram::tangle(seed, 20, 12, 3),
            _ => SpinProgram::strands(seed, 30, 6, 3, 1..50),
        };
        let recorded = program.record("random", 8.0, false).expect("a valid program");
        let bound = BoundRecording::new(&recorded.recording, &rig.device, &rig.module).expect("bound");
        let schedule = rig.schedule(bound.program());
        let want = program.expected(1);
        for &form in &rig.forms {
            let exec = bound.executable(&rig.main, &schedule, form).expect("built");
            bound.reset(&[]).expect("reset");
            let delay = |k: usize| ((k as u64 * 7 + seed * 13) % 5 * 6_000) as u32;
            let delays: Vec<u32> = (0..program.len()).map(delay).collect();
            bound.upload(recorded.delays, &delays).expect("uploaded");
            exec.launch().expect("launched");
            exec.synchronize().expect("ended");
            let have = bound.download(recorded.arena).expect("downloaded");
            assert!(have == want, "seed {seed}, {}: not bit-exact", form.name());
        }
    }
}

/// Random programs and chains with tile-level waits, as early as possible and after their waits, as a graph and launch
/// by launch, with delays: bit-exact every time.
#[test]
fn tiles_that_wait_for_tiles_are_bit_exact() {
    let Some(rig) = rig() else { return };
    if rig.device.capability().0 < 9 {
        println!("skipped: tiles wait for tiles from compute capability 9.0 on");
        return;
    }
    let mut refined = 0;
    for seed in 0..if quick() { 12 } else { 90 } {
        let program = match seed % 3 {
            0 => SpinProgram::tangle(seed, 20, 12, 3).uneven(40, 0),
            1 => SpinProgram::strands(seed, 30, 6, 4, 1..50).uneven(60, 0),
            2 if seed % 2 == 0 => SpinProgram::chain(24, 40, 20).uneven(100, 64),
            // Two kernels do not fit on the GPU at once.
            _ => SpinProgram::chain(8, 1200, 20).uneven(100, 64),
        };
        let recorded = program.record_tiled("random", 8.0, false).expect("a valid program");
        let bound = BoundRecording::new(&recorded.recording, &rig.device, &rig.module).expect("bound");
        let schedule = rig.schedule(bound.program());
        let early = refine(bound.program(), &schedule.dependences, &DEVICES[0], Refine::Everywhere);
        refined += early.refined();
        let mut late = early.clone();
        late.nodes.iter_mut().for_each(|node| node.early = false);
        let wants: Vec<_> = (1..4).map(|runs| program.expected(runs)).collect();
        for refinement in [early, late] {
            let proved = refinement.prove(bound.program()).expect("proved");
            for &form in rig.forms.iter().filter(|form| form.is_programmatic()) {
                let calls = bound.refined(&proved).expect("bound");
                let exec = calls.scheduled(&rig.main, &schedule, form).expect("built");
                bound.reset(&[]).expect("reset");
                for (run, want) in wants.iter().enumerate() {
                    let delay = |k: usize| ((k as u64 * 7 + seed * 13 + run as u64 * 3) % 5 * 4_000) as u32;
                    let delays: Vec<u32> = (0..program.len()).map(delay).collect();
                    bound.upload(recorded.delays, &delays).expect("uploaded");
                    exec.launch().expect("launched");
                    exec.synchronize().unwrap_or_else(|e| panic!("seed {seed}, {}: {e}", form.name()));
                    let have = bound.download(recorded.arena).expect("downloaded");
                    assert!(have == *want, "seed {seed}, {}, run {run}: not bit-exact", form.name());
                }
            }
        }
    }
    assert!(refined > 100, "{refined} kernels were refined");
}

/// Slots only grow, and the runs of one set of calls share them: back to back, as a graph and launch by launch.
#[test]
fn replays_and_launches_of_refined_chains_mix() {
    let Some(rig) = rig() else { return };
    if rig.device.capability().0 < 9 {
        println!("skipped: tiles wait for tiles from compute capability 9.0 on");
        return;
    }
    let program = SpinProgram::chain(10, 132, 30).uneven(60, 64);
    let recorded = program.record_tiled("chain", 8.0, false).expect("a valid program");
    let bound = BoundRecording::new(&recorded.recording, &rig.device, &rig.module).expect("bound");
    let schedule = rig.schedule(bound.program());
    let all = refine(bound.program(), &schedule.dependences, &DEVICES[0], Refine::Everywhere);
    let calls = bound.refined(&all.prove(bound.program()).expect("proved")).expect("bound");
    let graph = calls.scheduled(&rig.main, &schedule, Form::BRANCH_PROGRAMMATIC).expect("built");
    let serial = StreamPlan::serial(0..program.len());
    let eager = calls.planned(&rig.main, serial.programmatic()).expect("built");
    let plain = bound.executable(&rig.main, &schedule, Form::BRANCH_GRAPH).expect("built");
    bound.reset(&[]).expect("reset");
    let mut runs = 0;
    for round in 0..if quick() { 5 } else { 40 } {
        for exec in [&graph, &eager, &eager, &plain, &graph, &graph] {
            exec.launch().expect("launched");
            runs += 1;
        }
        graph.synchronize().unwrap_or_else(|e| panic!("round {round}: {e}"));
        let have = bound.download(recorded.arena).expect("downloaded");
        assert!(have == program.expected(runs), "after {runs} runs: not bit-exact");
    }
}

/// A missing wait must have an effect, otherwise the tests above could not fail. Plans without a wait are refuted, so
/// the kernels' declarations are falsified: they claim to access nothing.
#[test]
fn a_missing_wait_shows_under_delays() {
    let Some(rig) = rig() else { return };
    let program = SpinProgram::chain(2, 4, 10);
    let recorded = program.record("chain", 8.0, false).expect("a valid program");
    let bound = BoundRecording::new(&recorded.recording, &rig.device, &rig.module).expect("bound");
    let apart = StreamPlan { order: vec![(0, 0), (1, 1)], ..StreamPlan::default() };
    let fault = bound.calls().planned(&rig.main, apart.clone()).expect_err("a dependence is lost");
    assert!(fault.to_string().contains("node 1 does not wait for node 0"), "{fault}");
    let graph = bound.calls().serial_graph(&rig.main).expect("captured");
    let lie = Declaration { accesses: Some(Vec::new()), us: Some(1.0), ..Declaration::default() };
    let calls = Calls::adopt(&rig.device, graph, |_| Ok(lie.clone())).expect("adopted");
    let exec = calls.planned(&rig.main, apart).expect("nothing depends on anything");
    bound.reset(&[]).expect("reset");
    bound.upload(recorded.delays, &[3_000_000, 0]).expect("uploaded");
    exec.launch().expect("launched");
    exec.synchronize().expect("ended");
    let have = bound.download(recorded.arena).expect("downloaded");
    assert!(have != program.expected(1), "two kernels without their wait ran in order by chance");
}

/// The module is the suite's with NOP in place of each ACQBULK, which the driver loads without complaint.
#[test]
fn kernels_that_never_wait_are_refused_where_their_code_is_at_hand() {
    let Some(rig) = rig() else { return };
    if rig.device.capability().0 < 9 {
        println!("skipped: programmatic edges exist from compute capability 9.0 on");
        return;
    }
    let mut bytes = Image::suite().expect("built with the other kernels").bytes().to_vec();
    for word in bytes.chunks_exact_mut(8) {
        if u64::from_le_bytes(word.try_into().expect("eight bytes")) & !0xf000 == 0x82e {
            word.copy_from_slice(&0x7918u64.to_le_bytes());
        }
    }
    let hasty = Module::load(&rig.device, &bytes).expect("loaded");
    let recorded = SpinProgram::chain(2, 4, 10).record("chain", 8.0, false).expect("a valid program");
    let fault = BoundRecording::new(&recorded.recording, &rig.device, &hasty).expect_err("it never waits");
    assert!(matches!(fault, Error::NeverWaits { .. }), "{fault}");
    let bound = BoundRecording::new(&recorded.recording, &rig.device, &rig.module).expect("bound");
    // A captured kernel is only a handle: its code is known if its image is given.
    let adopted = |image| {
        let graph = bound.calls().serial_graph(&rig.main).expect("captured");
        let accesses = Some(Vec::new());
        let declared = Declaration { accesses, us: Some(1.0), programmatic: true, image };
        Calls::adopt(&rig.device, graph, |_| Ok(declared.clone()))
    };
    let evidence = |program: &Program| program.node(NodeId(0)).evidence.clone();
    assert_eq!(evidence(bound.program()), Evidence::Code);
    assert_eq!(evidence(adopted(None).expect("believed").program()), Evidence::default());
    assert_eq!(evidence(adopted(Image::suite()).expect("verified").program()), Evidence::Code);
    let fault = adopted(Some(Image::from(&*bytes))).expect_err("it never waits");
    assert!(matches!(fault, Error::NeverWaits { .. }), "{fault}");
}

#[test]
fn a_captured_serial_stream_is_scheduled_anew() {
    let Some(rig) = rig() else { return };
    let case = suite_case("VEC");
    let bound = BoundRecording::new(&case.recording, &rig.device, &rig.module).expect("bound");
    let graph = bound.calls().serial_graph(&rig.main).expect("captured");
    assert_eq!(graph.len(), 3);
    let map = AddressMap::default();
    let adopted = Calls::adopt(&rig.device, graph, |node| {
        let accesses = map.accesses(&rig.device, node, &[])?;
        let programmatic = rig.device.capability().0 >= 9;
        Ok(Declaration { accesses, us: Some(3.0), programmatic, image: Image::suite() })
    });
    let adopted = adopted.expect("adopted");
    let schedule = rig.schedule(adopted.program());
    assert_eq!(
        (schedule.dependences.edges.len(), schedule.full.wait_count()),
        (2, 1),
        "as for the recorded program"
    );
    for &form in &rig.forms {
        let exec = adopted.scheduled(&rig.main, &schedule, form).expect("built");
        run_once(&bound, &exec, &case).unwrap_or_else(|e| panic!("captured VEC, {}: {e}", form.name()));
    }
}

#[test]
fn tasks_of_different_priorities_are_right_together() {
    let Some(rig) = rig() else { return };
    let mut together = Recording::new("together").built_for_programmatic_edges();
    let mut checks = Vec::new();
    for (name, priority) in [("IMG", 3), ("VEC", 2), ("HITS", 1)] {
        let case = suite_case(name);
        let first = together.append(&case.recording, priority).expect("a valid program");
        for mut check in case.checks {
            check.buffer.0 += first;
            checks.push(check);
        }
    }
    let bound = BoundRecording::new(&together, &rig.device, &rig.module).expect("bound");
    let case = Case { checks, recording: together, ..suite_case("VEC") };
    for admit in [Admit::Model, Admit::Free, Admit::After(NodeId(0)), Admit::After(NodeId(10))] {
        let schedule = rig.admitted(bound.program(), admit);
        for &form in &rig.forms {
            let exec = bound.executable(&rig.main, &schedule, form).expect("built");
            run_once(&bound, &exec, &case)
                .unwrap_or_else(|e| panic!("three tasks, {admit:?}, {}: {e}", form.name()));
        }
    }
}

/// Two tasks with delayed kernels; the lower-priority task waits for a node of the higher one. Bit-identical to serial
/// execution.
#[test]
fn gates_hold_under_injected_delays() {
    let Some(rig) = rig() else { return };
    for seed in 0..if quick() { 3 } else { 12 } {
        let programs = [SpinProgram::strands(seed, 12, 3, 3, 1..50), SpinProgram::tangle(seed, 10, 8, 3)];
        let recorded: Vec<_> =
            programs.iter().map(|p| p.record("task", 8.0, false).expect("a valid program")).collect();
        let mut together = Recording::new("together").built_for_programmatic_edges();
        let mut places = Vec::new();
        for (task, priority) in recorded.iter().zip([2, 1]) {
            let first = together.append(&task.recording, priority).expect("a valid program");
            let moved = |id: BufferId| BufferId(id.0 + first);
            places.push((moved(task.arena), moved(task.delays)));
        }
        let bound = BoundRecording::new(&together, &rig.device, &rig.module).expect("bound");
        for gate in [0, 5, 11] {
            let schedule = rig.admitted(bound.program(), Admit::After(NodeId(gate)));
            let gates = schedule.admission.as_ref().map_or(0, |admission| admission.gates.len());
            assert!(gates > 0, "nothing waits for node {gate}");
            for &form in &rig.forms {
                let exec = bound.executable(&rig.main, &schedule, form).expect("built");
                bound.reset(&[]).expect("reset");
                for (program, (_, delays)) in programs.iter().zip(&places) {
                    let delay = |k: usize| ((k as u64 * 5 + seed * 11) % 4 * 7_000) as u32;
                    let words: Vec<u32> = (0..program.len()).map(delay).collect();
                    bound.upload(*delays, &words).expect("uploaded");
                }
                exec.launch().expect("launched");
                exec.synchronize().expect("ended");
                for (program, (arena, _)) in programs.iter().zip(&places) {
                    let have = bound.download(*arena).expect("downloaded");
                    assert!(have == program.expected(1), "seed {seed}, gate {gate}, {}", form.name());
                }
            }
        }
    }
}
