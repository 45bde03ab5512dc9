//! What commands do whose output, or whose cache, cannot be written.

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
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli_output").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the test's folder is writable");
    path
}

/// An error that says what to do, and has these words.
fn refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(words.iter().all(|word| text.contains(word)) && text.contains("help: "), "{text}");
}

#[test]
fn a_file_on_a_full_disk_is_an_error_that_says_so() {
    // A file of this name on a disk that is always full.
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

/// A cache of tuned plans without entries, and one with a plan that was tuned by nobody.
fn caches(folder: &Path) -> (PathBuf, PathBuf) {
    let text = r#"{ "format": "cusync tuned plans", "version": 2, "entries": [] }"#;
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
    // Folders that not even an administrator writes to.
    refused(&merge(&other, Path::new("/proc/cusync/tuned.json")), &words);
    refused(&merge(&other, Path::new("/sys/kernel/tuned.json")), &words);
    // One without an end.
    let endless = folder("endless").join("tuned.json");
    std::os::unix::fs::symlink("/dev/zero", &endless).expect("a link");
    refused(&merge(&other, &endless), &["more than 64 MiB", "--cache FILE"]);
    let text = std::fs::read_to_string(&cache).expect("there");
    let damaged = text.replace("entries", "entr");
    std::fs::write(&cache, &damaged).expect("writable");
    refused(&merge(&other, &cache), &["not a cache of tuned plans", "it was left as it is"]);
    assert_eq!(std::fs::read_to_string(&cache).expect("there"), damaged);
}
