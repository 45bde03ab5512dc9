//! Predictions held against measurements of one H200. `docs/results/prediction.md` has the figures.

use cusync_gen::choose::against::{Measurements, compare};
use cusync_gen::choose::comparison::{Comparison, Goal};
use cusync_gen::device::Profile;

/// The sizes that the shipped profile was fitted to: every second one. The others are held out.
const FITTED: [u64; 8] = [1, 16, 64, 256, 768, 1280, 1792, 3072];

fn spec(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("{}/../policies/{name}.ron", env!("CARGO_MANIFEST_DIR"))).ok()
}

/// The shipped profile, or the one in the file that `CUSYNC_PROFILE` names: how it is fitted.
fn profile() -> Profile {
    match std::env::var("CUSYNC_PROFILE") {
        Ok(file) => {
            let text = std::fs::read_to_string(&file).expect("the profile's file");
            Profile::from_ron(&text).unwrap_or_else(|d| panic!("{}", d.render(&text, &file, false)))
        }
        Err(_) => Profile::named("h200").expect("shipped").clone(),
    }
}

/// The record that the shipped profile was fitted to, in part, or the one in the file that `CUSYNC_RECORDS` names.
fn record() -> String {
    match std::env::var("CUSYNC_RECORDS") {
        Ok(file) => std::fs::read_to_string(file).expect("the records' file"),
        Err(_) => include_str!("../../../docs/results/prediction_h200.json").into(),
    }
}

/// Compares the records of the sizes that are wanted.
fn compared(text: &str, wanted: impl Fn(u64) -> bool) -> Comparison {
    let mut measurements: Measurements = cusync_gen::columns::read(text).expect("records");
    assert!(measurements.device.contains("H200"));
    let size = |dims: &[(String, u64)]| dims.iter().find(|(name, _)| name == "M").map_or(0, |(_, m)| *m);
    measurements.records.retain(|r| wanted(size(&r.dims)));
    compare(&measurements, &profile(), spec).unwrap_or_else(|d| panic!("{}", d.message))
}

/// What came of a comparison, in words, and the figures of the goals: error, rank correlation, regret.
fn figures(title: &str, c: &Comparison) -> (String, [f64; 3]) {
    let mut lines =
        vec![format!("{title}: {} compared, {} of other schedules", c.rows.len(), c.other_schedules)];
    for (kind, entries, error, magnitude) in c.by_kind() {
        let (error, magnitude) = (error * 100.0, magnitude * 100.0);
        lines.push(format!("  {kind:34} {entries:4} entries, {error:+.1} % ({magnitude:.1} %)"));
    }
    let goals = c.goals();
    for goal in &goals {
        let (have, met) = (goal.have.expect("there are points"), if goal.met() { "met" } else { "MISSED" });
        lines.push(format!("  {}: {have:.3}, goal {}: {met}", goal.name, goal.bound));
    }
    let mut points = c.by_point();
    points.sort_by(|a, b| b.regret.total_cmp(&a.regret));
    for p in points.iter().take(6) {
        let (loss, chosen) = (p.regret * 100.0, format!("{}, not {}", p.chosen, p.fastest));
        lines.push(format!("  {loss:.1} % lost: {} {:?} {}: {chosen}", p.pipeline, p.dims, p.regime));
    }
    (lines.join("\n"), [0, 1, 2].map(|i| goals[i].have.expect("there are points")))
}

/// The shipped profile on the shipped record, so that figures are known.
fn shipped() -> bool {
    ["CUSYNC_RECORDS", "CUSYNC_PROFILE"].iter().all(|name| std::env::var_os(name).is_none())
}

#[test]
fn predictions_are_near_what_they_were_not_fitted_to() {
    let c = compared(&record(), |m| !FITTED.contains(&m));
    let (text, [error, rank, regret]) = figures("held out", &c);
    println!("{text}");
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (704, 0));
        assert!(c.goals().iter().all(Goal::met), "{error} {rank} {regret}");
    }
}

#[test]
fn predictions_are_near_what_they_were_fitted_to() {
    let c = compared(&record(), |m| FITTED.contains(&m));
    let (text, [error, rank, regret]) = figures("fitted", &c);
    println!("{text}");
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (684, 0));
        assert!(c.goals().iter().all(Goal::met), "{error} {rank} {regret}");
    }
}

#[test]
fn predictions_are_near_what_was_measured_after_them() {
    let c = compared(include_str!("../../../docs/results/prediction_h200_forecast.json"), |_| true);
    let (text, [error, rank, regret]) = figures("forecast", &c);
    println!("{text}");
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (1388, 0));
        assert!(c.goals().iter().all(Goal::met), "{error} {rank} {regret}");
    }
}

/// Chains of two and of four convolutions, up to five ways each, whatever is predicted of them.
#[test]
fn predictions_of_convolutions_are_near_what_was_measured_after_them() {
    let c = compared(include_str!("../../../docs/results/conv_h200.json"), |_| true);
    let (text, [error, _, regret]) = figures("convolutions", &c);
    println!("{text}");
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (114, 0));
        assert!(error <= 0.15 && regret <= 0.05, "{error} {regret}");
    }
}

/// Blocks and layers with attention, in chain and decode kernels: what their terms were fitted to.
#[test]
fn predictions_of_attention_are_near_what_they_were_fitted_to() {
    let text = include_str!("../../../docs/results/layers_h200.json");
    let mut measurements: Measurements = cusync_gen::columns::read(text).expect("records");
    // The others are parts of these, or several.
    measurements.records.retain(|r| spec(&r.pipeline).is_some());
    let c = compare(&measurements, &profile(), spec).unwrap_or_else(|d| panic!("{}", d.message));
    let mut kinds: Vec<&str> = c.rows.iter().map(|row| row.pipeline.as_str()).collect();
    kinds.dedup();
    for name in &kinds {
        let rows: Vec<f64> =
            c.rows.iter().filter(|r| r.pipeline == *name).map(|r| r.error() * 100.0).collect();
        println!("{name}: {rows:.0?}");
    }
    // Prompts are there by tiles of 128 x 128 and of 128 x 256, layers by a launch a stage too, so what the choice loses is known.
    let error = c.mean_error();
    let lost = c.by_point().iter().map(|p| p.regret).fold(0.0, f64::max);
    println!(
        "{} compared, mean error {:.1} %, {:.1} % lost at most",
        c.rows.len(),
        error * 100.0,
        lost * 100.0
    );
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (84, 0));
        assert!(error <= 0.08 && lost <= 0.05, "{error} {lost}");
    }
}

/// MLPs of 1 to 4096 tokens by every executor and by cuBLASLt: what is picked without measuring.
#[test]
fn the_forecast_with_the_library_among_the_offers_loses_little() {
    let c = compared(include_str!("../../../docs/results/mlp_h200.json"), |_| true);
    let (text, [error, _, regret]) = figures("with the library", &c);
    println!("{text}");
    if shipped() {
        let worst = c.by_point().iter().map(|point| point.regret).fold(0.0, f64::max);
        assert_eq!((c.by_point().len(), c.other_schedules), (57, 0));
        assert!(error <= 0.06 && regret <= 0.03 && worst <= 0.08, "{error} {regret} {worst}");
    }
}
