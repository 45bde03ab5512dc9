//! Behavior of commands if their output or their cache cannot be written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn cusync(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cusync"));
    command.args(args).stdin(Stdio::null());
    command
}

const COMMANDS: [&[&str]; 11] = [
    &["check", "two_gemms", "--json"],
    &["check", "two_gemms"],
    &["explain", "two_gemms"],
    &["simulate", "two_gemms", "--json"],
    &["schedule", "vec"],
    &["tune", "--show", "--cache", "no such cache"],
    &["trace", "two_gemms", "--simulate"],
    &["list"],
    &["check", "--help"],
    &["--help"],
    &["--version"],
];

#[test]
fn output_that_is_lost_is_an_error() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        println!("skipped: no /dev/full");
        return;
    };
    for args in COMMANDS {
        let full = full.try_clone().expect("another handle");
        let output = cusync(args).stdout(full).stderr(Stdio::piped()).output().expect("the binary starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        let wrong = "the output cannot be written: ";
        let error = match args.contains(&"--json") {
            true => serde_json::from_str::<serde_json::Value>(&error).expect("JSON")["message"].to_string(),
            false => error.replacen("error: ", "\"", 1),
        };
        assert!(error.starts_with(&format!("\"{wrong}")), "{args:?}: {error}");
    }
}

#[test]
fn a_reader_who_has_enough_is_no_error() {
    for args in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = cusync(args).stdout(writer).stderr(Stdio::piped()).output().expect("the binary starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

fn folder(name: &str) -> PathBuf {
    super::folder(&format!("cli_output/{name}"))
}

/// Expects an error that contains these words and tells the user what to do.
fn refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(words.iter().all(|word| text.contains(word)) && text.contains("help: "), "{text}");
}

#[test]
fn a_file_on_a_full_disk_is_an_error_that_says_so() {
    // A file of this name on a full disk.
    let full = |name: &str, file: &str| {
        let folder = folder(name);
        std::os::unix::fs::symlink("/dev/full", folder.join(file)).expect("a link");
        folder
    };
    let words = ["No space left", "free space there"];
    let run = |args: &[&str], at: &Path| cusync(args).arg(at).output().expect("the binary starts");
    refused(&run(&["gen", "two_gemms", "-o"], &full("gen", "two_gemms.h")), &words);
    let page = full("trace", "t.html").join("t.html");
    refused(&run(&["trace", "two_gemms", "--simulate", "-o"], &page), &words);
    let certificate = full("certificate", "c.json").join("c.json");
    refused(&run(&["check", "two_gemms", "--certificate"], &certificate), &words);
}

/// Two empty caches of tuned plans.
fn caches(folder: &Path) -> (PathBuf, PathBuf) {
    let text = r#"{ "format": "cusync tuned plans", "version": 3, "entries": [] }"#;
    let (cache, other) = (folder.join("tuned.json"), folder.join("other.json"));
    std::fs::write(&cache, text).and_then(|()| std::fs::write(&other, text)).expect("writable");
    (cache, other)
}

#[test]
fn a_cache_that_is_read_only_or_no_cache_is_an_error_and_is_left() {
    let merge = |other: &Path, cache: &Path| {
        let mut command = cusync(&["tune", "--merge"]);
        command.arg(other).arg("--cache").arg(cache).output().expect("the binary starts")
    };
    let words = ["cannot be read or written", "--cache FILE"];
    let (cache, other) = caches(&folder("cache"));
    // Not even an administrator can write to these folders.
    refused(&merge(&other, Path::new("/proc/cusync/tuned.json")), &words);
    refused(&merge(&other, Path::new("/sys/kernel/tuned.json")), &words);
    // An endless file.
    let endless = folder("endless").join("tuned.json");
    std::os::unix::fs::symlink("/dev/zero", &endless).expect("a link");
    refused(&merge(&other, &endless), &["no regular file", "--cache FILE"]);
    let text = std::fs::read_to_string(&cache).expect("there");
    let damaged = text.replace("entries", "entr");
    std::fs::write(&cache, &damaged).expect("writable");
    refused(&merge(&other, &cache), &["not a cache of tuned plans", "it was left as it is"]);
    assert_eq!(std::fs::read_to_string(&cache).expect("there"), damaged);
}

/// Kills a command that would wait forever on a pipe.
fn bounded(args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_cusync")]).args(args).output().expect("`timeout` is there")
}

/// A named pipe that no process opens.
fn pipe(folder: &Path, name: &str) -> String {
    let path = folder.join(name).display().to_string();
    let made = Command::new("mkfifo").arg(&path).status().expect("`mkfifo` is there");
    assert!(made.success());
    path
}

#[test]
fn a_pipe_that_nobody_serves_is_refused_by_name() {
    let folder = folder("pipes");
    let (pipe, page) = (pipe(&folder, "pipe"), pipe(&folder, "pipe.html"));
    let (cache, _) = caches(&folder);
    let cache = cache.display().to_string();
    for args in [
        &["tune", "--show", "--cache", &pipe][..],
        &["tune", "--merge", &cache, "--cache", &pipe],
        &["tune", "--merge", &pipe, "--cache", &cache],
        &["tune", "two_gemms", "--cache", &pipe],
    ] {
        refused(&bounded(args), &["no regular file", &pipe]);
    }
    for args in [
        &["check", "two_gemms", "--certificate", &pipe][..],
        &["simulate", "two_gemms", "-o", &page],
        &["trace", "two_gemms", "--simulate", "-o", &page],
    ] {
        refused(&bounded(args), &["a pipe that nobody reads", args.last().expect("a file")]);
    }
    let lock = folder.join("other.json");
    std::fs::rename(folder.join("pipe"), folder.join("other.json.lock")).expect("ours");
    let merged = bounded(&["tune", "--merge", &cache, "--cache", &lock.display().to_string()]);
    refused(&merged, &["no regular file", "other.json"]);
}

#[test]
fn pipes_of_a_shell_are_read_and_written() {
    let folder = folder("substitution");
    let script = format!(
        "{0} check <({0} show two_gemms) --certificate >(cat > {1}/plan.json) && {0} schedule <({0} show vec) && {0} check {1}",
        env!("CARGO_BIN_EXE_cusync"),
        folder.display()
    );
    let output = Command::new("timeout").args(["120", "bash", "-c", &script]).output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(": proved") && text.contains("vec on h200"), "{text}{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is a folder"), "{output:?}");
}

/// Limits files to one block of 512 bytes, like a disk that fills up. The signal is ignored, so writes fail.
#[test]
fn a_file_that_cannot_be_replaced_stays_and_a_link_to_it_too() {
    let folder = folder("replaced");
    let (file, link) = (folder.join("plan.json"), folder.join("link.json"));
    std::fs::write(&file, "years of work").expect("writable");
    std::os::unix::fs::symlink("plan.json", &link).expect("a link");
    let certify = |limit: &str| {
        let script = format!(
            "{limit} exec {} check two_gemms --certificate {}",
            env!("CARGO_BIN_EXE_cusync"),
            link.display()
        );
        Command::new("timeout").args(["60", "bash", "-c", &script]).output().expect("a shell")
    };
    let full = certify("ulimit -f 1; trap '' XFSZ;");
    refused(&full, &["link.json cannot be written", "free space"]);
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "years of work");
    assert_eq!(std::fs::read_dir(&folder).expect("there").count(), 2, "nothing is left beside it");
    assert!(certify("").status.success());
    assert!(std::fs::read_to_string(&file).expect("there").contains("two_gemms"));
    assert!(link.is_symlink() && !file.is_symlink());
}

#[test]
fn a_link_to_a_cache_stays_when_caches_are_merged() {
    let folder = folder("links");
    let (cache, other) = caches(&folder);
    super::cli_tune::cache(&other, 8, "2026-11-20T10:00:00Z", 95.0);
    let link = folder.join("link.json");
    std::os::unix::fs::symlink("tuned.json", &link).expect("a link");
    let link = link.display().to_string();
    let merged = bounded(&["tune", "--merge", &other.display().to_string(), "--cache", &link]);
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
    assert!(Path::new(&link).is_symlink() && !cache.is_symlink());
    assert_eq!(std::fs::read(&cache).expect("there"), std::fs::read(&link).expect("there"));
    assert!(
        std::fs::read_to_string(&cache).expect("there").contains("llama65_mlp"),
        "the target was updated"
    );
}

#[test]
fn what_a_benchmark_could_not_read_or_write_is_told_before_it_measures() {
    let folder = folder("before");
    let (nowhere, new) = (folder.join("no/folder/x.json"), folder.join("new.json"));
    let bad = folder.join("bad.json");
    std::fs::write(&bad, "{ \"records\": 7 }").expect("writable");
    let [nowhere, new, bad, place] = [&nowhere, &new, &bad, &folder].map(|path| path.display().to_string());
    // If measuring began first, these would fail for lack of a GPU instead.
    for (args, words) in [
        (&["bench", "mlp", "--pytorch", &nowhere][..], "cannot be read"),
        (&["bench", "conv", "--pytorch", &bad], "not a file of a script of benches"),
        (&["bench", "mlp", "--save", &nowhere], "cannot be written"),
        (&["bench", "dag", "--save", &nowhere], "cannot be written"),
        (&["bench", "copilot", "--save", &place], "cannot be written"),
        (&["simulate", "--against", &bad], "no record of a benchmark"),
        (&["calibrate", "-o", &nowhere], "cannot be written"),
        (&["trace", "two_gemms", "-o", &nowhere], "cannot be written"),
    ] {
        let named = args.last().expect("a file");
        refused(&bounded(args), &[words, named]);
    }
    if cusync::device::Device::open(0).is_err() {
        let failed = bounded(&["bench", "mlp", "--save", &new]);
        assert!(
            !failed.status.success() && !Path::new(&new).exists(),
            "nothing is left of what was only tried"
        );
    }
}

#[test]
fn a_pipeline_that_is_too_large_names_its_tensors_and_dims_that_fit() {
    let my = folder("large").join("my.ron").display().to_string();
    assert!(bounded(&["init", &my]).status.success());
    let dims = ["--dim", "M=8", "--dim", "H=524288", "--dim", "I=524288"];
    let output = bounded(&[&["run", &my, "--executor", "cpu", "--json"][..], &dims].concat());
    let fault: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!((&fault["code"], &fault["status"]), (&"host-memory".into(), &2.into()), "{fault}");
    let message = fault["message"].as_str().unwrap_or_default();
    let free: u64 = message
        .split(" MiB are free")
        .next()
        .and_then(|m| m.split_whitespace().last()?.parse().ok())
        .expect("what is free");
    assert!(
        message.contains("`W1` (524288 x 524288, ") && message.contains("`W2`") && !message.contains("`X`"),
        "{message}"
    );
    let help = fault["help"].as_str().unwrap_or_default();
    let value = |name: &str| -> u64 {
        let stated = help.split(&format!("--dim {name}=")).nth(1).map(|rest| rest.split([' ', '`']).next());
        stated.flatten().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {help}"))
    };
    assert!(!help.contains("--dim M="), "eight tokens are not what is large: {help}");
    assert!(2 * 2 * value("H") * value("I") < free << 20, "{help} fits into {free} MiB");
}
