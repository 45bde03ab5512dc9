//! Mailboxes: a host, or a dedicated scheduler worker, sends items through them to the workers of a running
//! chain kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::context::Device;
use super::error::{Error, Result};
use super::memory::DeviceBuffer;
use super::pinned::PinnedBuffer;
use crate::ffi;

/// Words per mailbox.
pub const MAIL: u32 = ffi::CUSYNC_MAIL;

/// Mailboxes of all workers, as host threads see them: the words of `cusync_mail`.
#[derive(Clone, Copy, Debug)]
pub struct Boxes<'a> {
    words: &'a [AtomicU64],
    done: &'a [AtomicU32],
    here: &'a [AtomicU32],
    left: &'a AtomicU32,
}

/// Content of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Index of an item in the list; `None`: the launch ends for the worker.
    pub item: Option<u32>,
    /// Number of the item's run.
    pub epoch: u32,
}

impl<'a> Boxes<'a> {
    /// Offsets of the words with each worker's progress, and of the words shared by all.
    fn counts(workers: usize) -> (usize, usize, usize) {
        // Progress words have cache lines of their own, so that they are read together.
        let line = workers.next_multiple_of(32);
        (line, 2 * line, 2 * line + 32)
    }

    fn new(words: &'a [AtomicU64], counts: &'a [AtomicU32], workers: usize) -> Option<Boxes<'a>> {
        let (here, left, _) = Self::counts(workers);
        let done = counts.get(..workers)?;
        Some(Boxes { words, done, here: counts.get(here..here + workers)?, left: counts.get(left)? })
    }

    /// Workers.
    pub fn workers(&self) -> usize {
        self.done.len()
    }

    fn place(&self, worker: usize, number: u32) -> &AtomicU64 {
        &self.words[worker * MAIL as usize + (number % MAIL) as usize]
    }

    /// Sends a worker word `number`, releasing all earlier writes. The previous word in its place must be
    /// done.
    pub fn post(&self, worker: usize, number: u32, letter: Letter) {
        let item = u64::from(letter.item.unwrap_or(ffi::CUSYNC_NO_ITEM));
        let number_of = u64::from(number % ffi::CUSYNC_NUMBERED);
        let word = number_of << 52 | item << 32 | u64::from(letter.epoch);
        self.place(worker, number).store(word, Ordering::Release);
    }

    /// Word `number` of a worker, if it has arrived.
    pub fn take(&self, worker: usize, number: u32) -> Option<Letter> {
        let word = self.place(worker, number).load(Ordering::Acquire);
        let item = (word >> 32) as u32 & ffi::CUSYNC_NO_ITEM;
        let letter = Letter { item: Some(item).filter(|i| *i != ffi::CUSYNC_NO_ITEM), epoch: word as u32 };
        (word >> 52 == u64::from(number % ffi::CUSYNC_NUMBERED)).then_some(letter)
    }

    /// Number of the last word that a worker has finished; the results of its items can be read.
    pub fn done(&self, worker: usize) -> u32 {
        self.done[worker].load(Ordering::Acquire)
    }

    /// Reports that a worker has finished word `number`.
    pub fn tell_done(&self, worker: usize, number: u32) {
        self.done[worker].store(number, Ordering::Release);
    }

    /// Last launch that a worker has begun.
    pub fn here(&self, worker: usize) -> u32 {
        self.here[worker].load(Ordering::Acquire)
    }

    /// Reports that a worker has begun a launch.
    pub fn arrive(&self, worker: usize, launch: u32) {
        self.here[worker].store(launch, Ordering::Release);
    }

    /// Number of launches that have left and take no more words.
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Acquire)
    }

    /// Reports that launch `launch`, from 1, takes no more words.
    pub fn leave(&self, launch: u32) {
        self.left.store(launch, Ordering::Release);
    }
}

/// Mailboxes of threads.
#[derive(Debug)]
pub struct HostMail {
    words: Vec<AtomicU64>,
    counts: Vec<AtomicU32>,
    workers: usize,
}

impl HostMail {
    /// Empty mailboxes for `workers` workers.
    pub fn new(workers: usize) -> HostMail {
        let words = (0..workers * MAIL as usize).map(|_| AtomicU64::new(0)).collect();
        let counts = (0..Boxes::counts(workers).2).map(|_| AtomicU32::new(0)).collect();
        HostMail { words, counts, workers }
    }

    /// The mailboxes.
    pub fn boxes(&self) -> Option<Boxes<'_>> {
        Boxes::new(&self.words, &self.counts, self.workers)
    }
}

#[derive(Debug)]
enum Memory {
    /// Filled by the host.
    Pinned { words: PinnedBuffer, idle_ns: u32 },
    /// Filled by worker 0.
    Device { words: DeviceBuffer<u32>, ahead: u32 },
}

/// Mailboxes of a chain kernel's workers.
#[derive(Debug)]
pub struct MailLine {
    memory: Memory,
    awake: DeviceBuffer<u32>,
    workers: u32,
}

impl MailLine {
    fn len(workers: u32) -> usize {
        2 * (workers * MAIL) as usize + Boxes::counts(workers as usize).2
    }

    /// Mailboxes filled by the host. The kernel leaves when no worker has received a word for `idle_ns`.
    pub fn from_host(device: &Device, workers: u32, idle_ns: u32) -> Result<Arc<MailLine>> {
        let words = PinnedBuffer::new(device, Self::len(workers))?;
        Self::new(device, workers, Memory::Pinned { words, idle_ns })
    }

    /// Mailboxes filled by worker 0, with up to `ahead` unfinished words per worker.
    pub fn from_scheduler(device: &Device, workers: u32, ahead: u32) -> Result<Arc<MailLine>> {
        let words = DeviceBuffer::zeroed(device, Self::len(workers), "mailboxes")?;
        Self::new(device, workers, Memory::Device { words, ahead })
    }

    fn new(device: &Device, workers: u32, memory: Memory) -> Result<Arc<MailLine>> {
        if workers == 0 {
            return Err(Error::BadArgument("mailboxes of no workers".into()));
        }
        Ok(Arc::new(MailLine { memory, awake: DeviceBuffer::zeroed(device, 2, "workers awake")?, workers }))
    }

    /// The mailboxes, if the host fills them.
    pub fn boxes(&self) -> Option<Boxes<'_>> {
        let Memory::Pinned { words, .. } = &self.memory else { return None };
        let count = (self.workers * MAIL) as usize;
        // SAFETY: `len` words of zero, which are valid atomics, aligned to a page and freed with `self`:
        // `count` of 64 bits, the rest of 32; they are accessed only as atomics.
        let (letters, counts) = unsafe {
            let first = words.pointer();
            (
                std::slice::from_raw_parts(first.cast::<AtomicU64>(), count),
                std::slice::from_raw_parts(first.add(2 * count).cast::<AtomicU32>(), words.len() - 2 * count),
            )
        };
        Boxes::new(letters, counts, self.workers as usize)
    }

    /// Workers.
    pub(super) fn workers(&self) -> u32 {
        self.workers
    }

    pub(super) fn raw(&self) -> ffi::cusync_mail {
        let (first, idle_ns, ahead) = match &self.memory {
            Memory::Pinned { words, idle_ns } => (words.pointer(), *idle_ns, 0),
            Memory::Device { words, ahead } => (words.pointer().cast::<u32>(), 0, *ahead),
        };
        let counts = first.wrapping_add(2 * (self.workers * MAIL) as usize);
        let (here, left, _) = Boxes::counts(self.workers as usize);
        ffi::cusync_mail {
            words: first.cast(),
            done: counts,
            here: counts.wrapping_add(here),
            left: counts.wrapping_add(left),
            awake: self.awake.pointer().cast(),
            idle_ns,
            ahead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_by_its_number_alone() {
        let mail = HostMail::new(3);
        let boxes = mail.boxes().expect("made");
        assert_eq!(boxes.workers(), 3);
        let letter = |item, epoch| Letter { item, epoch };
        for number in 1..3 * ffi::CUSYNC_NUMBERED {
            assert_eq!(boxes.take(1, number), None, "what lay there is {MAIL} before");
            boxes.post(1, number, letter(Some(number & 0xffff), u32::MAX - number));
            assert_eq!(boxes.take(1, number), Some(letter(Some(number & 0xffff), u32::MAX - number)));
            // All places are in use before the numbers wrap for the first time.
            let others = (boxes.take(0, number), boxes.take(2, number));
            assert!(number >= ffi::CUSYNC_NUMBERED || others == (None, None), "nobody else's");
        }
        boxes.post(2, u32::MAX, letter(None, 7));
        assert_eq!(boxes.take(2, u32::MAX), Some(letter(None, 7)));
        boxes.post(2, 0, letter(Some(1), 8));
        assert_eq!(boxes.take(2, 0), Some(letter(Some(1), 8)), "numbers wrap");
    }

    #[test]
    fn what_workers_say_does_not_meet() {
        for workers in [1, 31, 32, 33, 132] {
            let mail = HostMail::new(workers);
            let boxes = mail.boxes().expect("made");
            (0..workers).for_each(|w| boxes.tell_done(w, w as u32 + 1));
            (0..workers).for_each(|w| boxes.arrive(w, w as u32 + 1000));
            boxes.leave(5);
            let seen =
                (0..workers).all(|w| (boxes.done(w), boxes.here(w)) == (w as u32 + 1, w as u32 + 1000));
            assert!(seen && boxes.left() == 5);
        }
    }
}
