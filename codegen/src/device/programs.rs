//! What it costs to start the nodes of a program of kernels.

use serde::{Deserialize, Serialize};

/// Costs of kernel-level scheduling: launches, waits between streams, and edges of graphs. Times are microseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramCost {
    /// Where these numbers come from.
    pub source: String,
    /// Bandwidth between host and device in each direction, TB/s.
    pub host_tbs: f64,
    /// The most kernels that run at the same time.
    pub resident_kernels: usize,
    /// Host time of a launch on a stream.
    pub launch_us: f64,
    /// Host time of recording an event.
    pub record_us: f64,
    /// Host time of making a stream wait for an event.
    pub wait_us: f64,
    /// From the end of a kernel to the start of the next on its stream, when that was queued in time.
    pub stream_edge_us: f64,
    /// From the end of a kernel to the start of one on another stream that waits for its event.
    pub event_edge_us: f64,
    /// From the launch of a graph to the start of its first node.
    pub graph_launch_us: f64,
    /// From the end of a graph's node to the start of its only successor.
    pub graph_edge_us: f64,
    /// The same where either of the two has another edge on that side.
    pub graph_branch_us: f64,
    /// As `graph_edge_us`, over a programmatic edge.
    pub programmatic_edge_us: f64,
    /// As `graph_edge_us`, over a programmatic edge from a node that has several successors.
    pub programmatic_fork_us: f64,
    /// As `graph_edge_us`, over a programmatic edge to a node that waits for several.
    pub programmatic_join_us: f64,
    /// From the start of a graph's node that waits for nothing to the start of the next such node.
    pub graph_root_us: f64,
    /// What each node that nothing waits for adds to the end of a graph, after the first such node.
    pub graph_end_us: f64,
    /// How much longer a kernel takes, as a share, while kernels of other tasks have the rest of the device: what runs is not
    /// interrupted, and caches and memory are shared.
    pub interference: f64,
    /// As `programmatic_edge_us`, into a kernel that has read its parameters and constants before it waits.
    pub prologue_edge_us: f64,
    /// From the end of a CTA to the start of one of a later kernel that waits for its post, both otherwise ready.
    pub tile_handoff_us: f64,
    /// What a wait that is already satisfied costs a CTA.
    pub tile_wait_us: f64,
}
