//! Takes a spec to a verdict on every obligation.

use cusync::runtime::Overlap;
use cusync::tune::{Cache, Key, Machine, Origin, answer, decisions, predicted, predicted_us};
use cusync_gen::check::{Candidate, Choice, Executor, Obligation, Plan, Refutation, Report, check, judge};
use cusync_gen::choose;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::Resolved;
use cusync_gen::spec;

use super::fault::Fault;
use super::report::{ObligationReport, PredictionReport};
use super::source::Source;
use super::target::Target;

/// The pipeline of a target at its dims.
pub(crate) fn resolve(target: &Target) -> Result<Resolved, Fault> {
    let source = &target.source;
    let parsed = spec::parse(&source.text, &source.origin).and_then(|spec| spec.resolve(&target.dims));
    parsed.map_err(|d| source.refused(&d))
}

/// Why the device does not run a spec by itself, if it does not.
pub(crate) fn cannot_run(resolved: &Resolved, target: &Target) -> Option<String> {
    let why = match choose::usual_executor(resolved, &target.device) {
        (Executor::Cpu, why) => why,
        _ => resolved.own_kernel().map(|(_, why)| why),
    };
    why.map(|why| format!("cannot run on {}: {why}", target.device.name))
}

/// A judged candidate.
pub(crate) struct Proof {
    resolved: Resolved,
    candidate: Candidate,
    report: Report,
    /// The executor that it was chosen for.
    pub(crate) executor: Executor,
    /// Whether it is the best predicted of all that the device runs, and not what was asked for.
    automatic: bool,
    /// Why the device does not run it.
    pub(crate) note: Option<String>,
    /// One for each of [`Obligation::ALL`], in that order.
    pub(crate) obligations: Vec<ObligationReport>,
    /// Refutations that point into the spec.
    pub(crate) refutations: Vec<Diagnostic>,
    source: Source,
}

impl Proof {
    /// Judges a spec for an executor, or for the best predicted of all that can run on the device: `cpu` where a stage has no
    /// kernel there, and kernels launched one by one where one of them is the user's own.
    pub(crate) fn of(target: &Target, executor: Option<Executor>) -> Result<Proof, Fault> {
        let resolved = resolve(target)?;
        let device = &target.device;
        let stated = match executor {
            None if choose::usual_executor(&resolved, device).0 == Executor::Cpu => Some(Executor::Cpu),
            None if resolved.own_kernel().is_some() => Some(own_kernels(target)),
            stated => stated,
        };
        let candidate = match stated {
            Some(executor) => choose::candidate(&resolved, device, executor),
            None => predicted(&resolved, device, None),
        };
        let candidate = candidate.map_err(|d| target.source.refused(&d))?;
        let proof = Proof::judged(target, resolved, candidate, stated);
        Ok(Proof { automatic: stated.is_none(), ..proof })
    }

    /// Judges a spec for an executor as a cache of tuned plans has it, or as is predicted where it does not; and which of
    /// the two it was.
    pub(crate) fn tuned(
        target: &Target,
        executor: Executor,
        (cache, machine): (&Cache, &Machine),
    ) -> Result<(Proof, Origin), Fault> {
        let resolved = resolve(target)?;
        let key = Key::of(&resolved, machine, Some(executor), Overlap::Plain);
        let found = answer(&resolved, &target.device, Some(executor), cache.get(&key));
        let found = found.map_err(|d| target.source.refused(&d))?;
        Ok((Proof::judged(target, resolved, found.candidate, Some(executor)), found.origin))
    }

    fn judged(target: &Target, resolved: Resolved, candidate: Candidate, asked: Option<Executor>) -> Proof {
        let report = judge(&candidate);
        let point = |r: &Refutation| r.to_diagnostic(&resolved, &candidate.graph.dependences);
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
        let note = cannot_run(&resolved, target);
        let source = target.source.clone();
        Proof {
            resolved,
            candidate,
            report,
            executor,
            automatic: false,
            note,
            obligations,
            refutations,
            source,
        }
    }

    /// Whether every obligation holds.
    pub(crate) fn proved(&self) -> bool {
        self.report.proved()
    }

    /// The pipeline as it was judged.
    pub(crate) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Every decision of a choice for the executor that was asked for, with its alternatives and what they are predicted to
    /// cost.
    pub(crate) fn decisions(&self) -> Vec<Choice> {
        decisions(&self.resolved, &self.candidate, self.executor)
    }

    /// The predicted times, where a GPU runs it and the model knows what every stage costs.
    pub(crate) fn predicted(&self) -> Option<PredictionReport> {
        if self.executor == Executor::Cpu {
            return None;
        }
        if self.note.is_some() {
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

    /// The plan, or the refutations as a fault: its fields are those of the first, its text has all.
    pub(crate) fn plan(self) -> Result<Plan, Fault> {
        let Proof { candidate, refutations, source, .. } = self;
        check(candidate).map_err(|refutation| match refutations.first() {
            Some(first) => {
                let all: Vec<_> = refutations.iter().map(|d| source.render(d)).collect();
                let mut fault = Fault { status: 1, ..source.refused(first) };
                fault.place.page = Some(all.join("\n"));
                fault
            }
            None => Fault::refuted(refutation.obligation.id(), refutation.to_string()),
        })
    }
}

/// The usual executor of a device that launches kernels one by one: those of users can be among them.
pub(crate) fn own_kernels(target: &Target) -> Executor {
    if target.device.arch >= 90 { Executor::Programmatic } else { Executor::Streams }
}
