//! Arenas: no two temporaries that may be alive at the same time share bytes, and limits hold.

use cusync_dag::{
    ALIGNMENT, Access, AccessMode, Arena, BufferId, DagError, Form, KernelSchedule, LaunchPlan, NodeId,
    Program, ScheduleOptions, Unproved, parse, schedule, shipped,
};
use cusync_gen::device::DEVICES;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{kernel, programs};

/// A program of temporary buffers of several sizes, each written before it is read, and one that is read first.
fn temporaries(random: &mut SmallRng) -> Program {
    let mut program = Program::new("temporaries");
    let (input, kept) = (program.buffer("input", 8), program.temporary("kept", 300));
    let mut alive = vec![input];
    let width = random.random_range(1..=5);
    for i in 0..random.random_range(2..=16) {
        let out = program.temporary(format!("t{i}"), random.random_range(1..=9) * 100);
        let mut accesses = vec![program.whole(out, AccessMode::Write)];
        for _ in 0..random.random_range(0..=2) {
            let buffer = alive[random.random_range(0..alive.len())];
            let bytes = program.buffers()[buffer.index()].bytes;
            let start = random.random_range(0..bytes);
            let bytes = start..random.random_range(start + 1..=bytes);
            accesses.push(Access { buffer, bytes, mode: AccessMode::Read });
        }
        if random.random_bool(0.1) {
            accesses.push(program.whole(kept, AccessMode::ReadWrite));
        }
        let us = f64::from(random.random_range(1..9));
        program.push(kernel(&format!("k{i}"), us, accesses)).expect("good");
        alive.push(out);
        if alive.len() > width {
            alive.remove(random.random_range(0..alive.len()));
        }
    }
    program
}

/// Runs the program in an order, byte by byte: every kernel writes its number mixed with all bytes that it reads.
/// Returns what each kernel read.
fn results(program: &Program, order: &[usize], places: &[u64]) -> Vec<u64> {
    let ends = program.buffers().iter().zip(places).map(|(buffer, place)| place + buffer.bytes);
    let mut memory = vec![0u64; ends.max().unwrap_or(0) as usize];
    let mut seen = vec![0; program.nodes().len()];
    for &i in order {
        let accesses = &program.nodes()[i].accesses;
        let bytes = |access: &Access| {
            let first = places[access.buffer.index()];
            (first + access.bytes.start) as usize..(first + access.bytes.end) as usize
        };
        let mut value = i as u64 + 1;
        for access in accesses.iter().filter(|a| a.mode.reads()) {
            for byte in &memory[bytes(access)] {
                value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(9) ^ byte;
            }
        }
        seen[i] = value;
        for access in accesses.iter().filter(|a| a.mode.writes()) {
            memory[bytes(access)].fill(value);
        }
    }
    seen
}

/// The places of all buffers: those of an arena, and memory of its own behind it for every other buffer.
fn everywhere(program: &Program, arena: &Arena) -> Vec<u64> {
    let mut end = arena.bytes;
    let place = |(buffer, place): (&cusync_dag::Buffer, &Option<u64>)| {
        place.unwrap_or_else(|| {
            end += buffer.bytes;
            end - buffer.bytes
        })
    };
    program.buffers().iter().zip(&arena.places).map(place).collect()
}

/// Pairs (before, after) of all edges of a plan.
fn pairs(plan: &LaunchPlan) -> Vec<(usize, usize)> {
    let joined = plan.joins().iter().flat_map(|join| {
        join.before.iter().flat_map(|&before| join.after.iter().map(move |&after| (before, after)))
    });
    plan.edges().iter().map(|edge| (edge.before, edge.after)).chain(joined).collect()
}

/// A random order that a plan allows.
fn random_order(nodes: usize, edges: &[(usize, usize)], random: &mut SmallRng) -> Vec<usize> {
    let mut left: Vec<usize> = (0..nodes).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let held = |node: usize| edges.iter().any(|&(before, after)| after == node && left.contains(&before));
        let ready: Vec<usize> = (0..left.len()).filter(|&at| !held(left[at])).collect();
        order.push(left.remove(ready[random.random_range(0..ready.len())]));
    }
    order
}

/// A schedule within a limit, or the error that refuses it.
fn limited(program: &Program, forms: &[Form], memory: u64) -> Result<KernelSchedule, DagError> {
    let forms = forms.to_vec();
    schedule(program, &ScheduleOptions { memory: Some(memory), forms, ..ScheduleOptions::default() })
}

/// The arena of a form without a limit.
fn free(program: &Program, form: Form) -> u64 {
    let found = schedule(program, &ScheduleOptions::default()).expect("no limit");
    found.prove(program, form).expect("proved").arena().bytes
}

/// Any order that a plan allows gives the result of serial code in separate memory, without a limit and at limits
/// from what one node at a time needs to what full concurrency takes.
#[test]
fn temporaries_within_a_limit_give_the_serial_result_in_any_order() {
    let (mut reused, mut added) = (0u64, 0);
    for seed in 0..programs(2000) / 10 {
        let mut random = SmallRng::seed_from_u64(seed);
        let program = temporaries(&mut random);
        let n = program.nodes().len();
        let apart = Arena { places: vec![None; program.buffers().len()], bytes: 0 };
        let code: Vec<usize> = (0..n).collect();
        let serial = results(&program, &code, &everywhere(&program, &apart));
        let (most, least) = (free(&program, Form::BRANCH_GRAPH), free(&program, Form::SERIAL));
        assert!(least <= most, "program {seed}: {least} and {most}");
        for limit in [u64::MAX, most, (most + least) / 2, (most + 3 * least) / 4, least] {
            let found =
                limited(&program, &Form::ALL, limit).unwrap_or_else(|e| panic!("program {seed}: {e}"));
            added += found.reuse().len();
            for form in found.predictions.iter().map(|p| p.form) {
                let place = || format!("program {seed}, {form:?}, {limit} bytes");
                let proved = found.prove(&program, form).unwrap_or_else(|e| panic!("{}: {e}", place()));
                let arena = proved.arena();
                assert!(arena.bytes <= limit, "{}: {}", place(), arena.bytes);
                let separate: u64 = program.buffers()[1..].iter().map(|b| b.bytes).sum();
                reused += separate.saturating_sub(arena.bytes);
                let (places, edges) = (everywhere(&program, arena), pairs(&found.plan(&program, form)));
                for _ in 0..4 {
                    let order = random_order(n, &edges, &mut random);
                    assert_eq!(results(&program, &order, &places), serial, "{}: {order:?}", place());
                }
            }
        }
    }
    assert!(reused > 10_000 && added > 500, "{reused} bytes reused, {added} dependences added");
}

/// Without any one of the waits that only reuse asks for, temporaries may be alive at the same bytes, and the proof
/// says so.
#[test]
fn a_dropped_reuse_dependence_is_refuted() {
    let mut dropped = 0;
    for seed in 0..programs(2000) / 10 {
        let program = temporaries(&mut SmallRng::seed_from_u64(seed));
        let limit = free(&program, Form::SERIAL);
        let found = limited(&program, &[Form::BRANCH_GRAPH], limit).expect("it fits");
        let LaunchPlan::Graph(plan) = found.plan(&program, Form::BRANCH_GRAPH) else { panic!("a graph") };
        let arena = found.prove(&program, Form::BRANCH_GRAPH).expect("proved").arena().clone();
        for &(before, after) in found.reuse() {
            let mut mutant = plan.clone();
            mutant.edges.retain(|&(b, a, _)| (b, a) != (before.index(), after.index()));
            if mutant == plan {
                continue; // Other waits imply it.
            }
            let fault = LaunchPlan::from(mutant).prove_placed(&program, &arena).expect_err("refuted");
            let (buffers, nodes) = match fault {
                Unproved::Memory { buffers, nodes } => (buffers, nodes),
                // A dependence of the code that this wait implied is lost, too.
                Unproved::Race { .. } => continue,
                other => panic!("program {seed}: {other}"),
            };
            let [a, b] = buffers;
            let bytes = |b: BufferId| {
                let first = arena.places[b.index()].expect("a temporary");
                first..first + program.buffers()[b.index()].bytes
            };
            assert!(
                bytes(a).start < bytes(b).end && bytes(b).start < bytes(a).end,
                "program {seed}: {fault}"
            );
            let uses = |node: NodeId, b| program.node(node).accesses.iter().any(|access| access.buffer == b);
            assert!(uses(nodes[0], a) && uses(nodes[1], b), "program {seed}: {fault}");
            dropped += 1;
        }
    }
    assert!(dropped > 100, "{dropped} waits dropped");
}

/// The proof of places agrees with a comparison of all pairs of temporaries.
#[test]
fn places_are_proved_if_and_only_if_no_two_temporaries_are_alive_at_the_same_bytes() {
    let mut verdicts = [0, 0];
    for seed in 0..programs(2000) {
        let mut random = SmallRng::seed_from_u64(seed);
        let program = temporaries(&mut random);
        let found = schedule(&program, &ScheduleOptions::default()).expect("no limit");
        let plan = found.plan(&program, found.form);
        let mut arena = found.prove(&program, found.form).expect("proved").arena().clone();
        for place in arena.places.iter_mut().flatten() {
            if random.random_bool(0.1) {
                *place = random.random_range(0..=arena.bytes / ALIGNMENT) * ALIGNMENT;
            }
        }
        arena.bytes += 1000;
        let n = program.nodes().len();
        let mut before = vec![vec![false; n]; n];
        pairs(&plan).into_iter().for_each(|(b, a)| before[b][a] = true);
        for (k, i, j) in (0..n).flat_map(|k| (0..n).flat_map(move |i| (0..n).map(move |j| (k, i, j)))) {
            before[i][j] |= before[i][k] && before[k][j];
        }
        let uses: Vec<Vec<usize>> = (0..program.buffers().len())
            .map(|b| {
                let accessed = |i: &usize| program.nodes()[*i].accesses.iter().any(|a| a.buffer.index() == b);
                (0..n).filter(accessed).collect()
            })
            .collect();
        let done = |a: usize, b: usize| uses[a].iter().all(|&i| uses[b].iter().all(|&j| before[i][j]));
        let apart = |a: usize, b: usize| {
            let [Some(first), Some(second)] = [a, b].map(|b| arena.places[b]) else { return true };
            first + program.buffers()[a].bytes <= second || second + program.buffers()[b].bytes <= first
        };
        // Buffer 1 is read first.
        let buffers = program.buffers().len();
        let right = (1..buffers)
            .flat_map(|b| (1..b).map(move |a| (a, b)))
            .all(|(a, b)| apart(a, b) || a != 1 && (done(a, b) || done(b, a)));
        let verdict = plan.prove_placed(&program, &arena);
        assert_eq!(verdict.is_ok(), right, "program {seed}: {:?}", verdict.err());
        verdicts[usize::from(right)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 50), "{verdicts:?}");
}

#[test]
fn buffers_that_are_external_or_read_first_share_with_none() {
    let mut program = Program::new("kept");
    let (input, sum) = (program.buffer("input", 64), program.temporary("sum", 64));
    let (first, last) = (program.temporary("first", 64), program.temporary("last", 64));
    program.temporary("unused", 64);
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
    let found = schedule(&program, &ScheduleOptions::default()).expect("no limit");
    let arena = found.prove(&program, Form::SERIAL).expect("proved").arena().clone();
    // `first` is dead when `last` is written; `sum` is read before anything is written to it.
    assert_eq!(arena.places[first.index()], arena.places[last.index()]);
    assert_ne!(arena.places[first.index()], arena.places[sum.index()]);
    assert_eq!((arena.places[input.index()], arena.places[4], arena.bytes), (None, None, 2 * ALIGNMENT));
    let fault = |change: &dyn Fn(&mut Arena)| {
        let mut wrong = arena.clone();
        change(&mut wrong);
        let plan = found.plan(&program, Form::SERIAL);
        plan.prove_placed(&program, &wrong).expect_err("refuted").to_string()
    };
    assert_eq!(fault(&|a| a.places[0] = Some(0)), "buffer 0 is external and has a place");
    assert_eq!(fault(&|a| a.places[1] = None), "buffer 1 has no place");
    assert_eq!(fault(&|a| a.places[1] = Some(64)), "buffer 1 is not aligned");
    assert_eq!(fault(&|a| a.places[1] = Some(1 << 20)), "buffer 1 does not fit into the arena");
    assert_eq!(fault(&|a| a.places.truncate(2)), "buffer 2 is not in both program and arena");
    assert_eq!(
        fault(&|a| a.places[1] = a.places[2]),
        "buffer 1 is read before it is written, and shares bytes"
    );
}

/// A large buffer that is dead gives its bytes to several small ones, and they give theirs to a large one again.
#[test]
fn dead_bytes_are_divided_and_join_again() {
    let mut program = Program::new("divided");
    let [dead, done, out] = ["dead", "done", "out"].map(|name| program.buffer(name, 4));
    let large = [program.temporary("large", 4096), program.temporary("large again", 4096)];
    let small: Vec<BufferId> = (0..4).map(|i| program.temporary(format!("small {i}"), 1024)).collect();
    let steps = [
        (vec![], vec![large[0]]),
        (vec![large[0]], vec![dead]),
        (vec![dead], small.clone()),
        (small, vec![done]),
        (vec![done], vec![large[1]]),
        (vec![large[1]], vec![out]),
    ];
    for (reads, writes) in steps {
        let reads = reads.into_iter().map(|b| program.whole(b, AccessMode::Read));
        let accesses = reads.chain(writes.into_iter().map(|b| program.whole(b, AccessMode::Write))).collect();
        program.push(kernel("k", 1.0, accesses)).expect("good");
    }
    for form in [Form::SERIAL, Form::BRANCH_GRAPH] {
        assert_eq!(free(&program, form), 4096);
    }
}

/// The shipped program with most temporaries: less memory than its branches take is enough, at the price of
/// concurrency; too little is an error that says how much is needed, and where.
#[test]
fn a_limit_costs_concurrency_and_too_small_a_limit_is_refused() {
    let program = parse(shipped("img").expect("it ships"), &[], &DEVICES[0]).expect("good");
    let (most, least) = (free(&program, Form::BRANCH_GRAPH), free(&program, Form::SERIAL));
    assert!(least < most, "{least} and {most}");
    let us = |memory| limited(&program, &Form::ALL, memory).expect("it fits").predicted_us();
    assert!(us(most) <= us(least) * 1.03, "{} and {} us", us(most), us(least));
    let fault = limited(&program, &Form::ALL, ALIGNMENT).expect_err("too small");
    let DagError::Memory { limit: ALIGNMENT, least: needed, ref node, alive } = fault else {
        panic!("{fault}")
    };
    assert!(needed <= least && alive <= needed && !node.is_empty(), "{fault}");
    limited(&program, &Form::ALL, needed).expect("what the error says is enough");
    assert!(limited(&program, &Form::ALL, needed - 1).is_err());
    let fault =
        limited(&program, &[Form::SERIAL], least - 1).expect_err("too small for the order of the code");
    assert!(fault.to_string().contains(&format!("need {least} bytes")), "{fault}");
}

/// A thousand temporaries in chains side by side.
#[test]
fn chains_take_the_memory_that_they_may() {
    let mut program = Program::new("chains");
    let out = program.buffer("out", 40);
    for chain in 0..40 {
        let mut last = None;
        for step in 0..25 {
            let next = program.temporary(format!("t{chain}.{step}"), 256 << 10);
            let mut accesses = vec![program.whole(next, AccessMode::Write)];
            accesses.extend(last.map(|last| program.whole(last, AccessMode::Read)));
            if step == 24 {
                accesses.push(Access { buffer: out, bytes: chain..chain + 1, mode: AccessMode::Write });
            }
            program.push(kernel("k", 5.0, accesses)).expect("good");
            last = Some(next);
        }
    }
    let (least, most) = (free(&program, Form::SERIAL), free(&program, Form::BRANCH_GRAPH));
    assert_eq!((least, most), ((2 * 256) << 10, (80 * 256) << 10));
    let mut last_us = f64::INFINITY;
    for chains in [1, 2, 4, 10, 20, 40] {
        let found = limited(&program, &Form::ALL, chains * least).expect("it fits");
        let proved = found.prove(&program, found.form).expect("proved");
        assert!(proved.arena().bytes <= chains * least, "{chains} chains: {}", proved.arena().bytes);
        let us = found.predicted_us();
        println!("{chains} chains: {us:.1} us, {} dependences", found.reuse().len());
        assert!(us <= last_us * 1.001, "{chains} chains at a time take {us} us, fewer {last_us}");
        // Five us for each of 25 kernels, and an edge.
        assert!(us <= 25.0 * 9.0 * 40.0 / chains as f64 + 20.0, "{chains} chains at a time take {us} us");
        last_us = us;
    }
}
