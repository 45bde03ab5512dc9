//! What a tile reads and writes, from the shapes of its stage: the meaning of a graph, written down a second time. GEMM
//! footprints come from the operation and its MMA tile, not from the graph's footprints; only a user's own kernel has
//! nothing but its stated ones.

use std::ops::Range;

use cusync_gen::graph::{Axis, Graph, Op, OperandKind, StageId, TensorId};
use cusync_gen::policy::Tile;

/// Rows and columns of a tensor.
pub(crate) type Area = (Range<u32>, Range<u32>);

/// `count` elements from `first`, cut off at the ends of an axis.
fn clipped(first: i64, count: i64, length: u32) -> Range<u32> {
    let inside = |x: i64| x.max(0).min(i64::from(length)) as u32;
    let (begin, end) = (inside(first), inside(first + count));
    begin..end.max(begin)
}

fn stated(axis: &Axis, tile: Tile, k: u32, length: u32) -> Range<u32> {
    let [m, n, k] =
        [(axis.m, tile.m), (axis.n, tile.n), (axis.k, k)].map(|(c, x)| i64::from(c) * i64::from(x));
    clipped(m + n + k + i64::from(axis.offset), i64::from(axis.extent), length)
}

/// Output elements of a tile: rows, columns.
pub(crate) fn tile_size(graph: &Graph, stage: StageId) -> (u32, u32) {
    let stage = &graph.stages[stage.0];
    match stage.op {
        // Gate and up columns stand side by side in the accumulator.
        Op::GatedGemm => (stage.mma_tile.0, stage.mma_tile.1 / 2),
        Op::Gemm { .. } => (stage.mma_tile.0, stage.mma_tile.1),
        _ => stage.out_tile,
    }
}

/// Tiles of a stage along M and N.
pub(crate) fn grid(graph: &Graph, stage: StageId) -> (u32, u32) {
    let (rows, cols) = tile_size(graph, stage);
    let out = &graph.tensors[graph.stages[stage.0].out.0];
    (out.rows.div_ceil(rows), out.cols.div_ceil(cols))
}

/// k-blocks of a whole tile.
pub(crate) fn k_blocks(graph: &Graph, stage: StageId) -> u32 {
    let of = &graph.stages[stage.0];
    match of.op {
        Op::Gemm { .. } | Op::GatedGemm => of.k.div_ceil(of.mma_tile.2),
        _ => of.k_blocks,
    }
}

/// What a tile writes of its stage's output.
pub(crate) fn written(graph: &Graph, stage: StageId, tile: Tile) -> Area {
    let (rows, cols) = tile_size(graph, stage);
    let out = &graph.tensors[graph.stages[stage.0].out.0];
    let along =
        |index: u32, size: u32, length: u32| clipped(i64::from(index) * i64::from(size), size.into(), length);
    (along(tile.m, rows, out.rows), along(tile.n, cols, out.cols))
}

/// Whether an operand is read once, in the epilogue.
pub(crate) fn in_epilogue(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::Bias | OperandKind::Residual)
}

/// What a tile reads of an operand at a k-block.
pub(crate) fn read(graph: &Graph, stage: StageId, operand: usize, tile: Tile, k: u32) -> Area {
    let of = &graph.stages[stage.0];
    let (rows, cols) = tile_size(graph, stage);
    let read = &of.operands[operand];
    let tensor = &graph.tensors[read.tensor.0];
    let along =
        |index: u32, size: u32, length: u32| clipped(i64::from(index) * i64::from(size), size.into(), length);
    let gemm = matches!(of.op, Op::Gemm { .. } | Op::GatedGemm);
    match read.kind {
        _ if !gemm => {
            let footprint = &read.footprint;
            (stated(&footprint.rows, tile, k, tensor.rows), stated(&footprint.cols, tile, k, tensor.cols))
        }
        OperandKind::A => (along(tile.m, rows, tensor.rows), along(k, of.mma_tile.2, tensor.cols)),
        OperandKind::B | OperandKind::Up => {
            (along(k, of.mma_tile.2, tensor.rows), along(tile.n, cols, tensor.cols))
        }
        OperandKind::Bias => (0..1, along(tile.n, cols, tensor.cols)),
        OperandKind::Residual => (along(tile.m, rows, tensor.rows), along(tile.n, cols, tensor.cols)),
        _ => (0..0, 0..0),
    }
}

/// The share of a read that CTA `index` of the `of` that have it in common loads for all of them: `index`-th part of the
/// rows of operand A, of the columns of operand B. The parts are equal and whole, as a copy's box is fixed.
pub(crate) fn share(
    kind: OperandKind,
    (rows, cols): Area,
    whole: (u32, u32),
    (of, index): (u32, u32),
) -> Area {
    let part = |range: Range<u32>, whole: u32| {
        let each = whole / of;
        let (begin, end) = (range.start + each * index, range.start + each * (index + 1));
        begin.min(range.end)..end.min(range.end)
    };
    match kind {
        OperandKind::A => (part(rows, whole.0), cols),
        _ => (rows, part(cols, whole.1)),
    }
}

/// The tensor whose memory a tensor lives in.
pub(crate) fn memory_of(graph: &Graph, mut tensor: TensorId) -> TensorId {
    for _ in 0..graph.tensors.len() {
        match graph.tensors[tensor.0].alias {
            Some(next) => tensor = next,
            None => break,
        }
    }
    tensor
}
