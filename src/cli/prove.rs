//! Takes a spec to a verdict on every obligation.

use cusync::runtime::Overlap;
use cusync::tune::{Cache, Key, Machine, Origin, answer, decisions};
use cusync_gen::check::{Candidate, Choice, Executor, Obligation, Plan, Report, check, judge};
use cusync_gen::choose;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::{Dependence, Resolved};
use cusync_gen::spec;

use super::fault::Fault;
use super::report::ObligationReport;
use super::target::Target;

/// The pipeline of a target at its dims.
pub(crate) fn resolve(target: &Target) -> Result<Resolved, Fault> {
    let (text, origin) = (&target.source.text, &target.source.origin);
    let refused = |d: Diagnostic| Fault::input(d.render(text, origin, false));
    spec::parse(text, origin).and_then(|spec| spec.resolve(&target.dims)).map_err(refused)
}

/// A judged candidate.
pub(crate) struct Proof {
    resolved: Resolved,
    candidate: Candidate,
    report: Report,
    /// One for each of [`Obligation::ALL`], in that order.
    pub(crate) obligations: Vec<ObligationReport>,
    /// Refutations as they are shown to a person, pointing into the spec.
    pub(crate) refutations: Vec<String>,
}

impl Proof {
    /// Judges a spec for an executor.
    pub(crate) fn of(target: &Target, executor: Executor) -> Result<Proof, Fault> {
        let (text, origin) = (&target.source.text, &target.source.origin);
        let refused = |d: Diagnostic| Fault::input(d.render(text, origin, false));
        let resolved = resolve(target)?;
        let candidate = choose::candidate(&resolved, &target.device, executor).map_err(refused)?;
        Ok(Proof::judged(target, resolved, candidate))
    }

    /// Judges a spec for an executor as a cache of tuned plans has it, or as is predicted where it does not; and which of
    /// the two it was.
    pub(crate) fn tuned(
        target: &Target,
        executor: Executor,
        (cache, machine): (&Cache, &Machine),
    ) -> Result<(Proof, Origin), Fault> {
        let (text, origin) = (&target.source.text, &target.source.origin);
        let refused = |d: Diagnostic| Fault::input(d.render(text, origin, false));
        let resolved = resolve(target)?;
        let key = Key::of(&resolved, machine, Some(executor), Overlap::Plain);
        let found = answer(&resolved, &target.device, Some(executor), cache.get(&key)).map_err(refused)?;
        Ok((Proof::judged(target, resolved, found.candidate), found.origin))
    }

    fn judged(target: &Target, resolved: Resolved, candidate: Candidate) -> Proof {
        let (text, origin) = (&target.source.text, &target.source.origin);
        let report = judge(&candidate);
        let render = |dependences: &[Dependence]| -> Vec<String> {
            let shown = report.refutations.iter().map(|r| r.to_diagnostic(&resolved, dependences));
            shown.map(|d| d.render(text, origin, false)).collect()
        };
        let refutations = render(&candidate.graph.dependences);
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
        Proof { resolved, candidate, report, obligations, refutations }
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
    pub(crate) fn decisions(&self, asked: Executor) -> Vec<Choice> {
        decisions(&self.resolved, &self.candidate, asked)
    }

    /// The plan, or the refutations as a fault.
    pub(crate) fn plan(self) -> Result<Plan, Fault> {
        let refutations = self.refutations.join("\n");
        check(self.candidate)
            .map_err(|r| Fault::refuted(if refutations.is_empty() { r.to_string() } else { refutations }))
    }
}
