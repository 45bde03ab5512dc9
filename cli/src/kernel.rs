//! Kernels of Custom stages, given on the command line.

use std::path::PathBuf;

use clap::Args;
use cusync::device::KernelCode;
use cusync_gen::graph::Graph;

use super::fault::Fault;

#[derive(Args)]
pub(crate) struct KernelFiles {
    /// Kernel of a Custom stage, for GPUs: CUDA C++ (.cu), or an image (.cubin, .fatbin, .ptx); may be repeated
    #[arg(long = "kernel", value_name = "STAGE=FILE", value_parser = stage_and_file)]
    kernels: Vec<(String, PathBuf)>,
}

fn stage_and_file(text: &str) -> Result<(String, PathBuf), String> {
    let (stage, file) = text.split_once('=').ok_or("write STAGE=FILE, as in norm=norm.cu")?;
    Ok((stage.to_owned(), file.into()))
}

impl KernelFiles {
    /// Reads the files; the stages are not checked.
    pub(crate) fn read(self) -> Result<Vec<(String, KernelCode)>, Fault> {
        self.kernels.into_iter().map(|(stage, file)| Ok((stage, KernelCode::read(&file)?))).collect()
    }
}

/// The error of a pipeline with a Custom stage on the host, if it has one: `given` are the stages with a kernel for GPUs.
pub(crate) fn on_host(graph: &Graph, given: &[String]) -> Option<Fault> {
    let custom = || graph.stages.iter().filter(|stage| stage.op.is_custom()).map(|stage| &stage.name);
    let without = custom().find(|name| !given.contains(name));
    let stage = without.or_else(|| custom().next())?;
    let message = format!("stage `{stage}` is Custom: its arithmetic is not in the spec");
    let fault = Fault::input("custom-arithmetic", message)
        .help("run it from Rust, with `CpuPipeline::custom` (examples/06_custom_stage.rs)");
    Some(match without {
        Some(stage) => fault.help(format!("on a GPU, give its kernel: --kernel {stage}={stage}.cu")),
        None => fault.help("--kernel gives it a kernel for GPUs, and this runs on the host"),
    })
}

/// How far a run on a GPU verifies Custom stages; `None` if there are none.
pub(crate) fn given_note(graph: &Graph) -> Option<String> {
    let given = graph.stages.iter().filter(|stage| stage.op.is_custom());
    let names: Vec<&str> = given.map(|stage| graph.tensors[stage.out.0].name.as_str()).collect();
    let note = || {
        format!(
            "the values of {} are taken as given, for no spec says what a Custom stage computes; other stages are verified",
            names.join(", ")
        )
    };
    (!names.is_empty()).then(note)
}
