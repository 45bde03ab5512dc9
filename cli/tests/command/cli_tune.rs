//! The contract of `cusync tune` in docs/json.md, without a GPU, and of the cache file on any machine.

use std::path::Path;

use cusync::runtime::{Overlap, Overrides, Summary, resolve_text, shipped};
use cusync::tune::{CacheEntry, Config, Key, Machine, Store, Tried};
use serde_json::Value;

use super::{cusync, folder, json};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Writes a cache with one entry.
pub(super) fn cache(path: &Path, m: u64, measured: &str, median_us: f64) {
    let overrides = Overrides { dims: vec![("M".into(), m)], ..Overrides::default() };
    let source = shipped("llama65_mlp").expect("the spec ships");
    let resolved = resolve_text(source, "llama65_mlp", &overrides).expect("a shipped spec");
    let machine = Machine { gpu: "NVIDIA H200".into(), driver: "13.0".into() };
    let time = Summary { median_us, p10_us: median_us, p90_us: median_us, samples: 15 };
    let entry = CacheEntry {
        pipeline: "llama65_mlp".into(),
        key: Key::new(&resolved, &machine, None, Overlap::Plain),
        measured: measured.into(),
        best: Tried { config: Config::Decode, predicted_us: 90.0, time },
        others: Vec::new(),
    };
    Store::at(path).update(|cache| cache.insert(entry)).expect("writable");
}

#[test]
fn without_a_gpu_the_choice_is_the_prediction() {
    if cusync::device::Device::open(0).is_ok() {
        println!("skipped: there is a GPU, and it would be measured on");
        return;
    }
    let file = folder("tune_predicts").join("tuned.json");
    let args = ["tune", "gpt3_mlp", "--dim", "M=256", "--cache", &text(&file), "--json"];
    let output = cusync(&args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let value = json(&output);
    assert_eq!((&value["plan"], &value["measured"]), (&"predicted".into(), &false.into()));
    assert_eq!((&value["executor"], &value["edges"]), (&"any".into(), &"plain".into()));
    assert_eq!((&value["dims"]["M"], &value["element"]), (&256.into(), &"fp16".into()));
    assert!(value["note"].as_str().is_some_and(|n| n.contains("the choice is the prediction")));
    assert!(value["cache"].is_null() && !file.exists(), "nothing was measured, nothing is kept");
    let candidates = value["candidates"].as_array().expect("a list");
    assert!(candidates.len() > 10);
    assert_eq!(candidates[0]["name"], value["chosen"]["name"]);
    let times: Vec<f64> = candidates.iter().filter_map(|c| c["predicted_us"].as_f64()).collect();
    assert!(times.len() == candidates.len() && times.windows(2).all(|w| w[0] <= w[1]));
    let kinds = ["stages", "in_turn", "chain"];
    let kernels = |c: &Value| c["config"] == "decode" || kinds.iter().any(|k| c["config"][k].is_object());
    assert!(candidates.iter().all(|c| c["median_us"].is_null() && kernels(c)));

    let one = json(&cusync(&["tune", "diamond", "--executor", "streams", "--device", "a100", "--json"]));
    assert_eq!((&one["executor"], &one["device"]), (&"streams".into(), &"a100".into()));
    // For convolutions, `tune` offers the tiles of every kernel, whole and split.
    let images = json(&cusync(&["tune", "resnet_layer", "--device", "h200", "--json"]));
    let names: Vec<&str> =
        images["candidates"].as_array().expect("a list").iter().filter_map(|c| c["name"].as_str()).collect();
    for tile in ["64 x 64", "128 x 64", "128 x 128", "256 x 64"] {
        for parts in ["whole tiles", "cut along k"] {
            let offered = format!("fused: {tile} tiles, static, {parts}");
            assert!(names.contains(&offered.as_str()), "{offered}: {names:?}");
        }
    }
    let plain = cusync(&["tune", "two_gemms", "--dim", "M=64"]);
    let page = String::from_utf8_lossy(&plain.stdout);
    assert!(page.contains("plan: predicted") && page.contains("the choice is the prediction"), "{page}");
}

#[test]
fn caches_are_shown_and_merged() {
    let folder = folder("tune_merges");
    let (own, theirs) = (folder.join("mine.json"), folder.join("theirs.json"));
    cache(&own, 8, "2026-11-20T10:00:00Z", 95.0);
    cache(&theirs, 8, "2026-11-21T10:00:00Z", 93.5);
    cache(&theirs, 16, "2026-11-21T10:00:00Z", 96.0);
    let merge = ["tune", "--cache", &text(&own), "--merge", &text(&theirs), "--json"];
    let merged = json(&cusync(&merge));
    assert_eq!(merged["entries"], 2);
    assert_eq!(merged["files"][0], serde_json::json!([text(&theirs), 2, 2]));
    assert_eq!(json(&cusync(&merge))["files"][0][2], 0, "nothing is new the second time");
    let shown = json(&cusync(&["tune", "--show", "--cache", &text(&own), "--json"]));
    let mut entries = shown["entries"].as_array().expect("a list").clone();
    // The file is sorted by digest.
    entries.sort_by_key(|e| e["key"]["dims"]["M"].as_u64());
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["key"]["machine"]["gpu"], "NVIDIA H200");
    assert_eq!(entries[0]["best"]["config"], "decode");
    let times: Vec<&Value> = entries.iter().map(|e| &e["best"]["time"]["median_us"]).collect();
    assert_eq!(times, [93.5, 96.0], "the later measurement, and both sizes");
    let page = cusync(&["tune", "--show", "--cache", &text(&own)]);
    let page = String::from_utf8_lossy(&page.stdout);
    assert!(page.contains("2026-11-21, 1 candidates") && page.contains("NVIDIA H200, CUDA 13.0"), "{page}");
    let none = json(&cusync(&["tune", "--show", "--cache", &text(&folder.join("none.json")), "--json"]));
    assert_eq!(none["entries"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_cannot_be_read_is_told_and_left_alone() {
    let folder = folder("tune_corrupt");
    let (bad, newer, good) = (folder.join("bad.json"), folder.join("newer.json"), folder.join("good.json"));
    let later = r#"{ "format": "cusync tuned plans", "version": 7, "entries": [] }"#;
    std::fs::write(&bad, "{ not json").expect("writable");
    std::fs::write(&newer, later).expect("writable");
    cache(&good, 8, "2026-11-20T10:00:00Z", 95.0);
    let before = std::fs::read_to_string(&good).expect("readable");
    let missing = text(&folder.join("missing.json"));
    let (bad, newer, good) = (text(&bad), text(&newer), text(&good));
    let cases: &[(&[&str], &str)] = &[
        (&["tune", "--show", "--cache", &bad], "not a cache of tuned plans"),
        (&["tune", "--show", "--cache", &newer], "version 7"),
        (&["tune", "gpt3_mlp", "--cache", &bad], "not a cache of tuned plans"),
        (&["tune", "--merge", &good, "--cache", &bad], "not a cache of tuned plans"),
        (&["tune", "--merge", &bad, "--cache", &good], "not a cache of tuned plans"),
        (&["tune", "--merge", &newer, "--merge", &good, "--cache", &good], "version 7"),
        (&["tune", "--merge", &missing, "--cache", &good], "no such file"),
        (&["tune"], "required"),
        (&["tune", "gpt3_mlp", "--show"], "cannot be used with"),
        (&["tune", "gpt3_mlp", "--executor", "cpu"], "not tuned"),
        (&["tune", "gpt3_mlp", "--executor", "copilot"], "not tuned"),
        (&["tune", "gpt3_mlp", "--candidates", "0"], "0"),
        (&["tune", "gtp3_mlp"], "did you mean"),
        (&["run", "gpt3_mlp", "--cache", &good, "--no-cache"], "cannot be used with"),
    ];
    for (args, word) in cases {
        let output = cusync(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(
            errors.starts_with("error") && errors.contains(word) && output.stdout.is_empty(),
            "{args:?}: {errors}"
        );
    }
    assert_eq!(std::fs::read_to_string(&bad).expect("readable"), "{ not json");
    assert_eq!(std::fs::read_to_string(&newer).expect("readable"), later);
    assert_eq!(std::fs::read_to_string(&good).expect("readable"), before);
}

#[test]
fn explain_prices_every_decision_by_the_whole_chain() {
    let value = json(&cusync(&["explain", "gpt3_mlp", "--dim", "M=512", "--executor", "serial", "--json"]));
    let choices = value["choices"].as_array().expect("a list");
    assert_eq!((&choices[0]["subject"], &choices[0]["decision"]), (&"executor".into(), &"serial".into()));
    let names: Vec<&str> =
        choices[0]["alternatives"].as_array().into_iter().flatten().filter_map(|a| a[0].as_str()).collect();
    for executor in ["streams", "programmatic", "fused"] {
        assert!(names.contains(&executor), "{names:?}");
    }
    let own = value["predicted"]["synchronised_us"].as_f64().expect("it is predicted");
    // Two rows of tiles allow few orders.
    for (kind, fewest) in [("tile of ", 3), ("order of ", 2)] {
        let of_kind = choices.iter().filter(|c| c["subject"].as_str().is_some_and(|s| s.starts_with(kind)));
        for choice in of_kind {
            let times: Vec<f64> = choice["alternatives"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|a| a[1].as_f64())
                .collect();
            assert!(times.len() >= fewest && times.windows(2).all(|w| w[0] <= w[1]), "{choice}");
            // The search finds little to improve.
            assert!(times[0] > own * 0.95, "{choice}: {own} us as chosen");
        }
    }
    // For cases where `choose` picks a kernel without clusters: the CTAs of a cluster cannot draw.
    let page = cusync(&["explain", "gpt3_mlp", "--dim", "M=100", "--executor", "fused"]);
    let page = String::from_utf8_lossy(&page.stdout);
    assert!(page.contains("executor: fused: ") && page.contains(" %)"), "{page}");
    assert!(page.contains("drawn from a counter, whole tiles only"), "{page}");
}

#[test]
fn calibrate_needs_a_gpu_and_says_so() {
    if cusync::device::Device::open(0).is_ok() {
        println!("skipped: there is a GPU, and it would be measured");
        return;
    }
    let file = folder("calibrates").join("here.ron");
    let output = cusync(&["calibrate", "-o", &text(&file)]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("no NVIDIA driver") || errors.contains("GPU"), "{errors}");
    assert!(
        errors.contains("help: `cusync doctor`") && output.stdout.is_empty() && !file.exists(),
        "{errors}"
    );
}
