//! Errors of models.

use std::path::PathBuf;

use cusync::SessionError;

/// Error of a model, with a suggested fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the checkpoint is missing or cannot be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason, and a suggested fix.
        reason: String,
    },
    /// No file here describes the architecture.
    #[error("the architecture {found} is not supported\n  help: these are: {known}")]
    Architecture {
        /// Name in `config.json`.
        found: String,
        /// Names of the supported ones.
        known: String,
    },
    /// The configuration asks for something that the layers cannot compute.
    #[error("config.json: {0}")]
    Config(String),
    /// A weight is missing, or has another shape or type.
    #[error("weight `{name}`: {reason}")]
    Weight {
        /// Name in the checkpoint.
        name: String,
        /// Reason, and a suggested fix.
        reason: String,
    },
    /// The model does not fit into device memory.
    #[error(
        "the model needs {need_mib} MiB of device memory, and {free_mib} MiB are free\n  help: {weights_mib} MiB are \
         weights and {cache_mib} MiB are caches: choose a smaller context or fewer slots, or a smaller model"
    )]
    Memory {
        /// Needed MiB.
        need_mib: u64,
        /// Free MiB.
        free_mib: u64,
        /// Weights, all copies included.
        weights_mib: u64,
        /// Keys and values.
        cache_mib: u64,
    },
    /// A sequence cannot do this.
    #[error("slot {slot}: {reason}")]
    Slot {
        /// The slot that holds the sequence.
        slot: usize,
        /// Reason, and a suggested fix.
        reason: String,
    },
    /// A request cannot be served.
    #[error("{0}")]
    Request(String),
    /// Error of a pipeline.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<cusync::runtime::Error> for Error {
    fn from(error: cusync::runtime::Error) -> Self {
        Error::Session(error.into())
    }
}

impl From<cusync::device::Error> for Error {
    fn from(error: cusync::device::Error) -> Self {
        cusync::runtime::Error::from(error).into()
    }
}

impl From<cusync::tune::Error> for Error {
    fn from(error: cusync::tune::Error) -> Self {
        Error::Session(error.into())
    }
}

/// Result of a model.
pub type Result<T> = std::result::Result<T, Error>;
