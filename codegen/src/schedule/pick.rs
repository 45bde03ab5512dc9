//! The tile shape and the clusters of a chain, by predicted time.

use super::{Hand, Schedule, ScheduleRequest, build};
use crate::device::{ChainKernel, CostModel, Profile};
use crate::graph::Graph;

/// Inputs of [`choose`].
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The device, which determines how many workers fit.
    pub device: &'a Profile,
    /// See [`ScheduleRequest::mode`].
    pub mode: Hand,
    /// See [`ScheduleRequest::splits`].
    pub splits: bool,
    /// See [`ScheduleRequest::cost`].
    pub cost: &'a CostModel,
}

/// A kernel, the graph in its tiles, and the best schedule found.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The kernel.
    pub kernel: ChainKernel,
    /// The graph of [`Chosen::schedule`].
    pub graph: Graph,
    /// Its schedule.
    pub schedule: Schedule,
    /// Every scheduled kernel with its predicted time in microseconds, best first.
    pub tried: Vec<(ChainKernel, f64)>,
}

/// The kernel with the shortest predicted schedule, where split tiles carry a handicap. `graph` makes the graph in a
/// kernel's tiles, or returns `None` if the kernel cannot run it. `None` if no kernel is left.
pub fn choose<'k>(
    wanted: &Wanted,
    kernels: impl IntoIterator<Item = &'k ChainKernel>,
    mut graph: impl FnMut(&ChainKernel) -> Option<Graph>,
) -> Option<Chosen> {
    let mut tried = Vec::new();
    let mut best: Option<(ChainKernel, Graph, Schedule)> = None;
    for &kernel in kernels {
        let Some(graph) = graph(&kernel) else { continue };
        let request = ScheduleRequest {
            workers: wanted.device.resident_clusters(kernel.cluster.0 * kernel.cluster.1),
            cluster: kernel.cluster,
            mode: wanted.mode,
            splits: wanted.splits,
            cost: wanted.cost,
        };
        let schedule = build(&graph, &request);
        tried.push((kernel, schedule.predicted_us));
        let score_us = schedule.score_us(wanted.cost);
        if best.as_ref().is_none_or(|(.., other)| score_us < other.score_us(wanted.cost)) {
            best = Some((kernel, graph, schedule));
        }
    }
    tried.sort_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(kernel, graph, schedule)| Chosen { kernel, graph, schedule, tried })
}
