//! Summary of records: the best fused variant of each size next to the best peer, means, and goals.

use std::fmt::Write;

use serde::Serialize;

use super::Regime;
use super::record::{Record, Role, Size, overlap_name, size_text};
use super::target::{Best, Verdict, best, geometric_mean, verdicts};

/// One size in one regime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Its size.
    pub size: Size,
    /// Whether the GPU rested between samples.
    pub regime: Regime,
    /// Lower bound of the time, microseconds.
    pub floor_us: f64,
    /// The fastest fused variant.
    pub fused: Option<Best>,
    /// Schedule of that variant: tile, cluster, mode and split tiles.
    pub schedule: String,
    /// The fastest peer.
    pub peer: Option<Best>,
    /// Peer over fused.
    pub ratio: Option<f64>,
    /// Floor over fused.
    pub of_floor: Option<f64>,
}

/// Geometric mean of the ratios of several sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// Name of the pipeline.
    pub pipeline: String,
    /// The range of sizes, such as `M <= 128`.
    pub sizes: &'static str,
    /// Whether the GPU rested between samples.
    pub regime: Regime,
    /// Number of measured sizes.
    pub count: usize,
    /// Mean of peer over fused.
    pub ratio: f64,
    /// Smallest ratio.
    pub least: f64,
}

/// Summary of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Digest {
    /// One line per size and regime.
    pub lines: Vec<Line>,
    /// One mean for each pipeline, range of sizes and regime.
    pub means: Vec<Mean>,
    /// Every check of every goal.
    pub verdicts: Vec<Verdict>,
}

/// Ranges of sizes for means: name, dim, smallest and largest.
const RANGES: [(&str, &str, u32, u32); 7] = [
    ("M <= 128", "M", 0, 128),
    ("128 < M <= 512", "M", 129, 512),
    ("M > 512", "M", 513, u32::MAX),
    ("all", "M", 0, u32::MAX),
    ("B <= 8", "B", 0, 8),
    ("B > 8", "B", 9, u32::MAX),
    ("all", "B", 0, u32::MAX),
];

const REGIMES: [Regime; 2] = [Regime::Rested, Regime::Sustained];

impl Digest {
    /// Summarizes the records of a benchmark.
    pub fn from_records(records: &[Record]) -> Digest {
        let mut points: Vec<(&str, Size)> = Vec::new();
        for record in records {
            let point = (record.pipeline.as_str(), record.size());
            if !points.contains(&point) {
                points.push(point);
            }
        }
        let mut pipelines: Vec<&str> = Vec::new();
        points.iter().for_each(|(p, _)| {
            if !pipelines.contains(p) {
                pipelines.push(p)
            }
        });
        // By the last dim first, to group images of one shape.
        let by = |size: &Size| -> Vec<u32> { size.iter().rev().map(|(_, value)| *value).collect() };
        points.sort_by_key(|(p, size)| (pipelines.iter().position(|q| q == p), by(size)));
        let lines: Vec<Line> = REGIMES
            .iter()
            .flat_map(|&regime| points.iter().filter_map(move |(p, size)| line(records, p, size, regime)))
            .collect();
        let mut means = Vec::new();
        for regime in REGIMES {
            for pipeline in &pipelines {
                let ratios_in = |dim: &str, least: u32, most: u32| -> Vec<f64> {
                    let here = lines.iter().filter(|l| l.pipeline == *pipeline && l.regime == regime);
                    let inside =
                        |l: &&Line| l.size.iter().any(|(d, v)| d == dim && (least..=most).contains(v));
                    here.filter(inside).filter_map(|l| l.ratio).collect()
                };
                means.extend(RANGES.iter().filter_map(|&(sizes, dim, from, to)| {
                    let ratios = ratios_in(dim, from, to);
                    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                    let (pipeline, count) = ((*pipeline).to_owned(), ratios.len());
                    geometric_mean(&ratios).map(|ratio| Mean { pipeline, sizes, regime, count, ratio, least })
                }));
            }
        }
        Digest { lines, means, verdicts: verdicts(records) }
    }

    /// Renders the tables for a page of results.
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        for regime in REGIMES {
            let lines = || self.lines.iter().filter(|l| l.regime == regime);
            if lines().next().is_none() {
                continue;
            }
            title(&mut page, &format!("{regime:?}, median us"));
            row(
                &mut page,
                [
                    "pipeline",
                    "size",
                    "floor",
                    "fused",
                    "variant",
                    "schedule",
                    "best peer",
                    "peer",
                    "ratio",
                    "of floor",
                ],
            );
            row(&mut page, ["---", "---:", "---:", "---:", "---", "---", "---", "---:", "---:", "---:"]);
            for l in lines() {
                let us = |best: &Option<Best>| best.as_ref().map_or("-".into(), |b| format!("{:.1}", b.us));
                let name = |best: &Option<Best>| best.as_ref().map_or("-".into(), |b| b.variant.clone());
                let number = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.3}"));
                row(
                    &mut page,
                    [
                        l.pipeline.clone(),
                        size_text(&l.size),
                        format!("{:.1}", l.floor_us),
                        us(&l.fused),
                        name(&l.fused),
                        l.schedule.clone(),
                        name(&l.peer),
                        us(&l.peer),
                        number(l.ratio),
                        number(l.of_floor),
                    ],
                );
            }
        }
        if !self.means.is_empty() {
            title(&mut page, "Best peer over fused, geometric means");
            row(&mut page, ["pipeline", "sizes", "regime", "measured", "mean", "least"]);
            row(&mut page, ["---", "---", "---", "---:", "---:", "---:"]);
            for m in &self.means {
                let regime = format!("{:?}", m.regime).to_lowercase();
                let (ratio, least) = (format!("{:.3}", m.ratio), format!("{:.3}", m.least));
                row(
                    &mut page,
                    [m.pipeline.clone(), m.sizes.into(), regime, m.count.to_string(), ratio, least],
                );
            }
        }
        self.goals(&mut page);
        page
    }

    /// Number of met checks, and each check that is not met.
    fn goals(&self, page: &mut String) {
        let measured = || self.verdicts.iter().filter(|v| v.have.is_some());
        let missed: Vec<&Verdict> = measured().filter(|v| !v.met()).collect();
        title(page, "Goals");
        let (all, done) = (self.verdicts.len(), measured().count());
        let _ = writeln!(page, "{} of {done} checks met, {} not measured.", done - missed.len(), all - done);
        if missed.is_empty() {
            return;
        }
        page.push('\n');
        row(page, ["missed", "pipeline", "size", "regime", "joint", "want", "have"]);
        row(page, ["---", "---", "---:", "---", "---", "---:", "---:"]);
        for v in missed {
            row(
                page,
                [
                    v.target.to_owned(),
                    if v.pipeline.is_empty() { "all".into() } else { v.pipeline.clone() },
                    v.size.as_ref().map_or("mean".into(), |size| size_text(size)),
                    format!("{:?}", v.regime).to_lowercase(),
                    v.overlap.map_or("any", overlap_name).into(),
                    format!("{:.2}", v.want),
                    v.have.map_or("-".into(), |have| format!("{have:.3}")),
                ],
            );
        }
    }
}

fn line(records: &[Record], pipeline: &str, size: &Size, regime: Regime) -> Option<Line> {
    let here =
        || records.iter().filter(move |r| r.pipeline == pipeline && r.size() == *size && r.regime == regime);
    let floor_us = here().next()?.floor_us;
    let fused = best(here().filter(|r| r.role == Role::Fused));
    let peer = best(here().filter(|r| r.role == Role::Peer));
    let ran = fused.as_ref().and_then(|f| here().find(|r| r.variant == f.variant)?.schedule.clone());
    Some(Line {
        pipeline: pipeline.into(),
        size: size.clone(),
        regime,
        floor_us,
        schedule: ran
            .map_or_else(String::new, |s| format!("{} by {}, {}, {} cut", s.tile, s.cluster, s.mode, s.cut)),
        ratio: fused.as_ref().zip(peer.as_ref()).map(|(f, p)| p.us / f.us),
        of_floor: fused.as_ref().map(|f| floor_us / f.us),
        fused,
        peer,
    })
}

fn title(page: &mut String, text: &str) {
    let gap = if page.is_empty() { "" } else { "\n" };
    let _ = writeln!(page, "{gap}### {text}\n");
}

fn row<const N: usize>(page: &mut String, cells: [impl AsRef<str>; N]) {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::record;
    use super::*;

    #[test]
    fn a_digest_names_the_best_of_both_sides_and_what_is_missed() {
        let (rested, sustained) = (Regime::Rested, Regime::Sustained);
        let digest = Digest::from_records(&[
            record("gpt3_mlp", 512, rested, "serial graph", Role::Peer, 130.0),
            record("gpt3_mlp", 512, rested, "cublaslt graph", Role::Peer, 110.0),
            record("gpt3_mlp", 512, rested, "fused graph", Role::Fused, 88.0),
            record("gpt3_mlp", 256, rested, "fused graph", Role::Fused, 80.0),
            record("gpt3_mlp", 256, rested, "serial graph", Role::Peer, 84.0),
            record("gpt3_mlp", 256, sustained, "fused graph", Role::Fused, 80.0),
        ]);
        let sizes: Vec<_> = digest.lines.iter().map(|l| (l.size[0].1, l.regime)).collect();
        assert_eq!(sizes, [(256, rested), (512, rested), (256, sustained)]);
        let large = &digest.lines[1];
        assert_eq!(large.peer.as_ref().expect("a peer").variant, "cublaslt graph");
        assert_eq!((large.ratio, large.of_floor), (Some(1.25), Some(60.0 / 88.0)));
        assert_eq!(digest.lines[2].ratio, None, "no peer was measured");
        let all = digest.means.iter().find(|m| m.sizes == "all").expect("a mean");
        assert_eq!((all.count, all.least), (2, 84.0 / 80.0));
        let page = digest.markdown();
        let missed = "| middle sizes, over the best peer | gpt3_mlp | 256 | rested | any | 1.10 | 1.050 |";
        assert!(page.contains(missed), "{page}");
        assert!(page.contains("1 of 2 checks met"), "{page}");
    }
}
