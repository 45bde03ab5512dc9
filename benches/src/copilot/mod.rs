//! Sessions of jobs and of items, compared with hosts that do not use them.
//!
//! ```no_run
//! use cusync_bench::copilot::{CopilotArgs, bench_copilot};
//!
//! let few = CopilotArgs { jobs: 100, exact: 1000, ..CopilotArgs::default() };
//! let report = bench_copilot(&few, &mut |part| println!("{part}"))?;
//! # let _ = report;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cases;
mod exact;
mod handed;
mod kinds;
mod sessions;
mod taker;
mod turns;

use std::time::Duration;

use cusync_gen::device::Profile;
use serde::{Deserialize, Serialize};

use super::{Error, Result};
use cusync::device::Device;
use cusync::runtime::shipped;
use exact::{exact, exact_items};
use handed::handed_out;
use kinds::two_kinds;
use sessions::{CopilotBench, MIDDLE, SMALL, ahead, all_rows, latency, stopped};

pub use exact::ExactJobs;
pub use handed::{HandedOut, HostCost};
pub use kinds::TwoKinds;
pub use sessions::{AllRows, JobLatency, JobsAhead, StoppedHost};
pub use turns::JobTimes;

/// Arguments of the benchmark.
#[derive(Clone, Debug)]
pub struct CopilotArgs {
    /// Index of the GPU.
    pub gpu: u32,
    /// Jobs per latency measurement.
    pub jobs: usize,
    /// Jobs of a small pipeline to compare with `fused` bit by bit; the large one has a twentieth.
    pub exact: usize,
    /// SMs that sessions leave free.
    pub free_sms: u32,
    /// Maximum delay inside kernels that are built for delays, nanoseconds.
    pub delays_ns: u32,
    /// Only parts whose name contains one of these: `exact`, `latency`, `items`, `handed`, `kinds`, `rows`,
    /// `ahead`, `stopped`; empty: all.
    pub only: Vec<String>,
}

impl Default for CopilotArgs {
    fn default() -> Self {
        CopilotArgs { gpu: 0, jobs: 4000, exact: 100_000, free_sms: 0, delays_ns: 0, only: Vec::new() }
    }
}

/// Results of the benchmark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CopilotReport {
    /// GPU.
    pub device: String,
    /// Jobs compared with `fused`.
    pub exact: Vec<ExactJobs>,
    /// Times of single jobs.
    pub latency: Vec<JobLatency>,
    /// All row counts.
    pub rows: Vec<AllRows>,
    /// Jobs submitted ahead.
    pub ahead: Vec<JobsAhead>,
    /// A host that stops.
    pub stopped: Option<StoppedHost>,
    /// Items of one chain kernel, handed out in four ways.
    pub handed: Vec<HandedOut>,
    /// Long jobs, and short ones that arrive at random.
    pub kinds: Vec<TwoKinds>,
    /// Host cost of handing out items.
    pub host: Option<HostCost>,
}

/// Idle time after which a host kernel leaves, so that others get their turn.
const IDLE: Duration = Duration::from_micros(400);

/// Profile of the GPU, if chain and decode kernels run on it.
fn chains_of(device: &Device) -> Result<Profile> {
    let none = || Error::Argument(format!("{} has no chain kernels and no decode kernels", device.name()));
    device.profile().filter(|p| p.arch == 90).ok_or_else(none)
}

/// Spec of a LLaMA-65B layer.
fn llama() -> Result<&'static str> {
    shipped("llama65_mlp").ok_or_else(|| Error::Argument("llama65_mlp ships no more".into()))
}

/// Runs the benchmark. Calls `progress` before each part.
pub fn bench_copilot(args: &CopilotArgs, progress: &mut dyn FnMut(&str)) -> Result<CopilotReport> {
    let device = Device::open(args.gpu)?;
    let mut small = CopilotBench::new(&device, args, "small", SMALL)?;
    let mut middle = CopilotBench::new(&device, args, "middle", MIDDLE)?;
    let mut llama = CopilotBench::new(&device, args, "llama65_mlp", llama()?)?;
    let wanted = |part: &str| args.only.is_empty() || args.only.iter().any(|word| part.contains(word));
    let mut report = CopilotReport { device: device.name().into(), ..CopilotReport::default() };
    for (bench, share) in [(&mut small, 1), (&mut middle, 4), (&mut llama, 20)] {
        if wanted("exact") {
            progress(&format!("exact, {}", bench.name));
            for taken in [false, true] {
                report.exact.push(exact(bench, args.exact / share, args.delays_ns, taken)?);
            }
        }
        for m in [1, 8, 32] {
            if wanted("latency") {
                progress(&format!("latency, {} M={m}", bench.name));
                report.latency.push(latency(bench, m, args.jobs, false)?);
            }
        }
        if wanted("busy") {
            progress(&format!("latency with a busy host, {}", bench.name));
            report.latency.push(latency(bench, 8, args.jobs, true)?);
        }
        if wanted("ahead") {
            progress(&format!("ahead, {}", bench.name));
            report.ahead.push(ahead(bench, args.jobs)?);
        }
    }
    for taken in [false, true] {
        if wanted("items") {
            progress("items, held against fused");
            report.exact.push(exact_items(&device, args.exact, args.delays_ns, taken)?);
        }
    }
    if wanted("handed") {
        let (handed, host) = handed_out(&device, args.jobs.min(200), progress)?;
        (report.handed, report.host) = (handed, Some(host));
    }
    if wanted("kinds") {
        report.kinds = two_kinds(&device, progress)?;
    }
    if wanted("rows") {
        progress("rows, llama65_mlp");
        report.rows = all_rows(&mut llama, args.jobs)?;
    }
    if wanted("stopped") {
        progress("stopped, small");
        report.stopped = Some(stopped(&mut small)?);
    }
    Ok(report)
}
