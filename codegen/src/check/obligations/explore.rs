//! `progress` by exact exploration of every state that kernels coupled by semaphores can reach, if there are few.
//!
//! A state records which tickets of each stage have been drawn, which CTAs with which items occupy each SM, and how
//! many CTAs are still to be placed. A CTA is placed where shared memory, registers, threads and CTA slots suffice; it
//! draws an item, ends it once everything it waits for has been posted, and draws again until its stage has none left.
//! SMs are interchangeable, so states are kept sorted. If an item can end and its CTA then exits, that happens before
//! anything else: it only frees resources, so no reachable deadlock is missed.
//!
//! If only the occupancy `o` of a kernel is known, its CTA takes between nothing and `1/o` of each resource. The
//! exploration tries every placement that might fit, and a state is deadlocked if nothing in it is certain to fit. So
//! every state that real kernels of these occupancies can reach is explored, and any deadlocked one is found.

use std::collections::HashSet;

use crate::check::{Candidate, CtaResources, Event, StageLaunch, TileProgram};
use crate::device::Profile;
use crate::graph::StageId;

/// Limits on items, SMs and states; nothing larger is explored.
const MAX_ITEMS: usize = 128;
const MAX_SMS: u32 = 16;
const MAX_STATES: usize = 30_000;

/// Result of an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) enum Explored {
    /// No reachable state deadlocks.
    Moves,
    /// A deadlocked state: CTAs of each stage that hold SMs, and CTAs still to be placed.
    Stuck { holding: Vec<u32>, pending: Vec<u32> },
    /// Too many states.
    TooLarge,
}

/// A slice of a tile.
struct Item {
    /// Items that must end before this one can.
    needs: u128,
}

/// A state; the set of ended items follows from it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// For each stage, items drawn and CTAs to be placed.
    drawn: Vec<u8>,
    pending: Vec<u8>,
    /// Items in progress on each SM, ascending; SMs are sorted, too.
    sms: Vec<Vec<u8>>,
}

struct Space<'a> {
    c: &'a Candidate,
    items: Vec<Item>,
    /// Each stage's items in draw order, and the stage of each item.
    order: Vec<Vec<u8>>,
    stage: Vec<u8>,
    /// Capacity of an SM, and the resources that a CTA of each stage takes.
    room: Resources,
    takes: Vec<Takes>,
}

/// Shared memory, registers, threads and CTAs, in units that make all shares integral.
type Resources = [u128; 4];

/// SM resources that a CTA of a stage takes: between `least` and `most`.
struct Takes {
    least: Resources,
    most: Resources,
    /// Occupancy of the stage, if only that is known.
    alone: Option<usize>,
}

/// Capacity of the device's SMs and the resources of a CTA of each stage; `None` if the occupancies overflow.
fn resources(c: &Candidate) -> Option<(Resources, Vec<Takes>)> {
    let device = &c.device;
    let [shared, threads, ctas] = [device.shared_per_sm, device.threads_per_sm, device.ctas_per_sm];
    let whole = [shared, Profile::REGISTERS_PER_SM, threads, ctas].map(u128::from);
    let kernels = || (0..c.graph.stages.len()).map(|s| c.launch.kernel(StageId(s)));
    let known = |kernel: &StageLaunch| if kernel.takes.is_some() { 1 } else { kernel.ctas_per_sm.max(1) };
    // In this unit, a share of `1/o` is integral, too.
    let unit = kernels().flatten().map(known).try_fold(1, |all: u128, n| lcm(all, u128::from(n)))?;
    let scaled = |r: u128| r.checked_mul(unit);
    let scale = |amounts: Resources| -> Option<Resources> {
        Some([scaled(amounts[0])?, scaled(amounts[1])?, scaled(amounts[2])?, scaled(amounts[3])?])
    };
    let room = scale(whole)?;
    let takes = kernels().map(|kernel| {
        let kernel = kernel?;
        Some(match kernel.takes {
            Some(CtaResources { shared, registers, threads }) => {
                let exact = scale([shared, registers, threads, 1].map(u128::from))?;
                Takes { least: exact, most: exact, alone: None }
            }
            None => {
                let share = |r: u128| r / u128::from(kernel.ctas_per_sm.max(1));
                let most = [share(room[0]), share(room[1]), share(room[2]), unit];
                Takes { least: [0, 0, 0, unit], most, alone: Some(kernel.ctas_per_sm as usize) }
            }
        })
    });
    Some((room, takes.collect::<Option<_>>()?))
}

/// Explores the states of a chain of kernels.
pub(super) fn explore(c: &Candidate, p: &dyn TileProgram) -> Explored {
    let Some(space) = Space::new(c, p) else { return Explored::TooLarge };
    let start = State {
        drawn: vec![0; space.order.len()],
        pending: space.order.iter().map(|o| o.len() as u8).collect(),
        sms: vec![Vec::new(); c.device.sms as usize],
    };
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        let state = space.leave(state);
        if seen.contains(&state) {
            continue;
        }
        if seen.len() == MAX_STATES {
            return Explored::TooLarge;
        }
        let (next, surely) = space.moves(&state);
        let busy = state.sms.iter().any(|sm| !sm.is_empty()) || state.pending.iter().any(|n| *n > 0);
        if !surely && busy {
            let mut holding = vec![0; space.order.len()];
            state.sms.iter().flatten().for_each(|i| holding[space.stage[*i as usize] as usize] += 1);
            return Explored::Stuck {
                holding,
                pending: state.pending.iter().map(|n| u32::from(*n)).collect(),
            };
        }
        seen.insert(state);
        open.extend(next);
    }
    Explored::Moves
}

impl<'a> Space<'a> {
    fn new(c: &'a Candidate, p: &dyn TileProgram) -> Option<Space<'a>> {
        let stages = || (0..c.graph.stages.len()).map(StageId);
        let count: u64 =
            c.graph.stages.iter().map(|s| u64::from(s.tiles()) * u64::from(s.split_k.max(1))).sum();
        if count > MAX_ITEMS as u64 || c.device.sms > MAX_SMS {
            return None;
        }
        let (mut order, mut stage) = (vec![Vec::new(); c.graph.stages.len()], Vec::new());
        // By edge and slot: the items that fill it when they end.
        let mut posters = vec![std::collections::HashMap::<u32, u128>::new(); c.graph.dependences.len()];
        let mut tiles = Vec::new();
        for s in stages() {
            let this_stage = &c.graph.stages[s.0];
            for step in 0..this_stage.tiles() {
                let tile = c.launch.order(s).tile_at(this_stage.grid, step)?;
                let mut mask = 0u128;
                for slice in 0..p.slices(&c.graph, s, tile) {
                    let item = stage.len();
                    if item >= MAX_ITEMS {
                        return None;
                    }
                    mask |= 1 << item;
                    order[s.0].push(item as u8);
                    stage.push(s.0 as u8);
                    tiles.push((s, tile, slice));
                }
                for (edge, _) in c.graph.dependences.iter().enumerate().filter(|(_, d)| d.producer == s) {
                    p.posts(edge, tile, &mut |slot, amount| {
                        if amount > 0 {
                            *posters[edge].entry(slot).or_default() |= mask;
                        }
                    });
                }
            }
        }
        let needs = |(s, tile, slice): &(StageId, crate::sync::Tile, u32)| {
            let mut needs = 0;
            p.events(*s, *tile, *slice, &mut |event| {
                if let Event::Wait { edge, slot, value } = event
                    && value > 0
                {
                    needs |= posters[edge].get(&slot).copied().unwrap_or(0);
                }
            });
            Item { needs }
        };
        let items = tiles.iter().map(needs).collect();
        let (room, takes) = resources(c)?;
        Some(Space { c, items, order, stage, room, takes })
    }

    /// Items that have ended.
    fn ended(&self, state: &State) -> u128 {
        let drawn = self.order.iter().zip(&state.drawn).flat_map(|(order, n)| &order[..*n as usize]);
        let drawn = drawn.fold(0, |mask: u128, i| mask | 1 << i);
        state.sms.iter().flatten().fold(drawn, |mask, i| mask & !(1 << i))
    }

    /// Whether a CTA of a stage fits next to those on an SM, if each takes the resources that `amount` selects.
    fn fits(&self, sm: &[u8], stage: usize, amount: impl Fn(&Takes) -> &Resources) -> bool {
        let stages = || sm.iter().map(|i| self.stage[*i as usize] as usize).chain([stage]);
        let alone = self.takes[stage].alone;
        (0..self.room.len())
            .all(|r| stages().map(|s| amount(&self.takes[s])[r]).sum::<u128>() <= self.room[r])
            && alone.is_none_or(|most| stages().filter(|s| *s == stage).count() <= most)
    }

    /// The item's CTA draws its stage's next item or exits; the items of an SM stay sorted.
    fn end(&self, state: &mut State, sm: usize, at: usize) {
        let item = state.sms[sm].remove(at);
        self.draw(state, sm, self.stage[item as usize] as usize);
    }

    fn draw(&self, state: &mut State, sm: usize, stage: usize) {
        if let Some(next) = self.order[stage].get(state.drawn[stage] as usize) {
            state.drawn[stage] += 1;
            let place = state.sms[sm].partition_point(|i| i < next);
            state.sms[sm].insert(place, *next);
        }
    }

    /// Ends all items that can end and after which the CTA exits.
    fn leave(&self, mut state: State) -> State {
        'again: loop {
            let ended = self.ended(&state);
            for sm in 0..state.sms.len() {
                for at in 0..state.sms[sm].len() {
                    let item = state.sms[sm][at] as usize;
                    let stage = self.stage[item] as usize;
                    let last = state.drawn[stage] as usize == self.order[stage].len();
                    if last && self.items[item].needs & !ended == 0 {
                        self.end(&mut state, sm, at);
                        continue 'again;
                    }
                }
            }
            state.sms.sort();
            return state;
        }
    }

    fn may_start(&self, state: &State, stage: usize) -> bool {
        let position = |s: usize| self.c.launch.position(StageId(s));
        !self.c.launch.guarantees_starts()
            || self
                .c
                .graph
                .dependences
                .iter()
                .filter(|d| d.consumer.0 == stage)
                .all(|d| position(d.producer.0) >= position(stage) || state.pending[d.producer.0] == 0)
    }

    /// The possible next states, and whether at least one is certain.
    fn moves(&self, state: &State) -> (Vec<State>, bool) {
        let (mut next, ended, mut surely) = (Vec::new(), self.ended(state), false);
        // The emptiest SM is last and is tried first: waiting CTAs close the most SMs if each has one to itself.
        for sm in (0..state.sms.len()).rev() {
            // SMs with the same contents are interchangeable.
            if sm > 0 && state.sms[sm] == state.sms[sm - 1] {
                continue;
            }
            for (at, item) in state.sms[sm].iter().enumerate() {
                if self.items[*item as usize].needs & !ended == 0 {
                    let mut after = state.clone();
                    self.end(&mut after, sm, at);
                    next.push(after);
                    surely = true;
                }
            }
            for stage in 0..self.order.len() {
                if state.pending[stage] > 0
                    && self.fits(&state.sms[sm], stage, |takes| &takes.least)
                    && self.may_start(state, stage)
                {
                    surely |= self.fits(&state.sms[sm], stage, |takes| &takes.most);
                    let mut after = state.clone();
                    after.pending[stage] -= 1;
                    self.draw(&mut after, sm, stage);
                    next.push(after);
                }
            }
        }
        (next, surely)
    }
}

/// The least common multiple of two positive numbers; `None` on overflow.
pub(super) fn lcm(a: u128, b: u128) -> Option<u128> {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}
