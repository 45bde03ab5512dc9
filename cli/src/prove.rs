//! Proves specs: a verdict on every obligation.

use cusync::runtime::Overlap;
use cusync::tune::{Key, Machine, Origin, PlanCache, answer, decisions, predicted_us};
use cusync_gen::check::{Candidate, Choice, Executor, Obligation, Plan, Refutation, Report, check, judge};
use cusync_gen::choose::{self, Choices};
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::Resolved;
use cusync_gen::spec;

use super::fault::Fault;
use super::report::{ObligationReport, ObstacleReport, PredictionReport, obstacles};
use super::source::SourceText;
use super::target::Target;

/// Pipeline of a target at its dims.
///
/// # Errors
/// The spec is refused, or a given kernel is for no Custom stage of it.
pub(crate) fn resolve(target: &Target) -> Result<Resolved, Fault> {
    let source = &target.source;
    let parsed = spec::parse(&source.text, &source.origin).and_then(|spec| spec.resolve(&target.dims));
    let mut resolved = parsed.map_err(|d| source.refused(&d))?;
    match target.kernels.iter().find(|stage| !resolved.give_kernel(stage)) {
        None => Ok(resolved),
        Some(stage) => {
            let stages = resolved.stages.iter().filter(|stage| stage.custom.is_some());
            let names: Vec<&str> = stages.map(|stage| stage.name.value.as_str()).collect();
            let have = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            let message =
                format!("the pipeline has no Custom stage `{stage}`, for which --kernel gives a kernel");
            Err(Fault::input("custom-arithmetic", message).help(format!("its Custom stages: {have}")))
        }
    }
}

/// Pipeline of a target; its device must be able to run it by itself.
///
/// # Errors
/// No executor runs it; the error has the same note as in other commands.
pub(crate) fn resolve_runnable(target: &Target) -> Result<Resolved, Fault> {
    let resolved = resolve(target)?;
    let Some((_, note)) = choose::fallback(&resolved, &target.device) else { return Ok(resolved) };
    Err(Fault::input("no-kernel", format!("{note}, so there is nothing to predict"))
        .help("`cusync check` and `cusync explain` judge it")
        .obstacles(obstacles(&resolved, &target.device)))
}

/// Error for a spec that is refused an executor, with the obstacles of the other executors.
pub(crate) fn refused(target: &Target, resolved: &Resolved, diagnostic: &Diagnostic) -> Fault {
    target.source.refused(diagnostic).obstacles(obstacles(resolved, &target.device))
}

/// A checked candidate.
pub(crate) struct Proof {
    choices: Choices,
    candidate: Candidate,
    report: Report,
    /// Executor that it was chosen for.
    pub(crate) executor: Executor,
    /// Whether it is the best predicted executor on the device, rather than a requested one.
    automatic: bool,
    /// Reason why no executor can run it on the device.
    pub(crate) note: Option<String>,
    /// Obstacles that keep executors from running it.
    pub(crate) obstacles: Vec<ObstacleReport>,
    /// One per element of [`Obligation::ALL`], in that order.
    pub(crate) obligations: Vec<ObligationReport>,
    /// Refutations that point into the spec.
    pub(crate) refutations: Vec<Diagnostic>,
    source: SourceText,
}

impl Proof {
    /// Checks a spec for an executor, or for the best predicted executor that can run on the device; if there
    /// is no such executor, for the one that [`choose::fallback`] selects.
    pub(crate) fn for_executor(target: &Target, executor: Option<Executor>) -> Result<Proof, Fault> {
        let resolved = resolve(target)?;
        let device = &target.device;
        let fallback = choose::fallback(&resolved, device);
        let stated = executor.or(fallback.as_ref().map(|(executor, _)| *executor));
        let choices = Choices::new(&resolved, device);
        let made = match stated {
            Some(executor) => choices.candidate(executor).clone().map(|c| (judge(&c), c)),
            None => choices.best().map(|(c, report)| (report, c)),
        };
        let (report, candidate) = made.map_err(|d| refused(target, &resolved, &d))?;
        let proof = Proof::judged(target, choices, (candidate, report), stated);
        Ok(Proof { automatic: stated.is_none(), note: fallback.map(|(_, note)| note), ..proof })
    }

    /// Checks a spec for an executor with a tuned plan from the cache or, without one, with the prediction;
    /// also returns the origin of the plan.
    pub(crate) fn tuned(
        target: &Target,
        executor: Executor,
        (cache, machine): (&PlanCache, &Machine),
    ) -> Result<(Proof, Origin), Fault> {
        let resolved = resolve(target)?;
        let key = Key::new(&resolved, machine, Some(executor), Overlap::Plain);
        let found = answer(&resolved, &target.device, Some(executor), cache.get(&key));
        let found = found.map_err(|d| refused(target, &resolved, &d))?;
        let choices = Choices::new(&resolved, &target.device);
        let judged = (found.candidate.clone(), judge(&found.candidate));
        Ok((Proof::judged(target, choices, judged, Some(executor)), found.origin))
    }

    fn judged(
        target: &Target,
        choices: Choices,
        (candidate, report): (Candidate, Report),
        asked: Option<Executor>,
    ) -> Proof {
        let resolved = choices.resolved();
        let point = |r: &Refutation| r.to_diagnostic(resolved, &candidate.graph.dependences);
        let refutations = report.refutations.iter().map(point).collect();
        let obligations = Obligation::ALL
            .iter()
            .map(|&obligation| {
                let refutation = report.refutation(obligation);
                ObligationReport {
                    id: obligation.id(),
                    verdict: match refutation {
                        Some(_) => "refuted",
                        None if report.complete => "proved",
                        None => "open",
                    },
                    counterexample: refutation.map(ToString::to_string),
                }
            })
            .collect();
        let executor = asked.unwrap_or_else(|| candidate.launch.executor());
        let obstacles = obstacles(resolved, &target.device);
        let source = target.source.clone();
        Proof {
            choices,
            candidate,
            report,
            executor,
            automatic: false,
            note: None,
            obstacles,
            obligations,
            refutations,
            source,
        }
    }

    /// Whether every obligation holds.
    pub(crate) fn proved(&self) -> bool {
        self.report.proved()
    }

    /// The checked pipeline.
    pub(crate) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// All decisions for the requested executor, with their alternatives and predicted costs.
    pub(crate) fn decisions(&self) -> Vec<Choice> {
        decisions(&self.choices, &self.candidate, self.executor)
    }

    /// Predicted times, if it is proved, runs on a GPU, and the model can price every stage.
    pub(crate) fn predicted(&self) -> Option<PredictionReport> {
        let unpriced = match self.executor {
            Executor::Cpu => true,
            Executor::Library => self.candidate.device.library.is_none(),
            Executor::Serial
            | Executor::Streams
            | Executor::Programmatic
            | Executor::Fused
            | Executor::Copilot => false,
        };
        if unpriced || self.note.is_some() || !self.proved() {
            return None;
        }
        let us = predicted_us(&self.candidate)?;
        Some(PredictionReport {
            device: self.candidate.device.name.clone(),
            executor: self.executor.name(),
            kernel: self.candidate.launch.kind(),
            best: self.automatic,
            serial_us: self.candidate.predicted.map(|p| p.serial_us),
            synchronised_us: us,
        })
    }

    /// The refutations as an error, if any: its fields describe the first, its text includes all.
    pub(crate) fn refuted(&self) -> Option<Fault> {
        let all: Vec<_> = self.refutations.iter().map(|d| self.source.render(d)).collect();
        let mut fault = Fault { status: 1, ..self.source.refused(self.refutations.first()?) };
        fault.place.page = Some(all.join("\n"));
        Some(fault)
    }

    /// The plan, or the refutations as an error.
    pub(crate) fn plan(self) -> Result<Plan, Fault> {
        let fault = self.refuted();
        check(self.candidate).map_err(|refutation| {
            fault.unwrap_or_else(|| Fault::refuted(refutation.obligation.id(), refutation.to_string()))
        })
    }
}
