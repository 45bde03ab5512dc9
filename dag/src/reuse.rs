//! Temporaries within a limit of memory: dependences that let them reuse bytes, as few and as cheap as possible.
//!
//! A sequence of the nodes is given. Two temporaries may share bytes if the dependences order them, or if in the
//! sequence at least a *window* of nodes lies between the last node of one and the first node of the other; the latter
//! is then made to wait for the former. A wide window leaves the nodes inside it concurrent, a window of 0 packs as
//! densely as one node after another would. So of each sequence the widest window that fits is found, and of all
//! sequences the one that the model predicts to be the fastest is taken.

use cusync_gen::device::Profile;

use super::arena::{Arena, Packing, Tenants};
use super::bits::BitMatrix;
use super::dependence::{Dependences, places};
use super::distribute::all_concurrency;
use super::error::DagError;
use super::form::Form;
use super::lifetimes::{Lifetimes, earliest};
use super::limit::limited;
use super::network::Network;
use super::order::NodeOrder;
use super::program::{NodeId, Program};
use super::simulate::simulate;
use super::times::Times;

/// Numbers of streams whose order of nodes is tried: nodes of few streams need little memory at a time.
const STREAMS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Predicted gain for which more dependences are worth their waits.
const GAIN: f64 = 1.005;

/// Places of temporaries within a limit, and the dependences that they need.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitedArena {
    pub(crate) arena: Arena,
    /// Pairs (before, after) that no dependence implies.
    pub(crate) reuse: Vec<(NodeId, NodeId)>,
}

/// The fastest fit found for these dependences.
///
/// # Errors
/// [`DagError::Memory`].
pub(crate) fn fit(
    program: &Program,
    dependences: &Dependences,
    times: &Times,
    device: &Profile,
    limit: u64,
) -> Result<LimitedArena, DagError> {
    let arena = Arena::smallest(program, dependences.node_order());
    if arena.bytes <= limit {
        return Ok(LimitedArena { arena, reuse: Vec::new() });
    }
    let lives = Lifetimes::new(program, dependences.node_order());
    let mut sequences = vec![dependences.order.clone(), times.issue_order(program)];
    let nodes = program.nodes().len();
    let fewer = STREAMS.into_iter().filter(|streams| *streams < nodes);
    sequences.extend(fewer.map(|streams| limited(program, dependences, times, streams).order));
    sequences.push(frugal(dependences, &lives));
    let sequences = sequences.iter().map(|sequence| Sequence::new(&lives, sequence));
    let mut best: Option<(f64, LimitedArena)> = None;
    let mut least: Option<(u64, DagError)> = None;
    for sequence in sequences {
        let Some(found) = sequence.widest(program, dependences, limit) else {
            let (bytes, shortage) = sequence.shortage(program, limit);
            if least.as_ref().is_none_or(|(other, _)| bytes < *other) {
                least = Some((bytes, shortage));
            }
            continue;
        };
        let gated = dependences.gated(&found.reuse);
        let plan = all_concurrency(program, &gated, &Times::new(program, &gated));
        let us = simulate(program, &gated, &plan, Form::BRANCH_GRAPH, device, false).total_us;
        let better = |(other, with): &(f64, LimitedArena)| {
            us * GAIN < *other || us < *other * GAIN && found.reuse.len() < with.reuse.len()
        };
        if best.as_ref().is_none_or(better) {
            best = Some((us, found));
        }
    }
    match (best, least) {
        (Some((_, found)), _) => Ok(found),
        (None, Some((_, shortage))) => Err(shortage),
        (None, None) => unreachable!("the order of the dependences is a sequence"),
    }
}

/// Whether temporaries fit if nodes run one after another in the order of the code.
///
/// # Errors
/// [`DagError::Memory`].
pub(crate) fn fit_serial(program: &Program, limit: u64) -> Result<(), DagError> {
    let nodes = program.nodes().len();
    let mut ancestors = BitMatrix::new(nodes, nodes);
    (1..nodes).for_each(|at| ancestors.inherit(at, at - 1));
    let place: Vec<usize> = (0..nodes).collect();
    let lives = Lifetimes::new(program, NodeOrder { place: &place, ancestors: &ancestors });
    let code: Vec<NodeId> = program.ids().collect();
    let (bytes, shortage) = Sequence::new(&lives, &code).shortage(program, limit);
    if bytes <= limit { Ok(()) } else { Err(shortage) }
}

/// A sequence of all nodes that satisfies the dependences.
struct Sequence<'a> {
    nodes: &'a [NodeId],
    packing: Packing<'a>,
}

impl<'a> Sequence<'a> {
    fn new(lives: &'a Lifetimes, nodes: &'a [NodeId]) -> Self {
        let place = places(&nodes.iter().map(|id| id.index()).collect::<Vec<_>>(), nodes.len());
        Sequence { nodes, packing: Packing { lives, spans: lives.spans(&place) } }
    }

    /// Whether more than `window` steps lead from the last node of one temporary to the first node of the other.
    fn apart(&self, window: usize, a: usize, b: usize) -> bool {
        let after = |a: usize, b: usize| self.packing.spans[a].1 + window < self.packing.spans[b].0;
        self.packing.lives.may_share(a, b) && (after(a, b) || after(b, a))
    }

    /// The fit with the widest window.
    fn widest(&self, program: &Program, dependences: &Dependences, limit: u64) -> Option<LimitedArena> {
        let lives = self.packing.lives;
        let ordered = |a: usize, b: usize| lives.are_ordered(a, b);
        let within = |window: usize| {
            let apart = |a: usize, b: usize| ordered(a, b) || self.apart(window, a, b);
            self.packing.within(limit, [&ordered, &apart])
        };
        let mut places = within(0)?;
        // A window of `fits` fits, one of `more` does not.
        let (mut fits, mut more) = (0, self.nodes.len());
        while fits + 1 < more {
            let window = (fits + more) / 2;
            match within(window) {
                Some(found) => (places, fits) = (found, window),
                None => more = window,
            }
        }
        let reuse = self.reuse(dependences, &places);
        Some(LimitedArena { arena: self.packing.arena(program, &places), reuse })
    }

    /// The dependences that places need: of each temporary, the earliest nodes follow all nodes of the temporaries
    /// that had its bytes before it.
    fn reuse(&self, dependences: &Dependences, places: &[u64]) -> Vec<(NodeId, NodeId)> {
        let (lives, order) = (self.packing.lives, dependences.node_order());
        let mut by_use: Vec<usize> = (0..places.len()).collect();
        by_use.sort_unstable_by_key(|&b| self.packing.spans[b]);
        let (mut latest, mut found) = (Tenants::default(), Vec::new());
        for later in by_use {
            let bytes = places[later]..places[later] + lives.bytes[later];
            let first: Vec<NodeId> =
                earliest(order, &lives.users[later]).into_iter().map(|at| dependences.order[at]).collect();
            for earlier in latest.replace(&bytes, later) {
                let pairs =
                    lives.users[earlier].iter().flat_map(|&before| first.iter().map(move |&f| (before, f)));
                found.extend(pairs.filter(|(before, after)| !order.before(before.index(), after.index())));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The bytes that temporaries need if the nodes run one after another, and the error that says so.
    fn shortage(&self, program: &Program, limit: u64) -> (u64, DagError) {
        let lives = self.packing.lives;
        let least = self.packing.end(&self.packing.smallest(&|a, b| self.apart(0, a, b)));
        let mut change = vec![(0u64, 0u64); self.nodes.len() + 1];
        for (&(first, last), bytes) in self.packing.spans.iter().zip(&lives.bytes) {
            change[first].0 = change[first].0.saturating_add(*bytes);
            change[last + 1].1 = change[last + 1].1.saturating_add(*bytes);
        }
        let (mut now, mut most) = (0u64, (0, 0));
        for (at, (begins, ends)) in change.into_iter().enumerate() {
            now = now.saturating_sub(ends).saturating_add(begins);
            if now > most.0 {
                most = (now, at);
            }
        }
        let node = self.nodes.get(most.1).map(|&id| program.node(id).name.clone()).unwrap_or_default();
        (least, DagError::Memory { limit, least, node, alive: most.0 })
    }
}

/// A sequence in which the next node is always the one after which the fewest bytes are alive.
fn frugal(dependences: &Dependences, lives: &Lifetimes) -> Vec<NodeId> {
    let nodes = dependences.order.len();
    let edges = &Network::shared(&dependences.reduced);
    // The temporaries of each node, and the nodes of each that are left.
    let mut of_node: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (temporary, users) in lives.users.iter().enumerate() {
        users.iter().for_each(|id| of_node[id.index()].push(temporary));
    }
    let mut left: Vec<usize> = lives.users.iter().map(Vec::len).collect();
    let mut missing = edges.into().to_vec();
    let mut ready: Vec<usize> = (0..nodes).filter(|&node| missing[node] == 0).collect();
    let mut sequence = Vec::with_capacity(nodes);
    let growth = |node: usize, left: &[usize]| -> i128 {
        let change = |&temporary: &usize| {
            let (bytes, users) = (i128::from(lives.bytes[temporary]), lives.users[temporary].len());
            i128::from(left[temporary] == users) * bytes - i128::from(left[temporary] == 1) * bytes
        };
        of_node[node].iter().map(change).sum()
    };
    while let Some(at) = (0..ready.len()).min_by_key(|&at| (growth(ready[at], &left), ready[at])) {
        let node = ready.swap_remove(at);
        sequence.push(NodeId::from(node));
        of_node[node].iter().for_each(|&temporary| left[temporary] -= 1);
        edges.done(node, &mut missing, &mut |_, after, free| {
            ready.extend((free && after < nodes).then_some(after));
        });
    }
    sequence
}
