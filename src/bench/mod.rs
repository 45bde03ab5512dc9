//! Measurements: the layer benchmarks against their baselines, and the cost of synchronisation.
//!
//! Everything here returns values; printing is the command line's.

pub use crate::runtime::{Summary, percentile};
