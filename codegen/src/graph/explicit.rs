//! Dependences in the explicit form: `tile: "down(x, y)", on: "up(x, j)", forall: {"j": "0..I/128"}`.
//!
//! Beside derived dependences they are a second statement of the same fact, and must agree with them. For a custom
//! stage without footprints they are the only one, and footprints are made from them.

use std::collections::BTreeSet;

use super::dims::Dims;
use super::resolved::{Read, Resolved, ResolvedStage};
use super::stated::{operands_between, unknown_stage};
use super::{Axis, Footprint, Graph, OperandKind, Stage, StageId};
use crate::diagnostic::{Diagnostic, Span};
use crate::policy::Tile;
use crate::spec::{Affine, DepSpec, Expr, Node, Spec, StageKind};

/// Most producer tiles that a comparison lists, on each of the two sides.
const MAX_LISTED: u64 = 1 << 24;

/// A dependence in the explicit form, dims fixed.
#[derive(Clone, Debug)]
pub(crate) struct ExplicitDep {
    pub(super) span: Span,
    on_span: Span,
    pub(super) consumer: StageId,
    pub(super) producer: StageId,
    /// Whether the consumer's tile has a third coordinate, the k-block.
    per_k: bool,
    /// Ranges of the `forall` variables, ends excluded.
    forall: Vec<(i64, i64)>,
    on: [Coordinate; 2],
}

/// A coordinate of the producer's tile, affine in the consumer's coordinates and the `forall` variables.
#[derive(Clone, Debug)]
struct Coordinate {
    m: i64,
    n: i64,
    k: i64,
    offset: i64,
    forall: Vec<i64>,
}

impl Coordinate {
    /// Wide enough never to overflow: every factor fits 64 bits and there are few terms.
    fn at(&self, m: u32, n: u32, k: u32, chosen: &[i64]) -> i128 {
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        let free: i128 = self.forall.iter().zip(chosen).map(|(&c, &v)| product(c, v)).sum();
        product(self.m, m.into())
            + product(self.n, n.into())
            + product(self.k, k.into())
            + i128::from(self.offset)
            + free
    }
}

/// All explicit dependences; stages are numbered in the spec's order.
pub(super) fn resolve(spec: &Spec, dims: &Dims) -> Result<Vec<ExplicitDep>, Diagnostic> {
    spec.depends.iter().map(|dep| resolve_one(spec, dims, dep)).collect()
}

fn resolve_one(spec: &Spec, dims: &Dims, dep: &DepSpec) -> Result<ExplicitDep, Diagnostic> {
    let stage = |name: &str, span| {
        let names: Vec<_> = spec.stages.iter().map(|stage| stage.name.value.as_str()).collect();
        let found = names.iter().position(|other| *other == name);
        found.map(StageId).ok_or_else(|| unknown_stage(name, span, &names))
    };
    let consumer = stage(&dep.tile.name, dep.tile.name_span)?;
    let producer = stage(&dep.on.name, dep.on.name_span)?;
    if let Some((from, to)) = &dep.edge
        && (from.value != dep.on.name || to.value != dep.tile.name)
    {
        let message = format!("the dependence is not of the edge `{}` -> `{}`", from.value, to.value);
        return Err(Diagnostic::new("wrong-edge", message)
            .at(dep.span, format!("`{}` on `{}`", dep.tile.name, dep.on.name))
            .also(from.span, "the edge")
            .help("move it to its own edge, or to the pipeline's `depends`"));
    }
    let variables = tile_variables(dep, dims)?;
    let mut known = variables.clone();
    let mut forall = Vec::new();
    for (name, range) in &dep.forall {
        if known.contains(&name.value.as_str()) {
            let message = format!("`{}` is already a coordinate of the consumer's tile", name.value);
            return Err(Diagnostic::new("duplicate-variable", message)
                .at(name.span, "stated again")
                .help("use another name"));
        }
        let (first, end) = (dims.constant(&range.first)?, dims.constant(&range.end)?);
        if first >= end {
            return Err(Diagnostic::new("empty-range", format!("the range {first}..{end} is empty"))
                .at(range.span, "no value")
                .help("the end is excluded: `0..4` is 0, 1, 2, 3"));
        }
        known.push(&name.value);
        forall.push((first, end));
    }
    let [row, column] = dep.on.args.as_slice() else {
        return Err(Diagnostic::new("tile-rank", "a producer's tile has two coordinates")
            .at(dep.on.span, format!("{} here", dep.on.args.len()))
            .help(format!("write `{}(row, column)`", dep.on.name)));
    };
    let coordinate = |expr: &Expr| -> Result<Coordinate, Diagnostic> {
        let value: Affine = dims.affine(expr, &known)?;
        let of = |name: Option<&&str>| name.map_or(0, |name| value.coefficient(name));
        Ok(Coordinate {
            m: of(variables.first()),
            n: of(variables.get(1)),
            k: of(variables.get(2)),
            offset: value.constant,
            forall: dep.forall.iter().map(|(name, _)| value.coefficient(&name.value)).collect(),
        })
    };
    for stage in [consumer, producer] {
        let stage = &spec.stages[stage.0];
        let stated = spec.tiles.iter().any(|(name, _)| name.value == stage.name.value);
        if !stated && !matches!(stage.kind, StageKind::Custom { .. }) {
            let message = format!("an explicit dependence needs the tile of `{}`", stage.name.value);
            return Err(Diagnostic::new("tile-needed", message)
                .at(dep.span, "counts in tiles")
                .help(format!("state it: `tiles: {{ \"{}\": (128, 256) }}`", stage.name.value)));
        }
    }
    let on = [coordinate(row)?, coordinate(column)?];
    let per_k = variables.len() == 3;
    Ok(ExplicitDep { span: dep.span, on_span: dep.on.span, consumer, producer, per_k, forall, on })
}

/// The plain, distinct variables of the consumer's tile: two, or three with the k-block.
fn tile_variables<'s>(dep: &'s DepSpec, dims: &Dims) -> Result<Vec<&'s str>, Diagnostic> {
    let mut variables: Vec<&str> = Vec::new();
    for arg in &dep.tile.args {
        let Node::Name(name) = &arg.node else {
            return Err(Diagnostic::new("not-a-variable", "the consumer's tile takes plain variables")
                .at(arg.span, "an expression")
                .help("write `down(x, y)` here, and expressions of x and y in `on`"));
        };
        if variables.contains(&name.as_str()) || dims.list.iter().any(|(dim, _)| dim == name) {
            return Err(Diagnostic::new("duplicate-variable", format!("`{name}` already has a meaning"))
                .at(arg.span, "a dim, or a variable used before")
                .help("use another name"));
        }
        variables.push(name);
    }
    if !(2..=3).contains(&variables.len()) {
        return Err(Diagnostic::new(
            "tile-rank",
            "a consumer's tile has two coordinates, or three with the k-block",
        )
        .at(dep.tile.span, format!("{} here", variables.len()))
        .help("write `down(x, y)` or `down(x, y, k)`"));
    }
    Ok(variables)
}

/// Gives custom stages without footprints their reads, one for each explicit dependence.
pub(super) fn add_reads(
    spec: &Spec,
    deps: &[ExplicitDep],
    stages: &mut [ResolvedStage],
) -> Result<(), Diagnostic> {
    for (i, stage) in spec.stages.iter().enumerate() {
        let StageKind::Custom { footprints: None, .. } = &stage.kind else { continue };
        for dep in deps.iter().filter(|dep| dep.consumer == StageId(i)) {
            let tensor = stages[dep.producer.0].out.value;
            let kind = OperandKind::Custom(stages[i].reads.len());
            let tiles = Some(box_of(dep)?);
            stages[i].reads.push(Read { kind, tensor, span: dep.on_span, footprint: None, tiles });
        }
        if stages[i].reads.is_empty() {
            let message = format!("nothing says what `{}` reads", stage.name.value);
            return Err(Diagnostic::new("footprints-unknown", message)
                .at(stage.name.span, "a custom stage")
                .help("state `reads: [...]` (empty if it reads nothing), or its dependences in `depends`"));
        }
    }
    Ok(())
}

/// The box of producer tiles of a dependence, counted in tiles: possible when each coordinate has at most one
/// `forall` variable, with coefficient 1 or -1, and no two coordinates share one.
fn box_of(dep: &ExplicitDep) -> Result<Footprint, Diagnostic> {
    let not_a_box = || {
        Diagnostic::new("not-a-box", "the producer tiles of this dependence are not a box")
            .at(dep.on_span, "kernels wait for boxes of tiles")
            .note("each coordinate may have one `forall` variable of its own, with factor 1 or -1")
            .help("split it into several dependences, or state footprints in `reads`")
    };
    let used = |c: &Coordinate, i: usize| c.forall[i] != 0 && dep.forall[i].1 - dep.forall[i].0 > 1;
    if (0..dep.forall.len()).any(|i| used(&dep.on[0], i) && used(&dep.on[1], i)) {
        return Err(not_a_box());
    }
    let axis = |coordinate: &Coordinate| -> Option<Axis> {
        let spread: Vec<usize> = (0..dep.forall.len()).filter(|&i| used(coordinate, i)).collect();
        if spread.len() > 1 || spread.iter().any(|&i| coordinate.forall[i].abs() != 1) {
            return None;
        }
        let mut first = i128::from(coordinate.offset);
        let mut extent = 1i128;
        for (i, &(begin, end)) in dep.forall.iter().enumerate() {
            let (a, b) = (
                i128::from(coordinate.forall[i]) * i128::from(begin),
                i128::from(coordinate.forall[i]) * i128::from(end - 1),
            );
            first += a.min(b);
            extent += (a - b).abs();
        }
        Some(Axis {
            m: i32::try_from(coordinate.m).ok()?,
            n: i32::try_from(coordinate.n).ok()?,
            k: i32::try_from(coordinate.k).ok()?,
            offset: i32::try_from(first).ok()?,
            extent: i32::try_from(extent).ok()?,
        })
    };
    match (axis(&dep.on[0]), axis(&dep.on[1])) {
        (Some(rows), Some(cols)) => Ok(Footprint { rows, cols }),
        _ => Err(not_a_box()),
    }
}

/// A footprint in tiles, in elements of the producer's output; `None` if that leaves 32 bits.
pub(super) fn in_elements(tiles: &Footprint, tile: (u32, u32)) -> Option<Footprint> {
    let scale = |axis: &Axis, by: u32| {
        let by = i32::try_from(by).ok()?;
        Some(Axis {
            m: axis.m.checked_mul(by)?,
            n: axis.n.checked_mul(by)?,
            k: axis.k.checked_mul(by)?,
            offset: axis.offset.checked_mul(by)?,
            extent: axis.extent.checked_mul(by)?,
        })
    };
    Some(Footprint { rows: scale(&tiles.rows, tile.0)?, cols: scale(&tiles.cols, tile.1)? })
}

/// Explicit dependences are between stages that share a tensor, and those of one pair agree on the k-block.
pub(super) fn check_pairs(resolved: &Resolved) -> Result<(), Diagnostic> {
    for dep in &resolved.explicit {
        let (consumer, producer) = (&resolved.stages[dep.consumer.0], &resolved.stages[dep.producer.0]);
        if operands_between(resolved, dep.producer, dep.consumer).is_empty() {
            let message = format!("`{}` does not depend on `{}`", consumer.name.value, producer.name.value);
            return Err(Diagnostic::new("no-dependence", message)
                .at(dep.span, "stated here")
                .also(producer.out.span, "what the producer writes")
                .help("remove it: the consumer reads nothing that this producer writes"));
        }
        let same_pair =
            |other: &&ExplicitDep| (other.consumer, other.producer) == (dep.consumer, dep.producer);
        if let Some(other) = resolved.explicit.iter().filter(same_pair).find(|other| other.per_k != dep.per_k)
        {
            return Err(Diagnostic::new("mixed-k", "one dependence names the k-block, another does not")
                .at(other.span, "without agreement")
                .also(dep.span, "with this one")
                .help("name the k-block in all dependences of a pair of stages, or in none"));
        }
    }
    Ok(())
}

/// Compares explicit with derived dependences, tile by tile.
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
    let derived = derived_bound(graph, first);
    if listed.is_none_or(|listed| listed > MAX_LISTED) || derived > u128::from(MAX_LISTED) {
        return Err(Diagnostic::new("range-too-large", "the ranges are too large to compare")
            .at(first.span, format!("{} tiles of `{}`, times the ranges", consumer.tiles(), consumer.name))
            .help(format!("a dependence lists at most {MAX_LISTED} producer tiles")));
    }
    for m in 0..consumer.grid.0 {
        for n in 0..consumer.grid.1 {
            for k in 0..steps {
                let stated = stated_tiles(&deps, producer, m, n, k)?;
                let ks = if first.per_k { k..k + 1 } else { 0..consumer.k_blocks };
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
            // The next combination, the last variable fastest.
            let Some(i) = (0..chosen.len()).rev().find(|&i| chosen[i] + 1 < dep.forall[i].1) else { break };
            chosen[i] += 1;
            chosen[i + 1..].iter_mut().zip(&dep.forall[i + 1..]).for_each(|(value, range)| *value = range.0);
        }
    }
    Ok(tiles)
}

/// At least as many tiles as [`derived_tiles`] visits over the whole grid.
fn derived_bound(graph: &Graph, pair: &ExplicitDep) -> u128 {
    let (consumer, producer) = (&graph.stages[pair.consumer.0], &graph.stages[pair.producer.0]);
    let cells = u128::from(consumer.tiles()) * u128::from(consumer.k_blocks);
    let along = |axis: &Axis, tile: u32, grid: u32| {
        // A range of that length meets one tile more than it fills, where it starts inside one.
        u128::from((axis.extent.unsigned_abs().div_ceil(tile) + 1).min(grid))
    };
    let reads =
        consumer.operands.iter().filter(|read| graph.tensors[read.tensor.0].producer == Some(pair.producer));
    let boxes = reads.map(|read| {
        along(&read.footprint.rows, producer.out_tile.0, producer.grid.0)
            * along(&read.footprint.cols, producer.out_tile.1, producer.grid.1)
    });
    cells * boxes.sum::<u128>()
}

fn derived_tiles(
    graph: &Graph,
    pair: &ExplicitDep,
    m: u32,
    n: u32,
    ks: std::ops::Range<u32>,
) -> BTreeSet<Tile> {
    let (consumer, producer) = (&graph.stages[pair.consumer.0], &graph.stages[pair.producer.0]);
    let mut tiles = BTreeSet::new();
    for read in &consumer.operands {
        let tensor = &graph.tensors[read.tensor.0];
        if tensor.producer != Some(pair.producer) {
            continue;
        }
        for k in ks.clone() {
            let rows = read.footprint.rows.range(tensor.rows, m, n, k);
            let cols = read.footprint.cols.range(tensor.cols, m, n, k);
            if rows.is_empty() || cols.is_empty() {
                continue;
            }
            let (tile_rows, tile_cols) = producer.out_tile;
            for tm in rows.start / tile_rows..rows.end.div_ceil(tile_rows) {
                for tn in cols.start / tile_cols..cols.end.div_ceil(tile_cols) {
                    tiles.insert(Tile { m: tm, n: tn });
                }
            }
        }
    }
    tiles
}

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
