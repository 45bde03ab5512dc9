//! Damaged specs never panic, hang or exhaust memory: they are accepted, or refused with a message that renders.

use cusync_gen::check::Executor;
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::StageId;
use cusync_gen::spec;
use proptest::prelude::*;

const SEEDS: [&str; 9] = [
    include_str!("../../../policies/chain3.ron"),
    include_str!("../../../policies/diamond.ron"),
    include_str!("../../../policies/llama65_mlp.ron"),
    include_str!("../../../policies/resnet_layer.ron"),
    include_str!("../../../policies/resnet38_layer2.ron"),
    include_str!("../../../policies/vgg19_block2.ron"),
    include_str!("../../../policies/llama3_70b_attention.ron"),
    r#"Pipeline(name: "p", dims: {"M": 300, "H": 512}, element: Bf16, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", bias: Some("v(H)"), out: "Y(M,H)"),
    Custom(name: "norm", tile: (128, "H"), grid: ("ceil_div(M, 128)", 1), k_blocks: "H/64",
        reads: [Read(tensor: "Y(M,H)", rows: "128*m .. 128*m + 128", cols: "64*k .. 64*(k + 1)")],
        writes: "Z(M,H)"),
], tiles: {"up": (128, 128, 64)}, orders: {"up": Table([(0, 0), (0, 1)])}, split_k: {"up": 2},
alias: {"Z": "X"},
sync: [Edge(from: "up", to: "norm", operand: Custom(0), policy: Strided(2), wait: Start)])"#,
    r#"/* c */ Pipeline(name: r"p", dims: {"M": 0x40,}, stages: [ // c
    Gemm(name: "g", a: "X(M,M)", b: "W(M,2*M/2)", out: "\u{59}(M,M)", epilogue: None), ], )"#,
];

/// Fragments that are meaningful somewhere in the format.
const PIECES: [&str; 30] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"",
    ",",
    ":",
    "..",
    "-",
    "*",
    "/",
    "0",
    "-1",
    "99999999999999999999",
    "4294967295",
    "None",
    "Some(",
    "Auto",
    "Table([0])",
    "\u{e9}",
    "\u{1f980}",
    "//",
    "/*",
    "r#\"",
    "'",
    "\\u{0}",
    "M",
    "\n",
];

fn front_end(text: &str) -> Result<(), Diagnostic> {
    let resolved = spec::parse(text, "fuzz.ron")?.resolve(&[])?;
    let device = Profile::named("h200").expect("shipped");
    let tiles = (0..resolved.stages.len())
        .map(|i| resolved.kernel_candidates(StageId(i), device).map(|tiles| tiles[0]))
        .collect::<Result<Vec<_>, _>>()?;
    resolved.graph(&tiles).map(|_| ())
}

fn survives(text: &str) {
    if let Err(diagnostic) = front_end(text) {
        let rendered = diagnostic.render(text, "fuzz.ron", false);
        assert!(rendered.contains(diagnostic.code), "{rendered}");
    }
}

/// Cuts at character boundaries, as an editor would.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at % (text.len() + 1)).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

#[test]
fn every_prefix_and_suffix_of_every_seed() {
    for seed in SEEDS {
        for at in (0..=seed.len()).filter(|&at| seed.is_char_boundary(at)) {
            survives(&seed[..at]);
            survives(&seed[at..]);
        }
    }
}

#[test]
fn every_single_deletion() {
    for seed in SEEDS {
        for (at, c) in seed.char_indices() {
            survives(&format!("{}{}", &seed[..at], &seed[at + c.len_utf8()..]));
        }
    }
}

#[test]
fn seeds_are_valid_where_they_mean_to_be() {
    for seed in &SEEDS[..3] {
        front_end(seed).unwrap_or_else(|d| panic!("{}", d.render(seed, "seed", false)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two convolutions of arbitrary images with a pool between are planned and proved for the GPU, or refused with a
    /// location.
    #[test]
    fn convolutions_of_any_size_are_planned_or_refused(
        (images, height, width) in (1u32..20, 1u32..64, 1u32..300),
        (rows, cols) in (1u32..18, 1u32..18),
        (down, right) in (1u32..11, 1u32..11),
        (above, beside) in (0u32..20, 0u32..20),
        (channels, features) in (1u32..20, 1u32..20),
        pools in any::<bool>(),
    ) {
        let out = |size: u32, taps: u32, step: u32, padding: u32| (size + 2 * padding).checked_sub(taps).map(|x| x / step + 1);
        let (p, q) = (out(height, rows, down, above), out(width, cols, right, beside));
        let (Some(p), Some(q)) = (p, q) else { return Ok(()) };
        let (c, k) = (8 * channels, 8 * features);
        let (between, input, (u, v)) = if pools && p > 1 && q > 1 {
            let (u, v) = (p / 2, q / 2);
            let pool = format!(r#"Pool(name: "pool", kind: Max, input: "Y({images},{p},{q},{k})", window: (2,2), stride: (2,2), out: "P({images},{u},{v},{k})"),"#);
            (pool, "P", (u, v))
        } else {
            (String::new(), "Y", (p, q))
        };
        let text = format!(
            r#"Pipeline(name: "c", dims: {{}}, stages: [
                Conv2d(name: "first", input: "X({images},{height},{width},{c})", filter: "F1({rows},{cols},{c},{k})", stride: ({down},{right}),
                    padding: ({above},{beside}), out: "Y({images},{p},{q},{k})"), {between}
                Conv2d(name: "second", input: "{input}({images},{u},{v},{k})", filter: "F2(1,1,{k},8)", out: "Z({images},{u},{v},8)"),
            ])"#
        );
        let device = Profile::named("h200").expect("shipped");
        let planned = spec::parse(&text, "fuzz.ron")
            .and_then(|spec| spec.resolve(&[]))
            .and_then(|resolved| choose::plan(&resolved, device, Executor::Fused).map(|_| ()));
        if let Err(diagnostic) = planned {
            let code = diagnostic.code;
            prop_assert!(["no-kernel", "grid-too-large"].contains(&code), "{}", diagnostic.render(&text, "fuzz.ron", false));
            prop_assert!(diagnostic.line_column(&text).is_some(), "{}", diagnostic);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_edits(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<usize>(), 0usize..12, 0..PIECES.len()), 1..6),
    ) {
        let mut text = SEEDS[seed].to_string();
        for (at, remove, piece) in edits {
            let start = boundary(&text, at);
            let end = boundary(&text, (start + remove).min(text.len())).max(start);
            text.replace_range(start..end, PIECES[piece]);
        }
        survives(&text);
    }

    #[test]
    fn random_text(text in "\\PC{0,200}") {
        survives(&text);
        survives(&format!("Pipeline(name: \"p\", dims: {{\"M\": 8}}, stages: [{text}])"));
    }

    #[test]
    fn random_expressions(expr in "[MHx0-9+*/() -]{0,40}|ceil_div\\([MH0-9+*/, ]{0,20}\\)") {
        survives(&format!(
            "Pipeline(name: \"p\", dims: {{\"M\": 64, \"H\": 2147483647}}, stages: [\
             Gemm(name: \"g\", a: \"X(M,M)\", b: \"W(M,M)\", out: \"Y(M,{expr})\")])"
        ));
    }

    #[test]
    fn random_dims(m in any::<i64>(), h in any::<i64>(), i in 1i64..100_000) {
        survives(&SEEDS[0].replace("\"M\": 512", &format!("\"M\": {m}")));
        let text = SEEDS[0].replace("512", &(m.rem_euclid(1 << 31)).to_string());
        survives(&text.replace("2048", &(h.rem_euclid(1 << 20) * 8).to_string()).replace("1024", &(i * 8).to_string()));
    }
}
