//! The cost model of chain kernels.

use serde::{Deserialize, Serialize};

use super::{Activation, L2Cost, Operation, Operations};

/// Costs used by the list scheduler of the `fused` executor. Tile sizes are per CTA. Times "per area" are for a 128 x
/// 256 tile and scale with the tile's area.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Dense rate of one SM while all are busy, for the best tile shape, TFLOP/s.
    pub sm_tflops: f64,
    /// Maximum rate of one SM while the others are idle; 0: unknown, taken as `sm_tflops`.
    #[serde(default)]
    pub alone_tflops: f64,
    /// Relative rate and epilogue time of each tile shape; unlisted shapes use [`CostModel::other`].
    pub rates: Vec<TileRate>,
    /// See [`CostModel::rates`]; its epilogue time is per area.
    pub other: TileRate,
    /// Streaming read bandwidth, TB/s; 0 uses the device's.
    #[serde(default)]
    pub read_tbs: f64,
    /// The L2 cache.
    #[serde(default)]
    pub l2: L2Cost,
    /// Fraction of the shorter of arithmetic and traffic that the longer one does not hide.
    pub unhidden: f64,
    /// From the launch to a worker's first copy, microseconds, if the previous run ends while this one begins.
    pub launch_us: f64,
    /// From the first copy of a worker, or of a k-block that had to wait, to its multiplication, microseconds. Copies
    /// of an item that does not wait overlap with the computation of the previous item.
    pub fill_us: f64,
    /// Extra epilogue time of a GELU, microseconds per area.
    pub gelu_us: f64,
    /// Extra epilogue time of a gated activation, microseconds per area.
    pub gate_us: f64,
    /// Extra epilogue time of a residual, microseconds per area.
    #[serde(default)]
    pub residual_us: f64,
    /// From the end of an epilogue until the tile is stored and posted, microseconds; the worker continues meanwhile.
    pub post_us: f64,
    /// From a post until its waiter continues, microseconds.
    pub handoff_us: f64,
    /// Time to leave partial sums in a slab, microseconds per area.
    pub slab_write_us: f64,
    /// Time to read and add a slab, microseconds per area.
    pub slab_read_us: f64,
    /// Time of each window after the first that the taps of 64 channels read, microseconds: a convolution with a stride
    /// has several.
    #[serde(default)]
    pub window_us: f64,
    /// The gain that a stage's split tiles must promise, as a fraction of the stage's share of the length: parts wait
    /// for each other, and workers deviate from the prediction.
    #[serde(default = "cut_gain")]
    pub cut_gain: f64,
    /// Tiles of row-wise operations.
    pub rows: RowCost,
    /// Kernels that run alone.
    pub alone: AloneCost,
    /// Minimum k-blocks of a part of a split tile.
    pub min_part: u32,
    /// Maximum parts of a tile.
    pub max_parts: u32,
    /// Differences of the kernels for convolutions; `None`: no differences.
    #[serde(default)]
    pub windows: Option<WindowCost>,
}

/// Costs specific to chain kernels for convolutions, which read windows instead of operand A and have no GEMMs
/// alongside. The fields replace those of [`CostModel`] with the same names, except that `launch_us` applies to plain
/// edges, where the previous run has ended.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "CostModel says what they are")]
pub struct WindowCost {
    pub rates: Vec<TileRate>,
    pub launch_us: f64,
    pub fill_us: f64,
    pub post_us: f64,
    pub slab_write_us: f64,
    pub slab_read_us: f64,
    #[serde(default)]
    pub residual_us: f64,
    #[serde(default)]
    pub window_us: f64,
    #[serde(default = "cut_gain")]
    pub cut_gain: f64,
}

/// Cost of a row-wise operation's tile in a chain kernel: its elements go from the L2 cache or memory to the registers
/// of one SM and back, which overlaps only with other SMs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RowCost {
    /// Combined read and write rate of one SM, GB/s.
    pub sm_gbs: f64,
    /// Fixed time of a tile, microseconds: latency of the first loads, row sums, end of the stores.
    pub fixed_us: f64,
}

/// Cost of the kernels that run alone, for a normalization, a whole-sequence attention or a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AloneCost {
    /// Time of a normalization in addition to memory traffic of its rows, microseconds.
    pub norm_us: f64,
    /// From the launch of an attention to its first tile plus from the last tile to its end, microseconds.
    pub launch_us: f64,
    /// Time of its 64-query tile in addition to its steps, microseconds.
    pub tile_us: f64,
    /// Time of two parallel steps independent of the head's columns, microseconds: exponentials and sums.
    pub softmax_us: f64,
    /// Additional time of two parallel steps per 64 columns of a head, microseconds: their part of both products.
    pub columns_us: f64,
    /// Time of the kernels of a mixture of experts in addition to memory traffic or products, microseconds: their
    /// launches, the choice of experts, and first loads.
    #[serde(default = "experts_us")]
    pub experts_us: f64,
    /// Their products' share of the matrix rate.
    #[serde(default = "experts_rate")]
    pub experts_rate: f64,
}

/// The time on an H200, for records and profiles without it.
fn experts_us() -> f64 {
    14.6
}

/// See [`experts_us`].
fn experts_rate() -> f64 {
    0.5
}

/// For profiles without it.
fn cut_gain() -> f64 {
    0.04
}

/// No loss.
fn all() -> f64 {
    1.0
}

/// See [`CostModel::rates`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TileRate {
    /// Rows and columns of the MMA tile.
    pub tile: (u32, u32),
    /// CTAs per cluster, which share loads.
    pub cluster: (u32, u32),
    /// Rate relative to the best shape's.
    pub rate: f64,
    /// From the last multiplication to the next item if sums are only converted and stored, microseconds.
    pub epilogue_us: f64,
    /// Extra time of a gated activation beyond [`CostModel::gate_us`], microseconds.
    #[serde(default)]
    pub gate_us: f64,
    /// Minimum time of a chain kernel's k-block with weights from memory, microseconds.
    #[serde(default)]
    pub first_us: f64,
    /// Slab time relative to [`CostModel::slab_write_us`] and [`CostModel::slab_read_us`] for its area.
    #[serde(default = "all")]
    pub slabs: f64,
}

impl CostModel {
    /// The model of the kernels with these operations.
    pub(super) fn for_operations(self, operations: Operations) -> CostModel {
        match self.windows {
            Some(of) if operations.contains(Operation::Conv2d) => CostModel {
                rates: of.rates,
                launch_us: of.launch_us,
                fill_us: of.fill_us,
                post_us: of.post_us,
                slab_write_us: of.slab_write_us,
                slab_read_us: of.slab_read_us,
                residual_us: of.residual_us,
                window_us: of.window_us,
                cut_gain: of.cut_gain,
                windows: None,
                ..self
            },
            _ => self,
        }
    }

    /// Factor applied to a length before it is compared, given the number of stages and how many of them have split
    /// tiles.
    pub(crate) fn handicap(&self, cut_stages: usize, stages: usize) -> f64 {
        1.0 + self.cut_gain * cut_stages as f64 / stages.max(2) as f64
    }

    /// Dense rate of an SM of a worker while `busy` of `workers` are running, TFLOP/s.
    pub fn rate_of(&self, busy: f64, workers: f64) -> f64 {
        (self.sm_tflops * workers / busy.max(1.0)).min(self.alone_tflops.max(self.sm_tflops))
    }

    /// Costs of a tile shape: its own entry, otherwise [`CostModel::other`] with the epilogue time scaled to its area.
    pub fn tile_rate(&self, tile: (u32, u32), cluster: (u32, u32)) -> TileRate {
        let listed = self.rates.iter().find(|r| r.tile == tile && r.cluster == cluster);
        let epilogue_us = self.other.epilogue_us * area(tile);
        listed.copied().unwrap_or(TileRate { tile, cluster, epilogue_us, ..self.other })
    }

    /// From the last multiplication of a tile to the next item, microseconds, with the times of `shape`. `gated`: the
    /// activation is gated; `adds`: a residual is added.
    pub fn epilogue_us(&self, activation: Activation, (gated, adds): (bool, bool), shape: &TileRate) -> f64 {
        // Summed from left to right: different rounding would change ties between schedules.
        // The time of a gate includes its activation. Of the others only GELU was measured.
        let free = gated || matches!(activation, Activation::Identity | Activation::Relu);
        let mut us =
            if free { shape.epilogue_us } else { shape.epilogue_us + self.gelu_us * area(shape.tile) };
        if gated {
            us = us + shape.gate_us + self.gate_us * area(shape.tile);
        }
        if adds { us + self.residual_us * area(shape.tile) } else { us }
    }
}

/// Time of a k-block with arithmetic and reads that take `times` separately: the longest plus the fraction `unhidden`
/// of the others, at least `least_us`, plus `ragged_us` ([`L2Cost::ragged_us`]). Microseconds.
pub(crate) fn k_block_us(times: &[f64], unhidden: f64, least_us: f64, ragged_us: f64) -> f64 {
    let longest = (0..times.len()).max_by(|a, b| times[*a].total_cmp(&times[*b]));
    let part = |(at, us): (usize, &f64)| if Some(at) == longest { *us } else { unhidden * us };
    times.iter().enumerate().map(part).sum::<f64>().max(least_us) + ragged_us
}

/// Area of an MMA tile relative to 128 x 256, the reference of [`CostModel`].
pub fn area(tile: (u32, u32)) -> f64 {
    f64::from(tile.0) * f64::from(tile.1) / (128.0 * 256.0)
}
