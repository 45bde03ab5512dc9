//! `cusync model bench`: times of a language model beside PyTorch's, and its tokens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use cusync_models::{MAX_GPU_SLOTS, Model, Next, Sampling};
use serde::{Deserialize, Serialize};

use super::peer::{Peer, PeerArgs, PeerKind, PeerVersions, PeerWork, Setting};
use super::tokens::{self, Ours, TokensReport};
use super::{ModelArgs, interrupts, open, slots};
use crate::bench::seconds;
use crate::fault::Fault;
use crate::print::{Answer, Output, Page, json};
use crate::progress::Progress;
use crate::report::counted;

#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// Numbers of texts
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = slots, default_value = "1,8,32")]
    batch: Vec<usize>,
    /// Tokens that every text has at the start
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = cached, default_value = "128,2048")]
    cached: Vec<usize>,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Generate this many greedy tokens, and compare them with PyTorch's; needs PyTorch
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) check_tokens: usize,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
}

fn cached(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|tokens| *tokens > 0).ok_or_else(|| "give a number of at least 1".into())
}

/// Times of one number of texts and cached tokens.
#[derive(Serialize)]
pub(crate) struct PointReport {
    pub(crate) batch: usize,
    pub(crate) cached: usize,
    /// Median time of a step, tokens chosen.
    pub(crate) step_us: f64,
    pub(crate) tokens_per_s: f64,
    pub(crate) read_gb_per_s: f64,
    pub(crate) read_share: Option<f64>,
    /// Median time from a prompt of `cached` tokens to its first token.
    pub(crate) first_token_ms: f64,
    /// The same in PyTorch, one per kind.
    pub(crate) peers: Vec<PeerReport>,
    /// Time of a step of the fastest peer over ours; null if a kind has no time.
    pub(crate) speedup: Option<f64>,
}

/// Times of PyTorch; null where it failed.
#[derive(Serialize)]
pub(crate) struct PeerReport {
    /// `compiled` or `eager`.
    pub(crate) kind: PeerKind,
    pub(crate) step_us: Option<f64>,
    pub(crate) first_token_ms: Option<f64>,
    /// Reason why a time is missing; the word before the colon is its kind.
    pub(crate) failed: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct ModelBenchReport {
    pub(crate) model: String,
    pub(crate) device: String,
    pub(crate) points: Vec<PointReport>,
    pub(crate) pytorch: Option<PeerVersions>,
    pub(crate) tokens: Option<TokensReport>,
    /// Whether an interrupt left out points, and with them PyTorch.
    pub(crate) interrupted: bool,
    /// Reason why there is no comparison.
    pub(crate) note: Option<String>,
}

impl Answer for ModelBenchReport {
    fn good(&self) -> bool {
        !self.interrupted && self.bad_tokens().is_none()
    }

    fn bad_status(&self) -> u8 {
        self.bad_tokens().unwrap_or(2)
    }

    fn json(&self) -> serde_json::Result<String> {
        json(self)
    }

    fn page(&self, page: &mut Page) {
        page.line(format!("{} on {}", self.model, self.device));
        let mut header =
            ["texts", "cached", "us a step", "tokens/s", "GB/s (of the memory's rate)", "first token, ms"]
                .map(str::to_owned)
                .to_vec();
        let kinds: Vec<PeerKind> =
            self.points.first().iter().flat_map(|p| &p.peers).map(|p| p.kind).collect();
        for kind in &kinds {
            header
                .extend(["us a step", "first token, ms"].map(|column| format!("{}, {column}", kind.name())));
        }
        if !kinds.is_empty() {
            header.push("speed-up".into());
        }
        let rows = self.points.iter().map(|point| point.row()).collect();
        page.wide_table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows);
        if let Some(PeerVersions { python, torch, transformers, .. }) = &self.pytorch {
            let named: Vec<_> =
                kinds.iter().map(|kind| format!("{}: {}", kind.name(), kind.about())).collect();
            page.line(format!(
                "peer: torch {torch}, transformers {transformers} of {python}, with random weights ({})",
                named.join("; "),
            ));
        }
        for (point, peer) in self.points.iter().flat_map(|p| p.peers.iter().map(move |peer| (p, peer))) {
            if let Some(failed) = &peer.failed {
                let (name, texts) = (peer.kind.name(), counted(point.batch, "text"));
                page.line(format!("{name}, {texts}, {} cached: {failed}", point.cached));
            }
        }
        if let Some(tokens) = &self.tokens {
            page.line(tokens.text(page));
        }
        if let Some(note) = &self.note {
            page.line(note);
        }
    }
}

impl ModelBenchReport {
    fn on_host(&self) -> bool {
        self.device == "host"
    }

    /// The report after an interrupt of our own measurements, which were to have so many points.
    fn cut(self, of: usize) -> ModelBenchReport {
        let note = format!("interrupted: {} of {of} points were measured, and no PyTorch", self.points.len());
        ModelBenchReport { interrupted: true, note: Some(note), ..self }
    }

    /// Exit status, if tokens are wrong or there is no verdict on them.
    fn bad_tokens(&self) -> Option<u8> {
        self.tokens.as_ref().and_then(TokensReport::status)
    }
}

impl PointReport {
    fn row(&self) -> Vec<String> {
        let share = self.read_share.map_or_else(String::new, |share| format!(" ({:.0} %)", share * 100.0));
        let mut row = vec![
            self.batch.to_string(),
            self.cached.to_string(),
            format!("{:.0}", self.step_us),
            format!("{:.0}", self.tokens_per_s),
            format!("{:.0}{share}", self.read_gb_per_s),
            format!("{:.1}", self.first_token_ms),
        ];
        for peer in &self.peers {
            let time = |time: Option<f64>, digits: usize| match (time, &peer.failed) {
                (Some(time), _) => format!("{time:.digits$}"),
                (None, Some(failed)) => failed.split(':').next().unwrap_or_default().to_owned(),
                (None, None) => "-".into(),
            };
            row.extend([time(peer.step_us, 0), time(peer.first_token_ms, 1)]);
        }
        if !self.peers.is_empty() {
            row.push(self.speedup.map_or_else(|| "-".into(), |s| format!("{s:.2}x")));
        }
        row
    }
}

pub(crate) fn bench(args: &BenchArgs, output: &Output) -> Result<ModelBenchReport, Fault> {
    tokens::check(args)?;
    let mut report = ModelBenchReport {
        model: args.model.folder.display().to_string(),
        device: String::new(),
        points: Vec::new(),
        pytorch: None,
        tokens: None,
        interrupted: false,
        note: None,
    };
    let needed = args.peer.needed() || args.check_tokens > 0;
    let interrupted = interrupts();
    let started = args.peer.start(&interrupted, output).transpose();
    // A peer that an interrupt ended is not missing.
    going(&interrupted)?;
    // What is missing is said before minutes of measurements.
    let mut peer = match started {
        Ok(peer) => peer,
        Err(missing) => {
            report.note = Some(missing.note(needed)?);
            None
        }
    };
    let longest = args.cached.iter().max().copied().unwrap_or(0);
    let mut setting = None;
    for &texts in &args.batch {
        // It leaves the memory before the next one comes, and before the peer's.
        let (mut model, _) = open(&args.model, texts, longest + 1, output)?;
        same_place(report.points.first().map(|_| report.device.as_str()), model.place(), texts)?;
        report.device = model.place().to_owned();
        if let Some(missing) = peer.as_ref().and_then(|peer| peer.blind(&args.model, report.on_host())) {
            (peer, report.note) = (None, Some(missing.note(needed)?));
        }
        setting = Some(Setting::new(&args.model, report.on_host(), model.element(), args.seconds));
        for &length in &args.cached {
            match point(&mut model, length, args.seconds, &interrupted) {
                Ok(point) => report.points.push(point),
                Err(fault) if fault.code == "interrupted" && !report.points.is_empty() => {
                    return Ok(report.cut(args.batch.len() * args.cached.len()));
                }
                Err(fault) => return Err(fault),
            }
        }
    }
    if let (Some(mut peer), Some(setting)) = (peer, setting) {
        if args.model.devices > 1 {
            report.note = Some("PyTorch runs on one device".into());
        }
        compare(args, (&mut peer, &setting), &mut report, output);
    }
    Ok(report)
}

/// Refuses texts that run at another place than those before: the device, and the peer's, are the same for all.
fn same_place(first: Option<&str>, place: &str, texts: usize) -> Result<(), Fault> {
    match first {
        Some(first) if first != place => {
            let fault = format!("{} run on `{place}`, and those before on `{first}`", counted(texts, "text"));
            let help = format!(
                "measure all on the host: --cpu; or at most {MAX_GPU_SLOTS} texts, on a GPU: --batch"
            );
            Err(Fault::input("bad-argument", fault).help(help))
        }
        _ => Ok(()),
    }
}

/// An error after an interrupt, which ends our own measurements.
fn going(interrupted: &AtomicBool) -> Result<(), Fault> {
    match interrupted.load(Ordering::Relaxed) {
        true => Err(Fault::input("interrupted", "interrupted before a measurement was complete")),
        false => Ok(()),
    }
}

/// Adds the peer's times, and its verdict on tokens.
fn compare(
    args: &BenchArgs,
    (peer, setting): (&mut Peer, &Setting),
    report: &mut ModelBenchReport,
    output: &Output,
) {
    report.pytorch = Some(peer.versions.clone());
    let ours = (args.check_tokens > 0).then(|| Ours::generate(args, peer, setting, output));
    let progress = Progress::start(output);
    let kinds = args.peer.kinds(report.on_host());
    // It is of one text, so all numbers of texts share it.
    let mut firsts: HashMap<(PeerKind, usize), Result<f64, String>> = HashMap::new();
    for point in &mut report.points {
        let &mut PointReport { batch, cached, .. } = point;
        for &kind in kinds {
            let texts = counted(batch, "text");
            progress.say(format!("PyTorch, {}: {texts}, {cached} cached", kind.name()));
            let step = peer.ask(setting, PeerWork::Steps { kind, batch, cached }).map(|PeerTime { us }| us);
            let first = firsts.entry((kind, cached)).or_insert_with(|| {
                peer.ask(setting, PeerWork::First { kind, cached }).map(|PeerTime { us }| us)
            });
            point.peers.push(PeerReport {
                kind,
                step_us: step.as_ref().ok().copied(),
                first_token_ms: first.as_ref().ok().map(|us| us / 1e3),
                failed: step.err().or_else(|| first.clone().err()),
            });
        }
        // The kind that failed might have been the fastest.
        let times: Option<Vec<f64>> = point.peers.iter().map(|peer| peer.step_us).collect();
        let fastest = times.and_then(|times| times.into_iter().min_by(f64::total_cmp));
        point.speedup = fastest.map(|fastest| fastest / point.step_us);
    }
    if let Some(ours) = ours {
        progress.say("PyTorch: tokens");
        report.tokens = Some(tokens::judge(ours, peer, setting.element));
    }
}

/// Answer of the peer to a measurement.
#[derive(Deserialize)]
struct PeerTime {
    us: f64,
}

/// Our times of a number of cached tokens.
fn point(
    model: &mut Model,
    length: usize,
    seconds: f64,
    interrupted: &AtomicBool,
) -> Result<PointReport, Fault> {
    let step_us = median(seconds, interrupted, || steps(model, length))?.as_secs_f64() * 1e6;
    let bytes = model.step_bytes() as f64;
    let prompt: Vec<u32> = (0..length as u32).map(|i| i % 200).collect();
    let first = median(seconds, interrupted, || {
        model.clear(0)?;
        let begin = Instant::now();
        if let Some((last, before)) = prompt.split_last() {
            model.append(0, before)?;
            std::hint::black_box(model.step(&[(0, *last)])?.best(0));
        }
        Ok(begin.elapsed())
    })?;
    let read = bytes / step_us * 1e6;
    Ok(PointReport {
        batch: model.slots(),
        cached: length,
        step_us,
        tokens_per_s: model.slots() as f64 / step_us * 1e6,
        read_gb_per_s: read / 1e9,
        read_share: model.read_bandwidth().map(|rate| read / rate),
        first_token_ms: first.as_secs_f64() * 1e3,
        peers: Vec::new(),
        speedup: None,
    })
}

/// Steps of a sample.
const STEPS: u32 = 16;

/// Time of a step that appends the token drawn by the one before to every text, which then has `length` tokens again.
fn steps(model: &mut Model, length: usize) -> Result<Duration, Fault> {
    let begin = Instant::now();
    let mut flight = 0;
    for number in 0..STEPS {
        (0..model.slots()).try_for_each(|slot| model.assume(slot, length))?;
        let token = (number == 0).then_some(1);
        let next = |slot| Next { slot, token, sampling: Sampling::default(), seed: 0 };
        model.queue(&(0..model.slots()).map(next).collect::<Vec<_>>())?;
        flight += 1;
        if flight == model.lookahead() {
            model.drawn()?;
            flight -= 1;
        }
    }
    while !model.drawn()?.is_empty() {}
    Ok(begin.elapsed() / STEPS)
}

/// Median of as many samples as fit into the time, at least three, behind one that warms up.
fn median(
    seconds: f64,
    interrupted: &AtomicBool,
    mut sample: impl FnMut() -> Result<Duration, Fault>,
) -> Result<Duration, Fault> {
    going(interrupted)?;
    sample()?;
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || begin.elapsed().as_secs_f64() < seconds {
        going(interrupted)?;
        times.push(sample()?);
    }
    times.sort();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::same_place;

    #[test]
    fn texts_at_another_place_than_those_before_are_refused() {
        assert!(same_place(None, "host", 64).is_ok());
        assert!(same_place(Some("H200"), "H200", 32).is_ok());
        let fault = same_place(Some("H200"), "host", 64).expect_err("the host");
        assert_eq!((fault.code, fault.status), ("bad-argument", 2));
        assert_eq!(fault.message, "64 texts run on `host`, and those before on `H200`");
        assert!(fault.help.is_some_and(|help| help.contains("--cpu") && help.contains("at most 32 texts")));
    }
}
