//! Workspaces: scratch memory of opaque nodes, which each of them overwrites.

use super::error::Unproved;
use super::lists::SharedLists;
use super::matching::Matching;
use super::order::NodeOrder;
use super::program::{NodeId, Program};

/// Earlier opaque nodes that one may follow in a workspace: with more, the fewest workspaces are not guaranteed, but
/// the lists of thousands of nodes stay small.
const MOST_BEFORE: usize = 1024;

/// The workspace of each opaque node. The plan orders all nodes of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workspaces {
    of_node: Vec<Option<usize>>,
    bytes: Vec<u64>,
}

impl Workspaces {
    /// The number of a node's workspace; `None` for kernels and copies.
    pub fn of_node(&self, node: usize) -> Option<usize> {
        self.of_node.get(node).copied().flatten()
    }

    /// Bytes of each workspace: the most that one of its nodes needs.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Judges workspaces: every opaque node has one, no other node has, and the nodes of each are ordered.
    pub(super) fn proved(
        program: &Program,
        order: NodeOrder<'_>,
        of_node: Vec<Option<usize>>,
    ) -> Result<Workspaces, Unproved> {
        let mut bytes = Vec::new();
        let mut last: Vec<Option<usize>> = Vec::new();
        for node in order.sequence() {
            let workspace = of_node.get(node).copied().flatten();
            match (needed(program, node), workspace) {
                (None, None) => {}
                (Some(_), None) => return Err(Unproved::node(node, "is opaque and has no workspace")),
                (None, Some(_)) => return Err(Unproved::node(node, "has a workspace and is not opaque")),
                (Some(_), Some(workspace)) if workspace >= order.place.len() => {
                    return Err(Unproved::node(
                        node,
                        "has a workspace with a number past those of all nodes",
                    ));
                }
                (Some(need), Some(workspace)) => {
                    if last.len() <= workspace {
                        last.resize(workspace + 1, None);
                        bytes.resize(workspace + 1, 0);
                    }
                    // An order is transitive, so neighbors are enough.
                    if let Some(before) = last[workspace].replace(node)
                        && !order.before(before, node)
                    {
                        return Err(Unproved::Workspace { nodes: [before.into(), node.into()], workspace });
                    }
                    bytes[workspace] = bytes[workspace].max(need);
                }
            }
        }
        Ok(Workspaces { of_node, bytes })
    }
}

/// The fewest workspaces with which the nodes of each are ordered: a workspace is a chain of nodes, and a maximum
/// matching of nodes with later ones leaves the fewest chains.
pub(super) fn fewest(program: &Program, order: NodeOrder<'_>) -> Vec<Option<usize>> {
    let mut opaque = order.sequence();
    opaque.retain(|&node| needed(program, node).is_some());
    let mut before = SharedLists::new(opaque.len());
    for (at, &node) in opaque.iter().enumerate() {
        let ordered = |&other: &usize| order.before(opaque[other], node);
        let latest = (0..at).rev().filter(ordered).map(|other| other as u32).take(MOST_BEFORE);
        before.set(at, &latest.collect::<Vec<u32>>());
    }
    let mut chains = Matching::new(opaque.len());
    chains.complete(&before);
    let (mut found, mut count) = (vec![None; order.place.len()], 0);
    for (at, &node) in opaque.iter().enumerate() {
        found[node] = match chains.previous[at] {
            Some(previous) => found[opaque[previous]],
            None => {
                count += 1;
                Some(count - 1)
            }
        };
    }
    found
}

/// Bytes of workspace that an opaque node needs.
fn needed(program: &Program, node: usize) -> Option<u64> {
    program.node(NodeId::from(node)).kernel().and_then(|kernel| kernel.workspace)
}
