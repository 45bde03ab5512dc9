//! Decode plans: sound plans are proved, mutants are refuted for the right reason.

use crate::changed::{each, mutated, only, posting};
use cusync_gen::check::{
    Candidate, EpochSource, Event, Executor, Generated, How, Launch, Obligation, StoreCompletion,
    TileProgram, check, judge, judge_program,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Resolved, StageId, share_begin};
use cusync_gen::schedule::decode::{COLUMN_TILE, Decode, rounds_in};
use cusync_gen::sync::Tile;

const GPT3: &str = include_str!("../../../policies/gpt3_mlp.ron");
const LLAMA: &str = include_str!("../../../policies/llama65_mlp.ron");
const LLAMA3: &str = include_str!("../../../policies/llama3_70b_mlp.ron");

fn resolved(source: &str, m: u64) -> Resolved {
    cusync_gen::spec::parse(source, "spec").and_then(|s| s.resolve(&[("M".into(), m)])).expect("a sound spec")
}

fn h200() -> &'static Profile {
    Profile::named("h200").expect("shipped")
}

/// 132 CTAs; the first stage's 2752 columns make 43 column tiles, with shares of 20 or 21.
fn sound() -> Candidate {
    choose::decode(&resolved(LLAMA, 8), h200()).expect("a decode plan")
}

fn edit(change: impl FnOnce(&mut Decode)) -> Candidate {
    let mut c = sound();
    change(c.launch.shares_mut().expect("a plan"));
    c
}

#[track_caller]
fn refuted(c: &Candidate, obligation: Obligation, says: &[&str]) {
    only(&judge(c), obligation, says);
}

#[test]
fn sound_plans_are_proved() {
    for source in [GPT3, LLAMA, LLAMA3] {
        for m in [1, 8, 16, 37, 64] {
            let c = choose::decode(&resolved(source, m), h200()).expect("a decode plan");
            assert_eq!(judge(&c).refutations, [], "M = {m}");
            let mut posts = vec![0; c.slot_counts()[0] as usize];
            let program = Generated::new(&c);
            (0..132)
                .for_each(|n| program.posts(0, Tile { m: 0, n }, &mut |slot, p| posts[slot as usize] += p));
            let plan = check(c).expect("proved");
            let decode = plan.launch().shares().expect("carried");
            assert!(plan.launch().lists().is_none() && plan.executor() == Executor::Fused);
            assert_eq!(decode.workers(), 132);
            let tiles = |s: usize| plan.graph().stages[s].n.div_ceil(COLUMN_TILE);
            assert_eq!(plan.slot_count(), tiles(0));
            assert!(decode.width >= m as u32 && (decode.width < 2 * m as u32 || decode.width == 8));
            // Each column tile has its owners' posts; nothing waits for the last stage.
            assert_eq!(posts.len() as u32, tiles(0));
            assert!(posts.iter().all(|posts| (2..=5).contains(posts)));
            assert!(plan.edges().iter().all(|e| e.dependence().producer == StageId(0)));
        }
    }
}

#[test]
fn shares_are_equal() {
    for (columns, workers) in [(2752, 132), (12288, 132), (7, 132), (1, 1)] {
        let lengths: Vec<u32> = (0..workers)
            .map(|c| share_begin(columns, workers, c + 1) - share_begin(columns, workers, c))
            .collect();
        let (least, most) = (lengths.iter().min(), lengths.iter().max());
        assert_eq!(lengths.iter().sum::<u32>(), columns);
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
    }
}

#[test]
fn chains_without_a_decode_plan() {
    let why = |source: &str, m| choose::decode(&resolved(source, m), h200()).expect_err("none").message;
    assert!(why(GPT3, 65).contains("`up` has 65 rows; a decode kernel takes 64"));
    // 256 columns for each of 132 CTAs per round: 12 rounds, then 13.
    let wide = |columns: &str| GPT3.replace("\"I\": 6144", &format!("\"I\": {columns}"));
    assert!(choose::decode(&resolved(&wide("405504"), 64), h200()).is_ok());
    assert!(why(&wide("405512"), 64).contains("`up` is made of 1716 parts; a decode kernel takes 1625"));
    assert!(
        why(include_str!("../../../policies/chain3.ron"), 8).contains("tiles, orders or policies are stated")
    );
    let product = r#"Pipeline(name: "b", dims: { "M": 8 }, stages: [
        Gemm(name: "right", a: "X(M,64)", b: "W(64,64)", out: "R(M,64)"),
        Gemm(name: "join", a: "L(M,M)", b: "R(M,64)", out: "Z(M,64)"),
    ])"#;
    assert!(why(product, 64).contains("`join` has a weight or a bias that a stage writes"));
    let a100 = Profile::named("a100").expect("shipped");
    assert!(choose::decode(&resolved(GPT3, 8), a100).is_err());
    // The check does not depend on the choice.
    let mut c = sound();
    c.graph.stages.iter_mut().for_each(|s| s.m = 65);
    c.graph.tensors.iter_mut().filter(|t| t.producer.is_some()).for_each(|t| t.rows = 65);
    refuted(&c, Obligation::Bounds, &["no decode kernel runs this chain: stage `gate_up` has 65 rows"]);
    let mut c = sound();
    c.device = a100.clone();
    refuted(&c, Obligation::Bounds, &["decode kernels are for sm_90a, and a100 is sm_80"]);
}

#[test]
fn plans_that_the_kernel_would_not_follow() {
    let c = edit(|d| {
        d.work.sequence.truncate(132);
        d.work.lists.iter_mut().for_each(|list| list.truncate(1));
    });
    refuted(&c, Obligation::Order, &["no item computes share 0 of down"]);
    let c = edit(|d| {
        let (third, fourth) = (d.work.lists[3][1], d.work.lists[4][1]);
        (d.work.lists[3][1], d.work.lists[4][1]) = (fourth, third);
    });
    refuted(&c, Obligation::Bounds, &["worker 3 has other work than share 3 of each stage in turn"]);
    let c = edit(|d| d.work.lists[131].reverse());
    refuted(&c, Obligation::Bounds, &["worker 131 has other work than share 131 of each stage in turn"]);
    let c = edit(|d| d.work.lists.push(Vec::new()));
    refuted(&c, Obligation::Bounds, &["`gate_up` is cut into 132 shares for 133 workers"]);
    let c = edit(|d| d.work.cluster = (2, 1));
    refuted(&c, Obligation::Bounds, &["single CTAs that follow lists of whole shares"]);
    let c = edit(|d| d.width = 16);
    refuted(&c, Obligation::Bounds, &["`gate_up` has 8 rows, and the kernel is for 16"]);
    let mut c = sound();
    c.graph = c.graph.in_even_shares(|_| 131);
    refuted(&c, Obligation::Bounds, &["item 0 of worker 131", "is outside the grid of 1 x 131"]);
    let mut c = sound();
    c.graph.stages[1].mma_tile.2 = 32;
    refuted(
        &c,
        Obligation::Bounds,
        &["`down` has k-blocks of 32 in 1 slices; those of a decode kernel are 64"],
    );
    let mut c = sound();
    (c.graph.dependences, c.edges) = (Vec::new(), Vec::new());
    refuted(&c, Obligation::Cover, &["`down` reads", "which `gate_up` writes, and no dependence says so"]);
    // No other kernel computes shares.
    let mut c = sound();
    c.launch = Launch::stages(&c.graph, How::Programmatic);
    refuted(
        &c,
        Obligation::Bounds,
        &["`gate_up` is cut into even shares, and only a decode kernel computes those"],
    );
    let mut c = sound();
    c.graph = resolved(LLAMA, 8).graph(&[(64, 128, 64); 2]).expect("small");
    refuted(&c, Obligation::Bounds, &["`gate_up` is not cut into even shares"]);
}

/// Shares with more rows than a worker has registers for: the same worker handles consecutive parts, one round each.
#[test]
fn wide_stages_are_done_in_rounds() {
    let source = r#"Pipeline(name: "wide", dims: { "M": 8, "I": 18944 }, stages: [
        GatedGemm(name: "gate_up", a: "X(M,512)", gate: "G(512,I)", up: "U(512,I)", out: "Y(M,I)"),
        Gemm(name: "down", a: "Y(M,I)", b: "D(I,512)", residual: "X(M,512)", out: "Z(M,512)"),
        Gemm(name: "head", a: "Z(M,512)", b: "H(512,101000)", out: "L(M,101000)"),
    ])"#;
    let c = choose::decode(&resolved(source, 8), h200()).expect("a decode plan");
    assert_eq!(judge(&c).refutations, []);
    let rounds: Vec<u32> = c.graph.stages.iter().map(|stage| rounds_in(stage, 132)).collect();
    assert_eq!(rounds, [2, 1, 3]);
    let work = &c.launch.shares().expect("a plan").work;
    let seventh: Vec<_> = work.lists[7].iter().map(|i| work.sequence[*i as usize]).collect();
    let parts: Vec<_> = seventh.iter().map(|item| (item.stage.0, item.n)).collect();
    assert_eq!(parts, [(0, 14), (0, 15), (1, 7), (2, 21), (2, 22), (2, 23)]);
    // The columns of slot 1 are in two parts of one worker.
    let short = each(&c, |_, _, e| match e {
        Event::Wait { edge, slot: 1, value } => Some(Event::Wait { edge, slot: 1, value: value - 1 }),
        other => Some(other),
    });
    let [cover, count] = &short.refutations[..] else { panic!("{:?}", short.refutations) };
    assert_eq!(cover.obligation, Obligation::Cover);
    let says = ["waits for 1 posts to slot 1 of gate_up -> down", "which gets 2"];
    assert!(says.iter().all(|part| count.to_string().contains(part)), "{count}");
    let mut swapped = c.clone();
    swapped.launch.shares_mut().expect("a plan").work.lists[7].swap(0, 1);
    refuted(&swapped, Obligation::Bounds, &["worker 7 has other work than share 7 of each stage in turn"]);
}

/// One stage with two consumers, plus residuals: one from an input and one from an earlier stage.
fn residuals() -> Candidate {
    let source = r#"Pipeline(name: "r", dims: { "M": 8, "H": 2048, "I": 1024 }, stages: [
        Gemm(name: "one", a: "X(M,H)", b: "W1(H,H)", bias: "b1(H)", residual: "X(M,H)", out: "P(M,H)"),
        Gemm(name: "two", a: "P(M,H)", b: "W2(H,I)", out: "Q(M,I)", epilogue: Gelu),
        Gemm(name: "three", a: "Q(M,I)", b: "W3(I,H)", residual: "P(M,H)", out: "R(M,H)"),
    ])"#;
    choose::decode(&resolved(source, 8), h200()).expect("a decode plan")
}

/// A residual that no main loop reads, so that nothing announces it, and a stage that waits for nothing else.
fn unannounced() -> Candidate {
    let source = r#"Pipeline(name: "r", dims: { "M": 8, "H": 2048 }, stages: [
        Gemm(name: "one", a: "X(M,H)", b: "W1(H,H)", out: "P(M,H)"),
        Gemm(name: "two", a: "X(M,H)", b: "W2(H,H)", residual: "P(M,H)", out: "R(M,H)"),
    ])"#;
    choose::decode(&resolved(source, 8), h200()).expect("a decode plan")
}

#[test]
fn a_residual_is_the_ctas_own_work() {
    for c in [residuals(), unannounced()] {
        assert_eq!(judge(&c).refutations, []);
    }
    // If an earlier item on the same worker has waited for the whole stage, the epilogue may read other workers'
    // output.
    let swapped = |mut c: Candidate, stage: usize| {
        let lists = &mut c.launch.shares_mut().expect("a plan").work.lists;
        let (seventh, eighth) = (lists[7][stage], lists[8][stage]);
        (lists[7][stage], lists[8][stage]) = (eighth, seventh);
        judge_program(&c, &Generated::new(&c))
    };
    assert_eq!(swapped(residuals(), 2).refutations, []);
    let says = ["share 7 of two may read `P` before share 7 of one has written it", "item 1 of worker 8"];
    only(&swapped(unannounced(), 1), Obligation::Cover, &says);
    let c = unannounced();
    let residual = 2;
    // One column more than its own columns.
    let stage = c.graph.stages[1].clone();
    let other = each(&c, |s, Tile { n: worker, .. }, e| match e {
        Event::Load { operand, k_block } if s == 1 && operand == residual => {
            let (rows, cols) = stage.writes(Tile { m: 0, n: worker });
            Some(Event::Multicast { operand, k_block, rows, cols: cols.start..(cols.end + 1).min(2048) })
        }
        other => Some(other),
    });
    let says = ["share 0 of two may read `P` before share 1 of one has written it", "item 1 of worker 0"];
    only(&other, Obligation::Cover, &says);
    // There is no wait that could see old values or be satisfied by the previous run.
    let mut c = unannounced();
    (c.contract.wait_acquires, c.contract.epoch) = (false, EpochSource::LaunchParameter);
    assert_eq!(judge(&c).refutations, []);
    // Data written by bulk stores is not known to be visible.
    let mut c = unannounced();
    c.contract.stores = StoreCompletion::BulkWait;
    refuted(&c, Obligation::Cover, &["share 0 of two may read `P` before share 0 of one has written it"]);
}

#[test]
fn a_share_that_is_stored_twice_or_never() {
    let twice = edit(|d| d.work.lists[4].push(132 + 5));
    refuted(&twice, Obligation::Order, &["share 5 of down, is also item 2 of worker 4"]);
    let lost = edit(|d| d.work.lists[131].truncate(1));
    refuted(&lost, Obligation::Order, &["share 131 of down, is in no worker's list"]);
    let again = edit(|d| {
        let share = d.work.sequence[132 + 5];
        d.work.lists[4].push(d.work.sequence.len() as u32);
        d.work.sequence.push(share);
    });
    refuted(&again, Obligation::Order, &["share 5 of down, computes again k-blocks 0..43"]);
}

#[test]
fn a_k_block_that_is_brought_twice_or_never() {
    let c = sound();
    let loads = |worker, k| {
        move |stage, w, e: &Event| {
            (stage, w) == (1, worker) && matches!(e, Event::Load { k_block, .. } if *k_block == k)
        }
    };
    let skipped = loads(9, 17);
    let lost = each(&c, |stage, Tile { n: worker, .. }, e| (!skipped(stage, worker, &e)).then_some(e));
    only(&lost, Obligation::Order, &["share 9 of down (item 1 of worker 9) never loads k-block 17 of"]);
    let repeated = loads(131, 42);
    let twice = mutated(&c, |StageId(stage), Tile { n: worker, .. }, _, events| {
        let again = events.iter().find(|e| repeated(stage, worker, e)).cloned();
        events.into_iter().chain(again).collect()
    });
    let found: Vec<_> = twice.refutations.iter().map(|r| r.obligation).collect();
    // The fourth warp loads it last and has not waited for that k-block.
    assert!(found.starts_with(&[Obligation::Order]), "{found:?}");
    let says = "share 131 of down (item 1 of worker 131) loads k-block 42 of";
    assert!(twice.refutations[0].message.contains(says), "{}", twice.refutations[0]);
}

#[test]
fn a_post_that_is_missing() {
    // A share that touches two column tiles posts only the first.
    let report = posting(&sound(), |_, _, posts| posts.into_iter().take(1).collect());
    // k-tile 4 is loaded by a warp that never checks slot 3, the slot that CTA 12 does post.
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [Obligation::Cover, Obligation::Count]);
    let text = report.refutations[0].to_string();
    let says =
        ["before share 12 of gate_up has written it", "at k-block 4", "columns 256..320", "it posts slot 3,"];
    says.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
    assert!(report.refutations[1].message.contains("which gets 3 a run"));
}

/// The column tiles that a CTA's share of the first stage touches.
fn c_slots(cta: u32) -> (u32, Option<u32>) {
    let (from, to) = (share_begin(2752, 132, cta), share_begin(2752, 132, cta + 1));
    let (first, last) = (from / COLUMN_TILE, (to - 1) / COLUMN_TILE);
    (first, (last > first).then_some(last))
}

#[test]
fn a_wait_value_that_forgets_the_shares_at_the_edges() {
    // A 64-column tile holds three whole shares of 20 or 21, and parts of others.
    let waiting_for = |c: &Candidate, change: fn(u32, u32) -> u32| {
        each(c, |_, _, e| match e {
            Event::Wait { edge, slot, value } => Some(Event::Wait { edge, slot, value: change(slot, value) }),
            other => Some(other),
        })
    };
    let report = waiting_for(&sound(), |_, _| 3);
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [Obligation::Cover, Obligation::Count]);
    let text = report.refutations[1].to_string();
    let says = [
        "share 0 of down (item 1 of worker 0) waits for 3 posts to slot 0 of gate_up -> down",
        "which gets 4",
    ];
    says.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
    let late = waiting_for(&sound(), |_, value| value + 1);
    only(&late, Obligation::Count, &["posts to slot 0", "the wait never ends"]);
    let one = waiting_for(&sound(), |slot, value| value + u32::from(slot == 7));
    only(&one, Obligation::Count, &["posts to slot 7", "the wait never ends"]);
}

#[test]
fn a_k_tile_loaded_before_its_wait() {
    let c = sound();
    let late = mutated(&c, |_, _, _, mut events| {
        // Swap each load with the wait before it.
        for at in 1..events.len() {
            if matches!((&events[at - 1], &events[at]), (Event::Wait { .. }, Event::Load { .. })) {
                events.swap(at - 1, at);
            }
        }
        events
    });
    let says = ["share 0 of down may read", "before share 0 of gate_up has written it", "at k-block 0"];
    only(&late, Obligation::Cover, &says);
    // Loads of 128 columns after a wait for 64.
    let wide = each(&c, |_, _, e| match e {
        Event::Load { operand, k_block } => {
            let cols = k_block * COLUMN_TILE..((k_block + 2) * COLUMN_TILE).min(2752);
            Some(Event::Multicast { operand, k_block, rows: 0..8, cols })
        }
        other => Some(other),
    });
    let says =
        ["at k-block 0", "columns 0..128", "before share 4 of gate_up has written it", "columns 83..104"];
    only(&wide, Obligation::Cover, &says);
    let unguarded = each(&c, |_, Tile { n: worker, .. }, e| {
        let dropped = worker == 7 && matches!(e, Event::Wait { slot: 42, .. });
        (!dropped).then_some(e)
    });
    let says =
        ["share 7 of down may read", "at k-block 42", "columns 2688..2752", "is of item 1 of worker 7"];
    only(&unguarded, Obligation::Cover, &says);
    // A wait in another warp protects nothing.
    let elsewhere = mutated(&c, |_, _, _, mut events| {
        if let Some(at) = events.iter().position(|e| matches!(e, Event::Wait { slot: 5, .. })) {
            let wait = events.remove(at);
            let other = if at < events.len() / 2 { events.len() - 1 } else { 1 };
            events.insert(other, wait);
        }
        events
    });
    only(&elsewhere, Obligation::Cover, &["at k-block 5", "it posts slot"]);
}

#[test]
fn a_post_before_the_store() {
    let mut c = sound();
    c.contract.post_releases = false;
    let says = ["a post is no release", "the stores before it may become visible after it"];
    refuted(&c, Obligation::Visible, &says);
}

#[test]
fn ctas_that_are_not_resident() {
    let mut c = sound();
    c.device.sms = 131;
    refuted(&c, Obligation::Progress, &["132 workers, of which 131 are resident at once"]);
}

#[test]
fn a_cta_that_waits_for_itself() {
    let c = sound();
    // The first stage's CTAs wait for a tile posted by other CTAs of the same stage, which also wait.
    let round = mutated(&c, |StageId(stage), Tile { n: worker, .. }, _, mut events| {
        if stage == 0 {
            let (slot, _) = c_slots((worker + 66) % 132);
            events.insert(0, Event::Wait { edge: 0, slot, value: 1 });
        }
        events
    });
    let text = round.refutation(Obligation::Progress).expect("refuted").to_string();
    assert!(text.contains("item 0 of worker 0, share 0 of gate_up, waits for"), "{text}");
    let text = round.refutation(Obligation::Acyclic).expect("refuted").to_string();
    assert!(text.contains("`gate_up` waits for itself"), "{text}");
    let mut c = sound();
    c.contract.deferred_post = true;
    let says = ["share 0 of down, waits for", "which holds its posts back until the next item is under way"];
    refuted(&c, Obligation::Progress, &says);
}

#[test]
fn slots_outside_their_array() {
    let report = posting(&sound(), |_, Tile { n: worker, .. }, posts| {
        posts.into_iter().chain((worker == 131).then_some((43, 1))).collect()
    });
    only(
        &report,
        Obligation::Bounds,
        &["share 131 of gate_up posts slot 43 of gate_up -> down", "which has 43"],
    );
}

#[test]
fn what_a_decode_kernel_must_do() {
    let mut c = sound();
    c.contract.dependency_wait = false;
    refuted(
        &c,
        Obligation::Reuse,
        &["the next run's share 0 of gate_up may overwrite", "stores without waiting"],
    );
    let mut c = sound();
    c.contract.full_run_boundary = false;
    refuted(&c, Obligation::Reuse, &["runs overlap"]);
    let mut c = sound();
    c.contract.epoch = EpochSource::LaunchParameter;
    refuted(&c, Obligation::Replay, &["kernel parameter"]);
    let mut c = sound();
    c.contract.post_releases = false;
    refuted(&c, Obligation::Visible, &["a post is no release"]);
    let mut c = sound();
    c.contract.wait_acquires = false;
    refuted(&c, Obligation::Visible, &["a wait is no acquire"]);
    let mut c = sound();
    c.contract.bulk_loads = true;
    refuted(&c, Obligation::Visible, &["bulk copies may read old data"]);
    let mut c = sound();
    c.contract.stores = StoreCompletion::BulkWaitRead;
    refuted(&c, Obligation::Visible, &["a post may overtake the bulk store"]);
}
