//! The fused executor on a GPU over many runs: it stays right, is bit-identical, runs concurrently with itself, reports
//! timelines, and a starved edge ends in an error that names it.

use crate::caches::Caches;
use crate::common::{Gpu, assert_right, pipeline, plan_of};
use crate::fused::{CONFIGS, DYNAMIC, STATIC, expected, fused, hopper, of_images};
use crate::fused_decode::decode;
use cusync::runtime::{InputSets, Options, Overlap, Overrides, Pipeline, shipped};
use cusync_gen::check::{Executor, Plan, StageKernel};
use cusync_gen::graph::Element;

const LAUNCHES: usize = 10_000;

/// Alternates eager runs and graphs of many runs, over several weight sets, with a kind of edge between runs.
pub(crate) fn ten_thousand_launches(gpu: &Gpu, plan: &Plan, edges: Overlap) {
    let name = format!("{} {}", plan.graph().name, plan.launch().kind());
    let (inputs, reference) = expected(gpu, plan, 3, 21);
    let mut pipeline = pipeline(gpu, plan, &inputs, Options { overlap: edges, ..Options::default() });
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
                let label = format!("{name} {edges:?} after {launches} launches");
                assert_right(&label, &reference.compare(&mut pipeline)?);
                checked += 1;
            }
        }
        pipeline.synchronize()?;
        assert!(checked >= 10, "{checked} of {rounds} rounds were compared");
        Ok(())
    };
    all().unwrap_or_else(|e| panic!("{name} {edges:?}: {e}"));
}

#[test]
fn ten_thousand_launches_stay_right() {
    let Some(gpu) = hopper() else { return };
    for (name, m, config, edges) in [
        ("gpt3_mlp", 64, STATIC, Overlap::Captured),
        ("llama65_mlp", 200, DYNAMIC, Overlap::Captured),
        ("two_gemms", 512, STATIC, Overlap::All),
        ("diamond", 200, DYNAMIC, Overlap::Plain),
    ] {
        ten_thousand_launches(&gpu, &fused(&gpu, name, m, config), edges);
    }
}

/// `serial` and `library` launches of stages without kernels that follow an order, eager and replayed: each launch of
/// a chain kernel counts its own runs.
pub(crate) fn runs_in_turn(gpu: &Gpu, source: &str, overrides: &Overrides, executor: Executor) {
    let plan = plan_of(gpu, source, overrides, executor);
    let name = format!("{} {}", plan.graph().name, plan.launch().kind());
    assert!(plan.launch().kernels().iter().all(|launched| launched.kernel != StageKernel::Ordered), "{name}");
    let (inputs, reference) = expected(gpu, &plan, 2, 4);
    for overlap in [Overlap::Plain, Overlap::Captured, Overlap::All] {
        let mut pipeline = pipeline(gpu, &plan, &inputs, Options { overlap, ..Options::default() });
        let mut all = || -> cusync::runtime::Result<()> {
            let graph = pipeline.capture(executor, &[1, 0])?;
            for round in 0..20 {
                pipeline.poison_outputs()?;
                match round % 3 {
                    0 => pipeline.run(executor)?,
                    1 => pipeline.replay(&graph)?,
                    _ => {
                        pipeline.run_set(executor, 1)?;
                        pipeline.run(executor)?;
                    }
                }
                let label = format!("{name} {overlap:?} round {round}");
                assert_right(&label, &reference.compare(&mut pipeline)?);
            }
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{name} {overlap:?}: {e}"));
    }
}

#[test]
fn a_chain_kernel_a_stage_is_right() {
    let Some(gpu) = hopper() else { return };
    for name in ["llama65_norm_mlp", "gpt3_prompt_layer", "llama65_prompt_layer", "llama3_70b_prompt_layer"] {
        let (tokens, width) = if name.contains("prompt") { ("S", "E") } else { ("M", "H") };
        for (rows, element) in [(200, Element::F16), (512, Element::Bf16)] {
            let dims = [(tokens, rows), (width, 1024), ("I", 704)].map(|(dim, size)| (dim.to_owned(), size));
            let overrides = Overrides { dims: dims.into(), element: Some(element), ..Overrides::default() };
            let source = shipped(name).expect("it ships");
            runs_in_turn(&gpu, source, &overrides, Executor::Serial);
            runs_in_turn(&gpu, source, &overrides, Executor::Library);
        }
    }
}

/// The bits of every tensor that a stage writes, after the work queued so far.
pub(crate) fn bits(pipeline: &mut Pipeline) -> Vec<Vec<u16>> {
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

/// Runs a plan with every kind of edge between runs, eager and as a graph, each on poisoned outputs: all are
/// bit-identical. `judge` checks the last run of each kind, given the caches from before it.
pub(crate) fn assert_repeats(
    gpu: &Gpu,
    label: &str,
    (plan, inputs): (&Plan, &InputSets),
    judge: &mut dyn FnMut(&str, &mut Pipeline, &Caches),
) {
    let (executor, mut first) = (plan.executor(), None);
    for overlap in [Overlap::Plain, Overlap::All] {
        let label = format!("{label} {overlap:?}");
        let mut pipeline = pipeline(gpu, plan, inputs, Options { overlap, ..Options::default() });
        let mut all = || -> cusync::runtime::Result<()> {
            let caches = Caches::read(&pipeline);
            let graph = pipeline.capture(executor, &[0, 0, 0])?;
            for repeat in 0..4 {
                pipeline.poison_outputs()?;
                if repeat % 2 == 0 {
                    pipeline.run(executor)?
                } else {
                    pipeline.replay(&graph)?
                }
                let now = bits(&mut pipeline);
                assert!(*first.get_or_insert_with(|| now.clone()) == now, "{label}: run {repeat} differs");
            }
            judge(&label, &mut pipeline, &caches);
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}

/// The schedule fixes the order in which each result element is summed, whichever worker finishes first; split tiles
/// are added in the order of their slabs.
pub(crate) fn repeats_to_the_bit(gpu: &Gpu, plan: &Plan) {
    let name = format!("{} {:?} {}", plan.graph().name, plan.graph().dims, plan.launch().kind());
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 5).expect("inputs fit");
    let options = Options { overlap: Overlap::Captured, ..Options::default() };
    let mut pipeline = pipeline(gpu, plan, &inputs, options);
    let graph = pipeline.capture(Executor::Fused, &[0, 0, 0]).unwrap_or_else(|e| panic!("{e}"));
    let mut first: Option<Vec<Vec<u16>>> = None;
    for repeat in 0..40 {
        pipeline.poison_outputs().unwrap_or_else(|e| panic!("{e}"));
        let ran = match repeat % 2 {
            0 => pipeline.run(Executor::Fused),
            _ => pipeline.replay(&graph),
        };
        ran.unwrap_or_else(|e| panic!("{name}: {e}"));
        let now = bits(&mut pipeline);
        match &first {
            None => first = Some(now),
            Some(first) => assert!(*first == now, "{name}: run {repeat} differs"),
        }
    }
}

#[test]
fn results_repeat_to_the_bit() {
    let Some(gpu) = hopper() else { return };
    for (name, m) in [("gpt3_mlp", 200), ("llama65_mlp", 512), ("diamond", 512)] {
        for config in CONFIGS {
            repeats_to_the_bit(&gpu, &fused(&gpu, name, m, config));
        }
    }
}

/// Two instances of a pipeline on separate streams: each has its own semaphores, slabs and counters.
#[test]
fn instances_run_side_by_side() {
    let Some(gpu) = hopper() else { return };
    for (name, m, configs) in [("gpt3_mlp", 64, [STATIC, STATIC]), ("llama65_mlp", 200, [STATIC, DYNAMIC])] {
        let plans = configs.map(|config| fused(&gpu, name, m, config));
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
fn a_trace_covers_every_item() {
    let Some(gpu) = hopper() else { return };
    for config in [STATIC, DYNAMIC] {
        let plan = fused(&gpu, "gpt3_mlp", 200, config);
        let inputs = InputSets::random(plan.graph(), &gpu.device, 2, 10).expect("inputs fit");
        let options = Options { trace: true, ..Options::default() };
        let mut traced = [pipeline(&gpu, &plan, &inputs, options)];
        let lists = cusync::runtime::trace_runs(&mut traced).unwrap_or_else(|e| panic!("{config:?}: {e}"));
        let schedule = plan.launch().lists().expect("a chain");
        let ctas = (schedule.cluster.0 * schedule.cluster.1) as usize;
        assert!(lists[0].len() <= schedule.sequence.len() * ctas, "{config:?}: more records than items");
        for item in &schedule.sequence {
            let seen = lists[0].iter().filter(|t| t.item == *item).count();
            assert!((1..=ctas).contains(&seen), "{config:?}: {item:?} was noted {seen} times");
        }
        for t in &lists[0] {
            assert!(t.begin <= t.loaded && t.ready != 0, "{config:?}: {t:?}");
            assert!(t.loaded <= t.math_end && t.math_end <= t.end, "{config:?}: {t:?}");
        }
    }
}

const ROLE: &str = "CUSYNC_STARVED_FUSED_CHILD";

/// The child process of the next test: starves, checks the error, and prints it.
#[test]
fn starved_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let gpu = hopper().expect("the parent saw a GPU");
    let plan = match role.as_str() {
        "dynamic" => fused(&gpu, "two_gemms", 512, DYNAMIC),
        "images" => of_images(&gpu, "resnet_layer", 2, STATIC),
        "decode" => decode(&gpu, shipped("two_gemms").expect("it ships"), 8, Element::F16),
        _ => fused(&gpu, "two_gemms", 512, STATIC),
    };
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 31).expect("inputs fit");
    let options = Options { starve: true, ..Options::default() };
    let mut pipeline = pipeline(&gpu, &plan, &inputs, options);
    pipeline.prepare().expect("kernels load");
    pipeline.run(Executor::Fused).expect("the kernel is queued");
    let error = pipeline.synchronize().expect_err("no post ever comes");
    println!("{error}");
    assert!(pipeline.is_poisoned());
}

/// Starves in a child process; its error must name the edge. This test's turn lasts until the child exits: with other
/// kernels running, an error takes longer.
pub(crate) fn starves(_turn: &Gpu, role: &str, edge: &str) {
    let this = std::env::current_exe().expect("this binary has a path");
    let child = std::process::Command::new(this)
        .args(["--exact", "fused_runs::starved_child", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .output()
        .expect("the child starts");
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{role}: {}\n{out}{err}", child.status);
    assert!(out.contains(edge), "{role}:\n{out}{err}");
}

#[test]
fn a_starved_edge_is_named_in_time() {
    let Some(gpu) = hopper() else { return };
    for role in ["static", "dynamic", "decode"] {
        starves(&gpu, role, "edge first -> second (C): second tile");
    }
}
