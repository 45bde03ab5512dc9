//! Tensors read under another shape: their reads, their proofs, and plans that wait for too little of them.

use cusync_gen::check::{
    Candidate, EdgeChoice, Event, Generated, How, Obligation, TileProgram, judge, judge_program,
};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, OperandKind, Resolved, StageId, View};
use cusync_gen::spec;
use cusync_gen::sync::{Policy, Tile, WaitAt};

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

fn candidate(graph: Graph, policy: &Policy, wait_at: WaitAt) -> Candidate {
    let mut c = Candidate::new(graph, Profile::named("h200").expect("shipped").clone(), How::STREAMS);
    c.edges = vec![EdgeChoice { policy: policy.clone(), wait_at }; c.edges.len()];
    c
}

/// Slots that a tile waits for.
fn slots(c: &Candidate, stage: usize, tile: Tile) -> Vec<u32> {
    let mut slots = Vec::new();
    Generated::new(c).events(StageId(stage), tile, 0, &mut |event| {
        if let Event::Wait { slot, .. } = event {
            slots.push(slot);
        }
    });
    slots
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
        for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 2 }, Policy::Strided(2)] {
            for wait_at in [WaitAt::PerKBlock, WaitAt::Start] {
                let c = candidate(heads(rows), &policy, wait_at);
                assert_eq!(judge(&c).refutations, [], "{rows} {policy:?} {wait_at:?}");
            }
        }
    }
}

/// A program without the waits for one slot of an edge.
struct Without<'a> {
    base: Generated<'a>,
    edge: usize,
    slot: u32,
}

impl TileProgram for Without<'_> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        self.base.posts(edge, tile, f);
    }
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.base.events(stage, tile, slice, &mut |event| match event {
            Event::Wait { edge, slot, .. } if (edge, slot) == (self.edge, self.slot) => {}
            other => f(other),
        });
    }
}

#[test]
fn a_plan_that_waits_for_too_few_tiles_of_a_view_is_refuted() {
    let c = candidate(heads(32), &Policy::Tile, WaitAt::PerKBlock);
    // Tiles of q are 16 tokens by 2 heads, those of the norm 4 tokens.
    assert_eq!(slots(&c, 1, Tile { m: 5, n: 0 }), [4, 5, 6, 7]);
    assert_eq!(slots(&c, 2, Tile { m: 1, n: 0 }), [4, 5, 6, 7]);
    for (edge, slot) in (0..2).flat_map(|edge| (0..12).map(move |slot| (edge, slot))) {
        let report = judge_program(&c, &Without { base: Generated::new(&c), edge, slot });
        let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
        assert_eq!(found, [Obligation::Cover], "{edge} {slot}: {:?}", report.refutations);
    }
    // Waits of the view's own coordinates, as if the tensor had that shape.
    for (stage, row) in [(1, 32), (2, 16)] {
        let mut naive = c.clone();
        let footprint = &mut naive.graph.stages[stage].operands[0].footprint;
        (footprint.rows.m, footprint.rows.extent) = (row, row);
        let found: Vec<_> = judge(&naive).refutations.iter().map(|r| r.obligation).collect();
        assert_eq!(found, [Obligation::Cover], "stage {stage}");
    }
}

#[test]
fn a_view_of_other_elements_or_of_weights_is_refuted() {
    let c = candidate(heads(32), &Policy::Tile, WaitAt::PerKBlock);
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
