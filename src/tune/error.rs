//! What can go wrong with tuned plans.

use std::path::PathBuf;

use super::cache::VERSION;

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault of the cache, or of a measurement for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cache cannot be read or written.
    #[error(
        "{}: the cache of tuned plans cannot be read or written: {why}\n  help: make it accessible and see that the disk is not full, or name another with --cache FILE",
        path.display()
    )]
    File {
        /// The file that was read or written.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// The file is not a cache, or was damaged.
    #[error(
        "{}: not a cache of tuned plans: {why}\n  help: it was left as it is; mend it, move it away, or name another with --cache FILE",
        path.display()
    )]
    Corrupt {
        /// The file that was read or written.
        path: PathBuf,
        /// The first fault, with its line.
        why: String,
        /// That line and the column, from 1, where it has one.
        place: Option<(usize, usize)>,
    },
    /// The file is of another version of this program.
    #[error(
        "{}: the cache is of version {found}, this program reads and writes version {VERSION}\n  help: it was left as it is; move it away, or name another with --cache FILE, and tune again",
        path.display()
    )]
    Version {
        /// The file that was read or written.
        path: PathBuf,
        /// The version that it states.
        found: u64,
    },
    /// There is no place for a cache.
    #[error(
        "no folder for the cache of tuned plans: {0}\n  help: set HOME or XDG_CACHE_HOME, or name a file with --cache FILE"
    )]
    NoFolder(String),
    /// A spec or a plan that was refused, rendered with place and way out.
    #[error("{0}")]
    Refused(String),
    /// The GPU cannot be tuned for.
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
