//! The kernels that are built.

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
