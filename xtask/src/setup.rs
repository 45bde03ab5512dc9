//! The CUDA toolchain from the Python package index.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::Outcome;

/// Whether an NVIDIA driver is loaded, without asking the driver.
pub(crate) fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Installs `xtask/toolchain.txt` into `.toolchain/`; does nothing when that was done for the same list.
pub(crate) fn setup(root: &Path) -> Outcome {
    let list = root.join("xtask/toolchain.txt");
    let pins = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let target = root.join(".toolchain");
    let stamp = target.join(".stamp");
    if std::env::var_os("CUDA_HOME").is_some() && std::env::var_os("CUTLASS_DIR").is_some() {
        return Ok(());
    }
    if fs::read_to_string(&stamp).is_ok_and(|s| s == pins) {
        return Ok(());
    }
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        return Err("the pinned CUDA packages are for x86-64 Linux; elsewhere set CUDA_HOME (CUDA 13) and CUTLASS_DIR (4.2)"
            .into());
    }
    eprintln!("setting up .toolchain (about 130 MB to download, once)");
    // A half-made folder of an interrupted run must not be mistaken for a whole one.
    if target.exists() {
        fs::remove_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
    }
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target"])
        .arg(&target)
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
    fs::write(&stamp, pins).map_err(|e| format!("{}: {e}", stamp.display()))?;
    // The build script cannot watch a stamp that was not there; touched, it looks for the toolchain again.
    let script = root.join("build.rs");
    let touch = fs::File::options().append(true).open(&script);
    touch.and_then(|f| f.set_modified(SystemTime::now())).map_err(|e| format!("{}: {e}", script.display()))
}
