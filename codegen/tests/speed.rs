//! How long `check` takes. The goals are those of an optimised build and are asked for there only:
//!
//!     cargo test --release -p cusync-gen --test speed -- --nocapture
//!
//! In an unoptimised build the shipped pipelines are judged all the same, with a bound that only tells quick from stuck.

use std::time::{Duration, Instant};

use cusync_gen::check::{Candidate, Executor, judge};
use cusync_gen::device::Device;
use cusync_gen::graph::gemm_chain;
use cusync_gen::policy::Policy;

fn judged(c: &Candidate) -> Duration {
    let begin = Instant::now();
    assert_eq!(judge(c).refutations, []);
    begin.elapsed()
}

#[test]
fn shipped_pipelines_at_4096_tokens() {
    let bound = Duration::from_millis(if cfg!(debug_assertions) { 2000 } else { 50 });
    for (name, source) in [
        ("gpt3_mlp", include_str!("../../policies/gpt3_mlp.ron")),
        ("llama65_mlp", include_str!("../../policies/llama65_mlp.ron")),
        ("llama3_70b_mlp", include_str!("../../policies/llama3_70b_mlp.ron")),
        ("two_gemms", include_str!("../../policies/two_gemms.ron")),
        ("chain3", include_str!("../../policies/chain3.ron")),
        ("diamond", include_str!("../../policies/diamond.ron")),
    ] {
        let resolved = cusync_gen::spec::parse(source, name)
            .and_then(|s| s.resolve(&[("M".into(), 4096)]))
            .expect("sound");
        let tiles = vec![(128, 128, 64); resolved.stages.len()];
        let graph = resolved.graph(&tiles).expect("small enough");
        let device = Device::named("h200").expect("shipped").clone();
        for policy in [Policy::Row, Policy::Tile] {
            let mut c = Candidate::new(graph.clone(), device.clone(), Executor::Streams);
            c.edges.iter_mut().for_each(|e| e.policy = policy.clone());
            // The best of three: the machine may be busy.
            let took = (0..3).map(|_| judged(&c)).min().expect("three");
            println!("{name} {policy:?}: {:.1} ms", took.as_secs_f64() * 1e3);
            assert!(took < bound, "{name} {policy:?} took {took:?}");
        }
    }
}

#[test]
fn a_chain_of_sixteen_stages_with_a_million_tiles() {
    if cfg!(debug_assertions) {
        println!("skipped: a goal of optimised builds");
        return;
    }
    let chain = gemm_chain("long", 3907 * 128, &[2048; 17]);
    let graph = chain.graph(&[(128, 128, 64); 16]).expect("small enough");
    let tiles: u32 = graph.stages.iter().map(|s| s.tiles()).sum();
    assert!(tiles >= 1_000_000, "{tiles}");
    let device = Device::named("h200").expect("shipped").clone();
    for policy in [Policy::Row, Policy::Tile] {
        let mut c = Candidate::new(graph.clone(), device.clone(), Executor::Streams);
        c.edges.iter_mut().for_each(|e| e.policy = policy.clone());
        let took = judged(&c);
        println!("16 stages, {tiles} tiles, {policy:?}: {:.2} s", took.as_secs_f64());
    }
}
