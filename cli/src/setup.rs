//! `cusync setup`: the CUDA toolchain for users of the crate without a checkout.

use std::path::PathBuf;

use clap::Args;
use etcetera::BaseStrategy;
use serde::Serialize;

use super::fault::Fault;
use super::print::{Answer, Output, Page, json};
use super::progress::Progress;
use super::toolchain::install;

#[derive(Args)]
pub(crate) struct SetupArgs {
    /// Folder to install into; builds find the default by themselves, and others through CUDA_HOME and
    /// CUTLASS_DIR
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

#[derive(Serialize)]
pub(crate) struct SetupReport {
    pub(crate) folder: String,
    pub(crate) installed: bool,
    /// Next step.
    pub(crate) next: String,
}

impl Answer for SetupReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        let state = if self.installed { "installed in" } else { "already installed in" };
        page.line(format!("CUDA 13.0 and CUTLASS 4.2: {state} {}", self.folder));
        page.line(&self.next);
    }
}

/// Default location of the toolchain, which the build script also searches.
pub(crate) fn usual() -> Option<PathBuf> {
    etcetera::choose_base_strategy().ok().map(|folders| folders.data_dir().join("cusync/toolchain"))
}

pub(crate) fn setup(args: SetupArgs, output: &Output) -> Result<SetupReport, Fault> {
    let stated = args.into.is_some();
    let nowhere = || {
        Fault::input("no-folder", "this user has no data folder").help("name one: `cusync setup --into DIR`")
    };
    let folder = args.into.or_else(usual).ok_or_else(nowhere)?;
    let progress = Progress::start(output);
    let installed = install(&folder, || progress.say("downloading about 130 MB, once"))
        .map_err(|why| Fault::input("setup", why))?;
    let shown = folder.display();
    let build = "cargo install cusync --force";
    Ok(SetupReport {
        next: match stated {
            false => format!("next: {build}"),
            true => format!(
                "next: CUDA_HOME={shown}/nvidia/cu13 CUTLASS_DIR={shown}/cutlass_library/source {build}"
            ),
        },
        folder: shown.to_string(),
        installed,
    })
}
