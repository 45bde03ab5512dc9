//! Proof obligations over a candidate, and the only constructor of [`Plan`].
//!
//! Every obligation is decided by enumeration on the actual grids. What is enumerated is the *tile program*
//! ([`TileProgram`]): the posts, waits and loads of each tile in program order, so that the arithmetic of a policy is
//! judged and never trusted.
//!
//! # Why progress holds
//!
//! A CTA that waits keeps its SM. A chain can therefore stand still only if waiting CTAs occupy every place that a CTA
//! of one of their producers still needs.
//!
//! *With the start guarantee* (every CTA of all producers has started before a consumer's first CTA can): by induction
//! along the stage order, a started CTA of a stage ends. A first stage waits for nothing. A CTA of a later stage waits
//! only for tiles of its producers; all their CTAs have started, and by induction they end; each of them draws tiles until
//! none is left, so together they post every tile, and `count` says that the posts reach the wait values. As every
//! started CTA ends, every place is given back, and the stages after it start.
//!
//! *Without it*, the scheduler may place the CTAs of the stages that depend on a stage before any of that stage. The
//! chain still moves if those CTAs, all of them waiting and placed as badly as they can be, leave one SM with room for
//! a CTA of the stage. That is the test made here; it is sufficient, and a refusal shows the placement that hangs.
//!
//! *On the `cpu` executor*, workers draw from one list in launch order; the tile that is first in the list among the
//! unfinished ones waits for earlier tiles only, which are finished, so it can run.

mod candidate;
mod obligations;
mod plan;
mod program;
mod report;

pub use candidate::{Candidate, EpochSource, Practice, Prediction, StoreCompletion};
pub use plan::{Choice, Coupling, EdgeChoice, EdgePlan, Executor, Plan, StartGuarantee};
pub use program::{Event, Generated, TileProgram, slice_k_blocks};
pub use report::{Obligation, Refutation, Report, Subject};

/// Judges the program that the project's kernels run for a candidate.
pub fn judge(candidate: &Candidate) -> Report {
    if let Some(refutation) = obligations::well_formed(candidate) {
        // Nothing else can be evaluated on arrays of the wrong length.
        return Report { refutations: vec![refutation] };
    }
    judge_program(candidate, &Generated::new(candidate))
}

/// Judges any tile program for a candidate's graph, orders and launch.
pub fn judge_program(candidate: &Candidate, program: &dyn TileProgram) -> Report {
    let refutations =
        Obligation::ALL.iter().filter_map(|o| obligations::judge(*o, candidate, program)).collect();
    Report { refutations }
}

/// Proves a candidate.
///
/// # Errors
/// The first obligation that does not hold, with its counterexample.
pub fn check(candidate: Candidate) -> Result<Plan, Refutation> {
    if let Some(refutation) = judge(&candidate).refutations.into_iter().next() {
        return Err(refutation);
    }
    let mut slot_base = 0;
    let slots = candidate.slot_maps();
    let Candidate {
        graph,
        device,
        executor,
        start,
        coupling,
        orders,
        edges,
        schedule,
        choices,
        predicted,
        ..
    } = candidate;
    let edges = graph
        .dependences
        .iter()
        .zip(edges)
        .zip(slots)
        .map(|((dependence, EdgeChoice { policy, wait_at }), slots)| {
            let base = slot_base;
            slot_base += slots.slot_count;
            EdgePlan { dependence: dependence.clone(), policy, wait_at, slots, slot_base: base }
        })
        .collect();
    Ok(Plan { graph, device, executor, start, coupling, orders, edges, schedule, choices, predicted })
}
