//! Dependences between nodes: read-after-write, write-after-read and write-after-write on bytes.
//!
//! Definition. Node `j` depends on an earlier node `i` if there is a byte that both access, at least one of them
//! writes, and no node in between writes. A dependence through an intervening writer is not an edge: it follows from
//! the two edges that meet there. There are no other edges.
//!
//! Edges can be dense: thousands of nodes may each depend on thousands of others. So nodes with equal predecessors
//! share one list of them ([`SharedLists`]), and lists of direct predecessors hold runs of consecutive ids.

use super::bits::BitMatrix;
use super::history::{History, Touched};
use super::lists::SharedLists;
use super::network::Network;
use super::order::NodeOrder;
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

/// Consecutive nodes that one node depends on for the same reasons.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    /// The first node.
    first: u32,
    /// One past the last node.
    end: u32,
    hazards: Hazards,
}

impl From<Run> for u64 {
    fn from(run: Run) -> u64 {
        let Hazards { read_after_write, write_after_read, write_after_write } = run.hazards;
        let why = [read_after_write, write_after_read, write_after_write];
        let ids = u64::from(run.first) << 32 | u64::from(run.end);
        why.iter().fold(ids, |bits, &holds| bits << 1 | u64::from(holds))
    }
}

/// The direct dependences of a program.
#[derive(Clone, Debug)]
pub struct Edges {
    lists: SharedLists<Run>,
    len: usize,
}

impl Edges {
    fn new(nodes: usize) -> Edges {
        Edges { lists: SharedLists::new(nodes), len: 0 }
    }

    /// Sets the dependences of a node that has none so far, ascending by node.
    fn set(&mut self, node: usize, before: impl Iterator<Item = (u32, Hazards)>, runs: &mut Vec<Run>) {
        runs.clear();
        for (id, hazards) in before {
            match runs.last_mut() {
                Some(last) if last.end == id && last.hazards == hazards => last.end += 1,
                _ => runs.push(Run { first: id, end: id + 1, hazards }),
            }
        }
        self.lists.set(node, runs);
        self.len += runs.iter().map(|run| (run.end - run.first) as usize).sum::<usize>();
    }

    /// Their number.
    #[allow(clippy::len_without_is_empty, reason = "a program without dependences is not special")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// All of them, by the ids of `after`, then `before`.
    pub fn iter(&self) -> impl Iterator<Item = NodeDependence> {
        (0..self.lists.nodes()).flat_map(|node| self.into_node(NodeId::from(node)))
    }

    /// Those of one node, by the ids of `before`.
    pub fn into_node(&self, after: NodeId) -> impl Iterator<Item = NodeDependence> {
        let edges = move |run: &Run| {
            let hazards = run.hazards;
            let edge = move |before| NodeDependence { before: NodeId(before), after, hazards };
            (run.first..run.end).map(edge)
        };
        self.lists.of_node(after.index()).iter().flat_map(edges)
    }
}

/// All dependences of a program, and a minimal set that implies them.
#[derive(Clone, Debug)]
pub struct Dependences {
    /// All direct dependences.
    pub edges: Edges,
    /// The nodes in an order that satisfies all edges: without gates, program order.
    pub order: Vec<NodeId>,
    /// The predecessors of each node in the transitive reduction, ascending: those that no path of others implies.
    pub(crate) reduced: SharedLists<u32>,
    /// The position of each node in `order`.
    place: Vec<usize>,
    /// For each position, the positions that it depends on, directly or indirectly.
    ancestors: BitMatrix,
}

impl Dependences {
    /// The edges in `order`, which satisfies them.
    fn new(order: Vec<usize>, edges: Edges) -> Self {
        let nodes = order.len();
        let place = places(&order, nodes);
        // The last row holds the direct predecessors of one node.
        let mut ancestors = BitMatrix::new(nodes + 1, nodes);
        let mut reduced = SharedLists::new(nodes);
        let mut first_with: Vec<Option<usize>> = vec![None; edges.lists.count()];
        let mut kept: Vec<u32> = Vec::new();
        for (at, &node) in order.iter().enumerate() {
            let list = edges.lists.list_of(node);
            if let Some(first) = first_with[list] {
                ancestors.add(at, place[first]);
                reduced.give(node, reduced.list_of(first));
                continue;
            }
            first_with[list] = Some(node);
            ancestors.clear(nodes);
            for run in edges.lists.items(list) {
                (run.first..run.end).for_each(|before| ancestors.set(nodes, place[before as usize]));
            }
            // A path that makes an edge redundant goes through a later predecessor, so later ones come first.
            kept.clear();
            let mut end = at;
            while let Some(before) = ancestors.last_only(nodes, at, end) {
                ancestors.inherit(at, before);
                kept.push(order[before] as u32);
                end = before;
            }
            kept.sort_unstable();
            reduced.set(node, &kept);
        }
        let order = order.into_iter().map(NodeId::from).collect();
        Dependences { edges, order, reduced, place, ancestors }
    }

    /// Adds gates: pairs (before, after) that delay nodes although there is no dependence. They must not close a
    /// cycle.
    pub fn gated(&self, gates: &[(NodeId, NodeId)]) -> Dependences {
        if gates.is_empty() {
            return self.clone();
        }
        let nodes = self.place.len();
        let mut new: Vec<Vec<NodeId>> = vec![Vec::new(); nodes];
        for &(before, after) in gates.iter().filter(|(before, after)| !self.reaches(*before, *after)) {
            new[after.index()].push(before);
        }
        let (mut edges, mut runs) = (Edges::new(nodes), Vec::new());
        for (node, gates) in new.iter().enumerate() {
            let direct = self.edges.into_node(node.into()).map(|edge| (edge.before.0, edge.hazards));
            let mut before: Vec<_> = direct.collect();
            before.extend(gates.iter().map(|gate| (gate.0, Hazards::default())));
            before.sort_unstable_by_key(|(before, _)| *before);
            edges.set(node, before.into_iter(), &mut runs);
        }
        let gates = new.iter().enumerate().flat_map(|(a, gates)| gates.iter().map(move |b| (b.index(), a)));
        let order = Network::new(&self.reduced, |before, users| before > 1 && users > 1, gates).in_order();
        Dependences::new(order, edges)
    }

    /// The edges of the transitive reduction.
    pub fn reduced_edges(&self) -> impl Iterator<Item = NodeDependence> {
        self.order.iter().flat_map(|&id| self.reduced_into(id))
    }

    /// The edges of the transitive reduction into a node.
    pub(crate) fn reduced_into(&self, after: NodeId) -> impl Iterator<Item = NodeDependence> {
        // Both lists ascend.
        let mut left = self.reduced.of_node(after.index()).iter().peekable();
        self.edges.into_node(after).filter(move |edge| left.next_if(|&&id| id == edge.before.0).is_some())
    }

    /// Whether other dependences imply a direct one.
    pub fn implies(&self, edge: &NodeDependence) -> bool {
        self.reduced.of_node(edge.after.index()).binary_search(&edge.before.0).is_err()
    }

    /// Whether `after` depends on `before`, directly or indirectly.
    pub fn reaches(&self, before: NodeId, after: NodeId) -> bool {
        self.node_order().before(before.index(), after.index())
    }

    /// The order of the nodes.
    pub(crate) fn node_order(&self) -> NodeOrder<'_> {
        NodeOrder { place: &self.place, ancestors: &self.ancestors }
    }

    /// Whether the two may run at the same time.
    pub fn concurrent(&self, a: NodeId, b: NodeId) -> bool {
        a != b && !self.reaches(a, b) && !self.reaches(b, a)
    }
}

/// All dependences of a program. The time is proportional to accesses and buffer fragments, plus `nodes / 64` steps
/// per node and per predecessor in a distinct list.
pub fn analyse(program: &Program) -> Dependences {
    let nodes = program.nodes().len();
    let mut history = History::new(program);
    let (mut edges, mut runs) = (Edges::new(nodes), Vec::new());
    // The nodes that the current one depends on, and why.
    let (mut before, mut hazards): (Vec<u32>, _) = (Vec::new(), vec![Hazards::default(); nodes]);
    let mut touched: [Vec<Touched>; 1] = [Vec::new()];
    for (id, node) in program.ids().zip(program.nodes()) {
        touched[0].clear();
        touched[0].extend(node.accesses.iter().map(Access::touched));
        history.conflicts(&touched[0], |run, why| {
            for node in run.first..run.end {
                let found = &mut hazards[node as usize];
                if *found == Hazards::default() {
                    before.push(node);
                }
                *found |= why;
            }
            true
        });
        history.record(id, &touched);
        before.sort_unstable();
        let found = before.drain(..).map(|node| (node, std::mem::take(&mut hazards[node as usize])));
        edges.set(id.index(), found, &mut runs);
    }
    Dependences::new((0..nodes).collect(), edges)
}

/// The position of each node in an order.
pub(crate) fn places(order: &[usize], nodes: usize) -> Vec<usize> {
    let mut place = vec![0; nodes];
    order.iter().enumerate().for_each(|(at, &node)| place[node] = at);
    place
}
