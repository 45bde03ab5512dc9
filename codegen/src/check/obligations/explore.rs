//! `progress` by exact exploration: every state that kernels coupled by semaphores can reach, where there are few.
//!
//! A state says which tickets of each stage have been drawn, which CTAs stand on which SM with which item, and how many
//! are still to be placed. A CTA is placed where there is room for it in shared memory, registers, threads and CTAs, draws an item, ends it when all that it waits for has
//! been posted, and draws again until its stage has none left. SMs are alike, so states are kept sorted. An item that can
//! end does so before anything else when its CTA then leaves: that only makes room, so nothing is lost.
//!
//! A CTA of a kernel of which only the occupancy `o` is known takes something between nothing and `1/o` of each resource.
//! What may fit is tried, and a state stands still when nothing in it is sure to fit. So every state that real kernels of
//! these occupancies can reach is among those that are looked at, and if one of those stands still, it is found.

use std::collections::HashSet;

use super::launch::lcm;
use crate::check::{Candidate, CtaResources, Event, StageLaunch, TileProgram};
use crate::device::Profile;
use crate::graph::StageId;

/// Items, SMs and states beyond which nothing is explored.
const MAX_ITEMS: usize = 128;
const MAX_SMS: u32 = 16;
const MAX_STATES: usize = 30_000;

/// What an exploration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) enum Explored {
    /// No reachable state stands still.
    Moves,
    /// In this one, nothing moves: CTAs of each stage that hold SMs, CTAs still to be placed.
    Stuck { holding: Vec<u32>, pending: Vec<u32> },
    /// Too many states.
    TooLarge,
}

/// A slice of a tile.
struct Item {
    /// Items that must have ended before this one can.
    needs: u128,
}

/// A state; what has ended follows from it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// Items drawn and CTAs to be placed, for each stage.
    drawn: Vec<u8>,
    pending: Vec<u8>,
    /// Items under way on each SM, ascending; SMs ascending.
    sms: Vec<Vec<u8>>,
}

struct Space<'a> {
    c: &'a Candidate,
    items: Vec<Item>,
    /// Each stage's items in the order in which they are drawn, and the stage of each item.
    order: Vec<Vec<u8>>,
    stage: Vec<u8>,
    /// Room on an SM, and what a CTA of each stage takes of it.
    room: Resources,
    takes: Vec<Takes>,
}

/// Shared memory, registers, threads and CTAs, in a unit that makes all shares whole.
type Resources = [u128; 4];

/// What a CTA of a stage takes of an SM: something between `least` and `most`.
struct Takes {
    least: Resources,
    most: Resources,
    /// CTAs of the stage that an SM holds at most, where that is all that is known.
    alone: Option<usize>,
}

/// What an SM of a device has, and what a CTA of each stage takes of it; `None` where occupancies are beyond reckoning.
fn resources(c: &Candidate) -> Option<(Resources, Vec<Takes>)> {
    let device = &c.device;
    let [shared, threads, ctas] = [device.shared_per_sm, device.threads_per_sm, device.ctas_per_sm];
    let whole = [shared, Profile::REGISTERS_PER_SM, threads, ctas].map(u128::from);
    let kernels = || (0..c.graph.stages.len()).map(|s| c.launch.kernel(StageId(s)));
    let known = |kernel: &StageLaunch| if kernel.takes.is_some() { 1 } else { kernel.ctas_per_sm.max(1) };
    // In whole units a share of `1/o` is a whole number, too.
    let unit = kernels().flatten().map(known).try_fold(1, |all: u128, of| lcm(all, u128::from(of)))?;
    let scaled = |r: u128| r.checked_mul(unit);
    let scale = |of: Resources| -> Option<Resources> {
        Some([scaled(of[0])?, scaled(of[1])?, scaled(of[2])?, scaled(of[3])?])
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
    let Some(space) = Space::of(c, p) else { return Explored::TooLarge };
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
    fn of(c: &'a Candidate, p: &dyn TileProgram) -> Option<Space<'a>> {
        let stages = || (0..c.graph.stages.len()).map(StageId);
        let count: u64 =
            c.graph.stages.iter().map(|s| u64::from(s.tiles()) * u64::from(s.split_k.max(1))).sum();
        if count > MAX_ITEMS as u64 || c.device.sms > MAX_SMS {
            return None;
        }
        let (mut order, mut stage) = (vec![Vec::new(); c.graph.stages.len()], Vec::new());
        // By edge and slot: the items whose end makes it full.
        let mut posters = vec![std::collections::HashMap::<u32, u128>::new(); c.graph.dependences.len()];
        let mut tiles = Vec::new();
        for s in stages() {
            let of = &c.graph.stages[s.0];
            for step in 0..of.tiles() {
                let tile = c.launch.order(s).tile_at(of.grid, step)?;
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

    /// Whether a CTA of a stage fits beside those that an SM holds, when each takes what `of` says.
    fn fits(&self, sm: &[u8], stage: usize, of: impl Fn(&Takes) -> &Resources) -> bool {
        let stages = || sm.iter().map(|i| self.stage[*i as usize] as usize).chain([stage]);
        let alone = self.takes[stage].alone;
        (0..self.room.len()).all(|r| stages().map(|s| of(&self.takes[s])[r]).sum::<u128>() <= self.room[r])
            && alone.is_none_or(|most| stages().filter(|s| *s == stage).count() <= most)
    }

    /// The item's CTA draws its stage's next item, or leaves; the items of an SM stay sorted.
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

    /// Ends all items that can end and whose CTAs then leave.
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

    /// The states that may come next, and whether one of them surely can.
    fn moves(&self, state: &State) -> (Vec<State>, bool) {
        let (mut next, ended, mut surely) = (Vec::new(), self.ended(state), false);
        // The emptiest SM comes last and is tried first: waiting CTAs that have SMs to themselves close the most of them.
        for sm in (0..state.sms.len()).rev() {
            // SMs that hold the same are one.
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
