//! What a plan has to know of a GPU.

use crate::graph::{Activation, Op};

/// A device profile: the numbers that choices, `progress` and predictions rest on.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Short name, as `--device` takes it.
    pub name: &'static str,
    /// Kernel family: 80 or 90 (meaning sm_90a).
    pub arch: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Shared memory that the CTAs of an SM can use together, bytes.
    pub shared_per_sm: u32,
    /// Dense fp16 rate with float32 accumulation in TFLOP/s: what a tile's main loop reaches, not the datasheet.
    pub tflops: f64,
    /// What one SM reaches alone, TFLOP/s: more than its share, because few busy SMs do not meet the power limit.
    pub sm_tflops: f64,
    /// Streaming read bandwidth, TB/s.
    pub read_tbs: f64,
    /// Boundary between dependent kernels of one stream, microseconds.
    pub boundary_us: f64,
    /// One semaphore hand-off, post to seen by the waiter, microseconds.
    pub handoff_us: f64,
    /// From the launch of a CTA to its first main-loop step, microseconds.
    pub launch_us: f64,
    /// Fill and drain of a tile's ring and its epilogue, microseconds.
    pub tile_us: f64,
    /// From the issue of a bulk or asynchronous copy to its arrival under load, microseconds.
    pub load_latency_us: f64,
    /// What a wait that is already satisfied costs a tile: next to nothing where a warp of its own waits ahead of the
    /// loads, a pause of the ring where the main loop itself waits. Microseconds.
    pub wait_us: f64,
    /// Where the numbers come from.
    pub source: &'static str,
}

/// The profiles that ship. H200 was measured; the others are public data and say so.
pub const DEVICES: &[Device] = &[
    Device {
        name: "h200",
        arch: 90,
        sms: 132,
        shared_per_sm: 228 * 1024,
        tflops: 670.0,
        sm_tflops: 7.3,
        read_tbs: 4.3,
        boundary_us: 1.4,
        handoff_us: 0.62,
        launch_us: 2.0,
        tile_us: 1.2,
        load_latency_us: 2.5,
        wait_us: 0.05,
        source: "measured on one H200 (docs/results)",
    },
    Device {
        name: "h100",
        arch: 90,
        sms: 132,
        shared_per_sm: 228 * 1024,
        tflops: 650.0,
        sm_tflops: 7.0,
        read_tbs: 3.0,
        boundary_us: 1.4,
        handoff_us: 0.62,
        launch_us: 2.0,
        tile_us: 1.2,
        load_latency_us: 2.5,
        wait_us: 0.05,
        source: "datasheet rates, scaled as the H200's measured ones",
    },
    Device {
        name: "a100",
        arch: 80,
        sms: 108,
        shared_per_sm: 164 * 1024,
        tflops: 240.0,
        sm_tflops: 2.6,
        read_tbs: 1.8,
        boundary_us: 1.5,
        handoff_us: 0.8,
        launch_us: 2.0,
        tile_us: 1.5,
        load_latency_us: 2.0,
        wait_us: 3.0,
        source: "datasheet rates times 0.77 (matrix) and 0.9 (memory)",
    },
    Device {
        name: "l40s",
        arch: 80,
        sms: 142,
        shared_per_sm: 100 * 1024,
        tflops: 260.0,
        sm_tflops: 2.3,
        read_tbs: 0.78,
        boundary_us: 1.5,
        handoff_us: 0.9,
        launch_us: 2.0,
        tile_us: 1.5,
        load_latency_us: 2.0,
        wait_us: 3.0,
        source: "datasheet rates times 0.72 (matrix) and 0.9 (memory)",
    },
];

impl Device {
    /// Clusters of `ctas` CTAs, each of which fills an SM, that are resident at once while nothing else runs. A cluster
    /// lies inside one of the at most 8 GPCs of a Hopper GPU, whose sizes differ from part to part and are even: pairs
    /// always come out, of larger clusters this is the least.
    pub fn resident_clusters(&self, ctas: u32) -> u32 {
        const GPCS: u32 = 8;
        match ctas {
            0 => 0,
            1 => self.sms,
            2..=8 if self.arch >= 90 => {
                let most_left = ctas - if ctas.is_multiple_of(2) { 2 } else { 1 };
                self.sms.saturating_sub(GPCS * most_left) / ctas
            }
            _ => 0,
        }
    }

    /// The profile of that name.
    pub fn named(name: &str) -> Option<&'static Device> {
        DEVICES.iter().find(|d| d.name.eq_ignore_ascii_case(name))
    }
}

/// A GEMM kernel shape that the kernel library builds: what a spec's `tiles` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelShape {
    /// Kernel family: 80 or 90.
    pub arch: u32,
    /// MMA tile.
    pub tile: (u32, u32, u32),
    /// Depth of the shared-memory ring.
    pub stages: u32,
}

/// Kernels built for both element types and for plain and gated GEMMs. A test compares this list with the compiled
/// library's own.
pub const KERNELS: &[KernelShape] = &[
    KernelShape { arch: 90, tile: (64, 128, 64), stages: 8 },
    KernelShape { arch: 90, tile: (64, 256, 64), stages: 5 },
    KernelShape { arch: 90, tile: (128, 128, 64), stages: 6 },
    KernelShape { arch: 90, tile: (128, 256, 64), stages: 4 },
    KernelShape { arch: 90, tile: (256, 128, 64), stages: 4 },
    KernelShape { arch: 80, tile: (64, 128, 32), stages: 4 },
    KernelShape { arch: 80, tile: (128, 128, 32), stages: 4 },
    KernelShape { arch: 80, tile: (128, 256, 32), stages: 3 },
];

/// A chain kernel of the `fused` executor: one tile shape for all stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FusedKernel {
    /// MMA tile of one CTA.
    pub tile: (u32, u32, u32),
    /// CTAs of a cluster along M and N: one worker.
    pub cluster: (u32, u32),
    /// Depth of the shared-memory ring.
    pub stages: u32,
}

/// Chain kernels, all of sm_90a.
pub const FUSED_KERNELS: &[FusedKernel] = &[
    FusedKernel { tile: (64, 256, 64), cluster: (1, 1), stages: 5 },
    FusedKernel { tile: (128, 128, 64), cluster: (1, 1), stages: 6 },
    FusedKernel { tile: (128, 192, 64), cluster: (1, 1), stages: 4 },
    FusedKernel { tile: (128, 256, 64), cluster: (1, 1), stages: 4 },
    FusedKernel { tile: (256, 128, 64), cluster: (1, 1), stages: 4 },
    FusedKernel { tile: (128, 256, 64), cluster: (2, 1), stages: 4 },
];

/// What the list scheduler of the `fused` executor reckons with. Sizes of tiles are those of one CTA; times that are said
/// to be of an area are of a tile of 128 x 256 and scale with its area.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Dense rate of one SM among many busy ones at the best tile shape, TFLOP/s.
    pub sm_tflops: f64,
    /// What a tile shape reaches of that rate, and its epilogue; for a shape that is not listed, [`CostModel::other`].
    pub rates: &'static [TileRate],
    /// See [`CostModel::rates`]; its epilogue is of an area.
    pub other: TileRate,
    /// Streaming read bandwidth of the device, TB/s.
    pub read_tbs: f64,
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
    /// From the end of an epilogue until the tile is stored and posted, microseconds; the worker goes on meanwhile.
    pub post_us: f64,
    /// From a post until its waiter goes on, microseconds.
    pub handoff_us: f64,
    /// Leaving partial sums in a slab, microseconds of an area.
    pub slab_write_us: f64,
    /// Reading and adding a slab, microseconds of an area.
    pub slab_read_us: f64,
    /// Fewest k-blocks of a part of a split tile.
    pub min_part: u32,
    /// Most parts of a tile.
    pub max_parts: u32,
    /// Where the numbers come from.
    pub source: &'static str,
}

/// See [`CostModel::rates`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileRate {
    /// Rows and columns of the MMA tile.
    pub tile: (u32, u32),
    /// CTAs of a cluster, which share loads.
    pub cluster: (u32, u32),
    /// Share of the best shape's rate.
    pub rate: f64,
    /// From the last multiplication to the next item, where sums are only converted and stored, microseconds.
    pub epilogue_us: f64,
}

const TILE_RATES: &[TileRate] = &[
    TileRate { tile: (64, 256), cluster: (1, 1), rate: 0.91, epilogue_us: 2.0 },
    TileRate { tile: (128, 128), cluster: (1, 1), rate: 0.835, epilogue_us: 1.6 },
    TileRate { tile: (128, 192), cluster: (1, 1), rate: 1.0, epilogue_us: 2.2 },
    TileRate { tile: (128, 256), cluster: (1, 1), rate: 1.01, epilogue_us: 3.7 },
    TileRate { tile: (256, 128), cluster: (1, 1), rate: 1.01, epilogue_us: 3.7 },
    TileRate { tile: (128, 256), cluster: (2, 1), rate: 1.04, epilogue_us: 3.7 },
    TileRate { tile: (256, 128), cluster: (1, 2), rate: 1.04, epilogue_us: 3.7 },
];

/// The H200's cost model, and what is reckoned with where a profile has none of its own.
const H200_COST: CostModel = CostModel {
    sm_tflops: 6.02,
    rates: TILE_RATES,
    other: TileRate { tile: (0, 0), cluster: (0, 0), rate: 0.8, epilogue_us: 3.7 },
    read_tbs: 4.4,
    unhidden: 0.02,
    launch_us: 4.5,
    fill_us: 0.8,
    gelu_us: 3.4,
    gate_us: 0.3,
    post_us: 1.4,
    handoff_us: 0.6,
    slab_write_us: 3.0,
    slab_read_us: 4.2,
    min_part: 4,
    max_parts: 8,
    source: "one rested H200: rates, k-blocks, epilogues, slabs, hand-offs and launches from timelines of runs \
             (docs/results); the epilogues of 64 x 256 and 128 x 128 by their areas",
};

impl CostModel {
    /// What is reckoned with for a tile shape: its own entry, else [`CostModel::other`] with the epilogue of its area.
    pub fn tile_rate(&self, tile: (u32, u32), cluster: (u32, u32)) -> TileRate {
        let listed = self.rates.iter().find(|r| r.tile == tile && r.cluster == cluster);
        let epilogue_us = self.other.epilogue_us * area(tile);
        listed.copied().unwrap_or(TileRate { tile, cluster, epilogue_us, ..self.other })
    }

    /// From the last multiplication of a tile to the next item, microseconds.
    pub fn epilogue_us(&self, op: &Op, tile: (u32, u32), cluster: (u32, u32)) -> f64 {
        let extra = match op {
            Op::Gemm { activation: Activation::GeluTanh } => self.gelu_us,
            Op::Gemm { activation: Activation::Identity | Activation::Relu } => 0.0,
            Op::GatedGemm => self.gate_us,
            Op::Custom => 0.0,
        };
        self.tile_rate(tile, cluster).epilogue_us + extra * area(tile)
    }
}

/// Of an MMA tile, over that of 128 x 256.
fn area(tile: (u32, u32)) -> f64 {
    f64::from(tile.0) * f64::from(tile.1) / (128.0 * 256.0)
}

impl Device {
    /// What the list scheduler reckons with on this device: the H200's constants, with the device's own matrix and read
    /// rates in proportion.
    pub fn cost_model(&self) -> CostModel {
        if self.name == "h200" {
            return H200_COST;
        }
        let h200 = &DEVICES[0];
        let per_sm = |d: &Device| d.tflops / f64::from(d.sms);
        CostModel {
            sm_tflops: H200_COST.sm_tflops * per_sm(self) / per_sm(h200),
            read_tbs: H200_COST.read_tbs * self.read_tbs / h200.read_tbs,
            source: "the H200's constants, scaled by this device's rates",
            ..H200_COST
        }
    }
}
