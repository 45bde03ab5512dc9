//! The cost model against measured times: replays `docs/results/dag_h200.json`.

use std::path::Path;

use cusync_bench::Regime;
use cusync_bench::dag::suite::{SizeClass, case, case_with_copies};
use cusync_bench::dag::{DagPoint, NodeShape, SpinProgram};
use cusync_dag::{Form, NodeWork, Program, ScheduleOptions, schedule};
use cusync_gen::device::{DEVICES, Profile, ProgramCost};

#[derive(serde::Deserialize)]
struct Record {
    points: Vec<DagPoint>,
}

/// Accessor for one launch cost.
type Parameter = fn(&mut ProgramCost) -> &mut f64;

/// The recorded points, each with its program and measured durations.
fn record() -> Vec<(DagPoint, Program)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/dag_h200.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let report: Record = cusync_gen::columns::read(&text).expect("a report of this version");
    let points = report.points.into_iter();
    points.map(|point| (program(&point), point)).map(|(p, point)| (point, p)).collect()
}

fn program(point: &DagPoint) -> Program {
    let recording = match point.class {
        // Sizes differ only in shapes and durations, which are both recorded; small inputs are quick to create.
        Some(_) => {
            match point.name.strip_suffix(" with copies") {
                Some(name) => case_with_copies(name, SizeClass::Small),
                None => case(&point.name, SizeClass::Small),
            }
            .expect("a name of the suite")
            .expect("a valid program")
            .recording
        }
        None => {
            // "random 50 kernels, width 6"; the length of a round affects only durations.
            let numbers: Vec<usize> =
                point.name.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
            let [kernels, width] = numbers[..] else { panic!("{}", point.name) };
            let program = SpinProgram::strands(kernels as u64, kernels, width, 16, 25..2312);
            program.record("random", 8.0, false).expect("a valid program").recording
        }
    };
    let recorded = recording.program();
    assert_eq!(recorded.nodes().len(), point.kernels, "{}", point.name);
    let mut program = recorded.only(|_| false);
    for (at, node) in recorded.nodes().iter().enumerate() {
        let mut node = node.clone();
        node.us = point.kernel_us[at];
        if let NodeWork::Kernel(kernel) = &mut node.work {
            let NodeShape { ctas, ctas_per_sm, traffic_bytes } = point.shapes[at];
            kernel.launch.grid = [ctas as u32, 1, 1];
            (kernel.ctas_per_sm, kernel.traffic_bytes) = (ctas_per_sm, traffic_bytes);
        }
        program.push(node).expect("a valid node");
    }
    program
}

/// Time of a form relative to our best form, in the regime where this ratio is worst.
fn regret(point: &DagPoint, form: Form) -> f64 {
    let worst = [Regime::Rested, Regime::Sustained].map(|regime| {
        let ours = || point.records.iter().filter(move |r| r.regime == regime && r.form.is_some());
        let best = ours().map(|r| r.time.median_us).fold(f64::INFINITY, f64::min);
        ours().find(|r| r.form == Some(form)).map_or(f64::INFINITY, |r| r.time.median_us / best)
    });
    worst[0].max(worst[1])
}

/// The model's choice among the measured forms, and its predictions.
fn replay(point: &DagPoint, program: &Program, device: &Profile) -> (Form, Vec<(Form, f64)>) {
    let measured = |form: &Form| point.records.iter().any(|r| r.form == Some(*form));
    let forms: Vec<Form> = Form::ALL.into_iter().filter(measured).collect();
    let options = ScheduleOptions { forms, device: device.clone(), ..ScheduleOptions::default() };
    let found = schedule(program, &options).expect("no limit");
    (found.form, found.predictions.iter().map(|p| (p.form, p.us)).collect())
}

/// Mean and worst regret of the model's choices, with one line per program.
fn score(points: &[(DagPoint, Program)], device: &Profile) -> (f64, f64, Vec<String>) {
    let (mut sum, mut worst, mut lines) = (0.0, 0.0, Vec::new());
    for (point, program) in points {
        let (form, _) = replay(point, program, device);
        let regret = regret(point, form);
        sum += regret;
        worst = f64::max(worst, regret);
        lines.push(format!("{} {:?}: {} {regret:.3}", point.name, point.class, form.name()));
    }
    (sum / points.len() as f64, worst, lines)
}

#[test]
#[ignore = "fits launch costs to the record and prints them; minutes"]
#[allow(clippy::print_stderr)]
fn fit_costs() {
    let mut points = record();
    points.retain(|(point, _)| point.kernels <= 200);
    let get: [(&str, Parameter); 8] = [
        ("graph_edge_us", |c| &mut c.graph_edge_us),
        ("graph_branch_us", |c| &mut c.graph_branch_us),
        ("programmatic_edge_us", |c| &mut c.programmatic_edge_us),
        ("programmatic_fork_us", |c| &mut c.programmatic_fork_us),
        ("programmatic_join_us", |c| &mut c.programmatic_join_us),
        ("graph_root_us", |c| &mut c.graph_root_us),
        ("graph_end_us", |c| &mut c.graph_end_us),
        ("graph_launch_us", |c| &mut c.graph_launch_us),
    ];
    // Regret of choices first; then the error of predicted graph times, relative to the serial graph.
    let loss = |device: &Profile| {
        let (mean, worst, _) = score(&points, device);
        let mut error = 0.0;
        for (point, program) in &points {
            let measured = |form: Form| {
                let found = point.records.iter().filter(|r| r.form == Some(form));
                found.map(|r| r.time.median_us).sum::<f64>()
            };
            let (_, predicted) = replay(point, program, device);
            let predicted_us = |form: Form| predicted.iter().find(|p| p.0 == form).map(|p| p.1);
            let Some(base) = predicted_us(Form::BRANCH_GRAPH) else { continue };
            for &(form, us) in predicted.iter().filter(|p| !matches!(p.0, Form::SERIAL | Form::STREAMS)) {
                let ratio = (us / base) / (measured(form) / measured(Form::BRANCH_GRAPH));
                error += ratio.ln().powi(2) / predicted.len() as f64;
            }
        }
        (mean - 1.0) + 0.3 * (worst - 1.0) + 0.05 * (error / points.len() as f64).sqrt()
    };
    let mut device = DEVICES[0].clone();
    let mut best = loss(&device);
    for step in [0.4, 0.2, 0.1, 0.05] {
        let mut moved = true;
        while moved {
            moved = false;
            for (_, parameter) in &get {
                for delta in [-step, step, -3.0 * step, 3.0 * step] {
                    let mut next = device.clone();
                    let value = parameter(&mut next.programs);
                    *value = (*value + delta).max(0.0);
                    let found = loss(&next);
                    if found < best - 1e-6 {
                        (best, device, moved) = (found, next, true);
                    }
                }
            }
        }
        eprintln!("step {step}: {best:.4}");
    }
    for (name, parameter) in &get {
        eprintln!("{name}: {:.2}", *parameter(&mut device.programs));
    }
    let (mean, worst, lines) = score(&points, &device);
    lines.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("mean {mean:.4}, worst {worst:.4}");
}

#[test]
#[allow(clippy::print_stderr)]
fn the_models_choices_are_near_the_best_that_was_measured() {
    let points = record();
    assert!(points.len() >= 12, "{} programs", points.len());
    let (mean, worst, lines) = score(&points, &DEVICES[0]);
    lines.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("mean {mean:.4}, worst {worst:.4}");
    assert!(mean < 1.04 && worst < 1.15, "mean {mean:.4}, worst {worst:.4}: {lines:#?}");
}
