//! GPUs that run the same decode kernel and sum some of its outputs: see `cusync_group` in `csrc/abi/cusync.h`.

use std::sync::Arc;

use cudarc::driver::sys;

use super::context::Device;
use super::error::{Error, Result, check};
use super::memory::DeviceBuffer;
use super::stage::BoundStage;
use crate::ffi;

/// A GPU's place in a group: its number, the areas of all GPUs, and its count of runs.
#[derive(Debug)]
pub struct GroupMember {
    number: usize,
    areas: Vec<Arc<DeviceBuffer<u64>>>,
    epochs: DeviceBuffer<u32>,
    /// First word in an area of each stage of the plan; `None` if its sums stay on one GPU.
    received: Vec<Option<u32>>,
}

impl GroupMember {
    /// The members of a group whose kernels have `workers` workers each, with the area of their plan
    /// ([`Graph::area`](cusync_gen::graph::Graph::area)). GPUs get access to each other's memory.
    ///
    /// # Errors
    /// Two GPUs cannot reach each other's memory, the areas are too large, or memory is short.
    pub fn of_group(
        devices: &[Device],
        (first, words): (Vec<Option<u64>>, u64),
        workers: usize,
    ) -> Result<Vec<GroupMember>> {
        for device in devices {
            let others = devices.iter().filter(|other| other.as_raw() != device.as_raw());
            others.into_iter().try_for_each(|other| device.reach(other))?;
        }
        // Kernels count words in 32 bits.
        let received = first.into_iter().map(|first| first.map(u32::try_from).transpose());
        let received: std::result::Result<Vec<_>, _> = received.collect();
        let received = received.ok().filter(|_| u32::try_from(words).is_ok());
        let too_large = || Error::BadArgument(format!("{words} words of sums over GPUs leave 32 bits"));
        let received = received.ok_or_else(too_large)?;
        let words = words as usize;
        let area = |device| DeviceBuffer::zeroed(device, words.max(1), "sums of other GPUs").map(Arc::new);
        let areas = devices.iter().map(area).collect::<Result<Vec<_>>>()?;
        let member = |(number, device)| {
            let epochs = DeviceBuffer::zeroed(device, workers, "runs of a group")?;
            Ok(GroupMember { number, areas: areas.clone(), epochs, received: received.clone() })
        };
        devices.iter().enumerate().map(member).collect()
    }

    /// Number of this GPU in the group.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Workers that it counts runs for.
    pub(super) fn workers(&self) -> usize {
        self.epochs.len()
    }

    pub(super) fn raw(&self, stages: &[BoundStage]) -> ffi::cusync_group {
        let mut raw = ffi::cusync_group {
            devices: self.areas.len() as u32,
            device: self.number as u32,
            epochs: self.epochs.pointer().cast(),
            received: [ffi::CUSYNC_NOT_SUMMED; ffi::CUSYNC_MAX_STAGES as usize],
            ..Default::default()
        };
        raw.areas.iter_mut().zip(&self.areas).for_each(|(raw, area)| *raw = area.pointer().cast());
        for (raw, bound) in raw.received.iter_mut().zip(stages) {
            *raw =
                self.received.get(bound.index as usize).copied().flatten().unwrap_or(ffi::CUSYNC_NOT_SUMMED);
        }
        raw
    }
}

impl Device {
    /// Gives kernels of this GPU access to the memory of another.
    ///
    /// # Errors
    /// The two are not connected.
    fn reach(&self, other: &Device) -> Result<()> {
        let (own, theirs) = (self.ordinal(), other.ordinal());
        let mut can = 0;
        // SAFETY: both are valid devices; `can` outlives the call.
        check("cuDeviceCanAccessPeer", unsafe { sys::cuDeviceCanAccessPeer(&mut can, own, theirs) })?;
        if can == 0 {
            return Err(Error::Unconnected {
                from: self.name().into(),
                own,
                to: other.name().into(),
                theirs,
            });
        }
        let _entered = self.enter()?;
        // SAFETY: a current context, and one that `other` keeps alive.
        match unsafe { sys::cuCtxEnablePeerAccess(other.as_raw().cast(), 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => check("cuCtxEnablePeerAccess", result),
        }
    }
}
