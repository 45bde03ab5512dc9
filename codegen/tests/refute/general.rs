//! Convolutions, attentions, norms and experts: their reads, their proofs, and mutants that omit a halo, a head, tiles
//! of K or V, or a tile of a row, of a group or of scores.

use cusync_gen::check::{
    Candidate, EdgeChoice, Event, Executor, Generated, How, Obligation, TileProgram, check, judge,
    judge_program,
};
use cusync_gen::device::{ChainKernel, Operation, Profile};
use cusync_gen::graph::{Axis, Graph, Op, OperandKind, Stage, StageId};
use cusync_gen::simulate::{predict, simulate_serial};
use cusync_gen::spec;
use cusync_gen::sync::{Policy, Tile, WaitAt};

fn graph(source: &str, tiles: &[(u32, u32, u32)]) -> Graph {
    let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[]));
    let resolved = resolved.unwrap_or_else(|d| panic!("{}", d.render(source, "test", false)));
    resolved.graph(tiles).unwrap_or_else(|d| panic!("{}", d.render(source, "test", false)))
}

fn candidate(graph: Graph, policy: &Policy, wait_at: WaitAt) -> Candidate {
    let mut c = Candidate::new(graph, Profile::named("h200").expect("shipped").clone(), How::STREAMS);
    c.edges = vec![EdgeChoice { policy: policy.clone(), wait_at }; c.edges.len()];
    c
}

/// Two convolutions over a batch of 3 images of 14 x 10 pixels.
fn convs(second: &str) -> Graph {
    let source = format!(
        r#"Pipeline(name: "c", dims: {{}}, stages: [
        Conv2d(name: "first", input: "X(3,14,10,64)", filter: "F1(3,3,64,64)", padding: (1,1), epilogue: Relu, out: "Y(3,14,10,64)"),
        Conv2d(name: "second", input: "Y(3,14,10,64)", {second}),
    ])"#
    );
    graph(&source, &[(32, 64, 64), (32, 64, 64)])
}

const SAME: &str = r#"filter: "F2(3,3,64,64)", padding: (1,1), out: "Z(3,14,10,64)""#;

/// A prompt through QKV, attention and projection.
fn attention(heads: u32, kv_heads: u32, tokens: u32) -> Graph {
    let source = format!(
        r#"Pipeline(name: "a", dims: {{ "S": {tokens}, "HQ": {heads}, "HKV": {kv_heads} }}, stages: [
        Gemm(name: "qkv", a: "X(S,256)", b: "Wqkv(256,(HQ+2*HKV)*64)", out: "QKV(S,(HQ+2*HKV)*64)"),
        Attention(name: "attend", qkv: "QKV(S,(HQ+2*HKV)*64)", heads: "HQ", kv_heads: "HKV", out: "A(S,HQ*64)"),
        Gemm(name: "project", a: "A(S,HQ*64)", b: "Wo(HQ*64,256)", out: "Z(S,256)"),
    ])"#
    );
    graph(&source, &[(64, 64, 64), (64, 64, 64), (64, 128, 64)])
}

const EVERYWHERE: [WaitAt; 2] = [WaitAt::PerKBlock, WaitAt::Start];

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
        r#"filter: "F2(7,7,64,64)", stride: (2,2), padding: (3,3), bias: "b(64)", residual: "R(3,7,5,64)", out: "Z(3,7,5,64)""#,
    ] {
        for policy in [Policy::ConvHalo, Policy::Row, Policy::Tile, Policy::Batched { rows: 2, cols: 1 }] {
            for wait_at in EVERYWHERE {
                let c = candidate(convs(second), &policy, wait_at);
                assert_eq!(judge(&c).refutations, [], "{second} {policy:?} {wait_at:?}");
                let predicted = predict(&c);
                assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
                assert_eq!(check(c).expect("proved").edges().len(), 1);
            }
        }
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

/// Waits of one tile: (k-block, slot).
fn waits(c: &Candidate, stage: usize, tile: Tile) -> Vec<(u32, u32)> {
    let (mut list, mut pending) = (Vec::new(), Vec::new());
    Generated::new(c).events(StageId(stage), tile, 0, &mut |event| match event {
        Event::Wait { slot, .. } => pending.push(slot),
        Event::Load { k_block, .. } => list.extend(pending.drain(..).map(|slot| (k_block, slot))),
        _ => {}
    });
    list
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

/// The refutation of a graph whose operand waits for a different box than it reads.
#[track_caller]
fn refuted(c: &Candidate) -> String {
    let report = judge(c);
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [Obligation::Cover], "{:?}", report.refutations);
    assert!(check(c.clone()).is_err());
    report.refutations[0].to_string()
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
            let text = refuted(&c);
            assert!(text.contains("second(") && text.contains("may read `Y` before first("), "{text}");
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
    refuted(&late);
}

/// A convolution from 64 channels to `channels`, and one with stride two over the 14 x 10 pixels of each of its 3
/// images.
fn strided(channels: u32) -> Graph {
    let source = format!(
        r#"Pipeline(name: "s", dims: {{ "C": {channels} }}, stages: [
        Conv2d(name: "first", input: "X(3,14,10,64)", filter: "F1(3,3,64,C)", padding: (1,1), out: "Y(3,14,10,C)"),
        Conv2d(name: "second", input: "Y(3,14,10,C)", filter: "F2(3,3,C,64)", stride: (2,2), padding: (1,1), out: "Z(3,7,5,64)"),
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
                let text = refuted(&c);
                assert!(text.contains("may read `Y` before first("), "{text}");
            }
        }
    }
}

#[test]
fn a_convolution_that_leaves_a_block_of_channels_or_a_parity_unawaited_is_refuted() {
    let refutes = |c: &Candidate, drop: &dyn Fn(u32) -> bool, label: &str| {
        let wrong = Without { base: Generated::new(c), drop: |_, slot| drop(slot) };
        let report = judge_program(c, &wrong);
        let text = report.refutation(Obligation::Cover).expect(label).to_string();
        assert!(text.contains("second(") && text.contains("may read `Y` before first("), "{label}: {text}");
    };
    // One slot per pixel row and block of 64 channels.
    let c = candidate(strided(128), &Policy::Tile, WaitAt::PerKBlock);
    assert_eq!(c.graph.stages[0].grid, (42, 2));
    let mut rows: Vec<u32> = waits(&c, 1, Tile { m: 2, n: 0 }).into_iter().map(|(_, slot)| slot).collect();
    rows.sort_unstable();
    assert_eq!(rows, [6, 7, 8, 9, 10, 11], "rows 3, 4 and 5 of the first image, both blocks");
    for block in 0..2 {
        refutes(&c, &|slot| slot % 2 == block, "a block of channels");
    }
    // With stride two, taps at odd and even distances read different rows.
    let c = candidate(strided(64), &Policy::Tile, WaitAt::PerKBlock);
    for parity in 0..2 {
        refutes(&c, &|slot| slot % 2 == parity, "a parity");
    }
}

/// Two convolutions of 128 channels over 3 images of 28 x 10 pixels, in the tile of each kernel that loads windows for
/// them.
fn windowed() -> impl Iterator<Item = Graph> {
    let source = r#"Pipeline(name: "w", dims: {}, stages: [
        Conv2d(name: "first", input: "X(3,28,10,128)", filter: "F1(3,3,128,128)", padding: (1,1), out: "Y(3,28,10,128)"),
        Conv2d(name: "second", input: "Y(3,28,10,128)", filter: "F2(3,3,128,128)", padding: (1,1), out: "Z(3,28,10,128)"),
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
                let text = refuted(&c);
                assert!(text.contains("second(") && text.contains("may read `Y` before first("), "{text}");
            }
        }
        let c = candidate(graph, &Policy::Tile, WaitAt::PerKBlock);
        // If the first convolution has a channel tile for each of the second's blocks.
        for block in (0..2).filter(|_| c.graph.stages[0].grid.1 == 2) {
            let wrong = Without { base: Generated::new(&c), drop: |_, slot| slot % 2 == block };
            let text = judge_program(&c, &wrong)
                .refutation(Obligation::Cover)
                .expect("a block of channels")
                .to_string();
            assert!(text.contains("second(") && text.contains("may read `Y` before first("), "{text}");
            blocks += 1;
        }
    }
    assert!(blocks > 0, "no kernel has tiles of one block of channels");
}

/// A convolution over 2 images of 12 x 10 pixels, a 3 x 3 pool with stride 2, and a convolution of the pool's output.
fn pooled(rows: u32) -> Graph {
    let source = r#"Pipeline(name: "p", dims: {}, stages: [
        Conv2d(name: "first", input: "X(2,12,10,64)", filter: "F1(3,3,64,64)", padding: (1,1), out: "Y(2,12,10,64)"),
        Pool(name: "pool", input: "Y(2,12,10,64)", kind: Max, window: (3,3), stride: (2,2), padding: (1,1), out: "P(2,6,5,64)"),
        Conv2d(name: "second", input: "P(2,6,5,64)", filter: "F2(3,3,64,64)", padding: (1,1), out: "Z(2,6,5,64)"),
    ])"#;
    graph(source, &[(40, 64, 64), (rows * 5, 64, 9), (40, 64, 64)])
}

#[test]
fn pools_are_proved_in_every_tile_under_every_policy() {
    // Rows of an image, or whole images.
    for rows in [1, 2, 3, 6, 12] {
        for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 1 }] {
            for wait_at in EVERYWHERE {
                let c = candidate(pooled(rows), &policy, wait_at);
                assert_eq!(judge(&c).refutations, [], "{rows} {policy:?} {wait_at:?}");
                let predicted = predict(&c);
                assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
            }
        }
    }
}

#[test]
fn a_pool_that_forgets_its_halo_is_refuted() {
    // Rows 4 and 5 of the second image read input rows 19 to 23: tile 4 has rows 16 to 19, tile 5 the rest.
    let c = candidate(pooled(2), &Policy::Tile, WaitAt::PerKBlock);
    assert_eq!(waits(&c, 1, Tile { m: 5, n: 0 }), [(0, 4), (0, 5)]);
    for (offset, extent) in [(0, 40), (0, 30), (-10, 40)] {
        let mut narrow = candidate(pooled(2), &Policy::Tile, WaitAt::PerKBlock);
        let rows = &mut narrow.graph.stages[1].operands[0].footprint.rows;
        assert_eq!((rows.m, rows.offset, rows.extent), (40, -10, 50));
        (rows.offset, rows.extent) = (offset, extent);
        if (offset, extent) == (-10, 40) {
            // One row less below is in the same producer tile as the row above it.
            assert_eq!(judge(&narrow).refutations, []);
            continue;
        }
        let text = refuted(&narrow);
        assert!(text.contains("pool(") && text.contains("may read `Y` before first("), "{text}");
    }
}

#[test]
fn attention_is_proved_with_grouped_and_single_heads_at_ragged_lengths() {
    for (heads, kv_heads) in [(4, 4), (4, 2), (4, 1), (1, 1), (6, 2)] {
        for tokens in [64, 200, 384] {
            let graph = attention(heads, kv_heads, tokens);
            let edges: Vec<_> = graph
                .dependences
                .iter()
                .map(|d| graph.stages[d.consumer.0].operands[d.operand].kind)
                .collect();
            assert_eq!(edges, [OperandKind::Query, OperandKind::Key, OperandKind::Value, OperandKind::A]);
            for policy in [Policy::Tile, Policy::Row, Policy::Strided(heads)] {
                for wait_at in EVERYWHERE {
                    let c = candidate(graph.clone(), &policy, wait_at);
                    assert_eq!(
                        judge(&c).refutations,
                        [],
                        "{heads}/{kv_heads} {tokens} {policy:?} {wait_at:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_causal_tile_waits_for_no_later_token() {
    let c = candidate(attention(2, 2, 384), &Policy::Row, WaitAt::PerKBlock);
    let stage = &c.graph.stages[1];
    assert_eq!((stage.grid, stage.k_blocks), ((6, 2), 6));
    assert_eq!((0..6).map(|m| stage.k_blocks_of(m)).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    for wait_at in EVERYWHERE {
        let c = candidate(c.graph.clone(), &Policy::Row, wait_at);
        for m in 0..6 {
            let last = waits(&c, 1, Tile { m, n: 1 }).into_iter().map(|(_, slot)| slot).max();
            assert_eq!(last, Some(m), "{wait_at:?}: rows after the block's own are masked");
        }
    }
    // Early query blocks have less work, and the model accounts for it.
    let timeline = simulate_serial(&c);
    let length = |m| {
        let run = timeline.tiles.iter().find(|t| t.stage == StageId(1) && t.tile == Tile { m, n: 0 });
        run.map(|t| t.end - t.start).expect("it ran")
    };
    assert!(length(5) > length(0) * 1.2, "{} {}", length(0), length(5));
}

/// A candidate's program with some waits removed.
struct Without<'a, F: Fn(usize, u32) -> bool> {
    base: Generated<'a>,
    drop: F,
}

impl<F: Fn(usize, u32) -> bool> TileProgram for Without<'_, F> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        self.base.posts(edge, tile, f);
    }
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.base.events(stage, tile, slice, &mut |event| match event {
            Event::Wait { edge, slot, .. } if (self.drop)(edge, slot) => {}
            other => f(other),
        });
    }
}

#[test]
fn a_policy_that_forgets_queries_keys_values_or_a_head_is_refuted() {
    // One slot per tile. With coarser slots the wait for keys can cover the wait for values, which comes later.
    for policy in [Policy::Tile] {
        let c = candidate(attention(4, 4, 384), &policy, WaitAt::PerKBlock);
        // Edges: queries, keys, values, and the projection's input.
        for (forgotten, tensor) in [(0, "QKV"), (1, "QKV"), (2, "QKV"), (3, "A")] {
            let report =
                judge_program(&c, &Without { base: Generated::new(&c), drop: |edge, _| edge == forgotten });
            let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
            assert_eq!(found, [Obligation::Cover], "edge {forgotten} {policy:?}");
            let text = report.refutations[0].to_string();
            assert!(text.contains(&format!("may read `{tensor}`")), "{text}");
        }
        // Any single slot of any edge.
        let mut waited = std::collections::BTreeSet::new();
        for (stage, m, n) in (0..6).flat_map(|m| (0..4).flat_map(move |n| [(1, m, n), (2, m, n % 2)])) {
            Generated::new(&c).events(StageId(stage), Tile { m, n }, 0, &mut |event| {
                if let Event::Wait { edge, slot, .. } = event {
                    waited.insert((edge, slot));
                }
            });
        }
        assert!(waited.len() >= 4 * 6, "{waited:?}");
        for one in waited {
            let dropped =
                judge_program(&c, &Without { base: Generated::new(&c), drop: |e, s| (e, s) == one });
            assert!(dropped.refutation(Obligation::Cover).is_some(), "{one:?} {policy:?}");
        }
    }
}

#[test]
fn an_attention_that_waits_for_another_heads_keys_is_refuted() {
    let attend = |c: &mut Candidate, operand: usize, change: &dyn Fn(&mut cusync_gen::graph::Footprint)| {
        change(&mut c.graph.stages[1].operands[operand].footprint);
    };
    for operand in 0..3 {
        let mut c = candidate(attention(4, 2, 384), &Policy::Tile, WaitAt::PerKBlock);
        attend(&mut c, operand, &|f| f.cols.n = 0);
        refuted(&c);
        let mut c = candidate(attention(4, 2, 384), &Policy::Tile, WaitAt::PerKBlock);
        attend(&mut c, operand, &|f| f.cols.offset -= 64);
        refuted(&c);
    }
    // Keys of a step loaded one step too early, and keys of the first step only.
    for operand in [1, 2] {
        let mut c = candidate(attention(4, 2, 384), &Policy::Tile, WaitAt::PerKBlock);
        attend(&mut c, operand, &|f| f.rows.offset -= 64);
        refuted(&c);
        let mut c = candidate(attention(4, 2, 384), &Policy::Row, WaitAt::PerKBlock);
        attend(&mut c, operand, &|f| f.rows.k = 0);
        if operand == 1 {
            refuted(&c);
        } else {
            // With one slot per row, values are ready when keys are, and the keys have been waited for.
            assert_eq!(judge(&c).refutations, []);
        }
    }
    // A projection that starts when the first head of its rows is ready.
    let mut c = candidate(attention(4, 2, 384), &Policy::Tile, WaitAt::PerKBlock);
    c.graph.stages[2].operands[0].footprint.cols = Axis { extent: 64, ..Axis::default() };
    refuted(&c);
}

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
        for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 2 }, Policy::Strided(2)] {
            for wait_at in EVERYWHERE {
                let c = candidate(graph.clone(), &policy, wait_at);
                assert_eq!(judge(&c).refutations, [], "{kind} {tokens} {policy:?} {wait_at:?}");
                let predicted = predict(&c);
                assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
            }
        }
    }
}

#[test]
fn a_normalisation_that_leaves_a_tile_of_a_row_unawaited_is_refuted() {
    for kind in NORMS {
        let c = candidate(normalised(kind, 192), &Policy::Tile, WaitAt::PerKBlock);
        // A row block waits for the four tiles in its row of the GEMM, and for no others.
        assert_eq!(waits(&c, 1, Tile { m: 2, n: 0 }), [4, 5, 6, 7].map(|slot| (0, slot)));
        for slot in 0..12 {
            let wrong =
                Without { base: Generated::new(&c), drop: |edge, dropped| (edge, dropped) == (0, slot) };
            let report = judge_program(&c, &wrong);
            assert_eq!(report.refutations.len(), 1, "{kind} {slot}: {:?}", report.refutations);
            let text = report.refutation(Obligation::Cover).expect("a race").to_string();
            assert!(text.contains("norm(") && text.contains("may read `Y` before first("), "{text}");
        }
        // The footprint of all columns except those of the last tile; the footprint of the rows above.
        let mut narrow = candidate(normalised(kind, 192), &Policy::Tile, WaitAt::PerKBlock);
        narrow.graph.stages[1].operands[0].footprint.cols.extent = 384;
        refuted(&narrow);
        let mut above = candidate(normalised(kind, 192), &Policy::Tile, WaitAt::PerKBlock);
        above.graph.stages[1].operands[0].footprint.rows.offset = -64;
        refuted(&above);
        // The GEMM after the norm waits for blocks of 32 rows, two per tile of 64 rows.
        let second = candidate(normalised(kind, 192), &Policy::Tile, WaitAt::PerKBlock);
        assert_eq!(waits(&second, 2, Tile { m: 1, n: 0 }), [(0, 2), (0, 3)]);
    }
}

#[test]
fn a_normalisation_has_tiles_of_whole_rows_only_and_is_chosen_and_predicted_by_its_bytes() {
    let source = include_str!("../../../policies/llama65_norm_mlp.ron");
    let resolved = spec::parse(source, "p").and_then(|s| s.resolve(&[])).expect("sound");
    let refused = resolved.graph(&[(64, 128, 64); 3]).expect_err("no whole rows");
    assert!(refused.message.contains("the normalisation `norm` has no tile"), "{}", refused.message);
    let device = Profile::named("h200").expect("shipped");
    let c = cusync_gen::choose::candidate(&resolved, device, Executor::Cpu).expect("a choice");
    let norm = &c.graph.stages[0];
    assert_eq!((norm.op.name(), norm.out_tile().1, norm.grid.1), ("RmsNorm", 8192, 1));
    // The rows are read and written once, at memory bandwidth at best.
    let alone = simulate_serial(&c).stages[0];
    let least_us = 2.0 * 2.0 * 512.0 * 8192.0 / (device.read_tbs * 1e6);
    assert!(alone.1 - alone.0 >= least_us && alone.1 - alone.0 < least_us + 40.0, "{alone:?}, {least_us}");
    assert_eq!(judge(&c).refutations, []);
}

/// A convolution over 3 images of 6 x 4 pixels in tiles of 8 pixels and 32 channels, a norm of 8 groups of 12 channels,
/// and a convolution of the result.
fn grouped() -> Graph {
    let source = r#"Pipeline(name: "g", dims: {}, stages: [
        Conv2d(name: "first", input: "X(3,6,4,64)", filter: "F1(3,3,64,96)", padding: (1,1), out: "Y(3,6,4,96)"),
        GroupNorm(name: "norm", input: "Y(3,6,4,96)", groups: 8, gain: "g(96)", bias: "b(96)", epilogue: Silu, out: "N(3,6,4,96)"),
        Conv2d(name: "second", input: "N(3,6,4,96)", filter: "F2(3,3,96,64)", padding: (1,1), residual: "X(3,6,4,64)", out: "Z(3,6,4,64)"),
    ])"#;
    graph(source, &[(8, 32, 64), (24, 12, 288), (8, 64, 64)])
}

#[test]
fn group_normalisations_are_proved_under_every_policy() {
    let graph = grouped();
    let stage = &graph.stages[1];
    assert_eq!((stage.out_tile(), stage.grid, stage.k_blocks, stage.k), ((24, 12), (3, 8), 1, 288));
    assert_eq!(graph.dependences.len(), 2);
    for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 3, cols: 2 }, Policy::Strided(2)] {
        for wait_at in EVERYWHERE {
            let c = candidate(graph.clone(), &policy, wait_at);
            assert_eq!(judge(&c).refutations, [], "{policy:?} {wait_at:?}");
            let predicted = predict(&c);
            assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
        }
    }
}

#[test]
fn a_group_normalisation_that_leaves_a_tile_of_its_image_unawaited_is_refuted() {
    let c = candidate(grouped(), &Policy::Tile, WaitAt::PerKBlock);
    // Group 2 of the second image has channels 24 to 35: columns of two of the three tiles in three rows of tiles.
    assert_eq!(waits(&c, 1, Tile { m: 1, n: 2 }), [9, 10, 12, 13, 15, 16].map(|slot| (0, slot)));
    assert_eq!(waits(&c, 1, Tile { m: 2, n: 7 }), [20, 23, 26].map(|slot| (0, slot)));
    for slot in 0..27 {
        let wrong = Without { base: Generated::new(&c), drop: |edge, dropped| (edge, dropped) == (0, slot) };
        let report = judge_program(&c, &wrong);
        assert_eq!(report.refutations.len(), 1, "{slot}: {:?}", report.refutations);
        let text = report.refutation(Obligation::Cover).expect("a race").to_string();
        assert!(text.contains("norm(") && text.contains("may read `Y` before first("), "{text}");
    }
    // Without the last rows of the image, without the last channels of the group, and with the image before.
    let boxes: [fn(&mut cusync_gen::graph::Footprint); 3] =
        [|f| f.rows.extent = 16, |f| f.cols.extent = 8, |f| f.rows.offset = -24];
    for change in boxes {
        let mut wrong = candidate(grouped(), &Policy::Tile, WaitAt::PerKBlock);
        change(&mut wrong.graph.stages[1].operands[0].footprint);
        refuted(&wrong);
    }
}

#[test]
fn a_group_normalisation_has_one_tile_and_is_launched_alone() {
    let source = include_str!("../../../policies/sd_resnet.ron");
    let resolved = spec::parse(source, "p").and_then(|s| s.resolve(&[])).expect("sound");
    let refused = resolved.graph(&[(64, 64, 64); 4]).expect_err("no group");
    assert!(refused.message.contains("the group normalisation `norm1` has no tile"), "{}", refused.message);
    let device = Profile::named("h200").expect("shipped");
    let c = cusync_gen::choose::candidate(&resolved, device, Executor::Serial).expect("a choice");
    let norm = &c.graph.stages[0];
    assert_eq!((norm.op.name(), norm.out_tile(), norm.grid), ("GroupNorm", (4096, 10), (1, 32)));
    assert_eq!(c.launch.kernels()[0].kernel, cusync_gen::check::StageKernel::Alone);
    assert_eq!(judge(&c).refutations, []);
    // The images are read and written once, at memory bandwidth at best.
    let alone = simulate_serial(&c).stages[0];
    let least_us = 2.0 * 2.0 * 4096.0 * 320.0 / (device.read_tbs * 1e6);
    assert!(alone.1 - alone.0 >= least_us && alone.1 - alone.0 < least_us + 10.0, "{alone:?}, {least_us}");
}

/// A convolution over 3 images of 8 x 4 pixels in tiles of 8 pixels and 32 channels, a depthwise one in tiles of four rows,
/// and a product of the result.
fn depthwise() -> Graph {
    let source = r#"Pipeline(name: "d", dims: {}, stages: [
        Conv2d(name: "first", input: "X(3,8,4,64)", filter: "F1(3,3,64,48)", padding: (1,1), out: "Y(3,8,4,48)"),
        Conv2d(name: "depthwise", input: "Y(3,8,4,48)", filter: "F2(3,3,1,48)", groups: 48, padding: (1,1), bias: "b(48)",
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
    for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 3, cols: 2 }, Policy::Strided(2)] {
        for wait_at in EVERYWHERE {
            let c = candidate(graph.clone(), &policy, wait_at);
            assert_eq!(judge(&c).refutations, [], "{policy:?} {wait_at:?}");
            let predicted = predict(&c);
            assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
        }
    }
}

#[test]
fn a_grouped_convolution_that_leaves_a_tile_under_its_filter_unawaited_is_refuted() {
    let c = candidate(depthwise(), &Policy::Tile, WaitAt::PerKBlock);
    for slot in 0..24 {
        let wrong = Without { base: Generated::new(&c), drop: |edge, dropped| (edge, dropped) == (0, slot) };
        let report = judge_program(&c, &wrong);
        assert_eq!(report.refutations.len(), 1, "{slot}: {:?}", report.refutations);
        let text = report.refutation(Obligation::Cover).expect("a race").to_string();
        assert!(text.contains("depthwise(") && text.contains("may read `Y` before first("), "{text}");
    }
    // Without the row above, without the row below, and without the last channels.
    let boxes: [fn(&mut cusync_gen::graph::Footprint); 3] =
        [|f| f.rows.offset = 0, |f| f.rows.extent = 16, |f| f.cols.extent = 32];
    for change in boxes {
        let mut wrong = candidate(depthwise(), &Policy::Tile, WaitAt::PerKBlock);
        change(&mut wrong.graph.stages[1].operands[0].footprint);
        refuted(&wrong);
    }
}

#[test]
fn a_depthwise_convolution_is_launched_alone() {
    let source = include_str!("../../../policies/mobilenetv2.ron");
    let resolved = spec::parse(source, "p").and_then(|s| s.resolve(&[])).expect("sound");
    let refused = resolved.graph(&[(64, 64, 64); 3]).expect_err("neither rows nor images");
    assert!(
        refused.message.contains("the grouped convolution `depthwise` has no tile"),
        "{}",
        refused.message
    );
    let device = Profile::named("h200").expect("shipped");
    let c = cusync_gen::choose::candidate(&resolved, device, Executor::Serial).expect("a choice");
    assert_eq!((c.graph.stages[1].op.name(), c.graph.stages[1].k), ("Conv2d of groups", 9));
    assert_eq!(c.launch.kernels()[1].kernel, cusync_gen::check::StageKernel::Alone);
    assert_eq!(judge(&c).refutations, []);
    // The images are read and written once, at memory bandwidth at best.
    let alone = simulate_serial(&c).stages[1];
    let least_us = 2.0 * 2.0 * 8.0 * 3136.0 * 144.0 / (device.read_tbs * 1e6);
    assert!(alone.1 - alone.0 >= least_us && alone.1 - alone.0 < least_us + 10.0, "{alone:?}, {least_us}");
}

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
    for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 3, cols: 2 }, Policy::Strided(2)] {
        for wait_at in EVERYWHERE {
            let c = candidate(graph.clone(), &policy, wait_at);
            assert_eq!(judge(&c).refutations, [], "{policy:?} {wait_at:?}");
            let predicted = predict(&c);
            assert!(predicted.serial_us > 0.0 && predicted.synchronised_us > 0.0);
        }
    }
}

#[test]
fn experts_that_leave_a_tile_of_their_rows_or_their_scores_unawaited_are_refuted() {
    let c = candidate(mixed(), &Policy::Tile, WaitAt::PerKBlock);
    // All tiles in two rows of tiles, and in the last one.
    for (producer, tensor, some, last) in
        [(0, "Y", 6..12, 18..21), (1, "S", 4..8, 12..14), (2, "R", 4..8, 12..14)]
    {
        let edge = c.graph.dependences.iter().position(|d| d.producer == StageId(producer)).expect("an edge");
        for (m, slots) in [(1, some), (3, last)] {
            let mut found = Vec::new();
            Generated::new(&c).events(StageId(3), Tile { m, n: 0 }, 0, &mut |event| match event {
                Event::Wait { edge: read, slot, .. } if read == edge => found.push(slot),
                _ => {}
            });
            assert_eq!(found, slots.clone().collect::<Vec<_>>(), "{tensor} {m}");
            for slot in slots {
                let wrong =
                    Without { base: Generated::new(&c), drop: |e, dropped| (e, dropped) == (edge, slot) };
                let report = judge_program(&c, &wrong);
                assert_eq!(report.refutations.len(), 1, "{tensor} {slot}: {:?}", report.refutations);
                let text = report.refutation(Obligation::Cover).expect("a race").to_string();
                let race = format!("may read `{tensor}` before {}(", c.graph.stages[producer].name);
                assert!(text.contains(&format!("experts({m}")) && text.contains(&race), "{text}");
            }
        }
        // Without the last rows, without the last columns, and with the rows above.
        let boxes: [fn(&mut cusync_gen::graph::Footprint); 3] =
            [|f| f.rows.extent = 8, |f| f.cols.extent = 8, |f| f.rows.offset = -16];
        for change in boxes {
            let mut wrong = candidate(mixed(), &Policy::Tile, WaitAt::PerKBlock);
            let operand = wrong.graph.dependences[edge].operand;
            change(&mut wrong.graph.stages[3].operands[operand].footprint);
            refuted(&wrong);
        }
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
    let source = include_str!("../../../policies/qwen3_moe.ron");
    let resolved = spec::parse(source, "p").and_then(|s| s.resolve(&[])).expect("sound");
    let refused = resolved.graph(&[(16, 2048, 2048), (64, 64, 64), (64, 64, 64)]).expect_err("no whole rows");
    assert!(refused.message.contains("the mixture of experts `experts` has no tile"), "{}", refused.message);
    let device = Profile::named("h200").expect("shipped");
    let c = cusync_gen::choose::candidate(&resolved, device, Executor::Serial).expect("a choice");
    let experts = &c.graph.stages[2];
    assert_eq!((experts.op.name(), experts.out_tile().1, experts.grid.1), ("Experts", 2048, 1));
    assert_eq!(c.launch.kernels()[2].kernel, cusync_gen::check::StageKernel::Alone);
    assert_eq!(judge(&c).refutations, []);
    // At least 125 of 128 experts are expected to have a row; their weights are read once, at memory bandwidth at best.
    let alone = simulate_serial(&c).stages[2];
    let least_us = 125.0 * 3.0 * 2.0 * 768.0 * 2048.0 / (device.read_tbs * 1e6);
    assert!(alone.1 - alone.0 >= least_us && alone.1 - alone.0 < 1.1 * least_us, "{alone:?}, {least_us}");
}
