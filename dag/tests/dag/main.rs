//! Kernel-level scheduling without a GPU. `CUSYNC_DAG_PROGRAMS=100000 cargo test --release -p cusync-dag` runs each
//! oracle test on that many random programs.

mod dense;
mod dependences;
mod distribution;
mod files;
mod memory;
mod model;
mod opaque;
mod recorder;
mod refine;
mod suite;

use std::ops::Range;

use cusync_dag::{
    Access, AccessMode, Direction, Kernel, KernelSchedule, LaunchConfig, Node, NodeWork, Program,
    ScheduleOptions, TileAccesses, TileBytes, ZoneId,
};
use rand::Rng;
use rand::rngs::SmallRng;

/// The schedule of a program without a limit of memory.
fn schedule(program: &Program, options: &ScheduleOptions) -> KernelSchedule {
    cusync_dag::schedule(program, options).expect("nothing limits its memory")
}

/// Number of random programs in an oracle test.
fn programs(usual: u64) -> u64 {
    std::env::var("CUSYNC_DAG_PROGRAMS").ok().and_then(|v| v.parse().ok()).unwrap_or(usual)
}

/// A kernel of one CTA.
fn kernel(name: &str, us: f64, accesses: Vec<Access>) -> Node {
    let launch = LaunchConfig::linear(1, 32);
    let kernel =
        Kernel { ctas_per_sm: 8, traffic_bytes: 0, programmatic: true, ..Kernel::new(launch, &accesses) };
    Node::new(name, NodeWork::Kernel(kernel), accesses, us)
}

/// A chain of kernels over one arena; its halves are read and written in turn. CTA `i` reads its mirror image and, with
/// a `shift`, also the data `shift` words further on, so that CTAs need their neighbors' results.
fn tiled_chain(kernels: usize, ctas: u32, (us, spread_us): (f64, f64), shift: u64) -> Program {
    let tile = 4 * 128;
    let range = u64::from(ctas) * tile as u64;
    let mut program = Program::new("chain");
    let arena = program.buffer("arena", 2 * range);
    let own = TileBytes::Strided { first: 0, stride: tile, bytes: tile as u64 };
    let mirrored = TileBytes::Strided { first: range as i64 - tile, stride: -tile, bytes: tile as u64 };
    for k in 0..kernels {
        let half = |at: usize| at as u64 % 2 * range..(at as u64 % 2 + 1) * range;
        let access = |bytes, mode| Access { buffer: arena, bytes, mode };
        let mut accesses = vec![access(half(k), AccessMode::Read), access(half(k + 1), AccessMode::Write)];
        let mut bytes = vec![mirrored, own];
        if shift > 0 {
            let Range { start, end } = half(k);
            accesses.push(access(start + 4 * shift..end, AccessMode::Read));
            bytes.push(own);
        }
        let mut node = kernel("spin_tiled", us, accesses);
        if let NodeWork::Kernel(kernel) = &mut node.work {
            (kernel.launch, kernel.ctas_per_sm) = (LaunchConfig::linear(ctas, 128), 16);
            kernel.tiles = Some(TileAccesses { bytes, spread_us, early_trigger: true });
        }
        program.push(node).expect("inside");
    }
    program
}

/// Like [`tiny`], with tasks of up to three priorities, copies in both directions, and buffers shared by tasks.
fn tasks(random: &mut SmallRng) -> Program {
    let plain = tiny(random);
    let mut program = plain.only(|_| false);
    let zones: Vec<ZoneId> = (0..random.random_range(1..=4))
        .map(|i| program.zone(format!("z{i}"), random.random_range(0..3)))
        .collect();
    for node in plain.nodes() {
        let mut node = Node { zone: zones[random.random_range(0..zones.len())], ..node.clone() };
        if random.random_bool(0.25) {
            let direction = [Direction::HostToDevice, Direction::DeviceToHost][random.random_range(0..2)];
            node.work = NodeWork::Copy { direction, bytes: 4 };
        }
        program.push(node).expect("inside");
    }
    program
}

/// A program of a few kernels over a few small buffers, so that conflicts of every kind are common.
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
                let mode = [AccessMode::Read, AccessMode::Read, AccessMode::Write, AccessMode::ReadWrite]
                    [random.random_range(0..4)];
                Access { buffer, bytes: start..end, mode }
            })
            .collect();
        let us = f64::from(random.random_range(0..8));
        program.push(kernel(&format!("k{i}"), us, accesses)).expect("ranges are inside");
    }
    program
}
