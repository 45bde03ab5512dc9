//! From a spec to a resolved pipeline: dims become numbers, tensors get shapes, stages an order.

use super::dims::{Dims, Tensors};
use super::explicit;
use super::resolved::{Read, Resolved, ResolvedStage};
use super::{Axis, CustomShape, Footprint, Op, OperandKind, StageId, Tensor, TensorId};
use super::{shapes, stated};
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::spec::{CustomSpec, RangeSpec, Spec, StageKind, StageSpec};

/// Elements in the 16 bytes that a TMA row must be a multiple of.
const ROW_GRANULE: u32 = 8;
/// `CUSYNC_MAX_WAITS` and `CUSYNC_MAX_POSTS`.
const MAX_EDGES: usize = 4;
/// Most stages of a pipeline.
const MAX_STAGES: usize = 64;

/// See [`Spec::resolve`].
pub(crate) fn resolve(spec: &Spec, overrides: &[(String, u64)]) -> Result<Resolved, Diagnostic> {
    let dims = Dims::new(spec, overrides)?;
    check_names(spec)?;
    let mut tensors = Tensors::default();
    let mut stages = Vec::new();
    for stage in &spec.stages {
        stages.push(resolve_stage(stage, &dims, &mut tensors)?);
    }
    for (i, stage) in stages.iter().enumerate() {
        tensors.set_producer(stage.out.value, StageId(i), stage.out.span)?;
    }
    let mut deps = explicit::resolve(spec, &dims)?;
    explicit::add_reads(spec, &deps, &mut stages)?;

    let order = topological_order(&stages, &tensors.list)?;
    let mut position = vec![StageId(0); order.len()];
    order.iter().enumerate().for_each(|(new, &old)| position[old] = StageId(new));
    let mut in_order: Vec<_> = stages.into_iter().map(Some).collect();
    let mut resolved = Resolved {
        name: spec.name.value.clone(),
        element: spec.element,
        stages: order.iter().filter_map(|&old| in_order[old].take()).collect(),
        tensors: tensors.list,
        edges: Vec::new(),
        explicit: Vec::new(),
        dims: dims.list,
    };
    for tensor in &mut resolved.tensors {
        tensor.producer = tensor.producer.map(|stage| position[stage.0]);
    }
    for dep in &mut deps {
        dep.consumer = position[dep.consumer.0];
        dep.producer = position[dep.producer.0];
    }
    resolved.explicit = deps;
    stated::apply(spec, &mut resolved)?;
    check_edges(&resolved)?;
    explicit::check_pairs(&resolved)?;
    Ok(resolved)
}

fn check_names(spec: &Spec) -> Result<(), Diagnostic> {
    if let Some(extra) = spec.stages.get(MAX_STAGES) {
        let message = format!("the pipeline has {} stages", spec.stages.len());
        return Err(Diagnostic::new("too-many-stages", message)
            .at(extra.name.span, format!("stage number {}", MAX_STAGES + 1))
            .help(format!("a pipeline has at most {MAX_STAGES} stages: split it")));
    }
    for (i, stage) in spec.stages.iter().enumerate() {
        if let Some(first) = spec.stages[..i].iter().find(|other| other.name.value == stage.name.value) {
            let message = format!("two stages are named `{}`", stage.name.value);
            return Err(Diagnostic::new("duplicate-stage", message)
                .at(stage.name.span, "named again")
                .also(first.name.span, "first here")
                .help("give each stage a name of its own"));
        }
    }
    Ok(())
}

fn resolve_stage(stage: &StageSpec, dims: &Dims, tensors: &mut Tensors) -> Result<ResolvedStage, Diagnostic> {
    let mut reads = Vec::new();
    for (kind, used) in &stage.reads {
        let tensor = tensors.intern(dims, used)?;
        reads.push(Read { kind: *kind, tensor, span: used.span, footprint: None, tiles: None });
    }
    let out = Spanned::new(tensors.intern(dims, &stage.out)?, stage.out.span);
    let (m, n) = (tensors.list[out.value.0].rows, tensors.list[out.value.0].cols);
    let mut resolved = ResolvedStage {
        name: Spanned::new(stage.name.value.clone(), stage.name.span),
        op: Op::Custom,
        m,
        n,
        k: 1,
        reads,
        out,
        custom: None,
        split_k: Spanned::new(1, stage.name.span),
        stated_tile: None,
        stated_order: None,
    };
    match &stage.kind {
        StageKind::Gemm(activation) => {
            resolved.op = Op::Gemm { activation: *activation };
            resolved.k = tensors.list[resolved.reads[0].tensor.0].cols;
            check_gemm(&resolved, &tensors.list)?;
        }
        StageKind::GatedGemm => {
            resolved.op = Op::GatedGemm;
            resolved.k = tensors.list[resolved.reads[0].tensor.0].cols;
            check_gemm(&resolved, &tensors.list)?;
        }
        StageKind::Conv2d(spec) => {
            let shape = shapes::conv(stage, spec, &resolved, dims, &tensors.list)?;
            shapes::check_epilogue(&resolved, &tensors.list)?;
            resolved.k = tensors.list[resolved.reads[1].tensor.0].rows;
            resolved.op = Op::Conv2d(shape);
        }
        StageKind::Attention(spec) => {
            resolved.op = Op::Attention(shapes::attention(stage, spec, &resolved, dims, &tensors.list)?);
            resolved.k = m;
        }
        StageKind::Custom(custom) => {
            let CustomSpec { grid, tile, k_blocks, footprints } = &**custom;
            let shape = CustomShape {
                tile: (
                    dims.size(&tile.value.0, "the number of rows of the tile")?,
                    dims.size(&tile.value.1, "the number of columns of the tile")?,
                ),
                k_blocks: k_blocks.as_ref().map_or(Ok(1), |e| dims.size(e, "the number of k-blocks"))?,
                grid: (0, 0),
            };
            let needed = (m.div_ceil(shape.tile.0), n.div_ceil(shape.tile.1));
            if let Some(grid) = grid {
                let stated = (
                    dims.size(&grid.value.0, "the number of rows of the grid")?,
                    dims.size(&grid.value.1, "the number of columns of the grid")?,
                );
                if stated != needed {
                    let message =
                        format!("a grid of {} x {} tiles does not tile the output", stated.0, stated.1);
                    return Err(Diagnostic::new("grid-mismatch", message)
                        .at(grid.span, format!("{m} x {n} in tiles of {} x {}", shape.tile.0, shape.tile.1))
                        .also(tile.span, "the tile")
                        .help(format!("the grid is ({}, {}); it may be left out", needed.0, needed.1)));
                }
            }
            resolved.k = shape.k_blocks;
            resolved.custom = Some(CustomShape { grid: needed, ..shape });
            for (read, (rows, cols)) in resolved.reads.iter_mut().zip(footprints.iter().flatten()) {
                read.footprint = Some(Footprint { rows: axis(rows, dims)?, cols: axis(cols, dims)? });
            }
        }
    }
    Ok(resolved)
}

/// `first..end`, affine in the tile coordinates, with a constant length.
fn axis(range: &RangeSpec, dims: &Dims) -> Result<Axis, Diagnostic> {
    let variables = ["m", "n", "k"];
    let (first, end) = (dims.affine(&range.first, &variables)?, dims.affine(&range.end, &variables)?);
    let extent = end.minus(&first).filter(|extent| extent.terms.is_empty()).map(|extent| extent.constant);
    let Some(extent) = extent.filter(|&extent| extent > 0) else {
        return Err(Diagnostic::new("bad-footprint", "the footprint's length is not a positive constant")
            .at(range.span, "`first..end` must be as long for every tile")
            .help("write it like `128*m .. 128*m + 128`; the part outside the tensor is clipped"));
    };
    let fit = |value: i64| {
        i32::try_from(value).map_err(|_| {
            Diagnostic::new("bad-footprint", format!("{value} does not fit 32 bits"))
                .at(range.span, "a coefficient, offset or length of this range")
                .help("footprints are counted in elements, below 2^31")
        })
    };
    Ok(Axis {
        m: fit(first.coefficient("m"))?,
        n: fit(first.coefficient("n"))?,
        k: fit(first.coefficient("k"))?,
        offset: fit(first.constant)?,
        extent: fit(extent)?,
    })
}

/// The shapes of a GEMM's operands meet, and its rows are whole TMA granules.
fn check_gemm(stage: &ResolvedStage, tensors: &[Tensor]) -> Result<(), Diagnostic> {
    let (m, n, k) = (stage.m, stage.n, stage.k);
    for read in &stage.reads {
        let tensor = &tensors[read.tensor.0];
        let (what, rows, cols) = match read.kind {
            OperandKind::A => ("M x K", m, k),
            OperandKind::B | OperandKind::Up => ("K x N", k, n),
            OperandKind::Bias => ("1 x N", 1, n),
            OperandKind::Residual => ("M x N", m, n),
            OperandKind::Query | OperandKind::Key | OperandKind::Value | OperandKind::Custom(_) => continue,
        };
        if (tensor.rows, tensor.cols) != (rows, cols) {
            let message = format!("`{}` must be {what}, that is {rows} x {cols}", tensor.name);
            let mut diagnostic = Diagnostic::new("shape-mismatch", message)
                .at(read.span, format!("{} x {} here", tensor.rows, tensor.cols))
                .also(stage.out.span, format!("M x N is {m} x {n}"));
            if read.kind != OperandKind::A {
                diagnostic = diagnostic.also(stage.reads[0].span, format!("M x K is {m} x {k}"));
            }
            return Err(diagnostic.help("out is a times b: (M,N) = (M,K) * (K,N), every tensor row-major"));
        }
    }
    check_rows(stage, tensors)
}

/// Every row that a stage touches is whole TMA granules.
pub(super) fn check_rows(stage: &ResolvedStage, tensors: &[Tensor]) -> Result<(), Diagnostic> {
    let uses = stage.reads.iter().map(|read| (read.tensor, read.span));
    for (id, span) in uses.chain([(stage.out.value, stage.out.span)]) {
        let TensorId(id) = id;
        let cols = tensors[id].cols;
        if !cols.is_multiple_of(ROW_GRANULE) {
            let message =
                format!("the rows of `{}` have {cols} elements, not a multiple of 8", tensors[id].name);
            return Err(Diagnostic::new("row-granule", message)
                .at(span, "TMA moves rows in granules of 16 bytes")
                .help(format!("pad the columns to {}", cols.next_multiple_of(ROW_GRANULE))));
        }
    }
    Ok(())
}

/// Producers before consumers, otherwise in the spec's order.
fn topological_order(stages: &[ResolvedStage], tensors: &[Tensor]) -> Result<Vec<usize>, Diagnostic> {
    let producer = |read: &Read| tensors[read.tensor.0].producer.map(|stage| stage.0);
    let mut placed = vec![false; stages.len()];
    let mut order = Vec::new();
    while order.len() < stages.len() {
        let ready = (0..stages.len()).find(|&i| {
            !placed[i] && stages[i].reads.iter().filter_map(producer).all(|before| placed[before])
        });
        match ready {
            Some(stage) => {
                placed[stage] = true;
                order.push(stage);
            }
            None => return Err(cycle(stages, tensors, &placed)),
        }
    }
    Ok(order)
}

/// Follows reads among the stages that cannot be placed until one comes round again.
fn cycle(stages: &[ResolvedStage], tensors: &[Tensor], placed: &[bool]) -> Diagnostic {
    let blocked_read = |stage: usize| {
        stages[stage].reads.iter().find_map(|read| {
            let producer = tensors[read.tensor.0].producer?.0;
            (!placed[producer]).then_some((producer, read.span))
        })
    };
    let mut path: Vec<(usize, Span)> = Vec::new();
    let mut at = placed.iter().position(|placed| !placed).unwrap_or(0);
    while let Some((producer, span)) = blocked_read(at) {
        if let Some(start) = path.iter().position(|&(stage, _)| stage == at) {
            path.drain(..start);
            break;
        }
        path.push((at, span));
        at = producer;
    }
    // The path runs from consumer to producer.
    path.reverse();
    let mut names: Vec<&str> = path.iter().map(|&(stage, _)| stages[stage].name.value.as_str()).collect();
    names.extend(names.first().copied());
    let mut diagnostic =
        Diagnostic::new("cycle", format!("stages depend on each other: {}", names.join(" -> ")));
    for (i, &(stage, span)) in path.iter().enumerate() {
        let text = format!("`{}` reads what a stage of the cycle writes", stages[stage].name.value);
        diagnostic = if i == 0 { diagnostic.at(span, text) } else { diagnostic.also(span, text) };
    }
    diagnostic.help("break the cycle: one of the stages must read an input instead")
}

/// Kernels take a bounded number of edges, and packed weights are inputs.
fn check_edges(resolved: &Resolved) -> Result<(), Diagnostic> {
    let producer = |read: &Read| resolved.tensors[read.tensor.0].producer;
    for (i, stage) in resolved.stages.iter().enumerate() {
        let incoming = stage.reads.iter().filter(|read| producer(read).is_some()).count();
        let outgoing = resolved
            .stages
            .iter()
            .flat_map(|consumer| &consumer.reads)
            .filter(|read| producer(read) == Some(StageId(i)))
            .count();
        for (count, what) in [(incoming, "incoming"), (outgoing, "outgoing")] {
            if count > MAX_EDGES {
                let message = format!("`{}` has {count} {what} dependences", stage.name.value);
                return Err(Diagnostic::new("too-many-edges", message)
                    .at(stage.name.span, format!("a kernel takes {MAX_EDGES} at most"))
                    .help("insert a stage that gathers or passes on some of them"));
            }
        }
        for read in &stage.reads {
            if let (Op::GatedGemm, OperandKind::B | OperandKind::Up, Some(writer)) =
                (&stage.op, read.kind, producer(read))
            {
                let writer = &resolved.stages[writer.0];
                return Err(Diagnostic::new("packed-weights", "gate and up weights must be inputs")
                    .at(read.span, format!("written by `{}`", writer.name.value))
                    .note("the kernel reads gate and up interleaved by columns, packed once before the first run")
                    .help("make it a weight, or use two Gemm stages and a Custom one"));
            }
        }
    }
    Ok(())
}
