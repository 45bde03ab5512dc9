//! Measurements: the layer benchmarks against their baselines, and the cost of synchronization.
//!
//! All functions return values; only the command line prints.
//!
//! Times are comparable only within one size of one run: variants are interleaved (A B ... B A) in one
//! process, because a GPU under tensor load lowers its clocks. Two regimes are measured. `rested`: the GPU
//! idles 3 ms before each sample. `sustained`: samples back to back for a window of up to 0.25 s, without the
//! first fifth. A sample is a graph of some runs of every weight set in rotation, the same number for every
//! variant, and its time is divided by the number of runs; so weights never come from the L2 cache. The floor
//! next to every time is max(FLOP / matrix rate, bytes / read bandwidth), with both rates measured by the
//! same process in the same regime.
//!
//! ```
//! use cusync_bench::{SIZES, Summary};
//!
//! assert!(SIZES.contains(&512));
//! let summary = Summary::from_times(&[3.0, 1.0, 2.0]);
//! assert_eq!((summary.median_us, summary.samples), (2.0, 3));
//! ```

pub mod copilot;
pub mod dag;
mod derived;
mod digest;
mod fused;
mod layers;
mod peer;
mod point;
mod pytorch;
mod ragged;
mod record;
mod sample;
mod table;
mod target;
mod tune;

pub use cusync::measure::{
    Ceiling, Ceilings, Error, Regime, Result, SemaphoreCost, Variant, bench_semaphores,
};
pub use cusync::runtime::{Summary, percentile};
pub use derived::source_of;
pub use digest::{Digest, Line, Mean};
pub use layers::{
    BATCHES, LayerArgs, LayerPoint, LayerProgress, SIZES, attentions, bench_layers, convolutions, mlps,
};
pub use peer::{PeerChain, PeerGemm};
pub use pytorch::{PYTORCH_MODELS, PytorchTimes, add_pytorch};
pub use record::{LayerReport, Record, Role, ScheduleRecord, Size, size_text};
pub use table::rows;
pub use target::{Best, RAGGED, Verdict};
