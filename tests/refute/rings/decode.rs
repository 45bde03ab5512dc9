//! The rings inside a CTA of a decode kernel, explored in every interleaving of its warps: no parity wait passes in the
//! wrong phase, and nothing deadlocks.
//!
//! The model follows the protocol of `csrc`, party by party: a thread streams chunks of weights, whose copies arrive in
//! any order; loader warps fill slots with activations, tile g by warp g mod [`LOADERS`], and each warp's copies arrive
//! in order; two warpgroups take turns multiplying chunks. Barriers count phases without wrapping here, so that a
//! parity that matches in the wrong phase is detected. The kernel's own code computes the maximum distance between the
//! warpgroups.

use std::collections::HashSet;

use cusync::device::host_decode::turn_lead;

use super::{Wait, wait};

/// Warps that fill slots.
const LOADERS: usize = 4;

/// One stage of one CTA.
#[derive(Clone, Debug)]
struct Stage {
    /// The k-blocks of each chunk, in multiplication order; each has the same number of tiles.
    chunks: Vec<u32>,
    /// Activation slots.
    slots: u32,
    /// Barriers of the weight ring.
    barriers: u32,
    /// Chunks that the ring can hold, and the maximum number of chunks in flight.
    room: u32,
    in_flight: u32,
    /// k-blocks between two waits for the tensor cores.
    batch: u32,
    /// Maximum distance of the warpgroups in chunks; `None` for no limit.
    lead: Option<u32>,
}

/// The position of each party. It determines the state of all barriers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// Chunks issued, known to have arrived, and freed, as counted by the streaming thread.
    issued: u8,
    arrived: u8,
    freed: u8,
    /// Chunks with arrived copies.
    here: u32,
    /// Tiles of each loader warp whose copies have been issued, and have arrived.
    copied: [u8; LOADERS],
    filled: [u8; LOADERS],
    /// Steps of each warpgroup.
    step: [u8; 2],
}

/// A warpgroup's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Wait until this chunk has been multiplied.
    Turn(u32),
    /// Wait for this chunk's weights.
    Weights(u32),
    /// Wait for these tiles, multiply them, and free their slots.
    Tiles(u32, u32),
    /// Free the chunk.
    Free(u32),
}

struct Model {
    stage: Stage,
    tiles: u32,
    steps: [Vec<Step>; 2],
}

impl Model {
    fn new(stage: Stage) -> Model {
        let mut steps = [Vec::new(), Vec::new()];
        let mut first = 0;
        for (i, &blocks) in stage.chunks.iter().enumerate() {
            let own = &mut steps[i % 2];
            let i = i as u32;
            own.extend(stage.lead.and_then(|lead| i.checked_sub(lead)).map(Step::Turn));
            own.push(Step::Weights(i));
            for at in (first..first + blocks).step_by(stage.batch as usize) {
                own.push(Step::Tiles(at, stage.batch.min(first + blocks - at)));
            }
            own.push(Step::Free(i));
            first += blocks;
        }
        Model { stage, tiles: first, steps }
    }

    fn tiles_of(&self, warp: usize) -> u8 {
        (warp as u32..self.tiles).step_by(LOADERS).count() as u8
    }

    fn done(&self, s: &State) -> bool {
        (0..2).all(|g| usize::from(s.step[g]) == self.steps[g].len())
    }

    /// Steps that the warpgroups have completed.
    fn past<'a>(&'a self, s: &'a State) -> impl Iterator<Item = Step> + 'a {
        (0..2).flat_map(move |g| self.steps[g][..usize::from(s.step[g])].iter().copied())
    }

    /// Completed phases of slot `slot`: filled, and freed.
    fn slot_filled(&self, s: &State, slot: u32) -> u32 {
        let here = |tile: u32| tile / (LOADERS as u32) < u32::from(s.filled[tile as usize % LOADERS]);
        (slot..self.tiles).step_by(self.stage.slots as usize).filter(|&t| here(t)).count() as u32
    }

    fn slot_freed(&self, s: &State, slot: u32) -> u32 {
        let of_slot = |step| match step {
            Step::Tiles(first, count) => {
                (first..first + count).filter(|t| t % self.stage.slots == slot).count() as u32
            }
            Step::Turn(_) | Step::Weights(_) | Step::Free(_) => 0,
        };
        self.past(s).map(of_slot).sum()
    }

    fn chunk_full(&self, s: &State, barrier: u32) -> u32 {
        let chunks = (barrier..u32::from(s.issued)).step_by(self.stage.barriers as usize);
        chunks.filter(|&c| s.here >> c & 1 == 1).count() as u32
    }

    fn chunk_freed(&self, s: &State, barrier: u32) -> u32 {
        let freed = |step: &Step| matches!(*step, Step::Free(c) if c % self.stage.barriers == barrier);
        self.past(s).filter(freed).count() as u32
    }

    /// The states reachable by one step of one party; an error names a wait that passed or blocked wrongly.
    fn next(&self, s: &State, out: &mut Vec<State>) -> Result<(), String> {
        let (slots, barriers) = (self.stage.slots, self.stage.barriers);
        let mut wrong = None;
        let mut when = |name: &str, number: u32, phase: u32, over: u32| match wait(phase, over) {
            Wait::Blocks => false,
            Wait::Passes => true,
            Wait::Wrong => {
                wrong = Some(format!("{name} {number}: waits for phase {phase}, {over} are over"));
                false
            }
        };
        // The streaming thread: checks arrivals when too much is in flight, frees when there is no room, issues.
        let (issued, arrived, freed) = (u32::from(s.issued), u32::from(s.arrived), u32::from(s.freed));
        if issued < self.stage.chunks.len() as u32 {
            if issued - arrived >= self.stage.in_flight {
                let full = self.chunk_full(s, arrived % barriers);
                if when("weights look for chunk", arrived, arrived / barriers, full) {
                    out.push(State { arrived: s.arrived + 1, ..*s });
                }
            } else if issued - freed >= self.stage.room.min(barriers) {
                let over = self.chunk_freed(s, freed % barriers);
                if when("weights free chunk", freed, freed / barriers, over) {
                    out.push(State { freed: s.freed + 1, arrived: s.arrived.max(s.freed + 1), ..*s });
                }
            } else {
                out.push(State { issued: s.issued + 1, ..*s });
            }
        }
        for chunk in 0..issued {
            if s.here >> chunk & 1 == 0 {
                out.push(State { here: s.here | 1 << chunk, ..*s });
            }
        }
        for warp in 0..LOADERS {
            if s.copied[warp] < self.tiles_of(warp) {
                let tile = u32::from(s.copied[warp]) * LOADERS as u32 + warp as u32;
                let (round, slot) = (tile / slots, tile % slots);
                let over = self.slot_freed(s, slot);
                if round == 0 || when("loader of tile", tile, round - 1, over) {
                    let mut next = *s;
                    next.copied[warp] += 1;
                    out.push(next);
                }
            }
            if s.filled[warp] < s.copied[warp] {
                let mut next = *s;
                next.filled[warp] += 1;
                out.push(next);
            }
        }
        for group in 0..2 {
            let Some(&step) = self.steps[group].get(usize::from(s.step[group])) else { continue };
            let goes = match step {
                Step::Turn(c) => when("turn after chunk", c, c / barriers, self.chunk_freed(s, c % barriers)),
                Step::Weights(c) => {
                    when("weights of chunk", c, c / barriers, self.chunk_full(s, c % barriers))
                }
                Step::Tiles(first, count) => {
                    (first..first + count).all(|t| when("tile", t, t / slots, self.slot_filled(s, t % slots)))
                }
                Step::Free(_) => true,
            };
            if goes {
                let mut next = *s;
                next.step[group] += 1;
                out.push(next);
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    fn explore(&self) -> Result<usize, String> {
        super::explore(&self.stage, |s, out| self.next(s, out), |s| super::stands_still(self.done(s)))
    }
}

/// A stage of `count` chunks of `1 << shift` k-blocks, except the one at `short_at`, which has `short`.
fn stage(slots: u32, shift: u32, count: usize, short_at: usize, short: u32, barriers: u32) -> Stage {
    let mut chunks = vec![1 << shift; count];
    chunks[short_at] = short;
    let lead = Some(turn_lead(slots, shift, barriers));
    Stage { chunks, slots, barriers, room: 5, in_flight: 2, batch: 1, lead }
}

/// Stages small enough to explore completely: every position of the short chunk, chunks for one or two sets of slots,
/// reused ring barriers.
fn stages() -> Vec<Stage> {
    let mut all = Vec::new();
    for short_at in [0, 2, 3, 5] {
        all.push(stage(4, 1, 6, short_at, 1, 4));
        all.push(Stage { batch: 2, ..stage(4, 1, 6, short_at, 1, 8) });
    }
    for short_at in 0..2 {
        all.push(stage(4, 2, 3, short_at, 3, 4));
        all.push(Stage { batch: 2, ..stage(8, 2, 4, short_at, 3, 8) });
        all.push(Stage { batch: 2, ..stage(8, 1, 6, short_at, 1, 8) });
    }
    for barriers in [4, 8, 16] {
        all.push(Stage { room: 8, in_flight: 3, ..stage(4, 0, 10, 0, 1, barriers) });
    }
    all
}

#[test]
fn no_wait_passes_in_the_wrong_phase_and_nothing_stands_still() {
    let mut states = 0;
    for stage in stages() {
        states += Model::new(stage).explore().unwrap_or_else(|fault| panic!("{fault}"));
    }
    println!("{states} states");
}

/// Without the bound, the model finds a fault that occurred on a GPU: a slot read in the previous phase.
#[test]
fn warpgroups_that_run_freely_read_early() {
    let bounded = stage(4, 1, 6, 2, 1, 8);
    let looser = bounded.lead.map(|lead| lead + 2);
    for lead in [None, looser] {
        let free = Stage { lead, ..bounded.clone() };
        let fault = Model::new(free).explore().expect_err("slots change hands after the short chunk");
        assert!(fault.starts_with("tile "), "{fault}");
    }
}

/// Pairs of workers that send each other sums, stage after stage, using `buffers` buffers in turn: every order of their
/// steps and of the arrivals. `None`: no buffer is written before it is read, no wait passes in a wrong phase, and both
/// finish; otherwise, the fault.
fn exchange_fails(stages: u32, buffers: u32) -> Option<&'static str> {
    /// Stages that each worker has sent, awaited and read, and stages whose sums have arrived at the other.
    type Worker = [u32; 4];
    let (mut seen, mut open) = (HashSet::new(), vec![[Worker::default(); 2]]);
    while let Some(state) = open.pop() {
        if !seen.insert(state) {
            continue;
        }
        let known = open.len();
        let mut ended = true;
        for me in 0..2 {
            let ([sent, awaited, read, landed], other) = (state[me], state[1 - me]);
            let mut next = |step: usize| {
                let mut after = state;
                after[me][step] += 1;
                open.push(after);
            };
            ended &= read == stages && landed == stages;
            // Sums in flight arrive at any time, in any buffer order: trying the oldest of each buffer is enough,
            // because arrivals in one buffer are in order.
            if landed < sent {
                if landed >= other[2] + buffers {
                    return Some("sums are written over others that are not read");
                }
                next(3);
            }
            // A worker sends a stage's sums, awaits the other's, reads them, and continues.
            if sent < stages && sent == read {
                next(0);
            } else if awaited < sent {
                let over = (other[3] + buffers - 1 - awaited % buffers) / buffers;
                match wait(awaited / buffers, over) {
                    Wait::Passes => next(1),
                    Wait::Blocks => {}
                    Wait::Wrong => return Some("a wait passes in a phase of another stage"),
                }
            } else if read < awaited {
                next(2);
            }
        }
        if open.len() == known && !ended {
            return Some("they stand still");
        }
    }
    None
}

#[test]
fn pairs_need_two_buffers_and_no_more() {
    for stages in 1..6 {
        assert_eq!(exchange_fails(stages, 2), None, "{stages} stages");
    }
    assert_eq!(exchange_fails(2, 1), Some("sums are written over others that are not read"));
}
