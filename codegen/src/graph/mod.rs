//! The lowered form of a pipeline: stages with grids, tensors, and the affine footprint of every operand.
//!
//! Everything here has been validated by [`crate::spec::Spec::resolve`] and [`Resolved::graph`]: dims are positive and
//! bounded, shapes match, names are identifiers, and the stage graph is acyclic and stored in topological order.
//!
//! ```
//! use cusync_gen::graph::gemm_chain;
//! use cusync_gen::sync::Tile;
//!
//! let graph = gemm_chain("chain", 200, &[64, 256, 128]).graph(&[(128, 128, 64); 2])?;
//! assert_eq!(graph.stages.iter().map(|stage| stage.tiles()).collect::<Vec<_>>(), [4, 2]);
//! // The last tile writes the remaining rows.
//! assert_eq!(graph.stages[1].writes(Tile { m: 1, n: 0 }), (128..200, 0..128));
//! assert_eq!(graph.dependences.len(), 1);
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

use std::ops::Range;

use crate::device::{ChainKernel, Operations};
use crate::sync::Tile;

mod canonical;
mod devices;
mod dims;
mod edge;
mod fit;
mod fixture;
mod lower;
mod op;
mod partition;
mod resolved;
mod stated;
mod view;
mod waits;

pub use crate::operand::{DataType, Element, OperandKind, When};
pub use crate::spec::StatedTile;
pub use devices::MAX_DEVICES;
pub use edge::EdgeNumbers;
pub use fixture::gemm_chain;
pub use lower::graph_with_tile;
pub use op::{
    Activation, Attend, Attention, Cache, Conv, Epilogue, Experts, GroupNorm, GroupedConv, Heads, Norm,
    NormedGemm, Op, PAGE, Pool, Rotated, Scores, Sliding, Window,
};
pub(crate) use op::{Bound, Cost, MmaTile, Tiles};
pub(crate) use partition::share_of;
pub use partition::{Partition, TileBox, share_begin};
pub use resolved::{
    CustomShape, MAX_FOOTPRINT_TILES, MAX_K_BLOCKS, MAX_TILES, Read, Resolved, ResolvedStage, StatedEdge,
    TileAssignment,
};
pub use view::View;
pub use waits::{WaitWalk, each_wait, producers_of, waits_differ};

/// Index of a tensor in [`Graph::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub usize);

/// Index of a stage in [`Graph::stages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StageId(pub usize);

/// A row-major matrix in device memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Identifier, unique in the pipeline.
    pub name: String,
    /// Rows.
    pub rows: u32,
    /// Columns (contiguous).
    pub cols: u32,
    /// The stage that writes it; `None` for an input or a weight.
    pub producer: Option<StageId>,
    /// The tensor that owns this one's memory, stated in the spec's `alias`; `None` if it has its own memory.
    pub alias: Option<TensorId>,
    /// Its element type.
    pub data: DataType,
    /// Whether stages change some elements in place, as attention appends to a cache: the tensor is both input and
    /// result, and persists across runs.
    pub state: bool,
    /// Whether callers keep it as columns x rows: it is transposed when they set or bind it.
    pub transposed: bool,
}

impl Tensor {
    /// A tensor of elements with its own memory, which no stage changes in place.
    pub fn new(name: impl Into<String>, rows: u32, cols: u32, producer: Option<StageId>) -> Tensor {
        let name = name.into();
        Tensor {
            name,
            rows,
            cols,
            producer,
            alias: None,
            data: DataType::Element,
            state: false,
            transposed: false,
        }
    }

    /// Rows and columns as callers keep it.
    pub fn caller_shape(&self) -> (u32, u32) {
        if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.cols)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.elements() * self.data.bytes()
    }
}

/// A footprint along one tensor axis, in elements. It begins at the affine position `m * tile_m + n * tile_n + k *
/// k_block + offset`, is `extent` elements long, and is clipped to the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Axis {
    /// Elements per consumer tile row index.
    pub m: i32,
    /// Elements per consumer tile column index.
    pub n: i32,
    /// Elements per k-block.
    pub k: i32,
    /// Constant part; negative for a halo.
    pub offset: i32,
    /// Length.
    pub extent: i32,
}

impl Axis {
    /// Elements read by tile `(m, n)` at k-block `k` on an axis of size `length`; empty if entirely outside.
    pub fn range(&self, length: u32, m: u32, n: u32, k: u32) -> Range<u32> {
        let first = i64::from(self.m) * i64::from(m)
            + i64::from(self.n) * i64::from(n)
            + i64::from(self.k) * i64::from(k)
            + i64::from(self.offset);
        let clip = |x: i64| x.clamp(0, i64::from(length)) as u32;
        let (begin, end) = (clip(first), clip(first + i64::from(self.extent)));
        begin..end.max(begin)
    }
}

/// Region of a tensor that a tile accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Footprint {
    /// Along the rows.
    pub rows: Axis,
    /// Along the columns.
    pub cols: Axis,
}

impl Footprint {
    /// Whether it depends on the tile's row, and on its column.
    pub fn varies(&self) -> (bool, bool) {
        let Footprint { rows, cols } = self;
        (rows.m != 0 || cols.m != 0, rows.n != 0 || cols.n != 0)
    }
}

/// A read of a stage.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its role.
    pub kind: OperandKind,
    /// The tensor read.
    pub tensor: TensorId,
    /// The shape under which it is read, if that is not its own.
    pub view: Option<View>,
    /// The region read of the tensor, per tile and k-block. For [`OperandKind::Bias`] and [`OperandKind::Residual`] the k
    /// coefficient is 0: they are read once, after the last k-block. If the region is not an affine box, this is a
    /// bounding box; [`Stage::reads`] is exact, or for some parts of rows under another shape also wider.
    pub footprint: Footprint,
    /// A footprint of a convolution's images with rows that follow the filter from k-block to k-block, for
    /// [`crate::sync::Policy::ConvHalo`].
    pub sliding: Option<Footprint>,
}

impl Operand {
    /// Rows and columns under which the stage reads its tensor.
    pub fn shape(&self, tensor: &Tensor) -> (u32, u32) {
        self.view.map_or((tensor.rows, tensor.cols), |view| (view.rows, view.cols))
    }

    /// The footprint that a policy waits for.
    pub fn window(&self, slots: &crate::sync::SlotMap) -> &Footprint {
        self.sliding.as_ref().filter(|_| slots.sliding).unwrap_or(&self.footprint)
    }
}

/// One kernel-sized operation.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Identifier, unique in the pipeline.
    pub name: String,
    /// Operation.
    pub op: Op,
    /// Rows of the output.
    pub m: u32,
    /// Columns of the output.
    pub n: u32,
    /// Length of the reduction; 1 for a custom stage without one.
    pub k: u32,
    /// Tile of the multiply-accumulate, as named by the kernel registry: (M, N, K). A gated GEMM's N counts packed
    /// columns, twice those of its output tile.
    pub mma_tile: (u32, u32, u32),
    /// How the output is divided into the tiles of the grid.
    pub partition: Partition,
    /// Tiles along M and N.
    pub grid: (u32, u32),
    /// k-blocks of one tile, over the whole reduction; see [`Stage::k_blocks_of`].
    pub k_blocks: u32,
    /// CTAs that share one tile along k; 1: no split. Slice z covers k-blocks `z * ceil(k_blocks / split_k) ..` of its
    /// tile.
    pub split_k: u32,
    /// Devices that compute the stage at once, each with its own part of the reduction; their products are summed
    /// before bias, activation and residual. 1: this device alone.
    pub devices: u32,
    /// Reads.
    pub operands: Vec<Operand>,
    /// The tensor written.
    pub out: TensorId,
}

impl Stage {
    /// Tiles of the grid.
    pub fn tiles(&self) -> u32 {
        self.grid.0 * self.grid.1
    }

    /// The operand of a kind; `None` if the stage has none.
    pub fn operand(&self, kind: OperandKind) -> Option<&Operand> {
        self.operands.iter().find(|operand| operand.kind == kind)
    }

    /// See [`Op::in_library`].
    pub fn in_library(&self) -> bool {
        self.op.in_library(self.operands.iter().map(|operand| operand.kind))
    }

    /// Rows and columns that an operand must have, saturated to 32 bits; `None` if the operation has no such operand,
    /// or takes any. A table of rotation angles may have more rows.
    pub fn operand_shape(&self, kind: OperandKind) -> Option<(u32, u32)> {
        self.op.rules().operand_shape(kind, (self.m, self.n, self.k))
    }

    /// Rows and columns of the largest tile of the output.
    pub fn out_tile(&self) -> (u32, u32) {
        self.partition.largest((self.m, self.n))
    }

    /// Rows and columns of the output that a tile writes.
    pub fn writes(&self, tile: Tile) -> (Range<u32>, Range<u32>) {
        self.partition.area((self.m, self.n), tile)
    }

    /// The tiles that write into a region of the output.
    pub fn writers(&self, rows: &Range<u32>, cols: &Range<u32>) -> impl Iterator<Item = Tile> + use<> {
        let (partition, size, empty) = (self.partition, (self.m, self.n), rows.is_empty() || cols.is_empty());
        let met = if empty { TileBox { m: 0..0, n: 0..0 } } else { partition.meeting(size, rows, cols) };
        met.tiles().filter(move |tile| !partition.area(size, *tile).1.is_empty())
    }

    /// A region of the output, extended to whole tiles.
    pub(crate) fn around(&self, (rows, cols): &(Range<u32>, Range<u32>)) -> (Range<u32>, Range<u32>) {
        if rows.is_empty() || cols.is_empty() {
            return (0..0, 0..0);
        }
        let (partition, size) = (self.partition, (self.m, self.n));
        let met = partition.meeting(size, rows, cols);
        let first = partition.area(size, Tile { m: met.m.start, n: met.n.start });
        let last = partition.area(size, Tile { m: met.m.end - 1, n: met.n.end - 1 });
        (first.0.start..last.0.end, first.1.start..last.1.end)
    }

    /// The elements of the reduction that a k-block sums.
    pub fn elements(&self, k_block: u32) -> Range<u32> {
        self.op.rules().elements(self, k_block)
    }

    /// k-blocks of the tiles of row `m`: fewer than [`Stage::k_blocks`] if a causal mask hides the rest.
    pub fn k_blocks_of(&self, m: u32) -> u32 {
        self.op.rules().k_blocks_of(self, m)
    }

    /// Whether the region that a tile reads of an operand at a k-block depends on the tile's row, and on its column;
    /// see [`Stage::reads`].
    pub fn reads_by(&self, operand: usize) -> (bool, bool) {
        self.op.rules().reads_by(&self.operands[operand])
    }

    /// Calls `f` with the boxes (rows, columns) of operand number `operand` that tile `tile` loads at k-block `k`.
    /// Proofs rely on these boxes. They follow from the operation; only a custom stage uses its stated footprints. A
    /// tile has [`Stage::k_blocks_of`] k-blocks. `tensor` is the operand's.
    pub fn reads(
        &self,
        operand: usize,
        tensor: &Tensor,
        tile: (u32, u32),
        k: u32,
        f: &mut dyn FnMut(Range<u32>, Range<u32>),
    ) {
        let operand = &self.operands[operand];
        let at = op::At { stage: self, operand, shape: operand.shape(tensor), tile, k };
        match operand.view {
            None => self.op.rules().reads(&at, f),
            Some(view) => {
                self.op.rules().reads(&at, &mut |rows, cols| view.boxes(tensor.cols, (&rows, &cols), f))
            }
        }
    }

    /// The k-blocks, including `k`, at which a tile reads the same region of an operand as at `k`.
    pub(crate) fn reads_again(&self, operand: usize, k: u32) -> Range<u32> {
        self.op.rules().reads_again(&self.operands[operand], k)
    }
}

/// A dependence: `consumer` reads, through operand number `operand`, a tensor that `producer` writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependence {
    /// Producer.
    pub producer: StageId,
    /// Consumer.
    pub consumer: StageId,
    /// Index into the consumer's [`Stage::operands`].
    pub operand: usize,
}

/// A lowered pipeline.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Identifier.
    pub name: String,
    /// Element type of every tensor.
    pub element: Element,
    /// Tensors.
    pub tensors: Vec<Tensor>,
    /// Stages, producers before consumers.
    pub stages: Vec<Stage>,
    /// Dependences, derived from the footprints, by consumer then operand.
    pub dependences: Vec<Dependence>,
    /// Resolved dims, in the spec's order.
    pub dims: Vec<(String, u32)>,
}

impl Graph {
    /// Floating-point operations of all stages.
    pub fn flop(&self) -> f64 {
        let stage_flop = |s: &Stage| 2.0 * f64::from(s.m) * f64::from(s.n) * f64::from(s.k) * s.op.products();
        self.stages.iter().map(stage_flop).sum()
    }

    /// Bytes of inputs, weights and results, each counted once; intermediate tensors may stay in the L2 cache.
    pub fn compulsory_bytes(&self) -> f64 {
        let read = |i: usize| self.stages.iter().any(|s| s.operands.iter().any(|o| o.tensor.0 == i));
        let outside = self.tensors.iter().enumerate().filter(|(i, t)| t.producer.is_none() || !read(*i));
        outside.map(|(_, t)| t.bytes() as f64).sum()
    }

    /// The MMA tile of one kernel for all stages: that of the first stage without tiles of its own, otherwise that of
    /// any chain kernel that runs them.
    pub fn kernel_tile(&self) -> MmaTile {
        let tiled = self.stages.iter().find(|s| s.op.has_kernel_tiles()).map(|s| s.mma_tile);
        tiled.or_else(|| ChainKernel::running(self.operations()).next().map(|k| k.tile)).unwrap_or_default()
    }

    /// One stage as a separate graph: outputs of other stages become inputs.
    pub fn only(&self, stage: StageId) -> Graph {
        let mut one = self.stages[stage.0].clone();
        let reads = one.operands.iter().map(|operand| operand.tensor);
        let used = Used::new(&self.tensors, reads.chain([one.out]));
        one.operands.iter_mut().for_each(|operand| operand.tensor = used.number(operand.tensor));
        one.out = used.number(one.out);
        Graph {
            name: self.name.clone(),
            element: self.element,
            tensors: used.tensors(&self.tensors, stage),
            stages: vec![one],
            dependences: Vec::new(),
            dims: self.dims.clone(),
        }
    }

    /// The operations that a kernel for all stages must support.
    pub fn operations(&self) -> Operations {
        self.stages.iter().filter_map(|stage| stage.op.operation()).collect()
    }

    /// Producer tiles in the footprints of a dependence, summed over all tiles and k-blocks of the consumer and
    /// rounded up: the cost of an enumeration.
    pub fn footprint_tiles(&self, dependence: &Dependence) -> u128 {
        let (producer, consumer) = (&self.stages[dependence.producer.0], &self.stages[dependence.consumer.0]);
        let footprint = &consumer.operands[dependence.operand].footprint;
        let along = |axis: &Axis, tile: u32, grid: u32| {
            // A range that does not start at a tile boundary overlaps one more tile.
            let aligned =
                [axis.m, axis.n, axis.k, axis.offset].iter().all(|c| c.unsigned_abs().is_multiple_of(tile));
            u128::from((axis.extent.unsigned_abs().div_ceil(tile) + u32::from(!aligned)).min(grid))
        };
        let met = along(&footprint.rows, producer.out_tile().0, producer.grid.0)
            * along(&footprint.cols, producer.out_tile().1, producer.grid.1);
        u128::from(consumer.tiles()) * u128::from(consumer.k_blocks) * met
    }
}

/// The tensors of a one-stage graph: those the stage uses, and the owners of their memory.
struct Used(Vec<TensorId>);

impl Used {
    fn new(tensors: &[Tensor], uses: impl Iterator<Item = TensorId>) -> Used {
        // Each owner once; alias cycles are rejected elsewhere.
        let owner = |id: &TensorId| tensors[id.0].alias;
        let owners = |first| std::iter::successors(Some(first), owner).take(tensors.len());
        let mut used: Vec<TensorId> = uses.flat_map(owners).collect();
        used.sort_unstable();
        used.dedup();
        Used(used)
    }

    /// The index of a tensor in the one-stage graph.
    fn number(&self, tensor: TensorId) -> TensorId {
        TensorId(self.0.partition_point(|used| *used < tensor))
    }

    /// The tensors of the one-stage graph; only stage 0 produces any.
    fn tensors(&self, all: &[Tensor], only: StageId) -> Vec<Tensor> {
        let tensor = |id: &TensorId| Tensor {
            producer: all[id.0].producer.filter(|stage| *stage == only).map(|_| StageId(0)),
            alias: all[id.0].alias.map(|owner| self.number(owner)),
            ..all[id.0].clone()
        };
        self.0.iter().map(tensor).collect()
    }
}
