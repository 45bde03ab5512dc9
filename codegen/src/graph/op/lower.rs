//! From stages as stated to operations: shapes are checked, and the length of the reduction follows.

use super::{NormedGemm, Op, attention, conv, custom, experts, gemm, group_norm, norm, pool};
use crate::diagnostic::{Diagnostic, Spanned};
use crate::graph::dims::Dims;
use crate::graph::resolved::{CustomShape, Read};
use crate::graph::{Footprint, Tensor, TensorId};
use crate::spec::{StageKind, StageSpec, TensorUse};

/// A stage as stated, with resolved tensors.
pub(in crate::graph) struct Stated<'a> {
    pub(in crate::graph) stage: &'a StageSpec,
    pub(in crate::graph) dims: &'a Dims,
    pub(in crate::graph) tensors: &'a [Tensor],
    pub(in crate::graph) reads: &'a [Read],
    /// Tensors of the reads, in the shapes under which the stage reads them.
    pub(in crate::graph) read: &'a [Tensor],
    pub(in crate::graph) out: &'a Spanned<TensorId>,
}

/// A lowered stage.
pub(in crate::graph) struct Lowered {
    pub(in crate::graph) op: Op,
    /// Length of the reduction.
    pub(in crate::graph) k: u32,
    /// The shape stated for a custom stage.
    pub(in crate::graph) custom: Option<CustomShape>,
    /// The footprints stated for the reads of a custom stage.
    pub(in crate::graph) footprints: Vec<Footprint>,
}

/// An operation, after checking its tensors.
pub(in crate::graph) fn lower(stated: &Stated<'_>) -> Result<Lowered, Diagnostic> {
    let (op, k) = match &stated.stage.kind {
        StageKind::Gemm(epilogue) => (Op::Gemm(*epilogue), gemm::lower(stated)?),
        StageKind::GatedGemm(gate) => (Op::GatedGemm(*gate), gemm::lower(stated)?),
        StageKind::NormedGemm { gated, epilogue, epsilon } => {
            let epsilon = norm::epsilon(epsilon)?;
            let normed = NormedGemm { gated: *gated, epilogue: *epilogue, epsilon };
            (Op::NormedGemm(normed), gemm::lower(stated)?)
        }
        StageKind::Rotated(spec) => attention::lower_rotated(spec, stated)?,
        StageKind::Conv2d(spec) => conv::lower(spec, stated)?,
        StageKind::Attention(spec) => attention::lower(spec, stated)?,
        StageKind::Pool(spec) => {
            let pool = pool::lower(spec, stated)?;
            (Op::Pool(pool), pool.sliding.filter.0 * pool.sliding.filter.1)
        }
        StageKind::GroupNorm(spec) => group_norm::lower(spec, stated)?,
        StageKind::Norm(spec) => (Op::Norm(norm::lower(spec, stated)?), stated.out().cols),
        StageKind::Experts(spec) => experts::lower(spec, stated)?,
        StageKind::Custom(spec) => return custom::lower(spec, stated),
    };
    Ok(Lowered { op, k, custom: None, footprints: Vec::new() })
}

impl Stated<'_> {
    /// The tensor of a read.
    pub(super) fn tensor(&self, read: usize) -> &Tensor {
        &self.read[read]
    }

    /// The four axes of a tensor as stated.
    pub(super) fn axes(&self, used: &TensorUse) -> Result<[u32; 4], Diagnostic> {
        let mut sizes = [0; 4];
        for (size, axis) in sizes.iter_mut().zip(&used.args) {
            *size = self.dims.size(axis, "an axis")?;
        }
        Ok(sizes)
    }

    /// The tensor written.
    pub(super) fn out(&self) -> &Tensor {
        &self.tensors[self.out.value.0]
    }
}
