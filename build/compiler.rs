//! Selects the CUDA toolchain of a build and checks it. The build script, xtask and the library include this
//! file.
//!
//! ```
//! use std::path::Path;
//!
//! let nowhere = Path::new("/nowhere");
//! assert!(!cusync::sources::compiler::is_checkout(nowhere));
//! ```

#![allow(unreachable_pub, reason = "public in the library alone")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest CUDA release that compiles the kernels.
const OLDEST: (u32, u32) = (13, 0);

/// Toolchain that compiles the kernels.
#[allow(dead_code, reason = "who only asks whether it is there does not read all of it")]
pub struct Toolchain {
    /// The compiler.
    pub nvcc: PathBuf,
    /// nvcc's release, such as `13.0, V13.0.88`.
    pub release: String,
    /// Folder of `libcudart_static.a`.
    pub cuda_lib: PathBuf,
    /// Folder of the CUTLASS sources.
    pub cutlass: PathBuf,
}

/// Installation folders of `cargo xtask setup` and `cusync setup`.
pub fn folders(root: &Path) -> Vec<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    [Some(root.join(".toolchain")), data.map(|data| data.join("cusync/toolchain"))]
        .into_iter()
        .flatten()
        .collect()
}

/// Variables that name a toolchain and are set.
pub fn stated() -> Vec<&'static str> {
    ["NVCC", "CUDA_HOME", "CUTLASS_DIR"].into_iter().filter(|name| env::var_os(name).is_some()).collect()
}

/// Suggested fix for errors of [`find`], in a checkout or for packaged crates.
pub fn way_out(root: &Path) -> String {
    let setup = if is_checkout(root) { "`cargo xtask setup`" } else { "`cusync setup`" };
    match &stated()[..] {
        [] => format!("run {setup}"),
        names => format!(
            "point CUDA_HOME (or NVCC) to CUDA {}.{} or newer and CUTLASS_DIR to CUTLASS 4.2, or unset {} and run {setup}",
            OLDEST.0,
            OLDEST.1,
            names.join(", ")
        ),
    }
}

/// Whether the xtask commands are available.
pub fn is_checkout(root: &Path) -> bool {
    root.join("xtask/Cargo.toml").is_file()
}

/// The toolchain named by the variables, otherwise the one in `root` or in the user's data folder.
///
/// # Errors
/// The missing part, or the release found and the release needed.
pub fn find(root: &Path) -> Result<Toolchain, String> {
    let folders = folders(root);
    let local = folders.iter().find(|folder| folder.exists()).unwrap_or(&folders[0]);
    let path = |name: &str, usual: &dyn Fn() -> PathBuf| env::var_os(name).map_or_else(usual, PathBuf::from);
    let home = path("CUDA_HOME", &|| local.join("nvidia/cu13"));
    let nvcc = path("NVCC", &|| home.join("bin/nvcc"));
    let cutlass = path("CUTLASS_DIR", &|| local.join("cutlass_library/source"));
    let release = release(&nvcc)?;
    if !cutlass.join("include/cutlass/cutlass.h").exists() {
        return Err(format!("nvcc is at {}, but no CUTLASS at {}", nvcc.display(), cutlass.display()));
    }
    let libraries = ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| home.join(folder));
    let cuda_lib = libraries.into_iter().find(|folder| folder.join("libcudart_static.a").exists());
    let missing =
        || format!("nvcc is at {}, but no libcudart_static.a in {}", nvcc.display(), home.display());
    Ok(Toolchain { cuda_lib: cuda_lib.ok_or_else(missing)?, nvcc, release, cutlass })
}

/// Release of an nvcc, if it can compile the kernels.
fn release(nvcc: &Path) -> Result<String, String> {
    let shown = nvcc.display();
    if !nvcc.exists() {
        return Err(format!("no nvcc at {shown}"));
    }
    let output = Command::new(nvcc).arg("--version").output();
    let output = output.map_err(|e| format!("{shown} does not run: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let line = errors.lines().chain(text.lines()).find(|line| !line.trim().is_empty());
        let why = line.map(|line| format!(": {}", line.trim())).unwrap_or_default();
        return Err(format!("{shown} does not run ({}){why}", output.status));
    }
    let found = text.lines().find_map(|line| line.split("release ").nth(1)).map(str::trim);
    let numbers = found.and_then(|release| release.split(',').next()?.split_once('.'));
    let numbers = numbers.and_then(|(major, minor)| major.parse().ok().zip(minor.parse().ok()));
    match (found, numbers) {
        (Some(release), Some(numbers)) if numbers >= OLDEST => Ok(release.to_owned()),
        (_, Some((major, minor))) => Err(format!(
            "{shown} is of CUDA {major}.{minor}, and the kernels need {}.{} or newer",
            OLDEST.0, OLDEST.1
        )),
        _ => Err(format!("{shown} --version names no release of CUDA")),
    }
}
