//! Running plans: pipelines, executors, verification.

pub mod verify;

mod desc;
mod error;
mod execute;
mod pipeline;
mod run;
mod sets;
mod stats;

pub use desc::element_code;
pub use error::{Error, Result, executor_name};
pub use execute::Captured;
pub use pipeline::{Options, Pipeline, Tensor};
pub use run::{RunOptions, RunReport, run_gpu};
pub use sets::InputSets;
pub use stats::{Summary, percentile};
