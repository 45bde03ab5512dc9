//! A plan's program with its events changed and counted.

use cusync_gen::check::{Event, Generated, Place, Strands, TileProgram};
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::sync::Tile;
use std::cell::Cell;
use std::ops::Range;

/// A program with a change applied to each event; it reports its strands or does not.
pub(super) struct Changed<'a, F> {
    program: &'a Generated<'a>,
    /// Maps an event to itself, a replacement, or nothing. Depends on the event alone, so alike tiles stay alike.
    change: F,
    tells: bool,
    /// Number of events that `check` asked for.
    pub(super) walked: Cell<u64>,
}

impl<'a, F: Fn(Event) -> Option<Event>> Changed<'a, F> {
    pub(super) fn new(program: &'a Generated<'a>, change: F, tells: bool) -> Self {
        Changed { program, change, tells, walked: Cell::new(0) }
    }

    fn pass(&self, event: Event, f: &mut dyn FnMut(Event)) {
        self.walked.set(self.walked.get() + 1);
        (self.change)(event).into_iter().for_each(f);
    }
}

impl<F: Fn(Event) -> Option<Event>> TileProgram for Changed<'_, F> {
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        self.program.posts(edge, tile, f);
    }

    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        self.program.events(stage, tile, slice, &mut |event| self.pass(event, f));
    }

    fn extent(&self, graph: &Graph, stage: StageId) -> (u32, u32) {
        self.program.extent(graph, stage)
    }

    fn slices(&self, graph: &Graph, stage: StageId, tile: Tile) -> u32 {
        self.program.slices(graph, stage, tile)
    }

    fn place(&self, stage: StageId, tile: Tile, slice: u32) -> Option<Place> {
        self.program.place(stage, tile, slice)
    }

    fn stores(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Range<u32>, u32)) {
        self.program.stores(stage, tile, slice, &mut |units, all| {
            if let Some(Event::Store { units, of }) = (self.change)(Event::Store { units, of: all }) {
                f(units, of);
            }
        });
    }

    fn strands(&self) -> Option<&dyn Strands> {
        self.program.strands().filter(|_| self.tells)?;
        Some(self)
    }
}

impl<F: Fn(Event) -> Option<Event>> Strands for Changed<'_, F> {
    fn strand(&self, edge: usize, tile: Tile, slice: u32, from: u32, f: &mut dyn FnMut(Event)) {
        self.program.strand(edge, tile, slice, from, &mut |event| self.pass(event, f));
    }

    fn alike(&self, edge: usize, a: Tile, b: Tile) -> bool {
        self.program.alike(edge, a, b)
    }

    fn grows(&self, edge: usize, shorter: Tile, longer: Tile) -> Option<u32> {
        self.program.grows(edge, shorter, longer)
    }

    fn period(&self) -> (u32, u32) {
        self.program.period()
    }
}
