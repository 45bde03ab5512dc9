//! `cusync gen`.

use std::path::Path;

use super::check::usual_executor;
use super::fault::Fault;
use super::prove::Proof;
use super::report::GenerateReport;
use super::request::Target;

pub(crate) fn generate(target: &Target, dir: &Path) -> Result<GenerateReport, Fault> {
    let plan = Proof::of(target, usual_executor(target))?.plan()?;
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
