//! Edges on which tiles, not kernels, should wait for each other.

use super::costs::Costs;
use super::dependence::{Dependences, Edge};
use super::distribute::Distribution;
use super::program::{Kernel, Node, Program};

/// An edge of the reduction that tile synchronisation makes faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileEdge {
    /// The dependence.
    pub edge: Edge,
    /// What the model expects to gain, microseconds.
    pub gain_us: f64,
}

/// The edges whose ends are stages of one pipeline and stand next to each other on a stream, where what tiles gain (the
/// kernel boundary, and the SMs that idle in the producer's last wave) is more than their waits cost. The producer waits for
/// nothing else of the consumer's, so that its CTAs are resident when the consumer's are.
pub fn tile_edges(
    program: &Program,
    dependences: &Dependences,
    plan: &Distribution,
    costs: &Costs,
) -> Vec<TileEdge> {
    let mut into = vec![0; program.nodes().len()];
    dependences.reduced_edges().for_each(|e| into[e.after.index()] += 1);
    let mut follows = vec![None; program.nodes().len()];
    let mut last = vec![None; plan.streams()];
    for id in &plan.order {
        follows[id.index()] = last[plan.stream[id.index()] as usize].replace(*id);
    }
    let found = dependences.reduced_edges().filter_map(|&edge| {
        let (from, to) = (program.node(edge.before), program.node(edge.after));
        let neighbours = follows[edge.after.index()] == Some(edge.before) && into[edge.after.index()] == 1;
        let (producer, consumer) = (from.kernel()?, to.kernel()?);
        let (a, b) = (producer.stage.as_ref()?, consumer.stage.as_ref()?);
        let coupled = a.pipeline == b.pipeline && a.stage != b.stage && edge.hazards.read_after_write;
        let gain_us = gain(from, producer, to, consumer, costs);
        (neighbours && coupled && gain_us > 0.0).then_some(TileEdge { edge, gain_us })
    });
    found.collect()
}

fn waves(kernel: &Kernel, costs: &Costs) -> f64 {
    kernel.launch.ctas() as f64 / (f64::from(costs.sms) * f64::from(kernel.ctas_per_sm))
}

fn gain(from: &Node, producer: &Kernel, to: &Node, consumer: &Kernel, costs: &Costs) -> f64 {
    let before = waves(producer, costs);
    // SMs that are idle in the last wave, for as long as that wave takes, as time of the whole device.
    let idle_us = from.us * (before.ceil() - before) / before.ceil();
    let waits_us = costs.handoff_us + costs.tile_wait_us * waves(consumer, costs).ceil();
    costs.graph_edge_us + idle_us.min(to.us) - waits_us
}
