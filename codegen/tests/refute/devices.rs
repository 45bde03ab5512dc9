//! Sums over devices: sound plans are proved, and mutants of their exchanges are refuted. An oracle that shares no code
//! with `check` passes messages between mailboxes in random interleavings; it finds nothing wrong with an accepted
//! mutant.

use std::collections::HashMap;

use cusync_gen::check::{
    Candidate, Event, Exchange, Generated, How, Obligation, Place, TileProgram, check, judge, judge_program,
};
use cusync_gen::choose;
use cusync_gen::device::Profile;
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::spec;
use cusync_gen::sync::Tile;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Exchanges of a tile, by device.
type Exchanges = Vec<Vec<Exchange>>;

fn source(devices: u32) -> String {
    format!(
        r#"Pipeline(name: "p", dims: {{ "M": 100, "H": 128, "I": 64 }}, devices: {devices}, stages: [
        Gemm(name: "up", a: "X(M,H)", b: "W1(H,I)", out: "Y(M,I)"),
        Gemm(name: "down", a: "Y(M,I)", b: "W2(I,H)", out: "Z(M,H)", all_reduce: true),
    ])"#
    )
}

fn sound(devices: u32) -> Candidate {
    let source = source(devices);
    let resolved = spec::parse(&source, "test").and_then(|s| s.resolve(&[])).expect("a sound spec");
    let graph = resolved.graph(&[(64, 64, 64), (64, 64, 64)]).expect("they fit");
    Candidate::new(graph, Profile::named("h200").expect("shipped").clone(), How::Host)
}

const DOWN: StageId = StageId(1);

/// A plan's own program with the exchanges of some tiles replaced.
struct Exchanging<'a> {
    base: Generated<'a>,
    instead: &'a HashMap<Tile, Exchanges>,
}

impl TileProgram for Exchanging<'_> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        self.base.posts(edge, tile, f);
    }
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.base.events(stage, tile, slice, f);
    }
    fn exchanges(&self, stage: StageId, tile: Tile, device: u32, f: &mut dyn FnMut(Exchange)) {
        match self.instead.get(&tile).filter(|_| stage == DOWN) {
            Some(devices) => devices[device as usize].iter().for_each(|exchange| f(*exchange)),
            None => self.base.exchanges(stage, tile, device, f),
        }
    }
    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        self.base.extent(graph, stage)
    }
    fn slices(&self, graph: &Graph, stage: StageId, tile: Tile) -> u32 {
        self.base.slices(graph, stage, tile)
    }
    fn place(&self, stage: StageId, tile: Tile, slice: u32) -> Option<Place> {
        self.base.place(stage, tile, slice)
    }
}

/// Exchanges of a tile of the plan's own program.
fn generated(c: &Candidate, tile: Tile) -> Exchanges {
    let program = Generated::new(c);
    let device = |device| {
        let mut list = Vec::new();
        program.exchanges(DOWN, tile, device, &mut |exchange| list.push(exchange));
        list
    };
    (0..c.graph.devices()).map(device).collect()
}

/// Obligations that refute the plan with the exchanges of one tile changed.
fn refuted(c: &Candidate, change: impl FnOnce(&mut Exchanges)) -> Vec<Obligation> {
    let tile = Tile { m: 1, n: 0 };
    let mut exchanges = generated(c, tile);
    change(&mut exchanges);
    let instead = HashMap::from([(tile, exchanges)]);
    let report = judge_program(c, &Exchanging { base: Generated::new(c), instead: &instead });
    report.refutations.iter().map(|refutation| refutation.obligation).collect()
}

#[test]
fn sums_over_devices_are_proved() {
    for devices in 2..=8 {
        let c = sound(devices);
        assert_eq!(judge(&c).refutations, [], "{devices} devices");
        assert_eq!(refuted(&c, |_| {}), []);
        assert_eq!(check(c).expect("proved").graph().devices(), devices);
        let source = source(devices);
        let resolved =
            spec::parse(&source, "test").and_then(|s| s.resolve(&[("M".into(), 5)])).expect("sound");
        let decode =
            choose::decode(&resolved, Profile::named("h200").expect("shipped")).expect("a decode plan");
        assert_eq!(judge(&decode).refutations, [], "{devices} devices");
        assert_eq!(check(decode).expect("proved").graph().devices(), devices);
    }
}

#[test]
fn wrong_exchanges_are_refuted() {
    use Obligation::{Bounds, Count, Cover, Order, Progress};
    let c = sound(3);
    // Exchanges 0..3 send to devices 0..3, and 3..6 receive from them.
    let dropped =
        refuted(&c, |devices| devices[1].retain(|exchange| *exchange != Exchange::Send { to: 2, place: 1 }));
    assert_eq!(dropped, [Order, Cover, Progress], "device 2 waits for device 1");
    let unread =
        refuted(&c, |devices| devices[1].retain(|exchange| *exchange != Exchange::Receive { place: 0 }));
    assert_eq!(unread, [Order, Cover], "device 1 stores without device 0");
    let doubled = refuted(&c, |devices| {
        let sent = devices[1][2];
        devices[1].insert(2, sent);
    });
    assert_eq!(doubled, [Cover, Count]);
    let read_twice = refuted(&c, |devices| {
        let received = devices[1][5];
        devices[1].push(received);
    });
    assert_eq!(read_twice, [Order, Cover]);
    let to_another_place = refuted(&c, |devices| devices[1][0] = Exchange::Send { to: 0, place: 2 });
    assert_eq!(to_another_place, [Order, Count, Progress], "place 2 has two messages, place 1 none");
    let to_itself = refuted(&c, |devices| devices[1][0] = Exchange::Send { to: 1, place: 1 });
    assert_eq!(to_itself, [Order, Cover, Count, Progress]);
    let beyond = refuted(&c, |devices| devices[1][0] = Exchange::Send { to: 3, place: 1 });
    assert!(beyond.contains(&Bounds), "{beyond:?}");
    let no_place = refuted(&c, |devices| devices[2][5] = Exchange::Receive { place: 3 });
    assert!(no_place.contains(&Bounds), "{no_place:?}");
    assert_eq!(refuted(&c, |devices| devices[1].swap(3, 4)), [Order], "the devices would round differently");
    assert_eq!(refuted(&c, |devices| devices.iter_mut().for_each(|list| list.swap(3, 4))), []);
    // Two devices that each receive from the other before they send.
    let waits_first = refuted(&c, |devices| devices[0].rotate_right(3));
    assert_eq!(waits_first, [Progress]);
}

#[test]
fn kernels_that_exchange_carelessly_are_refuted() {
    let with = |sets, numbered| {
        let mut c = sound(2);
        (c.contract.exchange.sets, c.contract.exchange.numbered) = (sets, numbered);
        judge(&c).refutations.iter().map(|refutation| refutation.obligation).collect::<Vec<_>>()
    };
    assert_eq!(with(0, true), [Obligation::Reuse]);
    assert_eq!(with(1, true), [Obligation::Reuse]);
    assert_eq!(with(2, true), []);
    assert_eq!(with(3, true), []);
    assert_eq!(with(2, false), [Obligation::Visible]);
    let mut c = sound(2);
    *c.launch.how_mut().expect("stages") = How::STREAMS;
    let report = judge(&c);
    assert_eq!(report.refutations[0].obligation, Obligation::Cover, "kernels of streams exchange nothing");
}

/// A device of the oracle: its place in the program, and the senders that its current tile has added.
#[derive(Clone, Default)]
struct Device {
    run: usize,
    tile: usize,
    step: usize,
    added: Vec<u32>,
}

/// Passes messages between mailboxes, device by device in a random order, and describes the first wrong result.
fn wrong(tiles: &[Exchanges], (sets, numbered): (usize, bool), rng: &mut SmallRng) -> Option<&'static str> {
    const RUNS: usize = 5;
    let count = tiles[0].len();
    // Run and sender of the newest message in each mailbox: (device, tile, set, place).
    let mut boxes: HashMap<(u32, usize, usize, u32), (usize, u32)> = HashMap::new();
    let mut devices = vec![Device::default(); count];
    let mut results: HashMap<(usize, usize), Vec<u32>> = HashMap::new();
    // A device that is favored runs far ahead of the others, as far as they let it.
    let favored = rng.random_range(0..count);
    loop {
        let mut order: Vec<usize> = (0..count).collect();
        (1..count).for_each(|i| order.swap(i, rng.random_range(0..=i)));
        if rng.random_bool(0.7) {
            order.insert(0, favored);
        }
        let mut moved = false;
        for number in order {
            let device = &mut devices[number];
            if device.run == RUNS {
                continue;
            }
            let set = if sets == 0 { 0 } else { device.run % sets };
            match tiles[device.tile][number].get(device.step) {
                Some(Exchange::Send { to, place }) => {
                    if *to as usize >= count || *place as usize >= count {
                        return Some("out of bounds");
                    }
                    boxes.insert((*to, device.tile, set, *place), (device.run, number as u32));
                    device.step += 1;
                }
                Some(Exchange::Receive { place }) => {
                    if *place as usize >= count {
                        return Some("out of bounds");
                    }
                    match boxes.get(&(number as u32, device.tile, set, *place)) {
                        Some((run, from)) if *run == device.run || !numbered => {
                            if *run != device.run {
                                return Some("another run's message");
                            }
                            device.added.push(*from);
                            device.step += 1;
                        }
                        Some(_) | None => continue,
                    }
                }
                None => {
                    let added = std::mem::take(&mut device.added);
                    let mut once = added.clone();
                    once.sort_unstable();
                    if !once.into_iter().eq(0..count as u32) {
                        return Some("not every device once");
                    }
                    if *results.entry((device.run, device.tile)).or_insert_with(|| added.clone()) != added {
                        return Some("another order");
                    }
                    (device.tile, device.step) = (device.tile + 1, 0);
                    if device.tile == tiles.len() {
                        (device.run, device.tile) = (device.run + 1, 0);
                    }
                }
            }
            moved = true;
            break;
        }
        if !moved {
            return devices.iter().any(|device| device.run < RUNS).then_some("waits forever");
        }
    }
}

/// Changes one or two exchanges of a tile on one device, or in the same way on all.
fn mutate(devices: &mut Exchanges, rng: &mut SmallRng) {
    let count = devices.len() as u32;
    let (all, one) = (rng.random_bool(0.3), rng.random_range(0..devices.len()));
    let (kind, draws) = (rng.random_range(0..7), rng.random::<[u32; 4]>());
    for list in
        devices.iter_mut().enumerate().filter(|(device, _)| all || *device == one).map(|(_, list)| list)
    {
        if list.is_empty() {
            continue;
        }
        let [at, other, device, place] = draws;
        let (at, other) = (at as usize % list.len(), other as usize % list.len());
        // One more than there are, so that some are out of bounds.
        let (device, place) = (device % (count + 1), place % (count + 1));
        match kind {
            0 => {
                list.remove(at);
            }
            1 => list.insert(other, list[at]),
            2 => list.swap(at, other),
            3 => {
                let moved = list.remove(at);
                list.insert(other.min(list.len()), moved);
            }
            4 => list[at] = Exchange::Send { to: device, place },
            5 => list[at] = Exchange::Receive { place },
            _ => {
                if let Exchange::Send { to, .. } = &mut list[at] {
                    *to = device;
                }
            }
        }
    }
}

#[test]
fn no_accepted_exchange_goes_wrong() {
    const MUTANTS: u64 = 10_000;
    let (mut accepted, mut caught, mut alarms) = (0, 0, 0);
    let plans: Vec<Candidate> = (2..=4).map(sound).collect();
    for seed in 0..MUTANTS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut c = plans[rng.random_range(0..plans.len())].clone();
        if rng.random_bool(0.1) {
            c.contract.exchange.sets = rng.random_range(0..4);
            c.contract.exchange.numbered = rng.random_bool(0.7);
        }
        let (rows, cols) = c.graph.stages[DOWN.0].grid;
        let grid: Vec<Tile> = (0..rows).flat_map(|m| (0..cols).map(move |n| Tile { m, n })).collect();
        let mut tiles: Vec<Exchanges> = grid.iter().map(|tile| generated(&c, *tile)).collect();
        for _ in 0..rng.random_range(0..3) {
            let tile = rng.random_range(0..tiles.len());
            mutate(&mut tiles[tile], &mut rng);
        }
        let instead = grid.into_iter().zip(tiles.iter().cloned()).collect();
        let report = judge_program(&c, &Exchanging { base: Generated::new(&c), instead: &instead });
        let exchange = (c.contract.exchange.sets as usize, c.contract.exchange.numbered);
        let found = (0..12).find_map(|_| wrong(&tiles, exchange, &mut rng));
        match (report.refutations.first(), found) {
            (None, Some(found)) => panic!("mutant {seed} is accepted: {found}\n{tiles:?} {exchange:?}"),
            (None, None) => accepted += 1,
            (Some(_), Some(_)) => caught += 1,
            (Some(_), None) => alarms += 1,
        }
    }
    println!("{accepted} accepted and harmless, {caught} caught, {alarms} refuted without a wrong execution");
    assert!(accepted > 2000 && caught > 4000 && alarms < 1000, "{accepted} {caught} {alarms}");
}
