//! From a spec to a verdict on every obligation.

use cusync_gen::check::{Candidate, Executor, Obligation, Plan, Report, check, judge};
use cusync_gen::choose;
use cusync_gen::diagnostic::Diagnostic;
use cusync_gen::graph::{Dependence, Resolved};
use cusync_gen::spec;

use super::fault::Fault;
use super::report::ObligationReport;
use super::request::Target;

/// A judged candidate.
pub(crate) struct Proof {
    candidate: Candidate,
    report: Report,
    /// In the order of [`Obligation::ALL`].
    pub(crate) obligations: Vec<ObligationReport>,
    /// Refutations as they are shown to a person, pointing into the spec.
    pub(crate) refutations: Vec<String>,
}

impl Proof {
    /// Judges a spec for an executor.
    pub(crate) fn of(target: &Target, executor: Executor) -> Result<Proof, Fault> {
        let (text, origin) = (&target.source.text, &target.source.origin);
        let refused = |d: Diagnostic| Fault::input(d.render(text, origin, false));
        let parsed = spec::parse(text, origin).map_err(refused)?;
        let resolved = parsed.resolve(&target.dims).map_err(refused)?;
        let candidate = choose::candidate(&resolved, &target.device, executor).map_err(refused)?;
        let report = judge(&candidate);
        let render = |resolved: &Resolved, dependences: &[Dependence]| -> Vec<String> {
            let shown = report.refutations.iter().map(|r| r.to_diagnostic(resolved, dependences));
            shown.map(|d| d.render(text, origin, false)).collect()
        };
        let refutations = render(&resolved, &candidate.graph.dependences);
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
        Ok(Proof { candidate, report, obligations, refutations })
    }

    /// Whether every obligation holds.
    pub(crate) fn proved(&self) -> bool {
        self.report.proved()
    }

    /// The pipeline as it was judged.
    pub(crate) fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// The plan, or the refutations as a fault.
    pub(crate) fn plan(self) -> Result<Plan, Fault> {
        let refutations = self.refutations.join("\n");
        check(self.candidate)
            .map_err(|r| Fault::refuted(if refutations.is_empty() { r.to_string() } else { refutations }))
    }
}
