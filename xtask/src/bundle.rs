//! One folder to copy to a GPU machine that has neither Rust nor CUDA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, cargo};

/// More than this is no longer quick to copy.
const LIMIT_BYTES: u64 = 40 << 20;

pub(crate) fn bundle(root: &Path) -> Outcome {
    cargo(root, ["build", "--release", "--bin", "cusync"])?;
    let out = root.join("target/bundle");
    let io = |e: std::io::Error| format!("{}: {e}", out.display());
    if out.exists() {
        fs::remove_dir_all(&out).map_err(io)?;
    }
    fs::create_dir_all(out.join("policies")).map_err(io)?;
    strip_into(&root.join("target/release/cusync"), &out.join("cusync"))?;
    for test in gpu_tests(root)? {
        let name = test.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let short = name.rsplit_once('-').map_or(name.as_str(), |(stem, _)| stem);
        strip_into(&test, &out.join(short))?;
    }
    for entry in fs::read_dir(root.join("policies")).map_err(io)?.flatten() {
        if entry.path().extension().is_some_and(|e| e == "ron") {
            fs::copy(entry.path(), out.join("policies").join(entry.file_name())).map_err(io)?;
        }
    }
    let bytes: u64 =
        fs::read_dir(&out).map_err(io)?.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
    println!("{}: {:.1} MiB", out.display(), bytes as f64 / f64::from(1 << 20));
    if bytes > LIMIT_BYTES {
        return Err(format!(
            "the bundle is larger than {} MiB; build for one architecture with CUSYNC_ARCHS=90a",
            LIMIT_BYTES >> 20
        ));
    }
    Ok(())
}

/// Builds the tests whose names start with `gpu_` and returns their executables.
fn gpu_tests(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut names: Vec<String> = fs::read_dir(root.join("tests"))
        .map_err(|e| format!("tests: {e}"))?
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .filter(|n| n.starts_with("gpu_"))
        .collect();
    names.sort();
    for name in names {
        let output = Command::new("cargo")
            .current_dir(root)
            .args([
                "test",
                "--release",
                "--no-run",
                "--message-format=json-render-diagnostics",
                "--test",
                &name,
            ])
            .stderr(std::process::Stdio::inherit())
            .output()
            .map_err(|e| format!("cargo did not start: {e}"))?;
        if !output.status.success() {
            return Err(format!("building {name} ended with {}", output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let executable = text
            .lines()
            .filter(|l| l.contains("\"compiler-artifact\""))
            .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
            .filter(|v| v["target"]["name"] == name.as_str())
            .find_map(|v| v["executable"].as_str().map(PathBuf::from))
            .ok_or_else(|| format!("cargo did not name the executable of {name}"))?;
        found.push(executable);
    }
    Ok(found)
}

/// Copies without symbols when `strip` is there; debug information only makes the copy slower.
fn strip_into(from: &Path, to: &Path) -> Outcome {
    let stripped = Command::new("strip").arg("-o").arg(to).arg(from).status();
    if !stripped.is_ok_and(|s| s.success()) {
        fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(())
}
