//! The cpu executor against the independent reference: every shipped spec, policy, operand, element type and way of
//! assigning workers, at sizes that divide into no tile.

use std::collections::HashMap;

use cusync::reference::{Tolerance, compare, evaluate};
use cusync::runtime::cpu::{CpuError, CpuOptions, CpuPipeline, Workers};
use cusync::runtime::inputs::Inputs;
use cusync::runtime::{SHIPPED, Wishes, plan_text};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Device;
use cusync_gen::graph::Element;
use cusync_gen::policy::{Policy, WaitAt};

const SMALL: &[(&str, u64)] = &[("H", 264), ("I", 520), ("K", 264), ("N", 392)];

/// Plans a spec with its dims made small.
fn plan(source: &str, m: u64, element: Element, policy: Option<Policy>) -> Plan {
    let spec = cusync_gen::spec::parse(source, "test").expect("the spec is valid");
    let named: Vec<String> = spec.dims().map(|(name, _)| name.to_owned()).collect();
    let size = [("M", m)];
    let small = SMALL.iter().chain(&size).filter(|(name, _)| named.iter().any(|n| n == name));
    let dims = small.map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let wishes = Wishes { dims, element: Some(element), policy, ..Wishes::default() };
    let device = Device::named("h200").expect("the profile ships");
    plan_text(source, "test", &wishes, device, Executor::Cpu).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a plan `runs` times and compares every output each time.
fn verify(plan: &Plan, options: CpuOptions, runs: usize) {
    let inputs = Inputs::random(plan.graph(), 7);
    let expected = evaluate(plan.graph(), &inputs, &HashMap::new()).expect("all inputs are there");
    let mut pipeline = CpuPipeline::new(plan, &inputs, options).expect("small");
    for run in 0..runs {
        pipeline.run().unwrap_or_else(|e| panic!("{}: {e}", plan.graph().name));
        let outputs = pipeline.outputs();
        assert!(!outputs.is_empty());
        for (name, values) in outputs {
            let difference = compare(&values, &expected[&name]);
            assert!(
                Tolerance::of(plan.graph().element).holds(&difference),
                "{} run {run} {name}: {difference:?}",
                plan.graph().name
            );
        }
    }
    assert_eq!(pipeline.epoch() as usize, runs);
}

fn options(workers: Workers) -> CpuOptions {
    CpuOptions { threads: 3, workers, ..CpuOptions::default() }
}

#[test]
fn shipped_specs_are_right_at_ragged_sizes_in_both_element_types() {
    for (_, source) in SHIPPED {
        for m in [1, 37, 200] {
            for element in [Element::F16, Element::Bf16] {
                verify(&plan(source, m, element, None), options(Workers::TeamPerStage), 1);
            }
        }
    }
}

#[test]
fn every_policy_is_right_run_after_run() {
    let policies =
        [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided { stride: 2 }];
    for (_, source) in SHIPPED {
        for policy in &policies {
            for workers in [Workers::Pool, Workers::TeamPerStage] {
                verify(&plan(source, 200, Element::F16, Some(policy.clone())), options(workers), 3);
            }
        }
    }
}

#[test]
fn a_users_table_and_a_wait_at_the_start_are_right() {
    let two = SHIPPED.iter().find(|(name, _)| *name == "two_gemms").expect("it ships").1;
    let tiles = plan(two, 200, Element::F16, None).graph().stages[0].tiles();
    // Every third tile shares a slot: no built-in policy does that across rows.
    let table = Policy::Table((0..tiles).map(|t| t % 3.min(tiles)).collect());
    let planned = plan(two, 200, Element::F16, Some(table.clone()));
    assert_eq!((planned.edges()[0].policy(), planned.edges()[0].wait_at()), (&table, WaitAt::PerKBlock));
    verify(&planned, options(Workers::TeamPerStage), 2);
    let at_start = plan(&with_start(&planned), 0, Element::F16, None);
    assert_eq!(at_start.edges()[0].wait_at(), WaitAt::Start);
    verify(&at_start, options(Workers::TeamPerStage), 2);
}

/// Two GEMMs that wait at the start of a tile, for the tiles of `like`.
fn with_start(like: &Plan) -> String {
    let (m, n) = (like.graph().stages[0].m, like.graph().stages[0].n);
    format!(
        r#"Pipeline(name: "at_start", dims: {{ "P": {m}, "Q": {n} }},
    stages: [
        Gemm(name: "first", a: "X(P,Q)", b: "W0(Q,Q)", out: "Y(P,Q)"),
        Gemm(name: "second", a: "Y(P,Q)", b: "W1(Q,Q)", out: "Z(P,Q)"),
    ],
    sync: [Edge(from: "first", to: "second", policy: Tile, wait: Start)])"#
    )
}

#[test]
fn waits_on_every_operand_are_right() {
    let source = r#"Pipeline(name: "operands", dims: { "M": 200 },
    stages: [
        Gemm(name: "a", a: "X(M,136)", b: "Wa(136,264)", out: "A(M,264)"),
        Gemm(name: "b", a: "V(264,136)", b: "Wb(136,392)", out: "B(264,392)"),
        Gemm(name: "c", a: "u(1,136)", b: "Wc(136,392)", out: "c(1,392)", epilogue: Relu),
        Gemm(name: "r", a: "X(M,136)", b: "Wr(136,392)", out: "R(M,392)"),
        Gemm(name: "join", a: "A(M,264)", b: "B(264,392)", bias: "c(1,392)", residual: "R(M,392)",
             epilogue: Gelu, out: "Z(M,392)"),
    ])"#;
    for m in [1, 37, 200] {
        for policy in [Policy::Tile, Policy::Row, Policy::Strided { stride: 2 }] {
            let plan = plan(source, m, Element::F16, Some(policy));
            assert_eq!(plan.edges().len(), 4);
            verify(&plan, options(Workers::TeamPerStage), 2);
        }
    }
}

#[test]
fn a_starved_edge_is_an_error_that_names_it_and_the_pipeline_recovers() {
    let two = SHIPPED.iter().find(|(name, _)| *name == "two_gemms").expect("it ships").1;
    let plan = plan(two, 37, Element::F16, None);
    let inputs = Inputs::random(plan.graph(), 1);
    for workers in [Workers::Pool, Workers::TeamPerStage] {
        let options = CpuOptions {
            timeout: std::time::Duration::from_millis(100),
            starve: Some(0),
            ..options(workers)
        };
        let mut pipeline = CpuPipeline::new(&plan, &inputs, options).expect("small");
        let began = std::time::Instant::now();
        for _ in 0..2 {
            let Err(CpuError::Starved { edge, have, want, .. }) = pipeline.run() else {
                panic!("an edge without posts must starve")
            };
            assert_eq!((edge, have), (plan.edge_name(0), 0));
            assert!(want > 0);
        }
        assert!(began.elapsed().as_secs() < 5, "bounded");
    }
}

#[test]
fn threads_change_nothing() {
    let diamond = SHIPPED.iter().find(|(name, _)| *name == "diamond").expect("it ships").1;
    let plan = plan(diamond, 200, Element::F16, Some(Policy::Tile));
    let inputs = Inputs::random(plan.graph(), 3);
    let run = |threads, workers| {
        let options = CpuOptions { threads, workers, ..CpuOptions::default() };
        let mut pipeline = CpuPipeline::new(&plan, &inputs, options).expect("small");
        let stats = pipeline.run().expect("proved");
        let tiles: u32 = plan.graph().stages.iter().map(|s| s.tiles()).sum();
        assert_eq!(stats.tiles.len(), tiles as usize, "each tile once");
        pipeline.tensor("Z").expect("an output")
    };
    let one = run(1, Workers::Pool);
    for (threads, workers) in [(4, Workers::Pool), (1, Workers::TeamPerStage), (7, Workers::TeamPerStage)] {
        assert_eq!(run(threads, workers), one, "{threads} threads, {workers:?}");
    }
}
