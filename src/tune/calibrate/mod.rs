//! Measuring what a device profile needs, on the GPU at hand, with the kernels that plans are run with.
//!
//! Every kernel of a stage is timed at whole waves of different number and depth, and the line through the times tells a
//! k-block, a tile and a start apart ([`WaveTimes`]). Every chain kernel notes when its items began and ended, which tells
//! k-blocks, ring fills, epilogues, slabs and the way from a post to its waiter apart ([`ItemTimes`]). Rates of the whole
//! device, semaphores and boundaries have tests of their own. All in the rested regime: an idle pause before each sample.

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
    /// Tiles of each SM.
    pub waves: u32,
    /// k-blocks of each tile.
    pub k_blocks: u32,
    /// One run among others of a graph, microseconds.
    pub us: f64,
}

/// A kernel of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTimes {
    /// MMA tile, (M, N, K).
    pub tile: (u32, u32, u32),
    /// What was measured.
    pub samples: Vec<Sample>,
    /// What the samples tell, if they do.
    pub times: Option<WaveTimes>,
    /// Rate of all SMs together between first and last k-block, TFLOP/s.
    pub tflops: Option<f64>,
}

/// A chain kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainTimes {
    /// MMA tile of a CTA, (M, N, K).
    pub tile: (u32, u32, u32),
    /// CTAs of a worker along M and N.
    pub cluster: (u32, u32),
    /// Times of whole tiles.
    pub times: ItemTimes,
    /// Rate of one SM among busy ones, TFLOP/s.
    pub sm_tflops: Option<f64>,
}

/// What a chain costs beside its tiles, measured with one chain kernel; times of epilogues are of its tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ChainCosts {
    /// The kernel's MMA tile.
    pub tile: (u32, u32),
    /// What a GELU adds to an epilogue, microseconds.
    pub gelu_us: Option<f64>,
    /// What a gated activation adds to an epilogue, microseconds.
    pub gate_us: Option<f64>,
    /// A run, less the time from its first item's beginning to its last one's end, where the run before ends while this
    /// one begins, microseconds.
    pub launch_us: Option<f64>,
    /// The time from the end of a tile's epilogue until a consumer that stood still for it has loaded it, microseconds.
    pub passed_on_us: Option<f64>,
    /// Leaving partial sums in a slab, microseconds.
    pub slab_write_us: Option<f64>,
    /// Reading and adding a slab, microseconds.
    pub slab_read_us: Option<f64>,
}

/// The chain kernels of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chains {
    /// Times of each kernel.
    pub chains: Vec<ChainTimes>,
    /// What a chain costs beside its tiles.
    pub chain: ChainCosts,
}

impl Chains {
    /// The kernel that a chain's costs were measured with.
    fn reference(&self) -> Option<&ChainTimes> {
        self.chains.iter().find(|c| (c.tile.0, c.tile.1) == self.chain.tile && c.cluster == (1, 1))
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// Name of the GPU.
    pub gpu: String,
    /// CUDA version that its driver supports.
    pub driver: String,
    /// When: UTC, RFC 3339.
    pub measured: String,
    /// Matrix and read rates of the device.
    pub ceilings: Ceilings,
    /// Post, wait and hand-off.
    pub semaphores: SemaphoreCost,
    /// The time from a kernel that does next to nothing to the next of its stream, in a graph, microseconds.
    pub boundary_us: f64,
    /// Rate of one SM while most of the others have nothing to do, TFLOP/s.
    pub alone_tflops: Option<f64>,
    /// Kernels of a stage.
    pub kernels: Vec<KernelTimes>,
    /// Chain kernels for products.
    #[serde(flatten)]
    pub products: Chains,
    /// Chain kernels for convolutions.
    pub windows: Chains,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}
