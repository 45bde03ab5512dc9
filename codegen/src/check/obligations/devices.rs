//! Sums over devices: what the tiles of all devices send and receive, one exchange at a time.
//!
//! Every device runs the same tiles in the same order. A tile whose sums are partial sends them to every device, itself
//! included, receives those of every device, adds them in the order in which it receives them, and only then stores. A
//! place is where a device keeps the sums of one sender; it exists once for each tile and each set of places.
//!
//! A tile waits only for tiles of the same number on other devices, so waits between devices add no cycle: let all
//! devices have ended all items before a tile in the common order of items. Then the tile runs on each of them and, as
//! [`progress`] finds by running it, ends on each.

use super::{grid_tiles, tile_name};
use crate::check::{Candidate, Exchange, Obligation, Refutation, Subject, TileProgram};
use crate::graph::StageId;
use crate::sync::Tile;

/// Devices whose runs are explored; more only repeat what two neighbors of a device do to it.
const EXPLORED: usize = 3;

/// A tile whose sums are exchanged, and the exchanges of each device.
struct Exchanged {
    stage: StageId,
    tile: Tile,
    devices: Vec<Vec<Exchange>>,
}

/// Calls `f` with every tile of a stage that is summed over devices.
fn tiles(
    c: &Candidate,
    p: &dyn TileProgram,
    f: &mut dyn FnMut(Exchanged) -> Option<Refutation>,
) -> Option<Refutation> {
    let stages = c.graph.stages.iter().enumerate().filter(|(_, stage)| stage.devices > 1);
    stages.map(|(s, stage)| (StageId(s), stage)).find_map(|(id, stage)| {
        let written = |tile: &Tile| !stage.writes(*tile).1.is_empty();
        grid_tiles(stage).filter(written).find_map(|tile| {
            let device = |device| {
                let mut list = Vec::new();
                p.exchanges(id, tile, device, &mut |exchange| list.push(exchange));
                list
            };
            f(Exchanged { stage: id, tile, devices: (0..stage.devices).map(device).collect() })
        })
    })
}

fn refute(
    c: &Candidate,
    obligation: Obligation,
    at: &Exchanged,
    device: usize,
    fault: &str,
) -> Option<Refutation> {
    let name = tile_name(c, at.stage, at.tile);
    Some(Refutation::new(obligation, Subject::Stage(at.stage), format!("{name} of device {device} {fault}")))
}

impl Exchanged {
    /// The devices that send to a place of a device.
    fn senders(&self, device: usize, place: u32) -> impl Iterator<Item = usize> + '_ {
        let to = Exchange::Send { to: device as u32, place };
        self.devices.iter().enumerate().flat_map(move |(sender, list)| {
            list.iter().filter(move |exchange| **exchange == to).map(move |_| sender)
        })
    }

    /// The places that a device receives, in order.
    fn received(&self, device: usize) -> impl Iterator<Item = u32> + '_ {
        self.devices[device].iter().filter_map(|exchange| match exchange {
            Exchange::Receive { place } => Some(*place),
            Exchange::Send { .. } => None,
        })
    }
}

/// Sends go to devices and places that exist.
pub(super) fn bounds(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    tiles(c, p, &mut |at| {
        let count = at.devices.len() as u32;
        let outside = |exchange: &&Exchange| match **exchange {
            Exchange::Send { to, place } => to >= count || place >= count,
            Exchange::Receive { place } => place >= count,
        };
        at.devices.iter().enumerate().find_map(|(device, list)| {
            let wrong = list.iter().find(outside)?;
            refute(c, Obligation::Bounds, &at, device, &format!("has {wrong}, and there are {count} devices"))
        })
    })
}

/// No tile is stored without the sums of every device, each added once.
pub(super) fn cover(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    tiles(c, p, &mut |at| {
        let count = at.devices.len();
        (0..count).find_map(|device| {
            let mut added = vec![0; count];
            for place in at.received(device) {
                at.senders(device, place).for_each(|sender| added[sender] += 1);
            }
            let wrong = added.iter().position(|times| *times != 1)?;
            let fault = match added[wrong] {
                0 => format!("is stored without the sums of device {wrong}"),
                times => format!("adds the sums of device {wrong} {times} times"),
            };
            let refuted = refute(c, Obligation::Cover, &at, device, &fault);
            refuted.map(|r| r.help("send each tile's sums to each device once, and add each device's once"))
        })
    })
}

/// A place gets one message a run, which its receiver waits for.
pub(super) fn count(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    tiles(c, p, &mut |at| {
        let count = at.devices.len();
        (0..count).find_map(|device| {
            (0..count as u32).find_map(|place| {
                let messages = at.senders(device, place).count();
                let fault = format!("gets {messages} messages a run in place {place}, which holds one");
                (messages > 1).then(|| refute(c, Obligation::Count, &at, device, &fault)).flatten()
            })
        })
    })
}

/// All devices add in the same order, so their results have the same bits.
pub(super) fn order(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    tiles(c, p, &mut |at| {
        let order = |device| -> Vec<usize> {
            at.received(device).filter_map(|place| at.senders(device, place).next()).collect()
        };
        let first = order(0);
        let other = (1..at.devices.len()).find(|device| order(*device) != first)?;
        let fault = format!(
            "adds sums in the order {:?} of devices, and device 0 in the order {first:?}",
            order(other)
        );
        let refuted = refute(c, Obligation::Order, &at, other, &fault);
        refuted.map(|r| r.fact("float addition is not associative, so the devices would disagree"))
    })
}

/// The exchanges of a tile end on every device, whichever device comes first.
pub(super) fn progress(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    tiles(c, p, &mut |at| {
        let mut done = vec![0; at.devices.len()];
        // Sends only make receives possible, so the order in which devices advance does not matter.
        loop {
            let sent = |device: usize, place: u32| {
                let to = Exchange::Send { to: device as u32, place };
                at.devices.iter().zip(&done).any(|(list, done)| list[..*done].contains(&to))
            };
            let moves = (0..done.len()).find(|&device| match at.devices[device].get(done[device]) {
                Some(Exchange::Send { .. }) => true,
                Some(Exchange::Receive { place }) => sent(device, *place),
                None => false,
            });
            match moves {
                Some(device) => done[device] += 1,
                None => break,
            }
        }
        let stuck = (0..done.len()).find(|&device| done[device] < at.devices[device].len())?;
        let fault = format!("waits forever: {}", at.devices[stuck][done[stuck]]);
        refute(c, Obligation::Progress, &at, stuck, &fault)
            .map(|r| r.help("let every tile send before it receives, to every device"))
    })
}

/// A device that is ahead never overwrites a message that another still has to read.
pub(super) fn reuse(c: &Candidate) -> Option<Refutation> {
    let stage = c.graph.stages.iter().position(|stage| stage.devices > 1)?;
    let sets = c.contract.exchange.sets as usize;
    let [ahead, run] = lost(EXPLORED.min(c.graph.stages[stage].devices as usize), sets)?;
    let name = &c.graph.stages[stage].name;
    let message =
        format!("the sums of `{name}` may be overwritten on another device before they are read there");
    Some(
        Refutation::new(Obligation::Reuse, Subject::Stage(StageId(stage)), message)
            .fact(format!("places are used again after {sets} runs"))
            .fact(format!(
                "a device sends in run {ahead} while another has still to read what it sent in run {run}"
            ))
            .help("use two sets of places, in alternate runs"),
    )
}

/// A message that is lost in some interleaving of the runs of `devices` devices with `sets` sets of places: the run
/// that overwrites it, and its own. Each device sends to all, then receives from all, in every run.
fn lost(devices: usize, sets: usize) -> Option<[usize; 2]> {
    let (runs, steps) = (sets + 3, devices + 1);
    let mut seen = std::collections::HashSet::from([vec![0; devices]]);
    let mut open = vec![vec![0; devices]];
    while let Some(state) = open.pop() {
        for device in 0..devices {
            let (run, step) = (state[device] / steps, state[device] % steps);
            if run == runs {
                continue;
            }
            if step > 0 {
                // In run `r` a device has sent if it is past the first step of that run.
                let sent = state[step - 1].div_ceil(steps);
                if sent <= run {
                    continue;
                }
                let newest = sent - 1;
                if sets == 0 || newest >= run + sets {
                    return Some([newest, run]);
                }
            }
            let mut next = state.clone();
            next[device] += 1;
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    None
}

/// A message is seen whole, and not before it is sent.
pub(super) fn visible(c: &Candidate) -> Option<Refutation> {
    let stage = c.graph.stages.iter().position(|stage| stage.devices > 1)?;
    if c.contract.exchange.numbered {
        return None;
    }
    let name = &c.graph.stages[stage].name;
    Some(
        Refutation::new(
            Obligation::Visible,
            Subject::Stage(StageId(stage)),
            format!("`{name}` may add a sum of another device before it has arrived"),
        )
        .fact("a word from another device does not say whether it is of this run")
        .help("send each sum in one 64-bit word with the number of its run"),
    )
}

#[cfg(test)]
mod tests {
    use super::lost;

    #[test]
    fn two_sets_of_places_are_needed_and_enough() {
        for devices in 2..=4 {
            assert!(lost(devices, 0).is_some(), "{devices} devices, none");
            assert!(lost(devices, 1).is_some(), "{devices} devices, one set");
            for sets in 2..=3 {
                assert_eq!(lost(devices, sets), None, "{devices} devices, {sets} sets");
            }
        }
    }
}
