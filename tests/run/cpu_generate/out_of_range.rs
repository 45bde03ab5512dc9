//! Sequences without room in their cache, pages outside the pool, and pages that two sequences share: errors that name
//! them, beside right results of the others.

use super::*;

#[test]
fn a_sequence_out_of_range_is_an_error_that_names_it_and_the_others_are_right() {
    let plan = Block { batch: 4, pages: Some(12), capacity: 192, ..BLOCK }.plan();
    let graph = plan.graph();
    let inputs = Inputs::random(graph, 5);
    let good = vec![10, 70, 130, 191];
    let mut pages = inputs.integers(id(graph, "P")).expect("pages").to_vec();
    let run = |lengths: &[i32], pages: &[i32]| {
        let mut pipeline = pipeline(&plan, &inputs);
        pipeline.set_integers("n", lengths).expect("a length a sequence");
        pipeline.set_integers("P", pages).expect("a table");
        let result = pipeline.run().map(|_| ());
        let tensors = ["A", "Z", "K", "V"].map(|name| pipeline.tensor(name).expect("it is there"));
        // The counts still agree: the next run, in range, is right.
        pipeline.set_integers("n", &good).expect("a length a sequence");
        let table = inputs.integers(id(graph, "P")).expect("pages");
        pipeline.set_integers("P", table).expect("a table");
        pipeline.run().expect("in range");
        (result, tensors)
    };
    let (result, right) = run(&good, &pages);
    assert_eq!(result, Ok(()));
    for (sequence, length, words) in
        [(1, -1, "-1"), (3, 192, "192"), (0, i32::MAX, "room for a token behind 0 to 191")]
    {
        let mut lengths = good.clone();
        lengths[sequence] = length;
        let (result, found) = run(&lengths, &pages);
        let Err(error @ CpuError::Cache { sequence: named, .. }) = result else { panic!("{result:?}") };
        let text = error.to_string();
        assert!(named == sequence && text.contains(words) && text.contains("stage `attend`"), "{text}");
        for (tensor, width) in [(0, 256), (1, 264)] {
            for (row, (a, b)) in found[tensor].chunks(width).zip(right[tensor].chunks(width)).enumerate() {
                let zeros = row == sequence && a.iter().all(|x| *x == 0.0);
                assert!(zeros || (row != sequence && a == b), "row {row} of {tensor}");
            }
        }
        // Nothing was appended for it: two other rows (one per head) are unchanged.
        for cache in [2, 3] {
            let differs = found[cache].chunks(64).zip(right[cache].chunks(64)).filter(|(a, b)| a != b);
            assert_eq!(differs.count(), 2);
        }
    }
    // A page that holds tokens of the sequence; an unused page is never checked.
    let at = 2 * 3 + 1;
    let kept = std::mem::replace(&mut pages[at], 12);
    let (result, _) = run(&good, &pages);
    let text = result.expect_err("outside").to_string();
    assert!(text.contains("sequence 2") && text.contains("page 1 is number 12 of a pool of 12"), "{text}");
    pages[at] = kept;
    pages[1] = -7;
    assert_eq!(run(&good, &pages).0, Ok(()));
    let mut pipeline = pipeline(&plan, &inputs);
    assert_eq!(pipeline.set_integers("n", &[1]), Err(CpuError::Integers { name: "n".into(), want: 4 }));
    assert_eq!(pipeline.set_integers("K", &[1]), Err(CpuError::Integers { name: "K".into(), want: 0 }));
}

/// Two attentions in sequence, each with its own page table.
fn two_stages() -> Plan {
    let stage = |x: &str, i: u32| {
        format!(
            r#"Gemm(name: "qkv{i}", a: "{x}(3,128)", b: "W{i}(128,256)", out: "QKV{i}(3,256)"),
            Attention(name: "attend{i}", qkv: "QKV{i}(3,256)", heads: 2, kv_heads: 1, pages: "P{i}(3,2)", out: "A{i}(3,128)",
                cache: Cache(keys: "K{i}(9,1,64,64)", values: "V{i}(9,1,64,64)", lengths: "n(3)")),"#
        )
    };
    plan(&format!(r#"Pipeline(name: "two", dims: {{}}, stages: [{}{}])"#, stage("X", 1), stage("A1", 2)))
}

#[test]
fn every_stage_is_looked_at_for_sequences_without_room_and_for_shared_pages() {
    let plan = two_stages();
    let inputs = Inputs::random(plan.graph(), 2);
    let run = |lengths: &[i32], tables: [&[i32]; 2]| {
        let mut pipeline = pipeline(&plan, &inputs);
        pipeline.set_integers("n", lengths).expect("a length a sequence");
        for (name, table) in ["P1", "P2"].into_iter().zip(tables) {
            pipeline.set_integers(name, table).expect("a table");
        }
        pipeline.run().map(|_| ())
    };
    let own = [0, 1, 2, 3, 4, 5];
    assert_eq!(run(&[5, 64, 3], [&own, &own]), Ok(()), "stages have pools of their own");
    // The length is reported once, and so is the page of the second stage.
    let text = run(&[5, -1, 3], [&own, &[9, 1, 2, 3, 4, 5]]).expect_err("two are left out").to_string();
    let said = [
        "stage `attend1`, sequence 1: its length is -1",
        "; stage attend2, sequence 0: its page 0 is number 9",
    ];
    assert!(
        said.iter().all(|words| text.contains(words)) && text.matches("length is -1").count() == 1,
        "{text}"
    );
    // A sequence skipped by the first stage does not hide a page shared in the second.
    let shared = run(&[5, -1, 3], [&own, &[4, 1, 2, 3, 4, 5]]).expect_err("page 4 is shared");
    let found = CpuError::SharedPage { stage: "attend2".into(), sequence: 0, other: 2, page: 4 };
    assert_eq!(shared, found);
}

/// A prompt that fills pages: a sequence with a page outside the pool is skipped, as for a batch of tokens.
#[test]
fn a_prompt_with_a_page_outside_the_pool_appends_nothing_and_is_zero() {
    let plan = plan(
        r#"Pipeline(name: "prompt", dims: {}, stages: [
            Attention(name: "attend", qkv: "QKV(300,256)", heads: 2, kv_heads: 1, sequences: 3, pages: "P(3,2)", out: "A(300,128)",
                cache: Cache(keys: "K(9,1,64,64)", values: "V(9,1,64,64)")),
        ])"#,
    );
    let inputs = Inputs::random(plan.graph(), 2);
    let mut pipeline = pipeline(&plan, &inputs);
    pipeline.set_integers("P", &[0, 1, 2, 9, 4, 5]).expect("a table");
    let before = ["K", "V"].map(|name| pipeline.tensor(name).expect("a cache"));
    let text = pipeline.run().expect_err("page 9 of 9").to_string();
    assert!(text.contains("sequence 1: its page 1 is number 9 of a pool of 9"), "{text}");
    let made = pipeline.tensor("A").expect("an output");
    for (sequence, rows) in made.chunks(100 * 128).enumerate() {
        assert_eq!(rows.iter().all(|x| *x == 0.0), sequence == 1, "sequence {sequence}");
    }
    // The reference skips it too.
    let mut wrong = inputs.clone();
    assert!(wrong.set_integers(id(plan.graph(), "P"), vec![0, 1, 2, 9, 4, 5]));
    assert_right("left out", plan.graph(), &wrong, &pipeline);
    let page = 64 * 64;
    for (name, before) in ["K", "V"].into_iter().zip(before) {
        let after = pipeline.tensor(name).expect("a cache");
        assert_eq!(after[2 * page..3 * page], before[2 * page..3 * page], "{name}: page 2 is sequence 1's");
        assert!(after[4 * page..5 * page] != before[4 * page..5 * page], "{name}: page 4 is filled");
    }
    // No sequence may fill another sequence's page, or one page twice.
    for (table, sequence, other, page) in [([0, 1, 2, 3, 1, 5], 0, 2, 1), ([0, 1, 2, 2, 4, 5], 1, 1, 2)] {
        pipeline.set_integers("P", &table).expect("a table");
        let found = CpuError::SharedPage { stage: "attend".into(), sequence, other, page };
        assert_eq!(pipeline.run().map(|_| ()), Err(found));
    }
}

/// A page to which one sequence appends must not be shared: the proof states this, random inputs respect it, and a run
/// that violates it is refused.
#[test]
fn a_page_that_two_sequences_append_to_is_named() {
    let source = |pool: u32| {
        format!(
            r#"Pipeline(name: "p", dims: {{}}, stages: [
                Attention(name: "a", qkv: "QKV(2,192)", heads: "1", cache: Cache(keys: "K({pool},1,64,64)", values: "V({pool},1,64,64)",
                    lengths: "n(2)"), pages: "P(2,1)", out: "A(2,64)"),
            ])"#
        )
    };
    let one = plan(&source(1));
    let why = Inputs::checked_random(one.graph(), 1).expect_err("one page for two").to_string();
    assert!(why.contains("`a`: 2 sequences") && why.contains("2 pages or more"), "{why}");
    let two = plan(&source(2));
    for seed in 0..20 {
        let inputs = Inputs::checked_random(two.graph(), seed).expect("a page each");
        let mut pipeline = pipeline(&two, &inputs);
        pipeline.run().expect("right");
        assert_right(&format!("seed {seed}"), two.graph(), &inputs, &pipeline);
        pipeline.set_integers("P", &[1, 1]).expect("a table");
        let error = pipeline.run().expect_err("shared");
        let named = CpuError::SharedPage { stage: "a".into(), sequence: 0, other: 1, page: 1 };
        assert_eq!(error, named);
        assert!(error.to_string().contains("page 1 is of sequence 0"), "{error}");
    }
}

#[test]
fn every_sequence_that_is_left_out_is_named() {
    let plan = Block { batch: 4, capacity: 128, ..BLOCK }.plan();
    let inputs = Inputs::random(plan.graph(), 5);
    let mut pipeline = pipeline(&plan, &inputs);
    pipeline.set_integers("n", &[-1, 128, 5, 5]).expect("a length a sequence");
    let text = pipeline.run().expect_err("no room").to_string();
    assert!(
        text.contains("sequence 0: its length is -1") && text.contains("sequence 1: its length is 128"),
        "{text}"
    );
    assert!(!text.contains("sequence 2") && !text.contains("sequence 3"), "{text}");
    let made = pipeline.tensor("A").expect("an output");
    let zeros: Vec<bool> = made.chunks(256).map(|row| row.iter().all(|x| *x == 0.0)).collect();
    assert_eq!(zeros, [true, true, false, false]);
}
