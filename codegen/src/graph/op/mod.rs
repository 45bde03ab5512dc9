//! What stages compute: a file an operation, with all that the graph layer decides by it.
//!
//! The files hold shapes, tiles, footprints, reads and what a tile costs. Whoever else must know an operation is one of
//! the few that do its arithmetic; ARCHITECTURE.md lists them under "How to add an operation".

mod attention;
mod conv;
mod custom;
mod gemm;
mod norm;
mod pool;
mod sliding;

use std::ops::Range;

pub use attention::{Attend, Attention, Cache, Heads, PAGE, Rotated};
pub use conv::Conv;
pub use norm::Norm;
pub use pool::Pool;
pub use sliding::{Sliding, Window};

use super::dims::Dims;
use super::resolved::{CustomShape, Read};
use super::{Footprint, Operand, Stage, Tensor, TensorId};
pub use crate::device::{Activation, Epilogue};
use crate::device::{ChainKernel, DECODE_KERNELS, KernelShape, Operation};
use crate::diagnostic::{Diagnostic, Spanned};
use crate::executor::Executor;
use crate::obstacle::Obstacle;
pub(crate) use crate::operand::OperandKind;
use crate::spec::{StageKind, StageSpec, TensorUse};
use crate::sync::{Policy, Tile};

/// What a stage computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out = act(a * b + bias) + residual`, or with the residual before the activation.
    Gemm(Epilogue),
    /// `out = silu(a * gate) * (a * up)`; gate and up columns interleaved in groups of 8.
    GatedGemm,
    /// `out = a * b + bias`, the queries, keys and values of a prompt, of which queries and keys are rotated.
    RotatedGemm(Rotated),
    /// The same as a GEMM of `conv(a, b)` over NHWC images; b is the filter, R S C x K.
    Conv2d(Conv),
    /// Scaled dot-product attention of the whole sequences of a fused QKV matrix.
    Attention(Attention),
    /// The same of the next token of each sequence, with those before in a cache.
    Attend(Attend),
    /// Every row of a matrix brought to one scale.
    Norm(Norm),
    /// The greatest or the mean of the pixels under a window, over NHWC images.
    Pool(Pool),
    /// A user's own kernel, known by its footprints only.
    Custom,
}

impl Op {
    /// Everything that this layer decides by the operation.
    pub(crate) fn rules(&self) -> &dyn Rules {
        match self {
            Op::Gemm(epilogue) => gemm::plain(*epilogue),
            Op::GatedGemm => gemm::GATED,
            Op::RotatedGemm(rotated) => rotated,
            Op::Conv2d(conv) => conv,
            Op::Attention(attention) => attention,
            Op::Attend(attend) => attend,
            Op::Norm(norm) => norm,
            Op::Pool(pool) => pool,
            Op::Custom => &custom::Custom,
        }
    }

    /// The operation in tiles of this size: where what a tile reads depends on more than its place.
    pub(crate) fn tiled(&self, tile: MmaTile) -> Op {
        match self {
            Op::Conv2d(conv) => Op::Conv2d(conv.tiled(tile)),
            Op::Gemm(_)
            | Op::GatedGemm
            | Op::RotatedGemm(_)
            | Op::Attention(_)
            | Op::Attend(_)
            | Op::Norm(_)
            | Op::Pool(_)
            | Op::Custom => self.clone(),
        }
    }

    /// Whether it is a product of whole matrices: what decode kernels cut into even shares.
    pub fn is_gemm(&self) -> bool {
        self.rules().cost().gemm
    }

    /// Whether a tile multiplies by two weights, gate and up.
    pub fn is_gated(&self) -> bool {
        *self == Op::GatedGemm
    }

    /// Whether its owner brings the kernel.
    pub fn is_custom(&self) -> bool {
        *self == Op::Custom
    }

    /// The attention of one more token of each sequence, where it is that.
    pub fn attend(&self) -> Option<&Attend> {
        match self {
            Op::Attend(attend) => Some(attend),
            Op::Gemm(_)
            | Op::GatedGemm
            | Op::RotatedGemm(_)
            | Op::Conv2d(_)
            | Op::Attention(_)
            | Op::Norm(_)
            | Op::Pool(_)
            | Op::Custom => None,
        }
    }

    /// The cache that it reads earlier tokens from, where it has one.
    pub fn cache(&self) -> Option<Cache> {
        match self {
            Op::Attend(shape) => Some(shape.cache),
            Op::Attention(shape) => shape.cache,
            Op::Gemm(_)
            | Op::GatedGemm
            | Op::RotatedGemm(_)
            | Op::Conv2d(_)
            | Op::Norm(_)
            | Op::Pool(_)
            | Op::Custom => None,
        }
    }

    /// The kind of stage, as a spec names it.
    pub fn name(&self) -> &'static str {
        self.rules().name()
    }

    /// What a kernel of the library would compute for it; `None` for a custom stage, whose owner has the kernel.
    pub fn operation(&self) -> Option<Operation> {
        self.rules().operation()
    }

    /// Whether an executor has a kernel for it on an architecture, or its owner brings one.
    pub fn has_kernel(&self, arch: u32, executor: Executor) -> bool {
        let Some(operation) = self.operation() else { return true };
        match executor {
            // A device without any of them is refused as a whole.
            Executor::Fused => {
                let decodes = || DECODE_KERNELS.iter().any(|k| k.operations.contains(operation));
                self.in_chain() || decodes()
            }
            // Sessions are of decode kernels for products alone.
            Executor::Copilot => self.is_gemm() && arch == 90,
            Executor::Cpu
            | Executor::Serial
            | Executor::Library
            | Executor::Streams
            | Executor::Programmatic => KernelShape::built(arch, operation).next().is_some(),
        }
    }

    /// Whether cuBLASLt computes it of operands of these kinds, but for gating and rotating, which are kernels of their own there.
    pub fn in_library(&self, kinds: impl Iterator<Item = OperandKind> + Clone) -> bool {
        self.rules().in_library(&|kind| kinds.clone().any(|other| other == kind))
    }

    /// Whether a chain kernel runs it, in some of its tiles.
    pub fn in_chain(&self) -> bool {
        let runs = |operation| ChainKernel::running([operation].into_iter().collect()).next().is_some();
        self.unfit_in_any().is_none() && self.operation().is_some_and(runs)
    }

    /// Why no chain kernel runs it in any of its own tiles: the reason of the tile that comes nearest.
    pub fn unfit_in_any(&self) -> Option<Obstacle> {
        match self.rules().tiles(1) {
            Tiles::Own { list, .. } => self.unfit_in(&list),
            Tiles::Stated | Tiles::Kernels(_) => None,
        }
    }

    /// Why no kernel runs it in any of these tiles.
    pub(crate) fn unfit_in(&self, tiles: &[MmaTile]) -> Option<Obstacle> {
        let unfit = tiles.iter().map(|tile| self.tiled(*tile).unfit(*tile));
        let unfit: Vec<Obstacle> = unfit.collect::<Option<_>>()?;
        Some(Obstacle::nearest(unfit).unwrap_or_else(|| Obstacle::new("has no tile")))
    }

    /// Whether its tiles are those of the kernel that runs it, so that it may share a kernel with others of that tile; else
    /// it has its own in any kernel.
    pub fn has_kernel_tiles(&self) -> bool {
        matches!(self.rules().tiles(1), Tiles::Kernels(_) | Tiles::Own { of_kernel: true, .. })
    }

    /// Why no kernel runs it in tiles of this MMA tile; it is of no stage yet.
    pub fn unfit(&self, tile: MmaTile) -> Option<Obstacle> {
        self.rules().unfit(tile)
    }

    /// Why no kernel that runs other stages too runs it in tiles of this MMA tile, which one with a launch to itself does.
    pub(crate) fn unfit_beside_others(&self, tile: MmaTile) -> Option<Obstacle> {
        self.rules().unfit_beside_others(tile)
    }

    /// Rows of an MMA tile that kernels multiply.
    pub fn rows_multiplied(&self, tile: MmaTile) -> u32 {
        self.rules().rows_multiplied(tile)
    }

    /// Rows of the first operand that a k-block of a tile of `rows` rows brings.
    pub fn rows_loaded(&self, rows: u32) -> f64 {
        self.rules().rows_loaded(rows)
    }

    /// The activation of its epilogue.
    pub fn activation(&self) -> Activation {
        self.rules().activation()
    }

    /// Matrix products of an output tile and a k-block.
    pub fn products(&self) -> f64 {
        self.rules().cost().products
    }
}

/// An MMA tile: rows, columns, elements of a k-block.
pub(crate) type MmaTile = (u32, u32, u32);

/// The tiles that a stage may have.
pub(crate) enum Tiles {
    /// The one that the spec states.
    Stated,
    /// Those of the kernels that are built for this.
    Kernels(Operation),
    /// These, whatever kernels are built; `meaning` says what the three numbers are, `of_kernel` whether they are those of the
    /// kernel that runs the stage, where one does.
    Own { list: Vec<MmaTile>, meaning: &'static str, of_kernel: bool },
}

/// What the tiles of an operation cost.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    /// Whether it is a GEMM of whole matrices.
    pub(crate) gemm: bool,
    /// Matrix products of an output tile and a k-block.
    pub(crate) products: f64,
    pub(crate) bound: Bound,
}

/// What bounds the time of tiles.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// The rate and the copies of the GEMM kernel with this tile; rows of tiles share operand B.
    Kernel,
    /// This share of the matrix rate; the first operand's tensor is read once.
    Rate(f64),
    /// Reading every operand once and writing the output.
    Bytes,
}

/// What the graph layer, and the choice after it, must know of an operation. A default is what is right for an
/// operation that has no special case there; what an operation computes, reads and costs it has to say itself.
pub(crate) trait Rules {
    /// The kind of stage, as a spec names it.
    fn name(&self) -> &'static str;

    /// See [`Op::operation`].
    fn operation(&self) -> Option<Operation>;

    /// The operation and its parameters, as rendered files describe them.
    fn label(&self) -> String;

    /// The activation of its epilogue.
    fn activation(&self) -> Activation {
        Activation::Identity
    }

    /// What a stage of it is called in messages.
    fn noun(&self) -> &'static str;

    /// The tiles that a stage with rows of `n` columns may have.
    fn tiles(&self, n: u32) -> Tiles;

    /// Whether a stage with rows of `n` columns can have a tile at all, whatever kernels are built.
    fn takes(&self, tile: MmaTile, n: u32) -> bool;

    /// Rows and columns of output of an MMA tile.
    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        (tile.0, tile.1)
    }

    /// Why its tiles are not split along k, as `is not ...`; `None` when they may be.
    fn unsplit(&self) -> Option<&'static str> {
        None
    }

    /// k-blocks of a reduction over `k` elements, for tiles of this MMA tile.
    fn k_blocks(&self, k: u32, tile: MmaTile) -> u32 {
        k.div_ceil(tile.2)
    }

    /// Places of the first operand that a tile looks at in a k-block: taps of a filter.
    fn taps_of_k_block(&self, _tile: MmaTile) -> u32 {
        1
    }

    /// The elements of the reduction that a k-block adds up.
    fn elements(&self, stage: &Stage, k_block: u32) -> Range<u32> {
        At::along(k_block, stage.mma_tile.2, stage.k)
    }

    /// k-blocks of the tiles of row `m`.
    fn k_blocks_of(&self, stage: &Stage, _m: u32) -> u32 {
        stage.k_blocks
    }

    /// The shape that an operand of a stage of (M, N, K) must have; `None` where it has no such operand, or any shape will do.
    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)>;

    /// The footprint of an operand, and the one that follows a filter; `None` where it leaves 32 bits, and for what a spec
    /// states.
    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)>;

    /// See [`Stage::reads_by`].
    fn reads_by(&self, operand: &Operand) -> (bool, bool);

    /// See [`Stage::reads`].
    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>));

    /// See [`Stage::reads_again`].
    fn reads_again(&self, _operand: &Operand, k: u32) -> Range<u32> {
        k..k + 1
    }

    /// Why no stage may write an operand; `None` where one may.
    fn constant(&self, _kind: OperandKind) -> Option<Constant> {
        None
    }

    /// Whether operand A reads beyond the tile's own rows, as a filter does: what [`Policy::ConvHalo`] is for.
    fn has_halo(&self) -> bool {
        false
    }

    /// A policy that suits an operand whose producer's tiles are `columns` wide, beside those that suit every one.
    fn policy(&self, _operand: &Operand, _columns: u32) -> Option<Policy> {
        None
    }

    /// See [`Op::unfit_beside_others`].
    fn unfit_beside_others(&self, _tile: MmaTile) -> Option<Obstacle> {
        None
    }

    /// See [`Op::unfit`].
    fn unfit(&self, _tile: MmaTile) -> Option<Obstacle> {
        None
    }

    /// See [`Op::in_library`]; `has`: whether it has an operand of a kind.
    fn in_library(&self, _has: &dyn Fn(OperandKind) -> bool) -> bool {
        false
    }

    /// See [`Op::rows_multiplied`].
    fn rows_multiplied(&self, tile: MmaTile) -> u32 {
        tile.0
    }

    /// See [`Op::rows_loaded`].
    fn rows_loaded(&self, rows: u32) -> f64 {
        rows.into()
    }

    fn cost(&self) -> Cost;
}

/// Why an operand is an input of the pipeline.
pub(crate) struct Constant {
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
    pub(crate) note: &'static str,
    pub(crate) help: &'static str,
}

/// A tile that reads an operand at a k-block.
pub(crate) struct At<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) operand: &'a Operand,
    /// The operand's.
    pub(crate) tensor: &'a Tensor,
    /// Row and column of the tile.
    pub(crate) tile: (u32, u32),
    pub(crate) k: u32,
}

impl At<'_> {
    /// The elements of tile or k-block number `at` along an axis, in steps of `step`.
    fn along(at: u32, step: u32, length: u32) -> Range<u32> {
        let clip = |x: u32| x.saturating_mul(step).min(length);
        clip(at)..clip(at.saturating_add(1))
    }

    fn place(&self) -> Tile {
        Tile { m: self.tile.0, n: self.tile.1 }
    }

    /// The tensor's rows that the tile's rows are.
    fn rows(&self) -> Range<u32> {
        clip(self.stage.writes(self.place()).0, self.tensor.rows)
    }

    /// The tensor's columns that the tile's columns are.
    fn cols(&self) -> Range<u32> {
        clip(self.stage.writes(self.place()).1, self.tensor.cols)
    }
}

fn clip(range: Range<u32>, length: u32) -> Range<u32> {
    range.start.min(length)..range.end.min(length)
}

/// A stage as stated, its tensors known.
pub(super) struct Stated<'a> {
    pub(super) stage: &'a StageSpec,
    pub(super) dims: &'a Dims,
    pub(super) tensors: &'a [Tensor],
    pub(super) reads: &'a [Read],
    pub(super) out: &'a Spanned<TensorId>,
}

/// What becomes of it.
pub(super) struct Lowered {
    pub(super) op: Op,
    /// Length of the reduction.
    pub(super) k: u32,
    /// The shape that a custom stage states.
    pub(super) custom: Option<CustomShape>,
    /// The footprints that a custom stage states of its reads.
    pub(super) footprints: Vec<Footprint>,
}

/// An operation whose tensors agree with it.
pub(super) fn lower(stated: &Stated<'_>) -> Result<Lowered, Diagnostic> {
    let (op, k) = match &stated.stage.kind {
        StageKind::Gemm(epilogue) => (Op::Gemm(*epilogue), gemm::lower(stated)?),
        StageKind::GatedGemm => (Op::GatedGemm, gemm::lower(stated)?),
        StageKind::Rotated(spec) => attention::lower_rotated(spec, stated)?,
        StageKind::Conv2d(spec) => (Op::Conv2d(conv::lower(spec, stated)?), stated.tensor(1).rows),
        StageKind::Attention(spec) => attention::lower(spec, stated)?,
        StageKind::Pool(spec) => {
            let pool = pool::lower(spec, stated)?;
            (Op::Pool(pool), pool.sliding.filter.0 * pool.sliding.filter.1)
        }
        StageKind::Norm(spec) => (Op::Norm(norm::lower(spec, stated)?), stated.out().cols),
        StageKind::Custom(spec) => return custom::lower(spec, stated),
    };
    Ok(Lowered { op, k, custom: None, footprints: Vec::new() })
}

/// Elements in the 16 bytes that a TMA row must be a multiple of.
const ROW_GRANULE: u32 = 8;

impl Stated<'_> {
    /// The tensor of a read.
    fn tensor(&self, read: usize) -> &Tensor {
        &self.tensors[self.reads[read].tensor.0]
    }

    /// The four axes of a tensor as stated.
    fn axes(&self, used: &TensorUse) -> Result<[u32; 4], Diagnostic> {
        let mut sizes = [0; 4];
        for (size, axis) in sizes.iter_mut().zip(&used.args) {
            *size = self.dims.size(axis, "an axis")?;
        }
        Ok(sizes)
    }

    /// The tensor written.
    fn out(&self) -> &Tensor {
        &self.tensors[self.out.value.0]
    }

    /// Every row that the stage touches is whole TMA granules.
    fn check_rows(&self) -> Result<(), Diagnostic> {
        let uses = self.reads.iter().map(|read| (read.tensor, read.span));
        for (TensorId(id), span) in uses.chain([(self.out.value, self.out.span)]) {
            let Tensor { name, cols, .. } = &self.tensors[id];
            if !cols.is_multiple_of(ROW_GRANULE) {
                let message = format!("the rows of `{name}` have {cols} elements, not a multiple of 8");
                return Err(Diagnostic::new("row-granule", message)
                    .at(span, "TMA moves rows in granules of 16 bytes")
                    .help(format!("pad the columns to {}", cols.next_multiple_of(ROW_GRANULE))));
            }
        }
        Ok(())
    }
}
