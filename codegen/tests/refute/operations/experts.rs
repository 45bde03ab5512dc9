//! Mixtures of experts: their rows, scores and residuals.

use super::{
    boxes_refuted, by_tile, chosen, each_slot_counts, graph, launched_alone, limited_by_memory, proved,
    waits_of_edges,
};
use cusync_gen::check::Executor;
use cusync_gen::graph::{Footprint, Graph, StageId};
use cusync_gen::spec;
use cusync_gen::sync::{Policy, Tile};

/// Three products, and experts in tiles of 16 rows that read the first as rows and the second as their scores, and add
/// the third; a product of the result.
fn mixed() -> Graph {
    let source = r#"Pipeline(name: "m", dims: { "M": 56, "H": 96, "E": 16, "I": 24 }, stages: [
        Gemm(name: "rows", a: "X(M,64)", b: "W(64,H)", out: "Y(M,H)"),
        Gemm(name: "scores", a: "X(M,64)", b: "WR(64,E)", out: "S(M,E)"),
        Gemm(name: "beside", a: "X(M,64)", b: "V(64,H)", out: "R(M,H)"),
        Experts(name: "experts", x: "Y(M,H)", router: "S(M,E)", gate: "G(E*I,H)", up: "U(E*I,H)", down: "D(E*H,I)",
            top_k: 2, residual: "R(M,H)", out: "Z(M,H)"),
        Gemm(name: "last", a: "Z(M,H)", b: "WL(H,64)", out: "O(M,64)"),
    ])"#;
    graph(source, &[(8, 32, 64), (8, 8, 64), (8, 48, 64), (16, 96, 96), (32, 64, 32)])
}

#[test]
fn experts_are_proved_under_every_policy() {
    let graph = mixed();
    let stage = &graph.stages[3];
    assert_eq!((stage.out_tile(), stage.grid, stage.k_blocks, stage.k), ((16, 96), (4, 1), 1, 96));
    assert_eq!(graph.dependences.len(), 4);
    let batched = Policy::Batched { rows: 3, cols: 2 };
    proved(&graph, &[Policy::Tile, Policy::Row, batched, Policy::Strided(2)], "");
}

#[test]
fn experts_that_leave_a_tile_of_their_rows_or_their_scores_unawaited_are_refuted() {
    let c = by_tile(mixed());
    // All tiles in two rows of tiles, and in the last one.
    for (producer, tensor, some, last) in
        [(0, "Y", 6..12, 18..21), (1, "S", 4..8, 12..14), (2, "R", 4..8, 12..14)]
    {
        let edge = c.graph.dependences.iter().position(|d| d.producer == StageId(producer)).expect("an edge");
        let race = format!("may read `{tensor}` before {}(", c.graph.stages[producer].name);
        for (m, slots) in [(1, some), (3, last)] {
            let found = waits_of_edges(&c, 3, Tile { m, n: 0 }).into_iter().filter(|wait| wait.0 == edge);
            let found: Vec<u32> = found.map(|(_, _, slot)| slot).collect();
            assert_eq!(found, slots.clone().collect::<Vec<_>>(), "{tensor} {m}");
            each_slot_counts(&c, edge, slots, &[&format!("experts({m}"), &race]);
        }
        // Without the last rows, without the last columns, and with the rows above.
        let boxes: [fn(&mut Footprint); 3] =
            [|f| f.rows.extent = 8, |f| f.cols.extent = 8, |f| f.rows.offset = -16];
        boxes_refuted(&c, (3, c.graph.dependences[edge].operand), &boxes, &["experts(", &race]);
    }
}

#[test]
fn weights_of_experts_are_inputs() {
    let sound = r#"Pipeline(name: "m", dims: {}, stages: [
        Gemm(name: "made", a: "A(256,64)", b: "B(64,64)", out: "made(256,64)"),
        Experts(name: "experts", x: "Y(40,64)", router: "S(40,4)", gate: "gate(256,64)", up: "up(256,64)",
            down: "down(256,64)", top_k: 2, out: "Z(40,64)"),
    ])"#;
    for weights in ["gate", "up", "down"] {
        let source = sound.replace(&format!(r#""{weights}("#), r#""made("#);
        let refused = spec::parse(&source, "p")
            .and_then(|s| s.resolve(&[]))
            .and_then(|r| r.graph(&[(64, 64, 64), (16, 64, 64)]));
        let refused = refused.expect_err("a stage writes them");
        assert_eq!(refused.code, "produced-experts", "{weights}: {}", refused.message);
        assert!(refused.render(&source, "p", false).contains("written by `made`"), "{weights}");
    }
}

#[test]
fn experts_have_tiles_of_whole_rows_and_are_launched_alone() {
    let source = include_str!("../../../../policies/qwen3_moe.ron");
    let refusal = "the mixture of experts `experts` has no tile";
    let tiles = [(16, 2048, 2048), (64, 64, 64), (64, 64, 64)];
    let (c, alone_us) = chosen(source, Executor::Serial, 2, &tiles, refusal);
    let experts = &c.graph.stages[2];
    assert_eq!((experts.op.name(), experts.out_tile().1, experts.grid.1), ("Experts", 2048, 1));
    launched_alone(&c, 2);
    // At least 125 of 128 experts are expected to have a row; their weights are read once, at memory bandwidth at best.
    limited_by_memory(alone_us, 125.0 * 3.0 * 768.0 * 2048.0, |least_us| 1.1 * least_us);
}
