//! How much work `check` does, that it skips nothing that matters, and how long it takes.
//!
//! Times are meaningful only in a release build:
//!
//!     cargo test --release -p cusync-gen --test check_speed -- --ignored --nocapture --test-threads 1

mod alike;
mod changed;
mod events;
#[path = "../mutants/general.rs"]
mod general;
#[path = "../mutants/plans.rs"]
#[allow(dead_code)]
mod plans;
mod times;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cusync_gen::check::{Candidate, EdgeChoice, How};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Resolved, StageId, gemm_chain};
use cusync_gen::spec::{self, Spec};
use cusync_gen::sync::{Policy, WaitAt};

/// Shipped specs with their names.
macro_rules! specs {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../policies/", $name, ".ron")))),*]
    };
}

const SPECS: [(&str, &str); 31] = specs![
    "two_gemms" "chain3" "diamond" "gpt3_mlp" "llama65_mlp" "llama3_70b_mlp" "gpt3_attention"
    "llama65_attention" "llama3_70b_attention" "gpt3_generate" "llama65_generate"
    "llama3_70b_generate" "gpt3_layer" "llama65_layer" "llama3_70b_layer" "gpt3_prompt_layer"
    "llama65_prompt_layer" "llama3_70b_prompt_layer" "llama65_norm_mlp" "resnet_layer" "vgg_layer"
    "resnet38_layer1" "resnet38_layer2" "resnet38_layer3" "resnet38_layer4" "resnet38_body"
    "vgg19_block1" "vgg19_block2" "vgg19_block3" "vgg19_block4" "vgg19_body"
];

/// A shipped spec.
fn named(name: &str) -> Spec {
    let (_, source) = SPECS.iter().find(|(ships, _)| *ships == name).expect("it ships");
    spec::parse(source, name).expect("a shipped spec")
}

/// The shipped pipelines: at M = 4096 tokens, or at least as many pixels; or small.
fn shipped(large: bool) -> Vec<(&'static str, Resolved)> {
    let resolve = |(name, _)| {
        let spec = named(name);
        let size = |dim: &str| match (dim, large) {
            ("B", true) => 32,
            ("B", false) => 1,
            (_, true) => 4096,
            (_, false) => 200,
        };
        let batch = spec.resolve(&[]).expect("sound").dims[0].0.clone();
        let resolved = spec.resolve(&[(batch.clone(), size(&batch))]).expect("sound");
        (name, resolved)
    };
    SPECS.map(resolve).into()
}

fn policies() -> [Policy; 5] {
    [Policy::Row, Policy::Tile, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided(12), Policy::ConvHalo]
}

/// A pipeline with overlapping stages, whether or not that helps, in tiles of 128 x 128 if available.
fn overlapped(resolved: &Resolved, policy: &Policy, wait_at: WaitAt) -> Candidate {
    let device = Profile::named("h200").expect("shipped");
    let tile = |i| {
        let shapes = resolved.kernel_candidates(StageId(i), device).expect("kernels");
        *shapes.iter().find(|t| (t.0, t.1) == (128, 128)).unwrap_or(&shapes[0])
    };
    let tiles: Vec<_> = (0..resolved.stages.len()).map(tile).collect();
    let mut c = Candidate::new(resolved.graph(&tiles).expect("small"), device.clone(), How::STREAMS);
    c.edges.fill(EdgeChoice { policy: policy.clone(), wait_at });
    c
}

/// The attention block of LLaMA-65B with this many tokens, in tiles of 64 queries and steps of 64 tokens.
fn long_attention(tokens: u64) -> Candidate {
    let resolved = named("llama65_attention").resolve(&[(String::from("S"), tokens)]).expect("sound");
    overlapped(&resolved, &Policy::Row, WaitAt::PerKBlock)
}

/// Sixteen GEMMs of 62 500 tiles each, with 250 k-blocks, or with a hundredth of the tiles.
fn long_chain(large: bool, policy: &Policy) -> Candidate {
    let tiles = if large { (500, 125) } else { (50, 13) };
    let widths = [tiles.1 * 128; 17];
    overlapped(&gemm_chain("long", tiles.0 * 128, &widths), policy, WaitAt::PerKBlock)
}

/// CPU time of this thread, which does all the work; other load on the machine does not count. Wall time if the system
/// does not report it.
fn now() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let begin = BEGIN.get_or_init(Instant::now);
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = schedstat.and_then(|text| text.split_whitespace().next()?.parse().ok());
    ns.map_or_else(|| begin.elapsed(), Duration::from_nanos)
}
