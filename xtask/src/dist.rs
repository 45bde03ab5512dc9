//! A prebuilt library of kernels, for `CUSYNC_KERNELS`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, cargo, spawn};

/// Builds the kernels and leaves them in `target/dist`, with what they are linked with, and checksums.
pub(crate) fn dist(root: &Path) -> Outcome {
    cargo(root, ["build", "--release", "--bin", "cusync"])?;
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let build = root.join("target/release/build");
    let folders = fs::read_dir(&build).map_err(|e| failed(&build, e))?.flatten();
    let built = folders.map(|f| f.path().join("out")).filter(|f| f.join("libcusync_kernels.a").exists());
    let age =
        |folder: &PathBuf| fs::metadata(folder.join("libcusync_kernels.a")).and_then(|m| m.modified()).ok();
    let out = built.max_by_key(age).ok_or("the build left no library of kernels")?;
    let home =
        std::env::var_os("CUDA_HOME").map_or_else(|| root.join(".toolchain/nvidia/cu13"), PathBuf::from);
    let runtime =
        ["lib64", "lib", "targets/x86_64-linux/lib"].map(|l| home.join(l).join("libcudart_static.a"));
    let runtime = runtime.iter().find(|f| f.exists()).ok_or("no CUDA toolchain: run `cargo xtask setup`")?;
    if fs::metadata(out.join("suite.fatbin")).map_or(0, |m| m.len()) == 0 {
        return Err("the build has no kernels: run `cargo xtask setup`, and do not set NVCC".into());
    }
    let dist = root.join("target/dist");
    let _ = fs::remove_dir_all(&dist);
    fs::create_dir_all(&dist).map_err(|e| failed(&dist, e))?;
    merge(
        &dist.join("libcusync_kernels.a"),
        &[&out.join("libcusync_kernels.a"), &out.join("libcusync_version.a"), runtime],
    )?;
    let suite = dist.join("suite.fatbin");
    fs::copy(out.join("suite.fatbin"), &suite).map_err(|e| failed(&suite, e))?;
    let sums = Command::new("sha256sum")
        .current_dir(&dist)
        .args(["libcusync_kernels.a", "suite.fatbin"])
        .output()
        .map_err(|e| format!("sha256sum: {e}"))?;
    let list = dist.join("SHA256SUMS");
    fs::write(&list, sums.stdout).map_err(|e| failed(&list, e))?;
    println!(
        "target/dist: CUSYNC_KERNELS=libcusync_kernels.a takes it, SHA256SUMS and suite.fatbin beside it"
    );
    Ok(())
}

/// One archive of several.
fn merge(into: &Path, from: &[&Path]) -> Outcome {
    let mut script = format!("CREATE {}\n", into.display());
    from.iter().for_each(|library| script.push_str(&format!("ADDLIB {}\n", library.display())));
    script.push_str("SAVE\nEND\n");
    let mut ar =
        Command::new("ar").arg("-M").stdin(Stdio::piped()).spawn().map_err(|e| format!("ar: {e}"))?;
    if let Some(mut input) = ar.stdin.take() {
        input.write_all(script.as_bytes()).map_err(|e| format!("ar: {e}"))?;
    }
    let status = ar.wait().map_err(|e| format!("ar: {e}"))?;
    if !status.success() {
        return Err(format!("ar ended with {status}"));
    }
    spawn(Command::new("ranlib").arg(into))
}
