//! Runs the Python tests on the library that this build made, in the environment of `cargo xtask test`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the package as it is installed.
fn installed() -> PathBuf {
    let site = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site");
    let package = site.join("cusync");
    let _ = fs::remove_dir_all(&package);
    fs::create_dir_all(&package).expect("writable");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cusync");
    for file in fs::read_dir(sources).expect("readable").flatten().filter(|file| file.path().is_file()) {
        fs::copy(file.path(), package.join(file.file_name())).expect("copied");
    }
    // Cargo puts the library next to this test.
    let test = std::env::current_exe().expect("a test has a path");
    let library = test.with_file_name("libcusync_py.so");
    let native = package.join("_cusync.abi3.so");
    fs::hard_link(&library, &native).or_else(|_| fs::copy(&library, &native).map(drop)).expect("copied");
    site
}

#[test]
fn the_python_tests_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let python = root.join("target/python/tests/bin/python");
    if !python.exists() {
        println!(
            "skipped: no Python with numpy and pytest in target/python/tests, where `cargo xtask test` puts it"
        );
        return;
    }
    let output = Command::new(python)
        // The folder of the sources has no native half.
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .env("PYTHONPATH", installed())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-m", "pytest", "-q", "-rsP", "-p", "no:cacheprovider"])
        .arg(root.join("python/tests"))
        .output()
        .expect("Python starts");
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        match line.strip_prefix("SKIPPED ") {
            Some(skipped) => println!("skipped: {skipped}"),
            None if line.starts_with("skipped:") => println!("{line}"),
            None => {}
        }
    }
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(" passed"), "{text}");
}
