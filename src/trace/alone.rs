//! One stage of a pipeline as a pipeline of its own.

use cusync_gen::graph::{Activation, Element, Graph, OperandKind, Stage};

use crate::runtime::{Error, Result};

/// The spec of a stage alone: what others produce is an input.
pub(super) fn spec(graph: &Graph, stage: &Stage) -> Result<String> {
    let tensor = |id: cusync_gen::graph::TensorId| {
        let tensor = &graph.tensors[id.0];
        format!("\"{}({},{})\"", tensor.name, tensor.rows, tensor.cols)
    };
    let kind = stage.op.name();
    if !stage.op.is_gemm() {
        return Err(Error::Unsupported(format!("stage {} is {kind}", stage.name)));
    }
    let epilogue = match stage.op.activation() {
        Activation::Identity => "",
        Activation::GeluTanh => ", epilogue: Gelu",
        Activation::Relu => ", epilogue: Relu",
    };
    let gated = stage.operands.iter().any(|o| o.kind == OperandKind::Up);
    let mut operands = String::new();
    for operand in &stage.operands {
        let field = match operand.kind {
            OperandKind::A => "a",
            OperandKind::B if gated => "gate",
            OperandKind::B => "b",
            OperandKind::Up => "up",
            OperandKind::Bias => "bias",
            OperandKind::Residual => "residual",
            OperandKind::Query
            | OperandKind::Key
            | OperandKind::Value
            | OperandKind::Gain
            | OperandKind::CachedKeys
            | OperandKind::CachedValues
            | OperandKind::Lengths
            | OperandKind::Pages
            | OperandKind::Rotary
            | OperandKind::Custom(_) => continue,
        };
        operands.push_str(&format!("{field}: {}, ", tensor(operand.tensor)));
    }
    let (name, out) = (&stage.name, tensor(stage.out));
    let element = match graph.element {
        Element::F16 => "F16",
        Element::Bf16 => "Bf16",
    };
    Ok(format!(
        "Pipeline(name: \"{name}_alone\", dims: {{}}, element: {element}, stages: [\n    \
         {kind}(name: \"{name}\", {operands}out: {out}{epilogue}),\n])\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Overrides, SHIPPED, plan_text};
    use cusync_gen::check::Executor;
    use cusync_gen::device::Profile;

    #[test]
    fn every_stage_of_every_shipped_spec_stands_alone() {
        let device = Profile::named("h200").expect("the profile ships");
        for (name, source) in SHIPPED {
            let tokens = source.contains("\"M\":");
            let dims = tokens.then(|| ("M".to_owned(), 200)).into_iter().collect();
            let overrides = Overrides { dims, ..Overrides::default() };
            let plan = plan_text(source, name, &overrides, device, Executor::Cpu).expect("it is proved");
            let graph = plan.graph();
            for stage in &graph.stages {
                if !stage.op.is_gemm() {
                    let refused = spec(graph, stage).expect_err("no chain kernel runs it").to_string();
                    assert!(refused.contains(&stage.name) && refused.contains(stage.op.name()), "{refused}");
                    continue;
                }
                let text = spec(graph, stage).expect("a GEMM");
                let single = plan_text(&text, name, &Overrides::default(), device, Executor::Fused);
                let single = single.unwrap_or_else(|e| panic!("{text}{e}"));
                let alone = &single.graph().stages[0];
                assert_eq!(single.graph().stages.len(), 1);
                assert_eq!((alone.m, alone.n, alone.k, &alone.op), (stage.m, stage.n, stage.k, &stage.op));
                let kinds = |s: &Stage| s.operands.iter().map(|o| o.kind).collect::<Vec<_>>();
                assert_eq!(kinds(alone), kinds(stage));
                assert_eq!(single.graph().element, graph.element);
            }
        }
    }
}
