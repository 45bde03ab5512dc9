//! Determines which producer tiles a span waited for, and which posted last. Computed from the plan, because
//! kernels record only that they waited.

use std::collections::HashMap;

use cusync_gen::check::{Candidate, Plan};
use cusync_gen::graph::{Dependence, EdgeNumbers, Graph, StageId, When, each_wait, waits_differ};
use cusync_gen::sync::Tile;

use super::timeline::{Edge, TraceSpan};

/// Edges of a pipeline with their policies.
pub(super) struct Edges<'a> {
    graph: &'a Graph,
    list: Vec<EdgeNumbers>,
}

/// A post: its time, and its span.
pub(super) type Post = (f64, usize);

/// The last post to each slot, by edge.
pub(super) type LastPosts = Vec<Vec<Option<Post>>>;

/// A wait of a span before k-block `k` (one past the last: in the epilogue), on slots of an edge.
#[derive(Clone, Debug)]
struct Need {
    k: u32,
    edge: usize,
    slots: Vec<u32>,
}

impl<'a> Edges<'a> {
    pub(super) fn of_plan(plan: &'a Plan) -> Self {
        Edges { graph: plan.graph(), list: plan.edges().iter().map(|e| e.numbers().clone()).collect() }
    }

    pub(super) fn of_candidate(candidate: &'a Candidate) -> Self {
        Edges { graph: &candidate.graph, list: candidate.edge_numbers() }
    }

    fn edges(&self) -> impl Iterator<Item = (&Dependence, &EdgeNumbers)> {
        self.graph.dependences.iter().zip(&self.list)
    }

    /// Edges as a timeline names them.
    pub(super) fn names(graph: &Graph) -> Vec<Edge> {
        let one = |d: &Dependence| {
            let consumer = &graph.stages[d.consumer.0];
            let tensor = &graph.tensors[consumer.operands[d.operand].tensor.0].name;
            let producer = &graph.stages[d.producer.0].name;
            Edge {
                name: format!("{producer} -> {} ({tensor})", consumer.name),
                producer: d.producer.0,
                consumer: d.consumer.0,
            }
        };
        graph.dependences.iter().map(one).collect()
    }

    /// Last post to each slot. `finishes` tells which spans complete a tile, or their part of one.
    pub(super) fn posts(&self, spans: &[TraceSpan], finishes: impl Fn(usize) -> bool) -> LastPosts {
        let mut posts: LastPosts =
            self.list.iter().map(|edge| vec![None; edge.policy.slot_count as usize]).collect();
        for (index, span) in spans.iter().enumerate().filter(|(index, _)| finishes(*index)) {
            for ((dependence, edge), posts) in self.edges().zip(&mut posts) {
                let grid = self.graph.stages[dependence.producer.0].grid;
                // A cluster at the edge may extend beyond the grid.
                if dependence.producer.0 != span.stage || span.tile.0 >= grid.0 || span.tile.1 >= grid.1 {
                    continue;
                }
                let (m, n) = span.tile;
                let Some(last) = posts.get_mut(edge.policy.slot_of(Tile { m, n }) as usize) else { continue };
                let end = span.end_us();
                if last.is_none_or(|(other, _)| end > other) {
                    *last = Some((end, index));
                }
            }
        }
        posts
    }

    fn needs(&self, stage: usize, tile: Tile, ks: (u32, u32)) -> Vec<Need> {
        let mut needs = Vec::new();
        for (dependence, edge) in self.edges().filter(|(d, _)| d.consumer.0 == stage) {
            let late = edge.operand.when() == When::Epilogue;
            let made = self.graph.stages[dependence.producer.0].partition;
            each_wait(edge, made, tile, ks.0..ks.1, &mut |k, tiles| {
                let (k, slots) = (if late { ks.1 } else { k }, edge.policy.covering(&tiles));
                needs.push(Need { k, edge: edge.id as usize, slots });
            });
        }
        needs
    }
}

/// Wait that delayed a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latest {
    pub(super) edge: usize,
    /// k-block that could not be loaded.
    pub(super) k: u32,
    /// Span that posted last.
    pub(super) from: usize,
}

/// Spans with identical waits: same stage, same row and column as far as they matter, and same k-range.
type Class = (usize, u32, u32, (u32, u32));

/// Cached waits for the spans of one run.
pub(super) struct Causes<'a> {
    edges: &'a Edges<'a>,
    posts: LastPosts,
    known: HashMap<Class, Vec<Need>>,
    differ: Vec<(bool, bool)>,
}

impl<'a> Causes<'a> {
    pub(super) fn new(edges: &'a Edges<'a>, posts: LastPosts) -> Self {
        let differ =
            (0..edges.graph.stages.len()).map(|stage| waits_differ(edges.graph, StageId(stage))).collect();
        Causes { edges, posts, known: HashMap::new(), differ }
    }

    /// Post to a slot, as seen by a wait on it.
    pub(super) fn post(&self, edge: usize, slot: u32) -> Option<Post> {
        *self.posts.get(edge)?.get(slot as usize)?
    }

    /// The span's need with the largest value of `late`, which receives the k-block and the time of the
    /// need's last post.
    pub(super) fn latest(
        &mut self,
        span: &TraceSpan,
        late: impl Fn(u32, f64) -> Option<f64>,
    ) -> Option<Latest> {
        let (m, n) = span.tile;
        let by = *self.differ.get(span.stage)?;
        let key = (span.stage, if by.0 { m } else { 0 }, if by.1 { n } else { 0 }, span.k);
        let (edges, posts) = (self.edges, &self.posts);
        let needs = self.known.entry(key).or_insert_with(|| edges.needs(span.stage, Tile { m, n }, span.k));
        let mut found: Option<(f64, Latest)> = None;
        for need in needs {
            let of_slot = |slot: &u32| *posts.get(need.edge)?.get(*slot as usize)?;
            let Some(post) = need.slots.iter().filter_map(of_slot).max_by(|a, b| a.0.total_cmp(&b.0)) else {
                continue;
            };
            let Some(at) = late(need.k, post.0) else { continue };
            if found.is_none_or(|(other, ..)| at > other) {
                found = Some((at, Latest { edge: need.edge, k: need.k, from: post.1 }));
            }
        }
        found.map(|(_, latest)| latest)
    }
}
