//! Commands for programs that run them in their own process, such as the Python package: answers and errors are
//! values.
//!
//! ```
//! use cusync_cli::embed::{SpecRequest, check};
//!
//! let dims = [("M".to_owned(), 8)];
//! let answer = check(&SpecRequest { dims: &dims, ..SpecRequest::new("two_gemms") })?;
//! assert!(answer.page.contains("proved"));
//! let failure = check(&SpecRequest::new("Pipeline(name: 3)")).err().expect("a name is a text");
//! assert_eq!((failure.line, failure.refusal), (Some(1), true));
//! # Ok::<(), cusync_cli::embed::Failure>(())
//! ```

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use cusync_gen::check::Executor;

use super::fault::{Fault, Location};
use super::print::{Answer, plain};
use super::prove::Proof;
use super::schedule::{ScheduleChoices, form_id, plan_file, scheduled_by};
use super::source::{Language, PROGRAMS, SPECS, SourceText};
use super::target::{ExecutorArg, Target, profile};
use super::{check, doctor, explain};

/// A spec and its device.
#[derive(Clone, Copy, Debug)]
pub struct SpecRequest<'a> {
    /// Text of a spec, the path of a RON file, or the name of a shipped pipeline.
    pub spec: &'a str,
    /// Dims that override the spec's defaults.
    pub dims: &'a [(String, u64)],
    /// Name of a device profile, or a file that contains one.
    pub device: &'a str,
    /// Name of an executor; `auto`: the best predicted one that can run on the device.
    pub executor: &'a str,
}

impl<'a> SpecRequest<'a> {
    /// A spec with its default dims, for the best executor on an H200.
    pub fn new(spec: &'a str) -> Self {
        SpecRequest { spec, dims: &[], device: "h200", executor: "auto" }
    }

    fn target(&self) -> Result<Target, Fault> {
        let executor = ExecutorArg::from_str(self.executor, false).map_err(|_| {
            let names = ExecutorArg::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
            Fault::input("bad-argument", format!("there is no executor `{}`", self.executor))
                .help(format!("executors: {}", names.join(", ")))
        })?;
        Ok(Target {
            source: source(self.spec, &SPECS)?,
            dims: self.dims.to_vec(),
            device: profile(self.device)?,
            device_stated: true,
            free_sms: 0,
            executor: executor.stated(),
            kernels: Vec::new(),
        })
    }
}

/// A text, or the text that a path or a shipped name stands for.
fn source(stated: &str, language: &Language) -> Result<SourceText, Fault> {
    let source = match stated.contains('(') {
        true => SourceText::new(stated, language.word),
        false => SourceText::find(stated, language)?,
    };
    Ok(SourceText { colored: false, ..source })
}

/// A program of kernels and its device.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRequest<'a> {
    /// Text of a program, the path of a RON file, or the name of a shipped program.
    pub program: &'a str,
    /// Dims that override the program's defaults.
    pub dims: &'a [(String, u64)],
    /// Name of a device profile, or a file that contains one.
    pub device: &'a str,
    /// Maximum kernels at a time: streams, or lanes of a graph.
    pub streams: Option<u64>,
    /// Maximum bytes of temporary buffers.
    pub memory: Option<u64>,
    /// Form to take instead of the best, such as `branch-graph`.
    pub form: Option<&'a str>,
    /// File for the chosen plan: a timeline (`.html`), a Graphviz graph (`.dot`) or CUDA C++ (`.cu`).
    pub output: Option<&'a Path>,
}

impl<'a> ProgramRequest<'a> {
    /// A program with its default dims, in the best form for an H200.
    pub fn new(program: &'a str) -> Self {
        ProgramRequest {
            program,
            dims: &[],
            device: "h200",
            streams: None,
            memory: None,
            form: None,
            output: None,
        }
    }

    fn choices(&self) -> Result<ScheduleChoices, Fault> {
        let wrong = |message: String, help: String| Fault::input("bad-argument", message).help(help);
        let streams = |n: u64| {
            let number = u16::try_from(n).ok().filter(|&n| n > 0);
            let help = format!("state a number from 1 to {}", u16::MAX);
            number.ok_or_else(|| wrong(format!("`streams` is {n}"), help))
        };
        let form = |id: &str| form_id(id).map_err(|help| wrong(format!("there is no form `{id}`"), help));
        let output = |file: &Path| -> Result<PathBuf, Fault> {
            let name = file.display().to_string();
            plan_file(&name)
                .map_err(|help| wrong(format!("no plan is written to `{name}`"), help))
                .map(|_| file.to_owned())
        };
        Ok(ScheduleChoices {
            dims: self.dims.to_vec(),
            device: self.device.to_owned(),
            streams: self.streams.map(streams).transpose()?,
            memory: self.memory,
            form: self.form.map(form).transpose()?,
            repeat: 1,
            output: self.output.map(output).transpose()?,
            all: false,
        })
    }

    /// The command that gives the same answer, for the files that it writes.
    fn command(&self) -> String {
        let program = if self.program.contains('(') { "-" } else { self.program };
        let mut words = vec![format!("cusync schedule {program} --device {}", self.device)];
        words.extend(self.dims.iter().map(|(name, value)| format!("--dim {name}={value}")));
        words.extend(self.streams.map(|n| format!("--streams {n}")));
        words.extend(self.memory.map(|bytes| format!("--memory {bytes}")));
        words.extend(self.form.map(|form| format!("--form {form}")));
        words.extend(self.output.map(|file| format!("-o {}", file.display())));
        words.join(" ")
    }
}

/// Answer of a command.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The answer as JSON: docs/json.md.
    pub json: String,
    /// Readable text, without colors.
    pub page: String,
}

/// An error, as the command states it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Stable short name from the table in docs/json.md.
    pub code: &'static str,
    /// Message without the suggested fix.
    pub message: String,
    /// Suggested fixes, one per line.
    pub help: Option<Box<str>>,
    /// File that contains the error.
    pub file: Option<Box<str>>,
    /// Line in that file, from 1.
    pub line: Option<u32>,
    /// Column in characters, from 1.
    pub column: Option<u32>,
    /// Readable text that the command prints.
    pub text: String,
    /// Whether a spec was refused or refuted, or a program refused.
    pub refusal: bool,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let text = fault.text().trim_end().to_owned();
        let Location { file, line, column, page } = *fault.place;
        // A spec has at most a million bytes.
        let number = |n: Option<usize>| n.and_then(|n| u32::try_from(n).ok());
        Failure {
            code: fault.code,
            message: fault.message,
            help: fault.help.map(String::into_boxed_str),
            file: file.map(String::into_boxed_str),
            line: number(line),
            column: number(column),
            text,
            refusal: page.is_some(),
        }
    }
}

impl From<cusync::SessionError> for Failure {
    fn from(error: cusync::SessionError) -> Self {
        Fault::from(error).into()
    }
}

impl From<cusync::device::Error> for Failure {
    fn from(error: cusync::device::Error) -> Self {
        Fault::from(error).into()
    }
}

impl From<cusync::programs::Error> for Failure {
    fn from(error: cusync::programs::Error) -> Self {
        Fault::from(error).into()
    }
}

#[cfg(feature = "models")]
impl From<cusync_models::Error> for Failure {
    fn from(error: cusync_models::Error) -> Self {
        Fault::from(error).into()
    }
}

fn answered(answer: &dyn Answer) -> Result<Answered, Failure> {
    let json = answer.json().map_err(|e| Fault::input("unwritable", e.to_string()))?;
    Ok(Answered { json, page: plain(answer) })
}

/// `cusync check`: proves a plan.
///
/// # Errors
/// The spec is refused, or its plan is refuted.
pub fn check(request: &SpecRequest<'_>) -> Result<Answered, Failure> {
    let target = request.target()?;
    let (report, proof) = check::judged(&target)?;
    if let Some(fault) = proof.refuted() {
        return Err(fault.into());
    }
    if !report.good() {
        return Err(Fault::refuted("refuted", plain(&report)).into());
    }
    answered(&report)
}

/// `cusync explain`: the decisions of a plan.
///
/// # Errors
/// As [`check`].
pub fn explain(request: &SpecRequest<'_>) -> Result<Answered, Failure> {
    answered(&explain::explain(&request.target()?)?)
}

/// `cusync schedule`: a concurrent schedule of a program of kernels.
///
/// ```
/// use cusync_cli::embed::{ProgramRequest, schedule};
///
/// let answer = schedule(&ProgramRequest { streams: Some(2), ..ProgramRequest::new("vec") })?;
/// assert!(answer.page.starts_with("vec on h200: 3 kernels"));
/// let wrong = ProgramRequest { form: Some("fastest"), ..ProgramRequest::new("vec") };
/// assert_eq!(schedule(&wrong).err().map(|failure| failure.code), Some("bad-argument"));
/// # Ok::<(), cusync_cli::embed::Failure>(())
/// ```
///
/// # Errors
/// The program is refused, or the form does not fit the number of streams.
pub fn schedule(request: &ProgramRequest<'_>) -> Result<Answered, Failure> {
    let find = || source(request.program, &PROGRAMS);
    answered(&scheduled_by(&request.choices()?, find, &request.command())?)
}

/// `cusync doctor`: the capabilities of this machine, without the toolchain, which only builds need.
///
/// # Errors
/// The answer cannot be written as JSON.
pub fn doctor() -> Result<Answered, Failure> {
    let mut report = doctor::doctor();
    report.findings.retain(|finding| finding.what != "toolchain");
    answered(&report)
}

/// Text of a request's spec, if it has a proved plan for the host or can have one: every refusal has its place.
///
/// # Errors
/// The spec is not found or refused, or its plan is refuted.
pub fn text(request: &SpecRequest<'_>) -> Result<String, Failure> {
    let target = request.target()?;
    let executor = target.executor.or(Some(Executor::Cpu));
    let text = target.source.text.clone();
    Proof::for_executor(&target, executor)?.plan()?;
    Ok(text)
}
