//! Token generation and batched prompts on the cpu executor against the independent reference: contiguous and paged
//! caches, ragged lengths, rotation, a cache that grows from run to run, and sequences without room in the cache.

mod out_of_range;

use std::collections::HashMap;

use cusync::element::Bits;
use cusync::inputs::Inputs;
use cusync::reference::Judge;
use cusync::runtime::cpu::{CpuError, CpuOptions, CpuPipeline, Workers};
use cusync::runtime::{Overrides, plan_text};
use cusync_gen::check::{Executor, Plan, check};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, TensorId};
use cusync_gen::spec;

/// QKV, attention and projection for one token of each of B sequences.
#[derive(Clone, Copy)]
struct Block {
    heads: (u32, u32, u32),
    batch: u32,
    capacity: u32,
    /// Pages in the pool.
    pages: Option<u32>,
    rotary: bool,
    /// Whether heads of queries and keys are normalized before they are rotated.
    normed: bool,
    element: &'static str,
}

const HEAD_NORM: &str = r#"head_norm: HeadNorm(query: "gq(D)", key: "gk(D)", epsilon: 1e-6), "#;

const BLOCK: Block = Block {
    heads: (4, 2, 64),
    batch: 3,
    capacity: 200,
    pages: None,
    rotary: true,
    normed: false,
    element: "F16",
};

impl Block {
    fn plan(&self) -> Plan {
        plan(&self.source())
    }

    /// The same in a decode kernel's shares: one thread per CTA.
    fn shares(&self) -> Plan {
        shares(&self.source())
    }

    fn source(&self) -> String {
        let Block { heads: (query, kv, dim), batch, capacity, element, .. } = *self;
        let (pool, rows) = self.pages.map_or((batch, capacity), |pool| (pool, 64));
        let pages = if self.pages.is_some() { r#"pages: "P(B,S/64)", "# } else { "" };
        let rotary = if self.rotary { r#"rotary: "cs(S,D)", "# } else { "" };
        let norm = if self.normed { HEAD_NORM } else { "" };
        format!(
            r#"Pipeline(name: "block", element: {element},
                dims: {{ "B": {batch}, "S": {capacity}, "N": {pool}, "T": {rows}, "HQ": {query}, "HKV": {kv}, "D": {dim} }}, stages: [
                Gemm(name: "qkv", a: "X(B,264)", b: "Wqkv(264,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)"),
                Attention(name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", {pages}{rotary}{norm}
                    cache: Cache(keys: "K(N,HKV,T,D)", values: "V(N,HKV,T,D)", lengths: "n(B)"), out: "A(B,HQ*D)"),
                Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,264)", out: "Z(B,264)"),
            ])"#
        )
    }
}

/// A decode plan of seven workers.
fn shares(source: &str) -> Plan {
    let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[])).expect("valid");
    let small = Profile { sms: 7, ..Profile::named("h200").expect("the profile ships").clone() };
    check(choose::decode(&resolved, &small).expect("a decode plan")).expect("proved")
}

pub(crate) fn plan(source: &str) -> Plan {
    let device = Profile::named("h200").expect("the profile ships");
    plan_text(source, "test", &Overrides::default(), device, Executor::Cpu).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn id(graph: &Graph, name: &str) -> TensorId {
    TensorId(graph.tensors.iter().position(|t| t.name == name).unwrap_or_else(|| panic!("no {name}")))
}

pub(crate) fn pipeline(plan: &Plan, inputs: &Inputs) -> CpuPipeline {
    let options = CpuOptions { threads: 3, workers: Workers::TeamPerStage, ..CpuOptions::default() };
    CpuPipeline::new(plan, inputs, options).expect("small")
}

/// Verifies every stage of the last run, which began with these inputs, and every cache.
fn assert_right(label: &str, graph: &Graph, inputs: &Inputs, pipeline: &CpuPipeline) {
    let count = graph.stages.len() + graph.tensors.iter().filter(|tensor| tensor.state).count();
    let judge = Judge::new(graph, inputs, HashMap::new()).expect("all inputs are there");
    let judged = judge.compare(&|tensor| pipeline.tensor(tensor).ok()).expect("all tensors are there");
    assert_eq!(judged.len(), count, "{label}");
    judged.iter().for_each(|tensor| assert!(tensor.verified, "{label}: {tensor}"));
}

/// Runs once per vector of lengths, each run on the cache left by the previous one, and verifies every stage and both
/// caches.
pub(crate) fn grow(plan: &Plan, lengths: &[Vec<i32>]) {
    let graph = plan.graph();
    let mut inputs = Inputs::random(graph, 11);
    let mut pipeline = pipeline(plan, &inputs);
    for (run, lengths) in lengths.iter().enumerate() {
        assert!(inputs.set_integers(id(graph, "n"), lengths.clone()));
        pipeline.set_integers("n", lengths).expect("a length a sequence");
        pipeline.run().unwrap_or_else(|e| panic!("run {run}: {e}"));
        assert_right(&format!("run {run}"), graph, &inputs, &pipeline);
        for name in ["K", "V"] {
            let values = pipeline.tensor(name).expect("a cache");
            let mut bits = vec![0; values.len()];
            graph.element.round(&values, &mut bits);
            assert!(inputs.set(id(graph, name), bits));
        }
    }
}

#[test]
fn tokens_of_a_growing_cache_are_right_run_after_run() {
    // Across the end of a 64-token block, from an empty cache, and up to the last row.
    let ragged = [[0, 62, 197], [1, 63, 198], [2, 64, 199]].map(|n| n.to_vec());
    for heads in [(4, 4, 64), (4, 2, 128), (8, 1, 64), (8, 1, 128)] {
        for (rotary, normed, element) in [
            (true, false, "F16"),
            (true, false, "Bf16"),
            (false, false, "F16"),
            (true, true, "F16"),
            (true, true, "Bf16"),
        ] {
            let block = Block { heads, rotary, normed, element, ..BLOCK };
            grow(&block.plan(), &ragged);
            if normed {
                grow(&block.shares(), &ragged);
            }
        }
    }
}

/// Four layers in one launch: proved at full width, and verified on small ones.
#[test]
fn four_layers_in_one_launch_are_proved_and_right() {
    let h200 = Profile::named("h200").expect("the profile ships");
    for model in ["gpt3", "llama65", "llama3_70b"] {
        let name = format!("{model}_layers");
        let source = cusync_bench::source_of(&name).expect("it is derived");
        let spec = spec::parse(&source, &name).expect("valid");
        let resolved = |dims: &[(&str, u64)]| {
            let dims: Vec<_> = dims.iter().map(|&(dim, size)| (dim.to_owned(), size)).collect();
            spec.resolve(&dims).expect("it resolves")
        };
        for batch in [1, 8, 32] {
            let graph = resolved(&[("B", batch), ("S", 2049)]);
            let plan = check(choose::decode(&graph, h200).expect("a decode plan")).expect("proved");
            assert_eq!(plan.graph().stages.len(), 28, "{name} B = {batch}");
        }
        let heads = if model == "llama3_70b" { 1 } else { 2 };
        let small =
            resolved(&[("B", 3), ("S", 96), ("E", 192), ("HQ", 2), ("HKV", heads), ("D", 64), ("I", 160)]);
        let few = Profile { sms: 7, ..h200.clone() };
        let plan = check(choose::decode(&small, &few).expect("a decode plan")).expect("proved");
        let graph = plan.graph();
        let mut inputs = Inputs::random(graph, 7);
        assert!(inputs.set_integers(id(graph, "n"), vec![0, 63, 95]));
        let mut pipeline = pipeline(&plan, &inputs);
        pipeline.run().expect("it runs");
        assert_right(model, graph, &inputs, &pipeline);
    }
}

#[test]
fn the_shares_of_a_decode_kernel_are_right_run_after_run() {
    let ragged = [[0, 62, 190], [1, 63, 191], [2, 64, 3]].map(|n| n.to_vec());
    for (heads, pages) in [((4, 2, 64), None), ((8, 1, 128), Some(9)), ((4, 4, 64), Some(12))] {
        let plan = Block { heads, pages, capacity: 192, ..BLOCK }.shares();
        assert!(plan.launch().shares().is_some());
        grow(&plan, &ragged);
    }
    // A sequence without room also posts its heads, so waiting stages continue.
    let plan = BLOCK.shares();
    let inputs = Inputs::random(plan.graph(), 4);
    let mut pipeline = pipeline(&plan, &inputs);
    pipeline.set_integers("n", &[5, 200, 6]).expect("a length a sequence");
    for run in 0..2 {
        let error = pipeline.run().expect_err("no room").to_string();
        assert!(error.contains("sequence 1") && error.contains("200"), "run {run}: {error}");
    }
    pipeline.set_integers("n", &[5, 199, 6]).expect("a length a sequence");
    pipeline.run().expect("in range");
}

#[test]
fn pages_of_a_pool_are_as_good_as_rows_of_ones_own() {
    let ragged = [[0, 62, 190], [1, 63, 191], [2, 64, 3]].map(|n| n.to_vec());
    for pool in [9, 20] {
        grow(&Block { pages: Some(pool), capacity: 192, ..BLOCK }.plan(), &ragged);
    }
    // Contiguous and paged caches with the same tokens: bit-identical results.
    let (rows, paged) =
        (Block { capacity: 192, ..BLOCK }.plan(), Block { capacity: 192, pages: Some(9), ..BLOCK }.plan());
    let inputs = Inputs::random(rows.graph(), 3);
    let mut other = Inputs::random(paged.graph(), 3);
    for tensor in &paged.graph().tensors {
        let to = id(paged.graph(), &tensor.name);
        if tensor.state {
            // Page p of the table's row b holds tokens 64 p .. of sequence b, head by head.
            let (from, table) = (id(rows.graph(), &tensor.name), id(paged.graph(), "P"));
            let (old, table) =
                (inputs.bits(from).expect("a cache").clone(), other.integers(table).expect("pages").clone());
            let mut pool = vec![0; old.len()];
            for (at, page) in table.iter().enumerate() {
                for head in 0..2 {
                    let (b, p) = (at / 3, at % 3);
                    let source = ((b * 2 + head) * 192 + p * 64) * 64;
                    let to = (*page as usize * 2 + head) * 64 * 64;
                    pool[to..to + 64 * 64].copy_from_slice(&old[source..source + 64 * 64]);
                }
            }
            assert!(other.set(to, pool));
        } else if let Some(from) = rows.graph().tensors.iter().position(|t| t.name == tensor.name) {
            let from = TensorId(from);
            inputs.bits(from).into_iter().for_each(|b| assert!(other.set(to, b.to_vec())));
            inputs.integers(from).into_iter().for_each(|n| assert!(other.set_integers(to, n.to_vec())));
        }
    }
    let out = |plan: &Plan, inputs: &Inputs| {
        let mut pipeline = pipeline(plan, inputs);
        pipeline.run().expect("in range");
        pipeline.tensor("Z").expect("an output")
    };
    assert_eq!(out(&rows, &inputs), out(&paged, &other));
}

#[test]
fn layers_by_shares_are_right_run_after_run() {
    for (norm, bias) in [("RmsNorm", ""), ("LayerNorm", r#"bias: "b(E)", "#)] {
        let source = format!(
            r#"Pipeline(name: "layer", dims: {{ "B": 3, "S": 200, "E": 264, "I": 136 }}, stages: [
                {norm}(name: "first", x: "X(B,E)", gain: "g1(E)", {bias}out: "N1(B,E)", epsilon: 1e-5),
                Gemm(name: "qkv", a: "N1(B,E)", b: "Wqkv(E,512)", out: "QKV(B,512)"),
                Attention(name: "attend", qkv: "QKV(B,512)", heads: 4, kv_heads: 2, rotary: "cs(S,64)",
                    cache: Cache(keys: "K(B,2,S,64)", values: "V(B,2,S,64)", lengths: "n(B)"), out: "A(B,256)"),
                Gemm(name: "project", a: "A(B,256)", b: "Wo(256,E)", residual: "X(B,E)", out: "H(B,E)"),
                {norm}(name: "second", x: "H(B,E)", gain: "g2(E)", {bias}out: "N2(B,E)", epsilon: 1e-5),
                GatedGemm(name: "gate_up", a: "N2(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", out: "Y(B,I)"),
                Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", residual: "H(B,E)", out: "Z(B,E)"),
            ])"#
        );
        grow(&shares(&source), &[[0, 62, 197], [1, 63, 198]].map(|n| n.to_vec()));
    }
}

#[test]
fn layers_whose_products_normalize_their_rows_are_right_run_after_run() {
    let norm = |gain: &str| format!("input_norm: InputNorm(gain: {gain:?}, epsilon: 1e-5)");
    let source = format!(
        r#"Pipeline(name: "layer", dims: {{ "B": 3, "S": 200, "E": 264, "I": 136 }}, stages: [
            Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,512)", bias: "b(512)", {}, out: "QKV(B,512)"),
            Attention(name: "attend", qkv: "QKV(B,512)", heads: 4, kv_heads: 2, rotary: "cs(S,64)",
                cache: Cache(keys: "K(B,2,S,64)", values: "V(B,2,S,64)", lengths: "n(B)"), out: "A(B,256)"),
            Gemm(name: "project", a: "A(B,256)", b: "Wo(256,E)", residual: "X(B,E)", out: "H(B,E)"),
            GatedGemm(name: "gate_up", a: "H(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", {}, out: "Y(B,I)"),
            Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", residual: "H(B,E)", out: "Z(B,E)"),
        ])"#,
        norm("g1(E)"),
        norm("g2(E)")
    );
    grow(&shares(&source), &[[0, 62, 197], [1, 63, 198]].map(|n| n.to_vec()));
}

#[test]
fn prompts_of_many_sequences_are_right_and_fill_a_cache() {
    for (heads, sequences, tokens, causal) in
        [((4, 2), 3, 64, true), ((4, 4), 2, 100, false), ((2, 1), 5, 17, true), ((8, 1), 2, 128, true)]
    {
        // Rotated where they are produced, with or without a norm, or at every read.
        let ways = [(0, true, ""), (192, true, ""), (192, true, HEAD_NORM), (192, false, "")];
        for (capacity, made, norm) in ways {
            let cache = match capacity {
                0 => "",
                _ => r#"cache: Cache(keys: "K(B,HKV,192,D)", values: "V(B,HKV,192,D)"), "#,
            };
            let rows = if cache.is_empty() { "S" } else { "192" };
            let (query, kv) = heads;
            let angles = format!(r#"rotary: "cs({rows},D)", "#);
            let (kind, heads_text, own) = match made {
                true => (
                    "RotatedGemm",
                    format!(r#"heads: "HQ", kv_heads: "HKV", sequences: "B", {norm}{angles}"#),
                    "",
                ),
                false => ("Gemm", String::new(), angles.as_str()),
            };
            let source = format!(
                r#"Pipeline(name: "prompts", dims: {{ "B": {sequences}, "S": {tokens}, "HQ": {query}, "HKV": {kv}, "D": 64 }}, stages: [
                    {kind}(name: "qkv", a: "X(B*S,264)", b: "Wqkv(264,(HQ+2*HKV)*D)", bias: "c((HQ+2*HKV)*D)", {heads_text}
                        out: "QKV(B*S,(HQ+2*HKV)*D)"),
                    Attention(name: "attend", qkv: "QKV(B*S,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", causal: {causal},
                        sequences: "B", {own}{cache}out: "A(B*S,HQ*D)"),
                    Gemm(name: "project", a: "A(B*S,HQ*D)", b: "Wo(HQ*D,264)", out: "Z(B*S,264)"),
                ])"#
            );
            let plan = plan(&source);
            let inputs = Inputs::random(plan.graph(), 9);
            let mut pipeline = pipeline(&plan, &inputs);
            for run in 0..2 {
                pipeline.run().expect("in range");
                let label = format!("{heads:?} {sequences} x {tokens} run {run}");
                assert_right(&label, plan.graph(), &inputs, &pipeline);
            }
        }
    }
}

#[test]
fn a_prompt_and_the_tokens_after_it_are_one_long_prompt() {
    // 70 tokens at once, or 66 and then 4 one by one, with the same values.
    let (dims, qkv) = (r#""HQ": 4, "HKV": 2, "D": 64"#, "(HQ+2*HKV)*D");
    let prompt = |tokens: u32, cache: &str| {
        plan(&format!(
            r#"Pipeline(name: "p", dims: {{ {dims} }}, stages: [
                Attention(name: "attend", qkv: "QKV({tokens},{qkv})", heads: "HQ", kv_heads: "HKV", sequences: 1,
                    rotary: "cs(128,D)", {cache}out: "A({tokens},HQ*D)"),
            ])"#
        ))
    };
    let cache = r#"cache: Cache(keys: "K(1,HKV,128,D)", values: "V(1,HKV,128,D)"), "#;
    let (whole, start) = (prompt(70, ""), prompt(66, cache));
    let next = plan(&format!(
        r#"Pipeline(name: "n", dims: {{ {dims} }}, stages: [
            Attention(name: "attend", qkv: "QKV(1,{qkv})", heads: "HQ", kv_heads: "HKV", rotary: "cs(128,D)",
                cache: Cache(keys: "K(1,HKV,128,D)", values: "V(1,HKV,128,D)", lengths: "n(1)"), out: "A(1,HQ*D)"),
        ])"#
    ));
    let all = Inputs::random(whole.graph(), 21);
    let rows = all.bits(id(whole.graph(), "QKV")).expect("an input").clone();
    let width = 8 * 64;
    let outputs = |plan: &Plan, inputs: &Inputs| {
        let mut pipeline = pipeline(plan, inputs);
        pipeline.run().expect("in range");
        pipeline
    };
    let expected = outputs(&whole, &all).tensor("A").expect("an output");
    let mut inputs = Inputs::random(start.graph(), 1);
    assert!(inputs.set(id(start.graph(), "QKV"), rows[..66 * width].to_vec()));
    let mut done = outputs(&start, &inputs);
    assert_eq!(done.tensor("A").expect("an output"), expected[..66 * 256]);
    for token in 66..70 {
        let mut inputs = Inputs::random(next.graph(), 1);
        assert!(inputs.set(id(next.graph(), "QKV"), rows[token * width..(token + 1) * width].to_vec()));
        assert!(inputs.set_integers(id(next.graph(), "n"), vec![token as i32]));
        for name in ["K", "V"] {
            let values = done.tensor(name).expect("a cache");
            let mut bits = vec![0; values.len()];
            next.graph().element.round(&values, &mut bits);
            assert!(inputs.set(id(next.graph(), name), bits));
        }
        done = outputs(&next, &inputs);
        let found = done.tensor("A").expect("an output");
        let wanted = &expected[token * 256..(token + 1) * 256];
        let apart = found.iter().zip(wanted).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(apart < 2e-3, "token {token}: {apart}");
    }
}
