//! A deterministic sample of all configurations of a chain.

use std::collections::HashSet;

use cusync_gen::check::{Executor, Plan, check};
use cusync_gen::choose::space::{self, ORDERS, POLICIES, chains, executors};
use cusync_gen::choose::{self, ChainConfig, Config, EdgeConfig, StageConfig, StageExecutor};
use cusync_gen::device::{Operations, Profile};
use cusync_gen::graph::{Dependence, Resolved, StageId};
use cusync_gen::schedule::Hand;
use cusync_gen::sync::WaitAt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use cusync::runtime::Overlap;

/// A proved configuration of a chain.
pub(super) struct Way {
    pub(super) config: Config,
    /// Overlap of consecutive runs in a graph.
    pub(super) overlap: Overlap,
    pub(super) plan: Plan,
}

impl Way {
    /// Description that distinguishes it from others.
    pub(super) fn name(&self) -> String {
        let joined = if self.overlap == Overlap::Plain { "" } else { " edges" };
        format!("{}{joined} graph", self.config)
    }
}

/// Launches to draw, in turn; `None` is a chain kernel. Chain kernels and programmatic launches have the most
/// configurations, serial launches the fewest.
const TURNS: [Option<StageExecutor>; 6] = [
    None,
    Some(StageExecutor::Programmatic),
    Some(StageExecutor::Serial),
    None,
    Some(StageExecutor::Streams),
    Some(StageExecutor::Programmatic),
];

/// Draws per requested configuration: some are refused, some are duplicates.
const DRAWS: usize = 3;

/// `count` configurations of a chain: the choice of each executor, decode kernels if there are any, and for
/// the rest random combinations of kernels, tiles, orders, policies, places of waits, modes and overlap,
/// regardless of predictions. Deterministic for a spec and size.
pub(super) fn sample(resolved: &Resolved, device: &Profile, count: usize) -> Vec<Way> {
    let mut drawn: Vec<(Config, Overlap)> = Vec::new();
    let mut seen = HashSet::new();
    let mut push = |candidate: (Config, Overlap)| {
        if seen.insert(format!("{} {:?}", candidate.0, candidate.1)) {
            drawn.push(candidate);
        }
    };
    if choose::decode(resolved, device).is_ok() {
        push((Config::Decode, Overlap::Plain));
        push((Config::Decode, Overlap::Captured));
    }
    for executor in executors(device) {
        let chosen = choose::candidate(resolved, device, executor).ok();
        let config = chosen.and_then(|c| Config::from_candidate(&c));
        // Executors that fall back to a serial launch add nothing.
        config.filter(|c| c.executor() == executor).into_iter().for_each(|c| push((c, Overlap::Plain)));
    }
    let own_kernels = resolved.own_kernels(device);
    let operations = if own_kernels { Operations::products() } else { resolved.operations() };
    let mut rng = StdRng::seed_from_u64(seed(resolved));
    for turn in 0..DRAWS * count {
        let launch = TURNS[turn % TURNS.len()];
        if !executors(device).contains(&launch.map_or(Executor::Fused, StageExecutor::executor)) {
            continue;
        }
        let plain = |config| (config, Overlap::Plain);
        let candidate = match launch {
            None => chain(operations, &mut rng),
            Some(StageExecutor::Serial) if !own_kernels => in_turn(resolved, device, &mut rng).map(plain),
            Some(executor) => stages(resolved, device, executor, &mut rng).map(plain),
        };
        candidate.into_iter().for_each(&mut push);
    }
    // Planned by all cores in parallel; the first proved ones are taken.
    let proved = drawn.into_par_iter().map(|(config, overlap)| {
        let plan = check(config.candidate(resolved, device).ok()?).ok()?;
        Some(Way { config, overlap, plan })
    });
    proved.collect::<Vec<_>>().into_iter().flatten().take(count).collect()
}

/// Random seed for a spec and its dims.
fn seed(resolved: &Resolved) -> u64 {
    let digest = Sha256::digest(format!("{} {:?}", resolved.name, resolved.dims));
    digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

fn chain(operations: Operations, rng: &mut StdRng) -> Option<(Config, Overlap)> {
    let overrides: Vec<_> = chains(operations).collect();
    let asked = overrides.choose(rng)?;
    let overlap = if rng.random() { Overlap::Captured } else { Overlap::Plain };
    Some((Config::chain(asked.kernel?, asked.mode, asked.splits), overlap))
}

/// One kernel per stage: a chain kernel, or one that runs alone.
fn in_turn(resolved: &Resolved, device: &Profile, rng: &mut StdRng) -> Option<Config> {
    let mut stages = Vec::new();
    for (i, stage) in resolved.stages.iter().enumerate() {
        let (mut tile, mut cluster, mut mode, mut splits) = ((0, 0), (1, 1), Hand::Fixed, true);
        if !stage.op.runs_alone(stage.n) {
            let overrides: Vec<_> = chains(stage.op.operation().into_iter().collect()).collect();
            let asked = *overrides.choose(rng)?;
            ((tile, cluster), mode, splits) = (asked.kernel?, asked.mode, asked.splits);
        }
        if !stage.op.has_kernel_tiles() {
            let mut own = resolved.kernel_candidates(StageId(i), device).ok()?;
            own.retain(|tile| stage.op.unfit(*tile).is_none());
            tile = own.choose(rng).map(|own| (own.0, own.1))?;
        }
        stages.push(ChainConfig { stage: stage.name.value.clone(), tile, cluster, mode, splits });
    }
    Some(Config::InTurn { library: false, stages })
}

fn stages(
    resolved: &Resolved,
    device: &Profile,
    executor: StageExecutor,
    rng: &mut StdRng,
) -> Option<Config> {
    let mut stages = Vec::new();
    for (i, stage) in resolved.stages.iter().enumerate() {
        stages.push(StageConfig {
            stage: stage.name.value.clone(),
            tile: Some(*resolved.kernel_candidates(StageId(i), device).ok()?.choose(rng)?),
            order: ORDERS.choose(rng)?.clone(),
        });
    }
    let policy = POLICIES.choose(rng)?;
    // Most waits are late.
    let wait_at = if rng.random_ratio(1, 4) { WaitAt::Start } else { WaitAt::PerKBlock };
    let edge = |d: Dependence| EdgeConfig {
        from: resolved.stages[d.producer.0].name.value.clone(),
        to: resolved.stages[d.consumer.0].name.value.clone(),
        operand: resolved.stages[d.consumer.0].reads[d.operand].kind,
        policy: policy.clone(),
        wait_at,
    };
    let edges = space::dependences(resolved).map(edge).collect();
    Some(Config::Stages { executor, stages, edges })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cusync::runtime::shipped;

    fn resolved(name: &str, m: u64) -> Resolved {
        let spec = cusync_gen::spec::parse(shipped(name).expect("it ships"), name).expect("well-formed");
        spec.resolve(&[("M".into(), m)]).expect("every size is good")
    }

    #[test]
    fn a_sample_is_the_same_each_time_and_spans_executors_and_tiles() {
        let device = Profile::named("h200").expect("shipped");
        for (name, m) in [("gpt3_mlp", 8), ("llama65_mlp", 512)] {
            let resolved = resolved(name, m);
            let ways = sample(&resolved, device, 14);
            let names: Vec<String> = ways.iter().map(Way::name).collect();
            assert_eq!(ways.len(), 14, "{names:?}");
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 14, "{names:?}");
            let again: Vec<String> = sample(&resolved, device, 14).iter().map(Way::name).collect();
            assert_eq!(names, again);
            for executor in executors(device) {
                assert!(ways.iter().any(|w| w.config.executor() == executor), "{executor:?}: {names:?}");
            }
            let tiles: HashSet<_> = ways.iter().map(|w| w.plan.graph().stages[0].mma_tile).collect();
            assert!(tiles.len() >= 4, "{tiles:?}");
            assert_eq!(ways.iter().any(|w| w.config == Config::Decode), m <= 64, "{names:?}");
            // Every decision is stated, so that a configuration can be rebuilt from its text alone.
            for candidate in &ways {
                let again = candidate.config.candidate(&resolved, device).expect("it was planned");
                assert_eq!(again.launch, *candidate.plan.launch(), "{}", candidate.config);
            }
        }
    }
}
