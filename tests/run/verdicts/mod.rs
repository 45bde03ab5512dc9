//! Verification of runs on the host: correct pipelines of any depth are accepted, corrupted results are called wrong,
//! and an overflow is distinguished from both.

mod wrong;

use std::collections::HashMap;
use std::fmt::Write as _;

use cusync::element::Bits;
use cusync::inputs::Inputs;
use cusync::reference::{Accuracy, Judge, Wrong};
use cusync::runtime::cpu::{CpuOptions, CpuPipeline};
use cusync::runtime::{Overrides, plan_text};
use cusync_gen::check::{Executor, Plan};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Element, TensorId};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn plan(source: &str, element: Option<Element>) -> Plan {
    let device = Profile::named("h200").expect("the profile ships");
    let overrides = Overrides { element, ..Overrides::default() };
    plan_text(source, "test", &overrides, device, Executor::Cpu).unwrap_or_else(|e| panic!("{source}\n{e}"))
}

/// The tensors that a run on these inputs writes.
fn run(plan: &Plan, inputs: &Inputs) -> HashMap<String, Vec<f32>> {
    let options = CpuOptions { threads: 2, ..CpuOptions::default() };
    let mut pipeline = CpuPipeline::new(plan, inputs, options).expect("small");
    pipeline.run().unwrap_or_else(|e| panic!("{}: {e}", plan.graph().name));
    pipeline.written()
}

fn judged(judge: &Judge<'_>, written: &HashMap<String, Vec<f32>>) -> Vec<Accuracy> {
    judge.compare(&|tensor| written.get(tensor).cloned()).expect("all tensors are there")
}

#[test]
fn roundings_of_many_stages_are_no_error() {
    let cases =
        [include_str!("../data/deep_bf16_gemms.ron"), include_str!("../data/conv_gemms_attention.ron")];
    for (source, seed) in cases.into_iter().flat_map(|source| (1..4).map(move |seed| (source, seed))) {
        let plan = plan(source, None);
        let inputs = Inputs::random(plan.graph(), seed);
        let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
        let judged = judged(&judge, &run(&plan, &inputs));
        assert_eq!(judged.len(), plan.graph().stages.len());
        for tensor in &judged {
            assert!(tensor.verified, "{} seed {seed}: {tensor}", plan.graph().name);
        }
        // The reference GEMM differs from the executor's, so some result must differ.
        assert!(judged.iter().any(|tensor| tensor.end_to_end.is_some_and(|error| error > 1e-5)));
    }
}

#[test]
fn blocks_of_todays_models_are_right_in_both_elements() {
    let blocks = [
        include_str!("../data/blocks/bert.ron"),
        include_str!("../data/blocks/clip.ron"),
        include_str!("../data/blocks/gemma2.ron"),
        include_str!("../data/blocks/head.ron"),
        include_str!("../data/blocks/mistral.ron"),
        include_str!("../data/blocks/mobilenet3.ron"),
        include_str!("../data/blocks/phi3.ron"),
        include_str!("../data/blocks/qwen3.ron"),
    ];
    for (source, element) in blocks.into_iter().flat_map(|s| [(s, Element::F16), (s, Element::Bf16)]) {
        let plan = plan(source, Some(element));
        let inputs = Inputs::random(plan.graph(), 3);
        let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
        for tensor in judged(&judge, &run(&plan, &inputs)) {
            assert!(tensor.verified, "{} {element:?}: {tensor}", plan.graph().name);
        }
    }
}

/// Pipelines of random stages, each reading the previous stage's output.
struct Page<'a> {
    rng: &'a mut SmallRng,
    stages: String,
    /// Name, rows and columns of all outputs so far, latest last.
    made: Vec<(String, u32, u32)>,
    count: usize,
}

impl Page<'_> {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())]
    }

    fn last(&self) -> (String, u32, u32) {
        self.made.last().expect("there is an input").clone()
    }

    /// Adds a stage with a `rows` x `cols` output; `fields` are all fields except name and output.
    fn stage(&mut self, kind: &str, fields: &str, (rows, cols): (u32, u32), shape: &str) {
        let n = self.count;
        write!(self.stages, r#"{kind}(name: "s{n}", {fields} out: "T{n}({shape})"), "#).expect("grows");
        self.made.push((format!("T{n}"), rows, cols));
        self.count += 1;
    }

    fn gemm(&mut self, cols: u32) {
        let (name, rows, k) = self.last();
        let n = self.count;
        let mut fields = format!(r#"a: "{name}({rows},{k})", b: "W{n}({k},{cols})", "#);
        if self.rng.random() {
            write!(fields, r#"bias: "c{n}({cols})", "#).expect("grows");
        }
        fields += &self.activation("epilogue");
        // One of the last few outputs, because a stage has few readers.
        let same = self
            .made
            .iter()
            .rev()
            .skip(1)
            .take(2)
            .find(|(_, r, c)| (*r, *c) == (rows, cols))
            .map(|(name, ..)| name.clone());
        if let Some(name) = same.filter(|_| self.rng.random()) {
            write!(fields, r#"residual: "{name}({rows},{cols})", "#).expect("grows");
        }
        self.stage("Gemm", &fields, (rows, cols), &format!("{rows},{cols}"));
    }

    /// Usually none.
    fn activation(&mut self, field: &str) -> String {
        const NAMES: [&str; 12] = [
            "Gelu",
            "Relu",
            "Silu",
            "GeluErf",
            "QuickGelu",
            "SquaredRelu",
            "Relu6",
            "HardSwish",
            "Sigmoid",
            "Tanh",
            "Scale(-0.5)",
            "Clamp(-0.25, 0.75)",
        ];
        if self.rng.random() {
            return String::new();
        }
        let name = match self.pick(&NAMES) {
            // Squares of squares exceed fp16.
            "SquaredRelu" if self.stages.contains("SquaredRelu") => "Relu",
            other => other,
        };
        format!("{field}: {name}, ")
    }

    /// After a norm, as in models: squares of squares soon exceed fp16.
    fn gated(&mut self) {
        self.norm();
        let (name, rows, k) = self.last();
        let (n, cols) = (self.count, self.pick(&[16, 40, 136]));
        let fields = format!(r#"a: "{name}({rows},{k})", gate: "G{n}({k},{cols})", up: "U{n}({k},{cols})","#);
        let fields = fields + &self.activation("activation");
        self.stage("GatedGemm", &fields, (rows, cols), &format!("{rows},{cols}"));
    }

    /// After a norm, for the same reason: a product whose columns are scores, and the experts that rows choose by them.
    fn experts(&mut self) {
        self.norm();
        let (x, rows, cols) = self.last();
        let (experts, features) = (self.pick(&[1, 8, 24]), self.pick(&[8, 40]));
        self.gemm(experts);
        let ((scores, ..), n) = (self.last(), self.count);
        let (hidden, top_k) = (experts * features, self.pick(&[1, 2, 8]).min(experts));
        let mut fields = format!(
            r#"x: "{x}({rows},{cols})", router: "{scores}({rows},{experts})", top_k: {top_k}, gate: "G{n}({hidden},{cols})",
               up: "U{n}({hidden},{cols})", down: "D{n}({},{features})", "#,
            experts * cols
        );
        fields += &self.activation("activation");
        fields += self.pick(&["", "normalize: false, "]);
        if self.rng.random() {
            write!(fields, r#"residual: "{x}({rows},{cols})", "#).expect("grows");
        }
        self.stage("Experts", &fields, (rows, cols), &format!("{rows},{cols}"));
    }

    fn norm(&mut self) {
        let (name, rows, cols) = self.last();
        let n = self.count;
        let shape = format!("{rows},{cols}");
        let mut fields = format!(r#"x: "{name}({shape})", gain: "g{n}({cols})", epsilon: 1e-5, "#);
        if self.rng.random_ratio(1, 3) {
            write!(fields, r#"residual: "R{n}({shape})", "#).expect("grows");
        }
        if self.rng.random() {
            fields += self.pick(&["", "one_plus_gain: true, "]);
            return self.stage("RmsNorm", &fields, (rows, cols), &shape);
        }
        if self.rng.random() {
            write!(fields, r#"bias: "b{n}({cols})", "#).expect("grows");
        }
        self.stage("LayerNorm", &fields, (rows, cols), &shape);
    }

    /// A norm of parts of rows, and a GEMM of whole rows again.
    fn heads(&mut self) {
        let (name, rows, cols) = self.last();
        let (n, parts) = (self.count, self.pick(&[2, 4]));
        let (heads, dim) = (rows * parts, cols / parts);
        let added = format!(r#"residual: "{name}({heads},{dim})", "#);
        let added = if self.rng.random() { added } else { String::new() };
        let fields = format!(r#"x: "{name}({heads},{dim})", gain: "g{n}({dim})", {added}"#);
        self.stage("RmsNorm", &fields, (rows, cols), &format!("{heads},{dim}"));
        let cols = self.pick(&[16, 40]);
        self.gemm(cols);
    }

    fn convolution(&mut self) {
        let (name, rows, channels) = self.last();
        let n = self.count;
        // As one image of that many pixels, in rows of 4.
        let (height, width) = (rows / 4, 4);
        let input = format!(r#"input: "{name}(1,{height},{width},{channels})", "#);
        if self.rng.random_ratio(1, 4) {
            let groups = self.pick(&[1, 2, 8]);
            let fields = format!(
                r#"{input} groups: {groups}, gain: "g{n}({channels})", bias: "b{n}({channels})", epilogue: {}, "#,
                self.pick(&["None", "Silu"])
            );
            let shape = format!("1,{height},{width},{channels}");
            return self.stage("GroupNorm", &fields, (rows, channels), &shape);
        }
        if self.rng.random_ratio(1, 4) {
            let kind = self.pick(&["kind: Max, padding: (1, 1)", "kind: Max, padding: (1, 1)"]);
            let fields = format!("{input} {kind}, window: (3, 3), stride: (1, 1), ");
            let shape = format!("1,{height},{width},{channels}");
            return self.stage("Pool", &fields, (rows, channels), &shape);
        }
        let features = self.pick(&[8, 24, 40]);
        let (r, s) = self.pick(&[(1, 1), (3, 3), (3, 1)]);
        let (groups, apart) = (self.pick(&[1, 1, 4, 8]), self.pick(&[1, 1, 2]));
        let fields = format!(
            r#"{input} filter: "F{n}({r},{s},{},{features})", groups: {groups}, padding: ({}, {}), dilation: ({apart}, {apart}), {}"#,
            channels / groups,
            r / 2 * apart,
            s / 2 * apart,
            self.activation("epilogue")
        );
        self.stage("Conv2d", &fields, (rows, features), &format!("1,{height},{width},{features}"));
    }

    fn attention(&mut self) {
        let rows = self.last().1;
        let (query, kv) = self.pick(&[(2, 1), (4, 2), (3, 3)]);
        let dim = self.pick(&[16, 64]);
        self.gemm((query + 2 * kv) * dim);
        let (qkv, n, cols) = (self.last().0, self.count, (query + 2 * kv) * dim);
        let scores = self.pick(&["", "", "softcap: 1.5, ", "scale: 0.1, "]);
        let heads = format!(r#"qkv: "{qkv}({rows},{cols})", heads: "{query}", kv_heads: "{kv}", {scores}"#);
        let rotary = |positions| format!(r#"rotary: "cs{n}({positions},{dim})", "#);
        let rotary =
            |rng: &mut SmallRng, positions: u32| if rng.random() { rotary(positions) } else { String::new() };
        let rest = if dim == 64 && self.rng.random() {
            let cache = |pool, tokens| {
                format!(
                    r#"cache: Cache(keys: "K{n}({pool},{kv},{tokens},64)", values: "V{n}({pool},{kv},{tokens},64)", lengths: "n{n}({rows})"), "#
                )
            };
            let paged = self.rng.random();
            let cache = if paged {
                cache(2 * rows, 64) + &format!(r#"pages: "P{n}({rows},2)", "#)
            } else {
                cache(rows, 128)
            };
            cache + &rotary(self.rng, 128) + self.pick(&["", "window: 5, "])
        } else {
            let sequences = self.pick(&[1, 2, 4]);
            let causal: bool = self.rng.random();
            let window = if causal { self.pick(&["", "window: 3, "]) } else { "" };
            let rotary = rotary(self.rng, rows / sequences);
            format!(r#"causal: {causal}, {window}sequences: "{sequences}", "#) + &rotary
        };
        self.stage("Attention", &(heads + &rest), (rows, query * dim), &format!("{rows},{}", query * dim));
    }

    /// A spec of at least `depth` stages.
    fn source(rng: &mut SmallRng, depth: usize) -> String {
        let rows = [8, 24, 40, 72][rng.random_range(0..4)];
        let cols = [16, 40, 64][rng.random_range(0..3)];
        let mut page = Page { rng, stages: String::new(), made: vec![("X".into(), rows, cols)], count: 0 };
        while page.count < depth {
            match page.rng.random_range(0..8) {
                0 | 1 => {
                    let cols = page.pick(&[8, 16, 40, 64, 136]);
                    page.gemm(cols);
                }
                2 => page.gated(),
                3 => page.norm(),
                4 => page.heads(),
                5 => page.convolution(),
                6 => page.experts(),
                _ => page.attention(),
            }
        }
        format!(r#"Pipeline(name: "random", dims: {{}}, stages: [{}])"#, page.stages)
    }
}

/// Number of random pipelines to run; the environment can override it.
fn pipelines() -> u64 {
    std::env::var("CUSYNC_PIPELINES").ok().and_then(|n| n.parse().ok()).unwrap_or(100)
}

#[test]
fn random_right_pipelines_are_called_right() {
    let mut nearest = 0.0f64;
    for seed in 0..pipelines() {
        let mut rng = SmallRng::seed_from_u64(seed);
        let element = if rng.random() { Element::F16 } else { Element::Bf16 };
        let depth = 1 + seed as usize % 14;
        let source = Page::source(&mut rng, depth);
        let plan = plan(&source, Some(element));
        let inputs = Inputs::random(plan.graph(), seed);
        let judge = Judge::new(plan.graph(), &inputs, HashMap::new()).expect("all inputs are there");
        let judged = judged(&judge, &run(&plan, &inputs));
        assert!(judged.len() >= depth);
        for tensor in judged {
            assert!(tensor.verified, "{tensor}\nseed {seed}, {element:?}\n{source}");
            nearest = nearest.max(tensor.of_bound);
        }
    }
    assert!(nearest > 0.9, "the bounds are far from what rounding takes: {nearest}");
}
