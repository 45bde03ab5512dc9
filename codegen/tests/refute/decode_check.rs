//! Decode plans: sound ones are proved, mutants are refuted for the right reason.

#[path = "../support/mod.rs"]
mod support;

use std::io::Write as _;
use std::process::Stdio;

use cusync_gen::check::{
    Candidate, DecodeEvent, DecodeProgram, EpochSource, Executor, GeneratedDecode, Obligation, Report,
    StoreCompletion, check, judge, judge_decode,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Resolved, StageId};
use cusync_gen::schedule::decode::{COLUMN_TILE, Decode, base, owners_of_tile};
use support::{compile, cxx, root, scratch};

const GPT3: &str = include_str!("../../../policies/gpt3_mlp.ron");
const LLAMA: &str = include_str!("../../../policies/llama65_mlp.ron");
const LLAMA3: &str = include_str!("../../../policies/llama3_70b_mlp.ron");

fn resolved(source: &str, m: u64) -> Resolved {
    cusync_gen::spec::parse(source, "spec").and_then(|s| s.resolve(&[("M".into(), m)])).expect("a sound spec")
}

fn h200() -> &'static Profile {
    Profile::named("h200").expect("shipped")
}

/// 132 CTAs; the first stage's 2752 columns are 43 column tiles, and shares of 20 or 21.
fn sound() -> Candidate {
    choose::decode(&resolved(LLAMA, 8), h200()).expect("a decode plan")
}

fn edit(change: impl FnOnce(&mut Decode)) -> Candidate {
    let mut c = sound();
    change(c.launch.shares_mut().expect("a plan"));
    c
}

#[track_caller]
fn only(report: &Report, obligation: Obligation, says: &[&str]) {
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [obligation], "{:#?}", report.refutations);
    let text = report.refutations[0].to_string();
    says.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
}

#[track_caller]
fn refuted(c: &Candidate, obligation: Obligation, says: &[&str]) {
    only(&judge(c), obligation, says);
}

type Change = dyn Fn(usize, u32, Vec<DecodeEvent>) -> Vec<DecodeEvent>;

/// A kernel that does what ours does, but for a change to what a CTA does in a stage.
struct Mutant<'a>(GeneratedDecode<'a>, Box<Change>);

impl DecodeProgram for Mutant<'_> {
    fn warps(&self) -> u32 {
        self.0.warps()
    }
    fn events(&self, stage: StageId, cta: u32, warp: u32, f: &mut dyn FnMut(DecodeEvent)) {
        let mut events = Vec::new();
        self.0.events(stage, cta, warp, &mut |e| events.push(e));
        (self.1)(stage.0, cta, events).into_iter().for_each(f);
    }
}

fn mutated(
    c: &Candidate,
    change: impl Fn(usize, u32, Vec<DecodeEvent>) -> Vec<DecodeEvent> + 'static,
) -> Report {
    let decode = c.launch.shares().expect("a plan");
    judge_decode(c, decode, &Mutant(GeneratedDecode::new(&c.graph, decode), Box::new(change)))
}

/// Like [`mutated`], event by event.
fn filtered(c: &Candidate, keep: impl Fn(usize, u32, &DecodeEvent) -> bool + 'static) -> Report {
    mutated(c, move |stage, cta, events| events.into_iter().filter(|e| keep(stage, cta, e)).collect())
}

#[test]
fn sound_plans_are_proved() {
    for source in [GPT3, LLAMA, LLAMA3] {
        for m in [1, 8, 16, 37, 64] {
            let c = choose::decode(&resolved(source, m), h200()).expect("a decode plan");
            assert_eq!(judge(&c).refutations, [], "M = {m}");
            let plan = check(c).expect("proved");
            let decode = plan.launch().shares().expect("carried");
            assert!(plan.launch().lists().is_none() && plan.executor() == Executor::Fused);
            assert_eq!(decode.workers, 132);
            let tiles = |s: usize| plan.graph().stages[s].n.div_ceil(COLUMN_TILE);
            assert_eq!(plan.slot_count(), tiles(0) + tiles(1));
            assert_eq!(decode.stages[1].slot_base, tiles(0));
            assert!(decode.width >= m as u32 && (decode.width < 2 * m as u32 || decode.width == 8));
            // A column tile has the posts of its owners.
            assert!(decode.stages[0].posts.iter().all(|posts| (2..=5).contains(posts)));
            assert!(
                decode.stages[1].posts.iter().all(|posts| *posts == 0),
                "nobody waits for the last stage"
            );
        }
    }
}

#[test]
fn shares_are_equal() {
    for (columns, workers) in [(2752, 132), (12288, 132), (7, 132), (1, 1)] {
        let lengths: Vec<u32> =
            (0..workers).map(|c| base(columns, workers, c + 1) - base(columns, workers, c)).collect();
        let (least, most) = (lengths.iter().min(), lengths.iter().max());
        assert_eq!(lengths.iter().sum::<u32>(), columns);
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
    }
}

/// The arithmetic that kernels run, compiled for the host, against what `check` reckons with.
#[test]
fn shares_are_those_of_the_kernel() {
    let program = scratch("decode_layout").join("driver");
    let mut command = cxx();
    command.arg(root().join("codegen/tests/support/decode_layout.cpp")).arg("-o").arg(&program);
    compile(command);
    let mut cases =
        vec![(1, 1), (1, 132), (7, 132), (64, 3), (2752, 132), (6144, 132), (12288, 132), (8192, 78)];
    cases.extend((0..200u32).map(|i| (1 + i * 7919 % 5000, 1 + i * 104_729 % 150)));
    let mut child = std::process::Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the driver runs");
    let text: String = cases.iter().map(|(c, w)| format!("{c} {w}\n")).collect();
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let lines = String::from_utf8(output.stdout).expect("text");
    assert_eq!(lines.lines().count(), cases.len());
    for ((columns, workers), line) in cases.into_iter().zip(lines.lines()) {
        let begins = (0..=workers).map(|w| format!("{} ", base(columns, workers, w))).collect::<String>();
        let owners = (0..columns.div_ceil(COLUMN_TILE))
            .map(|t| format!(" {}", owners_of_tile(t, columns, workers)))
            .collect::<String>();
        assert_eq!(line, format!("{begins}|{owners}"), "{columns} columns, {workers} workers");
        // Owners, counted.
        for tile in 0..columns.div_ceil(COLUMN_TILE) {
            let (from, to) = (tile * COLUMN_TILE, ((tile + 1) * COLUMN_TILE).min(columns));
            let meets = |w: &u32| {
                let (a, b) = (base(columns, workers, *w), base(columns, workers, w + 1));
                a < b && a < to && from < b
            };
            let counted = (0..workers).filter(meets).count() as u32;
            assert_eq!(
                owners_of_tile(tile, columns, workers),
                counted,
                "tile {tile} of {columns}, {workers}"
            );
        }
    }
}

#[test]
fn chains_without_a_decode_plan() {
    let why = |source: &str, m| choose::decode(&resolved(source, m), h200()).expect_err("none").message;
    assert!(why(GPT3, 65).contains("`up` has 65 rows; a decode kernel takes 64"));
    // 256 columns for each of 132 CTAs, and 257.
    let wide = |columns: &str| GPT3.replace("\"I\": 6144", &format!("\"I\": {columns}"));
    assert!(choose::decode(&resolved(&wide("33792"), 64), h200()).is_ok());
    assert!(why(&wide("33800"), 64).contains("`up` gives a worker 257 rows of weights; it has room for 256"));
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
    // The check does not rest on the choice.
    let mut c = sound();
    c.graph.stages.iter_mut().for_each(|s| s.m = 65);
    refuted(&c, Obligation::Bounds, &["no decode kernel runs this chain: `gate_up` has 65 rows"]);
    let mut c = sound();
    c.device = a100.clone();
    refuted(&c, Obligation::Bounds, &["decode kernels are for sm_90a, and a100 is sm_80"]);
}

#[test]
fn plans_that_the_kernel_would_not_follow() {
    let c = edit(|d| {
        d.stages.pop();
    });
    refuted(&c, Obligation::Bounds, &["a decode plan of 1 stages and 132 workers for 2 stages"]);
    let c = edit(|d| d.stages[1].bounds[131] += 1);
    refuted(
        &c,
        Obligation::Bounds,
        &["`down` lets worker 131 begin at column 8130, and the kernel lets it begin at 8129"],
    );
    let c = edit(|d| {
        d.stages[0].bounds.remove(3);
    });
    refuted(&c, Obligation::Bounds, &["`gate_up` has 132 bounds for 132 workers"]);
    let c = edit(|d| {
        d.stages[0].posts.pop();
    });
    refuted(&c, Obligation::Bounds, &["`gate_up` has 42 slots for 43 column tiles"]);
    let c = edit(|d| d.stages[0].posts[7] += 1);
    refuted(
        &c,
        Obligation::Bounds,
        &["`gate_up` states", "posts to column tile 7, and the kernel reckons with"],
    );
    let c = edit(|d| d.stages[1].slot_base = 1);
    refuted(&c, Obligation::Bounds, &["`down` begins its slots at 1, the stages before it have 43"]);
    let c = edit(|d| d.stages[1].producer = None);
    refuted(&c, Obligation::Bounds, &["`down` is said to read stage None"]);
    let c = edit(|d| d.width = 16);
    refuted(&c, Obligation::Bounds, &["`gate_up` has 8 rows, and the kernel is for 16"]);
}

/// Two consumers of one stage, and residuals: an input's, and an earlier stage's.
fn residuals() -> Candidate {
    let source = r#"Pipeline(name: "r", dims: { "M": 8, "H": 2048, "I": 1024 }, stages: [
        Gemm(name: "one", a: "X(M,H)", b: "W1(H,H)", bias: "b1(H)", residual: "X(M,H)", out: "P(M,H)"),
        Gemm(name: "two", a: "P(M,H)", b: "W2(H,I)", out: "Q(M,I)", epilogue: Gelu),
        Gemm(name: "three", a: "Q(M,I)", b: "W3(I,H)", residual: "P(M,H)", out: "R(M,H)"),
    ])"#;
    choose::decode(&resolved(source, 8), h200()).expect("a decode plan")
}

#[test]
fn a_residual_is_the_ctas_own_work() {
    let c = residuals();
    assert_eq!(judge(&c).refutations, []);
    let other = mutated(&c, |stage, _, events| {
        // One column more than its own.
        let widen = |e| match e {
            DecodeEvent::Residual { stage: from, columns } if stage == 2 => {
                DecodeEvent::Residual { stage: from, columns: columns.start..(columns.end + 1).min(2048) }
            }
            other => other,
        };
        events.into_iter().map(widen).collect()
    });
    only(
        &other,
        Obligation::Cover,
        &["CTA 0 may read `one`'s output in `three` before CTA 1 has written it", "adds as residual"],
    );
}

#[test]
fn a_share_that_is_stored_twice_or_never() {
    let c = sound();
    let shifted = mutated(&c, |stage, cta, events| {
        // Rounded to nearest in one place and down in the other.
        let shift = |e| match e {
            DecodeEvent::Store { columns } if stage == 1 && cta == 5 => {
                DecodeEvent::Store { columns: columns.start - 1..columns.end }
            }
            other => other,
        };
        events.into_iter().map(shift).collect()
    });
    only(&shifted, Obligation::Order, &["CTA 5 and CTA 4 both store columns 309..310 of `down`"]);
    let lost =
        filtered(&c, |stage, cta, e| (stage, cta) != (1, 131) || !matches!(e, DecodeEvent::Store { .. }));
    only(&lost, Obligation::Order, &["no CTA stores columns 8129..8192 of `down`"]);
}

#[test]
fn a_post_that_is_missing() {
    // A share that meets two column tiles posts only the first of them.
    let keep = |stage: usize, cta: u32, e: &DecodeEvent| match (e, c_slots(cta)) {
        (DecodeEvent::Post { slot, .. }, (one, Some(_))) if stage == 0 => *slot == one,
        _ => true,
    };
    // k-tile 4 is loaded by a warp that never looks at slot 3, the one that CTA 12 does post.
    let report = filtered(&sound(), keep);
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [Obligation::Cover, Obligation::Count]);
    let text = report.refutations[0].to_string();
    let says = ["before CTA 12 has written it", "loads, as k-tile 4, columns 256..320", "posts slots 3..4"];
    says.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
    assert!(report.refutations[1].message.contains("which gets 3 a run"));
}

/// The column tiles that a CTA's share of the first stage meets.
fn c_slots(cta: u32) -> (u32, Option<u32>) {
    let (from, to) = (base(2752, 132, cta), base(2752, 132, cta + 1));
    let (first, last) = (from / COLUMN_TILE, (to - 1) / COLUMN_TILE);
    (first, (last > first).then_some(last))
}

#[test]
fn a_wait_value_that_forgets_the_shares_at_the_edges() {
    // A column tile of 64 holds three whole shares of 20 or 21, and parts of others.
    let waiting_for = |c: &Candidate, change: fn(u32) -> u32| {
        mutated(c, move |_, _, events| {
            let changed = |e| match e {
                DecodeEvent::Wait { stage, slot, value } => {
                    DecodeEvent::Wait { stage, slot, value: change(value) }
                }
                other => other,
            };
            events.into_iter().map(changed).collect()
        })
    };
    let report = waiting_for(&sound(), |_| 3);
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [Obligation::Cover, Obligation::Count]);
    let text = report.refutations[1].to_string();
    assert!(
        text.contains("CTA 0 waits in `down` for 3 posts to column tile 0 of `gate_up`, which gets 4"),
        "{text}"
    );
    only(
        &waiting_for(&sound(), |value| value + 1),
        Obligation::Count,
        &["column tile 0", "the wait never ends"],
    );
}

#[test]
fn a_k_tile_loaded_before_its_wait() {
    let c = sound();
    let late = mutated(&c, |_, _, mut events| {
        // Each load changes places with the wait before it.
        for at in 1..events.len() {
            if matches!((&events[at - 1], &events[at]), (DecodeEvent::Wait { .. }, DecodeEvent::Load { .. }))
            {
                events.swap(at - 1, at);
            }
        }
        events
    });
    only(
        &late,
        Obligation::Cover,
        &["CTA 0 may read `gate_up`'s output in `down` before CTA 0 has written it", "as k-tile 0"],
    );
    let wide = mutated(&c, |_, _, events| {
        // Loads of 128 columns behind a wait for 64.
        let widen = |e| match e {
            DecodeEvent::Load { stage, columns } => {
                DecodeEvent::Load { stage, columns: columns.start..(columns.end + COLUMN_TILE).min(2752) }
            }
            other => other,
        };
        events.into_iter().map(widen).collect()
    });
    only(
        &wide,
        Obligation::Cover,
        &["as k-tile 0, columns 0..128", "before CTA 4 has written it", "columns 83..104"],
    );
    let unguarded = filtered(&c, |_, cta, e| cta != 7 || !matches!(e, DecodeEvent::Wait { slot: 42, .. }));
    only(&unguarded, Obligation::Cover, &["CTA 7 may read", "as k-tile 42, columns 2688..2752"]);
}

#[test]
fn a_post_before_the_store() {
    let c = sound();
    let early = mutated(&c, |_, _, mut events| {
        if let Some(at) = events.iter().position(|e| matches!(e, DecodeEvent::Store { .. })) {
            let store = events.remove(at);
            events.push(store);
        }
        events
    });
    only(&early, Obligation::Cover, &["it posts no slot after that"]);
}

#[test]
fn ctas_that_are_not_resident() {
    let mut c = sound();
    c.device.sms = 131;
    refuted(&c, Obligation::Progress, &["132 CTAs, of which 131 are resident at once"]);
}

#[test]
fn a_cta_that_waits_for_itself() {
    let c = sound();
    // The first stage's CTAs wait for a tile that is posted in the same stage by CTAs that wait for theirs.
    let round = mutated(&c, |stage, cta, mut events| {
        if stage == 0 {
            let (slot, _) = c_slots((cta + 66) % 132);
            events.insert(0, DecodeEvent::Wait { stage: StageId(0), slot, value: 1 });
        }
        events
    });
    let text = round.refutation(Obligation::Progress).expect("refuted").to_string();
    assert!(text.contains("CTA 0 waits in `gate_up` for column tile 21 of `gate_up` for ever"), "{text}");
    let mut c = sound();
    c.contract.deferred_post = true;
    refuted(&c, Obligation::Progress, &["held back until the next stage", "CTA 0 waits in `down`"]);
}

#[test]
fn slots_outside_their_array() {
    let c = sound();
    let report = mutated(&c, |stage, cta, mut events| {
        if (stage, cta) == (0, 131) {
            events.push(DecodeEvent::Post { slot: 43, amount: 1 });
        }
        events
    });
    only(&report, Obligation::Bounds, &["CTA 131 posts slot 43 of stage 0 in `gate_up`, which has 43"]);
}

#[test]
fn what_a_decode_kernel_must_do() {
    let mut c = sound();
    c.contract.dependency_wait = false;
    refuted(&c, Obligation::Reuse, &["may overwrite the output of `gate_up`"]);
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
