//! GPU data needed by plans: profiles, and the kernels that are built.
//!
//! ```
//! use cusync_gen::device::{DEVICES, Profile};
//!
//! let h200 = Profile::named("H200").expect("it ships");
//! assert_eq!((h200.sms, h200.arch), (132, 90));
//! assert!(DEVICES.iter().any(|profile| profile.name == h200.name));
//! ```

mod cost;
mod kernels;
mod l2;
mod profile;
mod programs;

pub(crate) use cost::k_block_us;
pub use cost::{AloneCost, CostModel, RowCost, TileRate, WindowCost, area};
pub use kernels::{
    ALONE, Activation, CHAIN_KERNELS, ChainKernel, DECODE_KERNELS, DecodeKernel, Epilogue, KERNELS,
    KernelShape, Operation, Operations, turned_groups,
};
pub use l2::{Fetch, L2Cost};
pub use profile::{DEVICES, DecodeCost, LibraryCost, Profile};
pub use programs::ProgramCost;
