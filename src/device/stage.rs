//! One stage of a kernel with its memory: the input of every kernel, peer and reference.

use std::sync::Arc;

use cusync_gen::graph::{Element, Op, OperandKind, Rotated, Stage};

use super::error::{Error, Result};
use super::memory::DeviceBuffer;
use super::repack::RepackedWeights;
use super::words;
use crate::ffi;

/// A tensor of 16-bit floats in device memory, stored as bits.
type Values = Arc<DeviceBuffer<u16>>;

/// Lengths or page numbers in device memory.
type Integers = Arc<DeviceBuffer<i32>>;

/// Source of an operand's values.
#[derive(Clone, Debug)]
pub enum OperandSource {
    /// A row-major matrix.
    Matrix(Values),
    /// Lengths or page numbers.
    Integers(Integers),
    /// Weights in the order in which decode kernels stream them.
    Repacked(Arc<RepackedWeights>),
}

impl OperandSource {
    /// Number of elements; of bytes if they are repacked.
    pub(super) fn len(&self) -> usize {
        match self {
            OperandSource::Matrix(values) => values.len(),
            OperandSource::Integers(values) => values.len(),
            OperandSource::Repacked(weights) => weights.bytes(),
        }
    }

    /// The device address.
    pub(super) fn pointer(&self) -> *mut std::ffi::c_void {
        match self {
            OperandSource::Matrix(values) => values.pointer(),
            OperandSource::Integers(values) => values.pointer(),
            OperandSource::Repacked(weights) => weights.pointer(),
        }
    }
}

/// A stage of a proved plan with its memory. Matrices are row-major.
#[derive(Clone, Debug)]
pub struct BoundStage {
    /// The stage as planned and proved.
    pub stage: Stage,
    /// Element type of its matrices.
    pub element: Element,
    /// Index of the stage in its plan, for reports.
    pub index: u32,
    /// In a decode kernel: index of the round, and number of rounds; each worker computes one part of the
    /// output per round.
    pub round: (u32, u32),
    /// Operands by role, each role once. Operand B of a gated stage also has the up weights, interleaved;
    /// the query of an attention stands for the matrix that also has keys and values.
    pub operands: Vec<(OperandKind, OperandSource)>,
    /// M x N.
    pub out: Values,
    /// Incoming edges.
    pub waits: Vec<ffi::cusync_edge>,
    /// Outgoing edges.
    pub posts: Vec<ffi::cusync_policy>,
}

impl BoundStage {
    /// Matrix of a role; `None` if there is none, or it is repacked.
    pub fn matrix(&self, kind: OperandKind) -> Option<&Values> {
        self.operands.iter().find_map(|(k, source)| match source {
            OperandSource::Matrix(values) if *k == kind => Some(values),
            OperandSource::Matrix(_) | OperandSource::Integers(_) | OperandSource::Repacked(_) => None,
        })
    }

    /// The lengths of its sequences.
    pub(super) fn lengths(&self) -> Option<&DeviceBuffer<i32>> {
        self.operands.iter().find_map(|(kind, source)| match source {
            OperandSource::Integers(values) if *kind == OperandKind::Lengths => Some(&**values),
            OperandSource::Matrix(_) | OperandSource::Integers(_) | OperandSource::Repacked(_) => None,
        })
    }

    /// Replaces the matrix of a role.
    pub fn set(&mut self, kind: OperandKind, values: Values) {
        self.operands.retain(|(k, _)| *k != kind);
        self.operands.push((kind, OperandSource::Matrix(values)));
    }

    /// Whether another stage has the same operation and sizes.
    pub fn is_like(&self, other: &BoundStage) -> bool {
        let sizes = |s: &BoundStage| (s.stage.m, s.stage.n, s.stage.k, s.element);
        self.stage.op == other.stage.op && sizes(self) == sizes(other)
    }

    /// Whether a second kernel rotates the heads of the product.
    pub fn rotates(&self) -> bool {
        matches!(self.stage.op, Op::RotatedGemm(_))
    }

    /// Columns of B as stored in memory.
    pub fn packed_columns(&self) -> u32 {
        if self.stage.op.is_gated() { 2 * self.stage.n } else { self.stage.n }
    }

    /// Matrices A, B and output of a stage whose operands are all plain matrices, with sizes checked against
    /// its shape.
    pub(super) fn product(&self) -> Result<(&Values, &Values, &Values)> {
        self.raw()?;
        let missing = |name: &str| Error::BadArgument(format!("{} without a matrix {name}", self.stage.name));
        let a = self.matrix(OperandKind::A).ok_or_else(|| missing("A"))?;
        let b = self.matrix(OperandKind::B).ok_or_else(|| missing("B"))?;
        Ok((a, b, &self.out))
    }

    /// The C form, after checking that every buffer has the size given by the shape.
    pub(super) fn raw(&self) -> Result<ffi::cusync_stage> {
        let mut raw = words::stage(&self.stage).ok_or_else(|| self.bad("no kernel runs it"))?;
        (raw.index, raw.round, raw.rounds) = (self.index, self.round.0, self.round.1);
        self.exact("the output", self.out.len(), (self.stage.m, self.stage.n))?;
        raw.out = self.out.pointer();
        self.fits("operands", self.operands.len(), raw.operands.len())?;
        self.fits("incoming edges", self.waits.len(), raw.waits.len())?;
        self.fits("outgoing edges", self.posts.len(), raw.posts.len())?;
        for (kind, source) in &self.operands {
            let data = self.pointer(*kind, source)?;
            // The kernel that rotates a product reads them itself.
            if self.rotates() && Rotated::is_of_heads(*kind) {
                continue;
            }
            raw.operands[raw.operand_count as usize] = words::operand(*kind, data);
            raw.operand_count += 1;
        }
        raw.wait_count = self.waits.len() as u32;
        raw.waits[..self.waits.len()].copy_from_slice(&self.waits);
        raw.post_count = self.posts.len() as u32;
        raw.posts[..self.posts.len()].copy_from_slice(&self.posts);
        Ok(raw)
    }

    /// Address of an operand, after checking its size.
    fn pointer(&self, kind: OperandKind, source: &OperandSource) -> Result<*mut std::ffi::c_void> {
        let Stage { op, n, k, .. } = &self.stage;
        let shape = self.stage.operand_shape(kind);
        let (rows, columns) = shape.ok_or_else(|| self.bad(&format!("{kind:?} is none of its operands")))?;
        let columns = if kind == OperandKind::B { self.packed_columns() } else { columns };
        let name = format!("{kind:?}");
        match source {
            // A table may have positions that no sequence reaches.
            OperandSource::Matrix(values) if kind == OperandKind::Rotary => {
                let least = values.len().min(rows as usize * columns as usize);
                self.exact(&name, least, (rows, columns))?;
                Ok(values.pointer())
            }
            OperandSource::Matrix(values) => {
                self.exact(&name, values.len(), (rows, columns))?;
                Ok(values.pointer())
            }
            OperandSource::Integers(values) => {
                self.exact(&name, values.len(), (rows, columns))?;
                Ok(values.pointer())
            }
            OperandSource::Repacked(weights) if kind == OperandKind::B && weights.fit(*k, *n, op) => {
                Ok(weights.pointer())
            }
            OperandSource::Repacked(_) => Err(self.bad(&format!("{kind:?} is laid out for another stage"))),
        }
    }

    fn bad(&self, why: &str) -> Error {
        Error::BadArgument(format!("{}: {why}", self.stage.name))
    }

    /// A saturated size never equals the length of a buffer.
    pub(super) fn exact(&self, name: &str, have: usize, (rows, columns): (u32, u32)) -> Result<()> {
        let want = rows as usize * columns as usize;
        if have == want {
            return Ok(());
        }
        Err(Error::Length { what: format!("{name} of {}", self.stage.name), have, want })
    }

    fn fits(&self, name: &str, have: usize, most: usize) -> Result<()> {
        if have <= most {
            return Ok(());
        }
        Err(self.bad(&format!("{have} {name}, a kernel takes {most}")))
    }

    /// One past the last semaphore slot of the stage's edges.
    pub(super) fn slots(&self) -> usize {
        let policies = self.waits.iter().map(|e| &e.policy).chain(&self.posts);
        policies.map(|p| p.slot_base as usize + p.slot_count as usize).max().unwrap_or(0)
    }

    /// Number of output parts that its weights are repacked for, if they are.
    pub(super) fn laid_out_for(&self) -> Option<u32> {
        self.operands.iter().find_map(|(_, source)| match source {
            OperandSource::Repacked(weights) => Some(weights.parts()),
            OperandSource::Matrix(_) | OperandSource::Integers(_) => None,
        })
    }

    /// Bytes of repacked weights.
    pub fn repacked_bytes(&self) -> usize {
        let bytes = |(_, source): &(OperandKind, OperandSource)| match source {
            OperandSource::Repacked(weights) => weights.bytes(),
            OperandSource::Matrix(_) | OperandSource::Integers(_) => 0,
        };
        self.operands.iter().map(bytes).sum()
    }
}

/// Scratch memory that the kernel of a stage needs, in bytes.
pub fn scratch_bytes(stage: &Stage) -> usize {
    let Op::Experts(shape) = &stage.op else { return 0 };
    let experts = words::experts(shape);
    // SAFETY: only reads `experts`, which outlives the call.
    unsafe { ffi::cusync_experts_scratch(&experts, stage.m, stage.n) as usize }
}
