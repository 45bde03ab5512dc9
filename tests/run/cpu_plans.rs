//! The cpu executor against the independent reference: every shipped spec, policy, operand, element type and worker
//! assignment, at sizes that no tile divides.

use std::collections::HashMap;

use cusync::Group;
use cusync::inputs::Inputs;
use cusync::reference::{Judge, evaluate};
use cusync::runtime::cpu::{CpuError, CpuOptions, CpuPipeline, Workers};
use cusync::runtime::{Overrides, SHIPPED, plan_text};
use cusync_gen::check::{Candidate, Executor, How, Plan, StartGuarantee, check};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Element, StageId};
use cusync_gen::sync::{Policy, WaitAt};

const SMALL: &[(&str, u64)] = &[
    ("H", 264),
    ("I", 520),
    ("K", 264),
    ("N", 392),
    // Images of 9 x 9 pixels, 72 channels: no tile ends with a row, and no k-block with a tap.
    ("HW", 9),
    ("C", 72),
    // Groups of 3 channels: no vector of elements ends with one.
    ("G", 24),
    // For bodies: their first images are eight times as large along each side.
    ("L", 1),
    // Heads of 40 columns.
    ("E", 264),
    ("D", 40),
];

/// For pages with experts: a few narrow ones.
const FEW_EXPERTS: &[(&str, u64)] = &[("H", 264), ("E", 12), ("I", 40)];

/// Plans a spec with reduced dims.
pub(super) fn plan(source: &str, m: u64, element: Element, policy: Option<Policy>) -> Plan {
    let spec = cusync_gen::spec::parse(source, "test").expect("the spec is valid");
    let named: Vec<String> = spec.dims().map(|(name, _)| name.to_owned()).collect();
    let size = [("M", m), ("S", m), ("B", m.div_ceil(80))];
    // Decode kernels have no heads of 40 columns.
    let fits = |name: &str| name != "D" || !source.contains("Cache(");
    let sizes = if source.contains("Experts(") { FEW_EXPERTS } else { SMALL };
    let small = sizes.iter().chain(&size).filter(|(name, _)| named.iter().any(|n| n == name) && fits(name));
    let dims = small.map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let overrides = Overrides { dims, element: Some(element), policy, ..Overrides::default() };
    let device = Profile::named("h200").expect("the profile ships");
    plan_text(source, "test", &overrides, device, Executor::Cpu).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn verify(plan: &Plan, options: CpuOptions, runs: usize) {
    if plan.graph().devices() > 1 {
        return verify_group(plan, options);
    }
    let inputs = Inputs::random(plan.graph(), 7);
    let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
    verify_against(&judge, &inputs, plan, options, runs);
}

/// Runs a plan for several devices, and verifies every stage of each.
fn verify_group(plan: &Plan, options: CpuOptions) {
    let mut group = Group::of_plan(plan, options);
    group.set_random(7).expect("small");
    group.run().unwrap_or_else(|e| panic!("{}: {e}", plan.graph().name));
    for tensor in group.verify().expect("it ran").into_iter().flatten() {
        assert!(tensor.verified, "{}: {tensor}", plan.graph().name);
    }
}

/// Runs a plan `runs` times and verifies every stage each time.
fn verify_against(judge: &Judge<'_>, inputs: &Inputs, plan: &Plan, options: CpuOptions, runs: usize) {
    let mut pipeline = CpuPipeline::new(plan, inputs, options).expect("small");
    for run in 0..runs {
        pipeline.run().unwrap_or_else(|e| panic!("{}: {e}", plan.graph().name));
        let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok()).expect("all tensors are there");
        assert!(!judged.is_empty());
        for tensor in judged {
            assert!(tensor.verified, "{} run {run}: {tensor}", plan.graph().name);
        }
    }
    assert_eq!(pipeline.epoch() as usize, runs);
}

pub(super) fn options(workers: Workers) -> CpuOptions {
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
    let policies = [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided(2)];
    for (_, source) in SHIPPED {
        let plans = policies
            .iter()
            .map(|policy| plan(source, 136, Element::F16, Some(policy.clone())))
            .collect::<Vec<_>>();
        if plans[0].graph().devices() > 1 {
            plans.iter().for_each(|plan| verify_group(plan, options(Workers::TeamPerStage)));
            continue;
        }
        let inputs = Inputs::random(plans[0].graph(), 7);
        let judge = Judge::new(plans[0].graph(), &inputs, HashMap::new()).expect("all inputs are there");
        for plan in &plans {
            for workers in [Workers::Pool, Workers::TeamPerStage] {
                verify_against(&judge, &inputs, plan, options(workers), 3);
            }
        }
    }
}

#[test]
fn convolutions_of_any_stride_and_padding_are_right() {
    for second in [
        r#"filter: "F2(3,3,72,136)", stride: (2,2), padding: (1,1), out: "Z(3,6,4,136)""#,
        r#"filter: "F2(1,1,72,64)", stride: (2,2), out: "Z(3,6,4,64)""#,
        r#"filter: "F2(1,1,72,64)", out: "Z(3,11,7,64)""#,
        r#"filter: "F2(2,5,72,64)", stride: (1,3), padding: (3,4), out: "Z(3,16,4,64)""#,
        r#"filter: "F2(7,7,72,64)", stride: (2,1), padding: (3,3), bias: "b(64)", residual: "R(3,6,7,64)", epilogue: Relu, out: "Z(3,6,7,64)""#,
        r#"filter: "F2(3,3,72,64)", padding: (1,1), residual: "R(3,11,7,64)", residual_at: BeforeActivation, epilogue: Relu, out: "Z(3,11,7,64)""#,
    ] {
        let source = format!(
            r#"Pipeline(name: "convs", dims: {{}}, stages: [
                Conv2d(name: "first", input: "X(3,11,7,40)", filter: "F1(3,3,40,72)", padding: (1,1), epilogue: Gelu, out: "Y(3,11,7,72)"),
                Conv2d(name: "second", input: "Y(3,11,7,72)", {second}),
            ])"#
        );
        for policy in [Policy::ConvHalo, Policy::Row, Policy::Tile] {
            verify(&plan(&source, 0, Element::F16, Some(policy)), options(Workers::TeamPerStage), 2);
        }
    }
}

#[test]
fn a_residual_block_waits_for_its_images_and_its_shortcut() {
    let source = r#"Pipeline(name: "block", dims: {}, stages: [
        Conv2d(name: "shrink", input: "X(2,8,8,64)", filter: "F0(1,1,64,128)", stride: (2,2), out: "S(2,4,4,128)"),
        Conv2d(name: "first", input: "X(2,8,8,64)", filter: "F1(3,3,64,128)", stride: (2,2), padding: (1,1), epilogue: Relu, out: "Y(2,4,4,128)"),
        Conv2d(name: "second", input: "Y(2,4,4,128)", filter: "F2(3,3,128,128)", padding: (1,1), residual: "S(2,4,4,128)",
            residual_at: BeforeActivation, epilogue: Relu, out: "Z(2,4,4,128)"),
    ])"#;
    let plan = plan(source, 0, Element::Bf16, None);
    assert_eq!(plan.edges().len(), 2);
    verify(&plan, options(Workers::TeamPerStage), 2);
}

#[test]
fn a_residual_may_stand_before_the_activation_and_is_not_what_it_is_behind_it() {
    let block = |place: &str| {
        let source = format!(
            r#"Pipeline(name: "block", dims: {{}}, stages: [
                Gemm(name: "up", a: "X(100,64)", b: "V(64,72)", out: "Y(100,72)"),
                Gemm(name: "sum", a: "Y(100,72)", b: "W(72,136)", bias: "b(136)", residual: "R(100,136)",{place}
                    epilogue: Relu, out: "Z(100,136)"),
            ])"#
        );
        plan(&source, 0, Element::F16, None)
    };
    let (before, after) = (block("residual_at: BeforeActivation,"), block("residual_at: AfterActivation,"));
    verify(&before, options(Workers::TeamPerStage), 2);
    verify(&after, options(Workers::TeamPerStage), 2);
    let inputs = Inputs::random(before.graph(), 7);
    let least = |plan: &Plan| {
        let values = &evaluate(plan.graph(), &inputs, &HashMap::new()).expect("all inputs are there")["Z"];
        values.iter().copied().fold(f32::INFINITY, f32::min)
    };
    assert!(least(&before) == 0.0 && least(&after) < -0.5, "{} {}", least(&before), least(&after));
    assert!(least(&block("")) < -0.5, "the default is behind the activation");
}

#[test]
fn pools_are_right_between_convolutions_and_at_either_end() {
    for (pool, (p, q)) in [
        ("kind: Max, window: (2,2)", (5, 3)),
        ("kind: Max, window: (3,3), stride: (2,2), padding: (1,1)", (6, 4)),
        ("kind: Max, window: (3,2), stride: (1,3), padding: (2,0)", (13, 2)),
        ("kind: Average, window: (2,3), stride: (1,1)", (10, 5)),
        ("kind: Average", (1, 1)),
    ] {
        let source = format!(
            r#"Pipeline(name: "pools", dims: {{}}, stages: [
                Pool(name: "before", input: "X(3,22,14,40)", kind: Max, window: (2,2), out: "V(3,11,7,40)"),
                Conv2d(name: "first", input: "V(3,11,7,40)", filter: "F1(3,3,40,72)", padding: (1,1), out: "Y(3,11,7,72)"),
                Pool(name: "pool", input: "Y(3,11,7,72)", {pool}, out: "P(3,{p},{q},72)"),
                Conv2d(name: "second", input: "P(3,{p},{q},72)", filter: "F2(3,3,72,64)", padding: (1,1), out: "Z(3,{p},{q},64)"),
                Pool(name: "after", input: "Z(3,{p},{q},64)", kind: Average, out: "A(3,1,1,64)"),
            ])"#
        );
        for element in [Element::F16, Element::Bf16] {
            for policy in [None, Some(Policy::Tile), Some(Policy::Row)] {
                verify(&plan(&source, 0, element, policy), options(Workers::TeamPerStage), 2);
            }
        }
    }
}

#[test]
fn normalisations_are_right_between_products_and_at_either_end() {
    for (norm, element) in [
        ("RmsNorm(", Element::F16),
        (r#"LayerNorm(bias: "b(264)", "#, Element::F16),
        ("LayerNorm(", Element::F16),
        ("RmsNorm(", Element::Bf16),
    ] {
        let last = norm.replace("b(264)", "c(136)");
        let source = format!(
            r#"Pipeline(name: "norms", dims: {{ "M": 1 }}, stages: [
                {norm}name: "before", x: "X(M,264)", gain: "g(264)", out: "N(M,264)", epsilon: 1e-5),
                Gemm(name: "up", a: "N(M,264)", b: "W(264,264)", residual: "X(M,264)", out: "Y(M,264)"),
                {norm}name: "between", x: "Y(M,264)", gain: "h(264)", out: "P(M,264)", epsilon: 0.25),
                Gemm(name: "down", a: "P(M,264)", b: "V(264,136)", out: "Z(M,136)"),
                {last}name: "after", x: "Z(M,136)", gain: "i(136)", out: "Q(M,136)", epsilon: 1e-5),
            ])"#
        );
        for m in [1, 37, 300] {
            for policy in
                [None, Some(Policy::Tile), Some(Policy::Row), Some(Policy::Batched { rows: 1, cols: 4 })]
            {
                let plan = plan(&source, m, element, policy);
                assert_eq!(plan.edges().len(), 4);
                verify(&plan, options(Workers::TeamPerStage), 2);
            }
        }
    }
}

/// Rows read as a row for each head and back, and residuals in either shape.
#[test]
fn tensors_are_right_under_another_shape() {
    let source = r#"Pipeline(name: "heads", dims: { "M": 1 }, stages: [
        Gemm(name: "q", a: "X(M,264)", b: "W(264,24*16)", out: "Q(M,24*16)"),
        LayerNorm(name: "norm", x: "Q(M*24,16)", gain: "g(16)", residual: "Q(M*24,16)", out: "H(M*24,16)"),
        Gemm(name: "proj", a: "H(M,24*16)", b: "V(24*16,264)", residual: "X(M,264)", out: "Z(M,264)"),
        GatedGemm(name: "gate", a: "H(M*8,48)", gate: "G(48,40)", up: "U(48,40)", out: "S(M*8,40)"),
        Gemm(name: "sum", a: "Z(M,264)", b: "A(264,320)", residual: "S(M,320)", out: "Y(M,320)"),
        Experts(name: "mix", x: "H(M*8,48)", router: "R(M*8,4)", gate: "GE(32,48)", up: "UE(32,48)", down: "DE(192,8)",
            top_k: 2, residual: "Q(M*8,48)", out: "E(M*8,48)"),
    ])"#;
    for m in [1, 37, 300] {
        for policy in
            [None, Some(Policy::Tile), Some(Policy::Row), Some(Policy::Batched { rows: 3, cols: 2 })]
        {
            let plan = plan(source, m, Element::Bf16, policy);
            assert_eq!(plan.edges().len(), 8);
            verify(&plan, options(Workers::TeamPerStage), 2);
        }
    }
}

/// Several parts of k and tiles of several rows; a bias, an activation, a residual and gates behind the norm.
#[test]
fn products_of_normalized_rows_are_right() {
    let norm = |gain: &str| format!("input_norm: InputNorm(gain: {gain:?}, epsilon: 0.25)");
    for element in [Element::F16, Element::Bf16] {
        let element_word = if element == Element::F16 { "F16" } else { "Bf16" };
        for m in [1, 9, 70] {
            let source = format!(
                r#"Pipeline(name: "normed", element: {element_word}, dims: {{ "M": {m} }}, stages: [
                    Gemm(name: "up", a: "X(M,1096)", b: "W(1096,264)", bias: "b(264)", epilogue: Gelu, {}, out: "Y(M,264)"),
                    Gemm(name: "mix", a: "Y(M,264)", b: "V(264,264)", residual: "Y(M,264)", {}, out: "Z(M,264)"),
                    GatedGemm(name: "gate", a: "Z(M,264)", gate: "G(264,136)", up: "U(264,136)", {}, out: "Q(M,136)"),
                ])"#,
                norm("g(1096)"),
                norm("h(264)"),
                norm("i(264)")
            );
            for policy in [None, Some(Policy::Tile), Some(Policy::Row)] {
                verify(&plan(&source, m, element, policy), options(Workers::TeamPerStage), 2);
            }
        }
    }
}

#[test]
fn group_normalisations_are_right_between_convolutions_and_at_either_end() {
    for (channels, groups, more) in [
        (40, 4, ""),
        (40, 8, "epilogue: Silu, "),
        (72, 72, "epilogue: None, "),
        (72, 1, "epsilon: 0.25, epilogue: Silu, "),
    ] {
        let norm = |name: &str, input: &str, out: &str| {
            format!(
                r#"GroupNorm(name: "{name}", input: "{input}(3,7,5,{channels})", groups: {groups}, gain: "g_{name}({channels})",
                    bias: "b_{name}({channels})", {more}out: "{out}(3,7,5,{channels})"),"#
            )
        };
        let conv = |name: &str, input: &str, out: &str| {
            format!(
                r#"Conv2d(name: "{name}", input: "{input}(3,7,5,{channels})", filter: "F_{name}(3,3,{channels},{channels})",
                    padding: (1,1), residual: "X(3,7,5,{channels})", out: "{out}(3,7,5,{channels})"),"#
            )
        };
        let stages = [norm("before", "X", "N"), conv("first", "N", "Y"), norm("between", "Y", "P")].concat()
            + &[conv("second", "P", "Z"), norm("after", "Z", "Q")].concat();
        let source = format!(r#"Pipeline(name: "groups", dims: {{}}, stages: [{stages}])"#);
        for element in [Element::F16, Element::Bf16] {
            for policy in [None, Some(Policy::Tile), Some(Policy::Batched { rows: 1, cols: 4 })] {
                let plan = plan(&source, 0, element, policy);
                assert_eq!(plan.edges().len(), 4);
                verify(&plan, options(Workers::TeamPerStage), 2);
            }
        }
    }
}

#[test]
fn experts_are_right_between_products_and_alone() {
    // A few of several, all of them, the only one, and few of more than there are rows.
    for (experts, top_k, features, more) in [
        (12, 3, 40, r#"residual: "P(M,W)", "#),
        (8, 8, 24, ""),
        (1, 1, 40, r#"residual: "Y(M,W)", activation: Gelu, "#),
        (40, 2, 8, r#"normalize: false, residual: "R(M,W)", "#),
        (24, 16, 16, "normalize: false, activation: Clamp(-0.5, 2.0), "),
    ] {
        let weights = r#"gate: "G(X*F,W)", up: "U(X*F,W)", down: "D(X*W,F)""#;
        let source = format!(
            r#"Pipeline(name: "experts", dims: {{ "M": 1, "W": 136, "X": {experts}, "F": {features} }}, stages: [
                Gemm(name: "before", a: "A(M,40)", b: "B(40,W)", out: "Y(M,W)"),
                Gemm(name: "beside", a: "A(M,40)", b: "C(40,W)", out: "P(M,W)"),
                Gemm(name: "router", a: "Y(M,W)", b: "WR(X,W)", layout: NK, out: "S(M,X)"),
                Experts(name: "mix", x: "Y(M,W)", router: "S(M,X)", {weights}, top_k: {top_k}, {more} out: "Z(M,W)"),
                Gemm(name: "after", a: "Z(M,W)", b: "E(W,72)", out: "O(M,72)"),
                Experts(name: "alone", x: "V(M,W)", router: "T(M,X)", {weights}, top_k: {top_k}, out: "Q(M,W)"),
            ])"#
        );
        for (element, m) in [1, 37, 200].into_iter().flat_map(|m| [(Element::F16, m), (Element::Bf16, m)]) {
            for policy in [None, Some(Policy::Tile), Some(Policy::Batched { rows: 3, cols: 2 })] {
                let plan = plan(&source, m, element, policy);
                let added = usize::from(["P(M", "Y(M"].iter().any(|made| more.contains(made)));
                assert_eq!(plan.edges().len(), 4 + added, "{source}");
                verify(&plan, options(Workers::TeamPerStage), 2);
            }
        }
    }
}

#[test]
fn attention_is_right_with_grouped_heads_and_without_a_mask() {
    for (heads, kv_heads, causal) in [(4, 4, true), (4, 2, true), (6, 2, false), (4, 1, true)] {
        let source = format!(
            r#"Pipeline(name: "prompt", dims: {{ "M": 1, "HQ": {heads}, "HKV": {kv_heads} }}, stages: [
                Gemm(name: "qkv", a: "X(M,264)", b: "Wqkv(264,(HQ+2*HKV)*64)", out: "QKV(M,(HQ+2*HKV)*64)"),
                Attention(name: "attend", qkv: "QKV(M,(HQ+2*HKV)*64)", heads: "HQ", kv_heads: "HKV", causal: {causal}, out: "A(M,HQ*64)"),
                Gemm(name: "project", a: "A(M,HQ*64)", b: "Wo(HQ*64,264)", out: "Z(M,264)"),
            ])"#
        );
        for m in [1, 37, 300] {
            for policy in [None, Some(Policy::Tile), Some(Policy::Strided(4))] {
                let plan = plan(&source, m, Element::F16, policy);
                assert_eq!(plan.edges().len(), 4);
                verify(&plan, options(Workers::TeamPerStage), 1);
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

/// Two GEMMs that wait for the tiles of `like` at the start of a tile.
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
    let source = include_str!("data/operands.ron");
    for m in [1, 37, 200] {
        for policy in [Policy::Tile, Policy::Row, Policy::Strided(2)] {
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
        for _ in 0..2 {
            let Err(CpuError::Starved { edge, have, want, .. }) = pipeline.run() else {
                panic!("an edge without posts must starve")
            };
            assert_eq!((edge, have), (plan.edge_name(0), 0));
            assert!(want > 0);
        }
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

/// A chain with the consumer first in its graph, and the launch order that can be proved: the producer first.
fn consumer_first(how: How) -> Candidate {
    let source = r#"Pipeline(name: "reversed", dims: { "M": 200, "H": 264, "I": 520 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ])"#;
    let resolved = cusync_gen::spec::parse(source, "test").and_then(|s| s.resolve(&[])).expect("valid");
    let mut graph = resolved.graph(&[(128, 128, 64); 2]).expect("small");
    graph.stages.reverse();
    let turned = |stage: StageId| StageId(1 - stage.0);
    for tensor in &mut graph.tensors {
        tensor.producer = tensor.producer.map(turned);
    }
    for d in &mut graph.dependences {
        (d.producer, d.consumer) = (turned(d.producer), turned(d.consumer));
    }
    let mut c = Candidate::new(graph, Profile::named("h200").expect("shipped").clone(), how);
    c.launch.kernels_mut().reverse();
    c
}

#[test]
fn stages_run_in_the_order_that_was_proved() {
    let mut unproved = consumer_first(How::Host);
    unproved.launch.kernels_mut().reverse();
    assert!(check(unproved).is_err(), "one thread would wait for a tile further down its own list");
    let plan = check(consumer_first(How::Host)).expect("the producer is launched first");
    let options = CpuOptions { timeout: std::time::Duration::from_secs(2), ..options(Workers::Pool) };
    let inputs = Inputs::random(plan.graph(), 7);
    for threads in [1, 3] {
        let mut pipeline =
            CpuPipeline::new(&plan, &inputs, CpuOptions { threads, ..options }).expect("small");
        let stats = pipeline.run().unwrap_or_else(|e| panic!("{threads} threads: {e}"));
        assert_eq!(stats.tiles.first().map(|t| t.stage), Some(1), "`up` is stage 1, and launched first");
    }
}

#[test]
fn a_plan_runs_kernel_after_kernel_only_with_producers_first() {
    let plan = check(consumer_first(How::STREAMS)).expect("proved");
    assert!(plan.runs_as(Executor::Streams) && plan.runs_as(Executor::Serial));
    assert!(!plan.runs_as(Executor::Programmatic) && !plan.runs_as(Executor::Fused));
    // A few consumer CTAs wait on a small part of the SMs: sound when concurrent, but not in serial order.
    let mut c = consumer_first(How::Streams(StartGuarantee::None));
    c.launch.kernels_mut().reverse();
    let plan = check(c).expect("12 CTAs cannot fill 132 SMs");
    assert!(plan.runs_as(Executor::Streams) && !plan.runs_as(Executor::Serial));
}
