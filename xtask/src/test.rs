//! Runs every test that this machine can run, and lists the skipped ones.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;

/// Runs `cargo test` over the workspace. A test that cannot run here prints a line that starts with
/// `skipped:`; those lines are collected and printed last, so that a green run never hides skipped tests.
pub(crate) fn test(root: &Path, extra: &[String]) -> Outcome {
    let mut child = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(extra)
        .args(["--", "--show-output"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cargo did not start: {e}"))?;
    let mut skipped = Vec::new();
    let stdout = child.stdout.take().ok_or("cargo's output could not be read")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.map_err(|e| format!("cargo's output could not be read: {e}"))?;
        if line.starts_with("skipped:") && !skipped.contains(&line) {
            skipped.push(line.clone());
        }
        if interesting(&line) {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
    let status = child.wait().map_err(|e| format!("cargo did not end: {e}"))?;
    for line in &skipped {
        eprintln!("{line}");
    }
    if skipped.is_empty() {
        eprintln!("nothing was skipped");
    }
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo test ended with {status}; the failures are above"))
    }
}

/// The lines and captured output of passing tests are not interesting.
fn interesting(line: &str) -> bool {
    !(line.is_empty() || line.ends_with("... ok"))
}
