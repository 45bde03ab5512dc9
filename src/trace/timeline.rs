//! Real and predicted runs in one form: what each SM did when, and what it waited for.

use serde::Serialize;

use super::shares::Shares;

/// Runs of one pipeline, to be looked at side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The dims, by name.
    pub dims: Vec<(String, u32)>,
    /// The GPU, or the profile of one.
    pub device: String,
    /// Where the times come from.
    pub origin: Origin,
    /// Names of the stages.
    pub stages: Vec<String>,
    /// The dependences between them.
    pub edges: Vec<Edge>,
    /// The runs. Each begins at 0.
    pub runs: Vec<Run>,
}

/// Where times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Notes of the kernels.
    Measured,
    /// The model predicted it.
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
    /// What ran: the kernel, its tiles.
    pub what: String,
    /// SMs of the device; where several CTAs share an SM, each has a row of its own and counts as one.
    pub sms: u32,
    /// From the launch to the end, microseconds; of a measured run to the end of its last span.
    pub length_us: f64,
    /// Everything that was computed. Spans of one SM do not overlap.
    pub spans: Vec<Span>,
    /// What the host of a session did, in the order in which it began; empty for other runs.
    pub host: Vec<HostEvent>,
}

/// Something that a host did for a session, and when it saw the end of it; microseconds from the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct HostEvent {
    /// Kind of it.
    pub row: HostRow,
    /// What it was, in words.
    pub what: String,
    /// When the host handed it over.
    pub begin_us: f64,
    /// When it saw the end; of a launch, when the call came back.
    pub end_us: f64,
    /// The span that a word was sent for, as an index into [`Run::spans`].
    pub span: Option<usize>,
}

/// Kinds of what a host does.
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
    /// All, in the order in which they are shown.
    pub const ALL: [HostRow; 3] = [HostRow::Job, HostRow::Launch, HostRow::Word];

    /// Its name in the plural.
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
pub struct Span {
    /// Index into [`Timeline::stages`].
    pub stage: usize,
    /// Tile: row and column in the stage's grid.
    pub tile: (u32, u32),
    /// First k-block, and one past the last.
    pub k: (u32, u32),
    /// Whether the span is not a whole tile, and then what becomes of its sums.
    pub part: Option<String>,
    /// Number of the SM.
    pub sm: u32,
    /// When the SM turned to it.
    pub begin_us: f64,
    /// What it did since, without gaps. Not empty.
    pub phases: Vec<Phase>,
}

/// A phase of a span; it begins where the one before ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Kind of time.
    pub kind: Kind,
    /// When the span ends, microseconds.
    pub end_us: f64,
    /// Where the phase is a wait, the edge that caused it, as an index into [`Timeline::edges`]; `None`: partial sums of the same tile.
    pub edge: Option<usize>,
    /// Where the phase is a wait, the span of the same run whose post ended it, as an index into [`Run::spans`].
    pub from: Option<usize>,
}

/// Kinds of time of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The CTA waits for other tiles.
    Wait,
    /// The first k-block is loaded, once no tile is waited for.
    Load,
    /// The main loop, with the stalls in it.
    Math,
    /// Partial sums, activation, store.
    Epilogue,
}

impl Kind {
    /// All, in the order in which a tile usually goes through them.
    pub const ALL: [Kind; 4] = [Kind::Wait, Kind::Load, Kind::Math, Kind::Epilogue];

    /// The name of the phase, one word.
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

impl Span {
    /// When its results were stored and posted; or had left the registers, where that is all that was noted.
    pub fn end_us(&self) -> f64 {
        self.phases.last().map_or(self.begin_us, |p| p.end_us)
    }

    /// Its phases, each with its begin.
    pub fn steps(&self) -> impl Iterator<Item = (f64, &Phase)> {
        let begins = std::iter::once(self.begin_us).chain(self.phases.iter().map(|p| p.end_us));
        begins.zip(&self.phases)
    }
}

impl Run {
    /// Where the time of an average SM went; of one stage, or of all.
    pub fn shares(&self, stage: Option<usize>) -> Shares {
        let spans = self.spans.iter().filter(|s| stage.is_none_or(|stage| s.stage == stage));
        Shares::of(spans, self.sms, stage.is_none().then_some(self.length_us))
    }

    /// Time that an average SM waited because of each of `edges` edges, and at the end for partial sums, microseconds.
    pub fn waits_us(&self, edges: usize) -> Vec<f64> {
        let mut sums = vec![0.0; edges + 1];
        for (begin, phase) in self.spans.iter().flat_map(Span::steps).filter(|(_, p)| p.kind == Kind::Wait) {
            sums[phase.edge.unwrap_or(edges).min(edges)] += phase.end_us - begin;
        }
        sums.iter().map(|us| us / f64::from(self.sms.max(1))).collect()
    }
}

/// Why a timeline cannot be right; `None` when it can: phases go forwards, spans of an SM do not overlap, what is referred to
/// exists, nothing waits for a later stage.
pub fn defect(timeline: &Timeline) -> Option<String> {
    timeline.runs.iter().find_map(|run| {
        let mut by_sm: std::collections::BTreeMap<u32, Vec<&Span>> = std::collections::BTreeMap::new();
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
            let of = event.span.map(|span| run.spans.get(span));
            let backwards = event.end_us < event.begin_us || event.begin_us < 0.0;
            let stray = event.row == HostRow::Word && of.flatten().is_none();
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
