//! Proof obligations over a candidate, and the only constructor of [`Plan`].
//!
//! For the `fused` executor the tile programs follow a [`crate::schedule::Schedule`]: a tile is split into parts
//! computed by items, each part waits separately, and one part finishes the tile. In a cluster, CTA `(i, j)` loads
//! slice `j` of the rows of operand A for all CTAs of its row, and slice `i` of the columns of operand B for all CTAs
//! of its column; it must wait before its own loads, no matter which CTA needs the data. A CTA with a tile outside the
//! grid still loads its slices.
//!
//! Every obligation is decided by enumeration on the actual grids. The enumerated object is the *tile program*
//! ([`TileProgram`]): the posts, waits and loads of each tile in program order. So the arithmetic of a policy is
//! checked, never trusted. All posts are visited; of tiles that behave alike for an edge, only the first is. The
//! documentation of `obligations/scan.rs` states when tiles are alike and why this misses nothing.
//!
//! # Why progress holds
//!
//! A waiting CTA keeps its SM. A chain can therefore deadlock only if waiting CTAs occupy every place that a CTA of
//! one of their producers still needs.
//!
//! *With the start guarantee* (every CTA of all producers has started before a consumer's first CTA can): by induction
//! along the stage order, every started CTA ends. CTAs of a first stage wait for nothing. A CTA of a later stage waits
//! only for tiles of its producers. All CTAs of the producers have started and by induction end; each draws tiles
//! until none is left, so together they post every tile, and by `count` the posts reach the wait values. Since every
//! started CTA ends, every place is released and the later stages start.
//!
//! *Without it*, the scheduler may place the CTAs of any stage before those of its producers. If the reachable states
//! are few, all of them are explored; otherwise a sufficient condition is tested, which is proved in
//! `docs/progress.md`. A rejection shows the placement that hangs.
//!
//! *In a chain kernel* (`fused`), all workers are resident from the start: there are at most as many as the device can
//! hold clusters of that size. So nothing competes for places, and only the order of the items matters. An item ends
//! once its waits are satisfied and its worker has ended all earlier items: a worker's load ring is first in, first
//! out, and its posts are made by a warp that waits for nothing else. (The CTAs of one worker form a unit: they load
//! for each other, so each advances only as far as all do.)
//!
//! * *Static lists* are executed here, without time: a worker advances whenever the posts and flags that its next item
//!   waits for have been made by ended items. An item that ends here ends on the device under any timing, because
//!   items only make waits true, never false: if an execution stopped earlier, all needs of its first unfinished item
//!   in this run would be met. If the run deadlocks, the unfinished lists wait for each other, and the cycle is the
//!   counterexample.
//! * *Drawn items*: tickets come in sequence order, so all items before a drawn one have been drawn by resident
//!   workers. If every item needs only earlier items, the first unfinished item of the sequence has all it needs, and
//!   its worker has ended everything it drew before, so it ends. If it has not been drawn, no later item has, so some
//!   worker is about to draw it. The test is the same run, with the sequence as the single list of one worker.
//! * *The workers of a decode kernel* are CTAs with static lists: each has its share of one stage after another.
//!   Several warps bring the activations. They run ahead into the next stage but hold nothing that the end of the
//!   current stage needs, and a share is posted before its worker's next item can end. Attention tiles are distributed
//!   on the device, by sequence lengths, so the lists executed here are one case of many. The other cases end too:
//!   every list follows the stage order, no matter which worker has which tile, and a tile waits only for earlier
//!   stages; workers with parts of the same tile do not wait for each other, since the last to arrive finishes the
//!   tile. So once all items of earlier stages have ended, all items of a stage end.
//! * *Deferred posts*, which are held back until the worker's next item is under way, count as made only then.
//!
//! This rests on a premise of the launch: no other kernel takes the SMs forever. The next run of the same chain may
//! take SMs early, but only those released by workers of this run at the end of their lists; the remaining workers
//! stay resident.
//!
//! *Chain kernels that run one stage each*, one after another, are checked twice: each as the chain kernel of a graph
//! with only its stage, and all of them as consecutive kernels. A launch waits for other launches only to end.
//!
//! *On the `cpu` executor*, workers draw from one list in launch order. The first unfinished tile of the list waits
//! only for earlier tiles, which are finished, so it can run.
//!
//! ```
//! use cusync_gen::check::{Candidate, How, check};
//! use cusync_gen::{device::Profile, graph::gemm_chain, sync::Policy};
//!
//! let graph = gemm_chain("chain", 256, &[512, 512, 512]).graph(&[(128, 128, 64); 2])?;
//! let h200 = Profile::named("h200").expect("it ships");
//! let mut candidate = Candidate::new(graph, h200.clone(), How::Programmatic);
//! assert!(check(candidate.clone()).is_ok_and(|plan| *plan.edges()[0].policy() == Policy::Row));
//! // Without edges, no tile waits.
//! candidate.edges.clear();
//! assert!(check(candidate).is_err());
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

mod axiom;
mod candidate;
mod certificate;
mod decode;
#[cfg(feature = "fault-injection")]
pub mod fault;
mod generated;
mod launch;
mod ledger;
mod obligations;
mod parts;
mod plan;
mod program;
mod report;

pub use crate::executor::Executor;
pub use crate::graph::EdgeNumbers;
pub use axiom::Axiom;
pub use candidate::{
    CacheContract, Candidate, Choice, EdgeChoice, EpochSource, ExchangeContract, KernelContract, Prediction,
    SlabContract, StoreCompletion,
};
pub use certificate::certificate;
pub use generated::Generated;
pub use launch::{CtaResources, How, Launch, StageKernel, StageLaunch, StartGuarantee};
pub use ledger::{Ledger, NumberedItem};
pub use parts::Place;
pub use plan::{EdgePlan, Plan};
pub use program::{Event, Exchange, Strands, TileProgram, slice_k_blocks};
pub use report::{Obligation, Refutation, Report, Subject};

/// Judges the program that this project's kernels run for a candidate.
pub fn judge(candidate: &Candidate) -> Report {
    if let Some(report) = well_formed(candidate) {
        return report;
    }
    if let Some(refutation) = candidate.launch.shares().and_then(|d| decode::unfollowed(candidate, d)) {
        return Report { refutations: vec![refutation], complete: false };
    }
    judge_well_formed(candidate, &Generated::new(candidate))
}

/// Reorders a schedule's items so that each comes after everything it waits for under the candidate's policies, and
/// reorders every list to match. Schedules are built for the tiles that are read, but a policy coarser than one slot
/// per tile waits for more. If no such order exists, the candidate is unchanged and [`check`] rejects it.
pub fn linearise(candidate: &mut Candidate) {
    if obligations::well_formed(candidate).is_some() {
        return;
    }
    let order = obligations::linear_extension(candidate, &Generated::new(candidate));
    let (Some(order), Some(schedule)) = (order, candidate.launch.lists_mut()) else { return };
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, item)| place[*item as usize] = at as u32);
    schedule.sequence = order.iter().map(|item| schedule.sequence[*item as usize]).collect();
    for list in &mut schedule.lists {
        list.iter_mut().for_each(|item| *item = place[*item as usize]);
        list.sort_unstable();
    }
}

fn well_formed(candidate: &Candidate) -> Option<Report> {
    // Nothing else can be evaluated if arrays have the wrong length or a schedule misses a tile.
    let refutation = obligations::well_formed(candidate)?;
    Some(Report { refutations: vec![refutation], complete: false })
}

/// Judges any tile program for a candidate's graph, orders and launch.
pub fn judge_program(candidate: &Candidate, program: &dyn TileProgram) -> Report {
    if let Some(report) = well_formed(candidate) {
        return report;
    }
    judge_well_formed(candidate, program)
}

fn judge_well_formed(candidate: &Candidate, program: &dyn TileProgram) -> Report {
    let scan = obligations::Scan::new(candidate, program);
    let of_all = |o: &Obligation| obligations::judge(*o, candidate, program, &scan);
    let mut report =
        Report { refutations: Obligation::ALL.iter().filter_map(of_all).collect(), complete: true };
    for (stage, alone) in candidate.alone() {
        report.add(stage, judge(&alone));
    }
    report
}

/// Proves a candidate.
///
/// # Errors
/// The first failed obligation, with its counterexample.
pub fn check(candidate: Candidate) -> Result<Plan, Refutation> {
    if let Some(refutation) = judge(&candidate).refutations.into_iter().next() {
        return Err(refutation);
    }
    Ok(assemble(candidate))
}

/// The plan of a judged candidate.
fn assemble(candidate: Candidate) -> Plan {
    let numbers = candidate.edge_numbers();
    let Candidate { graph, device, launch, edges, choices, predicted, contract: _ } = candidate;
    let edge = |((dependence, choice), numbers): ((&crate::graph::Dependence, EdgeChoice), EdgeNumbers)| {
        EdgePlan { dependence: dependence.clone(), policy: choice.policy, numbers }
    };
    let edges = graph.dependences.iter().zip(edges).zip(numbers).map(edge).collect();
    Plan { graph, device, launch, edges, choices, predicted }
}
