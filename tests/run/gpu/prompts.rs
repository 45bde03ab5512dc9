//! Attention over whole sequences on a GPU: blocks are right for sequences of any length, causal and full, and
//! bit-identical in every run, eager and replayed.

use crate::attend_lengths::runs_at_lengths;
use crate::attends::lengths;
use crate::common::{Gpu, assert_right, pipeline, plan_of, quick};
use crate::fused::{expected, hopper};
use crate::fused_runs::{assert_repeats as repeats, bits};
use cusync::runtime::{Error, Options, Overlap, Overrides, Pipeline, shipped};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::graph::{Element, Op};

const NAMES: [&str; 3] = ["gpt3_attention", "llama65_attention", "llama3_70b_attention"];

/// Sequences of one and of several tiles; groups of four 64-column heads that see their whole sequence.
const SEQUENCES: &str = r#"Pipeline(
    name: "sequences",
    dims: { "B": 5, "S": 128, "E": 512, "HQ": 8, "HKV": 2, "D": 64 },
    stages: [
        Gemm(name: "qkv", a: "X(B*S,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B*S,(HQ+2*HKV)*D)"),
        Attention(
            name: "attend", qkv: "QKV(B*S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B", causal: false,
            out: "A(B*S,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B*S,HQ*D)", b: "Wo(HQ*D,E)", out: "Z(B*S,E)"),
    ],
)"#;

/// Queries and keys are rotated, and keys and values fill the first rows of a larger cache.
const CACHED: &str = r#"Pipeline(
    name: "cached",
    dims: { "B": 3, "S": 128, "C": 300, "E": 512, "HQ": 8, "HKV": 2, "D": 128 },
    stages: [
        RotatedGemm(
            name: "qkv", a: "X(B*S,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", bias: "bias((HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV",
            sequences: "B", rotary: "cs(C,D)", out: "QKV(B*S,(HQ+2*HKV)*D)",
        ),
        Attention(
            name: "attend", qkv: "QKV(B*S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B",
            cache: Cache(keys: "K(B,HKV,C,D)", values: "V(B,HKV,C,D)"), out: "A(B*S,HQ*D)",
        ),
        Gemm(name: "project", a: "A(B*S,HQ*D)", b: "Wo(HQ*D,E)", out: "Z(B*S,E)"),
    ],
)"#;

/// [`CACHED`] behind tokens that the caches have.
fn continued(form: &str) -> String {
    let lengths = CACHED.replace("rotary: \"cs(C,D)\",", "rotary: \"cs(C,D)\", lengths: \"n(B)\",");
    let lengths =
        lengths.replace("values: \"V(B,HKV,C,D)\")", "values: \"V(B,HKV,C,D)\", lengths: \"n(B)\")");
    let formed = lengths.replace("            cache", &format!("            {form} cache"));
    assert_eq!(formed.matches("lengths").count(), 2);
    assert!(formed.contains(form));
    formed
}

/// A plan for one launch per stage.
fn plan(gpu: &Gpu, source: &str, dims: &[(&str, u32)], element: Element) -> Plan {
    let overrides = Overrides {
        dims: dims.iter().map(|(name, size)| ((*name).into(), (*size).into())).collect(),
        element: Some(element),
        ..Overrides::default()
    };
    plan_of(gpu, source, &overrides, Executor::Serial)
}

/// A plan with every kind of edge between runs, eager and as a graph, on poisoned outputs, with each output verified.
/// Caches are filled and otherwise unchanged.
fn assert_repeats(label: &str, gpu: &Gpu, plan: &Plan) {
    let (inputs, reference) = expected(gpu, plan, 1, 7);
    repeats(gpu, label, (plan, &inputs), &mut |label, pipeline, caches| {
        let outputs = reference.compare(pipeline).unwrap_or_else(|e| panic!("{label}: {e}"));
        assert_right(label, &outputs);
        let attention = plan.graph().stages.iter().find(|s| s.op.cache().is_some());
        if let Some(Op::Attention(attention)) = attention.map(|stage| &stage.op) {
            caches.assert_appended(label, pipeline, &vec![0; attention.sequences as usize], None);
        }
    });
}

/// Sequences that end anywhere in the attention's tiles, and operand rings that wrap several times.
fn blocks(element: Element) {
    let Some(gpu) = hopper() else { return };
    let lengths = if quick() {
        vec![64, 65, 200, 1024]
    } else {
        vec![1, 17, 64, 65, 100, 128, 200, 512, 900, 1024, 2048]
    };
    let run = |source: &str, dims: &[(&str, u32)]| {
        let plan = plan(&gpu, source, dims, element);
        assert_repeats(&format!("{} {dims:?} {element:?}", plan.graph().name), &gpu, &plan);
    };
    for tokens in lengths {
        for (dim, sequences) in [(64, 1), (64, 3), (128, 3)] {
            run(SEQUENCES, &[("B", sequences), ("S", tokens), ("D", dim)]);
            let cached = [("B", sequences), ("S", tokens), ("C", tokens + 44), ("D", dim)];
            run(CACHED, &cached);
            let norm = r#"head_norm: HeadNorm(query: "gq(D)", key: "gk(D)", epsilon: 1e-6), rotary:"#;
            run(&CACHED.replace("rotary:", norm), &cached);
        }
        for name in NAMES {
            run(shipped(name).expect("it ships"), &[("S", tokens), ("E", 1024)]);
        }
    }
}

/// Heads of every width, which kernels pad to 64, 128 or 256 columns, and scores of every form.
#[test]
fn heads_and_scores_of_every_form() {
    let Some(gpu) = hopper() else { return };
    let lengths = if quick() { vec![65, 700] } else { vec![1, 64, 65, 128, 200, 700, 1500] };
    let run = |source: &str, dims: &[(&str, u32)], element: Element| {
        let plan = plan(&gpu, source, dims, element);
        assert_repeats(&format!("{} {dims:?} {element:?}", plan.graph().name), &gpu, &plan);
    };
    for (tokens, element) in lengths.into_iter().flat_map(|n| [(n, Element::F16), (n, Element::Bf16)]) {
        for dim in [8, 40, 64, 72, 80, 96, 128, 160, 256] {
            run(SEQUENCES, &[("B", 2), ("S", tokens), ("D", dim)], element);
        }
        run(CACHED, &[("B", 2), ("S", tokens), ("C", tokens + 44), ("D", 256)], element);
        for form in [
            "window: 1",
            "window: 63",
            "window: 200",
            "softcap: 2.0",
            "scale: 0.5",
            "window: 130, softcap: 0.7",
        ] {
            let source = CACHED.replace(
                "kv_heads: \"HKV\", sequences: \"B\",\n            cache",
                &format!("kv_heads: \"HKV\", {form}, sequences: \"B\",\n            cache"),
            );
            assert!(source.contains(form), "{form}");
            for dim in [64, 128, 256] {
                run(&source, &[("B", 2), ("S", tokens), ("C", tokens + 44), ("D", dim)], element);
            }
        }
    }
}

/// Prompts behind cached tokens, up to the last row of their caches.
#[test]
fn sequences_continue_behind_their_caches() {
    let Some(gpu) = hopper() else { return };
    let sizes = if quick() {
        vec![(64, 300), (192, 1000)]
    } else {
        vec![(64, 65), (64, 300), (192, 1000), (1024, 2100)]
    };
    for ((tokens, capacity), element) in
        sizes.into_iter().flat_map(|size| [(size, Element::F16), (size, Element::Bf16)])
    {
        let most = capacity - tokens;
        let all = [[0, most * 3 / 7, most], [most.min(64), most, most.min(127)]];
        let all = all.map(|lengths| lengths.map(|n| n as i32).to_vec());
        let run = |source: &str, dim: u32| {
            let plan = plan(&gpu, source, &[("S", tokens), ("C", capacity), ("D", dim)], element);
            runs_at_lengths(&gpu, (&plan, Executor::Serial), 7, &all);
        };
        for form in ["", "window: 1,", "window: 100,", "window: 300, softcap: 0.7,", "scale: 0.5,"] {
            [64, 96, 128, 256].into_iter().for_each(|dim| run(&continued(form), dim));
        }
        let norm = r#"head_norm: HeadNorm(query: "gq(D)", key: "gk(D)", epsilon: 1e-6), rotary:"#;
        run(&continued("").replace("rotary:", norm), 128);
    }
}

/// The pipeline of a prompt with these lengths.
fn at_lengths(gpu: &Gpu, plan: &Plan, values: &[i32]) -> Pipeline {
    let (inputs, _) = expected(gpu, plan, 1, 9);
    let mut pipeline = pipeline(gpu, plan, &inputs, Options::default());
    let _bound = lengths(gpu, &mut pipeline, values);
    pipeline
}

/// What is behind the cached tokens has no effect, whatever it is.
#[test]
fn rows_behind_cached_tokens_may_hold_anything() {
    let Some(gpu) = hopper() else { return };
    for (dim, element) in [(64, Element::F16), (128, Element::Bf16), (256, Element::F16)] {
        let plan = plan(&gpu, &continued(""), &[("S", 64), ("C", 400), ("D", dim)], element);
        let lengths = [0, 70, 336];
        let made = |fill: Option<u16>| {
            let mut pipeline = at_lengths(&gpu, &plan, &lengths);
            for name in ["K", "V"] {
                let memory = pipeline.tensor(0, name).expect("a cache");
                let mut values = vec![0; memory.len()];
                memory.download(&mut values).expect("the copy succeeds");
                for (at, value) in values.iter_mut().enumerate() {
                    let (sequence, token) = (at / (2 * 400 * dim as usize), at / dim as usize % 400);
                    if let Some(fill) = fill.filter(|_| token >= lengths[sequence] as usize) {
                        *value = fill;
                    }
                }
                memory.upload(&values).expect("the copy succeeds");
            }
            pipeline.run(Executor::Serial).expect("it is queued");
            pipeline.synchronize().expect("there is room");
            bits(&mut pipeline)
        };
        // Not a number, in both types.
        assert!(made(Some(0xffff)) == made(None), "{dim} columns, {element:?}");
    }
}

#[test]
fn a_sequence_without_room_for_its_prompt_is_named() {
    let Some(gpu) = hopper() else { return };
    let plan = plan(&gpu, &continued(""), &[("S", 64), ("C", 300)], Element::F16);
    let made = |lengths: &[i32]| {
        let mut pipeline = at_lengths(&gpu, &plan, lengths);
        pipeline.run(Executor::Serial).expect("it is queued");
        let ended = pipeline.synchronize();
        let [a, k] = ["A", "K"].map(|name| {
            let memory = pipeline.tensor(0, name).expect("a tensor");
            let mut values = vec![0u16; memory.len()];
            memory.download(&mut values).expect("the copy succeeds");
            values
        });
        (ended, a, k)
    };
    let (ended, right, caches) = made(&[5, 236, 0]);
    ended.expect("all have room");
    for length in [237, -1] {
        let (ended, found, kept) = made(&[5, length, 0]);
        match ended {
            Err(Error::Cache { stage, sequence: 1, fault }) => {
                let words = format!("its length is {length}, and the cache has room for 64 tokens");
                assert!(stage == "attend" && fault.contains(&words), "{stage}: {fault}");
            }
            other => panic!("{length}: {other:?}"),
        }
        let part = right.len() / 3;
        assert!(
            found[..part] == right[..part] && found[2 * part..] == right[2 * part..],
            "the others are right"
        );
        assert!(found[part..2 * part].iter().all(|x| *x == 0), "zeros");
        let part = caches.len() / 3;
        let others = kept[..part] == caches[..part] && kept[2 * part..] == caches[2 * part..];
        assert!(others && kept[part..2 * part] != caches[part..2 * part], "nothing was appended");
    }
}

#[test]
fn blocks_of_prompts_in_f16() {
    blocks(Element::F16);
}

#[test]
fn blocks_of_prompts_in_bf16() {
    blocks(Element::Bf16);
}

/// Seven stages, including norms, residuals and an MLP, narrower than shipped.
#[test]
fn whole_layers_of_prompts() {
    let Some(gpu) = hopper() else { return };
    for name in ["gpt3_prompt_layer", "llama65_prompt_layer", "llama3_70b_prompt_layer"] {
        for tokens in if quick() { vec![17, 512] } else { vec![1, 17, 100, 512, 2048] } {
            for element in [Element::F16, Element::Bf16] {
                let dims = [("S", tokens), ("E", 1024), ("I", 704)];
                let plan = plan(&gpu, shipped(name).expect("it ships"), &dims, element);
                assert_repeats(&format!("{name} S = {tokens} {element:?}"), &gpu, &plan);
            }
        }
    }
}

#[test]
fn a_thousand_prompts_have_the_same_bits() {
    let Some(gpu) = hopper() else { return };
    for (tokens, overlap) in [(100, Overlap::All), (256, Overlap::Captured)] {
        let plan = plan(&gpu, CACHED, &[("S", tokens), ("C", 300)], Element::F16);
        let (inputs, reference) = expected(&gpu, &plan, 2, 8);
        let mut pipeline = pipeline(&gpu, &plan, &inputs, Options { overlap, ..Options::default() });
        let label = format!("{tokens} tokens {overlap:?}");
        let mut all = || -> cusync::runtime::Result<()> {
            let graph = pipeline.capture(Executor::Serial, &[1, 0, 1, 0])?;
            let mut first = None;
            for round in 0..1000 {
                let look = round % 100 == 99;
                if look {
                    pipeline.poison_outputs()?;
                }
                if round % 5 == 3 {
                    pipeline.run_set(Executor::Serial, 1)?;
                    pipeline.run(Executor::Serial)?;
                } else {
                    pipeline.replay(&graph)?;
                }
                if look {
                    let now = bits(&mut pipeline);
                    assert!(
                        *first.get_or_insert_with(|| now.clone()) == now,
                        "{label}: round {round} differs"
                    );
                }
            }
            assert_right(&label, &reference.compare(&mut pipeline)?);
            Ok(())
        };
        all().unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}
