//! What can run a pipeline, and why other executors cannot: every command gives the same answer.

use serde_json::Value;

use super::{cusync, file};

/// Stages that no kernel can load.
const BEYOND_KERNELS: [(&str, &str); 6] = [
    (
        "stride",
        r#"Conv2d(name: "c", input: "X(1,20,20,8)", filter: "F(3,3,8,8)", out: "Y(1,2,2,8)", stride: (9,9))"#,
    ),
    ("taps", r#"Conv2d(name: "c", input: "X(1,20,20,8)", filter: "F(16,16,8,8)", out: "Y(1,5,5,8)")"#),
    (
        "rows",
        r#"Conv2d(name: "c", input: "X(1,4,300,8)", filter: "F(3,3,8,8)", padding: (1,1), out: "Y(1,4,300,8)")"#,
    ),
    (
        "padding",
        r#"Conv2d(name: "c", input: "X(1,4,4,8)", filter: "F(3,3,8,8)", padding: (256,1), out: "Y(1,514,4,8)")"#,
    ),
    (
        "window",
        r#"Conv2d(name: "c", input: "X(1,9,9,72)", filter: "F(7,200,72,8)", padding: (3,100), out: "Y(1,9,10,8)")"#,
    ),
    ("granule", r#"Gemm(name: "c", a: "X(37,27)", b: "W(27,33)", bias: "b(33)", out: "Y(37,33)")"#),
];

/// A stage writes data that the next run reads.
const REFUTED: &str = r#"Pipeline(name: "al", dims: { "M": 256, "H": 512 }, alias: { "Z": "X" }, stages: [
    Gemm(name: "one", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
    Gemm(name: "two", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
])"#;

/// The JSON of an answer or of an error.
fn json(args: &[&str], status: i32) -> Value {
    let output = cusync(&[args, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {error}");
    let text = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    serde_json::from_slice(text).unwrap_or_else(|e| panic!("{args:?}: {e}: {error}"))
}

fn spec(name: &str, text: &str) -> String {
    file(&format!("obstacles_{name}.ron"), text)
}

fn scratch(name: &str) -> String {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).display().to_string()
}

#[test]
fn every_command_falls_back_alike_with_the_same_note_and_obstacles() {
    for (name, stage) in BEYOND_KERNELS {
        let file = spec(name, &format!(r#"Pipeline(name: "p", dims: {{}}, stages: [ {stage} ])"#));
        for device in ["h200", "a100"] {
            let check = json(&["check", &file, "--device", device], 0);
            assert_eq!((&check["verdict"], &check["executor"]), (&"proved".into(), &"cpu".into()), "{name}");
            let note = check["note"].as_str().expect("why not the GPU");
            assert!(note.starts_with(&format!("cannot run on {device}: ")) && note.contains("`c`"), "{note}");
            let obstacles = check["obstacles"].as_array().expect("a list");
            let met_by = |executor: &str| obstacles.iter().find(|o| o["executor"] == executor);
            assert_eq!(met_by("cpu"), None);
            for executor in ["serial", "library", "streams", "programmatic", "fused", "copilot"] {
                let obstacle =
                    met_by(executor).unwrap_or_else(|| panic!("{name}: {executor} runs it on {device}"));
                assert!(obstacle["reason"].is_string(), "{obstacle}");
            }
            let real = met_by(if device == "h200" { "fused" } else { "streams" }).expect("it is there");
            assert_eq!(real["stage"], "c", "{real}");
            assert!(real["have"].as_u64() > real["limit"].as_u64(), "{real}");

            let out = scratch("obstacles_gen");
            let answers: [(&[&str], i32); 3] =
                [(&["explain"], 0), (&["gen", "-o", &out], 0), (&["run", "--threads", "1"], 0)];
            for (command, status) in answers {
                // `run` looks at the GPU of this machine.
                if command[0] == "run" && cusync::device::Device::open(0).is_ok() {
                    continue;
                }
                let answer = json(&[command, &[&file, "--device", device]].concat(), status);
                assert_eq!(
                    (&answer["note"], &answer["executor"]),
                    (&note.into(), &"cpu".into()),
                    "{command:?}"
                );
                assert_eq!(answer["obstacles"], check["obstacles"], "{command:?}");
            }
            let cache = scratch("obstacles_cache.json");
            let refusals: [&[&str]; 3] =
                [&["simulate"], &["trace", "--simulate"], &["tune", "--cache", &cache]];
            for command in refusals {
                if command[0] == "tune" && cusync::device::Device::open(0).is_ok() {
                    continue;
                }
                let error = json(&[command, &[&file, "--device", device]].concat(), 2);
                let text = error["message"].as_str().expect("text");
                assert!(
                    text.starts_with(note) && text.ends_with("nothing to predict"),
                    "{command:?}: {text}"
                );
                assert_eq!(error["obstacles"], check["obstacles"], "{command:?}");
            }
        }
    }
}

#[test]
fn an_executor_that_is_asked_for_is_refused_with_the_obstacles_of_all() {
    let file =
        spec("asked", &format!(r#"Pipeline(name: "p", dims: {{}}, stages: [ {} ])"#, BEYOND_KERNELS[0].1));
    let check = json(&["check", &file], 0);
    for command in [&["check"][..], &["explain"], &["run"], &["gen"]] {
        let asked = if command[0] == "gen" { "streams" } else { "fused" };
        let error = json(&[command, &[&file, "--executor", asked]].concat(), 2);
        assert_eq!(error["obstacles"], check["obstacles"], "{command:?}: {error}");
        assert!(error["error"].as_str().is_some_and(|e| e.contains("stage `c`")), "{command:?}: {error}");
    }
}

/// If some executors can run a pipeline, `explain` says why the others cannot.
#[test]
fn an_explanation_says_who_cannot_run_it() {
    let explained = cusync(&["explain", "resnet_layer"]);
    let text = String::from_utf8_lossy(&explained.stdout);
    for says in [
        "streams cannot run it: stage `first` is Conv2d, which has no kernel of its own on h200",
        "library cannot run it: stage `first`",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert!(!text.contains("fused cannot") && !text.contains("copilot"), "{text}");
}

/// Convolutions and GEMMs have separate kernels, so only serial launches remain.
#[test]
fn a_predicted_timeline_is_of_what_can_run() {
    let file = spec(
        "conv_then_gemm",
        r#"Pipeline(name: "p", dims: {}, stages: [
            Conv2d(name: "a", input: "X(1,4,4,8)", filter: "F(1,1,8,8)", out: "Y(1,4,4,8)"),
            Gemm(name: "b", a: "Y(16,8)", b: "W(8,8)", out: "Z(16,8)"),
        ])"#,
    );
    let runs = |args: &[&str]| -> Vec<String> {
        let traced = json(args, 0);
        let runs = traced["runs"].as_array().expect("runs").iter();
        runs.map(|run| run["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(runs(&["trace", &file, "--simulate"]), ["serial"]);
    // A convolution alone is at least as fast in a list kernel as in serial launches.
    assert_eq!(runs(&["trace", "resnet_layer", "--simulate"]), ["serial", "fused"]);
    assert_eq!(runs(&["trace", "gpt3_mlp", "--simulate", "--executor", "serial"]), ["serial"]);
}

#[test]
fn nothing_refuted_is_best() {
    let file = spec("refuted", REFUTED);
    for executor in ["auto", "serial", "library", "streams", "programmatic", "fused"] {
        let check = json(&["check", &file, "--executor", executor], 1);
        assert_eq!(check["verdict"], "refuted", "{executor}");
        assert!(check["predicted"].is_null(), "{executor}: {}", check["predicted"]);
        let text = cusync(&["check", &file, "--executor", executor]);
        let text = String::from_utf8_lossy(&text.stdout);
        assert!(!text.contains("best") && !text.contains("over serial launches"), "{executor}: {text}");
        let refusals: [&[&str]; 3] = [&["explain"], &["simulate"], &["trace", "--simulate"]];
        for command in refusals {
            // Library kernels have no timeline.
            if command[0] == "trace" && executor == "library" {
                continue;
            }
            let error = json(&[command, &[&file, "--executor", executor]].concat(), 1);
            let text = error["error"].as_str().expect("text");
            assert!(text.contains("`Z` overwrites the input `X`"), "{command:?}: {text}");
        }
    }
    let cache = scratch("obstacles_refuted.json");
    json(&["tune", &file, "--cache", &cache], 1);
}

/// Every executor's predicted gain is relative to the same serial chain.
#[test]
fn speed_ups_have_one_denominator() {
    for (name, dims) in [
        ("llama65_norm_mlp", &[][..]),
        ("llama65_attention", &[]),
        ("gpt3_mlp", &["--dim", "M=300"]),
        ("resnet_layer", &[]),
    ] {
        let answer = json(&[&["simulate", name], dims].concat(), 0);
        let times = answer["times"].as_array().expect("times");
        assert_eq!(times[0]["executor"], "serial", "{name}");
        let us = |time: &Value| time["time_us"].as_f64().expect("microseconds");
        for time in times {
            let gain = time["speedup"].as_f64().expect("over serial") * us(time) / us(&times[0]);
            assert!((gain - 1.0).abs() < 1e-9, "{name} {}: {gain}", time["executor"]);
            let check = json(
                &[&["check", name, "--executor", time["executor"].as_str().expect("a name")], dims].concat(),
                0,
            );
            let serial = check["predicted"]["serial_us"].as_f64().expect("it is known");
            assert!((serial / us(&times[0]) - 1.0).abs() < 1e-9, "{name} {}: {serial}", time["executor"]);
        }
    }
}

/// A requested executor reports its own time or an error.
#[test]
fn a_simulation_is_of_the_executor_that_was_asked_for() {
    let executors = |args: &[&str]| -> Vec<String> {
        let answer = json(&[&["simulate"], args].concat(), 0);
        let times = answer["times"].as_array().expect("times").iter();
        times.map(|time| time["executor"].as_str().expect("a name").to_owned()).collect()
    };
    let few = ["llama65_mlp", "--dim", "M=8"];
    assert_eq!(executors(&[&few[..], &["--executor", "copilot"]].concat()), ["serial", "copilot"]);
    assert_eq!(executors(&["two_gemms", "--executor", "serial"]), ["serial"]);
    let refused: [(&[&str], &str); 3] = [
        (&["simulate", "two_gemms", "--executor", "copilot"], "512 rows"),
        (&["simulate", "two_gemms", "--device", "a100", "--executor", "fused"], "sm_80"),
        (&["simulate", "two_gemms", "--device", "a100", "--executor", "library"], "no times of cuBLASLt"),
    ];
    for (args, says) in refused {
        let error = json(args, 2);
        assert!(error["error"].as_str().is_some_and(|e| e.contains(says)), "{args:?}: {error}");
    }
}

#[test]
fn blocks_of_the_benchmarks_are_proved_for_a_gpu() {
    let folder = super::root().join("benches/blocks");
    let mut pages: Vec<_> = std::fs::read_dir(folder).expect("pages").flatten().map(|e| e.path()).collect();
    pages.sort();
    assert!(pages.len() >= 9, "{pages:?}");
    for page in pages {
        let report = json(&["check", &page.display().to_string(), "--device", "h100"], 0);
        let executor = report["executor"].as_str().expect("a name");
        assert!(report["verdict"] == "proved" && executor != "cpu", "{}: {report}", page.display());
        let name = page.file_stem().and_then(|stem| stem.to_str()).expect("ASCII");
        assert_eq!(report["pipeline"], name, "a page is named after its file");
    }
}
