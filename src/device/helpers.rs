//! Helpers of the kernel library for tests and benchmarks, asynchronous on a stream.

use std::ops::Range;

use cusync_gen::graph::{Activation, Op, OperandKind, Stage};

use super::error::{Error, Result, check_status};
use super::memory::{DeviceBuffer, Plain};
use super::stage::BoundStage;
use super::stream::Stream;
use super::words;
use crate::ffi;

fn at_least(name: &str, have: usize, want: u64) -> Result<()> {
    if have as u64 >= want {
        return Ok(());
    }
    Err(Error::Length { what: name.into(), have, want: want as usize })
}

/// Fills with uniform random values in (-scale, scale); `element` is `CUSYNC_F16` or `CUSYNC_BF16`.
pub fn fill_random(
    data: &DeviceBuffer<u16>,
    element: u32,
    scale: f32,
    seed: u32,
    stream: &Stream,
) -> Result<()> {
    // SAFETY: the buffer holds `len` 16-bit values.
    let status = unsafe {
        ffi::cusync_fill_random(data.pointer(), data.len() as u64, element, scale, seed, stream.pointer())
    };
    check_status(|| "random fill".into(), status)
}

/// Adds sum (x - y)^2 and sum y^2 to `out[0]` and `out[1]`, and raises `out[2]` to max |x - y|.
pub fn compare(
    x: &DeviceBuffer<u16>,
    y: &DeviceBuffer<f32>,
    element: u32,
    out: &DeviceBuffer<f32>,
    stream: &Stream,
) -> Result<()> {
    at_least("reference of a comparison", y.len(), x.len() as u64)?;
    at_least("sums of a comparison", out.len(), 3)?;
    // SAFETY: `y` is as long as `x`, `out` holds three floats.
    let status = unsafe {
        ffi::cusync_compare(
            x.pointer(),
            y.pointer().cast(),
            x.len() as u64,
            element,
            out.pointer().cast(),
            stream.pointer(),
        )
    };
    check_status(|| "comparison".into(), status)
}

/// Product of two row-major matrices, m x k and k x n, on plain CUDA cores in float32: the sums, and the
/// largest magnitude among each element's partial sums.
pub fn reference_product(
    (a, b): (&DeviceBuffer<u16>, &DeviceBuffer<u16>),
    (m, n, k): (u32, u32, u32),
    element: u32,
    stream: &Stream,
) -> Result<(DeviceBuffer<f32>, DeviceBuffer<f32>)> {
    let area = |rows: u32, cols: u32| u64::from(rows) * u64::from(cols);
    at_least("left matrix of a reference", a.len(), area(m, k))?;
    at_least("right matrix of a reference", b.len(), area(k, n))?;
    let new = |name| DeviceBuffer::<f32>::new(a.device(), area(m, n) as usize, name);
    let (sums, largest) = (new("sums of a reference")?, new("partial sums of a reference")?);
    // SAFETY: both operands hold the checked number of values, and each result is m x n floats; buffers are
    // freed in stream order, behind the queued work.
    let status = unsafe {
        ffi::cusync_reference_product(
            a.pointer(),
            b.pointer(),
            m,
            n,
            k,
            element,
            sums.pointer().cast(),
            largest.pointer().cast(),
            stream.pointer(),
        )
    };
    check_status(|| "reference product".into(), status)?;
    Ok((sums, largest))
}

/// Interleaves gate and up, each K x N, into packed, K x 2N, in groups of 8 columns.
pub fn pack_gated(
    gate: &DeviceBuffer<u16>,
    up: &DeviceBuffer<u16>,
    packed: &DeviceBuffer<u16>,
    k: u32,
    n: u32,
    stream: &Stream,
) -> Result<()> {
    let area = u64::from(k) * u64::from(n);
    at_least("gate weights", gate.len(), area)?;
    at_least("up weights", up.len(), area)?;
    at_least("packed weights", packed.len(), 2 * area)?;
    // SAFETY: the three sizes were checked.
    let status = unsafe {
        ffi::cusync_pack_gated(gate.pointer(), up.pointer(), packed.pointer(), k, n, stream.pointer())
    };
    check_status(|| "packing of gate and up".into(), status)
}

/// activation(gate) * up of a packed M x 2N product into M x N. The product is in float32, or in the element type
/// of the result.
pub fn gated_activation<T: Plain>(
    packed: &DeviceBuffer<T>,
    d: &DeviceBuffer<u16>,
    (m, n): (u32, u32),
    activation: Activation,
    element: u32,
    stream: &Stream,
) -> Result<()> {
    let area = u64::from(m) * u64::from(n);
    at_least("packed product", packed.len(), 2 * area)?;
    at_least("gated activation", d.len(), area)?;
    let activation = number(activation)?;
    // SAFETY: both sizes were checked.
    let status = unsafe {
        let bits = 8 * size_of::<T>() as u32;
        ffi::cusync_gated_activation(
            packed.pointer(),
            bits,
            d.pointer(),
            m,
            n,
            activation,
            element,
            stream.pointer(),
        )
    };
    check_status(|| "gated activation".into(), status)
}

/// Rotates the queries and keys of stage `qkv` from their product, which is in float32, or in the element
/// type of the result and then may be the result itself.
pub fn rotate<T: Plain>(product: &DeviceBuffer<T>, qkv: &BoundStage, stream: &Stream) -> Result<()> {
    let Stage { name, op, m, n, .. } = &qkv.stage;
    let (Op::RotatedGemm(rotated), Some(angles)) = (op, qkv.matrix(OperandKind::Rotary)) else {
        return Err(Error::BadArgument(format!("{name} rotates no heads, or has no angles")));
    };
    let (m, n, dim) = (*m, *n, rotated.heads.dim);
    let area = u64::from(m) * u64::from(n);
    at_least("product of heads", product.len(), area)?;
    at_least("rotated heads", qkv.out.len(), area)?;
    let positions = rotated.positions.unwrap_or(rotated.tokens);
    at_least("angles", angles.len(), u64::from(positions) * u64::from(dim))?;
    let lengths = qkv.lengths();
    if let Some(lengths) = lengths {
        at_least("lengths", lengths.len(), u64::from(m / rotated.tokens))?;
    }
    let gain = |kind| -> Result<*mut std::ffi::c_void> {
        let Some(gain) = qkv.matrix(kind) else { return Ok(std::ptr::null_mut()) };
        at_least("gain of heads", gain.len(), u64::from(dim))?;
        Ok(gain.pointer())
    };
    let (query_gain, key_gain) = (gain(OperandKind::QueryGain)?, gain(OperandKind::KeyGain)?);
    // SAFETY: all sizes were checked.
    let status = unsafe {
        ffi::cusync_rotate(
            product.pointer(),
            8 * size_of::<T>() as u32,
            angles.pointer(),
            positions,
            lengths.map_or(std::ptr::null(), |lengths| lengths.pointer().cast_const().cast()),
            qkv.out.pointer(),
            m,
            n,
            rotated.columns(),
            dim,
            rotated.tokens,
            rotated.heads.norm.unwrap_or(0.0),
            query_gain,
            key_gain,
            rotated.heads.query * dim,
            words::element_code(qkv.element),
            stream.pointer(),
        )
    };
    check_status(|| format!("rotation of {name}"), status)
}

/// Copies row `tokens[i]` of a table of `width` columns to row i of `out`. A negative token stands for
/// `drawn[i]`; a token outside the table gives zeros.
pub fn embed(
    tokens: &DeviceBuffer<i32>,
    drawn: Option<&DeviceBuffer<i32>>,
    table: &DeviceBuffer<u16>,
    out: &DeviceBuffer<u16>,
    width: u32,
    stream: &Stream,
) -> Result<()> {
    let count = tokens.len() as u64;
    at_least("hidden states", out.len(), count * u64::from(width))?;
    if let Some(drawn) = drawn {
        at_least("drawn tokens", drawn.len(), count)?;
    }
    let vocabulary = (table.len() / width.max(1) as usize) as u32;
    // SAFETY: the sizes were checked, and the table has `vocabulary` rows.
    let status = unsafe {
        ffi::cusync_embed(
            tokens.pointer().cast(),
            drawn.map_or(std::ptr::null(), |drawn| drawn.pointer().cast_const().cast()),
            table.pointer(),
            out.pointer(),
            tokens.len() as u32,
            vocabulary,
            width,
            stream.pointer(),
        )
    };
    check_status(|| "embedding".into(), status)
}

/// The cache of one sequence as pages and as rows, each keys and values.
pub struct PagedCache<'a> {
    /// Page of each 64 tokens of the sequence.
    pub table: &'a DeviceBuffer<i32>,
    /// Pages of all sequences, `heads` x 64 x `columns` values each.
    pub pool: [&'a DeviceBuffer<u16>; 2],
    /// `heads` x `capacity` x `columns` values of this sequence.
    pub rows: [&'a DeviceBuffer<u16>; 2],
    /// Heads of keys.
    pub heads: u32,
    /// Columns of a head.
    pub columns: u32,
    /// Tokens that the rows have room for.
    pub capacity: u32,
}

impl PagedCache<'_> {
    /// Copies pages, by their places in the table, to rows.
    pub fn gather(&self, pages: Range<u32>, stream: &Stream) -> Result<()> {
        self.copy(pages, false, stream)
    }

    /// Copies rows to their pages, by their places in the table.
    pub fn scatter(&self, pages: Range<u32>, stream: &Stream) -> Result<()> {
        self.copy(pages, true, stream)
    }

    fn copy(&self, pages: Range<u32>, to_pool: bool, stream: &Stream) -> Result<()> {
        let PagedCache { table, pool, rows, heads, columns, capacity } = *self;
        let token = u64::from(heads) * u64::from(columns);
        at_least("table of pages", table.len(), u64::from(pages.end))?;
        rows.iter().try_for_each(|rows| at_least("rows", rows.len(), u64::from(capacity) * token))?;
        let all = pool.map(DeviceBuffer::len).into_iter().min().unwrap_or(0) as u64 / (64 * token).max(1);
        let cache = ffi::cusync_paged_cache {
            table: table.pointer().cast_const().cast(),
            pool: pool.map(DeviceBuffer::pointer),
            rows: rows.map(DeviceBuffer::pointer),
            pages: u32::try_from(all).unwrap_or(u32::MAX),
            heads,
            capacity,
            columns,
        };
        let count = pages.end.saturating_sub(pages.start);
        // SAFETY: the sizes were checked, and the kernel leaves out entries beyond the pool.
        let status = unsafe {
            ffi::cusync_copy_pages(&raw const cache, pages.start, count, to_pool.into(), stream.pointer())
        };
        check_status(|| "copy of pages".into(), status)
    }
}

/// Draws a token from the first `vocabulary` columns of each row of logits. `drawn[i]` depends only on row i,
/// `sampling[i]` and `positions[i]`.
pub fn draw(
    logits: &DeviceBuffer<u16>,
    vocabulary: u32,
    sampling: &DeviceBuffer<ffi::cusync_sampling>,
    positions: &DeviceBuffer<i32>,
    drawn: &DeviceBuffer<i32>,
    element: u32,
    stream: &Stream,
) -> Result<()> {
    let count = drawn.len();
    let pitch = logits.len() / count.max(1);
    at_least("logits of a row", pitch, vocabulary.into())?;
    at_least("choices of sampling", sampling.len(), count as u64)?;
    at_least("positions", positions.len(), count as u64)?;
    // SAFETY: the sizes were checked, and every row has `pitch` elements.
    let status = unsafe {
        ffi::cusync_draw(
            logits.pointer(),
            sampling.pointer().cast(),
            positions.pointer().cast(),
            drawn.pointer().cast(),
            count as u32,
            vocabulary,
            pitch as u32,
            element,
            stream.pointer(),
        )
    };
    check_status(|| "draw of tokens".into(), status)
}

/// The number of an activation that kernels take.
fn number(activation: Activation) -> Result<u32> {
    activation.number().ok_or_else(|| Error::BadArgument(format!("kernels do not compute {activation}")))
}

/// d = activation(x), element by element.
pub fn activate(
    x: &DeviceBuffer<u16>,
    d: &DeviceBuffer<u16>,
    activation: Activation,
    element: u32,
    stream: &Stream,
) -> Result<()> {
    at_least("activation output", d.len(), x.len() as u64)?;
    let activation = number(activation)?;
    // SAFETY: `d` is as long as `x`.
    let status = unsafe {
        ffi::cusync_activation_kernel(
            x.pointer(),
            d.pointer(),
            x.len() as u64,
            activation,
            element,
            stream.pointer(),
        )
    };
    check_status(|| "activation".into(), status)
}

/// Reads `data` once; writes to `sink` (64 values) prevent the loads from being optimized away.
pub fn stream_read(data: &DeviceBuffer<u16>, sink: &DeviceBuffer<u32>, stream: &Stream) -> Result<()> {
    at_least("sink of the read test", sink.len(), 64)?;
    // SAFETY: the buffer holds `bytes()` bytes.
    let status = unsafe {
        ffi::cusync_stream_read(data.pointer(), data.bytes() as u64, sink.pointer(), stream.pointer())
    };
    check_status(|| "read test".into(), status)
}

/// Writes the clock of every SM and the global timer (nanoseconds) to `out` when the stream reaches it: two
/// values per SM.
pub fn read_clocks(out: &DeviceBuffer<u64>, stream: &Stream) -> Result<()> {
    at_least("clocks of all SMs", out.len(), 2)?;
    // SAFETY: an SM beyond half of the buffer writes nothing.
    let status =
        unsafe { ffi::cusync_read_clocks(out.pointer().cast(), (out.len() / 2) as u32, stream.pointer()) };
    check_status(|| "reading of clocks".into(), status)
}

/// Repeats one satisfied wait, one post and one hand-off between two SMs `count` times each; writes
/// nanoseconds of each to `out[0..3]`. `scratch` holds 1024 zeroed words.
pub fn measure_semaphores(
    scratch: &DeviceBuffer<u32>,
    count: u32,
    out: &DeviceBuffer<f32>,
    stream: &Stream,
) -> Result<()> {
    at_least("scratch of the semaphore test", scratch.len(), 1024)?;
    at_least("times of the semaphore test", out.len(), 3)?;
    // SAFETY: both sizes were checked.
    let status = unsafe {
        ffi::cusync_measure_semaphores(
            scratch.pointer().cast(),
            count,
            out.pointer().cast(),
            stream.pointer(),
        )
    };
    check_status(|| "semaphore test".into(), status)
}
