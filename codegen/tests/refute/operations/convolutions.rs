//! Convolutions: halos, strides, blocks of channels, and the windows that kernels load.

use super::{EVERYWHERE, by_tile, candidate, graph, proved, refuted, waits, without};
use crate::changed::only;
use cusync_gen::check::{Candidate, Obligation, judge};
use cusync_gen::device::{ChainKernel, Operation};
use cusync_gen::graph::{Axis, Graph, Op, Stage};
use cusync_gen::sync::{Policy, Tile, WaitAt};

/// Two convolutions over a batch of 3 images of 14 x 10 pixels.
fn convs(second: &str) -> Graph {
    let source = format!(
        r#"Pipeline(name: "c", dims: {{}}, stages: [
        Conv2d(name: "first", input: "X(3,14,10,64)", filter: "F1(3,3,64,64)", padding: (1,1), epilogue: Relu,
            out: "Y(3,14,10,64)"),
        Conv2d(name: "second", input: "Y(3,14,10,64)", {second}),
    ])"#
    );
    graph(&source, &[(32, 64, 64), (32, 64, 64)])
}

/// How a plan is refuted whose second stage does not wait for all that it reads.
const RACE: [&str; 2] = ["second(", "may read `Y` before first("];

const SAME: &str = r#"filter: "F2(3,3,64,64)", padding: (1,1), out: "Z(3,14,10,64)""#;

#[test]
fn convolutions_of_any_stride_and_padding_are_proved() {
    for second in [
        SAME,
        r#"filter: "F2(3,3,64,64)", stride: (2,2), padding: (1,1), out: "Z(3,7,5,64)""#,
        r#"filter: "F2(1,1,64,128)", out: "Z(3,14,10,128)""#,
        r#"filter: "F2(1,1,64,64)", stride: (2,2), out: "Z(3,7,5,64)""#,
        r#"filter: "F2(5,1,64,64)", out: "Z(3,10,10,64)""#,
        r#"filter: "F2(2,3,64,64)", stride: (1,3), padding: (2,4), out: "Z(3,17,6,64)""#,
        r#"filter: "F2(3,3,64,64)", dilation: (3,2), padding: (3,2), out: "Z(3,14,10,64)""#,
        r#"filter: "F2(3,2,64,64)", stride: (2,1), dilation: (2,4), padding: (1,0), out: "Z(3,6,6,64)""#,
        r#"filter: "F2(7,7,64,64)", stride: (2,2), padding: (3,3), bias: "b(64)", residual: "R(3,7,5,64)",
            out: "Z(3,7,5,64)""#,
    ] {
        let graph = convs(second);
        assert_eq!(graph.dependences.len(), 1);
        let policies = [Policy::ConvHalo, Policy::Row, Policy::Tile, Policy::Batched { rows: 2, cols: 1 }];
        proved(&graph, &policies, second);
    }
}

#[test]
fn a_convolution_with_channels_that_divide_into_no_k_block_is_proved() {
    let source = r#"Pipeline(name: "c", dims: {}, stages: [
        Conv2d(name: "first", input: "X(2,9,9,8)", filter: "F1(3,3,8,40)", padding: (1,1), out: "Y(2,9,9,40)"),
        Conv2d(name: "second", input: "Y(2,9,9,40)", filter: "F2(3,3,40,72)", padding: (1,1), out: "Z(2,9,9,72)"),
    ])"#;
    let graph = graph(source, &[(32, 64, 64), (32, 64, 64)]);
    assert_eq!((graph.stages[1].k, graph.stages[1].k_blocks), (360, 6));
    for policy in [Policy::ConvHalo, Policy::Tile] {
        assert_eq!(judge(&candidate(graph.clone(), &policy, WaitAt::PerKBlock)).refutations, []);
    }
}

#[test]
fn a_split_convolution_is_proved() {
    let mut c = candidate(convs(SAME), &Policy::ConvHalo, WaitAt::PerKBlock);
    c.graph.stages[1].split_k = 4;
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn a_halo_policy_waits_row_of_taps_by_row_of_taps() {
    let tile = Tile { m: 5, n: 0 };
    // Tile 5 is pixels 160..192, in rows of 10 pixels: the taps above reach back to 149, those below forward to 202.
    let whole = candidate(convs(SAME), &Policy::Row, WaitAt::PerKBlock);
    assert_eq!(waits(&whole, 1, tile), [(0, 4), (0, 5), (0, 6)]);
    let sliding = candidate(convs(SAME), &Policy::ConvHalo, WaitAt::PerKBlock);
    let found = waits(&sliding, 1, tile);
    assert_eq!(&found[..2], [(0, 4), (0, 5)], "the first taps do not read below the tile");
    assert!(found.iter().any(|&(k, slot)| slot == 6 && k > 0), "{found:?}");
}

#[test]
fn a_policy_that_forgets_the_halo_is_refuted() {
    let pixels = |offset, extent| Axis { m: 32, n: 0, k: 0, offset, extent };
    // No halo, no upper halo, no lower halo.
    for rows in [pixels(0, 32), pixels(0, 43), pixels(-11, 43)] {
        for wait_at in EVERYWHERE {
            let mut c = candidate(convs(SAME), &Policy::Row, wait_at);
            assert_eq!(c.graph.stages[1].operands[0].footprint.rows, pixels(-11, 54));
            c.graph.stages[1].operands[0].footprint.rows = rows;
            refuted(&c, &RACE);
        }
    }
    // One pixel less at either end touches the same tiles, so it is not a fault.
    let mut same = candidate(convs(SAME), &Policy::Row, WaitAt::PerKBlock);
    same.graph.stages[1].operands[0].footprint.rows = pixels(-10, 52);
    assert_eq!(judge(&same).refutations, []);
    // A filter-following window that starts one row too late.
    let mut late = candidate(convs(SAME), &Policy::ConvHalo, WaitAt::PerKBlock);
    let sliding = late.graph.stages[1].operands[0].sliding.as_mut().expect("a convolution has one");
    assert!(sliding.rows.k > 0, "{sliding:?}");
    sliding.rows.offset -= 10;
    refuted(&late, &RACE);
}

/// A convolution from 64 channels to `channels`, and one with stride two over the 14 x 10 pixels of each of its 3
/// images.
fn strided(channels: u32) -> Graph {
    let source = format!(
        r#"Pipeline(name: "s", dims: {{ "C": {channels} }}, stages: [
        Conv2d(name: "first", input: "X(3,14,10,64)", filter: "F1(3,3,64,C)", padding: (1,1), out: "Y(3,14,10,C)"),
        Conv2d(name: "second", input: "Y(3,14,10,C)", filter: "F2(3,3,C,64)", stride: (2,2), padding: (1,1),
            out: "Z(3,7,5,64)"),
    ])"#
    );
    // Tiles are rows of pixels.
    graph(&source, &[(10, 64, 64), (5, 64, 64)])
}

#[test]
fn a_convolution_that_waits_for_another_image_is_refuted() {
    for policy in [Policy::Tile, Policy::Row, Policy::ConvHalo] {
        for graph in [convs(SAME), strided(64)] {
            for by in [-14 * 10, 14 * 10] {
                let mut c = candidate(graph.clone(), &policy, WaitAt::PerKBlock);
                let operand = &mut c.graph.stages[1].operands[0];
                operand.footprint.rows.offset += by;
                if let Some(sliding) = &mut operand.sliding {
                    sliding.rows.offset += by;
                }
                refuted(&c, &RACE);
            }
        }
    }
}

/// Without the waits for even slots, or for odd ones, the plan is refuted.
#[track_caller]
fn halves_count(c: &Candidate) {
    for half in 0..2 {
        only(&without(c, |_, slot| slot % 2 == half), Obligation::Cover, &RACE);
    }
}

#[test]
fn a_convolution_that_leaves_a_block_of_channels_or_a_parity_unawaited_is_refuted() {
    // One slot per pixel row and block of 64 channels.
    let c = by_tile(strided(128));
    assert_eq!(c.graph.stages[0].grid, (42, 2));
    let mut rows: Vec<u32> = waits(&c, 1, Tile { m: 2, n: 0 }).into_iter().map(|(_, slot)| slot).collect();
    rows.sort_unstable();
    assert_eq!(rows, [6, 7, 8, 9, 10, 11], "rows 3, 4 and 5 of the first image, both blocks");
    halves_count(&c);
    // With stride two, taps at odd and even distances read different rows.
    let c = by_tile(strided(64));
    halves_count(&c);
}

/// Two convolutions of 128 channels over 3 images of 28 x 10 pixels, in the tile of each kernel that loads windows for
/// them.
fn windowed() -> impl Iterator<Item = Graph> {
    let source = r#"Pipeline(name: "w", dims: {}, stages: [
        Conv2d(name: "first", input: "X(3,28,10,128)", filter: "F1(3,3,128,128)", padding: (1,1),
            out: "Y(3,28,10,128)"),
        Conv2d(name: "second", input: "Y(3,28,10,128)", filter: "F2(3,3,128,128)", padding: (1,1),
            out: "Z(3,28,10,128)"),
    ])"#;
    ChainKernel::running([Operation::Conv2d].into_iter().collect()).map(|kernel| {
        let graph = graph(source, &[kernel.tile; 2]);
        let window = |stage: &Stage| matches!(&stage.op, Op::Conv2d(conv) if conv.window.is_some());
        assert!(graph.stages.iter().all(window), "{:?}", kernel.tile);
        graph
    })
}

#[test]
fn a_window_of_a_kernel_that_is_awaited_in_part_is_refuted() {
    let mut blocks = 0;
    for graph in windowed() {
        for (policy, wait_at) in
            [Policy::Tile, Policy::Row, Policy::ConvHalo].iter().flat_map(|p| EVERYWHERE.map(|at| (p, at)))
        {
            let sound = candidate(graph.clone(), policy, wait_at);
            assert_eq!(judge(&sound).refutations, [], "{policy:?} {wait_at:?}");
            let rows = sound.graph.stages[1].operands[0].footprint.rows;
            // Without the pixel row above, without the one below, and with the windows of the previous and next image.
            let less = rows.extent - 10;
            let wrong = [(rows.offset + 10, less), (rows.offset, less)];
            let other = [(rows.offset - 280, rows.extent), (rows.offset + 280, rows.extent)];
            for (offset, extent) in wrong.into_iter().chain(other) {
                let mut c = sound.clone();
                let operand = &mut c.graph.stages[1].operands[0];
                (operand.footprint.rows.offset, operand.footprint.rows.extent) = (offset, extent);
                if let Some(sliding) = &mut operand.sliding {
                    sliding.rows.offset += offset - rows.offset;
                    sliding.rows.extent = sliding.rows.extent + extent - rows.extent;
                }
                refuted(&c, &RACE);
            }
        }
        let c = by_tile(graph);
        // If the first convolution has a channel tile for each of the second's blocks.
        if c.graph.stages[0].grid.1 == 2 {
            halves_count(&c);
            blocks += 2;
        }
    }
    assert!(blocks > 0, "no kernel has tiles of one block of channels");
}
