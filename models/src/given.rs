//! Weights that the caller holds in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Type of a weight's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// IEEE half precision.
    F16,
    /// The upper half of float32.
    Bf16,
    /// Single precision.
    F32,
}

/// Bytes that can be read at any place.
pub trait Bytes: std::fmt::Debug + Send + Sync {
    /// Fills `out` with the bytes from `begin` on.
    ///
    /// # Errors
    /// They cannot be read, or end before.
    fn read_at(&self, out: &mut [u8], begin: u64) -> std::io::Result<()>;
}

impl Bytes for File {
    fn read_at(&self, out: &mut [u8], begin: u64) -> std::io::Result<()> {
        self.read_exact_at(out, begin)
    }
}

impl Bytes for Vec<u8> {
    fn read_at(&self, out: &mut [u8], begin: u64) -> std::io::Result<()> {
        let rest = usize::try_from(begin).ok().and_then(|begin| self.get(begin..)?.get(..out.len()));
        out.copy_from_slice(rest.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A weight in memory, row-major.
#[derive(Debug)]
pub struct GivenWeight {
    /// Its name in a checkpoint.
    pub name: String,
    /// Its elements, least significant byte first.
    pub kind: WeightType,
    /// Lengths of its axes.
    pub shape: Vec<usize>,
    /// Its bytes. Those of the embedding are read at every step on a host, others when the model is opened.
    pub bytes: Box<dyn Bytes>,
}
