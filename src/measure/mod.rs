//! What is measured of a GPU, by benchmarks and by tuning: variants in turns, ceilings, and the cost of synchronisation.
//!
//! ```no_run
//! use cusync::device::Device;
//! use cusync::measure::{Ceilings, Regime};
//!
//! let ceilings = Ceilings::measure(&Device::open(0)?)?;
//! let _at_rest = ceilings.of(Regime::Rested);
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

/// Why a measurement stopped.
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
    /// An argument makes no sense.
    #[error("{0}")]
    Argument(String),
    /// A variant's results are wrong, so its time would mean nothing.
    #[error("{variant} is wrong: {why}")]
    Wrong {
        /// Name of the variant.
        variant: String,
        /// The first tensor that is, and where.
        why: String,
    },
}

impl Error {
    /// Whether nothing can be run on the GPU after it.
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
