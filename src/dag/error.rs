//! What a program is refused for.

use std::ops::Range;

/// Why a program is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DagError {
    /// Bytes outside a buffer, or none.
    #[error("`{node}` accesses bytes {}..{} of `{buffer}`, which has {bytes} bytes: state a range inside it that is not empty", range.start, range.end)]
    Range {
        /// The node.
        node: String,
        /// The buffer.
        buffer: String,
        /// The bytes stated.
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
    /// A duration that is no time.
    #[error("`{node}` takes {us} us: a duration is finite and not negative")]
    Duration {
        /// The node.
        node: String,
        /// As stated.
        us: f64,
    },
    /// A launch without threads.
    #[error("`{node}` launches nothing: grid, block and CTAs of an SM are at least 1")]
    EmptyLaunch {
        /// The node.
        node: String,
    },
    /// Tiles that are not those of the kernel's accesses.
    #[error(
        "the tiles of `{node}` have {what}: state what each CTA touches of each access, all of it in sum"
    )]
    Tiles {
        /// The node.
        node: String,
        /// What is wrong with them.
        what: &'static str,
    },
    /// A program too large to be analysed.
    #[error("a program has at most {most} nodes: schedule it in parts")]
    TooMany {
        /// The limit.
        most: usize,
    },
}
