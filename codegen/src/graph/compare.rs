//! Compares explicit with derived dependences, tile by tile.

use std::collections::BTreeSet;
use std::ops::Range;

use super::explicit::ExplicitDep;
use super::resolved::Resolved;
use super::{Graph, Stage};
use crate::diagnostic::Diagnostic;
use crate::sync::Tile;

/// Maximum producer tiles listed by a comparison, on each side.
const MAX_LISTED: u64 = 1 << 24;

/// Compares every pair of stages that has explicit dependences.
pub(super) fn compare(resolved: &Resolved, graph: &Graph) -> Result<(), Diagnostic> {
    let mut done = BTreeSet::new();
    for dep in &resolved.explicit {
        if done.insert((dep.consumer, dep.producer)) {
            compare_pair(resolved, graph, dep)?;
        }
    }
    Ok(())
}

fn compare_pair(resolved: &Resolved, graph: &Graph, first: &ExplicitDep) -> Result<(), Diagnostic> {
    let (consumer, producer) = (&graph.stages[first.consumer.0], &graph.stages[first.producer.0]);
    let same_pair = |dep: &&ExplicitDep| (dep.consumer, dep.producer) == (first.consumer, first.producer);
    let deps: Vec<_> = resolved.explicit.iter().filter(same_pair).collect();
    let steps = if first.per_k { consumer.k_blocks } else { 1 };
    let listed = deps.iter().try_fold(0u64, |sum, dep| {
        let values = dep.forall.iter().try_fold(1u64, |n, &(a, b)| n.checked_mul(a.abs_diff(b)))?;
        let cells = u64::from(consumer.tiles()).checked_mul(steps.into())?;
        sum.checked_add(cells.checked_mul(values)?)
    });
    let between =
        graph.dependences.iter().filter(|d| (d.consumer, d.producer) == (first.consumer, first.producer));
    let derived: u128 = between.map(|dependence| graph.footprint_tiles(dependence)).sum();
    if listed.is_none_or(|listed| listed > MAX_LISTED) || derived > u128::from(MAX_LISTED) {
        return Err(Diagnostic::new("range-too-large", "the ranges are too large to compare")
            .at(first.span, format!("{} tiles of `{}`, times the ranges", consumer.tiles(), consumer.name))
            .help(format!("a dependence lists at most {MAX_LISTED} producer tiles")));
    }
    for m in 0..consumer.grid.0 {
        for n in 0..consumer.grid.1 {
            for k in 0..steps {
                let stated = stated_tiles(&deps, producer, m, n, k)?;
                let last = consumer.k_blocks_of(m);
                let ks = if first.per_k { k.min(last)..last.min(k + 1) } else { 0..last };
                let derived = derived_tiles(graph, first, m, n, ks);
                if stated != derived {
                    let at = if first.per_k { format!("({m}, {n}, {k})") } else { format!("({m}, {n})") };
                    let message = format!(
                        "the stated dependence of `{}` on `{}` is not the derived one",
                        consumer.name, producer.name
                    );
                    return Err(Diagnostic::new("dependence-mismatch", message)
                        .at(first.span, format!("first differs at {}{at}", consumer.name))
                        .note(format!("stated:  {}", list(&producer.name, &stated)))
                        .note(format!("derived: {}", list(&producer.name, &derived)))
                        .help("mend the stated tiles or ranges, or remove them: footprints decide"));
                }
            }
        }
    }
    Ok(())
}

/// The producer tiles that the explicit dependences name.
fn stated_tiles(
    deps: &[&ExplicitDep],
    producer: &Stage,
    m: u32,
    n: u32,
    k: u32,
) -> Result<BTreeSet<Tile>, Diagnostic> {
    let mut tiles = BTreeSet::new();
    for dep in deps {
        let mut chosen: Vec<i64> = dep.forall.iter().map(|&(first, _)| first).collect();
        loop {
            let [row, column] = [0, 1].map(|i| dep.on[i].at(m, n, k, &chosen));
            let inside = |x: i128, length: u32| u32::try_from(x).ok().filter(|&x| x < length);
            let (Some(tm), Some(tn)) = (inside(row, producer.grid.0), inside(column, producer.grid.1)) else {
                let message = format!("`{}` has no tile ({row}, {column})", producer.name);
                return Err(Diagnostic::new("no-such-tile", message)
                    .at(dep.on_span, format!("for the consumer's tile ({m}, {n}), k-block {k}"))
                    .note(format!("its grid is {} x {} tiles", producer.grid.0, producer.grid.1))
                    .help("keep the coordinates inside the producer's grid"));
            };
            tiles.insert(Tile { m: tm, n: tn });
            // The next combination, with the last variable fastest.
            let Some(i) = (0..chosen.len()).rev().find(|&i| chosen[i] + 1 < dep.forall[i].1) else { break };
            chosen[i] += 1;
            chosen[i + 1..].iter_mut().zip(&dep.forall[i + 1..]).for_each(|(value, range)| *value = range.0);
        }
    }
    Ok(tiles)
}

/// The producer tiles in the footprints of all operands between the two stages.
fn derived_tiles(graph: &Graph, pair: &ExplicitDep, m: u32, n: u32, ks: Range<u32>) -> BTreeSet<Tile> {
    let (consumer, producer) = (&graph.stages[pair.consumer.0], &graph.stages[pair.producer.0]);
    let mut tiles = BTreeSet::new();
    for (operand, read) in consumer.operands.iter().enumerate() {
        let tensor = &graph.tensors[read.tensor.0];
        if tensor.producer != Some(pair.producer) {
            continue;
        }
        for k in ks.clone() {
            consumer.reads(operand, tensor, (m, n), k, &mut |rows, cols| {
                tiles.extend(producer.writers(&rows, &cols));
            });
        }
    }
    tiles
}

/// Formats a set of tiles for a message.
fn list(name: &str, tiles: &BTreeSet<Tile>) -> String {
    const SHOWN: usize = 12;
    if tiles.is_empty() {
        return "no tile".into();
    }
    let mut text: Vec<_> =
        tiles.iter().take(SHOWN).map(|tile| format!("{name}({}, {})", tile.m, tile.n)).collect();
    if tiles.len() > SHOWN {
        text.push(format!("and {} more", tiles.len() - SHOWN));
    }
    text.join(", ")
}
