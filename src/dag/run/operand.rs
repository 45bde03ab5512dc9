//! Arguments of recorded kernels.

use std::sync::Arc;

use super::super::{Access, BufferId, Mode, Program};
use super::tiled::SyncArgs;
use crate::device::{Arg, DeviceBuffer};

/// An argument of a recorded kernel. Its words are 32 bits wide, whatever they hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// Words `first..first + words` of a buffer, passed as their address.
    Words {
        /// The buffer.
        buffer: BufferId,
        /// First word.
        first: usize,
        /// How many are touched.
        words: usize,
        /// What is done to them; `None`: the address is passed and nothing behind it is touched.
        mode: Option<Mode>,
    },
    /// No argument: an access to all of a buffer that the arguments do not show.
    Unpassed(BufferId, Mode),
    /// No argument: an access to words that the arguments do not show.
    UnpassedWords {
        /// The buffer.
        buffer: BufferId,
        /// First word.
        first: usize,
        /// How many are touched.
        words: usize,
        /// What is done to them.
        mode: Mode,
    },
    /// The seven parameters of a kernel that can wait for tiles (`csrc/include/cusync/tile_sync.cuh`): the last one passed.
    TileSync,
    /// A null pointer.
    Null,
    /// An integer.
    U32(u32),
    /// A float.
    F32(f32),
}

impl Operand {
    /// What it says of memory.
    pub(super) fn access(&self, program: &Program) -> Option<Access> {
        let words = |buffer, first: usize, words: usize, mode| Access {
            buffer,
            bytes: 4 * first as u64..4 * (first + words) as u64,
            mode,
        };
        match *self {
            Operand::Words { buffer, first, words: count, mode: Some(mode) }
            | Operand::UnpassedWords { buffer, first, words: count, mode } => {
                Some(words(buffer, first, count, mode))
            }
            Operand::Unpassed(buffer, mode) => Some(program.whole(buffer, mode)),
            _ => None,
        }
    }

    /// The same of a program whose buffers follow `first` others.
    pub(super) fn moved(self, first: u32) -> Operand {
        let later = |buffer: BufferId| BufferId(buffer.0 + first);
        match self {
            Operand::Words { buffer, first, words, mode } => {
                Operand::Words { buffer: later(buffer), first, words, mode }
            }
            Operand::Unpassed(buffer, mode) => Operand::Unpassed(later(buffer), mode),
            Operand::UnpassedWords { buffer, first, words, mode } => {
                Operand::UnpassedWords { buffer: later(buffer), first, words, mode }
            }
            other => other,
        }
    }
}

/// What a kernel is passed.
pub(super) fn args(operands: &[Operand], buffers: &[Arc<DeviceBuffer<u32>>], sync: &SyncArgs) -> Vec<Arg> {
    let mut args = Vec::with_capacity(operands.len());
    for operand in operands {
        args.push(match *operand {
            Operand::Words { buffer, first, .. } => Arg::Words(buffers[buffer.index()].clone(), first),
            Operand::Unpassed(..) | Operand::UnpassedWords { .. } => continue,
            Operand::TileSync => {
                args.extend(sync.args());
                continue;
            }
            Operand::Null => Arg::Null,
            Operand::U32(value) => Arg::U32(value),
            Operand::F32(value) => Arg::F32(value),
        });
    }
    args
}
