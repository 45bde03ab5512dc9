//! `reuse`, `replay` and `visible`: overwritten buffers, repeated runs, and fences at both ends of an edge.

use std::ops::Range;

use super::before::Before;
use super::{grid_tiles, tile_name};
use crate::check::{Candidate, EpochSource, Obligation, Refutation, StoreCompletion, Subject, TileProgram};
use crate::graph::{Graph, Stage, StageId, Tensor, TensorId};
use crate::sync::Tile;

/// No tile overwrites a region, in this run or the next, before its last reader is done.
pub(super) fn reuse(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    let early = c.contract.overlap && !c.contract.dependency_wait;
    if (early || !c.contract.full_run_boundary)
        && let Some((edge, d)) = c.graph.dependences.iter().enumerate().next()
    {
        let origin = Tile { m: 0, n: 0 };
        let (writer, reader) = (tile_name(c, d.producer, origin), tile_name(c, d.consumer, origin));
        let tensor = &c.graph.tensors[c.graph.stages[d.producer.0].out.0].name;
        return Some(
            Refutation::new(
                Obligation::Reuse,
                Subject::Edge(edge),
                format!("the next run's {writer} may overwrite `{tensor}` while {reader} still reads it"),
            )
            .fact(if early {
                "a run is launched before the one before it has ended, and stores without waiting for that end"
            } else {
                "runs overlap: nothing orders a producer behind the readers of the run before"
            })
            .help(if early {
                "put every store, and every read of what a run writes, behind `griddepcontrol.wait`"
            } else {
                "end each run before the next begins, or give consecutive runs buffers of their own"
            }),
        );
    }
    let tensors = &c.graph.tensors;
    (0..tensors.len()).map(TensorId).find_map(|t| {
        let writer = tensors[t.0].producer?;
        let sharing =
            (0..tensors.len()).map(TensorId).filter(|u| *u != t && root(&c.graph, *u) == root(&c.graph, t));
        sharing
            .filter(|u| written_before(&c.graph, *u, t))
            .find_map(|old| overwritten_early(c, p, writer, t, old))
    })
}

/// The tensor that owns the memory of this one.
fn root(graph: &Graph, mut tensor: TensorId) -> TensorId {
    // Bounded because a candidate may contain a cycle of aliases.
    for _ in 0..graph.tensors.len() {
        match graph.tensors[tensor.0].alias {
            Some(next) => tensor = next,
            None => break,
        }
    }
    tensor
}

/// Whether `a` is the older of two tensors in the same memory: an input, or the output of an earlier stage.
fn written_before(graph: &Graph, a: TensorId, b: TensorId) -> bool {
    graph.tensors[a.0].producer < graph.tensors[b.0].producer
}

/// A tile of `writer` with an output `new` that overlaps a part of `old` which some tile may still have to read or
/// write.
fn overwritten_early(
    c: &Candidate,
    p: &dyn TileProgram,
    writer: StageId,
    new: TensorId,
    old: TensorId,
) -> Option<Refutation> {
    let graph = &c.graph;
    let (a, b) = (&graph.tensors[new.0], &graph.tensors[old.0]);
    let subject = Subject::Stage(writer);
    if (a.rows, a.cols) != (b.rows, b.cols) {
        return Some(
            Refutation::new(
                Obligation::Reuse,
                subject,
                format!("`{}` takes the memory of `{}` but has another shape", a.name, b.name),
            )
            .fact(format!("{} x {} and {} x {}", a.rows, a.cols, b.rows, b.cols))
            .help("only tensors of the same shape can share memory"),
        );
    }
    let users = graph.stages.iter().enumerate().flat_map(|(s, stage)| {
        let reads = (0..stage.operands.len()).filter(|o| stage.operands[*o].tensor == old).map(Some);
        let write = (stage.out == old).then_some(None);
        reads.chain(write).map(move |operand| (StageId(s), operand))
    });
    let users: Vec<(StageId, Option<usize>)> = users.collect();
    let mut order = c.launch.has_semaphores().then(|| Before::new(c, p));
    let stage = &graph.stages[writer.0];
    let met: Vec<Vec<Vec<Tile>>> =
        users.iter().map(|(u, o)| met_by(stage, &graph.stages[u.0], *o, b)).collect();
    for (number, tile) in grid_tiles(stage).enumerate() {
        for ((user, operand), met) in users.iter().zip(&met) {
            let user_stage = &graph.stages[user.0];
            for &other in &met[number] {
                // A tile may overwrite its own input: it stores after its last load.
                let mut ordered = || match &mut order {
                    Some(order) => order.store((*user, other), (writer, tile), operand.is_none()),
                    None => c.launch.position(*user) < c.launch.position(writer),
                };
                if (*user, other) != (writer, tile) && !ordered() {
                    let (new_tile, old_tile) = (tile_name(c, writer, tile), tile_name(c, *user, other));
                    return Some(
                        Refutation::new(
                            Obligation::Reuse,
                            subject,
                            format!(
                                "{new_tile} may overwrite `{}` before {old_tile} is done with it",
                                b.name
                            ),
                        )
                        .fact(format!("`{}` takes the memory of `{}`", a.name, b.name))
                        .fact(format!("no chain of waits leads from {new_tile} back to {old_tile}"))
                        .help(format!(
                            "give `{}` memory of its own, or make `{}` wait for `{}`",
                            a.name, stage.name, user_stage.name
                        )),
                    );
                }
            }
        }
    }
    None
}

/// For each tile of `writer`, row by row, the tiles of `user` that touch its output, through an operand or, for
/// `None`, by writing it too.
fn met_by(writer: &Stage, user: &Stage, operand: Option<usize>, tensor: &Tensor) -> Vec<Vec<Tile>> {
    let (gm, gn) = writer.grid;
    let mut met = vec![Vec::new(); gm as usize * gn as usize];
    for other in grid_tiles(user) {
        let mut touch = |r: Range<u32>, s: Range<u32>| {
            for tile in writer.writers(&r, &s).filter(|t| t.m < gm && t.n < gn) {
                let met: &mut Vec<Tile> = &mut met[tile.m as usize * gn as usize + tile.n as usize];
                if met.last() != Some(&other) {
                    met.push(other);
                }
            }
        };
        match operand {
            Some(operand) => (0..user.k_blocks_of(other.m).max(1)).for_each(|k| {
                user.reads(operand, tensor, (other.m, other.n), k, &mut touch);
            }),
            None => {
                let (rows, cols) = user.writes(other);
                touch(rows, cols);
            }
        }
    }
    met
}

/// A second run starts from a state equal to that of the first.
pub(super) fn replay(c: &Candidate) -> Option<Refutation> {
    if c.launch.has_semaphores()
        && c.contract.epoch == EpochSource::LaunchParameter
        && c.contract.graph_replay
        && let Some(edge) = first_awaited(c)
    {
        let d = &c.graph.dependences[edge];
        let name = |s: StageId| &c.graph.stages[s.0].name;
        return Some(
            Refutation::new(
                Obligation::Replay,
                Subject::Edge(edge),
                "the run's number is a kernel parameter, which a captured graph repeats",
            )
            .fact(format!(
                "at the second replay `{}` still waits for the first run's values",
                name(d.consumer)
            ))
            .fact(format!(
                "they are already there, so it reads what `{}` wrote the last time",
                name(d.producer)
            ))
            .help("take the epoch from a counter in device memory"),
        );
    }
    if c.launch.lists().is_some_and(|s| s.slabs > 0) && !c.contract.slabs.flag_is_epoch {
        return Some(
            Refutation::new(
                Obligation::Replay,
                Subject::Pipeline,
                "the flag of slab 0 is set by the first run and never cleared",
            )
            .fact("in the second run the finisher finds it set, and adds the first run's sums")
            .help("store the run's number in the flag and compare with it"),
        );
    }
    let tensors = &c.graph.tensors;
    (0..tensors.len()).map(TensorId).find_map(|t| {
        let (writer, input) = (tensors[t.0].producer?, root(&c.graph, t));
        let read = c.graph.stages.iter().any(|s| s.operands.iter().any(|o| o.tensor == input));
        (tensors[input.0].producer.is_none() && input != t && read).then(|| {
            Refutation::new(
                Obligation::Replay,
                Subject::Stage(writer),
                format!(
                    "`{}` overwrites the input `{}`, which the next run reads",
                    tensors[t.0].name, tensors[input.0].name
                ),
            )
            .help("let it take the memory of a tensor that a stage writes, or memory of its own")
        })
    })
}

/// Both ends of an edge, and of a slab, have the memory ordering that their kind of store and load needs.
pub(super) fn visible(c: &Candidate) -> Option<Refutation> {
    if !c.launch.has_semaphores() || !c.launch.on_gpu() {
        return None;
    }
    edge_visible(c).or_else(|| slab_visible(c))
}

/// The first edge with slots. Reads of a decode CTA's own results have none.
fn first_awaited(c: &Candidate) -> Option<usize> {
    c.slot_counts().iter().position(|slots| *slots > 0)
}

fn edge_visible(c: &Candidate) -> Option<Refutation> {
    let edge = first_awaited(c)?;
    let contract = &c.contract;
    let (fault, fact, help) = if contract.stores == StoreCompletion::BulkWaitRead {
        (
            "a post may overtake the bulk store that it announces",
            "`cp.async.bulk.wait_group.read` frees shared memory and says nothing of global memory",
            "wait with `cp.async.bulk.wait_group 0`, without `.read`, in the thread that issued the store",
        )
    } else if !contract.post_releases {
        (
            "a post is no release",
            "the stores before it may become visible after it",
            "post with `red.release.gpu`",
        )
    } else if !contract.wait_acquires {
        (
            "a wait is no acquire",
            "loads after it may have been made before it",
            "look with `ld.acquire.gpu`, the first time too",
        )
    } else if contract.bulk_loads && !contract.proxy_fence {
        (
            "bulk copies may read old data after a wait",
            "the acquire orders ordinary loads; bulk copies go through the async proxy",
            "put `fence.proxy.async` between the acquire and the first bulk copy",
        )
    } else {
        return None;
    };
    Some(Refutation::new(Obligation::Visible, Subject::Edge(edge), fault).fact(fact).help(help))
}

/// Many threads write and read slabs with ordinary accesses; one thread sets the flag and one polls it.
fn slab_visible(c: &Candidate) -> Option<Refutation> {
    c.launch.lists().filter(|s| s.slabs > 0)?;
    let contract = &c.contract.slabs;
    let (fault, fact, help) = if !contract.barrier {
        (
            "a slab's flag may be set before all threads have stored their sums",
            "the thread that sets the flag orders its own stores only",
            "put a barrier over the storing threads before the flag",
        )
    } else if !contract.flag_releases {
        (
            "a slab's flag is no release",
            "the sums stored before it may become visible after it",
            "set the flag with `st.release.gpu`",
        )
    } else if !contract.flag_acquires {
        (
            "the look at a slab's flag is no acquire",
            "the finisher may have loaded the sums before it",
            "look with `ld.acquire.gpu`, then a barrier, then load",
        )
    } else {
        return None;
    };
    Some(Refutation::new(Obligation::Visible, Subject::Pipeline, fault).fact(fact).help(help))
}
