//! The first deviation of a run's notes from those that are expected.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Expected, Judged, Key};
use cusync::ffi::{self, cusync_note as Note};
use cusync_gen::schedule::Hand;
use cusync_gen::sync::Tile;

impl Judged<'_> {
    /// The first deviation of a run's notes from the judged program; `run` counts the pipeline's runs from 0.
    pub(super) fn deviation(&self, run: u32, notes: &[Note]) -> Option<String> {
        let shares = self.c.launch.shares().is_some();
        let mut noted: BTreeMap<Key, Vec<(usize, Note)>> = BTreeMap::new();
        // Posts so far, by poster and slot.
        let mut posted: HashMap<(u32, u32), u32> = HashMap::new();
        for (place, note) in notes.iter().enumerate() {
            let Note { stage, m, n, item, .. } = *note;
            let key = (stage, m, n, item);
            let Some(expected) = self.expects(key) else { return Some(format!("nobody has {note:?}")) };
            match note.event {
                ffi::CUSYNC_EVENT_POST => {
                    *posted.entry((if shares { stage } else { 0 }, note.at)).or_default() += note.value;
                }
                ffi::CUSYNC_EVENT_WAIT => {
                    let values =
                        expected.waits.iter().filter(|(slot, _)| *slot == note.at).map(|(_, value)| *value);
                    let Some(value) = values.max() else {
                        return Some(format!("no wait of the plan: {note:?}"));
                    };
                    let have = posted.get(&(self.poster(stage), note.at)).copied().unwrap_or(0);
                    if have < value {
                        return Some(format!("{note:?} has passed with {have} of {value} posts made"));
                    }
                    if (note.value.wrapping_sub((run + 1) * value) as i32) < 0 {
                        return Some(format!("{note:?} has passed, and waits for {}", (run + 1) * value));
                    }
                }
                _ => {}
            }
            noted.entry(key).or_default().push((place, *note));
        }
        let mut tiles: BTreeMap<(u32, u32, u32), Vec<(usize, Note)>> = BTreeMap::new();
        // Lengths decide which workers have a part of a shared tile.
        let idle = |key: &&Key| !noted.contains_key(key);
        let all = self.items.iter().filter(|(_, expected)| !expected.shared).map(|(key, _)| key).filter(idle);
        for key in all.chain(noted.keys()) {
            let seen = noted.get(key).map_or(&[][..], Vec::as_slice);
            if let Some(fault) = self.expects(*key).and_then(|expected| fault(expected, seen)) {
                return Some(format!("item {key:?}: {fault}"));
            }
            tiles.entry((key.0, key.1, key.2)).or_default().extend(seen);
        }
        for (stage, m, n, _) in self.items.keys() {
            tiles.entry((*stage, *m, *n)).or_default();
        }
        tiles
            .into_iter()
            .find_map(|((stage, m, n), seen)| {
                let expected = self.posts(stage, Tile { m, n });
                let of_event = |event: u32| seen.iter().filter(move |(_, note)| note.event == event);
                let inside = m < self.c.graph.stages[stage as usize].grid.0
                    && n < self.c.graph.stages[stage as usize].grid.1;
                let mut made = BTreeMap::new();
                of_event(ffi::CUSYNC_EVENT_POST)
                    .for_each(|(_, note)| *made.entry(note.at).or_default() += note.value);
                if inside && made != expected {
                    return Some(format!(
                        "tile ({m}, {n}) of stage {stage} posts {made:?}, and not {expected:?}"
                    ));
                }
                let mut units = HashSet::new();
                let again =
                    of_event(ffi::CUSYNC_EVENT_STORE).find(|(_, note)| !units.insert((note.at, note.value)));
                let of_nobody = !self.c.graph.stages[stage as usize].writes(Tile { m, n }).1.is_empty();
                match again {
                    Some((_, note)) => Some(format!("stored twice: {note:?}")),
                    None if inside && of_nobody && units.is_empty() => {
                        Some(format!("nobody stores ({m}, {n}) of stage {stage}"))
                    }
                    None => None,
                }
            })
            .or_else(|| self.out_of_order(&noted))
    }

    /// Items of a list with stores or posts out of the list's order.
    fn out_of_order(&self, noted: &BTreeMap<Key, Vec<(usize, Note)>>) -> Option<String> {
        let schedule = self.c.launch.lists().filter(|s| s.mode == Hand::Fixed)?;
        let (rows, cols) = schedule.cluster;
        schedule.lists.iter().find_map(|list| {
            (0..rows * cols).find_map(|cta| {
                let mut last: HashMap<(u32, u32), usize> = HashMap::new();
                list.iter().find_map(|item| {
                    let item = &schedule.sequence[*item as usize];
                    let key = (
                        item.stage.0 as u32,
                        item.m * rows + cta / cols,
                        item.n * cols + cta % cols,
                        item.k_begin,
                    );
                    let notes = noted.get(&key)?;
                    // Each warpgroup's stores are in order, and so are the posts.
                    let line = |note: &Note| match note.event {
                        ffi::CUSYNC_EVENT_STORE => Some((note.event, note.value)),
                        ffi::CUSYNC_EVENT_POST => Some((note.event, 0)),
                        _ => None,
                    };
                    notes.iter().find_map(|(place, note)| {
                        let before = last.insert(line(note)?, *place);
                        before
                            .filter(|b| b > place)
                            .map(|_| format!("before an earlier item of its list: {note:?}"))
                    })
                })
            })
        })
    }
}

/// Missing or extra notes of an item.
fn fault(expected: &Expected, seen: &[(usize, Note)]) -> Option<String> {
    let of_event = |event: u32| seen.iter().filter(move |(_, note)| note.event == event);
    let mut waits: HashMap<u32, usize> = HashMap::new();
    of_event(ffi::CUSYNC_EVENT_WAIT).for_each(|(place, note)| {
        waits.entry(note.at).or_insert(*place);
    });
    if let Some((slot, _)) = expected.waits.iter().find(|(slot, _)| !waits.contains_key(slot)) {
        return Some(format!("no wait for slot {slot}"));
    }
    let behind = |slots: &[u32], place: usize| slots.iter().find(|slot| waits[slot] > place).copied();
    // Some kernels record loads of operands that no stage writes; these are not judged.
    let judged = |at: u32| {
        expected.loads.iter().any(|(load, _)| load.0 == at) || expected.late.iter().any(|(r, _)| *r == at)
    };
    let is_late = |at: u32| expected.late.iter().any(|(role, _)| *role == at);
    let mut last = 0;
    let mut loads: HashMap<(u32, u32), usize> = HashMap::new();
    let mut late: HashMap<(u32, u32), usize> = HashMap::new();
    for (place, note) in of_event(ffi::CUSYNC_EVENT_LOAD).filter(|(_, note)| judged(note.at)) {
        let list = if is_late(note.at) { &mut late } else { &mut loads };
        if list.insert((note.at, note.value), *place).is_some() {
            return Some(format!("loads twice: {note:?}"));
        }
        if !is_late(note.at) {
            last = last.max(*place);
        }
    }
    for (load, slots) in &expected.loads {
        let Some(place) = loads.remove(load) else { return Some(format!("no load of {load:?}")) };
        if let Some(slot) = behind(slots, place) {
            return Some(format!("loads {load:?} before the wait for slot {slot}"));
        }
    }
    if let Some(load) = loads.keys().next() {
        return Some(format!("loads {load:?}, which it does not need"));
    }
    for (role, slots) in &expected.late {
        let mut own = late.iter().filter(|((r, _), _)| r == role).peekable();
        if own.peek().is_none() {
            return Some(format!("its epilogue does not load operand {role}"));
        }
        if let Some(slot) = own.find_map(|(_, place)| behind(slots, *place)) {
            return Some(format!("its epilogue loads operand {role} before the wait for slot {slot}"));
        }
    }
    let slabs = |event: u32| -> BTreeMap<u32, Vec<(u32, usize)>> {
        let mut all: BTreeMap<u32, Vec<(u32, usize)>> = BTreeMap::new();
        of_event(event).for_each(|(place, note)| all.entry(note.at).or_default().push((note.value, *place)));
        all
    };
    let same = |have: &BTreeMap<u32, Vec<(u32, usize)>>, want: &[u32]| {
        have.keys().copied().collect::<HashSet<_>>() == want.iter().copied().collect()
    };
    let (gives, takes) = (slabs(ffi::CUSYNC_EVENT_GIVE), slabs(ffi::CUSYNC_EVENT_TAKE));
    if !same(&gives, &expected.gives) || !same(&takes, &expected.takes) {
        return Some(format!(
            "gives {gives:?} and takes {takes:?}, and not {:?} and {:?}",
            expected.gives, expected.takes
        ));
    }
    if let Some((_, at)) = gives.values().flatten().find(|(_, at)| *at < last) {
        return Some(format!("gives sums at {at}, before its last load at {last}"));
    }
    for (place, note) in of_event(ffi::CUSYNC_EVENT_STORE) {
        if !expected.units.contains(&note.at) {
            return Some(format!("{note:?} is not among its units {:?}", expected.units));
        }
        let group = |list: &BTreeMap<u32, Vec<(u32, usize)>>| {
            list.values().flatten().filter(|(g, _)| *g == note.value).map(|(_, at)| *at).max().unwrap_or(0)
        };
        let epilogue =
            late.iter().filter(|((_, g), _)| *g == note.value).map(|(_, at)| *at).max().unwrap_or(0);
        let needs = last.max(group(&takes)).max(epilogue);
        if *place < needs {
            return Some(format!("{note:?} comes before what it is made from, at {needs}"));
        }
    }
    // For a tile at the output's edge, an item may have nothing to store.
    let units: HashSet<u32> = of_event(ffi::CUSYNC_EVENT_STORE).map(|(_, note)| note.at).collect();
    if let Some(unit) = expected.units.clone().find(|unit| expected.whole && !units.contains(unit)) {
        return Some(format!("unit {unit} is not stored"));
    }
    let stored = of_event(ffi::CUSYNC_EVENT_STORE).map(|(place, _)| *place).max();
    let early =
        of_event(ffi::CUSYNC_EVENT_POST).find(|(place, _)| stored.is_some_and(|stored| *place < stored));
    early.map(|(_, note)| format!("{note:?} comes before a store of its item"))
}
