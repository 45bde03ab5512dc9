//! An oracle that shares nothing with `check`: it executes the tile programs of a plan, three times over, on poisoned memory,
//! under adversaries that hold one CTA back as long as anything else moves, that place CTAs as badly as they can, and
//! that draw lots. What it finds is a real execution that goes wrong; what it does not find may still be wrong.
//!
//! Holding back one part of one item is the strongest adversary there is against a pair of accesses as long as nobody
//! competes for SMs: posts and flags only ever make waits true, so whatever can run without that part does.

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

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Violation {
    /// An index outside its array.
    Outside,
    /// A tile is computed from data that nobody loads.
    NeverLoaded,
    /// A read finds something else than what it should: poison, an older run's data, another tensor's.
    Stale,
    /// A tile is not the sum of all its k-blocks.
    WrongSum,
    /// A tile, or a part of it, is stored twice in a run.
    Twice,
    /// A run ends with a tile that is not there.
    Missing,
    /// Nothing moves, and not all is done.
    Stuck,
}

/// How hard to look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Executions by lot.
    pub(crate) random: u32,
    /// Their seed.
    pub(crate) seed: u64,
}

/// An execution of the plan that goes wrong, if one is found.
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
    // A few by lot before the many: most faults show quickly.
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
    // A thread for every item: none is late only because the others wait for the one that is held back.
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

/// Whether CTAs compete for SMs, so that what is placed where decides what can happen.
fn crowded(c: &Candidate) -> bool {
    let ctas: u32 = c.graph.stages.iter().map(|s| s.tiles() * s.split_k.max(1)).sum();
    !c.launch.is_one_kernel() && c.launch.on_gpu() && ctas > c.device.sms
}

/// Whether holding a CTA back at this place differs from holding it back earlier.
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
