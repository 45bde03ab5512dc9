//! The fused executor on a GPU: every pipeline, size, element type, kernel and mode is right to 2e-3; it repeats to the bit, runs
//! ten thousand times, and runs beside itself.

use crate::common::{Gpu, assert_right, assert_runs_right, gpu, pipeline, plan_of, quick};
use cusync::bench::{RAGGED, SIZES};
use cusync::device::fused_kernels;
use cusync::runtime::verify::Reference;
use cusync::runtime::{ChainWish, Edges, InputSets, Options, Pipeline, Wishes, element_code, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::Element;
use cusync_gen::policy::Policy;
use cusync_gen::schedule::{Mode, Part};

/// A GPU that this binary has chain kernels for, or the reason to skip.
fn hopper() -> Option<Gpu> {
    let gpu = gpu()?;
    if gpu.device.capability().0 != 9 || fused_kernels().is_empty() {
        println!("skipped: there is no chain kernel for {}", gpu.device.name());
        return None;
    }
    Some(gpu)
}

const STATIC: ChainWish = ChainWish { kernel: None, mode: Mode::Static, splits: true };
const UNCUT: ChainWish = ChainWish { splits: false, ..STATIC };
const DYNAMIC: ChainWish = ChainWish { mode: Mode::Dynamic, ..STATIC };
const DYNAMIC_UNCUT: ChainWish = ChainWish { splits: false, ..DYNAMIC };
const WAYS: [ChainWish; 4] = [STATIC, UNCUT, DYNAMIC, DYNAMIC_UNCUT];

fn at(m: u32, element: Option<Element>, chain: ChainWish) -> Wishes {
    let dims = vec![("M".into(), m.into())];
    Wishes { dims, element, chain: Some(chain), ..Wishes::default() }
}

fn fused(gpu: &Gpu, name: &str, m: u32, chain: ChainWish) -> Plan {
    plan_of(gpu, shipped(name).expect("it ships"), &at(m, None, chain), Executor::Fused)
}

/// Inputs of a graph, and what it should make of set 0.
fn expected(gpu: &Gpu, plan: &Plan, sets: usize, seed: u32) -> (InputSets, Reference) {
    let inputs = InputSets::random(plan.graph(), &gpu.device, sets, seed).expect("inputs fit");
    let mut model = pipeline(gpu, plan, &inputs, Options::default());
    let reference = Reference::new(&mut model, 0).unwrap_or_else(|e| panic!("the reference: {e}"));
    (inputs, reference)
}

fn sizes() -> Vec<u32> {
    if quick() { vec![1, 37, 200, 512] } else { SIZES.into_iter().chain(RAGGED).collect() }
}

/// One pipeline at every size, in every way.
fn every_size(name: &str, element: Element) {
    let Some(gpu) = hopper() else { return };
    let source = shipped(name).expect("it ships");
    for m in sizes() {
        let first = plan_of(&gpu, source, &at(m, Some(element), STATIC), Executor::Fused);
        let (inputs, reference) = expected(&gpu, &first, 1, m);
        for way in WAYS {
            let plan = plan_of(&gpu, source, &at(m, Some(element), way), Executor::Fused);
            assert_runs_right(
                &gpu,
                &format!("{name} {element:?} M = {m} {way:?}"),
                &plan,
                &inputs,
                &reference,
            );
        }
    }
}

#[test]
fn gpt3_f16() {
    every_size("gpt3_mlp", Element::F16);
}

#[test]
fn gpt3_bf16() {
    every_size("gpt3_mlp", Element::Bf16);
}

#[test]
fn llama65_f16() {
    every_size("llama65_mlp", Element::F16);
}

#[test]
fn llama65_bf16() {
    every_size("llama65_mlp", Element::Bf16);
}

#[test]
fn llama3_70b_f16() {
    every_size("llama3_70b_mlp", Element::F16);
}

#[test]
fn llama3_70b_bf16() {
    every_size("llama3_70b_mlp", Element::Bf16);
}

#[test]
fn other_graphs() {
    let Some(gpu) = hopper() else { return };
    for name in ["two_gemms", "chain3", "diamond"] {
        for m in [1, 37, 200, 512, 1000] {
            let (inputs, reference) = expected(&gpu, &fused(&gpu, name, m, STATIC), 1, 3);
            for way in WAYS {
                let plan = fused(&gpu, name, m, way);
                assert_runs_right(&gpu, &format!("{name} M = {m} {way:?}"), &plan, &inputs, &reference);
            }
        }
    }
}

/// Ragged in every direction; the second reduction has a k-block of 8.
const PLAIN: &str = r#"Pipeline(
    name: "ragged",
    dims: { "M": 840, "N": 1096, "K": 2072 },
    stages: [
        Gemm(name: "first", a: "A(M,K)", b: "B(K,N)", out: "C(M,N)", epilogue: Relu),
        Gemm(name: "second", a: "C(M,N)", b: "D(N,K)", out: "E(M,K)"),
    ],
)"#;

const GATED: &str = r#"Pipeline(
    name: "gated",
    dims: { "M": 300, "H": 2056, "I": 1112 },
    stages: [
        GatedGemm(name: "up", a: "X(M,H)", gate: "Wg(H,I)", up: "Wu(H,I)", out: "Y(M,I)"),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ],
)"#;

/// Every operand that a stage can have, each made by another stage.
const OPERANDS: &str = r#"Pipeline(
    name: "operands",
    dims: { "M": 264 },
    stages: [
        Gemm(name: "a", a: "X(M,136)", b: "Wa(136,520)", out: "A(M,520)"),
        Gemm(name: "b", a: "V(520,136)", b: "Wb(136,392)", out: "B(520,392)"),
        Gemm(name: "c", a: "u(1,136)", b: "Wc(136,392)", out: "c(1,392)", epilogue: Relu),
        Gemm(name: "r", a: "X(M,136)", b: "Wr(136,392)", out: "R(M,392)"),
        Gemm(name: "join", a: "A(M,520)", b: "B(520,392)", bias: "c(1,392)", residual: "R(M,392)",
             epilogue: Gelu, out: "Z(M,392)"),
    ],
)"#;

#[test]
fn every_kernel() {
    let Some(gpu) = hopper() else { return };
    let (mut cut, mut ran) = (0, 0);
    for source in [PLAIN, GATED, OPERANDS] {
        for element in [Element::F16, Element::Bf16] {
            let wishes = |chain| Wishes { element: Some(element), chain: Some(chain), ..Wishes::default() };
            let first = plan_of(&gpu, source, &wishes(STATIC), Executor::Fused);
            let (inputs, reference) = expected(&gpu, &first, 1, 12);
            for info in fused_kernels().into_iter().filter(|k| k.element == element_code(element)) {
                let kernel = ((info.tile_m, info.tile_n), (info.cluster_m, info.cluster_n));
                for way in WAYS {
                    let way = ChainWish { kernel: Some(kernel), ..way };
                    let plan = plan_of(&gpu, source, &wishes(way), Executor::Fused);
                    let items = &plan.schedule().expect("a chain").sequence;
                    cut += items.iter().filter(|i| i.part != Part::Whole).count();
                    ran += 1;
                    let label = format!("{} {element:?} {way:?}", plan.graph().name);
                    assert_runs_right(&gpu, &label, &plan, &inputs, &reference);
                }
            }
        }
    }
    assert!(ran > 0 && cut > 0, "{ran} plans ran, {cut} items were parts of tiles");
}

#[test]
fn every_policy() {
    let Some(gpu) = hopper() else { return };
    let wishes = |policy: &Policy, chain| Wishes {
        policy: Some(policy.clone()),
        chain: Some(chain),
        ..Wishes::default()
    };
    let first = plan_of(&gpu, PLAIN, &wishes(&Policy::Tile, STATIC), Executor::Fused);
    let (inputs, reference) = expected(&gpu, &first, 1, 11);
    let policies =
        [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided { stride: 2 }];
    for policy in &policies {
        for way in [STATIC, DYNAMIC] {
            let plan = plan_of(&gpu, PLAIN, &wishes(policy, way), Executor::Fused);
            assert_eq!(plan.edges()[0].policy(), policy, "the plan keeps the stated policy");
            assert_runs_right(&gpu, &format!("{policy:?} {way:?}"), &plan, &inputs, &reference);
        }
    }
}

const LAUNCHES: usize = 10_000;

/// Eager runs and graphs of many runs in turn, over several weight sets, with every kind of edge between runs.
#[test]
fn ten_thousand_launches_stay_right() {
    let Some(gpu) = hopper() else { return };
    let cases = [
        ("gpt3_mlp", 64, STATIC, Edges::Captured),
        ("llama65_mlp", 200, DYNAMIC, Edges::Captured),
        ("two_gemms", 512, STATIC, Edges::All),
        ("diamond", 200, DYNAMIC, Edges::Plain),
    ];
    for (name, m, way, edges) in cases {
        let plan = fused(&gpu, name, m, way);
        let (inputs, reference) = expected(&gpu, &plan, 3, 21);
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { edges, ..Options::default() });
        let mut all = || -> cusync::runtime::Result<()> {
            // Every kind ends with set 0.
            let many = pipeline.capture(Executor::Fused, &[1, 2, 0, 2, 1, 0, 1, 2, 1, 0])?;
            let two = pipeline.capture(Executor::Fused, &[2, 0])?;
            let (mut launches, mut rounds, mut checked) = (0, 0, 0);
            while launches < LAUNCHES {
                let check = rounds % 100 == 99;
                if check {
                    pipeline.poison_outputs()?;
                }
                match rounds % 5 {
                    0 | 3 => {
                        pipeline.replay(&many)?;
                        launches += 10;
                    }
                    1 => {
                        pipeline.replay(&two)?;
                        launches += 2;
                    }
                    _ => {
                        pipeline.run_set(Executor::Fused, 1)?;
                        pipeline.run(Executor::Fused)?;
                        launches += 2;
                    }
                }
                rounds += 1;
                if check {
                    let label = format!("{name} {way:?} {edges:?} after {launches} launches");
                    assert_right(&label, &reference.compare(&mut pipeline)?);
                    checked += 1;
                }
            }
            pipeline.synchronize()?;
            assert!(checked >= 10, "{checked} of {rounds} rounds were compared");
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{name} {way:?}: {e}"));
    }
}

/// The bits of every tensor that a stage writes, after the work queued so far.
fn bits(pipeline: &mut Pipeline) -> Vec<Vec<u16>> {
    pipeline.synchronize().unwrap_or_else(|e| panic!("{e}"));
    let graph = pipeline.plan().graph().clone();
    let written = graph.tensors.iter().filter(|t| t.producer.is_some());
    written
        .map(|tensor| {
            let memory = pipeline.tensor(0, &tensor.name).expect("an output");
            let mut host = vec![0; memory.len()];
            memory.download(&mut host).expect("the copy succeeds");
            host
        })
        .collect()
}

/// Each element of a result is summed in an order that the schedule fixes, whoever comes first: also in parts, which are added in
/// the order of their slabs.
#[test]
fn results_repeat_to_the_bit() {
    let Some(gpu) = hopper() else { return };
    for (name, m) in [("gpt3_mlp", 200), ("llama65_mlp", 512), ("diamond", 512)] {
        for way in WAYS {
            let plan = fused(&gpu, name, m, way);
            let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 5).expect("inputs fit");
            let options = Options { edges: Edges::Captured, ..Options::default() };
            let mut pipeline = pipeline(&gpu, &plan, &inputs, options);
            let graph = pipeline.capture(Executor::Fused, &[0, 0, 0]).unwrap_or_else(|e| panic!("{e}"));
            let mut first: Option<Vec<Vec<u16>>> = None;
            for repeat in 0..40 {
                pipeline.poison_outputs().unwrap_or_else(|e| panic!("{e}"));
                let ran = match repeat % 2 {
                    0 => pipeline.run(Executor::Fused),
                    _ => pipeline.replay(&graph),
                };
                ran.unwrap_or_else(|e| panic!("{name} {way:?}: {e}"));
                let now = bits(&mut pipeline);
                match &first {
                    None => first = Some(now),
                    Some(first) => assert!(*first == now, "{name} M = {m} {way:?}: run {repeat} differs"),
                }
            }
        }
    }
}

/// Two instances of a pipeline on streams of their own: each has its own semaphores, slabs and counters.
#[test]
fn instances_run_side_by_side() {
    let Some(gpu) = hopper() else { return };
    for (name, m, ways) in [("gpt3_mlp", 64, [STATIC, STATIC]), ("llama65_mlp", 200, [STATIC, DYNAMIC])] {
        let plans = ways.map(|way| fused(&gpu, name, m, way));
        let (inputs, reference) = expected(&gpu, &plans[0], 2, 8);
        let mut pair = plans.each_ref().map(|plan| pipeline(&gpu, plan, &inputs, Options::default()));
        let mut all = || -> cusync::runtime::Result<()> {
            let graphs = [pair[0].capture(Executor::Fused, &[1, 0, 1, 0])?, {
                let second = &mut pair[1];
                second.capture(Executor::Fused, &[1, 0, 0])?
            }];
            for pipeline in &mut pair {
                pipeline.prepare()?;
                pipeline.poison_outputs()?;
            }
            for round in 0..200 {
                for (pipeline, graph) in pair.iter_mut().zip(&graphs) {
                    if round % 3 == 0 { pipeline.run(Executor::Fused)? } else { pipeline.replay(graph)? }
                }
            }
            for pipeline in &mut pair {
                assert_right(&format!("{name} side by side"), &reference.compare(pipeline)?);
            }
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn other_executors_are_refused() {
    let Some(gpu) = hopper() else { return };
    let plan = fused(&gpu, "two_gemms", 64, STATIC);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 9).expect("inputs fit");
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    for executor in [Executor::Serial, Executor::Streams, Executor::Programmatic, Executor::Cpu] {
        assert!(pipeline.run(executor).is_err(), "{executor:?} runs no fused plan");
    }
    pipeline.run(Executor::Fused).expect("a refusal leaves the pipeline as it was");
    pipeline.synchronize().expect("it ends");
}

#[test]
fn a_trace_covers_every_item() {
    let Some(gpu) = hopper() else { return };
    for way in [STATIC, DYNAMIC] {
        let plan = fused(&gpu, "gpt3_mlp", 200, way);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 2, 10).expect("inputs fit");
        let options = Options { trace: true, ..Options::default() };
        let mut traced = [pipeline(&gpu, &plan, &inputs, options)];
        let lists = cusync::runtime::trace_runs(&mut traced).unwrap_or_else(|e| panic!("{way:?}: {e}"));
        let schedule = plan.schedule().expect("a chain");
        let ctas = (schedule.cluster.0 * schedule.cluster.1) as usize;
        assert!(lists[0].len() <= schedule.sequence.len() * ctas, "{way:?}: more records than items");
        for item in &schedule.sequence {
            let seen = lists[0].iter().filter(|t| t.item == *item).count();
            assert!((1..=ctas).contains(&seen), "{way:?}: {item:?} was noted {seen} times");
        }
        for t in &lists[0] {
            assert!(t.begin <= t.loaded && t.ready <= t.math_end, "{way:?}: {t:?}");
            assert!(t.loaded <= t.math_end && t.math_end <= t.end, "{way:?}: {t:?}");
        }
    }
}

const ROLE: &str = "CUSYNC_STARVED_FUSED_CHILD";

/// What the child of the next test does: starves, checks the error, and prints it.
#[test]
fn starved_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let gpu = hopper().expect("the parent saw a GPU");
    let way = if role == "dynamic" { DYNAMIC } else { STATIC };
    let plan = fused(&gpu, "two_gemms", 512, way);
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 31).expect("inputs fit");
    let options = Options { starve: true, ..Options::default() };
    let mut pipeline = pipeline(&gpu, &plan, &inputs, options);
    pipeline.prepare().expect("kernels load");
    let began = std::time::Instant::now();
    pipeline.run(Executor::Fused).expect("the kernel is queued");
    let error = pipeline.synchronize().expect_err("no post ever comes");
    let took = began.elapsed();
    println!("{error}");
    assert!(took.as_secs() < 2, "the error took {took:?}");
    assert!(pipeline.is_poisoned());
}

#[test]
fn a_starved_edge_is_named_in_time() {
    if hopper().is_none() {
        return;
    }
    for role in ["static", "dynamic"] {
        let this = std::env::current_exe().expect("this binary has a path");
        let child = std::process::Command::new(this)
            .args(["--exact", "fused::starved_child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .output()
            .expect("the child starts");
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success(), "{role}: {}\n{out}{err}", child.status);
        assert!(out.contains("edge first -> second (C): second tile"), "{role}:\n{out}{err}");
    }
}
