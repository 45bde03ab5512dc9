//! Compares the two ways `check` decides `progress`, on small programs and mutants of them.
//!
//! If the sufficient condition holds, exploring all states finds no deadlock. If the condition does not hold and the
//! exploration finds no deadlock either, the plan is proved: the condition alone would have left it undecided.
//!
//!     CUSYNC_PROGRESS=3000 cargo test --release -p cusync-gen --test mutants progress -- --nocapture

use cusync_gen::check::fault::{ProgressWays, progress_ways};
use cusync_gen::check::{How, Obligation, StartGuarantee, judge_program};
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::mutate::{self, Kind, Mutant};
use super::recorded::Recorded;
use super::{from_environment, plans};

/// Mutations that change waits or SM assignment.
const KINDS: [Kind; 9] = [
    Kind::DropWait,
    Kind::MergeWaits,
    Kind::ShiftWait,
    Kind::WaitForAnotherEdge,
    Kind::SplitMidTile,
    Kind::SwapLaunches,
    Kind::RepeatLaunch,
    Kind::ShrinkSms,
    Kind::Occupancy,
];

/// A program on few SMs, or a mutant of one.
fn draw(rng: &mut SmallRng) -> Option<Mutant> {
    let mut candidate = plans::draw(rng);
    if !matches!(candidate.launch.how(), Some(How::Streams(_) | How::Programmatic)) {
        return None;
    }
    // Few items on few SMs have few states.
    let items: u32 = candidate.graph.stages.iter().map(|s| s.tiles() * s.split_k).sum();
    if items > 18 && rng.random_ratio(15, 16) {
        return None;
    }
    candidate.device.sms = rng.random_range(1..6);
    if rng.random_ratio(3, 4) {
        *candidate.launch.how_mut()? = How::Streams(StartGuarantee::None);
    }
    if rng.random_ratio(1, 3) {
        candidate.launch.kernels_mut().shuffle(rng);
    }
    if rng.random_ratio(1, 3) {
        return Some(Mutant::generated(candidate));
    }
    let program = Recorded::new(&candidate);
    let kind = *KINDS.choose(rng)?;
    mutate::mutate(rng, &candidate, &program, kind)
}

/// Number of programs by the results of the two methods.
#[derive(Default)]
struct Agreement {
    /// The condition holds; no state deadlocks.
    both: u64,
    /// The condition holds; there are too many states.
    condition_alone: u64,
    /// The condition does not hold; no state deadlocks.
    exploration_alone: u64,
    /// The condition does not hold; a state deadlocks.
    neither: u64,
    /// The condition does not hold; there are too many states.
    undecided: u64,
}

#[test]
fn the_condition_for_progress_and_the_exploration_agree() {
    let (count, seed) = (from_environment("CUSYNC_PROGRESS", 120), from_environment("CUSYNC_SEED", 1));
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut done, mut seen) = (0, Agreement::default());
    while done < count {
        let Some(Mutant { candidate, program, .. }) = draw(&mut rng) else { continue };
        let Some(ProgressWays { condition, explored }) = progress_ways(&candidate, &program) else {
            continue;
        };
        let report = judge_program(&candidate, &program);
        let refuted = |o: Obligation| report.refutations.iter().any(|r| r.obligation == o);
        // Both methods require these.
        if refuted(Obligation::Acyclic) || refuted(Obligation::Count) || refuted(Obligation::Order) {
            continue;
        }
        done += 1;
        let proved = !refuted(Obligation::Progress);
        let count = match (condition, explored) {
            (true, Some(true)) => &mut seen.both,
            (true, None) => &mut seen.condition_alone,
            (false, Some(true)) => &mut seen.exploration_alone,
            (false, Some(false)) => &mut seen.neither,
            (false, None) => &mut seen.undecided,
            (true, Some(false)) => panic!(
                "program {done} of seed {seed} stands still, and the condition holds: {:?} {:?} SMs {} {:?}",
                candidate.launch, candidate.edges, candidate.device.sms, candidate.graph.stages
            ),
        };
        *count += 1;
        assert_eq!(
            proved,
            condition || explored == Some(true),
            "program {done} of seed {seed}: the verdict is not what the two ways say"
        );
    }
    println!(
        "{done} programs, seed {seed}\n\n| sufficient condition | exploration | programs | verdict |\n|---|---|---|---|\n\
         | holds | no state stands still | {} | proved |\n| holds | too many states | {} | proved |\n\
         | does not hold | no state stands still | {} | proved |\n| does not hold | a state stands still | {} | refuted |\n\
         | does not hold | too many states | {} | refuted |\n| holds | a state stands still | 0 | |",
        seen.both, seen.condition_alone, seen.exploration_alone, seen.neither, seen.undecided
    );
    let Agreement { both, exploration_alone, neither, .. } = seen;
    // Exploration alone proves one program in a hundred.
    let shown = both > 0 && neither > 0 && (exploration_alone > 0 || count < 1000);
    assert!(shown, "the sample shows nothing");
}
