//! Sessions on a GPU: jobs with any number of rows and any set are bit-identical to `fused` runs, even after a kernel
//! has left, and write no other row.

use std::time::Duration;

use crate::common::{Gpu, pipeline, plan_of};
use crate::fused::hopper;
use cusync::device::DeviceBuffer;
use cusync::runtime::copilot::{JobSession, Settings};
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides, Pipeline, Result};
use cusync::trace::{HostRow, defect, trace_session};
use cusync_bench::copilot::{CopilotArgs, bench_copilot};
use cusync_gen::check::Executor;
use cusync_gen::schedule::Hand;

const SPEC: &str = r#"Pipeline(name: "p", dims: { "M": 64, "H": 512 }, stages: [
    GatedGemm(name: "up", a: "X(M,H)", gate: "G(H,2*H)", up: "U(H,2*H)", out: "Y(M,2*H)"),
    Gemm(name: "down", a: "Y(M,2*H)", b: "V(2*H,H)", out: "Z(M,H)"),
])"#;
const SETS: usize = 2;
const COLUMNS: usize = 512;

fn jobs(gpu: &Gpu, rows: usize) -> Result<()> {
    let overrides = Overrides { dims: vec![("M".into(), rows as u64)], ..Overrides::default() };
    let plan = plan_of(gpu, SPEC, &overrides, Executor::Copilot);
    let inputs = InputSets::random(plan.graph(), &gpu.device, SETS, 61)?;
    let mut pipeline = pipeline(gpu, &plan, &inputs, Options::default());
    // One tensor for all sets.
    let out = pipeline.tensor(0, "Z")?;
    let bits = |pipeline: &mut Pipeline| -> Result<Vec<u16>> {
        pipeline.synchronize()?;
        let mut bits = vec![0; out.len()];
        out.download(&mut bits)?;
        Ok(bits)
    };
    let mut right = Vec::new();
    for set in 0..SETS {
        pipeline.run_set(Executor::Fused, set)?;
        right.push(bits(&mut pipeline)?);
    }
    assert_ne!(right[0], right[1]);
    pipeline.poison_outputs()?;
    let mut expected = bits(&mut pipeline)?;
    let mut session = JobSession::open(&mut pipeline, Settings::default())?;
    let mut have = vec![0; out.len()];
    for number in 0..400 {
        let (set, m) = (number % 3 % SETS, 1 + number * 7 % rows);
        let job = if number % 2 == 0 {
            session.submit(set, m as u32)?
        } else {
            session.submit_announcing(set, m as u32, number % 5 % SETS)?
        };
        session.wait(job)?;
        // Rows after the job's are unchanged.
        expected[..m * COLUMNS].copy_from_slice(&right[set][..m * COLUMNS]);
        out.download(&mut have)?;
        let rows_of = |bits: &[u16]| bits.chunks(COLUMNS).map(<[u16]>::to_vec).collect::<Vec<_>>();
        let wrong = rows_of(&have).iter().zip(rows_of(&expected)).position(|(have, want)| *have != want);
        assert_eq!(wrong, None, "job {number} of {m} of {rows} rows, set {set}: the first wrong row");
        if number % 50 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let launches = session.launches();
    assert!(launches > 1, "the kernel left in between");
    println!("{rows} rows: 400 jobs, {launches} launches");
    assert!(session.submit(SETS, 1).is_err() && session.submit(0, rows as u32 + 1).is_err());
    session.close()?;
    // The pipeline runs as before.
    pipeline.run_set(Executor::Fused, 1)?;
    assert!(bits(&mut pipeline)? == right[1], "a run behind the session");
    Ok(())
}

/// A call that waits for an idle GPU waits up to a session's limit, and the session continues afterwards.
#[test]
fn memory_allocated_elsewhere_waits_for_the_limit_and_no_more() {
    let Some(gpu) = hopper() else { return };
    let overrides = Overrides { dims: vec![("M".into(), 8)], ..Overrides::default() };
    let plan = plan_of(&gpu, SPEC, &overrides, Executor::Copilot);
    let inputs = InputSets::random(plan.graph(), &gpu.device, SETS, 61).expect("made");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let idle = Duration::from_millis(20);
    let mut session =
        JobSession::open(&mut pipeline, Settings { idle, ..Settings::default() }).expect("opened");
    for round in 1..=3 {
        let job = session.submit(0, 8).expect("taken");
        session.wait(job).expect("over");
        drop(DeviceBuffer::<u32>::zeroed(&gpu.device, 1 << 20, "memory elsewhere").expect("allocated"));
        // The kernel has left, and the next job launches it again.
        assert_eq!(session.launches(), round);
    }
    session.close().expect("all over");
}

/// Items of a chain kernel: two kinds with shared weights in progress at once, either one first, alone and next to a
/// kernel that occupies SMs.
#[test]
fn handed_items_have_the_bits_of_runs() {
    let Some(_gpu) = hopper() else { return };
    let args = CopilotArgs { exact: 2000, only: vec!["items".into()], ..CopilotArgs::default() };
    let report = bench_copilot(&args, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.exact.len(), 2, "alone, and with SMs taken");
    for kind in &report.exact {
        println!("{}: {} jobs, {} launches", kind.pipeline, kind.jobs, kind.launches);
        assert!(
            kind.wrong == 0 && kind.jobs == 2000,
            "{}: {} of {} jobs differ",
            kind.pipeline,
            kind.wrong,
            kind.jobs
        );
    }
}

/// Row counts that leave a warpgroup of the last tiles without rows, and a job of a decode kernel.
#[test]
fn a_trace_of_a_session_has_a_word_for_every_tile() {
    let Some(gpu) = hopper() else { return };
    let drawn = ChainOverride { kernel: Some(((128, 128), (1, 1))), mode: Hand::Drawn, splits: false };
    let overrides = Overrides { dims: vec![("M".into(), 320)], chain: Some(drawn), ..Overrides::default() };
    let plan = plan_of(&gpu, SPEC, &overrides, Executor::Fused);
    let report = trace_session(&plan, Some(&gpu.device), 3).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(defect(&report.timeline), None);
    let run = report.timeline.runs.last().expect("a session");
    let words = run.host.iter().filter(|event| event.row == HostRow::Word);
    let mut spans: Vec<usize> = words.clone().filter_map(|word| word.span).collect();
    spans.sort_unstable();
    assert_eq!(spans, (0..run.spans.len()).collect::<Vec<_>>());
    // Clocks agree to within the minimum latency of a word.
    for word in words {
        let span = &run.spans[word.span.expect("a tile")];
        assert!(
            span.begin_us > word.begin_us - 3.0 && span.end_us() < word.end_us + 3.0,
            "{word:?} {span:?}"
        );
    }
    let few = Overrides { dims: vec![("M".into(), 8)], ..Overrides::default() };
    let plan = plan_of(&gpu, SPEC, &few, Executor::Copilot);
    let report = trace_session(&plan, Some(&gpu.device), 3).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(defect(&report.timeline), None);
    let run = report.timeline.runs.last().expect("a session");
    assert_eq!(run.host.iter().filter(|event| event.row == HostRow::Job).count(), 1);
}

#[test]
fn jobs_have_the_bits_of_runs() {
    let Some(gpu) = hopper() else { return };
    for rows in [8, 32, 64] {
        jobs(&gpu, rows).unwrap_or_else(|e| panic!("{rows} rows: {e}"));
    }
}
