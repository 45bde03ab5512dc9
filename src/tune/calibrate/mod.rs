//! Measures the numbers of a device profile on the available GPU, with the same kernels that run plans.
//!
//! Every kernel of a stage is timed at whole waves of different number and depth, and a linear fit separates
//! the costs of a k-block, a tile and a start ([`WaveTimes`]). Every chain kernel records when its items
//! began and ended, which separates k-blocks, ring fills, epilogues, slabs and the latency from a post to its
//! waiter ([`ItemTimes`]). Device rates, semaphores and boundaries have separate tests. All measurements use
//! the rested regime: an idle pause before each sample.

mod fit;
mod measure;
mod profile;
mod timeline;

pub use fit::WaveTimes;
pub use measure::calibrate;
pub use profile::Calibrated;
pub use timeline::ItemTimes;

use serde::Serialize;

use crate::measure::{Ceilings, SemaphoreCost};

/// A time of a kernel of whole waves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Tiles per SM.
    pub waves: u32,
    /// k-blocks per tile.
    pub k_blocks: u32,
    /// Time of one run among others of a graph, microseconds.
    pub us: f64,
}

/// A stage kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTimes {
    /// MMA tile, (M, N, K).
    pub tile: (u32, u32, u32),
    /// The measurements.
    pub samples: Vec<Sample>,
    /// Fit of the samples, if possible.
    pub times: Option<WaveTimes>,
    /// Rate of all SMs together between first and last k-block, TFLOP/s.
    pub tflops: Option<f64>,
}

/// A chain kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainTimes {
    /// MMA tile per CTA, (M, N, K).
    pub tile: (u32, u32, u32),
    /// CTAs per worker along M and N.
    pub cluster: (u32, u32),
    /// Times of whole tiles.
    pub times: ItemTimes,
    /// Rate of one SM among busy ones, TFLOP/s.
    pub sm_tflops: Option<f64>,
}

/// Costs of a chain in addition to its tiles, measured with one chain kernel; epilogue times are for its
/// tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ChainCosts {
    /// The kernel's MMA tile.
    pub tile: (u32, u32),
    /// Epilogue time added by a GELU, microseconds.
    pub gelu_us: Option<f64>,
    /// Epilogue time added by a gated activation, microseconds.
    pub gate_us: Option<f64>,
    /// Time of a run, less the time from the start of its first item to the end of its last, if the previous
    /// run ends while this one begins, microseconds.
    pub launch_us: Option<f64>,
    /// From the end of a tile's epilogue until a stalled consumer has loaded it, microseconds.
    pub passed_on_us: Option<f64>,
    /// Writing partial sums to a slab, microseconds.
    pub slab_write_us: Option<f64>,
    /// Reading and adding a slab, microseconds.
    pub slab_read_us: Option<f64>,
}

/// Chain kernels of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chains {
    /// Times of each kernel.
    pub chains: Vec<ChainTimes>,
    /// Costs of a chain in addition to its tiles.
    pub chain: ChainCosts,
}

impl Chains {
    /// Kernel with which a chain's costs were measured.
    fn reference(&self) -> Option<&ChainTimes> {
        self.chains.iter().find(|c| (c.tile.0, c.tile.1) == self.chain.tile && c.cluster == (1, 1))
    }
}

/// All measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// Name of the GPU.
    pub gpu: String,
    /// CUDA version that its driver supports.
    pub driver: String,
    /// Time of the measurement: UTC, RFC 3339.
    pub measured: String,
    /// Matrix and read rates of the device.
    pub ceilings: Ceilings,
    /// Post, wait and hand-off.
    pub semaphores: SemaphoreCost,
    /// From one almost empty kernel to the next of its stream, in a graph, microseconds.
    pub boundary_us: f64,
    /// Rate of one SM while most others are idle, TFLOP/s.
    pub alone_tflops: Option<f64>,
    /// Stage kernels.
    pub kernels: Vec<KernelTimes>,
    /// Chain kernels for products.
    #[serde(flatten)]
    pub products: Chains,
    /// Chain kernels for convolutions.
    pub windows: Chains,
    /// Skipped measurements, with reasons.
    pub skipped: Vec<String>,
}
