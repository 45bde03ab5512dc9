//! Records of a benchmark.

use cusync_gen::check::{Launch, Plan};
use cusync_gen::choose::Config;
use cusync_gen::device::Profile;
use cusync_gen::schedule::Part;
use serde::{Deserialize, Serialize};

use super::{Ceilings, Regime, Summary};

/// Role of a variant in comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// One launch for the whole chain: our contender.
    Fused,
    /// An alternative available to users: the competition.
    Peer,
    /// The best of a library's kernels and ours, stage by stage: a fallback for users, not counted as a
    /// result of ours.
    Library,
    /// For explanation only: its results are meaningless, or it is not a realistic choice.
    Probe,
}

/// Word in records for whether a run begins while the previous one ends.
pub(super) fn overlap_name(overlap: bool) -> &'static str {
    if overlap { "programmatic" } else { "plain" }
}

/// serde form of an overlap: its word.
mod overlap_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(overlap: &bool, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(super::overlap_name(*overlap))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<bool, D::Error> {
        let name = String::deserialize(from)?;
        let known = [false, true].into_iter().find(|overlap| super::overlap_name(*overlap) == name);
        known.ok_or_else(|| {
            D::Error::custom(format!("runs are joined `plain` or `programmatic`, not `{name}`"))
        })
    }
}

/// The schedule of a fused variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// MMA tile per CTA, such as `128x256`; for a decode kernel its width, such as `16 tokens`.
    pub tile: String,
    /// CTAs per worker, such as `2x1`.
    pub cluster: String,
    /// `static`, `dynamic` or `decode`.
    pub mode: String,
    /// Number of workers.
    pub workers: usize,
    /// Total number of items.
    pub items: usize,
    /// Number of tiles split along k.
    pub cut: usize,
    /// Number of slabs of partial sums.
    pub slabs: u32,
    /// Digest of the work lists of a chain kernel ([`cusync_gen::schedule::Schedule::digest`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Predicted time, microseconds.
    pub predicted_us: f64,
}

impl ScheduleRecord {
    /// Schedule of a plan for the `fused` executor.
    pub(super) fn from_plan(plan: &Plan) -> Option<ScheduleRecord> {
        let schedule = match plan.launch() {
            Launch::Stages { .. } => return None,
            Launch::Lists(schedule) => schedule,
            Launch::Shares(decode) => {
                return Some(ScheduleRecord {
                    tile: format!("{} tokens", decode.width),
                    cluster: "1x1".into(),
                    mode: "decode".into(),
                    workers: decode.work.lists.len(),
                    items: decode.work.sequence.len(),
                    cut: 0,
                    slabs: 0,
                    digest: None,
                    predicted_us: decode.work.predicted_us,
                });
            }
        };
        let (m, n, _) = plan.graph().kernel_tile();
        let cut = |part: Part| matches!(part, Part::Finish { .. } | Part::Share { part: 0, .. });
        Some(ScheduleRecord {
            tile: format!("{m}x{n}"),
            cluster: format!("{}x{}", schedule.cluster.0, schedule.cluster.1),
            mode: schedule.mode.name().into(),
            workers: schedule.lists.len(),
            items: schedule.sequence.len(),
            cut: schedule.sequence.iter().filter(|i| cut(i.part)).count(),
            slabs: schedule.slabs,
            digest: Some(schedule.digest()),
            predicted_us: schedule.predicted_us,
        })
    }
}

/// One line: a variant of a pipeline at a size, in a regime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Dims by name.
    pub dims: Vec<(String, u32)>,
    /// Element type, `f16` or `bf16`.
    pub element: String,
    /// Variant, such as `programmatic auto graph`.
    pub variant: String,
    /// Role of the variant.
    pub role: Role,
    /// Overlap of its runs.
    #[serde(rename = "joint", with = "overlap_text")]
    pub overlap: bool,
    /// MMA tile of each stage; empty for peers.
    pub tiles: Vec<String>,
    /// Policy of each edge; empty for peers.
    pub policies: Vec<String>,
    /// All decisions, in a form that can be stated again; `None` for peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
    /// The schedule of a fused variant.
    #[serde(default)]
    pub schedule: Option<ScheduleRecord>,
    /// Whether the GPU rested between samples.
    pub regime: Regime,
    /// Time of one run.
    #[serde(flatten)]
    pub time: Summary,
    /// Mean SM clock during its runs, MHz; `None` for variants of another process, and in records older than
    /// this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Lower bound of the time at this size, microseconds.
    pub floor_us: f64,
    /// Name of the baseline variant.
    pub baseline: String,
    /// Median of the baseline, microseconds; `None` if it was left out.
    pub baseline_us: Option<f64>,
    /// Baseline over median.
    pub speedup: Option<f64>,
    /// Largest difference relative to the largest value; `None` for variants with meaningless results, and
    /// for those of another process.
    pub max_rel_err: Option<f64>,
}

impl Record {
    /// Its dims that benchmarks vary.
    pub fn size(&self) -> Size {
        self.dims.iter().filter(|(name, _)| VARIED.contains(&name.as_str())).cloned().collect()
    }

    /// Whether its dims include these.
    pub fn has(&self, size: &[(String, u32)]) -> bool {
        size.iter().all(|dim| self.dims.contains(dim))
    }

    /// Whether another record has the same size, pipeline and regime.
    pub(super) fn beside(&self, other: &Record) -> bool {
        (self.pipeline == other.pipeline && self.element == other.element)
            && (self.regime == other.regime && self.size() == other.size())
    }
}

/// A size: dims with their values, in the spec's order.
pub type Size = Vec<(String, u32)>;

/// Dims that distinguish sizes: tokens of an MLP; images, their pixels along each side and their channels;
/// sequences, and the tokens of a prompt or the capacity of a cache.
const VARIED: [&str; 5] = ["M", "B", "HW", "C", "S"];

/// A size as text, with the varied dims only, such as `512` or `B=8 HW=56 C=64`.
pub fn size_text<T: std::fmt::Display>(dims: &[(String, T)]) -> String {
    let varied: Vec<_> = dims.iter().filter(|(name, _)| VARIED.contains(&name.as_str())).collect();
    match varied[..] {
        [(name, tokens)] if name == "M" => tokens.to_string(),
        _ => varied.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
    }
}

/// The whole benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LayerReport {
    /// Name of the GPU.
    pub device: String,
    /// Profile used for schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Measured rates for computing floors.
    pub ceilings: Ceilings,
    /// One record per variant, size and regime.
    pub records: Vec<Record>,
    /// Origins of tuned variants' plans, one per line.
    #[serde(default)]
    pub tuned: Vec<String>,
    /// Skipped measurements, with reasons.
    pub skipped: Vec<String>,
    /// Variants with wrong results; their times are not among the records.
    pub wrong: Vec<String>,
    /// Error that ended the benchmark early.
    pub fault: Option<String>,
}

impl LayerReport {
    /// Adds the records of another run of the benchmark on the same kind of GPU; where both measured the
    /// same, the other run's records win.
    pub fn absorb(&mut self, other: LayerReport) {
        let key = |r: &Record| (r.pipeline.clone(), r.element.clone(), r.size(), r.variant.clone(), r.regime);
        let newer: std::collections::HashSet<_> = other.records.iter().map(key).collect();
        self.records.retain(|r| !newer.contains(&key(r)));
        self.records.extend(other.records);
        self.tuned.extend(other.tuned);
        self.skipped.extend(other.skipped);
        self.wrong.extend(other.wrong);
        self.fault = self.fault.take().or(other.fault);
    }
}
