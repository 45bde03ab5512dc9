//! Opaque nodes: their workspaces are shared only in an order, and no more of them are used than needed.

use cusync_dag::{
    DagError, Form, Kernel, LaunchConfig, LaunchPlan, NodeId, NodeWork, Program, Recording, ScheduleOptions,
    StreamPlan, Unproved, analyse, read, update, write,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{programs, schedule, tasks};

/// Tasks in which most kernels are opaque.
fn opaque_tasks(seed: u64) -> Program {
    let mut random = SmallRng::seed_from_u64(seed);
    let plain = tasks(&mut random);
    let mut program = plain.only(|_| false);
    for node in plain.nodes() {
        let mut node = node.clone();
        if let NodeWork::Kernel(kernel) = &mut node.work {
            kernel.programmatic = random.random_bool(0.3);
            kernel.workspace = (!kernel.programmatic).then(|| random.random_range(0..100));
        }
        program.push(node).expect("good");
    }
    program
}

/// For each node, whether a path of the plan leads to it from each other node.
fn reached(plan: &LaunchPlan, nodes: usize) -> Vec<Vec<bool>> {
    let mut edges: Vec<(usize, usize)> = plan.edges().iter().map(|e| (e.before, e.after)).collect();
    for join in plan.joins() {
        edges.extend(join.before.iter().flat_map(|&b| join.after.iter().map(move |&a| (b, a))));
    }
    let mut found = vec![vec![false; nodes]; nodes];
    edges.iter().for_each(|&(before, after)| found[after][before] = true);
    for middle in 0..nodes {
        for after in 0..nodes {
            for before in 0..nodes {
                found[after][before] |= found[after][middle] && found[middle][before];
            }
        }
    }
    found
}

/// The most opaque nodes that are pairwise unordered, by trial of all sets: each needs a workspace of its own.
fn widest(opaque: &[usize], reached: &[Vec<bool>]) -> usize {
    let apart = |a: usize, b: usize| !reached[a][b] && !reached[b][a];
    let set =
        |bits: u32| opaque.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, &node)| node);
    let independent = |bits: &u32| set(*bits).all(|a| set(*bits).all(|b| a == b || apart(a, b)));
    (0..1u32 << opaque.len()).filter(independent).map(u32::count_ones).max().unwrap_or(0) as usize
}

#[test]
fn workspaces_are_as_few_as_unordered_nodes_and_every_sharing_is_ordered() {
    let (mut shared, mut refuted) = (0, 0);
    for seed in 0..programs(2000) / 10 {
        let program = opaque_tasks(seed);
        let nodes = program.nodes().len();
        let need = |node: usize| program.nodes()[node].kernel().and_then(|k| k.workspace);
        let opaque: Vec<usize> = (0..nodes).filter(|&node| need(node).is_some()).collect();
        let found = schedule(&program, &ScheduleOptions::default());
        for form in Form::ALL {
            let plan = found.plan(&program, form);
            let proved = plan.clone().prove(&program).unwrap_or_else(|e| panic!("seed {seed} {form:?}: {e}"));
            let (given, reached) = (proved.workspaces(), reached(&plan, nodes));
            for (&a, &b) in opaque.iter().flat_map(|a| opaque.iter().map(move |b| (a, b))) {
                if a != b && given.of_node(a) == given.of_node(b) {
                    assert!(reached[a][b] || reached[b][a], "seed {seed} {form:?}: {a} and {b} race");
                    shared += 1;
                }
            }
            assert_eq!(given.bytes().len(), widest(&opaque, &reached), "seed {seed} {form:?}");
            for (workspace, &bytes) in given.bytes().iter().enumerate() {
                let users = opaque.iter().filter(|&&node| given.of_node(node) == Some(workspace));
                assert_eq!(users.filter_map(|&node| need(node)).max(), Some(bytes), "seed {seed} {form:?}");
            }
            assert!((0..nodes).all(|node| given.of_node(node).is_some() == need(node).is_some()));
            // One workspace for all is right if and only if the plan is serial for them.
            let one: Vec<_> = (0..nodes).map(|node| need(node).map(|_| 0)).collect();
            match plan.prove_sharing(&program, &one) {
                Ok(_) => assert!(given.bytes().len() < 2, "seed {seed} {form:?}"),
                Err(fault) => {
                    let Unproved::Workspace { nodes: [a, b], workspace: 0 } = fault else {
                        panic!("{fault}")
                    };
                    assert!(!reached[a.index()][b.index()] && !reached[b.index()][a.index()]);
                    refuted += 1;
                }
            }
        }
    }
    assert!(shared > 1000 && refuted > 100, "{shared} shared, {refuted} refuted");
}

/// Two calls of a library with results of their own.
fn two_calls(code: &mut Recording, [a, b, c]: [&[f32]; 3], workspace: u64) -> [NodeId; 2] {
    let launch = LaunchConfig::linear(132, 256);
    [b, c].map(|out| code.opaque("gemm", launch, 20.0, &[read(a), write(out)], workspace).expect("good"))
}

#[test]
fn calls_on_two_lanes_have_two_workspaces_and_one_handle_orders_them() {
    let (a, b, c, handle) = ([0f32; 64], [0f32; 64], [0f32; 64], [0u8; 1]);
    let mut code = Recording::new("two");
    let [first, second] = two_calls(&mut code, [&a, &b, &c], 1 << 20);
    let apart = StreamPlan { order: vec![(first.index(), 0), (second.index(), 1)], ..StreamPlan::default() };
    let plan = LaunchPlan::from(apart.clone());
    let proved = plan.clone().prove(code.program()).expect("nothing is shared");
    assert_eq!(proved.workspaces().bytes(), [1 << 20, 1 << 20]);
    let fault = plan.clone().prove_sharing(code.program(), &[Some(0), Some(0)]).expect_err("a race");
    assert_eq!(fault.to_string(), "nodes 0 and 1 share workspace 0, and neither waits for the other");
    let fault = |workspaces: &[_]| {
        plan.clone().prove_sharing(code.program(), workspaces).expect_err("refuted").to_string()
    };
    assert_eq!(fault(&[Some(0)]), "node 1 is opaque and has no workspace");
    assert_eq!(fault(&[Some(0), Some(7)]), "node 1 has a workspace with a number past those of all nodes");
    let waits = StreamPlan { waits: vec![(0, 1)], ..apart.clone() };
    let proved = LaunchPlan::from(waits).prove(code.program()).expect("ordered");
    assert_eq!(proved.workspaces().bytes(), [1 << 20]);

    let mut code = Recording::new("one handle");
    for out in [&b, &c] {
        let declared = [read(&a[..]), write(&out[..]), update(&handle[..]).unpassed()];
        code.opaque("gemm", LaunchConfig::linear(132, 256), 20.0, &declared, 0).expect("good");
    }
    let edges: Vec<_> = analyse(code.program()).reduced_edges().map(|e| (e.before.0, e.after.0)).collect();
    assert_eq!(edges, [(0, 1)]);
    let fault = LaunchPlan::from(apart).prove(code.program()).expect_err("a race");
    assert!(matches!(fault, Unproved::Race { .. }), "{fault}");
}

#[test]
fn kernels_have_no_workspace_and_opaque_nodes_no_early_edges() {
    let mut code = Recording::new("kernels");
    let launch = LaunchConfig::linear(1, 32);
    code.launch("k", launch, 1.0, &[]).expect("good");
    let plan = LaunchPlan::from(StreamPlan::serial([0]));
    let fault = plan.prove_sharing(code.program(), &[Some(0)]).expect_err("refuted").to_string();
    assert_eq!(fault, "node 0 has a workspace and is not opaque");
    let early = |kernel: &mut Kernel| (kernel.programmatic, kernel.workspace) = (true, Some(0));
    let fault = code.launch_with("k", launch, 1.0, &[], early).expect_err("refused");
    assert_eq!(fault, DagError::Opaque { node: "k".into() });
}
