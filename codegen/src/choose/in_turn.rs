//! The choice of `serial` and `library` if a stage has no kernel that follows an order: one kernel per stage, each for
//! that stage's operation. It runs alone, or is a chain kernel with the best tile, cluster and lists for the stage.

use super::chain::{self, chain, edge_choices};
use super::obstacles::{beyond_chains, beyond_kernels, usual_executor, without_lists};
use super::{ChainOverride, Choice};
use crate::check::{Candidate, How, Launch, Prediction, StageKernel, StageLaunch};
use crate::device::Profile;
use crate::diagnostic::Diagnostic;
use crate::graph::{MmaTile, Resolved, StageId};
use crate::obstacle::Obstacle;
use crate::simulate::{simulate, simulate_serial};

/// One kernel per stage, launched one after another: the one that runs alone if there is one, otherwise the choice of
/// [`chain`] for the stage alone. `how` tells whether cuBLASLt may replace it for a product; `asked` applies to every
/// chain kernel.
///
/// # Errors
/// Those of [`chain`], for the first stage that fails, or rows that no kernel takes.
pub fn in_turn(
    resolved: &Resolved,
    device: &Profile,
    how: How,
    asked: impl Fn(StageId) -> ChainOverride,
) -> Result<Candidate, Diagnostic> {
    if let Some(why) = beyond_kernels(resolved) {
        return Err(why.to_diagnostic(resolved, how.executor(), usual_executor(resolved, device)));
    }
    let (mut tiles, mut stages, mut choices, mut by_chain) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (stage, name) in resolved.stages.iter().enumerate().map(|(s, stage)| (StageId(s), &stage.name.value))
    {
        let only = resolved.only(stage);
        if runs_alone(&only) {
            tiles.extend(only.tiles_in(MmaTile::default(), device.sms));
            choices.push(Choice {
                subject: format!("kernel of {name}"),
                decision: "without a list".into(),
                stated: false,
                reason: "it has its launch to itself".into(),
                alternatives: Vec::new(),
            });
            stages.push(StageLaunch { kernel: StageKernel::Alone, ..StageLaunch::neutral(stage) });
            continue;
        }
        let alone = chain(&only, device, asked(stage))?;
        tiles.push(alone.graph.stages[0].mma_tile);
        let of_all = |choice: Choice| match choice.subject.as_str() {
            "chain kernel" | "schedule" => {
                Choice { subject: format!("{} of {name}", choice.subject), ..choice }
            }
            _ => choice,
        };
        let Launch::Lists(schedule) = alone.launch else { continue };
        choices.extend(alone.choices.into_iter().map(of_all));
        by_chain.push(schedule.predicted_us);
        stages.push(StageLaunch { kernel: StageKernel::Lists(schedule), ..StageLaunch::neutral(stage) });
    }
    let launch = Launch::Stages { how, stages };
    let mut c = Candidate { choices, ..Candidate::launched(resolved.graph(&tiles)?, device.clone(), launch) };
    c.edges = edge_choices(resolved, &c);
    let us = simulate(&c).total_us;
    // Alternatives are times of the whole chain, as for other choices.
    let kernels = c.choices.iter_mut().filter(|choice| choice.subject.starts_with("chain kernel of "));
    for (choice, own_us) in kernels.zip(by_chain) {
        choice.alternatives.iter_mut().for_each(|(_, other_us)| *other_us += us - own_us);
    }
    // Every executor reports the same reference: the time of `serial`.
    c.predicted = Some(Prediction { serial_us: simulate_serial(&c).total_us, synchronised_us: us });
    Ok(c)
}

/// Why neither kind of kernel runs the stage of a one-stage pipeline.
pub(super) fn unfit(only: &Resolved, device: &Profile) -> Option<Obstacle> {
    if !runs_alone(only) {
        return chain::unfit(only, device);
    }
    let stage = &only.stages[0];
    let own = || stage.op.unfit_in_any().map(|why| why.of_stage(&stage.name.value));
    without_lists(device).or_else(own).or_else(|| beyond_chains(only)).or_else(|| {
        let stated = stage.stated_tile.as_ref().map(|_| only.kernel_candidates(StageId(0), device));
        stated.and_then(|tiles| tiles.err()).map(Obstacle::from)
    })
}

/// Whether the stage of a one-stage pipeline has a kernel that runs alone.
fn runs_alone(only: &Resolved) -> bool {
    only.stages.iter().all(|stage| stage.op.runs_alone(stage.n))
}
