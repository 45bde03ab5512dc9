//! What a plan has to know of a GPU.

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
