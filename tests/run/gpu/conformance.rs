//! Checks recorded kernel events against the judged program: every wait, load, store and post that a run records is an
//! event of its plan, none is missing, and their order is allowed by the plan. A post is recorded before it is made and
//! a wait after it passes, so a wait recorded before its posts passed too early.
//!
//! The kernels must be built with `CUSYNC_DELAYS=1`. Each case runs 100 times, or 10 times with `CUSYNC_GPU_QUICK=1`.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::attends::WIDTHS;
use crate::common::{Gpu, dim, pipeline, plan, plan_of, quick};
use crate::faults::{delayed, delays};
use crate::fused::{DYNAMIC, STATIC, fused, of_images};
use crate::fused_decode::{WIDE_MLP, decode};
use cusync::ffi::{self, cusync_note as Note};
use cusync::runtime::{ChainOverride, InputSets, Options, Overrides, shipped};
use cusync_gen::check::{Candidate, EdgeChoice, Event, Executor, Generated, Plan, TileProgram};
use cusync_gen::graph::{Element, OperandKind, Partition, StageId};
use cusync_gen::schedule::Hand;
use cusync_gen::sync::Tile;

/// Capacity for the notes of a run.
const ROOM: usize = 1 << 19;

/// The owner of events: a stage, a tile, and an item of the tile.
type Key = (u32, u32, u32, u32);

/// The candidate of a plan: judged together with its program.
fn candidate(plan: &Plan) -> Candidate {
    let edge =
        |e: &cusync_gen::check::EdgePlan| EdgeChoice { policy: e.policy().clone(), wait_at: e.wait_at() };
    Candidate {
        edges: plan.edges().iter().map(edge).collect(),
        ..Candidate::launched(plan.graph().clone(), plan.device().clone(), plan.launch().clone())
    }
}

/// The operand of the C ABI that carries an edge's data.
fn role(kind: OperandKind) -> u32 {
    match kind {
        // Queries, keys and values are columns of one matrix.
        OperandKind::A | OperandKind::Query | OperandKind::Key | OperandKind::Value => ffi::CUSYNC_OPERAND_A,
        OperandKind::B => ffi::CUSYNC_OPERAND_B,
        OperandKind::Up => ffi::CUSYNC_OPERAND_UP,
        OperandKind::Bias => ffi::CUSYNC_OPERAND_BIAS,
        OperandKind::Residual => ffi::CUSYNC_OPERAND_RESIDUAL,
        OperandKind::Gain => ffi::CUSYNC_OPERAND_GAIN,
        OperandKind::Router => ffi::CUSYNC_OPERAND_ROUTER,
        OperandKind::Down => ffi::CUSYNC_OPERAND_DOWN,
        OperandKind::CachedKeys
        | OperandKind::CachedValues
        | OperandKind::Lengths
        | OperandKind::Pages
        | OperandKind::Rotary
        | OperandKind::QueryGain
        | OperandKind::KeyGain
        | OperandKind::Custom(_) => ffi::CUSYNC_OPERAND_CUSTOM,
    }
}

/// The expected notes of one item.
#[derive(Default)]
struct Expected {
    /// In program order: waits (slot, value), and loads (operand, k-block) with the waits before them.
    waits: Vec<(u32, u32)>,
    loads: Vec<((u32, u32), Vec<u32>)>,
    /// Epilogue loads, which each warpgroup makes for itself, and the waits before them.
    late: Vec<(u32, Vec<u32>)>,
    gives: Vec<u32>,
    takes: Vec<u32>,
    units: std::ops::Range<u32>,
    /// Whether each unit has elements, i.e. the tile is completely inside the output.
    whole: bool,
    /// Whether it may have several workers; each does everything except the store.
    shared: bool,
}

/// A plan and its program.
struct Judged<'a> {
    c: &'a Candidate,
    p: Generated<'a>,
    /// The first slot of each edge. Decode kernels note slots as numbers from the first slot of their stage.
    base: Vec<u32>,
    items: BTreeMap<Key, Expected>,
}

impl<'a> Judged<'a> {
    fn new(c: &'a Candidate) -> Self {
        let shares = c.launch.shares().is_some();
        let base = c.slot_maps().iter().map(|s| if shares { 0 } else { s.slot_base }).collect();
        let mut judged = Judged { c, p: Generated::new(c), base, items: BTreeMap::new() };
        judged.items = judged.expected_items();
        judged
    }

    /// The item of a slice: its first k-block.
    fn item(&self, stage: usize, tile: Tile, slice: u32) -> u32 {
        let Some(schedule) = self.c.launch.lists() else { return 0 };
        let (rows, cols) = schedule.cluster;
        let of_tile = schedule
            .sequence
            .iter()
            .filter(|i| (i.stage.0, i.m, i.n) == (stage, tile.m / rows, tile.n / cols));
        let mut begins: Vec<u32> = of_tile.map(|i| i.k_begin).collect();
        begins.sort_unstable();
        begins[slice as usize]
    }

    /// The expected notes of each item; for attention tiles in a decode kernel, those of worker 0.
    fn expected_items(&self) -> BTreeMap<Key, Expected> {
        let graph = &self.c.graph;
        let mut all = BTreeMap::new();
        for (s, stage) in graph.stages.iter().enumerate() {
            let (gm, gn) = self.p.extent(graph, StageId(s));
            for tile in (0..gm).flat_map(|m| (0..gn).map(move |n| Tile { m, n })) {
                for slice in 0..self.p.slices(graph, StageId(s), tile) {
                    let mut item = self.expected(s, tile, slice);
                    item.shared = self.c.launch.shares().is_some() && stage.op.attend().is_some();
                    let (rows, cols) = stage.writes(tile);
                    let area = Partition::Tiles { rows: rows.len() as u32, cols: cols.len() as u32 };
                    item.whole =
                        stage.op.is_gemm() && self.c.launch.lists().is_some() && stage.partition == area;
                    all.insert((s as u32, tile.m, tile.n, self.item(s, tile, slice)), item);
                }
            }
        }
        all
    }

    fn expected(&self, stage: usize, tile: Tile, slice: u32) -> Expected {
        let (graph, shares) = (&self.c.graph, self.c.launch.shares().is_some());
        let mut expected = Expected::default();
        // The waits for each operand so far; a share's warps wait for a k-block just before they load it.
        let mut before: HashMap<usize, Vec<u32>> = HashMap::new();
        self.p.events(StageId(stage), tile, slice, &mut |event| match event {
            Event::Wait { edge, slot, value } => {
                let slot = self.base[edge] + slot;
                expected.waits.push((slot, value));
                before.entry(graph.dependences[edge].operand).or_default().push(slot);
            }
            Event::Load { operand, k_block } | Event::Multicast { operand, k_block, .. } => {
                let kind = graph.stages[stage].operands[operand].kind;
                let waits = before.entry(operand).or_default();
                let waits = if shares { std::mem::take(waits) } else { waits.clone() };
                if kind.when() != cusync_gen::graph::When::Epilogue {
                    expected.loads.push(((role(kind), k_block), waits));
                } else if !shares {
                    // A share's epilogue reads its own CTA's results and records no notes for that.
                    expected.late.push((role(kind), waits));
                }
            }
            Event::Contribute { slab } => expected.gives.push(slab),
            Event::Await { slab } => expected.takes.push(slab),
            Event::Store { units, .. } => {
                expected.units = units.clone();
            }
            Event::Add { .. } | Event::Warp { .. } => {}
        });
        // Queries, keys and values are loaded together.
        if expected.loads.iter().any(|(load, _)| *load == expected.loads[0].0) {
            let mut together: Vec<((u32, u32), Vec<u32>)> = Vec::new();
            for (load, waits) in std::mem::take(&mut expected.loads) {
                match together.iter_mut().find(|(other, _)| *other == load) {
                    Some((_, all)) => all.extend(waits),
                    None => together.push((load, waits)),
                }
            }
            expected.loads = together;
        }
        expected
    }

    /// The expected notes of an item. Workers that each have a part of a shared tile all record the same notes.
    fn expects(&self, key: Key) -> Option<&Expected> {
        let shared = || self.items.get(&(key.0, key.1, key.2, 0)).filter(|expected| expected.shared);
        self.items.get(&key).or_else(shared)
    }

    /// The expected posts of a tile to each slot.
    fn posts(&self, stage: u32, tile: Tile) -> BTreeMap<u32, u32> {
        let mut all = BTreeMap::new();
        for (edge, d) in self.c.graph.dependences.iter().enumerate() {
            if d.producer.0 != stage as usize {
                continue;
            }
            let mut own = BTreeMap::new();
            self.p.posts(edge, tile, &mut |slot, amount| {
                *own.entry(self.base[edge] + slot).or_default() += amount
            });
            // In a decode kernel a post serves all readers of the stage.
            if self.c.launch.shares().is_some() {
                all.extend(own);
            } else {
                own.into_iter().for_each(|(slot, amount)| *all.entry(slot).or_default() += amount);
            }
        }
        all
    }

    /// The stage that posts to a slot, as seen by a waiting stage; different stages have different slots, except in
    /// decode kernels.
    fn poster(&self, waits: u32) -> u32 {
        let awaited = |d: &&cusync_gen::graph::Dependence| d.consumer.0 == waits as usize;
        let a = |d: &&cusync_gen::graph::Dependence| {
            role(self.c.graph.stages[d.consumer.0].operands[d.operand].kind) == ffi::CUSYNC_OPERAND_A
        };
        let found = self.c.graph.dependences.iter().filter(awaited).find(a);
        if self.c.launch.shares().is_some() { found.map_or(0, |d| d.producer.0 as u32) } else { 0 }
    }

    /// The first deviation of a run's notes from the judged program; `run` counts the pipeline's runs from 0.
    fn deviation(&self, run: u32, notes: &[Note]) -> Option<String> {
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

/// Runs a pipeline with delays and checks the notes of each run against its plan; returns the number of notes.
fn conforms(gpu: &Gpu, label: &str, plan: &Plan, runs: u32, skip_waits: bool) -> Result<usize, String> {
    let inputs = InputSets::random(plan.graph(), &gpu.device, 1, 5).expect("inputs fit");
    let options = Options { delays: delays(11), notes: ROOM, skip_waits, ..Options::default() };
    let mut pipeline = pipeline(gpu, plan, &inputs, options);
    let c = candidate(plan);
    let judged = Judged::new(&c);
    let mut count = 0;
    for run in 0..runs {
        let notes = pipeline.run(plan.executor()).and_then(|()| pipeline.take_notes());
        let notes = notes.unwrap_or_else(|e| panic!("{label}: {e}"));
        assert!(!notes.is_empty(), "{label}: nothing was noted");
        count += notes.len();
        if let Some(deviation) = judged.deviation(run, &notes) {
            return Err(format!("run {run}: {deviation}"));
        }
    }
    Ok(count)
}

fn runs() -> u32 {
    if quick() { 10 } else { 100 }
}

fn all_conform(gpu: &Gpu, plans: &[(String, Plan)]) {
    for (label, plan) in plans {
        match conforms(gpu, label, plan, runs(), false) {
            Ok(count) => println!("{label}: {count} events of {} runs, none of which deviates", runs()),
            Err(deviation) => panic!("{label}: {deviation}"),
        }
        // A run without waits must deviate.
        assert!(conforms(gpu, label, plan, 1, true).is_err(), "{label}: a run without waits conforms");
    }
}

#[test]
fn coupled_kernels_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let coupled =
        |name: &str, executor| (format!("{name} {executor:?}"), plan(&gpu, name, &dim("M", 256), executor));
    let plans = [Executor::Streams, Executor::Programmatic]
        .map(|e| ["two_gemms", "llama65_mlp"].map(|n| coupled(n, e)));
    all_conform(&gpu, plans.as_flattened());
}

/// GEMMs, one with a residual and a bias produced by stages.
const OPERANDS: &str = r#"Pipeline(name: "operands", dims: { "M": 264 }, stages: [
    Gemm(name: "a", a: "X(M,136)", b: "Wa(136,520)", out: "A(M,520)"),
    Gemm(name: "c", a: "u(1,136)", b: "Wc(136,392)", out: "c(1,392)", epilogue: Relu),
    Gemm(name: "r", a: "X(M,136)", b: "Wr(136,392)", out: "R(M,392)"),
    Gemm(name: "join", a: "A(M,520)", b: "B(520,392)", bias: "c(1,392)", residual: "R(M,392)", out: "Z(M,392)"),
])"#;

fn chain(gpu: &Gpu, source: &str, chain: ChainOverride) -> Plan {
    plan_of(gpu, source, &Overrides { chain: Some(chain), ..Overrides::default() }, Executor::Fused)
}

#[test]
fn chains_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let mut plans = Vec::new();
    for (name, m) in [("gpt3_mlp", 200), ("llama65_mlp", 256), ("llama65_norm_mlp", 200), ("diamond", 512)] {
        for config in [STATIC, DYNAMIC] {
            plans.push((format!("{name} M = {m} {:?}", config.mode), fused(&gpu, name, m, config)));
        }
    }
    let paired = ChainOverride { kernel: Some(((128, 128), (2, 1))), ..STATIC };
    plans.push(("gpt3_mlp in pairs".into(), fused(&gpu, "gpt3_mlp", 512, paired)));
    plans.push(("operands".into(), chain(&gpu, OPERANDS, STATIC)));
    all_conform(&gpu, &plans);
}

#[test]
fn norms_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let name = "llama65_norm_mlp";
    let plans =
        [(300, STATIC), (200, DYNAMIC)].map(|(m, config)| (name.into(), fused(&gpu, name, m, config)));
    all_conform(&gpu, &plans);
}

/// Windows, including with a stride, for a shortcut, and after a pool.
#[test]
fn convolutions_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let plans = [("resnet_layer", 8, STATIC), ("resnet38_layer3", 2, STATIC), ("vgg19_block4", 3, DYNAMIC)]
        .map(|(name, images, config)| (name.to_owned(), of_images(&gpu, name, images, config)));
    all_conform(&gpu, &plans);
}

#[test]
fn decode_kernels_do_what_was_judged() {
    let Some(gpu) = delayed() else { return };
    let mut plans: Vec<(String, Plan)> = Vec::new();
    for (name, m) in [("gpt3_mlp", 8), ("llama65_mlp", 64), ("two_gemms", 16)] {
        plans.push((
            format!("{name} M = {m}"),
            decode(&gpu, shipped(name).expect("it ships"), m, Element::F16),
        ));
    }
    plans.push(("wide_mlp M = 8".into(), decode(&gpu, WIDE_MLP, 8, Element::F16)));
    let dims = vec![("B".into(), 5), ("S".into(), 256)];
    let overrides = Overrides { dims, ..Overrides::default() };
    let generate = shipped("llama65_generate").expect("it ships");
    plans.push(("llama65_generate".into(), plan_of(&gpu, generate, &overrides, Executor::Fused)));
    plans.push(("widths".into(), plan_of(&gpu, WIDTHS, &overrides, Executor::Fused)));
    let layer = shipped("llama3_70b_layer").expect("it ships");
    plans.push(("llama3_70b_layer".into(), plan_of(&gpu, layer, &overrides, Executor::Fused)));
    all_conform(&gpu, &plans);
}

mod without_a_gpu {
    //! Tests the checker of notes: it accepts the notes of a sound run and detects every change to them.

    use super::*;
    use cusync::runtime::plan_text;
    use cusync_gen::device::Profile;

    fn note(key: Key, event: u32, at: u32, value: u32) -> Note {
        Note { event, stage: key.0, m: key.1, n: key.2, item: key.3, at, value }
    }

    /// Notes of a run in which items proceed as their waits are satisfied.
    fn sound(judged: &Judged<'_>) -> Vec<Note> {
        let items = &judged.items;
        let (mut notes, mut posted): (Vec<Note>, HashMap<(u32, u32), u32>) = Default::default();
        let (mut open, mut given): (Vec<&Key>, HashSet<u32>) = (items.keys().collect(), HashSet::new());
        while !open.is_empty() {
            let before = open.len();
            open.retain(|key| {
                let expected = &items[key];
                let met = |(slot, value): &(u32, u32)| {
                    posted.get(&(judged.poster(key.0), *slot)).is_some_and(|have| have >= value)
                };
                if !expected.waits.iter().all(met) || !expected.takes.iter().all(|slab| given.contains(slab))
                {
                    if expected.gives.is_empty()
                        || !expected.waits.iter().all(met)
                        || expected.gives.iter().all(|g| given.contains(g))
                    {
                        return true;
                    }
                    given.extend(&expected.gives);
                    return true;
                }
                for (slot, value) in &expected.waits {
                    notes.push(note(**key, ffi::CUSYNC_EVENT_WAIT, *slot, *value));
                }
                for ((role, k), _) in &expected.loads {
                    notes.push(note(**key, ffi::CUSYNC_EVENT_LOAD, *role, *k));
                }
                for slab in &expected.gives {
                    notes.push(note(**key, ffi::CUSYNC_EVENT_GIVE, *slab, 0));
                }
                given.extend(&expected.gives);
                for slab in &expected.takes {
                    notes.push(note(**key, ffi::CUSYNC_EVENT_TAKE, *slab, 0));
                }
                for (role, _) in &expected.late {
                    notes.push(note(**key, ffi::CUSYNC_EVENT_LOAD, *role, 0));
                }
                let unit = expected.units.clone();
                unit.clone().for_each(|u| notes.push(note(**key, ffi::CUSYNC_EVENT_STORE, u, 0)));
                let slices = items.range((key.0, key.1, key.2, 0)..=(key.0, key.1, key.2, u32::MAX));
                let finishing = slices.filter(|(_, expected)| !expected.units.is_empty()).count() as u32;
                if !unit.is_empty() {
                    for (slot, amount) in judged.posts(key.0, Tile { m: key.1, n: key.2 }) {
                        notes.push(note(**key, ffi::CUSYNC_EVENT_POST, slot, amount / finishing));
                        let poster = if judged.c.launch.shares().is_some() { key.0 } else { 0 };
                        *posted.entry((poster, slot)).or_default() += amount / finishing;
                    }
                }
                false
            });
            assert!(
                open.len() < before || open.iter().any(|k| !items[k].gives.is_empty()),
                "the plan stands still"
            );
        }
        notes
    }

    fn plans() -> Vec<Plan> {
        let device = Profile::named("h200").expect("shipped");
        let plan = |source: &str, m: Option<u64>, executor, chain: Option<ChainOverride>, decode| {
            let dims = m.map(|m| ("M".into(), m)).into_iter().collect();
            let overrides = Overrides { dims, chain, decode, ..Overrides::default() };
            plan_text(source, "test.ron", &overrides, device, executor).unwrap_or_else(|e| panic!("{e}"))
        };
        let small = shipped("two_gemms").expect("it ships");
        vec![
            plan_text(small, "test.ron", &dim("M", 256), device, Executor::Streams).expect("a plan"),
            plan(OPERANDS, None, Executor::Fused, Some(STATIC), false),
            plan(small, Some(512), Executor::Fused, Some(DYNAMIC), false),
            plan(small, Some(8), Executor::Fused, None, true),
            {
                let dims = vec![("B".into(), 5), ("S".into(), 256)];
                let overrides = Overrides { dims, ..Overrides::default() };
                let layer = shipped("llama3_70b_layer").expect("it ships");
                plan_text(layer, "test.ron", &overrides, device, Executor::Fused).expect("a plan")
            },
        ]
    }

    #[test]
    fn sound_notes_conform_and_changed_ones_do_not() {
        for plan in plans() {
            let c = candidate(&plan);
            let judged = Judged::new(&c);
            let notes = sound(&judged);
            let label = format!("{} {:?}", plan.graph().name, plan.executor());
            assert_eq!(judged.deviation(0, &notes), None, "{label}");
            let mut changes = 0;
            let step = (notes.len() / 150).max(1);
            for at in (0..notes.len()).step_by(step) {
                let mut without = notes.clone();
                let gone = without.remove(at);
                let units = notes
                    .iter()
                    .filter(|n| n.event == gone.event && (n.stage, n.m, n.n) == (gone.stage, gone.m, gone.n));
                // Queries, keys and values may wait for the same slot.
                let alone = notes.iter().filter(|n| **n == gone).count() == 1;
                // A tile at an edge of an output may have fewer units than others.
                if alone && (gone.event != ffi::CUSYNC_EVENT_STORE || units.count() == 1) {
                    assert!(judged.deviation(0, &without).is_some(), "{label}: without {gone:?}");
                }
                // Waits are repeated; everything else is done once.
                if gone.event != ffi::CUSYNC_EVENT_WAIT && gone.event != ffi::CUSYNC_EVENT_TAKE {
                    let mut twice = notes.clone();
                    twice.insert(at, gone);
                    let twice_given = gone.event == ffi::CUSYNC_EVENT_GIVE;
                    assert!(twice_given || judged.deviation(0, &twice).is_some(), "{label}: twice {gone:?}");
                }
                if gone.event == ffi::CUSYNC_EVENT_WAIT {
                    let mut early = without.clone();
                    early.insert(0, gone);
                    assert!(judged.deviation(0, &early).is_some(), "{label}: before all posts {gone:?}");
                    let mut late = without;
                    late.push(gone);
                    assert!(
                        !alone || judged.deviation(0, &late).is_some(),
                        "{label}: behind its loads {gone:?}"
                    );
                    let mut old = notes.clone();
                    old[at].value -= 1;
                    assert!(judged.deviation(0, &old).is_some(), "{label}: with too few posts {gone:?}");
                }
                changes += 1;
            }
            assert!(changes > 20, "{label}: {changes} changes");
            println!("{label}: {} notes, {changes} of them changed, each change found", notes.len());
        }
    }
}
