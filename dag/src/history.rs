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

/// The CTA with one index in each of some consecutive nodes: the nodes that read the same data often follow each
/// other.
#[derive(Clone, Debug)]
pub(crate) struct CtaRun {
    /// The first node.
    pub(crate) first: u32,
    /// One past the last node.
    pub(crate) end: u32,
    cta: u32,
}

impl CtaRun {
    fn one(cta: Cta) -> Self {
        CtaRun { first: cta.node.0, end: cta.node.0 + 1, cta: cta.cta }
    }

    /// Its CTAs.
    pub(crate) fn ctas(&self) -> impl Iterator<Item = Cta> + use<> {
        let cta = self.cta;
        (self.first..self.end).map(move |node| Cta { node: NodeId(node), cta })
    }

    /// Whether it has another CTA of the node of `by`.
    fn has_other(&self, by: Cta) -> bool {
        (self.first..self.end).contains(&by.node.0) && self.cta != by.cta
    }
}

/// The latest accesses to a range of bytes.
#[derive(Clone, Debug, Default)]
struct Segment {
    end: u64,
    /// CTAs of one node.
    writers: Vec<CtaRun>,
    /// Readers since the write, and readers in the writers' own node.
    readers: Vec<CtaRun>,
}

impl Segment {
    fn read(&mut self, by: Cta) {
        match self.readers.last_mut() {
            Some(last) if last.cta == by.cta && last.end == by.node.0 => last.end += 1,
            Some(last) if last.cta == by.cta && last.end == by.node.0 + 1 => {}
            _ => self.readers.push(CtaRun::one(by)),
        }
    }

    fn write(&mut self, by: Cta) {
        // Accesses of the node's other CTAs to these bytes still count.
        for list in [&mut self.writers, &mut self.readers] {
            list.retain(|run| run.has_other(by));
            list.iter_mut().for_each(|run| (run.first, run.end) = (by.node.0, by.node.0 + 1));
        }
        self.writers.push(CtaRun::one(by));
    }
}

/// The segments of a buffer, which cover it without gaps.
enum Segments {
    /// One.
    Whole(Segment),
    /// Several, by first byte.
    Parts(BTreeMap<u64, Segment>),
}

/// The segments of each buffer.
pub(crate) struct History(Vec<Segments>);

impl History {
    /// An empty history.
    pub(crate) fn new(program: &Program) -> Self {
        let whole = |bytes| Segments::Whole(Segment { end: bytes, ..Segment::default() });
        History(program.buffers().iter().map(|buffer| whole(buffer.bytes)).collect())
    }

    /// Calls `work` with the first byte of every segment of a range and the segment, split so that they cover exactly
    /// that range, until `work` signals that it has enough.
    fn visit(
        &mut self,
        buffer: usize,
        bytes: &Range<u64>,
        mut work: impl FnMut(u64, &mut Segment) -> bool,
    ) -> bool {
        let segments = &mut self.0[buffer];
        // Most buffers are accessed whole.
        if let Segments::Whole(segment) = segments {
            if *bytes == (0..segment.end) {
                return work(0, segment);
            }
            *segments = Segments::Parts(BTreeMap::from([(0, std::mem::take(segment))]));
        }
        let Segments::Parts(parts) = segments else { return true };
        for at in [bytes.start, bytes.end] {
            let Some((&start, segment)) = parts.range_mut(..at).next_back() else { continue };
            if start < at && at < segment.end {
                let after = segment.clone();
                segment.end = at;
                parts.insert(at, after);
            }
        }
        parts.range_mut(bytes.clone()).all(|(&start, segment)| work(start, segment))
    }

    /// Calls `note` with all CTAs that must precede one which accesses these bytes, and why, possibly more than once,
    /// until `note` signals that it has enough.
    pub(crate) fn conflicts(
        &mut self,
        touched: &[Touched],
        mut note: impl FnMut(&CtaRun, Hazards) -> bool,
    ) -> bool {
        let by_reader = Hazards { write_after_read: true, ..Hazards::default() };
        touched.iter().all(|(buffer, bytes, mode)| {
            let by_writer = Hazards {
                read_after_write: mode.reads(),
                write_after_write: mode.writes(),
                ..Hazards::default()
            };
            self.visit(*buffer, bytes, |_, segment| {
                let readers: &[CtaRun] = if mode.writes() { &segment.readers } else { &[] };
                segment.writers.iter().all(|run| note(run, by_writer))
                    && readers.iter().all(|run| note(run, by_reader))
            })
        })
    }

    /// Records the accesses of a node's CTAs.
    pub(crate) fn record(&mut self, node: NodeId, touched: &[Vec<Touched>]) {
        for writes in [false, true] {
            for (cta, touched) in touched.iter().enumerate() {
                let cta = Cta { node, cta: cta as u32 };
                for (buffer, bytes, mode) in touched {
                    match writes {
                        false if mode.reads() => {
                            self.visit(*buffer, bytes, |_, segment| {
                                segment.read(cta);
                                true
                            });
                        }
                        true if mode.writes() => self.write(*buffer, bytes, cta),
                        _ => {}
                    }
                }
            }
        }
    }

    fn write(&mut self, buffer: usize, bytes: &Range<u64>, by: Cta) {
        let mut alike: Vec<u64> = Vec::new();
        self.visit(buffer, bytes, |start, segment| {
            segment.write(by);
            if segment.writers.len() == 1 && segment.readers.is_empty() {
                alike.push(start);
            }
            true
        });
        let Segments::Parts(parts) = &mut self.0[buffer] else { return };
        // Merge segments with equal history; otherwise buffers would keep every split forever.
        for pair in alike.windows(2).rev() {
            if parts[&pair[0]].end == pair[1]
                && let Some(last) = parts.remove(&pair[1])
                && let Some(first) = parts.get_mut(&pair[0])
            {
                first.end = last.end;
            }
        }
        if parts.len() == 1
            && let Some((_, whole)) = parts.pop_first()
        {
            self.0[buffer] = Segments::Whole(whole);
        }
    }
}
