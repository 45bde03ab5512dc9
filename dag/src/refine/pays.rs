//! Whether waiting for tiles pays off.
//!
//! A hand-off through a semaphore takes longer than the hardware's transition from the end of a kernel to the start of
//! the next, so it pays off only if CTAs take different times and depend on few others: then the successors of a short
//! CTA need not wait for the longest. The gain depends on the dependences between CTAs, so paths are compared: the
//! longest path of kernels against the longest path of CTAs, with times drawn between the longest time and the same
//! distance below the mean.

use super::direct::tiles_of;
use super::{NodeSync, RefinedEdge, Refinement};
use crate::dependence::NodeDependence;
use crate::program::{Kernel, NodeId, Program};
use cusync_gen::device::Profile;

/// Reverts refinements that do not pay off. Connected groups of refined nodes and their predecessors are kept or
/// reverted together.
pub(super) fn keep_what_pays(
    program: &Program,
    into: &[Vec<NodeDependence>],
    device: &Profile,
    found: &mut Refinement,
) {
    let group = groups(into, &found.nodes);
    let gains = gains(program, into, device, found, &group);
    for id in program.ids() {
        let sync = &mut found.nodes[id.index()];
        if sync.waits.is_some() && gains[group[id.index()]] <= 0.0 {
            sync.waits = None;
            found.kept.push((id, "the hand-off costs more than there is to gain"));
        }
    }
    let mut sizes = vec![0_u32; group.len()];
    for (id, sync) in program.ids().zip(&found.nodes) {
        let edges = if sync.waits.is_some() { into[id.index()].len() } else { 0 };
        sizes[group[id.index()]] += edges as u32;
    }
    found.edges.clear();
    for id in program.ids().filter(|id| found.nodes[id.index()].waits.is_some()) {
        let own_group = group[id.index()];
        let gain_us = gains[own_group] / f64::from(sizes[own_group].max(1));
        found.edges.extend(into[id.index()].iter().map(|&edge| RefinedEdge { edge, gain_us }));
    }
}

/// The first node of each node's group.
fn groups(into: &[Vec<NodeDependence>], nodes: &[NodeSync]) -> Vec<usize> {
    let mut first: Vec<usize> = (0..nodes.len()).collect();
    fn root(first: &mut [usize], mut node: usize) -> usize {
        while first[node] != node {
            first[node] = first[first[node]];
            node = first[node];
        }
        node
    }
    for edge in into.iter().zip(nodes).filter(|(_, sync)| sync.waits.is_some()).flat_map(|(into, _)| into) {
        let (a, b) = (root(&mut first, edge.before.index()), root(&mut first, edge.after.index()));
        first[a.max(b)] = a.min(b);
    }
    (0..nodes.len()).map(|node| root(&mut first, node)).collect()
}

/// The longest path of kernels minus that of CTAs in each group, microseconds.
fn gains(
    program: &Program,
    into: &[Vec<NodeDependence>],
    device: &Profile,
    found: &Refinement,
    group: &[usize],
) -> Vec<f64> {
    let n = program.nodes().len();
    let (mut by_kernels, mut by_tiles) = (vec![0.0; n], vec![0.0; n]);
    let mut kernel_end = vec![0.0; n];
    let mut tile_end: Vec<Vec<f64>> = vec![Vec::new(); n];
    for id in program.ids() {
        let index = id.index();
        let Some(kernel) = program.node(id).kernel().filter(|kernel| kernel.tiles.is_some()) else {
            continue;
        };
        let waits = &found.nodes[index].waits;
        let before = match waits {
            Some(_) => {
                let ends = into[index].iter().map(|edge| kernel_end[edge.before.index()]);
                ends.fold(0.0, f64::max) + boundary_us(&into[index], device)
            }
            // The first node of its group.
            None => 0.0,
        };
        let ctas = 0..kernel.launch.ctas() as u32;
        kernel_end[index] = before + ctas.clone().map(|cta| cta_us(program, id, cta)).fold(0.0, f64::max);
        let handoff_us =
            device.programs.tile_handoff_us + device.programs.tile_wait_us * later_waves(kernel, device);
        let end = |cta: u32| {
            let waits = waits.iter().filter_map(|waits| waits.get(cta as usize)).flatten();
            let ends = waits.filter_map(|tile| tile_end[tile.node.index()].get(tile.cta as usize));
            ends.map(|end| end + handoff_us).fold(0.0, f64::max) + cta_us(program, id, cta)
        };
        tile_end[index] = ctas.map(end).collect();
        let longest = tile_end[index].iter().copied().fold(0.0, f64::max);
        by_kernels[group[index]] = f64::max(by_kernels[group[index]], kernel_end[index]);
        by_tiles[group[index]] = f64::max(by_tiles[group[index]], longest);
    }
    by_kernels.iter().zip(&by_tiles).map(|(kernels, tiles)| kernels - tiles).collect()
}

/// From the end of the previous kernels to the start of one that has read everything else before it waits.
fn boundary_us(into: &[NodeDependence], device: &Profile) -> f64 {
    let join_us = device.programs.programmatic_join_us - device.programs.programmatic_edge_us;
    device.programs.prologue_edge_us + if into.len() > 1 { join_us.max(0.0) } else { 0.0 }
}

fn later_waves(kernel: &Kernel, device: &Profile) -> f64 {
    let slots = f64::from(device.sms) * f64::from(kernel.ctas_per_sm);
    (kernel.launch.ctas() as f64 / slots).ceil() - 1.0
}

/// A CTA's time: the kernel's minus up to twice its spread. There are eight steps, so that the longest is common: a
/// rarer longest CTA would predict more gain for chains of neighbors than was measured.
fn cta_us(program: &Program, id: NodeId, cta: u32) -> f64 {
    let spread_us = tiles_of(program.node(id)).map_or(0.0, |tiles| tiles.spread_us);
    // The high bits of a multiplicative hash, as a fraction.
    let hash = (u64::from(id.0) << 32 | u64::from(cta)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let share = (hash >> 61) as f64 / 7.0;
    (program.node(id).us - 2.0 * spread_us * share).max(0.0)
}
