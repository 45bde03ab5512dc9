//! The number of events that `check` visits.

use super::changed::Changed;
use super::{long_attention, long_chain, now, overlapped, shipped};
use cusync_gen::check::{Candidate, Event, Generated, Obligation, judge, judge_program};
use cusync_gen::graph::{Dependence, StageId};
use cusync_gen::spec;
use cusync_gen::sync::{Policy, WaitAt};
use std::time::Duration;

/// `check` spends its time on events. It skips a tile that behaves like another.
#[test]
fn few_events_are_walked() {
    let walked = |c: &Candidate, tells| {
        let program = Generated::new(c);
        let counted = Changed::new(&program, Some, tells);
        assert_eq!(judge_program(c, &counted).refutations, []);
        counted.walked.get()
    };
    for policy in [Policy::Row, Policy::Tile] {
        let mlp = shipped(true).into_iter().find(|(name, _)| *name == "gpt3_mlp").expect("shipped").1;
        let c = overlapped(&mlp, &policy, WaitAt::PerKBlock);
        // 3072 tiles of 96 k-blocks wait and load; `check` visits each of the 32 rows of tiles once.
        let events = walked(&c, true);
        assert!(events <= 32 * (96 + 48), "{events} events under {policy:?}");
        assert!(walked(&c, false) >= 3072 * 96);
        let c = long_chain(false, &policy);
        let tiles: u64 = c.graph.stages.iter().map(|s| u64::from(s.tiles())).sum();
        let events = walked(&c, true);
        assert!(events <= 3 * tiles, "{events} events for {tiles} tiles under {policy:?}");
    }
    // If a plan is wrong at its end, reporting that does not walk it from the start again.
    let c = long_chain(false, &Policy::Row);
    let (program, last) = (Generated::new(&c), c.edges.len() - 1);
    let change = |event| match event {
        Event::Wait { edge, slot: 49, .. } if edge == last => None,
        other => Some(other),
    };
    let wrong = Changed::new(&program, change, true);
    let refutations = judge_program(&c, &wrong).refutations;
    let messages: Vec<&str> = refutations.iter().map(|r| r.message.as_str()).collect();
    assert_eq!(messages, ["g15(49, 0) may read `X15` before g14(49, 0) has written it"]);
    // Two passes: find the fault, then build the message and rule out every other guarantee.
    let tiles: u64 = c.graph.stages.iter().map(|s| u64::from(s.tiles())).sum();
    assert!(wrong.walked.get() <= 5 * tiles, "{} events for {tiles} tiles", wrong.walked.get());
    // A residual belongs to its tile alone and does not prevent other parts from being alike.
    let diamond = shipped(true).into_iter().find(|(name, _)| *name == "diamond").expect("shipped").1;
    let c = overlapped(&diamond, &Policy::Tile, WaitAt::PerKBlock);
    let (tiles, rows) = (u64::from(c.graph.stages[2].tiles()), u64::from(c.graph.stages[2].grid.0));
    let events = walked(&c, true);
    assert!(events <= 2 * tiles + rows * (32 + 16), "{events} events");
}

/// A causal attention over many tokens: `check` visits the steps of a column of tiles once, not once per tile.
#[test]
fn a_causal_mask_costs_no_square_of_the_sequence() {
    let walked = |tokens| {
        let c = long_attention(tokens);
        let program = Generated::new(&c);
        let counted = Changed::new(&program, Some, true);
        assert_eq!(judge_program(&c, &counted).refutations, []);
        counted.walked.get()
    };
    let (short, long) = (walked(4096), walked(32768));
    assert!(long <= 8 * short, "{short} events for 4096 tokens, {long} for 32768");
    // Per head and step: one load and possibly one wait, for keys and for values; one query block per tile; and the
    // rows of the projection.
    let (steps, tiles, rows) = (8 * 32768 / 64, 8 * 32768 / 64, 32768 / 128);
    assert!(long <= 4 * steps + 2 * tiles + rows * (8 + 16), "{long} events");
}

/// Each stage reads the outputs of the two stages before it, so the number of paths grows like the Fibonacci numbers.
#[test]
fn a_deep_residual_stack_is_judged_in_no_time() {
    let mut spec = String::from("Pipeline(name: \"stack\", dims: {\"M\": 128, \"H\": 64}, stages: [\n");
    for i in 0..64 {
        let (a, residual) = (format!("X{i}"), format!("X{}", i.max(1) - 1));
        let out = format!("X{}", i + 1);
        spec += &format!(
            r#"Gemm(name: "g{i}", a: "{a}(M,H)", b: "W{i}(H,H)", residual: "{residual}(M,H)", out: "{out}(M,H)"),"#
        );
    }
    let resolved = spec::parse(&(spec + "])"), "stack").and_then(|s| s.resolve(&[])).expect("sound");
    let mut c = overlapped(&resolved, &Policy::Tile, WaitAt::PerKBlock);
    let begin = now();
    assert_eq!(judge(&c).refutations, []);
    // The first stage reads the last stage's output: the longest possible cycle.
    let last = c.graph.stages[63].out;
    c.graph.stages[0].operands[0].tensor = last;
    c.graph.dependences.insert(0, Dependence { producer: StageId(63), consumer: StageId(0), operand: 0 });
    c.edges.insert(0, c.edges[0].clone());
    let refutations = judge(&c).refutations;
    let cycle = refutations.iter().find(|r| r.obligation == Obligation::Acyclic).expect("a cycle");
    assert_eq!(cycle.message, "`g0` waits for itself");
    assert!(now() - begin < Duration::from_secs(5), "{:?}", now() - begin);
}
