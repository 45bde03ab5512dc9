//! Streams and waits: none missing, none redundant, and as few waits as possible.

use std::collections::BTreeSet;

use cusync_dag::{
    Access, AccessMode, Admit, BufferId, Dependences, Direction, Distribution, Form, Join, Lane,
    LaunchConfig, LaunchPlan, Node, NodeId, NodeWork, Program, RandomDag, Recording, ScheduleOptions, Times,
    Unproved, all_concurrency, analyse, as_written, limited,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{kernel, programs, schedule, tasks, tiny};

/// Pairs (before, after) that streams and waits order.
pub(crate) fn implied(plan: &Distribution) -> BTreeSet<(u32, u32)> {
    let n = plan.order.len();
    let mut before = vec![vec![false; n]; n];
    let mut last = vec![None; plan.streams()];
    for &id in &plan.order {
        let i = id.index();
        let stream = last[plan.stream[i] as usize].replace(id);
        let waits = plan.waits.iter().filter(|w| w.after == id).map(|w| w.before);
        let joins = plan.joins.iter().filter(|join| join.after.contains(&i));
        let waits = waits.chain(joins.flat_map(|join| join.before.iter().map(|&b| NodeId::from(b))));
        for b in stream.into_iter().chain(waits).collect::<Vec<NodeId>>() {
            before[i][b.index()] = true;
            let of_b = before[b.index()].clone();
            before[i].iter_mut().zip(of_b).for_each(|(i, b)| *i |= b);
        }
    }
    let pairs = (0..n).flat_map(|i| (0..n).map(move |b| (b, i)));
    pairs.filter(|&(b, i)| before[i][b]).map(|(b, i)| (b as u32, i as u32)).collect()
}

/// Pairs of nodes that depend on each other, directly or through others.
pub(crate) fn ordered(program: &Program, dependences: &Dependences) -> BTreeSet<(u32, u32)> {
    let pairs = program.ids().flat_map(|a| program.ids().map(move |b| (a, b)));
    pairs.filter(|&(a, b)| dependences.reaches(a, b)).map(|(a, b)| (a.0, b.0)).collect()
}

/// Invariants of every distribution.
pub(crate) fn sound(program: &Program, dependences: &Dependences, plan: &Distribution, label: &str) {
    let mut position = vec![usize::MAX; program.nodes().len()];
    for (at, id) in plan.order.iter().enumerate() {
        assert_eq!(std::mem::replace(&mut position[id.index()], at), usize::MAX, "{label}: issued twice");
    }
    assert!(!position.contains(&usize::MAX), "{label}: not issued");
    let order = implied(plan);
    for edge in dependences.edges.iter() {
        assert!(position[edge.before.index()] < position[edge.after.index()], "{label}: issued too early");
        assert!(order.contains(&(edge.before.0, edge.after.0)), "{label}: {edge:?} is not kept");
    }
    for wait in &plan.waits {
        let mut less = plan.clone();
        less.waits.retain(|w| w != wait);
        assert_ne!(implied(&less), order, "{label}: {wait:?} is superfluous");
        assert_ne!(plan.stream[wait.before.index()], plan.stream[wait.after.index()], "{label}");
    }
    for join in 0..plan.joins.len() {
        let less = |change: &dyn Fn(&mut Join)| {
            let mut less = plan.clone();
            change(&mut less.joins[join]);
            assert_ne!(implied(&less), order, "{label}: part of {:?} is superfluous", plan.joins[join]);
        };
        (0..plan.joins[join].before.len()).for_each(|at| {
            less(&|join| {
                join.before.remove(at);
            })
        });
        (0..plan.joins[join].after.len()).for_each(|at| {
            less(&|join| {
                join.after.remove(at);
            })
        });
    }
    assert!(plan.stream.iter().all(|&s| (s as usize) < plan.streams()), "{label}");
}

/// The fewest reduced edges between streams, over all ways of assigning already ordered nodes to one stream.
fn fewest_waits(dependences: &Dependences, n: usize) -> usize {
    fn place(dependences: &Dependences, streams: &mut Vec<Vec<u32>>, next: u32, n: u32, best: &mut usize) {
        if next == n {
            let stream_of = |id: NodeId| streams.iter().position(|s| s.contains(&id.0));
            let waits =
                dependences.reduced_edges().filter(|e| stream_of(e.before) != stream_of(e.after)).count();
            *best = waits.min(*best);
            return;
        }
        for i in 0..=streams.len() {
            if i == streams.len() {
                streams.push(Vec::new());
            }
            if streams[i].iter().all(|&other| dependences.reaches(NodeId(other), NodeId(next))) {
                streams[i].push(next);
                place(dependences, streams, next + 1, n, best);
                streams[i].pop();
            }
            if streams.last().is_some_and(Vec::is_empty) {
                streams.pop();
            }
        }
    }
    let mut best = usize::MAX;
    place(dependences, &mut Vec::new(), 0, n as u32, &mut best);
    best
}

#[test]
fn all_concurrency_is_kept_with_the_fewest_waits() {
    let mut waits = 0;
    for seed in 0..programs(2000) {
        let program = tiny(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let plan = all_concurrency(&program, &dependences, &Times::new(&program, &dependences));
        sound(&program, &dependences, &plan, &format!("program {seed}"));
        let all = ordered(&program, &dependences);
        assert_eq!(implied(&plan), all, "program {seed}: concurrency is lost");
        let written = as_written(&program, &dependences, &Times::new(&program, &dependences));
        sound(&program, &dependences, &written, &format!("program {seed} as written"));
        assert!(written.order.is_sorted(), "program {seed}: not in the order of the code");
        assert_eq!(implied(&written), all, "program {seed} as written: concurrency is lost");
        assert_eq!(written.waits.len(), plan.waits.len(), "program {seed}: both have the fewest");
        if program.nodes().len() <= 8 {
            let fewest = fewest_waits(&dependences, program.nodes().len());
            assert_eq!(plan.waits.len(), fewest, "program {seed}");
            waits += fewest;
        }
        assert_eq!(plan, all_concurrency(&program, &dependences, &Times::new(&program, &dependences)));
    }
    assert!(waits > 100, "the programs hardly need waits: {waits}");
}

#[test]
fn fewer_streams_are_sound_too() {
    for seed in 0..programs(1000) {
        let program = tiny(&mut SmallRng::seed_from_u64(seed));
        let dependences = analyse(&program);
        let times = Times::new(&program, &dependences);
        for streams in 1..=3 {
            let plan = limited(&program, &dependences, &times, streams);
            sound(&program, &dependences, &plan, &format!("program {seed}, {streams} streams"));
            assert!(plan.streams() <= streams);
            assert!(streams > 1 || plan.waits.is_empty());
        }
    }
}

#[test]
fn kernels_are_spread_evenly() {
    // 24 kernels of 10 us on 4 streams: 6 each.
    let mut program = Program::new("even");
    for i in 0..24 {
        program.push(kernel(&format!("k{i}"), 10.0, Vec::new())).expect("good");
    }
    let dependences = analyse(&program);
    let plan = limited(&program, &dependences, &Times::new(&program, &dependences), 4);
    let mut count = [0; 4];
    plan.stream.iter().for_each(|&s| count[s as usize] += 1);
    assert_eq!(count, [6; 4]);
}

#[test]
fn a_copy_is_issued_early_on_a_stream_of_its_own() {
    // The third kernel's data is copied while the first two run.
    let mut program = Program::new("prefetch");
    let (x, y) = (program.buffer("x", 64), program.buffer("y", 64));
    program.push(kernel("one", 10.0, vec![program.whole(x, AccessMode::ReadWrite)])).expect("good");
    program.push(kernel("two", 10.0, vec![program.whole(x, AccessMode::ReadWrite)])).expect("good");
    let copy = NodeWork::Copy { direction: Direction::HostToDevice, bytes: 64 };
    let accesses = vec![Access { buffer: y, bytes: 0..64, mode: AccessMode::Write }];
    let copy = program.push(Node::new("copy", copy, accesses, 8.0)).expect("good");
    let three = vec![program.whole(x, AccessMode::ReadWrite), program.whole(y, AccessMode::Read)];
    let three = program.push(kernel("three", 10.0, three)).expect("good");
    let dependences = analyse(&program);
    let plan = all_concurrency(&program, &dependences, &Times::new(&program, &dependences));
    assert!(plan.order[..2].contains(&copy), "the copy is issued with the first kernel: {:?}", plan.order);
    assert_eq!(plan.lanes[plan.stream[copy.index()] as usize], Lane::Copies(Direction::HostToDevice));
    let waits: Vec<_> = plan.waits.iter().map(|w| (w.before, w.after)).collect();
    assert_eq!(waits, [(copy, three)]);
}

#[test]
fn random_programs_are_as_asked_for_and_reproducible() {
    for (kernels, width) in [(10, 1), (100, 6), (1000, 12)] {
        let shape = RandomDag { kernels, width, ..RandomDag::default() };
        let program = shape.program(7).expect("within limits");
        assert_eq!(program, shape.program(7).expect("within limits"));
        assert_ne!(program, shape.program(8).expect("within limits"));
        assert_eq!(program.nodes().len(), kernels);
        assert!(program.nodes().iter().all(|n| (1.0..=50.0).contains(&n.us)));
        let dependences = analyse(&program);
        let times = Times::new(&program, &dependences);
        let plan = all_concurrency(&program, &dependences, &times);
        assert!(plan.streams() <= 2 * width, "{} streams at width {width}", plan.streams());
        assert!(times.issue_order(&program).len() == kernels && (width > 1) == (plan.streams() > 1));
    }
}

#[test]
fn as_written_a_copy_stands_with_its_kernel() {
    let mut program = Program::new("vec");
    let [x, y, x1, y1, sum] = ["x", "y", "x1", "y1", "sum"].map(|name| program.buffer(name, 64));
    let copy = |program: &Program, direction, buffer, mode| Node {
        work: NodeWork::Copy { direction, bytes: 64 },
        ..kernel("copy", 2.0, vec![program.whole(buffer, mode)])
    };
    let pass = |program: &Program, from, to| {
        kernel(
            "square",
            3.0,
            vec![program.whole(from, AccessMode::Read), program.whole(to, AccessMode::Write)],
        )
    };
    let mut reduce = pass(&program, x1, sum);
    reduce.accesses.push(program.whole(y1, AccessMode::Read));
    let nodes = [
        copy(&program, Direction::HostToDevice, x, AccessMode::Write),
        pass(&program, x, x1),
        copy(&program, Direction::HostToDevice, y, AccessMode::Write),
        pass(&program, y, y1),
        reduce,
        copy(&program, Direction::DeviceToHost, sum, AccessMode::Read),
    ];
    for node in nodes {
        program.push(node).expect("good");
    }
    let program = &program;
    let dependences = analyse(program);
    let times = Times::new(program, &dependences);
    // Two uploads, each with its kernel; then a kernel for both and a download.
    let written = as_written(program, &dependences, &times);
    sound(program, &dependences, &written, "as written");
    assert_eq!((written.streams(), written.waits.len()), (2, 1), "{written:?}");
    let engines = all_concurrency(program, &dependences, &times);
    assert!(engines.waits.len() > written.waits.len(), "copies on streams of their own need waits");
}

#[test]
fn gates_hold_in_programs_of_every_kind() {
    let mut gated = 0;
    for seed in 0..programs(2000) {
        let mut random = SmallRng::seed_from_u64(seed);
        let program = tasks(&mut random);
        let any = NodeId(random.random_range(0..program.nodes().len() as u32));
        let admit = [Admit::Model, Admit::Free, Admit::After(any)][random.random_range(0..3)];
        let streams = [None, Some(1), Some(2)][random.random_range(0..3)];
        let found = schedule(&program, &ScheduleOptions { admit, streams, ..ScheduleOptions::default() });
        let gates = found.admission.as_ref().map_or(&[][..], |admission| &admission.gates);
        gated += gates.len();
        for plan in [&found.full, &found.written, &found.chosen] {
            let place = |id: NodeId| plan.order.iter().position(|o| *o == id).expect("issued");
            assert_eq!(plan.order.len(), program.nodes().len(), "program {seed}");
            assert!(gates.iter().all(|gate| place(gate.0) < place(gate.1)), "program {seed}");
            sound(&program, &found.gated, plan, &format!("program {seed}"));
        }
        for form in Form::ALL {
            let plan = found.plan(&program, form);
            plan.prove(&program).unwrap_or_else(|e| panic!("program {seed}, {form:?}: {e}"));
        }
    }
    assert!(gated > 500, "{gated} gates");
}

/// A plan without one of its waits is refuted, and so is a plan that lets kernels begin too early.
#[test]
fn a_plan_that_loses_a_dependence_is_refuted() {
    let mut refuted = 0;
    for seed in 0..programs(300) {
        let program = tasks(&mut SmallRng::seed_from_u64(seed));
        let found = schedule(&program, &ScheduleOptions { admit: Admit::Free, ..ScheduleOptions::default() });
        let LaunchPlan::Streams(plan) = found.plan(&program, Form::STREAMS) else { panic!("streams") };
        for left_out in 0..plan.waits.len() {
            let mut mutant = plan.clone();
            mutant.waits.remove(left_out);
            let fault = LaunchPlan::from(mutant).prove(&program).expect_err("no wait is superfluous");
            assert!(matches!(fault, Unproved::Race { .. }), "program {seed}: {fault}");
            refuted += 1;
        }
        let LaunchPlan::Graph(plan) = found.plan(&program, Form::BRANCH_GRAPH) else { panic!("a graph") };
        for left_out in 0..plan.edges.len() {
            let mut mutant = plan.clone();
            mutant.edges.remove(left_out);
            assert!(LaunchPlan::from(mutant).prove(&program).is_err(), "program {seed}: edge {left_out}");
            refuted += 1;
        }
        let copy = |node: usize| program.nodes()[node].kernel().is_none();
        if let Some(at) = plan.edges.iter().position(|e| copy(e.0) || copy(e.1)) {
            let mut mutant = plan.clone();
            mutant.edges[at].2 = true;
            let fault =
                LaunchPlan::from(mutant).prove(&program).expect_err("a copy has no programmatic edges");
            assert!(fault.to_string().contains("was not built"), "program {seed}: {fault}");
        }
    }
    assert!(refuted > 500, "{refuted} plans");
}

#[test]
fn forms_have_the_edges_that_they_are_named_for() {
    // upload x; f(x -> y); g(x -> z); h(y, z -> w): a diamond after a copy.
    let mut code = Recording::new("diamond").built_for_programmatic_edges();
    let x = code.filled("x", vec![0; 4]);
    let [y, z, w]: [BufferId; 3] = ["y", "z", "w"].map(|name| code.zeros(name, 4));
    code.copy(x, Direction::HostToDevice).expect("good");
    let launch = LaunchConfig::linear(1, 32);
    let arguments_of = |code: &Recording| {
        [
            vec![code.read(x), code.write(y)],
            vec![code.read(x), code.write(z)],
            vec![code.read(y), code.read(z), code.write(w)],
        ]
    };
    for arguments in arguments_of(&code) {
        code.launch("k", launch, 20.0, &arguments).expect("good");
    }
    let program = code.program();
    let found = schedule(program, &ScheduleOptions::default());
    let edges = |form| match found.plan(program, form) {
        LaunchPlan::Graph(mut plan) => {
            assert!(plan.priorities.is_empty(), "one zone has no priorities");
            plan.edges.sort_unstable();
            Some(plan.edges)
        }
        LaunchPlan::Streams(_) => None,
    };
    let branches = |join| vec![(0, 1, false), (0, 2, false), (1, 3, join), (2, 3, join)];
    assert_eq!(edges(Form::BRANCH_GRAPH), Some(branches(false)));
    // A copy has no programmatic edge.
    assert_eq!(edges(Form::BRANCH_PROGRAMMATIC), Some(branches(true)));
    // The upload is the only first node and `h` the only last one, so a funnel adds nothing.
    assert_eq!(edges(Form::FUNNEL_GRAPH), edges(Form::BRANCH_GRAPH));
    // Mixed edges are full where branches join.
    assert_eq!(edges(Form::FUNNEL_MIXED), edges(Form::BRANCH_GRAPH));
    for form in [Form::SERIAL, Form::STREAMS] {
        assert_eq!(edges(form), None, "{form:?}");
    }
    let LaunchPlan::Streams(plan) = found.plan(program, Form::STREAMS) else { panic!("streams") };
    assert_eq!(plan.priorities.len(), found.chosen.streams());
    assert_eq!(plan.waits.len(), found.chosen.waits.len());
}
