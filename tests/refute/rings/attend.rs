//! The rings of an attention in a decode kernel, explored in every interleaving of its warps: no parity wait passes in
//! the wrong phase, nothing is overwritten while still being read, and nothing deadlocks.
//!
//! The model follows the protocol of `csrc/kernels/decode/sm90` (`attend.cuh`, `attend_load.cuh`, `weights.cuh`), party
//! by party. A thread streams units of keys and values, whose copies arrive in any order. One warp per slot gathers the
//! queries of every other segment once they are ready. Two groups of warps take turns with units, each warp at its own
//! pace, and meet at a segment's end, where they combine their results in the buffer of the segment's last unit. If a
//! head has several parts, the worker that finishes last completes the head after its next segment: one word in shared
//! memory says so. Barriers count phases without wrapping here, so that a parity that matches in the wrong phase is
//! detected.

use super::{Wait, wait};

/// A segment: its units, and whether other workers also have parts of its head.
#[derive(Clone, Copy, Debug)]
struct Segment {
    units: u32,
    shared: bool,
}

/// The attention of one CTA.
#[derive(Clone, Debug)]
struct Stage {
    segments: Vec<Segment>,
    /// Warps in each of the two groups.
    warps: usize,
    /// Segment slots, each filled by its own warp.
    slots: u32,
    /// Units that the ring can hold, the ring's barriers, and the maximum number of units in flight.
    room: u32,
    barriers: u32,
    in_flight: u32,
    /// Whether this worker is the last to write its parts of heads, and so completes them.
    ends: bool,
    /// Whether one warp writes the queries' rounding residue for the others.
    parts: bool,
    /// The fault of a broken kernel.
    broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The last unit of a segment is freed like the others.
    LastFreedAtOnce,
    /// A segment is freed before the warps' results are combined.
    FreedBeforeMerged,
    /// Warps do not meet after combining.
    NoMeetingBehind,
    /// Gathering warps do not wait for a free slot.
    GatheredUnasked,
    /// More units are in flight than there are barriers.
    MoreUnitsThanBarriers,
}

/// The next step of a math warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waits for the queries of a segment.
    Queries(u32),
    /// Waits for a unit and multiplies it.
    Multiply(u32),
    /// Arrives for its group at the barrier of a unit, with the count of two warps.
    Free(u32),
    /// Meets all other warps.
    Meet,
    /// Writes its maxima and sums of a segment.
    LeaveSums(u32),
    /// Writes outputs into a unit's buffer; reads the outputs and sums of all warps.
    LeaveOutputs(u32),
    Merge(u32),
    /// Publishes whether this worker was the last to write its part; reads the published word.
    Say(u32),
    Look(u32),
    /// Arrives at the slot of a segment, or at the barrier of its last unit.
    FreeSlot(u32),
    FreeLast(u32),
}

/// The position of each party. It determines the state of all barriers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Units issued, known to have arrived, and freed, as counted by the streaming thread; and units with arrived
    /// copies.
    issued: u8,
    arrived: u8,
    freed: u8,
    here: u32,
    /// Segments of each slot whose copies have been issued, and have arrived.
    copied: [u8; 4],
    filled: [u8; 4],
    /// Steps of each warp.
    step: [u8; 4],
}

struct Model {
    stage: Stage,
    units: u32,
    steps: Vec<Vec<Step>>,
}

impl Model {
    fn new(stage: Stage) -> Model {
        let warps = 2 * stage.warps;
        let mut steps = vec![Vec::new(); warps];
        for (warp, own) in steps.iter_mut().enumerate() {
            let group = (warp / stage.warps) as u32;
            let (mut unit, mut pending) = (0, None);
            let broken = |how| stage.broken == Some(how);
            for (n, segment) in (0..).zip(&stage.segments) {
                own.push(Step::Queries(n));
                own.extend(stage.parts.then_some(Step::Meet));
                let last = unit + segment.units - 1;
                for at in unit..=last {
                    if at % 2 == group {
                        own.push(Step::Multiply(at));
                        own.extend((at < last || broken(Broken::LastFreedAtOnce)).then_some(Step::Free(at)));
                    }
                }
                own.extend(broken(Broken::FreedBeforeMerged).then_some(Step::FreeLast(last)));
                own.extend([
                    Step::LeaveSums(n),
                    Step::Meet,
                    Step::LeaveOutputs(last),
                    Step::Meet,
                    Step::Merge(n),
                ]);
                let meets = !broken(Broken::NoMeetingBehind);
                if let Some(before) = pending.take() {
                    own.push(Step::Look(before));
                    own.extend((meets && stage.ends).then_some(Step::Meet));
                }
                own.extend(meets.then_some(Step::Meet));
                if segment.shared {
                    own.extend((warp == 0).then_some(Step::Say(n)));
                    pending = Some(n);
                }
                own.push(Step::FreeSlot(n));
                let freed = broken(Broken::LastFreedAtOnce) || broken(Broken::FreedBeforeMerged);
                own.extend((!freed).then_some(Step::FreeLast(last)));
                unit = last + 1;
            }
            own.extend(pending.iter().flat_map(|n| [Step::Meet, Step::Look(*n)]));
        }
        let units = stage.segments.iter().map(|s| s.units).sum();
        Model { stage, units, steps }
    }

    fn done(&self, s: &State) -> bool {
        self.steps.iter().zip(s.step).all(|(steps, at)| usize::from(at) == steps.len())
    }

    /// The steps that a warp has completed.
    fn behind<'a>(&'a self, s: &State, warp: usize) -> &'a [Step] {
        &self.steps[warp][..usize::from(s.step[warp])]
    }

    fn all(&self, s: &State, step: Step) -> bool {
        (0..self.steps.len()).all(|w| self.behind(s, w).contains(&step) || !self.steps[w].contains(&step))
    }

    /// Completed phases of a unit's barriers: its copy has arrived; all warps have freed it.
    fn unit_full(&self, s: &State, barrier: u32) -> u32 {
        let units = (barrier..u32::from(s.issued)).step_by(self.stage.barriers as usize);
        units.filter(|unit| s.here >> unit & 1 == 1).count() as u32
    }

    fn unit_freed(&self, s: &State, barrier: u32) -> u32 {
        let arrivals = |step: &Step| match step {
            Step::Free(unit) if unit % self.stage.barriers == barrier => 2,
            Step::FreeLast(unit) if unit % self.stage.barriers == barrier => 1,
            _ => 0,
        };
        let all: u32 = (0..self.steps.len()).flat_map(|w| self.behind(s, w)).map(arrivals).sum();
        all / self.steps.len() as u32
    }

    fn slot_freed(&self, s: &State, slot: u32) -> u32 {
        let freed = |step: &&Step| matches!(step, Step::FreeSlot(n) if n % self.stage.slots == slot);
        let by = |w: usize| self.behind(s, w).iter().filter(freed).count() as u32;
        (0..self.steps.len()).map(by).min().unwrap_or(0)
    }

    /// Whether no warp reads or writes a unit any more.
    fn over(&self, s: &State, unit: u32) -> bool {
        let of_unit = |step: &Step| matches!(step, Step::Multiply(u) | Step::LeaveOutputs(u) if *u == unit);
        let (mut first, mut last) = (0, None);
        for (n, segment) in (0..).zip(&self.stage.segments) {
            first += segment.units;
            last = last.or((first == unit + 1).then_some(n));
        }
        let used = |w: usize| {
            self.steps[w].iter().filter(|step| of_unit(step)).all(|step| self.behind(s, w).contains(step))
        };
        (0..self.steps.len()).all(used) && last.is_none_or(|n| self.all(s, Step::Merge(n)))
    }

    /// Whether a warp may take its next step. An error describes the fault.
    fn goes(&self, s: &State, warp: usize, step: Step) -> Result<bool, String> {
        let (slots, barriers) = (self.stage.slots, self.stage.barriers);
        let on = |name: &str, number: u32, phase: u32, over: u32| match wait(phase, over) {
            Wait::Blocks => Ok(false),
            Wait::Passes => Ok(true),
            Wait::Wrong => Err(format!("{name} {number}: waits for phase {phase}, {over} are over")),
        };
        let others = || (0..self.steps.len()).filter(|w| *w != warp);
        match step {
            Step::Queries(n) => {
                on("queries of segment", n, n / slots, u32::from(s.filled[(n % slots) as usize]))
            }
            Step::Multiply(u) => on("unit", u, u / barriers, self.unit_full(s, u % barriers)),
            Step::Meet => {
                let meetings =
                    |w: usize| self.behind(s, w).iter().filter(|step| **step == Step::Meet).count();
                // Warps at the same meeting or past it.
                let (own, at) = (meetings(warp), |w: usize| self.steps[w].get(usize::from(s.step[w])));
                Ok(others().all(|w| meetings(w) > own || meetings(w) == own && at(w) == Some(&Step::Meet)))
            }
            Step::LeaveSums(n) if n > 0 && !self.all(s, Step::Merge(n - 1)) => {
                Err(format!("sums of segment {n} are left while those of the one before are read"))
            }
            Step::LeaveOutputs(last) => {
                let read = |w: usize| {
                    self.steps[w].contains(&Step::Multiply(last))
                        && !self.behind(s, w).contains(&Step::Multiply(last))
                };
                if others().any(read) {
                    Err(format!("outputs lie in unit {last}, which is read"))
                } else {
                    Ok(true)
                }
            }
            Step::Say(n) => {
                let looks = |step: &Step| matches!(step, Step::Look(before) if *before < n);
                let late = |w: usize| {
                    let still = |step: &&Step| looks(step) && !self.behind(s, w).contains(step);
                    self.steps[w].iter().any(|step| still(&step))
                };
                if (0..self.steps.len()).any(late) {
                    Err(format!("the word of segment {n} comes before the last was read"))
                } else {
                    Ok(true)
                }
            }
            Step::Look(n) => {
                let said = self
                    .behind(s, 0)
                    .iter()
                    .rev()
                    .find_map(|step| if let Step::Say(n) = step { Some(*n) } else { None });
                if said == Some(n) {
                    Ok(true)
                } else {
                    Err(format!("looks for the word of segment {n}, and finds that of {said:?}"))
                }
            }
            Step::LeaveSums(_) | Step::Merge(_) | Step::Free(_) | Step::FreeSlot(_) | Step::FreeLast(_) => {
                Ok(true)
            }
        }
    }

    /// The states reachable by one step of one party.
    fn next(&self, s: &State, out: &mut Vec<State>) -> Result<(), String> {
        let Stage { slots, barriers, room, in_flight, broken, .. } = self.stage;
        let on = |name: &str, number: u32, phase: u32, over: u32| match wait(phase, over) {
            Wait::Blocks => Ok(false),
            Wait::Passes => Ok(true),
            Wait::Wrong => Err(format!("{name} {number}: waits for phase {phase}, {over} are over")),
        };
        // The streaming thread: checks arrivals when too much is in flight, frees when there is no room, issues.
        let (issued, arrived, freed) = (u32::from(s.issued), u32::from(s.arrived), u32::from(s.freed));
        let most = if broken == Some(Broken::MoreUnitsThanBarriers) { room } else { room.min(barriers) };
        if issued < self.units {
            if issued - arrived >= in_flight {
                if on("looks for unit", arrived, arrived / barriers, self.unit_full(s, arrived % barriers))? {
                    out.push(State { arrived: s.arrived + 1, ..s.clone() });
                }
            } else if issued - freed >= most {
                if on("frees unit", freed, freed / barriers, self.unit_freed(s, freed % barriers))? {
                    if !self.over(s, freed) {
                        return Err(format!("unit {freed} is free, and still in use"));
                    }
                    out.push(State { freed: s.freed + 1, arrived: s.arrived.max(s.freed + 1), ..s.clone() });
                }
            } else {
                out.push(State { issued: s.issued + 1, ..s.clone() });
            }
        }
        for unit in (0..issued).filter(|unit| s.here >> unit & 1 == 0) {
            out.push(State { here: s.here | 1 << unit, ..s.clone() });
        }
        for slot in 0..slots {
            let at = slot as usize;
            let (round, segment) = (u32::from(s.copied[at]), u32::from(s.copied[at]) * slots + slot);
            if (segment as usize) < self.stage.segments.len() {
                let asked = broken != Some(Broken::GatheredUnasked);
                let free = round == 0
                    || !asked
                    || on("gathers segment", segment, round - 1, self.slot_freed(s, slot))?;
                if free && round > 0 && !self.all(s, Step::FreeSlot(segment - slots)) {
                    return Err(format!("segment {segment} overwrites one that is read"));
                }
                if free {
                    let mut next = s.clone();
                    next.copied[at] += 1;
                    out.push(next);
                }
            }
            if s.filled[at] < s.copied[at] {
                let mut next = s.clone();
                next.filled[at] += 1;
                out.push(next);
            }
        }
        for (warp, steps) in self.steps.iter().enumerate() {
            if let Some(step) = steps.get(usize::from(s.step[warp]))
                && self.goes(s, warp, *step)?
            {
                let mut next = s.clone();
                next.step[warp] += 1;
                out.push(next);
            }
        }
        Ok(())
    }

    fn explore(&self) -> Result<usize, String> {
        super::explore(&self.stage, |s, out| self.next(s, out), |s| super::stands_still(self.done(s)))
    }
}

/// Segments with these unit counts; negative counts are parts of a head shared with other workers.
fn stage(units: &[i32], room: u32, barriers: u32) -> Stage {
    let segment = |n: &i32| Segment { units: n.unsigned_abs(), shared: *n < 0 };
    let segments = units.iter().map(segment).collect();
    Stage {
        segments,
        warps: 1,
        slots: 2,
        room,
        barriers,
        in_flight: 2,
        ends: true,
        parts: false,
        broken: None,
    }
}

/// A ring holds at least two units: host code refuses less. One unit may always be in flight.
#[test]
fn nothing_is_overwritten_and_nothing_stands_still() {
    let mut states = 0;
    for units in [&[3][..], &[-2, 1], &[1, 1, 1, 1, 1], &[-1, 3, -2], &[2, 1, 3, 1], &[-4, 2, 2]] {
        for (room, barriers) in [(2, 4), (3, 4), (4, 2), (6, 4)] {
            for (in_flight, ends) in [(1, true), (3, true), (3, false)] {
                let stage = Stage { in_flight, ends, ..stage(units, room, barriers) };
                for stage in [Stage { parts: true, ..stage.clone() }, stage] {
                    states += Model::new(stage).explore().unwrap_or_else(|fault| panic!("{fault}"));
                }
            }
        }
    }
    for units in [&[-2, 1][..], &[1, 2, -1], &[-3, 1]] {
        for ends in [true, false] {
            let two = Stage { warps: 2, ends, ..stage(units, 2, 2) };
            states += Model::new(two).explore().unwrap_or_else(|fault| panic!("{fault}"));
        }
    }
    println!("{states} states");
}

/// The model detects the faults of broken kernels.
#[test]
fn broken_rings_are_found() {
    let cases = [
        (Broken::LastFreedAtOnce, "still in use"),
        (Broken::FreedBeforeMerged, "still in use"),
        (Broken::NoMeetingBehind, "while those of the one before are read"),
        (Broken::GatheredUnasked, "overwrites one that is read"),
        (Broken::MoreUnitsThanBarriers, "are over"),
    ];
    for (broken, says) in cases {
        let stage = Stage { broken: Some(broken), ..stage(&[-2, 1, 3, 1], 3, 2) };
        let fault = Model::new(stage).explore().expect_err("broken");
        assert!(fault.contains(says), "{broken:?}: {fault}");
    }
}
