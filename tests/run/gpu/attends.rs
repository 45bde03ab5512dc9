//! Token generation in decode kernels on a GPU, blocks and whole layers: right to 2e-3 for batches of any lengths,
//! while the cache grows from run to run, eager and replayed, and bit-identical in every run.

use std::sync::Arc;

use crate::caches::Caches;
use crate::common::{Gpu, assert_right, assert_runs_right, pipeline, plan_of, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::bits;
use cusync::device::DeviceBuffer;
use cusync::inputs::Inputs;
use cusync::runtime::verify::Reference;
use cusync::runtime::{Options, Overlap, Overrides, Pipeline, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::{Element, TensorId};
use cusync_gen::schedule::decode::is_in_pairs;

pub(crate) const NAMES: [&str; 3] = ["gpt3_generate", "llama65_generate", "llama3_70b_generate"];
const LAYERS: [&str; 3] = ["gpt3_layer", "llama65_layer", "llama3_70b_layer"];
pub(crate) const CAPACITY: u32 = 256;

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
pub(crate) const WIDTHS: &str = r#"Pipeline(
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

pub(crate) fn plan(gpu: &Gpu, source: &str, batch: u32, element: Element) -> Plan {
    sized(gpu, source, &[("B", batch), ("S", CAPACITY)], element)
}

pub(crate) fn sized(gpu: &Gpu, source: &str, dims: &[(&str, u32)], element: Element) -> Plan {
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
pub(crate) fn pages(plan: &Plan, seed: u32) -> Option<Arc<Vec<i32>>> {
    let table = plan.graph().tensors.iter().position(|t| t.name == "P")?;
    Inputs::random(plan.graph(), seed.into()).integers(TensorId(table)).cloned()
}

/// Lengths at the ends of units and of the cache, and others.
pub(crate) fn ragged(batch: u32) -> Vec<i32> {
    let edges = [0, 1, 63, 64, 65, 127, 200, 130];
    (0..batch as usize).map(|i| (edges[i % 8] + 17 * (i / 8) as i32) % (CAPACITY as i32 - 30)).collect()
}

pub(crate) fn right(label: &str, pipeline: &mut Pipeline) {
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
    for (batch, element) in [(5, Element::Bf16), (16, Element::F16), (32, Element::F16), (32, Element::Bf16)]
    {
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
