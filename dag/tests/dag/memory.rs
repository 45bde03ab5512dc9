//! Allocations: no two buffers of concurrent kernels share memory.

use cusync_dag::{AccessMode, Program, Times, all_concurrency, allocate, analyse, parse, shipped};
use cusync_gen::device::DEVICES;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{kernel, programs};

/// A program of temporary buffers, each completely written before it is read.
fn chain_of_temporaries(random: &mut SmallRng) -> Program {
    let mut program = Program::new("temporaries");
    let input = program.buffer("input", 8);
    let mut alive = vec![input];
    for i in 0..random.random_range(2..=14) {
        let out = program.temporary(format!("t{i}"), random.random_range(1..=4) * 8);
        let mut accesses = vec![program.whole(out, AccessMode::Write)];
        for _ in 0..random.random_range(1..=2) {
            let from = alive[random.random_range(0..alive.len())];
            accesses.push(program.whole(from, AccessMode::Read));
        }
        program.push(kernel(&format!("k{i}"), 1.0, accesses)).expect("good");
        alive.push(out);
        if alive.len() > 3 {
            alive.remove(random.random_range(0..alive.len()));
        }
    }
    program
}

/// Runs the program in an order with its buffer allocations: every kernel writes its number mixed with the data it
/// reads.
fn results(program: &Program, order: &[usize], allocation: &[u32]) -> Vec<u64> {
    let mut memory = vec![0u64; allocation.len()];
    let mut seen = vec![0; program.nodes().len()];
    for &i in order {
        let accesses = &program.nodes()[i].accesses;
        let mut value = i as u64 + 1;
        for access in accesses.iter().filter(|a| a.mode != AccessMode::Write) {
            value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(9)
                ^ memory[allocation[access.buffer.index()] as usize];
        }
        seen[i] = value;
        for access in accesses.iter().filter(|a| a.mode != AccessMode::Read) {
            memory[allocation[access.buffer.index()] as usize] = value;
        }
    }
    seen
}

#[test]
fn any_order_that_keeps_dependences_gives_the_serial_result_in_shared_memory() {
    let mut saved = 0;
    for seed in 0..programs(2000) {
        let mut random = SmallRng::seed_from_u64(seed);
        let program = chain_of_temporaries(&mut random);
        let dependences = analyse(&program);
        let plan = allocate(&program, &dependences);
        for (buffer, &at) in program.buffers().iter().zip(&plan.of) {
            assert!(plan.sizes[at as usize] >= buffer.bytes, "program {seed}: too small");
        }
        let apart: Vec<u32> = (0..plan.of.len() as u32).collect();
        saved += plan.of.len() - plan.sizes.len();
        let n = program.nodes().len();
        let serial = results(&program, &(0..n).collect::<Vec<_>>(), &apart);
        for _ in 0..8 {
            // A random linear extension: an order that streams may produce.
            let mut left: Vec<usize> = (0..n).collect();
            let mut order = Vec::new();
            while !left.is_empty() {
                let ready: Vec<usize> = (0..left.len())
                    .filter(|&i| {
                        !dependences
                            .edges
                            .iter()
                            .any(|e| e.after.index() == left[i] && left.contains(&e.before.index()))
                    })
                    .collect();
                order.push(left.remove(ready[random.random_range(0..ready.len())]));
            }
            assert_eq!(results(&program, &order, &plan.of), serial, "program {seed}, order {order:?}");
        }
    }
    assert!(saved > 500, "hardly any memory is shared: {saved}");
}

#[test]
fn what_is_seen_from_outside_and_what_is_read_first_keep_their_memory() {
    let mut program = Program::new("kept");
    let (input, sum) = (program.buffer("input", 64), program.temporary("sum", 64));
    let (first, last) = (program.temporary("first", 64), program.temporary("last", 64));
    let node = |p: &Program, from, to, mode| {
        kernel("k", 1.0, vec![p.whole(from, AccessMode::Read), p.whole(to, mode)])
    };
    for (from, to, mode) in [
        (input, first, AccessMode::Write),
        (first, sum, AccessMode::ReadWrite),
        (sum, last, AccessMode::Write),
    ] {
        let node = node(&program, from, to, mode);
        program.push(node).expect("good");
    }
    let plan = allocate(&program, &analyse(&program));
    // `first` is dead when `last` is written; `sum` is read before anything is written to it.
    assert_eq!(plan.of[first.index()], plan.of[last.index()]);
    assert_eq!(plan.sizes.len(), 3);
    assert_eq!(plan.bytes(), 3 * 64);
}

#[test]
fn the_suite_shares_less_memory_than_serial_code_could() {
    // In IMG, `blur_u` is dead before `blur_s` in serial code, but the two are concurrent.
    let program = parse(shipped("img").expect("it ships"), &[], &DEVICES[0]).expect("good");
    let dependences = analyse(&program);
    let plan = allocate(&program, &dependences);
    let buffer = |name: &str| program.buffers().iter().position(|b| b.name == name).expect("it is there");
    assert_ne!(plan.of[buffer("blur_u")], plan.of[buffer("blur_s")]);
    assert_ne!(plan.of[buffer("blur_u")], plan.of[buffer("sobel_l")]);
    assert!(all_concurrency(&program, &dependences, &Times::new(&program, &dependences)).streams() == 4);
}
