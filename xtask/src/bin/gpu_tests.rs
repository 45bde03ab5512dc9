//! Runs the GPU tests of a bundle, `gpu_suite` in the same folder, and fails if a test was left out.
//!
//! Arguments are passed to the tests. Without a name all tests must run: a test that is skipped, ignored, or
//! excluded by an option is named, and the exit status is 1. With names, all tests of these names must run.
//! Tests that need another build are listed, and are an error only if they were requested.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Prefix of the line of a test that cannot run here.
const SKIPPED: &str = "skipped: ";
/// Prefix for a test that needs another build on the same machine.
const OTHER_BUILD: &str = "another build: ";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let suite = std::env::current_exe().ok().and_then(|path| path.parent().map(|dir| dir.join("gpu_suite")));
    match run(&suite.unwrap_or_else(|| PathBuf::from("gpu_suite")), &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(faults) => {
            faults.iter().for_each(|fault| eprintln!("error: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn run(suite: &Path, args: &[String]) -> Result<(), Vec<String>> {
    let one = |fault: String| vec![fault];
    // The value of an option is not a name.
    let before = std::iter::once("").chain(args.iter().map(String::as_str));
    let free = args.iter().zip(before).filter(|(_, before)| !takes_value(before)).map(|(arg, _)| arg);
    let names: Vec<&String> = free.filter(|arg| !arg.starts_with('-')).collect();
    let list = |args: &[&String], more: &str| list(suite, args, more).map_err(one);
    let all: Vec<&String> = args.iter().collect();
    let wanted = list(&names, "")?;
    if wanted.is_empty() {
        return Err(one(format!("no test is named {names:?}")));
    }
    let mut running = list(&all, "")?;
    if !args.iter().any(|arg| arg.contains("ignored")) {
        running = &running - &list(&names, "--ignored")?;
    }
    let mut faults: Vec<String> =
        wanted.difference(&running).map(|name| format!("left out: {name}")).collect();
    let (status, skipped) = tests(suite, args).map_err(one)?;
    for reason in skipped {
        match reason.strip_prefix(OTHER_BUILD) {
            Some(need) if names.is_empty() => println!("not in this build: {need}"),
            _ => faults.push(format!("{SKIPPED}{reason}")),
        }
    }
    if names.is_empty() && std::env::var_os("CUSYNC_GPU_QUICK").is_some() {
        faults.push("left out: all but a few sizes, for CUSYNC_GPU_QUICK is set".into());
    }
    if !status.success() {
        faults.push(format!("the tests ended with {status}"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Whether an option of the tests takes a value.
fn takes_value(option: &str) -> bool {
    matches!(option, "--skip" | "--test-threads" | "--color" | "--format" | "--logfile" | "--shuffle-seed")
}

/// Names of the tests that would run.
fn list(suite: &Path, args: &[&String], more: &str) -> Result<BTreeSet<String>, String> {
    let more = Some(more).filter(|more| !more.is_empty());
    let output = Command::new(suite).args(args).arg("--list").args(more).output();
    let output = output.map_err(|e| format!("{}: {e}", suite.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
}

/// Runs the tests and prints their output; returns the reasons of skipped tests.
fn tests(suite: &Path, args: &[String]) -> Result<(std::process::ExitStatus, BTreeSet<String>), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", suite.display());
    let mut child =
        Command::new(suite).args(args).arg("--show-output").stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut skipped = BTreeSet::new();
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(failed)?;
        let _ = writeln!(std::io::stdout(), "{line}");
        // Without capture, the reason follows the name of the test.
        let reason = line.strip_prefix(SKIPPED).or_else(|| Some(line.split_once(" ... skipped: ")?.1));
        skipped.extend(reason.map(str::to_owned));
    }
    Ok((child.wait().map_err(failed)?, skipped))
}
