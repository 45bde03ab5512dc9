//! Ledgers of hosts that hand out items: valid orders are accepted to the end; a sabotaged order that could hang is
//! never accepted.
//!
//! This file decides independently whether an order can hang, from the tiles' reads and their shared slots, not from
//! the event program that the ledger uses: workers take items in the order sent, and a slot that no one posts is waited
//! for forever.

use cusync_gen::check::{Ledger, Obligation, Plan, check};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Resolved, StageId, producers_of};
use cusync_gen::schedule::Hand;
use cusync_gen::sync::{Policy, Tile};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SPECS: [&str; 3] = [
    r#"Pipeline(name: "chain", dims: { "M": 384, "H": 512 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
        Gemm(name: "mid", a: "Y(M,H)", b: "U(H,H)", out: "Z(M,H)", residual: "Y(M,H)"),
        Gemm(name: "down", a: "Z(M,H)", b: "V(H,H)", out: "O(M,H)"),
    ])"#,
    // Two kinds that share weights.
    r#"Pipeline(name: "two", dims: { "M": 512, "S": 100, "H": 384 }, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
        Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
        Gemm(name: "short_up", a: "XS(S,H)", b: "W(H,H)", out: "YS(S,H)"),
        Gemm(name: "short_down", a: "YS(S,H)", b: "V(H,H)", out: "ZS(S,H)"),
    ])"#,
    // Both operands are produced by stages.
    r#"Pipeline(name: "join", dims: { "M": 256, "H": 256 }, stages: [
        Gemm(name: "left", a: "X(M,H)", b: "W(H,H)", out: "A(M,H)"),
        Gemm(name: "right", a: "V(H,H)", b: "U(H,H)", out: "B(H,H)"),
        Gemm(name: "both", a: "A(M,H)", b: "B(H,H)", out: "O(M,H)"),
    ])"#,
];

fn resolved(spec: &str) -> Resolved {
    cusync_gen::spec::parse(spec, "test").and_then(|spec| spec.resolve(&[])).expect("a spec")
}

/// A plan in which workers draw whole tiles of 128 x 128.
fn plan(spec: &str, policy: Policy) -> Plan {
    let h200 = Profile::named("h200").expect("it ships");
    let resolved = resolved(spec);
    let asked =
        choose::ChainOverride { kernel: Some(((128, 128), (1, 1))), mode: Hand::Drawn, splits: false };
    let mut candidate = choose::chain(&resolved, h200, asked).expect("chosen");
    candidate.edges.iter_mut().for_each(|edge| edge.policy = policy.clone());
    cusync_gen::check::linearise(&mut candidate);
    check(candidate).expect("proved")
}

/// For each item, the items that its waits need.
fn needs(plan: &Plan) -> Vec<Vec<u32>> {
    let items = &plan.launch().lists().expect("lists").sequence;
    let graph = plan.graph();
    let item_of = |stage: StageId, tile: Tile| {
        items.iter().position(|i| i.stage == stage && (i.m, i.n) == (tile.m, tile.n)).expect("an item") as u32
    };
    let need = |item: &cusync_gen::schedule::Item| {
        let mut found = Vec::new();
        for edge in plan.edges().iter().filter(|e| e.dependence().consumer == item.stage) {
            let d = edge.dependence();
            let slots = edge.slots();
            let (rows, cols) = graph.stages[d.producer.0].grid;
            let all = || (0..rows).flat_map(move |m| (0..cols).map(move |n| Tile { m, n }));
            for k in 0..graph.stages[item.stage.0].k_blocks {
                let read = producers_of(graph, d, Tile { m: item.m, n: item.n }, k);
                let touched: Vec<u32> = all()
                    .filter(|t| read.m.contains(&t.m) && read.n.contains(&t.n))
                    .map(|t| slots.slot_of(t))
                    .collect();
                found.extend(
                    all().filter(|t| touched.contains(&slots.slot_of(*t))).map(|t| item_of(d.producer, t)),
                );
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    };
    items.iter().map(need).collect()
}

/// Whether all workers finish if each takes its own items in this order.
fn ends(needs: &[Vec<u32>], sent: &[(u32, usize)], workers: usize) -> bool {
    let mut boxes = vec![std::collections::VecDeque::new(); workers];
    sent.iter().for_each(|(item, worker)| boxes[*worker].push_back(*item));
    let mut done = vec![false; needs.len()];
    loop {
        let mut moved = false;
        for mailbox in &mut boxes {
            while let Some(item) = mailbox.front().copied() {
                if !needs[item as usize].iter().all(|need| done[*need as usize]) {
                    break;
                }
                done[item as usize] = true;
                mailbox.pop_front();
                moved = true;
            }
        }
        if !moved {
            return boxes.iter().all(std::collections::VecDeque::is_empty);
        }
    }
}

/// All items of all kinds; each kind's items are in a random order that respects its needs.
fn honest(ledger: &Ledger, needs: &[Vec<u32>], rng: &mut SmallRng) -> Vec<u32> {
    let mut left: Vec<u32> = (0..ledger.kinds()).flat_map(|kind| ledger.items(kind).to_vec()).collect();
    let mut order: Vec<u32> = Vec::new();
    let mut known = vec![false; needs.len()];
    while !left.is_empty() {
        let free: Vec<usize> = (0..left.len())
            .filter(|at| needs[left[*at] as usize].iter().all(|need| known[*need as usize]))
            .collect();
        let item = left.swap_remove(free[rng.random_range(0..free.len())]);
        known[item as usize] = true;
        order.push(item);
    }
    order
}

/// Corrupts an order: swaps, moves, drops, duplicates or invents items.
fn sabotage(order: &mut Vec<u32>, rng: &mut SmallRng) {
    for _ in 0..rng.random_range(1..=3) {
        let (a, b) = (rng.random_range(0..order.len()), rng.random_range(0..order.len()));
        match rng.random_range(0..6) {
            0 => order.swap(a, b),
            1 => {
                let item = order.remove(a);
                order.insert(b.min(order.len()), item);
            }
            2 if order.len() > 1 => {
                order.remove(a);
            }
            3 => order.insert(b, order[a]),
            4 => order[a] = rng.random_range(0..2 * order.len() as u32),
            _ => order[a.min(b)..=a.max(b)].reverse(),
        }
    }
}

#[test]
fn no_sabotaged_ledger_that_could_stand_still_is_accepted() {
    let count = std::env::var("CUSYNC_LEDGERS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut rng = SmallRng::seed_from_u64(17);
    let plans: Vec<Plan> =
        SPECS.iter().flat_map(|spec| [Policy::Tile, Policy::Row].map(|policy| plan(spec, policy))).collect();
    let needs: Vec<_> = plans.iter().map(needs).collect();
    let (mut accepted, mut refused, mut stuck) = (0, 0, 0);
    for round in 0..count {
        let at = round % plans.len();
        let mut ledger = Ledger::from_plan(&plans[at]).expect("a ledger");
        (0..ledger.kinds()).for_each(|kind| assert_eq!(ledger.begin(kind).expect("nothing is under way"), 0));
        let mut order = honest(&ledger, &needs[at], &mut rng);
        let right = round % 10 == 0;
        if !right {
            sabotage(&mut order, &mut rng);
        }
        let workers = rng.random_range(1..6);
        let sent: Vec<(u32, usize)> =
            order.iter().map(|item| (*item, rng.random_range(0..workers))).collect();
        let taken = sent.iter().take_while(|(item, _)| ledger.number(*item).is_ok()).count();
        // Accepted items have been sent, and may be the only ones ever sent.
        assert!(
            ends(&needs[at], &sent[..taken], workers),
            "an accepted ledger stands still: {:?}",
            &sent[..taken]
        );
        if taken == sent.len() {
            accepted += 1;
            continue;
        }
        assert!(!right, "a right one was refused");
        refused += 1;
        let known = sent.iter().all(|(item, _)| (*item as usize) < needs[at].len());
        stuck += usize::from(known && !ends(&needs[at], &sent, workers));
    }
    println!("{accepted} accepted, {refused} refused, of which {stuck} would have stood still");
    assert!(refused > count / 3 && stuck > count / 20 && accepted >= count / 10);
}

#[test]
fn jobs_of_a_kind_follow_each_other_and_kinds_overlap() {
    let plan = plan(SPECS[1], Policy::Row);
    let mut ledger = Ledger::from_plan(&plan).expect("a ledger");
    assert_eq!(ledger.kinds(), 2, "shared weights bind nothing together");
    assert_eq!((ledger.begin(0).expect("idle"), ledger.begin(1).expect("idle")), (0, 0));
    let short: Vec<u32> = ledger.items(1).to_vec();
    let refused = ledger.number(*short.last().expect("items")).expect_err("it waits for the first stage");
    assert_eq!(refused.obligation, Obligation::Progress);
    assert!(refused.message.contains("before what it waits for") && !refused.help.is_empty());
    for job in 0..3 {
        for item in &short {
            assert!(ledger.is_ready(*item));
            let entry = ledger.number(*item).expect("in order");
            assert_eq!((entry.item(), entry.epoch()), (*item, job));
            assert_eq!(ledger.number(*item).expect_err("twice").obligation, Obligation::Order);
        }
        assert_eq!(ledger.begin(1).expect_err("under way").obligation, Obligation::Reuse);
        for (place, item) in short.iter().enumerate() {
            assert_eq!(ledger.done(*item).expect("it had a number"), place + 1 == short.len());
        }
        assert!(ledger.number(short[0]).is_err(), "no job of that kind is under way");
        assert_eq!(ledger.begin(1).expect("done"), job + 1);
    }
    assert!(!ledger.is_idle(0) && ledger.done(ledger.items(0)[0]).is_err());
    assert!(ledger.number(u32::MAX).is_err() && ledger.begin(2).is_err());
}

#[test]
fn plans_whose_proof_rests_on_lists_have_no_ledger() {
    let h200 = Profile::named("h200").expect("it ships");
    let resolved = resolved(SPECS[0]);
    let asked = choose::ChainOverride { kernel: None, mode: Hand::Fixed, splits: false };
    let fixed = check(choose::chain(&resolved, h200, asked).expect("chosen")).expect("proved");
    let refused = Ledger::from_plan(&fixed).expect_err("lists");
    assert!(refused.message.contains("static lists") && !refused.help.is_empty());
}
