//! The kernels that are built.

/// What a kernel of a stage computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A matrix product.
    Gemm,
    /// Two matrix products whose tiles share an epilogue.
    GatedGemm,
    /// A convolution.
    Conv2d,
    /// Attention.
    Attention,
}

/// A kernel that the library builds for stages of their own: what a spec's `tiles` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelShape {
    /// What it computes: one of these.
    pub operations: &'static [Operation],
    /// Kernel family: 80 or 90.
    pub arch: u32,
    /// MMA tile.
    pub tile: (u32, u32, u32),
    /// Depth of the shared-memory ring.
    pub stages: u32,
}

const GEMMS: &[Operation] = &[Operation::Gemm, Operation::GatedGemm];

/// Kernels, all built for both element types. A test compares this list with the compiled library's own.
pub const KERNELS: &[KernelShape] = &[
    KernelShape { operations: GEMMS, arch: 90, tile: (64, 128, 64), stages: 8 },
    KernelShape { operations: GEMMS, arch: 90, tile: (64, 256, 64), stages: 5 },
    KernelShape { operations: GEMMS, arch: 90, tile: (128, 128, 64), stages: 6 },
    KernelShape { operations: GEMMS, arch: 90, tile: (128, 256, 64), stages: 4 },
    KernelShape { operations: GEMMS, arch: 90, tile: (256, 128, 64), stages: 4 },
    KernelShape { operations: GEMMS, arch: 80, tile: (64, 128, 32), stages: 4 },
    KernelShape { operations: GEMMS, arch: 80, tile: (128, 128, 32), stages: 4 },
    KernelShape { operations: GEMMS, arch: 80, tile: (128, 256, 32), stages: 3 },
];

impl KernelShape {
    /// The kernels of an operation that are built for an architecture.
    pub fn built(arch: u32, operation: Operation) -> impl Iterator<Item = &'static KernelShape> {
        KERNELS.iter().filter(move |k| k.arch == arch && k.operations.contains(&operation))
    }
}

/// A chain kernel of the `fused` executor: one tile shape for all stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainKernel {
    /// MMA tile of one CTA.
    pub tile: (u32, u32, u32),
    /// CTAs of a cluster along M and N: one worker.
    pub cluster: (u32, u32),
    /// Depth of the shared-memory ring.
    pub stages: u32,
}

/// Chain kernels, all of sm_90a.
pub const CHAIN_KERNELS: &[ChainKernel] = &[
    ChainKernel { tile: (64, 256, 64), cluster: (1, 1), stages: 5 },
    ChainKernel { tile: (128, 128, 64), cluster: (1, 1), stages: 6 },
    ChainKernel { tile: (128, 192, 64), cluster: (1, 1), stages: 4 },
    ChainKernel { tile: (128, 256, 64), cluster: (1, 1), stages: 4 },
    ChainKernel { tile: (256, 128, 64), cluster: (1, 1), stages: 4 },
    ChainKernel { tile: (128, 256, 64), cluster: (2, 1), stages: 4 },
];
