//! Kernels that are declared fit for programmatic edges against their code: PTX written here, what nvcc makes, and the image of
//! the suite.

use std::path::{Path, PathBuf};
use std::process::Command;

use cusync::device::{GridControl, Image, Presence};
use cusync::programs::{Error, verified};
use cusync::sources::{ROOT, compiler};
use cusync_bench::dag::SpinProgram;
use cusync_bench::dag::suite::{NAMES, SizeClass, WITH_COPIES, case, case_with_copies};
use cusync_dag::{
    Argument, Evidence, Form, LaunchConfig, Program, Recorded, Recording, ScheduleOptions, TileAccesses,
    TileBytes, schedule,
};

const SM90: (u32, u32) = (9, 0);

/// The evidence for each kernel of a recording that the image gives.
fn judged(recording: &Recording, image: &Image) -> Result<Program, Error> {
    verified(recording.program(), |id| match &recording.recorded()[id.index()] {
        Recorded::Kernel { function, .. } => (function.as_str(), image.grid_control(function, SM90)),
        other => panic!("{other:?} is declared fit"),
    })
}

/// A chain of kernels that update one buffer and are declared fit.
fn chain(kernels: &[&str]) -> Recording {
    let mut code = Recording::new("chain").built_for_programmatic_edges();
    let x = code.zeros("x", 1024);
    for kernel in kernels {
        let update = code.update(x);
        code.launch(kernel, LaunchConfig::linear(4, 256), 3.0, &[update]).expect("a valid kernel");
    }
    code
}

const PTX: &str = "
.version 8.0
.target sm_90
.entry waits() { griddepcontrol.wait; ret; }
.entry triggers() { griddepcontrol.wait; griddepcontrol.launch_dependents; ret; }
.entry hurries() { ret; }
.entry calls(.param .b64 p) { call %rd1, (p), prototype; ret; }
";

#[test]
fn declarations_that_the_code_contradicts_are_refused() {
    let image = Image::from(PTX.as_bytes());
    let program = judged(&chain(&["waits", "triggers"]), &image).expect("both wait");
    assert!(program.nodes().iter().all(|node| node.evidence == Evidence::Code));
    let fault = judged(&chain(&["waits", "hurries"]), &image).expect_err("one does not wait").to_string();
    for part in ["kernel `hurries`", "no griddepcontrol.wait", "cudaGridDependencySynchronize()", "drop"] {
        assert!(fault.contains(part), "{fault}");
    }
    // Kernels with full edges need nothing.
    let mut plain = Recording::new("plain");
    plain.launch("hurries", LaunchConfig::linear(1, 32), 1.0, &[]).expect("a valid kernel");
    assert_eq!(&judged(&plain, &image).expect("not declared"), plain.program());

    let early = |kernel, early_trigger| {
        let mut code = Recording::new("early").built_for_programmatic_edges();
        let x = code.zeros("x", 1024);
        let tiles = TileAccesses { bytes: vec![TileBytes::All], spread_us: 0.0, early_trigger };
        let (launch, arguments) = (LaunchConfig::linear(4, 256), [code.update(x), Argument::TileSync]);
        code.launch_tiled(kernel, launch, 3.0, &arguments, tiles).expect("a valid kernel");
        judged(&code, &image)
    };
    let fault = early("waits", true).expect_err("it never triggers").to_string();
    for part in ["kernel `waits`", "no griddepcontrol.launch_dependents", "early_trigger"] {
        assert!(fault.contains(part), "{fault}");
    }
    for (kernel, early_trigger) in [("triggers", true), ("waits", false)] {
        assert_eq!(early(kernel, early_trigger).expect("it has").nodes()[0].evidence, Evidence::Code);
    }
}

#[test]
fn a_proved_plan_names_what_is_only_declared() {
    let recording = chain(&["waits", "calls", "lost"]);
    let program = judged(&recording, &Image::from(PTX.as_bytes())).expect("nothing is contradicted");
    let unverified = |program: &Program, forms: &[Form]| {
        let options = ScheduleOptions { forms: forms.to_vec(), ..ScheduleOptions::default() };
        let schedule = schedule(program, &options).expect("no limit");
        let proved = schedule.prove(program, schedule.form).expect("right");
        proved.unverified().map(|(id, why)| (id.index(), why.to_owned())).collect::<Vec<_>>()
    };
    let found = unverified(&program, &[Form::LANE_MIXED]);
    assert_eq!(found.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1, 2]);
    assert!(found[0].1.contains("through a pointer") && found[1].1.contains("no kernel `lost`"), "{found:?}");
    assert_eq!(unverified(&program, &[Form::SERIAL]), [], "full edges need no declaration");
    let unknown = unverified(recording.program(), &[Form::LANE_MIXED]);
    assert_eq!(unknown, [0, 1, 2].map(|node| (node, "no image is at hand".to_owned())));
}

/// The image of the suite with machine code for sm_90a.
#[allow(clippy::print_stdout)]
fn suite() -> Option<Image> {
    let archs = env!("CUSYNC_BUILT_ARCHS");
    let image = Image::suite().filter(|_| archs.is_empty() || archs.split(';').any(|arch| arch == "90a"));
    if image.is_none() {
        println!("skipped: the suite was not built for sm_90a; `cargo xtask setup` brings nvcc");
    }
    image
}

/// Every program of the suite, and programs of its other kernels.
fn suite_programs() -> Vec<(String, Recording)> {
    let mut all = Vec::new();
    for size in [SizeClass::Small, SizeClass::Large] {
        let cases = NAMES.iter().filter_map(|name| case(name, size));
        let cases = cases.chain(WITH_COPIES.iter().filter_map(|name| case_with_copies(name, size)));
        all.extend(cases.map(|case| case.expect("a valid program")).map(|c| (c.name.into(), c.recording)));
    }
    let spin = SpinProgram::chain(3, 4, 10);
    for recorded in [spin.record("spin", 8.0, false), spin.record_tiled("tiled", 8.0, false)] {
        let recording = recorded.expect("a valid program").recording;
        all.push((recording.program().name().into(), recording));
    }
    all.push(("stamp".into(), chain(&["stamp"])));
    all
}

#[test]
fn every_kernel_of_the_suite_waits_and_triggers_as_declared_and_is_refused_without_its_waits() {
    let Some(image) = suite() else { return };
    // ACQBULK with any predicate becomes NOP.
    let mut bytes = image.bytes().to_vec();
    for word in bytes.chunks_exact_mut(8) {
        let value = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        if value & !0xf000 == 0x82e {
            word.copy_from_slice(&0x7918u64.to_le_bytes());
        }
    }
    let mutant = Image::from(&*bytes);
    let mut kernels = 0;
    for (name, recording) in suite_programs() {
        let program = judged(&recording, &image).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        for node in program.nodes() {
            let declared = node.kernel().is_some_and(|kernel| kernel.programmatic);
            kernels += usize::from(declared);
            assert!(!declared || node.evidence == Evidence::Code, "{name}: {node:?}");
        }
        let fault = judged(&recording, &mutant).expect_err(&name);
        assert!(matches!(fault, Error::NeverWaits { .. }), "{name}: {fault}");
    }
    assert!(kernels > 100, "only {kernels} kernels");
}

const KERNELS: &str = r#"
extern __device__ int far(int x);
__device__ __noinline__ int near(int x) { cudaGridDependencySynchronize(); return x + clock(); }
extern "C" __global__ void both(int* p) {
  cudaGridDependencySynchronize(); cudaTriggerProgrammaticLaunchCompletion(); *p += 1;
}
extern "C" __global__ void sometimes(int* p, int n) {
  if (n > 3) cudaTriggerProgrammaticLaunchCompletion();
  if (p[n] == 3) cudaGridDependencySynchronize();
  *p += 1;
}
extern "C" __global__ void none(int* p) { *p += 1; }
extern "C" __global__ void divides(long long* p) { p[0] /= p[1]; }
extern "C" __global__ void calls(int* p) { *p = near(*p) + near(3 * *p); }
extern "C" __global__ void pointer(int* p, void (**f)(int*)) { f[*p](p); }
#ifdef FAR
extern "C" __global__ void calls_far(int* p) { *p = far(*p); }
#endif
"#;

const FAR: &str = "__device__ int far(int x) { cudaGridDependencySynchronize(); return x * 3; }";

/// Compiles tiny kernels in each format; every answer must be as written.
#[test]
fn what_nvcc_compiles_is_found() {
    let toolchain = match compiler::find(ROOT.as_ref()) {
        Ok(toolchain) => toolchain,
        Err(missing) => return println!("skipped: no kernels are compiled to be searched: {missing}"),
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dag_code");
    std::fs::create_dir_all(&folder).expect("writable");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("writable");
        path
    };
    let (kernels, far) = (write("kernels.cu", KERNELS), write("far.cu", FAR));
    let compile = |name: &str, args: &[&str], sources: &[&PathBuf]| {
        let output = folder.join(name);
        let run = Command::new(&toolchain.nvcc).args(args).args(sources).arg("-o").arg(&output).output();
        let run = run.expect("nvcc starts");
        assert!(run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stderr));
        Image::from(&*std::fs::read(&output).expect("nvcc wrote it"))
    };
    let gencode = ["-gencode=arch=compute_80,code=compute_80", "-gencode=arch=compute_90a,code=sm_90a"];
    let text = "-gencode=arch=compute_90,code=compute_90";
    let images = [
        ("k.cubin", compile("k.cubin", &["-arch=sm_90a", "-cubin"], &[&kernels])),
        ("k.ptx", compile("k.ptx", &["-arch=compute_90", "-ptx"], &[&kernels])),
        ("k.fatbin", compile("k.fatbin", &["-fatbin", gencode[0], gencode[1]], &[&kernels])),
        ("text.fatbin", compile("text.fatbin", &["-fatbin", "--no-compress", text], &[&kernels])),
        (
            "linked.cubin",
            compile(
                "linked.cubin",
                &["-arch=sm_90a", "-DFAR", "-rdc=true", "-dlink", "-cubin"],
                &[&kernels, &far],
            ),
        ),
    ];
    use Presence::{Absent, Present};
    for (name, image) in &images {
        for (kernel, wait, trigger) in [
            ("both", Present, Present),
            ("sometimes", Present, Present),
            ("none", Absent, Absent),
            ("divides", Absent, Absent),
            ("calls", Present, Absent),
        ] {
            assert_eq!(image.grid_control(kernel, SM90), GridControl { wait, trigger }, "{name}: {kernel}");
        }
        let GridControl { wait: Presence::Unknown(why), .. } = image.grid_control("pointer", SM90) else {
            panic!("{name}: a call through a pointer is known")
        };
        assert!(why.contains("through a pointer"), "{name}: {why}");
    }
    let far = images[4].1.grid_control("calls_far", SM90);
    assert_eq!(far, GridControl { wait: Present, trigger: Absent });
    let compressed = compile("compressed.fatbin", &["-fatbin", text], &[&kernels]).grid_control("both", SM90);
    let Presence::Unknown(why) = compressed.wait else { panic!("{compressed:?}") };
    assert!(why.contains("nvcc --no-compress"), "{why}");
    let old = compile("old.fatbin", &["-fatbin", gencode[0]], &[&kernels]).grid_control("none", SM90);
    assert_eq!(old, GridControl { wait: Absent, trigger: Absent }, "code for sm_80 never waits");
}
