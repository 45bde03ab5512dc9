//! Always compiles the host policy code, and the CUDA kernels if a toolchain is available.
//!
//! Looks for nvcc in `NVCC`, `CUDA_HOME`, then in the locations used by `cargo xtask setup` (`.toolchain`)
//! and `cusync setup` (the user's data folder). `CUSYNC_KERNELS=FILE` uses a prebuilt library of exactly this
//! ABI instead. Without either, or without the feature `cuda`, the C ABI is compiled from `csrc/nocuda.c`:
//! the same functions, which return "not built". Never uses the network or queries the driver. Objects are in
//! `target/cusync-kernels` (`cusync-kernels-delays` with `CUSYNC_DELAYS=1`), shared by all profiles; nvcc's
//! dependency files determine which are stale.

use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "build/compiler.rs"]
mod compiler;
#[path = "build/kernels.rs"]
mod kernels;
#[path = "build/prebuilt.rs"]
mod prebuilt;

use compiler::Toolchain;

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    for var in ["NVCC", "CUDA_HOME", "CUTLASS_DIR", "CUSYNC_ARCHS", "CUSYNC_DELAYS", "CUSYNC_KERNELS"] {
        println!("cargo:rerun-if-env-changed={var}");
    }
    if kernels::injects_delays() {
        println!("cargo:rustc-env=CUSYNC_HAS_DELAYS=1");
    }
    println!("cargo:rerun-if-changed=csrc");
    // Cargo treats a missing file as changed, and would rebuild the crate every time. `cargo xtask setup`
    // touches this script after it has installed the toolchain.
    for folder in compiler::folders(&root) {
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
    match cuda.then(|| find_toolchain(&root)).flatten() {
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

/// Links a prebuilt library created by `cargo xtask dist`.
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

/// Compiles the ABI name into an object of the kernel library.
fn build_version(root: &Path, abi: &str) {
    cc::Build::new()
        .file(root.join("csrc/abi/version.c"))
        .define("CUSYNC_ABI", format!("\"{abi}\"").as_str())
        .compile("cusync_version");
}

/// The toolchain, if any; warns if the user has or names an unusable one.
fn find_toolchain(root: &Path) -> Option<Toolchain> {
    let found = compiler::find(root);
    let meant = !compiler::stated().is_empty() || compiler::folders(root).iter().any(|f| f.exists());
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            if meant {
                let way_out = compiler::way_out(root);
                println!("cargo:warning={why}: building without kernels; to have them, {way_out}");
            }
            None
        }
    }
}
