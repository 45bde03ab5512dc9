//! `progress`: residency, list order, draws, delayed posts.

use super::*;

/// Moves item `from` to the end of a worker's list.
fn last(schedule: &mut Schedule, worker: usize, from: usize) {
    let item = schedule.lists[worker].remove(from);
    schedule.lists[worker].push(item);
}

#[test]
fn a_list_that_waits_for_its_own_end() {
    let c = edit(|s| last(s, 0, 0));
    // Worker 0 has items 44, 52, ...; `up` has 44 items.
    refuted(
        &c,
        Obligation::Progress,
        &[
            "of worker 0, down(0, 4), waits forever",
            "waits for up(0, 0): item 10 of worker 0, behind item 5 of that list",
        ],
    );
}

#[test]
fn two_lists_that_wait_for_each_other() {
    let graph = mlp();
    let mut schedule = dealt(&graph, (1, 1), 2, 0);
    let at = |s: &Schedule, stage, m, n| items_of(s, stage, m, n)[0] as u32;
    let (up_0, up_1) = (at(&schedule, 0, 0, 0), at(&schedule, 0, 1, 1));
    let (down_0, down_1) = (at(&schedule, 1, 0, 0), at(&schedule, 1, 1, 1));
    // Worker 0 has down(1, 1) before up(0, 0); worker 1 has down(0, 0) before up(1, 1).
    let rest: Vec<u32> = (0..64).filter(|i| ![up_0, up_1, down_0, down_1].contains(i)).collect();
    schedule.lists =
        vec![[&rest[..30], &[down_1, up_0][..]].concat(), [&rest[..0], &[down_0, up_1][..]].concat()];
    // The rest of the second stage comes last and is not part of the cycle.
    schedule.lists[0].extend(&rest[30..]);
    let c = scheduled(graph, schedule);
    refuted(
        &c,
        Obligation::Progress,
        &[
            "item 30 of worker 0, down(1, 1), waits for up(1, 1): item 1 of worker 1, behind item 0 of that list",
            "item 0 of worker 1, down(0, 0), waits for up(0, 0): item 31 of worker 0, behind item 30 of that list",
        ],
    );
}

#[test]
fn a_list_in_the_order_of_stages_backwards() {
    let c = edit(|s| s.lists.iter_mut().for_each(|list| list.reverse()));
    refuted(
        &c,
        Obligation::Progress,
        &[
            "item 0 of worker 0, down(3, 5), k-blocks 5..10, waits forever",
            "waits for up(3, 2), k-blocks 10..16: item 7 of worker 4, behind item 0 of that list",
            "item 0 of worker 5, down(3, 7), k-blocks 0..5, waits for up(3, 0): item 7 of worker 0, behind item 0",
        ],
    );
}

#[test]
fn a_finisher_before_its_contributor() {
    let graph = mlp();
    let mut schedule = dealt(&graph, (1, 1), 1, 2);
    let parts = items_of(&schedule, 0, 3, 7);
    schedule.lists[0].swap(parts[0], parts[2]);
    let c = scheduled(graph, schedule);
    refuted(
        &c,
        Obligation::Progress,
        &["up(3, 7), k-blocks 10..16, waits for up(3, 7), k-blocks 0..5: item 35 of worker 0"],
    );
}

#[test]
fn more_workers_than_fit() {
    let source = r#"Pipeline(name: "mlp", dims: { "M": 2048, "H": 1024, "I": 1024 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ])"#;
    let graph = cusync_gen::graph::graph_with_tile(source, TILE).expect("a sound spec");
    let c = scheduled(graph.clone(), dealt(&graph, (1, 1), 133, 0));
    refuted(
        &c,
        Obligation::Progress,
        &["133 workers, of which 132 are resident at once", "worker 132 may have to wait"],
    );
    // For a small number of workers, the check knows which may be resident together; an idle worker blocks no one.
    let small = mlp();
    let c = scheduled(small.clone(), dealt(&small, (1, 1), 133, 0));
    assert_eq!(judge(&c).refutations, []);
    for (sms, ends) in [(1, false), (3, false), (5, true)] {
        let mut c = scheduled(small.clone(), dealt(&small, (1, 1), 5, 0));
        c.device.sms = sms;
        assert_eq!(judge(&c).proved(), ends, "5 workers on {sms} SMs");
    }
    let c = scheduled(graph.clone(), dealt(&graph, (2, 1), 66, 0));
    assert_eq!(judge(&c).refutations, []);
    let c = scheduled(graph.clone(), dealt(&graph, (2, 1), 67, 0));
    refuted(&c, Obligation::Progress, &["67 workers, of which 66 are resident", "a cluster of 2 x 1 CTAs"]);
    // 132 SMs make 33 clusters of four only if every GPC has a multiple of four.
    let c = scheduled(graph.clone(), dealt(&graph, (2, 2), 33, 0));
    refuted(&c, Obligation::Progress, &["33 workers, of which 29 are resident"]);
    let c = scheduled(graph.clone(), dealt(&graph, (4, 4), 1, 0));
    refuted(&c, Obligation::Progress, &["1 workers, of which 0 are resident"]);
}

#[test]
fn a_sequence_that_cannot_be_drawn_in_order() {
    let c = edit(|s| {
        s.mode = Hand::Drawn;
        let (up, down) = (items_of(s, 0, 1, 2)[0], items_of(s, 1, 1, 0)[0]);
        s.sequence.swap(up, down);
    });
    refuted(
        &c,
        Obligation::Progress,
        &["item 10 of the sequence, down(1, 0), waits for up(1, 2)", "drawn later"],
    );
    // A finisher is drawn before a contribution: a single worker would never reach the contribution.
    let c = edit(|s| {
        s.mode = Hand::Drawn;
        let parts = items_of(s, 1, 3, 7);
        s.sequence.swap(parts[0], parts[2]);
    });
    refuted(
        &c,
        Obligation::Progress,
        &["down(3, 7), k-blocks 10..16, waits for down(3, 7), k-blocks 0..5", "which is drawn later"],
    );
}

#[test]
fn static_lists_do_not_depend_on_the_order_of_the_sequence() {
    let c = edit(|s| {
        let n = s.sequence.len() as u32;
        s.sequence.reverse();
        s.lists.iter_mut().flatten().for_each(|i| *i = n - 1 - *i);
    });
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn posts_that_are_held_back() {
    // Each worker's list has the whole first stage before the second, but worker 0 needs the tile it has just produced.
    let graph = mlp();
    let mut c = scheduled(graph.clone(), dealt(&graph, (1, 1), 1, 0));
    assert_eq!(judge(&c).refutations, []);
    c.contract.deferred_post = true;
    let s = c.launch.lists_mut().expect("a schedule");
    let (first, needs) = (items_of(s, 0, 3, 7)[0], items_of(s, 1, 3, 0)[0]);
    s.lists[0].swap(first + 1, needs);
    refuted(
        &c,
        Obligation::Progress,
        &[
            "down(3, 0), waits for up(3, 7): item 31 of worker 0, which holds its posts back until the next item",
        ],
    );
    // Any item between the two makes it sound.
    let s = c.launch.lists_mut().expect("a schedule");
    s.lists[0].swap(first + 1, needs);
    assert_eq!(judge(&c).refutations, []);
    c.launch.lists_mut().expect("a schedule").mode = Hand::Drawn;
    refuted(&c, Obligation::Progress, &["the next item is whichever is drawn", "up -> down (Y)"]);
}

#[test]
fn a_coarser_policy_may_need_another_order() {
    // Row by row through both stages: a row of `down` reads a row of `up`.
    let graph = mlp();
    for mode in [Hand::Fixed, Hand::Drawn] {
        let mut schedule = dealt(&graph, (1, 1), 2, 0);
        schedule.mode = mode;
        schedule.sequence.sort_by_key(|item| (item.m, item.stage, item.n));
        let mut c = scheduled(graph.clone(), schedule);
        assert_eq!(judge(&c).refutations, [], "{mode:?}");
        // One slot for all of `up`: the first row waits for the last.
        c.edges[0].policy = cusync_gen::sync::Policy::Batched { rows: 4, cols: 8 };
        let text = only(&judge(&c), Obligation::Progress, &[]);
        assert!(text.contains("down(0, 0), waits for up(1, 0)"), "{text}");
        let before = c.launch.lists().cloned();
        linearise(&mut c);
        assert_eq!(judge(&c).refutations, [], "{mode:?}");
        let after = c.launch.lists().expect("a schedule");
        assert_eq!(after.sequence.len(), before.expect("a schedule").sequence.len());
    }
}
