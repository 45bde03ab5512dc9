//! Waits for tiles on the GPU: the semaphores, and the kernel parameters that describe them
//! (`csrc/include/cusync/tile_sync.cuh`).

use std::sync::Arc;

use cusync_dag::{Cta, NodeSync, Program, Refinement};

use super::error::{Error, Result};
use crate::device::{Arg, Device, DeviceBuffer, TimeoutReport};

/// Flags of a kernel, as in `tile_sync.cuh`.
const EARLY: u32 = 1;
const TILES: u32 = 2;
const POST: u32 = 4;
/// Past the last slot of a CTA.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct SyncMemory {
    semaphores: Arc<DeviceBuffer<u32>>,
    waits: Arc<DeviceBuffer<u32>>,
    report: Arc<TimeoutReport>,
}

/// Synchronization parameters of a kernel; the default waits for the ends of earlier kernels.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncArgs {
    memory: Option<SyncMemory>,
    /// First word of the node's table of waits.
    first_wait: usize,
    width: u32,
    first_slot: u32,
    node: u32,
    how: u32,
}

impl SyncArgs {
    /// Parameters of each node for the waits of a refinement, with semaphores of their own.
    pub(super) fn new(
        device: &Device,
        program: &Program,
        refinement: &Refinement,
    ) -> Result<(Vec<SyncArgs>, Watch)> {
        let layout = Layout::new(program, refinement);
        let words = |words: &[u32], name| DeviceBuffer::from_slice(device, words, name).map(Arc::new);
        let semaphores = words(&vec![0; layout.slots.max(1)], "semaphores")?;
        let table = if layout.words.is_empty() { &[NONE] } else { &*layout.words };
        let waits = words(table, "waits")?;
        let report = Arc::new(TimeoutReport::new(device)?);
        let memory = SyncMemory { semaphores, waits, report };
        let args = |(node, sync): (usize, &NodeSync)| SyncArgs {
            memory: Some(memory.clone()),
            first_wait: layout.tables[node].0,
            width: layout.tables[node].1,
            first_slot: layout.first_slot[node],
            node: node as u32,
            how: EARLY * u32::from(sync.early)
                + TILES * u32::from(sync.waits.is_some())
                + POST * u32::from(counts(sync)),
        };
        let watch = Watch {
            report: memory.report.clone(),
            names: program.nodes().iter().map(|node| node.name.clone()).collect(),
            waits: refinement.nodes.iter().map(|sync| sync.waits.clone()).collect(),
        };
        Ok((refinement.nodes.iter().enumerate().map(args).collect(), watch))
    }

    /// The last seven parameters of a kernel.
    pub(super) fn args(&self) -> [Arg; 7] {
        let [semaphores, waits, report] = match &self.memory {
            Some(SyncMemory { semaphores, waits, report }) => [
                Arg::Words(semaphores.clone(), 0),
                Arg::Words(waits.clone(), self.first_wait),
                Arg::Report(report.clone()),
            ],
            None => [Arg::Null, Arg::Null, Arg::Null],
        };
        let numbers = [self.width, self.first_slot, self.node, self.how].map(Arg::U32);
        let [width, first_slot, node, how] = numbers;
        [semaphores, waits, report, width, first_slot, node, how]
    }
}

/// Whether a node's CTAs have slots: CTAs that wait read the run number from their own slot.
fn counts(sync: &NodeSync) -> bool {
    sync.posts || sync.waits.is_some()
}

/// Slots and tables of a refinement; built without side effects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Layout {
    /// First slot of each node.
    first_slot: Vec<u32>,
    slots: usize,
    /// First word of each node's table, and words per row.
    tables: Vec<(usize, u32)>,
    /// The tables, concatenated.
    words: Vec<u32>,
}

impl Layout {
    fn new(program: &Program, refinement: &Refinement) -> Layout {
        let mut layout = Layout::default();
        for (node, sync) in program.nodes().iter().zip(&refinement.nodes) {
            layout.first_slot.push(layout.slots as u32);
            layout.slots +=
                if counts(sync) { node.kernel().map_or(0, |k| k.launch.ctas() as usize) } else { 0 };
        }
        for sync in &refinement.nodes {
            let first = layout.words.len();
            let rows = sync.waits.as_deref().unwrap_or(&[]);
            let width = rows.iter().map(Vec::len).max().unwrap_or(0);
            layout.tables.push((first, width as u32));
            for row in rows {
                layout.words.extend(row.iter().map(|tile| layout.first_slot[tile.node.index()] + tile.cta));
                layout.words.resize(layout.words.len() + width - row.len(), NONE);
            }
        }
        layout
    }
}

/// Names a timed-out wait.
#[derive(Debug)]
pub(super) struct Watch {
    report: Arc<TimeoutReport>,
    /// Names of the nodes.
    names: Vec<String>,
    /// CTAs that each CTA of each node waits for.
    waits: Vec<Option<Vec<Vec<Cta>>>>,
}

impl Watch {
    pub(super) fn late(&self) -> Option<Error> {
        let report = self.report.read()?;
        let row = self.waits.get(report.edge as usize)?.as_ref()?.get(report.tile_m as usize)?;
        let producer = row.get(report.tile_n as usize)?;
        Some(Error::Late {
            node: self.names[report.edge as usize].clone(),
            cta: report.tile_m,
            of: self.names[producer.node.index()].clone(),
            of_cta: producer.cta,
            have: report.have,
            want: report.want,
        })
    }
}

#[cfg(test)]
mod tests {
    use cusync_dag::{Refine, analyse, refine};
    use cusync_gen::device::DEVICES;

    use super::*;
    use cusync_bench::dag::SpinProgram;

    #[test]
    fn slots_and_tables_follow_the_refinement() {
        let program = SpinProgram::chain(3, 4, 10);
        let recorded = program.record_tiled("chain", 8.0, false).expect("a valid program");
        let program = recorded.recording.program();
        let refinement = refine(program, &analyse(program), &DEVICES[0], Refine::Everywhere);
        let layout = Layout::new(program, &refinement);
        // No node waits for the last one, but it reads the run number from its slots.
        assert_eq!((layout.first_slot.as_slice(), layout.slots), (&[0, 4, 8][..], 12));
        assert_eq!(layout.tables, [(0, 0), (0, 1), (4, 1)]);
        // Mirror images: CTA 0 waits for CTA 3 of the previous node.
        assert_eq!(layout.words, [3, 2, 1, 0, 7, 6, 5, 4]);
        let none = Layout::new(
            program,
            &Refinement { nodes: vec![NodeSync::default(); 3], ..Refinement::default() },
        );
        assert_eq!((none.slots, none.words.len()), (0, 0));
    }

    #[test]
    fn rows_of_different_lengths_are_filled_up() {
        let program = SpinProgram::chain(2, 6, 10).uneven(0, 64);
        let recorded = program.record_tiled("chain", 8.0, false).expect("a valid program");
        let program = recorded.recording.program();
        let refinement = refine(program, &analyse(program), &DEVICES[0], Refine::Everywhere);
        let layout = Layout::new(program, &refinement);
        let rows: Vec<&[u32]> = layout.words.chunks(layout.tables[1].1 as usize).collect();
        // CTA 0 has a neighbor on one side only; the others overwrite data that a third one read.
        assert_eq!(rows[..2], [[0, 1, 5, NONE], [0, 1, 2, 4]]);
    }
}
