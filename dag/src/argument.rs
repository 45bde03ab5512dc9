//! Arguments of recorded kernels, and memory by its addresses.

use std::ops::Range;
use std::sync::Arc;

use super::program::{Access, AccessMode, BufferId};

/// Memory that kernels can access, host or device: its addresses.
pub trait Addressable {
    /// First byte to one past the last.
    fn addresses(&self) -> Range<u64>;
}

impl<T> Addressable for [T] {
    fn addresses(&self) -> Range<u64> {
        let start = self.as_ptr() as u64;
        start..start + size_of_val(self) as u64
    }
}

impl<T> Addressable for Vec<T> {
    fn addresses(&self) -> Range<u64> {
        self.as_slice().addresses()
    }
}

/// An argument of a recorded kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// Bytes of a buffer.
    Bytes {
        /// The buffer.
        buffer: BufferId,
        /// Offset of the first byte.
        first: u64,
        /// Number of bytes.
        bytes: u64,
        /// How they are accessed; `None`: nothing at the address is accessed.
        mode: Option<AccessMode>,
        /// Whether the address is passed to the kernel; otherwise the kernel accesses the bytes without a matching
        /// argument.
        passed: bool,
    },
    /// Memory given by addresses, which the recording converts to bytes of a buffer.
    Addresses {
        /// The first address.
        first: u64,
        /// Number of bytes.
        bytes: u64,
        /// How it is accessed.
        mode: AccessMode,
        /// Whether the address is passed to the kernel.
        passed: bool,
    },
    /// The seven parameters of a kernel that can wait for tiles (`csrc/include/cusync/tile_sync.cuh`); they are passed
    /// last.
    TileSync,
    /// A null pointer.
    Null,
    /// An integer.
    U32(u32),
    /// A float.
    F32(f32),
    /// A value of any other type, by its bytes, such as a struct. Memory behind addresses in it has to be declared by
    /// arguments that are not passed.
    Value(Arc<[u8]>),
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Argument::U32(value)
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Argument::F32(value)
    }
}

fn addressed<M: Addressable + ?Sized>(memory: &M, mode: AccessMode) -> Argument {
    let Range { start, end } = memory.addresses();
    Argument::Addresses { first: start, bytes: end - start, mode, passed: true }
}

/// Memory that a kernel reads.
pub fn read<M: Addressable + ?Sized>(memory: &M) -> Argument {
    addressed(memory, AccessMode::Read)
}

/// Memory that a kernel writes without reading the old contents.
pub fn write<M: Addressable + ?Sized>(memory: &M) -> Argument {
    addressed(memory, AccessMode::Write)
}

/// Memory that a kernel reads and writes.
pub fn update<M: Addressable + ?Sized>(memory: &M) -> Argument {
    addressed(memory, AccessMode::ReadWrite)
}

impl Argument {
    /// 32-bit words of a buffer, of any type.
    pub fn words(buffer: BufferId, first: usize, words: usize, mode: Option<AccessMode>) -> Self {
        Argument::Bytes { buffer, first: 4 * first as u64, bytes: 4 * words as u64, mode, passed: true }
    }

    /// The same bytes, accessed without being an argument.
    pub fn unpassed(mut self) -> Self {
        if let Argument::Bytes { passed, .. } | Argument::Addresses { passed, .. } = &mut self {
            *passed = false;
        }
        self
    }

    pub(super) fn access(&self) -> Option<Access> {
        match *self {
            Argument::Bytes { buffer, first, bytes, mode: Some(mode), .. } => {
                Some(Access { buffer, bytes: first..first + bytes, mode })
            }
            _ => None,
        }
    }

    /// The same argument in a program that places its buffers after `first` others.
    pub(super) fn moved(mut self, first: u32) -> Self {
        if let Argument::Bytes { buffer, .. } = &mut self {
            buffer.0 += first;
        }
        self
    }
}
