//! The RON front end: text in, [`Spec`] out, every value with its location.
//!
//! A spec names stages over tensors. Shapes and the footprints of custom stages may be expressions over the dims
//! (`"M"`, `"2*I"`, `"ceil_div(M, 128)"`). [`Spec::resolve`] resolves the dims and proves that the shapes match; the
//! result, [`crate::graph::Resolved`], lacks only a tile for each stage.
//!
//! ```
//! let text = r#"Pipeline(name: "one", dims: { "M": 64 }, stages: [
//!     Gemm(name: "up", a: "X(M,512)", b: "W(256,512)", out: "Y(M,512)"),
//! ])"#;
//! let spec = cusync_gen::spec::parse(text, "one.ron")?;
//! assert_eq!(spec.dims().collect::<Vec<_>>(), [("M", 64)]);
//! // The rows of W must equal the columns of X.
//! let refused = spec.resolve(&[]).expect_err("shapes meet or are refused");
//! assert_eq!(refused.line_column(text).map(|(line, _)| line), Some(2));
//! # Ok::<(), cusync_gen::diagnostic::Diagnostic>(())
//! ```

mod expr;
mod ident;
mod raw;
mod read;
pub mod ron_text;
mod source;
mod stage;

pub(crate) use expr::{Affine, CallExpr, Expr, Meaning};
pub use ident::nearest;
pub(crate) use ident::suggest;
pub(crate) use source::Text;

use crate::device::{Activation, Epilogue};
use crate::diagnostic::{Diagnostic, Span, Spanned};
use crate::operand::{Element, OperandKind};
use crate::sync::{Order, Policy, WaitAt};

/// Maximum size of a spec, bytes: specs are about a page long.
pub const MAX_SOURCE: usize = 1 << 20;

/// A parsed pipeline: names are valid identifiers, everything else is as written.
#[derive(Clone, Debug)]
pub struct Spec {
    pub(crate) source: String,
    pub(crate) origin: String,
    pub(crate) name: Text,
    pub(crate) dims_span: Span,
    pub(crate) dims: Vec<(Text, Spanned<i64>)>,
    pub(crate) element: Element,
    /// Default: one.
    pub(crate) devices: Option<Spanned<u32>>,
    pub(crate) stages: Vec<StageSpec>,
    pub(crate) tiles: Vec<(Text, Spanned<StatedTile>)>,
    pub(crate) orders: Vec<(Text, Option<Spanned<Order>>)>,
    pub(crate) sync: Vec<EdgeSpec>,
    pub(crate) alias: Vec<(Text, Text)>,
    pub(crate) split_k: Vec<(Text, Spanned<u32>)>,
}

impl Spec {
    /// The pipeline's name, an identifier.
    pub fn name(&self) -> &str {
        &self.name.value
    }

    /// The parsed text, needed by [`Diagnostic::render`].
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Origin of the text, such as a path.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Dims and their defaults as stated, not yet validated.
    pub fn dims(&self) -> impl Iterator<Item = (&str, i64)> {
        self.dims.iter().map(|(name, value)| (name.value.as_str(), value.value))
    }
}

/// Parses a spec. `origin` names the source in messages.
///
/// # Errors
/// The first fault found, with its location.
pub fn parse(source: &str, origin: &str) -> Result<Spec, Diagnostic> {
    if source.len() > MAX_SOURCE {
        let message = format!("the spec has {} bytes", source.len());
        return Err(
            Diagnostic::new("too-long", message).help(format!("a spec has at most {MAX_SOURCE} bytes"))
        );
    }
    read::pipeline(source, origin)
}

/// A tile as stated in a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedTile {
    /// Rows and columns of the MMA tile.
    pub tile: (u32, u32),
    /// Length of a k-block, if stated.
    pub k: Option<u32>,
}

/// A stage as written.
#[derive(Clone, Debug)]
pub(crate) struct StageSpec {
    pub(crate) name: Text,
    pub(crate) kind: StageKind,
    /// Whether its products are summed over the devices, and where that is stated.
    pub(crate) all_reduce: Option<Spanned<bool>>,
    /// Whether its weights are stated, and kept by callers, as N x K.
    pub(crate) transposed: bool,
    /// Its reads, in the order of the graph's operands.
    pub(crate) reads: Vec<(OperandKind, TensorUse)>,
    pub(crate) out: TensorUse,
}

impl StageSpec {
    /// A stage whose sums stay on one device.
    pub(crate) fn new(
        name: Text,
        kind: StageKind,
        reads: Vec<(OperandKind, TensorUse)>,
        out: TensorUse,
    ) -> StageSpec {
        StageSpec { name, kind, all_reduce: None, transposed: false, reads, out }
    }
}

/// The operation of a stage as written.
#[derive(Clone, Debug)]
pub(crate) enum StageKind {
    Gemm(Epilogue),
    GatedGemm(Activation),
    /// A product, or a gated one, of normalized rows.
    NormedGemm {
        gated: bool,
        epilogue: Epilogue,
        epsilon: Spanned<f64>,
    },
    Rotated(HeadsSpec),
    Conv2d(Box<ConvSpec>),
    Attention(Box<AttentionSpec>),
    Norm(NormSpec),
    GroupNorm(GroupNormSpec),
    Pool(Box<PoolSpec>),
    Experts(ExpertsSpec),
    Custom(Box<CustomSpec>),
}

/// Parameters of a convolution in addition to its tensors, each (rows, columns) of pixels.
#[derive(Clone, Debug)]
pub(crate) struct ConvSpec {
    pub(crate) epilogue: Epilogue,
    pub(crate) stride: Option<Spanned<(Expr, Expr)>>,
    pub(crate) padding: Option<Spanned<(Expr, Expr)>>,
    pub(crate) dilation: Option<Spanned<(Expr, Expr)>>,
    /// Default: one.
    pub(crate) groups: Option<Expr>,
}

/// The heads and sequences of a matrix of queries, keys and values.
#[derive(Clone, Debug)]
pub(crate) struct HeadsSpec {
    pub(crate) heads: Expr,
    /// Default: the number of heads.
    pub(crate) kv_heads: Option<Expr>,
    /// Sequences of a prompt; default: one.
    pub(crate) sequences: Option<Expr>,
    /// Epsilon of the norm of each head of queries and keys, if they are normalized.
    pub(crate) norm: Option<Spanned<f64>>,
}

/// Parameters of an attention in addition to its tensors.
#[derive(Clone, Debug)]
pub(crate) struct AttentionSpec {
    pub(crate) qkv: HeadsSpec,
    /// Default: true.
    pub(crate) causal: Option<Spanned<bool>>,
    /// Tokens that a token attends to; default: all that the mask shows.
    pub(crate) window: Option<Expr>,
    /// Bound of the magnitudes of scores.
    pub(crate) softcap: Option<Spanned<f64>>,
    /// Factor on scores; default: one over the root of a head's columns.
    pub(crate) scale: Option<Spanned<f64>>,
    /// Where the cache is stated.
    pub(crate) cache: Option<Span>,
    /// Tokens per sequence assumed in predictions.
    pub(crate) expected: Option<Expr>,
}

/// Parameters of a pool in addition to its tensors, each (rows, columns) of pixels.
#[derive(Clone, Debug)]
pub(crate) struct PoolSpec {
    /// `Average`, otherwise `Max`.
    pub(crate) mean: bool,
    /// Default: the whole image.
    pub(crate) window: Option<Spanned<(Expr, Expr)>>,
    /// Default: the size of the window.
    pub(crate) stride: Option<Spanned<(Expr, Expr)>>,
    pub(crate) padding: Option<Spanned<(Expr, Expr)>>,
}

/// Parameters of a normalization in addition to its tensors.
#[derive(Clone, Debug)]
pub(crate) struct NormSpec {
    /// `LayerNorm`, otherwise `RmsNorm`.
    pub(crate) centred: bool,
    /// Whether rows are multiplied by one plus the gain.
    pub(crate) one_plus_gain: bool,
    pub(crate) epsilon: Spanned<f64>,
}

/// Parameters of a normalization of groups of channels in addition to its tensors.
#[derive(Clone, Debug)]
pub(crate) struct GroupNormSpec {
    pub(crate) groups: Expr,
    pub(crate) epsilon: Spanned<f64>,
    /// Applied to the result.
    pub(crate) activation: Activation,
}

/// Parameters of a mixture of experts in addition to its tensors.
#[derive(Clone, Debug)]
pub(crate) struct ExpertsSpec {
    pub(crate) top_k: Expr,
    /// Applied to the gate.
    pub(crate) activation: Activation,
    /// Whether the weights of a row's experts add up to one.
    pub(crate) normalize: bool,
}

/// The shape of a custom stage as written.
#[derive(Clone, Debug)]
pub(crate) struct CustomSpec {
    pub(crate) grid: Option<Spanned<(Expr, Expr)>>,
    pub(crate) tile: Spanned<(Expr, Expr)>,
    pub(crate) k_blocks: Option<Expr>,
    /// Rows and columns of each read.
    pub(crate) footprints: Vec<(RangeSpec, RangeSpec)>,
}

/// `first..end` along a tensor axis.
#[derive(Clone, Debug)]
pub(crate) struct RangeSpec {
    pub(crate) first: Expr,
    pub(crate) end: Expr,
    pub(crate) span: Span,
}

/// A tensor and its shape: one or two expressions, or four for images, filters and caches.
pub(crate) type TensorUse = CallExpr;

/// An entry of `sync`.
#[derive(Clone, Debug)]
pub(crate) struct EdgeSpec {
    pub(crate) span: Span,
    pub(crate) from: Text,
    pub(crate) to: Text,
    pub(crate) operand: Option<Spanned<OperandKind>>,
    pub(crate) policy: Option<Spanned<Policy>>,
    pub(crate) wait_at: Option<Spanned<WaitAt>>,
}
