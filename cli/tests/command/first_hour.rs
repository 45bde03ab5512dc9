//! A new user's first hour: consistent answers, names, text streams, and mistakes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cusync"));
    command.args(args).stdin(Stdio::null()).env_remove("COLUMNS").env_remove("CLICOLOR_FORCE");
    command
}

fn cusync(args: &[&str]) -> Output {
    command(args).output().expect("the binary starts")
}

fn json(args: &[&str]) -> Value {
    let output = cusync(args);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Expects a refusal: status 2 and these words in its text.
fn refused(args: &[&str], words: &[&str]) {
    let output = cusync(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(words.iter().all(|word| text.contains(word)) && text.contains("help"), "{args:?}: {text}");
}

fn folder(name: &str) -> PathBuf {
    super::folder(&format!("first_hour/{name}"))
}

fn file(name: &str, text: &str) -> String {
    let path = folder(name).join("spec.ron");
    std::fs::write(&path, text).expect("writable");
    path.display().to_string()
}

#[test]
fn the_best_that_can_run_is_the_default_and_every_command_gives_the_same_number() {
    for (spec, m) in [("llama65_mlp", "M=8"), ("gpt3_mlp", "M=512"), ("chain3", "M=256")] {
        let check = json(&["check", spec, "--dim", m, "--json"]);
        let predicted = &check["predicted"];
        assert_eq!(predicted["best"], true, "{check}");
        let best = predicted["synchronised_us"].as_f64().expect("a time");
        let near = |us: &Value| us.as_f64().is_some_and(|us| (us / best - 1.0).abs() < 1e-9);
        let simulated = json(&["simulate", spec, "--dim", m, "--json"]);
        let times = simulated["times"].as_array().expect("times");
        assert_eq!(simulated["best"], predicted["executor"], "{spec}");
        let own = times.iter().find(|t| t["executor"] == predicted["executor"]).expect("the best is listed");
        assert!(near(&own["time_us"]), "{spec}: {own} {predicted}");
        assert!(times.iter().all(|t| t["time_us"].as_f64() >= Some(best)), "{spec}: {simulated}");
        let serial = times.iter().find(|t| t["executor"] == "serial").expect("serial is listed");
        assert!(
            (serial["time_us"].as_f64().expect("a time") / predicted["serial_us"].as_f64().expect("a time")
                - 1.0)
                .abs()
                < 1e-9
        );
        let traced = json(&["trace", spec, "--dim", m, "--simulate", "--json"]);
        let run = traced["runs"].as_array().and_then(|r| r.last()).expect("runs");
        // A library's tiles are unknown, so `fused` is shown instead.
        match predicted["executor"].as_str() {
            Some("library") => assert_eq!(run["name"], "fused", "{spec}"),
            _ => assert!(near(&run["shares"]["span_us"]), "{spec}: {} {best}", run["shares"]),
        }
        assert!(
            near(&json(&["explain", spec, "--dim", m, "--json"])["predicted"]["synchronised_us"]),
            "{spec}"
        );
    }
    let few = cusync(&["check", "llama65_mlp", "--dim", "M=8"]);
    let text = String::from_utf8_lossy(&few.stdout);
    assert!(text.contains("\nbest: decode kernel, ") && text.contains("x over serial launches"), "{text}");
}

#[test]
fn a_run_on_the_host_says_so_and_predicts_what_was_asked_for() {
    if cusync::device::Device::open(0).is_ok() {
        println!("skipped: there is a GPU, and it would run");
        return;
    }
    let small = ["run", "llama65_mlp", "--dim", "M=37", "--dim", "H=1032", "--dim", "I=776", "--json"];
    let run = json(&[&small[..], &["--executor", "fused"]].concat());
    assert_eq!((&run["executor"], &run["predicted"]["executor"]), (&"cpu".into(), &"fused".into()), "{run}");
    let run = json(&small);
    assert_eq!((&run["executor"], &run["predicted"]["best"]), (&"cpu".into(), &true.into()), "{run}");
}

#[test]
fn where_the_device_cannot_run_a_stage_every_command_says_so() {
    let own = file(
        "own",
        r#"Pipeline(name: "own", dims: { "M": 64, "H": 512 }, stages: [
            Gemm(name: "before", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
            Custom(name: "norm", tile: (16, "H"), writes: "N(M,H)",
                reads: [ Read(tensor: "Y(M,H)", rows: "16*m..16*m + 16", cols: "0..H") ]),
        ])"#,
    );
    for command in ["check", "explain"] {
        let answer = json(&[command, &own, "--json"]);
        assert!(answer["predicted"].is_null(), "an own kernel has no invented cost: {answer}");
        let note = answer["note"].as_str().expect("a note");
        assert!(note.contains("cannot run on h200") && note.contains("`norm`"), "{note}");
    }
    for command in [&["simulate", &own][..], &["trace", &own, "--simulate"], &["tune", &own]] {
        refused(command, &["`norm`", "Custom"]);
    }
    let dir = folder("own_gen").display().to_string();
    let rendered = json(&["gen", &own, "-o", &dir, "--json"]);
    assert!(rendered["note"].as_str().is_some_and(|n| n.contains("cannot run on h200")), "{rendered}");
    refused(&["trace", "gpt3_mlp", "--simulate", "--executor", "cpu"], &["host threads"]);
    refused(&["simulate", "gpt3_mlp", "--executor", "cpu"], &["host threads"]);
}

#[test]
fn what_is_rendered_is_what_was_proved_and_names_its_command() {
    let dir = folder("gen");
    let out = dir.display().to_string();
    for executor in ["fused", "serial"] {
        refused(&["gen", "two_gemms", "--executor", executor, "-o", &out], &["no header renders"]);
    }
    let library = dir.join("include").display().to_string();
    let made = cusync(&["gen", "two_gemms", "-o", &out, "--with-headers", &library]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let header = std::fs::read_to_string(dir.join("two_gemms.h")).expect("written");
    assert!(header.contains("run `cusync gen two_gemms -o "), "{}", &header[..400.min(header.len())]);
    assert!(!header.contains("executor serial"), "a header is of kernels that wait for tiles");
    let main = dir.join("main.cpp");
    std::fs::write(&main, "#include \"two_gemms.h\"\nint main() { return 0; }\n").expect("writable");
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-fsyntax-only", "-I", &library])
        .arg(&main)
        .output()
        .expect("a compiler is there: the build needed one");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[test]
fn specs_come_from_standard_input_with_or_without_a_mark() {
    for mark in ["", "\u{feff}"] {
        let mut child = command(&["check", "-", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let text = format!("{mark}{}", cusync::runtime::shipped("two_gemms").expect("it ships"));
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn names_are_listed_shown_and_guessed() {
    let names = json(&["list", "--json"]);
    let names = names["names"].as_array().expect("a list");
    assert_eq!(names.len(), cusync::runtime::SHIPPED.len() + cusync_dag::SHIPPED.len());
    assert!(names.iter().all(|n| n["about"].as_str().is_some_and(|about| !about.is_empty())), "{names:?}");
    for name in ["gpt3_mlp", "hits"] {
        let text = cusync(&["show", name]).stdout;
        let text = String::from_utf8(text).expect("UTF-8");
        let shipped = cusync::runtime::shipped(name).or_else(|| cusync_dag::shipped(name)).expect("it ships");
        assert_eq!(text.trim_end(), shipped.trim_end());
    }
    refused(&["show", "gtp3_mlp"], &["did you mean `gpt3_mlp`"]);
    refused(&["schedule", "hist"], &["did you mean `hits`"]);
    refused(&["check", "hits"], &["cusync schedule"]);
    refused(&["schedule", "gpt3_mlp"], &["cusync check"]);
    let dir = folder("init");
    let init = || command(&["init"]).current_dir(&dir).output().expect("the binary starts");
    assert!(init().status.success());
    let again = init();
    assert_eq!(again.status.code(), Some(2), "a file that is there is left alone");
    let first = dir.join("my.ron").display().to_string();
    assert_eq!(json(&["check", &first, "--json"])["verdict"], "proved");
    assert_eq!(json(&["run", &first, "--executor", "cpu", "--json"])["verified"], true);
    let completions = cusync(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&completions.stdout).contains("_cusync()"));
}

#[test]
fn tables_fit_and_diagnostics_are_coloured_where_that_is_wished() {
    let narrow = command(&["explain", "llama65_mlp"]).env("COLUMNS", "72").output().expect("it starts");
    let text = String::from_utf8_lossy(&narrow.stdout);
    let widest = text.lines().filter(|l| l.starts_with(['│', '┌'])).map(|l| l.chars().count()).max();
    assert!(widest.is_some_and(|w| w <= 72), "{widest:?}\n{text}");
    let wrong = file("colour", "Pipeline(name: \"p\", stages: [ Gem() ])");
    let plain = cusync(&["check", &wrong]).stderr;
    let forced = command(&["check", &wrong]).env("CLICOLOR_FORCE", "1").output().expect("it starts").stderr;
    let never = command(&["check", &wrong]).envs([("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).output();
    assert!(!plain.contains(&0x1b) && forced.contains(&0x1b));
    assert!(!never.expect("it starts").stderr.contains(&0x1b));
}

#[test]
fn a_program_is_answered_with_the_plan_that_was_chosen() {
    for program in ["hits", "img", "m1", "vec"] {
        let one = json(&["schedule", program, "--streams", "1", "--json"]);
        let mut kernels: Vec<(f64, f64)> = one["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .filter(|n| n["stream"] == 0)
            .map(|n| (n["start_us"].as_f64().expect("us"), n["end_us"].as_f64().expect("us")))
            .collect();
        kernels.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(kernels.windows(2).all(|w| w[0].1 <= w[1].0 + 1e-6), "{program}: {kernels:?}");
        let free = json(&["schedule", program, "--json"]);
        let (nodes, chosen) = (free["nodes"].as_array().expect("nodes"), &free["chosen"]);
        let waits: usize = nodes.iter().map(|n| n["waits_for"].as_array().map_or(0, Vec::len)).sum();
        let held: usize = nodes.iter().map(|n| n["held_by"].as_array().map_or(0, Vec::len)).sum();
        assert!(waits + held >= chosen["waits"].as_u64().expect("a number") as usize, "{program}: {free}");
        let streams: std::collections::BTreeSet<_> =
            nodes.iter().filter_map(|n| n["stream"].as_u64()).collect();
        assert_eq!(streams.len() as u64, chosen["streams"].as_u64().expect("a number"), "{program}");
        // A node that depends on a whole other node starts after it ends.
        let node_of = |id: &Value| nodes.iter().find(|n| n["id"] == *id).expect("known");
        for node in nodes {
            for before in node["waits_for"].as_array().expect("ids") {
                assert!(
                    node_of(before)["start_us"].as_f64() <= node["start_us"].as_f64(),
                    "{program}: {node}"
                );
            }
        }
    }
    let text = cusync(&["schedule", "vec"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("3 waits\n") && text.contains("form: "), "{text}");
}

#[test]
fn mistakes_in_a_program_are_errors() {
    let program = |name: &str, temporary: &str, kernel: &str| {
        let text = format!(
            r#"Dag(name: "p", buffers: {{ "x": 64, "y": 64 }}, temporary: {{ {temporary} }}, nodes: [
                Kernel(name: "k", reads: "x", writes: "y", us: 3.0, {kernel}),
            ])"#
        );
        file(name, &text)
    };
    let good = cusync(&["schedule", &program("dag_good", "", "")]);
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    refused(&["schedule", &program("dag_shared", "", "shared: 1048576")], &["shared memory is 1048576"]);
    let output = cusync(&["schedule", &program("dag_field", "", "stage: 2")]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("stage"), "{text}");
    let text = r#"Dag(name: "p", buffers: { "y": 64 }, temporary: { "t": 64 }, nodes: [
        Kernel(name: "k", reads: "t", writes: "y", us: 3.0),
    ])"#;
    refused(&["schedule", &file("dag_never", text)], &["`t` is read and never written"]);
}

#[test]
fn what_is_missing_is_told_by_the_status_of_doctor() {
    let output = cusync(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("a list");
    let missing = findings.iter().any(|f| f["ok"] == false);
    assert_eq!(output.status.code(), Some(if missing { 2 } else { 0 }), "{report}");
}

#[test]
fn the_toolchain_that_is_there_is_left() {
    let dir = folder("setup");
    std::fs::write(dir.join("mine.txt"), "mine").expect("writable");
    let output = cusync(&["setup", "--into", &dir.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("is no toolchain") && dir.join("mine.txt").exists()
    );
}

/// Every kind of mistake with every command, plus an unusable cache: each command supports the options its errors
/// suggest.
#[test]
fn no_command_advises_an_option_that_it_lacks() {
    let spoilt = folder("advice").join("cache");
    std::fs::write(&spoilt, "a file where a folder belongs").expect("writable");
    let planned = ["check", "explain", "simulate", "gen", "trace", "tune", "run"];
    let mistakes: [&[&str]; 8] = [
        &["no_such_spec"],
        &["gpt3_mlp", "--dim", "Q=1"],
        &["gpt3_mlp", "--dim", "M=0"],
        &["gpt3_mlp", "--executor", "no_such_executor"],
        &["gpt3_mlp", "--executor", "copilot"],
        &["vgg19_block1", "--executor", "streams"],
        &["gpt3_mlp", "--device", "no_such_device"],
        &["gpt3_mlp", "--executer", "fused"],
    ];
    let mut lines: Vec<Vec<&str>> =
        planned.iter().flat_map(|name| mistakes.iter().map(move |rest| [&[*name], *rest].concat())).collect();
    // Without a GPU these would run on the host, a trace of a session for minutes.
    lines.retain(|line| match line[0] {
        "run" => !["copilot", "streams"].contains(line.last().expect("words")),
        "trace" => line.last() != Some(&"copilot"),
        _ => true,
    });
    lines.extend([
        vec!["bench", "mlp", "--from", "no_such.json"],
        vec!["bench", "no_such_suite"],
        vec!["simulate", "--against", "no_such.json"],
        vec!["schedule", "no_such_program"],
        vec!["schedule", "hits", "--streams", "0"],
        vec!["show", "no_such_spec"],
        vec!["setup", "--into", "/dev/null"],
        vec!["calibrate", "--seconds"],
    ]);
    let mut advised = 0;
    for line in lines {
        let output = command(&line)
            .env("XDG_CACHE_HOME", &spoilt)
            .current_dir(folder("advice_out"))
            .output()
            .expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stderr);
        for advice in text.lines().filter(|l| l.contains("help:") || l.contains("similar")) {
            // Text in quotes may be a line for another command.
            for part in advice.split('`') {
                let mut command: Vec<&str> =
                    part.strip_prefix("cusync ").map_or(line.clone(), |rest| rest.split(' ').collect());
                // Each suite of `bench` has its own options.
                command.truncate(if command[0] == "bench" { 2 } else { 1 });
                let help = cusync(&[&command[..], &["--help"]].concat());
                let help = String::from_utf8_lossy(&help.stdout);
                let words = part.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
                for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
                    advised += 1;
                    assert!(help.contains(option), "{line:?}: {command:?} has no {option}: {text}");
                }
            }
        }
    }
    assert!(advised > 5, "only {advised} options are advised");
}

#[test]
fn every_record_that_ships_is_read() {
    let results = super::root().join("docs/results");
    let mut read = 0;
    for entry in std::fs::read_dir(results).expect("the folder ships").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let file = path.display().to_string();
        let suite = if path.file_name().is_some_and(|name| name.to_string_lossy().contains("dag")) {
            "dag"
        } else {
            "mlp"
        };
        let output = cusync(&["bench", suite, "--from", &file]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("H200") && text.lines().count() > 20, "{file}: {text}");
        read += 1;
    }
    assert!(read >= 3, "only {read} records");
}

/// Runs the commands in the README's table that need no GPU; the others run or report what is missing. They write only
/// to the paths given.
#[test]
fn the_commands_of_the_readme_run() {
    let readme = std::fs::read_to_string(super::root().join("README.md")).expect("text");
    let dir = folder("readme");
    let gpu = cusync::device::Device::open(0).is_ok();
    let mut ran = Vec::new();
    for line in readme.lines().filter_map(|line| line.strip_prefix("cusync ")) {
        let line = line.split('#').next().unwrap_or_default();
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let Some(&name) = words.first() else { continue };
        match name {
            // These take minutes on a GPU and are tested there.
            "bench" | "calibrate" if gpu => {}
            "bench" | "calibrate" => {
                refused(&words, &["no NVIDIA driver", "cusync doctor"]);
                assert!(!dir.join("here.ron").exists());
            }
            "doctor" => {
                let output = cusync(&words);
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(text.contains("cpu executor") && output.status.code() != Some(1), "{text}");
            }
            _ => {
                match name {
                    // Measured only with a GPU; whole models are slow on the host.
                    "trace" => words.push("--simulate"),
                    "tune" => words.extend(["--cache", "tuned.json"]),
                    "run" => words.extend(["--executor", "cpu", "--dim", "H=256", "--dim", "I=512"]),
                    "generate" => words.push("--cpu"),
                    _ => {}
                }
                // `gen` is shown with a user file written by `init`.
                let output = command(&words).current_dir(&dir).output().expect("the binary starts");
                assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
        ran.push(name.to_owned());
    }
    let all = [
        "init",
        "check",
        "explain",
        "gen",
        "run",
        "bench",
        "tune",
        "calibrate",
        "trace",
        "model",
        "generate",
        "schedule",
        "doctor",
    ];
    for name in all {
        assert!(ran.iter().any(|r| r == name), "the README does not show {name}: {ran:?}");
    }
}
