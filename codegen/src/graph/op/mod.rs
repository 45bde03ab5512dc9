//! The operations of stages, one file per operation, with everything the graph layer decides by operation.
//!
//! The files define shapes, tiles, footprints, reads and tile costs. Only a few other places, which do the arithmetic,
//! distinguish operations; ARCHITECTURE.md lists them under "How to add an operation".

mod attention;
mod conv;
mod cost;
mod custom;
mod experts;
mod gemm;
mod group_norm;
mod grouped_conv;
mod lower;
mod norm;
mod normed_gemm;
mod pool;
mod sliding;

use std::ops::Range;

pub use attention::{Attend, Attention, Cache, Heads, PAGE, Rotated, Scores};
pub use conv::Conv;
pub(crate) use cost::{Bound, Cost};
pub use experts::Experts;
pub use group_norm::GroupNorm;
pub use grouped_conv::GroupedConv;
pub(super) use lower::{Lowered, Stated, lower};
pub use norm::Norm;
pub use normed_gemm::NormedGemm;
pub use pool::Pool;
pub use sliding::{Sliding, Window};

use super::{DataType, Footprint, Operand, Stage, Tensor};
use crate::device::{ALONE, ChainKernel, DECODE_KERNELS, KernelShape, Operation, Operations};
pub use crate::device::{Activation, Epilogue};
use crate::executor::Executor;
use crate::obstacle::Obstacle;
pub(crate) use crate::operand::OperandKind;
use crate::sync::{Policy, Tile};

/// Elements in 16 bytes, the granule of TMA and `cp.async`: GPU kernels take rows of a multiple of this.
const ROW_GRANULE: u32 = 8;

/// The operation of a stage.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out = act(a * b + bias) + residual`, or with the residual before the activation.
    Gemm(Epilogue),
    /// `out = act(a * gate) * (a * up)`; gate and up columns interleaved in groups of 8.
    GatedGemm(Activation),
    /// A GEMM or a gated one of `a / rms(a) * gain`, row by row.
    NormedGemm(NormedGemm),
    /// `out = a * b + bias`: the queries, keys and values of a prompt, with rotated queries and keys.
    RotatedGemm(Rotated),
    /// A GEMM of `conv(a, b)` over NHWC images with the same epilogue; b is the filter, R S C x K.
    Conv2d(Conv),
    /// The same in groups of channels; b is R S C/groups x K.
    GroupedConv(GroupedConv),
    /// Scaled dot-product attention over the whole sequences of a fused QKV matrix.
    Attention(Attention),
    /// The same for the next token of each sequence, with earlier tokens in a cache.
    Attend(Attend),
    /// Normalization of every row of a matrix.
    Norm(Norm),
    /// Normalization of groups of channels, over NHWC images.
    GroupNorm(GroupNorm),
    /// The maximum or mean of the pixels under a window, over NHWC images.
    Pool(Pool),
    /// Rows computed by the few experts that they choose.
    Experts(Experts),
    /// A user's own kernel, known only by its footprints.
    Custom,
}

impl Op {
    /// Everything this layer decides by operation.
    pub(crate) fn rules(&self) -> &dyn Rules {
        match self {
            Op::Gemm(epilogue) => epilogue,
            Op::GatedGemm(gate) => gate,
            Op::NormedGemm(normed) => normed,
            Op::RotatedGemm(rotated) => rotated,
            Op::Conv2d(conv) => conv,
            Op::GroupedConv(conv) => conv,
            Op::Attention(attention) => attention,
            Op::Attend(attend) => attend,
            Op::Norm(norm) => norm,
            Op::GroupNorm(norm) => norm,
            Op::Pool(pool) => pool,
            Op::Experts(experts) => experts,
            Op::Custom => &custom::Custom,
        }
    }

    /// The operation in tiles of this size, if reads depend on more than the tile's coordinates.
    pub(crate) fn tiled(&self, tile: MmaTile) -> Op {
        match self {
            Op::Conv2d(conv) => Op::Conv2d(conv.tiled(tile)),
            Op::Gemm(_)
            | Op::GatedGemm(_)
            | Op::GroupedConv(_)
            | Op::NormedGemm(_)
            | Op::RotatedGemm(_)
            | Op::Attention(_)
            | Op::Attend(_)
            | Op::Norm(_)
            | Op::GroupNorm(_)
            | Op::Pool(_)
            | Op::Experts(_)
            | Op::Custom => self.clone(),
        }
    }

    /// Whether it is a product of whole matrices, which decode kernels cut into even shares.
    pub fn is_gemm(&self) -> bool {
        self.rules().cost().gemm
    }

    /// Whether a tile multiplies by two weights, gate and up.
    pub fn is_gated(&self) -> bool {
        matches!(self, Op::GatedGemm(_) | Op::NormedGemm(NormedGemm { gated: true, .. }))
    }

    /// Whether the user provides the kernel.
    pub fn is_custom(&self) -> bool {
        *self == Op::Custom
    }

    /// The token-generation attention, if it is one.
    pub fn attend(&self) -> Option<&Attend> {
        match self {
            Op::Attend(attend) => Some(attend),
            Op::Gemm(_)
            | Op::GatedGemm(_)
            | Op::NormedGemm(_)
            | Op::RotatedGemm(_)
            | Op::Conv2d(_)
            | Op::GroupedConv(_)
            | Op::Attention(_)
            | Op::Norm(_)
            | Op::GroupNorm(_)
            | Op::Pool(_)
            | Op::Experts(_)
            | Op::Custom => None,
        }
    }

    /// The cache from which it reads earlier tokens, if any.
    pub fn cache(&self) -> Option<Cache> {
        match self {
            Op::Attend(shape) => Some(shape.cache),
            Op::Attention(shape) => shape.cache,
            Op::Gemm(_)
            | Op::GatedGemm(_)
            | Op::NormedGemm(_)
            | Op::RotatedGemm(_)
            | Op::Conv2d(_)
            | Op::GroupedConv(_)
            | Op::Norm(_)
            | Op::GroupNorm(_)
            | Op::Pool(_)
            | Op::Experts(_)
            | Op::Custom => None,
        }
    }

    /// Tokens per sequence, new ones included, that predictions assume, if it reads the lengths of a cache.
    pub fn expected(&self) -> Option<u32> {
        match self {
            Op::Attend(shape) => Some(shape.expected),
            Op::Attention(shape) => shape.expected,
            Op::Gemm(_)
            | Op::GatedGemm(_)
            | Op::NormedGemm(_)
            | Op::RotatedGemm(_)
            | Op::Conv2d(_)
            | Op::GroupedConv(_)
            | Op::Norm(_)
            | Op::GroupNorm(_)
            | Op::Pool(_)
            | Op::Experts(_)
            | Op::Custom => None,
        }
    }

    /// The kind of stage, as named in a spec.
    pub fn name(&self) -> &'static str {
        self.rules().name()
    }

    /// The operation of a library kernel for it; `None` for a custom stage, which has a user kernel.
    pub fn operation(&self) -> Option<Operation> {
        self.rules().operation()
    }

    /// Whether an executor has a kernel for it on an architecture, or the user provides one.
    pub fn has_kernel(&self, arch: u32, executor: Executor) -> bool {
        let Some(operation) = self.operation() else { return true };
        match executor {
            // A device without any of them is rejected as a whole.
            Executor::Fused => {
                // A product that rotates is a plain one to kernels, and only between kernel boundaries.
                let rotates = matches!(self, Op::RotatedGemm(_));
                let decodes = || !rotates && DECODE_KERNELS.iter().any(|k| k.operations.contains(operation));
                self.in_chain() || decodes()
            }
            // Sessions use decode kernels for products only.
            Executor::Copilot => Operations::products().contains(operation) && arch == 90,
            Executor::Cpu
            | Executor::Serial
            | Executor::Library
            | Executor::Streams
            | Executor::Programmatic => {
                self.unfit_beside_others().is_none() && KernelShape::built(arch, operation).next().is_some()
            }
        }
    }

    /// Whether a kernel that neither waits nor posts runs a stage with rows of `n` columns, if it has a launch to itself.
    pub fn runs_alone(&self, n: u32) -> bool {
        let wide = matches!(self, Op::Norm(_)) && n > norm::MOST_ALONE;
        !wide && self.operation().is_some_and(|operation| ALONE.contains(operation))
    }

    /// Whether cuBLASLt computes it for operands of these kinds. Gating and rotating are separate kernels there.
    pub fn in_library(&self, kinds: impl Iterator<Item = OperandKind> + Clone) -> bool {
        self.rules().in_library(&|kind| kinds.clone().any(|other| other == kind))
    }

    /// Whether a chain kernel runs it in some of its tiles.
    pub fn in_chain(&self) -> bool {
        let runs = |operation| ChainKernel::running([operation].into_iter().collect()).next().is_some();
        let built = !matches!(self, Op::Norm(norm) if !norm.is_plain());
        built && self.unfit_in_any().is_none() && self.operation().is_some_and(runs)
    }

    /// Why no chain kernel runs it in any of its own tiles: the reason for the tile that comes closest.
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

    /// Whether it uses the tiles of the kernel that runs it, so it can share a kernel with others of that tile;
    /// otherwise it has its own tiles in any kernel.
    pub fn has_kernel_tiles(&self) -> bool {
        matches!(self.rules().tiles(1), Tiles::Kernels(_) | Tiles::Own { of_kernel: true, .. })
    }

    /// Why no kernel runs it in tiles of this MMA tile; no stage is named yet.
    pub fn unfit(&self, tile: MmaTile) -> Option<Obstacle> {
        self.rules().unfit(tile)
    }

    /// Why no kernel of the library runs it on these tensors, each with the columns of its rows: a row of one is not
    /// whole granules. No stage is named yet.
    pub fn unfit_rows<'a>(&self, tensors: impl Iterator<Item = (&'a Tensor, u32)>) -> Option<Obstacle> {
        let ragged =
            |(t, cols): &(&Tensor, u32)| t.data == DataType::Element && !cols.is_multiple_of(ROW_GRANULE);
        let (Tensor { name, .. }, cols) = tensors.filter(|_| !self.is_custom()).find(ragged)?;
        let text = format!(
            "has rows of {cols} elements in `{name}`, and kernels move rows in steps of {ROW_GRANULE}: pad them to {}",
            cols.next_multiple_of(ROW_GRANULE)
        );
        Some(Obstacle::new(text).numbers(cols, ROW_GRANULE))
    }

    /// Why no kernel of the library runs it: its activation has parameters. No stage is named yet.
    pub fn unfit_activation(&self) -> Option<Obstacle> {
        let activation = match self {
            Op::GroupNorm(norm) => norm.activation,
            Op::Gemm(_)
            | Op::GatedGemm(_)
            | Op::NormedGemm(_)
            | Op::RotatedGemm(_)
            | Op::Conv2d(_)
            | Op::GroupedConv(_)
            | Op::Attention(_)
            | Op::Attend(_)
            | Op::Norm(_)
            | Op::Pool(_)
            | Op::Experts(_)
            | Op::Custom => self.epilogue().activation,
        };
        let text = format!("applies {activation}, and kernels take no numbers of an activation");
        activation.number().is_none().then(|| Obstacle::new(text))
    }

    /// Why only a launch to itself runs it, between kernel boundaries; `None` if its tiles can be waited for.
    pub(crate) fn unfit_beside_others(&self) -> Option<Obstacle> {
        self.rules().unfit_beside_others()
    }

    /// Rows of an MMA tile that kernels multiply.
    pub fn rows_multiplied(&self, tile: MmaTile) -> u32 {
        self.rules().rows_multiplied(tile)
    }

    /// Rows of the first operand that a k-block loads for a tile of `rows` rows.
    pub fn rows_loaded(&self, rows: u32) -> f64 {
        self.rules().rows_loaded(rows)
    }

    /// The operations on its sums; the activation of a gated product is its gate's.
    pub fn epilogue(&self) -> Epilogue {
        self.rules().epilogue()
    }

    /// Matrix products per output tile and k-block.
    pub fn products(&self) -> f64 {
        self.rules().cost().products
    }
}

/// An MMA tile: rows, columns, elements of a k-block.
pub(crate) type MmaTile = (u32, u32, u32);

/// The tiles that a stage may have.
pub(crate) enum Tiles {
    /// The tile stated in the spec.
    Stated,
    /// The tiles of the kernels built for this operation.
    Kernels(Operation),
    /// These tiles, regardless of the kernels built. `meaning` describes the three numbers; `of_kernel` tells whether
    /// they are the tiles of the kernel that runs the stage, if any.
    Own { list: Vec<MmaTile>, meaning: &'static str, of_kernel: bool },
}

/// Properties of an operation needed by the graph layer and by the choice. Defaults suit operations without special
/// cases; every operation must define its computation, reads and cost.
pub(crate) trait Rules {
    /// The kind of stage, as named in a spec.
    fn name(&self) -> &'static str;

    /// See [`Op::operation`].
    fn operation(&self) -> Option<Operation>;

    /// The operation and its parameters, as rendered files describe them.
    fn label(&self) -> String;

    /// See [`Op::epilogue`].
    fn epilogue(&self) -> Epilogue {
        Activation::Identity.into()
    }

    /// Its noun in messages.
    fn noun(&self) -> &'static str;

    /// The tiles that a stage with rows of `n` columns may have.
    fn tiles(&self, n: u32) -> Tiles;

    /// Whether a stage with rows of `n` columns can have a tile, regardless of the kernels built.
    fn takes(&self, tile: MmaTile, n: u32) -> bool;

    /// Output rows and columns of an MMA tile.
    fn out_tile(&self, tile: MmaTile) -> (u32, u32) {
        (tile.0, tile.1)
    }

    /// Why its tiles are not split along k, as `is not ...`; `None` if they may be.
    fn unsplit(&self) -> Option<&'static str> {
        None
    }

    /// k-blocks of a reduction over `k` elements, for tiles of this MMA tile.
    fn k_blocks(&self, k: u32, tile: MmaTile) -> u32 {
        k.div_ceil(tile.2)
    }

    /// Positions of the first operand that a tile reads in a k-block: taps of a filter.
    fn taps_of_k_block(&self, _tile: MmaTile) -> u32 {
        1
    }

    /// The elements of the reduction that a k-block sums.
    fn elements(&self, stage: &Stage, k_block: u32) -> Range<u32> {
        At::along(k_block, stage.mma_tile.2, stage.k)
    }

    /// k-blocks of the tiles of row `m`.
    fn k_blocks_of(&self, stage: &Stage, _m: u32) -> u32 {
        stage.k_blocks
    }

    /// The shape that an operand of a stage of (M, N, K) must have, saturated to 32 bits; `None` if there is no such
    /// operand, or any shape is valid. A table of rotation angles may have more rows.
    fn operand_shape(&self, kind: OperandKind, size: (u32, u32, u32)) -> Option<(u32, u32)>;

    /// The footprint of an operand, and the one that follows a filter; `None` on 32-bit overflow, and for footprints
    /// stated in the spec.
    fn footprint(&self, kind: OperandKind, tile: MmaTile) -> Option<(Footprint, Option<Footprint>)>;

    /// See [`Stage::reads_by`].
    fn reads_by(&self, operand: &Operand) -> (bool, bool);

    /// See [`Stage::reads`].
    fn reads(&self, at: &At<'_>, f: &mut dyn FnMut(Range<u32>, Range<u32>));

    /// See [`Stage::reads_again`].
    fn reads_again(&self, _operand: &Operand, k: u32) -> Range<u32> {
        k..k + 1
    }

    /// Why no stage may write an operand; `None` if one may.
    fn constant(&self, _kind: OperandKind) -> Option<Constant> {
        None
    }

    /// Whether operand A reads beyond the tile's own rows, as a filter does; [`Policy::ConvHalo`] is for these.
    fn has_halo(&self) -> bool {
        false
    }

    /// A policy that suits an operand with producer tiles of `columns` columns, in addition to those that suit every
    /// operand.
    fn policy(&self, _operand: &Operand, _columns: u32) -> Option<Policy> {
        None
    }

    /// See [`Op::unfit_beside_others`].
    fn unfit_beside_others(&self) -> Option<Obstacle> {
        None
    }

    /// See [`Op::unfit`].
    fn unfit(&self, _tile: MmaTile) -> Option<Obstacle> {
        None
    }

    /// See [`Op::in_library`]; `has` tells whether it has an operand of a kind.
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

/// Why an operand must be an input of the pipeline.
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
    /// Rows and columns under which the stage reads the operand.
    pub(crate) shape: (u32, u32),
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

    /// The operand's rows that correspond to the tile's rows.
    fn rows(&self) -> Range<u32> {
        clip(self.stage.writes(self.place()).0, self.shape.0)
    }

    /// The operand's columns that correspond to the tile's columns.
    fn cols(&self) -> Range<u32> {
        clip(self.stage.writes(self.place()).1, self.shape.1)
    }
}

fn clip(range: Range<u32>, length: u32) -> Range<u32> {
    range.start.min(length)..range.end.min(length)
}
