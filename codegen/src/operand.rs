//! Tensor element types, the roles of operands in their stages, and when they are read.

use serde::{Deserialize, Serialize};

/// Element type of tensors; accumulation is always float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Element {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// Numbers of the pipeline's element type.
    Element,
    /// Signed integers of 32 bits: lengths and page numbers.
    Int32,
}

impl DataType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            DataType::Element => 2,
            DataType::Int32 => 4,
        }
    }
}

/// The role of an operand in its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OperandKind {
    /// Left operand, M x K; the images of a convolution, B H W x C; the rows that a normalization reads, M x N.
    A,
    /// Right operand, K x N (the gate weights of a gated GEMM, the filter of a convolution).
    B,
    /// Up weights of a gated GEMM, K x N, or of experts.
    Up,
    /// Row vector added before the activation, or after a normalization, 1 x N.
    Bias,
    /// Matrix added after the activation, M x N.
    Residual,
    /// The query columns of an attention's QKV matrix.
    Query,
    /// The key columns.
    Key,
    /// The value columns.
    Value,
    /// Row vector that multiplies a normalized row, 1 x N.
    Gain,
    /// Keys of earlier tokens, one row per sequence, head and token, or per page, head and token. A stage that reads
    /// them appends to them.
    CachedKeys,
    /// Values of earlier tokens, laid out like the keys.
    CachedValues,
    /// Number of cached tokens of each sequence before a run, 1 x B.
    Lengths,
    /// Numbers of the pages that hold a sequence's tokens, one row per sequence.
    Pages,
    /// Cosines, then sines, of the rotation angles of queries and keys, one row per position.
    Rotary,
    /// Row vector that multiplies each normalized head of queries, 1 x D.
    QueryGain,
    /// Row vector that multiplies each normalized head of keys, 1 x D.
    KeyGain,
    /// Scores by which rows choose experts, M x E.
    Router,
    /// Weights of the second product of experts.
    Down,
    /// The i-th read of a custom stage.
    Custom(usize),
}

/// When a tile reads an operand, relative to its main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Once, before the first k-block.
    First,
    /// A part of it at each k-block.
    Each,
    /// Once, after the last k-block.
    Epilogue,
}

impl OperandKind {
    /// When a tile reads it.
    pub fn when(self) -> When {
        match self {
            OperandKind::Query
            | OperandKind::Lengths
            | OperandKind::Pages
            | OperandKind::Rotary
            | OperandKind::QueryGain
            | OperandKind::KeyGain
            | OperandKind::Router => When::First,
            OperandKind::A
            | OperandKind::B
            | OperandKind::Up
            | OperandKind::Down
            | OperandKind::Key
            | OperandKind::Value
            | OperandKind::CachedKeys
            | OperandKind::CachedValues
            | OperandKind::Custom(_) => When::Each,
            OperandKind::Bias | OperandKind::Residual | OperandKind::Gain => When::Epilogue,
        }
    }

    /// The element type of its tensor.
    pub(crate) fn data(self) -> DataType {
        match self {
            OperandKind::Lengths | OperandKind::Pages => DataType::Int32,
            _ => DataType::Element,
        }
    }

    /// Whether a decode kernel loads it tile by tile, as its column tiles are posted.
    pub fn is_activation(self) -> bool {
        matches!(self, OperandKind::A | OperandKind::Query | OperandKind::Key | OperandKind::Value)
    }

    /// Whether a stage may read it under another shape than that of its tensor: rows, but no weights and no images.
    pub(crate) fn takes_views(self) -> bool {
        self.is_activation() || self == OperandKind::Residual
    }

    /// Whether a stage that reads it changes some of it in place.
    pub fn is_state(self) -> bool {
        matches!(self, OperandKind::CachedKeys | OperandKind::CachedValues)
    }

    /// The operand as part of a name in rendered files.
    pub(crate) fn word(self) -> String {
        let word = match self {
            OperandKind::A => "a",
            OperandKind::B => "b",
            OperandKind::Up => "up",
            OperandKind::Bias => "bias",
            OperandKind::Residual => "residual",
            OperandKind::Query => "query",
            OperandKind::Key => "key",
            OperandKind::Value => "value",
            OperandKind::Gain => "gain",
            OperandKind::CachedKeys => "cached_keys",
            OperandKind::CachedValues => "cached_values",
            OperandKind::Lengths => "lengths",
            OperandKind::Pages => "pages",
            OperandKind::Rotary => "rotary",
            OperandKind::QueryGain => "query_gain",
            OperandKind::KeyGain => "key_gain",
            OperandKind::Router => "router",
            OperandKind::Down => "down",
            OperandKind::Custom(i) => return format!("read{i}"),
        };
        word.into()
    }

    /// Why a wait is placed where it is: the awaited operand and when it is read.
    pub(crate) fn wait_reason(self) -> &'static str {
        match self {
            OperandKind::Bias | OperandKind::Residual | OperandKind::Gain => "read once, after the main loop",
            OperandKind::A | OperandKind::B => {
                "the other operand is loaded ahead of the wait when no stage produces it"
            }
            OperandKind::Query => "the block of queries, before its first step",
            OperandKind::Key | OperandKind::Value => "the tokens of each step, when it comes to them",
            _ => "as late as the footprint allows",
        }
    }
}
