//! Measurements: the layer benchmarks against their baselines, and the cost of synchronisation.
//!
//! Everything here returns values; printing is the command line's.
//!
//! Times are comparable only within one size of one run: variants are interleaved (A B ... B A) in one process,
//! because a GPU under tensor load lowers its clocks. Two regimes are measured. `rested`: the GPU idles 3 ms before
//! each sample. `sustained`: samples back to back for a window of up to 0.25 s, the first fifth of which is
//! dropped. A sample is a graph of some runs of every weight set in rotation, equally many for every variant, its time
//! divided by the number of runs; so weights never come from the L2 cache. The floor beside every time is max(FLOP / matrix rate, bytes / read bandwidth), both rates
//! measured by the same process in the same regime.

mod ceiling;
pub mod dag;
mod digest;
mod fused;
pub(crate) mod measure;
mod mlp;
mod peer;
mod point;
mod pytorch;
mod record;
mod sample;
mod semaphore;
mod sweep;
mod table;
mod target;
mod tune;
pub(crate) mod variant;

pub use crate::runtime::{Summary, percentile};
pub use ceiling::{Ceiling, Ceilings};
pub use digest::{Digest, Line, Mean};
pub use measure::Regime;
pub use mlp::{MlpArgs, Progress, SIZES, bench_mlp};
pub use peer::{PeerChain, PeerGemm};
pub use pytorch::add_pytorch;
pub use record::{MlpReport, Record, Role, ScheduleRecord};
pub use semaphore::{SemaphoreCost, bench_semaphores};
pub use sweep::{SweepRecord, SweepReport, bench_sweep};
pub use table::rows;
pub use target::{Best, RAGGED, Verdict};
pub use variant::Variant;

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a benchmark stopped.
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
    #[error("{variant} is wrong: relative error {l2:.2e} (L2), {max:.2e} (largest)")]
    Wrong {
        /// Name of the variant.
        variant: String,
        /// Relative L2 norm of the difference.
        l2: f64,
        /// Largest difference relative to the largest value.
        max: f64,
    },
}

impl Error {
    /// Whether nothing can be run on the GPU after it.
    pub(crate) fn is_fatal(&self) -> bool {
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
