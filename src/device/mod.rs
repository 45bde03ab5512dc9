//! Safe handles over the CUDA driver and the kernel library.
//!
//! All functions return [`Result`]; nothing panics if there is no driver, no GPU or no kernel. Opening the
//! first [`Device`] loads the driver, through cudarc's raw bindings. cudarc's own buffers are not used: they
//! make a stream wait for the last write of another stream, which would prevent the overlap that tile
//! semaphores exist for. Ordering is the caller's responsibility: [`Stream`] and [`Event`] state it, handles
//! only keep memory alive.
//!
//! ```no_run
//! use cusync::device::{Device, DeviceBuffer, Stream};
//!
//! let device = Device::open(0)?;
//! let buffer = DeviceBuffer::from_slice(&device, &[1u32, 2, 3], "three words")?;
//! Stream::new(&device)?.synchronize()?;
//! let mut words = [0; 3];
//! buffer.download(&mut words)?;
//! # Ok::<(), cusync::device::Error>(())
//! ```
//!
//! Only this module and [`crate::ffi`] contain `unsafe` code.
#![allow(unsafe_code)]

pub mod helpers;
pub mod host_decode;
pub mod host_gemm;
pub mod host_policy;

#[cfg(feature = "candle-cuda")]
mod candle;
mod captured;
mod context;
mod cublaslt;
mod error;
#[cfg(feature = "cudarc")]
mod foreign;
mod graph;
mod group;
mod image;
mod kernel;
mod mail;
mod mailbox;
mod memory;
mod module;
mod notes;
mod nvrtc;
mod own;
mod pinned;
mod repack;
mod stage;
mod stream;
#[cfg(feature = "peers")]
mod streamk;
pub(crate) mod words;
mod work;

#[cfg(feature = "candle-cuda")]
pub(crate) use candle::of_candle;
pub use captured::{CapturedKernel, CapturedNode, CapturedWork, CopyEnd};
pub use context::{Device, Entered, driver_version, gpu_count};
pub use cublaslt::CublasLt;
pub use error::{Error, Result};
pub use graph::{EdgeKind, Graph, GraphNode, allocation, is_known};
pub use group::GroupMember;
pub use image::{GridControl, Image, Presence};
#[cfg(test)]
pub(crate) use kernel::takes_alone;
pub use kernel::{
    Delays, Deviations, Kernel, KernelArgs, Synchronisation, alone_id, chain_id, compiled, decode_id,
    gemm_id, kernels, kernels_of, resident,
};
pub use mail::{Boxes, HostMail, Letter, MAIL, MailLine};
pub use mailbox::{COMMANDS, Command, JobLine, Words};
pub use memory::{DeviceBuffer, Plain, TimeoutReport};
pub use module::{Arg, Function, KernelCall, Module, Shape};
pub use notes::Notes;
pub use own::{KernelCode, OwnKernel, OwnRead};
pub use pinned::{CopyCall, PinnedBuffer};
pub use repack::RepackedWeights;
pub use stage::{BoundStage, OperandSource, scratch_bytes};
pub use stream::{Event, GraphExec, LaunchAttributes, Stream};
#[cfg(feature = "peers")]
pub use streamk::StreamK;
pub use words::element_code;
pub use work::{DecodeTuning, SlabBuffers, WorkDistribution, WorkLists, ctas_of};
