//! `cusync gen`: renders the code of a plan.

use std::path::{Path, PathBuf};

use clap::Args;
use cusync::runtime::{Overrides, plan_source};
use cusync::sources::HEADERS;
use cusync_gen::check::{Executor, Plan};
use cusync_gen::choose;
use cusync_gen::emit;
use cusync_gen::graph::Resolved;
use cusync_gen::sync::Policy;
use serde::Serialize;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Page, json};
use super::prove::{Proof, resolve};
use super::report::{ObstacleReport, obstacles};
use super::target::{Target, TargetArgs};

#[derive(Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Folder to write to
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Also write the header-only library used by the rendered header to this folder
    #[arg(long, value_name = "DIR")]
    with_headers: Option<PathBuf>,
}

#[derive(Serialize)]
pub(crate) struct RenderReport {
    pub(crate) pipeline: String,
    pub(crate) executor: &'static str,
    pub(crate) files: Vec<String>,
    /// Reason why the device cannot run it by itself.
    pub(crate) note: Option<String>,
    /// Obstacles that keep executors from running it.
    pub(crate) obstacles: Vec<ObstacleReport>,
}

impl Answer for RenderReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        self.files.iter().for_each(|f| page.line(format!("wrote {f}")));
        self.note.iter().for_each(|note| page.line(note));
    }
}

pub(crate) fn render(args: RenderArgs) -> Result<RenderReport, Fault> {
    let (target, dir) = (args.target.resolve()?, &args.output);
    let resolved = resolve(&target)?;
    let plan = plan(&target, &resolved)?;
    let mut files = Vec::new();
    let mut write = |dir: &Path, name: &str, text: &str| -> Result<(), Fault> {
        std::fs::create_dir_all(dir).map_err(|e| files::unwritten(dir, &e))?;
        let path = dir.join(name);
        files::write(&path, text)?;
        files.push(path.display().to_string());
        Ok(())
    };
    let (name, command) = (plan.graph().name.clone(), command());
    write(dir, &format!("{name}.h"), &emit::header(&plan, &command))?;
    write(dir, &format!("{name}.rs"), &emit::handle(&plan, &command))?;
    for (header, text) in args.with_headers.iter().flat_map(|_| HEADERS) {
        let folder = args.with_headers.as_deref().unwrap_or(dir).join("cusync");
        write(&folder, header, text)?;
    }
    Ok(RenderReport {
        pipeline: name,
        executor: plan.launch().executor().name(),
        files,
        note: choose::fallback(&resolved, &target.device).map(|(_, note)| note),
        obstacles: obstacles(&resolved, &target.device),
    })
}

/// Plan to render: kernels that wait for tiles. It waits for tiles even if kernel boundaries are predicted to
/// be as fast, because that is the purpose of the rendered code.
fn plan(target: &Target, resolved: &Resolved) -> Result<Plan, Fault> {
    let executor = match target.executor {
        Some(one @ (Executor::Fused | Executor::Copilot | Executor::Serial | Executor::Library)) => {
            let kernels = if one.how().is_none() { "one kernel for all stages" } else { "no waits" };
            let message = format!("the {} executor has {kernels}, which no header renders", one.name());
            let fault = Fault::input("unsupported", message);
            return Err(fault.help("choose streams, programmatic or cpu, or leave --executor out"));
        }
        Some(other) => other,
        None => {
            let own = choose::one_by_one(&target.device);
            if choose::usual_executor(resolved, &target.device) == own { own } else { Executor::Cpu }
        }
    };
    let proof = Proof::for_executor(target, Some(executor))?;
    let candidate = proof.candidate();
    if candidate.launch.has_semaphores() || candidate.graph.dependences.is_empty() {
        return proof.plan();
    }
    let source = &target.source;
    let overrides =
        Overrides { dims: target.dims.clone(), policy: Some(Policy::Row), ..Overrides::default() };
    plan_source(&source.text, &source.origin, &overrides, &target.device, executor)
        .map_err(|d| Fault { status: 1, ..source.refused(&d) })
}

/// The command line, recorded in the rendered files.
pub(crate) fn command() -> String {
    let word =
        |word: String| if word.contains([' ', '"', '\'', '$', '`']) { format!("{word:?}") } else { word };
    let words: Vec<String> = std::env::args().skip(1).map(word).collect();
    format!("cusync {}", words.join(" "))
}
