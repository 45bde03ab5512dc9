//! The areas a tile reads and writes, from the shapes of its stage: a second definition of a graph's meaning. Reads
//! come from the operation's definition and its MMA tile, not from the graph's footprints; only a user's own kernel
//! relies on its stated footprints.

use std::ops::Range;

use cusync_gen::graph::{
    Attention, Axis, Conv, Graph, GroupedConv, Heads, NormedGemm, Op, OperandKind, Partition, Pool, Scores,
    Sliding, StageId, TensorId,
};
use cusync_gen::sync::Tile;

/// Rows and columns of a tensor.
pub(crate) type Area = (Range<u32>, Range<u32>);

/// `count` elements from `first`, clipped to the axis.
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

/// Output rows and columns of a tile.
pub(crate) fn tile_size(graph: &Graph, stage: StageId) -> (u32, u32) {
    let stage = &graph.stages[stage.0];
    match stage.op {
        // Gate and up columns are side by side in the accumulator.
        Op::GatedGemm(_) | Op::NormedGemm(NormedGemm { gated: true, .. }) => {
            (stage.mma_tile.0, stage.mma_tile.1 / 2)
        }
        // Whole rows of an image, or whole images.
        Op::Conv2d(Conv { window: Some(window), sliding: Sliding { output, .. }, .. }) => {
            assert!(output.0.is_multiple_of(window.rows) && (window.images == 1 || window.rows == output.0));
            (window.images * window.rows * output.1, stage.mma_tile.1)
        }
        Op::Gemm(_) | Op::NormedGemm(_) | Op::RotatedGemm(_) | Op::Conv2d(_) | Op::Attention(_) => {
            (stage.mma_tile.0, stage.mma_tile.1)
        }
        // One token, and the query heads that share a KV head.
        Op::Attend(shape) => (1, shape.heads.query / shape.heads.kv * shape.heads.dim),
        // Blocks of whole rows of pixels, or of whole images.
        Op::Pool(Pool { sliding, .. }) | Op::GroupedConv(GroupedConv { sliding, .. }) => {
            let (rows, (p, q)) = (stage.mma_tile.0, sliding.output);
            let whole = (p * q).is_multiple_of(rows) && rows.is_multiple_of(q) || rows.is_multiple_of(p * q);
            assert!(whole, "tiles of {rows} pixels of images of {p} x {q}: {stage:?}");
            (rows, graph.tensors[stage.out.0].cols)
        }
        // A group of an image.
        Op::GroupNorm(shape) => {
            let (out, tile) = (&graph.tensors[stage.out.0], stage.mma_tile);
            assert!(out.rows.is_multiple_of(tile.0) && out.cols.is_multiple_of(tile.1), "{stage:?}");
            assert_eq!((tile.0, tile.1), (shape.pixels, shape.channels), "{stage:?}");
            (tile.0, tile.1)
        }
        // Blocks of whole rows.
        Op::Norm(_) | Op::Experts(_) => (stage.mma_tile.0, graph.tensors[stage.out.0].cols),
        Op::Custom => stage.out_tile(),
    }
}

/// The number of shares of a stage's output along its columns; `None` if it is split into tiles.
pub(crate) fn shares(graph: &Graph, stage: StageId) -> Option<u32> {
    match graph.stages[stage.0].partition {
        Partition::Even { parts } => Some(parts),
        Partition::Tiles { .. } => None,
    }
}

/// Tiles of a stage along M and N.
pub(crate) fn grid(graph: &Graph, stage: StageId) -> (u32, u32) {
    let (rows, cols) = tile_size(graph, stage);
    let out = &graph.tensors[graph.stages[stage.0].out.0];
    match shares(graph, stage) {
        Some(parts) => (1, parts),
        None => (out.rows.div_ceil(rows), out.cols.div_ceil(cols)),
    }
}

/// k-blocks of the longest tile.
pub(crate) fn most_k_blocks(graph: &Graph, stage: StageId) -> u32 {
    let definition = &graph.stages[stage.0];
    let length = match &definition.op {
        Op::Gemm(_) | Op::GatedGemm(_) | Op::NormedGemm(_) | Op::RotatedGemm(_) => definition.k,
        // Blocks of 64 channels, with all taps of each.
        Op::Conv2d(shape) if shape.window.is_some() => {
            return shape.filter.0 * shape.filter.1 * shape.channels.div_ceil(64);
        }
        Op::Conv2d(shape) => shape.filter.0 * shape.filter.1 * shape.channels,
        // Every token of the sequence has a query and a key.
        Op::Attention(_) => graph.tensors[definition.out.0].rows,
        Op::Norm(_)
        | Op::GroupNorm(_)
        | Op::Pool(_)
        | Op::GroupedConv(_)
        | Op::Attend(_)
        | Op::Experts(_) => return 1,
        Op::Custom => return definition.k_blocks,
    };
    length.div_ceil(definition.mma_tile.2)
}

/// k-blocks of a tile. Causal queries see no later token, so steps with only later tokens are skipped.
pub(crate) fn k_blocks(graph: &Graph, stage: StageId, tile: Tile) -> u32 {
    let definition = &graph.stages[stage.0];
    let most = most_k_blocks(graph, stage);
    match &definition.op {
        Op::Attention(shape) if shape.causal => {
            let (queries, _) = written(graph, stage, tile);
            (0..most).take_while(|step| step * definition.mma_tile.2 < queries.end).count() as u32
        }
        _ => most,
    }
}

/// The part of its stage's output that a tile writes.
pub(crate) fn written(graph: &Graph, stage: StageId, tile: Tile) -> Area {
    let (rows, cols) = tile_size(graph, stage);
    let out = &graph.tensors[graph.stages[stage.0].out.0];
    if let Some(parts) = shares(graph, stage) {
        // A column belongs to the last share that begins at or before it; share s begins at floor(s * columns / parts).
        let owner = |column: &u32| (1..=parts).take_while(|s| s * out.cols / parts <= *column).count() as u32;
        let columns: Vec<u32> = (0..out.cols).filter(|column| owner(column) == tile.n).collect();
        let begin = columns.first().copied().unwrap_or(0);
        return (0..out.rows, begin..begin + columns.len() as u32);
    }
    (along(tile.m, rows, out.rows), along(tile.n, cols, out.cols))
}

/// Whether an operand is read once, in the epilogue.
pub(crate) fn in_epilogue(kind: OperandKind) -> bool {
    matches!(kind, OperandKind::Bias | OperandKind::Residual | OperandKind::Gain)
}

/// `size` elements, starting at `index * size` on an axis.
fn along(index: u32, size: u32, length: u32) -> Range<u32> {
    clipped(i64::from(index) * i64::from(size), size.into(), length)
}

/// The areas of an operand that a tile reads at a k-block. For a GEMM operand of its tensor's shape, one area, which may
/// be empty.
pub(crate) fn reads(graph: &Graph, stage: StageId, operand: usize, tile: Tile, k: u32) -> Vec<Area> {
    let read = &graph.stages[stage.0].operands[operand];
    let tensor = &graph.tensors[read.tensor.0];
    let Some(view) = read.view else { return areas(graph, stage, operand, tile, k) };
    // Row by row, and where a row of the view is longer, one row of the tensor after another.
    let mut parts = Vec::new();
    for (rows, cols) in areas(graph, stage, operand, tile, k) {
        for row in rows {
            let mut at = row * view.cols + cols.start;
            let end = row * view.cols + cols.end;
            while at < end {
                let (line, first) = (at / tensor.cols, at % tensor.cols);
                let count = (tensor.cols - first).min(end - at);
                parts.push((line..line + 1, first..first + count));
                at += count;
            }
        }
    }
    parts
}

/// The same in rows and columns of the shape under which the stage reads the tensor.
fn areas(graph: &Graph, stage: StageId, operand: usize, tile: Tile, k: u32) -> Vec<Area> {
    let definition = &graph.stages[stage.0];
    let (rows, _) = tile_size(graph, stage);
    let (own_rows, own_cols) = written(graph, stage, tile);
    let depth = definition.mma_tile.2;
    let read = &definition.operands[operand];
    let stored = &graph.tensors[read.tensor.0];
    let (rows_read, cols_read) = read.view.map_or((stored.rows, stored.cols), |v| (v.rows, v.cols));
    let area = match (&definition.op, read.kind) {
        (Op::Conv2d(shape), OperandKind::A) if shape.window.is_some() => {
            return window_under(shape, own_rows, tap_and_channels(shape, k).1);
        }
        (Op::Conv2d(shape), OperandKind::B) if shape.window.is_some() => {
            let (tap, channels) = tap_and_channels(shape, k);
            let first = tap * shape.channels;
            (first + channels.start..first + channels.end, own_cols)
        }
        (Op::Conv2d(shape), OperandKind::A) => {
            let (pixels, _) = written(graph, stage, tile);
            return pixels_under(
                shape,
                pixels,
                along(k, depth, shape.filter.0 * shape.filter.1 * shape.channels),
            );
        }
        (Op::Attend(shape), kind) => {
            let Heads { query, kv, dim, .. } = shape.heads;
            let columns = |first: u32, heads: u32| along(tile.n, heads * dim, cols_read - first * dim);
            let head_columns = |first: u32, heads: u32| {
                let columns = columns(first, heads);
                (tile.m..tile.m + 1, columns.start + first * dim..columns.end + first * dim)
            };
            match kind {
                OperandKind::Query => head_columns(0, query / kv),
                OperandKind::Key => head_columns(query, 1),
                OperandKind::Value => head_columns(query + kv, 1),
                // Operands that no stage of the run writes.
                _ => return Vec::new(),
            }
        }
        (Op::Attention(_), _) if k >= k_blocks(graph, stage, tile) => return Vec::new(),
        (Op::Attention(shape), kind) => {
            // A step loads whole blocks of tokens, including masked ones.
            let tokens = match kind {
                OperandKind::Query => along(tile.m, rows, rows_read),
                _ => along(k, depth, rows_read),
            };
            (tokens, head(shape, kind, tile.n))
        }
        (Op::Custom, _) => {
            let footprint = &read.footprint;
            (stated(&footprint.rows, tile, k, rows_read), stated(&footprint.cols, tile, k, cols_read))
        }
        // The mean and the scale of a row cover the whole row.
        (Op::Pool(Pool { sliding, .. }) | Op::GroupedConv(GroupedConv { sliding, .. }), OperandKind::A) => {
            // The same pixels that a filter of all channels would read.
            let epilogue = cusync_gen::graph::Activation::Identity.into();
            let filter = Conv { epilogue, sliding: *sliding, channels: 1, window: None };
            return window_under(&filter, own_rows, 0..cols_read);
        }
        // A group has its own mean and scale, so it reads the elements that it writes.
        (Op::GroupNorm(_), OperandKind::A) => (own_rows, own_cols),
        (Op::GroupNorm(_), _) => (0..1, own_cols),
        (Op::NormedGemm(_), OperandKind::Gain) => (0..1, 0..cols_read),
        (Op::Norm(_), OperandKind::A | OperandKind::Residual) => (own_rows, 0..cols_read),
        (Op::Norm(_), _) => (0..1, 0..cols_read),
        // Experts compute whole rows, and a row has a score for each; any row may choose any of them.
        (Op::Experts(_), OperandKind::A | OperandKind::Router | OperandKind::Residual) => {
            (own_rows, 0..cols_read)
        }
        (Op::Experts(_), _) => (0..rows_read, 0..cols_read),
        (_, OperandKind::A) => (own_rows, along(k, depth, cols_read)),
        (_, OperandKind::B | OperandKind::Up) => (along(k, depth, rows_read), own_cols),
        (_, OperandKind::Bias) => (0..1, own_cols),
        (_, OperandKind::Residual) => (own_rows, own_cols),
        _ => (0..0, 0..0),
    };
    vec![area]
}

/// Columns of the fused QKV matrix that query head `head` reads.
fn head(shape: &Attention, kind: OperandKind, head: u32) -> Range<u32> {
    let Heads { query, kv, dim, .. } = shape.heads;
    let group = query / kv;
    let first = match kind {
        OperandKind::Query => head,
        OperandKind::Key => query + head / group,
        _ => query + kv + head / group,
    };
    first * dim..(first + 1) * dim
}

/// The tap and the channels that a windowed k-block multiplies: 64 channels at a time, with all taps of each 64,
/// ordered by their row and column modulo the strides.
fn tap_and_channels(shape: &Conv, k: u32) -> (u32, Range<u32>) {
    let taps = shape.filter.0 * shape.filter.1;
    let mut order: Vec<u32> = (0..taps).collect();
    order.sort_by_key(|tap| {
        let (r, s) = (tap / shape.filter.1, tap % shape.filter.1);
        (r % shape.stride.0, s % shape.stride.1, r, s)
    });
    (order[(k % taps) as usize], along(k / taps, 64, shape.channels))
}

/// The window for a range of output pixels: for each image, all rows from the first to the last that a tap of any of
/// them touches.
fn window_under(shape: &Conv, pixels: Range<u32>, channels: Range<u32>) -> Vec<Area> {
    let (height, width) = shape.input;
    let mut rows: Vec<Range<u32>> = Vec::new();
    for tap in 0..shape.filter.0 * shape.filter.1 {
        let first = tap * shape.channels;
        for (met, _) in pixels_under(shape, pixels.clone(), first..first + 1) {
            rows.extend(met.map(|pixel| pixel / width..pixel / width + 1));
        }
    }
    let mut areas = Vec::new();
    for image in 0..shape.images {
        let own = || rows.iter().filter(|row| row.start / height == image);
        if let (Some(first), Some(last)) = (own().map(|r| r.start).min(), own().map(|r| r.end).max()) {
            areas.push((first * width..last * width, channels.clone()));
        }
    }
    areas
}

/// Image pixels and channels that output pixels need for elements `ks` of the reduction, where `out[b][p][q] = sum over
/// r, s, c of image[b][p * stride + r * dilation - padding][q * stride + s * dilation - padding][c] * filter[r][s][c]` and everything outside
/// an image is 0. Elements are counted by c, then s, then r; pixels by column, row and image.
fn pixels_under(shape: &Conv, pixels: Range<u32>, ks: Range<u32>) -> Vec<Area> {
    let mut taps: Vec<((u32, u32), Range<u32>)> = Vec::new();
    for element in ks {
        let (c, rest) = (element % shape.channels, element / shape.channels);
        let (s, r) = (rest % shape.filter.1, rest / shape.filter.1);
        match taps.last_mut() {
            Some((tap, channels)) if *tap == (r, s) => channels.end = c + 1,
            _ => taps.push(((r, s), c..c + 1)),
        }
    }
    let inside = |at: u32, tap: u32, stride: u32, padding: u32, length: u32| {
        (at * stride + tap).checked_sub(padding).filter(|x| *x < length)
    };
    let mut areas: Vec<Area> = Vec::new();
    for ((r, s), channels) in taps {
        for pixel in pixels.clone() {
            let (q, rest) = (pixel % shape.output.1, pixel / shape.output.1);
            let (p, image) = (rest % shape.output.0, rest / shape.output.0);
            let h = inside(p, r * shape.dilation.0, shape.stride.0, shape.padding.0, shape.input.0);
            let w = inside(q, s * shape.dilation.1, shape.stride.1, shape.padding.1, shape.input.1);
            let (Some(h), Some(w)) = (h, w) else { continue };
            let row = (image * shape.input.0 + h) * shape.input.1 + w;
            match areas.last_mut() {
                Some((rows, last)) if *last == channels && rows.end == row => rows.end += 1,
                _ => areas.push((row..row + 1, channels.clone())),
            }
        }
    }
    areas
}

/// The part of a read that CTA `index` of the `of` sharing CTAs loads for all of them: the `index`-th part of the rows
/// of operand A, or of the columns of operand B. The parts are equal and unclipped because a copy's box is fixed.
pub(crate) fn share(
    kind: OperandKind,
    (rows, cols): Area,
    whole: (u32, u32),
    (sharers, index): (u32, u32),
) -> Area {
    let part = |range: Range<u32>, whole: u32| {
        let each = whole / sharers;
        let (begin, end) = (range.start + each * index, range.start + each * (index + 1));
        begin.min(range.end)..end.min(range.end)
    };
    match kind {
        OperandKind::A => (part(rows, whole.0), cols),
        _ => (rows, part(cols, whole.1)),
    }
}

/// The tensor that owns a tensor's memory.
pub(crate) fn memory_of(graph: &Graph, mut tensor: TensorId) -> TensorId {
    for _ in 0..graph.tensors.len() {
        match graph.tensors[tensor.0].alias {
            Some(next) => tensor = next,
            None => break,
        }
    }
    tensor
}

/// Written by hand: the definition must not come from the code under test.
#[test]
fn reads_are_those_of_the_definitions() {
    let sliding = Sliding {
        images: 2,
        input: (4, 4),
        output: (2, 2),
        filter: (3, 3),
        stride: (2, 2),
        padding: (1, 1),
        dilation: (1, 1),
    };
    let shape =
        Conv { epilogue: cusync_gen::graph::Activation::Identity.into(), sliding, channels: 8, window: None };
    // The first output pixel is at a corner: its first row of taps is outside the image; its center tap reads the pixel
    // itself.
    assert_eq!(pixels_under(&shape, 0..1, 0..24), []);
    assert_eq!(pixels_under(&shape, 0..1, 32..40), [(0..1, 0..8)]);
    // Two adjacent output pixels read every other pixel, for one and a half taps.
    assert_eq!(pixels_under(&shape, 0..2, 36..44), [(0..1, 4..8), (2..3, 4..8), (1..2, 0..4), (3..4, 0..4)]);
    // The last pixel of one image and the first of the next: the lower right tap is at row 3, column 3, then at row 1,
    // column 1.
    assert_eq!(pixels_under(&shape, 3..5, 64..72), [(15..16, 0..8), (21..22, 0..8)]);

    let heads = Heads { query: 4, kv: 2, dim: 8, norm: None };
    let scores = Scores::usual(8);
    let shape = Attention {
        heads,
        scores,
        causal: true,
        sequences: 1,
        tokens: 64,
        cache: None,
        expected: None,
        rotary: false,
    };
    // Four query heads, two key heads, two value heads.
    assert_eq!(head(&shape, OperandKind::Query, 3), 24..32);
    assert_eq!([1, 2].map(|h| head(&shape, OperandKind::Key, h)), [32..40, 40..48]);
    assert_eq!([1, 2].map(|h| head(&shape, OperandKind::Value, h)), [48..56, 56..64]);
}
