//! Errors as data: every command that fails under `--json` reports what, where and the fix, in the fields of
//! docs/json.md.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{OVERWRITES, cusync};

/// Runs a command that must fail; returns its exit status and the JSON on standard error.
fn error(args: &[&str]) -> (i32, Value) {
    let output = cusync(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    (output.status.code().expect("an exit status"), value)
}

/// Writes a file with this text to a folder of these tests.
fn file(name: &str, text: &str) -> String {
    super::file(&format!("json_errors_{name}"), text)
}

/// The codes of the table in docs/json.md.
fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(super::root().join("docs/json.md")).expect("the page is there");
    let (_, table) = text.split_once("## Codes of errors").expect("the page has the table");
    let table = table.split("\n## ").next().unwrap_or(table);
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let codes: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let unique: BTreeSet<String> = codes.iter().map(|code| (*code).to_owned()).collect();
    assert_eq!(unique.len(), codes.len(), "a code is listed twice");
    unique
}

/// Expected error: code, exit status, whether it names a file, line and column.
type Expected<'a> = (&'a str, i32, bool, Option<(u64, u64)>);

#[test]
fn every_kind_of_error_has_its_fields() {
    let no_such_field = file("field.ron", "Pipeline(name: \"p\", dims: { \"M\": 8 },\n    stage: [])");
    let half = file("half.ron", "Pipeline(name: \"p\",");
    let reuse = file("reuse.ron", OVERWRITES);
    let rotates = file(
        "rotates.ron",
        r#"Pipeline(name: "rotates", dims: { "M": 24, "HQ": 2, "HKV": 1 }, stages: [
        Attention(name: "attend", qkv: "QKV(M,(HQ+2*HKV)*32)", heads: "HQ", kv_heads: "HKV", rotary: "cs(M,32)", out: "A(M,HQ*32)"),
    ])"#,
    );
    let own = file(
        "own.ron",
        r#"Pipeline(name: "own", dims: { "M": 64 }, stages: [
        Custom(name: "norm", tile: (16, 64), writes: "N(M,64)",
            reads: [ Read(tensor: "Y(M,64)", rows: "16*m..16*m + 16", cols: "0..64") ]),
    ])"#,
    );
    let kernel = file("norm.cu", "");
    let (norm, other) = (format!("norm={kernel}"), format!("other={kernel}"));
    let program = file(
        "program.ron",
        "Dag(name: \"d\", buffers: { \"x\": 64 },\n  nodes: [ Kernel(name: \"k\", reads: \"y\") ])",
    );
    let device = file("device.ron", "(\n    name: \"mine\",\n    smss: 3,\n)");
    let corrupt = file("tuned.json", "{ half");
    let newer = file("newer.json", r#"{ "format": "cusync tuned plans", "version": 99, "entries": [] }"#);
    let words = file("words.json", "no JSON");
    let taken = file("taken.ron", "");
    let cases: &[(&[&str], Expected)] = &[
        (&["check", &no_such_field], ("unknown-field", 2, true, Some((2, 5)))),
        (&["explain", &half], ("syntax", 2, true, Some((1, 19)))),
        (&["check", "gpt3_mlp", "--dim", "Q=1"], ("unknown-dim", 2, true, Some((4, 11)))),
        (&["simulate", "gpt3_mlp", "--dim", "M=0"], ("zero-dim", 2, true, Some((4, 18)))),
        (&["check", "gpt3_mlp", "--device", "h2000"], ("unknown-device", 2, false, None)),
        (&["check", "gpt3_mlp", "--device", &device], ("bad-profile", 2, true, Some((3, 5)))),
        (&["check", "gpt3_mlp", "--device", "none.ron"], ("unreadable", 2, true, None)),
        (&["check", "gpt3_mlp", "--free-sms", "500"], ("free-sms", 2, false, None)),
        (&["run", "nothing.ron"], ("not-found", 2, true, None)),
        (&["check", "/"], ("unreadable", 2, true, None)),
        (&["show", &half], ("not-shipped", 2, true, None)),
        (&["init", &taken], ("file-exists", 2, true, None)),
        (&["gen", "two_gemms", "-o", "/dev/null/x"], ("unwritable", 2, true, None)),
        (&["run", &reuse, "--executor", "cpu"], ("reuse", 1, true, Some((4, 20)))),
        (&["check", &rotates, "--executor", "serial"], ("no-kernel", 2, true, Some((2, 25)))),
        (&["run", &rotates, "--executor", "fused"], ("no-kernel", 2, true, Some((2, 25)))),
        (&["simulate", &rotates], ("no-kernel", 2, false, None)),
        (&["run", &own, "--executor", "cpu"], ("custom-arithmetic", 2, false, None)),
        (&["run", &own, "--kernel", &norm, "--executor", "cpu"], ("custom-arithmetic", 2, false, None)),
        (&["run", &own, "--kernel", &other], ("custom-arithmetic", 2, false, None)),
        (&["run", &own, "--kernel", "norm=none.cu"], ("kernel-code", 2, true, None)),
        (&["run", &own, "--kernel", "norm"], ("usage", 2, false, None)),
        (&["gen", "two_gemms", "--executor", "fused"], ("unsupported", 2, false, None)),
        (&["tune", "two_gemms", "--executor", "cpu"], ("unsupported", 2, false, None)),
        (&["tune", "--show", "--cache", &corrupt], ("tuned-corrupt", 2, true, Some((1, 3)))),
        (&["tune", "--merge", &newer, "--cache", "none.json"], ("tuned-version", 2, true, None)),
        (&["tune", "--merge", "none", "--cache", "none.json"], ("not-found", 2, true, None)),
        (&["schedule", &program], ("unknown-buffer", 2, true, Some((2, 38)))),
        (&["schedule", "vec", "--dim", "Q=1"], ("unknown-dim", 2, true, Some((4, 11)))),
        (&["simulate", "--against", &words], ("bad-record", 2, true, Some((1, 2)))),
        (&["bench", "mlp", "--from", &words], ("bad-record", 2, true, Some((1, 2)))),
        (&["bench", "mlp", "--pipeline", "nothing"], ("not-found", 2, false, None)),
        (&["trace", "gpt3_mlp", "--simulate", "--executor", "cpu"], ("unsupported", 2, false, None)),
        (&["frobnicate"], ("usage", 2, false, None)),
        (&["check"], ("usage", 2, false, None)),
        (&["run", "gpt3_mlp", "--threads", "0"], ("usage", 2, false, None)),
        (&["bench", "mlp", "--seconds", "NaN"], ("usage", 2, false, None)),
        (&["bench", "mlp", "--seconds", "inf"], ("usage", 2, false, None)),
        (&["check", "gpt3_mlp", "--dim", "M"], ("usage", 2, false, None)),
        (&["check", "gpt3_mlp", "--executor", "warp"], ("usage", 2, false, None)),
    ];
    let mut wrong = Vec::new();
    for (args, (code, status, names_file, place)) in cases {
        let (exit, value) = error(&[*args, &["--json"]].concat());
        let field_of =
            |field: &str| value.get(field).unwrap_or_else(|| panic!("{args:?}: no {field}: {value}"));
        let found = (field_of("code").as_str(), exit, field_of("file").is_string());
        let line_column = field_of("line").as_u64().zip(field_of("column").as_u64());
        if found != (Some(*code), *status, *names_file) || line_column != *place {
            wrong.push(format!("{args:?}: {found:?} {line_column:?}"));
        }
        assert_eq!(field_of("status").as_i64(), Some(exit.into()), "{args:?}");
        let text = |field: &str| field_of(field).as_str().unwrap_or_default().to_owned();
        let (message, whole) = (text("message"), text("error"));
        assert!(!message.is_empty() && whole.contains(&message), "{args:?}: {value}");
        for form in ["help:", "error:", "error[", "\u{1b}", "\n  "] {
            assert!(!message.contains(form) && !text("help").starts_with(form), "{args:?}: {value}");
        }
        if *status == 2 && text("help").is_empty() {
            wrong.push(format!("{args:?} has no way out: {value}"));
        }
        assert!(documented().contains(*code), "docs/json.md lacks `{code}`");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_machine_without_a_gpu_says_so_in_every_command_that_needs_one() {
    if cusync::device::Device::open(0).is_ok() {
        println!("skipped: there is a GPU");
        return;
    }
    for args in [
        &["bench", "sync"][..],
        &["trace", "gpt3_mlp"],
        &["calibrate"],
        &["run", "two_gemms", "--executor", "serial"],
    ] {
        let (status, value) = error(&[args, &["--json"]].concat());
        let code = value["code"].as_str().unwrap_or_default();
        assert!(status == 2 && ["no-driver", "no-gpu", "driver"].contains(&code), "{args:?}: {value}");
        assert!(value["help"].is_string() && value["line"].is_null(), "{args:?}: {value}");
    }
}

/// Source files that create errors: in the compiler, the programs and the command.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, found),
            path if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            _ => {}
        }
    }
}

/// The quoted code that starts here, if any.
fn literal(text: &str) -> Option<&str> {
    let word = text.trim_start().trim_start_matches('(').strip_prefix('"')?.split('"').next()?;
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (!word.is_empty() && word.chars().all(good)).then_some(word)
}

/// Places where codes are not literals: dims and constants pass one on, and refutations use obligation ids.
const PASSED_ON: [&str; 4] =
    ["code, ", "constant.code", "self.obligation.id()", "refutation.obligation.id()"];

#[test]
fn the_table_of_codes_is_that_of_the_sources() {
    let mut files = Vec::new();
    for folder in ["codegen/src", "dag/src", "cli/src"] {
        sources(&super::root().join(folder), &mut files);
    }
    assert!(files.len() > 100, "{files:?}");
    let mut emitted: BTreeSet<String> =
        cusync_gen::check::Obligation::ALL.iter().map(|o| o.id().to_owned()).collect();
    let mut odd = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).expect("UTF-8");
        // Skip errors made by unit tests.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code: String =
            text.lines().filter(|l| !l.trim_start().starts_with("//")).flat_map(|l| [l, "\n"]).collect();
        for maker in ["Diagnostic::new(", "Fault::input(", "Fault::refuted("] {
            for rest in code.split(maker).skip(1) {
                match literal(rest) {
                    Some(word) => _ = emitted.insert(word.to_owned()),
                    None if PASSED_ON.iter().any(|form| rest.trim_start().starts_with(form)) => {}
                    None => odd.push(format!("{}: {maker}{:.40}", path.display(), rest)),
                }
            }
        }
        // Codes that are passed on from constants, dims and library errors.
        let by_match = path.ends_with("dims.rs") || path.ends_with("fault.rs");
        for maker in ["code: "].into_iter().chain(by_match.then_some("=> ")) {
            emitted.extend(code.split(maker).skip(1).filter_map(literal).map(str::to_owned));
        }
    }
    assert!(odd.is_empty(), "a code that this test cannot read: {odd:#?}");
    let table = documented();
    let missing: Vec<_> = emitted.difference(&table).collect();
    let stale: Vec<_> = table.difference(&emitted).collect();
    assert!(missing.is_empty() && stale.is_empty(), "docs/json.md lacks {missing:?} and has stale {stale:?}");
}
