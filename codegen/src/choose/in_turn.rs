//! The choice of `serial` and `library` if a stage has no kernel of its own: one chain kernel per stage, each for that
//! stage's operation, with the best tile, cluster and lists for that stage.

use super::chain::{chain, edge_choices};
use super::{ChainOverride, Choice};
use crate::check::{Candidate, How, Launch, Prediction, StageLaunch};
use crate::device::Profile;
use crate::diagnostic::Diagnostic;
use crate::graph::{Resolved, StageId};
use crate::simulate::{runs_alone, simulate, simulate_serial};

/// One chain kernel per stage, launched one after another, each chosen by [`chain`] for its stage alone. `how` tells
/// whether cuBLASLt may replace it for a product; `asked` applies to every stage.
///
/// # Errors
/// Those of [`chain`], for the first stage that fails.
pub fn in_turn(
    resolved: &Resolved,
    device: &Profile,
    how: How,
    asked: impl Fn(StageId) -> ChainOverride,
) -> Result<Candidate, Diagnostic> {
    let (mut tiles, mut stages, mut choices, mut by_chain) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (stage, name) in resolved.stages.iter().enumerate().map(|(s, stage)| (StageId(s), &stage.name.value))
    {
        let alone = chain(&resolved.only(stage), device, asked(stage))?;
        tiles.push(alone.graph.stages[0].mma_tile);
        let of_all = |choice: Choice| match choice.subject.as_str() {
            "chain kernel" | "schedule" => {
                Choice { subject: format!("{} of {name}", choice.subject), ..choice }
            }
            _ => choice,
        };
        let Launch::Lists(schedule) = alone.launch else { continue };
        if runs_alone(&alone.graph.stages[0], device) {
            choices.push(Choice {
                subject: format!("kernel of {name}"),
                decision: "without a list".into(),
                stated: false,
                reason: "it has its launch to itself".into(),
                alternatives: Vec::new(),
            });
        } else {
            choices.extend(alone.choices.into_iter().map(of_all));
            by_chain.push(schedule.predicted_us);
        }
        stages.push(StageLaunch { lists: Some(schedule), ..StageLaunch::neutral(stage) });
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
