//! The second checker, `xtask/certificate.py`, agrees with `check` on every shipped spec and on random plans and
//! mutants.
//!
//!     CUSYNC_CERTIFICATES=10000 cargo test --release -p cusync-gen --test mutants agree -- --nocapture

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use cusync_gen::check::{
    Axiom, Candidate, Executor, Generated, Obligation, TileProgram, certificate, judge, judge_program,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::spec;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::mutate::{Kind, mutate};
use super::oracle::{Effort, violation};
use super::recorded::Recorded;
use super::{from_environment, plans};

/// The verdicts of `check` on the certificates in a file (one per line), with their names.
#[derive(Default)]
struct Certificates {
    lines: String,
    expected: Vec<(bool, String)>,
    faulty: u32,
}

impl Certificates {
    fn add(&mut self, c: &Candidate, p: &dyn TileProgram, proved: bool, name: String) {
        match certificate(c, p) {
            Ok(value) => {
                writeln!(self.lines, "{value}").expect("a string takes all");
                self.expected.push((proved, name));
            }
            // Arrays of the wrong length cannot be serialized.
            Err(refutation) => {
                assert!(!proved, "{name} is proved: {refutation}");
                self.faulty += 1;
            }
        }
    }

    /// The verdicts of the second checker; `None` without Python.
    #[allow(clippy::print_stdout)]
    fn judged(&self, file: &str) -> Option<Vec<String>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
        std::fs::write(&file, &self.lines).expect("scratch folder");
        let mut python = Command::new("python3");
        let Ok(output) = python.arg("-B").arg(root.join("xtask/certificate.py")).arg(&file).output() else {
            println!("skipped: no python3");
            return None;
        };
        let (printed, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let prefix = format!("{}: ", file.display());
        let verdicts: Vec<String> = printed.lines().map(|l| l.trim_start_matches(&prefix).into()).collect();
        assert_eq!(verdicts.len(), self.expected.len(), "{errors}");
        Some(verdicts)
    }
}

#[test]
fn the_second_checker_accepts_every_shipped_spec() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let mut all = Certificates::default();
    let mut specs: Vec<_> =
        std::fs::read_dir(folder).expect("policies").map(|e| e.expect("a file").path()).collect();
    specs.retain(|path| path.extension().is_some_and(|e| e == "ron"));
    specs.sort();
    for path in &specs {
        let text = std::fs::read_to_string(path).expect("a spec");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let resolved = spec::parse(&text, &name).and_then(|s| s.resolve(&[])).expect("a sound spec");
        let mut some = false;
        for executor in [Executor::Cpu].into_iter().chain(Executor::GPU) {
            let device = Profile::named("h200").expect("shipped");
            let Ok(c) = choose::candidate(&resolved, device, executor) else { continue };
            some = true;
            all.add(&c, &Generated::new(&c), judge(&c).proved(), format!("{name} for {}", executor.name()));
        }
        assert!(some, "{name} is planned for nothing");
    }
    let Some(verdicts) = all.judged("shipped.jsonl") else { return };
    for ((proved, name), verdict) in all.expected.iter().zip(&verdicts) {
        assert!(*proved && verdict.starts_with("accepted"), "{name}: {verdict}");
    }
    println!("{} certificates of {} specs accepted", verdicts.len(), specs.len());
}

/// One token of each of three sequences, and prompts, in pages or in rows.
fn cached(prompt: bool, paged: bool) -> String {
    let (rows, stated, lengths) =
        if prompt { (192, "sequences: 3,", "") } else { (3, "", r#", lengths: "n(3)""#) };
    let (pages, cache) = if paged { (r#"pages: "P(3,2)","#, "9,1,64,64") } else { ("", "3,1,128,64") };
    format!(
        r#"Pipeline(name: "cached", dims: {{}}, stages: [
            Attention(name: "attend", qkv: "QKV({rows},256)", heads: 2, kv_heads: 1, {stated} {pages} out: "A({rows},128)",
                cache: Cache(keys: "K({cache})", values: "V({cache})"{lengths})),
        ])"#
    )
}

#[test]
fn the_second_checker_agrees_on_what_caches_rest_on() {
    let mut all = Certificates::default();
    let mut premises = Vec::new();
    for (prompt, paged) in [(false, false), (false, true), (true, false), (true, true)] {
        let resolved = spec::parse(&cached(prompt, paged), "cached").and_then(|s| s.resolve(&[]));
        let resolved = resolved.expect("a sound spec");
        for executor in [Executor::Cpu, Executor::Fused] {
            let device = Profile::named("h200").expect("shipped");
            // No kernel fills pages.
            let Ok(c) = choose::candidate(&resolved, device, executor) else { continue };
            premises.push(Axiom::for_launch(&c.graph, &c.launch, 90).contains(&Axiom::Pages));
            let name = format!("prompt: {prompt}, pages: {paged}, {}", executor.name());
            all.add(&c, &Generated::new(&c), judge(&c).proved(), name);
        }
    }
    assert!(premises.len() > 5, "{premises:?}");
    let Some(verdicts) = all.judged("cached.jsonl") else { return };
    let given = format!("accepted, given that {}", Axiom::Pages.statement());
    for (((proved, name), verdict), premise) in all.expected.iter().zip(&verdicts).zip(premises) {
        let expected = if premise { given.as_str() } else { "accepted" };
        assert!(*proved && verdict == expected, "{name}: {verdict}");
    }
}

#[test]
fn the_second_checker_agrees_on_plans_and_mutants() {
    let (count, seed) = (from_environment("CUSYNC_CERTIFICATES", 400), from_environment("CUSYNC_SEED", 1));
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut all, mut refuted) = (Certificates::default(), HashMap::new());
    while (all.expected.len() as u64) < count {
        let base = plans::draw(&mut rng);
        let recorded = Recorded::new(&base);
        let number = all.expected.len();
        all.add(&base, &recorded, judge_program(&base, &recorded).proved(), format!("plan {number}"));
        for _ in 0..4 {
            let kind = Kind::ALL[rng.random_range(0..Kind::ALL.len())];
            let Some(mutant) = mutate(&mut rng, &base, &recorded, kind) else { continue };
            let report = judge_program(&mutant.candidate, &mutant.program);
            let proved = report.proved();
            let name = format!("{kind:?} of plan {number}, {:?}", mutant.candidate.launch.executor());
            let (before, at) = (all.expected.len(), number);
            all.add(&mutant.candidate, &mutant.program, proved, name);
            // No stage may wait for itself, although its tiles could: a condition that is sufficient only.
            let coarse = report.refutations.iter().all(|r| r.obligation == Obligation::Acyclic);
            if !proved && coarse && all.expected.len() > before {
                refuted.insert(before, (at, mutant));
            }
        }
    }
    let Some(verdicts) = all.judged(&format!("drawn_{seed}.jsonl")) else { return };
    let (mut accepted, mut refused, mut open) = (0, 0, 0);
    let (mut differ, mut false_alarms) = (Vec::new(), 0);
    for (at, ((proved, name), verdict)) in all.expected.iter().zip(&verdicts).enumerate() {
        let is_safe = || {
            let (number, mutant) = &refuted[&at];
            let effort = Effort { random: 60, seed: *number as u64 };
            violation(&mutant.candidate, &mutant.program, effort).is_none()
        };
        match (proved, verdict.as_str()) {
            (true, verdict) if verdict.starts_with("accepted") => accepted += 1,
            (false, said) if said.starts_with("refused") => refused += 1,
            (_, said) if said.starts_with("not covered") => open += 1,
            (false, said) if said.starts_with("accepted") && refuted.contains_key(&at) && is_safe() => {
                println!("{name}: `check` alone refutes it, and no order of events makes it go wrong");
                false_alarms += 1;
            }
            _ => differ.push(format!(
                "line {}: {name}: proved: {proved}, and the second checker: {verdict}",
                at + 1
            )),
        }
    }
    let faulty = all.faulty;
    println!(
        "{accepted} accepted and {refused} refused by both, {false_alarms} refuted by `check` alone, {faulty} not written, {open} not covered; seed {seed}"
    );
    assert!(false_alarms <= verdicts.len() / 1000, "{false_alarms} false alarms");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(accepted > 0 && refused > 0 && open < verdicts.len() / 4, "the sample shows nothing");
}
