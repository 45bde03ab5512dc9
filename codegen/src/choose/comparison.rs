//! Accuracy of predictions: errors, ranks, and the cost of choosing by prediction.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A measured time and its prediction, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u64)>,
    /// Variant.
    pub variant: String,
    /// Executor.
    pub executor: String,
    /// Executor, or kind of kernel for the `fused` executor.
    pub kind: String,
    /// Regime.
    pub regime: String,
    /// Median of the measurement.
    pub measured_us: f64,
    /// Predicted time.
    pub predicted_us: f64,
}

impl Row {
    /// Predicted time over measured time, minus 1.
    pub fn error(&self) -> f64 {
        self.predicted_us / self.measured_us - 1.0
    }

    fn same_point(&self, other: &Row) -> bool {
        self.pipeline == other.pipeline && self.dims == other.dims && self.regime == other.regime
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Compared entries, grouped by point.
    pub rows: Vec<Row>,
    /// Entries without a configuration, such as third-party kernels.
    pub unknown: usize,
    /// Chain kernels with a rebuilt schedule that differs from the measured one.
    pub other_schedules: usize,
}

impl Comparison {
    /// Mean magnitude of [`Row::error`]; 0 if there are no rows.
    pub fn mean_error(&self) -> f64 {
        self.rows.iter().map(|row| row.error().abs()).sum::<f64>() / self.rows.len().max(1) as f64
    }

    /// The rows of each pipeline, size and regime.
    pub fn points(&self) -> Vec<Vec<&Row>> {
        let mut points: Vec<Vec<&Row>> = Vec::new();
        for row in &self.rows {
            match points.iter_mut().find(|point| point[0].same_point(row)) {
                Some(point) => point.push(row),
                None => points.push(vec![row]),
            }
        }
        points
    }

    /// Result for each point.
    pub fn by_point(&self) -> Vec<ComparedPoint> {
        self.points().into_iter().filter_map(ComparedPoint::from_rows).collect()
    }

    /// Mean of [`ComparedPoint::rank_correlation`]; `None` if no point has one.
    pub fn rank_correlation(&self) -> Option<f64> {
        let points: Vec<f64> = self.by_point().iter().filter_map(|p| p.rank_correlation).collect();
        (!points.is_empty()).then(|| points.iter().sum::<f64>() / points.len() as f64)
    }

    /// Number of entries, mean [`Row::error`] and its mean magnitude, by kind, in alphabetical order.
    pub fn by_kind(&self) -> Vec<(String, usize, f64, f64)> {
        let mut kinds: std::collections::BTreeMap<&str, Vec<f64>> = std::collections::BTreeMap::new();
        for row in &self.rows {
            kinds.entry(&row.kind).or_default().push(row.error());
        }
        let mean = |list: &[f64], apply: fn(f64) -> f64| {
            list.iter().map(|e| apply(*e)).sum::<f64>() / list.len() as f64
        };
        kinds.into_iter().map(|(k, e)| (k.into(), e.len(), mean(&e, |e| e), mean(&e, f64::abs))).collect()
    }

    /// The goals and their results.
    pub fn goals(&self) -> Vec<Goal> {
        let regrets: Vec<f64> = self.by_point().iter().map(|p| p.regret).collect();
        let mean_regret = regrets.iter().sum::<f64>() / regrets.len().max(1) as f64;
        let some = |value: f64, any: bool| any.then_some(value);
        let goal = |name, bound, at_least, have| Goal { name, bound, at_least, have };
        let Bounds { error, rank, regret } = *BOUNDS;
        vec![
            goal("mean absolute error", error, false, some(self.mean_error(), !self.rows.is_empty())),
            goal("rank correlation of the ways of a point, mean", rank, true, self.rank_correlation()),
            goal(
                "predicted choice slower than the best measured, mean",
                regret,
                false,
                some(mean_regret, !regrets.is_empty()),
            ),
        ]
    }
}

/// The compared configurations of a pipeline at one size, in one regime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedPoint {
    /// Pipeline.
    pub pipeline: String,
    /// Dims.
    pub dims: Vec<(String, u64)>,
    /// Regime.
    pub regime: String,
    /// Number of configurations compared.
    pub ways: usize,
    /// Mean magnitude of [`Row::error`].
    pub mean_error: f64,
    /// Spearman's correlation of predicted and measured times; times within 1 % of each other share a rank. `None`
    /// with fewer than four configurations, or if none differ.
    pub rank_correlation: Option<f64>,
    /// The configuration with the shortest predicted time.
    pub chosen: String,
    /// The configuration with the shortest measured time.
    pub fastest: String,
    /// Measured slowdown of the chosen configuration over the fastest.
    pub regret: f64,
}

impl ComparedPoint {
    fn from_rows(rows: Vec<&Row>) -> Option<ComparedPoint> {
        let best = |key: fn(&Row) -> f64| rows.iter().min_by(|a, b| key(a).total_cmp(&key(b)));
        let (chosen, fastest) = (best(|r| r.predicted_us)?, best(|r| r.measured_us)?);
        let ranks_of = |key: fn(&Row) -> f64| ranks(&rows.iter().map(|r| key(r)).collect::<Vec<_>>(), TIE);
        let enough = rows.len() >= FEWEST_WAYS;
        let ranked = || correlation(&ranks_of(|r| r.measured_us), &ranks_of(|r| r.predicted_us));
        Some(ComparedPoint {
            pipeline: chosen.pipeline.clone(),
            dims: chosen.dims.clone(),
            regime: chosen.regime.clone(),
            ways: rows.len(),
            mean_error: rows.iter().map(|r| r.error().abs()).sum::<f64>() / rows.len() as f64,
            rank_correlation: enough.then(ranked).flatten(),
            chosen: chosen.variant.clone(),
            fastest: fastest.variant.clone(),
            regret: chosen.measured_us / fastest.measured_us - 1.0,
        })
    }
}

/// The bounds of the goals.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Bounds {
    error: f64,
    rank: f64,
    regret: f64,
}

/// A test compares these bounds with the figures of the shipped records.
static BOUNDS: LazyLock<Bounds> =
    LazyLock::new(|| ron::from_str(include_str!("goals.ron")).unwrap_or_default());

/// Times within this fraction of each other share a rank.
const TIE: f64 = 0.01;
/// Fewer configurations than this are not ranked.
const FEWEST_WAYS: usize = 4;

/// A prediction goal and its result, as fractions, not percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The judged quantity.
    pub name: &'static str,
    /// The bound.
    pub bound: f64,
    /// Whether larger values are better.
    pub at_least: bool,
    /// The result; `None`: nothing to judge, which does not meet the goal.
    pub have: Option<f64>,
}

impl Goal {
    /// Whether the goal is met.
    pub fn met(&self) -> bool {
        self.have.is_some_and(|have| if self.at_least { have >= self.bound } else { have <= self.bound })
    }
}

/// Ranks starting at 0; values within `tie` of the first of a group share the group's mean rank.
fn ranks(values: &[f64], tie: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let first = values[order[begin]];
        let end = order[begin..].iter().take_while(|i| values[**i] <= first * (1.0 + tie)).count() + begin;
        let mean = (begin + end - 1) as f64 / 2.0;
        order[begin..end].iter().for_each(|i| ranks[*i] = mean);
        begin = end;
    }
    ranks
}

/// Pearson's correlation; `None` if one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    let (saa, sbb) = (product(a, ma, a, ma), product(b, mb, b, mb));
    (saa > 0.0 && sbb > 0.0).then(|| product(a, ma, b, mb) / (saa * sbb).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(m: u64, variant: &str, measured_us: f64, predicted_us: f64) -> Row {
        Row {
            pipeline: "p".into(),
            dims: vec![("M".into(), m)],
            variant: variant.into(),
            executor: "serial".into(),
            kind: "serial".into(),
            regime: "rested".into(),
            measured_us,
            predicted_us,
        }
    }

    #[test]
    fn errors_ranks_and_regrets_are_reckoned_by_point() {
        let rows = vec![
            row(1, "a", 100.0, 110.0),
            row(2, "a", 50.0, 50.0),
            row(1, "b", 120.0, 108.0),
            row(1, "c", 200.0, 200.0),
            row(1, "d", 300.0, 300.0),
        ];
        let c = Comparison { rows, ..Comparison::default() };
        assert!((c.mean_error() - (0.1 + 0.0 + 0.1 + 0.0 + 0.0) / 5.0).abs() < 1e-12);
        assert_eq!(c.points().len(), 2);
        // Two of the four are swapped: 1 - 6 * 2 / (4 * 15).
        assert!((c.rank_correlation().expect("four ways") - 0.8).abs() < 1e-12);
        let points = c.by_point();
        assert_eq!(points.iter().map(|p| p.ways).collect::<Vec<_>>(), [4, 1]);
        assert_eq!((points[0].chosen.as_str(), points[0].fastest.as_str()), ("b", "a"));
        assert!((points[0].regret - 0.2).abs() < 1e-12 && points[1].regret == 0.0);
        assert_eq!(points[1].rank_correlation, None, "one way has no ranks");
        let met: Vec<bool> = c.goals().iter().map(Goal::met).collect();
        assert_eq!(met, [true, false, false], "error 0.04, correlation 0.8, 10 % slower in the mean");
        assert!(Comparison::default().goals().iter().all(|goal| !goal.met()), "nothing is not met");
        let kinds = c.by_kind();
        assert_eq!((kinds.len(), kinds[0].0.as_str(), kinds[0].1), (1, "serial", 5));
        assert!(kinds[0].2.abs() < 1e-12 && (kinds[0].3 - 0.04).abs() < 1e-12);
    }

    #[test]
    fn near_ties_share_a_rank() {
        assert_eq!(ranks(&[100.0, 100.5, 90.0, 150.0], 0.01), [1.5, 1.5, 0.0, 3.0]);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
    }
}
