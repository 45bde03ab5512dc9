//! `cusync model bench` beside peers: programs that answer as PyTorch would, that fail, and PyTorch itself.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::models::tiny;
use super::{cusync, folder, json, root};

const HELLO: &str = r#"echo '{"torch": "9.1", "transformers": "8.2", "gpus": 0}'"#;

/// A program in place of Python, which does this for every job, the line `$job`.
fn peer(name: &str, start: &str, answer: &str) -> String {
    let path = folder(name).join("python3").display().to_string();
    let text = format!("#!/bin/sh\n{start}\nwhile read -r job; do\n{answer}\ndone\n");
    // Another process writes it: a test that starts a program meanwhile would hold the file open.
    let write = r#"printf '%s' "$1" > "$2" && chmod +x "$2""#;
    let wrote = Command::new("sh").args(["-c", write, "sh", &text, &path]).status().expect("a shell");
    assert!(wrote.success());
    path
}

fn quick<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let always = ["model", "bench", model, "--cpu", "--batch", "1,2", "--cached", "4", "--seconds", "0.01"];
    [&always, more].concat()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn times_of_a_peer_stand_beside_ours() {
    let model = tiny("bench_beside");
    let answer = r#"case "$job" in
        *steps*compiled*) echo '{"us": 2e9}';;
        *steps*eager*) echo '{"us": 4e9}';;
        *) echo '{"us": 5e6}';;
    esac"#;
    let python = peer("bench_beside_peer", HELLO, answer);
    let more = ["--python", &python, "--pytorch", "both"];
    let report = json(&cusync(&quick(&model, &[&more[..], &["--json"]].concat())));
    assert_eq!(report["pytorch"], json!({ "python": python, "torch": "9.1", "transformers": "8.2" }));
    assert_eq!((&report["note"], &report["tokens"]), (&Value::Null, &Value::Null));
    let points = report["points"].as_array().expect("a list");
    assert_eq!(points.len(), 2);
    for point in points {
        let times = |kind: &str, us: f64| json!({ "kind": kind, "step_us": us, "first_token_ms": 5e3, "failed": null });
        assert_eq!(point["peers"], json!([times("compiled", 2e9), times("eager", 4e9)]));
        let speedup = 2e9 / point["step_us"].as_f64().expect("a time");
        let have = point["speedup"].as_f64().expect("a number");
        assert!((have - speedup).abs() < 1e-9 * speedup, "{have} {speedup}");
    }
    // The host runs eager steps only, unless it is told otherwise.
    let page = text(&cusync(&quick(&model, &["--python", &python])));
    for part in [
        "eager, us a step",
        "eager, first token, ms",
        "speed-up",
        "SDPA attention",
        "4000000000",
        "5000.0",
        "torch 9.1, transformers 8.2",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("compiled"), "{page}");
    // A kind that failed might have been the fastest.
    let answer =
        r#"case "$job" in *steps*compiled*) echo '{"failed": "failed: x"}';; *) echo '{"us": 4e9}';; esac"#;
    let python = peer("bench_beside_half", HELLO, answer);
    let half = json(&cusync(&quick(&model, &["--python", &python, "--pytorch", "both", "--json"])));
    let point = &half["points"][0];
    assert_eq!((&point["peers"][1]["step_us"], &point["speedup"]), (&json!(4e9), &Value::Null));
}

#[test]
fn numbers_that_measure_nothing_are_refused() {
    let cases = [
        ("--batch", "8,0", "from 1 to 1024"),
        ("--cached", "128,0", "at least 1"),
        ("--seconds", "nan", "more than 0"),
        ("--seconds", "-1", "more than 0"),
        ("--seconds", "inf", "more than 0"),
        ("--slots", "2", "--slots"),
    ];
    for (option, value, words) in cases {
        let output = cusync(&["model", "bench", "/none", option, value, "--json"]);
        let fault: Value = serde_json::from_slice(&output.stderr).expect("an error as JSON");
        assert_eq!((&fault["code"], output.status.code()), (&json!("usage"), Some(2)), "{fault}");
        assert!(fault["error"].as_str().is_some_and(|text| text.contains(words)), "{fault}");
    }
}

#[test]
fn a_failure_costs_one_time_of_the_peer() {
    let model = tiny("bench_failures");
    let steps = |action: &str| {
        format!(r#"case "$job" in *steps*'"batch":1'*) {action};; *) echo '{{"us": 7e9}}';; esac"#)
    };
    let cases = [
        ("memory", r#"echo '{"failed": "out of memory: 3 GiB"}'"#, "out of memory: 3 GiB"),
        ("crash", "echo 'Boom: no' >&2; exit 3", "crashed: exit status: 3: Boom: no"),
        ("garbage", "echo hello", "not JSON: hello"),
        ("empty", "echo '{}'", "not an answer: {}"),
        // A program that it started keeps its output open.
        ("orphan", "sleep 60 & exit 4", "crashed: exit status: 4: no message"),
        ("hang", "exec sleep 600", "no answer in 1 s: raise --peer-limit"),
    ];
    for (name, action, failed) in cases {
        let python = peer(&format!("bench_failures_{name}"), HELLO, &steps(action));
        let more = ["--python", &python, "--peer-limit", "1"];
        let output = cusync(&quick(&model, &[&more[..], &["--json"]].concat()));
        let points = &json(&output)["points"];
        assert!(output.status.success(), "{name}");
        assert_eq!(points[0]["peers"][0]["failed"], failed, "{name}");
        assert_eq!((&points[0]["peers"][0]["step_us"], &points[0]["speedup"]), (&Value::Null, &Value::Null));
        assert!(points[0]["step_us"].as_f64().is_some_and(|us| us > 0.0));
        assert_eq!(points[1]["peers"][0]["step_us"], 7e9, "{name}: the other point is measured");
        let page = text(&cusync(&quick(&model, &more)));
        let line = format!("eager, 1 text, 4 cached: {failed}");
        assert!(page.lines().any(|l| l == line), "{page}");
        let word = failed.split(':').next().expect("one part");
        assert!(page.lines().any(|l| l.starts_with('│') && l.contains(word)), "{page}");
    }
}

#[test]
fn what_is_missing_is_a_note_or_an_error() {
    let model = tiny("bench_missing");
    let none = "name a Python interpreter";
    let cases = [
        (
            "torch",
            r#"echo '{"missing": "No module named torch"}'; exit"#,
            "No module named torch",
            "pip install",
        ),
        ("garbage", "echo hello", "not JSON: hello", none),
        ("ends", "exit 5", "crashed: exit status: 5", none),
        ("hangs", "exec sleep 600", "no answer in 1 s", "--peer-limit"),
    ];
    for (name, start, reason, help) in cases {
        let python = peer(&format!("bench_missing_{name}"), start, "exit");
        let limit = ["--peer-limit", "1", "--json"];
        let fault = cusync(&quick(&model, &[&["--python", &python][..], &limit].concat()));
        let fault: Value = serde_json::from_slice(&fault.stderr).expect("an error as JSON");
        assert_eq!(fault["code"], "no-pytorch", "{fault}");
        let said = fault["error"].as_str().expect("text");
        assert!(said.contains(reason) && said.contains(help) && said.contains(&python), "{said}");
        // The interpreter that nobody named is found on the path.
        let path = Path::new(&python).parent().expect("a folder").display().to_string();
        let path = format!("{path}:{}", std::env::var("PATH").expect("a path"));
        let run = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cusync"));
            command
                .args(quick(&model, more))
                .args(limit)
                .env("PATH", &path)
                .output()
                .expect("the binary starts")
        };
        let found = run(&[]);
        let report = json(&found);
        let note = report["note"].as_str().expect("a note");
        assert!(found.status.success() && note.contains(reason) && !note.contains('\n'), "{note}");
        assert_eq!((&report["pytorch"], &report["points"][0]["peers"]), (&Value::Null, &json!([])));
        assert_eq!(run(&["--check-tokens", "4"]).status.code(), Some(2), "tokens need the peer");
    }
    let nowhere = cusync(&quick(&model, &["--python", "/none"]));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("/none: does not start"), "{nowhere:?}");
    let without = json(&cusync(&quick(&model, &["--no-pytorch", "--json"])));
    assert_eq!((&without["note"], &without["pytorch"]), (&Value::Null, &Value::Null));
    for more in [["--check-tokens", "4"], ["--python", "python3"], ["--pytorch", "eager"]] {
        let output = cusync(&quick(&model, &[&["--no-pytorch"][..], &more].concat()));
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
    let long = cusync(&quick(&model, &["--check-tokens", "481"]));
    assert!(String::from_utf8_lossy(&long.stderr).contains("--check-tokens 480"), "{long:?}");
}

#[test]
fn tokens_are_judged_by_what_float32_prefers() {
    let model = tiny("bench_tokens");
    let judged = |gap: f64| {
        format!(
            r#"{{"halves_agree_until": 2, "agree_until": 2, "peer_agree_until": 3, "place": 2, "gap": {gap}, "noise": 0.5}}"#
        )
    };
    let cases = [
        ("equal", judged(0.0), Some(0), "right"),
        ("near", judged(0.9), Some(0), "right"),
        ("far", judged(1.1), Some(1), "WRONG"),
        (
            "small",
            r#"{"halves_agree_until": 2, "unjudged": "out of memory: x"}"#.into(),
            Some(2),
            "no verdict: out of",
        ),
        ("failed", r#"{"failed": "failed: x"}"#.into(), Some(2), "tokens were not compared: failed: x"),
    ];
    for (name, answer, status, words) in cases {
        let answer =
            format!(r#"case "$job" in *'"tokens"'*) echo '{answer}';; *) echo '{{"us": 7e9}}';; esac"#);
        let python = peer(&format!("bench_tokens_{name}"), HELLO, &answer);
        let output = cusync(&quick(&model, &["--python", &python, "--check-tokens", "4"]));
        assert_eq!(output.status.code(), status, "{name}");
        assert!(text(&output).contains(words), "{}", text(&output));
    }
}

/// Sends a signal to the command once a peer has written its process id to the file `$MARK`. Returns the output, and
/// the peer's line per start.
fn interrupted(name: &str, args: &[&str], signal: &str) -> (Output, String) {
    let mark = folder(name).join("pid");
    let temporary = folder(&format!("{name}_temporary"));
    let command = Command::new(env!("CARGO_BIN_EXE_cusync"))
        .args(args)
        .envs([("TMPDIR", &temporary), ("MARK", &mark)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let begin = Instant::now();
    let pid = loop {
        match std::fs::read_to_string(&mark) {
            Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{name}: the peer does nothing");
    };
    let killed =
        Command::new("kill").args([signal, &command.id().to_string()]).status().expect("`kill` is there");
    assert!(killed.success());
    let output = command.wait_with_output().expect("it ends");
    assert!(!Path::new("/proc").join(&pid).exists(), "{name}: the peer ended with the command");
    let left: Vec<_> = std::fs::read_dir(&temporary).expect("a folder").collect();
    assert!(left.is_empty(), "{name}: {left:?}");
    let starts = std::fs::read_to_string(mark.with_extension("starts")).expect("written");
    (output, starts)
}

#[test]
fn an_interrupt_ends_the_peer_and_keeps_our_times() {
    let model = tiny("bench_interrupt");
    let start = format!(r#"echo start >> "$MARK.starts"; {HELLO}"#);
    let python = peer("bench_interrupt_peer", &start, r#"echo $$ > "$MARK"; exec sleep 600"#);
    // With random weights, the first job writes them.
    let weights = ["--random", "--check-tokens", "4"];
    for (signal, more, status) in
        [("-INT", &[][..], 0), ("-TERM", &[][..], 0), ("-INT", &weights[..], 2), ("-TERM", &weights[..], 2)]
    {
        let name = format!("bench_interrupt{signal}_{status}");
        let args = quick(&model, &[&["--python", &python, "--json"], more].concat());
        let (output, starts) = interrupted(&name, &args, signal);
        let report = json(&output);
        assert_eq!(output.status.code(), Some(status), "{report}");
        for point in report["points"].as_array().expect("a list") {
            assert_eq!(point["peers"][0]["failed"], "interrupted");
            assert!(point["step_us"].as_f64().is_some_and(|us| us > 0.0));
        }
        assert_eq!(starts, "start\n", "no process starts after the interrupt");
    }
}

#[test]
fn an_interrupt_of_our_measurement_leaves_nothing() {
    let model = tiny("bench_stop");
    let start = format!(r#"echo start >> "$MARK.starts"; {HELLO}; echo $$ > "$MARK""#);
    let python = peer("bench_stop_peer", &start, "exit");
    let long = ["model", "bench", &model, "--cpu", "--python", &python, "--seconds", "600", "--json"];
    let args = [&long[..], &["--cached", "4", "--batch", "1"]].concat();
    for signal in ["-INT", "-TERM"] {
        let (output, _) = interrupted(&format!("bench_stop{signal}"), &args, signal);
        let fault: Value = serde_json::from_slice(&output.stderr).expect("an error as JSON");
        assert_eq!((&fault["code"], output.status.code()), (&json!("interrupted"), Some(2)), "{fault}");
    }
}

#[test]
fn an_interrupt_of_a_later_measurement_keeps_the_earlier_ones() {
    let model = tiny("bench_cut");
    let many = (1..=200).map(|cached| cached.to_string()).collect::<Vec<_>>().join(",");
    // On a busy machine the first measurement may take long.
    let cut = |seconds: u32| {
        // The peer is not asked for anything before our measurements are complete.
        let mark = format!(r#"(sleep {seconds}; echo $$ > "$MARK") & wait"#);
        let start = format!(r#"echo start >> "$MARK.starts"; {HELLO}; {mark}"#);
        let python = peer("bench_cut_peer", &start, "exit");
        let args = ["model", "bench", &model, "--cpu", "--python", &python, "--seconds", "0.2"];
        let args = [&args[..], &["--batch", "1", "--cached", &many, "--json"]].concat();
        interrupted("bench_cut_off", &args, "-INT").0
    };
    let output = [2, 4, 8, 16, 32].into_iter().map(cut).find(|output| !output.stdout.is_empty());
    let output = output.expect("a measurement within half a minute");
    let report = json(&output);
    let points = report["points"].as_array().expect("a list").len();
    assert!((1..200).contains(&points), "{report}");
    assert_eq!((&report["interrupted"], output.status.code()), (&json!(true), Some(2)), "{report}");
    let note = format!("interrupted: {points} of 200 points were measured, and no PyTorch");
    assert_eq!(report["note"], json!(note));
}

/// An interpreter with torch and transformers.
fn real() -> Option<String> {
    let own = root().join("target/python/tests/bin/python").display().to_string();
    let has = |python: &String| {
        let probe =
            Command::new(python).args(["-c", "import torch, transformers"]).stderr(Stdio::null()).status();
        probe.is_ok_and(|status| status.success())
    };
    [own, "python3".into()].into_iter().find(has)
}

#[test]
fn pytorch_measures_and_agrees() {
    let Some(python) = real() else {
        println!("skipped: no Python with torch and transformers");
        return;
    };
    let model = tiny("bench_pytorch");
    for more in [&[][..], &["--random", "--element", "f16"]] {
        let more = [more, &["--python", &python, "--check-tokens", "24", "--json"]].concat();
        let output = cusync(&quick(&model, &more));
        let report = json(&output);
        for point in report["points"].as_array().expect("a list") {
            assert_eq!(
                (&point["peers"][0]["kind"], &point["peers"][0]["failed"]),
                (&json!("eager"), &Value::Null)
            );
            assert!(point["speedup"].as_f64().is_some_and(|s| s > 0.0), "{point}");
        }
        let tokens = &report["tokens"];
        assert!(output.status.success() && tokens["right"] == true && tokens["tokens"] == 24, "{tokens}");
        assert!(tokens["noise"].as_f64().is_some_and(|noise| noise > 0.0), "{tokens}");
    }
}
