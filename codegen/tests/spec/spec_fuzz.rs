//! Damaged specs never panic, hang or exhaust memory: they are accepted or refused with a message that renders.

use cusync_gen::device::Profile;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::StageId;
use cusync_gen::spec;
use proptest::prelude::*;

const SEEDS: [&str; 7] = [
    include_str!("../../../policies/chain3.ron"),
    include_str!("../../../policies/diamond.ron"),
    include_str!("../../../policies/llama65_mlp.ron"),
    include_str!("../../../policies/resnet_layer.ron"),
    include_str!("../../../policies/llama3_70b_attention.ron"),
    r#"Pipeline(name: "p", dims: {"M": 300, "H": 512}, element: Bf16, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", bias: Some("v(H)"), out: "Y(M,H)"),
    Custom(name: "norm", tile: (128, "H"), grid: ("ceil_div(M, 128)", 1), k_blocks: "H/64",
        reads: [Read(tensor: "Y(M,H)", rows: "128*m .. 128*m + 128", cols: "64*k .. 64*(k + 1)")],
        writes: "Z(M,H)"),
], tiles: {"up": (128, 128, 64)}, orders: {"up": Table([(0, 0), (0, 1)])}, split_k: {"up": 2},
alias: {"Z": "X"},
sync: [Edge(from: "up", to: "norm", operand: Custom(0), policy: Strided(2), wait: Start,
    depends: [Dep(tile: "norm(x, y, k)", on: ["up(x, j)"], forall: {"j": "0..4"})])])"#,
    r#"/* c */ Pipeline(name: r"p", dims: {"M": 0x40,}, stages: [ // c
    Gemm(name: "g", a: "X(M,M)", b: "W(M,2*M/2)", out: "\u{59}(M,M)", epilogue: None), ], )"#,
];

/// Pieces that have meaning somewhere in the format.
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
