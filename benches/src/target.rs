//! Checks records against the goals of the fused executor, which are in `goals.ron`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::Regime;
use super::derived::LAYERS;
use super::pytorch;
use super::record::{Record, Role, Size};

/// Time to divide by the fused time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Over {
    /// Lower bound by a kernel that only streams the weights, with the same overlap of its runs.
    Stream,
    /// The floor, for each kind of overlap.
    Floor,
    /// PyTorch in a CUDA graph.
    Pytorch,
    /// The best of all peers.
    BestPeer,
    /// A time in microseconds.
    Time(f64),
    /// Time of a kernel that only streams the weights, with the same overlap of its runs, plus some
    /// microseconds.
    StreamPlus(f64),
    /// Time of one layer's pipeline, multiplied by the number of layers.
    SingleLayers,
    /// Time of an even batch that reads as much, for a batch of sequences with different lengths.
    Even,
}

/// Required minimum of a quotient, and its scope.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Least {
    /// Every size must reach it.
    Each(f64),
    /// The geometric mean over all sizes must reach it.
    Mean(f64),
}

/// Sizes of a pipeline.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    of: String,
    /// Dims with the same value for all of them.
    #[serde(default)]
    with: BTreeMap<String, u32>,
    /// The varied dim, with its values.
    at: (String, Vec<u32>),
}

impl Sizes {
    /// Each size.
    fn each(&self) -> impl Iterator<Item = (&str, Size)> {
        let fixed = || self.with.iter().map(|(dim, value)| (dim.clone(), *value));
        let one = move |value: &u32| fixed().chain([(self.at.0.clone(), *value)]).collect();
        self.at.1.iter().map(move |value| (self.of.as_str(), one(value)))
    }
}

/// A goal, in each regime.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goal {
    name: String,
    /// Sizes that it covers.
    points: Vec<Sizes>,
    over: Over,
    least: Vec<Least>,
}

/// Sizes that are not multiples of any tile.
pub const RAGGED: [u32; 3] = [37, 200, 1000];

static GOALS: LazyLock<Vec<Goal>> = LazyLock::new(|| match ron::from_str(include_str!("goals.ron")) {
    Ok(goals) => goals,
    Err(error) => unreachable!("goals.ron, which a test reads: {error}"),
});

/// One check of a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the goal.
    pub target: &'static str,
    /// Pipeline; empty for a mean over several.
    pub pipeline: String,
    /// Size; `None` for a mean.
    pub size: Option<Size>,
    /// Whether the GPU rested between samples.
    pub regime: Regime,
    /// Overlap of the runs, if the goal covers both.
    pub overlap: Option<bool>,
    /// Required minimum of the quotient.
    pub want: f64,
    /// The quotient; `None` if a part of it was not measured.
    pub have: Option<f64>,
}

impl Verdict {
    /// Whether it was measured and reached.
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

/// Quotient of one size; `None` if one of the two was not measured.
fn quotient(
    records: &[Record],
    (pipeline, size): &(&str, Size),
    regime: Regime,
    overlap: Option<bool>,
    over: Over,
) -> Option<f64> {
    let at = |pipeline| {
        records.iter().filter(move |r: &&Record| r.pipeline == pipeline && r.has(size) && r.regime == regime)
    };
    let here = || at(*pipeline);
    let joined = |r: &&Record| overlap.is_none_or(|overlap| r.overlap == overlap);
    let named = |begin: &'static str| best(here().filter(|r| r.variant.starts_with(begin)).filter(joined));
    let fused = match over {
        Over::Even => named(RAGGED_LENGTHS)?.us,
        Over::Stream
        | Over::StreamPlus(_)
        | Over::Floor
        | Over::Pytorch
        | Over::BestPeer
        | Over::SingleLayers
        | Over::Time(_) => best(here().filter(|r| r.role == Role::Fused).filter(joined))?.us,
    };
    let other = match over {
        Over::Stream => named(STREAM)?.us,
        Over::StreamPlus(more) => named(STREAM)?.us + more,
        Over::Even => named(EVEN_LENGTHS)?.us,
        Over::Floor => here().map(|r| r.floor_us).next()?,
        Over::Pytorch => named(pytorch::VARIANTS)?.us,
        Over::BestPeer => best(here().filter(|r| r.role == Role::Peer))?.us,
        Over::SingleLayers => {
            let single = at(pipeline.strip_suffix('s')?).filter(|r| r.role == Role::Fused);
            best(single)?.us * LAYERS as f64
        }
        Over::Time(us) => us,
    };
    Some(other / fused)
}

/// Prefix of the names of streaming-read probes.
pub(super) const STREAM: &str = "stream limit";

/// Prefix of the names of decode kernels on caches with different lengths, and on their mean.
pub(super) const RAGGED_LENGTHS: &str = "decode ragged";
pub(super) const EVEN_LENGTHS: &str = "decode even";

/// Geometric mean; `None` for an empty slice.
pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|v| v.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// Checks every goal of each measured pipeline, in every regime.
pub(super) fn verdicts(records: &[Record]) -> Vec<Verdict> {
    let mut list = Vec::new();
    let measured = |goal: &&Goal| goal.points.iter().any(|p| records.iter().any(|r| r.pipeline == p.of));
    for goal in GOALS.iter().filter(measured) {
        let overlaps: &[Option<bool>] = match goal.over {
            Over::Stream | Over::StreamPlus(_) | Over::Floor => &[Some(false), Some(true)],
            Over::Pytorch | Over::BestPeer | Over::Time(_) | Over::SingleLayers | Over::Even => &[None],
        };
        let points = || goal.points.iter().flat_map(Sizes::each);
        let each = goal.least.iter().flat_map(|least| {
            let regimes = [Regime::Rested, Regime::Sustained].into_iter();
            regimes.flat_map(move |regime| overlaps.iter().map(move |&overlap| (*least, regime, overlap)))
        });
        for (least, regime, overlap) in each {
            let one = |want, pipeline: &str, size, have| Verdict {
                target: &goal.name,
                pipeline: pipeline.into(),
                size,
                regime,
                overlap,
                want,
                have,
            };
            let ratio = |point: &(&str, Size)| quotient(records, point, regime, overlap, goal.over);
            match least {
                Least::Each(want) => list.extend(points().map(|point| {
                    let have = ratio(&point);
                    one(want, point.0, Some(point.1), have)
                })),
                Least::Mean(want) => {
                    let all: Option<Vec<f64>> = points().map(|point| ratio(&point)).collect();
                    let name = match &goal.points[..] {
                        [only] => only.of.as_str(),
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
    use super::super::{Ceiling, Ceilings, LayerReport, Summary};
    use super::*;

    const GPT3: &str = "gpt3_mlp";
    const LLAMA65: &str = "llama65_mlp";
    const MANY: [u32; 8] = [768, 1024, 1280, 1536, 1792, 2048, 3072, 4096];

    #[test]
    fn goals_are_of_pipelines_and_sizes_that_are_measured() {
        assert_eq!(GOALS.iter().map(|g| g.least.len()).sum::<usize>(), 41);
        let attention = [false, true].map(|layers| super::super::attentions(layers, &[], &[], &[])).concat();
        let measured =
            [super::super::mlps(&[], &[]), super::super::convolutions(&[], &[]), attention].concat();
        for (pipeline, size) in GOALS.iter().flat_map(|g| &g.points).flat_map(Sizes::each) {
            assert!(super::super::source_of(pipeline).is_some(), "{pipeline}");
            let usual =
                |(name, all): &(String, Size)| name == pipeline && size.iter().all(|d| all.contains(d));
            let ragged = matches!(&size[..], [(dim, m)] if dim == "M" && RAGGED.contains(m));
            assert!(ragged || measured.iter().any(usual), "{pipeline}: {size:?}");
        }
        assert!(GOALS.iter().flat_map(|g| &g.points).all(|p| p.each().next().is_some()));
    }

    /// A record with a time.
    pub(crate) fn record(
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
            clock_mhz: None,
            max_rel_err: Some(1e-4),
        }
    }

    /// A report of records.
    pub(crate) fn report(records: Vec<Record>) -> LayerReport {
        let ceiling = Ceiling { matrix_tflops: 790.0, read_tbs: 4.3 };
        LayerReport {
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
        let size = m.map(|m| vec![("M".to_owned(), m)]);
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
        let found = find(&judged, "middle", GPT3, Some(512));
        assert_eq!(found.len(), 1);
        assert!(found[0].met() && (found[0].have.expect("measured") - 110.0 / 98.0).abs() < 1e-12);
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
        let found = find(&judged, "streaming", LLAMA65, Some(8));
        let have: Vec<_> = found.iter().map(|v| (v.overlap, v.have.expect("measured"), v.met())).collect();
        assert_eq!(have[0], (Some(false), 33.0 / 36.0, true));
        assert_eq!(have[1], (Some(true), 31.0 / 35.0, false));
    }

    #[test]
    fn a_chain_of_convolutions_is_judged_by_pytorch_and_by_a_time() {
        let timed = |variant, role, us| Record {
            dims: [("B", 8), ("HW", 56), ("C", 64)].map(|(dim, value)| (dim.to_owned(), value)).to_vec(),
            ..record("resnet_layer", 0, Regime::Rested, variant, role, us)
        };
        let records = [
            timed("fused graph", Role::Fused, 20.0),
            timed("fused edges graph", Role::Fused, 16.0),
            timed("serial graph", Role::Peer, 15.0),
            timed(pytorch::VARIANT, Role::Peer, 20.0),
        ];
        let judged = verdicts(&records);
        let have: Vec<_> = judged.iter().filter_map(|v| Some((v.size.clone()?, v.have?, v.met()))).collect();
        // In the order of the quotients' goals: each row over PyTorch, then its stated time.
        let size = [("C", 64), ("HW", 56), ("B", 8)].map(|(dim, value)| (dim.to_owned(), value)).to_vec();
        assert_eq!(have, [(size.clone(), 20.0 / 16.0, true), (size, 13.0 / 16.0, false)]);
        assert!(judged.iter().all(|v| v.pipeline.is_empty() || !v.pipeline.ends_with("mlp")));
    }

    #[test]
    fn generation_is_judged_by_its_stream_and_ragged_batches_by_even_ones() {
        let timed = |b, variant: &str, role, us| Record {
            dims: vec![("B".to_owned(), b), ("S".to_owned(), 2049)],
            ..record("llama65_generate", 0, Regime::Rested, variant, role, us)
        };
        let records = [
            timed(4, "decode graph", Role::Fused, 40.0),
            timed(4, "stream limit graph", Role::Probe, 29.0),
            timed(4, "pytorch eager graph", Role::Peer, 44.0),
            timed(32, "decode graph", Role::Fused, 100.0),
            timed(32, "decode ragged graph", Role::Probe, 60.0),
            timed(32, "decode even graph", Role::Probe, 57.0),
            Record { pipeline: "llama65_layer".into(), ..timed(8, "decode graph", Role::Fused, 90.0) },
            Record {
                pipeline: "llama65_layers".into(),
                ..timed(8, "decode edges graph", Role::Fused, 320.0)
            },
        ];
        let judged = verdicts(&records);
        let have = |name: &str| -> Vec<_> {
            let found = judged.iter().filter(|v| v.target.contains(name) && v.size.is_some());
            found.filter_map(|v| Some((v.have?, v.met()))).collect()
        };
        assert_eq!(have("streaming"), [(38.0 / 40.0, false)]);
        assert_eq!(have("ragged"), [(0.95, true)]);
        assert_eq!(have("peer"), [(1.1, true)]);
        assert_eq!(have("four layers"), [(90.0 * 4.0 / 320.0, true)]);
    }

    #[test]
    fn a_mean_needs_every_size() {
        let timed = |m| {
            [
                record(LLAMA65, m, Regime::Rested, "fused graph", Role::Fused, 100.0),
                record(LLAMA65, m, Regime::Rested, "serial graph", Role::Peer, 120.0),
            ]
        };
        let mut records: Vec<Record> = MANY[1..].iter().flat_map(|&m| timed(m)).collect();
        assert_eq!(find(&verdicts(&records), "large", LLAMA65, None)[0].have, None);
        records.extend(timed(MANY[0]));
        let mean = find(&verdicts(&records), "large", LLAMA65, None)[0].have.expect("all sizes");
        assert!((mean - 1.2).abs() < 1e-12, "{mean}");
    }
}
