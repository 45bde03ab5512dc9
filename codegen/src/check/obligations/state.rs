//! Across runs, a row is written and then read, as long as a run sees the rows appended by earlier runs.

use crate::check::{Candidate, Obligation, Refutation, Subject};
use crate::graph::{StageId, Tensor, TensorId};

/// A stage that appends, and the first tensor it appends to.
fn appends(c: &Candidate) -> Option<(StageId, &Tensor)> {
    c.graph.stages.iter().enumerate().find_map(|(s, stage)| {
        let operand = stage.operands.iter().find(|o| o.kind.is_state())?;
        Some((StageId(s), &c.graph.tensors[operand.tensor.0]))
    })
}

fn name(c: &Candidate, stage: StageId) -> &str {
    &c.graph.stages[stage.0].name
}

/// Rows appended in a run are not read in that run, and only one stage writes them.
pub(super) fn reuse(c: &Candidate) -> Option<Refutation> {
    let graph = &c.graph;
    let uses = |t: TensorId| {
        let readers = |(s, stage): (usize, &crate::graph::Stage)| {
            stage.operands.iter().filter(|o| o.tensor == t).map(|o| (StageId(s), o.kind)).collect::<Vec<_>>()
        };
        graph.stages.iter().enumerate().flat_map(readers).collect::<Vec<_>>()
    };
    for (t, tensor) in graph.tensors.iter().enumerate() {
        let used = uses(TensorId(t));
        let Some((owner, _)) = used.iter().find(|(_, kind)| kind.is_state()) else { continue };
        let refute =
            |subject, message: String, fact: &str| {
                Some(Refutation::new(Obligation::Reuse, subject, message).fact(fact).help(
                    "give every cache to one attention, as its keys or its values, and memory of its own",
                ))
            };
        if let Some((other, _)) = used.iter().find(|u| *u != &used[0]).or(used.get(1)) {
            let message = format!(
                "`{}` may read `{}` while `{}` appends to it",
                name(c, *other),
                tensor.name,
                name(c, *owner)
            );
            return refute(
                Subject::Stage(*other),
                message,
                "nothing orders the two: a cache has no semaphores",
            );
        }
        let shares = |(u, other): &(usize, &Tensor)| {
            *u != t && (other.alias == Some(TensorId(t)) || tensor.alias == Some(TensorId(*u)))
        };
        if let Some((_, other)) = graph.tensors.iter().enumerate().find(shares) {
            let other = &other.name;
            let message = format!("`{other}` takes the memory of the cache `{}`", tensor.name);
            return refute(Subject::Stage(*owner), message, "what runs have appended would be lost");
        }
        if let Some(writer) = tensor.producer {
            let message =
                format!("`{}` writes the cache `{}` of `{}`", name(c, writer), tensor.name, name(c, *owner));
            return refute(Subject::Stage(writer), message, "what runs have appended would be lost");
        }
    }
    let (stage, tensor) = appends(c)?;
    (!c.contract.cache.new_from_run).then(|| {
        Refutation::new(
            Obligation::Reuse,
            Subject::Stage(stage),
            format!(
                "`{}` may read the row of `{}` that it appends before it is there",
                name(c, stage),
                tensor.name
            ),
        )
        .fact("the tile that appends a row and the threads that load it from the cache have no order")
        .help("take the new token's keys and values from what the run computes")
    })
}

/// A replayed run reads the current lengths and counts parts from zero.
pub(super) fn replay(c: &Candidate) -> Option<Refutation> {
    let (stage, tensor) = appends(c)?;
    let refute = |message: String| Refutation::new(Obligation::Replay, Subject::Stage(stage), message);
    if !c.contract.cache.lengths_each_run && c.contract.graph_replay {
        return Some(
            refute(format!("the lengths of `{}` are fixed when a graph is captured", name(c, stage)))
                .fact(format!("the second replay appends to the same rows of `{}` again", tensor.name))
                .help("read lengths and pages from device memory in every run"),
        );
    }
    if c.launch.shares().is_some() && !c.contract.cache.parts_recounted {
        return Some(
            refute(format!("the parts of the tiles of `{}` are counted on from run to run", name(c, stage)))
                .fact("how many parts a tile has depends on the lengths, so another run waits for another count")
                .help("let whoever ends a tile set its count back"),
        );
    }
    None
}

/// A run sees the rows appended by earlier runs, and the worker that finishes a tile sees all of its parts.
pub(super) fn visible(c: &Candidate) -> Option<Refutation> {
    let (stage, tensor) = appends(c)?;
    let refute = |message: String| Refutation::new(Obligation::Visible, Subject::Stage(stage), message);
    let overlaps = c.contract.overlap && !(c.contract.cache.reads_wait && c.contract.dependency_wait);
    if overlaps || !c.contract.full_run_boundary {
        return Some(
            refute(format!(
                "a run may read the last row of `{}` before the run before it has appended that row",
                tensor.name
            ))
            .fact(if overlaps {
                "it is launched before that run has ended, and streams the cache without waiting for that end"
            } else {
                "nothing orders a run behind the one before it"
            })
            .help("load tiles of a cache, lengths and pages behind `griddepcontrol.wait`"),
        );
    }
    (c.launch.shares().is_some() && !c.contract.cache.parts_ordered).then(|| {
        refute(format!("whoever ends a tile of `{}` may add a part that is not there yet", name(c, stage)))
            .fact("the count that says so is no acquire and release, or runs ahead of the stores of a part")
            .help("count parts by an `atom.acq_rel.gpu` behind a barrier over the threads that store them")
    })
}
