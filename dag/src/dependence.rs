//! Dependences between nodes: read-after-write, write-after-read and write-after-write on bytes.
//!
//! Definition. Node `j` depends on an earlier node `i` if there is a byte that both access, at least one of them
//! writes, and no node in between writes. A dependence through an intervening writer is not an edge: it follows from
//! the two edges that meet there. There are no other edges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::bits::BitMatrix;
use super::history::{History, Touched};
use super::program::{Access, NodeId, Program};

/// Why one node waits for another; several may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Hazards {
    /// It reads bytes that the other wrote.
    pub read_after_write: bool,
    /// It overwrites bytes that the other read and did not change.
    pub write_after_read: bool,
    /// It overwrites bytes that the other wrote.
    pub write_after_write: bool,
}

impl std::ops::BitOrAssign for Hazards {
    fn bitor_assign(&mut self, other: Hazards) {
        self.read_after_write |= other.read_after_write;
        self.write_after_read |= other.write_after_read;
        self.write_after_write |= other.write_after_write;
    }
}

/// `after` must not start before `before` is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeDependence {
    /// The earlier node.
    pub before: NodeId,
    /// The later node.
    pub after: NodeId,
    /// The hazards; none for a gate.
    pub hazards: Hazards,
}

/// All dependences of a program, and a minimal set that implies them.
#[derive(Clone, Debug)]
pub struct Dependences {
    /// All direct dependences, sorted by the positions of `after` and `before`.
    pub edges: Vec<NodeDependence>,
    /// Indices into `edges` of those that no path of others implies (the transitive reduction).
    pub reduced: Vec<usize>,
    /// The nodes in an order that satisfies all edges: without gates, program order.
    pub order: Vec<NodeId>,
    /// The places in `reduced` of the edges into each node.
    into: Vec<Range<usize>>,
    /// The position of each node in `order`.
    place: Vec<usize>,
    /// For each position, the positions that it depends on, directly or indirectly.
    ancestors: BitMatrix,
}

impl Dependences {
    /// The edges in `order`, which satisfies them.
    fn new(order: Vec<usize>, mut edges: Vec<NodeDependence>) -> Self {
        let nodes = order.len();
        let place = places(&order, nodes);
        let key = |e: &NodeDependence| (place[e.after.index()], place[e.before.index()]);
        edges.sort_unstable_by_key(key);
        let (reduced, ancestors) = reduce(nodes, edges.len(), |i| key(&edges[i]));
        let (mut into, mut end) = (vec![0..0; nodes], 0);
        for group in reduced.chunk_by(|&a, &b| edges[a].after == edges[b].after) {
            into[edges[group[0]].after.index()] = end..end + group.len();
            end += group.len();
        }
        Dependences {
            edges,
            reduced,
            into,
            order: order.into_iter().map(NodeId::from).collect(),
            place,
            ancestors,
        }
    }

    /// Adds gates: pairs (before, after) that delay nodes although there is no dependence. They must not close a
    /// cycle.
    pub fn gated(&self, gates: &[(NodeId, NodeId)]) -> Dependences {
        if gates.is_empty() {
            return self.clone();
        }
        let gate = |&(before, after): &_| NodeDependence { before, after, hazards: Hazards::default() };
        let new = gates.iter().filter(|(before, after)| !self.reaches(*before, *after)).map(gate);
        let edges: Vec<_> = self.edges.iter().copied().chain(new).collect();
        let pairs: Vec<_> = edges.iter().map(|e| (e.before.index(), e.after.index())).collect();
        Dependences::new(in_order(&(0..self.place.len()).collect::<Vec<_>>(), &pairs), edges)
    }

    /// The edges of the transitive reduction.
    pub fn reduced_edges(&self) -> impl DoubleEndedIterator<Item = &NodeDependence> + Clone {
        self.reduced.iter().map(|&i| &self.edges[i])
    }

    /// The nodes that a node directly waits for in the transitive reduction.
    pub(super) fn before(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.reduced[self.into[node.index()].clone()].iter().map(|&i| self.edges[i].before)
    }

    /// Whether `after` depends on `before`, directly or indirectly.
    pub fn reaches(&self, before: NodeId, after: NodeId) -> bool {
        self.ancestors.get(self.place[after.index()], self.place[before.index()])
    }

    /// Whether the two may run at the same time.
    pub fn concurrent(&self, a: NodeId, b: NodeId) -> bool {
        a != b && !self.reaches(a, b) && !self.reaches(b, a)
    }
}

/// All dependences of a program. The time is proportional to accesses, edges and buffer fragments, plus `nodes / 64`
/// steps per reduced edge.
pub fn analyse(program: &Program) -> Dependences {
    let mut history = History::new(program);
    let mut edges = Vec::new();
    // The nodes that the current one depends on, and why.
    let (mut before, mut hazards) = (Vec::new(), vec![Hazards::default(); program.nodes().len()]);
    for (id, node) in program.ids().zip(program.nodes()) {
        let touched: Vec<Touched> = node.accesses.iter().map(Access::touched).collect();
        history.conflicts(&touched, |cta, why| {
            let found = &mut hazards[cta.node.index()];
            if *found == Hazards::default() {
                before.push(cta.node);
            }
            *found |= why;
            true
        });
        history.record(id, &[touched]);
        before.sort_unstable();
        edges.extend(before.drain(..).map(|before| NodeDependence {
            before,
            after: id,
            hazards: std::mem::take(&mut hazards[before.index()]),
        }));
    }
    Dependences::new((0..program.nodes().len()).collect(), edges)
}

/// The position of each node in an order.
pub(crate) fn places(order: &[usize], nodes: usize) -> Vec<usize> {
    let mut place = vec![0; nodes];
    order.iter().enumerate().for_each(|(at, &node)| place[node] = at);
    place
}

/// An order of the nodes that satisfies the pairs and stays close to the given order, using a queue sorted by
/// position. Nodes on a cycle are left out.
pub(crate) fn in_order(order: &[usize], pairs: &[(usize, usize)]) -> Vec<usize> {
    let place = places(order, order.len());
    let (mut missing, mut next) = (vec![0u32; order.len()], vec![Vec::new(); order.len()]);
    for &(before, after) in pairs {
        missing[after] += 1;
        next[before].push(after);
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        order.iter().filter(|&&i| missing[i] == 0).map(|&i| Reverse(place[i])).collect();
    let mut sorted = Vec::with_capacity(order.len());
    while let Some(Reverse(at)) = ready.pop() {
        let node = order[at];
        sorted.push(node);
        for &after in &next[node] {
            missing[after] -= 1;
            if missing[after] == 0 {
                ready.push(Reverse(place[after]));
            }
        }
    }
    sorted
}

/// The transitive reduction of edges (`after`, `before`) that are sorted and point from smaller to larger positions.
/// Returns the indices that remain, and the ancestors of every position.
pub(crate) fn reduce(
    nodes: usize,
    edges: usize,
    edge: impl Fn(usize) -> (usize, usize),
) -> (Vec<usize>, BitMatrix) {
    let mut ancestors = BitMatrix::new(nodes);
    let mut kept = Vec::new();
    let mut end = 0;
    while end < edges {
        let (first, from, after) = (end, kept.len(), edge(end).0);
        while end < edges && edge(end).0 == after {
            end += 1;
        }
        // A path that makes an edge redundant goes through a later predecessor, so later predecessors come first.
        for i in (first..end).rev() {
            let before = edge(i).1;
            if !ancestors.get(after, before) {
                ancestors.inherit(after, before);
                kept.push(i);
            }
        }
        kept[from..].reverse();
    }
    (kept, ancestors)
}
