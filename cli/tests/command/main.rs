//! The command's behavior that others rely on: answers, errors, files, the first hour.

mod broken_driver;
mod cli_against;
mod cli_contract;
mod cli_output;
mod cli_tune;
mod first_hour;
mod json_errors;
mod kernel_build;
#[cfg(feature = "models")]
mod model_bench;
#[cfg(feature = "models")]
mod models;
mod obstacles;
mod schedules;
mod timelines;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The repository's folder.
fn root() -> &'static Path {
    cusync::sources::ROOT.as_ref()
}

fn cusync(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cusync")).args(args).output().expect("the binary starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// An empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the test's folder is writable");
    path
}

/// Writes a file that a test owns.
fn file(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the test's folder is writable");
    path.display().to_string()
}

/// Z reuses the memory of Y while `two` still reads Y.
const OVERWRITES: &str = r#"Pipeline(name: "overwrites", dims: { "M": 512 },
    stages: [
        Gemm(name: "one", a: "X(M,512)", b: "W1(512,512)", out: "Y(M,512)"),
        Gemm(name: "two", a: "Y(M,512)", b: "W2(512,512)", out: "Z(M,512)"),
    ],
    alias: { "Z": "Y" })"#;
