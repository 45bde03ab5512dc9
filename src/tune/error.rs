//! Errors of tuned plans.

use std::path::PathBuf;

use super::cache::VERSION;

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of the cache, or of a measurement for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cache cannot be read or written.
    #[error(
        "{}: the cache of tuned plans cannot be read or written: {why}\n  help: make it accessible and see that the disk is not full, or name another with --cache FILE",
        path.display()
    )]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        why: std::io::Error,
    },
    /// The file is not a cache, or was damaged.
    #[error(
        "{}: not a cache of tuned plans: {why}\n  help: it was left as it is; mend it, move it away, or name another with --cache FILE",
        path.display()
    )]
    Corrupt {
        /// Path of the file.
        path: PathBuf,
        /// First error, with its line.
        why: String,
        /// Line and column of the error, from 1, if known.
        place: Option<(usize, usize)>,
    },
    /// The file was written by another version of this program.
    #[error(
        "{}: the cache is of version {found}, this program reads and writes version {VERSION}\n  help: it was left as it is; move it away, or name another with --cache FILE, and tune again",
        path.display()
    )]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// Version in the file.
        found: u64,
    },
    /// There is no folder for a cache.
    #[error(
        "no folder for the cache of tuned plans: {0}\n  help: set HOME or XDG_CACHE_HOME, or name a file with --cache FILE"
    )]
    NoFolder(String),
    /// A refused spec or plan, rendered with its location and a suggested fix.
    #[error("{0}")]
    Refused(String),
    /// Tuning does not support the GPU.
    #[error("{0}")]
    Unsupported(String),
    /// A measurement failed.
    #[error(transparent)]
    Measure(#[from] crate::measure::Error),
}

impl From<crate::runtime::Error> for Error {
    fn from(error: crate::runtime::Error) -> Self {
        Error::Measure(error.into())
    }
}

impl From<crate::device::Error> for Error {
    fn from(error: crate::device::Error) -> Self {
        Error::Measure(error.into())
    }
}
