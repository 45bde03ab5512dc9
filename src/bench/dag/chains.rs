//! Chains of dependent kernels: how long the GPU idles from one to the next.

use std::time::Duration;

use super::point::Bench;
use super::random::{SpinProgram, SpinRecording};
use super::report::ChainRecord;
use super::variant::Entry;
use crate::bench::measure::{interleaved, quick};
use crate::bench::{Error, Regime, Result, percentile};
use crate::dag::Form;
use crate::dag::run::{Bound, Executable, LanePlan};
use crate::runtime::Summary;

/// Kernels of a chain.
const KERNELS: usize = 100;

impl Bench {
    /// Nanoseconds of one round of a spin kernel.
    pub(super) fn ns_per_round(&self) -> Result<f64> {
        let rounds = [2_000, 12_000];
        let mut us = [0.0; 2];
        for (rounds, us) in rounds.into_iter().zip(&mut us) {
            let recorded =
                SpinProgram::chain(1, 1, rounds).record("calibration", 1.0, false).map_err(fault)?;
            let bound = recorded.recording.bind(&self.device, &self.module)?;
            let exec = bound.executable(&self.main, &self.schedule(&bound), Form::Serial)?;
            let entry = Entry::ours(Form::Serial, exec);
            // Warm: clocks are up when programs run.
            for _ in 0..200 {
                entry.exec.launch()?;
            }
            *us = quick(&self.device, entry.timed(8).as_mut(), 9)? / 8.0;
        }
        Ok((us[1] - us[0]) * 1e3 / f64::from(rounds[1] - rounds[0]))
    }

    /// A chain whose kernels take about `target_us`.
    pub(super) fn chain(
        &self,
        target_us: f64,
        ctas: u32,
        ns_per_round: f64,
        samples: usize,
        wrong: &mut Vec<String>,
    ) -> Result<Vec<ChainRecord>> {
        // Loads, stores and the stamps take about a microsecond of each kernel.
        let rounds = ((target_us - 1.0).max(0.2) * 1e3 / ns_per_round) as u32;
        let program = SpinProgram::chain(KERNELS, ctas, rounds);
        let recorded = program.record("chain", ns_per_round, true).map_err(fault)?;
        let bound = recorded.recording.bind(&self.device, &self.module)?;
        let schedule = self.schedule(&bound);
        let (device, main, calls) = (&self.device, &self.main, bound.calls());
        let serial = LanePlan::serial(0..KERNELS);
        let mut entries = vec![
            Entry::peer("one stream", Executable::lanes(device, main, calls, &serial, false)?),
            Entry::peer("plain graph", Executable::captured(device, main, calls, &serial, false)?),
        ];
        if device.capability().0 >= 9 {
            let stream = Executable::lanes(device, main, calls, &serial, true)?;
            entries.push(Entry::peer("one stream, programmatic", stream));
            let graph = Executable::captured(device, main, calls, &serial, true)?;
            entries.push(Entry::peer("captured programmatic graph", graph));
        }
        let chosen = bound.executable(main, &schedule, schedule.form)?;
        entries.push(Entry::ours(schedule.form, chosen));
        let want = program.expected(1);
        let mut right = Vec::new();
        let mut stamps = Vec::new();
        for entry in entries {
            bound.reset(&[])?;
            entry.exec.launch()?;
            entry.exec.synchronize()?;
            if bound.download(recorded.arena)? != want {
                wrong.push(format!("chain of {target_us} us, {}: the arena differs", entry.name));
                continue;
            }
            stamps.push(self.stamps(&entry, &bound, &recorded)?);
            right.push(entry);
        }
        let mut variants: Vec<_> = right.iter().map(|e| e.timed(1)).collect();
        let times = interleaved(device, &mut variants, Regime::Rested, samples, Duration::ZERO)?;
        let record = |((entry, times), (body_us, idle_us)): ((&Entry, &Vec<f64>), (f64, f64))| {
            let time = Summary::of(times);
            ChainRecord {
                kernels: KERNELS,
                ctas,
                target_us,
                body_us,
                variant: entry.name.clone(),
                time,
                idle_us,
                overhead_us: time.median_us / KERNELS as f64 - body_us,
            }
        };
        Ok(right.iter().zip(&times).zip(stamps).map(record).collect())
    }

    /// Median microseconds of a kernel's first CTA, and mean microseconds between two.
    fn stamps(&self, entry: &Entry, bound: &Bound, recorded: &SpinRecording) -> Result<(f64, f64)> {
        let (mut bodies, mut gaps) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            entry.exec.launch()?;
            entry.exec.synchronize()?;
            let stamps = nanoseconds(&bound.download(recorded.stamps)?);
            let (first, last) = (stamps[1], stamps[2 * KERNELS - 2]);
            let body: f64 = stamps.chunks(2).map(|s| s[1].saturating_sub(s[0]) as f64).sum();
            bodies.push(body / KERNELS as f64 / 1e3);
            let inside: f64 =
                stamps[2..2 * KERNELS - 2].chunks(2).map(|s| s[1].saturating_sub(s[0]) as f64).sum();
            gaps.push((last.saturating_sub(first) as f64 - inside) / (KERNELS - 1) as f64 / 1e3);
        }
        Ok((percentile(&mut bodies, 0.5), percentile(&mut gaps, 0.5)))
    }
}

/// 64-bit words out of pairs.
pub(super) fn nanoseconds(words: &[u32]) -> Vec<u64> {
    words.chunks_exact(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect()
}

pub(super) fn fault(error: crate::dag::DagError) -> Error {
    Error::Argument(error.to_string())
}
