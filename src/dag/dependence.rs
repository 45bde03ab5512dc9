//! Which node must wait for which: read-after-write, write-after-read and write-after-write on bytes.
//!
//! Definition. Node `j` depends on an earlier node `i` if there is a byte that both access and at least one of them
//! writes, and that no node between the two writes. A dependence through an intervening writer is not an edge: it
//! follows from the two edges that meet there. Nothing else is an edge.

use std::collections::BTreeMap;

use super::bits::BitMatrix;
use super::program::{Access, NodeId, Program};

/// Why one node waits for another; more than one may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Hazards {
    /// It reads what the other wrote.
    pub read_after_write: bool,
    /// It overwrites what the other read and left as it was.
    pub write_after_read: bool,
    /// It overwrites what the other wrote.
    pub write_after_write: bool,
}

/// `after` must not start before `before` is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The earlier node.
    pub before: NodeId,
    /// The later node.
    pub after: NodeId,
    /// Why.
    pub hazards: Hazards,
}

/// All dependences of a program, and the fewest that imply them.
#[derive(Clone, Debug)]
pub struct Dependences {
    /// Every direct dependence, by (`after`, `before`).
    pub edges: Vec<Edge>,
    /// Indices into `edges`: those that no path of others implies (the transitive reduction).
    pub reduced: Vec<usize>,
    /// By node: all nodes that it depends on, directly or not.
    pub(crate) ancestors: BitMatrix,
}

impl Dependences {
    /// The edges of the transitive reduction.
    pub fn reduced_edges(&self) -> impl Iterator<Item = &Edge> {
        self.reduced.iter().map(|&i| &self.edges[i])
    }

    /// Whether `after` depends on `before`, directly or not.
    pub fn reaches(&self, before: NodeId, after: NodeId) -> bool {
        self.ancestors.get(after.index(), before.index())
    }

    /// Whether the two may run at the same time.
    pub fn concurrent(&self, a: NodeId, b: NodeId) -> bool {
        a != b && !self.reaches(a, b) && !self.reaches(b, a)
    }
}

/// What happened last to a run of bytes.
#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    writer: Option<NodeId>,
    /// Readers since the last write, in order.
    readers: Vec<NodeId>,
}

/// The history of a buffer: segments by their first byte, without gaps between 0 and the buffer's end.
struct History(BTreeMap<u64, Segment>);

impl History {
    fn new(bytes: u64) -> Self {
        History(BTreeMap::from([(0, Segment { end: bytes, writer: None, readers: Vec::new() })]))
    }

    /// Makes `at` a boundary of segments.
    fn split(&mut self, at: u64) {
        let Some((&start, segment)) = self.0.range_mut(..at).next_back() else { return };
        if start < at && at < segment.end {
            let after = segment.clone();
            segment.end = at;
            self.0.insert(at, after);
        }
    }

    fn read(&mut self, access: &Access, node: NodeId, found: &mut Found) {
        self.split(access.bytes.start);
        self.split(access.bytes.end);
        for (_, segment) in self.0.range_mut(access.bytes.clone()) {
            if let Some(writer) = segment.writer {
                found.note(writer, Hazards { read_after_write: true, ..Hazards::default() });
            }
            if segment.readers.last() != Some(&node) {
                segment.readers.push(node);
            }
        }
    }

    fn write(&mut self, access: &Access, node: NodeId, found: &mut Found) {
        self.split(access.bytes.start);
        self.split(access.bytes.end);
        let starts: Vec<u64> = self.0.range(access.bytes.clone()).map(|(&start, _)| start).collect();
        for start in starts {
            let Some(segment) = self.0.remove(&start) else { continue };
            if let Some(writer) = segment.writer {
                found.note(writer, Hazards { write_after_write: true, ..Hazards::default() });
            }
            for reader in segment.readers {
                found.note(reader, Hazards { write_after_read: true, ..Hazards::default() });
            }
        }
        let fresh = Segment { end: access.bytes.end, writer: Some(node), readers: Vec::new() };
        self.0.insert(access.bytes.start, fresh);
    }
}

/// The dependences of one node.
struct Found {
    node: NodeId,
    before: BTreeMap<NodeId, Hazards>,
}

impl Found {
    fn note(&mut self, before: NodeId, why: Hazards) {
        if before != self.node {
            let hazards = self.before.entry(before).or_default();
            hazards.read_after_write |= why.read_after_write;
            hazards.write_after_read |= why.write_after_read;
            hazards.write_after_write |= why.write_after_write;
        }
    }
}

/// All dependences of a program. Takes time in proportion to accesses, edges and fragments of buffers, and
/// `nodes / 64` steps for every reduced edge.
pub fn analyse(program: &Program) -> Dependences {
    let mut histories: Vec<History> = program.buffers().iter().map(|b| History::new(b.bytes)).collect();
    let mut edges = Vec::new();
    for (id, node) in program.ids().zip(program.nodes()) {
        let mut found = Found { node: id, before: BTreeMap::new() };
        // What a node reads is what others left, so its reads come before its writes.
        for access in node.accesses.iter().filter(|a| a.mode.reads()) {
            histories[access.buffer.index()].read(access, id, &mut found);
        }
        for access in node.accesses.iter().filter(|a| a.mode.writes()) {
            histories[access.buffer.index()].write(access, id, &mut found);
        }
        let by_node = |(before, hazards)| Edge { before, after: id, hazards };
        edges.extend(found.before.into_iter().map(by_node));
    }
    let pairs: Vec<_> = edges.iter().map(|e: &Edge| (e.after.index(), e.before.index())).collect();
    let (reduced, ancestors) = reduce(program.nodes().len(), &pairs);
    Dependences { edges, reduced, ancestors }
}

/// The transitive reduction of edges (`after`, `before`) that are sorted and point from smaller to larger nodes: the
/// indices that stay, and the ancestors of every node.
pub(super) fn reduce(nodes: usize, edges: &[(usize, usize)]) -> (Vec<usize>, BitMatrix) {
    let mut ancestors = BitMatrix::new(nodes);
    let mut kept = Vec::new();
    let mut end = 0;
    for group in edges.chunk_by(|a, b| a.0 == b.0) {
        let first = end;
        end += group.len();
        let from = kept.len();
        // A path that makes an edge superfluous goes through a later predecessor, so those come first.
        for (i, &(after, before)) in group.iter().enumerate().rev() {
            if !ancestors.get(after, before) {
                ancestors.inherit(after, before);
                kept.push(first + i);
            }
        }
        kept[from..].reverse();
    }
    (kept, ancestors)
}
