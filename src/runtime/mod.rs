//! Running plans: pipelines, executors, verification.

mod desc;
mod error;
mod execute;
mod pipeline;

pub use desc::element_code;
pub use error::{Error, Result, executor_name};
pub use execute::Captured;
pub use pipeline::{Options, Pipeline, Tensor};
