//! What a plan has to know of a GPU: its profile, and the kernels that are built for it.

mod cost;
mod kernels;
mod l2;
mod profile;

pub use cost::{CostModel, TileRate};
pub use kernels::{
    DECODE_KERNELS, DecodeKernel, FUSED_KERNELS, FusedKernel, KERNELS, KernelShape, Operation, Operations,
};
pub use l2::{Fetch, L2Cost};
pub use profile::{DEVICES, DecodeCost, Device};
