//! The resources of a GPU that a node uses.

use cusync_gen::device::Profile;

use super::program::{Node, NodeWork};

/// Device resources of a node while it runs alone, as fractions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Fraction of the SMs' room for its CTAs, averaged over its waves.
    pub sms: f64,
    /// Fraction of the device memory bandwidth.
    pub memory: f64,
    /// Fraction of the copy engine of each direction: 1 for copies.
    pub engine: [f64; 2],
}

impl Demand {
    /// The demand of a node.
    pub fn new(node: &Node, device: &Profile) -> Self {
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

    /// All resources, in the order in which capacities are stored.
    pub(super) fn parts(&self) -> [f64; 4] {
        [self.sms, self.memory, self.engine[0], self.engine[1]]
    }
}
