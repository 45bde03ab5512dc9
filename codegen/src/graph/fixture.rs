//! Small graphs for tests and examples, built without a spec.

use super::resolved::{Read, Resolved, ResolvedStage};
use super::{Activation, Element, Op, OperandKind, StageId, Tensor, TensorId};
use crate::diagnostic::{Span, Spanned};

/// A chain of plain GEMMs named `g0`, `g1`, ...: `X0 (m x widths[0])` times `W0 (widths[0] x widths[1])` is `X1`, and
/// so on. Spans are empty. Needs at least two widths; dims are not validated.
pub fn gemm_chain(name: &str, m: u32, widths: &[u32]) -> Resolved {
    let nowhere = Span::default();
    let mut tensors = vec![Tensor::new("X0", m, widths[0], None)];
    let mut stages = Vec::new();
    for (i, pair) in widths.windows(2).enumerate() {
        let [k, n] = [pair[0], pair[1]];
        let x = TensorId(tensors.len().saturating_sub(1) / 2 * 2);
        tensors.push(Tensor::new(format!("W{i}"), k, n, None));
        tensors.push(Tensor::new(format!("X{}", i + 1), m, n, Some(StageId(i))));
        let read = |kind, tensor| Read { kind, tensor, view: None, span: nowhere, footprint: None };
        stages.push(ResolvedStage {
            name: Spanned::new(format!("g{i}"), nowhere),
            op: Op::Gemm(Activation::Identity.into()),
            m,
            n,
            k,
            reads: vec![read(OperandKind::A, x), read(OperandKind::B, TensorId(x.0 + 1))],
            out: Spanned::new(TensorId(x.0 + 2), nowhere),
            custom: None,
            has_own_kernel: false,
            split_k: Spanned::new(1, nowhere),
            devices: 1,
            stated_tile: None,
            stated_order: None,
        });
    }
    Resolved {
        name: name.into(),
        element: Element::F16,
        dims: vec![("M".into(), m)],
        tensors,
        stages,
        edges: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Profile;

    #[test]
    fn chain_has_one_dependence_a_stage() {
        let chain = gemm_chain("c", 200, &[256, 512, 128]);
        let device = Profile::named("h200").expect("shipped");
        let tile = chain.kernel_candidates(StageId(0), device).expect("built")[0];
        let graph = chain.graph(&[tile, tile]).expect("small");
        assert_eq!(graph.dependences.len(), 1);
        let dependence = &graph.dependences[0];
        assert_eq!((dependence.producer, dependence.consumer), (StageId(0), StageId(1)));
        let read = &graph.stages[1].operands[dependence.operand];
        assert_eq!((read.kind, graph.tensors[read.tensor.0].name.as_str()), (OperandKind::A, "X1"));
        let written = graph.stages.iter().map(|s| graph.tensors[s.out.0].name.as_str());
        assert_eq!(written.collect::<Vec<_>>(), ["X1", "X2"]);
        assert_eq!(graph.stages[0].grid, (4, 4));
        assert_eq!(read.footprint.cols.range(512, 0, 0, 3), 192..256);
    }
}
