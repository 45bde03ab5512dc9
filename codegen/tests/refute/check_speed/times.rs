//! How long verdicts and choices take: only a release build's times mean something.

use super::changed::Changed;
use super::{SPECS, long_attention, long_chain, named, now, overlapped, policies, shipped};
use cusync_gen::check::{Candidate, Executor, Generated, judge, judge_program};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Resolved, gemm_chain};
use cusync_gen::sync::{Policy, WaitAt};
use std::time::{Duration, Instant};

/// The last stage's output reuses the memory of the first stage's output, which has the same shape.
fn in_shared_memory(resolved: &Resolved) -> Candidate {
    let mut c = overlapped(resolved, &Policy::Row, WaitAt::PerKBlock);
    let (first, last) = (c.graph.stages[0].out, c.graph.stages[c.graph.stages.len() - 1].out);
    c.graph.tensors[last.0].alias = Some(first);
    c
}

/// The mean over as many runs as fit in a tenth of a second, which is many ticks of the system clock.
fn mean(f: impl Fn()) -> Duration {
    let begin = now();
    let mut runs = 0;
    while runs < 1 || now() - begin < Duration::from_millis(100) {
        f();
        runs += 1;
    }
    (now() - begin) / runs
}

fn verdict(c: &Candidate) -> Duration {
    mean(|| assert_eq!(judge(c).refutations, []))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Peak memory of this process, in bytes.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn every_shipped_pipeline_is_checked_in_less_than_50_ms_and_chosen_in_a_second() {
    let device = Profile::named("h200").expect("shipped");
    for (name, resolved) in shipped(true) {
        // A body has up to 37 stages.
        let (most_ms, chosen_ms) = match name {
            // Proofs may take 100 ms for a layer, 50 ms for a chain.
            _ if name.ends_with("_prompt_layer") => (100, 1000),
            _ if name.ends_with("_body") => (200, 2000),
            _ if name.starts_with("resnet") || name.starts_with("vgg") => (50, 200),
            _ => (50, 1000),
        };
        let mut worst: (Duration, String) = (Duration::ZERO, String::new());
        let mut judged = |c: &Candidate, label: String| {
            let time = verdict(c);
            println!("{name}, {label}: {:.2} ms", ms(time));
            if time > worst.0 {
                worst = (time, label);
            }
        };
        for executor in
            [Executor::Cpu, Executor::Serial, Executor::Streams, Executor::Programmatic, Executor::Fused]
        {
            // The work of `cusync check`, without reading the spec and printing the verdict.
            let whole = mean(|| {
                if let Ok(c) = choose::candidate(&resolved, device, executor) {
                    judge(&c);
                }
            });
            println!("{name}, {executor:?}, choice and verdict: {:.0} ms", ms(whole));
            // Plans for host threads consider every tile that any GPU supports.
            let most = if executor == Executor::Cpu { chosen_ms.max(1000) } else { chosen_ms };
            assert!(cfg!(debug_assertions) || whole.as_millis() < most, "{name} {executor:?}: {whole:?}");
            match choose::candidate(&resolved, device, executor) {
                Ok(c) if c.launch.has_semaphores() => judged(&c, format!("{executor:?} as chosen")),
                Ok(c) => judged(&c, format!("{executor:?} as chosen, kernel boundaries")),
                Err(refused) => println!("{name}, {executor:?}: {refused:?}"),
            }
        }
        for (policy, wait_at) in
            policies().into_iter().flat_map(|p| [(p.clone(), WaitAt::PerKBlock), (p, WaitAt::Start)])
        {
            judged(&overlapped(&resolved, &policy, wait_at), format!("overlapped {policy:?} {wait_at:?}"));
        }
        if name == "chain3" {
            judged(&in_shared_memory(&resolved), "its output in the memory of its first stage's".into());
        }
        // Judging time for a program that does not report alike tiles.
        let c = overlapped(&resolved, &Policy::Tile, WaitAt::PerKBlock);
        let program = Generated::new(&c);
        let each =
            mean(|| assert_eq!(judge_program(&c, &Changed::new(&program, Some, false)).refutations, []));
        println!("{name}, overlapped Tile PerKBlock, each tile by itself: {:.2} ms", ms(each));
        println!("{name}: at most {:.2} ms, {}", ms(worst.0), worst.1);
        assert!(cfg!(debug_assertions) || each.as_millis() < most_ms, "{name}: {each:?}");
        assert!(cfg!(debug_assertions) || worst.0.as_millis() < most_ms, "{name}: {worst:?}");
    }
}

/// The dims at which each kind of pipeline is compared with published times.
fn workloads(name: &str) -> Vec<Vec<(String, u64)>> {
    const TOKENS: [u64; 18] =
        [1, 8, 32, 37, 64, 128, 200, 256, 512, 768, 1000, 1024, 1280, 1536, 1792, 2048, 3072, 4096];
    const IMAGES: [u64; 9] = [1, 4, 8, 12, 16, 20, 24, 28, 32];
    let dim = |name: &str, size: u64| (name.to_owned(), size);
    let generates = |b| [512, 2048].map(|s| vec![dim("B", b), dim("S", s)]);
    match name {
        _ if name.ends_with("_attention") || name.ends_with("_prompt_layer") => {
            [512, 1024, 2048].map(|s| vec![dim("S", s)]).into()
        }
        _ if ["_generate", "gpt3_layer", "llama65_layer", "llama3_70b_layer"]
            .iter()
            .any(|e| name.ends_with(e)) =>
        {
            [1, 4, 32].into_iter().flat_map(generates).collect()
        }
        "resnet_layer" | "vgg_layer" => {
            let shapes = [(56, 64), (28, 128), (14, 256), (7, 512)];
            let dims = |b| shapes.map(|(hw, c)| vec![dim("B", b), dim("HW", hw), dim("C", c)]);
            IMAGES.into_iter().flat_map(dims).collect()
        }
        _ if name.starts_with("resnet") || name.starts_with("vgg") => {
            IMAGES.map(|b| vec![dim("B", b)]).into()
        }
        _ => TOKENS.map(|m| vec![dim("M", m)]).into(),
    }
}

/// The minimum wall time of a few runs: other load only adds time, and thread time has ticks as long as some of these
/// runs.
fn least(f: impl Fn()) -> Duration {
    let one = |_| {
        let begin = Instant::now();
        f();
        begin.elapsed()
    };
    (0..7).map(one).min().expect("seven runs")
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn every_workload_is_judged_in_10_ms_and_64_stages_in_100() {
    let device = Profile::named("h200").expect("shipped");
    let executors =
        [Executor::Cpu, Executor::Serial, Executor::Streams, Executor::Programmatic, Executor::Fused];
    let mut late = Vec::new();
    let (mut judged, mut longest) = (0, Duration::ZERO);
    let mut time = |label: String, resolved: &Resolved, executor, most_ms| {
        let Ok(c) = choose::candidate(resolved, device, executor) else { return };
        let took = least(|| assert_eq!(judge(&c).refutations, []));
        (judged, longest) = (judged + 1, longest.max(took));
        if took > Duration::from_millis(most_ms) / 2 {
            println!("{label}, {executor:?}: {:.1} ms", ms(took));
        }
        if took > Duration::from_millis(most_ms) {
            late.push(format!("{label}, {executor:?}: {took:?}"));
        }
    };
    for (name, _) in SPECS {
        let spec = named(name);
        for dims in workloads(name) {
            let resolved = spec.resolve(&dims).expect("sound");
            for executor in executors {
                time(format!("{name} {dims:?}"), &resolved, executor, 10);
            }
        }
    }
    for (m, width) in [(8, 8192), (256, 4096), (4096, 1024)] {
        let resolved = gemm_chain("64 stages", m, &[width; 65]);
        for executor in executors {
            time(format!("64 stages of {m} x {width}"), &resolved, executor, 100);
        }
    }
    println!("{judged} plans, at most {:.1} ms", ms(longest));
    assert!(cfg!(debug_assertions) || late.is_empty(), "{late:#?}");
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn every_batch_of_convolutions_is_chosen_in_200_ms_and_checked_in_50() {
    let device = Profile::named("h200").expect("shipped");
    let mut late = Vec::new();
    let convolutions = |name: &&str| name.starts_with("resnet") || name.starts_with("vgg");
    for name in SPECS.iter().map(|(name, _)| *name).filter(convolutions) {
        let spec = named(name);
        let (chosen_ms, judged_ms) = if name.ends_with("_body") { (2000, 200) } else { (200, 50) };
        let mut longest = [(Duration::ZERO, String::new()), (Duration::ZERO, String::new())];
        for dims in workloads(name) {
            let resolved = spec.resolve(&dims).expect("sound");
            let choice = || choose::candidate(&resolved, device, Executor::Fused).expect("a choice");
            let candidate = choice();
            let times = [
                least(|| assert!(!choice().graph.stages.is_empty())),
                least(|| assert_eq!(judge(&candidate).refutations, [])),
            ];
            for ((most, took), limit) in longest.iter_mut().zip(times).zip([chosen_ms, judged_ms]) {
                if took > most.0 {
                    *most = (took, format!("{dims:?}"));
                }
                if took > Duration::from_millis(limit) {
                    late.push(format!("{name} {dims:?}: {took:?}"));
                }
            }
        }
        let [(chosen, chosen_dims), (judged, judged_dims)] = longest;
        println!(
            "{name}: chosen in at most {:.0} ms, {chosen_dims}; judged in {:.1} ms, {judged_dims}",
            ms(chosen),
            ms(judged)
        );
    }
    assert!(cfg!(debug_assertions) || late.is_empty(), "{late:#?}");
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn attention_of_long_prompts_is_chosen_and_checked_in_time_and_100_mb() {
    let device = Profile::named("h200").expect("shipped");
    println!(
        "verdict of 32768 tokens: {:.0} ms",
        ms(least(|| assert!(judge(&long_attention(32768)).proved())))
    );
    // The second case once took 12 s and 2 GB.
    let mut late = Vec::new();
    for (name, tokens, most_ms) in [("llama65_attention", 32_768, 300), ("gpt3_attention", 131_072, 2000)] {
        let resolved = named(name).resolve(&[(String::from("S"), tokens)]).expect("sound");
        let whole = least(|| {
            let c = choose::candidate(&resolved, device, Executor::Cpu).expect("a choice");
            assert_eq!(judge(&c).refutations, []);
        });
        let peak = peak_bytes();
        println!(
            "{name}, {tokens} tokens: choice and verdict {:.0} ms, {:?} MiB",
            ms(whole),
            peak.map(|b| b >> 20)
        );
        if whole > Duration::from_millis(most_ms) {
            late.push(format!("{name}: {whole:?}"));
        }
        assert!(peak.is_none_or(|bytes| bytes < 100_000_000), "{name}: {peak:?} bytes");
    }
    assert!(cfg!(debug_assertions) || late.is_empty(), "{late:?}");
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn a_million_tiles_are_checked_in_less_than_2_s() {
    for policy in [Policy::Row, Policy::Tile, Policy::Batched { rows: 2, cols: 4 }] {
        let c = long_chain(true, &policy);
        assert_eq!(c.graph.stages.iter().map(|s| s.tiles()).sum::<u32>(), 1_000_000);
        let time = verdict(&c);
        let peak = peak_bytes();
        println!("{policy:?}: {:.0} ms, {:?} MiB", ms(time), peak.map(|b| b >> 20));
        assert!(cfg!(debug_assertions) || time.as_secs_f64() < 2.0, "{policy:?}: {time:?}");
        assert!(peak.is_none_or(|bytes| bytes < 1_000_000_000), "{peak:?} bytes");
    }
}

#[test]
#[ignore = "times the checker; means something in a release build"]
fn aliases_of_a_chain_kernel_of_8192_tokens_are_judged_in_a_second() {
    let device = Profile::named("h200").expect("shipped");
    let resolved = gemm_chain("alias", 8192, &[8192, 8192, 8192, 8192]);
    let mut c = choose::chain(&resolved, device, Default::default()).expect("a chain kernel");
    let (first, last) = (c.graph.stages[0].out, c.graph.stages[2].out);
    c.graph.tensors[last.0].alias = Some(first);
    let tiles: u32 = c.graph.stages.iter().map(|s| s.tiles()).sum();
    let begin = now();
    let report = judge(&c);
    let took = now() - begin;
    println!("{tiles} tiles, {:?}: {:.0} ms", report.refutations, ms(took));
    assert!(cfg!(debug_assertions) || took.as_millis() < 1000, "{took:?}");
}
