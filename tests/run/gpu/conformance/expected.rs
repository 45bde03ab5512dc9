//! The notes that a run of a plan is expected to make, from its program.

use std::collections::{BTreeMap, HashMap};

use super::{Expected, Judged, Key};
use cusync::ffi;
use cusync_gen::check::{Candidate, Event, Generated, TileProgram};
use cusync_gen::graph::{Dependence, OperandKind, Partition, StageId, When};
use cusync_gen::sync::Tile;

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

impl<'a> Judged<'a> {
    pub(super) fn new(c: &'a Candidate) -> Self {
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
                if kind.when() != When::Epilogue {
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
    pub(super) fn expects(&self, key: Key) -> Option<&Expected> {
        let shared = || self.items.get(&(key.0, key.1, key.2, 0)).filter(|expected| expected.shared);
        self.items.get(&key).or_else(shared)
    }

    /// The expected posts of a tile to each slot.
    pub(super) fn posts(&self, stage: u32, tile: Tile) -> BTreeMap<u32, u32> {
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
    pub(super) fn poster(&self, waits: u32) -> u32 {
        let awaited = |d: &&Dependence| d.consumer.0 == waits as usize;
        let a = |d: &&Dependence| {
            role(self.c.graph.stages[d.consumer.0].operands[d.operand].kind) == ffi::CUSYNC_OPERAND_A
        };
        let found = self.c.graph.dependences.iter().filter(awaited).find(a);
        if self.c.launch.shares().is_some() { found.map_or(0, |d| d.producer.0 as u32) } else { 0 }
    }
}
