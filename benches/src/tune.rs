//! Short measurements to select configurations, so that both sides of a comparison are at their best.

use cusync_gen::check::{Executor, Plan, check};
use cusync_gen::device::{KernelShape, Operation};
use cusync_gen::graph::Resolved;

use super::point::{Field, Point, VariantSpec};
use super::record::{LayerReport, Role};
use super::{Error, Result};
use cusync::device::{Kernel, LaunchAttributes, Stream};
use cusync::measure::{GraphVariant, PipelineVariant, quick};
use cusync::runtime::{InputSets, Options, Overlap, Overrides};
use cusync::tune::Measure;
use cusync_gen::choose::space::chains;

/// Samples per configuration.
const SAMPLES: usize = 3;

/// Tile of each stage with which its kernel alone is the fastest.
pub(super) fn serial_tiles(point: &Point<'_>, inputs: &InputSets) -> Result<Vec<(u32, u32)>> {
    let mut best: Vec<(f64, (u32, u32))> = Vec::new();
    for kernel in KernelShape::built(point.profile.arch, Operation::Gemm) {
        let tile = (kernel.tile.0, kernel.tile.1);
        let stages = point.plan(Executor::Serial, Overrides::default())?.graph().stages.len();
        let overrides = Overrides { tiles: Some(vec![tile; stages]), ..Overrides::default() };
        let plan = point.plan(Executor::Serial, overrides)?;
        let pipeline = point.pipeline(&plan, inputs, Options::default())?;
        best.resize(stages, (f64::INFINITY, tile));
        for (stage, best) in best.iter_mut().enumerate() {
            let gemms = (0..pipeline.sets())
                .map(|set| Ok(Kernel::new(point.device, pipeline.alone(set, stage)?)?))
                .collect::<Result<Vec<_>>>()?;
            let stream = Stream::new(point.device)?;
            let launch = LaunchAttributes { stream: &stream, started: None, programmatic: false };
            let graph =
                stream.capture(|| gemms.iter().try_for_each(|gemm| Ok::<_, Error>(gemm.launch(launch)?)))?;
            let mut variant = GraphVariant { graph, stream, owner: gemms };
            let us = quick(point.device, &mut variant, SAMPLES)?;
            if us < best.0 {
                *best = (us, tile);
            }
        }
    }
    Ok(best.into_iter().map(|(_, tile)| tile).collect())
}

/// Adds tuned plans of this size from the cache.
pub(super) fn add_kept(point: &Point<'_>, field: &mut Field, report: &mut LayerReport) -> Result<()> {
    if point.args.tuned.entries().next().is_none() {
        return Ok(());
    }
    for (name, edges) in [("tuned graph", Overlap::Plain), ("tuned edges graph", Overlap::Captured)] {
        if !point.args.wants(name) {
            continue;
        }
        let added = point.kept(edges).and_then(|kept| {
            let Some((plan, origin)) = kept else { return Ok(()) };
            let executor = plan.executor();
            let role = match executor {
                _ if plan.launch().is_one_kernel() => Role::Fused,
                Executor::Library => Role::Library,
                _ => Role::Peer,
            };
            let chains = plan.launch().is_one_kernel() || plan.launch().is_in_turn();
            let overlap = if chains { edges } else { Overlap::Plain };
            let options = Options { overlap, ..Options::default() };
            report.tuned.push(format!("{}: plan: {origin}", point.label(name)));
            point.add(field, VariantSpec { options, ..VariantSpec::graph(name, role) }, &plan, executor)
        });
        point.note(name, added, report)?;
    }
    Ok(())
}

/// Fastest fused plan among all kernels, modes and splits.
pub(super) fn chain(point: &Point<'_>, inputs: &InputSets) -> Result<Plan> {
    let mut best: Option<(f64, Plan)> = None;
    let mut refused = None;
    for asked in chains(point.operations()?) {
        let one = || -> Result<(f64, Plan)> {
            let plan =
                point.plan(Executor::Fused, Overrides { chain: Some(asked), ..Overrides::default() })?;
            let pipeline = point.pipeline(&plan, inputs, Options::default())?;
            let mut variant = PipelineVariant::new(pipeline, Executor::Fused, true, 1)?;
            Ok((quick(point.device, &mut variant, SAMPLES)?, plan))
        };
        match one() {
            Ok(found) if best.as_ref().is_none_or(|b| found.0 < b.0) => best = Some(found),
            Ok(_) => {}
            Err(e) if e.is_fatal() => return Err(e),
            // A kernel that was not built, or a refused schedule, does not prevent trying the others.
            Err(e) => refused = Some(e),
        }
    }
    let nothing = || Error::Argument("there is no chain kernel".into());
    best.map(|(_, plan)| plan).ok_or_else(|| refused.unwrap_or_else(nothing))
}

/// Launches of an executor, one kernel after the other, with the kernel of each stage that is the fastest for
/// it alone.
pub(super) fn in_turn(point: &Point<'_>, resolved: &Resolved, executor: Executor) -> Result<Plan> {
    let how = Measure::default();
    let text = |e: &dyn std::fmt::Display| Error::Plan(e.to_string());
    let found = cusync::tune::proposals(resolved, point.profile, Some(executor));
    let mut found = found.map_err(|d| Error::Plan(d.message))?;
    cusync::tune::in_turn(&mut found, resolved, point.device, &how, &mut |_| {}).map_err(|e| text(&e))?;
    let measured = found.into_iter().find(|proposal| proposal.measured);
    let measured = measured.ok_or_else(|| Error::Argument("no stage has a chain kernel".into()))?;
    check(measured.candidate).map_err(|e| text(&e))
}
