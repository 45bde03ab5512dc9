//! Predictions held against measurements of one H200. `docs/results/prediction.md` has the figures.

use cusync_gen::device::Device;
use cusync_gen::simulate::against::{Measurements, compare};
use cusync_gen::simulate::comparison::{Comparison, Goal};

fn spec(name: &str) -> Option<String> {
    let text = match name {
        "gpt3_mlp" => include_str!("../../policies/gpt3_mlp.ron"),
        "llama65_mlp" => include_str!("../../policies/llama65_mlp.ron"),
        "llama3_70b_mlp" => include_str!("../../policies/llama3_70b_mlp.ron"),
        _ => return None,
    };
    Some(text.into())
}

/// The shipped profile, or the one in the file that `CUSYNC_PROFILE` names: how it is fitted.
fn profile() -> Device {
    match std::env::var("CUSYNC_PROFILE") {
        Ok(file) => {
            let text = std::fs::read_to_string(&file).expect("the profile's file");
            Device::from_ron(&text).unwrap_or_else(|d| panic!("{}", d.render(&text, &file, false)))
        }
        Err(_) => Device::named("h200").expect("shipped").clone(),
    }
}

fn compared() -> Comparison {
    let text = match std::env::var("CUSYNC_RECORDS") {
        Ok(file) => std::fs::read_to_string(file).expect("the records' file"),
        Err(_) => include_str!("../../docs/results/prediction_h200.json").into(),
    };
    let measurements: Measurements = serde_json::from_str(&text).expect("records");
    assert!(measurements.device.contains("H200"));
    compare(&measurements, &profile(), spec).unwrap_or_else(|d| panic!("{}", d.message))
}

#[test]
fn predictions_are_near_the_record() {
    let c = compared();
    for row in &c.rows {
        let m = row.dims.iter().find(|(name, _)| name == "M").map_or(0, |(_, m)| *m);
        println!(
            "{:12} {m:5} {:9} {:26} {:8.1} {:8.1} {:+6.1} %",
            row.pipeline,
            row.regime,
            row.variant,
            row.measured_us,
            row.predicted_us,
            row.error() * 100.0
        );
    }
    for (kind, entries, error, magnitude) in c.by_kind() {
        println!("{kind:34} {entries:4} entries, {:+.1} % ({:.1} %)", error * 100.0, magnitude * 100.0);
    }
    let goals = c.goals();
    for goal in &goals {
        let (have, bound) = (goal.have.unwrap_or(f64::NAN), goal.bound);
        println!("{}: {have:.3}, goal {bound}: {}", goal.name, if goal.met() { "met" } else { "MISSED" });
    }
    let worst = c.by_point().iter().map(|p| p.regret).fold(0.0, f64::max);
    println!(
        "{} compared, {} of unknown ways, {} of other schedules; the worst choice is {:.1} % slower than the best",
        c.rows.len(),
        c.unknown,
        c.other_schedules,
        worst * 100.0
    );
    if std::env::var_os("CUSYNC_RECORDS").is_none() {
        assert!(c.rows.len() > 100);
        let have = |goal: &Goal| goal.have.expect("there are points");
        let [error, rank, regret] = &goals[..] else { panic!("{goals:?}") };
        assert!(error.met() && regret.met() && have(rank) > 0.4, "{goals:?}");
    }
}
