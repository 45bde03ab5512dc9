//! Dependences between CTAs: the analysis of kernels ([`crate::analyse`]), CTA by CTA.

use std::collections::BTreeSet;

use super::access::TileAccesses;
use crate::history::{Cta, History, Touched};
use crate::program::{Access, Node, Program};

/// Direct dependences of a node's CTAs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Direct {
    /// The sorted dependences of each CTA.
    Ctas(Vec<Vec<Cta>>),
    /// Some CTA depends on more than `most` others.
    Crowded,
}

pub(super) fn tiles_of(node: &Node) -> Option<&TileAccesses> {
    node.kernel().and_then(|kernel| kernel.tiles.as_ref())
}

/// Number of distinguished CTAs.
pub(super) fn count(node: &Node) -> u32 {
    match (node.kernel(), tiles_of(node)) {
        (Some(kernel), Some(_)) => kernel.launch.ctas() as u32,
        _ => 1,
    }
}

fn touched(node: &Node, cta: u32) -> Vec<Touched> {
    match tiles_of(node) {
        Some(tiles) => tiles.touched(&node.accesses, cta).collect(),
        None => node.accesses.iter().map(Access::touched).collect(),
    }
}

/// The direct dependences of every node's CTAs.
pub(super) fn direct(program: &Program, most: usize) -> Vec<Direct> {
    let mut history = History::new(program);
    let mut all = Vec::with_capacity(program.nodes().len());
    for (id, node) in program.ids().zip(program.nodes()) {
        let touched: Vec<_> = (0..count(node)).map(|cta| touched(node, cta)).collect();
        let mut found = Some(Vec::with_capacity(touched.len()));
        for touched in &touched {
            let mut before = BTreeSet::new();
            let few = history.conflicts(touched, |run, _| {
                before.extend(run.ctas().take(most.saturating_add(1)));
                before.len() <= most
            });
            match &mut found {
                Some(list) if few => list.push(before.into_iter().collect()),
                _ => {
                    found = None;
                    break;
                }
            }
        }
        all.push(found.map_or(Direct::Crowded, Direct::Ctas));
        history.record(id, &touched);
    }
    all
}
