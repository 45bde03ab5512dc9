//! A short digest of a schedule, to compare schedules.

use sha2::{Digest, Sha256};

use super::{Hand, Part, Schedule};

impl Schedule {
    /// The first 64 bits of a SHA-256 over everything a chain kernel receives, in hexadecimal. It does not depend on
    /// predictions.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut word = |value: u32| hash.update(value.to_le_bytes());
        let (rows, cols) = self.cluster;
        let mode = match self.mode {
            Hand::Fixed => 0,
            Hand::Drawn => 1,
        };
        [rows, cols, mode, self.slabs, self.sequence.len() as u32].into_iter().for_each(&mut word);
        for item in &self.sequence {
            let part = match item.part {
                Part::Whole => [0, 0, 0, 0],
                Part::Contribute { slab } => [1, slab, 0, 0],
                Part::Finish { first, slabs } => [2, first, slabs, 0],
                Part::Share { first, parts, part } => [3, first, parts, part],
            };
            [item.stage.0 as u32, item.m, item.n, item.k_begin, item.k_end].into_iter().for_each(&mut word);
            part.into_iter().for_each(&mut word);
        }
        for list in &self.lists {
            word(list.len() as u32);
            list.iter().copied().for_each(&mut word);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}
