//! Sessions, of jobs and of items, against what hosts do without them.
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
use sessions::{Bench, MIDDLE, SMALL, ahead, all_rows, latency, stopped};

pub use exact::ExactJobs;
pub use handed::{HandedOut, HostCost};
pub use kinds::TwoKinds;
pub use sessions::{AllRows, JobLatency, JobsAhead, StoppedHost};
pub use turns::JobTimes;

/// What to measure.
#[derive(Clone, Debug)]
pub struct CopilotArgs {
    /// Which GPU.
    pub gpu: u32,
    /// Jobs of each latency.
    pub jobs: usize,
    /// Jobs held against `fused` bit for bit, of a small pipeline; the large one has a twentieth.
    pub exact: usize,
    /// SMs that sessions leave free.
    pub free_sms: u32,
    /// Delays inside kernels that are built for them, nanoseconds at most.
    pub delays_ns: u32,
    /// Only parts whose name contains one of these: `exact`, `latency`, `items`, `handed`, `kinds`, `rows`, `ahead`,
    /// `stopped`; empty: all.
    pub only: Vec<String>,
}

impl Default for CopilotArgs {
    fn default() -> Self {
        CopilotArgs { gpu: 0, jobs: 4000, exact: 100_000, free_sms: 0, delays_ns: 0, only: Vec::new() }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CopilotReport {
    /// GPU.
    pub device: String,
    /// Jobs held against `fused`.
    pub exact: Vec<ExactJobs>,
    /// Times of single jobs.
    pub latency: Vec<JobLatency>,
    /// All numbers of rows.
    pub rows: Vec<AllRows>,
    /// Jobs ahead.
    pub ahead: Vec<JobsAhead>,
    /// A host that stops.
    pub stopped: Option<StoppedHost>,
    /// Items of one chain kernel, handed out in four ways.
    pub handed: Vec<HandedOut>,
    /// Long jobs, and short ones that come at random.
    pub kinds: Vec<TwoKinds>,
    /// What handing them out costs a host.
    pub host: Option<HostCost>,
}

/// Without work for so long a host's kernel leaves, so that another can have its turn.
const IDLE: Duration = Duration::from_micros(400);

/// The GPU's profile, where chain and decode kernels run on it.
fn chains_of(device: &Device) -> Result<Profile> {
    let none = || Error::Argument(format!("{} has no chain kernels and no decode kernels", device.name()));
    device.profile().filter(|p| p.arch == 90).ok_or_else(none)
}

/// The page of a layer of LLaMA-65B.
fn llama() -> Result<&'static str> {
    shipped("llama65_mlp").ok_or_else(|| Error::Argument("llama65_mlp ships no more".into()))
}

/// Measures. `told` hears of each part before it begins.
pub fn bench_copilot(args: &CopilotArgs, told: &mut dyn FnMut(&str)) -> Result<CopilotReport> {
    let device = Device::open(args.gpu)?;
    let mut small = Bench::new(&device, args, "small", SMALL)?;
    let mut middle = Bench::new(&device, args, "middle", MIDDLE)?;
    let mut llama = Bench::new(&device, args, "llama65_mlp", llama()?)?;
    let wanted = |part: &str| args.only.is_empty() || args.only.iter().any(|word| part.contains(word));
    let mut report = CopilotReport { device: device.name().into(), ..CopilotReport::default() };
    for (bench, share) in [(&mut small, 1), (&mut middle, 4), (&mut llama, 20)] {
        if wanted("exact") {
            told(&format!("exact, {}", bench.name));
            for taken in [false, true] {
                report.exact.push(exact(bench, args.exact / share, args.delays_ns, taken)?);
            }
        }
        for m in [1, 8, 32] {
            if wanted("latency") {
                told(&format!("latency, {} M={m}", bench.name));
                report.latency.push(latency(bench, m, args.jobs, false)?);
            }
        }
        if wanted("busy") {
            told(&format!("latency with a busy host, {}", bench.name));
            report.latency.push(latency(bench, 8, args.jobs, true)?);
        }
        if wanted("ahead") {
            told(&format!("ahead, {}", bench.name));
            report.ahead.push(ahead(bench, args.jobs)?);
        }
    }
    for taken in [false, true] {
        if wanted("items") {
            told("items, held against fused");
            report.exact.push(exact_items(&device, args.exact, args.delays_ns, taken)?);
        }
    }
    if wanted("handed") {
        let (handed, host) = handed_out(&device, args.jobs.min(200), told)?;
        (report.handed, report.host) = (handed, Some(host));
    }
    if wanted("kinds") {
        report.kinds = two_kinds(&device, told)?;
    }
    if wanted("rows") {
        told("rows, llama65_mlp");
        report.rows = all_rows(&mut llama, args.jobs)?;
    }
    if wanted("stopped") {
        told("stopped, small");
        report.stopped = Some(stopped(&mut small)?);
    }
    Ok(report)
}
