//! Predictions against measurements on one H200. `docs/results/prediction.md` has the figures.

use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::choose::against::{Measurements, compare};
use cusync_gen::choose::comparison::{Comparison, Goal};
use cusync_gen::device::Profile;

/// The sizes the shipped profile was fitted to: every second one. The others are held out.
const FITTED: [u64; 8] = [1, 16, 64, 256, 768, 1280, 1792, 3072];

fn spec(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("{}/../policies/{name}.ron", env!("CARGO_MANIFEST_DIR"))).ok()
}

/// The shipped profile, or the profile in the file named by `CUSYNC_PROFILE`, which is used for fitting.
fn profile() -> Profile {
    match std::env::var("CUSYNC_PROFILE") {
        Ok(file) => {
            let text = std::fs::read_to_string(&file).expect("the profile's file");
            Profile::from_ron(&text).unwrap_or_else(|d| panic!("{}", d.render(&text, &file, false)))
        }
        Err(_) => Profile::named("h200").expect("shipped").clone(),
    }
}

/// The record that the shipped profile was partly fitted to, or the record in the file named by `CUSYNC_RECORDS`.
fn record() -> String {
    match std::env::var("CUSYNC_RECORDS") {
        Ok(file) => std::fs::read_to_string(file).expect("the records' file"),
        Err(_) => include_str!("../../../docs/results/prediction_h200.json").into(),
    }
}

/// Compares the records of the wanted sizes.
fn compared(text: &str, wanted: impl Fn(u64) -> bool) -> Comparison {
    let mut measurements: Measurements = cusync_gen::columns::read(text).expect("records");
    assert!(measurements.device.contains("H200"));
    let size = |dims: &[(String, u64)]| dims.iter().find(|(name, _)| name == "M").map_or(0, |(_, m)| *m);
    measurements.records.retain(|r| wanted(size(&r.dims)));
    compare(&measurements, &profile(), spec).unwrap_or_else(|d| panic!("{}", d.message))
}

/// A comparison as text, and its goal figures: error, rank correlation, regret.
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

/// Whether the shipped profile and record are used, so that the figures are known.
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

/// Chains of two and four convolutions and bodies: each choice, and at some batches up to five configurations whatever
/// their predictions.
#[test]
fn predictions_of_convolutions_are_near_what_was_measured_after_them() {
    let c = compared(include_str!("../../../docs/results/conv_h200.json"), |_| true);
    let (text, [error, _, regret]) = figures("convolutions", &c);
    println!("{text}");
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (210, 0));
        assert!(error <= 0.15 && regret <= 0.05, "{error} {regret}");
    }
}

/// Blocks and layers of token generation: the terms of decode kernels with attention were fitted to these.
#[test]
fn predictions_of_generation_are_near_what_they_were_fitted_to() {
    let text = include_str!("../../../docs/results/layers_h200.json");
    let mut measurements: Measurements = cusync_gen::columns::read(text).expect("records");
    // The others are parts or combinations of these.
    measurements.records.retain(|r| spec(&r.pipeline).is_some());
    let c = compare(&measurements, &profile(), spec).unwrap_or_else(|d| panic!("{}", d.message));
    let mut kinds: Vec<&str> = c.rows.iter().map(|row| row.pipeline.as_str()).collect();
    kinds.dedup();
    for name in &kinds {
        let rows: Vec<f64> =
            c.rows.iter().filter(|r| r.pipeline == *name).map(|r| r.error() * 100.0).collect();
        println!("{name}: {rows:.0?}");
    }
    let error = c.mean_error();
    println!("{} compared, mean error {:.1} %", c.rows.len(), error * 100.0);
    if shipped() {
        assert_eq!((c.rows.len(), c.other_schedules), (42, 0));
        assert!(error <= 0.08, "{error}");
    }
}

/// Our times in a record that `benches/pytorch_layer.py` wrote on an H100, in columns.
struct OnAnH100(serde_json::Value);

impl OnAnH100 {
    fn new(text: &str) -> OnAnH100 {
        OnAnH100(cusync_gen::columns::read(text).expect("records"))
    }

    /// Predicted and measured times at rest, in microseconds.
    fn both(&self, pipeline: &str, dims: &[(&str, u64)], executor: Executor) -> [f64; 2] {
        let name = format!("cusync, {}", executor.name());
        let matches = |r: &&serde_json::Value| {
            let at = dims.iter().all(|(dim, size)| r["dims"][*dim] == *size);
            at && r["pipeline"] == *pipeline && r["way"] == *name && r["regime"] == "rested"
        };
        let measured = self.0["cusync"].as_array().and_then(|all| all.iter().find(matches));
        let measured = measured.and_then(|r| r["median_us"].as_f64()).expect("a record");
        let text = spec(pipeline).expect("it ships");
        let dims: Vec<_> = dims.iter().map(|(dim, size)| ((*dim).to_owned(), *size)).collect();
        let resolved = cusync_gen::spec::parse(&text, pipeline).and_then(|spec| spec.resolve(&dims));
        let h100 = Profile::named("h100").expect("shipped");
        let candidate = choose::candidate(&resolved.expect("sound"), h100, executor).expect("planned");
        let priced = candidate.predicted.map(|p| p.synchronised_us).or(candidate.launch.predicted_us());
        [priced.expect("priced"), measured]
    }
}

/// Reports the prediction error; its mean must not exceed `most`.
fn near(both: &[[f64; 2]], count: usize, most: f64) -> String {
    let errors: Vec<f64> =
        both.iter().map(|[predicted, measured]| (predicted / measured - 1.0).abs()).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    assert_eq!(errors.len(), count);
    assert!(mean <= most, "{mean}");
    let [mean, worst] = [mean, worst].map(|error| error * 100.0);
    format!("{count} times, off by {mean:.1} % in the mean, {worst:.1} % at most")
}

/// Layers and plain prompt blocks with one launch per stage, with our kernels alone and with the library's GEMMs; the
/// terms of small kernels were fitted to some of their parts.
#[test]
fn predictions_of_prompts_on_an_h100_are_near_and_rank_them() {
    let record = OnAnH100::new(include_str!("../../../docs/results/pytorch/layers_h100.json"));
    let mut all = Vec::new();
    for model in ["gpt3", "llama65", "llama3_70b"] {
        for (pipeline, tokens) in ["prompt_layer", "attention"]
            .into_iter()
            .flat_map(|kind| [512, 2048].map(|tokens| (format!("{model}_{kind}"), tokens)))
        {
            let [serial, library] = [Executor::Serial, Executor::Library]
                .map(|executor| record.both(&pipeline, &[("S", tokens)], executor));
            all.extend([serial, library]);
            let [predicted, measured] = [0, 1].map(|i| serial[i] < library[i]);
            assert_eq!(predicted, measured, "{pipeline} {tokens}: {serial:?} {library:?}");
        }
    }
    println!("{}", near(&all, 24, 0.08));
}

/// Decode kernels: no term was fitted to their H100 times. No other GPU executor runs them, so the choice has no
/// regret.
#[test]
fn predictions_of_generation_on_an_h100_are_near() {
    let record = OnAnH100::new(include_str!("../../../docs/results/pytorch/generation_h100.json"));
    let blocks = [(1, 513), (1, 2049), (4, 2049), (32, 2049)].map(|size| ("generate", size));
    let layers = [1, 8, 32].map(|batch| ("layer", (batch, 2049)));
    let mut all = Vec::new();
    for model in ["gpt3", "llama65", "llama3_70b"] {
        for (kind, (batch, tokens)) in blocks.into_iter().chain(layers) {
            let dims = [("B", batch), ("S", tokens)];
            all.push(record.both(&format!("{model}_{kind}"), &dims, Executor::Fused));
        }
    }
    println!("{}", near(&all, 21, 0.08));
}

/// MLPs of 1 to 4096 tokens with every executor and with cuBLASLt: the pick made without measuring.
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
