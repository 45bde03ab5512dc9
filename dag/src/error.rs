//! Errors of programs and plans.

use std::ops::Range;

use super::history::Cta;
use super::program::{BufferId, NodeId};

/// Why a program is rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DagError {
    /// An access outside a buffer, or to no bytes.
    #[error("`{node}` accesses bytes {}..{} of `{buffer}`, which has {bytes} bytes: state a range inside it that is not empty", range.start, range.end)]
    Range {
        /// The node.
        node: String,
        /// The buffer.
        buffer: String,
        /// The requested bytes.
        range: Range<u64>,
        /// The buffer's size.
        bytes: u64,
    },
    /// A buffer of another program.
    #[error(
        "`{node}` accesses buffer {buffer}, which this program does not have: add it with `Program::buffer`"
    )]
    NoBuffer {
        /// The node.
        node: String,
        /// The buffer's number.
        buffer: u32,
    },
    /// A zone of another program.
    #[error("there is no zone {zone} in this program: add it with `Program::zone`")]
    NoZone {
        /// The zone's number.
        zone: u32,
    },
    /// A node of another program.
    #[error("there is no node {node} in this program")]
    NoNode {
        /// The node's number.
        node: u32,
    },
    /// A duration that is invalid, or longer than [`super::MAX_US`].
    #[error("`{node}` takes {us} us: a duration is from 0 to an hour")]
    Duration {
        /// The node.
        node: String,
        /// The requested duration.
        us: f64,
    },
    /// A launch that no GPU supports.
    #[error("`{node}` launches {what}")]
    Launch {
        /// The node.
        node: String,
        /// The fault.
        what: &'static str,
    },
    /// An opaque node with properties of kernels.
    #[error("`{node}` is opaque, so it has neither programmatic edges nor tiles")]
    Opaque {
        /// The node.
        node: String,
    },
    /// Tiles that do not match the kernel's accesses.
    #[error(
        "the tiles of `{node}` have {what}: state the bytes of each access that each CTA touches; together they are the whole access"
    )]
    Tiles {
        /// The node.
        node: String,
        /// The fault.
        what: &'static str,
    },
    /// Memory that partly overlaps memory already recorded separately.
    #[error(
        "memory at {:#x}..{:#x} overlaps other memory in part: state the whole of it first, with `Recording::memory`",
        addresses.start,
        addresses.end
    )]
    Overlap {
        /// First byte to one past the last.
        addresses: Range<u64>,
    },
    /// A program that is too large to analyze.
    #[error("a program has at most {most} nodes: schedule it in parts")]
    TooMany {
        /// The limit.
        most: usize,
    },
    /// Temporaries that need more memory than they may have.
    #[error(
        "temporaries need {least} bytes in the tightest order that was found, and may take {limit}: raise the limit; at `{node}`, {alive} bytes are alive"
    )]
    Memory {
        /// The limit.
        limit: u64,
        /// The fewest bytes that were found.
        least: u64,
        /// The node at which most bytes are alive then.
        node: String,
        /// The bytes alive at that node.
        alive: u64,
    },
}

/// Why a plan or a refinement is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproved {
    /// A dependence of nodes without a path of edges and waits.
    #[error("node {} does not wait for node {}, directly or not", after.0, before.0)]
    Race {
        /// Must come first.
        before: NodeId,
        /// Comes later.
        after: NodeId,
    },
    /// Opaque nodes with one workspace that are not ordered.
    #[error("nodes {} and {} share workspace {workspace}, and neither waits for the other", nodes[0].0, nodes[1].0)]
    Workspace {
        /// The nodes.
        nodes: [NodeId; 2],
        /// The workspace.
        workspace: usize,
    },
    /// Temporary buffers with common bytes, without an order of these nodes of theirs.
    #[error("buffers {} and {} share bytes, and node {} does not wait for node {}, directly or not", buffers[0].0, buffers[1].0, nodes[1].0, nodes[0].0)]
    Memory {
        /// The buffers, the one used first in the order of the plan first.
        buffers: [BufferId; 2],
        /// A node of each.
        nodes: [NodeId; 2],
    },
    /// A buffer with a wrong place.
    #[error("buffer {} {what}", buffer.0)]
    Buffer {
        /// The buffer.
        buffer: BufferId,
        /// The fault.
        what: &'static str,
    },
    /// A dependence of CTAs without a path of waits.
    #[error("CTA {} of node {} does not wait for CTA {} of node {}, directly or not", after.cta, after.node.0, before.cta, before.node.0)]
    Order {
        /// Must come first.
        before: Cta,
        /// Comes later.
        after: Cta,
    },
    /// A fault of one node.
    #[error("node {} {what}", node.0)]
    Node {
        /// The node.
        node: NodeId,
        /// The fault.
        what: &'static str,
    },
}

impl Unproved {
    pub(crate) fn node(node: usize, fault: &'static str) -> Self {
        Unproved::Node { node: NodeId::from(node), what: fault }
    }
}
