//! The work items of a chain kernel in device memory.

use super::context::Device;
use super::error::{Error, Result};
use super::gemm::Schedule;
use super::memory::DeviceBuffer;
use crate::ffi;

/// Items by worker, or one list drawn by ticket. Kept on the host too, because items index memory and are checked
/// against it.
#[derive(Debug)]
pub struct WorkLists {
    schedule: Schedule,
    workers: u32,
    length: u32,
    valid: Vec<ffi::cusync_item>,
    items: DeviceBuffer<ffi::cusync_item>,
}

impl WorkLists {
    /// A list a worker. Lists are padded to a common length with invalid items, one at least.
    pub fn per_worker(device: &Device, lists: &[Vec<ffi::cusync_item>]) -> Result<WorkLists> {
        let (items, length) = pad(lists);
        Self::upload(device, Schedule::Static, lists.len(), length, items)
    }

    /// One list that `workers` workers draw from.
    pub fn drawn(device: &Device, workers: usize, sequence: &[ffi::cusync_item]) -> Result<WorkLists> {
        if let Some(invalid) = sequence.iter().find(|i| is_end(i)) {
            return Err(Error::BadArgument(format!("an invalid item in a drawn list: {invalid:?}")));
        }
        Self::upload(device, Schedule::Ticket, workers, sequence.len(), sequence.to_vec())
    }

    fn upload(
        device: &Device,
        schedule: Schedule,
        workers: usize,
        length: usize,
        items: Vec<ffi::cusync_item>,
    ) -> Result<WorkLists> {
        let narrow = |what: &str, value: usize| {
            u32::try_from(value).map_err(|_| Error::BadArgument(format!("{value} {what} of a chain")))
        };
        if workers == 0 || items.is_empty() {
            return Err(Error::BadArgument("a chain without workers or without items".into()));
        }
        Ok(WorkLists {
            schedule,
            workers: narrow("workers", workers)?,
            length: narrow("items", length)?,
            items: DeviceBuffer::from_slice(device, &items, "work items")?,
            valid: items.into_iter().filter(|i| !is_end(i)).collect(),
        })
    }

    /// How items are handed out.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Workers.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Items of a list, the padding counted.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The lists in device memory.
    pub fn items(&self) -> &DeviceBuffer<ffi::cusync_item> {
        &self.items
    }

    /// Slabs that the items name: one past the last.
    pub fn slabs(&self) -> u32 {
        self.valid.iter().map(slab_end).max().unwrap_or(0)
    }

    /// An item of stage `stage` outside a grid of (cluster rows, cluster columns, k-blocks).
    pub(super) fn outside(&self, stage: usize, grid: (u64, u64, u64)) -> Option<&ffi::cusync_item> {
        self.valid.iter().find(|item| {
            let inside = u64::from(item.m) < grid.0
                && u64::from(item.n) < grid.1
                && item.k_begin < item.k_end
                && u64::from(item.k_end) <= grid.2;
            usize::from(item.stage) == stage && !inside
        })
    }

    /// An item of a stage that is not among the first `stages`, or with a role that does not exist.
    pub(super) fn of_other_stage(&self, stages: usize) -> Option<&ffi::cusync_item> {
        let role = |item: &ffi::cusync_item| u32::from(item.role) <= ffi::CUSYNC_SHARE;
        self.valid.iter().find(|item| usize::from(item.stage) >= stages || !role(item))
    }
}

/// Whether an item is the end of a list.
fn is_end(item: &ffi::cusync_item) -> bool {
    u32::from(item.role) == ffi::CUSYNC_END_OF_LIST
}

/// One past the last slab that an item names.
fn slab_end(item: &ffi::cusync_item) -> u32 {
    match u32::from(item.role) {
        ffi::CUSYNC_CONTRIBUTE => item.slab.saturating_add(1),
        ffi::CUSYNC_FINISH | ffi::CUSYNC_SHARE => item.slab.saturating_add(item.slabs.into()),
        _ => 0,
    }
}

/// The lists one after the other, each of the same length and ended by an invalid item.
fn pad(lists: &[Vec<ffi::cusync_item>]) -> (Vec<ffi::cusync_item>, usize) {
    let length = lists.iter().map(Vec::len).max().unwrap_or(0) + 1;
    let end = ffi::cusync_item::default();
    let padded = lists.iter().flat_map(|list| {
        let padding = std::iter::repeat_n(end, length - list.len());
        list.iter().copied().chain(padding)
    });
    (padded.collect(), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(m: u16, role: u32, slab: u32, slabs: u8) -> ffi::cusync_item {
        ffi::cusync_item { m, k_end: 1, role: role as u8, slab, slabs, ..Default::default() }
    }

    #[test]
    fn lists_are_padded_and_each_has_an_end() {
        let whole = |m| item(m, ffi::CUSYNC_WHOLE_TILE, 0, 0);
        let lists = [vec![whole(1), whole(2)], vec![], vec![whole(3)]];
        let (items, length) = pad(&lists);
        assert_eq!(length, 3);
        let seen: Vec<_> = items.iter().map(|i| (i.m, i.role)).collect();
        assert_eq!(seen, [(1, 1), (2, 1), (0, 0), (0, 0), (0, 0), (0, 0), (3, 1), (0, 0), (0, 0)]);
    }

    #[test]
    fn slabs_are_counted_by_their_users() {
        assert_eq!(slab_end(&item(0, ffi::CUSYNC_WHOLE_TILE, 9, 9)), 0);
        assert_eq!(slab_end(&item(0, ffi::CUSYNC_CONTRIBUTE, 4, 9)), 5);
        assert_eq!(slab_end(&item(0, ffi::CUSYNC_FINISH, 4, 3)), 7);
        assert_eq!(slab_end(&item(0, ffi::CUSYNC_FINISH, u32::MAX, 3)), u32::MAX, "no wrap-around");
    }
}
