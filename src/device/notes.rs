//! Events that kernels record, for tests.

use super::context::Device;
use super::error::{Error, Result};
use super::memory::DeviceBuffer;
use crate::ffi;

/// Memory for events of Hopper kernels in a build with injected delays.
#[derive(Debug)]
pub struct Notes {
    list: DeviceBuffer<ffi::cusync_note>,
    count: DeviceBuffer<u32>,
}

impl Notes {
    /// Allocates memory for `capacity` events.
    pub fn new(device: &Device, capacity: usize) -> Result<Notes> {
        let list = DeviceBuffer::new(device, capacity, "events")?;
        Ok(Notes { list, count: DeviceBuffer::zeroed(device, 1, "the number of events")? })
    }

    /// Events recorded since the last call: every event comes after those that it was ordered after. The
    /// caller must have waited for the kernels.
    ///
    /// # Errors
    /// More events occurred than fit.
    pub fn take(&self) -> Result<Vec<ffi::cusync_note>> {
        let mut count = [0];
        self.count.download(&mut count)?;
        self.count.upload(&[0])?;
        let (have, room) = (count[0] as usize, self.list.len());
        if have > room {
            return Err(Error::BadArgument(format!(
                "{have} events were noted, and there is room for {room}"
            )));
        }
        let mut notes = vec![ffi::cusync_note::default(); have];
        self.list.download_first(&mut notes)?;
        Ok(notes)
    }

    pub(super) fn raw(&self) -> ffi::cusync_notes {
        ffi::cusync_notes {
            list: self.list.pointer().cast(),
            count: self.count.pointer().cast(),
            capacity: u32::try_from(self.list.len()).unwrap_or(u32::MAX),
        }
    }
}
