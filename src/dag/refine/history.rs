//! Which tile must wait for which: the analysis of kernels ([`super::super::analyse`]), CTA by CTA.
//!
//! A kernel without tiles counts as one. CTAs of one kernel are never ordered among each other, so all of them are held
//! against what was there before the kernel, and only then does what they did become history.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::program::{Mode, Node, NodeId, Program};
use super::access::Tiles;

/// A CTA of a node; of a copy, and of a kernel without tiles, number 0 stands for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tile {
    /// The node.
    pub node: NodeId,
    /// The CTA's number.
    pub cta: u32,
}

/// Direct dependences of a node's tiles.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Direct {
    /// By CTA, sorted.
    Tiles(Vec<Vec<Tile>>),
    /// Some tile depends on more than `most` others.
    Crowded,
}

pub(super) fn tiles_of(node: &Node) -> Option<&Tiles> {
    node.kernel().and_then(|kernel| kernel.tiles.as_ref())
}

/// CTAs that are told apart.
pub(super) fn count(node: &Node) -> u32 {
    match (node.kernel(), tiles_of(node)) {
        (Some(kernel), Some(_)) => kernel.launch.ctas() as u32,
        _ => 1,
    }
}

fn touched(node: &Node, cta: u32) -> Vec<(usize, Range<u64>, Mode)> {
    match tiles_of(node) {
        Some(tiles) => tiles.touched(&node.accesses, cta).collect(),
        None => node.accesses.iter().map(|a| (a.buffer.index(), a.bytes.clone(), a.mode)).collect(),
    }
}

/// What happened last to a run of bytes.
#[derive(Clone, Debug, Default)]
struct Segment {
    end: u64,
    /// Of one node.
    writers: Vec<Tile>,
    /// Since then, and those of the writers' node.
    readers: Vec<Tile>,
}

struct History(BTreeMap<u64, Segment>);

impl History {
    fn split(&mut self, at: u64) {
        let Some((&start, segment)) = self.0.range_mut(..at).next_back() else { return };
        if start < at && at < segment.end {
            let after = segment.clone();
            segment.end = at;
            self.0.insert(at, after);
        }
    }

    fn at(&mut self, bytes: &Range<u64>) -> impl Iterator<Item = &mut Segment> {
        self.split(bytes.start);
        self.split(bytes.end);
        self.0.range_mut(bytes.clone()).map(|(_, segment)| segment)
    }
}

/// The direct dependences of every node's tiles.
pub(super) fn direct(program: &Program, most: usize) -> Vec<Direct> {
    let whole = |bytes| History(BTreeMap::from([(0, Segment { end: bytes, ..Segment::default() })]));
    let mut histories: Vec<History> = program.buffers().iter().map(|b| whole(b.bytes)).collect();
    let mut all = Vec::with_capacity(program.nodes().len());
    for (id, node) in program.ids().zip(program.nodes()) {
        let tiles = count(node);
        let touched: Vec<_> = (0..tiles).map(|cta| touched(node, cta)).collect();
        all.push(of_node(&mut histories, &touched, most));
        for writes in [true, false] {
            for (cta, touched) in touched.iter().enumerate() {
                let tile = Tile { node: id, cta: cta as u32 };
                for (buffer, bytes, _) in
                    touched.iter().filter(|(.., m)| if writes { m.writes() } else { m.reads() })
                {
                    for segment in histories[*buffer].at(bytes) {
                        match writes {
                            true => segment.written(tile),
                            false => push(&mut segment.readers, tile),
                        }
                    }
                }
            }
        }
    }
    all
}

fn push(list: &mut Vec<Tile>, tile: Tile) {
    if list.last() != Some(&tile) {
        list.push(tile);
    }
}

impl Segment {
    fn written(&mut self, tile: Tile) {
        if self.writers.first().is_some_and(|first| first.node == tile.node) {
            push(&mut self.writers, tile);
        } else {
            self.writers = vec![tile];
            self.readers.clear();
        }
    }
}

fn of_node(histories: &mut [History], touched: &[Vec<(usize, Range<u64>, Mode)>], most: usize) -> Direct {
    let mut found = Vec::with_capacity(touched.len());
    for touched in touched {
        let mut before = BTreeSet::new();
        for (buffer, bytes, mode) in touched {
            for segment in histories[*buffer].at(bytes) {
                before.extend(&segment.writers);
                if mode.writes() {
                    before.extend(&segment.readers);
                }
                if before.len() > most {
                    return Direct::Crowded;
                }
            }
        }
        found.push(before.into_iter().collect());
    }
    Direct::Tiles(found)
}
