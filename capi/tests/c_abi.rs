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
static void twice(void* user, uint32_t, uint32_t, uint32_t, cusync_region const* reads, size_t count, cusync_region const* out) {
  for (size_t i = 0; count == 1 && i < out->rows * out->cols; ++i) out->data[i] = *static_cast<float*>(user) * reads[0].data[i];
}
static bool custom_stage() {
  char const* const spec = R"ron(Pipeline(name: "own", dims: {}, stages: [Custom(
    name: "twice", tile: (2, 8), writes: "Y(4,8)", reads: [Read(tensor: "X(4,8)", rows: "2*m..2*m + 2", cols: "0..8")])]))ron";
  cusync_pipeline* p = nullptr;
  float x[32], y[32], factor = 2;
  for (int i = 0; i < 32; ++i) x[i] = float(i);
  bool good = cusync_pipeline_open(spec, nullptr, 0, nullptr, 0, &p) == CUSYNC_PIPELINE_OK;
  good &= cusync_pipeline_set_f32(p, "X", x, 32) == CUSYNC_PIPELINE_OK;
  good &= told(cusync_pipeline_run(p, nullptr), CUSYNC_PIPELINE_FAILED, "Custom");
  good &= told(cusync_pipeline_custom(p, "twice", nullptr, nullptr), CUSYNC_PIPELINE_ARGUMENT, "`function` is null");
  good &= told(cusync_pipeline_custom(p, "thrice", twice, &factor), CUSYNC_PIPELINE_FAILED, "no custom stage `thrice`");
  good &= told(cusync_pipeline_kernel(p, "twice", "none.cu"), CUSYNC_PIPELINE_FAILED, "none.cu");
  good &= cusync_pipeline_custom(p, "twice", twice, &factor) == CUSYNC_PIPELINE_OK;
  good &= cusync_pipeline_run(p, nullptr) == CUSYNC_PIPELINE_OK;
  good &= cusync_pipeline_read_f32(p, "Y", y, 32) == CUSYNC_PIPELINE_OK;
  for (int i = 0; i < 32; ++i) good &= y[i] == 2 * x[i];
  cusync_pipeline_close(p);
  return good;
}
int main() {
  cusync_pipeline* p = nullptr;
  bool good = custom_stage();
  good &= told(cusync_pipeline_open(nullptr, nullptr, 0, "cpu", 0, &p), CUSYNC_PIPELINE_ARGUMENT, "null");
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

#[test]
fn programs_over_host_memory_are_recorded_and_mistakes_are_refused() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dag_mistakes.cpp");
    let text = r#"
#include <cstdio>
#include <cstring>
#include "cusync/dag.h"
static bool good = true;
static void refused(int32_t status, int32_t want, char const* word) {
  bool const right = status == want && std::strstr(cusync_pipeline_error(), word);
  if (!right) std::printf("status %d, not %d, `%s`: %s\n", status, want, word, cusync_pipeline_error());
  good &= right;
}
static void is(bool right, char const* what) {
  if (!right) std::printf("not so: %s (%s)\n", what, cusync_pipeline_error());
  good &= right;
}
static int32_t enqueue(void*, void*, cusync_dag_workspace const*) { return 0; }
static float x[64], y[64], z[64];
static int handle;
struct Pair { float* to; int count; };

int main() {
  int32_t const ok = CUSYNC_PIPELINE_OK, argument = CUSYNC_PIPELINE_ARGUMENT, failed = CUSYNC_PIPELINE_FAILED;
  cusync_dag* dag = nullptr;
  refused(cusync_dag_open(nullptr, &dag), argument, "`name` is null");
  refused(cusync_dag_open("p", nullptr), argument, "`out` is null");
  is(cusync_dag_open("p", &dag) == ok, "opened");
  refused(cusync_dag_memory(nullptr, x, 4), argument, "`dag` is null");
  refused(cusync_dag_memory(dag, nullptr, 4), argument, "`memory` is null");
  is(cusync_dag_memory(dag, x, sizeof x) == ok, "stated");

  cusync_dag_access use[] = {{x, sizeof x, CUSYNC_DAG_READ}, {y, sizeof y, CUSYNC_DAG_WRITE}};
  cusync_dag_node node{};
  Pair const pair{y, 64};
  cusync_dag_argument const arguments[] = {{&pair, sizeof pair}};
  uint32_t id = 99;
  node.accesses = use, node.access_count = 2, node.grid[0] = 1, node.block[0] = 64;
  refused(cusync_dag_kernel(dag, nullptr, &handle, arguments, 1, &id), argument, "`node` is null");
  refused(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id), argument, "`name` is null");
  node.name = "k";
  refused(cusync_dag_kernel(dag, &node, nullptr, arguments, 1, &id), argument, "function or id");
  refused(cusync_dag_kernel(dag, &node, &handle, nullptr, 1, &id), argument, "arguments");
  refused(cusync_dag_opaque(dag, &node, nullptr, nullptr, 0, &id), argument, "enqueue or id");
  use[0].mode = 7;
  refused(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id), argument, "no mode 7");
  use[0] = {nullptr, 4, CUSYNC_DAG_READ};
  refused(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id), argument, "memory of an access");
  use[0] = {x, sizeof x, CUSYNC_DAG_READ};
  node.grid[0] = 0;
  refused(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id), failed, "launches nothing");
  node.grid[0] = 1, node.us = -1;
  refused(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id), failed, "a duration");
  node.us = 0;
  is(id == 99, "nothing was recorded");

  // 0: y = f(x); 1: x = g(y), which is after 0 in both directions of data, never before it; 2 and 3 share a handle.
  refused(cusync_dag_image(dag, nullptr, 5), argument, "`image` is null");
  is(cusync_dag_image(dag, "\x7f" "ELF", 4) == ok && cusync_dag_image(dag, nullptr, 0) == ok, "images are only read");
  is(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id) == ok && id == 0, "node 0");
  cusync_dag_access back[] = {{y, sizeof y, CUSYNC_DAG_READ}, {x, sizeof x, CUSYNC_DAG_WRITE}};
  node.accesses = back;
  is(cusync_dag_kernel(dag, &node, &handle, arguments, 1, &id) == ok && id == 1, "node 1");
  cusync_dag_access calls[][2] = {{{z, 128, CUSYNC_DAG_WRITE}, {&handle, 1, CUSYNC_DAG_UPDATE}},
                                  {{z + 32, 128, CUSYNC_DAG_WRITE}, {&handle, 1, CUSYNC_DAG_UPDATE}},
                                  {{z, 128, CUSYNC_DAG_READ}, {x, 0, CUSYNC_DAG_READ}}};
  is(cusync_dag_memory(dag, z, sizeof z) == ok, "stated");
  node.grid[0] = 0;
  for (uint32_t k = 0; k < 3; ++k) {
    node.accesses = calls[k];
    is(cusync_dag_opaque(dag, &node, enqueue, nullptr, 1 << 20, &id) == ok && id == 2 + k, "an opaque node");
  }
  node.programmatic = 1;
  refused(cusync_dag_opaque(dag, &node, enqueue, nullptr, 0, &id), failed, "is opaque");
  // (node, before) of every pair that is ordered: a cycle cannot be stated.
  for (uint32_t a = 0; a < 5; ++a)
    for (uint32_t b = 0; b < 5; ++b) {
      int32_t depends = 7;
      bool const want = (a == 1 && b == 0) || (a == 3 && b == 2) || (a == 4 && b == 2);
      is(cusync_dag_depends(dag, a, b, &depends) == ok && depends == want, "a dependence");
    }
  int32_t depends = 7;
  refused(cusync_dag_depends(dag, 5, 0, &depends), failed, "no node 5");
  refused(cusync_dag_depends(dag, 0, 77, &depends), failed, "no node 77");
  refused(cusync_dag_depends(dag, 0, 1, nullptr), argument, "`depends` is null");

  // Overlaps of memory that was only stated in part.
  static char wide[100];
  cusync_dag_access part[] = {{wide + 20, 30, CUSYNC_DAG_WRITE}};
  node.accesses = part, node.access_count = 1, node.grid[0] = 1, node.programmatic = 0;
  is(cusync_dag_kernel(dag, &node, &handle, nullptr, 0, &id) == ok, "a part");
  refused(cusync_dag_memory(dag, wide, sizeof wide), failed, "overlaps");
  part[0] = {wide + 49, 10, CUSYNC_DAG_READ};
  refused(cusync_dag_kernel(dag, &node, &handle, nullptr, 0, &id), failed, "overlaps");

  cusync_dag_run* run = nullptr;
  cusync_dag_options options{};
  options.form = "cycle";
  refused(cusync_dag_build(dag, &options, &run), argument, "no form `cycle`");
  refused(cusync_dag_build(dag, nullptr, nullptr), argument, "`out` is null");
  refused(cusync_dag_adopt(nullptr, use, 1, nullptr, nullptr, nullptr, &run), argument, "`graph or out` is null");
  refused(cusync_dag_adopt(&handle, nullptr, 1, nullptr, nullptr, nullptr, &run), argument, "`memory` is null");
  refused(cusync_dag_adopt(&handle, use, 1, nullptr, nullptr, &options, &run), argument, "no form `cycle`");
  // No context is current: there is no driver, no GPU, or nothing has used it yet.
  refused(cusync_dag_build(dag, nullptr, &run), failed, "");
  refused(cusync_dag_launch(nullptr, nullptr), argument, "`run` is null");
  is(run == nullptr && cusync_dag_workspaces(run) == 0 && !*cusync_dag_form(run) && !*cusync_dag_unverified(run), "no run");
  cusync_dag_end(run);
  cusync_dag_close(dag);
  cusync_dag_close(nullptr);
  return good ? 0 : 1;
}
"#;
    std::fs::write(&source, text).expect("writable");
    let program = compile("c++", &["-std=c++17"], &source, "dag_mistakes");
    let output = Command::new(program).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The example with cuBLAS is compiled, linked and run where nvcc, cuBLAS and a GPU are.
#[test]
fn calls_of_cublas_are_scheduled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Some(nvcc) = std::env::var_os("CUSYNC_CUBLAS_NVCC") else {
        println!("skipped: CUSYNC_CUBLAS_NVCC names no nvcc with cuBLAS beside it");
        return;
    };
    let (program, libraries) = (Path::new(env!("CARGO_TARGET_TMPDIR")).join("scheduled_cublas"), libraries());
    let output = Command::new(nvcc)
        .args(["-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-lcusync_c", "-lcublas"])
        .arg(format!("-I{}", root.join("capi/include").display()))
        .arg(format!("-L{}", libraries.display()))
        .args(["-Xlinker", &format!("-rpath={}", libraries.display())])
        .arg(root.join("examples/cpp/scheduled_cublas.cu"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(program).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("as serial code").count(), 4, "{text}");
}
