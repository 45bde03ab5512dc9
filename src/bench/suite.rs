//! Suites of pipelines: the fused executor and every other against the serial pipeline and other people's kernels.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cusync_gen::graph::Element;
use serde::Deserialize;

use super::point::Point;
use super::record::SuiteReport;
use super::target::Goal;
use super::{Error, Result};
use crate::device::Device;
use crate::measure::{Ceilings, Regime};
use crate::tune::Cache;

/// A size of a pipeline: values of dims, in the order of their names.
pub type Size = Vec<(String, u32)>;

/// A size in words, such as `B = 1, S = 2049`.
pub fn size_text(size: &[(String, u32)]) -> String {
    let parts: Vec<String> = size.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    parts.join(", ")
}

/// Sizes by dim: all combinations of the values.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub(super) struct Sizes(BTreeMap<String, Vec<u32>>);

impl Sizes {
    /// All combinations; `given` values take the place of these.
    pub(super) fn all(&self, given: &[(String, Vec<u32>)]) -> Vec<Size> {
        self.0.iter().fold(vec![Size::new()], |sizes, (name, values)| {
            let values = given.iter().find(|(dim, _)| dim == name).map_or(values, |(_, values)| values);
            let with = |size: &Size, value: u32| [&size[..], &[(name.clone(), value)]].concat();
            sizes.iter().flat_map(|size| values.iter().map(move |&v| with(size, v))).collect()
        })
    }
}

/// What one word of `cusync bench` measures, and what is to be reached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    /// Pipelines with their sizes.
    pub(super) points: Vec<(Vec<String>, Sizes)>,
    pub(super) goals: Vec<Goal>,
}

/// The suites by name.
pub(super) static SUITES: LazyLock<BTreeMap<String, Suite>> =
    LazyLock::new(|| match ron::from_str(include_str!("suites.ron")) {
        Ok(suites) => suites,
        Err(error) => unreachable!("suites.ron, which a test reads: {error}"),
    });

/// The sizes of an MLP that are compared, tokens in flight.
pub static SIZES: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let points = points("mlp", &["gpt3_mlp".into()], &[]);
    points.into_iter().flat_map(|(_, size)| size).map(|(_, m)| m).collect()
});

/// The points of a suite. `pipelines`: only these, and others that ship at the sizes of the suite's first; empty: all.
/// `given`: values of dims in place of the suite's.
pub fn points(suite: &str, pipelines: &[String], given: &[(String, Vec<u32>)]) -> Vec<(String, Size)> {
    let Some(Suite { points, .. }) = SUITES.get(suite) else { return Vec::new() };
    let of = |name: &str| {
        let mut own = points.iter().filter(|(names, _)| names.iter().any(|n| n == name)).peekable();
        let others = if own.peek().is_none() { points.first() } else { None };
        own.chain(others).flat_map(|(_, sizes)| sizes.all(given)).collect::<Vec<Size>>()
    };
    let mut list: Vec<(String, Size)> = Vec::new();
    let names = points.iter().flat_map(|(names, _)| names).filter(|_| pipelines.is_empty());
    for name in names.chain(pipelines) {
        for size in of(name) {
            let point = (name.clone(), size);
            if !list.contains(&point) {
                list.push(point);
            }
        }
    }
    list
}

/// The dims that make a pipeline's sizes: those of its suite, or M.
pub(super) fn size_dims(pipeline: &str) -> Vec<&'static str> {
    let suites = SUITES.values().flat_map(|suite| &suite.points);
    let own = suites.filter(|(names, _)| names.iter().any(|n| n == pipeline)).map(|(_, sizes)| sizes);
    own.map(|sizes| sizes.0.keys().map(String::as_str).collect()).next().unwrap_or_else(|| vec!["M"])
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct SuiteArgs {
    /// Number of the GPU.
    pub gpu: u32,
    /// Shipped pipelines, each at a size.
    pub points: Vec<(String, Size)>,
    /// The element type of all tensors.
    pub element: Element,
    /// The regimes that are measured.
    pub regimes: Vec<Regime>,
    /// Time limit of the whole benchmark; sizes that do not fit are listed, not measured.
    pub seconds: Option<f64>,
    /// Only variants whose name contains one of these; empty: all.
    pub only: Vec<String>,
    /// No variants whose name contains one of these.
    pub without: Vec<String>,
    /// Also queue every variant without a graph. The serial and the automatic ones always are.
    pub all_eager: bool,
    /// Also try every chain kernel, mode and way of cutting, and measure the fastest: what the model chose may not be.
    pub tune: bool,
    /// Weight sets in rotation.
    pub sets: usize,
    /// Measures this many of all ways to run a size instead of the usual variants, whatever is predicted of them, so that
    /// predictions can be compared with the times.
    pub spread: Option<usize>,
    /// Samples of each variant, rested.
    pub samples: usize,
    /// Tuned plans: where it has one for a size, that is measured too.
    pub tuned: Cache,
}

impl Default for SuiteArgs {
    fn default() -> Self {
        SuiteArgs {
            gpu: 0,
            points: points("mlp", &[], &[]),
            element: Element::F16,
            regimes: vec![Regime::Rested, Regime::Sustained],
            seconds: None,
            only: Vec::new(),
            without: Vec::new(),
            all_eager: false,
            tune: false,
            sets: 4,
            spread: None,
            samples: 16,
            tuned: Cache::default(),
        }
    }
}

impl SuiteArgs {
    /// Whether a variant is to be measured.
    pub(super) fn wants(&self, variant: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|word| variant.contains(word.as_str()));
        (self.only.is_empty() || named(&self.only)) && !named(&self.without)
    }
}

/// News while the benchmark runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A size begins: (pipeline, size, number of sizes done, number of all).
    Begin(&'a str, &'a Size, usize, usize),
    /// A size is done: the report so far.
    Done(&'a SuiteReport),
}

/// Runs the benchmark. Every variant is verified before it is timed; one that is wrong is named and not timed. A
/// fault of the GPU ends the benchmark and is named in the report, so that what was measured before is kept.
pub fn bench_suite(args: &SuiteArgs, progress: &mut dyn FnMut(Progress<'_>)) -> Result<SuiteReport> {
    let began = Instant::now();
    let device = Device::open(args.gpu)?;
    let profile = device
        .profile()
        .ok_or_else(|| Error::Argument(format!("{} is older than compute capability 8.0", device.name())))?;
    let ceilings = Ceilings::measure(&device)?;
    let mut report = SuiteReport {
        device: device.name().into(),
        profile: Some(profile.clone()),
        ceilings,
        records: Vec::new(),
        tuned: Vec::new(),
        skipped: Vec::new(),
        wrong: Vec::new(),
        fault: None,
    };
    let mut slowest = Duration::ZERO;
    for (done, (name, size)) in args.points.iter().enumerate() {
        let label = format!("{name} {}", size_text(size));
        let left = args.seconds.map(|s| s - began.elapsed().as_secs_f64());
        if left.is_some_and(|left| left < slowest.as_secs_f64()) {
            report.skipped.push(format!("{label}: the time limit"));
            continue;
        }
        progress(Progress::Begin(name, size, done, args.points.len()));
        let started = Instant::now();
        let share = left.map(|left| left / (args.points.len() - done) as f64);
        let point = Point::new(args, &device, &profile, &ceilings, (name, size));
        match point.run(share, &mut report) {
            Ok(records) => {
                report.records.extend(records);
                progress(Progress::Done(&report));
            }
            // Without a single record there is nothing to keep.
            Err(e) if report.records.is_empty() => return Err(e),
            Err(e) => {
                report.fault = Some(format!("{label}: {e}"));
                break;
            }
        }
        slowest = slowest.max(started.elapsed());
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn variants_are_chosen_by_parts_of_their_names() {
        let args = SuiteArgs {
            only: words(&["fused", "cublaslt"]),
            without: words(&["without waits"]),
            ..SuiteArgs::default()
        };
        let wanted = ["fused graph", "fused edges graph", "cublaslt graph"];
        assert!(wanted.iter().all(|v| args.wants(v)));
        assert!(["serial graph", "fused without waits graph"].iter().all(|v| !args.wants(v)));
        assert!(SuiteArgs::default().wants("serial graph"));
    }

    #[test]
    fn points_are_what_is_asked_for() {
        assert_eq!(SuiteArgs::default().points.len(), 3 * SIZES.len());
        assert!(SIZES.contains(&512) && points("nothing", &[], &[]).is_empty());
        let given = [("M".to_owned(), vec![37])];
        let size = vec![("M".to_owned(), 37)];
        assert_eq!(points("mlp", &words(&["two_gemms"]), &given), [("two_gemms".to_owned(), size)]);
        let generate = points("attention", &words(&["llama65_generate"]), &[("B".to_owned(), vec![2])]);
        let texts: Vec<String> = generate.iter().map(|(_, size)| size_text(size)).collect();
        assert_eq!(texts, ["B = 2, S = 513", "B = 2, S = 2049"]);
        assert_eq!(size_dims("llama65_generate"), ["B", "S"]);
        assert_eq!(size_dims("two_gemms"), ["M"]);
    }
}
