//! One folder to copy to a GPU machine that has neither Rust nor CUDA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, cargo};

pub(crate) fn bundle(root: &Path) -> Outcome {
    cargo(root, ["build", "--release", "--package", "cusync-cli"])?;
    let out = root.join("target/bundle");
    let io = |e: std::io::Error| format!("{}: {e}", out.display());
    if out.exists() {
        fs::remove_dir_all(&out).map_err(io)?;
    }
    fs::create_dir_all(out.join("policies")).map_err(io)?;
    strip_into(&root.join("target/release/cusync"), &out.join("cusync"))?;
    cargo(root, ["build", "--release", "--package", "xtask", "--bin", "gpu_tests"])?;
    strip_into(&root.join("target/release/gpu_tests"), &out.join("gpu_tests"))?;
    strip_into(&gpu_suite(root)?, &out.join("gpu_suite"))?;
    for entry in fs::read_dir(root.join("policies")).map_err(io)?.flatten() {
        if entry.path().extension().is_some_and(|e| e == "ron") {
            fs::copy(entry.path(), out.join("policies").join(entry.file_name())).map_err(io)?;
        }
    }
    let bytes: u64 =
        fs::read_dir(&out).map_err(io)?.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
    println!("{}: {:.1} MiB", out.display(), bytes as f64 / f64::from(1 << 20));
    Ok(())
}

/// Builds `tests/run/gpu` and returns its executable.
fn gpu_suite(root: &Path) -> Result<PathBuf, String> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args([
            "test",
            "--release",
            "--no-run",
            "--message-format=json-render-diagnostics",
            "--package",
            "cusync",
            "--test",
            "gpu",
        ])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo did not start: {e}"))?;
    if !output.status.success() {
        return Err(format!("building the GPU tests ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
        .filter(|v| v["reason"] == "compiler-artifact" && v["target"]["name"] == "gpu")
        .find_map(|v| v["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo did not name the executable of the GPU tests".into())
}

/// Copies without symbols if `strip` is available; debug information only slows down the copy.
fn strip_into(from: &Path, to: &Path) -> Outcome {
    let stripped = Command::new("strip").arg("-o").arg(to).arg(from).status();
    if !stripped.is_ok_and(|s| s.success()) {
        fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(())
}
