//! Tensors read under another shape: their reads, their proofs, and plans that wait for too little of them.

use crate::changed::only;
use crate::operations::{by_tile, each_slot_counts, proved, waits_of_edges};
use cusync_gen::check::{Candidate, Obligation, judge};
use cusync_gen::graph::{Graph, OperandKind, Resolved, View};
use cusync_gen::spec;
use cusync_gen::sync::{Policy, Tile};

/// 48 tokens of 8 heads of 16 columns: a product, a norm of its heads, and a product of whole rows again.
const HEADS: &str = r#"Pipeline(name: "heads", dims: { "T": 48, "N": 8, "D": 16 }, stages: [
    Gemm(name: "q", a: "X(T,64)", b: "W(64,N*D)", out: "Q(T,N*D)"),
    RmsNorm(name: "norm", x: "Q(T*N,D)", gain: "g(D)", out: "H(T*N,D)"),
    Gemm(name: "proj", a: "H(T,N*D)", b: "V(N*D,64)", out: "Z(T,64)"),
])"#;

fn resolved(source: &str) -> Resolved {
    let resolved = spec::parse(source, "heads").and_then(|s| s.resolve(&[]));
    resolved.unwrap_or_else(|d| panic!("{}", d.render(source, "heads", false)))
}

/// `rows`: those of a tile of the norm.
fn heads(rows: u32) -> Graph {
    resolved(HEADS).graph(&[(16, 32, 32), (rows, 16, 16), (16, 32, 32)]).unwrap_or_else(|d| panic!("{d}"))
}

/// Slots that a tile waits for.
fn slots(c: &Candidate, stage: usize, tile: Tile) -> Vec<u32> {
    waits_of_edges(c, stage, tile).into_iter().map(|(_, _, slot)| slot).collect()
}

#[test]
fn a_view_reads_the_elements_of_its_rows() {
    let graph = heads(8);
    let read = |stage: usize, tile, k| {
        let (stage, mut boxes) = (&graph.stages[stage], Vec::new());
        let tensor = &graph.tensors[stage.operands[0].tensor.0];
        stage.reads(0, tensor, tile, k, &mut |rows, cols| boxes.push((rows, cols)));
        boxes
    };
    // Rows 24..32 of 16 columns are row 3 of 128; rows 16..32 of 128 are rows 128..256 of 16.
    assert_eq!(read(1, (3, 0), 0), [(3..4, 0..128)]);
    assert_eq!(graph.stages[2].operands[0].view, Some(View { rows: 48, cols: 128 }));
    // Columns 32..64 of row 16 are rows 130 and 131: the box of all rows begins there.
    assert_eq!(read(2, (1, 0), 1), [(130..252, 0..16)]);
    let parts = heads(12);
    let (norm, mut boxes) = (&parts.stages[1], Vec::new());
    norm.reads(0, &parts.tensors[norm.operands[0].tensor.0], (1, 0), 0, &mut |r, c| boxes.push((r, c)));
    assert_eq!(boxes, [(1..2, 64..128), (2..3, 0..128)], "rows 12..24 of 16 columns");
}

#[test]
fn a_tensor_has_the_shape_in_which_it_is_written() {
    let early = r#"stages: [ Gemm(name: "early", a: "H(T,N*D)", b: "U(N*D,8)", out: "E(T,8)"),"#;
    let resolved = resolved(&HEADS.replacen("stages: [", early, 1));
    let written = resolved.tensors.iter().find(|t| t.name == "H").expect("it is there");
    assert_eq!((written.rows, written.cols), (384, 16));
    let early = resolved.stages.iter().find(|s| s.name.value == "early").expect("it is there");
    assert_eq!(early.reads[0].view, Some(View { rows: 48, cols: 128 }));
}

#[test]
fn views_are_proved_in_tiles_of_any_rows_under_every_policy() {
    for rows in [1, 4, 8, 16, 32, 64] {
        let batched = Policy::Batched { rows: 2, cols: 2 };
        let policies = [Policy::Tile, Policy::Row, batched, Policy::Strided(2)];
        proved(&heads(rows), &policies, &format!("{rows} rows"));
    }
}

#[test]
fn a_plan_that_waits_for_too_few_tiles_of_a_view_is_refuted() {
    let c = by_tile(heads(32));
    // Tiles of q are 16 tokens by 2 heads, those of the norm 4 tokens.
    assert_eq!(slots(&c, 1, Tile { m: 5, n: 0 }), [4, 5, 6, 7]);
    assert_eq!(slots(&c, 2, Tile { m: 1, n: 0 }), [4, 5, 6, 7]);
    for (edge, race) in ["may read `Q` before q(", "may read `H` before norm("].into_iter().enumerate() {
        each_slot_counts(&c, edge, 0..12, &[race]);
    }
    // Waits of the view's own coordinates, as if the tensor had that shape.
    for (stage, row) in [(1, 32), (2, 16)] {
        let mut naive = c.clone();
        let footprint = &mut naive.graph.stages[stage].operands[0].footprint;
        (footprint.rows.m, footprint.rows.extent) = (row, row);
        only(&judge(&naive), Obligation::Cover, &[]);
    }
}

#[test]
fn a_view_of_other_elements_or_of_weights_is_refuted() {
    let c = by_tile(heads(32));
    let refuted = |edit: &dyn Fn(&mut Graph)| {
        let mut c = c.clone();
        edit(&mut c.graph);
        let report = judge(&c);
        assert!(
            report.refutations.iter().any(|r| r.obligation == Obligation::Bounds),
            "{:?}",
            report.refutations
        );
    };
    let view = |rows, cols| Some(View { rows, cols });
    refuted(&|graph| graph.stages[1].operands[0].view = view(384, 8));
    refuted(&|graph| graph.stages[1].operands[0].view = None);
    refuted(&|graph| graph.stages[2].operands[0].view = view(96, 64));
    refuted(&|graph| {
        let weights = graph.stages[2].operands.iter_mut().find(|o| o.kind == OperandKind::B);
        weights.expect("a product has weights").view = view(128, 64);
    });
}
