//! Time of an SM by kind.

use serde::Serialize;

use super::timeline::{Kind, Run, TraceSpan};

/// Microseconds of an average SM, by activity of its CTA's math warps. The five kinds add up to `span_us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// From an item's first k-block in shared memory to its last k-block multiplied. Includes stalls inside
    /// the loop, for late copies or waits of later k-blocks.
    pub math_us: f64,
    /// From the last multiplication until the results have left the registers: activation, partial sums and
    /// waits for those of others, stores.
    pub epilogue_us: f64,
    /// From the end of the waits, if they came first, to the first k-block in shared memory.
    pub load_us: f64,
    /// From turning to an item until its waits are satisfied or its first k-block has arrived, whichever
    /// comes first.
    pub wait_us: f64,
    /// The rest: before an SM's first item and after its last, between kernels, and SMs without items.
    pub idle_us: f64,
    /// Length of the run; for a stage, from the start of its first item to the end of its last, over all SMs.
    pub span_us: f64,
}

impl Shares {
    /// Adds up the spans on a GPU of `sms` SMs; spans of one SM do not overlap. `length_us`: length of a
    /// whole run.
    pub(super) fn from_spans<'a>(
        spans: impl Iterator<Item = &'a TraceSpan>,
        sms: u32,
        length_us: Option<f64>,
    ) -> Shares {
        let (mut begin, mut end) = (f64::INFINITY, 0.0f64);
        let mut shares = Shares::default();
        let share = 1.0 / f64::from(sms.max(1));
        for span in spans {
            (begin, end) = (begin.min(span.begin_us), end.max(span.end_us()));
            for (from, phase) in span.steps() {
                let sum = match phase.kind {
                    Kind::Wait => &mut shares.wait_us,
                    Kind::Load => &mut shares.load_us,
                    Kind::Math => &mut shares.math_us,
                    Kind::Epilogue => &mut shares.epilogue_us,
                };
                *sum += (phase.end_us - from) * share;
            }
        }
        shares.span_us = length_us.unwrap_or(end - begin).max(0.0);
        let busy = shares.wait_us + shares.load_us + shares.math_us + shares.epilogue_us;
        shares.idle_us = shares.span_us - busy;
        shares
    }
}

impl Run {
    /// Time of an average SM by kind, for one stage or for all.
    pub fn shares(&self, stage: Option<usize>) -> Shares {
        let spans = self.spans.iter().filter(|s| stage.is_none_or(|stage| s.stage == stage));
        Shares::from_spans(spans, self.sms, stage.is_none().then_some(self.length_us))
    }
}
