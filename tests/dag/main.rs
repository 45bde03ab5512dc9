//! Kernel-level scheduling without a GPU. `CUSYNC_DAG_PROGRAMS=100000 cargo test --release --test dag` runs the oracle
//! tests on that many random programs each.

mod dependences;
mod distribution;
mod files;
mod memory;
mod model;
mod recorder;
mod refine;
mod replay;
mod suite;

use cusync::dag::{Access, Kernel, LaunchConfig, Mode, Node, Program, Work, ZoneId};
use rand::Rng;
use rand::rngs::SmallRng;

/// Random programs of an oracle test.
fn programs(usual: u64) -> u64 {
    std::env::var("CUSYNC_DAG_PROGRAMS").ok().and_then(|v| v.parse().ok()).unwrap_or(usual)
}

/// A kernel of one CTA.
fn kernel(name: &str, us: f64, accesses: Vec<Access>) -> Node {
    let work = Work::Kernel(Kernel {
        launch: LaunchConfig::linear(1, 32),
        ctas_per_sm: 8,
        traffic_bytes: 0,
        programmatic: true,
        stage: None,
        tiles: None,
    });
    Node { name: name.into(), work, accesses, us, zone: ZoneId(0) }
}

/// A program of a few kernels over a few small buffers: collisions of every kind are common.
fn tiny(random: &mut SmallRng) -> Program {
    let mut program = Program::new("tiny");
    let buffers: Vec<_> = (0..random.random_range(1..=3))
        .map(|i| program.buffer(format!("b{i}"), random.random_range(1..=12)))
        .collect();
    for i in 0..random.random_range(1..=12) {
        let accesses = (0..random.random_range(0..=4))
            .map(|_| {
                let buffer = buffers[random.random_range(0..buffers.len())];
                let bytes = program.buffers()[buffer.index()].bytes;
                let start = random.random_range(0..bytes);
                let end = random.random_range(start + 1..=bytes);
                let mode = [Mode::Read, Mode::Read, Mode::Write, Mode::ReadWrite][random.random_range(0..4)];
                Access { buffer, bytes: start..end, mode }
            })
            .collect();
        let us = f64::from(random.random_range(0..8));
        program.push(kernel(&format!("k{i}"), us, accesses)).expect("ranges are inside");
    }
    program
}
