//! Waits of the tiles of a predicted run.

use std::ops::Range;

use super::TileCost;
use crate::check::Candidate;
use crate::device::Profile;
use crate::graph::{EdgeNumbers, Footprint, StageId, When, each_wait};
use crate::sync::{Tile, WaitAt};

/// The waits of all stages under the policies of a candidate. Orders do not change them.
pub(crate) struct Waiting {
    pub(super) edges: Vec<EdgeNumbers>,
    pub(super) stages: Vec<Waits>,
}

impl Waiting {
    pub(crate) fn new(candidate: &Candidate) -> Waiting {
        let edges = candidate.edge_numbers();
        let stages = 0..candidate.graph.stages.len();
        let stages = stages.map(|s| Waits::new(candidate, &edges, StageId(s))).collect();
        Waiting { edges, stages }
    }
}

/// The waits of a stage's tiles.
pub(super) struct Waits {
    edges: Vec<EdgeWaits>,
    /// k-blocks of the tiles of each row of tiles, and of the longest.
    k_blocks: Vec<u32>,
    most: u32,
}

/// The waits on one edge.
struct EdgeWaits {
    edge: usize,
    /// Whether the wait comes after the last k-block.
    last: bool,
    /// Rows and columns along which waits differ; tiles that agree share a list.
    by: (bool, bool),
    /// Lists in a row of them.
    columns: u32,
    /// Where each list lies in `waits`. Tiles that have fewer k-blocks than others use the head of it.
    lists: Vec<Range<usize>>,
    /// k-block, and one past the last of its slots in `slots`, which begin where those of the previous wait end.
    waits: Vec<(u32, usize)>,
    slots: Vec<u32>,
}

impl EdgeWaits {
    fn new(candidate: &Candidate, numbers: &EdgeNumbers) -> EdgeWaits {
        let (graph, edge) = (&candidate.graph, numbers.id as usize);
        let dependence = &graph.dependences[edge];
        let (consumer, made) =
            (&graph.stages[dependence.consumer.0], graph.stages[dependence.producer.0].partition);
        let varies = Footprint { rows: numbers.rows, cols: numbers.cols }.varies();
        let when = numbers.operand.when();
        let once = when != When::Each || numbers.wait_at == WaitAt::Start;
        let uneven = consumer.k_blocks_of(0) < consumer.k_blocks;
        // A wait at the start covers all k-blocks of the tile.
        let by = (varies.0 || once && uneven, varies.1);
        let (gm, columns) = (if by.0 { consumer.grid.0 } else { 1 }, if by.1 { consumer.grid.1 } else { 1 });
        let (mut lists, mut waits, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for tile in (0..gm).flat_map(|m| (0..columns).map(move |n| Tile { m, n })) {
            let ks = 0..if by.0 { consumer.k_blocks_of(tile.m) } else { consumer.k_blocks };
            let begin = waits.len();
            each_wait(numbers, made, tile, ks, &mut |k, tiles| {
                numbers.policy.each_covering(&tiles, &mut |slot| slots.push(slot));
                waits.push((k, slots.len()));
            });
            lists.push(begin..waits.len());
        }
        EdgeWaits { edge, last: when == When::Epilogue, by, columns, lists, waits, slots }
    }

    fn list(&self, tile: Tile) -> &Range<usize> {
        let m = if self.by.0 { tile.m } else { 0 };
        &self.lists[(m * self.columns + if self.by.1 { tile.n } else { 0 }) as usize]
    }

    /// Number of slots before a wait.
    fn before(&self, wait: usize) -> usize {
        wait.checked_sub(1).map_or(0, |before| self.waits[before].1)
    }

    /// The slots of a wait.
    fn slots(&self, wait: usize) -> &[u32] {
        &self.slots[self.before(wait)..self.waits[wait].1]
    }
}

impl Waits {
    fn new(candidate: &Candidate, edges: &[EdgeNumbers], stage: StageId) -> Waits {
        let graph = &candidate.graph;
        let consumer = &graph.stages[stage.0];
        let own = edges.iter().filter(|e| graph.dependences[e.id as usize].consumer == stage);
        Waits {
            edges: own.map(|edge| EdgeWaits::new(candidate, edge)).collect(),
            k_blocks: (0..consumer.grid.0).map(|m| consumer.k_blocks_of(m).max(1)).collect(),
            most: consumer.k_blocks.max(1),
        }
    }

    /// When everything that the stage waits for is posted; its producers have run.
    pub(super) fn posted<'a>(&'a self, ready: &'a [Vec<f64>], device: &'a Profile) -> Posted<'a> {
        let seen_us = device.post_us + device.handoff_us;
        let of_edge = |edge: &EdgeWaits| {
            let at = |wait: usize| {
                edge.slots(wait).iter().map(|s| ready[edge.edge][*s as usize]).fold(0.0, f64::max)
            };
            let of_list = |list: &Range<usize>| {
                list.clone().scan(0.0f64, |latest, wait| {
                    *latest = latest.max(at(wait) + seen_us);
                    Some(*latest)
                })
            };
            edge.lists.iter().flat_map(|list| of_list(list).collect::<Vec<f64>>()).collect()
        };
        Posted { waits: self, ready, device, latest: self.edges.iter().map(of_edge).collect() }
    }
}

/// The waits of a stage after its producers have run.
pub(super) struct Posted<'a> {
    waits: &'a Waits,
    ready: &'a [Vec<f64>],
    device: &'a Profile,
    /// When each wait and all earlier ones in its list are satisfied, by edge and wait.
    latest: Vec<Vec<f64>>,
}

impl Posted<'_> {
    /// End of a tile that starts at `start`, and the time it spends waiting. `note` receives edge, slot, begin and end
    /// of each wait that blocks. While the tile waits for its first slots, the ring fills with the operand that has no
    /// producer.
    pub(super) fn run(
        &self,
        (stage, tile): (StageId, Tile),
        start: f64,
        cost: &TileCost,
        note: &mut impl FnMut(usize, u32, f64, f64),
    ) -> (f64, f64) {
        let Posted { waits, ready, device, latest } = self;
        let k_blocks = waits.k_blocks[tile.m as usize];
        let whole = cost.tile_us(stage, tile, f64::from(k_blocks) / f64::from(waits.most), false);
        let per_k = (whole - cost.fixed_us).max(0.0) / f64::from(k_blocks);
        let k_of = |edge: &EdgeWaits, wait: usize| if edge.last { k_blocks } else { edge.waits[wait].0 };
        // By edge: the remaining waits.
        let mut left: Vec<Range<usize>> = Vec::with_capacity(waits.edges.len());
        left.extend(waits.edges.iter().map(|edge| {
            let Range { start, end } = *edge.list(tile);
            let head = edge.waits[start..end].partition_point(|(k, _)| *k < k_blocks);
            start..start + head
        }));
        // Cost of polls that find all posts present.
        let pass = |edge: &EdgeWaits, passed: Range<usize>| {
            let looks = edge.before(passed.end) - edge.before(passed.start) - passed.len();
            passed.len() as f64 * device.wait_us + looks as f64 * device.look_us
        };
        let (mut now, mut k_done, mut waited) = (start, 0, 0.0);
        loop {
            // No wait blocks before the first one that may not be satisfied yet.
            let first = |(at, left): (usize, &Range<usize>)| {
                let later = latest[at][left.clone()].partition_point(|posted| *posted <= now);
                let wait = left.start + later;
                (wait < left.end).then(|| (k_of(&waits.edges[at], wait), at, wait))
            };
            let next = left.iter().enumerate().filter_map(first).min();
            for (at, edge) in waits.edges.iter().enumerate() {
                let passed = match next {
                    Some((k, other, _)) => {
                        let sooner = |wait: &(u32, usize)| {
                            let own = if edge.last { k_blocks } else { wait.0 };
                            (own, at) < (k, other)
                        };
                        edge.waits[left[at].clone()].partition_point(sooner)
                    }
                    None => left[at].len(),
                };
                let end = left[at].start + passed;
                now += pass(edge, left[at].start..end);
                left[at].start = end;
            }
            let Some((k, at, wait)) = next else { break };
            let edge = &waits.edges[at];
            now += f64::from(k - k_done) * per_k + pass(edge, wait..wait + 1);
            k_done = k;
            left[at].start = wait + 1;
            let ready = |slot: &u32| ready[edge.edge][*slot as usize];
            let slots = edge.slots(wait);
            let posted = slots.iter().map(ready).fold(0.0, f64::max) + device.post_us + device.handoff_us;
            if posted > now {
                let last = slots.iter().max_by(|a, b| ready(a).total_cmp(&ready(b)));
                note(edge.edge, last.copied().unwrap_or(0), now, posted);
                waited += posted - now;
                let ahead = (posted - now).min(cost.prefetch_us);
                now = posted - if k == 0 { ahead } else { 0.0 };
            }
        }
        (now + f64::from(k_blocks - k_done.min(k_blocks)) * per_k + cost.fixed_us, waited)
    }
}
