//! The CUDA toolchain of the checkout.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::Outcome;
use crate::toolchain::install;

/// Whether an NVIDIA driver is loaded, without asking the driver.
pub(crate) fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Installs the pinned toolchain into `.toolchain/`; does nothing when that was done for the same list, or when another one is
/// stated.
pub(crate) fn setup(root: &Path) -> Outcome {
    if std::env::var_os("CUDA_HOME").is_some() && std::env::var_os("CUTLASS_DIR").is_some() {
        return Ok(());
    }
    let told = || eprintln!("setting up .toolchain (about 130 MB to download, once)");
    if !install(&root.join(".toolchain"), told)? {
        return Ok(());
    }
    // The build script cannot watch a stamp that was not there; touched, it looks for the toolchain again.
    let script = root.join("build.rs");
    let touch = fs::File::options().append(true).open(&script);
    touch.and_then(|f| f.set_modified(SystemTime::now())).map_err(|e| format!("{}: {e}", script.display()))
}
