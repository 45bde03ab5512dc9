//! `cusync calibrate`: measures the numbers of a device profile, and writes the profile.

use std::path::PathBuf;

use clap::Args;
use cusync::device::Device;
use cusync::tune::calibrate::{Calibration, ChainTimes, KernelTimes};
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;

#[derive(Args)]
pub(crate) struct CalibrateArgs {
    /// Index of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
    /// Write the profile (RON) to this file instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
pub(crate) struct CalibrateReport {
    /// The measurements.
    pub(crate) measured: Calibration,
    /// The profile, RON.
    pub(crate) profile: String,
    /// Base profile, and the fields taken from it.
    pub(crate) base: String,
    pub(crate) kept: Vec<String>,
    /// File that it was written to.
    pub(crate) file: Option<String>,
}

pub(crate) fn calibrate(args: &CalibrateArgs, output: &Output) -> Result<CalibrateReport, Fault> {
    let progress = Progress::start(output);
    args.output.as_deref().map_or(Ok(()), files::ensure_writable)?;
    let help = "`cusync doctor` says what is missing; profiles that ship need no GPU";
    let base = Device::open(args.gpu).map_err(|e| Fault::from(e).help(help))?.profile();
    let measured =
        cusync::tune::calibrate::calibrate(args.gpu, &mut |step| progress.say(format!("measuring {step}")));
    let measured = measured.map_err(|e| Fault::from(e).help(help))?;
    let old = || Fault::input("old-gpu", "the GPU is older than compute capability 8.0").help(help);
    let base = base.ok_or_else(old)?;
    let made = measured.profile(&base);
    let profile = made.profile.to_ron() + "\n";
    if let Some(file) = &args.output {
        files::write(file, &profile)?;
    }
    Ok(CalibrateReport {
        measured,
        profile,
        base: base.name.clone(),
        kept: made.kept,
        file: args.output.as_ref().map(|f| f.display().to_string()),
    })
}

impl Answer for CalibrateReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        let m = &self.measured;
        let (rested, sustained) = (m.ceilings.rested, m.ceilings.sustained);
        page.line(format!(
            "{}, CUDA {}: {:.0} TFLOP/s rested, {:.0} sustained; reads {:.2} TB/s",
            m.gpu, m.driver, rested.matrix_tflops, sustained.matrix_tflops, rested.read_tbs
        ));
        let or =
            |value: Option<f64>, digits: usize| value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"));
        page.line(format!(
            "kernel boundary {:.2} us; wait {:.0} ns, post {:.0} ns, hand-off {:.0} ns; one SM alone {} TFLOP/s",
            m.boundary_us,
            m.semaphores.wait_ns,
            m.semaphores.post_ns,
            m.semaphores.hand_off_ns,
            or(m.alone_tflops, 2)
        ));
        let kernel = |k: &KernelTimes| {
            [
                format!("{} x {} x {}", k.tile.0, k.tile.1, k.tile.2),
                or(k.tflops, 0),
                or(k.times.map(|t| t.k_block_us), 3),
                or(k.times.map(|t| t.tile_us), 2),
                or(k.times.map(|t| t.start_us), 2),
            ]
        };
        page.table(["kernel", "TFLOP/s", "k-block us", "tile us", "start us"], m.kernels.iter().map(kernel));
        let chain = |c: &ChainTimes| {
            [
                format!("{} x {} x {}", c.tile.0, c.tile.1, c.tile.2),
                format!("{} x {}", c.cluster.0, c.cluster.1),
                or(c.sm_tflops, 2),
                or(c.times.k_block_us, 3),
                or(c.times.fill_us, 2),
                or(c.times.epilogue_us, 2),
            ]
        };
        for (kind, measured) in [("products", &m.products), ("convolutions", &m.windows)] {
            let title = format!("chain kernel of {kind}");
            page.table(
                [&*title, "cluster", "TFLOP/s an SM", "k-block us", "fill us", "epilogue us"],
                measured.chains.iter().map(chain),
            );
            let c = &measured.chain;
            page.line(format!(
                "chain: launch {} us, passing a tile on {} us; GELU {} us, gate {} us; slab written {} us, read {} us",
                or(c.launch_us, 2),
                or(c.passed_on_us, 2),
                or(c.gelu_us, 2),
                or(c.gate_us, 2),
                or(c.slab_write_us, 2),
                or(c.slab_read_us, 2)
            ));
        }
        m.skipped.iter().for_each(|s| page.line(format!("not measured: {s}")));
        page.line(format!("kept from the profile {}: {}", self.base, self.kept.join(", ")));
        match &self.file {
            Some(file) => page.line(format!("wrote {file}")),
            None => page.line(&self.profile),
        }
    }
}
