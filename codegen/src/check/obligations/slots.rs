//! `cover` and `count`: every load follows waits that guarantee it, and every wait value is reached exactly.

use super::before::Before;
use super::loads::{Rect, regions};
use super::posts::Posts;
use super::scan::{Marks, Scan, uncovered};
use super::{from, slice_name, tile_name};
use crate::check::{Candidate, Event, Obligation, Refutation, Subject, TileProgram};
use crate::graph::StageId;
use crate::sync::Tile;

/// More posts than this to one slot per epoch could overflow the signed comparison of two epochs.
const MAX_POSTS: u64 = 1 << 30;

/// Before each load, for every producer tile in its footprint, some slot that this tile posts has been waited for up
/// to its full number of posts. This is necessary and sufficient for the tile to be known to be done.
pub(super) fn cover(c: &Candidate, p: &dyn TileProgram, scan: &Scan) -> Option<Refutation> {
    if let Some(forgotten) = forgotten(c) {
        return Some(forgotten);
    }
    if !c.launch.has_semaphores() {
        return serial_cover(c);
    }
    // Rare: a load without a wait of its own, which other waits may cover.
    let begin = scan.uncovered?;
    let posts = &scan.posts;
    let mut marks = Marks::for_slots(posts);
    let mut order: Option<Before> = None;
    for consumer in (begin.0.0..c.graph.stages.len()).map(StageId) {
        let edges: Vec<usize> =
            (0..posts.len()).filter(|e| c.graph.dependences[*e].consumer == consumer).collect();
        if edges.is_empty() {
            continue;
        }
        for tile in from(begin, c, p, consumer) {
            for slice in 0..p.slices(&c.graph, consumer, tile) {
                marks.next();
                let mut fault = None;
                let mut events = 0;
                p.events(consumer, tile, slice, &mut |event| match (&event, events += 1).0 {
                    Event::Wait { edge, slot, value } if u64::from(*value) >= posts[*edge].total(*slot) => {
                        marks.set(*edge, *slot);
                    }
                    Event::Warp { .. } => marks.next(),
                    Event::Load { .. } | Event::Multicast { .. } if fault.is_none() => {
                        regions(c, consumer, tile, &event, &mut |operand, k_block, region| {
                            let of_operand = |e: &&usize| c.graph.dependences[**e].operand == operand;
                            for edge in edges.iter().filter(of_operand) {
                                let done = |tile: Tile| marks.any(*edge, posts[*edge].of_tile(tile));
                                let producer = c.graph.dependences[*edge].producer;
                                let racing = uncovered(c, *edge, &region, done).and_then(|_| {
                                    let order = order.get_or_insert_with(|| Before::new(c, p));
                                    uncovered(c, *edge, &region, |at| {
                                        done(at)
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

/// A read of another stage's output without a dependence in the graph: no later check would look at it.
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

/// A load that is not covered.
struct Load {
    edge: usize,
    /// Tile and slice.
    reader: (Tile, u32),
    k_block: u32,
    region: Rect,
}

fn race(c: &Candidate, p: &dyn TileProgram, posts: &Posts, load: Load, racing: Tile) -> Refutation {
    let Load { edge, reader: (tile, slice), k_block, region: (rows, cols) } = load;
    let dependence = &c.graph.dependences[edge];
    let (producer, consumer) =
        (&c.graph.stages[dependence.producer.0], &c.graph.stages[dependence.consumer.0]);
    let tensor = &c.graph.tensors[consumer.operands[dependence.operand].tensor.0];
    let (written_rows, written_cols) = producer.writes(racing);
    let slots = posts.of_tile(racing);
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
            written_rows.start, written_rows.end, written_cols.start, written_cols.end
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
        (c.launch.position(d.producer) >= c.launch.position(d.consumer)).then(|| {
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

/// Wait values equal the posts of an epoch: with fewer, a wait guarantees nothing; with more, it never ends.
pub(super) fn count(c: &Candidate, p: &dyn TileProgram, scan: &Scan) -> Option<Refutation> {
    if !c.launch.has_semaphores() {
        return None;
    }
    let posts = &scan.posts;
    for (edge, posts) in posts.iter().enumerate() {
        let refute = |message: String| Refutation::new(Obligation::Count, Subject::Edge(edge), message);
        if let Some((slot, total)) = posts.totals.iter().enumerate().find(|(_, total)| **total > MAX_POSTS) {
            return Some(
                refute(format!("slot {slot} of {} gets {total} posts a run", c.edge_name(edge)))
                    .fact("counters are 32 bits and compare by signed difference, so two runs must stay within 2^31")
                    .help("use a policy with more slots"),
            );
        }
        if c.contract.plain_store_posts
            && let Some((slot, count)) = posts.counts.iter().enumerate().find(|(_, count)| **count > 1)
        {
            return Some(
                refute(format!("slot {slot} of {} is posted {count} times by plain stores", c.edge_name(edge)))
                    .fact("a plain store replaces the atomic only where a slot has one post: two stores can lose one")
                    .help("use atomic posts, or a slot a tile"),
            );
        }
    }
    let begin = scan.miscounted?;
    for i in begin.0.0..c.graph.stages.len() {
        if !c.graph.dependences.iter().any(|d| d.consumer.0 == i) {
            continue;
        }
        for tile in from(begin, c, p, StageId(i)) {
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
