//! From the text of a spec to a plan, with the few wishes that tests and benchmarks have.

use cusync_gen::check::{Candidate, Executor, Plan, check};
use cusync_gen::device::{Device as Profile, FUSED_KERNELS};
use cusync_gen::diagnostic::{Diagnostic, Span, Spanned};
use cusync_gen::graph::{Element, Resolved, StageId, StatedEdge, StatedTile};
use cusync_gen::policy::Policy;
use cusync_gen::schedule::{Mode, Request, build};

use super::error::{Error, Result};

/// The specs that ship, by name, as they were when this binary was built.
pub const SHIPPED: &[(&str, &str)] = &[
    ("gpt3_mlp", include_str!("../../policies/gpt3_mlp.ron")),
    ("llama65_mlp", include_str!("../../policies/llama65_mlp.ron")),
    ("llama3_70b_mlp", include_str!("../../policies/llama3_70b_mlp.ron")),
    ("two_gemms", include_str!("../../policies/two_gemms.ron")),
    ("chain3", include_str!("../../policies/chain3.ron")),
    ("diamond", include_str!("../../policies/diamond.ron")),
];

/// The text of a shipped spec.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// What to state in place of a spec's own statements, or of the automatic choice.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Dims by name.
    pub dims: Vec<(String, u64)>,
    /// Element type.
    pub element: Option<Element>,
    /// Policy of every edge.
    pub policy: Option<Policy>,
    /// MMA tile of every stage, (M, N) each.
    pub tiles: Option<Vec<(u32, u32)>>,
    /// Of a chain kernel; without, what is chosen automatically.
    pub chain: Option<ChainWish>,
}

/// How a chain shall be run by the `fused` executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainWish {
    /// MMA tile and CTAs of a worker, each (M, N); `None`: what is predicted to be the fastest.
    pub kernel: Option<((u32, u32), (u32, u32))>,
    /// How items are handed out.
    pub mode: Mode,
    /// Whether tiles may be cut along k.
    pub splits: bool,
}

/// Parses, resolves, chooses and proves. Refusals come as rendered text.
pub fn plan_text(
    source: &str,
    origin: &str,
    wishes: &Wishes,
    device: &Profile,
    executor: Executor,
) -> Result<Plan> {
    let refused = |d: cusync_gen::diagnostic::Diagnostic| Error::Refused(d.render(source, origin, false));
    let spec = cusync_gen::spec::parse(source, origin).map_err(refused)?;
    let mut resolved = spec.resolve(&wishes.dims).map_err(refused)?;
    apply(&mut resolved, wishes);
    match wishes.chain {
        Some(wish) if executor == Executor::Fused => chain(&resolved, device, wish).map_err(refused),
        _ => cusync_gen::choose::plan(&resolved, device, executor).map_err(refused),
    }
}

/// Proves the schedule that is predicted to be the shortest of those that a wish allows.
fn chain(resolved: &Resolved, device: &Profile, wish: ChainWish) -> std::result::Result<Plan, Diagnostic> {
    let cost = device.cost_model();
    let mut best: Option<Candidate> = None;
    let allowed = FUSED_KERNELS.iter().filter(|k| {
        let shape = ((k.tile.0, k.tile.1), k.cluster);
        device.arch == 90 && wish.kernel.is_none_or(|wanted| wanted == shape)
    });
    for kernel in allowed {
        let graph = resolved.graph(&vec![kernel.tile; resolved.stages.len()])?;
        let (ctas, cluster) = (kernel.cluster.0 * kernel.cluster.1, kernel.cluster);
        let workers = device.sms / ctas;
        let request = Request { workers, cluster, mode: wish.mode, splits: wish.splits, cost: &cost };
        let schedule = build(&graph, &request);
        let before = best.as_ref().and_then(|b| b.schedule.as_ref()).map(|s| s.predicted_us);
        if before.is_none_or(|us| schedule.predicted_us < us) {
            let mut candidate = Candidate::new(graph, device.clone(), Executor::Fused);
            candidate.schedule = Some(schedule);
            best = Some(candidate);
        }
    }
    let Some(candidate) = best else {
        let message = format!("no chain kernel for {} is as wished: {:?}", device.name, wish.kernel);
        return Err(Diagnostic::new("no-kernel", message));
    };
    let dependences = candidate.graph.dependences.clone();
    check(candidate).map_err(|refutation| refutation.to_diagnostic(resolved, &dependences))
}

fn apply(resolved: &mut Resolved, wishes: &Wishes) {
    let nowhere = Span::new(0, 0);
    if let Some(element) = wishes.element {
        resolved.element = element;
    }
    for (stage, &tile) in resolved.stages.iter_mut().zip(wishes.tiles.iter().flatten()) {
        stage.stated_tile = Some(Spanned::new(StatedTile { tile, k: None }, nowhere));
    }
    let Some(policy) = &wishes.policy else { return };
    resolved.edges.clear();
    for (consumer, stage) in resolved.stages.iter().enumerate() {
        let mut producers: Vec<StageId> =
            stage.reads.iter().filter_map(|read| resolved.tensors[read.tensor.0].producer).collect();
        producers.sort_unstable();
        producers.dedup();
        resolved.edges.extend(producers.into_iter().map(|producer| StatedEdge {
            span: nowhere,
            producer,
            consumer: StageId(consumer),
            operand: None,
            policy: Some(Spanned::new(policy.clone(), nowhere)),
            wait_at: None,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans every shipped spec for an H200 at one size.
    fn prove(m: u64, executor: Executor, policy: Option<&Policy>) {
        let profile = Profile::named("h200").expect("the profile ships");
        for (name, source) in SHIPPED {
            let wishes = Wishes { dims: vec![("M".into(), m)], policy: policy.cloned(), ..Wishes::default() };
            let plan = plan_text(source, name, &wishes, profile, executor);
            let plan = plan.unwrap_or_else(|e| panic!("{name} M = {m} {executor:?} {policy:?}: {e}"));
            assert_eq!(plan.executor(), executor);
            if let Some(policy) = policy {
                assert!(
                    plan.edges().iter().all(|e| e.policy() == policy),
                    "{name}: the stated policy is kept"
                );
            }
        }
    }

    #[test]
    fn shipped_specs_are_proved_for_every_executor() {
        for m in [1, 37, 200, 512] {
            for executor in [Executor::Serial, Executor::Streams, Executor::Programmatic] {
                prove(m, executor, None);
            }
        }
    }

    #[test]
    fn shipped_specs_are_proved_with_stated_policies() {
        for policy in [Policy::Tile, Policy::Row, Policy::Batched { rows: 2, cols: 1 }] {
            prove(512, Executor::Programmatic, Some(&policy));
        }
    }

    #[test]
    fn a_refused_spec_says_where() {
        let profile = Profile::named("h200").expect("the profile ships");
        let refused = plan_text("Pipeline(", "broken.ron", &Wishes::default(), profile, Executor::Serial);
        let Err(Error::Refused(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains("broken.ron:1"), "{text}");
    }
}
