//! The native half of the Python package `cusync`. Python code in `python/cusync` calls it, and has the
//! documentation and the types that users see.
//!
//! `unsafe` code borrows memory and streams of Python objects, in `memory.rs` and `pipeline.rs`, and captured graphs, in
//! `captured.rs`.

mod captured;
mod choice;
mod decoder;
mod error;
mod generation;
mod memory;
mod model;
mod pipeline;

use std::ffi::OsString;
use std::path::PathBuf;

use cusync_cli::embed::{self, Answered, ProgramRequest, SpecRequest};
use pyo3::prelude::*;

use self::error::detached;

/// The native half of the package.
#[pymodule(gil_used = false)]
mod _cusync {
    use super::*;

    #[pymodule_export]
    use super::captured::{Rescheduled, captured_nodes};
    #[pymodule_export]
    use super::choice::times;
    #[pymodule_export]
    use super::decoder::PyDecoder;
    #[pymodule_export]
    use super::generation::Generation;
    #[pymodule_export]
    use super::model::PyModel;
    #[pymodule_export]
    use super::pipeline::PyPipeline;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    fn answer(answered: Answered) -> (String, String) {
        (answered.json, answered.page)
    }

    /// JSON and text of `cusync check`.
    #[pyfunction]
    fn check(
        py: Python<'_>,
        spec: &str,
        dims: Vec<(String, u64)>,
        device: &str,
        executor: &str,
    ) -> PyResult<(String, String)> {
        detached(py, || embed::check(&SpecRequest { spec, dims: &dims, device, executor })).map(answer)
    }

    /// JSON and text of `cusync explain`.
    #[pyfunction]
    fn explain(
        py: Python<'_>,
        spec: &str,
        dims: Vec<(String, u64)>,
        device: &str,
        executor: &str,
    ) -> PyResult<(String, String)> {
        detached(py, || embed::explain(&SpecRequest { spec, dims: &dims, device, executor })).map(answer)
    }

    /// JSON and text of `cusync schedule`; `limits`: of streams, and of the bytes of temporary buffers.
    #[pyfunction]
    fn schedule(
        py: Python<'_>,
        program: &str,
        dims: Vec<(String, u64)>,
        device: &str,
        limits: (Option<u64>, Option<u64>),
        form: Option<&str>,
        output: Option<PathBuf>,
    ) -> PyResult<(String, String)> {
        let (output, (streams, memory)) = (output.as_deref(), limits);
        let request = ProgramRequest { program, dims: &dims, device, streams, memory, form, output };
        detached(py, || embed::schedule(&request)).map(answer)
    }

    /// JSON and text of `cusync doctor`.
    #[pyfunction]
    fn doctor(py: Python<'_>) -> PyResult<(String, String)> {
        detached(py, embed::doctor).map(answer)
    }

    /// Names and texts of the shipped specs.
    #[pyfunction]
    fn shipped() -> Vec<(&'static str, &'static str)> {
        cusync::runtime::SHIPPED.to_vec()
    }

    /// Runs the command, and returns its exit status.
    #[pyfunction]
    fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| cusync_cli::command(arguments))
    }

    /// Writes a small random checkpoint.
    #[pyfunction]
    fn tiny_model(py: Python<'_>, folder: PathBuf, architecture: &str) -> PyResult<()> {
        detached(py, || Ok(cusync_models::tiny::write(&folder, architecture)?))
    }
}
