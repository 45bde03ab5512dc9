//! PyTorch as the peer of `cusync model bench`: a Python process that answers jobs, a line of JSON each.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use cusync::codegen::graph::Element;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ModelArgs;
use crate::fault::Fault;
use crate::print::Output;
use crate::progress::Progress;

#[derive(Args)]
pub(crate) struct PeerArgs {
    /// Python interpreter with torch and transformers, or fail [default: python3, if it has them]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Leave PyTorch out
    #[arg(long, conflicts_with_all = ["python", "pytorch", "check_tokens"])]
    no_pytorch: bool,
    /// Steps of PyTorch to measure, or fail [default: both on a GPU, eager on the host]
    #[arg(long, value_name = "KIND")]
    pytorch: Option<Kinds>,
    /// Seconds that PyTorch may take for a measurement, with the time to compile
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    peer_limit: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kinds {
    Compiled,
    Eager,
    Both,
}

/// How PyTorch runs a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PeerKind {
    Compiled,
    Eager,
}

impl PeerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            PeerKind::Compiled => "compiled",
            PeerKind::Eager => "eager",
        }
    }

    /// Words about its steps.
    pub(super) fn about(self) -> &'static str {
        match self {
            PeerKind::Compiled => "torch.compile, SDPA attention and a static cache, in CUDA graphs on a GPU",
            PeerKind::Eager => "launch by launch, SDPA attention, always with a cache that grows",
        }
    }
}

impl PeerArgs {
    /// Whether it is an error if PyTorch is missing.
    pub(super) fn needed(&self) -> bool {
        self.python.is_some() || self.pytorch.is_some()
    }

    /// Kinds to measure.
    pub(super) fn kinds(&self, host: bool) -> &'static [PeerKind] {
        match (self.pytorch, host) {
            (Some(Kinds::Both), _) | (None, false) => &[PeerKind::Compiled, PeerKind::Eager],
            (Some(Kinds::Compiled), _) => &[PeerKind::Compiled],
            (Some(Kinds::Eager), _) | (None, true) => &[PeerKind::Eager],
        }
    }

    /// The peer, or the reason why there is none; `None` if it is left out. The flag ends its jobs.
    pub(super) fn start(
        &self,
        interrupted: &Arc<AtomicBool>,
        output: &Output,
    ) -> Option<Result<Peer, Missing>> {
        (!self.no_pytorch).then(|| {
            let progress = Progress::start(output);
            progress.say("starting PyTorch");
            let python = self.python.clone().unwrap_or_else(|| "python3".into());
            Peer::start(python, Duration::from_secs(self.peer_limit), interrupted.clone())
        })
    }
}

/// Reason why there is no peer, and a suggested fix.
pub(super) struct Missing {
    reason: String,
    help: String,
}

impl Missing {
    /// One line for the report, or an error if the peer is needed.
    pub(super) fn note(self, needed: bool) -> Result<String, Fault> {
        let Missing { reason, help } = self;
        match needed {
            true => {
                Err(Fault::input("no-pytorch", format!("PyTorch cannot be measured: {reason}")).help(help))
            }
            false => Ok(format!("no comparison with PyTorch: {reason} ({help})")),
        }
    }
}

/// Versions of a peer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PeerVersions {
    pub(crate) python: String,
    pub(crate) torch: String,
    pub(crate) transformers: String,
}

/// First line of the process.
#[derive(Deserialize)]
#[serde(untagged)]
enum Hello {
    Here { torch: String, transformers: String, gpus: u32 },
    Missing { missing: String },
}

/// Model and place of all jobs.
#[derive(Clone, Serialize)]
pub(super) struct Setting {
    pub(super) folder: PathBuf,
    #[serde(skip)]
    pub(super) element: Element,
    device: String,
    dtype: &'static str,
    seconds: f64,
}

impl Setting {
    pub(super) fn new(args: &ModelArgs, host: bool, element: Element, seconds: f64) -> Setting {
        Setting {
            folder: args.folder.clone(),
            element,
            device: if host { "cpu".into() } else { format!("cuda:{}", args.gpu.unwrap_or(0)) },
            dtype: match element {
                Element::F16 => "float16",
                Element::Bf16 => "bfloat16",
            },
            seconds,
        }
    }
}

/// Work for the process.
#[derive(Serialize)]
#[serde(tag = "job", rename_all = "lowercase")]
pub(super) enum PeerWork<'a> {
    /// Time of a step.
    Steps { kind: PeerKind, batch: usize, cached: usize },
    /// Time to the first token of a prompt.
    First { kind: PeerKind, cached: usize },
    /// Write a checkpoint with random weights.
    Write { to: &'a Path },
    /// Generate as many tokens as these, and compare.
    Tokens { prompt: &'a [u32], tokens: &'a [u32] },
}

#[derive(Serialize)]
struct Job<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    #[serde(flatten)]
    work: PeerWork<'a>,
}

/// The peer. Its process is started again after a failure.
pub(super) struct Peer {
    pub(super) versions: PeerVersions,
    gpus: u32,
    host: Host,
    process: Option<Process>,
}

/// What a process needs to start, and how long it is waited for.
struct Host {
    python: PathBuf,
    /// Has the script and its standard error.
    folder: tempfile::TempDir,
    limit: Duration,
    interrupted: Arc<AtomicBool>,
}

struct Process {
    child: Child,
    jobs: ChildStdin,
    answers: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that a process may answer.
const ANSWERS: u64 = 1 << 24;

/// Between two looks at interrupts, and at the process.
const LOOK: Duration = Duration::from_millis(50);

impl Peer {
    fn start(python: PathBuf, limit: Duration, interrupted: Arc<AtomicBool>) -> Result<Peer, Missing> {
        let named = python.display().to_string();
        let other = "name a Python interpreter with torch and transformers: --python FILE";
        let missing = |reason: String, help: &str| Missing { reason, help: help.into() };
        let folder = tempfile::tempdir()
            .and_then(|folder| {
                std::fs::write(folder.path().join("pytorch_models.py"), cusync_bench::PYTORCH_MODELS)?;
                Ok(folder)
            })
            .map_err(|e| {
                missing(format!("no script can be written: {e}"), "set TMPDIR to a folder with room")
            })?;
        let host = Host { python, folder, limit, interrupted };
        match host.start().map_err(|reason| missing(format!("{named}: {reason}"), other))? {
            (process, Hello::Here { torch, transformers, gpus }) => Ok(Peer {
                versions: PeerVersions { python: named, torch, transformers },
                gpus,
                host,
                process: Some(process),
            }),
            (_, Hello::Missing { missing: lacks }) => {
                let help = format!("{named} -m pip install torch transformers; or {other}");
                Err(missing(format!("{named}: {lacks}"), &help))
            }
        }
    }

    /// Reason why the peer cannot run on the GPU that we use.
    pub(super) fn blind(&self, args: &ModelArgs, host: bool) -> Option<Missing> {
        let wanted = args.gpu.unwrap_or(0);
        (!host && wanted >= self.gpus).then(|| Missing {
            reason: format!("torch {} of {} has no GPU {wanted}", self.versions.torch, self.versions.python),
            help: "install torch with CUDA for this driver, or measure on the host: --cpu".into(),
        })
    }

    pub(super) fn interrupted(&self) -> bool {
        self.host.interrupted.load(Ordering::Relaxed)
    }

    /// Ends the process, which gives its memory back.
    pub(super) fn rest(&mut self) {
        self.process = None;
    }

    /// The answer to a job, or the reason why there is none: a word, or a word, a colon and details.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        setting: &Setting,
        work: PeerWork,
    ) -> Result<T, String> {
        let answer = self.answer(&Job { setting, work });
        if answer.is_err() {
            // Memory that a failure has left behind, or a GPU in error, would spoil the next answer.
            self.rest();
        }
        answer
    }

    fn answer<T: DeserializeOwned>(&mut self, job: &Job) -> Result<T, String> {
        // A process would start only to be ended.
        if self.interrupted() {
            return Err("interrupted".into());
        }
        let process = match &mut self.process {
            Some(process) => process,
            gone => gone.insert(self.host.start()?.0),
        };
        let line = serde_json::to_string(job).map_err(|e| format!("failed: {e}"))?;
        // A process that has ended is told by the missing answer.
        let _ = writeln!(process.jobs, "{line}");
        self.host.read(process)
    }
}

impl Host {
    fn errors(&self) -> PathBuf {
        self.folder.path().join("errors")
    }

    /// Starts the process, and reads its first line.
    fn start(&self) -> Result<(Process, Hello), String> {
        let failed = |e: std::io::Error| format!("does not start: {e}");
        let mut child = Command::new(&self.python)
            .arg(self.folder.path().join("pytorch_models.py"))
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(self.errors()).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let (Some(jobs), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("does not start: it has no pipes".into());
        };
        let (send, answers) = channel();
        // It ends with the pipe, which a process started by the process may keep open.
        std::thread::spawn(move || {
            let lines = BufReader::new(out.take(ANSWERS)).lines();
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let mut process = Process { child, jobs, answers };
        let hello = self.read(&mut process)?;
        Ok((process, hello))
    }

    /// The next line of a process.
    fn read<T: DeserializeOwned>(&self, process: &mut Process) -> Result<T, String> {
        let begin = Instant::now();
        let mut ended: Option<ExitStatus> = None;
        let line = loop {
            match process.answers.recv_timeout(LOOK) {
                Ok(line) => break line,
                _ if self.interrupted.load(Ordering::Relaxed) => return Err("interrupted".into()),
                // What it wrote last may come after its end.
                Err(RecvTimeoutError::Timeout) if ended.is_none() => {
                    ended = process.child.try_wait().ok().flatten();
                }
                Err(RecvTimeoutError::Timeout) => return Err(self.crash(ended)),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = process.child.try_wait().ok().flatten();
                    if status.is_some() || begin.elapsed() > 4 * LOOK {
                        return Err(self.crash(status));
                    }
                    std::thread::sleep(LOOK);
                }
            }
            if begin.elapsed() > self.limit {
                return Err(format!("no answer in {} s: raise --peer-limit", self.limit.as_secs()));
            }
        };
        let short: String = line.chars().take(200).collect();
        let value: Value = serde_json::from_str(&line).map_err(|_| format!("not JSON: {short}"))?;
        if let Some(failed) = value.get("failed").and_then(Value::as_str) {
            return Err(failed.to_owned());
        }
        serde_json::from_value(value).map_err(|_| format!("not an answer: {short}"))
    }

    /// Words for a process that has ended, with the last line of its errors.
    fn crash(&self, status: Option<ExitStatus>) -> String {
        let status = status.map_or_else(|| "it closed its output".into(), |status| status.to_string());
        let errors = std::fs::read(self.errors()).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no message");
        format!("crashed: {status}: {}", last.chars().take(200).collect::<String>())
    }
}
