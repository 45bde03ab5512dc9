//! What kernels note of themselves, event by event, for tests.

use super::context::Device;
use super::error::{Error, Result};
use super::memory::DeviceBuffer;
use crate::ffi;

/// Memory for the events of kernels: of a build with injected delays, and of its Hopper kernels.
#[derive(Debug)]
pub struct Notes {
    list: DeviceBuffer<ffi::cusync_note>,
    count: DeviceBuffer<u32>,
}

impl Notes {
    /// Memory for so many of them.
    pub fn new(device: &Device, capacity: usize) -> Result<Notes> {
        let list = DeviceBuffer::new(device, capacity, "events")?;
        Ok(Notes { list, count: DeviceBuffer::zeroed(device, 1, "the number of events")? })
    }

    /// What has been noted since the last call: every event is behind those that it was ordered behind. The caller has waited for
    /// the kernels.
    ///
    /// # Errors
    /// There were more than fit.
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
