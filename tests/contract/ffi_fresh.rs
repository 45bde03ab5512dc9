//! `src/ffi/bindings.rs` matches the current bindgen output for `csrc/abi/cusync.h` and `csrc/host/decode.h`.
//!
//! With `CUSYNC_RENDER=1` (set by `cargo xtask render`) the file is rewritten instead of compared.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folder with libclang: the user's choice, or the one that `cargo xtask setup` fetched.
fn libclang() -> Option<PathBuf> {
    let stated = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let fetched = root().join(".toolchain/clang/native");
    stated.into_iter().chain([fetched]).find(|dir| dir.join("libclang.so").exists())
}

/// libclang from the package index has no headers of its own; the host compiler's stddef.h works.
fn compiler_include() -> Option<String> {
    let out = std::process::Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let dir = String::from_utf8(out.stdout).ok()?.trim().to_owned();
    Path::new(&dir).is_dir().then_some(dir)
}

fn generate() -> String {
    let csrc = root().join("csrc");
    let mut builder = bindgen::Builder::default()
        .header(csrc.join("abi/cusync.h").to_string_lossy())
        .header(csrc.join("host/decode.h").to_string_lossy())
        .header(csrc.join("include/cusync/custom.h").to_string_lossy())
        .clang_arg(format!("-I{}", csrc.join("include").display()))
        .clang_args(compiler_include().map(|dir| format!("-isystem{dir}")))
        .allowlist_item("(cusync|CUSYNC)_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        // The headers have the comments. Plain `repr(C)` structs have the layout of C by definition.
        .generate_comments(false)
        .layout_tests(false)
        .derive_eq(true)
        .merge_extern_blocks(true)
        .disable_header_comment()
        .rustfmt_configuration_file(Some(root().join("rustfmt.toml")));
    builder = builder.raw_line(
        "// Made by bindgen from csrc/abi/cusync.h and csrc/host/decode.h; `cargo xtask render` makes it anew.",
    );
    builder.generate().expect("a header does not parse as C").to_string()
}

#[test]
fn bindings_are_fresh() {
    let Some(dir) = libclang() else {
        println!("skipped: no libclang (`cargo xtask setup` fetches one, or set LIBCLANG_PATH)");
        return;
    };
    // SAFETY: this test binary has one test, and nothing else reads the environment while it runs.
    #[allow(unsafe_code)]
    unsafe {
        std::env::set_var("LIBCLANG_PATH", dir)
    };
    let path = root().join("src/ffi/bindings.rs");
    let made = generate();
    if std::env::var_os("CUSYNC_RENDER").is_some() {
        std::fs::write(&path, &made).expect("src/ffi/bindings.rs cannot be written");
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "src/ffi/bindings.rs does not match csrc/abi/cusync.h: run `cargo xtask render` and commit the result"
    );
}
