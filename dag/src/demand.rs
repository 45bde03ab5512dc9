//! How much of a GPU a node takes.

use cusync_gen::device::Profile;

use super::program::{Node, NodeWork};

/// What a node takes of the device while it runs alone, shares of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Share of the SMs' room for its CTAs, on average over its waves.
    pub sms: f64,
    /// Share of the bandwidth of device memory.
    pub memory: f64,
    /// Share of the copy engine of each direction: 1 for copies.
    pub engine: [f64; 2],
}

impl Demand {
    /// The demand of a node.
    pub fn of(node: &Node, device: &Profile) -> Self {
        let memory = |bytes: u64| {
            if node.us > 0.0 { (bytes as f64 / 1e6 / node.us / device.read_tbs).min(1.0) } else { 0.0 }
        };
        match &node.work {
            NodeWork::Kernel(k) => {
                let slots = f64::from(device.sms) * f64::from(k.ctas_per_sm);
                let waves = k.launch.ctas() as f64 / slots;
                Demand {
                    sms: waves / waves.ceil().max(1.0),
                    memory: memory(k.traffic_bytes),
                    engine: [0.0; 2],
                }
            }
            NodeWork::Copy { direction, bytes } => {
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
