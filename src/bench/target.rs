//! Whether records reach the goals of the fused executor, which are in `suites.ron`.

use serde::{Deserialize, Serialize};

use super::Regime;
use super::pytorch;
use super::record::{Record, Role};
use super::suite::{SUITES, Size, Sizes, Suite, size_text};

/// What is divided by the fused time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Over {
    /// The least time of a kernel that streams the weights and does no arithmetic, its runs joined in the same way.
    Stream,
    /// That and some microseconds.
    StreamPlus(f64),
    /// Of a batch of sequences of unlike lengths: the time of an even one that reads as much.
    Even,
    /// The floor, for each way of joining runs.
    Floor,
    /// PyTorch in a CUDA graph.
    Pytorch,
    /// The best of all peers.
    BestPeer,
}

/// The least that a quotient must be, and where.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Least {
    /// The quotient must reach it at every size.
    Each(f64),
    /// The geometric mean over all sizes must reach it.
    Mean(f64),
}

/// A goal, in each regime.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    name: String,
    /// Pipelines with their sizes.
    points: Vec<(Vec<String>, Sizes)>,
    over: Over,
    least: Vec<Least>,
}

impl Goal {
    fn points(&self) -> impl Iterator<Item = (&str, Size)> {
        self.points.iter().flat_map(|(names, sizes)| {
            let all = sizes.all(&[]);
            names.iter().flat_map(move |name| all.clone().into_iter().map(move |size| (name.as_str(), size)))
        })
    }
}

/// Sizes that are multiples of no tile.
pub const RAGGED: [u32; 3] = [37, 200, 1000];

/// One check of a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the goal.
    pub target: &'static str,
    /// Pipeline; empty for a mean over several.
    pub pipeline: String,
    /// Size; `None` for a mean.
    pub size: Option<String>,
    /// Whether the GPU rested between samples.
    pub regime: Regime,
    /// How runs are joined, where the goal asks for both.
    pub overlap: Option<bool>,
    /// The least quotient.
    pub want: f64,
    /// The quotient; `None` where a part of it was not measured.
    pub have: Option<f64>,
}

impl Verdict {
    /// Whether it was measured and is reached.
    pub fn met(&self) -> bool {
        self.have.is_some_and(|have| have >= self.want)
    }
}

/// A variant with its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// Name of the variant.
    pub variant: String,
    /// Its median time, microseconds.
    pub us: f64,
}

/// The fastest of some records.
pub(super) fn best<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Best> {
    let fastest = records.min_by(|a, b| a.time.median_us.total_cmp(&b.time.median_us))?;
    Some(Best { variant: fastest.variant.clone(), us: fastest.time.median_us })
}

/// The quotient of one size; `None` where one of the two was not measured.
fn quotient(
    records: &[Record],
    (pipeline, size): (&str, &Size),
    regime: Regime,
    overlap: Option<bool>,
    over: Over,
) -> Option<f64> {
    let here =
        || records.iter().filter(move |r| r.pipeline == pipeline && r.regime == regime && r.size() == *size);
    let joined = |r: &&Record| overlap.is_none_or(|overlap| r.overlap == overlap);
    let named = |begin: &'static str| here().filter(move |r| r.variant.starts_with(begin)).filter(joined);
    let fused = match over {
        Over::Even => best(named(RAGGED_LENGTHS))?.us,
        Over::Stream | Over::StreamPlus(_) | Over::Floor | Over::Pytorch | Over::BestPeer => {
            best(here().filter(|r| r.role == Role::Fused).filter(joined))?.us
        }
    };
    let other = match over {
        Over::Even => best(named(EVEN_LENGTHS))?.us,
        Over::StreamPlus(more) => best(named(STREAM))?.us + more,
        Over::Stream => best(named(STREAM))?.us,
        Over::Floor => here().map(|r| r.floor_us).next()?,
        Over::Pytorch => best(here().filter(|r| r.variant.starts_with(pytorch::VARIANT)))?.us,
        Over::BestPeer => best(here().filter(|r| r.role == Role::Peer))?.us,
    };
    Some(other / fused)
}

/// What the names of streaming-read probes begin with.
pub(super) const STREAM: &str = "stream limit";

/// The same of decode kernels on caches of unlike lengths, and of the lengths' mean.
pub(super) const RAGGED_LENGTHS: &str = "decode ragged";
pub(super) const EVEN_LENGTHS: &str = "decode even";

/// The geometric mean; `None` of no numbers.
pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|v| v.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// Judges every goal of the suites whose pipelines were measured, in every regime.
pub(super) fn verdicts(records: &[Record]) -> Vec<Verdict> {
    let mut list = Vec::new();
    let measured = |suite: &&Suite| {
        let mut names = suite.points.iter().flat_map(|(names, _)| names);
        names.any(|name| records.iter().any(|r| r.pipeline == *name))
    };
    for goal in SUITES.values().filter(measured).flat_map(|suite| &suite.goals) {
        let overlaps: &[Option<bool>] = match goal.over {
            Over::Stream | Over::StreamPlus(_) | Over::Floor => &[Some(false), Some(true)],
            Over::Pytorch | Over::BestPeer | Over::Even => &[None],
        };
        let each = goal.least.iter().flat_map(|least| {
            let regimes = [Regime::Rested, Regime::Sustained].into_iter();
            regimes.flat_map(move |regime| overlaps.iter().map(move |&overlap| (*least, regime, overlap)))
        });
        for (least, regime, overlap) in each {
            let one = |want, pipeline: &str, size: Option<&Size>, have| Verdict {
                target: &goal.name,
                pipeline: pipeline.into(),
                size: size.map(|size| size_text(size)),
                regime,
                overlap,
                want,
                have,
            };
            let of = |(p, size): &(&str, Size)| quotient(records, (*p, size), regime, overlap, goal.over);
            match least {
                Least::Each(want) => {
                    list.extend(goal.points().map(|at| one(want, at.0, Some(&at.1), of(&at))));
                }
                Least::Mean(want) => {
                    let all: Option<Vec<f64>> = goal.points().map(|at| of(&at)).collect();
                    let name = match &goal.points[..] {
                        [(only, _)] if only.len() == 1 => only[0].as_str(),
                        _ => "",
                    };
                    list.push(one(want, name, None, all.and_then(|all| geometric_mean(&all))));
                }
            }
        }
    }
    list
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Ceiling, Ceilings, SuiteReport, Summary};
    use super::*;

    const GPT3: &str = "gpt3_mlp";
    const LLAMA65: &str = "llama65_mlp";
    const MANY: [u32; 8] = [768, 1024, 1280, 1536, 1792, 2048, 3072, 4096];

    #[test]
    fn goals_are_of_pipelines_that_ship_and_sizes_that_are_measured() {
        for (name, suite) in SUITES.iter() {
            let checks: usize = suite.goals.iter().map(|g| g.least.len()).sum();
            assert_eq!(
                Some(checks),
                [("mlp", 14), ("attention", 6), ("layer", 4)]
                    .iter()
                    .find(|(n, _)| n == name)
                    .map(|(_, n)| *n)
            );
            let measured = super::super::points(name, &[], &[]);
            for (pipeline, size) in suite.goals.iter().flat_map(Goal::points) {
                assert!(crate::runtime::shipped(pipeline).is_some(), "{pipeline}");
                let ragged = size.iter().any(|(dim, m)| dim == "M" && RAGGED.contains(m));
                let usual = measured.iter().any(|(p, s)| p == pipeline && *s == size);
                assert!(usual || ragged, "{pipeline}: {size:?}");
            }
        }
    }

    /// A record with a time.
    pub(in crate::bench) fn record(
        pipeline: &str,
        m: u32,
        regime: Regime,
        variant: &str,
        role: Role,
        us: f64,
    ) -> Record {
        Record {
            pipeline: pipeline.into(),
            dims: vec![("H".into(), 8192), ("M".into(), m)],
            element: "f16".into(),
            variant: variant.into(),
            role,
            overlap: variant.contains("edges"),
            tiles: Vec::new(),
            policies: Vec::new(),
            config: None,
            schedule: None,
            regime,
            time: Summary { median_us: us, p10_us: us * 0.99, p90_us: us * 1.01, samples: 15 },
            floor_us: 60.0,
            baseline: "serial graph".into(),
            baseline_us: Some(100.0),
            speedup: Some(100.0 / us),
            max_rel_err: Some(1e-4),
        }
    }

    /// A report of records.
    pub(in crate::bench) fn report(records: Vec<Record>) -> SuiteReport {
        let ceiling = Ceiling { matrix_tflops: 790.0, read_tbs: 4.3 };
        SuiteReport {
            device: "H200".into(),
            profile: None,
            ceilings: Ceilings { rested: ceiling, sustained: ceiling },
            records,
            tuned: Vec::new(),
            skipped: Vec::new(),
            wrong: Vec::new(),
            fault: None,
        }
    }

    fn find<'a>(list: &'a [Verdict], name: &str, pipeline: &str, m: Option<u32>) -> Vec<&'a Verdict> {
        let size = m.map(|m| format!("M = {m}"));
        list.iter()
            .filter(|v| v.target.contains(name) && v.pipeline == pipeline && v.size == size)
            .filter(|v| v.regime == Regime::Rested)
            .collect()
    }

    #[test]
    fn a_size_is_judged_by_the_best_peer_and_the_best_fused_variant() {
        let rested = |variant, role, us| record(GPT3, 512, Regime::Rested, variant, role, us);
        let mut records = vec![
            rested("fused graph", Role::Fused, 100.0),
            rested("fused dynamic graph", Role::Fused, 98.0),
            rested("fused without waits graph", Role::Probe, 50.0),
            rested("serial graph", Role::Peer, 130.0),
            rested("cublaslt graph", Role::Peer, 110.0),
        ];
        let judged = verdicts(&records);
        let of = find(&judged, "middle", GPT3, Some(512));
        assert_eq!(of.len(), 1);
        assert!(of[0].met() && (of[0].have.expect("measured") - 110.0 / 98.0).abs() < 1e-12);
        records.push(rested("stream-k graph", Role::Peer, 99.0));
        let judged = verdicts(&records);
        assert!(!find(&judged, "middle", GPT3, Some(512))[0].met());
        let unmeasured = find(&judged, "middle", GPT3, Some(256))[0];
        assert!(unmeasured.have.is_none() && !unmeasured.met(), "what was not measured is not met");
    }

    #[test]
    fn decode_is_judged_with_each_joint_against_the_same() {
        let rested = |variant: &str, role, us| record(LLAMA65, 8, Regime::Rested, variant, role, us);
        let records = [
            rested("decode graph", Role::Fused, 36.0),
            rested("decode edges graph", Role::Fused, 35.0),
            rested("stream limit graph", Role::Probe, 33.0),
            rested("stream limit edges graph", Role::Probe, 31.0),
        ];
        let judged = verdicts(&records);
        let of = find(&judged, "streaming", LLAMA65, Some(8));
        let have: Vec<_> = of.iter().map(|v| (v.overlap, v.have.expect("measured"), v.met())).collect();
        assert_eq!(have[0], (Some(false), 33.0 / 36.0, true));
        assert_eq!(have[1], (Some(true), 31.0 / 35.0, false));
    }

    #[test]
    fn a_mean_needs_every_size() {
        let of = |m| {
            [
                record(LLAMA65, m, Regime::Rested, "fused graph", Role::Fused, 100.0),
                record(LLAMA65, m, Regime::Rested, "serial graph", Role::Peer, 120.0),
            ]
        };
        let mut records: Vec<Record> = MANY[1..].iter().flat_map(|&m| of(m)).collect();
        assert_eq!(find(&verdicts(&records), "large", LLAMA65, None)[0].have, None);
        records.extend(of(MANY[0]));
        let mean = find(&verdicts(&records), "large", LLAMA65, None)[0].have.expect("all sizes");
        assert!((mean - 1.2).abs() < 1e-12, "{mean}");
    }
}
