//! Pools, norms of groups of channels and convolutions in groups: their images, groups and halos.

use super::{
    boxes_refuted, by_tile, chosen, each_slot_counts, graph, launched_alone, limited_by_memory, proved, waits,
};
use cusync_gen::check::{Executor, judge};
use cusync_gen::graph::{Footprint, Graph};
use cusync_gen::sync::{Policy, Tile};

/// A convolution over 2 images of 12 x 10 pixels, a 3 x 3 pool with stride 2, and a convolution of the pool's output.
fn pooled(rows: u32) -> Graph {
    let source = r#"Pipeline(name: "p", dims: {}, stages: [
        Conv2d(name: "first", input: "X(2,12,10,64)", filter: "F1(3,3,64,64)", padding: (1,1), out: "Y(2,12,10,64)"),
        Pool(name: "pool", input: "Y(2,12,10,64)", kind: Max, window: (3,3), stride: (2,2), padding: (1,1),
            out: "P(2,6,5,64)"),
        Conv2d(name: "second", input: "P(2,6,5,64)", filter: "F2(3,3,64,64)", padding: (1,1), out: "Z(2,6,5,64)"),
    ])"#;
    graph(source, &[(40, 64, 64), (rows * 5, 64, 9), (40, 64, 64)])
}

#[test]
fn pools_are_proved_in_every_tile_under_every_policy() {
    // Rows of an image, or whole images.
    for rows in [1, 2, 3, 6, 12] {
        let policies = [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 1 }];
        proved(&pooled(rows), &policies, &format!("{rows} rows"));
    }
}

#[test]
fn a_pool_that_forgets_its_halo_is_refuted() {
    // Rows 4 and 5 of the second image read input rows 19 to 23: tile 4 has rows 16 to 19, tile 5 the rest.
    let c = by_tile(pooled(2));
    assert_eq!(waits(&c, 1, Tile { m: 5, n: 0 }), [(0, 4), (0, 5)]);
    let rows = c.graph.stages[1].operands[0].footprint.rows;
    assert_eq!((rows.m, rows.offset, rows.extent), (40, -10, 50));
    let narrow: [fn(&mut Footprint); 2] =
        [|f| (f.rows.offset, f.rows.extent) = (0, 40), |f| (f.rows.offset, f.rows.extent) = (0, 30)];
    boxes_refuted(&c, (1, 0), &narrow, &["pool(", "may read `Y` before first("]);
    // One row less below is in the same producer tile as the row above it.
    let mut same = c;
    same.graph.stages[1].operands[0].footprint.rows.extent = 40;
    assert_eq!(judge(&same).refutations, []);
}

/// A convolution over 3 images of 6 x 4 pixels in tiles of 8 pixels and 32 channels, a norm of 8 groups of 12 channels,
/// and a convolution of the result.
fn grouped() -> Graph {
    let source = r#"Pipeline(name: "g", dims: {}, stages: [
        Conv2d(name: "first", input: "X(3,6,4,64)", filter: "F1(3,3,64,96)", padding: (1,1), out: "Y(3,6,4,96)"),
        GroupNorm(name: "norm", input: "Y(3,6,4,96)", groups: 8, gain: "g(96)", bias: "b(96)", epilogue: Silu,
            out: "N(3,6,4,96)"),
        Conv2d(name: "second", input: "N(3,6,4,96)", filter: "F2(3,3,96,64)", padding: (1,1),
            residual: "X(3,6,4,64)", out: "Z(3,6,4,64)"),
    ])"#;
    graph(source, &[(8, 32, 64), (24, 12, 288), (8, 64, 64)])
}

#[test]
fn group_normalisations_are_proved_under_every_policy() {
    let graph = grouped();
    let stage = &graph.stages[1];
    assert_eq!((stage.out_tile(), stage.grid, stage.k_blocks, stage.k), ((24, 12), (3, 8), 1, 288));
    assert_eq!(graph.dependences.len(), 2);
    let batched = Policy::Batched { rows: 3, cols: 2 };
    proved(&graph, &[Policy::Tile, Policy::Row, batched, Policy::Strided(2)], "");
}

#[test]
fn a_group_normalisation_that_leaves_a_tile_of_its_image_unawaited_is_refuted() {
    let c = by_tile(grouped());
    // Group 2 of the second image has channels 24 to 35: columns of two of the three tiles in three rows of tiles.
    assert_eq!(waits(&c, 1, Tile { m: 1, n: 2 }), [9, 10, 12, 13, 15, 16].map(|slot| (0, slot)));
    assert_eq!(waits(&c, 1, Tile { m: 2, n: 7 }), [20, 23, 26].map(|slot| (0, slot)));
    let race = ["norm(", "may read `Y` before first("];
    each_slot_counts(&c, 0, 0..27, &race);
    // Without the last rows of the image, without the last channels of the group, and with the image before.
    let boxes: [fn(&mut Footprint); 3] =
        [|f| f.rows.extent = 16, |f| f.cols.extent = 8, |f| f.rows.offset = -24];
    boxes_refuted(&c, (1, 0), &boxes, &race);
}

#[test]
fn a_group_normalisation_has_one_tile_and_is_launched_alone() {
    let source = include_str!("../../../../policies/sd_resnet.ron");
    let refusal = "the group normalisation `norm1` has no tile";
    let (c, alone_us) = chosen(source, Executor::Serial, 0, &[(64, 64, 64); 4], refusal);
    let norm = &c.graph.stages[0];
    assert_eq!((norm.op.name(), norm.out_tile(), norm.grid), ("GroupNorm", (4096, 10), (1, 32)));
    launched_alone(&c, 0);
    // The images are read and written once, at memory bandwidth at best.
    limited_by_memory(alone_us, 2.0 * 4096.0 * 320.0, |least_us| least_us + 10.0);
}

/// A convolution over 3 images of 8 x 4 pixels in tiles of 8 pixels and 32 channels, a depthwise one in tiles of four
/// rows, and a product of the result.
fn depthwise() -> Graph {
    let source = r#"Pipeline(name: "d", dims: {}, stages: [
        Conv2d(name: "first", input: "X(3,8,4,64)", filter: "F1(3,3,64,48)", padding: (1,1), out: "Y(3,8,4,48)"),
        Conv2d(name: "depthwise", input: "Y(3,8,4,48)", filter: "F2(3,3,1,48)", groups: 48,
            padding: (1,1), bias: "b(48)",
            residual: "R(3,8,4,48)", epilogue: Relu, out: "D(3,8,4,48)"),
        Gemm(name: "second", a: "D(96,48)", b: "W(48,64)", out: "Z(96,64)"),
    ])"#;
    graph(source, &[(8, 32, 64), (16, 48, 9), (32, 64, 16)])
}

#[test]
fn grouped_convolutions_are_proved_under_every_policy() {
    let graph = depthwise();
    let stage = &graph.stages[1];
    assert_eq!((stage.out_tile(), stage.grid, stage.k_blocks, stage.k), ((16, 48), (6, 1), 1, 9));
    assert_eq!(graph.dependences.len(), 2);
    let batched = Policy::Batched { rows: 3, cols: 2 };
    proved(&graph, &[Policy::Tile, Policy::Row, batched, Policy::Strided(2)], "");
}

#[test]
fn a_grouped_convolution_that_leaves_a_tile_under_its_filter_unawaited_is_refuted() {
    let c = by_tile(depthwise());
    let race = ["depthwise(", "may read `Y` before first("];
    each_slot_counts(&c, 0, 0..24, &race);
    // Without the row above, without the row below, and without the last channels.
    let boxes: [fn(&mut Footprint); 3] =
        [|f| f.rows.offset = 0, |f| f.rows.extent = 16, |f| f.cols.extent = 32];
    boxes_refuted(&c, (1, 0), &boxes, &race);
}

#[test]
fn a_depthwise_convolution_is_launched_alone() {
    let source = include_str!("../../../../policies/mobilenetv2.ron");
    let refusal = "the grouped convolution `depthwise` has no tile";
    let (c, alone_us) = chosen(source, Executor::Serial, 1, &[(64, 64, 64); 3], refusal);
    assert_eq!((c.graph.stages[1].op.name(), c.graph.stages[1].k), ("Conv2d of groups", 9));
    launched_alone(&c, 1);
    // The images are read and written once, at memory bandwidth at best.
    limited_by_memory(alone_us, 2.0 * 8.0 * 3136.0 * 144.0, |least_us| least_us + 10.0);
}
