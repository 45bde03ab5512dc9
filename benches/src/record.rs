//! What a benchmark writes down.

use cusync_gen::check::{Launch, Plan};
use cusync_gen::choose::Config;
use cusync_gen::device::Profile;
use cusync_gen::schedule::Part;
use serde::{Deserialize, Serialize};

use super::{Ceilings, Regime, Summary};

/// What a variant's time is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// One launch for the whole chain: what is compared.
    Fused,
    /// Something else that a user could run: what it is compared with.
    Peer,
    /// The best of a library's kernels and ours, stage by stage: what a user falls back to, and no result of ours.
    Library,
    /// An explanation only: its results mean nothing, or nobody would run it so.
    Probe,
}

/// The word in records for whether a run begins while the one before ends.
pub(super) fn overlap_name(overlap: bool) -> &'static str {
    if overlap { "programmatic" } else { "plain" }
}

/// Serde's form of an overlap: its word.
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
    /// MMA tile of a CTA, such as `128x256`; of a decode kernel its width, such as `16 tokens`.
    pub tile: String,
    /// CTAs of a worker, such as `2x1`.
    pub cluster: String,
    /// `static`, `dynamic` or `decode`.
    pub mode: String,
    /// Number of workers.
    pub workers: usize,
    /// Items of all workers.
    pub items: usize,
    /// Tiles that are cut along k.
    pub cut: usize,
    /// Slabs of partial sums.
    pub slabs: u32,
    /// Digest of the work lists of a chain kernel ([`cusync_gen::schedule::Schedule::digest`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What the scheduler predicts, microseconds.
    pub predicted_us: f64,
}

impl ScheduleRecord {
    /// The schedule of a plan for the `fused` executor.
    pub(super) fn of(plan: &Plan) -> Option<ScheduleRecord> {
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
    /// The dims, by name.
    pub dims: Vec<(String, u32)>,
    /// Element type, `f16` or `bf16`.
    pub element: String,
    /// Variant, such as `programmatic auto graph`.
    pub variant: String,
    /// What it is.
    pub role: Role,
    /// How its runs are joined.
    #[serde(rename = "joint", with = "overlap_text")]
    pub overlap: bool,
    /// MMA tile of each stage; empty for peers.
    pub tiles: Vec<String>,
    /// Policy of each edge; empty for peers.
    pub policies: Vec<String>,
    /// All that was decided, as it can be stated again; `None` for peers.
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
    /// Mean clock of the SMs while it runs, MHz; `None` for variants of another process, and in records of before it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// The least time of this size, microseconds.
    pub floor_us: f64,
    /// Name of the baseline variant.
    pub baseline: String,
    /// Its median, microseconds; `None` where it was left out.
    pub baseline_us: Option<f64>,
    /// Baseline over median.
    pub speedup: Option<f64>,
    /// Largest difference relative to the largest value; `None` for variants whose results mean nothing, and for those
    /// of another process.
    pub max_rel_err: Option<f64>,
}

impl Record {
    /// Those of its dims that benchmarks vary.
    pub fn size(&self) -> Size {
        self.dims.iter().filter(|(name, _)| VARIED.contains(&name.as_str())).cloned().collect()
    }

    /// Whether these are among its dims.
    pub fn has(&self, size: &[(String, u32)]) -> bool {
        size.iter().all(|dim| self.dims.contains(dim))
    }

    /// Whether another record is of the same size of the same pipeline, in the same regime.
    pub(super) fn beside(&self, other: &Record) -> bool {
        (self.pipeline == other.pipeline && self.element == other.element)
            && (self.regime == other.regime && self.size() == other.size())
    }
}

/// A size: dims with their values, in the spec's order.
pub type Size = Vec<(String, u32)>;

/// The dims that tell sizes apart: tokens of an MLP; images, their pixels along each side and their channels; sequences, and the
/// tokens of a prompt or those that a cache has room for.
const VARIED: [&str; 5] = ["M", "B", "HW", "C", "S"];

/// A size in words: of its dims those that are varied, such as `512` or `B=8 HW=56 C=64`.
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
    /// What schedules were made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The rates that floors are computed from, as measured.
    pub ceilings: Ceilings,
    /// One record a variant, size and regime.
    pub records: Vec<Record>,
    /// Where the plans of tuned variants come from, one line each.
    #[serde(default)]
    pub tuned: Vec<String>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    /// Variants whose results were wrong: their times are not among the records.
    pub wrong: Vec<String>,
    /// What ended the benchmark before its end.
    pub fault: Option<String>,
}

impl LayerReport {
    /// Adds the records of another run of the benchmark on the same kind of GPU; where both measured the same, the
    /// other's count.
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
