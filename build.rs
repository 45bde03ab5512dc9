//! Compiles the host policy code always, and the CUDA kernels when a toolchain is there.
//!
//! Looks for nvcc in `NVCC`, `CUDA_HOME`, then where `cargo xtask setup` (`.toolchain`) and `cusync setup` (the user's data
//! folder) put it. `CUSYNC_KERNELS=FILE` takes a prebuilt library of exactly this ABI instead. Without either, or without the
//! feature `cuda`, the C ABI is compiled from `csrc/nocuda.c`: the same functions, which answer "not built". Never uses the network and never asks
//! the driver. Objects live in `target/cusync-kernels` (`cusync-kernels-delays` with `CUSYNC_DELAYS=1`), shared by all profiles; nvcc's
//! dependency files decide what is stale.

use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "build/kernels.rs"]
mod kernels;
#[path = "build/prebuilt.rs"]
mod prebuilt;

struct Toolchain {
    nvcc: PathBuf,
    cuda_lib: PathBuf,
    cutlass: PathBuf,
}

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    for var in ["NVCC", "CUDA_HOME", "CUTLASS_DIR", "CUSYNC_ARCHS", "CUSYNC_DELAYS", "CUSYNC_KERNELS"] {
        println!("cargo:rerun-if-env-changed={var}");
    }
    if kernels::injects_delays() {
        println!("cargo:rustc-env=CUSYNC_HAS_DELAYS=1");
    }
    println!("cargo:rerun-if-changed=csrc");
    // Cargo takes a file that is not there for one that has changed, and would build the crate anew every time.
    // `cargo xtask setup` touches this script when it has made the toolchain.
    for folder in toolchain_folders(&root) {
        let stamp = folder.join(".stamp");
        if stamp.exists() {
            println!("cargo:rerun-if-changed={}", stamp.display());
        }
    }

    let host = kernels::sources(&root.join("csrc/host"), "cpp");
    if !host.is_empty() {
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .include(root.join("csrc"))
            .include(root.join("csrc/include"))
            .files(host)
            .compile("cusync_host");
    }

    let abi = prebuilt::abi(&root, env!("CARGO_PKG_VERSION")).unwrap_or_else(|why| panic!("{why}"));
    println!("cargo:rustc-env=CUSYNC_ABI={abi}");
    let cuda = env::var_os("CARGO_FEATURE_CUDA").is_some();
    match env::var_os("CUSYNC_KERNELS").filter(|_| cuda) {
        Some(file) => return take_prebuilt(&PathBuf::from(file), &abi),
        None => build_version(&root, &abi),
    }
    match find_toolchain(&root).filter(|_| cuda) {
        Some(toolchain) => kernels::build(&root, &toolchain),
        None => {
            if root.join("csrc/nocuda.c").exists() {
                cc::Build::new()
                    .include(root.join("csrc"))
                    .include(root.join("csrc/include"))
                    .file(root.join("csrc/nocuda.c"))
                    .compile("cusync_kernels");
            }
            println!("cargo:rustc-env=CUSYNC_BUILT_ARCHS=");
            kernels::write_suite(&[]);
        }
    }
}

/// Where `cargo xtask setup` and `cusync setup` install the toolchain.
fn toolchain_folders(root: &Path) -> Vec<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    [Some(root.join(".toolchain")), data.map(|data| data.join("cusync/toolchain"))]
        .into_iter()
        .flatten()
        .collect()
}

/// Links a library that was made elsewhere, by `cargo xtask dist`.
fn take_prebuilt(file: &Path, abi: &str) {
    println!("cargo:rerun-if-changed={}", file.display());
    let library = prebuilt::read(file, abi).unwrap_or_else(|why| panic!("{why}"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    kernels::write(&out.join("libcusync_kernels.a"), &library);
    println!("cargo:rustc-link-search=native={}", out.display());
    for lib in ["static=cusync_kernels", "dylib=stdc++", "dylib=dl", "dylib=rt", "dylib=pthread"] {
        println!("cargo:rustc-link-lib={lib}");
    }
    println!("cargo:rustc-env=CUSYNC_BUILT_ARCHS=80;90a");
    let suite = file.with_file_name("suite.fatbin");
    let image = fs::read(&suite).unwrap_or_default();
    if !image.is_empty() {
        prebuilt::verify_sum(&suite, &image).unwrap_or_else(|why| panic!("{why}"));
    }
    kernels::write_suite(&image);
}

/// The ABI's name, an object of the library of kernels.
fn build_version(root: &Path, abi: &str) {
    cc::Build::new()
        .file(root.join("csrc/abi/version.c"))
        .define("CUSYNC_ABI", format!("\"{abi}\"").as_str())
        .compile("cusync_version");
}

fn find_toolchain(root: &Path) -> Option<Toolchain> {
    let folders = toolchain_folders(root);
    let local = folders.iter().find(|folder| folder.exists()).unwrap_or(&folders[0]).clone();
    let home = env::var_os("CUDA_HOME").map(PathBuf::from).unwrap_or_else(|| local.join("nvidia/cu13"));
    let nvcc = env::var_os("NVCC").map(PathBuf::from).unwrap_or_else(|| home.join("bin/nvcc"));
    let cutlass =
        env::var_os("CUTLASS_DIR").map(PathBuf::from).unwrap_or_else(|| local.join("cutlass_library/source"));
    if !nvcc.exists() {
        return None;
    }
    if !cutlass.join("include/cutlass/cutlass.h").exists() {
        println!(
            "cargo:warning=nvcc found at {} but no CUTLASS at {}: building without kernels; run `cargo xtask setup` or set CUTLASS_DIR",
            nvcc.display(),
            cutlass.display()
        );
        return None;
    }
    let cuda_lib = ["lib64", "lib", "targets/x86_64-linux/lib"]
        .iter()
        .map(|l| home.join(l))
        .find(|l| l.join("libcudart_static.a").exists())?;
    Some(Toolchain { nvcc, cuda_lib, cutlass })
}
