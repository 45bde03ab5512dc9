//! Communication between a host and the kernel of a session: commands one way, completions the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::context::Device;
use super::error::Result;
use super::memory::DeviceBuffer;
use super::pinned::PinnedBuffer;
use crate::ffi;

/// Commands that a host may be ahead of the kernel.
pub const COMMANDS: u32 = ffi::CUSYNC_COMMANDS;

/// Words of a mailbox. The host writes commands, each in one store, and the executor of jobs writes the rest.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Words {
    commands: [AtomicU64; COMMANDS as usize],
    ended: AtomicU32,
    left: AtomicU32,
}

const _: () = assert!(size_of::<Words>() == size_of::<ffi::cusync_mailbox>());
const _: () = assert!(align_of::<Words>() == align_of::<ffi::cusync_mailbox>());

/// A command of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Number of the job, from 1.
    pub sequence: u32,
    /// Set of tensors; below [`ffi::CUSYNC_MAX_BOUND`].
    pub set: u16,
    /// Set of the next job, if known: its weights may be loaded early.
    pub next: Option<u16>,
    /// Number of rows to compute; 0: the launch ends.
    pub m: u8,
}

/// No set is announced; sets have 12 bits.
const NO_SET: u16 = 0xfff;

impl Command {
    fn pack(self) -> u64 {
        let next = self.next.unwrap_or(NO_SET) & NO_SET;
        let set = self.set & NO_SET;
        u64::from(self.sequence) << 32 | u64::from(next) << 20 | u64::from(set) << 8 | u64::from(self.m)
    }

    fn unpack(word: u64) -> Command {
        let set = |shift: u32| (word >> shift) as u16 & NO_SET;
        let next = Some(set(20)).filter(|next| *next != NO_SET);
        Command { sequence: (word >> 32) as u32, set: set(8), next, m: word as u8 }
    }
}

impl Words {
    fn place(&self, sequence: u32) -> &AtomicU64 {
        &self.commands[(sequence % COMMANDS) as usize]
    }

    /// Sends a command, releasing all earlier writes. The previous job in its place must be over.
    pub fn post(&self, command: Command) {
        self.place(command.sequence).store(command.pack(), Ordering::Release);
    }

    /// Command `sequence`, if it has arrived.
    pub fn command(&self, sequence: u32) -> Option<Command> {
        let command = Command::unpack(self.place(sequence).load(Ordering::Acquire));
        (command.sequence == sequence).then_some(command)
    }

    /// Number of the last finished job; its results can be read.
    pub fn ended(&self) -> u32 {
        self.ended.load(Ordering::Acquire)
    }

    /// Reports that a job is over.
    pub fn end(&self, sequence: u32) {
        self.ended.store(sequence, Ordering::Release);
    }

    /// Number of launches that have left and take no more commands.
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Acquire)
    }

    /// Reports that launch `launch`, from 1, takes no more commands.
    pub fn leave(&self, launch: u32) {
        self.left.store(launch, Ordering::Release);
    }
}

/// Source of jobs for a session's kernel: the mailbox, and the device memory in which workers pass commands
/// on.
#[derive(Debug)]
pub struct JobLine {
    /// [`Words`].
    mailbox: PinnedBuffer,
    /// A `cusync_relay`.
    relay: DeviceBuffer<u32>,
    launches: DeviceBuffer<u32>,
    sets: u32,
    idle_ns: u32,
}

impl JobLine {
    /// Creates a job line for `workers` workers and `sets` sets of tensors; the kernel leaves after `idle_ns`
    /// without a command.
    pub fn new(device: &Device, workers: u32, sets: u32, idle_ns: u32) -> Result<Arc<JobLine>> {
        let words = size_of::<ffi::cusync_relay>() / size_of::<u32>();
        Ok(Arc::new(JobLine {
            mailbox: PinnedBuffer::new(device, size_of::<Words>() / size_of::<u32>())?,
            relay: DeviceBuffer::zeroed(device, words, "the relay of commands")?,
            launches: DeviceBuffer::zeroed(device, workers as usize, "launches of a session")?,
            sets,
            idle_ns,
        }))
    }

    /// Words shared by the kernel and the host.
    pub fn words(&self) -> &Words {
        // SAFETY: the memory holds this many words of zero, which are valid, aligned to a page and freed with
        // `self`; it contains only atomics.
        unsafe { &*self.mailbox.pointer().cast() }
    }

    /// Sets of tensors.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// Number of words for workers.
    pub(super) fn workers(&self) -> usize {
        self.launches.len()
    }

    pub(super) fn raw(&self) -> ffi::cusync_jobs {
        ffi::cusync_jobs {
            mailbox: self.mailbox.pointer().cast(),
            relay: self.relay.pointer().cast(),
            launches: self.launches.pointer().cast(),
            sets: self.sets,
            idle_ns: self.idle_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_by_its_number_alone() {
        let words = Words::default();
        assert_eq!(words.command(1), None);
        let command = |sequence, set, m| Command { sequence, set, next: None, m };
        words.post(command(1, 3, 64));
        assert_eq!(words.command(1), Some(command(1, 3, 64)));
        let announced = Command { next: Some(511), ..command(2, 511, 1) };
        words.post(announced);
        assert_eq!(words.command(2), Some(announced));
        // The previous command in a place is not taken for the next.
        assert_eq!(words.command(1 + COMMANDS), None);
        words.post(command(u32::MAX, 0, u8::MAX));
        assert_eq!(words.command(u32::MAX), Some(command(u32::MAX, 0, u8::MAX)));
        // Numbers wrap.
        words.post(command(0, 0, 0));
        assert_eq!(words.command(0), Some(command(0, 0, 0)));
    }
}
