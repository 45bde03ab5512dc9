//! Deliberately wrong plans, for tests that show a refuted plan failing on a device.
//!
//! This is the only way around [`super::check`]. It requires the feature `fault-injection`, which only tests may
//! enable. The module also exposes both decision procedures for `progress`, for a test that compares them.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::obligations::{Explored, both_ways, well_formed};
use super::{Candidate, Obligation, Plan, Refutation, TileProgram, assemble, judge};
use crate::graph::{OperandKind, StageId};

/// How the waits of an edge are changed. Loads stay the same: kernels load by tile and wait by the edge's footprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitFault {
    /// All waits are removed.
    Drop,
    /// Waits move by this many rows and columns of producer tiles; waits that fall outside the tensor are dropped.
    Shift {
        /// Rows of producer tiles; negative values move back.
        rows: i32,
        /// Columns of producer tiles.
        cols: i32,
    },
}

/// A plan with wrong waits on one edge.
#[derive(Clone, Debug)]
pub struct WaitMutant {
    /// The unproved plan.
    pub plan: Plan,
    /// Index of the edge, as in [`Plan::edges`].
    pub edge: usize,
    /// The injected fault.
    pub fault: WaitFault,
    /// Why `check` rejects it: always [`Obligation::Cover`].
    pub refutation: Refutation,
}

/// Makes a plan without a proof.
pub fn unproved_for_fault_injection(candidate: Candidate) -> Plan {
    assemble(candidate)
}

/// Makes `count` different mutants of a sound candidate by dropping or shifting the waits of one edge. Each is refuted
/// by `cover` only: it reads too early but cannot deadlock. The same seed gives the same mutants. Returns fewer if the
/// candidate has fewer suitable edges, and none for a decode plan, which has no edge waits.
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
    // Under a coarse policy a shifted wait may still cover every load; draw again.
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
        // A mutant that could also hang would break the device context.
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
/// If the candidate has no such edge.
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

/// Results of the two decision procedures for `progress`, each computed independently: see docs/progress.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressWays {
    /// Whether the sufficient condition holds, which rules out a deadlock. `false` is inconclusive.
    pub condition: bool,
    /// Whether no reachable state deadlocks; `None` if there are too many states to visit.
    pub explored: Option<bool>,
}

/// Runs both procedures on a program of kernels coupled by semaphores on a GPU. Returns `None` for every other
/// candidate, and if a stage is never launched or fits no SM. Both assume `acyclic` and `count`.
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
