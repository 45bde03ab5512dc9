//! `acyclic` and `progress`: see the argument at the head of [`crate::check`].

use super::has_semaphores;
use crate::check::{Candidate, Executor, Obligation, Refutation, StartGuarantee, Subject};
use crate::graph::StageId;

/// No stage waits, through others, for itself. Tiles of one stage never wait for each other, and a stage's CTAs draw
/// tiles in one order, so a cycle of tiles would be a cycle of stages.
pub(super) fn acyclic(c: &Candidate) -> Option<Refutation> {
    (0..c.graph.stages.len()).map(StageId).find_map(|start| {
        let mut path = vec![start];
        cycle(c, start, &mut path).then(|| {
            let names: Vec<&str> = path.iter().map(|s| c.graph.stages[s.0].name.as_str()).collect();
            Refutation::new(
                Obligation::Acyclic,
                Subject::Stage(start),
                format!("`{}` waits for itself", c.graph.stages[start.0].name),
            )
            .fact(format!("through {}", names.join(" <- ")))
            .help("remove one of these dependences")
        })
    })
}

/// Whether `path`, extended along producers, comes back to its first stage; leaves the cycle in `path`.
fn cycle(c: &Candidate, from: StageId, path: &mut Vec<StageId>) -> bool {
    for d in c.graph.dependences.iter().filter(|d| d.consumer == from) {
        if d.producer == path[0] {
            path.push(d.producer);
            return true;
        }
        if path.contains(&d.producer) {
            continue;
        }
        path.push(d.producer);
        if cycle(c, d.producer, path) {
            return true;
        }
        path.pop();
    }
    false
}

/// Some CTA that can run always holds, or will be given, an SM.
pub(super) fn progress(c: &Candidate) -> Option<Refutation> {
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    if let Some(missing) =
        (0..c.graph.stages.len()).map(StageId).find(|s| c.launch_position(*s) == usize::MAX)
    {
        return Some(Refutation::new(
            Obligation::Progress,
            Subject::Stage(missing),
            format!("`{}` is never launched", name(missing)),
        ));
    }
    // A guarantee speaks of kernels launched before: behind a later launch it promises nothing.
    let late = c
        .graph
        .dependences
        .iter()
        .enumerate()
        .find(|(_, d)| c.launch_position(d.producer) > c.launch_position(d.consumer));
    match c.executor {
        // `cover` judges a serial chain in the wrong order; it cannot hang, having no waits.
        _ if !has_semaphores(c) => None,
        Executor::Serial => None,
        Executor::Cpu => late.map(|(edge, d)| {
            Refutation::new(
                Obligation::Progress,
                Subject::Edge(edge),
                format!("`{}` stands before `{}` in the work list", name(d.consumer), name(d.producer)),
            )
            .fact("a single worker that draws the consumer's tile waits for a tile further down its own list")
            .help("list producers before consumers")
        }),
        // One kernel: its lists are judged instead.
        Executor::Fused => None,
        Executor::Streams | Executor::Programmatic => {
            if c.start == StartGuarantee::AllProducersStarted && late.is_none() {
                return None;
            }
            (0..c.graph.stages.len()).map(StageId).find_map(|producer| starved(c, producer))
        }
    }
}

/// The placement in which the CTAs that wait, through others, for `producer` leave it no SM; `None` when they cannot.
fn starved(c: &Candidate, producer: StageId) -> Option<Refutation> {
    let sms = u64::from(c.device.sms);
    let waiting: Vec<StageId> =
        (0..c.graph.stages.len()).map(StageId).filter(|s| depends(c, *s, producer)).collect();
    // CTAs of a stage that must share an SM before none of the producer's fits beside them, and the SMs that all of
    // them can close that way. Occupancies are per SM, so 1/n of an SM a CTA.
    let per_producer = f64::from(c.ctas_per_sm[producer.0].max(1));
    let closed: u64 = waiting
        .iter()
        .map(|s| {
            let fits = f64::from(c.ctas_per_sm[s.0].max(1));
            let to_close = ((1.0 - 1.0 / per_producer) * fits + 1e-9).floor() as u64 + 1;
            u64::from(ctas(c, *s)).div_ceil(to_close)
        })
        .sum();
    if waiting.is_empty() || closed < sms {
        return None;
    }
    let edge =
        c.graph.dependences.iter().position(|d| d.producer == producer && waiting.contains(&d.consumer))?;
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    let holders: Vec<String> = waiting.iter().map(|s| format!("{} of `{}`", ctas(c, *s), name(*s))).collect();
    let tile = c.orders[waiting[0].0].tile_at(c.graph.stages[waiting[0].0].grid, 0)?;
    Some(
        Refutation::new(
            Obligation::Progress,
            Subject::Edge(edge),
            format!("waiting CTAs can take every SM before `{}` has started", name(producer)),
        )
        .fact(format!("CTAs that wait for `{}`: {}; SMs: {sms}", name(producer), holders.join(", ")))
        .fact(format!(
            "placed first, they close all {sms} SMs; {}({}, {}) spins on {}",
            name(waiting[0]),
            tile.m,
            tile.n,
            c.edge_name(edge)
        ))
        .fact(format!("no CTA of `{}` can then be placed, so nothing posts", name(producer)))
        .help("launch with a start guarantee, producers first, or shrink the consumer below one wave"),
    )
}

/// CTAs of a stage that can exist at once: one a tile and split-K slice.
fn ctas(c: &Candidate, stage: StageId) -> u32 {
    let stage = &c.graph.stages[stage.0];
    stage.tiles() * stage.split_k.max(1)
}

/// Whether `stage` waits for `producer`, directly or through others.
fn depends(c: &Candidate, stage: StageId, producer: StageId) -> bool {
    let mut seen = vec![false; c.graph.stages.len()];
    let mut open = vec![stage];
    while let Some(at) = open.pop() {
        for d in c.graph.dependences.iter().filter(|d| d.consumer == at) {
            if d.producer == producer {
                return true;
            }
            if !std::mem::replace(&mut seen[d.producer.0], true) {
                open.push(d.producer);
            }
        }
    }
    false
}
