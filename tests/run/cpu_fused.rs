//! Fused plans on the cpu executor against the independent reference: the scheduler's lists, and lists built here that
//! split every tile, static and dynamic, for every chain kernel's tile and cluster, at sizes that no tile divides.

use std::collections::HashMap;
use std::time::Duration;

use cusync::inputs::Inputs;
use cusync::reference::Judge;
use cusync::runtime::cpu::{CpuError, CpuOptions, CpuPipeline};
use cusync::runtime::{ChainOverride, Overrides, plan_text, shipped};
use cusync_gen::check::{Candidate, EdgeChoice, Executor, Launch, Plan, StageKernel, check};
use cusync_gen::device::{ChainKernel, Operation, Operations, Profile};
use cusync_gen::graph::{Graph, Op, StageId};
use cusync_gen::schedule::{Hand, Item, Part, Schedule, units};
use cusync_gen::sync::{Policy, WaitAt};

/// A Hopper GPU small enough for one thread per SM.
fn small_gpu(sms: u32) -> Profile {
    Profile { sms, ..Profile::named("h200").expect("the profile ships").clone() }
}

/// Dims with a dozen or more k-blocks, ragged in every direction.
const DIMS: [(&str, u64); 4] = [("H", 1032), ("I", 776), ("K", 1032), ("N", 776)];

fn dims_of(source: &str, m: u64) -> Vec<(String, u64)> {
    let spec = cusync_gen::spec::parse(source, "test").expect("the spec is valid");
    let named: Vec<String> = spec.dims().map(|(name, _)| name.to_owned()).collect();
    let all = DIMS.into_iter().chain([("M", m)]);
    all.map(|(n, v)| (n.to_owned(), v)).filter(|(n, _)| named.contains(n)).collect()
}

/// The scheduler's plan.
fn planned(name: &str, m: u64, kernel: ((u32, u32), (u32, u32)), mode: Hand, splits: bool) -> Plan {
    let source = shipped(name).expect("it ships");
    let chain = Some(ChainOverride { kernel: Some(kernel), mode, splits });
    let overrides = Overrides { dims: dims_of(source, m), chain, ..Overrides::default() };
    plan_text(source, name, &overrides, &small_gpu(6), Executor::Fused).unwrap_or_else(|e| panic!("{e}"))
}

/// How the parts of a tile are combined.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Join {
    /// The last adds the others' sums.
    Finish,
    /// Each part finishes a share of the tile.
    Share,
}

/// Every tile of every stage is split along k into three parts, limited by its k-blocks or units to share: contributors
/// come before their finisher, and items are dealt to three workers in turn.
fn cut_everything(graph: &Graph, cluster: (u32, u32), mode: Hand, join: Join) -> Schedule {
    let (mut sequence, mut slabs) = (Vec::new(), 0);
    for (index, stage) in graph.stages.iter().enumerate() {
        let grid = (stage.grid.0.div_ceil(cluster.0), stage.grid.1.div_ceil(cluster.1));
        let most = if join == Join::Share { units(stage) } else { 3 };
        let parts = most.min(3).min(stage.k_blocks);
        for tile in 0..grid.0 * grid.1 {
            let edge = |part: u32| part * stage.k_blocks / parts;
            let first = slabs;
            for part in 0..parts {
                let kind = match part + 1 == parts {
                    _ if parts == 1 => Part::Whole,
                    _ if join == Join::Share => Part::Share { first, parts, part },
                    true => Part::Finish { first, slabs: parts - 1 },
                    false => Part::Contribute { slab: first + part },
                };
                let (m, n) = (tile / grid.1, tile % grid.1);
                let (k_begin, k_end) = (edge(part), edge(part + 1));
                sequence.push(Item { stage: StageId(index), m, n, k_begin, k_end, part: kind });
            }
            slabs += if join == Join::Share { parts } else { parts - 1 };
        }
    }
    let mut lists = vec![Vec::new(); 3];
    (0..sequence.len()).for_each(|i| lists[i % 3].push(i as u32));
    Schedule { cluster, mode, sequence, lists, slabs, predicted_us: 0.0 }
}

fn hand_made(name: &str, tile: (u32, u32, u32), cluster: (u32, u32), mode: Hand, join: Join) -> Plan {
    let source = shipped(name).expect("it ships");
    let spec = cusync_gen::spec::parse(source, name).expect("the spec is valid");
    let resolved = spec.resolve(&dims_of(source, 200)).expect("the dims are good");
    let graph = resolved.graph(&vec![tile; resolved.stages.len()]).expect("the tiles fit");
    let device = small_gpu(3 * cluster.0 * cluster.1);
    let schedule = cut_everything(&graph, cluster, mode, join);
    let candidate = Candidate::launched(graph, device, Launch::Lists(schedule));
    check(candidate).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Runs a plan twice on each of two pipelines; every output must be right, and all four runs bit-identical.
fn verify(label: &str, plan: &Plan) {
    let inputs = Inputs::random(plan.graph(), 7);
    let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
    let mut first: Option<HashMap<String, Vec<f32>>> = None;
    for _ in 0..2 {
        let mut pipeline = CpuPipeline::new(plan, &inputs, CpuOptions::default()).expect("small");
        for run in 0..2 {
            let stats = pipeline.run().unwrap_or_else(|e| panic!("{label}: {e}"));
            if plan.launch().is_one_kernel() {
                assert_eq!(stats.threads, ctas(plan), "a thread a CTA");
            }
            let written = pipeline.written();
            let judged = judge.compare(&|tensor| written.get(tensor).cloned()).expect("all are there");
            assert!(!judged.is_empty());
            judged.iter().for_each(|tensor| assert!(tensor.verified, "{label} run {run}: {tensor}"));
            match &first {
                None => first = Some(written),
                Some(first) => assert!(*first == written, "{label} run {run}: other bits"),
            }
        }
    }
}

fn ctas(plan: &Plan) -> usize {
    let chain = plan.launch().lists().map(|s| s.lists.len() * (s.cluster.0 * s.cluster.1) as usize);
    chain.or(plan.launch().shares().map(|d| d.work.lists.len())).expect("a fused plan")
}

fn cut_items(plan: &Plan) -> usize {
    let schedule = plan.launch().lists().expect("a fused plan");
    schedule.sequence.iter().filter(|i| i.part != Part::Whole).count()
}

#[test]
fn the_schedulers_lists_are_right_for_every_chain_kernel() {
    let mut cut = 0;
    for kernel in ChainKernel::running(Operations::products()) {
        let shape = ((kernel.tile.0, kernel.tile.1), kernel.cluster);
        for (mode, splits) in [(Hand::Fixed, false), (Hand::Fixed, true), (Hand::Drawn, true)] {
            // A cluster draws no items.
            if mode == Hand::Drawn && kernel.cluster != (1, 1) {
                continue;
            }
            for (name, m) in [("gpt3_mlp", 200), ("llama65_mlp", 37)] {
                let plan = planned(name, m, shape, mode, splits);
                assert!(splits || cut_items(&plan) == 0);
                cut += cut_items(&plan);
                verify(&format!("{name} {m} {shape:?} {mode:?} {splits}"), &plan);
            }
        }
    }
    assert!(cut > 0, "some tile was cut");
}

#[test]
fn other_pipelines_are_right() {
    for name in ["two_gemms", "chain3", "diamond", "llama3_70b_mlp"] {
        for m in [1, 200] {
            for mode in [Hand::Fixed, Hand::Drawn] {
                verify(&format!("{name} {m} {mode:?}"), &planned(name, m, ((128, 128), (1, 1)), mode, true));
            }
        }
    }
}

/// Every operand that a stage can have, each produced by another stage.
const OPERANDS: &str = include_str!("data/operands.ron");

#[test]
fn waits_on_every_operand_are_right() {
    for kernel in ChainKernel::running(Operations::products()) {
        let shape = ((kernel.tile.0, kernel.tile.1), kernel.cluster);
        for mode in [Hand::Fixed, Hand::Drawn] {
            if mode == Hand::Drawn && kernel.cluster != (1, 1) {
                continue;
            }
            for policy in [Policy::Tile, Policy::Row] {
                let chain = Some(ChainOverride { kernel: Some(shape), mode, splits: true });
                let label = format!("{shape:?} {mode:?} {policy:?}");
                let overrides = Overrides { chain, policy: Some(policy), ..Overrides::default() };
                let plan = plan_text(OPERANDS, "operands", &overrides, &small_gpu(4), Executor::Fused);
                let plan = plan.unwrap_or_else(|e| panic!("{label}: {e}"));
                assert_eq!(plan.edges().len(), 4);
                verify(&label, &plan);
            }
        }
    }
}

/// Two convolutions, the first with 3 x 3 taps.
fn convs(second: &str) -> String {
    format!(
        r#"Pipeline(name: "convs", dims: {{}}, stages: [
            Conv2d(name: "first", input: "X(3,14,10,40)", filter: "F1(3,3,40,72)", padding: (1,1), epilogue: Relu, out: "Y(3,14,10,72)"),
            Conv2d(name: "second", input: "Y(3,14,10,72)", {second}),
        ])"#
    )
}

#[test]
fn convolutions_are_right_in_the_windows_of_chain_kernels() {
    let kernels: Vec<_> = ChainKernel::running([Operation::Conv2d].into_iter().collect()).collect();
    assert!(kernels.len() >= 4);
    let mut cut = 0;
    for second in [
        r#"filter: "F2(3,3,72,136)", padding: (1,1), epilogue: Relu, out: "Z(3,14,10,136)""#,
        r#"filter: "F2(1,1,72,64)", out: "Z(3,14,10,64)""#,
        r#"filter: "F2(3,3,72,64)", stride: (2,2), padding: (1,1), out: "Z(3,7,5,64)""#,
        r#"filter: "F2(2,2,72,64)", padding: (1,1), out: "Z(3,15,11,64)""#,
        r#"filter: "F2(7,5,72,64)", stride: (2,1), padding: (3,0), bias: "b(64)", residual: "R(3,7,6,64)", epilogue: Relu, out: "Z(3,7,6,64)""#,
    ] {
        let source = convs(second);
        for kernel in &kernels {
            let shape = ((kernel.tile.0, kernel.tile.1), kernel.cluster);
            for (mode, splits) in [(Hand::Fixed, false), (Hand::Fixed, true), (Hand::Drawn, true)] {
                let chain = Some(ChainOverride { kernel: Some(shape), mode, splits });
                let overrides = Overrides { chain, ..Overrides::default() };
                let label = format!("{second} {shape:?} {mode:?} {splits}");
                let plan = plan_text(&source, "convs", &overrides, &small_gpu(6), Executor::Fused);
                let plan = plan.unwrap_or_else(|e| panic!("{label}: {e}"));
                let windows = |op: &Op| matches!(op, Op::Conv2d(conv) if conv.window.is_some());
                assert!(plan.graph().stages.iter().all(|s| windows(&s.op)), "{label}");
                cut += cut_items(&plan);
                verify(&label, &plan);
            }
        }
    }
    assert!(cut > 0, "some tile was cut");
}

/// A pool, a residual block with a stride and a shortcut, one without, and the mean of each image.
const BLOCKS: &str = r#"Pipeline(name: "blocks", dims: {}, stages: [
    Pool(name: "pool", input: "X(3,28,20,40)", kind: Max, window: (3,3), stride: (2,2), padding: (1,1), out: "P(3,14,10,40)"),
    Conv2d(name: "first", input: "P(3,14,10,40)", filter: "F1(3,3,40,72)", stride: (2,2), padding: (1,1), epilogue: Relu, out: "A(3,7,5,72)"),
    Conv2d(name: "shortcut", input: "P(3,14,10,40)", filter: "F0(1,1,40,72)", stride: (2,2), out: "S(3,7,5,72)"),
    Conv2d(name: "second", input: "A(3,7,5,72)", filter: "F2(3,3,72,72)", padding: (1,1), bias: "b(72)", residual: "S(3,7,5,72)",
        residual_at: BeforeActivation, epilogue: Relu, out: "B(3,7,5,72)"),
    Conv2d(name: "third", input: "B(3,7,5,72)", filter: "F3(3,3,72,72)", padding: (1,1), epilogue: Relu, out: "C(3,7,5,72)"),
    Conv2d(name: "fourth", input: "C(3,7,5,72)", filter: "F4(3,3,72,72)", padding: (1,1), residual: "B(3,7,5,72)",
        residual_at: BeforeActivation, epilogue: Relu, out: "D(3,7,5,72)"),
    Pool(name: "mean", input: "D(3,7,5,72)", kind: Average, out: "M(3,1,1,72)"),
])"#;

#[test]
fn residual_blocks_and_pools_are_right_in_chain_kernels() {
    for kernel in ChainKernel::running([Operation::Conv2d, Operation::Pool].into_iter().collect()) {
        let shape = ((kernel.tile.0, kernel.tile.1), kernel.cluster);
        for (mode, splits) in [(Hand::Fixed, false), (Hand::Fixed, true), (Hand::Drawn, true)] {
            let chain = Some(ChainOverride { kernel: Some(shape), mode, splits });
            let overrides = Overrides { chain, ..Overrides::default() };
            let label = format!("{shape:?} {mode:?} {splits}");
            let plan = plan_text(BLOCKS, "blocks", &overrides, &small_gpu(6), Executor::Fused);
            let plan = plan.unwrap_or_else(|e| panic!("{label}: {e}"));
            assert_eq!(plan.edges().len(), 8, "{label}");
            verify(&label, &plan);
        }
    }
}

#[test]
fn parts_of_tiles_that_begin_inside_a_window_are_right() {
    let source = shipped("vgg_layer").expect("it ships");
    let dims = [("B", 3), ("HW", 7), ("C", 136)].map(|(name, value)| (name.to_owned(), value));
    let resolved =
        cusync_gen::spec::parse(source, "vgg_layer").and_then(|s| s.resolve(&dims)).expect("sound");
    for tile in [(64, 64, 64), (128, 128, 64)] {
        for (mode, join) in
            [(Hand::Fixed, Join::Finish), (Hand::Fixed, Join::Share), (Hand::Drawn, Join::Finish)]
        {
            let graph = resolved.graph(&[tile; 4]).expect("the tiles fit");
            let schedule = cut_everything(&graph, (1, 1), mode, join);
            let candidate = Candidate::launched(graph, small_gpu(3), Launch::Lists(schedule));
            let plan = check(candidate).unwrap_or_else(|e| panic!("{tile:?}: {e}"));
            verify(&format!("{tile:?} {mode:?} {join:?}"), &plan);
        }
    }
}

/// Whole prompt layers as they are launched stage by stage: norms, rotated heads, attentions over steps of keys and
/// values, gated GEMMs.
#[test]
fn layers_of_prompts_are_right_launch_by_launch() {
    for (name, kv_heads, head_dim) in
        [("gpt3_prompt_layer", 4, 64), ("llama65_prompt_layer", 4, 64), ("llama3_70b_prompt_layer", 1, 128)]
    {
        let source = shipped(name).expect("it ships");
        let sizes = [("S", 200), ("E", 512), ("HQ", 4), ("HKV", kv_heads), ("D", head_dim), ("I", 264)];
        let dims = sizes.map(|(dim, size)| (dim.to_owned(), size)).to_vec();
        let overrides = Overrides { dims, ..Overrides::default() };
        let plan = plan_text(source, name, &overrides, &small_gpu(5), Executor::Serial);
        let plan = plan.unwrap_or_else(|e| panic!("{name}: {e}"));
        let alone = plan.launch().kernels().iter().filter(|launched| launched.kernel == StageKernel::Alone);
        assert_eq!(alone.count(), 3, "{name}: two norms and an attention");
        verify(name, &plan);
    }
}

#[test]
fn images_that_no_window_holds_are_refused_by_name_and_run_on_the_host() {
    let source = r#"Pipeline(name: "wide", dims: {}, stages: [
        Conv2d(name: "narrow", input: "X(1,4,30,8)", filter: "F1(1,1,8,8)", out: "Y(1,4,30,8)"),
        Conv2d(name: "wide", input: "V(1,2,300,8)", filter: "F2(3,3,8,8)", padding: (1,1), out: "W(1,2,300,8)"),
    ])"#;
    let plan = |executor| plan_text(source, "wide", &Overrides::default(), &small_gpu(6), executor);
    let text = plan(Executor::Fused).expect_err("no window").to_string();
    assert!(
        text.contains("`wide`")
            && text.contains("rows of 301 pixels")
            && text.contains("cpu executor runs it"),
        "{text}"
    );
    let host = plan(Executor::Cpu).unwrap_or_else(|e| panic!("{e}"));
    let inputs = Inputs::random(host.graph(), 7);
    let judge = Judge::new(host.graph(), &inputs, HashMap::new()).expect("all inputs are there");
    let mut pipeline = CpuPipeline::new(&host, &inputs, CpuOptions::default()).expect("small");
    pipeline.run().expect("it runs");
    let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok()).expect("all are there");
    assert!(judged.len() == 2 && judged.iter().all(|tensor| tensor.verified), "{judged:?}");
}

#[test]
fn lists_that_cut_every_tile_are_right() {
    for (tile, cluster) in [((128, 128, 64), (1, 1)), ((64, 256, 64), (1, 1)), ((128, 256, 64), (2, 1))] {
        for name in ["gpt3_mlp", "llama65_mlp", "diamond"] {
            // A cluster draws no items, and shares must be in progress at the same time.
            let ways = [(Hand::Fixed, Join::Finish), (Hand::Fixed, Join::Share), (Hand::Drawn, Join::Finish)];
            for (mode, join) in ways {
                if mode == Hand::Drawn && cluster != (1, 1) {
                    continue;
                }
                let plan = hand_made(name, tile, cluster, mode, join);
                assert!(cut_items(&plan) > 2 * plan.graph().stages.len());
                verify(&format!("{name} {tile:?} {cluster:?} {mode:?} {join:?}"), &plan);
            }
        }
    }
}

/// Four stages; the third has fewer columns than there are workers.
const NARROW: &str = r#"Pipeline(
    name: "narrow",
    dims: { "M": 8, "H": 1032, "I": 776 },
    stages: [
        Gemm(name: "a", a: "X(M,H)", b: "Wa(H,I)", bias: "ba(1,I)", out: "A(M,I)", epilogue: Relu),
        GatedGemm(name: "b", a: "A(M,I)", gate: "Wg(I,H)", up: "Wu(I,H)", out: "B(M,H)"),
        Gemm(name: "c", a: "B(M,H)", b: "Wc(H,8)", out: "C(M,8)"),
        Gemm(name: "d", a: "C(M,8)", b: "Wd(8,H)", residual: "B(M,H)", out: "D(M,H)"),
    ],
)"#;

fn decode_plan(name: &str, m: u64, sms: u32) -> Plan {
    let source = if name == "narrow" { NARROW } else { shipped(name).expect("it ships") };
    let overrides = Overrides { dims: dims_of(source, m), decode: true, ..Overrides::default() };
    let plan = plan_text(source, name, &overrides, &small_gpu(sms), Executor::Fused);
    plan.unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn decode_plans_are_right() {
    for name in ["two_gemms", "gpt3_mlp", "llama65_mlp", "narrow"] {
        // Shares that are not whole column tiles, and more workers than some stages have column tiles.
        for (m, sms) in [(1, 13), (8, 24), (37, 29), (64, 31)] {
            let plan = decode_plan(name, m, sms);
            assert!(plan.launch().lists().is_none() && plan.launch().shares().is_some());
            verify(&format!("{name} M = {m}, {sms} workers"), &plan);
        }
    }
}

#[test]
fn a_starved_edge_of_a_decode_plan_is_named() {
    let plan = decode_plan("gpt3_mlp", 8, 24);
    let options =
        CpuOptions { timeout: Duration::from_millis(200), starve: Some(0), ..CpuOptions::default() };
    let mut pipeline = CpuPipeline::new(&plan, &Inputs::random(plan.graph(), 1), options).expect("small");
    let Err(CpuError::Starved { edge, have, want, .. }) = pipeline.run() else {
        panic!("an edge without posts must starve")
    };
    assert_eq!((edge, have), (plan.edge_name(0), 0));
    assert!(want > 0);
}

#[test]
fn a_starved_edge_of_a_schedule_is_named_and_bounded() {
    let plan = planned("gpt3_mlp", 200, ((128, 128), (1, 1)), Hand::Fixed, true);
    let inputs = Inputs::random(plan.graph(), 1);
    let options =
        CpuOptions { timeout: Duration::from_millis(200), starve: Some(0), ..CpuOptions::default() };
    let mut pipeline = CpuPipeline::new(&plan, &inputs, options).expect("small");
    let Err(CpuError::Starved { edge, have, .. }) = pipeline.run() else {
        panic!("an edge without posts must starve")
    };
    assert_eq!((edge, have), (plan.edge_name(0), 0));
}

/// Rows that are an input, and rows written by a stage and read twice by another.
const NORMS: &str = r#"Pipeline(
    name: "norms",
    dims: { "M": 37 },
    stages: [
        RmsNorm(name: "first", x: "X(M,264)", gain: "g(264)", out: "A(M,264)", epsilon: 1e-5),
        Gemm(name: "mix", a: "A(M,264)", b: "W(264,264)", residual: "A(M,264)", out: "B(M,264)"),
        LayerNorm(name: "second", x: "B(M,264)", gain: "h(264)", bias: "c(264)", out: "C(M,264)", epsilon: 1e-5),
        Gemm(name: "last", a: "C(M,264)", b: "V(264,136)", out: "Z(M,136)"),
    ],
)"#;

#[test]
fn normalisations_between_products_are_right() {
    let operations = [Operation::Gemm, Operation::Norm].into_iter().collect();
    let mut ran = 0;
    for kernel in ChainKernel::running(operations) {
        let kernel = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
        for (mode, m) in [(Hand::Fixed, 37), (Hand::Drawn, 200), (Hand::Fixed, 1)] {
            let chain = Some(ChainOverride { kernel, mode, splits: true });
            let dims = vec![("M".to_owned(), m)];
            let overrides = Overrides { dims, chain, ..Overrides::default() };
            let plan = plan_text(NORMS, "norms", &overrides, &small_gpu(6), Executor::Fused);
            let plan = plan.unwrap_or_else(|e| panic!("{kernel:?} {mode:?}: {e}"));
            // If every k-block reads all of several row tiles, one wait at the start covers them.
            let waits = plan.edges().iter().map(|e| (e.dependence().producer.0, e.wait_at()));
            let alike = plan.graph().stages[0].tiles() > 1;
            for (producer, at) in waits.filter(|(producer, _)| alike && *producer % 2 == 0) {
                assert_eq!(at, WaitAt::Start, "the rows of stage {producer}");
            }
            verify(&format!("{kernel:?} {mode:?} M = {m}"), &plan);
            ran += 1;
        }
    }
    assert!(ran >= 3, "no chain kernel normalises");
}

#[test]
fn a_kernel_of_products_alone_runs_no_normalisation() {
    let chain = |kernel| Some(ChainOverride { kernel: Some(kernel), mode: Hand::Fixed, splits: true });
    let plan = |kernel| {
        let overrides = Overrides { chain: chain(kernel), ..Overrides::default() };
        plan_text(NORMS, "norms", &overrides, &small_gpu(6), Executor::Fused)
    };
    plan(((128, 128), (1, 1))).expect("this one does");
    let refused = plan(((256, 128), (1, 1))).expect_err("this one does not").to_string();
    assert!(refused.contains("no chain kernel is as asked for"), "{refused}");
    // One chain kernel per stage; the other executors would need a separate kernel for each stage.
    plan_text(NORMS, "norms", &Overrides::default(), &small_gpu(6), Executor::Serial)
        .expect("one stage a launch");
    for executor in [Executor::Streams, Executor::Programmatic] {
        let refused = plan_text(NORMS, "norms", &Overrides::default(), &small_gpu(6), executor);
        let text = refused.expect_err("no kernel of its own").to_string();
        let says = [executor.name(), "`first`", "is RmsNorm, which has no kernel of its own", "choose fused"];
        assert!(says.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn what_a_kernel_does_not_do_to_rows_is_refuted() {
    let chain = Some(ChainOverride { kernel: Some(((128, 128), (1, 1))), mode: Hand::Fixed, splits: false });
    let overrides = Overrides { chain, ..Overrides::default() };
    let plan = plan_text(NORMS, "norms", &overrides, &small_gpu(6), Executor::Fused).expect("it is proved");
    let refuted = |edit: &dyn Fn(&mut Schedule)| {
        let mut schedule = plan.launch().lists().expect("lists").clone();
        edit(&mut schedule);
        let candidate = Candidate {
            edges: plan
                .edges()
                .iter()
                .map(|e| EdgeChoice { policy: e.policy().clone(), wait_at: e.wait_at() })
                .collect(),
            ..Candidate::launched(plan.graph().clone(), small_gpu(6), Launch::Lists(schedule))
        };
        check(candidate).expect_err("it is refuted").message
    };
    let text = refuted(&|s| {
        let first = s.sequence.iter_mut().find(|i| i.stage == StageId(0)).expect("an item of rows");
        first.part = Part::Finish { first: 0, slabs: 0 };
    });
    assert!(text.contains("first") && text.contains("is a part of a tile: RmsNorm has none"), "{text}");
    let text = refuted(&|s| s.cluster = (2, 1));
    assert!(text.contains("`first` is RmsNorm; no chain kernel of 2 x 1 CTAs a worker runs it"), "{text}");
}

/// Queries that are normalized head by head, between products of whole rows.
#[test]
fn tensors_under_another_shape_are_right_in_chain_kernels() {
    let source = include_str!("data/blocks/qwen3.ron");
    let operations = [Operation::Gemm, Operation::Norm].into_iter().collect();
    let mut ran = 0;
    for kernel in ChainKernel::running(operations) {
        let own = Some(((kernel.tile.0, kernel.tile.1), kernel.cluster));
        for (mode, tokens) in [(Hand::Fixed, 37), (Hand::Drawn, 96), (Hand::Fixed, 200)] {
            let chain = Some(ChainOverride { kernel: own, mode, splits: true });
            let overrides = Overrides { dims: vec![("T".into(), tokens)], chain, ..Overrides::default() };
            let plan = plan_text(source, "qwen3", &overrides, &small_gpu(6), Executor::Fused);
            let plan = plan.unwrap_or_else(|e| panic!("{own:?} {mode:?}: {e}"));
            verify(&format!("{own:?} {mode:?} T = {tokens}"), &plan);
            ran += 1;
        }
    }
    assert!(ran >= 3, "no chain kernel normalises");
}
