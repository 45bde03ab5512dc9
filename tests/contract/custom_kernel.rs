//! Kernels of Custom stages compile against the embedded headers, without a GPU, and errors name the user's line.

use std::mem::offset_of;
use std::path::Path;

use cusync::device::{Error, KernelCode};
use cusync::ffi::cusync_custom;
use cusync::runtime::{Overrides, plan_text};
use cusync_gen::check::Executor;
use cusync_gen::device::Profile;
use cusync_gen::emit;

/// The size of the image for an architecture, or the compiler's messages; `None` without NVRTC.
#[allow(clippy::print_stdout)]
fn compile(code: &KernelCode, arch: (u32, u32), plan: Option<(&str, &str)>) -> Option<Result<usize, String>> {
    match code.compile(arch, plan) {
        Ok(image) => Some(Ok(image.len())),
        Err(Error::NoLibrary(name)) => {
            println!("skipped: no {name}");
            None
        }
        Err(other) => Some(Err(other.to_string())),
    }
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/custom").join(name);
    std::fs::read_to_string(path).expect("the example is there")
}

#[test]
fn the_example_compiles_for_every_architecture() {
    let text = example("norm.cu");
    assert!(text.lines().count() <= 40, "the example is short");
    for arch in [(8, 0), (9, 0), (12, 0)] {
        let Some(made) = compile(&KernelCode::source("norm.cu", &text), arch, None) else { return };
        assert!(made.as_ref().is_ok_and(|bytes| *bytes > 1000), "{arch:?}: {made:?}");
    }
}

#[test]
fn the_kernel_of_the_documentation_compiles() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/spec.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let kernel = page.split("```cpp\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a kernel");
    let Some(made) = compile(&KernelCode::source("scale.cu", kernel), (9, 0), None) else { return };
    assert!(made.is_ok(), "{made:?}");
}

#[test]
fn a_kernel_may_include_the_header_of_its_plan() {
    let (spec, h200) = (example("norm.ron"), Profile::named("h200").expect("it ships"));
    for executor in [Executor::Serial, Executor::Streams, Executor::Programmatic] {
        let plan = plan_text(&spec, "norm.ron", &Overrides::default(), h200, executor).expect("proved");
        let text = "#include <cusync/custom.cuh>
            #include \"normalised.h\"
            namespace plan = cusync::plans::normalised;
            static_assert(plan::stage_norm::tile_rows == 16 && plan::tensor_N::cols == 4096);
            __global__ void norm(const __grid_constant__ cusync_custom parameters) {
              cusync::CustomStage stage(parameters);
              while (stage.next_tile()) stage.post();
            }";
        let header = emit::header(&plan, "cusync gen");
        let code = KernelCode::source("norm.cu", text);
        let Some(made) = compile(&code, (9, 0), Some(("normalised.h", &header))) else { return };
        assert!(made.is_ok(), "{executor:?}: {made:?}");
    }
}

#[test]
fn an_error_shows_the_file_and_the_line() {
    let text = example("norm.cu").replace("stage.post();", "stage.pots();");
    let line = 1 + text.lines().position(|line| line.contains("pots")).expect("replaced");
    let Some(made) = compile(&KernelCode::source("my/norm.cu", &text), (9, 0), None) else { return };
    let message = made.expect_err("there is no such function");
    assert!(message.starts_with("my/norm.cu: it does not compile\n"), "{message}");
    assert!(message.contains(&format!("my/norm.cu({line}): error")) && message.contains("pots"), "{message}");
}

#[test]
fn host_and_kernel_agree_on_the_parameter() {
    let fields = [
        ("reads", offset_of!(cusync_custom, reads)),
        ("posts", offset_of!(cusync_custom, posts)),
        ("read_count", offset_of!(cusync_custom, read_count)),
        ("waits", offset_of!(cusync_custom, waits)),
        ("k_blocks", offset_of!(cusync_custom, k_blocks)),
        ("order", offset_of!(cusync_custom, order)),
        ("tickets", offset_of!(cusync_custom, tickets)),
        ("timeout_ns", offset_of!(cusync_custom, timeout_ns)),
    ];
    // NVRTC has no offsetof.
    let same = |off: usize| {
        let at = |(name, at)| format!("&& __INTADDR__(&((cusync_custom*)0)->{name}) == {}\n", at + off);
        fields.map(at).concat()
    };
    let check = |size: usize, off: usize| {
        let condition = format!("sizeof(cusync_custom) == {size} {}", same(off));
        let text = format!("#include <cusync/custom.cuh>\nstatic_assert({condition}, \"\");");
        compile(&KernelCode::source("layout.cu", &text), (9, 0), None)
    };
    let size = size_of::<cusync_custom>();
    let Some(made) = check(size, 0) else { return };
    assert!(made.is_ok(), "{made:?}");
    for (size, off) in [(size + 8, 0), (size, 4)] {
        assert!(check(size, off).is_some_and(|made| made.is_err()), "the check can fail");
    }
}

#[test]
fn files_are_read_by_their_endings() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("norm.c");
    std::fs::write(&file, "").expect("writable");
    let wrong = KernelCode::read(&file).expect_err("C is not CUDA C++").to_string();
    assert!(wrong.contains("norm.c: ") && wrong.contains(".cubin"), "{wrong}");
    let absent = KernelCode::read(&folder.path().join("norm.ptx")).expect_err("there is none").to_string();
    assert!(absent.contains("norm.ptx: "), "{absent}");
    let ptx = KernelCode::image("norm.ptx", b"text").compile((9, 0), None).expect("an image stays as it is");
    assert_eq!(*ptx, *b"text\0");
}
