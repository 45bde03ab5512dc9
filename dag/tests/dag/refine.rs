//! Tile-level waits: every dependence is kept, according to an oracle that checks each byte, and a missing dependence
//! is refuted.

use cusync_dag::{
    Access, AccessMode, Cta, Dependences, KernelSchedule, LaunchConfig, NodeId, NodeWork, Program, Refine,
    Refinement, ScheduleOptions, TileAccesses, TileBytes, Unproved, analyse, refine,
};
use cusync_gen::device::DEVICES;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{kernel, programs, schedule, tiled_chain};

/// A kernel whose CTA `i` touches tile `i` of each access.
fn tiled(name: &str, ctas: u32, accesses: Vec<Access>, bytes: Vec<TileBytes>) -> cusync_dag::Node {
    let mut node = kernel(name, 2.0, accesses);
    if let NodeWork::Kernel(k) = &mut node.work {
        k.launch = LaunchConfig::linear(ctas, 32);
        k.tiles = Some(TileAccesses { bytes, spread_us: 0.0, early_trigger: true });
    }
    node
}

/// Kernels of 1 to 5 CTAs over a few small buffers: forward and backward strides, halos, whole buffers; sometimes a
/// kernel without tiles.
fn small(random: &mut SmallRng) -> Program {
    let mut program = Program::new("small");
    let buffers: Vec<_> =
        (0..random.random_range(1..=3)).map(|i| program.buffer(format!("b{i}"), 12)).collect();
    for i in 0..random.random_range(2..=9) {
        let ctas = random.random_range(1..=5);
        let (mut accesses, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..random.random_range(1..=3) {
            let buffer = buffers[random.random_range(0..buffers.len())];
            let size = random.random_range(1..=2_i64);
            let most = 12 - size * i64::from(ctas);
            let start = random.random_range(0..=most) as u64;
            let mode = [AccessMode::Read, AccessMode::Read, AccessMode::Write, AccessMode::ReadWrite]
                [random.random_range(0..4)];
            accesses.push(Access { buffer, bytes: start..start + (size * i64::from(ctas)) as u64, mode });
            let last = size * (i64::from(ctas) - 1);
            bytes.push(match random.random_range(0..8) {
                0..=3 => TileBytes::Strided { first: 0, stride: size, bytes: size as u64 },
                4..=5 => TileBytes::Strided { first: last, stride: -size, bytes: size as u64 },
                6 => TileBytes::Strided { first: -1, stride: size, bytes: size as u64 + 2 },
                _ => TileBytes::All,
            });
        }
        let node = match random.random_bool(0.85) {
            true => tiled(&format!("k{i}"), ctas, accesses, bytes),
            false => kernel(&format!("k{i}"), 2.0, accesses),
        };
        program.push(node).expect("inside its buffers");
    }
    program
}

/// The order that waits imply, directly from their definition: each tile is a vertex that precedes the vertex of its
/// node's end; an end comes after the ends of the node's dependences, and a node with no tile waits begins after those
/// ends.
struct Oracle {
    first: Vec<usize>,
    before: Vec<Vec<bool>>,
}

impl Oracle {
    fn new(program: &Program, dependences: &Dependences, refinement: &Refinement) -> Oracle {
        let ctas: Vec<usize> = program.ids().map(|id| ctas(program, id)).collect();
        let mut first = vec![0];
        ctas.iter().for_each(|n| first.push(first[first.len() - 1] + n + 1));
        let n = first[ctas.len()];
        let mut before = vec![vec![false; n]; n];
        for (k, &count) in ctas.iter().enumerate() {
            let end = first[k] + count;
            (first[k]..end).for_each(|tile| before[end][tile] = true);
            for edge in dependences.edges.iter().filter(|e| e.after.index() == k) {
                let other = edge.before.index();
                let other_end = first[other] + ctas[other];
                before[end][other_end] = true;
                if refinement.nodes[k].waits.is_none() {
                    (first[k]..end).for_each(|tile| before[tile][other_end] = true);
                }
            }
            for (cta, waits) in refinement.nodes[k].waits.iter().flatten().enumerate() {
                waits
                    .iter()
                    .for_each(|w| before[first[k] + cta][first[w.node.index()] + w.cta as usize] = true);
            }
        }
        for via in 0..n {
            for after in 0..n {
                if before[after][via] {
                    (0..n).for_each(|b| before[after][b] |= before[via][b]);
                }
            }
        }
        Oracle { first, before }
    }

    /// Two unordered tiles that touch the same byte, with at least one write; tiles of the same node are not compared.
    fn race(&self, program: &Program) -> Option<(Cta, Cta)> {
        for later in program.ids() {
            for earlier in program.ids().take(later.index()) {
                for (a, b) in pairs(ctas(program, earlier), ctas(program, later)) {
                    let (before, after) = (Cta { node: earlier, cta: a }, Cta { node: later, cta: b });
                    let ordered = self.before[self.first[later.index()] + b as usize]
                        [self.first[earlier.index()] + a as usize];
                    if !ordered && conflict(program, before, after) {
                        return Some((before, after));
                    }
                }
            }
        }
        None
    }
}

fn ctas(program: &Program, id: NodeId) -> usize {
    let kernel = program.node(id).kernel().expect("only kernels");
    if kernel.tiles.is_some() { kernel.launch.ctas() as usize } else { 1 }
}

fn pairs(a: usize, b: usize) -> impl Iterator<Item = (u32, u32)> {
    (0..a as u32).flat_map(move |a| (0..b as u32).map(move |b| (a, b)))
}

/// Whether two CTAs conflict by definition, byte by byte.
fn conflict(program: &Program, a: Cta, b: Cta) -> bool {
    let bytes = |tile: Cta| {
        let node = program.node(tile.node);
        let tiles = node.kernel().and_then(|k| k.tiles.as_ref());
        let touched = |(i, access): (usize, &Access)| {
            let range = tiles.map_or(access.bytes.clone(), |tiles| tiles.bytes[i].range(access, tile.cta));
            range.map(|byte| (access.buffer, byte, access.mode)).collect::<Vec<_>>()
        };
        node.accesses.iter().enumerate().flat_map(touched).collect::<Vec<_>>()
    };
    let other = bytes(b);
    bytes(a).iter().any(|x| other.iter().any(|y| (x.0, x.1) == (y.0, y.1) && (x.2.writes() || y.2.writes())))
}

#[test]
fn every_byte_keeps_its_order() {
    let (mut refined, mut kept, mut waits) = (0, 0, 0);
    for seed in 0..programs(2000) {
        let program = small(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let found = refine(&program, &dependences, &DEVICES[0], Refine::Everywhere);
        if found.is_empty() {
            continue;
        }
        found.clone().prove(&program).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if let Some((before, after)) = Oracle::new(&program, &dependences, &found).race(&program) {
            panic!("seed {seed}: {before:?} and {after:?} race: {found:?}");
        }
        refined += found.refined();
        kept += found.kept.len();
        waits += found.most_waits();
    }
    assert!(refined > 1000 && kept > 100 && waits > 1000, "{refined} refined, {kept} kept, {waits}");
}

/// A refinement without any one of its waits is refuted, correctly: the oracle finds the race.
#[test]
fn a_missing_wait_is_refuted() {
    let (mut taken, mut raced) = (0, 0);
    for seed in 0..programs(300) {
        let program = small(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let found = refine(&program, &dependences, &DEVICES[0], Refine::Everywhere);
        for (node, sync) in found.nodes.iter().enumerate() {
            for (cta, waits) in sync.waits.iter().flatten().enumerate() {
                for left_out in 0..waits.len() {
                    let mut mutant = found.clone();
                    let list = mutant.nodes[node].waits.as_mut().expect("refined");
                    list[cta].remove(left_out);
                    let race = Oracle::new(&program, &dependences, &mutant).race(&program);
                    let proved = mutant.prove(&program);
                    assert_eq!(proved.is_err(), race.is_some(), "seed {seed}: {proved:?}, {race:?}");
                    assert!(
                        matches!(proved, Err(Unproved::Order { .. })),
                        "seed {seed}: nothing was superfluous"
                    );
                    taken += 1;
                    raced += usize::from(race.is_some());
                }
            }
        }
    }
    assert!(taken > 500 && raced == taken, "{raced} of {taken}");
}

#[test]
fn a_chain_with_neighbours_waits_for_readers_too() {
    // Each CTA reads its mirror image and half of two neighbors, and overwrites data that three CTAs of the previous
    // kernel read.
    let program = tiled_chain(4, 6, (0.6, 0.0), 64);
    let dependences = analyse(&program);
    let found = refine(&program, &dependences, &DEVICES[0], Refine::Everywhere);
    let waits = found.nodes[2].waits.as_ref().expect("refined");
    let waits_of = |cta: usize| waits[cta].iter().map(|t| (t.node.0, t.cta)).collect::<Vec<_>>();
    // Waits for mirror 4, itself and the next for their results, and for the one below because it read the overwritten
    // data.
    assert_eq!(waits_of(1), [(1, 0), (1, 1), (1, 2), (1, 4)]);
    assert_eq!(found.nodes[0].waits, None, "nothing comes before it");
    assert!(found.nodes[0].posts && !found.nodes[3].posts);
    assert_eq!(found.edges.len(), 3);
    // Waiting only for results would leave a race, which is detected.
    let mut mutant = found.clone();
    mutant.nodes[2].waits.as_mut().expect("refined")[1].remove(0);
    let tile = |node, cta| Cta { node: NodeId(node), cta };
    let want = Unproved::Order { before: tile(1, 0), after: tile(2, 1) };
    assert_eq!(mutant.prove(&program).map(drop), Err(want));
}

#[test]
fn what_cannot_hold_is_refuted() {
    let program = tiled_chain(3, 2, (0.6, 0.0), 0);
    let dependences = analyse(&program);
    let found = refine(&program, &dependences, &DEVICES[0], Refine::Everywhere);
    assert!(found.clone().prove(&program).is_ok());
    let refuted = |change: &dyn Fn(&mut Refinement), says: &str| {
        let mut mutant = found.clone();
        change(&mut mutant);
        let fault = mutant.prove(&program).expect_err(says).to_string();
        assert!(fault.contains(says), "{fault}");
    };
    refuted(&|r| r.nodes[1].posts = false, "never posted");
    refuted(&|r| r.nodes[1].waits.as_mut().expect("refined")[0][0].cta = 9, "never posted");
    refuted(
        &|r| {
            r.nodes[2].posts = true;
            r.nodes[1].waits.as_mut().expect("refined")[0][0].node = NodeId(2);
        },
        "may start later",
    );
    refuted(&|r| r.nodes[1].waits.as_mut().expect("refined").truncate(1), "one list of waits");
    refuted(&|r| r.nodes.truncate(2), "another program");
    // The same request for kernels that were not built for it.
    let mut plain = program.only(|_| false);
    for node in program.nodes() {
        let mut node = node.clone();
        if let NodeWork::Kernel(kernel) = &mut node.work {
            kernel.tiles = None;
        }
        plain.push(node).expect("inside");
    }
    let fault = found.clone().prove(&plain).expect_err("no tiles");
    assert!(fault.to_string().contains("not built"), "{fault}");
}

#[test]
fn the_model_decides_and_says_why() {
    // 0.5 us plus 100 rounds of 8 ns, and up to `ragged` extra rounds for the CTAs of uneven kernels.
    let schedule = |ctas, kernels, ragged: u32, shift| {
        let us = |rounds: u32| f64::from(rounds) * 8e-3;
        let times = (0.5 + us(100 + ragged), us(ragged) / 2.0);
        schedule(&tiled_chain(kernels, ctas, times, shift), &ScheduleOptions::default())
    };
    let says = |found: &KernelSchedule, text: &str| {
        assert!(found.form.is_programmatic());
        assert!(found.why.iter().any(|why| why.contains(text)), "{:?}", found.why);
    };
    // If all CTAs take equally long, the hardware is faster than semaphores.
    let found = schedule(132, 30, 0, 0);
    assert_eq!((found.refinement.refined(), found.refinement.kept.len()), (0, 29));
    assert!(found.refinement.is_empty() && found.refinement.edges.is_empty());
    says(&found, "29 kernels with tiles wait for whole kernels (spin_tiled first): the hand-off costs more");
    // Pairs of CTAs that need only each other do not wait for the longest CTA: 1.6 us longer than the mean.
    let found = schedule(132, 30, 400, 0);
    assert_eq!(found.refinement.refined(), 29);
    assert!(found.refinement.nodes[..29].iter().all(|node| node.early));
    says(&found, "29 kernels wait for tiles of those before them, at most 1 a CTA");
    let gain_us = found.refinement.edges[0].gain_us;
    assert!(gain_us > 0.3 && gain_us < 1.6, "{gain_us}");
    // With neighbors, a long CTA soon delays all others. (These choices were the fastest on an H200.)
    assert_eq!(schedule(16, 100, 400, 0).refinement.refined(), 99);
    for ctas in [16, 132] {
        let found = schedule(ctas, 100, 400, 64);
        assert_eq!(found.refinement.refined(), 0, "{ctas} CTAs");
        says(&found, "the hand-off costs more");
    }
}
