//! The `fused` executor's share of a pipeline: a schedule's work lists in device memory, and what runs count on in.

use std::sync::Arc;

use cusync_gen::check::Plan;
use cusync_gen::schedule::{Hand, Item, Part, Schedule};

use super::desc::element_code;
use super::error::{Error, Result};
use crate::device::{Device, DeviceBuffer, FusedMemory, FusedShape, Report, WorkLists};
use crate::ffi;

/// Made once a pipeline; the chains of all its sets of inputs share it.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) shape: FusedShape,
    pub(super) lists: Arc<WorkLists>,
    pub(super) memory: FusedMemory,
    pub(super) trace: Option<Arc<DeviceBuffer<ffi::cusync_trace>>>,
}

impl Chain {
    pub(super) fn new(
        plan: &Plan,
        schedule: &Schedule,
        device: &Device,
        report: Arc<Report>,
        traced: bool,
    ) -> Result<Chain> {
        let shape = shape(plan, schedule)?;
        let kernel = shape.kernel()?;
        let graph = plan.graph();
        if let Some(stage) = graph.stages.iter().find(|s| s.mma_tile.2 != kernel.tile_k) {
            return Err(Error::Unsupported(format!(
                "stage {}: k-blocks of {}, the chain kernel's are of {}",
                stage.name, stage.mma_tile.2, kernel.tile_k
            )));
        }
        let items = schedule.sequence.iter().map(raw_item).collect::<Result<Vec<_>>>()?;
        let workers = schedule.lists.len();
        let lists = match schedule.mode {
            Hand::Drawn => WorkLists::drawn(device, workers, &items)?,
            Hand::Fixed => {
                let list = |list: &Vec<u32>| list.iter().map(|&i| items[i as usize]).collect();
                WorkLists::per_worker(device, &schedule.lists.iter().map(list).collect::<Vec<_>>())?
            }
        };
        let slots = plan.slot_count();
        let memory = FusedMemory::new(device, shape, lists.workers(), schedule.slabs, slots, report)?;
        let records = lists.workers() as usize * shape.ctas() * lists.length() as usize;
        let trace = if traced {
            Some(Arc::new(DeviceBuffer::zeroed(device, records, "trace records")?))
        } else {
            None
        };
        Ok(Chain { shape, lists: Arc::new(lists), memory, trace })
    }
}

/// The kernel that a fused plan's tiles and clusters ask for.
fn shape(plan: &Plan, schedule: &Schedule) -> Result<FusedShape> {
    let graph = plan.graph();
    let tiles = graph.stages.iter().map(|s| (s.mma_tile.0, s.mma_tile.1));
    let tile = tiles.clone().next().unwrap_or_default();
    if tiles.clone().any(|t| t != tile) {
        let all = tiles.map(|(m, n)| format!("{m} x {n}")).collect::<Vec<_>>().join(", ");
        return Err(Error::Unsupported(format!("a chain kernel has one tile for all stages, not {all}")));
    }
    Ok(FusedShape { element: element_code(graph.element), tile, cluster: schedule.cluster })
}

/// An item in the form that kernels read.
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
    use super::*;
    use cusync_gen::graph::StageId;

    #[test]
    fn check_reckons_with_the_kernels_numbers() {
        use cusync_gen::schedule::{MAX_STAGES, POST_WEIGHT, decode};
        assert_eq!(POST_WEIGHT, ffi::CUSYNC_POST_WEIGHT);
        assert_eq!(MAX_STAGES as u32, ffi::CUSYNC_MAX_FUSED_STAGES);
        assert_eq!(decode::MAX_STAGES as u32, ffi::CUSYNC_MAX_DECODE_STAGES);
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
