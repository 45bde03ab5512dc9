//! What the CTAs of a decode kernel do, as `check` sees it, and the judgement of it.
//!
//! # Why progress holds
//!
//! All CTAs are resident: there are no more than SMs. Each goes through the stages in the same order, and waits in a stage
//! for slots of the stage before it only. So, by induction over the stages, every CTA ends every stage: the first waits for
//! nothing; when all CTAs have ended a stage, all its posts are made, `count` says that they reach the wait values, and every
//! CTA ends the next. A post is made at the end of a CTA's share, before anything of the next stage is waited for.

use std::ops::Range;

use super::{Candidate, Coupling, Obligation, Refutation, Report, Subject};
use crate::graph::StageId;
use crate::schedule::decode::{COLUMN_TILE, Decode, column_tiles, unfit};

/// One step of a CTA in a stage, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeEvent {
    /// Spins until a slot of a stage has had `value` posts in this epoch.
    Wait {
        /// The stage that posts.
        stage: StageId,
        /// Its column tile.
        slot: u32,
        /// Posts waited for.
        value: u32,
    },
    /// Loads columns of the output of the stage before, all rows.
    Load {
        /// Columns.
        columns: Range<u32>,
    },
    /// Stores columns of its own output, all rows.
    Store {
        /// Columns.
        columns: Range<u32>,
    },
    /// Adds to a slot of its own stage.
    Post {
        /// Column tile.
        slot: u32,
        /// Posts.
        amount: u32,
    },
}

/// The events of every CTA in every stage.
pub trait DecodeProgram {
    /// Calls `f` with what CTA `cta` does in a stage, in program order. Its stages follow one another in the order of
    /// the graph.
    fn events(&self, stage: StageId, cta: u32, f: &mut dyn FnMut(DecodeEvent));
}

/// The program of the kernels in `csrc/kernels`.
pub struct GeneratedDecode<'a> {
    decode: &'a Decode,
}

impl<'a> GeneratedDecode<'a> {
    /// The program of a decode plan.
    pub fn new(decode: &'a Decode) -> Self {
        GeneratedDecode { decode }
    }
}

impl DecodeProgram for GeneratedDecode<'_> {
    fn events(&self, stage: StageId, cta: u32, f: &mut dyn FnMut(DecodeEvent)) {
        let plan = &self.decode.stages[stage.0];
        let columns = plan.columns(cta);
        if let Some(before) = stage.0.checked_sub(1) {
            let made = &self.decode.stages[before];
            let length = made.bounds.last().copied().unwrap_or(0);
            for (tile, &value) in made.posts.iter().enumerate() {
                let slot = tile as u32;
                f(DecodeEvent::Wait { stage: StageId(before), slot, value });
                let first = slot * COLUMN_TILE;
                f(DecodeEvent::Load { columns: first..(first + COLUMN_TILE).min(length) });
            }
        }
        if columns.is_empty() {
            return;
        }
        f(DecodeEvent::Store { columns: columns.clone() });
        if !plan.posts.is_empty() {
            column_tiles(&columns).for_each(|slot| f(DecodeEvent::Post { slot, amount: 1 }));
        }
    }
}

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
        // A chain, as `bounds` has found.
        Obligation::Acyclic => None,
        Obligation::Progress => run.progress(),
        Obligation::Reuse => reuse(c),
        Obligation::Replay | Obligation::Visible => super::obligations::judge_practice(*obligation, c),
    });
    Report { refutations: refutations.collect(), complete: true }
}

fn refute(obligation: Obligation, stage: usize, message: impl Into<String>) -> Refutation {
    Refutation::new(obligation, Subject::Stage(StageId(stage)), message)
}

/// A graph and a plan that a decode kernel can be handed.
fn bounds(c: &Candidate, decode: &Decode) -> Option<Refutation> {
    let pipeline = |message: String| Some(Refutation::new(Obligation::Bounds, Subject::Pipeline, message));
    if c.coupling != Coupling::Tiles {
        return pipeline("one kernel has no kernel boundaries inside".into());
    }
    if c.device.arch != 90 {
        return pipeline(format!(
            "decode kernels are for sm_90a, and {} is sm_{}",
            c.device.name, c.device.arch
        ));
    }
    if let Some(why) = unfit(&c.graph) {
        return pipeline(format!("no decode kernel runs this chain: {why}"));
    }
    if decode.stages.len() != c.graph.stages.len() || decode.workers == 0 {
        let (plan, graph) = (decode.stages.len(), c.graph.stages.len());
        return pipeline(format!(
            "a decode plan of {plan} stages and {} CTAs for {graph} stages",
            decode.workers
        ));
    }
    let mut slot_base = 0;
    for (s, (plan, stage)) in decode.stages.iter().zip(&c.graph.stages).enumerate() {
        let (first, last) = (plan.bounds.first().copied(), plan.bounds.last().copied());
        let tiles = if s + 1 < decode.stages.len() { stage.n.div_ceil(COLUMN_TILE) } else { 0 };
        let fault = if plan.bounds.len() != decode.workers as usize + 1 {
            format!("has {} bounds for {} CTAs", plan.bounds.len(), decode.workers)
        } else if let Some(cta) = plan.bounds.windows(2).position(|w| w[0] > w[1]) {
            format!("gives CTA {cta} columns {}..{}", plan.bounds[cta], plan.bounds[cta + 1])
        } else if first != Some(0) || last != Some(stage.n) {
            format!("shares out columns {}..{} of {}", first.unwrap_or(0), last.unwrap_or(0), stage.n)
        } else if plan.posts.len() != tiles as usize {
            format!("has {} slots for {tiles} column tiles", plan.posts.len())
        } else if plan.slot_base != slot_base {
            format!("begins its slots at {}, the stages before it have {slot_base}", plan.slot_base)
        } else {
            slot_base += tiles;
            continue;
        };
        return Some(refute(Obligation::Bounds, s, format!("`{}` {fault}", stage.name)));
    }
    None
}

/// One run of a program, gathered.
struct Run<'a> {
    c: &'a Candidate,
    decode: &'a Decode,
    /// By stage and CTA.
    events: Vec<Vec<Vec<DecodeEvent>>>,
    /// By stage and slot: the posts of a run.
    totals: Vec<Vec<u64>>,
}

impl<'a> Run<'a> {
    fn of(c: &'a Candidate, decode: &'a Decode, program: &dyn DecodeProgram) -> Run<'a> {
        let mut totals: Vec<Vec<u64>> = decode.stages.iter().map(|s| vec![0; s.posts.len()]).collect();
        let gather = |stage: usize, cta: u32| {
            let mut events = Vec::new();
            program.events(StageId(stage), cta, &mut |event| events.push(event));
            events
        };
        let events: Vec<Vec<Vec<DecodeEvent>>> = (0..decode.stages.len())
            .map(|s| (0..decode.workers).map(|cta| gather(s, cta)).collect())
            .collect();
        for (s, ctas) in events.iter().enumerate() {
            for event in ctas.iter().flatten() {
                if let DecodeEvent::Post { slot, amount } = event
                    && let Some(total) = totals[s].get_mut(*slot as usize)
                {
                    *total += u64::from(*amount);
                }
            }
        }
        Run { c, decode, events, totals }
    }

    fn name(&self, stage: usize) -> &str {
        &self.c.graph.stages[stage].name
    }

    fn each(&self) -> impl Iterator<Item = (usize, usize, &Vec<DecodeEvent>)> {
        self.events
            .iter()
            .enumerate()
            .flat_map(|(s, ctas)| ctas.iter().enumerate().map(move |(c, e)| (s, c, e)))
    }

    /// Every column of every output is stored by exactly one CTA.
    fn order(&self) -> Option<Refutation> {
        (0..self.events.len()).find_map(|s| {
            let columns = self.c.graph.stages[s].n;
            let mut stored: Vec<(u32, u32, usize)> = Vec::new();
            for (cta, events) in self.events[s].iter().enumerate() {
                stored.extend(events.iter().filter_map(|event| match event {
                    DecodeEvent::Store { columns } if !columns.is_empty() => {
                        Some((columns.start, columns.end, cta))
                    }
                    _ => None,
                }));
            }
            stored.sort_unstable();
            let fault = |message: String| {
                Some(
                    refute(Obligation::Order, s, format!("{message} of `{}`", self.name(s)))
                        .help("shares are disjoint and together all columns"),
                )
            };
            let mut done = 0;
            let mut before = None;
            for (from, to, cta) in stored {
                match from.cmp(&done) {
                    std::cmp::Ordering::Less => {
                        return fault(format!(
                            "CTA {cta} and CTA {} both store columns {from}..{}",
                            before.unwrap_or(0),
                            done.min(to)
                        ));
                    }
                    std::cmp::Ordering::Greater => {
                        return fault(format!("no CTA stores columns {done}..{from}"));
                    }
                    std::cmp::Ordering::Equal => (done, before) = (to, Some(cta)),
                }
            }
            match done.cmp(&columns) {
                std::cmp::Ordering::Less => fault(format!("no CTA stores columns {done}..{columns}")),
                std::cmp::Ordering::Greater => fault(format!(
                    "CTA {} stores columns up to {done}, past the {columns}",
                    before.unwrap_or(0)
                )),
                std::cmp::Ordering::Equal => None,
            }
        })
    }

    /// Slots inside their stage's array.
    fn slots(&self) -> Option<Refutation> {
        self.each().find_map(|(s, cta, events)| {
            events.iter().find_map(|event| {
                let (stage, slot, verb) = match event {
                    DecodeEvent::Wait { stage, slot, .. } => (stage.0, *slot, "waits for"),
                    DecodeEvent::Post { slot, .. } => (s, *slot, "posts"),
                    DecodeEvent::Load { .. } | DecodeEvent::Store { .. } => return None,
                };
                let count = self.decode.stages.get(stage).map_or(0, |d| d.posts.len());
                (slot as usize >= count).then(|| {
                    let message = format!(
                        "CTA {cta} {verb} slot {slot} of stage {stage} in `{}`, which has {count}",
                        self.name(s)
                    );
                    refute(Obligation::Bounds, s, message)
                })
            })
        })
    }

    /// Before a load, every owner of its columns has posted a slot that was waited for up to all its posts, and posted it
    /// after its store.
    fn cover(&self) -> Option<Refutation> {
        (1..self.events.len()).find_map(|s| {
            let before = s - 1;
            let stored = self.stored(before);
            self.events[s].iter().enumerate().find_map(|(cta, events)| {
                let mut waited = vec![false; self.totals[before].len()];
                for event in events {
                    match event {
                        DecodeEvent::Wait { stage, slot, value } => {
                            if stage.0 == before
                                && let Some(mark) = waited.get_mut(*slot as usize)
                            {
                                *mark |= u64::from(*value) >= self.totals[before][*slot as usize];
                            }
                        }
                        DecodeEvent::Load { columns } => {
                            let first = stored.partition_point(|(c, ..)| c.end <= columns.start);
                            let met = stored[first..].iter().take_while(|(c, ..)| c.start < columns.end);
                            for (theirs, owner, slots) in met {
                                if !slots.iter().any(|slot| waited.get(*slot as usize) == Some(&true)) {
                                    return Some(self.race(s, cta, columns, theirs, *owner, slots));
                                }
                            }
                        }
                        DecodeEvent::Store { .. } | DecodeEvent::Post { .. } => {}
                    }
                }
                None
            })
        })
    }

    /// What a stage's CTAs store, by column: with the owner, and the slots that it posts afterwards.
    fn stored(&self, stage: usize) -> Vec<(Range<u32>, usize, Vec<u32>)> {
        let mut stored = Vec::new();
        for (cta, events) in self.events[stage].iter().enumerate() {
            for (at, event) in events.iter().enumerate() {
                let DecodeEvent::Store { columns } = event else { continue };
                let after = events[at..].iter().filter_map(|event| match event {
                    DecodeEvent::Post { slot, amount } if *amount > 0 => Some(*slot),
                    _ => None,
                });
                stored.push((columns.clone(), cta, after.collect()));
            }
        }
        stored.sort_by_key(|(columns, ..)| (columns.start, columns.end));
        stored
    }

    fn race(
        &self,
        stage: usize,
        cta: usize,
        columns: &Range<u32>,
        theirs: &Range<u32>,
        owner: usize,
        slots: &[u32],
    ) -> Refutation {
        let (reader, writer) = (self.name(stage), self.name(stage - 1));
        let refutation = refute(
            Obligation::Cover,
            stage,
            format!("CTA {cta} may read `{writer}`'s output in `{reader}` before CTA {owner} has written it"),
        )
        .fact(format!(
            "CTA {cta} loads columns {}..{} (k-tile {})",
            columns.start,
            columns.end,
            columns.start / COLUMN_TILE
        ))
        .fact(format!("CTA {owner} writes columns {}..{}", theirs.start, theirs.end));
        match slots.first() {
            Some(slot) => refutation.fact(format!(
                "it then posts slots {slot}..{}, none of which CTA {cta} has waited for up to all its posts by then",
                slots.last().map_or(0, |s| s + 1)
            )),
            None => refutation.fact("it posts no slot after that"),
        }
        .help("wait for the slot of each column tile before the load, and post every tile that a share meets")
    }

    /// Wait values are the posts of a run.
    fn count(&self) -> Option<Refutation> {
        self.each().find_map(|(s, cta, events)| {
            events.iter().find_map(|event| {
                let DecodeEvent::Wait { stage, slot, value } = event else { return None };
                let total = self.totals.get(stage.0)?.get(*slot as usize).copied()?;
                (u64::from(*value) != total).then(|| {
                    let outcome = if u64::from(*value) < total {
                        "the wait ends while columns of the tile are still being written"
                    } else {
                        "the wait never ends"
                    };
                    let message = format!(
                        "CTA {cta} waits in `{}` for {value} posts to column tile {slot} of `{}`, which gets {total} a run",
                        self.name(s),
                        self.name(stage.0)
                    );
                    refute(Obligation::Count, s, message).fact(outcome).help(format!("wait for {total}"))
                })
            })
        })
    }

    /// See the head of this file.
    fn progress(&self) -> Option<Refutation> {
        let (workers, sms) = (self.decode.workers, self.c.device.sms);
        if workers > sms {
            let message = format!("{workers} CTAs, of which {sms} are resident at once");
            return Some(
                Refutation::new(Obligation::Progress, Subject::Pipeline, message)
                    .fact(format!("CTA {sms} would begin when another has ended, which waits for its share"))
                    .help("plan for a CTA an SM"),
            );
        }
        if self.c.practice.deferred_post && self.events.len() > 1 {
            return Some(
                refute(
                    Obligation::Progress,
                    1,
                    "the posts of a share are held back until the next stage is under way",
                )
                .fact(format!(
                    "CTA 0 waits in `{}` for a tile that it has itself still to post",
                    self.name(1)
                ))
                .help("post before the first wait of the next stage"),
            );
        }
        self.stuck()
    }

    /// Runs all CTAs, without time, until they end or stand still.
    fn stuck(&self) -> Option<Refutation> {
        let mut posted: Vec<Vec<u64>> = self.totals.iter().map(|t| vec![0; t.len()]).collect();
        let mut at = vec![(0, 0); self.decode.workers as usize];
        // Whether a wait lets a CTA pass; a value beyond the posts of a run is for `count` to refute.
        let passes = |posted: &[Vec<u64>], stage: StageId, slot: u32, value: u32| {
            let of =
                |all: &[Vec<u64>]| all.get(stage.0).and_then(|s| s.get(slot as usize)).copied().unwrap_or(0);
            of(posted) >= u64::from(value).min(of(&self.totals))
        };
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (cta, (stage, step)) in at.iter_mut().enumerate() {
                while let Some(events) = self.events.get(*stage) {
                    let Some(event) = events[cta].get(*step) else {
                        (*stage, *step) = (*stage + 1, 0);
                        continue;
                    };
                    match event {
                        DecodeEvent::Wait { stage, slot, value }
                            if !passes(&posted, *stage, *slot, *value) =>
                        {
                            break;
                        }
                        DecodeEvent::Post { slot, amount } => {
                            if let Some(slot) = posted[*stage].get_mut(*slot as usize) {
                                *slot += u64::from(*amount);
                            }
                        }
                        _ => {}
                    }
                    (*step, moved) = (*step + 1, true);
                }
            }
        }
        let (cta, (s, step)) = at.iter().copied().enumerate().find(|(_, (s, _))| *s < self.events.len())?;
        let DecodeEvent::Wait { stage, slot, .. } = self.events[s][cta][step] else { return None };
        let (reader, writer) = (self.name(s), self.name(stage.0));
        let message = format!("CTA {cta} waits in `{reader}` for column tile {slot} of `{writer}` for ever");
        let posts = |events: &Vec<DecodeEvent>| {
            events.iter().any(|e| matches!(e, DecodeEvent::Post { slot: other, .. } if *other == slot))
        };
        let owner = self.events[stage.0].iter().position(posts);
        let refutation = refute(Obligation::Progress, s, message);
        let refutation = match owner {
            Some(owner) => refutation.fact(format!(
                "CTA {owner} posts it in `{writer}`, and stands itself in `{}`",
                self.events.get(at[owner].0).map_or("none", |_| self.name(at[owner].0))
            )),
            None => refutation.fact("no CTA posts it"),
        };
        Some(refutation.help("wait only for stages that come before"))
    }
}

/// The run before must have ended before anything is stored, or read that it wrote.
fn reuse(c: &Candidate) -> Option<Refutation> {
    let ends = c.practice.full_run_boundary && (!c.practice.early_launch || c.practice.dependency_wait);
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
