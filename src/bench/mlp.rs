//! The MLP benchmark: the fused executor and every other against the serial pipeline and other people's kernels.

use std::time::{Duration, Instant};

use cusync_gen::graph::Element;

use super::point::Point;
use super::record::MlpReport;
use super::{Error, Result};
use crate::device::Device;
use crate::measure::{Ceilings, Regime};
use crate::tune::Cache;

/// The sizes of an MLP that are compared, tokens in flight.
pub const SIZES: [u32; 16] = [1, 8, 16, 32, 64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096];

/// What to measure.
#[derive(Clone, Debug)]
pub struct MlpArgs {
    /// Number of the GPU.
    pub gpu: u32,
    /// Shipped pipelines with a dim M.
    pub pipelines: Vec<String>,
    /// Values of M.
    pub sizes: Vec<u32>,
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

impl Default for MlpArgs {
    fn default() -> Self {
        MlpArgs {
            gpu: 0,
            pipelines: vec!["gpt3_mlp".into(), "llama65_mlp".into(), "llama3_70b_mlp".into()],
            sizes: SIZES.to_vec(),
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

impl MlpArgs {
    /// Whether a variant is to be measured.
    pub(super) fn wants(&self, variant: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|word| variant.contains(word.as_str()));
        (self.only.is_empty() || named(&self.only)) && !named(&self.without)
    }
}

/// News while the benchmark runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A size begins: (pipeline, M, number of sizes done, number of all).
    Begin(&'a str, u32, usize, usize),
    /// A size is done: the report so far.
    Done(&'a MlpReport),
}

/// Runs the benchmark. Every variant is verified before it is timed; one that is wrong is named and not timed. A
/// fault of the GPU ends the benchmark and is named in the report, so that what was measured before is kept.
pub fn bench_mlp(args: &MlpArgs, progress: &mut dyn FnMut(Progress<'_>)) -> Result<MlpReport> {
    let began = Instant::now();
    let device = Device::open(args.gpu)?;
    let profile = device
        .profile()
        .ok_or_else(|| Error::Argument(format!("{} is older than compute capability 8.0", device.name())))?;
    let ceilings = Ceilings::measure(&device)?;
    let mut report = MlpReport {
        device: device.name().into(),
        profile: Some(profile.clone()),
        ceilings,
        records: Vec::new(),
        tuned: Vec::new(),
        skipped: Vec::new(),
        wrong: Vec::new(),
        fault: None,
    };
    let points: Vec<(&str, u32)> =
        args.pipelines.iter().flat_map(|p| args.sizes.iter().map(move |&m| (p.as_str(), m))).collect();
    let mut slowest = Duration::ZERO;
    for (done, &(name, m)) in points.iter().enumerate() {
        let left = args.seconds.map(|s| s - began.elapsed().as_secs_f64());
        if left.is_some_and(|left| left < slowest.as_secs_f64()) {
            report.skipped.push(format!("{name} M = {m}: the time limit"));
            continue;
        }
        progress(Progress::Begin(name, m, done, points.len()));
        let started = Instant::now();
        let share = left.map(|left| left / (points.len() - done) as f64);
        let point = Point::new(args, &device, &profile, &ceilings, name, m);
        match point.run(share, &mut report) {
            Ok(records) => {
                report.records.extend(records);
                progress(Progress::Done(&report));
            }
            // Without a single record there is nothing to keep.
            Err(e) if report.records.is_empty() => return Err(e),
            Err(e) => {
                report.fault = Some(format!("{name} M = {m}: {e}"));
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

    #[test]
    fn variants_are_chosen_by_parts_of_their_names() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let args = MlpArgs {
            only: words(&["fused", "cublaslt"]),
            without: words(&["without waits"]),
            ..MlpArgs::default()
        };
        let wanted = ["fused graph", "fused edges graph", "cublaslt graph"];
        assert!(wanted.iter().all(|v| args.wants(v)));
        assert!(["serial graph", "fused without waits graph"].iter().all(|v| !args.wants(v)));
        assert!(MlpArgs::default().wants("serial graph"));
    }
}
