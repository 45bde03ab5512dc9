//! The CUDA toolchain of the checkout.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::toolchain::install;
use crate::{Outcome, compiler};

/// Whether an NVIDIA driver is loaded, without asking the driver.
pub(crate) fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Installs the pinned toolchain into `.toolchain/`; does nothing if it is already installed from the same
/// list, or if the variables name another usable one.
pub(crate) fn setup(root: &Path) -> Outcome {
    let stated = compiler::stated();
    if ["CUDA_HOME", "CUTLASS_DIR"].iter().all(|name| stated.contains(name)) {
        let why = |why| format!("{why}: {}", compiler::way_out(root));
        return compiler::find(root).map(drop).map_err(why);
    }
    let announce = || eprintln!("setting up .toolchain (about 130 MB to download, once)");
    if !install(&root.join(".toolchain"), announce)? {
        return Ok(());
    }
    // The build script cannot watch a stamp that did not exist; touching the script makes it look for the
    // toolchain again.
    let script = root.join("build.rs");
    let touch = fs::File::options().append(true).open(&script);
    touch.and_then(|f| f.set_modified(SystemTime::now())).map_err(|e| format!("{}: {e}", script.display()))
}
