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

use clap::ValueEnum;
use cusync_gen::check::Executor;

use super::fault::{Fault, Location};
use super::print::{Answer, plain};
use super::prove::Proof;
use super::source::{SPECS, SourceText};
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

    fn source(&self) -> Result<SourceText, Fault> {
        let source = match self.spec.contains('(') {
            true => SourceText::new(self.spec, "spec"),
            false => SourceText::find(self.spec, &SPECS)?,
        };
        Ok(SourceText { colored: false, ..source })
    }

    fn target(&self) -> Result<Target, Fault> {
        let executor = ExecutorArg::from_str(self.executor, false).map_err(|_| {
            let names = ExecutorArg::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
            Fault::input("bad-argument", format!("there is no executor `{}`", self.executor))
                .help(format!("executors: {}", names.join(", ")))
        })?;
        Ok(Target {
            source: self.source()?,
            dims: self.dims.to_vec(),
            device: profile(self.device)?,
            device_stated: true,
            free_sms: 0,
            executor: executor.stated(),
        })
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
    /// Whether a spec was refused or refuted.
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
