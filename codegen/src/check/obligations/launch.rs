//! `acyclic` and `progress`: see the argument at the head of [`crate::check`].

use super::explore::{Explored, explore};
use super::scan::Scan;
use crate::check::{Candidate, How, Obligation, Refutation, StageLaunch, Subject, TileProgram};
use crate::device::Profile;
use crate::graph::StageId;

/// Which stage waits for which: consumer, producer, and the edge. Dependences, and whatever else the tiles wait for.
struct Waits {
    pairs: Vec<(StageId, StageId, usize)>,
    /// The first of them that is no dependence of the consumer's: no start guarantee speaks of it.
    foreign: Option<usize>,
}

impl Waits {
    fn of(c: &Candidate, scan: &Scan) -> Waits {
        let dependences = c.graph.dependences.iter().enumerate();
        let mut pairs: Vec<_> = dependences.map(|(e, d)| (d.consumer, d.producer, e)).collect();
        let known = pairs.len();
        let others = scan.foreign.iter();
        pairs.extend(others.map(|&(stage, edge)| (stage, c.graph.dependences[edge].producer, edge)));
        let foreign = (pairs.len() > known).then_some(known);
        Waits { pairs, foreign }
    }

    /// Waits for stages that are launched later.
    fn late(&self, c: &Candidate) -> impl Iterator<Item = &(StageId, StageId, usize)> {
        let late = |consumer, producer| c.launch.position(producer) > c.launch.position(consumer);
        self.pairs.iter().filter(move |(consumer, producer, _)| late(*consumer, *producer))
    }

    /// The stages that a stage waits for, directly or through others.
    fn ancestors(&self, stage: StageId) -> Vec<StageId> {
        let (mut seen, mut open) = (Vec::new(), vec![stage]);
        while let Some(at) = open.pop() {
            for (_, producer, _) in self.pairs.iter().filter(|(consumer, ..)| *consumer == at) {
                if !seen.contains(producer) {
                    seen.push(*producer);
                    open.push(*producer);
                }
            }
        }
        seen
    }
}

/// No stage waits, through others, for itself. Tiles of one stage never wait for each other, and a stage's CTAs draw
/// tiles in one order, so a cycle of tiles would be a cycle of stages.
pub(super) fn acyclic(c: &Candidate, scan: &Scan) -> Option<Refutation> {
    let mut producers = vec![Vec::new(); c.graph.stages.len()];
    Waits::of(c, scan).pairs.iter().for_each(|(consumer, producer, _)| producers[consumer.0].push(*producer));
    let cycle = (0..c.graph.stages.len()).map(StageId).find_map(|start| {
        let names: Vec<&str> =
            cycle(&producers, start)?.iter().map(|s| c.graph.stages[s.0].name.as_str()).collect();
        Some(
            Refutation::new(
                Obligation::Acyclic,
                Subject::Stage(start),
                format!("`{}` waits for itself", c.graph.stages[start.0].name),
            )
            .fact(format!("through {}", names.join(" <- ")))
            .help("remove one of these dependences"),
        )
    });
    cycle.or_else(|| {
        // Which of two tensors in one memory is the older follows from the order of their producers.
        let shared = c.graph.tensors.iter().any(|t| t.alias.is_some());
        let late = c.graph.dependences.iter().position(|d| shared && d.producer >= d.consumer)?;
        let name = |s: StageId| &c.graph.stages[s.0].name;
        let d = &c.graph.dependences[late];
        let message = format!("`{}` stands before `{}`, which it reads", name(d.consumer), name(d.producer));
        Some(
            Refutation::new(Obligation::Acyclic, Subject::Edge(late), message)
                .help("list producers before consumers"),
        )
    })
}

/// The path along producers that leads from a stage back to it. Each stage is entered once: one that was left without
/// success does not lead back, except through a stage of the path, which is still being searched.
fn cycle(producers: &[Vec<StageId>], start: StageId) -> Option<Vec<StageId>> {
    let mut entered = vec![false; producers.len()];
    // The stages of the path, each with how many of its producers have been followed.
    let mut path = vec![(start, 0)];
    while let Some((stage, followed)) = path.last_mut() {
        let Some(&next) = producers[stage.0].get(*followed) else {
            path.pop();
            continue;
        };
        *followed += 1;
        if next == start {
            return Some(path.iter().map(|(stage, _)| *stage).chain([start]).collect());
        }
        if !std::mem::replace(&mut entered[next.0], true) {
            path.push((next, 0));
        }
    }
    None
}

/// Some CTA that can run always holds, or will be given, an SM.
pub(super) fn progress(c: &Candidate, p: &dyn TileProgram, scan: &Scan) -> Option<Refutation> {
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    if let Some(missing) =
        (0..c.graph.stages.len()).map(StageId).find(|s| c.launch.position(*s) == usize::MAX)
    {
        return Some(Refutation::new(
            Obligation::Progress,
            Subject::Stage(missing),
            format!("`{}` is never launched", name(missing)),
        ));
    }
    if c.launch.on_gpu() && c.device.sms == 0 {
        let message = format!("{} has no SM", c.device.name);
        return Some(Refutation::new(Obligation::Progress, Subject::Pipeline, message));
    }
    if c.launch.on_gpu()
        && let Some(StageLaunch { stage, .. }) = c.launch.kernels().iter().find(|k| k.ctas_per_sm == 0)
    {
        let message = format!("no CTA of `{}` fits an SM", name(*stage));
        return Some(Refutation::new(Obligation::Progress, Subject::Stage(*stage), message));
    }
    if c.launch.on_gpu()
        && let Some((kernel, most)) = overfull(c)
    {
        let (stage, stated) = (kernel.stage, kernel.ctas_per_sm);
        let message = format!("{stated} CTAs of `{}` are said to fit an SM, and {most} do", name(stage));
        return Some(Refutation::new(Obligation::Progress, Subject::Stage(stage), message));
    }
    // Of one kernel the lists are judged instead.
    let how = c.launch.how()?;
    let waits = Waits::of(c, scan);
    match how {
        // `cover` judges a serial chain in the wrong order; it cannot hang, having no waits.
        How::Serial | How::Library => None,
        How::Host => listed_late(c, &waits),
        How::Programmatic if c.device.arch < 90 => {
            let (device, arch) = (&c.device.name, c.device.arch);
            let message = format!("{device} is sm_{arch}, and programmatic launches begin with sm_90");
            let refutation = Refutation::new(Obligation::Progress, Subject::Pipeline, message);
            Some(
                refutation
                    .fact("without a trigger nothing says that every CTA of a producer has begun")
                    .help("use streams"),
            )
        }
        How::Streams(_) | How::Programmatic => crowded_by_gates(c).or_else(|| stands_still(c, p, &waits)),
    }
}

/// Whether the gates of a launch can lie on all SMs at once, so that there is room for nothing else.
fn crowded_by_gates(c: &Candidate) -> Option<Refutation> {
    if !c.launch.has_gates(c.device.arch) {
        return None;
    }
    let behind = |s: StageId| {
        let before = |producer| c.launch.position(producer) < c.launch.position(s);
        c.graph.dependences.iter().any(|d| d.consumer == s && before(d.producer))
    };
    // On a stream one gate waits behind the other.
    let gated: Vec<StageId> = (0..c.graph.stages.len()).map(StageId).filter(|s| behind(*s)).collect();
    let (last, sms) = (*gated.last()?, c.device.sms);
    (gated.len() as u64 >= u64::from(sms)).then(|| {
        let message = format!("{} gates can take each of {sms} SMs", gated.len());
        Refutation::new(Obligation::Progress, Subject::Stage(last), message)
            .fact("each consumer's kernel has a gate before it, a thread on an SM that waits for its producers to begin")
            .help("use the serial executor, or cut the pipeline in two")
    })
}

/// A kernel of which fewer CTAs fit an SM than is stated, and how many do. Stated resources say so, else the device's limit.
fn overfull(c: &Candidate) -> Option<(&StageLaunch, u32)> {
    let device = &c.device;
    c.launch.kernels().iter().find_map(|kernel| {
        let fit = kernel.takes.map(|takes| {
            let of = |has: u32, takes: u32| has.checked_div(takes).unwrap_or(u32::MAX);
            of(device.shared_per_sm, takes.shared)
                .min(of(Profile::REGISTERS_PER_SM, takes.registers))
                .min(of(device.threads_per_sm, takes.threads))
        });
        let most = fit.unwrap_or(u32::MAX).min(device.ctas_per_sm);
        (kernel.ctas_per_sm > most).then_some((kernel, most))
    })
}

/// Whether a worker that draws tiles in launch order can wait for a tile that nobody has drawn.
fn listed_late(c: &Candidate, waits: &Waits) -> Option<Refutation> {
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    waits.late(c).next().map(|(consumer, producer, edge)| {
        Refutation::new(
            Obligation::Progress,
            Subject::Edge(*edge),
            format!("`{}` stands before `{}` in the work list", name(*consumer), name(*producer)),
        )
        .fact("a single worker that draws the consumer's tile waits for a tile further down its own list")
        .help("list producers before consumers")
    })
}

/// Whether kernels that semaphores couple can stand still.
fn stands_still(c: &Candidate, p: &dyn TileProgram, waits: &Waits) -> Option<Refutation> {
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    let starved = condition(c, waits)?;
    // The worst that may be thought of; whether it can be reached is known where there are few states.
    match explore(c, p) {
        Explored::Moves => None,
        Explored::TooLarge => Some(starved),
        Explored::Stuck { holding, pending } => {
            let told = |counts: &[u32]| {
                let some = counts.iter().enumerate().filter(|(_, n)| **n > 0);
                some.map(|(s, n)| format!("{n} of `{}`", name(StageId(s)))).collect::<Vec<_>>().join(", ")
            };
            Some(starved.fact(format!(
                "found among all placements: {} hold the SMs and wait, and {} cannot be placed",
                told(&holding),
                told(&pending)
            )))
        }
    }
}

/// What the sufficient condition has against kernels that semaphores couple; `None`: nothing can stand still.
fn condition(c: &Candidate, waits: &Waits) -> Option<Refutation> {
    // A guarantee speaks of kernels launched before: behind a later launch it promises nothing.
    let guaranteed =
        c.launch.guarantees_starts() && waits.late(c).next().is_none() && waits.foreign.is_none();
    if guaranteed {
        return None;
    }
    (0..c.graph.stages.len()).map(StageId).find_map(|producer| starved(c, waits, producer))
}

/// Each way to decide of kernels that semaphores couple, for itself: whether the sufficient condition holds, and what is
/// found among all states.
#[cfg(feature = "fault-injection")]
pub(in crate::check) fn both_ways(c: &Candidate, p: &dyn TileProgram) -> (bool, Explored) {
    (condition(c, &Waits::of(c, &Scan::of(c, p))).is_none(), explore(c, p))
}

/// The placement in which waiting CTAs may leave `producer` no SM; `None` when they cannot. See docs/progress.md for why
/// nothing stands still when this is `None` for every stage.
fn starved(c: &Candidate, waits: &Waits, producer: StageId) -> Option<Refutation> {
    let sms = u128::from(c.device.sms);
    let before = waits.ancestors(producer);
    // Whoever waits for anything that is not done when all that `producer` needs is.
    let waiting: Vec<StageId> = (0..c.graph.stages.len())
        .map(StageId)
        .filter(|s| *s != producer && !before.contains(s) && waits.pairs.iter().any(|(w, ..)| w == s))
        .collect();
    // Occupancies are per SM: 1/n of an SM a CTA. An SM is closed when what is left is less than the producer's share.
    let per_sm = |s: StageId| u128::from(c.launch.ctas_per_sm(s).max(1));
    let closed =
        (0..c.graph.stages.len()).try_fold(1, |all, s| lcm(all, per_sm(StageId(s)))).and_then(|whole| {
            let share = |s: StageId| whole / per_sm(s);
            let held = waiting
                .iter()
                .try_fold(0u128, |sum, s| sum.checked_add(u128::from(ctas(c, *s)).checked_mul(share(*s))?))?;
            Some(held / (whole - share(producer) + 1))
        });
    // Of occupancies that no arithmetic holds, each CTA counts as one that closes an SM.
    let count: u128 = waiting.iter().map(|s| u128::from(ctas(c, *s))).sum();
    if closed.unwrap_or(count).min(count) < sms {
        return None;
    }
    let of = |s: StageId| waits.pairs.iter().find(|(consumer, ..)| *consumer == s).map(|(.., edge)| *edge);
    let direct = waits.pairs.iter().find(|(s, p, _)| *p == producer && waiting.contains(s));
    let (spins, edge) = match direct {
        Some((s, _, edge)) => (*s, *edge),
        None => (*waiting.first()?, of(*waiting.first()?)?),
    };
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    let holders: Vec<String> = waiting.iter().map(|s| format!("{} of `{}`", ctas(c, *s), name(*s))).collect();
    let tile = c.launch.order(spins).tile_at(c.graph.stages[spins.0].grid, 0)?;
    Some(
        Refutation::new(
            Obligation::Progress,
            Subject::Edge(edge),
            format!("waiting CTAs can take every SM before `{}` has started", name(producer)),
        )
        .fact(format!(
            "CTAs that wait while `{}` is not done: {}; SMs: {sms}",
            name(producer),
            holders.join(", ")
        ))
        .fact(format!(
            "placed first, they close all {sms} SMs; {}({}, {}) spins on {}",
            name(spins),
            tile.m,
            tile.n,
            c.edge_name(edge)
        ))
        .fact(format!("no CTA of `{}` can then be placed, so nothing posts", name(producer)))
        .help("launch with a start guarantee, producers first, or shrink the consumer below one wave"),
    )
}

/// CTAs of a stage that can exist at once: one a tile and split-K slice.
fn ctas(c: &Candidate, stage: StageId) -> u64 {
    let stage = &c.graph.stages[stage.0];
    u64::from(stage.tiles()) * u64::from(stage.split_k.max(1))
}

/// The least common multiple of two numbers above 0; `None` where it is too large.
pub(super) fn lcm(a: u128, b: u128) -> Option<u128> {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}
