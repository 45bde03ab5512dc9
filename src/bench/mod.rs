//! Measurements: the layer benchmarks against their baselines, and the cost of synchronisation.
//!
//! Everything here returns values; printing is the command line's.
//!
//! Times are comparable only within one size of one run: variants are interleaved (A B ... B A) in one process,
//! because a GPU under tensor load lowers its clocks. Two regimes are measured. `rested`: the GPU idles 3 ms before
//! each sample. `sustained`: samples back to back for a window of up to 0.25 s, the first fifth of which is
//! dropped. A sample is one run of every weight set, its time divided by their number, so weights never come from
//! the L2 cache. The floor beside every time is max(FLOP / matrix rate, bytes / read bandwidth), both rates
//! measured by the same process in the same regime.

mod ceiling;
mod measure;
mod mlp;
mod peer;
mod semaphore;
mod table;
mod variant;

pub use crate::runtime::{Summary, percentile};
pub use ceiling::{Ceiling, Ceilings};
pub use measure::Regime;
pub use mlp::{MlpArgs, MlpReport, Progress, Record, SIZES, bench_mlp};
pub use peer::{PeerChain, PeerGemm};
pub use semaphore::{SemaphoreCost, bench_semaphores};
pub use table::rows;
pub use variant::Variant;

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a benchmark stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// From the runtime.
    #[error(transparent)]
    Runtime(#[from] crate::runtime::Error),
    /// From the device layer.
    #[error(transparent)]
    Device(#[from] crate::device::Error),
    /// A plan was refused.
    #[error("{0}")]
    Plan(String),
    /// An argument makes no sense.
    #[error("{0}")]
    Argument(String),
    /// A variant's results are wrong, so its time would mean nothing.
    #[error("{variant} is wrong: relative error {l2:.2e} (L2), {max:.2e} (largest)")]
    Wrong {
        /// The variant.
        variant: String,
        /// Relative L2 norm of the difference.
        l2: f64,
        /// Largest difference relative to the largest value.
        max: f64,
    },
}
