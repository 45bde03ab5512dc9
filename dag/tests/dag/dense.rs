//! Dense dependences: many nodes that wait for many others, through joins.

use std::collections::BTreeSet;
use std::time::Instant;

use cusync_dag::{
    Access, AccessMode, Form, Join, LaunchPlan, LaunchStep, Launches, NodeId, Program, ScheduleOptions,
    Steps, Times, Unproved, all_concurrency, analyse, as_written, limited,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::distribution::{implied, ordered, sound};
use crate::{kernel, programs, schedule};

/// Layers of kernels; each layer reads what most kernels of the layer before wrote. Some kernels read or write other
/// bytes too.
pub(crate) fn layers(random: &mut SmallRng) -> Program {
    let mut program = Program::new("layers");
    let widths: Vec<usize> = (0..random.random_range(2..=4)).map(|_| random.random_range(1..=12)).collect();
    let odd = program.buffer("odd", 4);
    let of_layer = |program: &mut Program, layer| program.buffer(format!("layer{layer}"), 12);
    let mut before = of_layer(&mut program, 0);
    let mut names = 0..;
    // In some programs, most kernels also read the output of a kernel that serves only them.
    let own_inputs = random.random_bool(0.5);
    let inputs = program.buffer("inputs", 12);
    for k in (0..12).filter(|_| own_inputs) {
        let access = Access { buffer: inputs, bytes: k..k + 1, mode: AccessMode::Write };
        let us = f64::from(random.random_range(0..8));
        program.push(kernel(&format!("input{k}"), us, vec![access])).expect("inside");
    }
    for (layer, &width) in widths.iter().enumerate() {
        let own = of_layer(&mut program, layer + 1);
        for k in 0..width as u64 {
            let access = |buffer, bytes, mode| Access { buffer, bytes, mode };
            let mut accesses = vec![access(own, k..k + 1, AccessMode::Write)];
            let range = if random.random_bool(0.1) { 0..random.random_range(1..12) } else { 0..12 };
            accesses.push(access(before, range, AccessMode::Read));
            if own_inputs {
                accesses.push(access(inputs, k..k + 1, AccessMode::Read));
            }
            if random.random_bool(0.1) {
                let mode = [AccessMode::Read, AccessMode::Write][random.random_range(0..2)];
                let start = random.random_range(0..4);
                accesses.push(access(odd, start..start + 1, mode));
            }
            let us = f64::from(random.random_range(0..8));
            let name = format!("k{}", names.next().expect("endless"));
            program.push(kernel(&name, us, accesses)).expect("inside");
        }
        before = own;
    }
    program
}

/// Pairs (before, after) that the queued steps order, by brute force.
fn queued(steps: &Steps) -> BTreeSet<(usize, usize)> {
    let mut lanes = vec![BTreeSet::new(); steps.priorities.len() + 1];
    let mut events = vec![BTreeSet::new(); steps.events];
    let mut pairs = BTreeSet::new();
    for step in &steps.steps {
        match *step {
            LaunchStep::Run { node, lane, .. } => {
                pairs.extend(lanes[lane].iter().map(|&before| (before, node)));
                lanes[lane].insert(node);
            }
            LaunchStep::Record { event, lane } => events[event] = lanes[lane].clone(),
            LaunchStep::Wait { event, lane } => lanes[lane].extend(&events[event]),
        }
    }
    pairs
}

/// Pairs (before, after) that the edges and joins of a graph order, by brute force.
fn connected(launches: &Launches, nodes: usize) -> BTreeSet<(usize, usize)> {
    let Launches::Graph { order, before, joins, .. } = launches else { panic!("no graph") };
    let mut ancestors = vec![BTreeSet::new(); nodes];
    for &node in order {
        let joined = joins.iter().filter(|join| join.after.contains(&node)).flat_map(|join| &join.before);
        for &b in before[node].iter().map(|(b, _)| b).chain(joined) {
            let of_b = ancestors[b].clone();
            ancestors[node].extend(of_b);
            ancestors[node].insert(b);
        }
    }
    let pairs = |(node, before): (usize, BTreeSet<usize>)| before.into_iter().map(move |b| (b, node));
    ancestors.into_iter().enumerate().flat_map(pairs).collect()
}

#[test]
fn joins_keep_every_dependence_and_all_concurrency() {
    let mut joins = 0;
    for seed in 0..programs(2000) / 10 {
        let program = layers(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let times = Times::new(&program, &dependences);
        let all = ordered(&program, &dependences);
        let full = all_concurrency(&program, &dependences, &times);
        let written = as_written(&program, &dependences, &times);
        for (plan, label) in [(&full, "full"), (&written, "as written")] {
            sound(&program, &dependences, plan, &format!("program {seed} {label}"));
            assert_eq!(implied(plan), all, "program {seed} {label}: concurrency is lost");
            joins += plan.joins.len();
        }
        for streams in [3, 10] {
            let plan = limited(&program, &dependences, &times, streams);
            sound(&program, &dependences, &plan, &format!("program {seed}, {streams} streams"));
        }
    }
    assert!(joins as u64 > programs(2000) / 10, "hardly any joins: {joins}");
}

#[test]
fn every_form_orders_all_pairs_and_a_join_with_a_hole_is_refuted() {
    let (mut joins, mut holes) = (0, 0);
    for seed in 0..programs(2000) / 20 {
        let program = layers(&mut SmallRng::seed_from_u64(seed));
        let found = schedule(&program, &ScheduleOptions::default());
        for form in Form::ALL {
            let plan = found.plan(&program, form);
            let proved = plan.clone().prove(&program).unwrap_or_else(|e| panic!("seed {seed} {form:?}: {e}"));
            let pairs = match proved.launches() {
                Launches::Streams { steps, .. } => queued(steps),
                graph @ Launches::Graph { .. } => connected(graph, program.nodes().len()),
            };
            for edge in found.dependences.edges.iter() {
                let pair = (edge.before.index(), edge.after.index());
                assert!(pairs.contains(&pair), "seed {seed} {form:?}: {edge:?}");
            }
            for join in 0..plan.joins().len() {
                joins += 1;
                let before = plan.joins()[join].before.len();
                let mutant = with_join(&plan, join, |join| {
                    join.before.remove(seed as usize % before);
                });
                holes += usize::from(refuted(mutant, &program, seed));
                let mutant = with_join(&plan, join, |join| {
                    join.after.pop();
                });
                holes += usize::from(refuted(mutant, &program, seed));
                let far = with_join(&plan, join, |join| join.before.push(99));
                assert!(far.prove(&program).expect_err("refuted").to_string().contains("does not exist"));
                let late = with_join(&plan, join, |join| join.before.push(join.after[0]));
                assert!(late.prove(&program).expect_err("refuted").to_string().contains("stands before"));
                let turned = with_join(&plan, join, |join| join.after.reverse());
                assert!(turned.prove(&program).expect_err("refuted").to_string().contains("stands before"));
            }
        }
    }
    assert!(joins > 100 && holes > joins, "{holes} holes in {joins} joins were refuted");
}

fn with_join(plan: &LaunchPlan, join: usize, change: impl Fn(&mut Join)) -> LaunchPlan {
    let mut mutant = plan.clone();
    match &mut mutant {
        LaunchPlan::Streams(plan) => change(&mut plan.joins[join]),
        LaunchPlan::Graph(plan) => change(&mut plan.joins[join]),
    }
    mutant
}

/// Whether the proof refutes a plan; if it does not, the plan must order all pairs.
fn refuted(mutant: LaunchPlan, program: &Program, seed: u64) -> bool {
    match mutant.prove(program) {
        Err(e) => {
            assert!(matches!(e, Unproved::Race { .. }), "seed {seed}: {e}");
            true
        }
        Ok(proved) => {
            let pairs = match proved.launches() {
                Launches::Streams { steps, .. } => queued(steps),
                graph @ Launches::Graph { .. } => connected(graph, program.nodes().len()),
            };
            let kept = |e: cusync_dag::NodeDependence| pairs.contains(&(e.before.index(), e.after.index()));
            assert!(analyse(program).edges.iter().all(kept), "seed {seed}");
            false
        }
    }
}

/// `before` kernels that each write a buffer, and `after` kernels that read all of these.
fn all_to_all(before: usize, after: usize) -> Program {
    let mut program = Program::new(format!("{after} kernels that read what {before} wrote"));
    let buffers: Vec<_> = (0..before).map(|i| program.buffer(format!("b{i}"), 64)).collect();
    for (i, &buffer) in buffers.iter().enumerate() {
        let accesses = vec![program.whole(buffer, AccessMode::Write)];
        program.push(kernel(&format!("w{i}"), 3.0, accesses)).expect("good");
    }
    for i in 0..after {
        let accesses = buffers.iter().map(|&b| program.whole(b, AccessMode::Read)).collect();
        program.push(kernel(&format!("r{i}"), 3.0, accesses)).expect("good");
    }
    program
}

/// The same over parts of one buffer.
fn slices(before: usize, after: usize) -> Program {
    let mut program = Program::new(format!("{after} kernels that read {before} parts of a buffer"));
    let x = program.buffer("x", 64 * before as u64);
    for i in 0..before as u64 {
        let access = Access { buffer: x, bytes: 64 * i..64 * i + 64, mode: AccessMode::Write };
        program.push(kernel(&format!("w{i}"), 3.0, vec![access])).expect("good");
    }
    for i in 0..after {
        let access = program.whole(x, AccessMode::Read);
        program.push(kernel(&format!("r{i}"), 3.0, vec![access])).expect("good");
    }
    program
}

/// `count` kernels that write parts of a buffer, and as many that read all of it and what one other kernel wrote.
fn with_own(count: usize) -> Program {
    let mut program =
        Program::new(format!("{count} kernels that read {count} parts of a buffer and one of another"));
    let (x, y) = (program.buffer("x", 64 * count as u64), program.buffer("y", 64 * count as u64));
    for i in 0..3 * count as u64 {
        let part = 64 * (i % count as u64)..64 * (i % count as u64) + 64;
        let access = |buffer, bytes: std::ops::Range<u64>, mode| Access { buffer, bytes, mode };
        let accesses = match i / count as u64 {
            0 => vec![access(x, part, AccessMode::Write)],
            1 => vec![access(y, part, AccessMode::Write)],
            _ => vec![program.whole(x, AccessMode::Read), access(y, part, AccessMode::Read)],
        };
        program.push(kernel(&format!("k{i}"), 3.0, accesses)).expect("good");
    }
    program
}

/// Every kernel reads what all others write.
fn all_read_all(kernels: usize) -> Program {
    let mut program = Program::new(format!("{kernels} kernels that each read what all others write"));
    let buffers: Vec<_> = (0..kernels).map(|i| program.buffer(format!("b{i}"), 64)).collect();
    for i in 0..kernels {
        let mode = |b: usize| if b == i { AccessMode::Write } else { AccessMode::Read };
        let accesses = (0..kernels).map(|b| program.whole(buffers[b], mode(b))).collect();
        program.push(kernel(&format!("k{i}"), 3.0, accesses)).expect("good");
    }
    program
}

#[test]
fn an_all_to_all_takes_as_many_waits_as_nodes() {
    for program in [all_to_all(500, 500), slices(500, 500)] {
        let found = schedule(&program, &ScheduleOptions::default());
        assert_eq!(found.dependences.edges.len(), 250_000);
        assert_eq!(found.dependences.reduced_edges().count(), 250_000);
        assert_eq!((found.full.waits.len(), found.full.wait_count()), (0, 1000), "{:?}", found.full.joins);
        for form in Form::ALL {
            let plan = found.plan(&program, form);
            let edges = plan.edges().len();
            assert!(edges + 1000 * plan.joins().len() <= 2500, "{form:?}: {edges} edges");
            plan.prove(&program).unwrap_or_else(|e| panic!("{form:?}: {e}"));
        }
        let last = NodeId(999);
        assert!(
            found.dependences.reaches(NodeId(499), last) && !found.dependences.reaches(NodeId(500), last)
        );
    }
}

/// Peak and current memory of this process, MB. Begins a new peak.
fn memory_mb() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a field");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("a number") / 1024.0
    };
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
    (field("VmHWM"), field("VmRSS"))
}

/// Prints times and memory of dense programs.
#[test]
#[ignore = "prints times; for a release build on an idle machine"]
fn dense_dependences_take_little_time_and_memory() {
    // Lists that are almost equal are not shared, only joined.
    let programs = [
        (all_to_all(2500, 2500), 1000.0, 5000),
        (slices(2500, 2500), 1000.0, 5000),
        (all_read_all(5000), 1000.0, 0),
        (with_own(2500), 4000.0, 7500),
    ];
    for (program, most_ms, waits) in &programs {
        let (_, before_mb) = memory_mb();
        let begin = Instant::now();
        let found = schedule(program, &ScheduleOptions::default());
        let schedule_ms = begin.elapsed().as_secs_f64() * 1e3;
        let begin = Instant::now();
        found.plan(program, found.form).prove(program).expect("proved");
        let proof_ms = begin.elapsed().as_secs_f64() * 1e3;
        let mb = memory_mb().0 - before_mb;
        println!(
            "{}: {} edges, {} waits, {:?}: {schedule_ms:.0} ms, plan and proof {proof_ms:.0} ms, {mb:.0} MB",
            program.name(),
            found.dependences.edges.len(),
            found.full.wait_count(),
            found.form,
        );
        assert!(schedule_ms < *most_ms && mb < 200.0, "{schedule_ms} ms, {mb} MB");
        assert_eq!(found.full.wait_count(), *waits);
    }
}
