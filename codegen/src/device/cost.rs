//! The cost model of chain kernels.

use serde::{Deserialize, Serialize};

use super::{Activation, L2Cost, Operation, Operations};

/// What the list scheduler of the `fused` executor reckons with. Sizes of tiles are those of one CTA; times that are said
/// to be of an area are of a tile of 128 x 256 and scale with its area.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// Dense rate of one SM while all are busy, at the best tile shape, TFLOP/s.
    pub sm_tflops: f64,
    /// The most that it reaches while others have nothing to do; 0: not known, and taken for the same.
    #[serde(default)]
    pub alone_tflops: f64,
    /// What a tile shape reaches of that rate, and its epilogue; for a shape that is not listed, [`CostModel::other`].
    pub rates: Vec<TileRate>,
    /// See [`CostModel::rates`]; its epilogue is of an area.
    pub other: TileRate,
    /// Streaming read bandwidth, TB/s; 0 for the device's.
    #[serde(default)]
    pub read_tbs: f64,
    /// The L2 cache.
    #[serde(default)]
    pub l2: L2Cost,
    /// Share of the shorter of arithmetic and traffic that the longer one does not hide.
    pub unhidden: f64,
    /// From the launch to the first copy of a worker, microseconds, where the run before ends while this one begins.
    pub launch_us: f64,
    /// From the first copy of a worker, or of a k-block that had to wait, to its multiplication, microseconds. Copies of an
    /// item that need not wait are under way while the one before is computed.
    pub fill_us: f64,
    /// What a GELU adds to an epilogue, microseconds of an area.
    pub gelu_us: f64,
    /// What a gated activation adds to an epilogue, microseconds of an area.
    pub gate_us: f64,
    /// What a residual adds to an epilogue, microseconds of an area.
    #[serde(default)]
    pub residual_us: f64,
    /// From the end of an epilogue until the tile is stored and posted, microseconds; the worker goes on meanwhile.
    pub post_us: f64,
    /// From a post until its waiter goes on, microseconds.
    pub handoff_us: f64,
    /// Leaving partial sums in a slab, microseconds of an area.
    pub slab_write_us: f64,
    /// Reading and adding a slab, microseconds of an area.
    pub slab_read_us: f64,
    /// Tiles of operations on rows.
    pub rows: RowCost,
    /// Tiles of attention.
    pub attention: AttentionCost,
    /// What has a launch to itself; `None` where chain kernels are all there is.
    #[serde(default)]
    pub alone: Option<AloneCost>,
    /// Fewest k-blocks of a part of a split tile.
    pub min_part: u32,
    /// Most parts of a tile.
    pub max_parts: u32,
    /// What is different in kernels for convolutions; without, nothing is.
    #[serde(default)]
    pub windows: Option<WindowCost>,
}

/// What a chain kernel for convolutions has of its own: windows in place of operand A, no GEMM beside them. The fields stand for those of
/// [`CostModel`] with the same names, but that `launch_us` is of plain edges: the run before has ended.
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
}

/// What a tile of an operation on rows costs in a chain kernel: its elements go from the L2 cache or memory to the registers
/// of one SM and back, and nothing overlaps that but the other SMs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RowCost {
    /// Rate at which one SM reads and writes, GB/s, both counted.
    pub sm_gbs: f64,
    /// What a tile takes beside: latency of the first loads, sums over a row, the end of the stores; microseconds.
    pub fixed_us: f64,
}

/// What a tile of an attention of whole sequences costs in a chain kernel: 128 queries of a head, in steps of 128 tokens.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionCost {
    /// What a step takes whatever the columns of a head are: powers of two and sums, microseconds.
    pub softmax_us: f64,
    /// What 64 columns of a head add to it: their part of both products, microseconds.
    pub columns_us: f64,
    /// What a tile takes beside: its queries on their way through registers, its outputs; microseconds.
    pub fixed_us: f64,
    /// What rotating 128 columns of a tile adds to the epilogue of a product whose queries and keys are rotated, microseconds.
    #[serde(default)]
    pub rotate_us: f64,
    /// What a tile takes to append the keys and values of its own tokens, microseconds.
    #[serde(default)]
    pub append_us: f64,
    /// Products beside an attention: shapes that have other rates there than in [`CostModel::rates`].
    #[serde(default)]
    pub rates: Vec<TileRate>,
    /// Share of these rates that products keep in one launch with an attention, where weights are read again and the clock is lower.
    /// Schedules are priced with it, and made without: lists that reckon with it are no better.
    #[serde(default = "all")]
    pub kept: f64,
}

/// What a normalisation or an attention of whole sequences costs that has a launch to itself, whose kernels follow no lists.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AloneCost {
    /// What a normalisation takes beside its rows' way from memory and back, microseconds.
    pub norm_us: f64,
    /// From an attention's launch to its first tile, and from the last to its end, microseconds.
    pub launch_us: f64,
    /// What its tile of 64 queries takes beside its steps, microseconds.
    pub tile_us: f64,
    /// Two steps of such a tile side by side, in steps of a chain kernel's tile ([`AttentionCost`]).
    pub round: f64,
}

/// Nothing is lost.
fn all() -> f64 {
    1.0
}

impl AttentionCost {
    /// A step over heads of so many columns, microseconds.
    pub(crate) fn step_us(&self, columns: u32) -> f64 {
        self.softmax_us + self.columns_us * f64::from(columns.div_ceil(64))
    }

    /// What a tile takes beside its steps, microseconds; `appends`: the share of tiles that append.
    pub(crate) fn tile_us(&self, appends: f64) -> f64 {
        self.fixed_us + self.append_us * appends
    }
}

/// See [`CostModel::rates`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TileRate {
    /// Rows and columns of the MMA tile.
    pub tile: (u32, u32),
    /// CTAs of a cluster, which share loads.
    pub cluster: (u32, u32),
    /// Share of the best shape's rate.
    pub rate: f64,
    /// From the last multiplication to the next item, where sums are only converted and stored, microseconds.
    pub epilogue_us: f64,
    /// What a gated activation adds to it beyond [`CostModel::gate_us`], microseconds.
    #[serde(default)]
    pub gate_us: f64,
    /// Least time that a chain kernel takes for a k-block whose weights come from memory, microseconds.
    #[serde(default)]
    pub first_us: f64,
    /// What sums left for others take, over what [`CostModel::slab_write_us`] and [`CostModel::slab_read_us`] say of its area.
    #[serde(default = "all")]
    pub slabs: f64,
}

impl CostModel {
    /// The model of the kernels that have these operations.
    pub(super) fn of(mut self, operations: Operations) -> CostModel {
        if !operations.contains(Operation::Attention) {
            self.attention.kept = all();
        }
        match self.windows {
            Some(WindowCost { rates, launch_us, fill_us, post_us, slab_write_us, slab_read_us })
                if operations.contains(Operation::Conv2d) =>
            {
                let windows = None;
                CostModel { rates, launch_us, fill_us, post_us, slab_write_us, slab_read_us, windows, ..self }
            }
            _ if operations.contains(Operation::Attention) => {
                let beside = |of: &TileRate| {
                    let own =
                        self.attention.rates.iter().find(|r| (r.tile, r.cluster) == (of.tile, of.cluster));
                    *own.unwrap_or(of)
                };
                CostModel { rates: self.rates.iter().map(beside).collect(), ..self }
            }
            _ => self,
        }
    }

    /// What a schedule is priced with, where it was made with this.
    pub(crate) fn priced(&self) -> CostModel {
        let kept = self.attention.kept;
        let rate = |of: &TileRate| TileRate { rate: of.rate * kept, ..*of };
        CostModel {
            rates: self.rates.iter().map(rate).collect(),
            attention: AttentionCost { kept: all(), ..self.attention.clone() },
            ..self.clone()
        }
    }

    /// Dense rate of an SM of a worker while `busy` of `workers` are at work, TFLOP/s.
    pub fn rate_of(&self, busy: f64, workers: f64) -> f64 {
        (self.sm_tflops * workers / busy.max(1.0)).min(self.alone_tflops.max(self.sm_tflops))
    }

    /// What is reckoned with for a tile shape: its own entry, else [`CostModel::other`] with the epilogue of its area.
    pub fn tile_rate(&self, tile: (u32, u32), cluster: (u32, u32)) -> TileRate {
        let listed = self.rates.iter().find(|r| r.tile == tile && r.cluster == cluster);
        let epilogue_us = self.other.epilogue_us * area(tile);
        listed.copied().unwrap_or(TileRate { tile, cluster, epilogue_us, ..self.other })
    }

    /// From the last multiplication of a tile to the next item, microseconds, where the tile's shape has the times of `shape`; whether the
    /// activation is gated, and whether a residual is added.
    pub fn epilogue_us(&self, activation: Activation, (gated, adds): (bool, bool), shape: &TileRate) -> f64 {
        // Summed from left to right: a rounding apart, ties between schedules fall otherwise.
        let mut us = match activation {
            Activation::GeluTanh => shape.epilogue_us + self.gelu_us * area(shape.tile),
            Activation::Identity | Activation::Relu => shape.epilogue_us,
        };
        if gated {
            us = us + shape.gate_us + self.gate_us * area(shape.tile);
        }
        if adds { us + self.residual_us * area(shape.tile) } else { us }
    }
}

/// A k-block whose arithmetic and reads take `times` by themselves: the longest of them and the share `unhidden` of the others,
/// not less than `least_us`; `ragged_us` is added ([`L2Cost::ragged_us`]). Microseconds.
pub(crate) fn k_block_us(times: &[f64], unhidden: f64, least_us: f64, ragged_us: f64) -> f64 {
    let longest = (0..times.len()).max_by(|a, b| times[*a].total_cmp(&times[*b]));
    let part = |(at, us): (usize, &f64)| if Some(at) == longest { *us } else { unhidden * us };
    times.iter().enumerate().map(part).sum::<f64>().max(least_us) + ragged_us
}

/// Area of an MMA tile over that of 128 x 256, of which [`CostModel`] has times.
pub fn area(tile: (u32, u32)) -> f64 {
    f64::from(tile.0) * f64::from(tile.1) / (128.0 * 256.0)
}
