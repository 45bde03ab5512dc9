//! Sums over devices: each device is a pipeline of its own, and the pipelines of a group run at once.
//!
//! A tile sends its sums to the areas of all devices, its own included, waits for those of all devices in its own area,
//! and adds them in the order of devices. A sum travels in one word with the number of its run, as on GPUs
//! (`csrc/kernels/decode/sm90/devices.cuh`), and the areas have the same layout ([`Graph::area`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cusync_gen::graph::Graph;

use super::error::CpuError;
use super::semaphore::Unmet;
use super::tile::{Place, Scratch, Stop};
use super::{Blocked, CpuPipeline};

/// What the devices of a group share.
pub(crate) struct Areas {
    /// First word of each stage in an area.
    first: Vec<Option<u64>>,
    /// Words of each device's area: run + 1 above the bits of a float.
    areas: Vec<Vec<AtomicU64>>,
    /// Tiles finished by all devices.
    progress: Arc<AtomicU64>,
    /// The last run that a device failed in, plus 1, above the device.
    failed: AtomicU64,
}

impl Areas {
    pub(crate) fn new(graph: &Graph) -> Arc<Areas> {
        let (first, words) = graph.area();
        let area = || (0..words).map(|_| AtomicU64::new(0)).collect();
        let areas = (0..graph.devices()).map(|_| area()).collect();
        Arc::new(Areas { first, areas, progress: Arc::default(), failed: AtomicU64::new(0) })
    }
}

/// A device of a group.
pub(super) struct Member {
    areas: Arc<Areas>,
    device: u32,
    /// Number of the current run, plus 1. Failed runs count too, so that all devices agree.
    number: u32,
}

impl Member {
    /// Begins the next run.
    pub(super) fn begin(&mut self) {
        self.number = self.number.wrapping_add(1);
    }

    /// Ends the run of the other devices, unless one of them has ended it, or this device has finished it.
    pub(super) fn abort(&self, error: &CpuError) {
        if matches!(error, CpuError::OtherDevice(_) | CpuError::Cache { .. }) {
            return;
        }
        // Who waited in vain is not the cause.
        let cause = if let CpuError::NoSums { from, .. } = error { *from } else { self.device };
        self.areas.failed.store(word(self.number, cause), Ordering::Release);
    }

    /// Another device that ended this run, or that did not send.
    fn failed(&self) -> Option<u32> {
        let failed = self.areas.failed.load(Ordering::Acquire);
        (number(failed) == self.number).then_some(failed as u32).filter(|device| *device != self.device)
    }
}

/// A word with the number of its run.
fn word(number: u32, low: u32) -> u64 {
    u64::from(number) << 32 | u64::from(low)
}

/// The number of a word's run.
fn number(word: u64) -> u32 {
    (word >> 32) as u32
}

impl CpuPipeline {
    /// Makes the pipeline a device of a group, whose areas are of the same plan.
    pub(crate) fn join(mut self, areas: &Arc<Areas>, device: u32) -> Self {
        self.semaphores.share_progress(&areas.progress);
        self.member = Some(Member { areas: Arc::clone(areas), device, number: 0 });
        self
    }

    /// Replaces a tile's sums with those over all devices, if its stage is summed.
    pub(super) fn sum_over_devices(&self, place: &Place<'_>, scratch: &mut Scratch) -> Result<(), Stop> {
        let Place { stage, tile, at, .. } = place;
        if stage.devices == 1 {
            return Ok(());
        }
        let none = || CpuError::NoGroup { stage: stage.name.clone(), devices: stage.devices };
        let member = self.member.as_ref().ok_or_else(|| Stop::Failed(none()))?;
        let areas = &member.areas;
        let (m, n) = (stage.m as usize, stage.n as usize);
        let first = areas.first[place.work.stage].unwrap_or_default() as usize;
        let set = (member.number.wrapping_sub(1) % 2) as usize;
        // Words of the tile's row `row` from device `from`.
        let row = |from: u32, row: usize| {
            let matrix = first + (set * stage.devices as usize + from as usize) * m * n;
            let begin = matrix + (at.row + row) * n + at.col;
            begin..begin + at.cols
        };
        let Scratch { sum, blocked, .. } = scratch;
        let sums = &mut sum[..at.rows * at.cols];
        for area in &areas.areas {
            for (r, line) in sums.chunks(at.cols).enumerate() {
                let words = area[row(member.device, r)].iter();
                words.zip(line).for_each(|(to, sum)| {
                    to.store(word(member.number, sum.to_bits()), Ordering::Release);
                });
            }
        }
        sums.fill(0.0);
        for from in 0..stage.devices {
            for (r, line) in sums.chunks_mut(at.cols).enumerate() {
                let words = areas.areas[member.device as usize][row(from, r)].iter();
                for (sum, sent) in line.iter_mut().zip(words) {
                    *sum += self.receive(member, sent, blocked).map_err(|stop| {
                        stop.unwrap_or_else(|| {
                            Stop::Failed(CpuError::NoSums {
                                stage: stage.name.clone(),
                                tile_m: tile.m,
                                tile_n: tile.n,
                                device: member.device,
                                from,
                                run: member.number.wrapping_sub(1),
                            })
                        })
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Waits for a word of this run. The error is `None` if it did not come in time.
    fn receive(&self, member: &Member, sent: &AtomicU64, blocked: &mut Blocked) -> Result<f32, Option<Stop>> {
        let mut have = sent.load(Ordering::Acquire);
        if number(have) != member.number {
            let (begin, mut failed) = (Instant::now(), None);
            let arrived = || {
                have = sent.load(Ordering::Acquire);
                failed = member.failed();
                number(have) == member.number || failed.is_some()
            };
            self.semaphores.spin(arrived).map_err(|unmet| match unmet {
                Unmet::Aborted => Some(Stop::Aborted),
                Unmet::TimedOut => None,
            })?;
            if let Some(device) = failed {
                return Err(Some(Stop::Failed(CpuError::OtherDevice(device))));
            }
            blocked.waits += 1;
            blocked.time += begin.elapsed();
        }
        Ok(f32::from_bits(have as u32))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cusync_gen::check::{Executor, Plan};
    use cusync_gen::device::Profile;

    use super::*;
    use crate::inputs::Inputs;
    use crate::runtime::cpu::CpuOptions;
    use crate::runtime::{Overrides, plan_text};

    const TIMEOUT: Duration = Duration::from_millis(300);

    fn plan() -> Plan {
        let spec = r#"Pipeline(name: "p", dims: { "M": 5, "H": 64, "I": 32 }, devices: 3, stages: [
            Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)"),
            Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)", all_reduce: true),
        ])"#;
        let device = Profile::named("h200").expect("it ships");
        plan_text(spec, "p", &Overrides::default(), device, Executor::Cpu).expect("valid")
    }

    fn pipeline(plan: &Plan, areas: &Arc<Areas>, device: u32, starve: Option<usize>) -> CpuPipeline {
        let options = CpuOptions { threads: 2, timeout: TIMEOUT, starve, ..CpuOptions::default() };
        let inputs = Inputs::random(plan.graph(), u64::from(device));
        CpuPipeline::new(plan, &inputs, options).expect("small").join(areas, device)
    }

    fn run_at_once(pipelines: &mut [CpuPipeline]) -> Vec<Result<(), CpuError>> {
        std::thread::scope(|scope| {
            let runs: Vec<_> = pipelines.iter_mut().map(|p| scope.spawn(|| p.run().map(|_| ()))).collect();
            runs.into_iter().map(|run| run.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn a_device_that_does_not_run_is_named() {
        let plan = plan();
        let areas = Areas::new(plan.graph());
        let mut pipelines = [0, 2].map(|device| pipeline(&plan, &areas, device, None));
        let errors = run_at_once(&mut pipelines);
        let absent = |error: &Result<(), CpuError>, own: u32| matches!(error, Err(CpuError::NoSums { stage, from: 1, run: 0, device, .. }) if stage == "down" && *device == own);
        let aborted = |error: &Result<(), CpuError>| matches!(error, Err(CpuError::OtherDevice(1)));
        assert!(absent(&errors[0], 0) || absent(&errors[1], 2), "{errors:?}");
        assert!(absent(&errors[0], 0) || aborted(&errors[0]), "{errors:?}");
        assert!(absent(&errors[1], 2) || aborted(&errors[1]), "{errors:?}");
    }

    #[test]
    fn a_device_that_fails_ends_the_run_of_all_and_the_next_run_is_right() {
        let plan = plan();
        let areas = Areas::new(plan.graph());
        let starve = |device| (device == 1).then_some(0);
        let mut pipelines = [0, 1, 2].map(|device| pipeline(&plan, &areas, device, starve(device)));
        let errors = run_at_once(&mut pipelines);
        assert!(matches!(errors[1], Err(CpuError::Starved { .. })), "{errors:?}");
        for error in [&errors[0], &errors[2]] {
            assert!(
                matches!(error, Err(CpuError::OtherDevice(1) | CpuError::NoSums { from: 1, .. })),
                "{errors:?}"
            );
        }
        pipelines.iter_mut().for_each(|pipeline| pipeline.options.starve = None);
        for _ in 0..3 {
            assert!(run_at_once(&mut pipelines).iter().all(Result::is_ok));
            let values = pipelines.each_ref().map(|pipeline| pipeline.tensor("Z").expect("it ran"));
            assert!(values.iter().all(|z| *z == values[0] && z.iter().all(|x| x.is_finite())));
        }
    }

    #[test]
    fn a_plan_for_several_devices_does_not_run_alone() {
        let plan = plan();
        let inputs = Inputs::random(plan.graph(), 1);
        let mut alone = CpuPipeline::new(&plan, &inputs, CpuOptions::default()).expect("small");
        assert!(matches!(alone.run(), Err(CpuError::NoGroup { devices: 3, .. })));
    }
}
