//! Blocks of a product, an attention and a projection: heads, sequences and the new token.

use super::{ATTEND, PROJECT, QKV, among, edge, planned, slots, sound, source, waiting, without};
use crate::changed::{each, only};
use cusync_gen::check::{Event, Obligation, check, judge};
use cusync_gen::device::Profile;
use cusync_gen::graph::OperandKind;
use cusync_gen::simulate::simulate;
use cusync_gen::sync::Tile;

#[test]
fn blocks_of_any_heads_and_batch_are_proved() {
    for heads in
        [(4, 4, 64), (8, 1, 128), (12, 12, 128), (8, 2, 64), (1, 1, 64), (3, 3, 96), (6, 2, 80), (8, 2, 256)]
    {
        for batch in [1, 4, 5, 32] {
            for pages in ["", r#"pages: "P(B,S/64)","#] {
                let c = planned(&source(batch, heads, pages));
                assert_eq!(judge(&c).refutations, [], "{heads:?} {batch} {pages}");
                let stages = &c.graph.stages;
                let (_, kv, _) = heads;
                assert_eq!((stages[ATTEND].grid, stages[ATTEND].k_blocks), ((batch, kv), 1));
                // One slot per head of keys and values, with one post per sequence.
                let slots = &c.slot_maps()[edge(&c, PROJECT, OperandKind::A)];
                assert_eq!((slots.slot_count, slots.slot_base), (kv, stages[QKV].n.div_ceil(64)));
                for head in 0..kv {
                    assert_eq!(slots.posts_of(head), batch);
                    let posted = |m| slots.posted_by(Tile { m, n: head });
                    assert!((0..batch).all(|m| posted(m) == (head..head + 1)));
                }
                let plan = check(c).expect("proved");
                assert_eq!(plan.slot_count(), plan.graph().stages[QKV].n.div_ceil(64) + kv);
                // Each attention tile is in one list; equal lengths balance the lists.
                let lists = &plan.launch().shares().expect("a decode plan").work.lists;
                let counts: Vec<usize> = lists.iter().map(|list| list.len() - 2).collect();
                assert_eq!(counts.iter().sum::<usize>() as u32, batch * kv);
                assert!(
                    counts
                        .iter()
                        .max()
                        .zip(counts.iter().min())
                        .is_some_and(|(most, least)| most - least <= 1)
                );
            }
        }
    }
}

#[test]
fn a_cache_costs_its_bytes_and_the_length_that_is_expected_is_what_counts() {
    let us = |expected: &str| {
        let text = source(32, (8, 8, 128), "").replace("rotary:", &format!("{expected}rotary:"));
        let c = planned(&text);
        let timeline = simulate(&c);
        // Every share and every tile appears once, on the worker that owns it.
        let tiles: u32 = c.graph.stages.iter().map(|s| s.tiles()).sum();
        assert_eq!(timeline.tiles.len() as u32, tiles);
        let stage = timeline.stages[ATTEND];
        assert!(timeline.tiles.iter().all(|t| t.end <= timeline.total_us && t.start < t.end));
        assert!((timeline.total_us - c.launch.predicted_us().expect("a decode plan")).abs() < 1e-9);
        stage.1 - stage.0
    };
    let (full, some, one) = (us(""), us("expected: 512, "), us("expected: 1, "));
    assert_eq!(full, us(r#"expected: "S", "#), "left out, the cache is full");
    // Keys and values of 32 x 8 heads, 128 columns of 2 bytes: 131 kB per token, and at least one page.
    let rate = Profile::named("h200").expect("shipped").decode.read_tbs * 1e6;
    let bytes = |tokens: f64| 2.0 * 32.0 * 8.0 * 128.0 * 2.0 * tokens;
    assert!((full - some - bytes(512.0) / rate).abs() < 1e-9, "{full} {some}");
    assert!((some - one - bytes(448.0) / rate).abs() < 1e-9, "{some} {one}");
}

#[test]
fn a_chain_of_blocks_is_proved() {
    let block = |input: &str, i: u32, out: &str| {
        format!(
            r#"Gemm(name: "qkv{i}", a: "{input}(B,E)", b: "W{i}(E,768)", out: "QKV{i}(B,768)"),
            Attention(name: "attend{i}", qkv: "QKV{i}(B,768)", heads: 4,
                cache: Cache(keys: "K{i}(B,4,S,64)", values: "V{i}(B,4,S,64)", lengths: "n(B)"), out: "A{i}(B,256)"),
            Gemm(name: "project{i}", a: "A{i}(B,256)", b: "Wo{i}(256,E)", residual: "{input}(B,E)",
                out: "{out}(B,E)"),"#
        )
    };
    let stages = block("X", 1, "H") + &block("H", 2, "Z");
    let dims = r#"{ "B": 3, "S": 256, "E": 512 }"#;
    let c = planned(&format!(r#"Pipeline(name: "two", dims: {dims}, stages: [{stages}])"#));
    assert_eq!(c.graph.stages.len(), 6);
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn a_head_or_the_new_token_unawaited_is_refuted() {
    let c = sound();
    // Drop the load of a 64-column tile of queries, keys or values (half a head), in one tile or in all.
    for (kind, first) in [(OperandKind::Query, 5), (OperandKind::Key, 17), (OperandKind::Value, 20)] {
        let read = edge(&c, ATTEND, kind);
        for everywhere in [true, false] {
            let report = without(&c, |stage, tile, edge, slot| {
                (stage, edge, slot) == (ATTEND, read, first) && (everywhere || tile.m == 3)
            });
            let sequence = if everywhere { 0 } else { 3 };
            let reader = format!("attend({sequence}, ");
            only(&report, Obligation::Cover, &[&reader, "may read `QKV` before share"]);
        }
    }
    // Load the keys of another head.
    let keys = edge(&c, ATTEND, OperandKind::Key);
    let other = waiting(&c, (ATTEND, keys), |slot, value| (if slot < 18 { slot + 2 } else { slot }, value));
    among(&other, Obligation::Cover);
    // Never loaded.
    let values = c.graph.dependences[edge(&c, ATTEND, OperandKind::Value)].operand;
    let lost = each(&c, |stage, _, event| match event {
        Event::Load { operand, .. } if (stage, operand) == (ATTEND, values) => None,
        other => Some(other),
    });
    only(&lost, Obligation::Order, &["attend(0, 0)", "never loads k-block 0 of `QKV`"]);
}

#[test]
fn a_consumer_that_waits_for_too_few_sequences_or_heads_is_refuted() {
    let c = sound();
    let outputs = edge(&c, PROJECT, OperandKind::A);
    let fewer = waiting(&c, (PROJECT, outputs), |slot, value| (slot, value - 1));
    among(&fewer, Obligation::Count);
    let more = waiting(&c, (PROJECT, outputs), |slot, value| (slot, value + 1));
    only(&more, Obligation::Count, &["waits for 6 posts to slot 0", "which gets 5 a run", "never ends"]);
    let head = without(&c, |stage, _, edge, slot| (stage, edge, slot) == (PROJECT, outputs, 1));
    only(&head, Obligation::Cover, &["of project may read `A` before attend(0, 1) has written it"]);
    // Columns 64 to 127 are of two heads of 96.
    let c = planned(&source(5, (4, 4, 96), ""));
    for head in 0..2 {
        let early =
            without(&c, |stage, tile, edge, slot| (stage, edge, slot, tile.n) == (PROJECT, outputs, head, 7));
        let before = format!("of project may read `A` before attend(0, {head}) has written it");
        only(&early, Obligation::Cover, &[&before]);
    }
    let c = sound();
    // A tile that posts nothing, posts twice, or posts to another head: the law of the shares forbids all three.
    let silent =
        slots(&c, |edge, tile, slot| (edge != outputs || tile != Tile { m: 2, n: 1 }).then_some(slot));
    among(&silent, Obligation::Count);
    let elsewhere = slots(&c, |edge, tile, slot| Some(if edge == outputs && tile.m == 2 { 0 } else { slot }));
    among(&elsewhere, Obligation::Count);
}

#[test]
fn nothing_rests_on_which_worker_ends_a_tile() {
    // A stage adds the attention's output to another product and does not wait for it. The one tile is in worker 131's
    // list before that worker's share, but the sequence lengths may assign it to any other worker.
    let text = source(1, (1, 1, 64), "").replace(
        r#"a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", residual: "X(B,E)", out: "Z(B,E)""#,
        r#"a: "X(B,E)", b: "Wo(E,HQ*D)", residual: "A(B,HQ*D)", out: "Z(B,HQ*D)""#,
    );
    let c = planned(&text);
    let lists = &c.launch.shares().expect("a decode plan").work.lists;
    assert!(lists[131].len() == 3 && lists[0].len() == 2, "the tile is listed at the last worker");
    let own = |stage: usize, tile: Tile, event: &Event| {
        stage != PROJECT || tile.n == 131 || !matches!(event, Event::Load { operand: 2, .. })
    };
    for report in [judge(&c), each(&c, |stage, tile, event| own(stage, tile, &event).then_some(event))] {
        let cover = among(&report, Obligation::Cover);
        assert!(cover.contains("of project may read `A` before attend(0, 0)"), "{cover}");
    }
}
