//! `cover` and `count`: every load is behind waits that guarantee it, and every wait is reached exactly.

use std::ops::Range;

use super::before::Before;
use super::{extent_tiles, grid_tiles, has_semaphores, slice_name, tile_name};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::StageId;
use crate::policy::Tile;

/// More posts than this to one slot in one epoch could let the signed comparison of two epochs overflow.
const MAX_POSTS: u64 = 1 << 30;

/// The posts of one epoch: which slots each producer tile posts, and what each slot receives.
struct Posts {
    by_tile: Vec<Vec<u32>>,
    totals: Vec<u64>,
    /// By slot: how many posts make up the total.
    counts: Vec<u32>,
}

impl Posts {
    fn of(c: &Candidate, p: &dyn TileProgram, edge: usize) -> Posts {
        let producer = &c.graph.stages[c.graph.dependences[edge].producer.0];
        let (mut totals, mut counts) = (Vec::new(), Vec::new());
        let by_tile = grid_tiles(producer)
            .map(|tile| {
                let mut slots = Vec::new();
                p.posts(edge, tile, &mut |slot, amount| {
                    let slot_index = slot as usize;
                    if slot_index >= totals.len() {
                        totals.resize(slot_index + 1, 0);
                        counts.resize(slot_index + 1, 0);
                    }
                    totals[slot_index] += u64::from(amount);
                    counts[slot_index] += 1;
                    if amount > 0 {
                        slots.push(slot);
                    }
                });
                slots
            })
            .collect();
        Posts { by_tile, totals, counts }
    }

    fn total(&self, slot: u32) -> u64 {
        self.totals.get(slot as usize).copied().unwrap_or(0)
    }
}

/// Before each load, for every producer tile that its footprint meets, some slot that this tile posts has been waited
/// for up to all the posts that it gets: then, and only then, the tile is known to be done.
pub(super) fn cover(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    if let Some(forgotten) = forgotten(c) {
        return Some(forgotten);
    }
    if !has_semaphores(c) {
        return serial_cover(c);
    }
    let posts: Vec<Posts> = (0..c.graph.dependences.len()).map(|edge| Posts::of(c, p, edge)).collect();
    for consumer in (0..c.graph.stages.len()).map(StageId) {
        let edges: Vec<usize> =
            (0..posts.len()).filter(|e| c.graph.dependences[*e].consumer == consumer).collect();
        if edges.is_empty() {
            continue;
        }
        // Per edge and slot, the number of the work item that last waited for it in full.
        let mut waited: Vec<Vec<u32>> = posts.iter().map(|p| vec![0; p.totals.len()]).collect();
        let mut item = 0;
        let mut order: Option<Before> = None;
        for tile in extent_tiles(c, p, consumer) {
            for slice in 0..p.slices(&c.graph, consumer, tile) {
                item += 1;
                let mut fault = None;
                let mut events = 0;
                p.events(consumer, tile, slice, &mut |event| match (event, events += 1).0 {
                    Event::Wait { edge, slot, value } => {
                        if u64::from(value) >= posts[edge].total(slot)
                            && let Some(mark) = waited[edge].get_mut(slot as usize)
                        {
                            *mark = item;
                        }
                    }
                    event @ (Event::Load { .. } | Event::Multicast { .. }) if fault.is_none() => {
                        regions(c, consumer, tile, event, &mut |operand, k_block, region| {
                            let of_operand = |e: &&usize| c.graph.dependences[**e].operand == operand;
                            for edge in edges.iter().filter(of_operand) {
                                let done = |tile: Tile, gn: u32| {
                                    posts[*edge].by_tile[(tile.m * gn + tile.n) as usize]
                                        .iter()
                                        .any(|slot| waited[*edge][*slot as usize] == item)
                                };
                                // Seldom: no wait of its own, but one that others stand behind.
                                let producer = c.graph.dependences[*edge].producer;
                                let racing = uncovered(c, *edge, &region, done).and_then(|_| {
                                    let order = order.get_or_insert_with(|| Before::new(c, p));
                                    uncovered(c, *edge, &region, |at, gn| {
                                        done(at, gn)
                                            || order.load((producer, at), (consumer, tile), slice, events - 1)
                                    })
                                });
                                if let (None, Some(racing)) = (&fault, racing) {
                                    fault = Some((*edge, k_block, region.clone(), racing));
                                }
                            }
                        });
                    }
                    _ => {}
                });
                if let Some((edge, k_block, region, racing)) = fault {
                    let load = Load { edge, reader: (tile, slice), k_block, region };
                    return Some(race(c, p, &posts[edge], load, racing));
                }
            }
        }
    }
    None
}

/// A read of what another stage writes, of which the graph states no dependence: nothing below would look at it.
fn forgotten(c: &Candidate) -> Option<Refutation> {
    c.graph.stages.iter().enumerate().find_map(|(s, stage)| {
        stage.operands.iter().enumerate().find_map(|(operand, read)| {
            let tensor = &c.graph.tensors[read.tensor.0];
            let producer = tensor.producer?;
            let known = c
                .graph
                .dependences
                .iter()
                .any(|d| (d.producer, d.consumer, d.operand) == (producer, StageId(s), operand));
            (!known).then(|| {
                let writer = &c.graph.stages[producer.0].name;
                let message = format!(
                    "`{}` reads `{}`, which `{writer}` writes, and no dependence says so",
                    stage.name, tensor.name
                );
                Refutation::new(Obligation::Cover, Subject::Stage(StageId(s)), message)
                    .help("derive the dependences from the footprints")
            })
        })
    })
}

/// Rows and columns of a tensor.
type Region = (Range<u32>, Range<u32>);

/// Calls `f` with what a load reads: operand, k-block, regions of its tensor.
fn regions(c: &Candidate, stage: StageId, tile: Tile, load: Event, f: &mut dyn FnMut(usize, u32, Region)) {
    match load {
        Event::Load { operand, k_block } => {
            let stage = &c.graph.stages[stage.0];
            let tensor = &c.graph.tensors[stage.operands[operand].tensor.0];
            stage.reads(operand, tensor, (tile.m, tile.n), k_block, &mut |rows, cols| {
                f(operand, k_block, (rows, cols));
            });
        }
        Event::Multicast { operand, k_block, rows, cols } => f(operand, k_block, (rows, cols)),
        Event::Wait { .. }
        | Event::Contribute { .. }
        | Event::Await { .. }
        | Event::Add { .. }
        | Event::Store { .. } => {}
    }
}

/// The first producer tile in the region of a load that is not known to be done.
fn uncovered(
    c: &Candidate,
    edge: usize,
    (rows, cols): &Region,
    mut done: impl FnMut(Tile, u32) -> bool,
) -> Option<Tile> {
    let producer = &c.graph.stages[c.graph.dependences[edge].producer.0];
    if rows.is_empty() || cols.is_empty() {
        return None;
    }
    let ((tile_rows, tile_cols), gn) = (producer.out_tile, producer.grid.1);
    (rows.start / tile_rows..rows.end.div_ceil(tile_rows))
        .flat_map(|m| (cols.start / tile_cols..cols.end.div_ceil(tile_cols)).map(move |n| Tile { m, n }))
        .find(|producer| !done(*producer, gn))
}

/// A load that is not covered.
struct Load {
    edge: usize,
    /// Tile and slice.
    reader: (Tile, u32),
    k_block: u32,
    region: Region,
}

fn race(c: &Candidate, p: &dyn TileProgram, posts: &Posts, load: Load, racing: Tile) -> Refutation {
    let Load { edge, reader: (tile, slice), k_block, region: (rows, cols) } = load;
    let dependence = &c.graph.dependences[edge];
    let (producer, consumer) =
        (&c.graph.stages[dependence.producer.0], &c.graph.stages[dependence.consumer.0]);
    let tensor = &c.graph.tensors[consumer.operands[dependence.operand].tensor.0];
    let (tile_rows, tile_cols) = producer.out_tile;
    let slots = &posts.by_tile[(racing.m * producer.grid.1 + racing.n) as usize];
    let reader = tile_name(c, dependence.consumer, tile);
    let writer = tile_name(c, dependence.producer, racing);
    let slice_text = if consumer.split_k > 1 { format!(", slice {slice}") } else { String::new() };
    let mut refutation = Refutation::new(
        Obligation::Cover,
        Subject::Edge(edge),
        format!("{reader} may read `{}` before {writer} has written it", tensor.name),
    );
    if let Some(place) = p.place(dependence.consumer, tile, slice) {
        refutation = refutation.fact(format!("{reader} is of {place}"));
    }
    if consumer.grid.0 <= tile.m || consumer.grid.1 <= tile.n {
        refutation = refutation.fact(format!("{reader} lies outside the grid and loads for its cluster"));
    }
    let refutation = refutation
        .fact(format!(
            "at k-block {k_block}{slice_text}, {reader} loads rows {}..{}, columns {}..{} of `{}`",
            rows.start, rows.end, cols.start, cols.end, tensor.name
        ))
        .fact(format!(
            "{writer} writes rows {}..{}, columns {}..{}",
            racing.m * tile_rows,
            (racing.m + 1) * tile_rows,
            racing.n * tile_cols,
            (racing.n + 1) * tile_cols
        ));
    match slots.first() {
        Some(slot) => refutation.fact(format!(
            "it posts slot {slot}, which {reader} has not waited for up to all its {} posts by then",
            posts.total(*slot)
        )),
        None => refutation.fact("it posts no slot of this edge"),
    }
    .help(
        "wait for every slot that the footprint meets before the load, or use a policy that derives the wait",
    )
}

/// Stream order is the only wait of a serial chain.
fn serial_cover(c: &Candidate) -> Option<Refutation> {
    c.graph.dependences.iter().enumerate().find_map(|(edge, d)| {
        (c.launch_position(d.producer) >= c.launch_position(d.consumer)).then(|| {
            let name = |s: StageId| &c.graph.stages[s.0].name;
            Refutation::new(
                Obligation::Cover,
                Subject::Edge(edge),
                format!(
                    "`{}` is launched before `{}`, which writes what it reads",
                    name(d.consumer),
                    name(d.producer)
                ),
            )
            .help("launch producers before consumers")
        })
    })
}

/// Wait values are the posts of an epoch, no less (or a wait guarantees nothing) and no more (or it never ends).
pub(super) fn count(c: &Candidate, p: &dyn TileProgram) -> Option<Refutation> {
    if !has_semaphores(c) {
        return None;
    }
    let posts: Vec<Posts> = (0..c.graph.dependences.len()).map(|edge| Posts::of(c, p, edge)).collect();
    for (edge, posts) in posts.iter().enumerate() {
        let refute = |message: String| Refutation::new(Obligation::Count, Subject::Edge(edge), message);
        if let Some((slot, total)) = posts.totals.iter().enumerate().find(|(_, total)| **total > MAX_POSTS) {
            return Some(
                refute(format!("slot {slot} of {} gets {total} posts a run", c.edge_name(edge)))
                    .fact("counters are 32 bits and compare by signed difference, so two runs must stay within 2^31")
                    .help("use a policy with more slots"),
            );
        }
        if c.practice.plain_store_posts
            && let Some((slot, count)) = posts.counts.iter().enumerate().find(|(_, count)| **count > 1)
        {
            return Some(
                refute(format!("slot {slot} of {} is posted {count} times by plain stores", c.edge_name(edge)))
                    .fact("a plain store replaces the atomic only where a slot has one post: two stores can lose one")
                    .help("use atomic posts, or a slot a tile"),
            );
        }
    }
    for i in 0..c.graph.stages.len() {
        if !c.graph.dependences.iter().any(|d| d.consumer.0 == i) {
            continue;
        }
        for tile in extent_tiles(c, p, StageId(i)) {
            for slice in 0..p.slices(&c.graph, StageId(i), tile) {
                let mut fault = None;
                p.events(StageId(i), tile, slice, &mut |event| {
                    if let Event::Wait { edge, slot, value } = event
                        && fault.is_none()
                        && u64::from(value) != posts[edge].total(slot)
                    {
                        fault = Some((edge, slot, value));
                    }
                });
                if let Some((edge, slot, value)) = fault {
                    let total = posts[edge].total(slot);
                    let outcome = if u64::from(value) < total {
                        "the wait ends while tiles of the slot are still being written"
                    } else {
                        "the wait never ends"
                    };
                    return Some(
                        Refutation::new(
                            Obligation::Count,
                            Subject::Edge(edge),
                            format!(
                                "{} waits for {value} posts to slot {slot} of {}, which gets {total} a run",
                                slice_name(c, p, StageId(i), tile, slice),
                                c.edge_name(edge)
                            ),
                        )
                        .fact(outcome)
                        .help(format!("wait for {total}")),
                    );
                }
            }
        }
    }
    None
}
