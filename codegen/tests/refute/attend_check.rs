//! Decode plans with attention: sound plans are proved, however heads are shared; plans that miss a head, the new
//! token, a part or a growing cache are refuted for the right reason.

use crate::changed::{each, mutated, only, posting};
use cusync_gen::check::{
    Axiom, CacheContract, Candidate, Event, How, Launch, Obligation, Report, check, judge,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{OperandKind, StageId, TensorId};
use cusync_gen::schedule::decode::is_in_pairs;
use cusync_gen::simulate::simulate;
use cusync_gen::spec;
use cusync_gen::sync::Tile;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const QKV: usize = 0;
const ATTEND: usize = 1;
const PROJECT: usize = 2;

fn source(batch: u32, (query, kv, dim): (u32, u32, u32), pages: &str) -> String {
    let (pool, rows) = if pages.is_empty() { ("B", "S") } else { ("96", "64") };
    format!(
        r#"Pipeline(name: "block", dims: {{ "B": {batch}, "S": 1024, "E": 2048, "HQ": {query}, "HKV": {kv}, "D": {dim} }}, stages: [
            Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,(HQ+2*HKV)*D)", out: "QKV(B,(HQ+2*HKV)*D)"),
            Attention(name: "attend", qkv: "QKV(B,(HQ+2*HKV)*D)", heads: "HQ", kv_heads: "HKV", rotary: "cs(S,D)", {pages}
                cache: Cache(keys: "K({pool},HKV,{rows},D)", values: "V({pool},HKV,{rows},D)", lengths: "n(B)"), out: "A(B,HQ*D)"),
            Gemm(name: "project", a: "A(B,HQ*D)", b: "Wo(HQ*D,E)", residual: "X(B,E)", out: "Z(B,E)"),
        ])"#
    )
}

fn planned(source: &str) -> Candidate {
    let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[]));
    let resolved = resolved.unwrap_or_else(|d| panic!("{}", d.render(source, "test", false)));
    choose::decode(&resolved, Profile::named("h200").expect("shipped")).expect("a decode plan")
}

/// Five sequences; heads of 128 columns; four query heads for each of two KV heads.
fn sound() -> Candidate {
    planned(&source(5, (8, 2, 128), ""))
}

/// Judges the plan with the slots that tiles post to replaced or dropped.
fn slots(c: &Candidate, change: impl Fn(usize, Tile, u32) -> Option<u32>) -> Report {
    posting(c, |edge, tile, posts| {
        posts.into_iter().filter_map(|(slot, amount)| Some((change(edge, tile, slot)?, amount))).collect()
    })
}

/// The edge for a stage's operand of this kind.
fn edge(c: &Candidate, stage: usize, kind: OperandKind) -> usize {
    let is = |d: &cusync_gen::graph::Dependence| {
        d.consumer == StageId(stage) && c.graph.stages[stage].operands[d.operand].kind == kind
    };
    c.graph.dependences.iter().position(is).expect("it reads that")
}

#[test]
fn what_a_cache_rests_on_is_a_premise() {
    for (pages, premise) in [("", false), (r#"pages: "P(B,S/64)","#, true)] {
        let mut c = planned(&source(5, (8, 2, 128), pages));
        let axioms = |c: &Candidate| Axiom::for_launch(&c.graph, &c.launch, 90);
        assert!(axioms(&c).contains(&Axiom::Runs), "who orders the runs is not the proof's to know");
        assert_eq!(axioms(&c).contains(&Axiom::Pages), premise, "{pages}");
        // A run on the host does not overlap with other runs.
        c.launch = Launch::stages(&c.graph, How::Host);
        let on_host = axioms(&c);
        assert_eq!((on_host.contains(&Axiom::Runs), on_host.contains(&Axiom::Pages)), (false, premise));
    }
}

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
    let c = planned(
        r#"Pipeline(name: "two", dims: { "B": 3, "S": 256, "E": 512 }, stages: [
            Gemm(name: "qkv1", a: "X(B,E)", b: "W1(E,768)", out: "QKV1(B,768)"),
            Attention(name: "attend1", qkv: "QKV1(B,768)", heads: 4, cache: Cache(keys: "K1(B,4,S,64)", values: "V1(B,4,S,64)", lengths: "n(B)"), out: "A1(B,256)"),
            Gemm(name: "project1", a: "A1(B,256)", b: "Wo1(256,E)", residual: "X(B,E)", out: "H(B,E)"),
            Gemm(name: "qkv2", a: "H(B,E)", b: "W2(E,768)", out: "QKV2(B,768)"),
            Attention(name: "attend2", qkv: "QKV2(B,768)", heads: 4, cache: Cache(keys: "K2(B,4,S,64)", values: "V2(B,4,S,64)", lengths: "n(B)"), out: "A2(B,256)"),
            Gemm(name: "project2", a: "A2(B,256)", b: "Wo2(256,E)", residual: "H(B,E)", out: "Z(B,E)"),
        ])"#,
    );
    assert_eq!(judge(&c).refutations, []);
}

/// A layer in one kernel: norm, QKV, attention, projection, norm, MLP.
fn layer(batch: u32, norm: &str, width: u32) -> String {
    let bias = if norm == "LayerNorm" { r#"bias: "b(E)", "# } else { "" };
    format!(
        r#"Pipeline(name: "layer", dims: {{ "B": {batch}, "S": 1024, "E": {width}, "I": 1200 }}, stages: [
            {norm}(name: "first", x: "X(B,E)", gain: "g1(E)", {bias}out: "N1(B,E)", epsilon: 1e-5),
            Gemm(name: "qkv", a: "N1(B,E)", b: "Wqkv(E,1536)", out: "QKV(B,1536)"),
            Attention(name: "attend", qkv: "QKV(B,1536)", heads: 8, kv_heads: 2,
                cache: Cache(keys: "K(B,2,S,128)", values: "V(B,2,S,128)", lengths: "n(B)"), out: "A(B,1024)"),
            Gemm(name: "project", a: "A(B,1024)", b: "Wo(1024,E)", residual: "X(B,E)", out: "H(B,E)"),
            {norm}(name: "second", x: "H(B,E)", gain: "g2(E)", {bias}out: "N2(B,E)", epsilon: 1e-5),
            GatedGemm(name: "gate_up", a: "N2(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", out: "Y(B,I)"),
            Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", residual: "H(B,E)", out: "Z(B,E)"),
        ])"#
    )
}

#[test]
fn layers_with_norms_are_proved_and_a_row_unawaited_is_refuted() {
    let (norms, readers) = ([0, 4], [1, 5]);
    for norm in ["RmsNorm", "LayerNorm"] {
        // Fewer rows than workers, and rows that end in half a column tile.
        for (batch, width) in [(1, 2048), (5, 2080), (32, 1024)] {
            let c = planned(&layer(batch, norm, width));
            assert_eq!(judge(&c).refutations, [], "{norm} {batch} {width}");
            for (norm, reader) in norms.into_iter().zip(readers) {
                let stage = &c.graph.stages[norm];
                let slots = &c.slot_maps()[edge(&c, reader, OperandKind::A)];
                assert_eq!((stage.grid, stage.k_blocks, slots.slot_count), ((batch, 1), 1, 1));
                assert_eq!(slots.posts_of(0), batch);
                // Each row belongs to one worker.
                let lists = &c.launch.shares().expect("a decode plan").work;
                let rows = lists.sequence.iter().filter(|item| item.stage == StageId(norm)).count();
                assert_eq!((rows as u32, reader), (batch, norm + 1));
            }
        }
    }
    let c = planned(&layer(5, "RmsNorm", 2048));
    let (of_row, of_norm) = (edge(&c, 4, OperandKind::A), edge(&c, 5, OperandKind::A));
    // Drop the wait for one of a row's 32 column tiles, for all rows and for one.
    for everywhere in [true, false] {
        let early = each(&c, |stage, tile, event| match event {
            Event::Wait { edge, slot: 9, .. }
                if (stage, edge) == (4, of_row) && (everywhere || tile.m == 2) =>
            {
                None
            }
            other => Some(other),
        });
        let reader = format!("second({}, 0)", if everywhere { 0 } else { 2 });
        only(&early, Obligation::Cover, &[&reader, "may read `H` before share"]);
    }
    let unawaited = each(&c, |stage, tile, event| match event {
        Event::Wait { edge, .. } if (stage, edge, tile.n) == (5, of_norm, 7) => None,
        other => Some(other),
    });
    only(&unawaited, Obligation::Cover, &["share 7 of gate_up", "may read `N2` before second(0, 0)"]);
    let fewer = each(&c, |stage, _, event| match event {
        Event::Wait { edge, slot, value } if (stage, edge) == (5, of_norm) => {
            Some(Event::Wait { edge, slot, value: value - 1 })
        }
        other => Some(other),
    });
    assert!(fewer.refutations.iter().any(|r| r.obligation == Obligation::Count), "{fewer:#?}");
    let silent = slots(&c, |edge, tile, slot| (edge != of_norm || tile.m != 3).then_some(slot));
    assert!(silent.refutations.iter().any(|r| r.obligation == Obligation::Count), "{silent:#?}");
    // The plan assigns each row to a worker; a different assignment is refuted.
    let mut moved = c.clone();
    let work = &mut moved.launch.shares_mut().expect("a decode plan").work;
    let is_row = |item: &u32| work.sequence[*item as usize].stage == StageId(4);
    let from = work.lists.iter().position(|list| list.iter().any(is_row)).expect("somebody has a row");
    let place = work.lists[from].iter().position(is_row).expect("it is there");
    let item = work.lists[from].remove(place);
    work.lists[from + 1].push(item);
    assert!(judge(&moved).refutations.iter().any(|r| r.obligation == Obligation::Bounds));
}

/// A product that normalizes its rows waits for all of them, as any product does.
#[test]
fn layers_whose_products_normalize_their_rows_are_proved() {
    let norm = |gain: &str| format!("input_norm: InputNorm(gain: {gain:?}, epsilon: 1e-5)");
    let source = |batch: u32| {
        format!(
            r#"Pipeline(name: "layer", dims: {{ "B": {batch}, "S": 1024, "E": 8192, "I": 1200 }}, stages: [
                Gemm(name: "qkv", a: "X(B,E)", b: "Wqkv(E,1536)", {}, out: "QKV(B,1536)"),
                Attention(name: "attend", qkv: "QKV(B,1536)", heads: 8, kv_heads: 2,
                    cache: Cache(keys: "K(B,2,S,128)", values: "V(B,2,S,128)", lengths: "n(B)"), out: "A(B,1024)"),
                Gemm(name: "project", a: "A(B,1024)", b: "Wo(1024,E)", residual: "X(B,E)", out: "H(B,E)"),
                GatedGemm(name: "gate_up", a: "H(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", {}, out: "Y(B,I)"),
                Gemm(name: "down", a: "Y(B,I)", b: "Wd(I,E)", residual: "H(B,E)", out: "Z(B,E)"),
            ])"#,
            norm("g1(E)"),
            norm("g2(E)")
        )
    };
    for batch in [1, 5, 32] {
        let c = planned(&source(batch));
        assert_eq!(judge(&c).refutations, [], "{batch}");
        // A worker of a pair has half of a row's squares.
        assert!((0..5).all(|s| !is_in_pairs(&c.graph, &c.graph.stages[s], c.device.sms)), "{batch}");
        let of_rows = edge(&c, 3, OperandKind::A);
        let early = each(&c, |stage, tile, event| match event {
            Event::Wait { edge, slot: 9, .. } if (stage, edge, tile.n) == (3, of_rows, 7) => None,
            other => Some(other),
        });
        only(&early, Obligation::Cover, &["share 7 of gate_up", "may read `H` before share"]);
    }
}

/// Changes the events of the warps that load the worker's own half of a share's k-tiles, or the other half. The warps
/// of the share's own worker come first, followed by the same number of warps of the other worker.
fn of_half(events: Vec<Event>, others: bool, change: impl Fn(Event) -> Option<Event>) -> Vec<Event> {
    let warps = events.iter().filter(|event| matches!(event, Event::Warp { .. })).count() as u32;
    let (mut here, mut changed) = (false, Vec::new());
    for event in events {
        match &event {
            Event::Warp { warp } => here = (*warp >= warps / 2) == others,
            Event::Wait { .. } | Event::Load { .. } => {}
            _ => here = false,
        }
        changed.extend(if here { change(event) } else { Some(event) });
    }
    changed
}

#[test]
fn half_of_what_a_pair_of_workers_awaits_is_not_enough() {
    let c = planned(&layer(32, "RmsNorm", 8192));
    assert_eq!(judge(&c).refutations, []);
    let paired: Vec<usize> =
        (0..7).filter(|s| is_in_pairs(&c.graph, &c.graph.stages[*s], c.device.sms)).collect();
    assert_eq!(paired, [1], "QKV has 128 k-tiles and 1536 columns");
    // For one share or for all: the waits of one worker's warps for the norm's rows.
    for (others, everywhere) in [(true, true), (true, false), (false, true), (false, false)] {
        let is = |stage: StageId, tile: Tile| stage.0 == 1 && (everywhere || tile.n == 7);
        let early = mutated(&c, |stage, tile, _, events| {
            let wait = |event| (!matches!(event, Event::Wait { .. })).then_some(event);
            if is(stage, tile) { of_half(events, others, wait) } else { events }
        });
        let share = format!("share {} of qkv", if everywhere { 0 } else { 7 });
        only(&early, Obligation::Cover, &[&share, "may read `N1` before first(0, 0)"]);
        let lost = mutated(&c, |stage, tile, _, events| {
            let load = |event| (!matches!(event, Event::Load { .. })).then_some(event);
            if is(stage, tile) { of_half(events, others, load) } else { events }
        });
        only(&lost, Obligation::Order, &[&share, "never loads k-block"]);
    }
    // Mutate the wait of share 7 for share 6: no wait, another pair's sums, its own sums, or a wait that comes after
    // the store.
    let slab = |n: u32| c.device.sms + n;
    let report = |change: &dyn Fn(Vec<Event>) -> Vec<Event>| {
        mutated(
            &c,
            |stage, tile, _, events| if (stage.0, tile.n) == (1, 7) { change(events) } else { events },
        )
    };
    let instead = |to: u32| {
        report(&|events| {
            let other = |e| if e == (Event::Await { slab: slab(6) }) { Event::Await { slab: to } } else { e };
            events.into_iter().map(other).collect()
        })
    };
    let never = report(&|events| events.into_iter().filter(|e| !matches!(e, Event::Await { .. })).collect());
    let late = report(&|mut events| {
        let at = events.iter().position(|e| matches!(e, Event::Await { .. })).expect("it awaits");
        let wait = events.remove(at);
        events.push(wait);
        events
    });
    for unawaited in [never, instead(slab(8)), instead(slab(7)), late] {
        let says = ["share 7 of qkv", "may be stored without the sums of share 6 of qkv", "in slab 138"];
        only(&unawaited, Obligation::Cover, &says);
    }
    // A share contributes nothing, or writes to another pair's slab: the consumer hangs or gets the wrong sums.
    let silent =
        report(&|events| events.into_iter().filter(|e| !matches!(e, Event::Contribute { .. })).collect());
    assert!(silent.refutations.iter().any(|r| r.obligation == Obligation::Cover), "{silent:#?}");
    let twice = report(&|events| {
        let elsewhere =
            |e| if matches!(e, Event::Contribute { .. }) { Event::Contribute { slab: slab(9) } } else { e };
        events.into_iter().map(elsewhere).collect()
    });
    assert!(twice.refutations.iter().any(|r| r.obligation == Obligation::Cover), "{twice:#?}");
    // Both wait before they contribute anything.
    let stuck = mutated(&c, |stage, _, _, mut events| {
        let at = events.iter().position(|e| matches!(e, Event::Contribute { .. }));
        if let Some(at) = at.filter(|_| stage.0 == 1) {
            events.swap(at, at + 1);
        }
        events
    });
    only(&stuck, Obligation::Progress, &["share", "qkv"]);
}

/// A random change to one event of one share of a pair: lost or moved, or all waits of one of its warps lost or too
/// small.
#[test]
fn no_event_of_a_pair_of_workers_is_one_too_many() {
    let c = planned(&layer(32, "RmsNorm", 8192));
    let (qkv, sms) = (StageId(1), c.device.sms);
    let mut rng = SmallRng::seed_from_u64(12);
    let mut drawn = [0; 4];
    for round in 0..64 {
        let share = rng.random_range(0..c.graph.stages[qkv.0].tiles());
        let elsewhere = sms + (share + rng.random_range(2..sms - 2)) % sms;
        let (lot, kind, lose) = (rng.random_range(0..usize::MAX), round % 4, rng.random_bool(0.5));
        let report = mutated(&c, |stage, tile, _, mut events| {
            if (stage, tile.n) != (qkv, share) {
                return events;
            }
            let of_kind = |event: &Event| match event {
                Event::Warp { .. } => kind == 0,
                Event::Load { .. } => kind == 1,
                Event::Await { .. } => kind == 2,
                Event::Contribute { .. } => kind == 3,
                _ => false,
            };
            let places: Vec<usize> = (0..events.len()).filter(|i| of_kind(&events[*i])).collect();
            let at = places[lot % places.len()];
            match &mut events[at] {
                Event::Warp { .. } => {
                    let loads = |event: &Event| matches!(event, Event::Wait { .. } | Event::Load { .. });
                    let end =
                        events[at + 1..].iter().position(|e| !loads(e)).map_or(events.len(), |n| at + 1 + n);
                    let of_warp = events.splice(at + 1..end, []).collect::<Vec<_>>();
                    let changed = of_warp.into_iter().filter_map(|event| match event {
                        Event::Wait { .. } if lose => None,
                        Event::Wait { edge, slot, value } => {
                            Some(Event::Wait { edge, slot, value: value - 1 })
                        }
                        other => Some(other),
                    });
                    let changed: Vec<Event> = changed.collect();
                    events.splice(at + 1..at + 1, changed);
                }
                Event::Await { slab } | Event::Contribute { slab } if !lose => *slab = elsewhere,
                _ => drop(events.remove(at)),
            }
            events
        });
        drawn[kind] += 1;
        assert!(!report.refutations.is_empty(), "share {share}, kind {kind}, lot {lot}, lost {lose}");
    }
    assert_eq!(drawn, [16; 4]);
}

#[test]
fn a_head_or_the_new_token_unawaited_is_refuted() {
    let c = sound();
    // Drop the load of a 64-column tile of queries, keys or values (half a head), in one tile or in all.
    for (kind, first) in [(OperandKind::Query, 5), (OperandKind::Key, 17), (OperandKind::Value, 20)] {
        let read = edge(&c, ATTEND, kind);
        for everywhere in [true, false] {
            let report = each(&c, |stage, tile, event| match event {
                Event::Wait { edge, slot, .. }
                    if (stage, edge, slot) == (ATTEND, read, first) && (everywhere || tile.m == 3) =>
                {
                    None
                }
                other => Some(other),
            });
            let sequence = if everywhere { 0 } else { 3 };
            let reader = format!("attend({sequence}, ");
            only(&report, Obligation::Cover, &[&reader, "may read `QKV` before share"]);
        }
    }
    // Load the keys of another head.
    let keys = edge(&c, ATTEND, OperandKind::Key);
    let other = each(&c, |stage, _, event| match event {
        Event::Wait { edge, slot, value } if (stage, edge) == (ATTEND, keys) => {
            Some(Event::Wait { edge, slot: if slot < 18 { slot + 2 } else { slot }, value })
        }
        other => Some(other),
    });
    assert!(other.refutations.iter().any(|r| r.obligation == Obligation::Cover), "{other:#?}");
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
    let fewer = each(&c, |stage, _, event| match event {
        Event::Wait { edge, slot, value } if (stage, edge) == (PROJECT, outputs) => {
            Some(Event::Wait { edge, slot, value: value - 1 })
        }
        other => Some(other),
    });
    assert!(fewer.refutations.iter().any(|r| r.obligation == Obligation::Count), "{fewer:#?}");
    let more = each(&c, |stage, _, event| match event {
        Event::Wait { edge, slot, value } if (stage, edge) == (PROJECT, outputs) => {
            Some(Event::Wait { edge, slot, value: value + 1 })
        }
        other => Some(other),
    });
    only(&more, Obligation::Count, &["waits for 6 posts to slot 0", "which gets 5 a run", "never ends"]);
    let head = each(&c, |stage, _, event| match event {
        Event::Wait { edge, slot: 1, .. } if (stage, edge) == (PROJECT, outputs) => None,
        other => Some(other),
    });
    only(&head, Obligation::Cover, &["of project may read `A` before attend(0, 1) has written it"]);
    // Columns 64 to 127 are of two heads of 96.
    let c = planned(&source(5, (4, 4, 96), ""));
    for head in 0..2 {
        let early = each(&c, |stage, tile, event| match event {
            Event::Wait { edge, slot, .. }
                if (stage, edge, slot) == (PROJECT, outputs, head) && tile.n == 7 =>
            {
                None
            }
            other => Some(other),
        });
        let before = format!("of project may read `A` before attend(0, {head}) has written it");
        only(&early, Obligation::Cover, &[&before]);
    }
    let c = sound();
    // A tile that posts nothing, posts twice, or posts to another head: the law of the shares forbids all three.
    let silent =
        slots(&c, |edge, tile, slot| (edge != outputs || tile != Tile { m: 2, n: 1 }).then_some(slot));
    assert!(silent.refutations.iter().any(|r| r.obligation == Obligation::Count), "{silent:#?}");
    let elsewhere = slots(&c, |edge, tile, slot| Some(if edge == outputs && tile.m == 2 { 0 } else { slot }));
    assert!(elsewhere.refutations.iter().any(|r| r.obligation == Obligation::Count), "{elsewhere:#?}");
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
        let cover = report.refutations.iter().find(|r| r.obligation == Obligation::Cover).expect("refuted");
        assert!(cover.to_string().contains("of project may read `A` before attend(0, 0)"), "{cover}");
    }
}

#[test]
fn what_lives_on_between_runs_is_read_behind_the_run_before() {
    let with = |change: &dyn Fn(&mut CacheContract)| {
        let mut c = sound();
        change(&mut c.contract.cache);
        judge(&c)
    };
    let early = with(&|cache| cache.reads_wait = false);
    only(
        &early,
        Obligation::Visible,
        &[
            "may read the last row of `K` before the run before it has appended",
            "streams the cache without waiting",
        ],
    );
    let baked = with(&|cache| cache.lengths_each_run = false);
    only(
        &baked,
        Obligation::Replay,
        &["the lengths of `attend` are fixed when a graph is captured", "same rows of `K`"],
    );
    let read_back = with(&|cache| cache.new_from_run = false);
    only(
        &read_back,
        Obligation::Reuse,
        &["`attend` may read the row of `K` that it appends before it is there"],
    );
    let part = with(&|cache| cache.parts_ordered = false);
    only(&part, Obligation::Visible, &["may add a part that is not there yet"]);
    let counted = with(&|cache| cache.parts_recounted = false);
    only(&counted, Obligation::Replay, &["counted on from run to run"]);
    // If runs do not overlap, the last row is available.
    let mut c = sound();
    (c.contract.overlap, c.contract.cache.reads_wait) = (false, false);
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn a_cache_belongs_to_one_stage() {
    let tensor = |c: &Candidate, name: &str| {
        TensorId(c.graph.tensors.iter().position(|t| t.name == name).expect("it is there"))
    };
    // The projection adds the keys, or the values are the keys; other checks handle shapes.
    let mut c = sound();
    let keys = tensor(&c, "K");
    let at = c.graph.stages[ATTEND]
        .operands
        .iter()
        .position(|o| o.kind == OperandKind::CachedValues)
        .expect("it has");
    c.graph.stages[ATTEND].operands[at].tensor = keys;
    only(&judge(&c), Obligation::Reuse, &["`attend` may read `K` while `attend` appends to it"]);
    let mut c = sound();
    let (keys, shape) = (tensor(&c, "K"), tensor(&c, "X"));
    (c.graph.tensors[keys.0].rows, c.graph.tensors[keys.0].cols) =
        (c.graph.tensors[shape.0].rows, c.graph.tensors[shape.0].cols);
    let at = c.graph.stages[PROJECT]
        .operands
        .iter()
        .position(|o| o.kind == OperandKind::Residual)
        .expect("it has");
    c.graph.stages[PROJECT].operands[at].tensor = keys;
    let report = judge(&c);
    let reuse = report.refutations.iter().find(|r| r.obligation == Obligation::Reuse).expect("refuted");
    assert!(reuse.to_string().contains("`project` may read `K` while `attend` appends to it"), "{reuse}");
}

#[test]
fn chains_that_no_decode_kernel_attends_in() {
    let why = |source: &str| {
        let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[])).expect("valid");
        let decode = choose::decode(&resolved, Profile::named("h200").expect("shipped"));
        decode.err().map(|d| d.message).unwrap_or_default()
    };
    assert!(why(&source(33, (8, 2, 128), "")).contains("`qkv` has 33 rows; a decode kernel takes 32"));
    let [narrow, many, wide] = [(4, 2, 72), (9, 1, 64), (8, 1, 256)].map(|heads| why(&source(3, heads, "")));
    assert!(
        narrow.contains("heads of 72 columns, and decode kernels have 64, 80, 96, 128 or 256"),
        "{narrow}"
    );
    assert!(
        many.contains("9 query heads of 64 columns per head of the cache; a decode kernel takes 8"),
        "{many}"
    );
    assert!(
        wide.contains("8 query heads of 256 columns per head of the cache; a decode kernel takes 4"),
        "{wide}"
    );
    let two = |second: &str| {
        format!(
            r#"Pipeline(name: "two", dims: {{ "B": 3, "S": 256, "E": 512 }}, stages: [
            Gemm(name: "qkv", a: "X(B,E)", b: "W1(E,768)", out: "QKV(B,768)"),
            Attention(name: "attend", qkv: "QKV(B,768)", heads: 4, cache: Cache(keys: "K1(B,4,S,64)", values: "V1(B,4,S,64)", lengths: "n(B)"), out: "A(B,256)"),
            Attention(name: "again", {second}),
        ])"#
        )
    };
    let other = two(
        r#"qkv: "QKV2(B,768)", heads: 4, cache: Cache(keys: "K2(B,4,S,64)", values: "V2(B,4,S,64)", lengths: "n2(B)"), out: "A2(B,256)""#,
    );
    assert!(why(&other).contains(
        "`again` has other lengths, or another capacity or number of heads of keys and values, than `attend`"
    ));
    let longer = two(
        r#"qkv: "QKV2(B,768)", heads: 4, cache: Cache(keys: "K2(B,4,2*S,64)", values: "V2(B,4,2*S,64)", lengths: "n(B)"), out: "A2(B,256)""#,
    );
    assert!(why(&longer).contains(
        "`again` has other lengths, or another capacity or number of heads of keys and values, than `attend`"
    ));
    let nested = two(
        r#"qkv: "A(B,256)", heads: 2, kv_heads: 1, cache: Cache(keys: "K2(B,1,S,64)", values: "V2(B,1,S,64)", lengths: "n(B)"), out: "A2(B,128)""#,
    );
    assert!(
        why(&nested).contains("`again` attends to the output of `attend`, which is not a matrix product")
    );
    let many = |count: u32| {
        let block = |i: u32| {
            let shape =
                r#"heads: 4, cache: Cache(keys: "K@(B,4,S,64)", values: "V@(B,4,S,64)", lengths: "n(B)")"#;
            format!(
                r#"Gemm(name: "qkv@", a: "A{i}(B,256)", b: "W@(256,768)", out: "QKV@(B,768)"),
                Attention(name: "attend@", qkv: "QKV@(B,768)", {shape}, out: "A@(B,256)"),"#
            )
            .replace('@', &(i + 1).to_string())
        };
        let blocks: String = (0..count).map(block).collect();
        format!(r#"Pipeline(name: "many", dims: {{ "B": 3, "S": 256 }}, stages: [{blocks}])"#)
    };
    assert_eq!(why(&many(16)), "");
    assert!(why(&many(17)).contains("17 attentions; a decode kernel takes 16"));
    // Rows made by other workers may be added only if they are also operand A, and therefore waited for.
    let after = |residual: &str| layer(3, "RmsNorm", 1024).replace(r#"residual: "H(B,E)""#, residual);
    let normalised = r#"residual: "N2(B,E)""#;
    assert!(why(&after(normalised)).contains("`down` adds rows of `second`, which other workers make"));
    let own = layer(3, "RmsNorm", 1024)
        .replace(
            r#"GatedGemm(name: "gate_up", a: "N2(B,E)", gate: "Wg(E,I)", up: "Wu(E,I)", out: "Y(B,I)")"#,
            r#"Gemm(name: "up", a: "N2(B,E)", b: "Wu(E,E)", residual: "N2(B,E)", out: "Y(B,E)")"#,
        )
        .replace(r#"a: "Y(B,I)", b: "Wd(I,E)""#, r#"a: "Y(B,E)", b: "Wd(E,E)""#);
    assert_eq!(judge(&planned(&own)).refutations, []);
    let wide = layer(3, "RmsNorm", 16392);
    assert!(why(&wide).contains("`first` normalises rows of 16392 elements; a decode kernel takes 16384"));
    let prompt = two(r#"qkv: "QKV2(B,768)", heads: 4, out: "A2(B,256)""#);
    assert!(why(&prompt).contains("`again` is Attention"));
    let long = source(32, (8, 8, 64), "").replace(r#""S": 1024"#, r#""S": 1048576"#);
    let large = Profile { sms: 1024, ..Profile::named("h200").expect("shipped").clone() };
    let resolved = spec::parse(&long, "test").and_then(|s| s.resolve(&[])).expect("valid");
    let refused = choose::decode(&resolved, &large).err().map(|d| d.message).unwrap_or_default();
    assert!(refused.contains("`attend` has 4194560 pages' worth of tokens"), "{refused}");
}
