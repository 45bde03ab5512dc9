//! One chain kernel for each stage that no kernel runs alone, measured separately: a kernel that follows its
//! neighbors on a stream takes as long as it does without them.

use cusync_gen::check::Executor;
use cusync_gen::choose::{self, Config};
use cusync_gen::graph::{Resolved, StageId};

use super::answer::profile;
use super::confirm::{Measure, confirm};
use super::error::Result;
use super::proposals::{Proposal, proposals};
use crate::device::Device;
use crate::runtime::Overlap;

/// Proposes the launches of `serial` and `library` with the fastest measured kernel of each stage, for those
/// of the two executors that are among the proposals; nothing if they launch no chain kernels. Calls
/// `progress` as each begins.
///
/// # Errors
/// Errors of [`confirm`].
pub fn in_turn(
    all: &mut Vec<Proposal>,
    resolved: &Resolved,
    device: &Device,
    how: &Measure,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let profile = profile(device)?;
    let how = Measure { overlap: Overlap::Plain, ..*how };
    let proposed = |executor: &Executor| all.iter().any(|p| p.config.executor() == *executor);
    let executors: Vec<Executor> =
        [Executor::Serial, Executor::Library].into_iter().filter(proposed).collect();
    let Some(&first) = executors.first() else { return Ok(()) };
    let Ok(automatic) = choose::candidate(resolved, &profile, first) else { return Ok(()) };
    let Some(Config::InTurn { mut stages, .. }) = Config::from_candidate(&automatic) else { return Ok(()) };
    for (index, stage) in stages.iter_mut().enumerate() {
        let alone = resolved.only(StageId(index));
        if alone.stages[0].op.runs_alone(alone.stages[0].n) {
            continue;
        }
        let Ok(mut ways) = proposals(&alone, &profile, Some(Executor::Fused)) else { continue };
        ways.retain(|proposal| matches!(proposal.config, Config::Chain { .. }));
        let report = &mut |name: &str| progress(&format!("{}: {name}", stage.stage));
        let found = confirm(&ways, device, &how, report)?;
        if let Some(Config::Chain { tile, cluster, mode, splits }) =
            found.tried.first().map(|best| &best.config)
        {
            (stage.cluster, stage.mode, stage.splits) = (*cluster, *mode, *splits);
            if alone.stages[0].op.has_kernel_tiles() {
                stage.tile = *tile;
            }
        }
    }
    for executor in executors {
        let config = Config::InTurn { library: executor == Executor::Library, stages: stages.clone() };
        match all.iter_mut().find(|known| known.config == config) {
            Some(known) => known.measured = true,
            None => {
                let candidate = config.candidate(resolved, &profile).ok();
                let new = candidate.and_then(|candidate| Proposal::new(config, false, candidate));
                all.extend(new.map(|new| Proposal { measured: true, ..new }));
            }
        }
    }
    Ok(())
}
