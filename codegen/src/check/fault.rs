//! Plans that are wrong on purpose, for tests that show a refuted plan going wrong on a device.
//!
//! This is the one door past [`super::check`], and it is there only with the feature `fault-injection`, which no other
//! crate than a test's may ask for. Beside it, the two ways in which `progress` is decided, for a test that holds them
//! against each other.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::obligations::{Explored, both_ways, well_formed};
use super::{Candidate, Obligation, Plan, Refutation, TileProgram, assemble, judge};
use crate::graph::{OperandKind, StageId};

/// What is done to the waits of an edge. Loads stay as they are: kernels load what their tile says, and wait for what the
/// edge's footprint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitFault {
    /// Nothing is waited for.
    Drop,
    /// The tiles so many rows and columns of producer tiles further on are waited for; what lies past the tensor is not.
    Shift {
        /// Rows of producer tiles; negative: back.
        rows: i32,
        /// Columns of producer tiles.
        cols: i32,
    },
}

/// A plan whose waits on one edge are wrong.
#[derive(Clone, Debug)]
pub struct WaitMutant {
    /// The plan, which is not proved.
    pub plan: Plan,
    /// Index of the edge, as in [`Plan::edges`].
    pub edge: usize,
    /// What was done to it.
    pub fault: WaitFault,
    /// Why `check` refuses it: always [`Obligation::Cover`].
    pub refutation: Refutation,
}

/// A plan that nothing has proved.
pub fn unproved_for_fault_injection(candidate: Candidate) -> Plan {
    assemble(candidate)
}

/// `count` different mutants of a sound candidate that drop or shift the waits of one edge, each refuted for `cover` and
/// for nothing else: they read too early, and cannot stand still. The same seed gives the same mutants. Fewer come back
/// where the candidate has no more edges that can be changed so, and none for a decode plan, whose waits are not edges.
pub fn wait_mutants(candidate: &Candidate, seed: u64, count: usize) -> Vec<WaitMutant> {
    let graph = &candidate.graph;
    let edges: Vec<usize> = (0..graph.dependences.len())
        .filter(|e| {
            let d = &graph.dependences[*e];
            !matches!(graph.stages[d.consumer.0].operands[d.operand].kind, OperandKind::Custom(_))
        })
        .collect();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut mutants: Vec<WaitMutant> = Vec::new();
    if edges.is_empty() || candidate.launch.shares().is_some() {
        return mutants;
    }
    // A shift may happen to wait for enough under a coarse policy; it is drawn again then.
    for _ in 0..count.saturating_mul(20) {
        if mutants.len() == count {
            break;
        }
        let edge = edges[rng.random_range(0..edges.len())];
        let fault = if rng.random_ratio(1, 4) {
            WaitFault::Drop
        } else {
            WaitFault::Shift { rows: rng.random_range(-2..=2), cols: rng.random_range(-2..=2) }
        };
        if mutants.iter().any(|m| (m.edge, m.fault) == (edge, fault)) {
            continue;
        }
        let mutant = with_fault(candidate, edge, fault);
        let mut refutations = judge(&mutant).refutations;
        // A mutant that could also hang would take the device's context with it.
        if refutations.iter().any(|r| r.obligation != Obligation::Cover) {
            continue;
        }
        if let Some(refutation) = refutations.pop() {
            mutants.push(WaitMutant { plan: unproved_for_fault_injection(mutant), edge, fault, refutation });
        }
    }
    mutants
}

/// The candidate with a fault in the waits of an edge.
///
/// # Panics
/// When the candidate has no such edge.
pub fn with_fault(candidate: &Candidate, edge: usize, fault: WaitFault) -> Candidate {
    let mut mutant = candidate.clone();
    let d = mutant.graph.dependences[edge].clone();
    let (rows, cols) = mutant.graph.stages[d.producer.0].out_tile();
    let footprint = &mut mutant.graph.stages[d.consumer.0].operands[d.operand].footprint;
    match fault {
        WaitFault::Drop => (footprint.rows.extent, footprint.cols.extent) = (0, 0),
        WaitFault::Shift { rows: by_rows, cols: by_cols } => {
            footprint.rows.offset += by_rows * rows as i32;
            footprint.cols.offset += by_cols * cols as i32;
        }
    }
    mutant
}

/// What each way to decide `progress` says, whatever the other does: see docs/progress.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressWays {
    /// Whether the sufficient condition holds, so that nothing can stand still. It says nothing where it does not hold.
    pub condition: bool,
    /// Whether no state that can be reached stands still; `None` where there are too many to visit.
    pub explored: Option<bool>,
}

/// Asks both ways about a program of kernels that semaphores couple on a GPU; `None` for every other candidate, and where
/// a stage is never launched or fits no SM. Both rest on `acyclic` and `count`.
pub fn progress_ways(candidate: &Candidate, program: &dyn TileProgram) -> Option<ProgressWays> {
    let launch = &candidate.launch;
    let stages = (0..candidate.graph.stages.len()).map(StageId);
    let runs = !launch.is_one_kernel()
        && launch.on_gpu()
        && launch.has_semaphores()
        && well_formed(candidate).is_none()
        && stages.map(|s| launch.kernel(s)).all(|k| k.is_some_and(|k| k.ctas_per_sm > 0))
        && candidate.device.sms > 0;
    if !runs {
        return None;
    }
    let (condition, explored) = both_ways(candidate, program);
    let explored = match explored {
        Explored::Moves => Some(true),
        Explored::Stuck { .. } => Some(false),
        Explored::TooLarge => None,
    };
    Some(ProgressWays { condition, explored })
}
