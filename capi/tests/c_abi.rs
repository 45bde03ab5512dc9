//! The C ABI used from C: builds the example with the C compiler alone, links it with the shared library, and runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared library's folder; Cargo puts the library next to this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("a file lies in a folder").to_path_buf()
}

fn compile(compiler: &str, flags: &[&str], source: &Path, out: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (program, libraries) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join(out), libraries());
    let output = Command::new(compiler)
        .args(flags)
        .arg("-Wall")
        .arg("-Wextra")
        .arg("-Werror")
        .arg(format!("-I{}", root.join("include").display()))
        .arg(source)
        .arg(format!("-L{}", libraries.display()))
        .arg("-lcusync_c")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-lm")
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a compiler is there: the build needed one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mlp.c")
}

#[test]
fn a_c_program_runs_a_pipeline_on_the_host() {
    let program = compile("cc", &["-std=c99"], &example(), "mlp_c");
    let output = Command::new(program).arg("cpu").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("cpu executor: largest error") && text.contains("no tensor `Q`"), "{text}");
}

#[test]
fn the_same_program_runs_on_a_gpu() {
    if cusync::device::Device::open(0).is_err() || cusync::device::kernels().is_empty() {
        println!("skipped: no GPU, or a build without kernels");
        return;
    }
    let program = compile("cc", &["-std=c99"], &example(), "mlp_gpu");
    for executor in ["serial", "programmatic", "fused"] {
        let output = Command::new(&program).arg(executor).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(executor), "{text}");
    }
}

#[test]
fn a_c_program_generates_with_a_model_on_the_host() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny");
    cusync_models::tiny::write(&folder, "LlamaForCausalLM").expect("written");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/generate.c");
    let program = compile("cc", &["-std=c99"], &source, "generate_c");
    let run = |folder: &Path| Command::new(&program).arg(folder).arg("cpu").output().expect("it starts");
    let output = run(&folder);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 9, "eight steps and the logits: {text}");
    for line in &lines[..8] {
        assert!(line.split(' ').all(|token| token.parse::<u32>().is_ok_and(|token| token < 264)), "{text}");
    }
    assert!(lines[8].starts_with("logits of token 0: ") && !lines[8].contains("nan"), "{text}");
    assert_eq!(run(&folder).stdout, output.stdout, "a seed repeats its tokens");
    let none = run(Path::new("/none"));
    assert!(
        !none.status.success() && String::from_utf8_lossy(&none.stderr).contains("config.json"),
        "{none:?}"
    );
}

#[test]
fn the_header_is_cpp_too_and_mistakes_are_told() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes.cpp");
    let text = r#"
#include <cstdio>
#include <cstring>
#include "cusync/model.h"
static bool told(int32_t status, int32_t want, char const* word) {
  bool const right = status == want && std::strstr(cusync_pipeline_error(), word);
  if (!right) std::printf("status %d, not %d: %s\n", status, want, cusync_pipeline_error());
  return right;
}
int main() {
  cusync_pipeline* p = nullptr;
  bool good = told(cusync_pipeline_open(nullptr, nullptr, 0, "cpu", 0, &p), CUSYNC_PIPELINE_ARGUMENT, "null");
  good &= told(cusync_pipeline_open("\xff", nullptr, 0, "cpu", 0, &p), CUSYNC_PIPELINE_ARGUMENT, "UTF-8");
  good &= told(cusync_pipeline_open("gtp3_mlp", nullptr, 0, "cpu", 0, &p), CUSYNC_PIPELINE_FAILED, "no spec");
  good &= told(cusync_pipeline_open("Pipeline(", nullptr, 0, "cpu", 0, &p), CUSYNC_PIPELINE_FAILED, "error");
  good &= told(cusync_pipeline_open("two_gemms", nullptr, 0, "warp", 0, &p), CUSYNC_PIPELINE_ARGUMENT, "executor");
  cusync_dim const wrong{"Q", 8};
  good &= told(cusync_pipeline_open("two_gemms", &wrong, 1, "cpu", 0, &p), CUSYNC_PIPELINE_FAILED, "Q");
  good &= p == nullptr;
  cusync_dim const small[] = {{"M", 8}, {"N", 16}, {"K", 24}};
  good &= cusync_pipeline_open("two_gemms", small, 3, "cpu", 0, &p) == CUSYNC_PIPELINE_OK;
  size_t rows = 0, cols = 0;
  good &= cusync_pipeline_shape(p, "A", &rows, &cols) == CUSYNC_PIPELINE_OK && rows == 8 && cols == 24;
  good &= told(cusync_pipeline_run(p, nullptr), CUSYNC_PIPELINE_FAILED, "no values");
  float one = 1;
  good &= told(cusync_pipeline_set_f32(p, "A", &one, 1), CUSYNC_PIPELINE_FAILED, "192");
  good &= told(cusync_pipeline_bind(p, "A", &one, 1), CUSYNC_PIPELINE_FAILED, "host");
  int32_t length = 1;
  good &= told(cusync_pipeline_set_i32(p, "A", &length, 1), CUSYNC_PIPELINE_FAILED, "other type");
  good &= told(cusync_pipeline_bind_i32(p, "A", &length, 1), CUSYNC_PIPELINE_FAILED, "host");
  good &= told(cusync_pipeline_run(nullptr, nullptr), CUSYNC_PIPELINE_ARGUMENT, "null");
  good &= std::strlen(cusync_pipeline_version()) > 0;
  cusync_pipeline_close(p);
  cusync_pipeline_close(nullptr);
  return good ? 0 : 1;
}
"#;
    std::fs::write(&source, text).expect("writable");
    let program = compile("c++", &["-std=c++17"], &source, "mistakes");
    let output = Command::new(program).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
