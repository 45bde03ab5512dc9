//! Mutants of a sound plan, each refuted for the right reason.

use crate::changed::{mutated, only};
use cusync_gen::check::{
    Candidate, EdgeChoice, EpochSource, Event, How, Obligation, Report, StartGuarantee, StoreCompletion,
    check, judge,
};
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, OperandKind, StageId, TensorId};
use cusync_gen::sync::{Order, Policy, Tile, WaitAt};

fn graph(source: &str, tile: (u32, u32, u32)) -> Graph {
    cusync_gen::graph::graph_with_tile(source, tile).expect("a sound spec")
}

fn mlp() -> Graph {
    let source = r#"Pipeline(name: "mlp", dims: { "M": 512, "H": 1024, "I": 1024 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)", epilogue: Gelu),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ])"#;
    graph(source, (128, 256, 64))
}

fn candidate(graph: Graph) -> Candidate {
    Candidate::new(graph, Profile::named("h200").expect("shipped").clone(), How::STREAMS)
}

fn with_policy(graph: Graph, policy: Policy) -> Candidate {
    let mut c = candidate(graph);
    c.edges = vec![EdgeChoice { policy, wait_at: WaitAt::PerKBlock }; c.edges.len()];
    c
}

/// Passes a slice's events through a stateful filter.
fn filtered(c: &Candidate, change: impl Fn(Event, &mut dyn FnMut(Event))) -> Report {
    mutated(c, |_, _, _, events| {
        let mut passed = Vec::new();
        events.into_iter().for_each(|event| change(event, &mut |event| passed.push(event)));
        passed
    })
}

#[test]
fn the_unchanged_plans_are_proved() {
    let policies = [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 3 }, Policy::Strided(3)];
    for policy in policies {
        for wait_at in [WaitAt::PerKBlock, WaitAt::Start] {
            for how in [How::Host, How::Serial, How::Library, How::STREAMS, How::Programmatic] {
                let mut c = with_policy(mlp(), policy.clone());
                c.edges[0].wait_at = wait_at;
                *c.launch.how_mut().expect("stages") = how;
                assert_eq!(judge(&c).refutations, [], "{policy:?} {wait_at:?} {how:?}");
                let plan = check(c).expect("proved");
                assert_eq!(plan.edges().len(), 1);
            }
        }
    }
}

#[test]
fn a_wait_one_k_block_late() {
    let c = with_policy(mlp(), Policy::Tile);
    // Swap each load with the wait before it.
    let held = std::cell::RefCell::new(None);
    let report = filtered(&c, |event, f| match event {
        Event::Wait { .. } => {
            held.replace(Some(event));
        }
        other => {
            f(other);
            if let Some(wait) = held.take() {
                f(wait);
            }
        }
    });
    let text = only(&report, Obligation::Cover, &[]);
    assert!(text.starts_with("cover: down(0, 0) may read `Y` before up(0, 0) has written it"), "{text}");
}

#[test]
fn a_missing_row() {
    // The consumer's tile is twice as tall as the producer's, and it waits only for the first of its two rows.
    let source = r#"Pipeline(name: "mlp", dims: { "M": 512, "H": 1024, "I": 1024 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)"),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)"),
    ])"#;
    let resolved = cusync_gen::spec::parse(source, "spec").and_then(|s| s.resolve(&[])).expect("sound");
    let graph = resolved.graph(&[(128, 256, 64), (256, 128, 64)]).expect("sound");
    let c = with_policy(graph, Policy::Row);
    assert_eq!(judge(&c).refutations, []);
    let report = filtered(&c, |event, f| match event {
        Event::Wait { slot, .. } if slot % 2 == 1 => {}
        other => f(other),
    });
    let text = only(&report, Obligation::Cover, &[]);
    assert!(text.contains("down(0, 0) may read `Y` before up(1, 0) has written it"), "{text}");
}

#[test]
fn a_short_count() {
    let c = with_policy(mlp(), Policy::Row);
    let report = filtered(&c, |event, f| match event {
        Event::Wait { edge, slot, value } => f(Event::Wait { edge, slot, value: value - 1 }),
        other => f(other),
    });
    let kinds: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(kinds, [Obligation::Cover, Obligation::Count], "a short wait guarantees nothing either");
    assert!(
        report.refutations[1]
            .to_string()
            .contains("waits for 3 posts to slot 0 of up -> down (Y), which gets 4")
    );
}

#[test]
fn a_count_that_is_never_reached() {
    let c = with_policy(mlp(), Policy::Row);
    let report = filtered(&c, |event, f| match event {
        Event::Wait { edge, slot, value } => f(Event::Wait { edge, slot, value: value + 1 }),
        other => f(other),
    });
    only(&report, Obligation::Count, &["the wait never ends"]);
}

#[test]
fn operand_b_never_waited_for() {
    let source = r#"Pipeline(name: "b", dims: { "M": 512 }, stages: [
        Gemm(name: "left", a: "X(M,M)", b: "W1(M,M)", out: "L(M,M)"),
        Gemm(name: "right", a: "X(M,M)", b: "W2(M,M)", out: "R(M,M)"),
        Gemm(name: "join", a: "L(M,M)", b: "R(M,M)", out: "Z(M,M)"),
    ])"#;
    let c = with_policy(graph(source, (128, 128, 64)), Policy::Tile);
    assert_eq!(judge(&c).refutations, []);
    let b = c.graph.dependences.iter().position(|d| d.producer == StageId(1)).expect("an edge");
    assert_eq!(c.graph.stages[2].operands[c.graph.dependences[b].operand].kind, OperandKind::B);
    let report = filtered(&c, |event, f| match event {
        Event::Wait { edge, .. } if edge == b => {}
        other => f(other),
    });
    only(&report, Obligation::Cover, &["may read `R` before right(0, 0)"]);
}

#[test]
fn a_consumer_started_first() {
    let mut c = with_policy(mlp(), Policy::Row);
    c.device.sms = 16; // the consumer's 16 tiles fill it
    c.launch.kernels_mut().reverse();
    let text = only(&judge(&c), Obligation::Progress, &[]);
    assert!(text.contains("waiting CTAs can take every SM before `up` has started"), "{text}");
    assert!(text.contains("16 of `down`; SMs: 16"), "{text}");
    // With one more SM, a producer always finds room, whatever order is used.
    c.device.sms = 17;
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn no_start_guarantee_and_a_full_gpu() {
    let mut c = with_policy(mlp(), Policy::Row);
    *c.launch.how_mut().expect("stages") = How::Streams(StartGuarantee::None);
    assert_eq!(judge(&c).refutations, [], "16 consumer CTAs on 132 SMs");
    c.device.sms = 12;
    only(&judge(&c), Obligation::Progress, &[]);
}

#[test]
fn graph_replay_with_a_baked_epoch() {
    let mut c = with_policy(mlp(), Policy::Row);
    c.contract.epoch = EpochSource::LaunchParameter;
    assert!(
        only(&judge(&c), Obligation::Replay, &[])
            .contains("second replay `down` still waits for the first run")
    );
    c.contract.graph_replay = false;
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn an_order_that_repeats_a_tile() {
    let mut c = with_policy(mlp(), Policy::Row);
    let mut tiles: Vec<Tile> = (0..16).map(|i| Tile { m: i / 4, n: i % 4 }).collect();
    tiles[5] = tiles[4];
    c.launch.kernels_mut()[0].order = Order::Table(tiles);
    only(&judge(&c), Obligation::Order, &["up(1, 0) is started twice"]);
}

#[test]
fn a_post_after_the_read_form_of_the_bulk_wait() {
    let mut c = with_policy(mlp(), Policy::Row);
    c.contract.stores = StoreCompletion::BulkWaitRead;
    only(&judge(&c), Obligation::Visible, &[]);
    c.contract.stores = StoreCompletion::BulkWait;
    c.contract.proxy_fence = false;
    only(&judge(&c), Obligation::Visible, &[]);
}

#[test]
fn plain_stores_where_a_slot_has_many_posts() {
    let mut c = with_policy(mlp(), Policy::Row);
    c.contract.plain_store_posts = true;
    only(&judge(&c), Obligation::Count, &[]);
    c.edges[0].policy = Policy::Tile;
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn overlapping_runs() {
    let mut c = with_policy(mlp(), Policy::Row);
    c.contract.full_run_boundary = false;
    only(&judge(&c), Obligation::Reuse, &["the next run's up(0, 0) may overwrite `Y`"]);
}

/// Three equal stages; the last output may reuse the memory of the first.
fn aliased(source_residual: &str) -> Graph {
    let source = format!(
        r#"Pipeline(name: "alias", dims: {{ "M": 512 }}, stages: [
        Gemm(name: "one", a: "X(M,M)", b: "W1(M,M)", out: "P(M,M)"),
        Gemm(name: "two", a: "P(M,M)", b: "W2(M,M)", out: "Q(M,M)"),
        Gemm(name: "three", a: "Q(M,M)", b: "W3(M,M)", {source_residual} out: "R(M,M)"),
    ])"#
    );
    let mut graph = graph(&source, (128, 128, 64));
    let named =
        |graph: &Graph, name: &str| graph.tensors.iter().position(|t| t.name == name).expect("a tensor");
    let (r, p) = (named(&graph, "R"), named(&graph, "P"));
    graph.tensors[r].alias = Some(TensorId(p));
    graph
}

#[test]
fn a_buffer_is_taken_over_only_behind_its_readers() {
    for policy in [Policy::Row, Policy::Tile] {
        let c = with_policy(aliased(""), policy);
        assert_eq!(judge(&c).refutations, [], "three waits for a row of two, which has read that row of one");
        // In-place residual: each tile reads the data it overwrites, and no other tile reads it.
        let c = with_policy(aliased(r#"residual: "P(M,M)","#), Policy::Row);
        assert_eq!(judge(&c).refutations, []);
    }
    // `two` reads P as operand B: every tile of `two` reads every tile of P, so waiting for a row of Q is not enough.
    let source = r#"Pipeline(name: "alias", dims: { "M": 512 }, stages: [
        Gemm(name: "one", a: "X(M,M)", b: "W1(M,M)", out: "P(M,M)"),
        Gemm(name: "two", a: "X(M,M)", b: "P(M,M)", out: "Q(M,M)"),
        Gemm(name: "three", a: "Q(M,M)", b: "W3(M,M)", out: "R(M,M)"),
    ])"#;
    let mut graph = graph(source, (128, 128, 64));
    let named =
        |graph: &Graph, name: &str| graph.tensors.iter().position(|t| t.name == name).expect("a tensor");
    let (r, p) = (named(&graph, "R"), named(&graph, "P"));
    graph.tensors[r].alias = Some(TensorId(p));
    let mut c = with_policy(graph, Policy::Row);
    let text = only(&judge(&c), Obligation::Reuse, &[]);
    assert!(text.contains("three(0, 0) may overwrite `P` before two(1, 0) is done with it"), "{text}");
    *c.launch.how_mut().expect("stages") = How::Serial;
    assert_eq!(judge(&c).refutations, [], "stream order is enough");
}

#[test]
fn an_input_that_is_overwritten_cannot_be_replayed() {
    let mut graph = aliased("");
    let named =
        |graph: &Graph, name: &str| graph.tensors.iter().position(|t| t.name == name).expect("a tensor");
    let (r, x) = (named(&graph, "R"), named(&graph, "X"));
    graph.tensors[r].alias = Some(TensorId(x));
    assert!(
        only(&judge(&with_policy(graph, Policy::Row)), Obligation::Replay, &[])
            .contains("overwrites the input `X`")
    );
}

#[test]
fn a_cycle_of_stages() {
    let mut graph = mlp();
    let mut back = graph.dependences[0].clone();
    std::mem::swap(&mut back.producer, &mut back.consumer);
    back.operand = 0;
    graph.dependences.push(back);
    let report = judge(&candidate(graph));
    let text = report.refutation(Obligation::Acyclic).expect("refuted").to_string();
    assert!(text.contains("`up` waits for itself") && text.contains("up <- down <- up"), "{text}");
}

#[test]
fn a_serial_chain_out_of_order() {
    let mut c = candidate(mlp());
    *c.launch.how_mut().expect("stages") = How::Serial;
    c.launch.kernels_mut().reverse();
    only(&judge(&c), Obligation::Cover, &[]);
}

#[test]
fn kernel_boundaries_carry_dependences_only_in_launch_order() {
    let mut c = candidate(mlp());
    *c.launch.how_mut().expect("stages") = How::Serial;
    c.device.sms = 1; // no waits, so nothing can starve
    assert_eq!(judge(&c).refutations, []);
    c.launch.kernels_mut().reverse();
    only(&judge(&c), Obligation::Cover, &[]);
}

#[test]
fn a_policy_table_of_the_wrong_length() {
    let c = with_policy(mlp(), Policy::Table(vec![0; 3]));
    only(&judge(&c), Obligation::Bounds, &["a table of 3 slots for 16 tiles"]);
}

#[test]
fn large_grids_are_judged() {
    let source = include_str!("../../../policies/gpt3_mlp.ron");
    let resolved = cusync_gen::spec::parse(source, "gpt3")
        .and_then(|s| s.resolve(&[("M".into(), 4096)]))
        .expect("sound");
    let c = with_policy(resolved.graph(&[(128, 256, 64), (128, 256, 64)]).expect("sound"), Policy::Tile);
    assert_eq!(judge(&c).refutations, []);
}

#[test]
fn wait_mutants_for_the_device_are_refuted_for_cover() {
    use cusync_gen::check::fault::{WaitFault, wait_mutants};
    for source in
        [include_str!("../../../policies/two_gemms.ron"), include_str!("../../../policies/gpt3_mlp.ron")]
    {
        let c = with_policy(graph(source, (128, 256, 64)), Policy::Tile);
        assert_eq!(judge(&c).refutations, []);
        let mutants = wait_mutants(&c, 7, 12);
        assert_eq!(mutants.len(), 12);
        assert!(mutants.iter().any(|m| m.fault == WaitFault::Drop));
        for (mutant, again) in mutants.iter().zip(wait_mutants(&c, 7, 12)) {
            assert_eq!(mutant.refutation.obligation, Obligation::Cover);
            assert_eq!(
                (mutant.edge, mutant.fault),
                (again.edge, again.fault),
                "the same seed, the same mutants"
            );
            // The numbers passed to the kernel are wrong only in the waits.
            let (wrong, sound) =
                (mutant.plan.edges()[mutant.edge].numbers(), check(c.clone()).expect("sound"));
            let right = sound.edges()[mutant.edge].numbers();
            assert_ne!((wrong.rows, wrong.cols), (right.rows, right.cols));
            assert_eq!((&wrong.policy, wrong.tensor, wrong.tile), (&right.policy, right.tensor, right.tile));
        }
    }
}
