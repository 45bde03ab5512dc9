//! The rings inside a CTA of a chain kernel, explored in every interleaving of its warps: no parity wait passes in the
//! wrong phase, no k-block is loaded before its producers are ready, a tile is posted once and after all of its stores,
//! and nothing deadlocks.
//!
//! The model follows the protocol of `csrc/kernels/chain`, party by party. Warp 1 hands out items and publishes through
//! one word how far operands may be loaded, whatever order waits are satisfied in elsewhere. The load warp fills the
//! operand ring, whose copies arrive in any order. Two warpgroups multiply, each at its own pace, and fill their own
//! staging rings. A store warp for each warpgroup drains its ring, counts the tile, and posts it if it is the second to
//! do so. The store warp loads a residual into a unit's buffer before the unit is computed, except for convolutions,
//! where the warpgroup loads it before it multiplies. A convolution's window serves the k-blocks of a class of taps
//! from its own buffer, which is refilled when the last of them has been multiplied. Barriers count phases without
//! wrapping here, so that a parity that matches in the wrong phase is detected.

use super::{Wait, wait};

const GROUPS: usize = 2;

/// Kinds of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A GEMM tile with this many k-blocks; each warpgroup finishes this many units, or none if it only contributes
    /// sums to others.
    Product { k_blocks: u8, units: u8, residual: Residual },
    /// A block of rows: one word from the wait warp, this many places of the operand ring or none, and one unit without
    /// contents. Rows loaded through the ring occupy all places of the staging ring.
    Rows { loads: u8 },
}

/// The party that loads a residual into each unit's buffer before the unit is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residual {
    Nobody,
    StoreWarps,
    /// The warpgroup itself, before it multiplies.
    Warpgroups,
}

impl Kind {
    /// k-blocks that the word counts.
    fn counted(self) -> u8 {
        match self {
            Kind::Product { k_blocks, .. } => k_blocks,
            Kind::Rows { .. } => 1,
        }
    }

    fn units(self) -> u8 {
        match self {
            Kind::Product { units, .. } => units,
            Kind::Rows { .. } => 1,
        }
    }
}

/// How a convolution loads: for each class of taps, the number of k-blocks that read its window; the number of window
/// buffers; and the number of k-blocks whose filters one copy loads if possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Windows {
    classes: &'static [u8],
    buffers: usize,
    group: u8,
}

impl Windows {
    /// The number of k-blocks that read one window, from the k-th of an item on, and whether the k-th is the window's
    /// first.
    fn left(&self, k: u8) -> (u8, bool) {
        let mut place = k % self.classes.iter().sum::<u8>();
        for &taps in self.classes {
            if place < taps {
                return (taps - place, place == 0);
            }
            place -= taps;
        }
        unreachable!("a place is less than the sum")
    }
}

/// The items of a worker, and the sizes of its rings.
#[derive(Clone, Debug)]
struct Cta {
    items: Vec<Kind>,
    /// Places in the item ring, in the operand ring, and in a staging ring.
    work: u32,
    operands: u32,
    windows: Option<Windows>,
    staging: u32,
    /// Stores that may still read their buffers when the next is issued.
    lag: u8,
    /// Counters of stored tiles.
    counters: u32,
    /// How many k-blocks before the end of its current item the load warp draws the next one by ticket; `None` with
    /// lists.
    drawn: Option<u8>,
    /// The fault of a broken kernel.
    broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The load warp does not count the k-blocks of rows.
    RowsAreNotCounted,
    /// The word goes one k-block too far.
    WordTooFar,
    /// Store warps do not wait for a full buffer.
    StagedUnseen,
    /// They do not signal that a unit has no residual.
    NothingIsNotTold,
    /// A residual is loaded before its buffer has been read.
    BroughtEarly,
    /// One copy for a group of k-blocks is issued when the first of their places is free.
    GroupWaitsForFirst,
}

/// The position of each party in its own list of steps; these determine the state of all barriers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    dispatch: u8,
    load: u8,
    math: [u8; GROUPS],
    store: [u8; GROUPS],
    /// k-blocks whose waits are satisfied, k-blocks that have arrived, and tiles that have been posted.
    met: u8,
    here: u32,
    posted: u32,
}

/// A party's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Puts item i into its ring, once all readers have taken item i - work.
    Publish(u8),
    /// Publishes that this many k-blocks may be loaded, once their waits are satisfied.
    Word(u8),
    /// Draws the next item when asked to.
    Asked(u8),
    /// Takes item i from its ring.
    Take(u8),
    /// Takes a place in the operand ring for a k-block, the n-th of all loaded.
    Acquire(u8),
    /// Takes the places of several k-blocks when the last of them is free.
    AcquireAll {
        first: u8,
        last: u8,
        waits_for: u8,
    },
    /// The n-th k-block; its filter arrives with the copy for k-block `with`, so its own barrier expects no bytes.
    Follow {
        n: u8,
        with: u8,
    },
    /// Before k-block n, waits until the last k-block of the buffer's previous window has been multiplied.
    Overwrite {
        n: u8,
        last: u8,
    },
    /// Loads the n-th k-block once the word has reached it; its wait is number `met` of all waits.
    Load {
        n: u8,
        word: u8,
        met: u8,
    },
    /// Asks for the next item.
    Ask,
    /// Waits for the n-th k-block and multiplies it.
    Multiply(u8),
    /// Frees the n-th k-block.
    Free(u8),
    /// Waits for the word, as a row operation does.
    Ready {
        word: u8,
        met: u8,
    },
    /// Takes a place in the staging ring for its n-th unit and writes the unit.
    Stage(u8),
    Commit(u8),
    /// Loads the residual of the n-th unit into its buffer, or signals that it has none; waits for it.
    Bring(u8),
    Tell(u8),
    Add(u8),
    /// Waits for the n-th unit, then stores it; frees it.
    Send(u8),
    Sent(u8),
    /// Counts the t-th stored tile, and posts it if the other store warp has counted it too.
    Count(u8),
}

impl Cta {
    /// The number of k-blocks after the k-th of an item (the n-th of all) that its copy also loads: from the same
    /// window, in consecutive places.
    fn followers(&self, k: u8, k_blocks: u8, n: u8) -> u8 {
        let Some(windows) = self.windows else { return 0 };
        let group = windows.group;
        let fits = group <= windows.left(k).0
            && k + group <= k_blocks
            && u32::from(n) % self.operands + u32::from(group) <= self.operands;
        if fits { group - 1 } else { 0 }
    }
}

struct Model {
    cta: Cta,
    dispatch: Vec<Step>,
    load: Vec<Step>,
    math: Vec<Step>,
    store: Vec<Step>,
    /// k-blocks with waits; stored tiles.
    waits: u8,
    tiles: u8,
}

impl Model {
    fn new(cta: Cta) -> Model {
        let (mut dispatch, mut load, mut math, mut store) = (vec![], vec![], vec![], vec![]);
        // Counts of k-blocks with waits, k-blocks loaded, k-blocks counted by the load warp, and units.
        let (mut met, mut n, mut counted, mut unit, mut tiles) = (0, 0, 0, 0, 0);
        // The last k-block of each window so far.
        let mut windows: Vec<u8> = vec![];
        for (i, kind) in (0..).zip(&cta.items) {
            dispatch.push(Step::Publish(i));
            let reach = u8::from(cta.broken == Some(Broken::WordTooFar));
            dispatch.extend((1..=kind.counted()).map(|k| Step::Word(met + k + reach)));
            dispatch.extend(cta.drawn.map(|_| Step::Asked(i)));
            load.push(Step::Take(i));
            math.push(Step::Take(i));
            store.push(Step::Take(i));
            match *kind {
                Kind::Product { k_blocks, units, residual } => {
                    if residual == Residual::Warpgroups && units > 0 {
                        math.push(Step::Ready { word: counted + 1, met: met + 1 });
                        for u in unit..unit + units {
                            math.extend((cta.broken != Some(Broken::BroughtEarly)).then_some(Step::Stage(u)));
                            math.push(Step::Bring(u));
                        }
                    }
                    let ask = cta.drawn.map(|early| k_blocks.saturating_sub(early + 1));
                    let mut left = 0;
                    for k in 0..k_blocks {
                        // The position of a k-block in a group that began before it.
                        let follows = left > 0;
                        left = if follows { left - 1 } else { cta.followers(k, k_blocks, n + k) };
                        let group = if follows { 0 } else { left };
                        math.push(Step::Multiply(n + k));
                        // A k-block is freed when the next one is in progress.
                        math.extend((k > 0).then(|| Step::Free(n + k - 1)));
                        if follows {
                            let with = load.iter().rev().find_map(|step| match step {
                                Step::Load { n, .. } => Some(*n),
                                _ => None,
                            });
                            load.extend(with.map(|with| Step::Follow { n: n + k, with }));
                            load.extend(ask.filter(|at| *at == k).map(|_| Step::Ask));
                            continue;
                        }
                        let (first, last) = (n + k, n + k + group);
                        let early = cta.broken == Some(Broken::GroupWaitsForFirst);
                        load.push(match group {
                            0 => Step::Acquire(first),
                            _ => {
                                Step::AcquireAll { first, last, waits_for: if early { first } else { last } }
                            }
                        });
                        if let Some((w, (left, true))) = cta.windows.map(|w| (w, w.left(k))) {
                            let held = windows.len().checked_sub(w.buffers).map(|w| windows[w]);
                            load.extend(held.map(|last| Step::Overwrite { n: n + k, last }));
                            windows.push(n + k_blocks.min(k + left) - 1);
                        }
                        let all = k + group + 1;
                        load.push(Step::Load { n: n + k, word: counted + all, met: met + all });
                        load.extend(ask.filter(|at| *at == k).map(|_| Step::Ask));
                    }
                    math.push(Step::Free(n + k_blocks - 1));
                    n += k_blocks;
                    counted += k_blocks;
                }
                Kind::Rows { loads } => {
                    math.push(Step::Stage(unit));
                    for at in n..n + loads {
                        load.extend([
                            Step::Acquire(at),
                            Step::Load { n: at, word: counted + 1, met: met + 1 },
                        ]);
                        // The buffer of another unit, for the duration of the item.
                        math.extend((at == n).then_some(Step::Stage(unit + 1)));
                        math.extend([Step::Multiply(at), Step::Free(at)]);
                    }
                    n += loads;
                    load.extend(cta.drawn.map(|_| Step::Ask));
                    math.extend((loads == 0).then_some(Step::Ready { word: met + 1, met: met + 1 }));
                    math.push(Step::Commit(unit));
                    counted += u8::from(cta.broken != Some(Broken::RowsAreNotCounted));
                }
            }
            let units = kind.units();
            let adds = matches!(kind, Kind::Product { residual: Residual::StoreWarps, .. });
            let ahead = if adds { units.min(cta.staging as u8) } else { 0 };
            if ahead > 0 {
                let word = met + kind.counted();
                store.push(Step::Ready { word, met: word });
                store.extend((unit..unit + ahead).map(Step::Bring));
            }
            let mut sent = unit;
            for u in unit..unit + units {
                if matches!(kind, Kind::Product { .. }) {
                    math.push(Step::Stage(u));
                    math.extend(adds.then_some(Step::Add(u)));
                    math.push(Step::Commit(u));
                }
                store.push(Step::Send(u));
                let tells = !adds && cta.broken != Some(Broken::NothingIsNotTold);
                store.extend(tells.then_some(Step::Tell(u)));
                let brings = Some(u + ahead).filter(|next| adds && *next < unit + units);
                let early = cta.broken == Some(Broken::BroughtEarly);
                store.extend(brings.filter(|_| early).map(Step::Bring));
                // After the last store, and before a residual load, all stores must have read their buffers.
                let all = u + 1 == unit + units || brings.is_some();
                let read = if all { u + 1 } else { (u + 1).saturating_sub(cta.lag) };
                store.extend((sent..read).map(Step::Sent));
                sent = sent.max(read);
                store.extend(brings.filter(|_| !early).map(Step::Bring));
            }
            if units > 0 {
                store.push(Step::Count(tiles));
                tiles += 1;
            }
            unit += units;
            met += kind.counted();
        }
        Model { cta, dispatch, load, math, store, waits: met, tiles }
    }

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
        let of_place = |n: &u32| n % self.cta.operands == place && s.here >> n & 1 == 1;
        (0..32).filter(of_place).count() as u32
    }

    fn freed(&self, s: &State, place: u32) -> u32 {
        let free = |step: &Step| matches!(step, Step::Free(n) if u32::from(*n) % self.cta.operands == place);
        (0..GROUPS).map(|g| Self::past(&self.math, s.math[g], free)).min().unwrap_or(0)
    }

    /// The state after one step of a party, or `None` if it cannot proceed. An error describes the fault.
    fn step(&self, s: &State, step: Step, group: usize) -> Result<Option<State>, String> {
        let cta = &self.cta;
        let next = *s;
        // A wait for a phase of a barrier that has completed `over` phases.
        let on = |name: &str, number: u8, phase: u32, over: u32| match wait(phase, over) {
            Wait::Blocks => Ok(false),
            Wait::Passes => Ok(true),
            Wait::Wrong => Err(format!("{name} {number}: waits for phase {phase}, {over} are over")),
        };
        // A reused place is free when its previous phase has completed.
        let free = |name: &str, number: u8, places: u32, over: u32| {
            let round = u32::from(number) / places;
            if round == 0 { Ok(true) } else { on(name, number, round - 1, over) }
        };
        let goes = match step {
            Step::Publish(i) => free("item", i, cta.work, self.items_taken(s, u32::from(i) % cta.work))?,
            Step::Take(i) => {
                let of_place = |step: &Step| matches!(step, Step::Publish(p) if (p % cta.work as u8) == i % cta.work as u8);
                let published = Self::past(&self.dispatch, s.dispatch, of_place);
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
                let missing = |step: &Step| matches!(step, Step::Follow { n: follower, with } if *follower == n && s.here >> with & 1 == 0);
                if goes && self.load.iter().any(missing) {
                    return Err(format!("k-block {n} is read before the copy that brings it"));
                }
                goes
            }
            Step::Stage(n) => {
                let place = u32::from(n) % cta.staging;
                let sent =
                    |step: &Step| matches!(step, Step::Sent(m) if u32::from(*m) % cta.staging == place);
                free("unit", n, cta.staging, Self::past(&self.store, s.store[group], sent))?
            }
            Step::Send(n) => {
                let place = u32::from(n) % cta.staging;
                let there =
                    |step: &Step| matches!(step, Step::Commit(m) if u32::from(*m) % cta.staging == place);
                let over = Self::past(&self.math, s.math[group], there);
                let own = |step: &Step| *step == Step::Commit(n);
                let goes = cta.broken == Some(Broken::StagedUnseen)
                    || on("store of unit", n, u32::from(n) / cta.staging, over)?;
                if goes && Self::past(&self.math, s.math[group], own) == 0 {
                    return Err(format!("unit {n} is stored before it is there"));
                }
                goes
            }
            Step::Bring(n) => {
                let before = n.checked_sub(cta.staging as u8);
                let read = |m: u8| Self::past(&self.store, s.store[group], |step| *step == Step::Sent(m)) > 0;
                if before.is_some_and(|m| !read(m)) {
                    return Err(format!("the residual of unit {n} is brought over a unit that is not sent"));
                }
                true
            }
            Step::Add(n) => {
                let place = u32::from(n) % cta.staging;
                let in_place = |step: &Step| matches!(step, Step::Bring(m) | Step::Tell(m) if u32::from(*m) % cta.staging == place);
                let over = Self::past(&self.store, s.store[group], in_place);
                let goes = on("residual of unit", n, u32::from(n) / cta.staging, over)?;
                if goes && Self::past(&self.store, s.store[group], |step| *step == Step::Bring(n)) == 0 {
                    return Err(format!("unit {n} is made before its residual is there"));
                }
                goes
            }
            Step::Count(tile) => return self.count(s, tile, group).map(Some),
            Step::Ask | Step::Tell(_) | Step::Free(_) | Step::Commit(_) | Step::Sent(_) => true,
        };
        Ok(goes.then_some(next))
    }

    /// A store warp increments its tile's counter; a warp that finds it odd posts.
    fn count(&self, s: &State, tile: u8, group: usize) -> Result<State, String> {
        let same = |step: &Step| matches!(step, Step::Count(t) if u32::from(*t) % self.cta.counters == u32::from(tile) % self.cta.counters);
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

    fn explore(&self) -> Result<usize, String> {
        let end = |state: &State| {
            super::stands_still(self.done(state))?;
            let all = state.posted.count_ones() == u32::from(self.tiles);
            if all { Ok(()) } else { Err(format!("tiles {:b} are posted", state.posted)) }
        };
        super::explore(&self.cta, |state, out| self.next(state, out), end)
    }
}

/// Rows that are not loaded through the ring.
const ROWS: Kind = Kind::Rows { loads: 0 };

fn product(k_blocks: u8, units: u8) -> Kind {
    Kind::Product { k_blocks, units, residual: Residual::Nobody }
}

fn with_residual(k_blocks: u8, units: u8) -> Kind {
    Kind::Product { k_blocks, units, residual: Residual::StoreWarps }
}

fn with_own_residual(k_blocks: u8, units: u8) -> Kind {
    Kind::Product { k_blocks, units, residual: Residual::Warpgroups }
}

/// A CTA with rings that are reused within a few items.
fn cta(items: Vec<Kind>) -> Cta {
    Cta {
        items,
        work: 2,
        operands: 2,
        windows: None,
        staging: 2,
        lag: 1,
        counters: 4,
        drawn: None,
        broken: None,
    }
}

#[test]
fn no_wait_passes_in_the_wrong_phase_and_every_tile_is_posted_once() {
    let all = [
        cta(vec![product(2, 2), product(1, 1), product(2, 1)]),
        cta(vec![product(1, 1), ROWS, product(2, 2)]),
        cta(vec![ROWS, ROWS, product(1, 1), ROWS]),
        cta(vec![product(2, 1), product(2, 0), product(1, 1), product(1, 0)]),
        Cta { operands: 3, ..cta(vec![product(4, 1), product(1, 2)]) },
        // Two windows in one item; one in each item, with room for one.
        Cta {
            operands: 3,
            windows: Some(Windows { classes: &[2], buffers: 2, group: 1 }),
            ..cta(vec![product(4, 1), product(3, 1)])
        },
        Cta { windows: Some(Windows { classes: &[2], buffers: 2, group: 1 }), ..cta(vec![product(5, 1)]) },
        Cta {
            operands: 3,
            windows: Some(Windows { classes: &[2], buffers: 1, group: 1 }),
            ..cta(vec![product(2, 1); 3])
        },
        // Windows for several classes of taps, through two channel blocks of an item, and with a next item that has
        // them too.
        Cta {
            operands: 3,
            windows: Some(Windows { classes: &[2, 1], buffers: 2, group: 1 }),
            ..cta(vec![product(6, 1), product(2, 1)])
        },
        Cta {
            operands: 4,
            windows: Some(Windows { classes: &[2, 1, 1], buffers: 3, group: 1 }),
            drawn: Some(1),
            ..cta(vec![product(4, 1), product(4, 1)])
        },
        // Groups; some do not fit before the end of the ring, the window or the item.
        Cta {
            operands: 4,
            windows: Some(Windows { classes: &[2], buffers: 2, group: 2 }),
            ..cta(vec![product(5, 1), product(2, 1)])
        },
        Cta {
            operands: 5,
            windows: Some(Windows { classes: &[3], buffers: 2, group: 3 }),
            ..cta(vec![product(6, 1), product(3, 1)])
        },
        Cta {
            operands: 5,
            windows: Some(Windows { classes: &[3], buffers: 2, group: 3 }),
            drawn: Some(1),
            ..cta(vec![product(4, 1), product(3, 1)])
        },
        Cta { drawn: Some(1), ..cta(vec![product(2, 1), product(3, 1)]) },
        Cta { drawn: Some(1), ..cta(vec![ROWS, product(2, 1), ROWS]) },
        Cta { work: 1, counters: 2, ..cta(vec![product(1, 1); 4]) },
        // Residuals before and after units without one; more residuals than places.
        cta(vec![product(1, 1), with_residual(1, 2), product(1, 1)]),
        cta(vec![with_residual(1, 3), with_residual(1, 1)]),
        cta(vec![with_residual(2, 0), with_residual(1, 1), ROWS, with_residual(1, 1)]),
        // The same, loaded by the warpgroups, as many as there are places; next to windows, and with no units.
        cta(vec![product(1, 1), with_own_residual(2, 2), product(1, 1), with_own_residual(1, 1)]),
        cta(vec![with_own_residual(1, 2), with_own_residual(2, 0), ROWS, with_own_residual(1, 2)]),
        Cta {
            operands: 3,
            windows: Some(Windows { classes: &[2], buffers: 2, group: 1 }),
            ..cta(vec![with_own_residual(3, 1), with_own_residual(2, 1)])
        },
        // Rows loaded through the ring.
        cta(vec![Kind::Rows { loads: 3 }, product(1, 1), Kind::Rows { loads: 1 }]),
        Cta {
            drawn: Some(1),
            ..cta(vec![with_residual(1, 1), Kind::Rows { loads: 2 }, with_residual(1, 2)])
        },
    ];
    let mut states = 0;
    for cta in all {
        states += Model::new(cta).explore().unwrap_or_else(|fault| panic!("{fault}"));
    }
    println!("{states} states");
}

/// The model detects the faults of broken kernels.
#[test]
fn broken_rings_are_found() {
    let items = || vec![product(1, 1), ROWS, product(2, 1)];
    let broken = |broken| Cta { broken: Some(broken), ..cta(items()) };
    let cases = [
        // The word of the rows is not counted, so the next item's loads take it as their own.
        (broken(Broken::RowsAreNotCounted), "goes on though only"),
        (broken(Broken::WordTooFar), "goes on though only"),
        (broken(Broken::StagedUnseen), "is stored before it is there"),
        (
            Cta {
                broken: Some(Broken::NothingIsNotTold),
                ..cta(vec![product(1, 2), with_residual(1, 1), with_residual(1, 1)])
            },
            "stands still",
        ),
        (
            Cta { broken: Some(Broken::BroughtEarly), ..cta(vec![with_residual(1, 3)]) },
            "over a unit that is not sent",
        ),
        (
            Cta { broken: Some(Broken::BroughtEarly), ..cta(vec![product(1, 2), with_own_residual(1, 1)]) },
            "over a unit that is not sent",
        ),
        // More units than places: the second round waits for units that are computed after it.
        (cta(vec![with_own_residual(1, 3)]), "stands still"),
        // Fewer counters than the number of tiles by which one store warp leads the other.
        (Cta { counters: 1, ..cta(vec![product(1, 1); 4]) }, "one store warp has not stored it"),
        // A k-block is freed when the next is in progress, which waits for the window, which waits for the k-block.
        (
            Cta {
                operands: 3,
                windows: Some(Windows { classes: &[2], buffers: 1, group: 1 }),
                ..cta(vec![product(4, 1)])
            },
            "stands still",
        ),
        // The same with the tap classes of one channel block.
        (
            Cta {
                operands: 3,
                windows: Some(Windows { classes: &[2, 1], buffers: 1, group: 1 }),
                ..cta(vec![product(3, 1)])
            },
            "stands still",
        ),
        // One copy for two k-blocks, while the second place is still being read.
        (
            Cta {
                operands: 4,
                windows: Some(Windows { classes: &[2], buffers: 2, group: 2 }),
                broken: Some(Broken::GroupWaitsForFirst),
                ..cta(vec![product(6, 1)])
            },
            "filled before it is free",
        ),
        // The second item is not requested before the first one's last k-block, which waits for room.
        (Cta { lag: 2, ..cta(vec![product(1, 3)]) }, "stands still"),
    ];
    for (cta, says) in cases {
        let fault = Model::new(cta.clone()).explore().expect_err("broken");
        assert!(fault.contains(says), "{cta:?}: {fault}");
    }
}
