//! `cusync calibrate`: measures what a device profile needs, and writes one.

use std::path::PathBuf;

use cusync::device::Device;
use cusync::tune::calibrate::{Calibration, calibrate};
use serde::Serialize;

use super::fault::Fault;
use super::progress::Progress;
use super::request::Output;

/// What `cusync calibrate` is asked for.
pub(crate) struct CalibrateRequest {
    /// Which GPU.
    pub(crate) gpu: u32,
    /// Where the profile goes.
    pub(crate) file: Option<PathBuf>,
}

/// The answer.
#[derive(Serialize)]
pub(crate) struct CalibrateReport {
    /// What was measured.
    pub(crate) measured: Calibration,
    /// The profile, RON.
    pub(crate) profile: String,
    /// The profile that it was made from, and the fields that are still that one's.
    pub(crate) base: String,
    pub(crate) kept: Vec<&'static str>,
    /// Where it was written.
    pub(crate) file: Option<String>,
}

pub(crate) fn run(request: &CalibrateRequest, output: &Output) -> Result<CalibrateReport, Fault> {
    let progress = Progress::start(output);
    let help = "`cusync doctor` says what is missing; profiles that ship need no GPU";
    let fault = |e: &dyn std::fmt::Display| Fault::input(e.to_string()).help(help);
    let base = Device::open(request.gpu).map_err(|e| fault(&e))?.profile();
    let measured = calibrate(request.gpu, &mut |what| progress.say(format!("measuring {what}")));
    let measured = measured.map_err(|e| fault(&e))?;
    let base = base.ok_or_else(|| fault(&"the GPU is older than compute capability 8.0"))?;
    let made = measured.profile(&base);
    let profile = made.profile.to_ron() + "\n";
    if let Some(file) = &request.file {
        let failed = |e: std::io::Error| {
            Fault::input(format!("{} cannot be written: {e}", file.display()))
                .help("choose another file with -o")
        };
        std::fs::write(file, &profile).map_err(failed)?;
    }
    Ok(CalibrateReport {
        measured,
        profile,
        base: base.name.clone(),
        kept: made.kept,
        file: request.file.as_ref().map(|f| f.display().to_string()),
    })
}
