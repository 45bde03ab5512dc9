//! Prebuilt kernel libraries: one with this ABI is accepted; any other is refused with a fix.

#[path = "../../build/prebuilt.rs"]
mod judge;

use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prebuilt").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the test's folder is writable");
    path
}

fn own() -> String {
    judge::abi(Path::new(env!("CARGO_MANIFEST_DIR")), env!("CARGO_PKG_VERSION"))
        .expect("the sources are there")
}

/// A minimal library for the check: bytes that contain the mark.
fn library(folder: &Path, abi: &str) -> PathBuf {
    let file = folder.join("libcusync_kernels.a");
    let text = format!("!<arch>\n{}cusync-kernels-abi={abi}\0 and the rest", "x".repeat(5000));
    std::fs::write(&file, text).expect("writable");
    file
}

#[test]
fn a_library_of_this_abi_is_taken() {
    let file = library(&folder("good"), &own());
    assert!(judge::read(&file, &own()).is_ok_and(|bytes| bytes.len() > 5000));
    assert!(own().starts_with(env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_library_of_another_abi_is_refused_with_both_names() {
    let file = library(&folder("other"), "0.0.9-0123456789abcdef");
    let refused = judge::read(&file, &own()).expect_err("another ABI");
    assert!(refused.contains("0.0.9-0123456789abcdef") && refused.contains(&own()), "{refused}");
    assert!(refused.contains("unset CUSYNC_KERNELS"), "{refused}");
}

#[test]
fn a_damaged_download_is_refused() {
    let dir = folder("damaged");
    let file = library(&dir, &own());
    let missing = judge::read(&dir.join("nothing.a"), &own()).expect_err("no file");
    assert!(missing.contains("cannot be read"), "{missing}");
    // Truncated.
    std::fs::write(&file, "!<arch>\nxxxx").expect("writable");
    let cut = judge::read(&file, &own()).expect_err("no mark");
    assert!(cut.contains("download it again"), "{cut}");
    // One byte changed.
    let file = library(&dir, &own());
    let sum = "5".repeat(64);
    std::fs::write(dir.join("SHA256SUMS"), format!("{sum}  libcusync_kernels.a\n")).expect("writable");
    let flipped = judge::read(&file, &own()).expect_err("another sum");
    assert!(
        flipped.contains("damaged") && flipped.contains(&sum) && flipped.contains("download"),
        "{flipped}"
    );
    let right = judge::sum(&std::fs::read(&file).expect("there"));
    std::fs::write(dir.join("SHA256SUMS"), format!("{right}  libcusync_kernels.a\n")).expect("writable");
    assert!(judge::read(&file, &own()).is_ok());
    std::fs::write(dir.join("SHA256SUMS"), "").expect("writable");
    assert!(judge::read(&file, &own()).is_err_and(|e| e.contains("does not list")));
}
