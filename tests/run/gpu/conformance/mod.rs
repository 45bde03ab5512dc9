//! Checks recorded kernel events against the judged program: every wait, load, store and post that a run records is an
//! event of its plan, none is missing, and their order is allowed by the plan. A post is recorded before it is made and
//! a wait after it passes, so a wait recorded before its posts passed too early.
//!
//! The kernels must be built with `CUSYNC_DELAYS=1`. Each case runs 100 times, or 10 times with `CUSYNC_GPU_QUICK=1`.

mod deviation;
mod expected;
mod without_a_gpu;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::attends::WIDTHS;
use crate::common::{Gpu, dim, pipeline, plan, plan_of, quick};
use crate::faults::{delayed, delays};
use crate::fused::{DYNAMIC, STATIC, fused, of_images};
use crate::fused_decode::{WIDE_MLP, decode};
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides, shipped};
use cusync_gen::check::{Candidate, EdgeChoice, EdgePlan, Executor, Generated, Plan};
use cusync_gen::graph::Element;

/// Capacity for the notes of a run.
const ROOM: usize = 1 << 19;

/// The owner of events: a stage, a tile, and an item of the tile.
type Key = (u32, u32, u32, u32);

/// The candidate of a plan: judged together with its program.
fn candidate(plan: &Plan) -> Candidate {
    let edge = |e: &EdgePlan| EdgeChoice { policy: e.policy().clone(), wait_at: e.wait_at() };
    Candidate {
        edges: plan.edges().iter().map(edge).collect(),
        ..Candidate::launched(plan.graph().clone(), plan.device().clone(), plan.launch().clone())
    }
}

/// The expected notes of one item.
#[derive(Default)]
struct Expected {
    /// In program order: waits (slot, value), and loads (operand, k-block) with the waits before them.
    waits: Vec<(u32, u32)>,
    loads: Vec<((u32, u32), Vec<u32>)>,
    /// Epilogue loads, which each warpgroup makes for itself, and the waits before them.
    late: Vec<(u32, Vec<u32>)>,
    gives: Vec<u32>,
    takes: Vec<u32>,
    units: Range<u32>,
    /// Whether each unit has elements, i.e. the tile is completely inside the output.
    whole: bool,
    /// Whether it may have several workers; each does everything except the store.
    shared: bool,
}

/// A plan and its program.
struct Judged<'a> {
    c: &'a Candidate,
    p: Generated<'a>,
    /// The first slot of each edge. Decode kernels note slots as numbers from the first slot of their stage.
    base: Vec<u32>,
    items: BTreeMap<Key, Expected>,
}

/// Runs a pipeline with delays and checks the notes of each run against its plan; returns the number of notes.
fn conforms(gpu: &Gpu, label: &str, plan: &Plan, runs: u32, skip_waits: bool) -> Result<usize, String> {
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 5).expect("inputs fit");
    let options = Options { delays: delays(11), notes: ROOM, skip_waits, ..Options::default() };
    let mut pipeline = pipeline(gpu, plan, &inputs, options);
    let c = candidate(plan);
    let judged = Judged::new(&c);
    let mut count = 0;
    for run in 0..runs {
        let notes = pipeline.run(plan.executor()).and_then(|()| pipeline.take_notes());
        let notes = notes.unwrap_or_else(|e| panic!("{label}: {e}"));
        assert!(!notes.is_empty(), "{label}: nothing was noted");
        count += notes.len();
        if let Some(deviation) = judged.deviation(run, &notes) {
            return Err(format!("run {run}: {deviation}"));
        }
    }
    Ok(count)
}

fn runs() -> u32 {
    if quick() { 10 } else { 100 }
}

fn all_conform(gpu: &Gpu, plans: &[(String, Plan)]) {
    for (label, plan) in plans {
        match conforms(gpu, label, plan, runs(), false) {
            Ok(count) => println!("{label}: {count} events of {} runs, none of which deviates", runs()),
            Err(deviation) => panic!("{label}: {deviation}"),
        }
        // A run without waits must deviate.
        assert!(conforms(gpu, label, plan, 1, true).is_err(), "{label}: a run without waits conforms");
    }
}

#[test]
fn coupled_kernels_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let coupled =
        |name: &str, executor| (format!("{name} {executor:?}"), plan(&gpu, name, &dim("M", 256), executor));
    let plans = [Executor::Streams, Executor::Programmatic]
        .map(|e| ["two_gemms", "llama65_mlp"].map(|n| coupled(n, e)));
    all_conform(&gpu, plans.as_flattened());
}

/// GEMMs, one with a residual and a bias produced by stages.
const OPERANDS: &str = r#"Pipeline(name: "operands", dims: { "M": 264 }, stages: [
    Gemm(name: "a", a: "X(M,136)", b: "Wa(136,520)", out: "A(M,520)"),
    Gemm(name: "c", a: "u(1,136)", b: "Wc(136,392)", out: "c(1,392)", epilogue: Relu),
    Gemm(name: "r", a: "X(M,136)", b: "Wr(136,392)", out: "R(M,392)"),
    Gemm(name: "join", a: "A(M,520)", b: "B(520,392)", bias: "c(1,392)", residual: "R(M,392)", out: "Z(M,392)"),
])"#;

fn chain(gpu: &Gpu, source: &str, chain: ChainOverride) -> Plan {
    plan_of(gpu, source, &Overrides { chain: Some(chain), ..Overrides::default() }, Executor::Fused)
}

#[test]
fn chains_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let mut plans = Vec::new();
    for (name, m) in [("gpt3_mlp", 200), ("llama65_mlp", 256), ("llama65_norm_mlp", 200), ("diamond", 512)] {
        for config in [STATIC, DYNAMIC] {
            plans.push((format!("{name} M = {m} {:?}", config.mode), fused(&gpu, name, m, config)));
        }
    }
    let paired = ChainOverride { kernel: Some(((128, 128), (2, 1))), ..STATIC };
    plans.push(("gpt3_mlp in pairs".into(), fused(&gpu, "gpt3_mlp", 512, paired)));
    plans.push(("operands".into(), chain(&gpu, OPERANDS, STATIC)));
    all_conform(&gpu, &plans);
}

#[test]
fn norms_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let name = "llama65_norm_mlp";
    let plans =
        [(300, STATIC), (200, DYNAMIC)].map(|(m, config)| (name.into(), fused(&gpu, name, m, config)));
    all_conform(&gpu, &plans);
}

/// Windows, including with a stride, for a shortcut, and after a pool.
#[test]
fn convolutions_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let plans = [("resnet_layer", 8, STATIC), ("resnet38_layer3", 2, STATIC), ("vgg19_block4", 3, DYNAMIC)]
        .map(|(name, images, config)| (name.to_owned(), of_images(&gpu, name, images, config)));
    all_conform(&gpu, &plans);
}

#[test]
fn decode_kernels_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let mut plans: Vec<(String, Plan)> = Vec::new();
    for (name, m) in [("gpt3_mlp", 8), ("llama65_mlp", 64), ("two_gemms", 16)] {
        plans.push((
            format!("{name} M = {m}"),
            decode(&gpu, shipped(name).expect("it ships"), m, Element::F16),
        ));
    }
    plans.push(("wide_mlp M = 8".into(), decode(&gpu, WIDE_MLP, 8, Element::F16)));
    let dims = vec![("B".into(), 5), ("S".into(), 256)];
    let overrides = Overrides { dims, ..Overrides::default() };
    let generate = shipped("llama65_generate").expect("it ships");
    plans.push(("llama65_generate".into(), plan_of(&gpu, generate, &overrides, Executor::Fused)));
    plans.push(("widths".into(), plan_of(&gpu, WIDTHS, &overrides, Executor::Fused)));
    let layer = shipped("llama3_70b_layer").expect("it ships");
    plans.push(("llama3_70b_layer".into(), plan_of(&gpu, layer, &overrides, Executor::Fused)));
    all_conform(&gpu, &plans);
}
