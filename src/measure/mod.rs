//! Measurements of a GPU for benchmarks and tuning: variants in turns, ceilings, and the cost of
//! synchronization.
//!
//! ```no_run
//! use cusync::device::Device;
//! use cusync::measure::{Ceilings, Regime};
//!
//! let ceilings = Ceilings::measure(&Device::open(0)?)?;
//! let _at_rest = ceilings.in_regime(Regime::Rested);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ceiling;
mod clock;
mod semaphore;
mod turns;
mod variant;

pub use ceiling::{Ceiling, Ceilings, floor_us};
pub use clock::clocks_mhz;
pub use semaphore::{SemaphoreCost, bench_semaphores};
pub use turns::{Regime, interleaved, paired, quick};
pub use variant::{GraphVariant, PipelineVariant, Variant};

use crate::runtime::percentile;

/// Result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why a measurement stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime reported an error.
    #[error(transparent)]
    Runtime(#[from] crate::runtime::Error),
    /// The device layer reported an error.
    #[error(transparent)]
    Device(#[from] crate::device::Error),
    /// Kernel-level scheduling reported an error.
    #[error(transparent)]
    Dag(#[from] crate::programs::Error),
    /// A plan was refused.
    #[error("{0}")]
    Plan(String),
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// A variant's results are wrong, so its time is meaningless.
    #[error("{variant} is wrong: {why}")]
    Wrong {
        /// Name of the variant.
        variant: String,
        /// First wrong tensor, and the location.
        why: String,
    },
}

impl Error {
    /// Whether the GPU is unusable after this error.
    pub fn is_fatal(&self) -> bool {
        use crate::{device, runtime};
        let device =
            |e: &device::Error| matches!(e, device::Error::Driver { .. } | device::Error::Runtime { .. });
        match self {
            Error::Runtime(runtime::Error::Device(e)) | Error::Device(e) => device(e),
            Error::Runtime(runtime::Error::Starved { .. } | runtime::Error::Poisoned(_)) => true,
            _ => false,
        }
    }
}
