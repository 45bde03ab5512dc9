//! One stage of a kernel with its memory: the input of every kernel, peer and reference.

use std::sync::Arc;

use super::error::{Error, Result};
use super::memory::DeviceBuffer;
use super::repack::RepackedWeights;
use crate::ffi;

/// A tensor of 16-bit floats in device memory, stored as bits.
type Values = Arc<DeviceBuffer<u16>>;

/// Lengths or page numbers in device memory.
type Integers = Arc<DeviceBuffer<i32>>;

/// Role of an operand in its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Left matrix, M x K.
    A,
    /// Right matrix, K x N: weights, or the output of another stage. Gate and up of a gated stage are
    /// interleaved.
    B,
    /// Row of N, added to every row.
    Bias,
    /// Matrix of M x N, added last.
    Residual,
    /// Cached keys.
    Keys,
    /// Cached values.
    Values,
    /// Cached tokens of each sequence.
    Lengths,
    /// Pages of each sequence.
    Pages,
    /// Cosines and sines of each position.
    Rotary,
    /// Row of N that scales normalized rows.
    Gain,
}

impl Role {
    /// C ABI code of the role.
    fn code(self) -> u32 {
        match self {
            Role::A => ffi::CUSYNC_OPERAND_A,
            Role::B => ffi::CUSYNC_OPERAND_B,
            Role::Bias => ffi::CUSYNC_OPERAND_BIAS,
            Role::Residual => ffi::CUSYNC_OPERAND_RESIDUAL,
            Role::Keys => ffi::CUSYNC_OPERAND_KEYS,
            Role::Values => ffi::CUSYNC_OPERAND_VALUES,
            Role::Lengths => ffi::CUSYNC_OPERAND_LENGTHS,
            Role::Pages => ffi::CUSYNC_OPERAND_PAGES,
            Role::Rotary => ffi::CUSYNC_OPERAND_ROTARY,
            Role::Gain => ffi::CUSYNC_OPERAND_GAIN,
        }
    }

    /// Point at which operations read it.
    fn read_at(self) -> u32 {
        match self {
            Role::A | Role::B | Role::Keys | Role::Values | Role::Lengths | Role::Pages | Role::Rotary => {
                ffi::CUSYNC_READ_IN_K_LOOP
            }
            Role::Bias | Role::Residual | Role::Gain => ffi::CUSYNC_READ_IN_EPILOGUE,
        }
    }
}

/// Source of an operand's values.
#[derive(Clone, Debug)]
pub enum Source {
    /// A row-major matrix.
    Matrix(Values),
    /// Lengths or page numbers.
    Integers(Integers),
    /// Weights in the order in which decode kernels stream them.
    Repacked(Arc<RepackedWeights>),
}

/// One stage: out = act(A B + bias) + residual or act(A B + bias + residual), or out = silu(A Bg) * (A Bu),
/// or a convolution of the images A with the filter B, or a pool of them, or the rows of A normalized, or
/// attention. Matrices are row-major.
#[derive(Clone, Debug)]
pub struct BoundStage {
    /// Name of the stage, for errors.
    pub name: String,
    /// `CUSYNC_GEMM`, `CUSYNC_GATED_GEMM`, `CUSYNC_CONV2D`, `CUSYNC_ATTENTION`, `CUSYNC_NORM`, `CUSYNC_ATTEND` or
    /// `CUSYNC_POOL`.
    pub operation: u32,
    /// Images of a convolution or a pool; the default for other operations.
    pub images: ffi::cusync_images,
    /// Parameters of a normalization; the default for other operations.
    pub norm: ffi::cusync_norm,
    /// `CUSYNC_IDENTITY`, `CUSYNC_GELU_TANH` or `CUSYNC_RELU`.
    pub activation: u32,
    /// Whether the residual is added before the activation.
    pub residual_first: bool,
    /// `CUSYNC_F16` or `CUSYNC_BF16`.
    pub element: u32,
    /// Index of the stage in its plan, for reports.
    pub index: u32,
    /// (M, N, K); N is that of the output, even if gated. For an attention over whole sequences, K is the
    /// tokens per sequence.
    pub shape: (u32, u32, u32),
    /// Its tiles as planned, except in decode kernels.
    pub tiles: ffi::cusync_tiles,
    /// Operands by role, each role once.
    pub operands: Vec<(Role, Source)>,
    /// M x N.
    pub out: Values,
    /// Incoming edges.
    pub waits: Vec<ffi::cusync_edge>,
    /// Outgoing edges.
    pub posts: Vec<ffi::cusync_policy>,
    /// Heads of an attention, or of a product that is rotated; the default for other operations.
    pub heads: ffi::cusync_heads,
    /// Whether tokens of an attention over whole sequences attend only to earlier tokens and themselves.
    pub causal: bool,
    /// In a decode kernel: index of the round, and number of rounds; each worker computes one part of the
    /// output per round.
    pub round: (u32, u32),
}

impl BoundStage {
    /// Matrix of a role; `None` if there is none, or it is repacked.
    pub fn matrix(&self, role: Role) -> Option<&Values> {
        self.operands.iter().find_map(|(r, source)| match source {
            Source::Matrix(values) if *r == role => Some(values),
            Source::Matrix(_) | Source::Integers(_) | Source::Repacked(_) => None,
        })
    }

    /// Replaces the matrix of a role.
    pub fn set(&mut self, role: Role, values: Values) {
        self.operands.retain(|(r, _)| *r != role);
        self.operands.push((role, Source::Matrix(values)));
    }

    /// The same stage without synchronization.
    pub fn uncoupled(self) -> BoundStage {
        BoundStage { waits: Vec::new(), posts: Vec::new(), ..self }
    }

    /// Whether gate and up are multiplied.
    pub fn gated(&self) -> bool {
        self.operation == ffi::CUSYNC_GATED_GEMM
    }

    /// Whether a second kernel rotates the heads of the product.
    pub fn rotates(&self) -> bool {
        self.operation == ffi::CUSYNC_GEMM && self.matrix(Role::Rotary).is_some()
    }

    /// Whether it is an attention.
    pub fn attends(&self) -> bool {
        self.operation == ffi::CUSYNC_ATTEND
    }

    /// Rows and columns of a matrix in a role.
    fn size_of(&self, role: Role) -> (u64, u64) {
        let wide = |(rows, columns): (u32, u32)| (u64::from(rows), u64::from(columns));
        let (m, n, k) = self.shape;
        let ffi::cusync_heads { query_heads, kv_heads, head_dim, capacity, pages } = self.heads;
        match role {
            Role::A if self.operation == ffi::CUSYNC_ATTENTION => {
                wide((m, (query_heads + 2 * kv_heads).saturating_mul(head_dim)))
            }
            Role::A if matches!(self.operation, ffi::CUSYNC_CONV2D | ffi::CUSYNC_POOL) => self.images_shape(),
            Role::A => wide((m, k)),
            Role::B => wide((k, self.packed_columns())),
            Role::Bias | Role::Gain => wide((1, n)),
            Role::Residual => wide((m, n)),
            Role::Keys | Role::Values => {
                let sequences = if self.operation == ffi::CUSYNC_ATTENTION { m / k.max(1) } else { m };
                let tokens = match pages {
                    0 => u64::from(sequences) * u64::from(capacity),
                    pages => u64::from(pages) * u64::from(ffi::CUSYNC_PAGE_TOKENS),
                };
                (tokens.saturating_mul(kv_heads.into()), head_dim.into())
            }
            Role::Lengths => wide((1, m)),
            Role::Pages => wide((m, capacity.div_ceil(ffi::CUSYNC_PAGE_TOKENS))),
            Role::Rotary => wide((capacity, head_dim)),
        }
    }

    /// Columns of B as stored in memory.
    pub fn packed_columns(&self) -> u32 {
        if self.gated() { 2 * self.shape.1 } else { self.shape.1 }
    }

    /// Matrices A, B and output of a stage whose operands are all plain matrices, with sizes checked against
    /// its shape.
    pub(super) fn product(&self) -> Result<(&Values, &Values, &Values)> {
        self.raw()?;
        let missing = |name: &str| Error::BadArgument(format!("{} without a matrix {name}", self.name));
        let a = self.matrix(Role::A).ok_or_else(|| missing("A"))?;
        let b = self.matrix(Role::B).ok_or_else(|| missing("B"))?;
        Ok((a, b, &self.out))
    }

    /// The C form, after checking that every buffer has the size given by the shape.
    pub(super) fn raw(&self) -> Result<ffi::cusync_stage> {
        let (m, n, k) = self.shape;
        // An overflowing size never equals the length of a buffer.
        let exact = |name: &str, have: usize, rows: u64, columns: u64| {
            let want = rows.saturating_mul(columns) as usize;
            if have == want {
                return Ok(());
            }
            Err(Error::Length { what: format!("{name} of {}", self.name), have, want })
        };
        exact("the output", self.out.len(), m.into(), n.into())?;
        let mut raw = ffi::cusync_stage {
            operation: self.operation,
            activation: self.activation,
            residual_first: self.residual_first.into(),
            images: self.images,
            norm: self.norm,
            tiles: self.tiles,
            index: self.index,
            m,
            n,
            k: match self.causal {
                true => {
                    let rows = k.min(ffi::CUSYNC_PROMPT_TOKENS);
                    ffi::cusync_depth { first: rows, step: rows, most: k }
                }
                false => ffi::cusync_depth { first: k, step: 0, most: k },
            },
            heads: self.heads,
            round: self.round.0,
            rounds: self.round.1,
            out: self.out.pointer(),
            ..Default::default()
        };
        self.fits("operands", self.operands.len(), raw.operands.len())?;
        self.fits("incoming edges", self.waits.len(), raw.waits.len())?;
        self.fits("outgoing edges", self.posts.len(), raw.posts.len())?;
        for (role, source) in &self.operands {
            let (rows, columns) = self.size_of(*role);
            let data = match source {
                // A table may have positions that no sequence reaches.
                Source::Matrix(values)
                    if *role == Role::Rotary && values.len() as u64 > rows.saturating_mul(columns) =>
                {
                    values.pointer()
                }
                Source::Matrix(values) => {
                    exact(&format!("{role:?}"), values.len(), rows, columns)?;
                    values.pointer()
                }
                Source::Integers(values) => {
                    exact(&format!("{role:?}"), values.len(), rows, columns)?;
                    values.pointer()
                }
                Source::Repacked(weights) if *role == Role::B && weights.are_of(k, n, self.gated()) => {
                    weights.pointer()
                }
                Source::Repacked(_) => {
                    let why = format!("{}: {role:?} is laid out for another stage", self.name);
                    return Err(Error::BadArgument(why));
                }
            };
            // The kernel that rotates a product takes its angles itself.
            if *role == Role::Rotary && self.operation == ffi::CUSYNC_GEMM {
                continue;
            }
            let to = &mut raw.operands[raw.operand_count as usize];
            raw.operand_count += 1;
            *to = ffi::cusync_operand { data, role: role.code(), read_at: role.read_at() };
        }
        raw.wait_count = self.waits.len() as u32;
        raw.waits[..self.waits.len()].copy_from_slice(&self.waits);
        raw.post_count = self.posts.len() as u32;
        raw.posts[..self.posts.len()].copy_from_slice(&self.posts);
        Ok(raw)
    }

    /// Pixels and channels of a convolution's input.
    fn images_shape(&self) -> (u64, u64) {
        let i = &self.images;
        let area = |height: u32, width: u32| u64::from(height) * u64::from(width);
        let count = u64::from(self.shape.0) / area(i.out_height, i.out_width).max(1);
        (count.saturating_mul(area(i.height, i.width)), i.channels.into())
    }

    fn fits(&self, name: &str, have: usize, most: usize) -> Result<()> {
        if have <= most {
            return Ok(());
        }
        Err(Error::BadArgument(format!("{}: {have} {name}, a kernel takes {most}", self.name)))
    }

    /// One past the last semaphore slot of the stage's edges.
    pub(super) fn slots(&self) -> usize {
        let policies = self.waits.iter().map(|e| &e.policy).chain(&self.posts);
        policies.map(|p| p.slot_base as usize + p.slot_count as usize).max().unwrap_or(0)
    }

    /// Number of output parts that its weights are repacked for, if they are.
    pub(super) fn laid_out_for(&self) -> Option<u32> {
        self.operands.iter().find_map(|(_, source)| match source {
            Source::Repacked(weights) => Some(weights.parts()),
            Source::Matrix(_) | Source::Integers(_) => None,
        })
    }

    /// Bytes of repacked weights.
    pub fn repacked_bytes(&self) -> usize {
        let bytes = |(_, source): &(Role, Source)| match source {
            Source::Repacked(weights) => weights.bytes(),
            Source::Matrix(_) | Source::Integers(_) => 0,
        };
        self.operands.iter().map(bytes).sum()
    }
}
