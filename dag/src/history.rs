//! What happened last to every byte of a program's buffers: who wrote it, and who has read it since.
//!
//! One history serves kernels and CTAs: a kernel whose CTAs are not told apart counts as one CTA. CTAs of one kernel are
//! never ordered among each other, so all of them are held against what was there before the kernel, and only then does
//! what they did become history.

use std::collections::BTreeMap;
use std::ops::Range;

use super::dependence::Hazards;
use super::program::{AccessMode, NodeId, Program};

/// A CTA of a node; of a copy, and of a kernel whose CTAs are not told apart, number 0 stands for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cta {
    /// The node.
    pub node: NodeId,
    /// The CTA's number.
    pub cta: u32,
}

/// A range of bytes of a buffer, by the buffer's index, and what is done to it.
pub(crate) type Touched = (usize, Range<u64>, AccessMode);

/// What happened last to a run of bytes.
#[derive(Clone, Debug, Default)]
struct Segment {
    end: u64,
    /// CTAs of one node.
    writers: Vec<Cta>,
    /// Those since the write, and those of the writers' own node.
    readers: Vec<Cta>,
}

/// The segments of each buffer by their first byte, without gaps between 0 and the buffer's end.
pub(crate) struct History(Vec<BTreeMap<u64, Segment>>);

impl History {
    /// Nothing has happened yet.
    pub(crate) fn new(program: &Program) -> Self {
        let whole = |bytes| BTreeMap::from([(0, Segment { end: bytes, ..Segment::default() })]);
        History(program.buffers().iter().map(|buffer| whole(buffer.bytes)).collect())
    }

    /// The segments of a range, cut so that they cover it and nothing else.
    fn segments(&mut self, buffer: usize, bytes: &Range<u64>) -> impl Iterator<Item = (&u64, &mut Segment)> {
        let segments = &mut self.0[buffer];
        for at in [bytes.start, bytes.end] {
            let Some((&start, segment)) = segments.range_mut(..at).next_back() else { continue };
            if start < at && at < segment.end {
                let after = segment.clone();
                segment.end = at;
                segments.insert(at, after);
            }
        }
        segments.range_mut(bytes.clone())
    }

    /// Tells `note` of every CTA that must come before one that touches these bytes, and why, perhaps more than once,
    /// until it answers that it has heard enough.
    pub(crate) fn conflicts(
        &mut self,
        touched: &[Touched],
        mut note: impl FnMut(Cta, Hazards) -> bool,
    ) -> bool {
        for (buffer, bytes, mode) in touched {
            let by_writer = Hazards {
                read_after_write: mode.reads(),
                write_after_write: mode.writes(),
                ..Hazards::default()
            };
            let by_reader = Hazards { write_after_read: true, ..Hazards::default() };
            for (_, segment) in self.segments(*buffer, bytes) {
                let readers: &[Cta] = if mode.writes() { &segment.readers } else { &[] };
                let all = segment.writers.iter().map(|w| (*w, by_writer));
                for (cta, why) in all.chain(readers.iter().map(|r| (*r, by_reader))) {
                    if !note(cta, why) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Makes what a node's CTAs touch history.
    pub(crate) fn record(&mut self, node: NodeId, touched: &[Vec<Touched>]) {
        for writes in [false, true] {
            for (cta, touched) in touched.iter().enumerate() {
                let cta = Cta { node, cta: cta as u32 };
                for (buffer, bytes, mode) in touched {
                    match writes {
                        false if mode.reads() => self.read(*buffer, bytes, cta),
                        true if mode.writes() => self.write(*buffer, bytes, cta),
                        _ => {}
                    }
                }
            }
        }
    }

    fn read(&mut self, buffer: usize, bytes: &Range<u64>, by: Cta) {
        for (_, segment) in self.segments(buffer, bytes) {
            if segment.readers.last() != Some(&by) {
                segment.readers.push(by);
            }
        }
    }

    fn write(&mut self, buffer: usize, bytes: &Range<u64>, by: Cta) {
        let mut alike: Vec<u64> = Vec::new();
        for (&start, segment) in self.segments(buffer, bytes) {
            // What else the node's own CTAs did to these bytes still stands.
            segment.writers.retain(|other| other.node == by.node && *other != by);
            segment.writers.push(by);
            segment.readers.retain(|other| other.node == by.node && *other != by);
            if segment.writers.len() == 1 && segment.readers.is_empty() {
                alike.push(start);
            }
        }
        // Segments with the same history become one again, or whole buffers would keep every cut for ever.
        for pair in alike.windows(2).rev() {
            let segments = &mut self.0[buffer];
            if segments[&pair[0]].end == pair[1]
                && let Some(last) = segments.remove(&pair[1])
                && let Some(first) = segments.get_mut(&pair[0])
            {
                first.end = last.end;
            }
        }
    }
}
