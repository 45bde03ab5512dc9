//! Installs the pinned CUDA toolchain from the Python package index. Shared by `cusync setup` and `cargo
//! xtask setup`, which includes this file; it depends on neither.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The packages, with their hashes.
const PINS: &str = include_str!("toolchain.txt");

/// Installs the pinned packages into a folder of their own; does nothing if that was done for the same list.
/// Returns whether anything was installed.
///
/// # Errors
/// The reason and a suggested fix, ready to print.
pub(crate) fn install(target: &Path, before: impl FnOnce()) -> Result<bool, String> {
    let stamp = target.join(".stamp");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == PINS) {
        return Ok(false);
    }
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        return Err("the pinned CUDA packages are for x86-64 Linux; elsewhere set CUDA_HOME (CUDA 13) and CUTLASS_DIR (4.2)"
            .into());
    }
    before();
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    // A partial folder of an interrupted run must not be mistaken for a complete one, and a folder created by
    // others must not be removed.
    if target.exists() {
        if !stamp.exists() && !target.join("nvidia").exists() && !is_empty(target) {
            return Err(format!("{} is there and is no toolchain: name another folder", target.display()));
        }
        fs::remove_dir_all(target).map_err(|e| failed(target, e))?;
    }
    fs::create_dir_all(target).map_err(|e| failed(target, e))?;
    let list = target.join("toolchain.txt");
    fs::write(&list, PINS).map_err(|e| failed(&list, e))?;
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target"])
        .arg(target)
        .arg("-r")
        .arg(&list)
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => {
            return Err(format!(
                "pip ended with {s}; the lines above say why. With CUDA 13 and CUTLASS 4.2 at hand, set CUDA_HOME and CUTLASS_DIR instead"
            ));
        }
        Err(e) => {
            return Err(format!(
                "python3 did not start ({e}); install Python 3 with pip, or set CUDA_HOME and CUTLASS_DIR"
            ));
        }
    }
    fs::write(&stamp, PINS).map_err(|e| failed(&stamp, e))?;
    Ok(true)
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_left_and_what_is_foreign_is_refused() {
        let folder = std::env::temp_dir().join(format!("cusync-toolchain-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("writable");
        fs::write(folder.join(".stamp"), PINS).expect("writable");
        assert_eq!(install(&folder, || panic!("nothing is downloaded")), Ok(false));
        fs::remove_file(folder.join(".stamp")).expect("writable");
        fs::write(folder.join("thesis.txt"), "years of work").expect("writable");
        let refused = install(&folder, || ()).expect_err("it is somebody's");
        assert!(refused.contains("is no toolchain"), "{refused}");
        assert!(folder.join("thesis.txt").exists());
        fs::remove_dir_all(&folder).expect("writable");
    }

    #[test]
    fn every_package_is_pinned_by_its_hash() {
        let lines: Vec<&str> = PINS.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(
            lines.len() >= 8
                && lines.iter().all(|line| line.contains("==") && line.contains("--hash=sha256:"))
        );
    }
}
