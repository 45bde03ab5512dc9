//! What it costs to start nodes, and how much of a GPU a kernel takes.

use cusync_gen::device::Profile;

use super::program::{Node, Work};

/// Launch costs and rates of a device. Times are microseconds.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Profile memory, TB/s.
    pub memory_tbs: f64,
    /// Between host and device, TB/s in each direction.
    pub host_tbs: f64,
    /// Kernels that run at the same time at most.
    pub resident_kernels: usize,
    /// Host time of a launch on a stream.
    pub launch_us: f64,
    /// Host time of recording an event.
    pub record_us: f64,
    /// Host time of making a stream wait for an event.
    pub wait_us: f64,
    /// End of a kernel to the start of the next on its stream, when it was queued in time.
    pub stream_edge_us: f64,
    /// End of a kernel to the start of one on another stream that waits for its event.
    pub event_edge_us: f64,
    /// Launch of a graph to the start of its first node.
    pub graph_launch_us: f64,
    /// End of a node to the start of its only successor.
    pub graph_edge_us: f64,
    /// End of a node to the start of a successor where either has another edge on that side.
    pub graph_branch_us: f64,
    /// As `graph_edge_us`, over a programmatic edge.
    pub programmatic_edge_us: f64,
    /// As `graph_edge_us`, over a programmatic edge from a node that has several successors.
    pub programmatic_fork_us: f64,
    /// As `graph_edge_us`, over a programmatic edge to a node that waits for several.
    pub programmatic_join_us: f64,
    /// Start of a graph's node that waits for nothing to the start of the next such node.
    pub graph_root_us: f64,
    /// What each node that nothing waits for adds to the end of a graph, after the first such node.
    pub graph_end_us: f64,
    /// How much longer a kernel takes while kernels of other zones have the rest of the device: what runs is not interrupted,
    /// and caches and memory are shared.
    pub interference: f64,
    /// As `programmatic_edge_us`, into a kernel that has read its parameters and constants before it waits.
    pub prologue_edge_us: f64,
    /// From the end of a CTA to the start of one of a later kernel that waits for its post, both otherwise ready.
    pub tile_handoff_us: f64,
    /// One semaphore hand-off from tile to tile of a pipeline.
    pub handoff_us: f64,
    /// A wait that is already satisfied, a tile.
    pub tile_wait_us: f64,
    /// Where the numbers come from.
    pub source: String,
}

impl Costs {
    /// The H200's.
    pub fn h200() -> Self {
        Costs {
            sms: 132,
            memory_tbs: 4.3,
            host_tbs: 0.055,
            resident_kernels: 128,
            launch_us: 2.9,
            record_us: 1.2,
            wait_us: 1.2,
            stream_edge_us: 2.0,
            event_edge_us: 3.0,
            graph_launch_us: 5.1,
            graph_edge_us: 1.15,
            graph_branch_us: 2.15,
            programmatic_edge_us: 0.7,
            programmatic_fork_us: 0.05,
            programmatic_join_us: 1.7,
            graph_root_us: 1.55,
            graph_end_us: 0.0,
            interference: 0.25,
            prologue_edge_us: 0.6,
            tile_handoff_us: 0.95,
            handoff_us: 0.62,
            tile_wait_us: 0.17,
            source: "one H200: launches on streams, waits and hand-offs of tiles measured; events and what graphs cost fitted \
                     to the suite (docs/results/dag_h200.md)"
                .into(),
        }
    }

    /// The costs of a device profile: those of the H200 with the device's own sizes and rates.
    pub fn of(device: &Profile) -> Self {
        let h200 = Costs::h200();
        if device.name == "h200" {
            return h200;
        }
        Costs {
            sms: device.sms,
            memory_tbs: device.read_tbs,
            handoff_us: device.handoff_us,
            source: "launch costs of an H200; sizes and rates of the device".into(),
            ..h200
        }
    }
}

/// What a node takes of the device while it runs alone, shares of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Of the SMs' room for its CTAs, on average over its waves.
    pub sms: f64,
    /// Of the bandwidth of device memory.
    pub memory: f64,
    /// Of the copy engine of its direction: 1 for copies.
    pub engine: [f64; 2],
}

impl Demand {
    /// The demand of a node.
    pub fn of(node: &Node, costs: &Costs) -> Self {
        let memory = |bytes: u64| {
            if node.us > 0.0 { (bytes as f64 / 1e6 / node.us / costs.memory_tbs).min(1.0) } else { 0.0 }
        };
        match &node.work {
            Work::Kernel(k) => {
                let slots = f64::from(costs.sms) * f64::from(k.ctas_per_sm);
                let waves = k.launch.ctas() as f64 / slots;
                Demand {
                    sms: waves / waves.ceil().max(1.0),
                    memory: memory(k.traffic_bytes),
                    engine: [0.0; 2],
                }
            }
            Work::Copy { direction, bytes } => {
                let mut engine = [0.0; 2];
                engine[*direction as usize] = 1.0;
                Demand { sms: 0.0, memory: memory(*bytes), engine }
            }
        }
    }

    /// All resources, in the order in which capacities are kept.
    pub(super) fn parts(&self) -> [f64; 4] {
        [self.sms, self.memory, self.engine[0], self.engine[1]]
    }
}
