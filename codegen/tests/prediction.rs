//! Predictions held against measurements of one H200. `docs/results/prediction.md` has the figures.

use cusync_gen::device::Device;
use cusync_gen::simulate::against::{Comparison, Measurements, compare};

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
    let regrets = c.regrets();
    let mean_regret = regrets.iter().sum::<f64>() / regrets.len() as f64;
    let worst = regrets.iter().copied().fold(0.0, f64::max);
    let rank = c.rank_correlation().expect("points with several ways");
    println!(
        "{} compared, {} of unknown ways, {} of other schedules: error {:.1} %, rank correlation {rank:.3}, \
         the choice is {:.1} % slower than the best, at worst {:.1} %",
        c.rows.len(),
        c.unknown,
        c.other_schedules,
        c.mean_error() * 100.0,
        mean_regret * 100.0,
        worst * 100.0
    );
    if std::env::var_os("CUSYNC_RECORDS").is_none() {
        assert!(c.rows.len() > 100);
        assert!(c.mean_error() < 0.10 && mean_regret < 0.03 && rank > 0.4);
    }
}
