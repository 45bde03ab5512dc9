//! `cover`, `count`, `reuse`, `replay` and `visible`: the events of chain-kernel items.

use super::*;
use cusync_gen::check::{EpochSource, StoreCompletion};
use cusync_gen::sync::Policy;

#[test]
fn a_wait_one_k_block_late() {
    let report = mutated(&sound(), |_, _, _, events| {
        let mut out: Vec<Event> = Vec::new();
        for event in events {
            match (&event, out.last()) {
                (Event::Load { .. }, Some(Event::Wait { .. })) => out.insert(out.len() - 1, event),
                _ => out.push(event),
            }
        }
        out
    });
    let text = only(&report, Obligation::Cover, &[]);
    assert!(text.contains("down(0, 0) may read `Y` before up(0, 0) has written it"), "{text}");
    assert!(text.contains("down(0, 0) is of item 5 of worker 4"), "{text}");
}

/// A kernel that always checks the slots of the tile's first k-block instead of the item's first k-block.
#[test]
fn a_part_that_begins_in_the_middle_and_does_not_wait() {
    let mut c = sound();
    for policy in [Policy::Tile, Policy::Row] {
        c.edges[0].policy = policy;
        assert_eq!(judge(&c).refutations, []);
        let report = mutated(&c, |_, _, slice, mut events| {
            if slice > 0 && matches!(events.first(), Some(Event::Wait { .. })) {
                events.remove(0);
            }
            events
        });
        let text = only(&report, Obligation::Cover, &[]);
        let story = ["down(3, 2) may read `Y` before up(3, 2)", "is of item 8 of worker 7", "at k-block 5"];
        story.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
    }
}

#[test]
fn a_finisher_that_adds_another_tiles_sums() {
    let c = edit(|s| {
        let (one, two) = (items_of(s, 1, 3, 4)[2], items_of(s, 1, 3, 5)[2]);
        let (a, b) = (s.sequence[one].part, s.sequence[two].part);
        (s.sequence[one].part, s.sequence[two].part) = (b, a);
    });
    refuted(&c, Obligation::Cover, &["down(3, 4) (item", "adds slab 18, which down(3, 5) (item", "writes"]);
    let c = edit(|s| {
        let finisher = items_of(s, 1, 3, 4)[2];
        s.sequence[finisher].part = Part::Finish { first: 16, slabs: 3 };
    });
    refuted(&c, Obligation::Cover, &["adds slab 18, which down(3, 5) (item", "writes"]);
}

#[test]
fn a_contribution_that_is_never_added() {
    let c = edit(|s| {
        let finisher = items_of(s, 1, 3, 4)[2];
        s.sequence[finisher].part = Part::Finish { first: 16, slabs: 1 };
    });
    refuted(
        &c,
        Obligation::Cover,
        &["down(3, 4) (item", "finishes without slab 17, the sums of down(3, 4) (item"],
    );
}

#[test]
fn a_finisher_that_adds_without_looking() {
    let report = mutated(&sound(), |_, _, _, events| {
        events.into_iter().filter(|e| !matches!(e, Event::Await { slab: 3 })).collect()
    });
    let text = only(&report, Obligation::Cover, &[]);
    assert!(
        text.contains("up(3, 3) (item") && text.contains("adds slab 3 without having seen its flag"),
        "{text}"
    );
    let report = mutated(&sound(), |_, _, _, mut events| {
        if let Some(at) = events.iter().position(|e| *e == Event::Await { slab: 3 }) {
            events.swap(at, at + 1);
        }
        events
    });
    only(&report, Obligation::Cover, &["adds slab 3 without having seen its flag"]);
    let report = mutated(&sound(), |_, _, _, events| {
        let twice = |e: Event| if e == (Event::Add { slab: 3 }) { vec![e.clone(), e] } else { vec![e] };
        events.into_iter().flat_map(twice).collect()
    });
    only(&report, Obligation::Cover, &["adds slab 3 twice"]);
}

#[test]
fn a_slab_used_twice_in_a_run() {
    let c = edit(|s| {
        // The last tiles of both stages share slabs.
        let (one, two) = (items_of(s, 0, 3, 7), items_of(s, 1, 3, 7));
        for (from, to) in one.into_iter().zip(two) {
            s.sequence[to].part = s.sequence[from].part;
        }
    });
    refuted(
        &c,
        Obligation::Reuse,
        &["down(3, 7) (item", "may overwrite slab 10 before it is read", "up(3, 7) (item"],
    );
}

#[test]
fn every_part_posts() {
    // Our kernel posts once per tile, from the finisher; here each tile posts twice.
    let report = repeating(&sound(), 2);
    let kinds: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(
        kinds,
        [Obligation::Cover, Obligation::Count],
        "a wait that ends at the first of two posts covers nothing"
    );
    let text = report.refutations[1].to_string();
    assert!(text.contains("down(0, 0) (item 5 of worker 4) waits for 48 posts to slot 0"), "{text}");
    assert!(text.contains("which gets 96 a run"), "{text}");
    // A finisher that omits its post.
    let report = repeating(&sound(), 0);
    assert!(
        report.refutation(Obligation::Count).expect("refuted").to_string().contains("the wait never ends")
    );
}

/// `join` reads, as operand B, the output of a gated stage with tiles of half its width.
fn produced_b() -> Candidate {
    let source = r#"Pipeline(name: "b", dims: { "M": 640, "K": 512 }, stages: [
        GatedGemm(name: "right", a: "X(K,K)", gate: "G(K,K)", up: "U(K,K)", out: "R(K,K)"),
        Gemm(name: "join", a: "L(M,K)", b: "R(K,K)", out: "Z(M,K)"),
    ])"#;
    let graph = cusync_gen::graph::graph_with_tile(source, TILE).expect("a sound spec");
    assert_eq!((graph.stages[0].out_tile(), graph.stages[1].grid), ((128, 64), (5, 4)));
    let schedule = dealt(&graph, (2, 1), 6, 2);
    scheduled(graph, schedule)
}

#[test]
fn a_cluster_is_covered_by_the_waits_of_each_cta() {
    let c = produced_b();
    assert_eq!(judge(&c).refutations, []);
    // Each CTA loads half of the columns for both, so it only needs to wait for that half.
    let own_half = |_: StageId, tile: Tile, _: u32, events: Vec<Event>| {
        events
            .into_iter()
            .filter(|e| !matches!(e, Event::Wait { slot, .. } if slot % 2 != tile.m % 2))
            .collect()
    };
    assert_eq!(mutated(&c, own_half).refutations, []);
}

#[test]
fn a_cluster_that_waits_for_half() {
    let c = produced_b();
    // Every CTA waits for the left half of the shared tile; the second CTA loads the right half.
    let report = mutated(&c, |_, _, _, events| {
        events.into_iter().filter(|e| !matches!(e, Event::Wait { slot, .. } if slot % 2 == 1)).collect()
    });
    let text = only(&report, Obligation::Cover, &[]);
    assert!(text.contains("join(1, 0) may read `R` before right(0, 1) has written it"), "{text}");
    assert!(text.contains("join(1, 0) is of item") && text.contains("columns 64..128 of `R`"), "{text}");
}

#[test]
fn a_cluster_whose_leader_alone_waits() {
    let c = produced_b();
    let report = mutated(&c, |_, tile, _, events| {
        events.into_iter().filter(|e| tile.m % 2 == 0 || !matches!(e, Event::Wait { .. })).collect()
    });
    only(&report, Obligation::Cover, &["join(1, 0) may read `R` before right(0, 1)"]);
    // Along M, each CTA reads its own operand A.
    let graph = mlp();
    let c = scheduled(graph.clone(), dealt(&graph, (2, 1), 6, 2));
    let report = mutated(&c, |_, tile, _, events| {
        events.into_iter().filter(|e| tile.m % 2 == 0 || !matches!(e, Event::Wait { .. })).collect()
    });
    only(&report, Obligation::Cover, &["down(1, 0) may read `Y` before up(1, 0)"]);
}

#[test]
fn a_cta_outside_the_grid_still_loads_for_its_cluster() {
    // Five rows of tiles make two and a half clusters. No worker has loaded anything before.
    let mut c = produced_b();
    c.launch = Launch::Lists(dealt(&c.graph, (2, 1), 60, 2));
    let report = mutated(&c, |_, tile, _, events| {
        events.into_iter().filter(|e| tile.m < 5 || !matches!(e, Event::Wait { .. })).collect()
    });
    let text = only(&report, Obligation::Cover, &[]);
    assert!(text.contains("join(5, 0) may read `R` before right(0, 1) has written it"), "{text}");
    assert!(text.contains("join(5, 0) lies outside the grid and loads for its cluster"), "{text}");
}

#[test]
fn overlapping_runs() {
    let mut c = sound();
    assert!(c.contract.overlap && c.contract.dependency_wait, "what the chain kernels do");
    c.contract.dependency_wait = false;
    refuted(
        &c,
        Obligation::Reuse,
        &["the next run's up(0, 0) may overwrite `Y`", "stores without waiting for that end"],
    );
    // A single stage has no edge, but its split tiles have slabs.
    let source = r#"Pipeline(name: "one", dims: { "M": 512 }, stages: [
        Gemm(name: "one", a: "X(M,M)", b: "W(M,M)", out: "Y(M,M)"),
    ])"#;
    let graph = cusync_gen::graph::graph_with_tile(source, TILE).expect("a sound spec");
    let mut c = scheduled(graph.clone(), dealt(&graph, (1, 1), 4, 1));
    assert_eq!(judge(&c).refutations, []);
    c.contract.dependency_wait = false;
    refuted(&c, Obligation::Reuse, &["the next run may overwrite slab 0 before it is read"]);
    c.contract.overlap = false;
    assert_eq!(judge(&c).refutations, [], "a kernel boundary is a boundary");
}

#[test]
fn flags_that_are_only_ever_set() {
    let mut c = sound();
    c.contract.slabs.flag_is_epoch = false;
    refuted(&c, Obligation::Replay, &["the flag of slab 0 is set by the first run and never cleared"]);
    let mut c = sound();
    c.contract.epoch = EpochSource::LaunchParameter;
    refuted(&c, Obligation::Replay, &["kernel parameter"]);
}

#[test]
fn sums_that_are_not_visible() {
    let mut c = sound();
    c.contract.slabs.barrier = false;
    refuted(&c, Obligation::Visible, &["before all threads have stored their sums"]);
    let mut c = sound();
    c.contract.slabs.flag_releases = false;
    refuted(&c, Obligation::Visible, &["a slab's flag is no release"]);
    let mut c = sound();
    c.contract.slabs.flag_acquires = false;
    refuted(&c, Obligation::Visible, &["is no acquire"]);
    let mut c = sound();
    c.contract.stores = StoreCompletion::BulkWaitRead;
    refuted(&c, Obligation::Visible, &["a post may overtake the bulk store"]);
    // Without slabs, their contract is irrelevant.
    let graph = mlp();
    let mut c = scheduled(graph.clone(), dealt(&graph, (1, 1), 8, 0));
    c.contract.slabs.flag_releases = false;
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn large_schedules_are_judged() {
    let source = include_str!("../../../../policies/gpt3_mlp.ron");
    let resolved = cusync_gen::spec::parse(source, "gpt3")
        .and_then(|s| s.resolve(&[("M".into(), 4096)]))
        .expect("sound");
    let graph = resolved.graph(&[TILE, TILE]).expect("sound");
    for cluster in [(1, 1), (2, 1)] {
        let c = scheduled(graph.clone(), dealt(&graph, cluster, 132 / (cluster.0 * cluster.1), 60));
        assert_eq!(judge(&c).refutations, [], "{cluster:?}");
    }
}
