//! The tile shape and the clusters of a chain, by predicted time.

use super::{Mode, Problem, Request, Schedule, build};
use crate::device::{CostModel, Device, FUSED_KERNELS, FusedKernel};
use crate::graph::Graph;

/// What is wanted of [`choose`].
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The device: its SMs and architecture.
    pub device: &'a Device,
    /// See [`Request::mode`].
    pub mode: Mode,
    /// See [`Request::splits`].
    pub splits: bool,
    /// See [`Request::cost`].
    pub cost: &'a CostModel,
}

/// A kernel with the graph of its tiles and the best schedule found for it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The kernel.
    pub kernel: FusedKernel,
    /// The graph that [`Chosen::schedule`] is of.
    pub graph: Graph,
    /// Its schedule.
    pub schedule: Schedule,
    /// Every kernel that was scheduled, with its predicted microseconds, best first.
    pub tried: Vec<(FusedKernel, f64)>,
}

/// The kernel among [`FUSED_KERNELS`] with the shortest predicted schedule. `graph` makes the graph for one tile shape of
/// all stages, or `None` where the shape cannot be had, such as where the spec states another. `None` when no kernel is
/// left.
pub fn choose(wanted: &Wanted, mut graph: impl FnMut((u32, u32, u32)) -> Option<Graph>) -> Option<Chosen> {
    if wanted.device.arch != 90 {
        return None;
    }
    let mut candidates = Vec::new();
    for &kernel in FUSED_KERNELS {
        let Some(graph) = graph(kernel.tile) else { continue };
        let request = Request {
            workers: wanted.device.sms / (kernel.cluster.0 * kernel.cluster.1),
            cluster: kernel.cluster,
            mode: wanted.mode,
            splits: wanted.splits,
            cost: wanted.cost,
        };
        let floor_us = Problem::new(&graph, &request).floor_us();
        candidates.push((floor_us, kernel, graph, request));
    }
    // The likeliest first: those whose floor is above the best schedule need none of their own.
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut tried = Vec::new();
    let mut best: Option<(FusedKernel, Graph, Schedule)> = None;
    for (floor_us, kernel, graph, request) in candidates {
        if best.as_ref().is_some_and(|(.., schedule)| schedule.predicted_us <= floor_us) {
            break;
        }
        let schedule = build(&graph, &request);
        tried.push((kernel, schedule.predicted_us));
        if best.as_ref().is_none_or(|(.., other)| schedule.predicted_us < other.predicted_us) {
            best = Some((kernel, graph, schedule));
        }
    }
    tried.sort_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(kernel, graph, schedule)| Chosen { kernel, graph, schedule, tried })
}
