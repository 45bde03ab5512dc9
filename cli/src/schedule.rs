//! `cusync schedule`: from serial code to concurrent kernels.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use cusync::trace::{page, scheduled};
use cusync_dag::{
    DagError, Form, KernelSchedule, Program, ProvedPlan, ScheduleOptions, cuda, dot, parse, schedule as plan,
};
use cusync_gen::device::Profile;

use super::fault::Fault;
use super::files;
use super::print::{Answer, Page, json};
use super::render::command;
use super::report::{counted, signed_percent};
use super::schedule_report::{FormReport, NodeReport, ProgramReport, report};
use super::source::{PROGRAMS, SourceText};
use super::target::{dim, profile};

#[derive(Args)]
pub(crate) struct ScheduleArgs {
    /// A RON file, `-` for standard input, or the name of a shipped program (`cusync list`)
    #[arg(value_name = "FILE")]
    file: String,
    #[command(flatten)]
    choices: ScheduleChoices,
}

/// All but the program.
#[derive(Args)]
pub(crate) struct ScheduleChoices {
    /// Override the default of a dim; may be repeated
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim)]
    pub(crate) dims: Vec<(String, u64)>,
    /// GPU to schedule for: h200, h100, a100, l40s, or a RON file with a profile
    #[arg(long, value_name = "NAME or FILE", default_value = "h200")]
    pub(crate) device: String,
    /// Run at most this many kernels at a time: streams, or lanes of a graph
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) streams: Option<u16>,
    /// Give the temporary buffers at most this many bytes together, at the price of concurrency where that is needed
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<u64>,
    /// Take this form instead of the best, such as branch-graph
    #[arg(long, value_name = "FORM", value_parser = form_id)]
    pub(crate) form: Option<Form>,
    /// Issue the program this many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) repeat: u16,
    /// Write the chosen plan: a timeline (.html), a Graphviz graph (.dot) or CUDA C++ (.cu)
    #[arg(short, long, value_name = "FILE", value_parser = plan_file)]
    pub(crate) output: Option<PathBuf>,
    /// Print every node, every form and the reasons too
    #[arg(long)]
    pub(crate) all: bool,
}

pub(crate) fn form_id(id: &str) -> Result<Form, String> {
    serde_json::from_value(id.into()).map_err(|e| e.to_string())
}

/// Accepts file names to which plans can be written.
pub(crate) fn plan_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "dot" | "cu") => Ok(path),
        _ => Err("the name must end in .html (a timeline), .dot (a graph) or .cu (CUDA C++)".into()),
    }
}

pub(crate) fn schedule(args: &ScheduleArgs) -> Result<ProgramReport, Fault> {
    scheduled_by(&args.choices, || SourceText::find(&args.file, &PROGRAMS), &command())
}

/// The same; `command` is named in files that it writes.
pub(crate) fn scheduled_by(
    args: &ScheduleChoices,
    source: impl FnOnce() -> Result<SourceText, Fault>,
    command: &str,
) -> Result<ProgramReport, Fault> {
    args.output.as_deref().map_or(Ok(()), files::ensure_writable)?;
    let device = profile(&args.device)?;
    let program_fault = |e: DagError| Fault::from(cusync::programs::Error::from(e));
    let source = source()?;
    let program = parse(&source.text, &args.dims, &device)
        .map_err(|d| source.refused(&d))?
        .repeat(args.repeat.into())
        .map_err(program_fault)?;
    let streams = args.streams.map(usize::from);
    let forms = args.form.map_or(Form::ALL.to_vec(), |form| vec![form]);
    let options =
        ScheduleOptions { streams, memory: args.memory, device: device.clone(), forms, ..Default::default() };
    let schedule = plan(&program, &options).map_err(program_fault)?;
    if let (Some(form), Some(most), []) = (args.form, args.streams, &schedule.predictions[..]) {
        let message = format!("{} takes more than {}", form.name(), counted(most.into(), "stream"));
        return Err(Fault::input("unsupported", message).help("raise --streams, or leave --form out"));
    }
    let proved = schedule.prove(&program, schedule.form);
    let proved = proved.map_err(|e| Fault::from(cusync::programs::Error::from(e)))?;
    if let Some(file) = &args.output {
        write(file, &program, &schedule, &proved, (&device, command))?;
    }
    let mut report = report(&program, &schedule, &proved, &device);
    report.chosen.memory_limit = args.memory;
    Ok(ProgramReport { all: args.all, output: args.output.clone(), ..report })
}

/// Writes the chosen plan, depending on the file name.
fn write(
    file: &Path,
    program: &Program,
    schedule: &KernelSchedule,
    proved: &ProvedPlan,
    (device, command): (&Profile, &str),
) -> Result<(), Fault> {
    let text = match file.extension().and_then(|e| e.to_str()) {
        Some("html") => page(&scheduled(program, schedule, &device.name)),
        Some("dot") => dot(program, schedule),
        _ => cuda(proved, schedule.form.name(), command),
    };
    files::write(file, &text)
}

impl Answer for ProgramReport {
    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    /// The chosen form and the runner-up; with `--all`, nodes in the order of issue, all forms and the reasons.
    fn page(&self, page: &mut Page) {
        let chosen = &self.chosen;
        let time = |form: Form| self.forms.iter().find(|f| f.form == form).map(|f| f.us);
        let serial = time(Form::SERIAL);
        let over = |us: f64| serial.map_or("-".into(), |serial| format!("{:.2}x", serial / us));
        let gain =
            serial.map_or(String::new(), |_| format!(", {} over serial launches", over(chosen.predicted_us)));
        page.line(format!(
            "{} on {}: {}, {} copies, {} dependences, {} after reduction",
            self.program,
            self.device,
            counted(self.kernels, "kernel"),
            self.copies,
            self.edges,
            self.reduced_edges,
        ));
        page.line(format!(
            "form: {}, {:.1} us{gain}; {}, {}",
            self.name(chosen.form),
            chosen.predicted_us,
            counted(chosen.streams, "stream"),
            counted(chosen.waits, "wait")
        ));
        if let Some(next) = &chosen.runner_up {
            let more = signed_percent(next.us / chosen.predicted_us - 1.0);
            page.line(format!("next: {}, {:.1} us ({more}){}", next.name, next.us, next.harm));
        }
        if let Some(limit) = chosen.memory_limit {
            let waits: usize = self.nodes.iter().map(|node| node.reuses.len()).sum();
            page.line(format!(
                "memory: {} bytes of temporaries, of at most {limit}; {waits} dependences let them reuse bytes",
                chosen.arena_bytes
            ));
        }
        let mut unverified: BTreeMap<&str, usize> = BTreeMap::new();
        self.unverified.iter().for_each(|kernel| *unverified.entry(&kernel.why).or_default() += 1);
        for (why, kernels) in unverified {
            let kernels = counted(kernels, "kernel");
            page.line(format!("declared, not verified: programmatic edges of {kernels}: {why}"));
        }
        if self.all {
            self.rest(page, over);
        }
        self.output.iter().for_each(|file| page.line(format!("wrote {}", file.display())));
    }
}

impl ProgramReport {
    fn name(&self, form: Form) -> &'static str {
        self.forms.iter().find(|f| f.form == form).map_or("", |f| f.name)
    }

    fn rest(&self, page: &mut Page, over: impl Fn(f64) -> String) {
        let names: BTreeMap<u32, &str> = self.nodes.iter().map(|n| (n.id, n.name.as_str())).collect();
        let node = |n: &NodeReport| {
            let nodes =
                n.waits_for.iter().chain(&n.held_by).filter_map(|id| names.get(id).map(|n| (*n).to_owned()));
            let join = |&id: &usize| format!("join {id} of {}", counted(self.joins[id].before.len(), "node"));
            let waits: Vec<String> = nodes.chain(n.joins.iter().map(join)).collect();
            [
                n.name.clone(),
                format!("{:.1}", n.us),
                n.stream.to_string(),
                waits.join(", "),
                format!("{:.1}", n.start_us),
                format!("{:.1}", n.end_us),
            ]
        };
        page.table(["node", "us", "stream", "waits for", "starts", "ends"], self.nodes.iter().map(node));
        let form =
            |f: &FormReport| [f.name.into(), f.streams.to_string(), format!("{:.1}", f.us), over(f.us)];
        page.table(["form", "streams", "predicted us", "over serial"], self.forms.iter().map(form));
        self.why.iter().for_each(|why| page.line(why));
        if self.allocated_bytes < self.buffer_bytes {
            page.line(format!(
                "memory: {} bytes instead of {}: buffers that are never alive together share it",
                self.allocated_bytes, self.buffer_bytes
            ));
        }
        page.line(format!("costs: {}", self.source));
    }
}
