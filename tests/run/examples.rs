//! Every Rust example is short and runs. Cargo builds examples before it runs integration tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The examples in order.
const EXAMPLES: [&str; 13] = [
    "01_check",
    "02_render",
    "03_run_mlp",
    "04_graph_capture",
    "05_own_policy",
    "06_custom_stage",
    "07_fused",
    "08_dag",
    "09_cudarc",
    "10_candle",
    "11_convolutions",
    "12_generate",
    "13_copilot",
];

/// The folder of the built examples, next to the folder of the tests.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("it is running");
    test.ancestors().nth(2).expect("a test is two folders down").join("examples")
}

#[test]
fn the_list_is_complete_and_every_example_is_short() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(source).expect("the folder exists") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "rs") {
            let lines = std::fs::read_to_string(&path).expect("text").lines().count();
            assert!(lines < 80, "{} has {lines} lines", path.display());
            found.push(path.file_stem().expect("a name").to_string_lossy().into_owned());
        }
    }
    found.sort();
    assert_eq!(found, EXAMPLES);
}

#[test]
fn every_example_runs() {
    for name in EXAMPLES {
        let (feature, built) = match name {
            "09_cudarc" => (Some("cudarc"), cfg!(feature = "cudarc")),
            "10_candle" => (Some("candle"), cfg!(feature = "candle")),
            _ => (None, true),
        };
        if !built {
            println!(
                "skipped: {name} needs its feature: cargo test --features cudarc,candle --test run examples"
            );
            continue;
        }
        let path = folder().join(name);
        if !path.exists() {
            // `cargo test --test run` alone does not build them.
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--example", name]);
            build.args(feature.map(|feature| format!("--features={feature}")));
            assert!(build.status().is_ok_and(|s| s.success()), "{name} does not build");
        }
        let output = Command::new(&path).output().unwrap_or_else(|e| panic!("{name} did not start: {e}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {text}");
    }
}
