//! The `copilot` executor: a persistent kernel, and a host that submits one job after another.
//!
//! A job is a run of a decode plan with the tensors of one set, for the first `m` rows. The host writes a
//! command into page-locked memory, the kernel's relay finds it there, and the last CTA to finish writes the
//! job's number back, without a launch or a graph in between. So a host that chooses the next job after each
//! job pays one PCIe round trip, and one session serves all row counts and all sets.
//!
//! Jobs are sequential: each begins when the previous one is over on all workers, like runs of `fused`. So
//! semaphores, epochs and intermediate tensors have the same meaning for jobs as for runs, and the proof of
//! `check` for consecutive runs holds for jobs; only weights of the next job, which nothing writes, are
//! loaded early. After [`Settings::idle`] without a command the kernel ends and reports it; the next submit,
//! poll or wait launches it again.
//!
//! On the host, the same words of memory connect the caller and a thread that runs jobs:
//!
//! ```
//! use cusync::codegen::check::Executor;
//! use cusync::codegen::device::Profile;
//! use cusync::inputs::Inputs;
//! use cusync::runtime::copilot::{JobSession, Settings};
//! use cusync::runtime::cpu::CpuOptions;
//! use cusync::runtime::{Overrides, plan_text};
//!
//! let spec = r#"Pipeline(name: "p", dims: { "M": 16, "H": 64 }, stages: [
//!     Gemm(name: "up", a: "X(M,H)", b: "W(H,H)", out: "Y(M,H)"),
//!     Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", out: "Z(M,H)"),
//! ])"#;
//! let h200 = Profile::named("h200").expect("it ships");
//! let few = cusync::codegen::device::Profile { sms: 4, ..h200.clone() };
//! let plan = plan_text(spec, "spec", &Overrides::default(), &few, Executor::Copilot)?;
//! let sets = [Inputs::random(plan.graph(), 1), Inputs::random(plan.graph(), 2)];
//! let mut session = JobSession::on_host(&plan, &sets, CpuOptions::default(), Settings::default())?;
//! for m in [16, 1, 7] {
//!     let job = session.submit(1, m)?;
//!     session.wait(job)?;
//! }
//! let z = session.read_f32(1, "Z")?;
//! assert!(z[..7 * 64].iter().all(|x| x.is_finite()) && z[7 * 64].is_nan());
//! session.close()?;
//! # Ok::<(), cusync::runtime::Error>(())
//! ```

mod gpu;
mod host;
mod items;
mod notes;
mod session;

use std::time::Duration;

use super::error::{Error, Result};
use super::traced::ItemTrace;
use crate::device::Words;

pub use items::{Handing, Items, Scheduled};
pub use notes::{JobNote, Sent, SessionNotes};
pub use session::JobSession;

/// Time limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time the kernel looks for a command before it ends, 1 ns to 1 s. A stopped host, or a call that waits
    /// for an idle GPU, costs this much time.
    pub idle: Duration,
    /// Time limit of [`JobSession::wait`].
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { idle: Duration::from_millis(1), patience: Duration::from_secs(10) }
    }
}

/// A job of a session, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job(u32);

impl Job {
    /// The number; a session's first job is 1.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Runs the jobs of a session, launch after launch.
trait Runner {
    /// Words shared with the host.
    fn words(&self) -> &Words;
    /// Starts launch number `launch`, which continues after the last finished job. The previous launch has
    /// left.
    fn launch(&mut self, launch: u32) -> Result<()>;
    /// Checks that the launch has not failed.
    fn check(&mut self) -> Result<()>;
    /// Waits until the last launch is over.
    fn finish(&mut self) -> Result<()>;
    /// A tensor of a set, widened.
    fn read_f32(&self, set: usize, name: &str) -> Result<Vec<f32>>;
    fn take_trace(&mut self) -> Result<Vec<ItemTrace>>;
}

/// Interval between health checks of the kernel.
const CHECK_EVERY: Duration = Duration::from_millis(2);

fn idle_ns(settings: Settings) -> Result<u32> {
    let ns = settings.idle.as_nanos();
    let refused = || {
        Error::Unsupported(format!(
            "a session that waits {ns} ns for a command\n  help: choose 1 ns to 1 s; the default is 1 ms"
        ))
    };
    u32::try_from(ns).ok().filter(|ns| (1..=1_000_000_000).contains(ns)).ok_or_else(refused)
}
