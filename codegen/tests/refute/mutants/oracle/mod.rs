//! An oracle that shares no code with `check`: it executes a plan's tile programs three times over, on poisoned memory,
//! under adversaries that delay one CTA as long as anything else can move, that place CTAs as badly as possible, and
//! that act at random. A violation it finds is a real wrong execution; a plan without a finding may still be wrong.
//!
//! Delaying one part of one item is the strongest adversary against a pair of accesses, as long as CTAs do not compete
//! for SMs: posts and flags only ever satisfy waits, so everything that can run without that part does run.

mod adversary;
mod effect;
mod machine;
mod memory;
mod program;
mod room;
mod shapes;

use cusync_gen::check::{Candidate, TileProgram};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use adversary::{Adversary, Fit, Hold, Phase};
use machine::Machine;
use program::Program;

/// Kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Violation {
    /// An index outside its array.
    Outside,
    /// A tile is computed from data that was never loaded.
    NeverLoaded,
    /// A read returns the wrong data: poison, an older run's data, or another tensor's.
    Stale,
    /// A tile is not the sum of all its k-blocks.
    WrongSum,
    /// A tile, or a part of it, is stored twice in a run.
    Twice,
    /// A run ends with a tile missing.
    Missing,
    /// Nothing can move, but work remains.
    Stuck,
}

/// Search effort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of random executions.
    pub(crate) random: u32,
    /// Seed of the random executions.
    pub(crate) seed: u64,
}

/// A wrong execution of the plan, if one is found.
pub(crate) fn violation(c: &Candidate, p: &dyn TileProgram, effort: Effort) -> Option<Violation> {
    if c.launch.on_gpu() && (c.launch.kernels().iter().any(|k| k.ctas_per_sm == 0) || c.device.sms == 0) {
        return Some(Violation::Stuck);
    }
    let program = match Program::new(c, p) {
        Ok(program) => program,
        Err(fault) => return Some(fault),
    };
    let mut rng = SmallRng::seed_from_u64(effort.seed);
    let go = |adversary: Adversary| Machine::new(c, &program, adversary).run();
    for (reverse, before) in [(true, 0), (false, 1 << 20)] {
        for fit in [Fit::First, Fit::Emptiest] {
            let plain = Adversary {
                fit,
                reverse,
                before,
                consumers_first: reverse,
                workers: 1,
                ..Adversary::default()
            };
            if let Some(found) = go(plain) {
                return Some(found);
            }
        }
    }
    // A few random runs first: most faults show quickly.
    let lots = |rng: &mut SmallRng| {
        let fit = [Fit::First, Fit::Emptiest, Fit::Fullest, Fit::Any][rng.random_range(0..4)];
        Adversary {
            fit,
            lot: Some(rng.random()),
            workers: rng.random_range(1..6),
            before: rng.random(),
            ..Adversary::default()
        }
    };
    let crowded = crowded(c);
    // One thread per item, so that no item is late only because others wait for the one held back.
    let workers = program.work.len();
    for (w, work) in program.work.iter().enumerate() {
        for cta in 0..work.ctas.len() {
            let phases = [Phase::Loader, Phase::Finisher, Phase::Given, Phase::Last, Phase::Draw];
            for phase in phases.into_iter().filter(|phase| matters(c, &work.ctas[cta], *phase)) {
                let hold = Some(Hold { work: w as u32, cta, phase });
                let found = go(Adversary { hold, reverse: w % 2 == 0, workers, ..Adversary::default() });
                if found.is_some() {
                    return found;
                }
                if crowded && let Some(found) = go(Adversary { hold, ..lots(&mut rng) }) {
                    return Some(found);
                }
            }
        }
    }
    (0..effort.random).find_map(|_| go(lots(&mut rng)))
}

/// Whether CTAs compete for SMs, so that their placement affects the outcome.
fn crowded(c: &Candidate) -> bool {
    let ctas: u32 = c.graph.stages.iter().map(|s| s.tiles() * s.split_k.max(1)).sum();
    !c.launch.is_one_kernel() && c.launch.on_gpu() && ctas > c.device.sms
}

/// Whether holding a CTA back at this point differs from holding it back earlier.
fn matters(c: &Candidate, cta: &program::Cta, phase: Phase) -> bool {
    use program::Op;
    match phase {
        Phase::Loader => cta.loaders.iter().any(|steps| !steps.is_empty()),
        Phase::Finisher => cta.tile.is_some(),
        Phase::Given => cta.finisher.iter().any(|op| matches!(op, Op::SetFlag { .. })),
        Phase::Last => !cta.late.is_empty() || matches!(cta.finisher.last(), Some(Op::OverwriteSlot { .. })),
        Phase::Draw => program::draws(c) && c.contract.deferred_post,
    }
}
