//! The judgement of a decode plan.

use std::ops::Range;

use super::super::{Candidate, Obligation, Refutation, Report, Subject, obligations};
use super::{DecodeEvent, DecodeProgram};
use crate::graph::StageId;
use crate::schedule::decode::{
    COLUMN_TILE, Decode, base, is_read, owners_of_tile, producer_of, unfit, width_of,
};

/// Judges any program for a decode plan.
pub fn judge_decode(c: &Candidate, decode: &Decode, program: &dyn DecodeProgram) -> Report {
    if let Some(refutation) = bounds(c, decode) {
        return Report { refutations: vec![refutation], complete: false };
    }
    let run = Run::of(c, decode, program);
    let refutations = Obligation::ALL.iter().filter_map(|obligation| match obligation {
        Obligation::Order => run.order(),
        Obligation::Bounds => run.slots(),
        Obligation::Cover => run.cover(),
        Obligation::Count => run.count(),
        // `bounds` has found that stages read earlier ones only.
        Obligation::Acyclic => None,
        Obligation::Progress => run.progress(),
        Obligation::Reuse => reuse(c),
        Obligation::Replay | Obligation::Visible => obligations::judge_contract(*obligation, c),
    });
    Report { refutations: refutations.collect(), complete: true }
}

pub(super) fn refute(obligation: Obligation, stage: usize, message: impl Into<String>) -> Refutation {
    Refutation::new(obligation, Subject::Stage(StageId(stage)), message)
}

/// A graph and a plan that a decode kernel can be handed, and the numbers that it will itself arrive at.
fn bounds(c: &Candidate, decode: &Decode) -> Option<Refutation> {
    let pipeline = |message: String| Some(Refutation::new(Obligation::Bounds, Subject::Pipeline, message));
    let (graph, workers) = (&c.graph, decode.workers);
    if c.device.arch != 90 {
        let message = format!("decode kernels are for sm_90a, and {} is sm_{}", c.device.name, c.device.arch);
        return pipeline(message);
    }
    if let Some(why) = unfit(graph, workers) {
        return pipeline(format!("no decode kernel runs this chain: {why}"));
    }
    if decode.stages.len() != graph.stages.len() || workers == 0 {
        let (plan, graph) = (decode.stages.len(), graph.stages.len());
        return pipeline(format!("a decode plan of {plan} stages and {workers} workers for {graph} stages"));
    }
    let mut slot_base = 0;
    for (s, (plan, stage)) in decode.stages.iter().zip(&graph.stages).enumerate() {
        let tiles = stage.n.div_ceil(COLUMN_TILE);
        let read = is_read(graph, StageId(s));
        let owners = |tile: u32| if read { owners_of_tile(tile, stage.n, workers) } else { 0 };
        let fault = if plan.bounds.len() != workers as usize + 1 {
            format!("has {} bounds for {workers} workers", plan.bounds.len())
        } else if let Some(worker) =
            (0..=workers).find(|w| plan.bounds[*w as usize] != base(stage.n, workers, *w))
        {
            let (stated, computed) = (plan.bounds[worker as usize], base(stage.n, workers, worker));
            format!(
                "lets worker {worker} begin at column {stated}, and the kernel lets it begin at {computed}"
            )
        } else if plan.posts.len() != tiles as usize {
            format!("has {} slots for {tiles} column tiles", plan.posts.len())
        } else if let Some(tile) = (0..tiles).find(|t| plan.posts[*t as usize] != owners(*t)) {
            let stated = plan.posts[tile as usize];
            format!(
                "states {stated} posts to column tile {tile}, and the kernel reckons with {}",
                owners(tile)
            )
        } else if plan.slot_base != slot_base {
            format!("begins its slots at {}, the stages before it have {slot_base}", plan.slot_base)
        } else if plan.producer != producer_of(graph, stage) || plan.producer.is_some_and(|p| p.0 >= s) {
            format!("is said to read stage {:?}", plan.producer.map(|p| p.0))
        } else if width_of(stage.m) != Some(decode.width) {
            format!("has {} rows, and the kernel is for {}", stage.m, decode.width)
        } else {
            slot_base += tiles;
            continue;
        };
        return Some(refute(Obligation::Bounds, s, format!("`{}` {fault}", stage.name)));
    }
    None
}

/// What one warp of a CTA does in a stage.
pub(super) struct Steps {
    pub(super) stage: usize,
    pub(super) cta: usize,
    pub(super) events: Vec<DecodeEvent>,
}

/// One run of a program, gathered.
pub(super) struct Run<'a> {
    pub(super) c: &'a Candidate,
    pub(super) decode: &'a Decode,
    /// By stage, CTA and warp, in this order.
    pub(super) steps: Vec<Steps>,
    pub(super) warps: usize,
    /// By stage and slot: the posts of a run.
    pub(super) totals: Vec<Vec<u64>>,
    /// By stage: what is stored, by column.
    stored: Vec<Vec<Stored>>,
}

/// Columns that a CTA stores, and the slots that it posts afterwards.
struct Stored {
    columns: Range<u32>,
    cta: usize,
    slots: Vec<u32>,
}

impl<'a> Run<'a> {
    fn of(c: &'a Candidate, decode: &'a Decode, program: &dyn DecodeProgram) -> Run<'a> {
        let mut totals: Vec<Vec<u64>> = decode.stages.iter().map(|s| vec![0; s.posts.len()]).collect();
        let mut stored: Vec<Vec<Stored>> = decode.stages.iter().map(|_| Vec::new()).collect();
        let (mut steps, warps) = (Vec::new(), program.warps().max(1));
        for stage in 0..decode.stages.len() {
            for (cta, warp) in (0..decode.workers).flat_map(|c| (0..warps).map(move |w| (c, w))) {
                let mut events = Vec::new();
                program.events(StageId(stage), cta, warp, &mut |event| events.push(event));
                for (at, event) in events.iter().enumerate() {
                    match event {
                        DecodeEvent::Post { slot, amount } => {
                            if let Some(total) = totals[stage].get_mut(*slot as usize) {
                                *total += u64::from(*amount);
                            }
                        }
                        DecodeEvent::Store { columns } if !columns.is_empty() => {
                            let after = events[at..].iter().filter_map(|event| match event {
                                DecodeEvent::Post { slot, amount } if *amount > 0 => Some(*slot),
                                _ => None,
                            });
                            let slots = after.collect();
                            stored[stage].push(Stored { columns: columns.clone(), cta: cta as usize, slots });
                        }
                        _ => {}
                    }
                }
                steps.push(Steps { stage, cta: cta as usize, events });
            }
        }
        stored.iter_mut().for_each(|s| s.sort_by_key(|s| (s.columns.start, s.columns.end)));
        Run { c, decode, steps, warps: warps as usize, totals, stored }
    }

    pub(super) fn name(&self, stage: usize) -> &str {
        self.c.graph.stages.get(stage).map_or("?", |s| s.name.as_str())
    }

    /// The first event for which `f` finds fault.
    fn find(&self, f: impl Fn(&Steps, &DecodeEvent) -> Option<Refutation>) -> Option<Refutation> {
        self.steps.iter().find_map(|steps| steps.events.iter().find_map(|event| f(steps, event)))
    }

    /// Every column of every output is stored by exactly one CTA.
    fn order(&self) -> Option<Refutation> {
        self.stored.iter().enumerate().find_map(|(stage, stored)| self.columns_of(stage, stored))
    }

    /// Every column of a stage is stored by exactly one CTA.
    fn columns_of(&self, stage: usize, stored: &[Stored]) -> Option<Refutation> {
        let columns = self.c.graph.stages[stage].n;
        let fault = |message: String| {
            Some(
                refute(Obligation::Order, stage, format!("{message} of `{}`", self.name(stage)))
                    .help("shares are disjoint and together all columns"),
            )
        };
        let (mut done, mut before) = (0, 0);
        for Stored { columns: Range { start, end }, cta, .. } in stored {
            if *start < done {
                let end = done.min(*end);
                return fault(format!("CTA {cta} and CTA {before} both store columns {start}..{end}"));
            }
            if *start > done {
                return fault(format!("no CTA stores columns {done}..{start}"));
            }
            (done, before) = (*end, *cta);
        }
        match done {
            _ if done < columns => fault(format!("no CTA stores columns {done}..{columns}")),
            _ if done > columns => {
                fault(format!("CTA {before} stores columns {columns}..{done}, past the end"))
            }
            _ => None,
        }
    }

    /// Slots inside their stage's array.
    fn slots(&self) -> Option<Refutation> {
        self.find(|Steps { stage, cta, .. }, event| {
            let (owner, slot, verb) = match event {
                DecodeEvent::Wait { stage, slot, .. } => (stage.0, *slot, "waits for"),
                DecodeEvent::Post { slot, .. } => (*stage, *slot, "posts"),
                _ => return None,
            };
            let count = self.totals.get(owner).map_or(0, Vec::len);
            (slot as usize >= count).then(|| {
                let name = self.name(*stage);
                let message =
                    format!("CTA {cta} {verb} slot {slot} of stage {owner} in `{name}`, which has {count}");
                refute(Obligation::Bounds, *stage, message)
            })
        })
    }

    /// What is stored in `columns` of a stage.
    fn met(&self, stage: StageId, columns: &Range<u32>) -> impl Iterator<Item = &Stored> {
        let stored = self.stored.get(stage.0).map_or(&[][..], Vec::as_slice);
        let first = stored.partition_point(|s| s.columns.end <= columns.start);
        let end = columns.end;
        stored[first..].iter().take_while(move |s| s.columns.start < end)
    }

    /// Before a load, its warp has waited for a slot, up to all its posts, that every owner of its columns posts after its
    /// store; a residual is the CTA's own work.
    fn cover(&self) -> Option<Refutation> {
        self.steps.iter().find_map(|steps| {
            let mut waited: Vec<(usize, u32)> = Vec::new();
            for event in &steps.events {
                let (stage, columns) = match event {
                    DecodeEvent::Wait { stage, slot, value } => {
                        let total = self.totals.get(stage.0).and_then(|t| t.get(*slot as usize));
                        if total.is_some_and(|total| u64::from(*value) >= *total) {
                            waited.push((stage.0, *slot));
                        }
                        continue;
                    }
                    DecodeEvent::Load { stage, columns } | DecodeEvent::Residual { stage, columns } => {
                        (*stage, columns)
                    }
                    DecodeEvent::Store { .. } | DecodeEvent::Post { .. } => continue,
                };
                // What its own CTA did in an earlier stage, a residual need not wait for.
                let own = matches!(event, DecodeEvent::Residual { .. }) && stage.0 < steps.stage;
                let racing = self.met(stage, columns).find(|stored| {
                    let known = stored.slots.iter().any(|slot| waited.contains(&(stage.0, *slot)));
                    !(known || own && stored.cta == steps.cta)
                });
                if let Some(racing) = racing {
                    return Some(self.race(steps, event, stage.0, columns, racing));
                }
            }
            None
        })
    }

    fn race(
        &self,
        steps: &Steps,
        event: &DecodeEvent,
        writer: usize,
        columns: &Range<u32>,
        racing: &Stored,
    ) -> Refutation {
        let (cta, owner) = (steps.cta, racing.cta);
        let message = format!(
            "CTA {cta} may read `{}`'s output in `{}` before CTA {owner} has written it",
            self.name(writer),
            self.name(steps.stage)
        );
        let what = match event {
            DecodeEvent::Residual { .. } => "adds as residual".into(),
            _ => format!("loads, as k-tile {},", columns.start / COLUMN_TILE),
        };
        let refutation = refute(Obligation::Cover, steps.stage, message)
            .fact(format!("CTA {cta} {what} columns {}..{}", columns.start, columns.end))
            .fact(format!("CTA {owner} writes columns {}..{}", racing.columns.start, racing.columns.end));
        match racing.slots.first() {
            Some(slot) => refutation.fact(format!(
                "it then posts slots {slot}..{}, none of which the reading warp has waited for up to all its posts",
                racing.slots.last().map_or(0, |s| s + 1)
            )),
            None => refutation.fact("it posts no slot after that"),
        }
        .help("wait for the slot of each column tile before the load, and post every tile that a share meets")
    }

    /// Wait values are the posts of a run.
    fn count(&self) -> Option<Refutation> {
        self.find(|steps, event| {
            let DecodeEvent::Wait { stage, slot, value } = event else { return None };
            let total = self.totals.get(stage.0)?.get(*slot as usize).copied()?;
            (u64::from(*value) != total).then(|| {
                let outcome = if u64::from(*value) < total {
                    "the wait ends while columns of the tile are still being written"
                } else {
                    "the wait never ends"
                };
                let message = format!(
                    "CTA {} waits in `{}` for {value} posts to column tile {slot} of `{}`, which gets {total} a run",
                    steps.cta,
                    self.name(steps.stage),
                    self.name(stage.0)
                );
                refute(Obligation::Count, steps.stage, message).fact(outcome).help(format!("wait for {total}"))
            })
        })
    }
}

/// The run before must have ended before anything is stored, or read that it wrote.
fn reuse(c: &Candidate) -> Option<Refutation> {
    let ends = c.contract.full_run_boundary && (!c.contract.overlap || c.contract.dependency_wait);
    (!ends).then(|| {
        refute(
            Obligation::Reuse,
            0,
            format!(
                "the next run's CTA 0 may overwrite the output of `{}` while it is still read",
                c.graph.stages[0].name
            ),
        )
        .fact("runs overlap: only weights may be loaded before the run before has ended")
        .help("put every store and every other load behind `griddepcontrol.wait`")
    })
}
