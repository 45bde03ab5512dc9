//! Running plans: pipelines, executors, verification.
//!
//! ```
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::device::Profile;
//! use cusync::runtime::{Overrides, plan_text, shipped};
//!
//! let h200 = Profile::named("h200").expect("it ships");
//! let spec = shipped("two_gemms").expect("it ships");
//! let plan = plan_text(spec, "two_gemms", &Overrides::default(), h200, Executor::Fused)?;
//! assert!(plan.runs_as(Executor::Fused) && !plan.runs_as(Executor::Streams));
//! # Ok::<(), cusync::runtime::Error>(())
//! ```

pub mod copilot;
pub mod cpu;
pub mod verify;

mod bind;
mod bound;
mod decode;
mod desc;
mod error;
mod execute;
mod group;
mod library;
mod one;
mod options;
mod own;
mod pipeline;
mod plan;
mod queue;
mod run;
mod sets;
mod stats;
mod supported;
mod tensors;
mod traced;

pub use crate::device::element_code;
pub use error::{Error, Result, executor_name};
pub use options::{Options, Overlap};
pub use pipeline::{Captured, Integers, Pipeline, TensorBuffer};
pub use plan::{ChainOverride, Overrides, SHIPPED, plan_source, plan_text, resolve_text, shipped};
pub use run::{GpuRunReport, RunOptions, run_gpu, run_gpu_with};
pub use sets::InputSets;
pub use stats::{Summary, percentile};
pub use traced::{ItemTrace, trace_runs};

use cusync_gen::graph::{Graph, TensorId};

/// Results of a pipeline: tensors that a stage writes and no stage reads.
pub fn outputs(graph: &Graph) -> impl Iterator<Item = TensorId> + '_ {
    let read = |id| graph.stages.iter().any(|s| s.operands.iter().any(|o| o.tensor == id));
    graph.stages.iter().map(|s| s.out).filter(move |&id| !read(id))
}
