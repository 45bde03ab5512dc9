//! The variants of the `fused` executor.

use cusync_gen::check::{Executor, Plan};
use cusync_gen::choose::Config;
use cusync_gen::schedule::Hand;

use super::point::{Field, Point, VariantSpec};
use super::record::{LayerReport, Role};
use super::{Result, tune};
use cusync::runtime::{ChainOverride, Options, Overlap, Overrides};

/// Adds the requested variants: the automatic choice, static and dynamic, with programmatic edges, without
/// split tiles, without waits; and the fastest of all schedules, if tuning is requested.
pub(super) fn add(point: &Point<'_>, field: &mut Field, report: &mut LayerReport) -> Result<()> {
    let edges = Options { overlap: Overlap::Captured, ..Options::default() };
    let without = Options { skip_waits: true, ..Options::default() };
    let (fixed, drawn) = (Hand::Fixed, Hand::Drawn);
    let variants = [
        ("fused graph", Role::Fused, fixed, true, Options::default()),
        ("fused edges graph", Role::Fused, fixed, true, edges),
        ("fused dynamic graph", Role::Fused, drawn, true, Options::default()),
        ("fused uncut graph", Role::Fused, fixed, false, Options::default()),
        ("fused without waits graph", Role::Probe, fixed, true, without),
    ];
    for (name, role, mode, splits, options) in variants {
        if !point.args.wants(name) {
            continue;
        }
        let added = automatic(point, mode, splits).and_then(|plan| {
            let mut config = Config::from_plan(&plan, Executor::Fused);
            // A plan without split tiles does not record whether splits were allowed.
            if let Some(Config::Chain { splits: stated, .. }) = &mut config {
                *stated = splits;
            }
            let kind = VariantSpec { options, config: config.as_ref(), ..VariantSpec::graph(name, role) };
            point.add(field, kind, &plan, Executor::Fused)
        });
        point.note(name, added, report)?;
    }
    for (name, options) in [("fused tuned graph", Options::default()), ("fused tuned edges graph", edges)] {
        if !point.args.tune || !point.args.wants(name) {
            continue;
        }
        let kind = VariantSpec { options, ..VariantSpec::graph(name, Role::Fused) };
        let added =
            tune::chain(point, &field.inputs).and_then(|p| point.add(field, kind, &p, Executor::Fused));
        point.note(name, added, report)?;
    }
    Ok(())
}

/// Maximum number of tokens of a decode kernel.
const MOST_TOKENS: u32 = 64;

/// Adds the decode kernel, and a kernel that only reads the weights, with either kind of edge.
pub(super) fn add_decode(point: &Point<'_>, field: &mut Field, report: &mut LayerReport) -> Result<()> {
    if point.size.iter().any(|(dim, tokens)| dim == "M" && *tokens > MOST_TOKENS) {
        return Ok(());
    }
    let plain = Options::default();
    let edges = Options { overlap: Overlap::Captured, ..plain };
    let variants = [
        ("decode graph", Role::Fused, plain),
        ("decode edges graph", Role::Fused, edges),
        ("decode without waits graph", Role::Probe, Options { skip_waits: true, ..plain }),
        ("stream limit graph", Role::Probe, Options { stream_only: true, ..plain }),
        ("stream limit edges graph", Role::Probe, Options { stream_only: true, ..edges }),
    ];
    for (name, role, options) in variants {
        if !point.args.wants(name) {
            continue;
        }
        let kind = VariantSpec { options, ..VariantSpec::graph(name, role) };
        let plan = point.plan(Executor::Fused, Overrides { decode: true, ..Overrides::default() });
        let added = plan.and_then(|p| point.add(field, kind, &p, Executor::Fused));
        point.note(name, added, report)?;
    }
    Ok(())
}

/// The schedule with the shortest predicted time.
fn automatic(point: &Point<'_>, mode: Hand, splits: bool) -> Result<Plan> {
    let chain = Some(ChainOverride { kernel: None, mode, splits });
    point.plan(Executor::Fused, Overrides { chain, ..Overrides::default() })
}
