//! Mutants of small sound plans, judged by `check` and executed by an oracle that shares nothing with it.
//!
//! No mutant that goes wrong in some execution is accepted. A mutant that is refuted, and of which no execution is found
//! that goes wrong, is a false alarm; there are few of them. The full number is run by
//!
//!     CUSYNC_MUTANTS=100000 cargo test --release -p cusync-gen --test mutants -- --nocapture
//!
//! with `CUSYNC_SEED` for other mutants than those of docs/results/mutants.md.

mod lists;
mod mutate;
mod oracle;
mod plans;
mod progress;
mod recorded;

use std::collections::BTreeMap;

use cusync_gen::check::{Obligation, judge, judge_program};
use oracle::{Effort, Violation, violation};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use mutate::{Kind, Mutant};
use recorded::Recorded;

/// How a mutant came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Proved, and no execution goes wrong.
    Harmless,
    /// Refuted, and an execution goes wrong.
    Caught(Obligation, Violation),
    /// Refuted, and no execution was found that goes wrong.
    FalseAlarm(Obligation),
    /// Proved, and an execution goes wrong.
    Unsafe(Violation),
}

fn outcome(mutant: &Mutant, seed: u64) -> Outcome {
    let report = judge_program(&mutant.candidate, &mutant.program);
    let look = |random| violation(&mutant.candidate, &mutant.program, Effort { random, seed });
    match report.refutations.first() {
        None => look(8).map_or(Outcome::Harmless, Outcome::Unsafe),
        Some(first) => match look(4).or_else(|| look(60)) {
            Some(found) => Outcome::Caught(first.obligation, found),
            None => Outcome::FalseAlarm(first.obligation),
        },
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, not a number")),
        Err(_) => otherwise,
    }
}

/// What becomes of the mutants of one kind.
#[derive(Default)]
struct Row {
    harmless: u32,
    caught: u32,
    alarms: BTreeMap<String, u32>,
}

#[test]
fn no_unsafe_mutant_is_accepted_and_false_alarms_are_rare() {
    let (count, seed) = (from_environment("CUSYNC_MUTANTS", 1000), from_environment("CUSYNC_SEED", 1));
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut rows: BTreeMap<Kind, Row> = BTreeMap::new();
    let (mut done, mut accepted, mut plans, mut weaker) = (0, Vec::new(), 0, 0);
    while done < count {
        let base = plans::draw(&mut rng);
        let number = plans;
        plans += 1;
        let report = judge(&base);
        if !report.proved() {
            weaker += 1;
            continue;
        }
        let recorded = Recorded::of(&base);
        let found = violation(&base, &recorded, Effort { random: 4, seed: number });
        if let Some(found) = found {
            accepted.push(format!("plan {number} itself ({:?}): {found:?}", base.executor));
            if std::env::var("CUSYNC_TELL").is_ok() {
                println!("PLAN {:?} {:?} {:?}", base.graph.stages, base.graph.tensors, base.edges);
            }
            continue;
        }
        for _ in 0..20 {
            let kind = Kind::ALL[rng.random_range(0..Kind::ALL.len())];
            let Some(mutant) = mutate::mutate(&mut rng, &base, &recorded, kind) else { continue };
            let row = rows.entry(kind).or_default();
            done += 1;
            match outcome(&mutant, done) {
                Outcome::Harmless => row.harmless += 1,
                Outcome::Caught(..) => row.caught += 1,
                Outcome::FalseAlarm(o) => {
                    let report = judge_program(&mutant.candidate, &mutant.program);
                    if std::env::var("CUSYNC_TELL").is_ok() {
                        println!(
                            "ALARM {kind:?} plan {number} mutant {done} {:?}: {}",
                            mutant.candidate.executor, report.refutations[0]
                        );
                    }
                    *row.alarms.entry(format!("{o:?}")).or_default() += 1;
                }
                Outcome::Unsafe(found) => {
                    accepted.push(format!(
                        "{kind:?}, mutant {done} of plan {number} ({:?}): {found:?}",
                        base.executor
                    ));
                }
            }
        }
    }
    println!("{}", table(&rows, done, plans, weaker, seed));
    assert!(accepted.is_empty(), "{} unsafe mutants are accepted:\n{}", accepted.len(), accepted.join("\n"));
    let alarms: u32 = rows.values().flat_map(|r| r.alarms.values()).sum();
    // A small sample has its luck: the bound is widened by three standard deviations of one.
    let bound = 0.01 * done as f64 + 3.0 * (0.01 * done as f64).sqrt();
    let bound = if done < 20_000 { bound } else { 0.01 * done as f64 };
    assert!(f64::from(alarms) < bound, "{alarms} false alarms of {done}");
}

/// The rows of docs/results/mutants.md.
fn table(rows: &BTreeMap<Kind, Row>, done: u64, plans: u64, weaker: u64, seed: u64) -> String {
    let mut text = format!(
        "{done} mutants of {} plans ({weaker} more drawn and not proved), seed {seed}\n\n| mutation | mutants | harmless, accepted | wrong, refuted | false alarms |\n|---|---|---|---|---|\n",
        plans - weaker
    );
    let (mut harmless, mut caught, mut all) = (0, 0, 0);
    for (kind, row) in rows {
        let alarms: u32 = row.alarms.values().sum();
        let which: Vec<String> =
            row.alarms.iter().map(|(o, n)| format!("{n} {}", o.to_lowercase())).collect();
        let which = if which.is_empty() { "0".into() } else { which.join(", ") };
        let sum = row.harmless + row.caught + alarms;
        text += &format!("| {kind:?} | {sum} | {} | {} | {which} |\n", row.harmless, row.caught);
        (harmless, caught, all) = (harmless + row.harmless, caught + row.caught, all + alarms);
    }
    text + &format!("| all | {done} | {harmless} | {caught} | {all} |\n")
}
