//! Stages, policies, edges and orders in the C ABI's form; the only place that builds them. Tables are where
//! the caller put them, in host or device memory.

use std::ffi::c_void;
use std::ptr::null;

use cudarc::cublaslt::sys::cublasLtEpilogue_t;
use cusync_gen::check::EdgeNumbers;
use cusync_gen::device::Operation;
use cusync_gen::graph::{
    Activation, Axis, Cache, Element, Epilogue, Experts, GroupNorm, Heads, Norm, NormedGemm, Op, Operand,
    OperandKind, Scores, Sliding, Stage, Tensor, When,
};
use cusync_gen::sync::{Order, SlotMap, WaitAt};

use crate::ffi;

/// A stage as planned, without memory, edges and rounds; `None` if no kernel runs its operation.
pub(crate) fn stage(stage: &Stage) -> Option<ffi::cusync_stage> {
    let (rows, columns) = stage.out_tile();
    let Epilogue { activation, residual_first } = stage.op.epilogue();
    Some(ffi::cusync_stage {
        operation: operation(stage)?,
        activation: activation.number()?,
        residual_first: residual_first.into(),
        m: stage.m,
        n: stage.n,
        k: stage.k,
        tiles: ffi::cusync_tiles {
            rows,
            // Accumulators of gate and up.
            columns: if stage.op.is_gated() { 2 * columns } else { columns },
            grid_m: stage.grid.0,
            grid_n: stage.grid.1,
            k_blocks: stage.k_blocks,
        },
        shape: shape(stage)?,
        ..Default::default()
    })
}

/// C ABI code of a stage's operation; a product that normalizes its rows is a product with a norm.
fn operation(stage: &Stage) -> Option<u32> {
    match stage.op.operation()? {
        Operation::InputNorm if stage.op.is_gated() => Some(ffi::CUSYNC_GATED_GEMM),
        Operation::InputNorm => Some(ffi::CUSYNC_GEMM),
        other => Some(other as u32),
    }
}

/// The sizes of a stage's operation; `None` if kernels do not take its activation.
fn shape(stage: &Stage) -> Option<ffi::cusync_shape> {
    Some(match &stage.op {
        Op::Gemm(_) | Op::GatedGemm(_) | Op::RotatedGemm(_) | Op::Custom => ffi::cusync_shape::default(),
        Op::Conv2d(conv) => ffi::cusync_shape { images: images(&conv.sliding, conv.channels, false) },
        Op::GroupedConv(conv) => {
            let groups = stage.n / conv.features;
            ffi::cusync_shape {
                grouped_conv: ffi::cusync_grouped_conv {
                    images: images(&conv.sliding, groups * conv.channels, false),
                    groups,
                    dilation_rows: conv.sliding.dilation.0,
                    dilation_cols: conv.sliding.dilation.1,
                },
            }
        }
        Op::Pool(pool) => ffi::cusync_shape { images: images(&pool.sliding, stage.n, pool.mean) },
        Op::Attention(prompt) => {
            heads(&prompt.heads, &prompt.scores, (prompt.tokens, prompt.causal), prompt.cache)
        }
        Op::Attend(attend) => heads(&attend.heads, &attend.scores, (1, false), Some(attend.cache)),
        Op::NormedGemm(NormedGemm { epsilon, .. }) => {
            ffi::cusync_shape { norm: ffi::cusync_norm { epsilon: *epsilon, ..Default::default() } }
        }
        Op::Norm(Norm { centred, one_plus_gain, adds: _, epsilon }) => ffi::cusync_shape {
            norm: ffi::cusync_norm {
                centred: u32::from(*centred),
                one_plus_gain: u32::from(*one_plus_gain),
                epsilon: *epsilon,
            },
        },
        Op::Experts(shape) => ffi::cusync_shape { experts: experts(shape) },
        Op::GroupNorm(GroupNorm { pixels, channels, epsilon, activation }) => ffi::cusync_shape {
            group_norm: ffi::cusync_group_norm {
                pixels: *pixels,
                groups: stage.n / channels,
                activation: activation.number()?,
                epsilon: *epsilon,
            },
        },
    })
}

fn heads(
    heads: &Heads,
    scores: &Scores,
    (tokens, causal): (u32, bool),
    cache: Option<Cache>,
) -> ffi::cusync_shape {
    ffi::cusync_shape {
        heads: ffi::cusync_heads {
            query_heads: heads.query,
            kv_heads: heads.kv,
            head_dim: heads.dim,
            tokens,
            causal: causal.into(),
            capacity: cache.map_or(0, |cache| cache.capacity),
            pages: cache.and_then(|cache| cache.pages).unwrap_or(0),
            norm_epsilon: heads.norm.unwrap_or(0.0),
            scale: scores.scale,
            softcap: scores.softcap.unwrap_or(0.0),
            window: scores.window.unwrap_or(0),
        },
    }
}

/// The experts of a stage.
pub(crate) fn experts(shape: &Experts) -> ffi::cusync_experts {
    let Experts { experts, top_k, features, width: _, normalize, activation: _ } = *shape;
    ffi::cusync_experts { experts, top_k, features, normalized: normalize.into() }
}

fn images(sliding: &Sliding, channels: u32, mean: bool) -> ffi::cusync_images {
    ffi::cusync_images {
        height: sliding.input.0,
        width: sliding.input.1,
        channels,
        out_height: sliding.output.0,
        out_width: sliding.output.1,
        filter_rows: sliding.filter.0,
        filter_cols: sliding.filter.1,
        stride_rows: sliding.stride.0,
        stride_cols: sliding.stride.1,
        padding_rows: sliding.padding.0,
        padding_cols: sliding.padding.1,
        mean: mean.into(),
    }
}

/// An operand, with the time of its reads.
pub(crate) fn operand(kind: OperandKind, data: *const c_void) -> ffi::cusync_operand {
    let read_at = match kind.when() {
        When::First | When::Each => ffi::CUSYNC_READ_IN_K_LOOP,
        When::Epilogue => ffi::CUSYNC_READ_IN_EPILOGUE,
    };
    ffi::cusync_operand { data, role: role(kind), read_at }
}

/// C ABI code of an operand's role.
fn role(kind: OperandKind) -> u32 {
    match kind {
        // Queries, keys and values are columns of one matrix.
        OperandKind::A | OperandKind::Query | OperandKind::Key | OperandKind::Value => ffi::CUSYNC_OPERAND_A,
        OperandKind::B => ffi::CUSYNC_OPERAND_B,
        OperandKind::Up => ffi::CUSYNC_OPERAND_UP,
        OperandKind::Down => ffi::CUSYNC_OPERAND_DOWN,
        OperandKind::Router => ffi::CUSYNC_OPERAND_ROUTER,
        OperandKind::Bias => ffi::CUSYNC_OPERAND_BIAS,
        OperandKind::Residual => ffi::CUSYNC_OPERAND_RESIDUAL,
        OperandKind::CachedKeys => ffi::CUSYNC_OPERAND_KEYS,
        OperandKind::CachedValues => ffi::CUSYNC_OPERAND_VALUES,
        OperandKind::Lengths => ffi::CUSYNC_OPERAND_LENGTHS,
        OperandKind::Pages => ffi::CUSYNC_OPERAND_PAGES,
        OperandKind::Rotary => ffi::CUSYNC_OPERAND_ROTARY,
        OperandKind::QueryGain => ffi::CUSYNC_OPERAND_QUERY_GAIN,
        OperandKind::KeyGain => ffi::CUSYNC_OPERAND_KEY_GAIN,
        OperandKind::Gain => ffi::CUSYNC_OPERAND_GAIN,
        OperandKind::Custom(_) => ffi::CUSYNC_OPERAND_CUSTOM,
    }
}

/// C ABI code of an element type.
pub fn element_code(element: Element) -> u32 {
    match element {
        Element::F16 => ffi::CUSYNC_F16,
        Element::Bf16 => ffi::CUSYNC_BF16,
    }
}

/// The epilogue of cuBLASLt with an activation, with or without a bias; `None` if it has none.
pub(crate) fn fused_epilogue(activation: Activation, bias: bool) -> Option<cublasLtEpilogue_t> {
    use cublasLtEpilogue_t as Epilogue;
    let (plain, biased) = match activation {
        Activation::Identity => (Epilogue::CUBLASLT_EPILOGUE_DEFAULT, Epilogue::CUBLASLT_EPILOGUE_BIAS),
        Activation::GeluTanh => (Epilogue::CUBLASLT_EPILOGUE_GELU, Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS),
        Activation::Relu => (Epilogue::CUBLASLT_EPILOGUE_RELU, Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS),
        Activation::Silu
        | Activation::GeluErf
        | Activation::QuickGelu
        | Activation::SquaredRelu
        | Activation::Relu6
        | Activation::HardSwish
        | Activation::Sigmoid
        | Activation::Tanh
        | Activation::Scale(_)
        | Activation::Clamp(..) => return None,
    };
    Some(if bias { biased } else { plain })
}

/// A policy; `tables` are the map's slots and posts, if it has tables.
pub(crate) fn policy(map: &SlotMap, tables: Option<(*const u32, *const u32)>) -> ffi::cusync_policy {
    // The sliding window is part of the edge's footprint.
    let SlotMap {
        grid,
        block,
        stride_n,
        slots_n,
        slot_base,
        slot_count,
        width,
        columns,
        sliding: _,
        table: _,
    } = *map;
    let (table, table_posts) = tables.unwrap_or((null(), null()));
    ffi::cusync_policy {
        grid_m: grid.0,
        grid_n: grid.1,
        block_m: block.0,
        block_n: block.1,
        stride_n,
        slots_n,
        slot_base,
        slot_count,
        width,
        columns,
        table,
        table_posts,
    }
}

/// An edge; `tables` are those of its policy.
pub(crate) fn edge(edge: &EdgeNumbers, tables: Option<(*const u32, *const u32)>) -> ffi::cusync_edge {
    ffi::cusync_edge {
        policy: policy(&edge.policy, tables),
        id: edge.id,
        operand: role(edge.operand),
        wait_at: match edge.wait_at {
            WaitAt::PerKBlock => ffi::CUSYNC_WAIT_PER_K_BLOCK,
            WaitAt::Start => ffi::CUSYNC_WAIT_AT_START,
        },
        tile_rows: edge.tile.0,
        tile_cols: edge.tile.1,
        tensor_rows: edge.tensor.0,
        tensor_cols: edge.tensor.1,
        k_blocks: edge.k_blocks,
        rows: axis(&edge.rows),
        cols: axis(&edge.cols),
    }
}

/// A read of a Custom stage: sizes and boxes, without anything to wait for.
pub(crate) fn read(stage: &Stage, operand: &Operand, tensor: &Tensor) -> ffi::cusync_edge {
    ffi::cusync_edge {
        operand: role(operand.kind),
        tensor_rows: tensor.rows,
        tensor_cols: tensor.cols,
        k_blocks: stage.k_blocks,
        rows: axis(&operand.footprint.rows),
        cols: axis(&operand.footprint.cols),
        ..Default::default()
    }
}

fn axis(axis: &Axis) -> ffi::cusync_axis {
    let Axis { m, n, k, offset, extent } = *axis;
    ffi::cusync_axis { m, n, k, offset, extent }
}

/// An order on a grid; `table` holds [`Order::table`], if it has one.
pub(crate) fn order(order: &Order, grid: (u32, u32), table: Option<*const u32>) -> ffi::cusync_order {
    ffi::cusync_order {
        kind: match order {
            Order::RowMajor => ffi::CUSYNC_ORDER_ROW_MAJOR,
            Order::ColumnMajor => ffi::CUSYNC_ORDER_COLUMN_MAJOR,
            Order::GroupedRows(_) => ffi::CUSYNC_ORDER_GROUPED_ROWS,
            Order::GroupedColumns(_) => ffi::CUSYNC_ORDER_GROUPED_COLUMNS,
            Order::Table(_) => ffi::CUSYNC_ORDER_TABLE,
        },
        grid_m: grid.0,
        grid_n: grid.1,
        group: order.group_on(grid),
        table: table.unwrap_or(null()),
    }
}
