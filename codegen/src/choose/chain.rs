//! The `fused` executor's choice: a chain kernel and a schedule for it.

use std::collections::BTreeMap;

use super::obstacles::{beyond_chains, beyond_kernels, usual_executor, without_lists};
use super::space;
use crate::check::{Candidate, Choice, EdgeChoice, Executor, Launch, linearise};
use crate::device::{CHAIN_KERNELS, ChainKernel, Profile};
use crate::diagnostic::Diagnostic;
use crate::graph::{Conv, Dependence, Graph, Op, Resolved, ResolvedStage, Stage, StageId, producers_of};
use crate::obstacle::Obstacle;
use crate::schedule::{Chosen, Hand, Part, Schedule, Wanted, choose, uncounted};
use crate::sync::{Policy, Tile, WaitAt};

/// Overrides for the choice of a chain kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainOverride {
    /// MMA tile and CTAs per worker, each (M, N); `None`: the fastest by prediction.
    pub kernel: Option<((u32, u32), (u32, u32))>,
    /// How items are handed out.
    pub mode: Hand,
    /// Whether tiles may be split along k. Without splits, results are bit-identical between runs.
    pub splits: bool,
}

impl Default for ChainOverride {
    fn default() -> Self {
        ChainOverride { kernel: None, mode: Hand::Fixed, splits: true }
    }
}

/// The chain kernel and schedule with the shortest predicted time among those the overrides allow. Policies and wait
/// places are as stated, otherwise one slot per tile and before each k-block.
///
/// # Errors
/// Why none of them can run it: see [`super::obstacle`].
pub fn chain(resolved: &Resolved, device: &Profile, asked: ChainOverride) -> Result<Candidate, Diagnostic> {
    let refused =
        |why: Obstacle| why.to_diagnostic(resolved, Executor::Fused, usual_executor(resolved, device));
    let kernels = allowed(resolved, device, asked).map_err(refused)?;
    let cost = device.cost_model(resolved.operations());
    let wanted = Wanted { device, mode: asked.mode, splits: asked.splits, cost: &cost };
    let mut unfit = Vec::new();
    let graph = |kernel: &ChainKernel| fitted(resolved, device, kernel).map_err(|why| unfit.push(why)).ok();
    let Some(chosen) = choose(&wanted, kernels, graph) else {
        let none = || Obstacle::new("no chain kernel fits");
        return Err(refused(Obstacle::nearest(unfit).unwrap_or_else(none)));
    };
    let choices = made(&chosen);
    let launch = Launch::Lists(chosen.schedule);
    let mut best = Candidate::launched(chosen.graph, device.clone(), launch);
    best.edges = edge_choices(resolved, &best);
    if best.edges.iter().any(|e| e.policy != Policy::Tile) {
        linearise(&mut best);
    }
    best.choices = [choices, cuts(&best), policies(resolved, &best)].concat();
    Ok(best)
}

/// The policy and wait place of each edge, as stated, otherwise one slot per tile.
pub(super) fn edge_choices(resolved: &Resolved, c: &Candidate) -> Vec<EdgeChoice> {
    let choice = |dependence| {
        let stated = resolved.stated_edge(dependence);
        EdgeChoice {
            policy: stated.and_then(|s| s.policy.as_ref()).map_or(Policy::Tile, |p| p.value.clone()),
            wait_at: stated
                .and_then(|s| s.wait_at.as_ref())
                .map_or_else(|| place_of_wait(&c.graph, dependence), |w| w.value),
        }
    };
    c.graph.dependences.iter().map(choice).collect()
}

/// Why no chain kernel can run a pipeline.
pub(super) fn unfit(resolved: &Resolved, device: &Profile) -> Option<Obstacle> {
    let mut unfit = Vec::new();
    let kernels = match allowed(resolved, device, ChainOverride::default()) {
        Ok(kernels) => kernels,
        Err(why) => return Some(why),
    };
    for kernel in kernels {
        match fitted(resolved, device, kernel) {
            Ok(_) => return None,
            Err(why) => unfit.push(why),
        }
    }
    Obstacle::nearest(unfit)
}

/// The graph in the tiles of a chain kernel that can run it.
fn fitted(resolved: &Resolved, device: &Profile, kernel: &ChainKernel) -> Result<Graph, Obstacle> {
    // A single shape may be rejected, for example by a stated slot table.
    let graph = resolved.graph(&resolved.tiles_in(kernel.tile, device.sms))?;
    let unfit = |(stage, resolved): (&Stage, &ResolvedStage)| {
        let unfit = stage.op.unfit(stage.mma_tile).map(|why| unfit_tile(resolved, why));
        unfit.or_else(|| uncounted(stage, kernel.cluster))
    };
    graph.stages.iter().zip(&resolved.stages).find_map(unfit).map_or(Ok(graph), Err)
}

/// Why a stage does not run in a tile: if another tile would work, its statement is the obstacle.
pub(super) fn unfit_tile(stage: &ResolvedStage, why: Obstacle) -> Obstacle {
    let why = why.of_stage(&stage.name.value);
    let Some(stated) = stage.stated_tile.as_ref().filter(|_| stage.op.unfit_in_any().is_none()) else {
        return why;
    };
    let (m, n) = stated.value.tile;
    let statement =
        Diagnostic::new("no-kernel", format!("no kernel runs it in the stated tile ({m}, {n}): {why}"))
            .at(stated.span, format!("stated for `{}`", stage.name.value))
            .help("leave the tile out and one that fits is chosen, or run it with `--executor cpu`");
    Obstacle { stage: why.stage, reason: why.reason, numbers: why.numbers, ..statement.into() }
}

/// Before each k-block, except when every k-block reads the same several tiles: then at the start, where lanes poll
/// them in parallel.
fn place_of_wait(graph: &Graph, dependence: &Dependence) -> WaitAt {
    let k_blocks = graph.stages[dependence.consumer.0].k_blocks;
    let read = |k| producers_of(graph, dependence, Tile { m: 0, n: 0 }, k);
    let (first, last) = (read(0), read(k_blocks.saturating_sub(1)));
    let many = first.m.len() * first.n.len() > 1;
    // Every k-block of a window waits for the same rows of tiles, and a single lane would poll them serially.
    let halo = graph.stages[dependence.consumer.0].op.rules().has_halo();
    if many && (halo || (&first.m, &first.n) == (&last.m, &last.n)) {
        WaitAt::Start
    } else {
        WaitAt::PerKBlock
    }
}

/// The chain kernels allowed by a spec and the overrides.
fn allowed(
    resolved: &Resolved,
    device: &Profile,
    asked: ChainOverride,
) -> Result<Vec<&'static ChainKernel>, Obstacle> {
    without_lists(device).or_else(|| beyond_kernels(resolved)).map_or(Ok(()), Err)?;
    let without = |stage: &ResolvedStage| {
        let none = |why: &str| Obstacle::new(format!("is {}, which {why}", stage.op.name()));
        let beside =
            || stage.op.unfit_beside_others().filter(|_| !stage.op.in_chain() || resolved.stages.len() > 1);
        let unfit = match stage.op.unfit_in_any().or_else(beside) {
            Some(unfit) => unfit,
            None if stage.op.in_chain() => return None,
            None if stage.op.is_custom() => none("its owner's kernel runs"),
            None if stage.op.has_kernel(device.arch, Executor::Fused) => none("only decode kernels run"),
            None => none("no chain kernel runs"),
        };
        Some(unfit.of_stage(&stage.name.value))
    };
    resolved.stages.iter().find_map(without).map_or(Ok(()), Err)?;
    beyond_chains(resolved).map_or(Ok(()), Err)?;
    let mut kernels: Vec<&ChainKernel> = space::chain_kernels(resolved.operations(), asked).collect();
    // A cluster loads slices of its rows in the shape of the tensor.
    if resolved.awaits_views() {
        kernels.retain(|kernel| kernel.cluster.1 == 1);
    }
    if kernels.is_empty() {
        let none = || Obstacle::new(format!("no chain kernel is as asked for: {asked:?}"));
        return Err(apart(resolved).unwrap_or_else(none));
    }
    for (index, stage) in resolved.stages.iter().enumerate() {
        let Some(stated) = &stage.stated_tile else { continue };
        if !stage.op.has_kernel_tiles() {
            resolved.kernel_candidates(StageId(index), device)?;
            continue;
        }
        let fits = |k: &&ChainKernel| {
            (k.tile.0, k.tile.1) == stated.value.tile && stated.value.k.is_none_or(|deep| deep == k.tile.2)
        };
        kernels.retain(fits);
        if kernels.is_empty() {
            let mut built: Vec<String> =
                CHAIN_KERNELS.iter().map(|k| format!("({}, {})", k.tile.0, k.tile.1)).collect();
            built.dedup();
            let (m, n) = stated.value.tile;
            return Err(Diagnostic::new(
                "no-kernel",
                format!("no chain kernel has the stated tile ({m}, {n})"),
            )
            .at(stated.span, format!("stated for `{}`", stage.name.value))
            .note(format!("one kernel runs all stages with one tile; built are {}", built.join(", ")))
            .help("state one of them for every stage, or leave the tiles out and they are chosen")
            .into());
        }
    }
    Ok(kernels)
}

/// If each stage has a chain kernel: the first stage that cannot share one with the stages before it.
fn apart(resolved: &Resolved) -> Option<Obstacle> {
    let mut operations = Vec::new();
    let stage = resolved.stages.iter().find(|stage| {
        operations.extend(stage.op.operation());
        ChainKernel::running(operations.iter().copied().collect()).next().is_none()
    })?;
    let text = format!("is {}, which no chain kernel runs beside the stages before it", stage.op.name());
    // Convolutions and pools use other chain kernels than GEMMs and normalizations.
    let help = "a GEMM is a Conv2d of 1 x 1 taps over images of 1 x 1 pixels, too";
    Some(Obstacle::new(text).help(help).of_stage(&stage.name.value))
}

fn kernel_name(kernel: &ChainKernel) -> String {
    let ((m, n, k), (rows, cols)) = (kernel.tile, kernel.cluster);
    let cluster =
        if kernel.cluster == (1, 1) { String::new() } else { format!(", clusters of {rows} x {cols}") };
    format!("{m} x {n} x {k}{cluster}")
}

/// The choices of kernel and schedule.
fn made(chosen: &Chosen) -> Vec<Choice> {
    let Chosen { kernel, schedule, tried, .. } = chosen;
    let others = tried.iter().filter(|(k, _)| k != kernel);
    let mut others: Vec<(String, f64)> = others.map(|(k, us)| (kernel_name(k), *us)).collect();
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    let kernel = Choice {
        subject: "chain kernel".into(),
        decision: kernel_name(kernel),
        stated: tried.len() == 1,
        reason: match tried.len() {
            1 => "the only one that the statements leave".into(),
            n => format!("its schedule is predicted to be the shortest of {n}"),
        },
        alternatives: others,
    };
    let schedule = Choice {
        subject: "schedule".into(),
        decision: in_words(schedule),
        stated: false,
        reason: match schedule.mode {
            Hand::Fixed => {
                "every worker knows its list beforehand, which costs no draw and repeats exactly".into()
            }
            Hand::Drawn => "a worker that is done early takes more".into(),
        },
        alternatives: Vec::new(),
    };
    vec![kernel, schedule]
}

/// How tiles read images, and which tiles are split across workers.
fn cuts(c: &Candidate) -> Vec<Choice> {
    let Some(schedule) = c.launch.lists() else { return Vec::new() };
    let mut choices = Vec::new();
    let mut add = |subject: String, decision: String, reason: String| {
        choices.push(Choice { subject, decision, stated: false, reason, alternatives: Vec::new() });
    };
    for (index, stage) in c.graph.stages.iter().enumerate() {
        if let Op::Conv2d(Conv { window: Some(window), sliding, .. }) = &stage.op {
            let (kept, slots) = (stage.out_tile().0, stage.op.rows_multiplied(stage.mma_tile));
            let loaded = stage.op.rows_loaded(kept) * f64::from(sliding.filter.0 * sliding.filter.1);
            let decision = match window.images {
                1 => format!("{} of the {} rows of an image", window.rows, sliding.output.0),
                images => format!("{images} images"),
            };
            let waste = 100.0 * (1.0 - f64::from(kept) / f64::from(slots));
            let reason = format!(
                "{kept} of {slots} slots that are multiplied are pixels of the output, {waste:.1} % are waste; {loaded:.0} pixels of 64 channels serve {} taps",
                sliding.filter.0 * sliding.filter.1
            );
            add(format!("window of {}", stage.name), decision, reason);
        }
        // For each cluster tile, the k-blocks of each part.
        let mut tiles: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        let cut = schedule.sequence.iter().filter(|item| item.stage.0 == index && item.part != Part::Whole);
        cut.for_each(|item| tiles.entry((item.m, item.n)).or_default().push(item.k_end - item.k_begin));
        let parts = tiles.values().map(|parts| parts.len() as u32);
        if let Some(parts) = span(parts) {
            let (rows, cols) = schedule.cluster;
            let all = stage.grid.0.div_ceil(rows) * stage.grid.1.div_ceil(cols);
            let blocks = span(tiles.values().flatten().copied()).unwrap_or_default();
            let decision = format!("{} of {all} tiles in {parts}", tiles.len());
            let reason = format!("a part multiplies {blocks} of a tile's {} k-blocks", stage.k_blocks);
            add(format!("parts of {}", stage.name), decision, reason);
        }
    }
    choices
}

/// `8`, or `3 to 8`.
fn span(numbers: impl Iterator<Item = u32> + Clone) -> Option<String> {
    let (least, most) = (numbers.clone().min()?, numbers.max()?);
    Some(if least == most { most.to_string() } else { format!("{least} to {most}") })
}

/// The choices of policies.
fn policies(resolved: &Resolved, c: &Candidate) -> Vec<Choice> {
    let mut choices = Vec::new();
    for (edge, dependence) in c.graph.dependences.iter().enumerate() {
        let slots = c.edges[edge].policy.on(c.graph.stages[dependence.producer.0].grid).slot_count;
        choices.push(Choice {
            subject: format!("policy of {}", c.edge_name(edge)),
            decision: c.edges[edge].policy.to_string(),
            stated: resolved.stated_edge(dependence).is_some_and(|s| s.policy.is_some()),
            reason: format!("{slots} slots; {}", super::policy_reason(&c.edges[edge].policy)),
            alternatives: Vec::new(),
        });
    }
    choices
}

/// `132 workers, 1152 items, 12 tiles in 31 parts`.
fn in_words(schedule: &Schedule) -> String {
    let parts = schedule.sequence.iter().filter(|i| i.part != Part::Whole).count();
    let split = schedule
        .sequence
        .iter()
        .filter(|i| matches!(i.part, Part::Finish { .. } | Part::Share { part: 0, .. }))
        .count();
    let splits = match split {
        0 => "no tile is split".into(),
        n => format!("{n} tiles are split into {parts} parts"),
    };
    format!("{} workers, {} items, {splits}", schedule.lists.len(), schedule.sequence.len())
}
