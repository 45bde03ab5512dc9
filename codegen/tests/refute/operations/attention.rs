//! Attention over prompts: queries, keys and values of heads, and causal masks.

use super::{
    EVERYWHERE, boxes_refuted, by_tile, candidate, graph, proved, refuted, waits, waits_of_edges, without,
};
use crate::changed::only;
use cusync_gen::check::{Obligation, judge};
use cusync_gen::graph::{Axis, Footprint, Graph, OperandKind, StageId};
use cusync_gen::simulate::simulate_serial;
use cusync_gen::sync::{Policy, Tile, WaitAt};
use std::collections::BTreeSet;

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
            let policies = [Policy::Tile, Policy::Row, Policy::Strided(heads)];
            proved(&graph, &policies, &format!("{heads}/{kv_heads} {tokens}"));
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

#[test]
fn a_policy_that_forgets_queries_keys_values_or_a_head_is_refuted() {
    // One slot per tile. With coarser slots the wait for keys can cover the wait for values, which comes later.
    let c = by_tile(attention(4, 4, 384));
    // Edges: queries, keys, values, and the projection's input.
    for (forgotten, tensor) in [(0, "QKV"), (1, "QKV"), (2, "QKV"), (3, "A")] {
        let report = without(&c, |edge, _| edge == forgotten);
        only(&report, Obligation::Cover, &[&format!("may read `{tensor}`")]);
    }
    // Any single slot of any edge.
    let tiles = (0..6).flat_map(|m| (0..4).flat_map(move |n| [(1, m, n), (2, m, n % 2)]));
    let waits = tiles.flat_map(|(stage, m, n)| waits_of_edges(&c, stage, Tile { m, n }));
    let waited: BTreeSet<_> = waits.map(|(edge, _, slot)| (edge, slot)).collect();
    assert!(waited.len() >= 4 * 6, "{waited:?}");
    for one in waited {
        let report = without(&c, |edge, slot| (edge, slot) == one);
        assert!(report.refutation(Obligation::Cover).is_some(), "{one:?}");
    }
}

#[test]
fn an_attention_that_waits_for_another_heads_keys_is_refuted() {
    let (tiles, rows) = (by_tile(attention(4, 2, 384)), attention(4, 2, 384));
    for operand in 0..3 {
        boxes_refuted(
            &tiles,
            (1, operand),
            &[|f| f.cols.n = 0, |f| f.cols.offset -= 64],
            &["may read `QKV`"],
        );
    }
    // Keys of a step loaded one step too early, and keys of the first step only.
    for operand in [1, 2] {
        boxes_refuted(&tiles, (1, operand), &[|f| f.rows.offset -= 64], &["may read `QKV`"]);
        let mut c = candidate(rows.clone(), &Policy::Row, WaitAt::PerKBlock);
        c.graph.stages[1].operands[operand].footprint.rows.k = 0;
        if operand == 1 {
            refuted(&c, &["may read `QKV`"]);
        } else {
            // With one slot per row, values are ready when keys are, and the keys have been waited for.
            assert_eq!(judge(&c).refutations, []);
        }
    }
    // A projection that starts when the first head of its rows is ready.
    let first: fn(&mut Footprint) = |f| f.cols = Axis { extent: 64, ..Axis::default() };
    boxes_refuted(&tiles, (2, 0), &[first], &["may read `A`"]);
}
