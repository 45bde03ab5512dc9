//! The contract of `cusync simulate --against` in docs/json.md.

use serde_json::{Value, json};

use super::{cusync, file};

/// Writes a benchmark record: a serial launch, two fully specified configurations, and a third party's kernels.
fn record(name: &str) -> String {
    let entry = |variant: &str, us: f64, more: Value| {
        let mut entry = json!({
            "pipeline": "gpt3_mlp", "dims": [["M", 512], ["H", 12288], ["I", 6144]], "variant": variant,
            "joint": "plain", "regime": "rested", "median_us": us,
        });
        let fields = entry.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        entry
    };
    let chain = json!({ "chain": {
        "tile": [128, 256], "cluster": [1, 1], "mode": "static", "splits": false } });
    let stale = json!({ "digest": "0000000000000000" });
    let stage = |name: &str| json!({ "stage": name, "tile": [128, 128, 64], "order": "RowMajor" });
    let edge = json!({ "from": "up", "to": "down", "operand": "A", "policy": "Row", "wait_at": "PerKBlock" });
    let stages = |executor: &str| {
        json!({ "stages": {
            "executor": executor, "stages": [stage("up"), stage("down")], "edges": [edge] } })
    };
    let records = [
        entry("serial graph", 250.0, json!({ "config": stages("serial") })),
        entry("stated graph", 260.0, json!({ "config": stages("programmatic") })),
        entry("chain graph", 220.0, json!({ "config": chain })),
        entry("other lists graph", 220.0, json!({ "config": chain, "schedule": stale })),
        entry("cublaslt graph", 218.0, json!({})),
    ];
    let text =
        cusync_gen::columns::write(&json!({ "device": "NVIDIA H200", "records": records })).expect("JSON");
    file(name, &text)
}

#[test]
fn predictions_are_held_against_a_record() {
    let file = record("against.json");
    let output = cusync(&["simulate", "gpt3_mlp", "--against", &file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = value["rows"].as_array().expect("a list");
    let seen: Vec<_> = rows.iter().map(|r| (r["variant"].as_str(), r["executor"].as_str())).collect();
    let expected = [("serial graph", "serial"), ("stated graph", "programmatic")];
    assert_eq!(seen[..2], expected.map(|(v, e)| (Some(v), Some(e))));
    assert!(
        rows.iter().all(|r| r["predicted_us"].as_f64().is_some_and(|us| us > 100.0 && us < 500.0)),
        "{rows:?}"
    );
    // A chain kernel is compared only if its work lists are known to match the current ones.
    assert_eq!((&value["unknown"], &value["other_schedules"]), (&1.into(), &2.into()));
    assert_eq!(rows.len(), 2);
    let goals = value["goals"].as_array().expect("a list");
    assert_eq!(
        goals.iter().map(|g| g["bound"].as_f64()).collect::<Vec<_>>(),
        [Some(0.06), Some(0.92), Some(0.02)]
    );
    assert_eq!(
        (&goals[1]["have"], &goals[1]["met"]),
        (&Value::Null, &false.into()),
        "two ways are not ranked"
    );
    assert_eq!(value["points"][0]["fastest"], "serial graph");
    let text = cusync(&["simulate", "--against", &file, "--executor", "serial"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("mean absolute error") && text.contains("goal at most 6.0 %"), "{text}");
    assert!(!text.contains("stated graph"), "{text}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_a_way_out() {
    let file = record("against_nothing.json");
    for (args, says) in [
        (vec!["simulate", "--against", "no such file"], "cannot be read"),
        (vec!["simulate", "--against", "Cargo.toml"], "no record of a benchmark"),
        (vec!["simulate", "chain3", "--against", &file], "nothing that can be predicted"),
        (vec!["simulate", "--against", &file, "--dim", "M=8"], "nothing that can be predicted"),
        (vec!["simulate"], "required"),
    ] {
        let output = cusync(&args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}
