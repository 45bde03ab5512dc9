//! Weights in the layout that decode kernels stream.

use std::ptr::null;

use cusync_gen::graph::{Element, Op};

use super::error::{Error, Result, check_status};
use super::memory::DeviceBuffer;
use super::stream::Stream;
use super::words::element_code;
use crate::ffi;

/// Weights of a stage in streaming order, laid out once for a fixed number of parts of the output.
#[derive(Debug)]
pub struct RepackedWeights {
    bytes: DeviceBuffer<u8>,
    gated: bool,
    /// Whether they are multiplied by the gain of a norm.
    scaled: bool,
    k: u32,
    n: u32,
    parts: u32,
}

impl RepackedWeights {
    /// Repacks K x N row-major `weights` (with `up`, `weights` is the gate) in stream order: the sources must
    /// not change until that has run. With a gain of K elements, row i is multiplied by the gain's element i.
    pub fn new(
        weights: &DeviceBuffer<u16>,
        up: Option<&DeviceBuffer<u16>>,
        gain: Option<(&DeviceBuffer<u16>, Element)>,
        (k, n): (u32, u32),
        parts: u32,
        stream: &Stream,
    ) -> Result<Self> {
        let length = |name: &str, have: usize, want: usize| {
            if have == want {
                return Ok(());
            }
            Err(Error::Length { what: name.into(), have, want })
        };
        let (rows, area) = (k as usize, k as usize * n as usize);
        length("weights to lay out", weights.len(), area)?;
        up.map_or(Ok(()), |up| length("up weights to lay out", up.len(), area))?;
        gain.map_or(Ok(()), |(gain, _)| length("gain of weights to lay out", gain.len(), rows))?;
        let operation = if up.is_some() { ffi::CUSYNC_GATED_GEMM } else { ffi::CUSYNC_GEMM };
        // SAFETY: arithmetic only.
        let size = unsafe { ffi::cusync_repacked_bytes(operation, k, n) };
        let bytes = DeviceBuffer::new(weights.device(), size as usize, "weights laid out for decoding")?;
        let pointer = |from: Option<&DeviceBuffer<u16>>| from.map_or(null(), |b| b.pointer().cast_const());
        let element = gain.map_or(ffi::CUSYNC_F16, |(_, element)| element_code(element));
        // SAFETY: the sources hold k x n values each, the gain k, and the destination has the size that the
        // library asked for.
        let status = unsafe {
            ffi::cusync_repack(
                operation,
                element,
                k,
                n,
                parts,
                weights.pointer(),
                pointer(up),
                pointer(gain.map(|(gain, _)| gain)),
                bytes.pointer(),
                stream.pointer(),
            )
        };
        check_status(|| format!("layout of {k} x {n} weights for decoding"), status)?;
        Ok(RepackedWeights { bytes, gated: up.is_some(), scaled: gain.is_some(), k, n, parts })
    }

    /// Bytes read per run.
    pub fn bytes(&self) -> usize {
        self.bytes.bytes()
    }

    /// Number of parts of the output in this layout.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    pub(super) fn fit(&self, k: u32, n: u32, op: &Op) -> bool {
        let scaled = matches!(op, Op::NormedGemm(_));
        (self.k, self.n, self.gated, self.scaled) == (k, n, op.is_gated(), scaled)
    }

    pub(super) fn pointer(&self) -> *mut std::ffi::c_void {
        self.bytes.pointer()
    }
}
