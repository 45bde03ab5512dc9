//! Token generation in decode kernels on a GPU, blocks and whole layers: right to 2e-3 for batches of any lengths,
//! while the cache grows from run to run, eager and replayed, and bit-identical in every run. A sequence without room
//! is named, and the others are right.

use std::sync::Arc;

use crate::caches::Caches;
use crate::common::{Gpu, assert_right, assert_runs_right, pipeline, plan_of, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::bits;
use cusync::device::{DeviceBuffer, Stream};
use cusync::inputs::Inputs;
use cusync::runtime::verify::Reference;
use cusync::runtime::{Error, Options, Overlap, Overrides, Pipeline, shipped};
use cusync_bench::source_of;
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::{Element, TensorId};
use cusync_gen::schedule::decode::is_in_pairs;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const NAMES: [&str; 3] = ["gpt3_generate", "llama65_generate", "llama3_70b_generate"];
const LAYERS: [&str; 3] = ["gpt3_layer", "llama65_layer", "llama3_70b_layer"];
const CAPACITY: u32 = 256;

/// Groups of four query heads with 64 columns, in a paged cache.
pub(crate) const PAGED: &str = r#"Pipeline(
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

/// Groups of two query heads with 64 columns, then of eight with 128, then of two again, with the same lengths.
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

/// Heads of 96 columns, which no 64 columns divide, then groups of three of 80, then of four of 256.
const WIDTHS: &str = r#"Pipeline(
    name: "widths",
    dims: { "B": 5, "S": 256, "E": 512 },
    stages: [
        Gemm(name: "qkv1", a: "X(B,E)", b: "W1(E,576)", out: "QKV1(B,576)"),
        Attention(name: "attend1", qkv: "QKV1(B,576)", heads: 2, kv_heads: 2, rotary: "cs1(S,96)", out: "A1(B,192)",
            cache: Cache(keys: "K1(B,2,S,96)", values: "V1(B,2,S,96)", lengths: "n(B)")),
        Gemm(name: "qkv2", a: "A1(B,192)", b: "W2(192,800)", out: "QKV2(B,800)"),
        Attention(name: "attend2", qkv: "QKV2(B,800)", heads: 6, kv_heads: 2, rotary: "cs2(S,80)", out: "A2(B,480)",
            cache: Cache(keys: "K2(B,2,S,80)", values: "V2(B,2,S,80)", lengths: "n(B)")),
        RmsNorm(name: "norm", x: "A2(B,480)", gain: "g(480)", out: "N(B,480)"),
        Gemm(name: "qkv3", a: "N(B,480)", b: "W3(480,3072)", out: "QKV3(B,3072)"),
        Attention(name: "attend3", qkv: "QKV3(B,3072)", heads: 8, kv_heads: 2, window: 100, out: "A3(B,2048)",
            cache: Cache(keys: "K3(B,2,S,256)", values: "V3(B,2,S,256)", lengths: "n(B)")),
        Gemm(name: "project", a: "A3(B,2048)", b: "Wo(2048,E)", out: "Z(B,E)"),
    ],
)"#;

fn plan(gpu: &Gpu, source: &str, batch: u32, element: Element) -> Plan {
    sized(gpu, source, &[("B", batch), ("S", CAPACITY)], element)
}

fn sized(gpu: &Gpu, source: &str, dims: &[(&str, u32)], element: Element) -> Plan {
    let dims = dims.iter().map(|(name, size)| ((*name).into(), (*size).into())).collect();
    let overrides = Overrides { dims, element: Some(element), ..Overrides::default() };
    plan_of(gpu, source, &overrides, Executor::Fused)
}

/// A pipeline's lengths, in memory that the kernels keep reading.
pub(crate) fn lengths(gpu: &Gpu, pipeline: &mut Pipeline, values: &[i32]) -> Arc<DeviceBuffer<i32>> {
    let buffer = Arc::new(DeviceBuffer::from_slice(&gpu.device, values, "lengths").expect("memory"));
    pipeline.bind_integers("n", buffer.clone()).expect("the spec has lengths");
    buffer
}

/// The page numbers in random inputs with this seed.
fn pages(plan: &Plan, seed: u32) -> Option<Arc<Vec<i32>>> {
    let table = plan.graph().tensors.iter().position(|t| t.name == "P")?;
    Inputs::random(plan.graph(), seed.into()).integers(TensorId(table)).cloned()
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

/// Runs while every sequence grows by one token, alternating eager and replayed; each run is right, and a repetition is
/// bit-identical.
fn grows(source: &str, batch: u32, element: Element, overlap: Overlap) {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, source, batch, element);
    let label = format!("{} B = {batch} {element:?} {overlap:?}", plan.graph().name);
    let (inputs, _) = expected(&gpu, &plan, 1, batch);
    let pages = pages(&plan, batch);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { overlap, ..Options::default() });
    let mut now = ragged(batch);
    let buffer = lengths(&gpu, &mut pipeline, &now);
    let mut all = || -> cusync::runtime::Result<()> {
        let graph = pipeline.capture(Executor::Fused, &[0])?;
        for step in 0..if quick() { 4 } else { 12 } {
            buffer.upload(&now)?;
            let look = step % 4 == 3 || step == 0;
            let caches = look.then(|| Caches::read(&pipeline));
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

/// From an empty cache to a full one, with one replay or launch per token.
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
            let caches = (step % 250 == 249).then(|| Caches::read(&pipeline));
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
    for (batch, element) in [(5, Element::Bf16), (16, Element::F16), (32, Element::F16), (32, Element::Bf16)] {
        grows(UNLIKE, batch, element, Overlap::All);
        grows(WIDTHS, batch, element, Overlap::All);
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

/// The QKV GEMMs of a shipped block, and of four small ones in sequence, so that both sum buffers are reused.
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
            // `grows` takes its own turn on the GPU.
            let Some(gpu) = hopper() else { return };
            let plan = plan(&gpu, source, batch, element);
            let workers = plan.launch().shares().expect("it is a decode kernel's").workers();
            let paired = plan.graph().stages.iter().filter(|stage| is_in_pairs(plan.graph(), stage, workers));
            assert_eq!(paired.count(), pairs, "{} B = {batch}", plan.graph().name);
        }
        grows(source, batch, element, Overlap::All);
    }
}

/// Detects faults that occur once in several dozen runs, such as a slot filled or freed once too often.
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
    assert_right("a layer in bf16", &reference.compare(&mut pipeline).expect("it runs"));
}

/// Norms on both sides of a block, with residuals and one plus the gain, and scores of every form: Gemma-2's layer.
const AROUND: &str = r#"Pipeline(
    name: "around",
    dims: { "B": 5, "S": 256, "E": 512, "I": 704, "HQ": 8, "HKV": 2, "D": 128 },
    stages: [
        RmsNorm(name: "norm1", x: "X(B,E)", gain: "g1(E)", one_plus_gain: true, out: "N1(B,E)", epsilon: 1e-6),
        Gemm(name: "qkv", a: "N1(B,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)"),
        Attention(
            name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", rotary: "cs(S,D)", FORM
            cache: Cache(keys: "K(B,HKV,S,D)", values: "V(B,HKV,S,D)", lengths: "n(B)"), out: "A(B,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", out: "O(B,E)"),
        RmsNorm(name: "norm2", x: "O(B,E)", gain: "g2(E)", residual: "X(B,E)", one_plus_gain: true, out: "X1(B,E)", epsilon: 1e-6),
        RmsNorm(name: "norm3", x: "X1(B,E)", gain: "g3(E)", one_plus_gain: true, out: "N3(B,E)", epsilon: 1e-6),
        GatedGemm(name: "gate", a: "N3(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", activation: Gelu, out: "G(B,I)"),
        Gemm(name: "down", a: "G(B,I)", b: "Wd(I,E)", out: "F(B,E)"),
        RmsNorm(name: "norm4", x: "F(B,E)", gain: "g4(E)", residual: "X1(B,E)", one_plus_gain: true, out: "X2(B,E)", epsilon: 1e-6),
    ],
)"#;

#[test]
fn scores_of_every_form_between_norms_with_residuals() {
    let forms =
        ["", "softcap: 0.8,", "scale: 0.3,", "window: 1,", "window: 100,", "window: 64, softcap: 2.0,"];
    for (i, form) in forms.into_iter().enumerate() {
        for (batch, dim) in [(5, "128"), (1, "64"), (16, "128"), (3, "256"), (9, "256")] {
            let source = AROUND.replace("FORM", form).replace(r#""D": 128"#, &format!(r#""D": {dim}"#));
            let element = if (i + batch as usize).is_multiple_of(2) { Element::F16 } else { Element::Bf16 };
            grows(&source, batch, element, Overlap::Captured);
        }
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

/// Heads of queries and keys with a norm, in groups of four and eight, in a paged cache and in rows.
#[test]
fn heads_are_normalized_before_they_are_rotated() {
    let norm = r#"head_norm: HeadNorm(query: "gq(D)", key: "gk(D)", epsilon: 1e-6), rotary: "cs(S,D)""#;
    let paged = PAGED.replace(r#"rotary: "cs(S,D)""#, norm);
    let rows = shipped(NAMES[2]).expect("it ships").replace(r#"rotary: "cs(S,D)""#, norm);
    assert!(paged.contains(norm) && rows.contains(norm));
    for element in [Element::F16, Element::Bf16] {
        for dim in [64, 80, 96, 256] {
            grows(&paged.replace(r#""D": 64"#, &format!(r#""D": {dim}"#)), 5, element, Overlap::All);
        }
        grows(&rows, 7, element, Overlap::All);
    }
}

/// Empty caches, caches with room for one more token, and random lengths in between.
fn random_lengths(batch: u32, capacity: u32, seed: u64) -> Vec<i32> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut drawn: Vec<i32> = (0..batch).map(|_| rng.random_range(0..capacity as i32)).collect();
    let last = drawn.len() - 1;
    drawn[(seed as usize) % (last + 1)] = 0;
    drawn[last - (seed as usize) % (last + 1)] = capacity as i32 - 1;
    drawn
}

fn at_lengths(gpu: &Gpu, plan: &Plan, seed: u32, all: &[Vec<i32>]) {
    runs_at_lengths(gpu, (plan, Executor::Fused), seed, all);
}

/// Runs with several vectors of lengths, eager and replayed; each run is right, and a repetition is bit-identical.
pub(crate) fn runs_at_lengths(gpu: &Gpu, (plan, executor): (&Plan, Executor), seed: u32, all: &[Vec<i32>]) {
    let (inputs, _) = expected(gpu, plan, 1, seed);
    let pages = pages(plan, seed);
    let mut pipeline = pipeline(gpu, plan, &inputs, Options { overlap: Overlap::All, ..Options::default() });
    let buffer = lengths(gpu, &mut pipeline, &all[0]);
    let graph = pipeline.capture(executor, &[0]).unwrap_or_else(|e| panic!("{e}"));
    for now in all {
        let label = format!("{} {:?} lengths {now:?}", plan.graph().name, plan.graph().dims);
        let mut twice = || -> cusync::runtime::Result<()> {
            buffer.upload(now)?;
            let caches = Caches::read(&pipeline);
            pipeline.poison_outputs()?;
            pipeline.run(executor)?;
            let first = bits(&mut pipeline);
            pipeline.poison_outputs()?;
            pipeline.replay(&graph)?;
            assert!(bits(&mut pipeline) == first, "{label}: the replay differs");
            caches.assert_appended(&label, &pipeline, now, pages.as_deref().map(Vec::as_slice));
            assert_right(&label, &Reference::new(&mut pipeline, 0)?.compare(&mut pipeline)?);
            Ok(())
        };
        twice().unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}

#[test]
fn caches_of_512_and_2048_tokens_at_random_lengths() {
    let Some(gpu) = hopper() else { return };
    let batches: &[u32] = if quick() { &[4] } else { &[1, 4, 5, 32] };
    for (number, name) in NAMES.into_iter().enumerate() {
        for (&batch, capacity) in batches.iter().flat_map(|batch| [512, 2048].map(|s| (batch, s))) {
            let element =
                if (number as u32 + batch).is_multiple_of(2) { Element::F16 } else { Element::Bf16 };
            let source = shipped(name).expect("it ships");
            let plan = sized(&gpu, source, &[("B", batch), ("S", capacity)], element);
            let seeds = if quick() { 1 } else { 3 };
            let all: Vec<_> = (0..seeds).map(|seed| random_lengths(batch, capacity, seed)).collect();
            at_lengths(&gpu, &plan, batch, &all);
        }
    }
}

/// Eight query heads with one, two and eight key heads of every width, in pages.
#[test]
fn paged_caches_of_every_group() {
    let Some(gpu) = hopper() else { return };
    let heads = [64, 80, 96, 128, 256].into_iter().flat_map(|dim| [1, 2, 8].map(|kv| (kv, dim)));
    let heads = heads.filter(|(kv, dim)| 8 / kv * dim <= 1024);
    for (number, (kv, dim)) in heads.enumerate() {
        for (batch, capacity) in if quick() { vec![(5, 512)] } else { vec![(1, 64), (4, 2048), (32, 512)] } {
            let pool = batch * capacity / 64 + 3;
            let dims = [("B", batch), ("S", capacity), ("HKV", kv), ("D", dim), ("N", pool)];
            let element = [Element::F16, Element::Bf16][number % 2];
            let plan = sized(&gpu, PAGED, &dims, element);
            let all: Vec<_> = (0..2).map(|seed| random_lengths(batch, capacity, seed)).collect();
            at_lengths(&gpu, &plan, 7, &all);
        }
    }
}

/// Four layers in one launch: each reads the previous one and appends to its own caches.
#[test]
fn several_layers_in_one_launch() {
    let Some(gpu) = hopper() else { return };
    for (name, batch) in [("llama3_70b_layers", 1), ("llama65_layers", 5), ("gpt3_layers", 32)] {
        let source = source_of(name).expect("it is derived");
        let plan = sized(&gpu, &source, &[("B", batch), ("S", CAPACITY)], Element::F16);
        assert!(plan.launch().shares().is_some() && plan.graph().stages.len() >= 20, "{name}");
        at_lengths(&gpu, &plan, 3, &[ragged(batch)]);
    }
}

/// A run that skips sequence 2 and names it: its rows are zeros, the other rows are right, and all caches are
/// unchanged.
fn leaves_out(label: &str, pipeline: &mut Pipeline, sound: &[Vec<u16>], words: &[&str]) {
    let caches = Caches::read(pipeline);
    pipeline.run(Executor::Fused).expect("it is queued");
    match pipeline.synchronize() {
        Err(Error::Cache { stage, sequence: 2, fault }) => {
            let named = words.iter().all(|word| fault.contains(word)) && stage == "attend";
            assert!(named, "{label}: {stage}: {fault}");
        }
        other => panic!("{label}: {other:?}"),
    }
    let (made, columns) = (bits(pipeline), sound[1].len() / 5);
    assert!(made[1][2 * columns..3 * columns].iter().all(|x| *x == 0), "{label}: zeros");
    for (at, (a, b)) in made[1].iter().zip(&sound[1]).enumerate() {
        assert!(at / columns == 2 || a == b, "{label}: sequence {} changed", at / columns);
    }
    assert!(Caches::read(pipeline) == caches, "{label}: a cache has changed");
}

/// The outputs of a run if every sequence has room.
fn made(pipeline: &mut Pipeline) -> Vec<Vec<u16>> {
    pipeline.run(Executor::Fused).expect("it is queued");
    pipeline.synchronize().expect("all have room");
    bits(pipeline)
}

#[test]
fn a_sequence_without_room_is_named_and_the_others_are_right() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let buffer = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let sound = made(&mut pipeline);
    for bad in [-1, CAPACITY as i32] {
        buffer.upload(&[70, 10, bad, 200, 5]).expect("the copy succeeds");
        leaves_out(&format!("length {bad}"), &mut pipeline, &sound, &[&bad.to_string()]);
    }
    buffer.upload(&[70, -3, CAPACITY as i32, 200, 5]).expect("the copy succeeds");
    pipeline.run(Executor::Fused).expect("it is queued");
    let text = pipeline.synchronize().expect_err("two have no room").to_string();
    assert!(
        text.contains("sequence 1: its length is -3") && text.contains("sequence 2: its length is"),
        "{text}"
    );
    buffer.upload(&[70, 10, 0, 200, 5]).expect("the copy succeeds");
    assert!(made(&mut pipeline) == sound, "the pipeline runs on and makes what it made");
}

/// The second of two attentions with separate page tables skips a sequence: the error names the second.
#[test]
fn a_stage_behind_another_is_named_for_its_own_pages() {
    let Some(gpu) = hopper() else { return };
    let stages: String = [("X", 1), ("A1", 2)].map(|(x, i)| format!(
        r#"Gemm(name: "qkv{i}", a: "{x}(B,512)", b: "W{i}(512,1024)", out: "QKV{i}(B,1024)"),
        Attention(name: "attend{i}", qkv: "QKV{i}(B,1024)", heads: 8, kv_heads: 4, pages: "P{i}(B,S/64)", out: "A{i}(B,512)",
            cache: Cache(keys: "K{i}(30,4,64,64)", values: "V{i}(30,4,64,64)", lengths: "n(B)")),"#
    )).concat();
    let source = format!(r#"Pipeline(name: "two", dims: {{ "B": 5, "S": 256 }}, stages: [{stages}])"#);
    let plan = plan(&gpu, &source, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let table = plan.graph().tensors.iter().position(|t| t.name == "P2").expect("a table");
    let mut wrong = Inputs::random(plan.graph(), 3).integers(TensorId(table)).expect("pages").to_vec();
    // The first page of sequence 3; each sequence has four.
    wrong[3 * 4] = 30;
    let buffer = DeviceBuffer::from_slice(&gpu.device, &wrong, "pages").expect("memory");
    pipeline.bind_integers("P2", Arc::new(buffer)).expect("a table");
    pipeline.run(Executor::Fused).expect("it is queued");
    match pipeline.synchronize() {
        Err(Error::Cache { stage, sequence: 3, fault }) => {
            assert!(
                stage == "attend2" && fault.contains("page 0 is number 30 of a pool of 30"),
                "{stage}: {fault}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_that_two_sequences_append_to_is_named() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &[70, 10, 0, 200, 5]);
    let sound = pages(&plan, 3).expect("a table").to_vec();
    let mut table = sound.clone();
    // Sequence 1 appends to its first page, which sequence 3 also reads.
    let a_row = table.len() / 5;
    table[3 * a_row + 1] = table[a_row];
    let buffer = Arc::new(DeviceBuffer::from_slice(&gpu.device, &table, "pages").expect("memory"));
    pipeline.bind_integers("P", buffer.clone()).expect("a table");
    match pipeline.run(Executor::Fused) {
        Err(Error::SharedPage { sequence: 1, other: 3, page, .. }) => {
            assert_eq!(page, table[a_row])
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(pipeline.capture(Executor::Fused, &[0]), Err(Error::SharedPage { .. })));
    let stream = Stream::new(&gpu.device).expect("a stream");
    assert!(matches!(pipeline.run_on(Executor::Fused, &stream), Err(Error::SharedPage { .. })));
    buffer.upload(&sound).expect("copied");
    made(&mut pipeline);
    let captured = pipeline.capture(Executor::Fused, &[0]).expect("it captures");
    buffer.upload(&table).expect("copied");
    assert!(matches!(pipeline.replay(&captured), Err(Error::SharedPage { .. })));
    buffer.upload(&sound).expect("copied");
    pipeline.replay(&captured).and_then(|()| pipeline.synchronize()).expect("it runs");
}

#[test]
fn a_page_out_of_range_is_named_and_the_others_are_right() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, PAGED, 5, Element::F16);
    let (inputs, _) = expected(&gpu, &plan, 1, 3);
    let mut pipeline = pipeline(&gpu, &plan, &inputs, Options::default());
    let _lengths = lengths(&gpu, &mut pipeline, &[70, 10, 130, 200, 5]);
    let right = pages(&plan, 3).expect("it has pages");
    let table = Arc::new(DeviceBuffer::from_slice(&gpu.device, &right, "pages").expect("memory"));
    pipeline.bind_integers("P", table.clone()).expect("the spec has pages");
    let sound = made(&mut pipeline);
    let (a_row, pool) = (CAPACITY as usize / 64, 30);
    // The new token's page, and a page of existing tokens.
    for (page, bad) in [(2, pool), (0, -1), (1, i32::MAX)] {
        let mut wrong = right.to_vec();
        wrong[2 * a_row + page] = bad;
        table.upload(&wrong).expect("the copy succeeds");
        let words = [format!("page {page}"), format!("number {bad}"), format!("pool of {pool}")];
        let words = words.each_ref().map(String::as_str);
        leaves_out(&format!("page {page} is {bad}"), &mut pipeline, &sound, &words);
    }
    // Pages after the last token are not checked.
    let mut unread = right.to_vec();
    unread[2 * a_row + 3] = pool;
    table.upload(&unread).expect("the copy succeeds");
    assert!(made(&mut pipeline) == sound, "the pipeline runs on and makes what it made");
}
