//! What each step of a party waits for and does, and the search through all interleavings.

use super::super::{Wait, explore, stands_still, wait};
use super::{Broken, GROUPS, Model, State, Step};

/// A wait for a phase of a barrier that has completed `over` phases.
fn on(name: &str, number: u8, phase: u32, over: u32) -> Result<bool, String> {
    match wait(phase, over) {
        Wait::Blocks => Ok(false),
        Wait::Passes => Ok(true),
        Wait::Wrong => Err(format!("{name} {number}: waits for phase {phase}, {over} are over")),
    }
}

/// A reused place is free when its previous phase has completed.
fn free(name: &str, number: u8, places: u32, over: u32) -> Result<bool, String> {
    let round = u32::from(number) / places;
    if round == 0 { Ok(true) } else { on(name, number, round - 1, over) }
}

impl Model {
    fn parties<'a>(&'a self, s: &'a State) -> impl Iterator<Item = (&'a [Step], u8)> {
        let one = [(&self.dispatch[..], s.dispatch), (&self.load[..], s.load)];
        let groups = (0..GROUPS).flat_map(|g| [(&self.math[..], s.math[g]), (&self.store[..], s.store[g])]);
        one.into_iter().chain(groups)
    }

    fn done(&self, s: &State) -> bool {
        self.parties(s).all(|(steps, at)| usize::from(at) == steps.len())
    }

    /// How many of a party's completed steps match `which`.
    fn past(steps: &[Step], at: u8, which: impl Fn(&Step) -> bool) -> u32 {
        steps[..usize::from(at)].iter().filter(|step| which(step)).count() as u32
    }

    /// Completed phases of a place in the item ring: all readers have taken its item.
    fn items_taken(&self, s: &State, place: u32) -> u32 {
        let taken = |step: &Step| matches!(step, Step::Take(i) if u32::from(*i) % self.cta.work == place);
        self.parties(s).skip(1).map(|(steps, at)| Self::past(steps, at, taken)).min().unwrap_or(0)
    }

    fn word(&self, s: &State) -> u8 {
        let words = self.dispatch[..usize::from(s.dispatch)].iter().filter_map(|step| match step {
            Step::Word(word) => Some(*word),
            _ => None,
        });
        words.max().unwrap_or(0)
    }

    fn arrived(&self, s: &State, place: u32) -> u32 {
        let in_place = |n: &u32| n % self.cta.operands == place && s.here >> n & 1 == 1;
        (0..32).filter(in_place).count() as u32
    }

    fn freed(&self, s: &State, place: u32) -> u32 {
        let free = |step: &Step| matches!(step, Step::Free(n) if u32::from(*n) % self.cta.operands == place);
        (0..GROUPS).map(|g| Self::past(&self.math, s.math[g], free)).min().unwrap_or(0)
    }

    /// The state after one step of a party, or `None` if it cannot proceed. An error describes the fault.
    fn step(&self, s: &State, step: Step, group: usize) -> Result<Option<State>, String> {
        let cta = &self.cta;
        let goes = match step {
            Step::Publish(i) => free("item", i, cta.work, self.items_taken(s, u32::from(i) % cta.work))?,
            Step::Take(i) => {
                let work = cta.work as u8;
                let same = |step: &Step| matches!(step, Step::Publish(p) if p % work == i % work);
                let published = Self::past(&self.dispatch, s.dispatch, same);
                on("reader of item", i, u32::from(i) / cta.work, published)?
            }
            // A broken kernel's word runs ahead of the satisfied waits.
            Step::Word(word) => s.met >= word - u8::from(cta.broken == Some(Broken::WordTooFar)),
            Step::Asked(i) => {
                let asked = Self::past(&self.load, s.load, |step| *step == Step::Ask);
                on("asked for the item behind", i, u32::from(i), asked)?
            }
            Step::Acquire(n) => free("k-block", n, cta.operands, self.freed(s, u32::from(n) % cta.operands))?,
            Step::AcquireAll { first, last, waits_for } => {
                let freed = |n: u8| self.freed(s, u32::from(n) % cta.operands);
                let goes = free("k-blocks to", waits_for, cta.operands, freed(waits_for))?;
                let taken = |n: &u8| freed(*n) < u32::from(*n) / cta.operands;
                if let Some(n) = (first..=last).find(taken).filter(|_| goes) {
                    return Err(format!("the place of k-block {n} is filled before it is free"));
                }
                goes
            }
            Step::Follow { n, .. } => return Ok(Some(State { here: s.here | 1 << n, ..*s })),
            // If `last` is further back than the ring is deep, its ring place has already been waited for.
            Step::Overwrite { n, last } => {
                let place = u32::from(last) % cta.operands;
                u32::from(last) + cta.operands < u32::from(n)
                    || on(
                        "window over that of k-block",
                        last,
                        u32::from(last) / cta.operands,
                        self.freed(s, place),
                    )?
            }
            Step::Load { word, met, .. } | Step::Ready { word, met } => {
                let ready = self.word(s) >= word;
                if ready && s.met < met {
                    return Err(format!("{step:?} goes on though only {} waits are met", s.met));
                }
                ready
            }
            Step::Multiply(n) => {
                let place = u32::from(n) % cta.operands;
                let goes =
                    on("arithmetic of k-block", n, u32::from(n) / cta.operands, self.arrived(s, place))?;
                let missing = |step: &Step| match step {
                    Step::Follow { n: follower, with } => *follower == n && s.here >> with & 1 == 0,
                    _ => false,
                };
                if goes && self.load.iter().any(missing) {
                    return Err(format!("k-block {n} is read before the copy that brings it"));
                }
                goes
            }
            Step::Stage(_) | Step::Send(_) | Step::Bring(_) | Step::Add(_) => self.staging(s, step, group)?,
            Step::Count(tile) => return self.count(s, tile, group).map(Some),
            Step::Ask | Step::Tell(_) | Step::Free(_) | Step::Commit(_) | Step::Sent(_) => true,
        };
        Ok(goes.then_some(*s))
    }

    /// Whether a step in a warpgroup's staging ring can proceed.
    fn staging(&self, s: &State, step: Step, group: usize) -> Result<bool, String> {
        let (cta, places) = (&self.cta, self.cta.staging);
        let (math, store) = ((&self.math[..], s.math[group]), (&self.store[..], s.store[group]));
        let past = |(steps, at), which: &dyn Fn(&Step) -> bool| Self::past(steps, at, which);
        let same = |n: u8, m: u8| u32::from(n) % places == u32::from(m) % places;
        Ok(match step {
            Step::Stage(n) => {
                let sent = |step: &Step| matches!(step, Step::Sent(m) if same(n, *m));
                free("unit", n, places, past(store, &sent))?
            }
            Step::Send(n) => {
                let there = |step: &Step| matches!(step, Step::Commit(m) if same(n, *m));
                let goes = cta.broken == Some(Broken::StagedUnseen)
                    || on("store of unit", n, u32::from(n) / places, past(math, &there))?;
                if goes && past(math, &|step| *step == Step::Commit(n)) == 0 {
                    return Err(format!("unit {n} is stored before it is there"));
                }
                goes
            }
            Step::Bring(n) => {
                let before = n.checked_sub(places as u8);
                if before.is_some_and(|m| past(store, &|step| *step == Step::Sent(m)) == 0) {
                    return Err(format!("the residual of unit {n} is brought over a unit that is not sent"));
                }
                true
            }
            Step::Add(n) => {
                let in_place = |step: &Step| matches!(step, Step::Bring(m) | Step::Tell(m) if same(n, *m));
                let goes = on("residual of unit", n, u32::from(n) / places, past(store, &in_place))?;
                if goes && past(store, &|step| *step == Step::Bring(n)) == 0 {
                    return Err(format!("unit {n} is made before its residual is there"));
                }
                goes
            }
            other => unreachable!("{other:?} is not in the staging ring"),
        })
    }

    /// A store warp increments its tile's counter; a warp that finds it odd posts.
    fn count(&self, s: &State, tile: u8, group: usize) -> Result<State, String> {
        let counter = |tile: u8| u32::from(tile) % self.cta.counters;
        let same = |step: &Step| matches!(step, Step::Count(t) if counter(*t) == counter(tile));
        let before: u32 = (0..GROUPS).map(|g| Self::past(&self.store, s.store[g], same)).sum();
        if before.is_multiple_of(2) {
            return Ok(*s);
        }
        let counted = |step: &Step| *step == Step::Count(tile);
        if Self::past(&self.store, s.store[1 - group], counted) == 0 {
            return Err(format!("tile {tile} is posted, and one store warp has not stored it"));
        }
        Ok(State { posted: s.posted | 1 << tile, ..*s })
    }

    fn next(&self, s: &State, out: &mut Vec<State>) -> Result<(), String> {
        if s.met < self.waits {
            out.push(State { met: s.met + 1, ..*s });
        }
        // Loads arrive in any order.
        for step in &self.load[..usize::from(s.load)] {
            if let Step::Load { n, .. } = step
                && s.here >> n & 1 == 0
            {
                out.push(State { here: s.here | 1 << n, ..*s });
            }
        }
        let mut advance = |steps: &[Step], at: u8, group: usize, on: fn(&mut State, usize)| {
            if let Some(step) = steps.get(usize::from(at))
                && let Some(mut next) = self.step(s, *step, group)?
            {
                on(&mut next, group);
                out.push(next);
            }
            Ok::<(), String>(())
        };
        advance(&self.dispatch, s.dispatch, 0, |s, _| s.dispatch += 1)?;
        advance(&self.load, s.load, 0, |s, _| s.load += 1)?;
        for group in 0..GROUPS {
            advance(&self.math, s.math[group], group, |s, g| s.math[g] += 1)?;
            advance(&self.store, s.store[group], group, |s, g| s.store[g] += 1)?;
        }
        Ok(())
    }

    pub(super) fn explore(&self) -> Result<usize, String> {
        let end = |state: &State| {
            stands_still(self.done(state))?;
            let all = state.posted.count_ones() == u32::from(self.tiles);
            if all { Ok(()) } else { Err(format!("tiles {:b} are posted", state.posted)) }
        };
        explore(&self.cta, |state, out| self.next(state, out), end)
    }
}
