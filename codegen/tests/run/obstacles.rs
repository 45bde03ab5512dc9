//! Obstacles that keep executors from running a pipeline; every other choice can be proved.

use cusync_gen::check::{Executor, How, judge};
use cusync_gen::choose::{self, Choices};
use cusync_gen::device::Profile;
use cusync_gen::graph::Resolved;
use cusync_gen::obstacle::Obstacle;
use cusync_gen::spec;

fn profile(name: &str) -> &'static Profile {
    Profile::named(name).expect("shipped")
}

fn resolved(source: &str) -> Resolved {
    spec::parse(source, "case").and_then(|s| s.resolve(&[])).unwrap_or_else(|d| panic!("{d}\n{source}"))
}

/// A pipeline of one convolution.
fn convolution(input: &str, filter: &str, out: &str, more: &str) -> String {
    format!(
        r#"Pipeline(name: "p", dims: {{}}, stages: [
            Conv2d(name: "c", input: "X({input})", filter: "F({filter})", out: "Y({out})", {more}),
        ])"#
    )
}

/// Few tokens through a gate with shares too wide for a worker's registers.
const WIDE_GATE: &str = r#"Pipeline(name: "w3", dims: { "B": 4, "I": 16904 }, stages: [
    RmsNorm(name: "n", x: "X(B,64)", gain: "g(64)", out: "N(B,64)", epsilon: 1e-5),
    Gemm(name: "qkv", a: "N(B,64)", b: "W(64,192)", out: "QKV(B,192)"),
    Attention(name: "attn", qkv: "QKV(B,192)", heads: "1",
        cache: Cache(keys: "K(B,1,128,64)", values: "V(B,1,128,64)", lengths: "n(B)"), out: "A(B,64)"),
    GatedGemm(name: "gate", a: "A(B,64)", gate: "G(64,I)", up: "U(64,I)", out: "Y(B,I)"),
])"#;

const PROMPTS_OF_197: &str = r#"Pipeline(name: "w1", dims: { "T": 394, "B": 2 }, stages: [
    LayerNorm(name: "ln", x: "X(T,64)", gain: "g(64)", bias: "b(64)", out: "N(T,64)", epsilon: 1e-5),
    Gemm(name: "qkv", a: "N(T,64)", b: "W(64,192)", out: "QKV(T,192)"),
    Attention(name: "attn", qkv: "QKV(T,192)", heads: "1", sequences: "B", out: "A(T,64)"),
])"#;

/// Two prompts of 200 tokens for a model with grouped heads.
const PROMPTS_OF_200: &str = r#"Pipeline(name: "llama_prefill", element: Bf16,
    dims: { "T": 400, "B": 2, "H": 4096, "HQ": 32, "HKV": 8, "D": 128 }, stages: [
    RotatedGemm(name: "qkv", a: "X(T,H)", b: "Wqkv(H,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B",
        rotary: "cs(200,D)", out: "QKV(T,(HQ+2*HKV)*D)"),
    Attention(name: "attn", qkv: "QKV(T,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", sequences: "B", out: "A(T,HQ*D)"),
    Gemm(name: "proj", a: "A(T,HQ*D)", b: "Wo(HQ*D,H)", residual: "X(T,H)", out: "X1(T,H)"),
])"#;

const CONV_THEN_GEMM: &str = r#"Pipeline(name: "p", dims: {}, stages: [
    Conv2d(name: "a", input: "X(1,4,4,8)", filter: "F(1,1,8,8)", out: "Y(1,4,4,8)"),
    Gemm(name: "b", a: "Y(16,8)", b: "W(8,8)", out: "Z(16,8)"),
])"#;

const GROUPS_THEN_CONV: &str = r#"Pipeline(name: "p", dims: {}, stages: [
    GroupNorm(name: "gn", input: "X(2,16,16,64)", groups: 32, gain: "g(64)", bias: "b(64)", out: "N(2,16,16,64)"),
    Conv2d(name: "c", input: "N(2,16,16,64)", filter: "F(3,3,64,64)", padding: (1,1), out: "Y(2,16,16,64)"),
])"#;

/// Experts beside the product that scores them.
const EXPERTS: &str = r#"Pipeline(name: "p", dims: { "M": 40, "H": 64, "E": 32, "I": 48 }, stages: [
    Gemm(name: "router", a: "X(M,H)", b: "WR(E,H)", layout: NK, out: "S(M,E)"),
    Experts(name: "moe", x: "X(M,H)", router: "S(M,E)", gate: "G(E*I,H)", up: "U(E*I,H)", down: "D(E*H,I)", top_k: 8,
        residual: "X(M,H)", out: "Y(M,H)"),
])"#;

const QWEN3: &str = include_str!("../../../tests/run/data/blocks/qwen3.ron");

const INVERTED: &str = include_str!("../../../policies/mobilenetv2.ron");

/// A chain of GEMMs.
fn chain(stages: usize) -> String {
    let stage = |i: usize| {
        format!(r#"Gemm(name: "s{i}", a: "T{i}(128,64)", b: "W{i}(64,64)", out: "T{}(128,64)"),"#, i + 1)
    };
    let stages: String = (0..stages).map(stage).collect();
    format!(r#"Pipeline(name: "chain", dims: {{}}, stages: [ {stages} ])"#)
}

const SPLIT: &str = r#"Pipeline(name: "split", dims: { "M": 128 }, split_k: { "down": 2 }, stages: [
    Gemm(name: "up", a: "X(M,512)", b: "W(512,512)", out: "Y(M,512)"),
    Gemm(name: "down", a: "Y(M,512)", b: "V(512,512)", out: "Z(M,512)"),
])"#;

fn images(count: u32, size: u32) -> String {
    let shape = format!("{count},{size},{size},64");
    convolution(&shape, "3,3,64,64", &shape, "padding: (1,1)")
}

/// More sequences than a decode kernel with attention accepts.
fn many_sequences() -> String {
    WIDE_GATE.replace(r#""B": 4"#, r#""B": 65"#)
}

/// An executor's obstacle.
fn met(source: &str, device: &str, executor: Executor) -> Option<Obstacle> {
    choose::obstacle(&resolved(source), profile(device), executor)
}

#[test]
fn every_executor_names_the_first_real_obstacle_with_its_numbers() {
    use Executor::{Copilot, Fused, Library, Programmatic, Serial, Streams};
    let stride = convolution("1,20,20,8", "3,3,8,8", "1,2,2,8", "stride: (9,9)");
    let taps = convolution("1,20,20,8", "16,16,8,8", "1,5,5,8", "");
    let rows = convolution("1,4,300,8", "3,3,8,8", "1,4,300,8", "padding: (1,1)");
    let padding = convolution("1,4,4,8", "3,3,8,8", "1,514,4,8", "padding: (256,1)");
    let window = convolution("1,56,56,72", "7,7,72,8", "1,56,56,8", "padding: (3,3)");
    let meets = |source: &str, executors: &[Executor], stage: &str, reason: &str, numbers: (u64, u64)| {
        for executor in executors {
            let obstacle =
                met(source, "h200", *executor).unwrap_or_else(|| panic!("{executor:?} runs {source}"));
            assert_eq!(obstacle.stage.as_deref(), Some(stage), "{executor:?}: {obstacle}");
            assert!(obstacle.reason.contains(reason), "{executor:?}: {obstacle}");
            assert_eq!(obstacle.numbers, Some(numbers), "{executor:?}: {obstacle}");
        }
    };
    let dilated = convolution("1,20,20,8", "3,3,8,8", "1,16,16,8", "dilation: (2,2)");
    let depthwise = convolution("1,20,20,8", "16,16,1,8", "1,5,5,8", "groups: 8");
    let beyond = &[Serial, Library, Fused];
    meets(&dilated, beyond, "c", "a dilation of 2 x 2", (2, 1));
    meets(&depthwise, beyond, "c", "256 taps", (256, 255));
    meets(&stride, beyond, "c", "a stride of 9", (9, 8));
    meets(&taps, beyond, "c", "256 taps", (256, 255));
    meets(&rows, beyond, "c", "rows of 301 pixels", (301, 255));
    meets(&padding, beyond, "c", "padding of 256 pixels", (256, 255));
    meets(&window, beyond, "c", "no window fits", (416, 384));
    assert_eq!(met(WIDE_GATE, "h200", Fused), None, "two rounds of 129 rows of weights");
    let crowd = many_sequences();
    meets(&crowd, &[Fused], "n", "has 65 rows; a decode kernel takes 32", (65, 32));
    meets(&images(32769, 16), beyond, "c", "65538 rows of tiles", (65538, 65536));
    meets(SPLIT, &[Serial, Library, Streams, Programmatic], "down", "split 2 ways", (2, 1));
    let says = |source: &str, device, executor, parts: &[&str]| {
        let text = met(source, device, executor).expect("an obstacle").to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{executor:?}: {text}");
    };
    says(PROMPTS_OF_197, "h200", Fused, &["stage `attn`", "neither waits nor posts"]);
    says(PROMPTS_OF_197, "h200", Programmatic, &["stage `ln`", "no kernel of its own on h200"]);
    says(PROMPTS_OF_197, "h200", Copilot, &["stage `ln`", "products alone"]);
    for executor in [Fused, Streams, Programmatic, Copilot] {
        says(PROMPTS_OF_200, "h200", executor, &["stage `qkv`", "a second kernel rotates"]);
    }
    says(PROMPTS_OF_200, "a100", Serial, &["stage `qkv`", "no kernel of its own on a100"]);
    says(&crowd, "h200", Serial, &["stage `attn`", "only decode kernels run"]);
    says(&crowd, "h200", Programmatic, &["stage `n`", "no kernel of its own on h200"]);
    says(&crowd, "h200", Copilot, &["stage `n`", "products alone"]);
    says(CONV_THEN_GEMM, "h200", Fused, &["stage `b`", "beside the stages before it"]);
    for executor in [Fused, Streams, Programmatic] {
        says(GROUPS_THEN_CONV, "h200", executor, &["stage `gn`", "is GroupNorm", "neither waits nor posts"]);
    }
    for executor in [Fused, Streams, Programmatic] {
        let reason = &["stage `depthwise`", "is Conv2d of groups", "neither waits nor posts"];
        says(INVERTED, "h200", executor, reason);
    }
    says(INVERTED, "a100", Serial, &["stage `depthwise`", "no kernel of its own on a100"]);
    says(&dilated, "a100", Streams, &["stage `c`", "a dilation of 2 x 2"]);
    let projected = GROUPS_THEN_CONV.replace(
        r#"Conv2d(name: "c", input: "N(2,16,16,64)", filter: "F(3,3,64,64)", padding: (1,1), out: "Y(2,16,16,64)")"#,
        r#"Gemm(name: "c", a: "N(512,64)", b: "W(64,64)", out: "Y(512,64)")"#,
    );
    assert_eq!(met(&projected, "h200", Library), None, "cuBLASLt may compute the product");
    says(GROUPS_THEN_CONV, "h200", Library, &["stage `gn`", "no stage is a product"]);
    says(GROUPS_THEN_CONV, "a100", Serial, &["stage `gn`", "no kernel of its own on a100"]);
    says(&images(2, 16), "h200", Library, &["stage `c`", "no stage is a product"]);
    says(&images(2, 16), "a100", Fused, &["a100 (sm_80)"]);
    says(&images(2, 16), "a100", Programmatic, &["sm_90", "a100"]);
    says(&images(2, 224), "a100", Streams, &["stage `c`", "no window fits"]);
    for (executor, source) in [Serial, Library]
        .into_iter()
        .flat_map(|executor| {
            [CONV_THEN_GEMM, PROMPTS_OF_197, PROMPTS_OF_200, INVERTED].map(|source| (executor, source))
        })
        .chain([(Serial, GROUPS_THEN_CONV)])
    {
        assert_eq!(met(source, "h200", executor), None, "a launch a stage");
    }
    let small = Profile { sms: 63, ..profile("a100").clone() };
    let crowded = choose::obstacle(&resolved(&chain(64)), &small, Streams).expect("63 gates");
    assert_eq!(crowded.numbers, Some((63, 62)), "{crowded}");
    assert_eq!(choose::obstacle(&resolved(&chain(63)), &small, Streams), None);
}

#[test]
fn experts_run_between_kernel_boundaries_and_within_the_limits_of_their_kernel() {
    use Executor::{Copilot, Cpu, Fused, Library, Programmatic, Serial, Streams};
    let router = r#"Gemm(name: "router", a: "X(M,H)", b: "WR(E,H)", layout: NK, out: "S(M,E)"),"#;
    let alone = EXPERTS.replace(router, "");
    for (source, executors) in [(EXPERTS, &[Serial, Library, Cpu][..]), (&alone, &[Serial, Cpu])] {
        for executor in executors {
            assert_eq!(met(source, "h200", *executor), None, "{executor:?}");
        }
    }
    let says = |source: &str, device, executor, parts: &[&str]| {
        let text = met(source, device, executor).expect("an obstacle").to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{executor:?}: {text}");
    };
    for executor in [Fused, Streams, Programmatic] {
        says(EXPERTS, "h200", executor, &["stage `moe` is Experts, whose kernel neither waits nor posts"]);
    }
    says(EXPERTS, "h200", Copilot, &["stage `moe`", "products alone"]);
    says(&alone, "h200", Library, &["stage `moe`", "no stage is a product"]);
    says(EXPERTS, "a100", Serial, &["stage `moe`", "no kernel of its own on a100"]);
    for (change, reason, numbers) in [
        (("\"E\": 32", "\"E\": 520"), "has 520 experts, and its kernel takes 512", (520, 512)),
        (("top_k: 8", "top_k: 17"), "has 17 experts a row, and its kernel takes 16", (17, 16)),
        (("\"I\": 48", "\"I\": 44"), "has rows of 44 elements in `D`", (44, 8)),
        (("\"E\": 32", "\"E\": 36"), "has rows of 36 elements in `S`", (36, 8)),
    ] {
        let source = alone.replace(change.0, change.1);
        for executor in [Serial, Library, Streams, Programmatic, Fused, Copilot] {
            says(&source, "h200", executor, &["stage `moe`"]);
        }
        let obstacle = met(&source, "h200", Serial).expect("an obstacle");
        assert!(obstacle.reason.contains(reason) && obstacle.numbers == Some(numbers), "{obstacle}");
        assert_eq!(met(&source, "h200", Cpu), None, "{reason}");
        let (executor, note) =
            choose::fallback(&resolved(&source), profile("h200")).expect("no kernel takes it");
        assert!(executor == Cpu && note.contains(reason), "{note}");
        assert!(choose::plan(&resolved(&source), profile("h200"), Cpu).is_ok(), "{reason}");
    }
}

#[test]
fn the_note_names_every_executor_and_who_came_furthest_first() {
    let (executor, note) =
        choose::fallback(&resolved(&many_sequences()), profile("h200")).expect("no executor runs it");
    assert_eq!(executor, Executor::Cpu);
    let places: Vec<usize> = [
        "cannot run on h200: serial, library: stage `attn`",
        "streams, programmatic: stage `n`",
        "fused: stage `n` has 65 rows; a decode kernel takes 32",
    ]
    .iter()
    .map(|part| note.find(part).unwrap_or_else(|| panic!("{part}: {note}")))
    .collect();
    assert!(places.is_sorted(), "{note}");
    let (executor, note) = choose::fallback(&resolved(SPLIT), profile("h200")).expect("no kernel splits");
    assert!(executor == Executor::Programmatic && note.contains("`down` is split 2 ways"), "{note}");
    assert_eq!(choose::fallback(&resolved(CONV_THEN_GEMM), profile("h200")), None);
}

/// The head of a language model: a vocabulary of any size, and layers of whole granules before it.
const RAGGED: &str = r#"Pipeline(name: "head", dims: { "M": 8, "V": 50257 }, stages: [
    LayerNorm(name: "norm", x: "X(M,768)", gain: "g(768)", bias: "b(768)", out: "N(M,768)"),
    Gemm(name: "head", a: "N(M,768)", b: "W(768,V)", out: "L(M,V)"),
])"#;

#[test]
fn rows_of_any_length_are_for_the_host() {
    for device in ["h200", "a100"] {
        for executor in Executor::GPU {
            let obstacle = met(RAGGED, device, executor).expect("no kernel has such rows");
            assert_eq!((obstacle.stage.as_deref(), obstacle.numbers), (Some("head"), Some((50257, 8))));
            let text = obstacle.to_string();
            assert!(["`W`", "50257", "50264"].iter().all(|part| text.contains(part)), "{text}");
        }
        let (executor, note) = choose::fallback(&resolved(RAGGED), profile(device)).expect("no GPU runs it");
        assert!(executor == Executor::Cpu && note.contains("stage `head` has rows of 50257"), "{note}");
    }
    let (spec, h200) = (resolved(RAGGED), profile("h200"));
    assert!(choose::plan(&spec, h200, Executor::Cpu).is_ok());
    // Callers that ask for one kind of kernel are refused, too.
    let asked = choose::ChainOverride::default();
    for refused in [
        choose::decode(&spec, h200),
        choose::chain(&spec, h200, asked),
        choose::in_turn(&spec, h200, How::Serial, |_| asked),
    ] {
        let message = refused.expect_err("no kernel has such rows").message;
        assert!(message.contains("rows of 50257 elements in `W`"), "{message}");
    }
    // Integers have no granule, and kernels of users have rows of their own.
    let pages = WIDE_GATE
        .replace("lengths: \"n(B)\")", "lengths: \"n(B)\"), pages: \"P(B,3)\"")
        .replace("(B,1,128,64)", "(16,1,64,64)");
    assert_eq!(met(&pages, "h200", Executor::Fused), None);
    let custom = r#"Pipeline(name: "own", dims: {}, stages: [
        Custom(name: "own", tile: (8, 27), writes: "Y(8,27)", reads: []),
    ])"#;
    assert_eq!(
        resolved(custom).stages[0].op.unfit_rows(resolved(custom).tensors.iter().map(|t| (t, t.cols))),
        None
    );
}

#[test]
fn activations_with_numbers_run_on_the_host_alone() {
    let gated = r#"Pipeline(name: "g", dims: { "M": 128 }, stages: [
        Gemm(name: "up", a: "X(M,64)", b: "W(64,64)", out: "Y(M,64)"),
        GatedGemm(name: "gate", a: "Y(M,64)", gate: "G(64,64)", up: "U(64,64)", activation: ACT, out: "Z(M,64)"),
    ])"#;
    let grouped = GROUPS_THEN_CONV.replace(r#"out: "N("#, r#"epilogue: ACT, out: "N("#);
    let experts = EXPERTS.replace("top_k: 8,", "top_k: 8, activation: ACT,");
    for (source, stage) in [(gated, "gate"), (&grouped, "gn"), (&experts, "moe")] {
        for (stated, said) in
            [("Scale(0.5)", "applies scale 0.5,"), ("Clamp(-1, 6)", "applies clamp -1.0 to 6.0,")]
        {
            let source = source.replace("ACT", stated);
            for executor in Executor::ALL.into_iter().filter(|executor| *executor != Executor::Cpu) {
                for device in ["h200", "a100"] {
                    let why = met(&source, device, executor).expect("no kernel takes the numbers");
                    assert_eq!(why.stage.as_deref(), Some(stage), "{executor:?}: {why}");
                    assert!(why.reason.contains(said), "{executor:?}: {why}");
                }
            }
            assert_eq!(met(&source, "h200", Executor::Cpu), None);
        }
    }
}

/// Two heads of two tokens, read as a row each and back.
const HEADS: &str = r#"Pipeline(name: "heads", dims: { "T": 2 }, stages: [
    Gemm(name: "q", a: "X(T,64)", b: "W(64,256)", out: "Q(T,256)"),
    Gemm(name: "heads", a: "Q(T*2,128)", b: "V(128,128)", out: "H(T*2,128)"),
    Gemm(name: "proj", a: "H(T,256)", b: "U(256,64)", out: "Z(T,64)"),
])"#;

#[test]
fn views_are_for_kernels_that_wait_by_footprint() {
    let few = met(HEADS, "h200", Executor::Copilot).expect("jobs are decode kernels");
    assert_eq!(
        few.to_string(),
        "stage `heads` reads `Q`, 2 x 256, under another shape, which no decode kernel does"
    );
    for executor in
        [Executor::Serial, Executor::Library, Executor::Streams, Executor::Programmatic, Executor::Fused]
    {
        assert_eq!(met(HEADS, "h200", executor), None, "{executor:?}");
    }
    let spec = resolved(&HEADS.replace(r#""T": 2"#, r#""T": 300"#));
    let candidate =
        choose::candidate(&spec, profile("h200"), Executor::Fused).expect("chain kernels take it");
    assert_eq!(candidate.launch.cluster().1, 1, "a cluster loads slices of rows");
    let short = HEADS
        .replace("Q(T*2,128)", "Q(T*64,4)")
        .replace("V(128,128)", "V(4,128)")
        .replace("H(T*2,128)", "H(T*64,128)");
    let short = short.replace("H(T,256)", "H(T*32,256)").replace("Z(T,64)", "Z(T*32,64)");
    let why = met(&short, "h200", Executor::Serial).expect("8 bytes are no granule").to_string();
    assert!(why.contains("stage `heads` has rows of 4 elements in `Q`"), "{why}");
}

/// An executor without an obstacle has a proved choice; one with an obstacle has none.
#[test]
fn whatever_has_no_obstacle_is_chosen_and_proved() {
    let shipped = [
        include_str!("../../../policies/gpt3_mlp.ron"),
        include_str!("../../../policies/llama65_layer.ron"),
        include_str!("../../../policies/llama65_prompt_layer.ron"),
        include_str!("../../../policies/resnet_layer.ron"),
        include_str!("../../../policies/vgg19_body.ron"),
        include_str!("../../../policies/chain3.ron"),
        INVERTED,
    ];
    let more = [
        images(32768, 16),
        images(32769, 16),
        images(70_000, 7),
        images(2, 224),
        chain(64),
        convolution("1,20,20,8", "3,3,8,8", "1,2,2,8", "stride: (9,9)"),
        convolution("1,20,20,16", "3,3,2,24", "1,16,16,24", "groups: 8, dilation: (2,2)"),
    ];
    let cases = [WIDE_GATE, PROMPTS_OF_197, PROMPTS_OF_200, CONV_THEN_GEMM, RAGGED, HEADS, QWEN3, EXPERTS];
    let all = shipped.into_iter().chain(cases).chain(more.iter().map(String::as_str));
    let mut refused = 0;
    for source in all {
        let spec = resolved(source);
        for device in ["h200", "a100"] {
            let choices = Choices::new(&spec, profile(device));
            for executor in Executor::ALL {
                let obstacle = choose::obstacle(&spec, profile(device), executor);
                match choices.candidate(executor) {
                    Ok(candidate) => {
                        assert_eq!(obstacle, None, "{} {device} {executor:?}", spec.name);
                        let refutations = judge(candidate).refutations;
                        assert_eq!(refutations, [], "{} {device} {executor:?}", spec.name);
                    }
                    Err(diagnostic) => {
                        let obstacle =
                            obstacle.unwrap_or_else(|| panic!("{device} {executor:?}: {diagnostic}"));
                        assert!(diagnostic.message.contains(&obstacle.reason), "{diagnostic} {obstacle}");
                        refused += 1;
                    }
                }
            }
            let best = choices.best();
            assert_eq!(best.is_err(), choose::fallback(&spec, profile(device)).is_some(), "{}", spec.name);
            assert!(
                best.is_ok_and(|(_, report)| report.proved())
                    || choose::fallback(&spec, profile(device)).is_some()
            );
        }
    }
    assert!(refused > 60, "{refused}");
}

/// Another tile replaces the fastest if that one has more rows of tiles than 16 bits can count.
#[test]
fn images_that_one_tile_cannot_count_have_another() {
    let spec = resolved(&images(70_000, 7));
    let candidate = choose::candidate(&spec, profile("h200"), Executor::Fused).expect("a larger tile");
    let rows = candidate.graph.stages[0].grid.0;
    assert!(rows <= 65536, "{rows} rows of tiles of {:?}", candidate.graph.stages[0].mma_tile);
}

/// A tensor's memory is reused while others may still read it: only serial kernels are correct.
#[test]
fn what_is_refuted_is_not_the_best_where_another_is_proved() {
    let spec = resolved(
        r#"Pipeline(name: "reuse", dims: { "M": 640 }, alias: { "W": "Y" }, stages: [
            Gemm(name: "one", a: "X(M,1024)", b: "A(1024,1024)", out: "Y(M,1024)"),
            Gemm(name: "two", a: "Y(M,1024)", b: "B(1024,1024)", out: "Z(M,1024)"),
            Gemm(name: "three", a: "X(M,1024)", b: "C(1024,1024)", out: "W(M,1024)"),
        ])"#,
    );
    let choices = Choices::new(&spec, &Profile { library: None, ..profile("h200").clone() });
    let refuted = choices.candidate(Executor::Programmatic).as_ref().expect("a choice");
    assert!(!judge(refuted).proved(), "nothing orders `three` behind `two`");
    let (best, report) = choices.best().expect("a choice");
    assert!(report.proved(), "{:?}: {:?}", best.launch.executor(), report.refutations);
    assert!(
        refuted.predicted_us() < best.predicted_us(),
        "{:?}",
        (refuted.predicted_us(), best.predicted_us())
    );
}

/// Stages that share no tokens may run in separate decode kernels.
#[test]
fn a_decode_kernel_has_one_width() {
    let spec = resolved(
        r#"Pipeline(name: "apart", dims: {}, stages: [
            Gemm(name: "few", a: "X(8,512)", b: "A(512,512)", out: "Y(8,512)"),
            Gemm(name: "more", a: "U(40,512)", b: "B(512,512)", out: "V(40,512)"),
        ])"#,
    );
    let refused = choose::decode(&spec, profile("h200")).expect_err("two widths").message;
    assert!(refused.contains("stage `more` has 40 rows and the first stage 8"), "{refused}");
}

#[test]
fn a_custom_stage_runs_on_a_gpu_once_its_kernel_is_given() {
    use Executor::{Copilot, Cpu, Fused, Library, Programmatic, Serial, Streams};
    let source = r#"Pipeline(name: "own", dims: { "M": 64 }, stages: [
        Gemm(name: "before", a: "X(M,64)", b: "W(64,64)", out: "Y(M,64)"),
        Custom(name: "one", tile: (8, 64), writes: "A(M,64)", reads: [Read(tensor: "Y(M,64)", rows: "8*m..8*m + 8", cols: "0..64")]),
        Custom(name: "two", tile: (8, 64), writes: "B(M,64)", reads: [Read(tensor: "A(M,64)", rows: "8*m..8*m + 8", cols: "0..64")]),
    ])"#;
    let mut spec = resolved(source);
    let runs = |spec: &Resolved| -> Vec<Executor> {
        let runs = |e: &Executor| choose::obstacle(spec, profile("h200"), *e).is_none();
        Executor::ALL.into_iter().filter(runs).collect()
    };
    assert_eq!(runs(&spec), [Cpu]);
    assert!(spec.give_kernel("one") && !spec.give_kernel("before") && !spec.give_kernel("three"));
    let why = choose::obstacle(&spec, profile("h200"), Streams).expect("one kernel is missing");
    assert_eq!(why.stage.as_deref(), Some("two"));
    assert!(why.help.is_some_and(|help| help.contains("--kernel two=")), "the way out");
    assert!(choose::fallback(&spec, profile("h200")).is_some());
    assert!(spec.give_kernel("two"));
    let runs = runs(&spec);
    assert!([Cpu, Serial, Library, Streams, Programmatic].iter().all(|e| runs.contains(e)), "{runs:?}");
    assert!(![Fused, Copilot].iter().any(|e| runs.contains(e)), "{runs:?}");
    assert_eq!(choose::fallback(&spec, profile("h200")), None);
}
