//! Statements of a spec in addition to its stages: tiles, orders, split-K, aliases and edges.

use super::resolved::{Resolved, StatedEdge};
use super::{OperandKind, StageId, TensorId};
use crate::diagnostic::{Diagnostic, Spanned};
use crate::spec::{EdgeSpec, Spec, Text, suggest};
use crate::sync::Policy;

/// Attaches all statements to their stages, tensors and edges.
pub(super) fn apply(spec: &Spec, resolved: &mut Resolved) -> Result<(), Diagnostic> {
    for (name, tile) in &spec.tiles {
        let stage = find_stage(resolved, name)?;
        if resolved.stages[stage.0].custom.is_some() {
            let message = format!("the custom stage `{}` states its tile itself", name.value);
            return Err(Diagnostic::new("custom-stage", message)
                .at(name.span, "a custom stage")
                .help("remove this entry"));
        }
        resolved.stages[stage.0].stated_tile = Some(tile.clone());
    }
    for (name, order) in &spec.orders {
        let stage = find_stage(resolved, name)?;
        resolved.stages[stage.0].stated_order = order.clone();
    }
    for (name, ways) in &spec.split_k {
        let stage = find_stage(resolved, name)?;
        let rules = resolved.stages[stage.0].op.rules();
        if let Some(why) = rules.unsplit() {
            return Err(Diagnostic::new("split-k", format!("the {} `{}` {why}", rules.noun(), name.value))
                .at(name.span, "it cannot be split")
                .help("only GEMMs and convolutions are split along k: remove this entry"));
        }
        resolved.stages[stage.0].split_k = ways.clone();
    }
    for (name, target) in &spec.alias {
        alias(resolved, name, target)?;
    }
    for edge in &spec.sync {
        let edge = resolve_edge(resolved, edge)?;
        resolved.edges.push(edge);
    }
    Ok(())
}

/// The stage with this name.
pub(super) fn find_stage(resolved: &Resolved, name: &Text) -> Result<StageId, Diagnostic> {
    let found = resolved.stages.iter().position(|stage| stage.name.value == name.value);
    found.map(StageId).ok_or_else(|| {
        let names: Vec<_> = resolved.stages.iter().map(|stage| stage.name.value.as_str()).collect();
        unknown_stage(&name.value, name.span, &names)
    })
}

/// The error for an unknown stage name.
pub(super) fn unknown_stage(name: &str, span: crate::diagnostic::Span, names: &[&str]) -> Diagnostic {
    let message = format!("unknown stage `{}`", name.escape_debug());
    suggest(Diagnostic::new("unknown-stage", message).at(span, "no stage has this name"), name, names)
}

fn find_tensor(resolved: &Resolved, name: &Text) -> Result<TensorId, Diagnostic> {
    let found = resolved.tensors.iter().position(|tensor| tensor.name == name.value);
    found.map(TensorId).ok_or_else(|| {
        let names: Vec<_> = resolved.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let message = format!("unknown tensor `{}`", name.value.escape_debug());
        let diagnostic =
            Diagnostic::new("unknown-tensor", message).at(name.span, "no stage reads or writes it");
        suggest(diagnostic, &name.value, &names)
    })
}

fn alias(resolved: &mut Resolved, name: &Text, target: &Text) -> Result<(), Diagnostic> {
    let (from, to) = (find_tensor(resolved, name)?, find_tensor(resolved, target)?);
    let fault = |message: String, label: &str, help: &str| {
        Err(Diagnostic::new("bad-alias", message)
            .at(name.span, label)
            .also(target.span, "its memory")
            .help(help))
    };
    let (tensor, memory) = (&resolved.tensors[from.0], &resolved.tensors[to.0]);
    if from == to {
        return fault(
            format!("`{}` is an alias of itself", name.value),
            "the same tensor",
            "remove this entry",
        );
    }
    if tensor.producer.is_none() {
        let message = format!("`{}` is an input and has its own memory", name.value);
        return fault(message, "no stage writes it", "alias a tensor that a stage writes");
    }
    if memory.state {
        let message = format!("`{}` is a cache, which lives on from run to run", target.value);
        return fault(message, "would overwrite it", "remove this entry");
    }
    if memory.alias.is_some() || resolved.tensors.iter().any(|other| other.alias == Some(from)) {
        let message = format!("`{}` and `{}` are part of a chain of aliases", name.value, target.value);
        return fault(message, "an alias", "let every alias name the tensor that owns the memory");
    }
    if (tensor.rows, tensor.cols) != (memory.rows, memory.cols) {
        let message = format!(
            "`{}` is {} x {}, `{}` is {} x {}",
            name.value, tensor.rows, tensor.cols, target.value, memory.rows, memory.cols
        );
        return fault(message, "another shape", "tensors that share memory have the same shape");
    }
    resolved.tensors[from.0].alias = Some(to);
    Ok(())
}

fn resolve_edge(resolved: &Resolved, edge: &EdgeSpec) -> Result<StatedEdge, Diagnostic> {
    let (producer, consumer) = (find_stage(resolved, &edge.from)?, find_stage(resolved, &edge.to)?);
    let operands = operands_between(resolved, producer, consumer);
    if operands.is_empty() {
        let message = format!("`{}` does not depend on `{}`", edge.to.value, edge.from.value);
        let diagnostic = Diagnostic::new("no-dependence", message)
            .at(edge.from.span, "writes nothing that the other reads")
            .also(edge.to.span, "the reader");
        return Err(if operands_between(resolved, consumer, producer).is_empty() {
            diagnostic.help("remove the edge: only stages that share a tensor are synchronised")
        } else {
            diagnostic.help("swap `from` and `to`: the producer comes first")
        });
    }
    if let Some(operand) = &edge.operand
        && !operands.contains(&operand.value)
    {
        let list: Vec<_> = operands.iter().map(|kind| format!("{kind:?}")).collect();
        let message =
            format!("`{}` does not read `{}` as {:?}", edge.to.value, edge.from.value, operand.value);
        return Err(Diagnostic::new("no-dependence", message)
            .at(operand.span, "no such operand")
            .help(format!("it reads it as {}", list.join(", "))));
    }
    let operand = edge.operand.as_ref().map(|operand| operand.value);
    if let Some(policy) = edge.policy.as_ref().filter(|policy| policy.value == Policy::ConvHalo) {
        let images = resolved.stages[consumer.0].op.rules().has_halo()
            && operand.map_or(operands.contains(&OperandKind::A), |kind| kind == OperandKind::A);
        if !images {
            let message = format!("`{}` does not read the images of a convolution here", edge.to.value);
            return Err(Diagnostic::new("no-halo", message)
                .at(policy.span, "waits for the halo of a filter")
                .help(
                    "use `Row` or another policy: only the input of a `Conv2d` without groups has a halo",
                ));
        }
    }
    for other in &resolved.edges {
        let meets = other.operand.is_none() || operand.is_none() || other.operand == operand;
        if meets && (other.producer, other.consumer) == (producer, consumer) {
            let message = format!("`{}` -> `{}` is stated twice", edge.from.value, edge.to.value);
            return Err(Diagnostic::new("duplicate-edge", message)
                .at(edge.span, "stated again")
                .also(other.span, "first here")
                .help("keep one, or give each its own `operand`"));
        }
    }
    Ok(StatedEdge {
        span: edge.span,
        producer,
        consumer,
        operand,
        policy: edge.policy.clone(),
        wait_at: edge.wait_at.as_ref().map(|wait| Spanned::new(wait.value, wait.span)),
    })
}

/// The operands through which `consumer` reads outputs of `producer`.
pub(super) fn operands_between(
    resolved: &Resolved,
    producer: StageId,
    consumer: StageId,
) -> Vec<OperandKind> {
    let reads = &resolved.stages[consumer.0].reads;
    let written = |tensor: TensorId| resolved.tensors[tensor.0].producer == Some(producer);
    reads.iter().filter(|read| written(read.tensor)).map(|read| read.kind).collect()
}
