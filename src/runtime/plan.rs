//! Plans from the text of a spec, with the overrides that tests and benchmarks need.

use cusync_gen::check::{Executor, Plan};
pub use cusync_gen::choose::ChainOverride;
use cusync_gen::choose::{self, space};
use cusync_gen::device::Profile;
use cusync_gen::diagnostic::{Diagnostic, Span, Spanned};
use cusync_gen::graph::{Element, Resolved, StatedTile};
use cusync_gen::sync::Policy;

use super::error::{Error, Result};

/// Shipped specs by name, as of the build of this binary.
pub const SHIPPED: &[(&str, &str)] = &[
    ("gpt3_mlp", include_str!("../../policies/gpt3_mlp.ron")),
    ("llama65_mlp", include_str!("../../policies/llama65_mlp.ron")),
    ("llama3_70b_mlp", include_str!("../../policies/llama3_70b_mlp.ron")),
    ("llama65_norm_mlp", include_str!("../../policies/llama65_norm_mlp.ron")),
    ("qwen3_moe", include_str!("../../policies/qwen3_moe.ron")),
    ("two_gemms", include_str!("../../policies/two_gemms.ron")),
    ("chain3", include_str!("../../policies/chain3.ron")),
    ("diamond", include_str!("../../policies/diamond.ron")),
    ("resnet_layer", include_str!("../../policies/resnet_layer.ron")),
    ("vgg_layer", include_str!("../../policies/vgg_layer.ron")),
    ("sd_resnet", include_str!("../../policies/sd_resnet.ron")),
    ("mobilenetv2", include_str!("../../policies/mobilenetv2.ron")),
    ("resnet38_layer1", include_str!("../../policies/resnet38_layer1.ron")),
    ("resnet38_layer2", include_str!("../../policies/resnet38_layer2.ron")),
    ("resnet38_layer3", include_str!("../../policies/resnet38_layer3.ron")),
    ("resnet38_layer4", include_str!("../../policies/resnet38_layer4.ron")),
    ("resnet38_body", include_str!("../../policies/resnet38_body.ron")),
    ("vgg19_block1", include_str!("../../policies/vgg19_block1.ron")),
    ("vgg19_block2", include_str!("../../policies/vgg19_block2.ron")),
    ("vgg19_block3", include_str!("../../policies/vgg19_block3.ron")),
    ("vgg19_block4", include_str!("../../policies/vgg19_block4.ron")),
    ("vgg19_body", include_str!("../../policies/vgg19_body.ron")),
    ("gpt3_attention", include_str!("../../policies/gpt3_attention.ron")),
    ("llama65_attention", include_str!("../../policies/llama65_attention.ron")),
    ("llama3_70b_attention", include_str!("../../policies/llama3_70b_attention.ron")),
    ("gpt3_generate", include_str!("../../policies/gpt3_generate.ron")),
    ("llama65_generate", include_str!("../../policies/llama65_generate.ron")),
    ("llama3_70b_generate", include_str!("../../policies/llama3_70b_generate.ron")),
    ("gpt3_layer", include_str!("../../policies/gpt3_layer.ron")),
    ("llama65_layer", include_str!("../../policies/llama65_layer.ron")),
    ("llama3_70b_layer", include_str!("../../policies/llama3_70b_layer.ron")),
    ("llama3_8b_halves", include_str!("../../policies/llama3_8b_halves.ron")),
    ("gpt3_prompt_layer", include_str!("../../policies/gpt3_prompt_layer.ron")),
    ("llama65_prompt_layer", include_str!("../../policies/llama65_prompt_layer.ron")),
    ("llama3_70b_prompt_layer", include_str!("../../policies/llama3_70b_prompt_layer.ron")),
];

/// Text of a shipped spec.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// Overrides of a spec's statements or of the automatic choice.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Dims by name.
    pub dims: Vec<(String, u64)>,
    /// Element type.
    pub element: Option<Element>,
    /// Policy for every edge.
    pub policy: Option<Policy>,
    /// MMA tile of every stage, (M, N) each.
    pub tiles: Option<Vec<(u32, u32)>>,
    /// Requirements on a chain kernel; chosen automatically if absent.
    pub chain: Option<ChainOverride>,
    /// Use a decode kernel instead of a chain kernel.
    pub decode: bool,
}

/// Parses, resolves, chooses and proves. Refusals are rendered text.
pub fn plan_text(
    source: &str,
    origin: &str,
    overrides: &Overrides,
    device: &Profile,
    executor: Executor,
) -> Result<Plan> {
    let plan = plan_source(source, origin, overrides, device, executor);
    plan.map_err(|d| Error::Refused(d.render(source, origin, false)))
}

/// [`plan_text`] with refusals as data.
///
/// # Errors
/// The first fault, with its location in `source`.
pub fn plan_source(
    source: &str,
    origin: &str,
    overrides: &Overrides,
    device: &Profile,
    executor: Executor,
) -> std::result::Result<Plan, Diagnostic> {
    let resolved = resolve_source(source, origin, overrides)?;
    let candidate = match overrides.chain.filter(|_| executor == Executor::Fused) {
        _ if overrides.decode && executor == Executor::Fused => choose::decode(&resolved, device),
        Some(asked) => choose::chain(&resolved, device, asked),
        None => choose::candidate(&resolved, device, executor),
    };
    candidate.and_then(|candidate| choose::prove(&resolved, candidate))
}

/// Parses and resolves with overrides applied; this is the input of the automatic choice. Refusals are
/// rendered text.
pub fn resolve_text(source: &str, origin: &str, overrides: &Overrides) -> Result<Resolved> {
    resolve_source(source, origin, overrides).map_err(|d| Error::Refused(d.render(source, origin, false)))
}

fn resolve_source(
    source: &str,
    origin: &str,
    overrides: &Overrides,
) -> std::result::Result<Resolved, Diagnostic> {
    let mut resolved = cusync_gen::spec::parse(source, origin)?.resolve(&overrides.dims)?;
    apply(&mut resolved, overrides);
    Ok(resolved)
}

fn apply(resolved: &mut Resolved, overrides: &Overrides) {
    let nowhere = Span::new(0, 0);
    if let Some(element) = overrides.element {
        resolved.element = element;
    }
    for (stage, &tile) in resolved.stages.iter_mut().zip(overrides.tiles.iter().flatten()) {
        stage.stated_tile = Some(Spanned::new(StatedTile { tile, k: None }, nowhere));
    }
    let Some(policy) = &overrides.policy else { return };
    resolved.edges.clear();
    space::state_policy(resolved, policy);
}

#[cfg(test)]
mod tests {
    use cusync_gen::check::{StageKernel, StageLaunch};

    use super::*;

    /// Dims that determine a spec's rows: tokens, prompt length or images.
    fn rows(source: &str, m: u64) -> Vec<(String, u64)> {
        let spec = cusync_gen::spec::parse(source, "shipped").expect("it parses");
        let size = |name: &str| match name {
            "M" | "S" => Some(m),
            "B" => Some(m.div_ceil(200)),
            _ => None,
        };
        spec.dims().filter_map(|(name, _)| size(name).map(|size| (name.to_owned(), size))).collect()
    }

    /// Plans every shipped spec for an H200 at one size. Specs with a stage that the executor has no kernel
    /// for use their usual executor.
    fn prove(m: u64, executor: Executor, policy: Option<&Policy>) {
        let profile = Profile::named("h200").expect("the profile ships");
        for (name, source) in SHIPPED {
            let resolved = resolve_text(source, name, &Overrides::default()).expect("valid");
            let kernels = choose::obstacle(&resolved, profile, executor).is_none();
            // A decode kernel has its own policies.
            let decodes = policy.is_some() && resolved.stages.iter().any(|s| !s.op.in_chain());
            let executor = match kernels {
                true => executor,
                false if decodes => Executor::Cpu,
                false => choose::usual_executor(&resolved, profile),
            };
            let overrides =
                Overrides { dims: rows(source, m), policy: policy.cloned(), ..Overrides::default() };
            let plan = plan_text(source, name, &overrides, profile, executor);
            let plan = plan.unwrap_or_else(|e| panic!("{name} M = {m} {executor:?} {policy:?}: {e}"));
            assert!(plan.runs_as(executor), "{name}: {:?}", plan.launch());
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
    fn a_stage_without_a_kernel_gets_no_launch_on_a_gpu() {
        for (device, specs) in [
            ("h200", [("resnet_layer", "`first`"), ("llama65_attention", "`attend`")]),
            ("a100", [("vgg19_body", "`pool2`"), ("llama65_attention", "`attend`")]),
        ] {
            let profile = Profile::named(device).expect("the profile ships");
            for (name, stage) in specs {
                let attends = name == "llama65_attention";
                let plan = |executor| {
                    plan_text(shipped(name).expect("ships"), name, &Overrides::default(), profile, executor)
                };
                // Chain kernels run convolutions, and attentions have kernels that run alone, both on Hopper.
                let chains = device == "h200";
                for executor in Executor::GPU {
                    if executor == Executor::Fused {
                        match plan(executor) {
                            Ok(plan) => assert!(chains && !attends && plan.launch().lists().is_some()),
                            Err(e) => {
                                let says =
                                    if chains { "neither waits nor posts" } else { "no kernels for a100" };
                                assert!((attends || !chains) && e.to_string().contains(says), "{e}")
                            }
                        }
                        continue;
                    }
                    let in_library = executor == Executor::Library && attends;
                    if chains && (executor == Executor::Serial || in_library) {
                        let plan = plan(executor).expect("a kernel a stage");
                        let ordered = |k: &StageLaunch| k.kernel == StageKernel::Ordered;
                        assert!(!plan.launch().kernels().iter().any(ordered), "{name}");
                        assert!(plan.runs_as(executor) && plan.predicted().is_some(), "{name}");
                        continue;
                    }
                    let Err(Error::Refused(text)) = plan(executor) else { panic!("{name} {executor:?}") };
                    let says = match executor {
                        Executor::Programmatic if !chains => ["sm_90", device, "cannot run", "cpu executor"],
                        _ => {
                            let [why, other] = match (chains, attends) {
                                (false, _) => ["no kernel of its own", "cpu executor"],
                                (true, false) => ["no kernel of its own", "fused executor runs it"],
                                (true, true) => ["neither waits nor posts", "serial executor runs it"],
                            };
                            [stage, why, "cannot run", other]
                        }
                    };
                    assert!(says.iter().all(|part| text.contains(part)), "{text}");
                }
                let host = plan(Executor::Cpu).expect("proved");
                assert_eq!(host.predicted(), None, "{name}: no kernel, no time");
                let priced = host.choices().iter().any(|c| !c.alternatives.is_empty());
                assert!(!priced, "{name}: {:?}", host.choices());
            }
        }
    }

    /// Kernels for sm_80 use window tiles, so images that no window fits are refused by name.
    #[test]
    fn convolutions_have_kernels_of_their_own_on_ampere() {
        let profile = Profile::named("a100").expect("the profile ships");
        let plan = |hw, executor| {
            let dims = vec![("B".into(), 2), ("HW".into(), hw)];
            let overrides = Overrides { dims, ..Overrides::default() };
            plan_text(shipped("resnet_layer").expect("ships"), "resnet_layer", &overrides, profile, executor)
        };
        for executor in [Executor::Serial, Executor::Streams] {
            let small = plan(56, executor).unwrap_or_else(|e| panic!("{executor:?}: {e}"));
            assert!(small.runs_as(executor) && small.predicted().is_some());
            let tiles: Vec<_> = small.graph().stages.iter().map(|s| s.mma_tile).collect();
            assert!(tiles.iter().all(|t| [(64, 64, 64), (128, 64, 64)].contains(t)), "{tiles:?}");
            let Err(Error::Refused(text)) = plan(224, executor) else { panic!("{executor:?}") };
            let says = ["stage `first`", executor.name(), "no window fits", "cpu executor runs it"];
            assert!(says.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_refused_spec_says_where() {
        let profile = Profile::named("h200").expect("the profile ships");
        let refused = plan_text("Pipeline(", "broken.ron", &Overrides::default(), profile, Executor::Serial);
        let Err(Error::Refused(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains("broken.ron:1"), "{text}");
    }
}
