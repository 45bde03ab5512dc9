//! The recorder: code written as if kernels ran one after another becomes a program.
//!
//! A kernel's memory is a buffer of the recording, or anything that has addresses:
//!
//! ```
//! use cusync_dag::{LaunchConfig, Recording, read, write};
//!
//! let (x, y) = (vec![1.0f32; 1024], vec![0.0f32; 1024]);
//! let mut code = Recording::new("one");
//! code.launch("square", LaunchConfig::linear(4, 256), 3.0, &[read(&x), write(&y), 1024.into()])?;
//! assert_eq!(code.program().nodes().len(), 1);
//! # Ok::<(), cusync_dag::DagError>(())
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::DagError;
use super::program::{
    Access, AccessMode, BufferId, Direction, Kernel, LaunchConfig, Node, NodeId, NodeWork, Program, ZoneId,
};
use super::refine::TileAccesses;

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
#[derive(Clone, Copy, Debug, PartialEq)]
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
    Argument::Addresses { first: start, bytes: end - start, mode }
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
        if let Argument::Bytes { passed, .. } = &mut self {
            *passed = false;
        }
        self
    }

    fn access(&self) -> Option<Access> {
        match *self {
            Argument::Bytes { buffer, first, bytes, mode: Some(mode), .. } => {
                Some(Access { buffer, bytes: first..first + bytes, mode })
            }
            _ => None,
        }
    }

    /// The same argument in a program that places its buffers after `first` others.
    fn moved(mut self, first: u32) -> Self {
        if let Argument::Bytes { buffer, .. } = &mut self {
            buffer.0 += first;
        }
        self
    }
}

/// How a recorded node runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// A kernel in an image, by name, with its arguments.
    Kernel {
        /// The kernel.
        function: String,
        /// Its arguments.
        arguments: Vec<Argument>,
    },
    /// A copy of a whole buffer, or by addresses.
    Copy {
        /// The buffer on the device; `None`: memory given by addresses.
        buffer: Option<BufferId>,
        /// The direction.
        direction: Direction,
    },
}

/// Recorded serial code. [`Recording::program`] is the program to schedule.
#[derive(Clone, Debug)]
pub struct Recording {
    program: Program,
    nodes: Vec<Recorded>,
    /// Contents of each buffer before the first run; zeros where `None`.
    initial: Vec<Option<Vec<u32>>>,
    zone: ZoneId,
    programmatic: bool,
    /// Memory by first address: its end and its buffer.
    memory: BTreeMap<u64, (u64, BufferId)>,
}

impl Recording {
    /// An empty recording.
    pub fn new(name: &str) -> Recording {
        Recording {
            program: Program::new(name),
            nodes: Vec::new(),
            initial: Vec::new(),
            zone: ZoneId(0),
            programmatic: false,
            memory: BTreeMap::new(),
        }
    }

    /// The program recorded so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How each node runs.
    pub fn recorded(&self) -> &[Recorded] {
        &self.nodes
    }

    /// Whether memory was given by addresses: the recording does not own it, so it can be scheduled but not bound.
    pub fn has_addresses(&self) -> bool {
        !self.memory.is_empty()
    }

    /// The recorded launches: the kernel's name and its arguments.
    pub fn launches(&self) -> impl Iterator<Item = (&str, &[Argument])> {
        self.nodes.iter().filter_map(|node| match node {
            Recorded::Kernel { function, arguments } => Some((function.as_str(), arguments.as_slice())),
            Recorded::Copy { .. } => None,
        })
    }

    fn buffer(&mut self, name: &str, bytes: u64, initial: Option<Vec<u32>>) -> BufferId {
        self.initial.push(initial);
        self.program.buffer(name, bytes)
    }

    /// Adds a zero-filled buffer with this many words.
    pub fn zeros(&mut self, name: &str, words: usize) -> BufferId {
        self.buffer(name, 4 * words as u64, None)
    }

    /// Adds a buffer with these words.
    pub fn filled(&mut self, name: &str, words: Vec<u32>) -> BufferId {
        self.buffer(name, 4 * words.len() as u64, Some(words))
    }

    /// Adds a buffer with these floats.
    pub fn floats(&mut self, name: &str, values: &[f32]) -> BufferId {
        self.filled(name, values.iter().map(|v| v.to_bits()).collect())
    }

    /// Adds memory as a whole, before parts of it are used: parts then depend on each other as their bytes do.
    ///
    /// # Errors
    /// [`DagError::Overlap`] if a part of it is already recorded separately.
    pub fn memory<M: Addressable + ?Sized>(&mut self, memory: &M) -> Result<(), DagError> {
        let addresses = memory.addresses();
        if addresses.is_empty() { Ok(()) } else { self.place(&addresses).map(drop) }
    }

    /// The buffer of these addresses, and the offset of the first byte.
    fn place(&mut self, addresses: &Range<u64>) -> Result<(BufferId, u64), DagError> {
        if let Some((&start, &(end, buffer))) = self.memory.range(..addresses.end).next_back()
            && end > addresses.start
        {
            return match start <= addresses.start && addresses.end <= end {
                true => Ok((buffer, addresses.start - start)),
                false => Err(DagError::Overlap { addresses: addresses.clone() }),
            };
        }
        let name = format!("m{}", self.memory.len());
        let buffer = self.buffer(&name, addresses.end - addresses.start, None);
        self.memory.insert(addresses.start, (addresses.end, buffer));
        Ok((buffer, 0))
    }

    /// Contents of a buffer before the first run.
    pub fn initial(&self, buffer: BufferId) -> Vec<u32> {
        let bytes = self.program.buffers()[buffer.index()].bytes;
        self.initial[buffer.index()].clone().unwrap_or_else(|| vec![0; bytes as usize / 4])
    }

    /// Whether a buffer has initial contents.
    pub fn is_filled(&self, buffer: BufferId) -> bool {
        self.initial[buffer.index()].is_some()
    }

    /// Puts subsequently recorded nodes into a new zone with this priority; larger values run earlier.
    pub fn begin_zone(&mut self, name: &str, priority: i32) -> ZoneId {
        self.zone = self.program.zone(name, priority);
        self.zone
    }

    /// All words of a buffer, read.
    pub fn read(&self, buffer: BufferId) -> Argument {
        self.whole(buffer, AccessMode::Read)
    }

    /// All words of a buffer, written without reading the old contents.
    pub fn write(&self, buffer: BufferId) -> Argument {
        self.whole(buffer, AccessMode::Write)
    }

    /// All words of a buffer, read and written.
    pub fn update(&self, buffer: BufferId) -> Argument {
        self.whole(buffer, AccessMode::ReadWrite)
    }

    fn whole(&self, buffer: BufferId, mode: AccessMode) -> Argument {
        let Access { bytes, .. } = self.program.whole(buffer, mode);
        Argument::Bytes { buffer, first: 0, bytes: bytes.end, mode: Some(mode), passed: true }
    }

    /// Declares that subsequently recorded kernels were built for programmatic edges, with the contract of
    /// [`Kernel::programmatic`]. Without it they get full edges only.
    pub fn built_for_programmatic_edges(mut self) -> Recording {
        self.programmatic = true;
        self
    }

    /// Records a launch of a kernel with an estimated duration of `us` microseconds.
    ///
    /// # Errors
    /// [`DagError`], from the program; the same for every method here.
    pub fn launch(
        &mut self,
        function: &str,
        launch: LaunchConfig,
        us: f64,
        arguments: &[Argument],
    ) -> Result<NodeId, DagError> {
        self.launch_with(function, launch, us, arguments, |_| ())
    }

    /// Like [`Recording::launch`], for a kernel that can wait for tiles: [`Argument::TileSync`] must be the last
    /// argument, and `tiles` has an entry for each other argument that is an access.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn launch_tiled(
        &mut self,
        function: &str,
        launch: LaunchConfig,
        us: f64,
        arguments: &[Argument],
        tiles: TileAccesses,
    ) -> Result<NodeId, DagError> {
        self.launch_with(function, launch, us, arguments, |kernel| kernel.tiles = Some(tiles))
    }

    /// Like [`Recording::launch`]; `change` corrects the assumptions about the kernel.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn launch_with(
        &mut self,
        function: &str,
        launch: LaunchConfig,
        us: f64,
        arguments: &[Argument],
        change: impl FnOnce(&mut Kernel),
    ) -> Result<NodeId, DagError> {
        let placed = |argument: &Argument| match *argument {
            Argument::Addresses { bytes: 0, .. } => Ok(Argument::Null),
            Argument::Addresses { first, bytes, mode } => {
                let (buffer, first) = self.place(&(first..first + bytes))?;
                Ok(Argument::Bytes { buffer, first, bytes, mode: Some(mode), passed: true })
            }
            other => Ok(other),
        };
        let arguments: Vec<Argument> = arguments.iter().map(placed).collect::<Result<_, DagError>>()?;
        let accesses: Vec<Access> = arguments.iter().filter_map(Argument::access).collect();
        let mut kernel = Kernel { programmatic: self.programmatic, ..Kernel::new(launch, &accesses) };
        change(&mut kernel);
        let recorded = Recorded::Kernel { function: function.into(), arguments };
        self.push(function, NodeWork::Kernel(kernel), accesses, us, recorded)
    }

    /// Records a copy of a whole buffer between host and device.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn copy(&mut self, buffer: BufferId, direction: Direction) -> Result<NodeId, DagError> {
        let (name, mode) = match direction {
            Direction::HostToDevice => ("upload", AccessMode::Write),
            Direction::DeviceToHost => ("download", AccessMode::Read),
        };
        let access = self.program.whole(buffer, mode);
        let bytes = access.bytes.end;
        // A PCIe 5 link transfers about 50 GB/s, and a copy takes 2 us to begin.
        let us = 2.0 + bytes as f64 / 50e3;
        let recorded = Recorded::Copy { buffer: Some(buffer), direction };
        self.push(name, NodeWork::Copy { direction, bytes }, vec![access], us, recorded)
    }

    /// Records a copy between host and device memory; the smaller size counts.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn copy_memory<F: Addressable + ?Sized, T: Addressable + ?Sized>(
        &mut self,
        direction: Direction,
        from: &F,
        to: &T,
        us: f64,
    ) -> Result<NodeId, DagError> {
        let (from, to) = (from.addresses(), to.addresses());
        let bytes = (from.end - from.start).min(to.end - to.start);
        let mut accesses = Vec::new();
        for (start, mode) in [(from.start, AccessMode::Read), (to.start, AccessMode::Write)] {
            if bytes > 0 {
                let (buffer, first) = self.place(&(start..start + bytes))?;
                accesses.push(Access { buffer, bytes: first..first + bytes, mode });
            }
        }
        let name = if direction == Direction::HostToDevice { "upload" } else { "download" };
        let recorded = Recorded::Copy { buffer: None, direction };
        self.push(name, NodeWork::Copy { direction, bytes }, accesses, us, recorded)
    }

    fn push(
        &mut self,
        name: &str,
        work: NodeWork,
        accesses: Vec<Access>,
        us: f64,
        recorded: Recorded,
    ) -> Result<NodeId, DagError> {
        let id = self.program.push(Node { name: name.into(), work, accesses, us, zone: self.zone })?;
        self.nodes.push(recorded);
        Ok(id)
    }

    /// The same recording with a copy of every filled buffer to the device before the first node that accesses it, and
    /// of `results` to the host after the last node.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn with_copies(&self, results: &[BufferId]) -> Result<Recording, DagError> {
        let mut copied = Recording {
            program: Program::new(self.program.name()),
            nodes: Vec::new(),
            zone: ZoneId(0),
            ..self.clone()
        };
        for buffer in self.program.buffers() {
            copied.program.buffer(buffer.name.clone(), buffer.bytes);
        }
        let mut pending: Vec<bool> = self.initial.iter().map(Option::is_some).collect();
        for (node, recorded) in self.program.nodes().iter().zip(&self.nodes) {
            for access in &node.accesses {
                if std::mem::take(&mut pending[access.buffer.index()]) {
                    copied.copy(access.buffer, Direction::HostToDevice)?;
                }
            }
            copied.program.push(Node { zone: ZoneId(0), ..node.clone() })?;
            copied.nodes.push(recorded.clone());
        }
        for &buffer in results {
            copied.copy(buffer, Direction::DeviceToHost)?;
        }
        Ok(copied)
    }

    /// Appends another recording's buffers, zones and nodes, with its zones raised by `priority`; returns the number
    /// of its first buffer here. Subsequently recorded nodes belong to its last zone. Memory given by addresses is not
    /// shared.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn append(&mut self, other: &Recording, priority: i32) -> Result<u32, DagError> {
        let first = self.program.buffers().len() as u32;
        self.program =
            Program::merge(self.program.name(), &[(&self.program, 0), (&other.program, priority)])?;
        self.zone = ZoneId::from(self.program.zones().len() - 1);
        self.initial.extend(other.initial.iter().cloned());
        self.nodes.extend(other.nodes.iter().map(|node| match node.clone() {
            Recorded::Kernel { function, arguments } => {
                let arguments = arguments.into_iter().map(|argument| argument.moved(first)).collect();
                Recorded::Kernel { function, arguments }
            }
            Recorded::Copy { buffer, direction } => {
                Recorded::Copy { buffer: buffer.map(|b| BufferId(b.0 + first)), direction }
            }
        }));
        Ok(first)
    }
}
