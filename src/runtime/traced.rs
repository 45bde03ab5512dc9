//! Runs of fused plans that record when each item began and ended.

use cusync_gen::graph::StageId;
use cusync_gen::schedule::decode::rounds_in;
use cusync_gen::schedule::{Hand, Item, Part, Schedule};

use super::error::{Error, Result};
use super::pipeline::{LaunchWork, Pipeline};
use crate::device::{self, DeviceBuffer, LaunchAttributes, ctas_of};
use crate::ffi;

/// Times at which one CTA worked on one item: nanoseconds of the device clock, as seen by the CTA's math
/// warps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItemTrace {
    /// Worker.
    pub worker: u32,
    /// Rank of the CTA in its worker's cluster.
    pub cta: u32,
    /// Streaming multiprocessor.
    pub sm: u32,
    /// The item.
    pub item: Item,
    /// The CTA turned to the item.
    pub begin: u64,
    /// Its waits were satisfied: at least those of its first k-block, at most all of them.
    pub ready: u64,
    /// Its first k-block had arrived.
    pub loaded: u64,
    /// Its last k-block was multiplied.
    pub math_end: u64,
    /// Its results had left the registers.
    pub end: u64,
}

/// Runs pipelines one after the other on the first one's stream, as one graph replayed several times that
/// goes through all sets of inputs and ends with set 0. Returns the records of each pipeline's last run.
///
/// # Errors
/// A pipeline has no fused plan, or was made without [`super::Options::trace`].
pub fn trace_runs(pipelines: &mut [Pipeline]) -> Result<Vec<Vec<ItemTrace>>> {
    let untraced =
        || Error::Unsupported("only pipelines of fused plans made with `trace` note their times".into());
    for pipeline in pipelines.iter_mut() {
        pipeline.prepare()?;
    }
    let Some(stream) = pipelines.first().map(|p| &p.main) else { return Ok(Vec::new()) };
    let sets = pipelines.iter().map(Pipeline::sets).min().unwrap_or(0);
    let launch = |set: usize| -> Result<()> {
        pipelines.iter().try_for_each(|pipeline| {
            pipeline.kernels(set)?.launch_fused(LaunchAttributes {
                stream,
                started: None,
                programmatic: false,
            })
        })
    };
    let traces: Vec<_> = pipelines
        .iter()
        .map(|p| p.shared.work.trace().cloned().ok_or_else(untraced))
        .collect::<Result<_>>()?;
    let graph = stream.capture(|| {
        (1..sets).try_for_each(launch)?;
        // A CTA that draws fewer items than before must not leave stale records.
        traces.iter().try_for_each(|trace| Ok::<_, Error>(trace.fill_bytes(0, stream)?))?;
        launch(0)
    })?;
    for _ in 0..REPLAYS {
        graph.launch(stream)?;
    }
    stream.synchronize()?;
    pipelines.iter().zip(&traces).map(|(pipeline, trace)| read(pipeline, trace)).collect()
}

impl Pipeline {
    /// Records of the last run of each item since the previous call. No run may be in progress.
    ///
    /// # Errors
    /// The pipeline was made without [`super::Options::trace`].
    pub fn take_trace(&self) -> Result<Vec<ItemTrace>> {
        let none = || Error::Unsupported("only pipelines made with `trace` note their times".into());
        let trace = self.shared.work.trace().ok_or_else(none)?;
        let items = read(self, trace)?;
        trace.fill_bytes(0, &self.main)?;
        self.main.synchronize()?;
        Ok(items)
    }
}

/// Records of a pipeline's last run.
fn read(pipeline: &Pipeline, trace: &DeviceBuffer<ffi::cusync_trace>) -> Result<Vec<ItemTrace>> {
    let mut records = vec![ffi::cusync_trace::default(); trace.len()];
    trace.download(&mut records)?;
    let plan = &pipeline.plan;
    let LaunchWork::One(one) = &pipeline.shared.work else { return Ok(Vec::new()) };
    let (ctas, length) = match &one.work {
        device::WorkDistribution::Order { .. } => return Ok(Vec::new()),
        device::WorkDistribution::Lists { lists, .. } => (ctas_of(&one.id), lists.length() as usize),
        device::WorkDistribution::Shares { workers, .. } => {
            let rounds: Vec<u32> = plan.graph().stages.iter().map(|s| rounds_in(s, *workers)).collect();
            return Ok(plan.launch().work().map_or_else(Vec::new, |work| shares(work, &rounds, &records)));
        }
    };
    Ok(plan.launch().work().map_or_else(Vec::new, |work| items(work, ctas, length, &records)))
}

/// A record with its item; `None` if it was not written.
fn joined(worker: u32, cta: u32, item: Item, r: &ffi::cusync_trace) -> Option<ItemTrace> {
    let ffi::cusync_trace { begin, ready, loaded, math_end, end, sm, .. } = *r;
    let trace = ItemTrace { worker, cta, sm, item, begin, ready, loaded, math_end, end };
    (r.end != 0).then_some(trace)
}

/// Records of each worker of a decode kernel for each round of each stage. Attention work is assigned at run
/// time, so a worker may have worked on a stage without having an item of it; an idle worker records no end
/// of its arithmetic. `rounds`: rounds per stage.
fn shares(work: &Schedule, rounds: &[u32], records: &[ffi::cusync_trace]) -> Vec<ItemTrace> {
    let of_stage = |(stage, rounds): (usize, &u32)| (0..*rounds).map(move |round| (stage, round));
    let rounds: Vec<(usize, u32)> = rounds.iter().enumerate().flat_map(of_stage).collect();
    let one = |worker: usize, (stage, round): (usize, u32), r: &ffi::cusync_trace| {
        let planned = work.lists.get(worker).into_iter().flatten().map(|i| work.sequence[*i as usize]);
        let (n, part) = (worker as u32, Part::Whole);
        let any = Item { stage: StageId(stage), m: 0, n, k_begin: 0, k_end: 1, part };
        let item = planned.filter(|item| item.stage.0 == stage).nth(round as usize).unwrap_or(any);
        joined(worker as u32, 0, item, r).filter(|t| t.math_end != 0)
    };
    let of_worker = |(worker, list): (usize, &[ffi::cusync_trace])| -> Vec<ItemTrace> {
        rounds.iter().zip(list).filter_map(|(round, r)| one(worker, *round, r)).collect()
    };
    records.chunks(rounds.len().max(1)).enumerate().flat_map(of_worker).collect()
}

/// Joins records with their items. Unwritten records are zero.
fn items(schedule: &Schedule, ctas: usize, length: usize, records: &[ffi::cusync_trace]) -> Vec<ItemTrace> {
    let lists = records.chunks(length.max(1)).enumerate();
    let one = |worker: usize, cta: usize, r: &ffi::cusync_trace| {
        let index = match schedule.mode {
            Hand::Fixed => *schedule.lists.get(worker)?.get(r.item as usize)?,
            Hand::Drawn => r.item,
        };
        let item = *schedule.sequence.get(index as usize)?;
        joined(worker as u32, cta as u32, item, r)
    };
    let of_cta = |(place, list): (usize, &[ffi::cusync_trace])| -> Vec<ItemTrace> {
        list.iter().filter_map(|r| one(place / ctas, place % ctas, r)).collect()
    };
    lists.flat_map(of_cta).collect()
}

/// Replays of the graph: the first ones bring clocks and caches to a steady state.
const REPLAYS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_of_the_items_that_their_cta_ran() {
        let item = |m| Item { stage: StageId(0), m, n: 0, k_begin: 0, k_end: 4, part: Part::Whole };
        let mut schedule = Schedule {
            cluster: (2, 1),
            mode: Hand::Fixed,
            sequence: (0..3).map(item).collect(),
            lists: vec![vec![0, 2], vec![1]],
            slabs: 0,
            predicted_us: 0.0,
        };
        // Two workers of two CTAs, lists of three: the last entries are never written.
        let mut records = vec![ffi::cusync_trace::default(); 2 * 2 * 3];
        let written = |item| ffi::cusync_trace { item, end: 9, ..Default::default() };
        (records[3], records[4], records[6]) = (written(0), written(1), written(0));
        let seen = |schedule: &Schedule| -> Vec<_> {
            items(schedule, 2, 3, &records).iter().map(|t| (t.worker, t.cta, t.item.m)).collect()
        };
        assert_eq!(seen(&schedule), [(0, 1, 0), (0, 1, 2), (1, 0, 1)]);
        // Decode kernels write one record per stage regardless of the lists; the second worker worked on a
        // stage that is not in its list.
        let ran = |end| ffi::cusync_trace { math_end: end, end: 9, ..Default::default() };
        let notes = [ran(5), ran(0), ran(0), ran(6)];
        let seen_of: Vec<_> =
            shares(&schedule, &[1, 1], &notes).iter().map(|t| (t.worker, t.item.stage.0)).collect();
        assert_eq!(seen_of, [(0, 0), (1, 1)]);
        // A stage in two rounds, with two items of the first worker.
        let seen_of: Vec<_> = shares(&schedule, &[2], &notes[..2]).iter().map(|t| t.item.m).collect();
        assert_eq!(seen_of, [0]);
        let seen_of: Vec<_> = shares(&schedule, &[2], &[ran(5), ran(6)]).iter().map(|t| t.item.m).collect();
        assert_eq!(seen_of, [0, 2]);
        schedule.mode = Hand::Drawn;
        assert_eq!(seen(&schedule), [(0, 1, 0), (0, 1, 1), (1, 0, 0)]);
    }
}
