//! Compiles the device library's own tests with nvcc, and runs them if there is a GPU. Also checks its inline assembly
//! rule.

use std::path::{Path, PathBuf};

use crate::support::*;

#[test]
fn device_library_tests() {
    let Some(mut command) = nvcc_program() else { return };
    let program = scratch("device_library").join("device_library");
    command.arg(root().join("csrc/tests/device_library.cu")).arg("-o").arg(&program);
    compile(command);
    run_on_gpu(&program);
}

/// All files under a folder.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// One function per instruction, named after its order and scope, in a single file.
#[test]
fn only_ptx_cuh_holds_inline_assembly() {
    let mut all = Vec::new();
    files(&root().join("csrc"), &mut all);
    files(&root().join("examples/cpp"), &mut all);
    let holders: Vec<_> = all
        .iter()
        .filter(|path| {
            let text = std::fs::read_to_string(path).expect("text");
            let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
            code.flat_map(|l| l.split(|c: char| !c.is_alphanumeric() && c != '_'))
                .any(|word| word == "asm" || word == "__asm__")
        })
        .map(|path| path.file_name().expect("a file").to_string_lossy())
        .collect();
    assert_eq!(holders, ["ptx.cuh"]);
}
