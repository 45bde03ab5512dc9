//! What the fused executor is meant to reach, as data, and whether records reach it.

use serde::Serialize;

use super::Regime;
use super::pytorch;
use super::record::{Joint, Record, Role};

/// What is divided by the fused time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The least time of a kernel that streams the weights and does no arithmetic, its runs joined in the same way.
    Stream,
    /// The floor, for each way of joining runs.
    Floor,
    /// PyTorch in a CUDA graph.
    Pytorch,
    /// The best of all peers.
    BestPeer,
}

/// Over which sizes the quotient is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Every size must reach it.
    Each,
    /// The geometric mean of all sizes must.
    Mean,
}

/// A goal, in each regime.
struct Target {
    name: &'static str,
    /// Pipelines with their sizes.
    points: &'static [(&'static str, &'static [u32])],
    over: Over,
    scope: Scope,
    least: f64,
}

const GPT3: &str = "gpt3_mlp";
const LLAMA65: &str = "llama65_mlp";
const LLAMA70: &str = "llama3_70b_mlp";

/// Sizes that are multiples of no tile.
pub const RAGGED: [u32; 3] = [37, 200, 1000];
const FEW: &[u32] = &[1, 8, 16, 32];
const SOME: &[u32] = &[64, 128];
const MIDDLE: &[u32] = &[256, 512];
const MANY: &[u32] = &[768, 1024, 1280, 1536, 1792, 2048, 3072, 4096];

const OTHERS: &[(&str, &[u32])] =
    &[(LLAMA70, &super::mlp::SIZES), (LLAMA70, &RAGGED), (GPT3, &RAGGED), (LLAMA65, &RAGGED)];

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    Target { name: "decode, of the streaming-read limit", points: &[(GPT3, FEW)], over: Over::Stream, scope: Scope::Each, least: 0.95 },
    Target { name: "decode, of the streaming-read limit", points: &[(LLAMA65, FEW)], over: Over::Stream, scope: Scope::Each, least: 0.90 },
    Target { name: "decode, of the floor", points: &[(GPT3, SOME), (LLAMA65, SOME)], over: Over::Floor, scope: Scope::Each, least: 0.88 },
    Target { name: "decode, over PyTorch", points: &[(GPT3, FEW)], over: Over::Pytorch, scope: Scope::Each, least: 1.16 },
    Target { name: "decode, over PyTorch", points: &[(LLAMA65, FEW)], over: Over::Pytorch, scope: Scope::Each, least: 1.25 },
    Target { name: "decode, over PyTorch", points: &[(GPT3, SOME)], over: Over::Pytorch, scope: Scope::Each, least: 1.08 },
    Target { name: "decode, over PyTorch", points: &[(LLAMA65, SOME)], over: Over::Pytorch, scope: Scope::Each, least: 1.17 },
    Target { name: "middle sizes, over the best peer", points: &[(GPT3, MIDDLE)], over: Over::BestPeer, scope: Scope::Each, least: 1.10 },
    Target { name: "middle sizes, over the best peer", points: &[(LLAMA65, MIDDLE)], over: Over::BestPeer, scope: Scope::Each, least: 1.20 },
    Target { name: "large sizes, over the best peer", points: &[(LLAMA65, MANY)], over: Over::BestPeer, scope: Scope::Mean, least: 1.10 },
    Target { name: "large sizes, over the best peer", points: &[(LLAMA65, MANY)], over: Over::BestPeer, scope: Scope::Each, least: 1.03 },
    Target { name: "large sizes, over the best peer", points: &[(GPT3, MANY)], over: Over::BestPeer, scope: Scope::Each, least: 1.00 },
    Target { name: "other models and ragged sizes, over the best peer", points: OTHERS, over: Over::BestPeer, scope: Scope::Each, least: 1.00 },
    Target { name: "other models and ragged sizes, over the best peer", points: OTHERS, over: Over::BestPeer, scope: Scope::Mean, least: 1.15 },
];

/// One check of a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The goal.
    pub target: &'static str,
    /// Pipeline; empty for a mean over several.
    pub pipeline: String,
    /// Size; `None` for a mean.
    pub m: Option<u32>,
    /// Regime.
    pub regime: Regime,
    /// How runs are joined, where the goal asks for both.
    pub joint: Option<Joint>,
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
    /// Variant.
    pub variant: String,
    /// Median, microseconds.
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
    (pipeline, m): (&str, u32),
    regime: Regime,
    joint: Option<Joint>,
    over: Over,
) -> Option<f64> {
    let here =
        || records.iter().filter(move |r| r.pipeline == pipeline && r.m() == Some(m) && r.regime == regime);
    let joined = |r: &&Record| joint.is_none_or(|joint| r.joint == joint);
    let fused = best(here().filter(|r| r.role == Role::Fused).filter(joined))?.us;
    let other = match over {
        Over::Stream => best(here().filter(|r| r.variant.starts_with(STREAM)).filter(joined))?.us,
        Over::Floor => here().map(|r| r.floor_us).next()?,
        Over::Pytorch => best(here().filter(|r| r.variant == pytorch::VARIANT))?.us,
        Over::BestPeer => best(here().filter(|r| r.role == Role::Peer))?.us,
    };
    Some(other / fused)
}

/// What the names of streaming-read probes begin with.
pub(super) const STREAM: &str = "stream limit";

/// The geometric mean; `None` of no numbers.
pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|v| v.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// Judges every goal, in every regime.
pub(super) fn verdicts(records: &[Record]) -> Vec<Verdict> {
    let mut list = Vec::new();
    for target in TARGETS {
        let joints: &[Option<Joint>] = match target.over {
            Over::Stream | Over::Floor => &[Some(Joint::Plain), Some(Joint::Programmatic)],
            Over::Pytorch | Over::BestPeer => &[None],
        };
        let points = || target.points.iter().flat_map(|(p, sizes)| sizes.iter().map(move |&m| (*p, m)));
        for regime in [Regime::Rested, Regime::Sustained] {
            for &joint in joints {
                let one = |pipeline: &str, m, have| Verdict {
                    target: target.name,
                    pipeline: pipeline.into(),
                    m,
                    regime,
                    joint,
                    want: target.least,
                    have,
                };
                let of = |point| quotient(records, point, regime, joint, target.over);
                match target.scope {
                    Scope::Each => list.extend(points().map(|(p, m)| one(p, Some(m), of((p, m))))),
                    Scope::Mean => {
                        let all: Option<Vec<f64>> = points().map(of).collect();
                        let mut names: Vec<&str> = target.points.iter().map(|(p, _)| *p).collect();
                        names.dedup();
                        let name = if names.len() == 1 { names[0] } else { "" };
                        list.push(one(name, None, all.and_then(|all| geometric_mean(&all))));
                    }
                }
            }
        }
    }
    list
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Ceiling, Ceilings, MlpReport, Summary};
    use super::*;

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
            joint: if variant.contains("edges") { Joint::Programmatic } else { Joint::Plain },
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
    pub(in crate::bench) fn report(records: Vec<Record>) -> MlpReport {
        let ceiling = Ceiling { matrix_tflops: 790.0, read_tbs: 4.3 };
        MlpReport {
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
        list.iter()
            .filter(|v| v.target.contains(name) && v.pipeline == pipeline && v.m == m)
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
        let have: Vec<_> = of.iter().map(|v| (v.joint, v.have.expect("measured"), v.met())).collect();
        assert_eq!(have[0], (Some(Joint::Plain), 33.0 / 36.0, true));
        assert_eq!(have[1], (Some(Joint::Programmatic), 31.0 / 35.0, false));
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
