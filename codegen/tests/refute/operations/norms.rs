//! Norms of rows: the tiles of a row, and ragged lengths.

use super::{boxes_refuted, by_tile, chosen, each_slot_counts, graph, limited_by_memory, proved, waits};
use cusync_gen::check::Executor;
use cusync_gen::graph::Graph;
use cusync_gen::sync::{Policy, Tile};

/// A GEMM, a norm of its rows, and a GEMM of the result; the first has 3 x 4 tiles, the norm has blocks of 32 rows.
fn normalised(kind: &str, tokens: u32) -> Graph {
    let source = format!(
        r#"Pipeline(name: "n", dims: {{ "M": {tokens}, "H": 512 }}, stages: [
        Gemm(name: "first", a: "X(M,256)", b: "W(256,H)", out: "Y(M,H)"),
        {kind}, x: "Y(M,H)", gain: "g(H)", out: "N(M,H)", epsilon: 1e-5),
        Gemm(name: "second", a: "N(M,H)", b: "V(H,256)", out: "Z(M,256)"),
    ])"#
    );
    graph(&source, &[(64, 128, 64), (32, 512, 512), (64, 128, 64)])
}

const NORMS: [&str; 3] =
    [r#"RmsNorm(name: "norm""#, r#"LayerNorm(name: "norm", bias: "b(H)""#, r#"LayerNorm(name: "norm""#];

#[test]
fn normalisations_are_proved_at_ragged_lengths_under_every_policy() {
    for (kind, tokens) in NORMS.into_iter().flat_map(|kind| [1, 40, 192, 200].map(|tokens| (kind, tokens))) {
        let graph = normalised(kind, tokens);
        let stage = &graph.stages[1];
        assert_eq!((stage.out_tile(), stage.grid, stage.k_blocks), ((32, 512), (tokens.div_ceil(32), 1), 1));
        assert_eq!(graph.dependences.len(), 2);
        let batched = Policy::Batched { rows: 2, cols: 2 };
        let policies = [Policy::Tile, Policy::Row, batched, Policy::Strided(2)];
        proved(&graph, &policies, &format!("{kind} {tokens}"));
    }
}

#[test]
fn a_normalisation_that_leaves_a_tile_of_a_row_unawaited_is_refuted() {
    for kind in NORMS {
        let c = by_tile(normalised(kind, 192));
        // A row block waits for the four tiles in its row of the GEMM, and for no others.
        assert_eq!(waits(&c, 1, Tile { m: 2, n: 0 }), [4, 5, 6, 7].map(|slot| (0, slot)));
        let race = ["norm(", "may read `Y` before first("];
        each_slot_counts(&c, 0, 0..12, &race);
        // The footprint of all columns except those of the last tile; the footprint of the rows above.
        boxes_refuted(&c, (1, 0), &[|f| f.cols.extent = 384, |f| f.rows.offset = -64], &race);
        // The GEMM after the norm waits for blocks of 32 rows, two per tile of 64 rows.
        assert_eq!(waits(&c, 2, Tile { m: 1, n: 0 }), [(0, 2), (0, 3)]);
    }
}

#[test]
fn a_normalisation_has_tiles_of_whole_rows_only_and_is_chosen_and_predicted_by_its_bytes() {
    let source = include_str!("../../../../policies/llama65_norm_mlp.ron");
    let refusal = "the normalisation `norm` has no tile";
    let (c, alone_us) = chosen(source, Executor::Cpu, 0, &[(64, 128, 64); 3], refusal);
    let norm = &c.graph.stages[0];
    assert_eq!((norm.op.name(), norm.out_tile().1, norm.grid.1), ("RmsNorm", 8192, 1));
    // The rows are read and written once, at memory bandwidth at best.
    limited_by_memory(alone_us, 2.0 * 512.0 * 8192.0, |least_us| least_us + 40.0);
}
