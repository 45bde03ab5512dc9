//! The latest accesses to every byte of a program's buffers: its last writers, and the readers since then.
//!
//! One history serves kernels and CTAs: a kernel without tiles counts as one CTA. CTAs of one kernel are unordered
//! among each other, so all of them are compared with the history before the kernel, and only then are their accesses
//! recorded.

use std::collections::BTreeMap;
use std::ops::Range;

use super::dependence::Hazards;
use super::program::{AccessMode, NodeId, Program};

/// A CTA of a node; for a copy, and for a kernel without tiles, CTA 0 stands for the whole node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cta {
    /// The node.
    pub node: NodeId,
    /// The CTA's index.
    pub cta: u32,
}

/// An access: buffer index, range of bytes, and mode.
pub(crate) type Touched = (usize, Range<u64>, AccessMode);

/// The latest accesses to a range of bytes.
#[derive(Clone, Debug, Default)]
struct Segment {
    end: u64,
    /// CTAs of one node.
    writers: Vec<Cta>,
    /// Readers since the write, and readers in the writers' own node.
    readers: Vec<Cta>,
}

/// The segments of each buffer by first byte, covering 0 to the buffer's end without gaps.
pub(crate) struct History(Vec<BTreeMap<u64, Segment>>);

impl History {
    /// An empty history.
    pub(crate) fn new(program: &Program) -> Self {
        let whole = |bytes| BTreeMap::from([(0, Segment { end: bytes, ..Segment::default() })]);
        History(program.buffers().iter().map(|buffer| whole(buffer.bytes)).collect())
    }

    /// The segments of a range, split so that they cover exactly that range.
    fn segments(&mut self, buffer: usize, bytes: &Range<u64>) -> impl Iterator<Item = (&u64, &mut Segment)> {
        let segments = &mut self.0[buffer];
        // Most buffers are accessed whole.
        let whole = segments.len() == 1 && segments.get(&bytes.start).is_some_and(|s| s.end == bytes.end);
        for at in [bytes.start, bytes.end].into_iter().filter(|_| !whole) {
            let Some((&start, segment)) = segments.range_mut(..at).next_back() else { continue };
            if start < at && at < segment.end {
                let after = segment.clone();
                segment.end = at;
                segments.insert(at, after);
            }
        }
        segments.range_mut(bytes.clone())
    }

    /// Calls `note` with every CTA that must precede one which accesses these bytes, and why, possibly more than once,
    /// until `note` signals that it has enough.
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

    /// Records the accesses of a node's CTAs.
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
            // Accesses of the node's other CTAs to these bytes still count.
            segment.writers.retain(|other| other.node == by.node && *other != by);
            segment.writers.push(by);
            segment.readers.retain(|other| other.node == by.node && *other != by);
            if segment.writers.len() == 1 && segment.readers.is_empty() {
                alike.push(start);
            }
        }
        // Merge segments with equal history; otherwise buffers would keep every split forever.
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
