//! Repository tasks: `cargo xtask setup | run | test | wheel | bundle | render | dist`.

mod bundle;
#[path = "../../build/compiler.rs"]
mod compiler;
mod dist;
#[path = "../../build/prebuilt.rs"]
mod prebuilt;
mod python;
mod setup;
mod test;
#[path = "../../cli/src/toolchain.rs"]
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Repository tasks")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install nvcc, CUTLASS and libclang into .toolchain/, pinned and hashed
    Setup,
    /// Run a shipped pipeline (or a RON file) and verify it, on the GPU if there is one
    Run {
        /// Pipeline name or RON file, followed by any arguments of `cusync run`
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Set up, build everything, run every test that this machine can run, list the skipped ones
    Test {
        /// Extra arguments for `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Create target/wheels: the Python package, judged and tested in a fresh environment
    Wheel {
        /// Leave out the kernels, and with them nvcc: the package runs on hosts only
        #[arg(long)]
        no_kernels: bool,
    },
    /// Create target/bundle: the command, the GPU tests and the specs, for a machine without Rust or CUDA
    Bundle,
    /// Regenerate policies/rendered and the FFI bindings
    Render,
    /// Create target/dist: a prebuilt kernel library for CUSYNC_KERNELS, with checksums
    Dist,
}

/// Result of a task: nothing, or the reason and a suggested fix, ready to print.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default();
    let outcome = match Args::parse().task {
        Task::Setup => setup::setup(&root),
        Task::Run { args } => run(&root, &args),
        Task::Test { args } => setup::setup(&root).and_then(|()| {
            python::prepare(&root);
            test::test(&root, &args)
        }),
        Task::Wheel { no_kernels: true } => python::wheel(&root, false),
        Task::Wheel { no_kernels: false } => setup::setup(&root).and_then(|()| python::wheel(&root, true)),
        Task::Bundle => setup::setup(&root).and_then(|()| bundle::bundle(&root)),
        Task::Render => render(&root),
        Task::Dist => setup::setup(&root).and_then(|()| dist::dist(&root)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, args: &[String]) -> Outcome {
    let mut build = Command::new("cargo");
    build.current_dir(root).args(["build", "--package", "cusync-cli"]);
    // Language models need a tokenizer, which takes long to compile.
    build.args(["--no-default-features", "--features", "cuda"]);
    let folder = if setup::has_gpu() {
        setup::setup(root)?;
        build.arg("--release");
        "release"
    } else {
        // Nothing is measured, so the fastest build is good enough.
        build.envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
        "debug"
    };
    spawn(&mut build)?;
    spawn(Command::new(root.join("target").join(folder).join("cusync")).arg("run").args(args))
}

/// Generated files have one writer: the test that compares them, run in its write mode.
fn render(root: &Path) -> Outcome {
    spawn(Command::new("cargo").current_dir(root).env("CUSYNC_RENDER", "1").args([
        "test",
        "--quiet",
        "--workspace",
        "--test",
        "contract",
        "--test",
        "ffi_fresh",
        "--",
        "--exact",
        "rendered::rendered_files_are_fresh",
        "documents::rendered_files_are_fresh",
        "bindings_are_fresh",
    ]))
}

fn cargo<const N: usize>(root: &Path, args: [&str; N]) -> Outcome {
    spawn(Command::new("cargo").current_dir(root).args(args))
}

fn spawn(command: &mut Command) -> Outcome {
    let program = PathBuf::from(command.get_program()).display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} ended with {status}")),
        Err(e) => Err(format!("{program} did not start: {e}")),
    }
}
