//! Edges by earlier node, with joins: a join stands for the edges from each of its predecessors to each of its
//! successors.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    /// The edges from each node to those with it in their lists, and `more` pairs (before, after). `joins` decides, by
    /// the lengths of a list and the number of its users, whether the list becomes a join.
    pub(crate) fn new(
        lists: &SharedLists<u32>,
        joins: impl Fn(usize, usize) -> bool,
        more: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Network {
        let nodes = lists.nodes();
        let mut vertices = nodes;
        let joined = |l: usize| {
            let is_join = joins(lists.items(l).len(), lists.users(l));
            vertices += usize::from(is_join);
            is_join.then(|| vertices - 1)
        };
        let join: Vec<Option<usize>> = (0..lists.count()).map(joined).collect();
        let into_joins = (0..lists.count()).filter_map(|l| Some((l, join[l]?)));
        let into_joins = into_joins.flat_map(|(l, at)| lists.items(l).iter().map(move |&b| (b as usize, at)));
        let into_nodes = (0..nodes).flat_map(|node| {
            let list = lists.of(node);
            let single = if join[list].is_none() { lists.items(list) } else { &[] };
            join[list].into_iter().chain(single.iter().map(|&b| b as usize)).map(move |b| (b, node))
        });
        Network::from_pairs(nodes, vertices, into_joins.chain(into_nodes).chain(more))
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
