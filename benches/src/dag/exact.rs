//! Random programs with injected delays, compared with the host bit by bit.

use cusync_dag::{Form, Refine, refine};
use cusync_gen::device::DEVICES;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::point::{Bench, fault};
use super::random::SpinProgram;
use super::report::ExactRecord;
use crate::Result;
use cusync::programs::BoundRecording;

/// Maximum delay, nanoseconds: several times a kernel's length.
const LONGEST_NS: u32 = 20_000;

impl Bench {
    /// Runs random programs in every form but serial launches, each run twice with different delays, until
    /// `programs` are done or `more` returns false. If edges are programmatic, tiles wait for tiles in half
    /// of the programs.
    pub(super) fn exact(&self, programs: usize, more: &mut dyn FnMut() -> bool) -> Result<ExactRecord> {
        let mut record = ExactRecord { programs: 0, kernels: 0, runs: 0, wrong: Vec::new() };
        let forms: Vec<Form> = self.forms().filter(|form| *form != Form::SERIAL).collect();
        for seed in 0..programs as u64 {
            if !more() {
                break;
            }
            let mut rng = SmallRng::seed_from_u64(seed);
            let kernels = rng.random_range(6..40);
            let program = match seed % 2 {
                0 => SpinProgram::tangle(seed, kernels, rng.random_range(6..24), rng.random_range(1..5)),
                _ => SpinProgram::strands(
                    seed,
                    kernels,
                    rng.random_range(1..=12),
                    rng.random_range(1..5),
                    1..60,
                ),
            };
            // Half of them use kernels that can wait for tiles, with all their features.
            let tiled = seed % 4 >= 2;
            let recorded = match tiled {
                true => program.record_tiled("random", 8.0, false),
                false => program.record("random", 8.0, false),
            };
            let recorded = recorded.map_err(fault)?;
            let bound = BoundRecording::new(&recorded.recording, &self.device, &self.module)?;
            let mut schedule = self.schedule(&bound)?;
            if tiled && self.device.capability().0 >= 9 {
                schedule.refinement =
                    refine(bound.program(), &schedule.dependences, &DEVICES[0], Refine::Everywhere);
            }
            let first = bound.download(recorded.arena)?;
            let (once, twice) = (program.expected(1), program.expected(2));
            // Two forms per program, cycling through all forms over the programs.
            for turn in 0..2 {
                let form = forms[(2 * seed as usize + turn) % forms.len()];
                let exec = bound.executable(&self.main, &schedule, form)?;
                bound.upload(recorded.arena, &first)?;
                for (run, want) in [&once, &twice].into_iter().enumerate() {
                    let mut delay =
                        |_| if rng.random_bool(0.3) { rng.random_range(0..LONGEST_NS) } else { 0 };
                    let delays: Vec<u32> = (0..program.len()).map(&mut delay).collect();
                    bound.upload(recorded.delays, &delays)?;
                    exec.launch()?;
                    exec.synchronize()?;
                    record.runs += 1;
                    if bound.download(recorded.arena)? != *want {
                        record.wrong.push(format!("seed {seed}, {}, run {}", form.name(), run + 1));
                    }
                }
            }
            record.programs += 1;
            record.kernels += program.len();
        }
        Ok(record)
    }
}
