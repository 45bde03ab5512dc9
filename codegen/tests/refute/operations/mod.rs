//! Plans of each operation: what its tiles wait for, that they are proved under every policy, and mutants that omit a
//! halo, a head, tiles of K or V, or a tile of a row, of a group or of scores.

mod attention;
mod convolutions;
mod experts;
mod images;
mod norms;

use crate::changed::{each, only};
use cusync_gen::check::{
    Candidate, EdgeChoice, Event, Executor, Generated, How, Obligation, Report, StageKernel, TileProgram,
    check, judge,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Footprint, Graph, StageId};
use cusync_gen::simulate::{predict, simulate_serial};
use cusync_gen::spec;
use cusync_gen::sync::{Policy, Tile, WaitAt};

/// Rows, columns and the depth of a k-block.
type Mma = (u32, u32, u32);

fn graph(source: &str, tiles: &[Mma]) -> Graph {
    let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[]));
    let resolved = resolved.unwrap_or_else(|d| panic!("{}", d.render(source, "test", false)));
    resolved.graph(tiles).unwrap_or_else(|d| panic!("{}", d.render(source, "test", false)))
}

fn device() -> &'static Profile {
    Profile::named("h200").expect("shipped")
}

pub(crate) fn candidate(graph: Graph, policy: &Policy, wait_at: WaitAt) -> Candidate {
    let mut c = Candidate::new(graph, device().clone(), How::STREAMS);
    c.edges = vec![EdgeChoice { policy: policy.clone(), wait_at }; c.edges.len()];
    c
}

/// One slot for each tile, awaited where a k-block needs it.
pub(crate) fn by_tile(graph: Graph) -> Candidate {
    candidate(graph, &Policy::Tile, WaitAt::PerKBlock)
}

const EVERYWHERE: [WaitAt; 2] = [WaitAt::PerKBlock, WaitAt::Start];

/// The graph is proved and predicted under each of these policies, with waits at either place.
#[track_caller]
pub(crate) fn proved(graph: &Graph, policies: &[Policy], label: &str) {
    for (policy, wait_at) in policies.iter().flat_map(|p| EVERYWHERE.map(|at| (p, at))) {
        let c = candidate(graph.clone(), policy, wait_at);
        assert_eq!(judge(&c).refutations, [], "{label} {policy:?} {wait_at:?}");
        let predicted = predict(&c);
        assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
        assert_eq!(check(c).expect("proved").edges().len(), graph.dependences.len());
    }
}

/// Waits of one tile: edge, k-block and slot.
pub(crate) fn waits_of_edges(c: &Candidate, stage: usize, tile: Tile) -> Vec<(usize, u32, u32)> {
    let (mut list, mut pending) = (Vec::new(), Vec::new());
    Generated::new(c).events(StageId(stage), tile, 0, &mut |event| match event {
        Event::Wait { edge, slot, .. } => pending.push((edge, slot)),
        Event::Load { k_block, .. } => {
            list.extend(pending.drain(..).map(|(edge, slot)| (edge, k_block, slot)));
        }
        _ => {}
    });
    list
}

/// Waits of one tile: k-block and slot.
fn waits(c: &Candidate, stage: usize, tile: Tile) -> Vec<(u32, u32)> {
    waits_of_edges(c, stage, tile).into_iter().map(|(_, k_block, slot)| (k_block, slot)).collect()
}

/// Judges the plan without its waits for some slots of some edges.
fn without(c: &Candidate, drop: impl Fn(usize, u32) -> bool) -> Report {
    each(c, |_, _, event| match event {
        Event::Wait { edge, slot, .. } if drop(edge, slot) => None,
        other => Some(other),
    })
}

/// Without the waits for any one of these slots of an edge, the plan is refuted in these words.
#[track_caller]
pub(crate) fn each_slot_counts(
    c: &Candidate,
    edge: usize,
    slots: impl IntoIterator<Item = u32>,
    says: &[&str],
) {
    for slot in slots {
        only(&without(c, |e, s| (e, s) == (edge, slot)), Obligation::Cover, says);
    }
}

/// A plan whose operand waits for a different box than it reads is refuted in these words.
#[track_caller]
fn refuted(c: &Candidate, says: &[&str]) {
    only(&judge(c), Obligation::Cover, says);
    assert!(check(c.clone()).is_err());
}

/// The plan is refuted in these words after each of these changes to the box that an operand of a stage waits for.
#[track_caller]
fn boxes_refuted(
    c: &Candidate,
    (stage, operand): (usize, usize),
    changes: &[fn(&mut Footprint)],
    says: &[&str],
) {
    for change in changes {
        let mut wrong = c.clone();
        change(&mut wrong.graph.stages[stage].operands[operand].footprint);
        refuted(&wrong, says);
    }
}

/// A shipped pipeline as it is chosen and proved for an executor, and the time of a stage by itself, in us. In these
/// tiles it is refused with these words.
#[track_caller]
fn chosen(source: &str, executor: Executor, stage: usize, tiles: &[Mma], refusal: &str) -> (Candidate, f64) {
    let resolved = spec::parse(source, "p").and_then(|s| s.resolve(&[])).expect("sound");
    let refused = resolved.graph(tiles).expect_err("no tile of the stage");
    assert!(refused.message.contains(refusal), "{}", refused.message);
    let c = choose::candidate(&resolved, device(), executor).expect("a choice");
    assert_eq!(judge(&c).refutations, []);
    let (begin, end) = simulate_serial(&c).stages[stage];
    (c, end - begin)
}

#[track_caller]
fn launched_alone(c: &Candidate, stage: usize) {
    assert_eq!(c.launch.kernels()[stage].kernel, StageKernel::Alone);
}

/// A stage takes at least as long as memory needs for so many elements of two bytes, and at most this much longer.
#[track_caller]
fn limited_by_memory(alone_us: f64, elements: f64, most_us: impl Fn(f64) -> f64) {
    let least_us = 2.0 * elements / (device().read_tbs * 1e6);
    assert!(alone_us >= least_us && alone_us < most_us(least_us), "{alone_us}, {least_us}");
}
