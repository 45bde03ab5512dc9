//! From a spec to a resolved pipeline: dims become numbers, tensors get shapes, and stages are ordered.

use super::Graph;
use super::dims::{Dims, Tensors};
use super::resolved::{Read, Resolved, ResolvedStage};
use super::{OperandKind, StageId, Tensor, devices, op, stated};
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::spec::{Spec, StageSpec, parse};

/// `CUSYNC_MAX_WAITS` and `CUSYNC_MAX_POSTS`.
const MAX_EDGES: usize = 4;
/// Maximum stages of a pipeline.
const MAX_STAGES: usize = 64;

impl Spec {
    /// Resolves the dims, with defaults replaced by `overrides`, and proves that stages, tensors and shapes are
    /// consistent.
    ///
    /// # Errors
    /// The first fault found, with its location.
    pub fn resolve(&self, overrides: &[(String, u64)]) -> Result<Resolved, Diagnostic> {
        let dims = Dims::new(self, overrides)?;
        check_names(self)?;
        let mut tensors = Tensors::new(&self.stages);
        let mut stages = Vec::new();
        for stage in &self.stages {
            stages.push(resolve_stage(stage, &dims, &mut tensors)?);
        }
        for (i, stage) in stages.iter().enumerate() {
            tensors.set_producer(stage.out.value, StageId(i), stage.out.span)?;
        }
        let order = topological_order(&stages, &tensors.list)?;
        let mut position = vec![StageId(0); order.len()];
        order.iter().enumerate().for_each(|(new, &old)| position[old] = StageId(new));
        let mut in_order: Vec<_> = stages.into_iter().map(Some).collect();
        let mut resolved = Resolved {
            name: self.name.value.clone(),
            element: self.element,
            stages: order.iter().filter_map(|&old| in_order[old].take()).collect(),
            tensors: tensors.list,
            edges: Vec::new(),
            dims: dims.list,
        };
        for tensor in &mut resolved.tensors {
            tensor.producer = tensor.producer.map(|stage| position[stage.0]);
        }
        stated::apply(self, &mut resolved)?;
        devices::apply(self, &mut resolved)?;
        check_edges(&resolved)?;
        Ok(resolved)
    }
}

/// Parses, resolves with default dims and builds the graph with the given tile for every GEMM: a shortcut for tests
/// and examples.
///
/// # Errors
/// As for [`parse`], [`Spec::resolve`] and [`Resolved::graph`].
pub fn graph_with_tile(source: &str, tile: (u32, u32, u32)) -> Result<Graph, Diagnostic> {
    let resolved = parse(source, "spec")?.resolve(&[])?;
    resolved.graph(&vec![tile; resolved.stages.len()])
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

fn resolve_stage(
    stage: &StageSpec,
    dims: &Dims,
    tensors: &mut Tensors<'_>,
) -> Result<ResolvedStage, Diagnostic> {
    let mut reads = Vec::new();
    for (kind, used) in &stage.reads {
        let transposed = stage.transposed && matches!(kind, OperandKind::B | OperandKind::Up);
        let (tensor, view) = tensors.read(dims, *kind, used, transposed)?;
        reads.push(Read { kind: *kind, tensor, view, span: used.span, footprint: None });
    }
    let out = Spanned::new(tensors.write(dims, &stage.out)?, stage.out.span);
    let as_read = |read: &Read| {
        let tensor = &tensors.list[read.tensor.0];
        let (rows, cols) = read.view.map_or((tensor.rows, tensor.cols), |view| (view.rows, view.cols));
        Tensor { rows, cols, ..tensor.clone() }
    };
    let read: Vec<Tensor> = reads.iter().map(as_read).collect();
    let stated = op::Stated { stage, dims, tensors: &tensors.list, reads: &reads, read: &read, out: &out };
    let op::Lowered { op, k, custom, footprints } = op::lower(&stated)?;
    reads.iter_mut().zip(footprints).for_each(|(read, footprint)| read.footprint = Some(footprint));
    let Tensor { rows, cols, .. } = tensors.list[out.value.0];
    Ok(ResolvedStage {
        name: Spanned::new(stage.name.value.clone(), stage.name.span),
        op,
        m: rows,
        n: cols,
        k,
        reads,
        out,
        custom,
        has_own_kernel: false,
        split_k: Spanned::new(1, stage.name.span),
        devices: 1,
        stated_tile: None,
        stated_order: None,
    })
}

/// Producers before consumers, otherwise in spec order.
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

/// Follows reads among the stages that cannot be placed until a stage repeats.
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

/// Checks that no stage exceeds the kernels' edge limit, and that operands which must be inputs are.
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
        for (count, direction) in [(incoming, "incoming"), (outgoing, "outgoing")] {
            if count > MAX_EDGES {
                let message = format!("`{}` has {count} {direction} dependences", stage.name.value);
                return Err(Diagnostic::new("too-many-edges", message)
                    .at(stage.name.span, format!("a kernel takes {MAX_EDGES} at most"))
                    .help("insert a stage that gathers or passes on some of them"));
            }
        }
        for read in &stage.reads {
            if let (Some(constant), Some(writer)) = (stage.op.rules().constant(read.kind), producer(read)) {
                let writer = &resolved.stages[writer.0];
                return Err(Diagnostic::new(constant.code, constant.message)
                    .at(read.span, format!("written by `{}`", writer.name.value))
                    .note(constant.note)
                    .help(constant.help));
            }
        }
    }
    Ok(())
}
