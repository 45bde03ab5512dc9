//! The waits between streams that stream order and other waits do not imply.

use std::cmp::Reverse;
use std::ops::Range;

use super::bits::BitMatrix;
use super::dependence::{Dependences, places};
use super::distribute::{Distribution, Join, Lane, NodeWait};
use super::program::NodeId;

/// Waits that a join must save: fewer are cheaper without the detour.
const JOIN_SAVES: usize = 32;

/// Whether a join between so many nodes is better than `waits` waits.
pub(super) fn join_pays(before: usize, after: usize, waits: usize) -> bool {
    waits >= before + after + JOIN_SAVES
}

/// The waits of nodes with one list of predecessors, by position.
struct ListWaits {
    /// The row of their ancestors.
    row: usize,
    /// The places in `needed` of the predecessors that no other implies.
    needed: Range<usize>,
    /// The waits that are left, of nodes that have more than one, and the number of these nodes.
    left: usize,
    nodes: usize,
    /// The join that takes the place of these waits: an index.
    join: Option<usize>,
}

/// Nodes on streams, and what their order there implies.
struct StreamOrder<'a> {
    dependences: &'a Dependences,
    order: &'a [NodeId],
    stream: &'a [u32],
    /// The position of each node.
    place: Vec<usize>,
    /// For each position, those that come before by streams and waits. Rows of lists follow.
    ancestors: BitMatrix,
    lists: Vec<Option<ListWaits>>,
    needed: Vec<usize>,
    /// For each position, the one before on its stream, and the number of waits left.
    previous: Vec<Option<usize>>,
    left: Vec<usize>,
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
            left: vec![0; n],
        };
        let (mut last, mut rows) = (vec![None; streams], n..n + shared);
        let mut latest: Vec<Option<usize>> = vec![None; streams];
        for (at, id) in order.iter().enumerate() {
            let list = reduced.of(id.index());
            if found.lists[list].is_none() {
                let row = if reduced.users(list) > 1 { rows.next() } else { None };
                found.lists[list] = Some(found.needed(list, row.unwrap_or(at), &mut latest));
            }
            found.previous[at] = last[stream[id.index()] as usize].replace(at);
            found.left[at] = found.left_at(at).count();
            let (left, row) = (found.left[at], found.lists[list].as_ref().map_or(at, |list| list.row));
            if row != at {
                found.ancestors.add(at, row);
            }
            if let Some(previous) = found.previous[at] {
                found.ancestors.inherit(at, previous);
            }
            let hosts = found.hosts(at, row);
            if let Some(waits) = &mut found.lists[list]
                && left > 1
                && (waits.nodes > 0 || hosts)
            {
                (waits.left, waits.nodes) = (waits.left + left, waits.nodes + 1);
            }
        }
        found
    }

    /// Whether the stream of a node can host a join of its list: nothing on it holds the other nodes back.
    fn hosts(&self, at: usize, row: usize) -> bool {
        self.previous[at].is_none_or(|previous| self.ancestors.get(row, previous))
    }

    /// The waits of a list. `latest` is empty before and after.
    fn needed(&mut self, list: usize, row: usize, latest: &mut [Option<usize>]) -> ListWaits {
        // Of the predecessors on one stream, the last implies the others.
        let before = self.dependences.reduced.items(list).iter().map(|&before| before as usize);
        let from = self.needed.len();
        for before in before {
            let on = self.stream[before] as usize;
            if latest[on].is_none() {
                self.needed.push(on);
            }
            latest[on] = latest[on].max(Some(self.place[before]));
        }
        self.needed[from..].iter_mut().for_each(|on| *on = latest[*on].take().unwrap_or(0));
        // A path that implies a wait goes through a later predecessor.
        self.needed[from..].sort_unstable_by_key(|&at| Reverse(at));
        let mut end = from;
        for i in from..self.needed.len() {
            let at = self.needed[i];
            if !self.ancestors.get(row, at) {
                self.ancestors.inherit(row, at);
                self.needed[end] = at;
                end += 1;
            }
        }
        self.needed.truncate(end);
        self.needed[from..].reverse();
        ListWaits { row, needed: from..end, left: 0, nodes: 0, join: None }
    }

    /// The positions for which the one at `at` has to wait, ascending: those that its stream does not imply.
    fn left_at(&self, at: usize) -> impl Iterator<Item = usize> {
        let list = &self.lists[self.dependences.reduced.of(self.order[at].index())];
        let needed = list.as_ref().map_or(&[][..], |list| &self.needed[list.needed.clone()]).iter().copied();
        let previous = self.previous[at];
        needed.filter(move |&wait| {
            previous.is_none_or(|previous| wait != previous && !self.ancestors.get(previous, wait))
        })
    }

    /// The waits, through joins where these pay.
    fn waits(mut self) -> (Vec<NodeWait>, Vec<Join>) {
        let (mut waits, mut joins) = (Vec::new(), Vec::new());
        for list in self.lists.iter_mut().flatten() {
            if join_pays(list.needed.len(), list.nodes, list.left) {
                list.join = Some(joins.len());
                joins.push(Join { before: Vec::new(), after: Vec::new() });
            }
        }
        let mut joined: Vec<Vec<bool>> = vec![Vec::new(); joins.len()];
        for (at, &after) in self.order.iter().enumerate() {
            let list = &self.lists[self.dependences.reduced.of(after.index())];
            let list = list.as_ref().and_then(|list| Some((list.join?, list.row)));
            let opens = |join: usize, row| !joins[join].after.is_empty() || self.hosts(at, row);
            let join = list.filter(|&(join, row)| self.left[at] > 1 && opens(join, row));
            match join.map(|(join, _)| join) {
                None => {
                    waits.extend(self.left_at(at).map(|wait| NodeWait { before: self.order[wait], after }))
                }
                Some(join) => {
                    joins[join].after.push(after.index());
                    joined[join].resize(self.order.len(), false);
                    self.left_at(at).for_each(|wait| joined[join][wait] = true);
                }
            }
        }
        for (join, waited) in joins.iter_mut().zip(joined) {
            let nodes = waited.iter().zip(self.order).filter(|(waited, _)| **waited);
            join.before = nodes.map(|(_, id)| id.index()).collect();
        }
        (waits, joins)
    }
}
