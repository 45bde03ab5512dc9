//! Dependences in explicit form: `tile: "down(x, y)", on: "up(x, j)", forall: {"j": "0..I/128"}`.
//!
//! In addition to derived dependences they state the same fact a second time, and `compare` checks that both agree.
//! For a custom stage without footprints they are the only statement, and footprints are derived from them.

use super::dims::Dims;
use super::resolved::{Read, Resolved, ResolvedStage};
use super::stated::{operands_between, unknown_stage};
use super::{Axis, Footprint, OperandKind, StageId};
use crate::diagnostic::{Diagnostic, Span};
use crate::spec::{Affine, DepSpec, Expr, ExprKind, Spec, StageKind};

/// A dependence in explicit form, with dims resolved.
#[derive(Clone, Debug)]
pub(crate) struct ExplicitDep {
    pub(super) span: Span,
    pub(super) on_span: Span,
    pub(super) consumer: StageId,
    pub(super) producer: StageId,
    /// Whether the consumer's tile has a third coordinate, the k-block.
    pub(super) per_k: bool,
    /// Ranges of the `forall` variables, ends excluded.
    pub(super) forall: Vec<(i64, i64)>,
    pub(super) on: [Coordinate; 2],
}

impl ExplicitDep {
    /// Everything except its source location.
    pub(super) fn canonical(&self) -> String {
        let ExplicitDep { span: _, on_span: _, consumer, producer, per_k, forall, on } = self;
        format!("depends {consumer:?} {producer:?} {per_k} {forall:?} {on:?}")
    }
}

/// A coordinate of the producer's tile, affine in the consumer's coordinates and the `forall` variables.
#[derive(Clone, Debug)]
pub(super) struct Coordinate {
    m: i64,
    n: i64,
    k: i64,
    offset: i64,
    forall: Vec<i64>,
}

impl Coordinate {
    /// Wide enough never to overflow: every factor fits 64 bits and there are few terms.
    pub(super) fn at(&self, m: u32, n: u32, k: u32, chosen: &[i64]) -> i128 {
        let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
        let free: i128 = self.forall.iter().zip(chosen).map(|(&c, &v)| product(c, v)).sum();
        product(self.m, m.into())
            + product(self.n, n.into())
            + product(self.k, k.into())
            + i128::from(self.offset)
            + free
    }
}

/// All explicit dependences; stages are numbered in spec order.
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
        let coefficient = |name: Option<&&str>| name.map_or(0, |name| value.coefficient(name));
        Ok(Coordinate {
            m: coefficient(variables.first()),
            n: coefficient(variables.get(1)),
            k: coefficient(variables.get(2)),
            offset: value.constant,
            forall: dep.forall.iter().map(|(name, _)| value.coefficient(&name.value)).collect(),
        })
    };
    for stage in [consumer, producer] {
        let stage = &spec.stages[stage.0];
        let stated = spec.tiles.iter().any(|(name, _)| name.value == stage.name.value);
        if !stated && !matches!(stage.kind, StageKind::Custom(_)) {
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
        let ExprKind::Name(name) = &arg.node else {
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
        if !matches!(&stage.kind, StageKind::Custom(custom) if custom.footprints.is_none()) {
            continue;
        }
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

/// The box of producer tiles of a dependence, in tiles. It exists if each coordinate has at most one `forall`
/// variable, with coefficient 1 or -1, and no two coordinates share one.
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

/// Converts a footprint in tiles to elements of the producer's output; `None` on 32-bit overflow.
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

/// Checks that explicit dependences connect stages that share a tensor, and that those of one pair agree on the
/// k-block.
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
