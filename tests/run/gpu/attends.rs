//! Token generation in decode kernels on a GPU, blocks and whole layers: right to 2e-3 for batches of any lengths, while the cache grows
//! from run to run, eager and replayed, and the same bits in every run. A sequence without room is named, and the others are right.

use std::sync::Arc;

use crate::caches::Caches;
use crate::common::{Gpu, assert_right, assert_runs_right, pipeline, plan_of, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::bits;
use cusync::device::DeviceBuffer;
use cusync::inputs::Inputs;
use cusync::runtime::verify::Reference;
use cusync::runtime::{Error, Options, Overlap, Overrides, Pipeline, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::{Element, TensorId};
use cusync_gen::schedule::decode::is_in_pairs;

const NAMES: [&str; 3] = ["gpt3_generate", "llama65_generate", "llama3_70b_generate"];
const LAYERS: [&str; 3] = ["gpt3_layer", "llama65_layer", "llama3_70b_layer"];
const CAPACITY: u32 = 256;

/// Groups of four queries on heads of 64 columns, in a paged cache.
const PAGED: &str = r#"Pipeline(
    name: "paged",
    dims: { "B": 5, "S": 256, "E": 512, "HQ": 8, "HKV": 2, "D": 64, "N": 30 },
    stages: [
        Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)"),
        Attention(
            name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", rotary: "cs(S,D)",
            cache: Cache(keys: "K(N,HKV,64,D)", values: "V(N,HKV,64,D)", lengths: "n(B)"),
            pages: "P(B,S/64)", out: "A(B,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", out: "Z(B,E)"),
    ],
)"#;

/// Groups of two queries of 64 columns, then of eight of 128, then of two again, over lengths of one batch.
const UNLIKE: &str = r#"Pipeline(
    name: "unlike",
    dims: { "B": 5, "S": 256, "E": 512 },
    stages: [
        Gemm(name: "qkv1", a: "X(B,E)", b: "W1(E,512)", out: "QKV1(B,512)"),
        Attention(name: "attend1", qkv: "QKV1(B,512)", heads: 4, kv_heads: 2, out: "A1(B,256)",
            cache: Cache(keys: "K1(B,2,S,64)", values: "V1(B,2,S,64)", lengths: "n(B)")),
        Gemm(name: "qkv2", a: "A1(B,256)", b: "W2(256,2560)", out: "QKV2(B,2560)"),
        Attention(name: "attend2", qkv: "QKV2(B,2560)", heads: 16, kv_heads: 2, out: "A2(B,2048)",
            cache: Cache(keys: "K2(B,2,S,128)", values: "V2(B,2,S,128)", lengths: "n(B)")),
        Gemm(name: "qkv3", a: "A2(B,2048)", b: "W3(2048,512)", out: "QKV3(B,512)"),
        Attention(name: "attend3", qkv: "QKV3(B,512)", heads: 4, kv_heads: 2, out: "A3(B,256)",
            cache: Cache(keys: "K3(B,2,S,64)", values: "V3(B,2,S,64)", lengths: "n(B)")),
        Gemm(name: "project", a: "A3(B,256)", b: "Wo(256,E)", out: "Z(B,E)"),
    ],
)"#;

fn plan(gpu: &Gpu, source: &str, batch: u32, element: Element) -> Plan {
    let dims = vec![("B".into(), batch.into()), ("S".into(), CAPACITY.into())];
    let overrides = Overrides { dims, element: Some(element), ..Overrides::default() };
    plan_of(gpu, source, &overrides, Executor::Fused)
}

/// The lengths of a pipeline, in memory that kernels keep reading.
fn lengths(gpu: &Gpu, pipeline: &mut Pipeline, values: &[i32]) -> Arc<DeviceBuffer<i32>> {
    let buffer = Arc::new(DeviceBuffer::from_slice(&gpu.device, values, "lengths").expect("memory"));
    pipeline.bind_integers("n", buffer.clone()).expect("the spec has lengths");
    buffer
}

/// Lengths at the ends of units and of the cache, and others.
fn ragged(batch: u32) -> Vec<i32> {
    let edges = [0, 1, 63, 64, 65, 127, 200, 130];
    (0..batch as usize).map(|i| (edges[i % 8] + 17 * (i / 8) as i32) % (CAPACITY as i32 - 30)).collect()
}

fn right(label: &str, pipeline: &mut Pipeline) {
    let reference = Reference::new(pipeline, 0).unwrap_or_else(|e| panic!("{label}: the reference: {e}"));
    assert_right(label, &reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}")));
}

/// Runs while every sequence grows by a token, eager and replayed in turn; each is right, and its repetition has the same bits.
fn grows(source: &str, batch: u32, element: Element, overlap: Overlap) {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, source, batch, element);
    let label = format!("{} B = {batch} {element:?} {overlap:?}", plan.graph().name);
    let (inputs, _) = expected(&gpu, &plan, 1, batch);
    // Inputs on the host are the same, of one seed.
    let tensors = plan.graph().tensors.iter();
    let table = tensors.enumerate().find(|(_, t)| t.name == "P").map(|(id, _)| TensorId(id));
    let pages = table.and_then(|id| Inputs::random(plan.graph(), batch.into()).integers(id).cloned());
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { overlap, ..Options::default() });
    let mut now = ragged(batch);
    let buffer = lengths(&gpu, &mut pipeline, &now);
    let mut all = || -> cusync::runtime::Result<()> {
        let graph = pipeline.capture(Executor::Fused, &[0])?;
        for step in 0..if quick() { 4 } else { 12 } {
            buffer.upload(&now)?;
            let look = step % 4 == 3 || step == 0;
            let caches = look.then(|| Caches::of(&pipeline));
            let mut first = None;
            for replayed in [step % 2 == 0, step % 2 == 1] {
                pipeline.poison_outputs()?;
                if replayed {
                    pipeline.replay(&graph)?
                } else {
                    pipeline.run(Executor::Fused)?
                }
                let made = bits(&mut pipeline);
                assert!(*first.get_or_insert_with(|| made.clone()) == made, "{label}: step {step} differs");
            }
            if let Some(caches) = caches {
                let label = format!("{label} step {step}");
                caches.assert_appended(&label, &pipeline, &now, pages.as_deref().map(Vec::as_slice));
                right(&label, &mut pipeline);
            }
            now.iter_mut().for_each(|n| *n += 1);
        }
        Ok(())
    };
    all().unwrap_or_else(|e| panic!("{label}: {e}"));
}

/// From an empty cache to a full one, a replay or a launch a token.
#[test]
fn a_thousand_tokens_of_a_growing_cache() {
    let Some(gpu) = hopper() else { return };
    let dims = vec![("B".into(), 4), ("S".into(), 1064)];
    let overrides = Overrides { dims, ..Overrides::default() };
    let plan = plan_of(&gpu, shipped(NAMES[2]).expect("it ships"), &overrides, Executor::Fused);
    let (inputs, _) = expected(&gpu, &plan, 1, 9);
    let options = Options { overlap: Overlap::All, ..Options::default() };
    let mut pipeline = pipeline(&gpu, &plan, &inputs, options);
    let mut now = vec![0, 1, 40, 64];
    let buffer = lengths(&gpu, &mut pipeline, &now);
    let mut all = || -> cusync::runtime::Result<()> {
        let graph = pipeline.capture(Executor::Fused, &[0])?;
        for step in 0..1000 {
            let caches = (step % 250 == 249).then(|| Caches::of(&pipeline));
            buffer.upload(&now)?;
            if caches.is_some() {
                pipeline.poison_outputs()?;
            }
            if step % 7 == 3 {
                pipeline.run(Executor::Fused)?
            } else {
                pipeline.replay(&graph)?
            }
            pipeline.synchronize()?;
            if let Some(caches) = caches {
                caches.assert_appended(&format!("token {step}"), &pipeline, &now, None);
                right(&format!("token {step}"), &mut pipeline);
            }
            now.iter_mut().for_each(|n| *n += 1);
        }
        Ok(())
    };
    all().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn shipped_blocks_of_every_batch() {
    for name in NAMES {
        let source = shipped(name).expect("it ships");
        for batch in if quick() { vec![1, 5] } else { vec![1, 4, 5, 32] } {
            grows(source, batch, Element::F16, if batch % 2 == 1 { Overlap::All } else { Overlap::Plain });
        }
    }
}

#[test]
fn bf16_keeps_what_rounding_takes_from_queries_and_weights() {
    for (name, batch) in NAMES.into_iter().zip([5, 4, 32]) {
        grows(shipped(name).expect("it ships"), batch, Element::Bf16, Overlap::All);
    }
}

#[test]
fn attentions_of_unlike_heads_in_one_launch() {
    for (batch, element) in [(5, Element::Bf16), (32, Element::F16)] {
        grows(UNLIKE, batch, element, Overlap::All);
    }
}

#[test]
fn whole_layers_in_one_launch() {
    for (name, batches) in LAYERS.into_iter().zip([[1, 32], [5, 16], [4, 32]]) {
        let source = shipped(name).expect("it ships");
        for batch in if quick() { vec![batches[0]] } else { batches.to_vec() } {
            grows(source, batch, Element::F16, if batch == 32 { Overlap::Plain } else { Overlap::All });
        }
    }
}

/// QKV's products of a shipped block, and of four small ones after the other, so that both buffers of sums are used again.
#[test]
fn pairs_of_workers_exchange_sums() {
    let block = |i: u32| {
        let (read, made) = (if i == 1 { "X".into() } else { format!("Z{}", i - 1) }, format!("Z{i}"));
        format!(
            r#"Gemm(name: "qkv{i}", a: "{read}(B,E)", b: "W{i}(E,512)", bias: "b{i}(512)", out: "QKV{i}(B,512)"),
            Attention(name: "attend{i}", qkv: "QKV{i}(B,512)", heads: 4, kv_heads: 2, out: "A{i}(B,256)",
                cache: Cache(keys: "K{i}(B,2,S,64)", values: "V{i}(B,2,S,64)", lengths: "n(B)")),
            Gemm(name: "project{i}", a: "A{i}(B,256)", b: "Wo{i}(256,E)", out: "{made}(B,E)"),"#
        )
    };
    let stages: String = (1..=4).map(block).collect();
    let four =
        format!(r#"Pipeline(name: "four", dims: {{ "B": 32, "S": 256, "E": 4096 }}, stages: [{stages}])"#);
    let shipped = shipped(NAMES[2]).expect("it ships");
    for (source, batch, element, pairs) in [
        (&*four, 32, Element::F16, 4),
        (&*four, 17, Element::Bf16, 4),
        (shipped, 32, Element::F16, 1),
        (shipped, 8, Element::F16, 0),
    ] {
        {
            // `grows` takes a turn of its own.
            let Some(gpu) = hopper() else { return };
            let plan = plan(&gpu, source, batch, element);
            let workers = plan.launch().shares().expect("it is a decode kernel's").workers();
            let paired = plan.graph().stages.iter().filter(|stage| is_in_pairs(plan.graph(), stage, workers));
            assert_eq!(paired.count(), pairs, "{} B = {batch}", plan.graph().name);
        }
        grows(source, batch, element, Overlap::All);
    }
}

/// What goes wrong in one run of some dozens, such as a slot that is filled or freed once too often.
#[test]
fn layers_of_32_sequences_run_again_and_again() {
    let Some(gpu) = hopper() else { return };
    for (name, overlap) in LAYERS.into_iter().zip([Overlap::All, Overlap::Plain, Overlap::All]) {
        let plan = plan(&gpu, shipped(name).expect("it ships"), 32, Element::F16);
        let (inputs, _) = expected(&gpu, &plan, 1, 32);
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { overlap, ..Options::default() });
        let _lengths = lengths(&gpu, &mut pipeline, &ragged(32));
        let mut all = || -> cusync::runtime::Result<()> {
            let graph = pipeline.capture(Executor::Fused, &[0; 20])?;
            pipeline.poison_outputs()?;
            pipeline.run(Executor::Fused)?;
            let first = bits(&mut pipeline);
            right(name, &mut pipeline);
            for round in 0..if quick() { 20 } else { 200 } {
                pipeline.poison_outputs()?;
                pipeline.replay(&graph)?;
                assert!(bits(&mut pipeline) == first, "{name}: round {round} differs");
            }
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[test]
fn norms_in_decode_kernels_that_attend_to_nothing() {
    let Some(gpu) = hopper() else { return };
    let source = shipped("llama65_norm_mlp").expect("it ships");
    for (rows, element) in [(1, Element::F16), (5, Element::Bf16), (32, Element::F16)] {
        let dims = vec![("M".into(), rows)];
        let overrides = Overrides { dims, element: Some(element), ..Overrides::default() };
        let plan = plan_of(&gpu, source, &overrides, Executor::Fused);
        assert!(plan.launch().shares().is_some(), "{rows} rows are a decode kernel's");
        let (inputs, reference) = expected(&gpu, &plan, 1, 7);
        assert_runs_right(&gpu, &format!("{rows} rows {element:?}"), &plan, &inputs, &reference);
    }
}

/// A stage that rounds to 8 bits what is off by little is off by more: the end of seven of them is held to 1e-2.
#[test]
fn a_layer_in_bf16() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, shipped(LAYERS[2]).expect("it ships"), 5, Element::Bf16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &ragged(5));
    let reference = Reference::new(&mut pipeline, 0).expect("the reference");
    pipeline.poison_outputs().expect("memory");
    pipeline.run(Executor::Fused).expect("it is queued");
    for output in reference.compare(&mut pipeline).expect("it runs") {
        assert!(output.relative_l2 < 1e-2, "{}: {:.1e}", output.tensor, output.relative_l2);
    }
}

#[test]
fn paged_caches_of_grouped_heads() {
    for element in [Element::F16, Element::Bf16] {
        for overlap in [Overlap::Plain, Overlap::All] {
            grows(PAGED, 5, element, overlap);
        }
    }
}

#[test]
fn a_sequence_without_room_is_named_and_the_others_are_right() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let buffer = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let run = |pipeline: &mut Pipeline| {
        pipeline.run(Executor::Fused).expect("it is queued");
        pipeline.synchronize()
    };
    run(&mut pipeline).expect("all have room");
    let sound = bits(&mut pipeline);
    let columns = sound[1].len() / 5;
    for bad in [-1, CAPACITY as i32] {
        buffer.upload(&[70, 10, bad, 200, 5]).expect("the copy succeeds");
        match run(&mut pipeline) {
            Err(Error::Cache { sequence: 2, fault, .. }) => {
                assert!(fault.contains(&bad.to_string()), "{fault}")
            }
            other => panic!("length {bad}: {other:?}"),
        }
        let made = bits(&mut pipeline);
        assert!(made[1][2 * columns..3 * columns].iter().all(|x| *x == 0), "length {bad}: zeros");
        for (at, (a, b)) in made[1].iter().zip(&sound[1]).enumerate() {
            assert!(at / columns == 2 || a == b, "length {bad}: sequence {} changed", at / columns);
        }
    }
    buffer.upload(&[70, 10, 0, 200, 5]).expect("the copy succeeds");
    run(&mut pipeline).expect("the pipeline runs on");
    assert!(bits(&mut pipeline) == sound, "and makes what it made");
}
