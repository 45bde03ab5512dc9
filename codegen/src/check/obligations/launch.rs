//! `acyclic` and `progress`: see the argument in [`crate::check`].

use super::explore::{Explored, explore, lcm};
use super::scan::Scan;
use crate::check::{Candidate, How, Obligation, Refutation, StageLaunch, Subject, TileProgram};
use crate::device::Profile;
use crate::graph::StageId;

/// Waits between stages as (consumer, producer, edge): dependences, and all other waits of the tiles.
struct Waits {
    pairs: Vec<(StageId, StageId, usize)>,
    /// The first wait that is not a dependence of its consumer: no start guarantee covers it.
    foreign: Option<usize>,
}

impl Waits {
    fn new(c: &Candidate, scan: &Scan) -> Waits {
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

/// No stage waits for itself, even through others. Tiles of one stage never wait for each other, and a stage's CTAs
/// draw tiles in one order, so a cycle of tiles would imply a cycle of stages.
pub(super) fn acyclic(c: &Candidate, scan: &Scan) -> Option<Refutation> {
    let mut producers = vec![Vec::new(); c.graph.stages.len()];
    Waits::new(c, scan)
        .pairs
        .iter()
        .for_each(|(consumer, producer, _)| producers[consumer.0].push(*producer));
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
        // Of two tensors in the same memory, the order of their producers determines which is older.
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

/// The path along producers that leads from a stage back to itself. Each stage is entered once: a stage that was left
/// without success leads back only through a stage on the current path, which is still being searched.
fn cycle(producers: &[Vec<StageId>], start: StageId) -> Option<Vec<StageId>> {
    let mut entered = vec![false; producers.len()];
    // The stages of the path, each with the number of its producers followed so far.
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

/// Some CTA that can run always holds an SM or will get one.
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
        let message = format!("{stated} CTAs of `{}` are stated to fit an SM, and {most} fit", name(stage));
        return Some(Refutation::new(Obligation::Progress, Subject::Stage(stage), message));
    }
    // A single kernel is judged by its lists instead.
    let how = c.launch.how()?;
    let waits = Waits::new(c, scan);
    match how {
        // `cover` rejects a serial chain in the wrong order; without waits it cannot hang.
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

/// Whether the gates of a launch can occupy all SMs at once and leave no room for anything else.
fn crowded_by_gates(c: &Candidate) -> Option<Refutation> {
    if !c.launch.has_gates(c.device.arch) {
        return None;
    }
    let behind = |s: StageId| {
        let before = |producer| c.launch.position(producer) < c.launch.position(s);
        c.graph.dependences.iter().any(|d| d.consumer == s && before(d.producer))
    };
    // On one stream, gates wait one after another.
    let gated: Vec<StageId> = (0..c.graph.stages.len()).map(StageId).filter(|s| behind(*s)).collect();
    let (last, sms) = (*gated.last()?, c.device.sms);
    (gated.len() as u64 >= u64::from(sms)).then(|| {
        let message = format!("{} gates can take each of {sms} SMs", gated.len());
        Refutation::new(Obligation::Progress, Subject::Stage(last), message)
            .fact("each consumer's kernel has a gate before it, a thread on an SM that waits for its producers to begin")
            .help("use the serial executor, or cut the pipeline in two")
    })
}

/// A kernel with fewer CTAs per SM than stated, and the number that fits. Derived from stated resources, otherwise
/// from the device limit.
fn overfull(c: &Candidate) -> Option<(&StageLaunch, u32)> {
    let device = &c.device;
    c.launch.kernels().iter().find_map(|kernel| {
        let fit = kernel.takes.map(|takes| {
            let ratio = |has: u32, takes: u32| has.checked_div(takes).unwrap_or(u32::MAX);
            ratio(device.shared_per_sm, takes.shared)
                .min(ratio(Profile::REGISTERS_PER_SM, takes.registers))
                .min(ratio(device.threads_per_sm, takes.threads))
        });
        let most = fit.unwrap_or(u32::MAX).min(device.ctas_per_sm);
        (kernel.ctas_per_sm > most).then_some((kernel, most))
    })
}

/// Whether a worker that draws tiles in launch order can wait for an undrawn tile.
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

/// Whether kernels coupled by semaphores can deadlock.
fn stands_still(c: &Candidate, p: &dyn TileProgram, waits: &Waits) -> Option<Refutation> {
    let name = |s: StageId| c.graph.stages[s.0].name.as_str();
    let starved = condition(c, waits)?;
    // The conceivable worst case; exploration shows whether it is reachable if there are few states.
    match explore(c, p) {
        Explored::Moves => None,
        Explored::TooLarge => Some(starved),
        Explored::Stuck { holding, pending } => {
            let listed = |counts: &[u32]| {
                let some = counts.iter().enumerate().filter(|(_, n)| **n > 0);
                some.map(|(s, n)| format!("{n} of `{}`", name(StageId(s)))).collect::<Vec<_>>().join(", ")
            };
            Some(starved.fact(format!(
                "found among all placements: {} hold the SMs and wait, and {} cannot be placed",
                listed(&holding),
                listed(&pending)
            )))
        }
    }
}

/// Why the sufficient condition fails for kernels coupled by semaphores; `None` means that no deadlock is possible.
fn condition(c: &Candidate, waits: &Waits) -> Option<Refutation> {
    // The guarantee covers only kernels launched earlier; it promises nothing about later launches.
    let guaranteed =
        c.launch.guarantees_starts() && waits.late(c).next().is_none() && waits.foreign.is_none();
    if guaranteed {
        return None;
    }
    (0..c.graph.stages.len()).map(StageId).find_map(|producer| starved(c, waits, producer))
}

/// Both decision procedures for kernels coupled by semaphores, independently: whether the sufficient condition holds,
/// and the result of the exploration.
#[cfg(feature = "fault-injection")]
pub(in crate::check) fn both_ways(c: &Candidate, p: &dyn TileProgram) -> (bool, Explored) {
    (condition(c, &Waits::new(c, &Scan::new(c, p))).is_none(), explore(c, p))
}

/// The placement in which waiting CTAs may leave no SM for `producer`; `None` if that is impossible. See
/// docs/progress.md for why no deadlock is possible if this is `None` for every stage.
fn starved(c: &Candidate, waits: &Waits, producer: StageId) -> Option<Refutation> {
    let sms = u128::from(c.device.sms);
    let before = waits.ancestors(producer);
    // Stages that wait for something unfinished after everything `producer` needs is done.
    let waiting: Vec<StageId> = (0..c.graph.stages.len())
        .map(StageId)
        .filter(|s| *s != producer && !before.contains(s) && waits.pairs.iter().any(|(w, ..)| w == s))
        .collect();
    // Occupancies are per SM: a CTA takes 1/n of it. An SM is closed when less than the producer's share is left.
    let per_sm = |s: StageId| u128::from(c.launch.ctas_per_sm(s).max(1));
    let closed =
        (0..c.graph.stages.len()).try_fold(1, |all, s| lcm(all, per_sm(StageId(s)))).and_then(|whole| {
            let share = |s: StageId| whole / per_sm(s);
            let held = waiting
                .iter()
                .try_fold(0u128, |sum, s| sum.checked_add(u128::from(ctas(c, *s)).checked_mul(share(*s))?))?;
            Some(held / (whole - share(producer) + 1))
        });
    // If the occupancies overflow, count each CTA as closing a whole SM.
    let count: u128 = waiting.iter().map(|s| u128::from(ctas(c, *s))).sum();
    if closed.unwrap_or(count).min(count) < sms {
        return None;
    }
    let waited_edge =
        |s: StageId| waits.pairs.iter().find(|(consumer, ..)| *consumer == s).map(|(.., edge)| *edge);
    let direct = waits.pairs.iter().find(|(s, p, _)| *p == producer && waiting.contains(s));
    let (spins, edge) = match direct {
        Some((s, _, edge)) => (*s, *edge),
        None => (*waiting.first()?, waited_edge(*waiting.first()?)?),
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

/// CTAs of a stage that can exist at once: one per tile and split-K slice.
fn ctas(c: &Candidate, stage: StageId) -> u64 {
    let stage = &c.graph.stages[stage.0];
    u64::from(stage.tiles()) * u64::from(stage.split_k.max(1))
}
