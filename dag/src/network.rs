//! Edges by earlier node, with joins: a join stands for the edges from each of its predecessors to each of its
//! successors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bundles::Bundles;
use super::lists::SharedLists;

/// Nodes, numbered from 0, then joins. No edge connects two joins.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// The number of nodes.
    nodes: usize,
    /// Where the edges of each vertex begin in `after`, and the length of `after`.
    first: Vec<u32>,
    after: Vec<u32>,
    /// The number of edges into each vertex.
    into: Vec<u32>,
}

impl Network {
    /// The edges from each node to those with it in their lists, and `more` pairs (before, after). `pays` decides, by
    /// the number of nodes on either side, whether there is a join between them.
    pub(crate) fn new(
        lists: &SharedLists<u32>,
        pays: impl Fn(usize, usize) -> bool,
        more: impl Iterator<Item = (usize, usize)>,
    ) -> Network {
        let nodes = lists.nodes();
        let all: Vec<_> = (0..lists.count()).map(|list| (lists.items(list), lists.users(list))).collect();
        let bundles = Bundles::new(nodes, &all, pays);
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (members, join) in bundles.members.iter().zip(nodes..) {
            pairs.extend(members.iter().map(|&before| (before, join as u32)));
        }
        for node in 0..nodes {
            let (list, joins) = (lists.list_of(node), &bundles.of_list[lists.list_of(node)]);
            pairs.extend(joins.iter().map(|join| (nodes as u32 + join, node as u32)));
            let single = |before: &&u32| joins.is_empty() || bundles.bundle(list, **before).is_none();
            pairs.extend(lists.items(list).iter().filter(single).map(|&before| (before, node as u32)));
        }
        pairs.extend(more.map(|(before, after)| (before as u32, after as u32)));
        let pairs = pairs.iter().map(|&(before, after)| (before as usize, after as usize));
        Network::from_pairs(nodes, nodes + bundles.members.len(), pairs)
    }

    /// The edges from each node to those with it in their lists; every list of several nodes with several users becomes
    /// a join.
    pub(crate) fn shared(lists: &SharedLists<u32>) -> Network {
        Network::new(lists, |before, users| before > 1 && users > 1, std::iter::empty())
    }

    /// The edges between vertices: `nodes` nodes, and joins.
    pub(crate) fn from_pairs(
        nodes: usize,
        vertices: usize,
        pairs: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Network {
        let (mut first, mut into) = (vec![0u32; vertices + 1], vec![0u32; vertices]);
        for (before, after) in pairs.clone() {
            first[before + 1] += 1;
            into[after] += 1;
        }
        for vertex in 0..vertices {
            first[vertex + 1] += first[vertex];
        }
        let (mut next, mut list) = (first.clone(), vec![0; first[vertices] as usize]);
        for (before, after) in pairs {
            list[next[before] as usize] = after as u32;
            next[before] += 1;
        }
        Network { nodes, first, after: list, into }
    }

    /// The number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The number of nodes and joins.
    pub(crate) fn vertices(&self) -> usize {
        self.into.len()
    }

    /// The vertices that wait for a vertex.
    pub(crate) fn after(&self, vertex: usize) -> &[u32] {
        &self.after[self.first[vertex] as usize..self.first[vertex + 1] as usize]
    }

    /// The number of vertices that each vertex waits for.
    pub(crate) fn into(&self) -> &[u32] {
        &self.into
    }

    /// All edges.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + Clone {
        (0..self.vertices()).flat_map(|v| self.after(v).iter().map(move |&a| (v, a as usize)))
    }

    /// An order of the nodes that satisfies all edges and stays close to that of their numbers. Nodes on a cycle are
    /// left out.
    pub(crate) fn in_order(&self) -> Vec<usize> {
        let mut missing = self.into.clone();
        let first = (0..self.nodes).filter(|&node| missing[node] == 0).map(Reverse);
        let mut ready: BinaryHeap<Reverse<usize>> = first.collect();
        let mut sorted = Vec::with_capacity(self.nodes);
        while let Some(Reverse(node)) = ready.pop() {
            sorted.push(node);
            self.done(node, &mut missing, &mut |_, after, free| {
                ready.extend((free && after < self.nodes).then_some(Reverse(after)));
            });
        }
        sorted
    }

    /// Removes a vertex from those that others miss. Calls `pass` with each of its edges, and whether the later vertex
    /// then misses none; a join that misses none is removed at once.
    pub(crate) fn done(&self, vertex: usize, missing: &mut [u32], pass: &mut impl FnMut(usize, usize, bool)) {
        for &after in self.after(vertex) {
            let after = after as usize;
            missing[after] -= 1;
            pass(vertex, after, missing[after] == 0);
            if missing[after] == 0 && after >= self.nodes {
                self.done(after, missing, pass);
            }
        }
    }
}
