//! The waits between streams that stream order and other waits do not imply.

use std::cmp::Reverse;
use std::ops::Range;

use super::bits::BitMatrix;
use super::bundles::Bundles;
use super::dependence::{Dependences, places};
use super::distribute::{Distribution, Join, Lane, NodeWait};
use super::program::NodeId;

/// Waits that a join must save: fewer are cheaper without the detour.
const JOIN_SAVES: usize = 32;

/// Whether a join between so many nodes is better than `waits` waits.
pub(super) fn join_pays(before: usize, after: usize, waits: usize) -> bool {
    waits >= before + after + JOIN_SAVES
}

/// The waits of nodes with one list of predecessors.
struct ListWaits {
    /// The row of their ancestors.
    row: usize,
    /// The places in `needed` of the predecessors that no other implies.
    needed: Range<usize>,
}

/// A join that may take the place of waits.
#[derive(Clone, Default)]
struct Candidate {
    /// The waits that it saves, and the nodes that then wait for it.
    saved: usize,
    nodes: usize,
    chosen: bool,
    /// Whether each position comes before it; empty: none does.
    before: Vec<bool>,
    after: Vec<usize>,
}

/// Nodes on streams, and the order that streams imply.
struct StreamOrder<'a> {
    dependences: &'a Dependences,
    order: &'a [NodeId],
    stream: &'a [u32],
    /// The position of each node.
    place: Vec<usize>,
    /// For each position, those that come before by streams and waits. Rows of lists follow.
    ancestors: BitMatrix,
    lists: Vec<Option<ListWaits>>,
    needed: Vec<u32>,
    /// For each position, the one before on its stream.
    previous: Vec<Option<usize>>,
}

/// Completes a distribution with the waits implied neither by stream order nor by other waits.
pub(super) fn with_waits(
    dependences: &Dependences,
    order: Vec<NodeId>,
    stream: Vec<u32>,
    lanes: Vec<Lane>,
) -> Distribution {
    let found = StreamOrder::new(dependences, &order, &stream, lanes.len());
    let (waits, joins) = found.waits();
    Distribution { order, stream, lanes, waits, joins }
}

impl<'a> StreamOrder<'a> {
    fn new(dependences: &'a Dependences, order: &'a [NodeId], stream: &'a [u32], streams: usize) -> Self {
        let (n, reduced) = (order.len(), &dependences.reduced);
        let shared = (0..reduced.count()).filter(|&list| reduced.users(list) > 1).count();
        let mut found = StreamOrder {
            dependences,
            order,
            stream,
            place: places(&order.iter().map(|id| id.index()).collect::<Vec<_>>(), n),
            ancestors: BitMatrix::new(n + shared, n),
            lists: (0..reduced.count()).map(|_| None).collect(),
            needed: Vec::new(),
            previous: vec![None; n],
        };
        let (mut last, mut rows) = (vec![None; streams], n..n + shared);
        let mut latest: Vec<Option<usize>> = vec![None; streams];
        for (at, id) in order.iter().enumerate() {
            let list = reduced.list_of(id.index());
            if found.lists[list].is_none() {
                let row = if reduced.users(list) > 1 { rows.next() } else { None };
                found.lists[list] = Some(found.needed(list, row.unwrap_or(at), &mut latest));
            }
            found.previous[at] = last[stream[id.index()] as usize].replace(at);
            let row = found.lists[list].as_ref().map_or(at, |list| list.row);
            if row != at {
                found.ancestors.add(at, row);
            }
            if let Some(previous) = found.previous[at] {
                found.ancestors.inherit(at, previous);
            }
        }
        found
    }

    /// The waits of a list. `latest` is empty before and after.
    fn needed(&mut self, list: usize, row: usize, latest: &mut [Option<usize>]) -> ListWaits {
        // Of the predecessors on one stream, the last implies the others.
        let before = self.dependences.reduced.items(list).iter().map(|&before| before as usize);
        let from = self.needed.len();
        for before in before {
            let on = self.stream[before] as usize;
            if latest[on].is_none() {
                self.needed.push(on as u32);
            }
            latest[on] = latest[on].max(Some(self.place[before]));
        }
        self.needed[from..].iter_mut().for_each(|on| {
            *on = latest[*on as usize].take().unwrap_or(0) as u32;
        });
        // A path that implies a wait goes through a later predecessor.
        self.needed[from..].sort_unstable_by_key(|&at| Reverse(at));
        let mut end = from;
        for i in from..self.needed.len() {
            let at = self.needed[i] as usize;
            if !self.ancestors.get(row, at) {
                self.ancestors.inherit(row, at);
                self.needed[end] = at as u32;
                end += 1;
            }
        }
        self.needed.truncate(end);
        self.needed[from..].reverse();
        ListWaits { row, needed: from..end }
    }

    /// The positions in a list of waits.
    fn needed_by(&self, list: usize) -> &[u32] {
        self.lists[list].as_ref().map_or(&[], |list| &self.needed[list.needed.clone()])
    }

    /// The positions for which the one at `at` has to wait, ascending: those that its stream does not imply.
    fn left_at(&self, at: usize) -> impl Iterator<Item = usize> {
        let needed = self.needed_by(self.dependences.reduced.list_of(self.order[at].index()));
        let previous = self.previous[at];
        needed.iter().map(|&wait| wait as usize).filter(move |&wait| {
            previous.is_none_or(|previous| wait != previous && !self.ancestors.get(previous, wait))
        })
    }

    /// Whether the stream of a node can host a join: nothing on it holds the other nodes back.
    fn hosts(&self, at: usize, members: &[u32]) -> bool {
        self.previous[at].is_none_or(|previous| {
            let implies = |&m: &u32| m as usize == previous || self.ancestors.get(m as usize, previous);
            members.iter().any(implies)
        })
    }

    /// The waits, through joins where these pay.
    fn waits(self) -> (Vec<NodeWait>, Vec<Join>) {
        let reduced = &self.dependences.reduced;
        let lists: Vec<_> = (0..reduced.count()).map(|l| (self.needed_by(l), reduced.users(l))).collect();
        let pays = |before, after| join_pays(before, after, before * after);
        let bundles = Bundles::new(self.order.len(), &lists, pays);
        let mut joins = vec![Candidate::default(); bundles.members.len()];
        if !joins.is_empty() {
            self.each_left(&bundles, |_, waits, join| {
                if let Some(join) = join.map(|join| &mut joins[join]) {
                    (join.saved, join.nodes) = (join.saved + waits.len(), join.nodes + 1);
                }
            });
            for (join, members) in joins.iter_mut().zip(&bundles.members) {
                join.chosen = join_pays(members.len(), join.nodes, join.saved);
            }
        }
        let mut waits = Vec::new();
        self.each_left(&bundles, |at, left, join| match join.filter(|&join| joins[join].chosen) {
            Some(join) => {
                joins[join].after.push(self.order[at].index());
                joins[join].before.resize(self.order.len(), false);
                left.iter().for_each(|&wait| joins[join].before[wait] = true);
            }
            None => waits.extend(left.iter().map(|&wait| (at, wait))),
        });
        waits.sort_unstable();
        let wait = |(at, wait): (usize, usize)| NodeWait { before: self.order[wait], after: self.order[at] };
        let before = |join: &Candidate| {
            let nodes = join.before.iter().zip(self.order).filter(|(before, _)| **before);
            nodes.map(|(_, id)| id.index()).collect()
        };
        let join = |join: Candidate| Join { before: before(&join), after: join.after };
        let joins = joins.into_iter().filter(|join| join.chosen).map(join).collect();
        (waits.into_iter().map(wait).collect(), joins)
    }

    /// Calls `work` with every position and its waits: those that the join of a bundle can stand for, by bundle, and
    /// the others. A join begins with a node whose stream can host it; a stream hosts one at a time.
    fn each_left(&self, bundles: &Bundles, mut work: impl FnMut(usize, &[usize], Option<usize>)) {
        let mut begun = vec![false; bundles.members.len()];
        let mut left: Vec<(Option<u32>, usize)> = Vec::new();
        let mut waits: Vec<usize> = Vec::new();
        for (at, id) in self.order.iter().enumerate() {
            let list = self.dependences.reduced.list_of(id.index());
            left.extend(self.left_at(at).map(|wait| (bundles.bundle(list, wait as u32), wait)));
            if !bundles.of_list[list].is_empty() {
                left.sort_unstable();
            }
            let mut is_host = false;
            for part in left.chunk_by(|a, b| a.0 == b.0) {
                waits.clear();
                waits.extend(part.iter().map(|(_, wait)| wait));
                let join = part[0].0.map(|bundle| bundle as usize).filter(|&bundle| {
                    if part.len() < 2 {
                        return false;
                    }
                    if !begun[bundle] && !is_host && self.hosts(at, &bundles.members[bundle]) {
                        (begun[bundle], is_host) = (true, true);
                    }
                    begun[bundle]
                });
                work(at, &waits, join);
            }
            left.clear();
        }
    }
}
