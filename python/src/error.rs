//! Errors as Python exceptions.

use cusync_cli::embed::Failure;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An error that the command does not state, such as one in an argument.
pub(crate) fn argument(message: impl Into<String>, help: &str) -> Failure {
    let message = message.into();
    Failure {
        code: "bad-argument",
        text: format!("error: {message}\n  help: {help}"),
        message,
        help: Some(help.into()),
        file: None,
        line: None,
        column: None,
        refusal: false,
    }
}

/// The exception of a failure: `SpecError` for a refused spec, else `CusyncError`.
pub(crate) fn raised(py: Python<'_>, failure: Failure) -> PyErr {
    exception(py, failure).unwrap_or_else(|error| error)
}

fn exception(py: Python<'_>, failure: Failure) -> PyResult<PyErr> {
    let name = if failure.refusal { "SpecError" } else { "CusyncError" };
    let class = py.import("cusync._errors")?.getattr(name)?;
    let fields = PyDict::new(py);
    fields.set_item("code", failure.code)?;
    fields.set_item("message", failure.message)?;
    fields.set_item("help", failure.help.as_deref())?;
    fields.set_item("file", failure.file.as_deref())?;
    fields.set_item("line", failure.line)?;
    fields.set_item("column", failure.column)?;
    Ok(PyErr::from_value(class.call((failure.text,), Some(&fields))?))
}

/// Runs work without the interpreter's lock, and raises its failure.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|failure| raised(py, failure))
}
