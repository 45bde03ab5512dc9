//! `cusync gen`: renders the code of a plan.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::check::usual_executor;
use super::fault::Fault;
use super::print::{Answer, Page, json};
use super::prove::Proof;
use super::target::TargetArgs;

#[derive(Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Folder to write to
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
}

#[derive(Serialize)]
pub(crate) struct GenerateReport {
    pub(crate) pipeline: String,
    pub(crate) files: Vec<String>,
}

impl Answer for GenerateReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        self.files.iter().for_each(|f| page.line(format!("wrote {f}")));
    }
}

pub(crate) fn generate(args: GenerateArgs) -> Result<GenerateReport, Fault> {
    let (target, dir) = (args.target.resolve()?, &args.output);
    let plan = Proof::of(&target, usual_executor(&target)?.0)?.plan()?;
    let cannot = |path: &Path, e: std::io::Error| {
        Fault::input(format!("{} cannot be written: {e}", path.display()))
            .help("choose another folder with -o DIR")
    };
    std::fs::create_dir_all(dir).map_err(|e| cannot(dir, e))?;
    let name = plan.graph().name.clone();
    let mut files = Vec::new();
    for (extension, text) in [("h", cusync_gen::emit::header(&plan)), ("rs", cusync_gen::emit::handle(&plan))]
    {
        let path = dir.join(format!("{name}.{extension}"));
        std::fs::write(&path, text).map_err(|e| cannot(&path, e))?;
        files.push(path.display().to_string());
    }
    Ok(GenerateReport { pipeline: name, files })
}
