//! Real and predicted runs in one form: the activity of each SM over time, and its waits.

use serde::Serialize;

/// Runs of one pipeline, for side-by-side comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Dims by name.
    pub dims: Vec<(String, u32)>,
    /// GPU, or the profile of one.
    pub device: String,
    /// Source of the times.
    pub origin: TimeSource,
    /// Names of the stages.
    pub stages: Vec<String>,
    /// Dependences between the stages.
    pub edges: Vec<Edge>,
    /// A row of a run: `SM`, or `stream` in the timeline of a program.
    pub rows: &'static str,
    /// Runs. Each begins at 0.
    pub runs: Vec<Run>,
}

/// Source of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeSource {
    /// Records of the kernels.
    Measured,
    /// Prediction of the model.
    Simulated,
}

/// A dependence between two stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// `producer -> consumer (tensor)`.
    pub name: String,
    /// Index into [`Timeline::stages`].
    pub producer: usize,
    /// Index into [`Timeline::stages`].
    pub consumer: usize,
}

/// One run of the pipeline by one executor.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Name of the executor.
    pub name: String,
    /// Description: the kernel and its tiles.
    pub what: String,
    /// Rows: SMs of the device, or streams; if several CTAs share an SM, each has a row of its own and counts as one.
    pub sms: u32,
    /// From the launch to the end, microseconds; for a measured run, to the end of its last span.
    pub length_us: f64,
    /// All computation. Spans of one SM do not overlap.
    pub spans: Vec<TraceSpan>,
    /// Host events of a session, in order of their start; empty for other runs.
    pub host: Vec<HostEvent>,
}

/// A host action for a session, and the time at which the host saw its end; microseconds from the start of
/// the run.
#[derive(Clone, Debug, PartialEq)]
pub struct HostEvent {
    /// Kind of event.
    pub row: HostRow,
    /// Description.
    pub what: String,
    /// When the host submitted it.
    pub begin_us: f64,
    /// When it saw the end; of a launch, when the call came back.
    pub end_us: f64,
    /// The span that a word was sent for, as an index into [`Run::spans`].
    pub span: Option<usize>,
}

/// Kinds of host events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRow {
    /// A job, from when it was submitted.
    Job,
    /// A call that launches the kernel.
    Launch,
    /// A word in a worker's mailbox.
    Word,
}

impl HostRow {
    /// All rows, in display order.
    pub const ALL: [HostRow; 3] = [HostRow::Job, HostRow::Launch, HostRow::Word];

    /// Plural name.
    pub fn name(self) -> &'static str {
        match self {
            HostRow::Job => "jobs",
            HostRow::Launch => "launches",
            HostRow::Word => "words",
        }
    }
}

/// One tile, or a part of one, on one SM; microseconds from the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    /// Index into [`Timeline::stages`].
    pub stage: usize,
    /// Tile: row and column in the stage's grid.
    pub tile: (u32, u32),
    /// First k-block, and one past the last.
    pub k: (u32, u32),
    /// For a part of a tile, the fate of its sums; `None` for a whole tile.
    pub part: Option<String>,
    /// SM number.
    pub sm: u32,
    /// When the SM turned to it.
    pub begin_us: f64,
    /// Its phases, without gaps. Not empty.
    pub phases: Vec<Phase>,
}

/// A phase of a span; it begins where the previous one ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Kind of time.
    pub kind: Kind,
    /// End of the phase, microseconds.
    pub end_us: f64,
    /// For a wait, the edge that caused it, as an index into [`Timeline::edges`]; `None`: partial sums of the
    /// same tile.
    pub edge: Option<usize>,
    /// For a wait, the span of the same run whose post ended it, as an index into [`Run::spans`].
    pub from: Option<usize>,
}

/// Kinds of SM time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The CTA waits for other tiles.
    Wait,
    /// The first k-block is loading and no tile is waited for.
    Load,
    /// The main loop, including its stalls.
    Math,
    /// Partial sums, activation, store.
    Epilogue,
}

impl Kind {
    /// All kinds, in the usual order within a tile.
    pub const ALL: [Kind; 4] = [Kind::Wait, Kind::Load, Kind::Math, Kind::Epilogue];

    /// One-word name of the phase.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Wait => "wait",
            Kind::Load => "load",
            Kind::Math => "math",
            Kind::Epilogue => "epilogue",
        }
    }
}

impl Phase {
    /// A phase that is not a wait.
    pub(super) fn plain(kind: Kind, end_us: f64) -> Phase {
        Phase { kind, end_us, edge: None, from: None }
    }
}

impl TraceSpan {
    /// When its results were stored and posted, or when they left the registers if only that was recorded.
    pub fn end_us(&self) -> f64 {
        self.phases.last().map_or(self.begin_us, |p| p.end_us)
    }

    /// Its phases, each with its start.
    pub fn steps(&self) -> impl Iterator<Item = (f64, &Phase)> {
        let begins = std::iter::once(self.begin_us).chain(self.phases.iter().map(|p| p.end_us));
        begins.zip(&self.phases)
    }
}

impl Run {
    /// Microseconds that an average SM waited because of each of `edges` edges, and in the last entry for
    /// partial sums.
    pub fn waits_us(&self, edges: usize) -> Vec<f64> {
        let mut sums = vec![0.0; edges + 1];
        for (begin, phase) in
            self.spans.iter().flat_map(TraceSpan::steps).filter(|(_, p)| p.kind == Kind::Wait)
        {
            sums[phase.edge.unwrap_or(edges).min(edges)] += phase.end_us - begin;
        }
        sums.iter().map(|us| us / f64::from(self.sms.max(1))).collect()
    }
}

/// Inconsistency of a timeline, if any. In a valid timeline, phases go forward, spans of an SM do not
/// overlap, references exist, and nothing waits for a later stage.
pub fn defect(timeline: &Timeline) -> Option<String> {
    timeline.runs.iter().find_map(|run| {
        let mut by_sm: std::collections::BTreeMap<u32, Vec<&TraceSpan>> = std::collections::BTreeMap::new();
        for (index, span) in run.spans.iter().enumerate() {
            let name = || format!("{}: span {index} ({:?} of stage {})", run.name, span.tile, span.stage);
            if span.stage >= timeline.stages.len() || span.phases.is_empty() || span.begin_us < 0.0 {
                return Some(format!("{} has no stage, no phase or no begin", name()));
            }
            if let Some((begin, phase)) = span.steps().find(|(begin, p)| p.end_us < *begin) {
                return Some(format!("{}: {} ends {} before it begins", name(), phase.kind.name(), begin));
            }
            for phase in &span.phases {
                let edge = phase.edge.map(|e| timeline.edges.get(e));
                let consumer = edge.map(|e| e.map(|e| e.consumer));
                if consumer.is_some_and(|c| c != Some(span.stage)) {
                    return Some(format!("{} waits because of another stage's edge", name()));
                }
                let from = phase.from.map(|f| run.spans.get(f).map(|s| s.stage));
                let producer = edge.flatten().map_or(span.stage, |e| e.producer);
                if from.is_some_and(|stage| stage != Some(producer)) {
                    return Some(format!("{} waits for a span that does not produce", name()));
                }
            }
            by_sm.entry(span.sm).or_default().push(span);
        }
        let early = run.host.iter().find_map(|event| {
            let span = event.span.map(|span| run.spans.get(span));
            let backwards = event.end_us < event.begin_us || event.begin_us < 0.0;
            let stray = event.row == HostRow::Word && span.flatten().is_none();
            (backwards || stray).then(|| format!("{}: {} has no end or no span", run.name, event.what))
        });
        if early.is_some() {
            return early;
        }
        by_sm.iter_mut().find_map(|(sm, list)| {
            list.sort_by(|a, b| a.begin_us.total_cmp(&b.begin_us));
            let overlap = list.windows(2).find(|w| w[1].begin_us < w[0].end_us() - 1e-6);
            overlap.map(|w| format!("{}: spans of SM {sm} overlap at {} us", run.name, w[1].begin_us))
        })
    })
}
