//! Configurations worth measuring, by predicted time.

use cusync_gen::check::{Candidate, Executor, How};
use cusync_gen::choose::space::{
    self, POLICIES, SEARCHED, STRATEGIES, TileShape, chains, executors, uniform_tiles,
};
use cusync_gen::choose::{self, ChainOverride, Choices, Config};
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::{Diagnostic, Spanned};
use cusync_gen::graph::{Resolved, StageId, StatedTile};
use cusync_gen::sync::Policy;

/// Number of tile sets with which overlap is tried: those with the best predicted times under `serial`.
const TILE_SETS: usize = 4;

/// A configuration with its prediction.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The configuration.
    pub config: Config,
    /// Predicted time of a run, microseconds.
    pub predicted_us: f64,
    /// Whether it is the automatic choice for its executor.
    pub automatic: bool,
    /// Whether measurements have already chosen its kernels, stage by stage: its prediction then says nothing
    /// about its value.
    pub measured: bool,
    /// The candidate, not proved yet.
    pub candidate: Candidate,
}

impl Proposal {
    pub(super) fn new(config: Config, automatic: bool, candidate: Candidate) -> Option<Proposal> {
        let predicted_us = predicted_us(&candidate)?;
        Some(Proposal { config, predicted_us, automatic, measured: false, candidate })
    }
}

/// Predicted time of a candidate, microseconds.
pub fn predicted_us(c: &Candidate) -> Option<f64> {
    c.predicted_us()
}

/// Choice without measurements: for an executor, or the best of all.
///
/// # Errors
/// Reason why no executor can run the pipeline.
pub fn predicted(
    resolved: &Resolved,
    device: &Profile,
    executor: Option<Executor>,
) -> Result<Candidate, Diagnostic> {
    match executor {
        Some(executor) => choose::candidate(resolved, device, executor),
        None => Choices::new(resolved, device).best().map(|(candidate, _)| candidate),
    }
}

/// Configurations of an executor, or of all that the device supports, fastest predicted first, including the
/// automatic choice of each executor.
///
/// # Errors
/// Errors of [`predicted`].
pub fn proposals(
    resolved: &Resolved,
    device: &Profile,
    executor: Option<Executor>,
) -> Result<Vec<Proposal>, Diagnostic> {
    let mut all = Proposals::default();
    let mut refused = None;
    let choices = Choices::new(resolved, device);
    for executor in executor.map_or_else(|| executors(device), |one| vec![one]) {
        match choices.candidate(executor).clone() {
            Ok(automatic) => all.automatic(automatic),
            Err(diagnostic) => {
                refused = refused.or(Some(diagnostic));
                continue;
            }
        }
        match executor {
            Executor::Fused => all.fused(resolved, device),
            Executor::Serial if !resolved.own_kernels(device) => {
                all.in_turn(resolved, device);
            }
            Executor::Serial => {
                tile_sets(&choices, device)
                    .iter()
                    .for_each(|tiles| all.stages(resolved, device, executor, tiles, None));
            }
            // cuBLASLt chooses its own tiles; ours are those of the automatic choice, or measured stage by
            // stage.
            Executor::Cpu | Executor::Library | Executor::Copilot => {}
            Executor::Streams | Executor::Programmatic => {
                let mut serial = Proposals::default();
                for tiles in tile_sets(&choices, device) {
                    serial.stages(resolved, device, Executor::Serial, &tiles, None);
                }
                serial.sort();
                for set in serial.list.iter().take(TILE_SETS) {
                    let tiles = tiles_of(&set.candidate);
                    for policy in &POLICIES[..SEARCHED] {
                        all.stages(resolved, device, executor, &tiles, Some(policy));
                    }
                }
            }
        }
    }
    all.sort();
    match (all.list.is_empty(), refused) {
        (true, Some(diagnostic)) => Err(diagnostic),
        _ => Ok(all.list),
    }
}

/// Choice without measurements: the best of the automatic choices.
pub fn first_choice(proposals: &[Proposal]) -> Option<&Proposal> {
    proposals.iter().find(|p| p.automatic)
}

/// The `count` best proposals in order. Always includes the first choice, for comparison, the configurations
/// that measurements have chosen stage by stage, and the best of each executor: the model predicts
/// differences between executors less well than differences within one.
pub fn shortlist(proposals: &[Proposal], count: usize) -> Vec<Proposal> {
    let mut taken: Vec<usize> = Vec::new();
    let first = proposals.iter().position(|p| p.automatic);
    for executor in Executor::GPU {
        taken.extend(proposals.iter().position(|p| p.config.executor() == executor));
    }
    let kept = |index: &usize| Some(*index) == first || proposals[*index].measured;
    taken.sort_unstable();
    taken.retain(|index| !kept(index));
    let kept: Vec<usize> = (0..proposals.len()).filter(kept).take(count.max(1)).collect();
    taken.truncate(count.max(1) - kept.len());
    taken.extend(kept);
    for index in 0..proposals.len() {
        if taken.len() < count && !taken.contains(&index) {
            taken.push(index);
        }
    }
    taken.sort_unstable();
    taken.into_iter().map(|index| proposals[index].clone()).collect()
}

fn tiles_of(c: &Candidate) -> Vec<TileShape> {
    c.graph.stages.iter().map(|s| s.mma_tile).collect()
}

/// One shape for all stages, and the automatic choice with another shape in one stage.
fn tile_sets(choices: &Choices, device: &Profile) -> Vec<Vec<TileShape>> {
    let resolved = choices.resolved();
    let shapes = |i: usize| resolved.kernel_candidates(StageId(i), device).unwrap_or_default();
    let shapes: Vec<Vec<TileShape>> = (0..resolved.stages.len()).map(shapes).collect();
    let mut sets = uniform_tiles(&shapes);
    if let Ok(automatic) = choices.candidate(Executor::Serial) {
        let automatic = tiles_of(automatic);
        for (i, of_stage) in shapes.iter().enumerate() {
            sets.extend(of_stage.iter().map(|&shape| {
                let mut changed = automatic.clone();
                changed[i] = shape;
                changed
            }));
        }
    }
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// Proposals under construction; each configuration appears once.
#[derive(Default)]
struct Proposals {
    list: Vec<Proposal>,
}

impl Proposals {
    fn push(&mut self, config: Config, candidate: Candidate) {
        if !self.list.iter().any(|p| p.config == config) {
            self.list.extend(Proposal::new(config, false, candidate));
        }
    }

    /// Inserts the automatic choice of an executor before its other proposals. An executor that overlaps kernels may
    /// fall back to a serial chain, which `serial` may have proposed.
    fn automatic(&mut self, candidate: Candidate) {
        let Some(config) = Config::from_candidate(&candidate) else { return };
        match self.list.iter_mut().find(|p| p.config == config) {
            Some(known) => known.automatic = true,
            None => self.list.extend(Proposal::new(config, true, candidate)),
        }
    }

    fn sort(&mut self) {
        // Stable: automatic choices stay before others with the same prediction.
        self.list.sort_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    }

    /// One kernel per stage, with stated tiles, and a policy for the edges without a stated one.
    fn stages(
        &mut self,
        resolved: &Resolved,
        device: &Profile,
        executor: Executor,
        tiles: &[TileShape],
        policy: Option<&Policy>,
    ) {
        let mut stated = resolved.clone();
        for (stage, &(m, n, k)) in stated.stages.iter_mut().zip(tiles) {
            if stage.custom.is_none() {
                let tile = StatedTile { tile: (m, n), k: Some(k) };
                stage.stated_tile = Some(Spanned::new(tile, stage.name.span));
            }
        }
        if let Some(policy) = policy {
            space::state_policy(&mut stated, policy);
        }
        // A shape that does not fit a stated table does not prevent the others.
        if let Ok(candidate) = choose::candidate(&stated, device, executor)
            && let Some(config) = Config::from_candidate(&candidate)
        {
            self.push(config, candidate);
        }
    }

    /// One chain kernel per stage, all with the same parameters.
    fn in_turn(&mut self, resolved: &Resolved, device: &Profile) {
        for (mode, splits) in STRATEGIES.into_iter().take(3) {
            let asked = ChainOverride { kernel: None, mode, splits };
            let Ok(candidate) = choose::in_turn(resolved, device, How::Serial, |_| asked) else { continue };
            if let Some(Config::InTurn { library, mut stages }) = Config::from_candidate(&candidate) {
                stages.iter_mut().for_each(|stage| stage.splits = splits);
                self.push(Config::InTurn { library, stages }, candidate);
            }
        }
    }

    fn fused(&mut self, resolved: &Resolved, device: &Profile) {
        if let Ok(candidate) = choose::decode(resolved, device) {
            self.push(Config::Decode, candidate);
        }
        for asked in chains(resolved.operations()) {
            if let (Some(kernel), Ok(candidate)) = (asked.kernel, choose::chain(resolved, device, asked)) {
                self.push(Config::chain(kernel, asked.mode, asked.splits), candidate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::tests::resolved;
    use super::*;

    fn device(name: &str) -> &'static Profile {
        Profile::named(name).expect("the profile ships")
    }

    #[test]
    fn proposals_are_distinct_in_order_and_hold_every_automatic_choice() {
        for (name, m, gpu) in
            [("gpt3_mlp", 512, "h200"), ("llama65_mlp", 8, "h200"), ("diamond", 300, "a100")]
        {
            let (resolved, device) = (resolved(name, m), device(gpu));
            let all = proposals(&resolved, device, None).expect("kernels are built");
            assert!(all.windows(2).all(|w| w[0].predicted_us <= w[1].predicted_us), "{name}");
            for (i, p) in all.iter().enumerate() {
                assert!(p.predicted_us > 0.0 && p.predicted_us.is_finite(), "{}", p.config);
                assert!(all[..i].iter().all(|other| other.config != p.config), "{} twice", p.config);
                assert_eq!(p.config.executor(), p.candidate.launch.executor());
            }
            for executor in executors(device) {
                let automatic = choose::candidate(&resolved, device, executor).expect("a choice");
                let config = Config::from_candidate(&automatic).expect("a launch on a GPU");
                assert!(config.answers(executor));
                assert!(all.iter().any(|p| p.automatic && p.config == config), "{name} {executor:?}");
                let least = if executor == Executor::Library { 1 } else { 3 };
                let offered = all.iter().filter(|p| p.config.executor() == executor).count();
                assert!(offered >= least, "{name} {executor:?}");
            }
        }
    }

    #[test]
    fn a_proposal_is_what_its_configuration_states() {
        let (resolved, device) = (resolved("gpt3_mlp", 512), device("h200"));
        for p in proposals(&resolved, device, None).expect("kernels are built").iter().take(12) {
            let stated = p
                .config
                .candidate(&resolved, device)
                .unwrap_or_else(|d| panic!("{}: {}", p.config, d.message));
            assert_eq!(predicted_us(&stated), Some(p.predicted_us), "{}", p.config);
            assert_eq!(
                (stated.launch, stated.edges),
                (p.candidate.launch.clone(), p.candidate.edges.clone())
            );
        }
    }

    #[test]
    fn the_shortlist_has_the_best_and_one_of_each_executor() {
        let (resolved, device) = (resolved("gpt3_mlp", 512), device("h200"));
        let all = proposals(&resolved, device, None).expect("kernels are built");
        let few = shortlist(&all, 6);
        assert_eq!((few.len(), &few[0].config), (6, &all[0].config));
        assert!((0..6).all(|i| few[..i].iter().all(|p| p.config != few[i].config)));
        for executor in Executor::GPU {
            assert!(few.iter().any(|p| p.config.executor() == executor), "{executor:?}");
        }
        assert!(few.windows(2).all(|w| w[0].predicted_us <= w[1].predicted_us));
        let choice = first_choice(&all).expect("one is automatic");
        let same = predicted(&resolved, device, None).expect("a choice");
        assert_eq!(
            Some(&choice.config),
            Config::from_candidate(&same).as_ref(),
            "it is what is planned without measurements"
        );
        assert!(few.iter().any(|p| p.config == choice.config));
        assert_eq!(shortlist(&all, 1)[0].config, choice.config);
        assert_eq!(shortlist(&all[..2], 6).len(), 2);
    }

    #[test]
    fn what_a_spec_states_is_in_every_proposal() {
        let mut stated = resolved("gpt3_mlp", 512);
        let span = stated.stages[0].name.span;
        stated.stages[0].stated_tile = Some(Spanned::new(StatedTile { tile: (128, 128), k: None }, span));
        let all = proposals(&stated, device("h200"), None).expect("the tile is built");
        assert!(all.iter().filter(|p| p.candidate.launch.shares().is_none()).count() > 4);
        for p in &all {
            assert!(
                p.candidate.launch.shares().is_some() || p.candidate.graph.stages[0].mma_tile.0 == 128,
                "{}",
                p.config
            );
            assert!(
                p.candidate.launch.shares().is_some() || p.candidate.graph.stages[0].mma_tile.1 == 128,
                "{}",
                p.config
            );
        }
        let refused = proposals(&resolved("gpt3_mlp", 512), device("a100"), Some(Executor::Fused));
        assert!(refused.is_err_and(|d| d.message.contains("no kernels")), "not without chain kernels");
    }
}
