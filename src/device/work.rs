//! Distribution of work: tiles in an order, lists of items, or equal shares.

use std::sync::Arc;

use super::context::Device;
use super::error::{Error, Result};
use super::mail::MailLine;
use super::mailbox::JobLine;
use super::memory::DeviceBuffer;
use super::stage::BoundStage;
use crate::ffi;

/// CTAs per worker.
pub fn ctas_of(id: &ffi::cusync_kernel_id) -> usize {
    id.cluster_m as usize * id.cluster_n as usize
}

/// How work reaches the workers of a kernel.
#[derive(Clone, Debug)]
pub enum WorkDistribution {
    /// The tiles of one stage.
    Order {
        /// Order of the tiles.
        order: ffi::cusync_order,
        /// Whether a device counter hands out tiles, so that a CTA which starts early takes more; otherwise
        /// CTA c takes tiles c, c + grid, ...
        drawn: bool,
    },
    /// Items of many stages.
    Lists {
        /// The lists.
        lists: Arc<WorkLists>,
        /// Partial sums exchanged between parts of a tile.
        slabs: Arc<SlabBuffers>,
        /// Mailboxes through which workers get the items of one list; `None`: workers follow their lists, or
        /// draw.
        mail: Option<Arc<MailLine>>,
    },
    /// An equal share of every stage's columns for each worker.
    Shares {
        /// Number of workers; the weights are laid out for as many.
        workers: u32,
        /// Buffer sizes.
        tuning: DecodeTuning,
        /// Partial results of workers that share a head; required if a stage attends.
        slabs: Option<Arc<SlabBuffers>>,
        /// Source of jobs, one after the other; `None`: a launch is a run.
        jobs: Option<Arc<JobLine>>,
    },
}

impl WorkDistribution {
    /// Number of workers; 0: as many as are resident, or as there are tiles.
    pub fn workers(&self) -> u32 {
        match self {
            WorkDistribution::Order { .. } => 0,
            WorkDistribution::Lists { lists, .. } => lists.workers(),
            WorkDistribution::Shares { workers, .. } => *workers,
        }
    }

    /// Sets of tensors in the kernel's arguments; each set contains all stages.
    pub(super) fn sets(&self) -> usize {
        match self {
            WorkDistribution::Shares { jobs: Some(jobs), .. } => jobs.sets() as usize,
            WorkDistribution::Order { .. }
            | WorkDistribution::Lists { .. }
            | WorkDistribution::Shares { jobs: None, .. } => 1,
        }
    }

    pub(super) fn raw(&self) -> ffi::cusync_work {
        let workers = self.workers();
        match self {
            WorkDistribution::Order { order, drawn } => {
                let source = if *drawn { ffi::CUSYNC_SOURCE_TICKETS } else { ffi::CUSYNC_SOURCE_ORDER };
                ffi::cusync_work { source, workers, order: *order, ..Default::default() }
            }
            WorkDistribution::Lists { lists, slabs, mail } => ffi::cusync_work {
                source: match mail {
                    Some(_) => ffi::CUSYNC_SOURCE_MAIL,
                    None if lists.drawn => ffi::CUSYNC_SOURCE_DRAWN,
                    None => ffi::CUSYNC_SOURCE_LISTS,
                },
                mail: mail.as_ref().map_or_else(ffi::cusync_mail::default, |mail| mail.raw()),
                workers,
                items: lists.items.pointer().cast_const().cast(),
                length: lists.length,
                slab_count: lists.slabs(),
                slabs: slabs.sums.pointer().cast(),
                slab_flags: slabs.flags.pointer().cast(),
                ..Default::default()
            },
            WorkDistribution::Shares { tuning, slabs, jobs, .. } => ffi::cusync_work {
                source: ffi::CUSYNC_SOURCE_SHARES,
                workers,
                slab_count: slabs.as_ref().map_or(0, |s| s.sums.len() as u32 / ffi::CUSYNC_ATTEND_SLAB),
                slabs: slabs.as_ref().map_or(std::ptr::null_mut(), |s| s.sums.pointer().cast()),
                slab_flags: slabs.as_ref().map_or(std::ptr::null_mut(), |s| s.flags.pointer().cast()),
                tuning: ffi::cusync_tuning {
                    chunk_bytes: tuning.chunk_bytes,
                    ring_bytes: tuning.ring_bytes,
                    activation_slots: tuning.activation_slots,
                    in_flight_bytes: tuning.in_flight_bytes,
                    ahead_bytes: tuning.ahead_bytes,
                },
                jobs: jobs.as_ref().map_or_else(ffi::cusync_jobs::default, |jobs| jobs.raw()),
                ..Default::default()
            },
        }
    }
}

/// Shared memory sizes of a decode kernel, in bytes per CTA; 0 selects the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeTuning {
    /// Target weight bytes per ring entry.
    pub chunk_bytes: u32,
    /// Size of the weight ring.
    pub ring_bytes: u32,
    /// Slots (not bytes) of the activation ring, a multiple of 4.
    pub activation_slots: u32,
    /// Maximum weight bytes in flight.
    pub in_flight_bytes: u32,
    /// Maximum weight bytes in flight while the ring fills for a stage that is still waiting.
    pub ahead_bytes: u32,
}

/// Partial sums of tiles split along k, or of heads whose tokens several workers attend to.
#[derive(Debug)]
pub struct SlabBuffers {
    /// A float MMA tile per CTA of a worker and slab, or the partial result of a group of heads; never
    /// cleared.
    pub sums: DeviceBuffer<f32>,
    /// Two words per slab and CTA, or a counter per sequence and head; zeroed once.
    pub flags: DeviceBuffer<u32>,
}

/// Number of slabs and counters for attentions with the given sequences and key/value heads, in a decode
/// kernel.
pub(super) fn parts_of(attentions: impl Iterator<Item = (u32, u32)>, workers: u32) -> (usize, usize) {
    attentions.fold((0, 0), |(slabs, counters), (sequences, heads)| {
        (slabs + 2 * workers as usize, counters + sequences as usize * heads as usize)
    })
}

impl SlabBuffers {
    /// Allocates slabs for a decode kernel with `workers` workers that attends; `attentions` holds the
    /// sequences and key/value heads of each attention.
    pub fn of_attentions(device: &Device, attentions: &[(u32, u32)], workers: u32) -> Result<SlabBuffers> {
        let (slabs, counters) = parts_of(attentions.iter().copied(), workers);
        let floats = slabs * ffi::CUSYNC_ATTEND_SLAB as usize;
        Ok(SlabBuffers {
            sums: DeviceBuffer::new(device, floats, "parts of heads")?,
            flags: DeviceBuffer::zeroed(device, counters, "counters of parts")?,
        })
    }

    /// Allocates `count` slabs for a chain kernel.
    pub fn new(device: &Device, id: &ffi::cusync_kernel_id, count: u32) -> Result<SlabBuffers> {
        let (count, ctas) = (count as usize, ctas_of(id));
        let floats = count * ctas * id.tile_m as usize * id.tile_n as usize;
        Ok(SlabBuffers {
            sums: DeviceBuffer::new(device, floats, "partial sums")?,
            flags: DeviceBuffer::zeroed(device, 3 * count * ctas, "flags of partial sums")?,
        })
    }
}

/// Items by worker, or one list drawn by ticket. Also kept on the host, because items index memory and are
/// checked against it.
#[derive(Debug)]
pub struct WorkLists {
    drawn: bool,
    workers: u32,
    length: u32,
    valid: Vec<ffi::cusync_item>,
    items: DeviceBuffer<ffi::cusync_item>,
}

impl WorkLists {
    /// One list per worker. Lists are padded to a common length with at least one invalid item.
    pub fn per_worker(device: &Device, lists: &[Vec<ffi::cusync_item>]) -> Result<WorkLists> {
        let (items, length) = pad(lists);
        Self::upload(device, false, lists.len(), length, items)
    }

    /// One list that `workers` workers draw from.
    pub fn drawn(device: &Device, workers: usize, sequence: &[ffi::cusync_item]) -> Result<WorkLists> {
        if let Some(invalid) = sequence.iter().find(|i| is_end(i)) {
            return Err(Error::BadArgument(format!("an invalid item in a drawn list: {invalid:?}")));
        }
        Self::upload(device, true, workers, sequence.len(), sequence.to_vec())
    }

    fn upload(
        device: &Device,
        drawn: bool,
        workers: usize,
        length: usize,
        items: Vec<ffi::cusync_item>,
    ) -> Result<WorkLists> {
        let narrow = |name: &str, value: usize| {
            u32::try_from(value).map_err(|_| Error::BadArgument(format!("{value} {name} of a chain")))
        };
        if workers == 0 || items.is_empty() {
            return Err(Error::BadArgument("a chain without workers or without items".into()));
        }
        Ok(WorkLists {
            drawn,
            workers: narrow("workers", workers)?,
            length: narrow("items", length)?,
            items: DeviceBuffer::from_slice(device, &items, "work items")?,
            valid: items.into_iter().filter(|i| !is_end(i)).collect(),
        })
    }

    /// Workers.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Whether they are one list of whole tiles, which mailboxes need.
    pub(super) fn suit_mail(&self) -> bool {
        let whole = |i: &ffi::cusync_item| u32::from(i.role) == ffi::CUSYNC_WHOLE_TILE;
        self.drawn && self.valid.iter().all(whole)
    }

    /// Items per list, including padding.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// One past the last slab that an item names.
    pub fn slabs(&self) -> u32 {
        self.valid.iter().map(slab_end).max().unwrap_or(0)
    }

    /// Rejects items that are outside the stages' grids of cluster tiles and k-blocks, or have unknown roles.
    pub(super) fn suit(
        &self,
        name: &str,
        stages: &[BoundStage],
        kernel: &ffi::cusync_kernel_info,
    ) -> Result<()> {
        let refuse =
            |reason: &str, item| Err(Error::BadArgument(format!("{name}: an item {reason}: {item:?}")));
        for item in &self.valid {
            let Some(stage) = stages.get(usize::from(item.stage)) else { return refuse("of no stage", item) };
            if u32::from(item.role) > ffi::CUSYNC_SHARE {
                return refuse("without a role", item);
            }
            let (stage, id) = (&stage.stage, &kernel.id);
            let inside = u32::from(item.m) < stage.grid.0.div_ceil(id.cluster_m)
                && u32::from(item.n) < stage.grid.1.div_ceil(id.cluster_n)
                && item.k_begin < item.k_end
                && u32::from(item.k_end) <= stage.k_blocks;
            if !inside {
                return refuse(&format!("of stage {} outside its grid", stage.name), item);
            }
        }
        Ok(())
    }
}

/// Whether an item marks the end of a list.
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

/// Concatenates the lists, padded to the same length and each ended by an invalid item.
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
