//! One kernel for all stages: its work in device memory, and the counters of its runs.

use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::graph::{Graph, Stage};
use cusync_gen::schedule::decode::{Decode, rounds_in};
use cusync_gen::schedule::{Hand, Item, Part, Schedule};

use super::error::{Error, Result};
use crate::device::{
    DecodeTuning, Device, DeviceBuffer, SlabBuffers, Synchronisation, TimeoutReport, WorkDistribution,
    WorkLists, chain_id, compiled, ctas_of, decode_id, element_code,
};
use crate::ffi;

/// Created once per pipeline; the kernels of all its sets of inputs share it.
#[derive(Debug)]
pub(super) struct OneKernel {
    pub(super) id: ffi::cusync_kernel_id,
    pub(super) work: WorkDistribution,
    pub(super) sync: Synchronisation,
}

impl OneKernel {
    /// A chain kernel that follows a schedule's lists, for all stages of a graph with `slots` semaphore
    /// slots.
    pub(super) fn chain(
        graph: &Graph,
        slots: u32,
        schedule: &Schedule,
        device: &Device,
        report: Arc<TimeoutReport>,
        traced: bool,
    ) -> Result<OneKernel> {
        let id = kernel_of(graph, schedule);
        let kernel = compiled(&id)?;
        let tiled = |s: &&Stage| s.op.has_kernel_tiles();
        if let Some(stage) = graph.stages.iter().filter(tiled).find(|s| s.mma_tile.2 != kernel.tile_k) {
            return Err(Error::Unsupported(format!(
                "stage {}: k-blocks of {}, the chain kernel's are of {}",
                stage.name, stage.mma_tile.2, kernel.tile_k
            )));
        }
        let lists = lists_of(schedule, device)?;
        let ctas = schedule.lists.len() * ctas_of(&id);
        let records = traced.then(|| ctas * lists.length() as usize);
        let slabs = Arc::new(SlabBuffers::new(device, &id, schedule.slabs)?);
        let mut sync = counters(slots, device, report, ctas, records)?;
        sync.tickets = Some((Arc::new(DeviceBuffer::zeroed(device, 1, "the ticket counter")?), 0));
        Ok(OneKernel {
            id,
            work: WorkDistribution::Lists { lists: Arc::new(lists), slabs, mail: None },
            sync,
        })
    }

    /// A decode kernel whose workers have equal shares.
    pub(super) fn decode(
        plan: &Plan,
        decode: &Decode,
        device: &Device,
        report: Arc<TimeoutReport>,
        traced: bool,
    ) -> Result<OneKernel> {
        let graph = plan.graph();
        let workers = decode.workers() as usize;
        let heads = |stage: &Stage| Some((stage.m, stage.op.attend()?.heads.kv));
        let attentions: Vec<(u32, u32)> = graph.stages.iter().filter_map(heads).collect();
        let slabs = (!attentions.is_empty())
            .then(|| SlabBuffers::of_attentions(device, &attentions, decode.workers()).map(Arc::new));
        Ok(OneKernel {
            id: decode_id(element_code(graph.element), decode.width),
            work: WorkDistribution::Shares {
                workers: decode.workers(),
                tuning: DecodeTuning::default(),
                slabs: slabs.transpose()?,
                jobs: None,
            },
            sync: counters(
                plan.slot_count(),
                device,
                report,
                workers,
                traced.then(|| {
                    graph.stages.iter().map(|s| rounds_in(s, decode.workers()) as usize).sum::<usize>()
                        * workers
                }),
            )?,
        })
    }
}

/// The lists of a schedule.
fn lists_of(schedule: &Schedule, device: &Device) -> Result<WorkLists> {
    let raw = |items: &mut dyn Iterator<Item = &Item>| -> Result<Vec<_>> { items.map(raw_item).collect() };
    Ok(match schedule.mode {
        Hand::Drawn => WorkLists::drawn(device, schedule.lists.len(), &raw(&mut schedule.sequence.iter())?)?,
        Hand::Fixed => {
            let items = |list: &Vec<u32>| raw(&mut list.iter().map(|&i| &schedule.sequence[i as usize]));
            WorkLists::per_worker(device, &schedule.lists.iter().map(items).collect::<Result<Vec<_>>>()?)?
        }
    })
}

/// Semaphores, run counts and the requested number of trace records.
fn counters(
    slots: u32,
    device: &Device,
    report: Arc<TimeoutReport>,
    ctas: usize,
    records: Option<usize>,
) -> Result<Synchronisation> {
    let words = |count: usize, name: &str| DeviceBuffer::zeroed(device, count, name).map(Arc::new);
    let trace = records.map(|count| DeviceBuffer::zeroed(device, count, "trace records")).transpose()?;
    Ok(Synchronisation {
        semaphores: Some(words(slots.max(1) as usize, "semaphores")?),
        epochs: Some(words(ctas, "run counts")?),
        report: Some(report),
        trace: trace.map(Arc::new),
        ..Synchronisation::default()
    })
}

/// Kernel for the tiles of a graph and the clusters of its schedule.
fn kernel_of(graph: &Graph, schedule: &Schedule) -> ffi::cusync_kernel_id {
    let (m, n, _) = graph.kernel_tile();
    let id = chain_id(element_code(graph.element), (m, n), schedule.cluster);
    ffi::cusync_kernel_id { operations: graph.operations().bits(), ..id }
}

/// An item in the kernel's format.
fn raw_item(item: &Item) -> Result<ffi::cusync_item> {
    let too_large = |_| Error::Unsupported(format!("{item:?} does not fit the kernel's item format"));
    let short = |value: u32| u16::try_from(value).map_err(too_large);
    let byte = |value: u32| u8::try_from(value).map_err(too_large);
    let (role, slab, slabs, part) = match item.part {
        Part::Whole => (ffi::CUSYNC_WHOLE_TILE, 0, 0, 0),
        Part::Contribute { slab } => (ffi::CUSYNC_CONTRIBUTE, slab, 0, 0),
        Part::Finish { first, slabs } => (ffi::CUSYNC_FINISH, first, slabs, 0),
        Part::Share { first, parts, part } => (ffi::CUSYNC_SHARE, first, parts, part),
    };
    Ok(ffi::cusync_item {
        m: short(item.m)?,
        n: short(item.n)?,
        k_begin: short(item.k_begin)?,
        k_end: short(item.k_end)?,
        stage: u8::try_from(item.stage.0).map_err(too_large)?,
        role: role as u8,
        slabs: byte(slabs)?,
        part: byte(part)?,
        slab,
    })
}

#[cfg(test)]
mod tests {
    use cusync_gen::graph::StageId;

    use super::*;

    #[test]
    fn check_reckons_with_the_kernels_numbers() {
        use cusync_gen::schedule::{MAX_STAGES, POST_WEIGHT, decode};
        assert_eq!(POST_WEIGHT, ffi::CUSYNC_POST_WEIGHT);
        assert_eq!(MAX_STAGES as u32, ffi::CUSYNC_MAX_STAGES);
        assert_eq!(decode::COLUMN_TILE, ffi::CUSYNC_COLUMN_TILE);
        assert_eq!(decode::MAX_NORMED, ffi::CUSYNC_MAX_NORMED);
        assert_eq!(decode::MAX_PARTS, ffi::CUSYNC_MAX_PARTS);
    }

    #[test]
    fn items_keep_their_meaning_or_are_refused() {
        let item = Item {
            stage: StageId(1),
            m: 3,
            n: 70,
            k_begin: 8,
            k_end: 44,
            part: Part::Finish { first: 5, slabs: 2 },
        };
        let raw = raw_item(&item).expect("fits");
        assert_eq!((raw.m, raw.n, raw.k_begin, raw.k_end, raw.stage), (3, 70, 8, 44, 1));
        let finish = (ffi::CUSYNC_FINISH as u8, 5, 2);
        assert_eq!((raw.role, raw.slab, raw.slabs), finish);
        let contribute = Item { part: Part::Contribute { slab: 9 }, ..item };
        let raw = raw_item(&contribute).expect("fits");
        assert_eq!((raw.role, raw.slab), (ffi::CUSYNC_CONTRIBUTE as u8, 9));
        let share = Item { part: Part::Share { first: 7, parts: 3, part: 2 }, ..item };
        let raw = raw_item(&share).expect("fits");
        assert_eq!((raw.role, raw.slab, raw.slabs, raw.part), (ffi::CUSYNC_SHARE as u8, 7, 3, 2));
        assert!(raw_item(&Item { n: 1 << 16, ..item }).is_err());
        assert!(raw_item(&Item { stage: StageId(256), ..item }).is_err());
        assert!(raw_item(&Item { part: Part::Finish { first: 0, slabs: 256 }, ..item }).is_err());
    }
}
