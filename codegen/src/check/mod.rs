//! Proof obligations over a candidate, and the only constructor of [`Plan`].
//!
//! For the `fused` executor the tiles' programs follow a [`crate::schedule::Schedule`]: a tile is cut into the parts that
//! its items compute, each part waits for itself, and one finishes the tile. In a cluster, CTA `(i, j)` loads slice `j` of
//! the rows of operand A for all CTAs of its row, and slice `i` of the columns of operand B for all of its column; it must
//! have waited for what it loads, whoever needs it. A CTA whose tile lies outside the grid loads its slices all the same.
//!
//! Every obligation is decided by enumeration on the actual grids. What is enumerated is the *tile program*
//! ([`TileProgram`]): the posts, waits and loads of each tile in program order, so that the arithmetic of a policy is
//! judged and never trusted. All posts are looked at, and of tiles that do the same for an edge the first; the head of
//! `obligations/scan.rs` says when that is so, and why nothing is missed.
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
//! *Without it*, the scheduler may place the CTAs of any stages before those of their producers. Where few enough states
//! are reachable all of them are explored; elsewhere a condition suffices whose proof is in `docs/progress.md`. A refusal
//! shows the placement that hangs.
//!
//! *In a chain kernel* (`fused`), all workers are resident from the start: there are at most as many as the device holds
//! clusters of that size at once. So nothing competes for places, and only the order of the items counts. An item ends
//! when its waits are satisfied and its worker has ended the items before it: a worker's load ring is first in, first
//! out, and its posts are made by a warp that waits for nothing else. (A worker of several CTAs is one unit: they load for
//! each other, so each goes only as far as all do.)
//!
//! * *Static lists* are run here, without time: a worker goes on whenever the posts and flags that its next item waits for
//!   have been made by items that have ended. What ends here ends on the device in any timing, because items only ever
//!   make more waits true, and none false: an execution that stood still earlier would have some first item of this
//!   run unfinished, all of whose needs are met. When the run stands still, the unfinished lists wait for each other, and
//!   the cycle is the counterexample.
//! * *Drawn items*: tickets come in the order of the sequence, so the items before a drawn one have been drawn, all by
//!   resident workers. If every item needs only items before it, the first unfinished item of the sequence has all it
//!   needs, and its worker has ended all that it drew before it, so it ends. If it has not been drawn, no later one has,
//!   so some worker is about to draw it. The test is the same run, of the sequence as the one list of one worker.
//! * *The workers of a decode kernel* are CTAs with static lists: each has its share of one stage after the other. Several
//!   warps bring the activations; they run ahead into the next stage, hold nothing that the end of this one needs, and the
//!   post of a share is made before its worker's next item can end. Tiles of an attention are shared out on the device, by the
//!   lengths of its sequences, so the lists that are run here are one case of many. The others end too: every list is in the order
//!   of the stages, whoever has which tile, and a tile waits for stages before its own only; of the workers that have parts of a
//!   tile none waits for another, for the last to come ends it. So when all items of the stages before have ended, all of a
//!   stage do.
//! * *Posts that are held back* until the next item of the worker is under way count as made only then.
//!
//! The premise is the launch's: that no other kernel takes the SMs for ever. The next run of the same chain may take SMs
//! early, but only those that workers of this one have given back, whose lists have ended; the workers that remain are
//! resident.
//!
//! *Chain kernels that run a stage each*, one after the other, are judged twice: each as the chain kernel of a graph that has its
//! stage alone, and all of them as kernels that follow each other. No launch waits for what another does, but for its end.
//!
//! *On the `cpu` executor*, workers draw from one list in launch order; the tile that is first in the list among the
//! unfinished ones waits for earlier tiles only, which are finished, so it can run.
//!
//! ```
//! use cusync_gen::check::{Candidate, How, check};
//! use cusync_gen::{device::Profile, graph::gemm_chain, sync::Policy};
//!
//! let graph = gemm_chain("chain", 256, &[512, 512, 512]).graph(&[(128, 128, 64); 2])?;
//! let h200 = Profile::named("h200").expect("it ships");
//! let mut candidate = Candidate::new(graph, h200.clone(), How::Programmatic);
//! assert!(check(candidate.clone()).is_ok_and(|plan| *plan.edges()[0].policy() == Policy::Row));
//! // Nobody would wait.
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
mod numbers;
mod obligations;
mod parts;
mod plan;
mod program;
mod report;

pub use crate::executor::Executor;
pub use axiom::Axiom;
pub use candidate::{
    CacheContract, Candidate, EpochSource, KernelContract, Prediction, SlabContract, StoreCompletion,
};
pub use certificate::certificate;
pub use generated::Generated;
pub use launch::{CtaResources, How, Launch, StageLaunch, StartGuarantee};
pub use ledger::{Ledger, NumberedItem};
pub use numbers::EdgeNumbers;
pub use parts::Place;
pub use plan::{Choice, EdgeChoice, EdgePlan, Plan};
pub use program::{Event, Strands, TileProgram, slice_k_blocks};
pub use report::{Obligation, Refutation, Report, Subject};

/// Judges the program that the project's kernels run for a candidate.
pub fn judge(candidate: &Candidate) -> Report {
    if let Some(report) = well_formed(candidate) {
        return report;
    }
    if let Some(refutation) = candidate.launch.shares().and_then(|d| decode::unfollowed(candidate, d)) {
        return Report { refutations: vec![refutation], complete: false };
    }
    judge_well_formed(candidate, &Generated::new(candidate))
}

/// Puts a schedule's items into an order in which each comes after all that it waits for under the candidate's policies,
/// and every list into the same order. A schedule is built for the tiles that are read; a policy coarser than a slot a tile
/// waits for more. Nothing changes where there is no such order, which [`check`] then refutes.
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
    // Nothing else can be evaluated on arrays of the wrong length, or on a schedule that misses a tile.
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
    let scan = obligations::Scan::of(candidate, program);
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
/// The first obligation that does not hold, with its counterexample.
pub fn check(candidate: Candidate) -> Result<Plan, Refutation> {
    if let Some(refutation) = judge(&candidate).refutations.into_iter().next() {
        return Err(refutation);
    }
    Ok(assemble(candidate))
}

/// The plan of a candidate that has been judged.
fn assemble(candidate: Candidate) -> Plan {
    let slots = candidate.slot_maps();
    let Candidate { graph, device, launch, edges, choices, predicted, contract: _ } = candidate;
    let edges = graph
        .dependences
        .iter()
        .zip(edges)
        .zip(slots)
        .map(|((dependence, EdgeChoice { policy, wait_at }), slots)| EdgePlan {
            dependence: dependence.clone(),
            policy,
            wait_at,
            slots,
        })
        .collect();
    Plan { graph, device, launch, edges, choices, predicted }
}
