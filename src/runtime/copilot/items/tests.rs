use cusync_gen::check::Executor;
use cusync_gen::device::Profile;
use cusync_gen::schedule::Hand;

use super::*;
use crate::runtime::{ChainOverride, Overrides, plan_text};

const SPEC: &str = r#"Pipeline(name: "p", dims: { "M": 300, "S": 70, "H": 192 }, stages: [
    Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)", epilogue: Gelu),
    Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", residual: "X(M,H)", out: "Z(M,H)"),
    Gemm(name: "short_up", a: "XS(S,H)", b: "W(H,H)", out: "YS(S,H)", epilogue: Gelu),
    Gemm(name: "short_down", a: "YS(S,H)", b: "V(H,H)", residual: "XS(S,H)", out: "ZS(S,H)"),
])"#;
const LONG: usize = 0;
const SHORT: usize = 1;

fn planned(mode: Hand) -> Plan {
    let h200 = Profile::named("h200").expect("it ships");
    let few = Profile { sms: 3, ..h200.clone() };
    let chain = ChainOverride { kernel: Some(((128, 128), (1, 1))), mode, splits: false };
    let overrides = Overrides { chain: Some(chain), ..Overrides::default() };
    plan_text(SPEC, "p", &overrides, &few, Executor::Fused).expect("planned")
}

fn open(plan: &Plan, inputs: &Inputs, idle: Duration) -> Items<'static> {
    let handing = Handing { idle, ..Handing::default() };
    Items::on_host(plan, inputs, CpuOptions::default(), handing).expect("opened")
}

/// Results of an ordinary run.
fn results(plan: &Plan, inputs: &Inputs) -> [Vec<f32>; 2] {
    let mut pipeline = CpuPipeline::new(plan, inputs, CpuOptions::default()).expect("made");
    pipeline.run().expect("right");
    ["Z", "ZS"].map(|name| pipeline.tensor(name).expect("a result"))
}

#[test]
fn jobs_of_both_kinds_overlap_and_are_right() {
    let plan = planned(Hand::Drawn);
    let inputs = Inputs::random(plan.graph(), 1);
    let want = results(&plan, &inputs);
    let mut items = open(&plan, &inputs, Duration::from_millis(1));
    assert_eq!(items.kinds(), 2);
    items.take_notes();
    for round in 0..6 {
        let long = [items.submit(LONG).expect("taken"), items.submit(LONG).expect("taken")];
        let short = items.submit_first(SHORT).expect("taken");
        items.wait(short).expect("over");
        assert_eq!(items.read_f32("ZS").expect("a result"), want[1], "round {round}");
        long.iter().for_each(|job| items.wait(*job).expect("over"));
        assert_eq!(items.read_f32("Z").expect("a result"), want[0], "round {round}");
    }
    assert_eq!(items.unfinished(), 0);
    let notes = items.take_notes();
    let sent = notes.sent;
    let tiles = [2 * 3 * 2, 2 * 2];
    assert_eq!(sent.len(), 6 * (2 * tiles[0] + tiles[1]), "every item once a job");
    let epochs = |item: u32| sent.iter().filter(|s| s.item == item).map(|s| s.epoch).collect::<Vec<_>>();
    let of_short = sent.iter().find(|s| items.ledger.kind_of(s.item) == Some(SHORT)).expect("some").item;
    assert_eq!(epochs(of_short), (0..6).collect::<Vec<_>>());
    assert!(sent.iter().all(|s| s.at <= s.seen && s.worker < 3));
    items.close().expect("all over");
}

#[test]
fn a_launch_that_had_no_words_left_and_the_next_takes_what_lies_there() {
    let plan = planned(Hand::Drawn);
    let inputs = Inputs::random(plan.graph(), 2);
    let want = results(&plan, &inputs);
    // With no lead, all items that fit are in the mailboxes.
    let handing = Handing { idle: Duration::from_micros(200), lead: None, ..Handing::default() };
    let mut items = Items::on_host(&plan, &inputs, CpuOptions::default(), handing).expect("opened");
    items.take_notes();
    for round in 0..30 {
        let job = items.submit(round % 2).expect("taken");
        items.wait(job).expect("over");
        // Close to the time at which it leaves.
        std::thread::sleep(Duration::from_micros(round as u64 * 20));
    }
    assert_eq!(items.read_f32("Z").expect("a result"), want[0]);
    assert_eq!(items.read_f32("ZS").expect("a result"), want[1]);
    let begin = Instant::now();
    let left = |items: &Items<'_>| items.taker.boxes().expect("made").left() == items.launches();
    while !left(&items) && begin.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    assert!(left(&items), "nobody asked: it has left by itself");
    // A host that is delayed in the middle of a job relaunches there; it never launches without a job.
    let notes = items.take_notes();
    assert!(!notes.launches.is_empty() && notes.launches.len() == items.launches() as usize);
    for (begin, _) in &notes.launches {
        assert!(notes.jobs.iter().any(|job| (job.at..=job.seen).contains(begin)), "a launch for no job");
    }
    items.close().expect("all over");
}

#[test]
fn a_job_that_goes_first_overtakes_what_is_not_handed_out() {
    let plan = planned(Hand::Drawn);
    let inputs = Inputs::random(plan.graph(), 3);
    let mut items = open(&plan, &inputs, Duration::from_millis(5));
    items.take_notes();
    let long = items.submit(LONG).expect("taken");
    let short = items.submit_first(SHORT).expect("taken");
    items.wait(long).expect("over");
    items.wait(short).expect("over");
    let mut sent = items.take_notes().sent;
    sent.sort_by_key(|s| s.at);
    let kinds: Vec<_> = sent.iter().map(|s| items.ledger.kind_of(s.item).expect("known")).collect();
    let last_short = kinds.iter().rposition(|kind| *kind == SHORT).expect("some");
    // Three workers may have been sent two items each before it was submitted.
    assert!(kinds[..last_short].iter().filter(|kind| **kind == LONG).count() <= 6, "{kinds:?}");
    items.close().expect("all over");
}

#[test]
fn mistakes_are_errors_that_say_what_to_do() {
    let inputs = Inputs::random(planned(Hand::Drawn).graph(), 1);
    let on = |plan: &Plan, handing| Items::on_host(plan, &inputs, CpuOptions::default(), handing);
    let text = on(&planned(Hand::Fixed), Handing::default()).expect_err("lists").to_string();
    assert!(text.contains("static lists") && text.contains("help: "), "{text}");
    for ahead in [0, 8] {
        let handing = Handing { ahead, ..Handing::default() };
        let text = on(&planned(Hand::Drawn), handing).expect_err("no such depth").to_string();
        assert!(text.contains("choose 1 to 7"), "{text}");
    }
    let mut items = open(&planned(Hand::Drawn), &inputs, Duration::from_millis(1));
    let text = items.submit(2).expect_err("no kind").to_string();
    assert!(text.contains("this plan has 2, numbered from 0"), "{text}");
    assert_eq!(items.launches(), 0);
}

#[test]
fn a_session_that_stands_still_says_which_jobs_are_not_over() {
    let plan = planned(Hand::Drawn);
    let inputs = Inputs::random(plan.graph(), 1);
    let options = CpuOptions { starve: Some(0), timeout: Duration::from_millis(50), ..CpuOptions::default() };
    let mut items = Items::on_host(&plan, &inputs, options, Handing::default()).expect("opened");
    let job = items.submit(LONG).expect("taken");
    let last = items.submit(LONG).expect("taken");
    let text = items.wait(last).expect_err("starved").to_string();
    assert_eq!((job.number(), last.number()), (1, 2));
    assert!(text.starts_with("jobs 1 to 2 of this session were submitted and are not over"), "{text}");
    assert!(text.contains("up -> down (Y)"), "{text}");
}

/// Late words give the same results, whenever they arrive.
#[test]
fn results_are_the_same_however_late_words_are_sent() {
    let plan = planned(Hand::Drawn);
    let inputs = Inputs::random(plan.graph(), 4);
    let want = results(&plan, &inputs);
    for lead in [Duration::ZERO, Duration::from_micros(50), Duration::from_secs(1)] {
        let handing = Handing { lead: Some(lead), ..Handing::default() };
        let mut items = Items::on_host(&plan, &inputs, CpuOptions::default(), handing).expect("opened");
        for _ in 0..4 {
            let long = items.submit(LONG).expect("taken");
            let short = items.submit_first(SHORT).expect("taken");
            items.wait(long).expect("over");
            items.wait(short).expect("over");
        }
        assert_eq!(items.read_f32("Z").expect("a result"), want[0], "{lead:?}");
        assert_eq!(items.read_f32("ZS").expect("a result"), want[1], "{lead:?}");
        items.close().expect("all over");
    }
}
