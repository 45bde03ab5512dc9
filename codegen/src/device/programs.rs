//! Costs of starting the nodes of a kernel program.

use serde::{Deserialize, Serialize};

/// Costs of kernel-level scheduling: launches, waits between streams, and graph edges. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramCost {
    /// Origin of these numbers.
    pub source: String,
    /// Bandwidth between host and device in each direction, TB/s.
    pub host_tbs: f64,
    /// Maximum number of concurrent kernels.
    pub resident_kernels: usize,
    /// Host time of a launch on a stream.
    pub launch_us: f64,
    /// Host time of recording an event.
    pub record_us: f64,
    /// Host time of making a stream wait for an event.
    pub wait_us: f64,
    /// From the end of a kernel to the start of the next on its stream, if that was queued in time.
    pub stream_edge_us: f64,
    /// From the end of a kernel to the start of one on another stream that waits for its event.
    pub event_edge_us: f64,
    /// From the launch of a graph to the start of its first node.
    pub graph_launch_us: f64,
    /// From the end of a graph node to the start of its only successor.
    pub graph_edge_us: f64,
    /// The same if either of the two has another edge on that side.
    pub graph_branch_us: f64,
    /// Like `graph_edge_us`, over a programmatic edge.
    pub programmatic_edge_us: f64,
    /// Like `graph_edge_us`, over a programmatic edge from a node with several successors.
    pub programmatic_fork_us: f64,
    /// Like `graph_edge_us`, over a programmatic edge to a node that waits for several.
    pub programmatic_join_us: f64,
    /// From the start of a graph node without predecessors to the start of the next such node.
    pub graph_root_us: f64,
    /// Time that each node without successors, after the first, adds to the end of a graph.
    pub graph_end_us: f64,
    /// Relative slowdown of a kernel while other tasks' kernels use the rest of the device: running kernels are not
    /// interrupted, but caches and memory are shared.
    pub interference: f64,
    /// Like `programmatic_edge_us`, into a kernel that reads its parameters and constants before it waits.
    pub prologue_edge_us: f64,
    /// From the end of a CTA to the start of a later kernel's CTA that waits for its post, if nothing else delays it.
    pub tile_handoff_us: f64,
    /// Cost of an already satisfied wait to a CTA.
    pub tile_wait_us: f64,
}
