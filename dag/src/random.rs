//! Random programs of short kernels, reproducible from a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::error::DagError;
use super::program::{AccessMode, Kernel, LaunchConfig, Node, NodeWork, Program};

/// Parameters of random programs.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomDag {
    /// Kernels.
    pub kernels: usize,
    /// Chains that grow in parallel: the maximum concurrency.
    pub width: usize,
    /// Minimum and maximum kernel time, microseconds.
    pub us: (f64, f64),
    /// Probability that a kernel also reads the latest output of another chain.
    pub joins: f64,
    /// Maximum grid, CTAs.
    pub ctas: u32,
    /// Size of each of a chain's two buffers, bytes.
    pub bytes: u64,
}

impl Default for RandomDag {
    /// 100 kernels of 1 to 50 us on 6 chains.
    fn default() -> Self {
        RandomDag { kernels: 100, width: 6, us: (1.0, 50.0), joins: 0.15, ctas: 64, bytes: 1 << 16 }
    }
}

impl RandomDag {
    /// A program. Every chain has two buffers: its kernels read one and write the other alternately, so its steps
    /// depend on each other through reads and overwrites; joins read another chain's buffer.
    ///
    /// # Errors
    /// [`DagError`] for more kernels than a program may have, or for invalid durations.
    pub fn program(&self, seed: u64) -> Result<Program, DagError> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut program = Program::new(format!("random_{seed}"));
        let width = self.width.max(1);
        let chains: Vec<_> = (0..width)
            .map(|i| {
                [
                    program.buffer(format!("a{i}"), self.bytes.max(1)),
                    program.buffer(format!("b{i}"), self.bytes.max(1)),
                ]
            })
            .collect();
        let mut turn = vec![0; width];
        for i in 0..self.kernels {
            let chain = random.random_range(0..width);
            let (from, to) = (chains[chain][turn[chain]], chains[chain][1 - turn[chain]]);
            turn[chain] = 1 - turn[chain];
            let mut accesses =
                vec![program.whole(from, AccessMode::Read), program.whole(to, AccessMode::Write)];
            let other = random.random_range(0..width);
            if other != chain && random.random_bool(self.joins.clamp(0.0, 1.0)) {
                accesses.push(program.whole(chains[other][turn[other]], AccessMode::Read));
            }
            // Short kernels are more common than long ones.
            let us = self.us.0 + (self.us.1 - self.us.0) * random.random::<f64>().powi(2);
            let launch = LaunchConfig::linear(random.random_range(1..=self.ctas.max(1)), 128);
            let kernel = Kernel { programmatic: true, ..Kernel::new(launch, &accesses) };
            program.push(Node::new(format!("k{i}"), NodeWork::Kernel(kernel), accesses, us))?;
        }
        Ok(program)
    }
}
