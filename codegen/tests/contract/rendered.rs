//! Code rendered from the shipped specs: the compilers accept it, and it is correct at every tile and k-block.
//! `policies/rendered` holds the headers that the examples include, and is up to date.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::support::header::check_header;
use crate::support::*;
use cusync_gen::check::Plan;
use cusync_gen::emit;

/// Names and sources of the shipped specs.
fn specs() -> Vec<(String, String)> {
    let mut specs: Vec<_> = std::fs::read_dir(root().join("policies"))
        .expect("policies/")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "ron"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("text"))
        })
        .collect();
    specs.sort();
    assert!(specs.len() >= 6, "the shipped specs are missing: {specs:?}");
    specs
}

fn rendered_dir() -> PathBuf {
    root().join("policies/rendered")
}

fn plan(name: &str, source: &str) -> Plan {
    emit::rendered_plan(name, source).unwrap_or_else(|e| panic!("{name}: {}", e.message))
}

/// Names of the headers that the C++ examples include. They are committed so that the examples build without Rust.
fn included() -> BTreeSet<String> {
    let files =
        |dir: &str| std::fs::read_dir(root().join(dir)).expect("a folder").map(|e| e.expect("entry").path());
    let sources = files("examples/cpp").map(|path| std::fs::read_to_string(path).expect("text"));
    let names = |source: String| {
        let include =
            |line: &str| Some(line.strip_prefix("#include \"rendered/")?.strip_suffix(".h\"")?.to_owned());
        source.lines().filter_map(include).collect::<Vec<_>>()
    };
    sources.flat_map(names).collect()
}

/// With CUSYNC_RENDER set (by `cargo xtask render`), writes the files instead of comparing them.
#[test]
fn rendered_files_are_fresh() {
    let included = included();
    assert!(!included.is_empty(), "an example shows the use of a rendered header");
    for (name, source) in specs().into_iter().filter(|(name, _)| included.contains(name)) {
        let (path, header) = (
            rendered_dir().join(format!("{name}.h")),
            emit::header(&plan(&name, &source), "cargo xtask render"),
        );
        if std::env::var_os("CUSYNC_RENDER").is_some() {
            std::fs::create_dir_all(rendered_dir()).expect("policies/rendered");
            std::fs::write(&path, &header).expect("written");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == header, "policies/rendered/{name}.h is stale: run `cargo xtask render`");
    }
    let there: BTreeSet<String> = std::fs::read_dir(rendered_dir())
        .expect("policies/rendered")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    let expected: BTreeSet<String> = included.iter().map(|name| format!("{name}.h")).collect();
    assert_eq!(there, expected, "policies/rendered holds what the examples include, and nothing else");
}

#[test]
fn shipped_headers_agree_with_the_model_at_every_tile() {
    for (name, source) in specs() {
        check_header(&name, &plan(&name, &source));
    }
}

/// Creates a folder with the shipped headers, freshly rendered, under `rendered/`.
fn render_to(name: &str) -> PathBuf {
    let dir = scratch(name);
    std::fs::create_dir_all(dir.join("rendered")).expect("created");
    for (name, source) in specs() {
        let header = emit::header(&plan(&name, &source), "cargo xtask render");
        std::fs::write(dir.join(format!("rendered/{name}.h")), header).expect("written");
    }
    dir
}

#[test]
fn nvcc_accepts_the_shipped_headers() {
    let mut uses = String::new();
    for (name, _) in specs() {
        writeln!(uses, "#include \"rendered/{name}.h\"").expect("string");
    }
    uses += "template <class E> __global__ void use(uint32_t k, cusync::WaitContext ctx, uint32_t* semaphores) {\n  \
               E::wait_for_k_block(blockIdx.x, blockIdx.y, k, false, 7, ctx);\n  \
               E::template warp_wait_for_k_block<CUSYNC_HAS_SM90 ? cusync::ReadBy::kTma : cusync::ReadBy::kLoads>(\n      \
               blockIdx.x, blockIdx.y, k, false, 7, ctx);\n  \
               E::wait_for_tile(blockIdx.x, blockIdx.y, ctx);\n  \
               E::Producer::cta_post_tile(semaphores, blockIdx.x, blockIdx.y);\n}\n";
    // The instructions are the same for all edges: those of one pipeline are assembled, too.
    let mut assembled = uses.clone();
    for (name, spec) in specs() {
        let plan = plan(&name, &spec);
        for edge in emit::edge_names(&plan) {
            let edge = format!("cusync::plans::{}::edges::{edge}", plan.graph().name);
            let line =
                format!("template __global__ void use<{edge}>(uint32_t, cusync::WaitContext, uint32_t*);\n");
            uses += &line;
            if name == "resnet_layer" {
                assembled += &line;
            }
        }
    }
    let dir = render_to("nvcc");
    std::fs::write(dir.join("headers.cu"), uses).expect("written");
    std::fs::write(dir.join("assembled.cu"), assembled).expect("written");
    for arch in ["90a", "80"] {
        let (target, unoptimized) = (format!("-arch=compute_{arch}"), ["-ptx", "-Xcicc", "-O0"]);
        let binary = format!("-gencode=arch=compute_{arch},code=sm_{arch}");
        for (file, options) in
            [("headers", [&unoptimized[..], &[&target]].concat()), ("assembled", vec!["-c", &binary])]
        {
            let Some(mut command) = nvcc() else { return };
            command.args(options).arg("-I").arg(&dir).arg(dir.join(format!("{file}.cu")));
            command.arg("-o").arg(dir.join(format!("{file}_{arch}.out")));
            compile(command);
        }
    }
}

#[test]
fn cpp_example_builds_without_rust() {
    let Some(mut command) = nvcc_program() else { return };
    let dir = render_to("cpp_example");
    let program = dir.join("two_gemms");
    command.arg("-I").arg(&dir).arg(root().join("examples/cpp/two_gemms.cu")).arg("-o").arg(&program);
    compile(command);
    run_on_gpu(&program);
}

/// Prints all values of a handle; every handle has the same members.
const HANDLE_DRIVER: &str = r#"
#[path = "handle.rs"]
mod handle;
use handle::*;
fn main() {
    println!("{NAME} {SLOT_COUNT} {ELEMENT} {DIMS:?}");
    for t in TENSORS {
        println!("tensor {} {t:?} {:?} {:?}", t.name(), t.shape(), t.producer().map(|s| s.name()));
    }
    for s in STAGES {
        let (tile, grid) = (s.tile(), s.grid());
        println!("stage {} {s:?} {} {:?} {tile:?} {grid:?} {}", s.name(), s as usize, s.shape(), s.k_blocks());
        println!("writes {}", s.output().name());
    }
    for e in EDGES {
        let (from, to) = e.ends();
        println!("edge {e:?} {} {} {} {} {:?}", e.id(), from.name(), to.name(), e.tensor().name(), e.slots());
    }
    assert!(INPUTS != 0 && !DEVICE.is_empty() && !EXECUTOR.is_empty());
}
"#;

fn expected_handle(plan: &Plan) -> String {
    let graph = plan.graph();
    let element = match graph.element {
        cusync_gen::graph::Element::F16 => "fp16",
        cusync_gen::graph::Element::Bf16 => "bf16",
    };
    let mut out = format!("{} {} {element} {:?}\n", graph.name, plan.slot_count(), graph.dims);
    for t in &graph.tensors {
        let producer = t.producer.map(|s| graph.stages[s.0].name.as_str());
        writeln!(out, "tensor {0} {0} {1:?} {producer:?}", t.name, (t.rows, t.cols)).expect("string");
    }
    for (i, s) in graph.stages.iter().enumerate() {
        let shape = (s.m, s.n, s.k);
        writeln!(
            out,
            "stage {0} {0} {i} {shape:?} {1:?} {2:?} {3}",
            s.name,
            s.out_tile(),
            s.grid,
            s.k_blocks
        )
        .expect("string");
        writeln!(out, "writes {}", graph.tensors[s.out.0].name).expect("string");
    }
    for (i, (name, e)) in emit::edge_names(plan).iter().zip(plan.edges()).enumerate() {
        let d = e.dependence();
        let consumer = &graph.stages[d.consumer.0];
        let tensor = &graph.tensors[consumer.operands[d.operand].tensor.0].name;
        let slots = (e.slots().slot_base, e.slots().slot_count);
        writeln!(
            out,
            "edge {name} {i} {} {} {tensor} {slots:?}",
            graph.stages[d.producer.0].name, consumer.name
        )
        .expect("string");
    }
    out
}

#[test]
fn shipped_handles_compile_alone_and_agree_with_the_plan() {
    for (name, source) in specs() {
        let plan = plan(&name, &source);
        let dir = scratch(&format!("handle_{name}"));
        std::fs::write(dir.join("handle.rs"), emit::handle(&plan, "cargo xtask render")).expect("written");
        std::fs::write(dir.join("main.rs"), HANDLE_DRIVER).expect("written");
        let program = dir.join("main");
        let mut command = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
        command.args(["--edition=2024", "-Dwarnings"]).arg(dir.join("main.rs")).arg("-o").arg(&program);
        compile(command);
        assert_same(&run(&program, ""), &expected_handle(&plan), &name);
    }
}
