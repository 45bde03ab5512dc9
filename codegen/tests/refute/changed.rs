//! A plan's own program with one change: models a kernel that differs from ours in one place, and how `check` judges
//! it. The program does not report which tiles are alike.

use cusync_gen::check::{Candidate, Event, Generated, Obligation, Place, Report, TileProgram, judge_program};
use cusync_gen::graph::{Graph, StageId};
use cusync_gen::sync::Tile;

struct Changed<'a, E, P> {
    base: Generated<'a>,
    events: E,
    posts: P,
}

impl<E, P> TileProgram for Changed<'_, E, P>
where
    E: Fn(StageId, Tile, u32, Vec<Event>) -> Vec<Event>,
    P: Fn(usize, Tile, Vec<(u32, u32)>) -> Vec<(u32, u32)>,
{
    fn posts(&self, edge: usize, tile: Tile, f: &mut dyn FnMut(u32, u32)) {
        let mut posts = Vec::new();
        self.base.posts(edge, tile, &mut |slot, amount| posts.push((slot, amount)));
        (self.posts)(edge, tile, posts).into_iter().for_each(|(slot, amount)| f(slot, amount));
    }
    fn events(&self, stage: StageId, tile: Tile, slice: u32, f: &mut dyn FnMut(Event)) {
        let mut events = Vec::new();
        self.base.events(stage, tile, slice, &mut |event| events.push(event));
        (self.events)(stage, tile, slice, events).into_iter().for_each(f);
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

/// Judges the plan with a slice's events changed.
pub(crate) fn mutated(
    c: &Candidate,
    events: impl Fn(StageId, Tile, u32, Vec<Event>) -> Vec<Event>,
) -> Report {
    judge_program(c, &Changed { base: Generated::new(c), events, posts: |_, _, posts| posts })
}

/// Judges the plan with each event replaced or dropped.
pub(crate) fn each(c: &Candidate, change: impl Fn(usize, Tile, Event) -> Option<Event>) -> Report {
    mutated(c, |stage, tile, _, events| {
        events.into_iter().filter_map(|event| change(stage.0, tile, event)).collect()
    })
}

/// Judges the plan with a tile's posts (slots and amounts) changed.
pub(crate) fn posting(
    c: &Candidate,
    posts: impl Fn(usize, Tile, Vec<(u32, u32)>) -> Vec<(u32, u32)>,
) -> Report {
    judge_program(c, &Changed { base: Generated::new(c), events: |_, _, _, events| events, posts })
}

/// Expects exactly this obligation to be refuted; its text, which is returned, must contain all of these.
#[track_caller]
pub(crate) fn only(report: &Report, obligation: Obligation, says: &[&str]) -> String {
    let found: Vec<_> = report.refutations.iter().map(|r| r.obligation).collect();
    assert_eq!(found, [obligation], "{:#?}", report.refutations);
    let text = report.refutations[0].to_string();
    says.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
    text
}
