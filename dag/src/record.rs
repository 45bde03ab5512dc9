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

use super::argument::{Addressable, Argument};
use super::error::DagError;
use super::program::{
    Access, AccessMode, BufferId, Direction, Kernel, LaunchConfig, Node, NodeId, NodeWork, Program, ZoneId,
};
use super::read::copy_us;
use super::refine::TileAccesses;

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
    /// Work that a callback queues.
    Opaque,
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

    /// The first address of each buffer that was given by addresses; `None` for buffers of the recording.
    pub fn addresses(&self) -> Vec<Option<u64>> {
        let mut found = vec![None; self.program.buffers().len()];
        self.memory.iter().for_each(|(&first, (_, buffer))| found[buffer.index()] = Some(first));
        found
    }

    /// The recorded launches: the kernel's name and its arguments.
    pub fn launches(&self) -> impl Iterator<Item = (&str, &[Argument])> {
        self.nodes.iter().filter_map(|node| match node {
            Recorded::Kernel { function, arguments } => Some((function.as_str(), arguments.as_slice())),
            Recorded::Opaque | Recorded::Copy { .. } => None,
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
        let arguments = self.placed(arguments)?;
        let accesses: Vec<Access> = arguments.iter().filter_map(Argument::access).collect();
        let mut kernel = Kernel { programmatic: self.programmatic, ..Kernel::new(launch, &accesses) };
        change(&mut kernel);
        let recorded = match kernel.workspace {
            Some(_) => Recorded::Opaque,
            None => Recorded::Kernel { function: function.into(), arguments },
        };
        self.push(function, NodeWork::Kernel(kernel), accesses, us, recorded)
    }

    /// Records an opaque node: work that a callback will queue on a stream, such as a call of a library. `arguments`
    /// declare every byte that it accesses, except those of its workspace. `launch` tells the model how much of a GPU
    /// the work fills, `workspace` is the scratch memory that it needs, bytes. Nodes that must not share something else,
    /// such as a library handle with a state, update the bytes of that.
    ///
    /// # Errors
    /// As for [`Recording::launch`].
    pub fn opaque(
        &mut self,
        name: &str,
        launch: LaunchConfig,
        us: f64,
        arguments: &[Argument],
        workspace: u64,
    ) -> Result<NodeId, DagError> {
        self.launch_with(name, launch, us, arguments, |kernel| {
            (kernel.programmatic, kernel.workspace) = (false, Some(workspace));
        })
    }

    /// Arguments with buffers in place of addresses.
    fn placed(&mut self, arguments: &[Argument]) -> Result<Vec<Argument>, DagError> {
        let placed = |argument: &Argument| match *argument {
            Argument::Addresses { bytes: 0, passed, .. } => passed.then_some(Ok(Argument::Null)),
            Argument::Addresses { first, bytes, mode, passed } => {
                let found = self.place(&(first..first.saturating_add(bytes)));
                let placed =
                    |(buffer, first)| Argument::Bytes { buffer, first, bytes, mode: Some(mode), passed };
                Some(found.map(placed))
            }
            _ => Some(Ok(argument.clone())),
        };
        arguments.iter().filter_map(placed).collect()
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
        let us = copy_us(bytes);
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
        let id = self.program.push(Node { zone: self.zone, ..Node::new(name, work, accesses, us) })?;
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
    /// of its first buffer here. Subsequently recorded nodes belong to its last zone. Both share no memory.
    ///
    /// # Errors
    /// As for [`Recording::launch`]; [`DagError::Overlap`] for addresses in both.
    pub fn append(&mut self, other: &Recording, priority: i32) -> Result<u32, DagError> {
        let first = self.program.buffers().len() as u32;
        for (&start, &(end, _)) in &other.memory {
            if self.memory.range(..end).next_back().is_some_and(|(_, &(known, _))| known > start) {
                return Err(DagError::Overlap { addresses: start..end });
            }
        }
        let moved =
            |(&start, &(end, buffer)): (&u64, &(u64, BufferId))| (start, (end, BufferId(buffer.0 + first)));
        self.memory.extend(other.memory.iter().map(moved));
        self.program =
            Program::merge(self.program.name(), &[(&self.program, 0), (&other.program, priority)])?;
        self.zone = ZoneId::from(self.program.zones().len() - 1);
        self.initial.extend(other.initial.iter().cloned());
        self.nodes.extend(other.nodes.iter().map(|node| match node.clone() {
            Recorded::Kernel { function, arguments } => {
                let arguments = arguments.into_iter().map(|argument| argument.moved(first)).collect();
                Recorded::Kernel { function, arguments }
            }
            Recorded::Opaque => Recorded::Opaque,
            Recorded::Copy { buffer, direction } => {
                Recorded::Copy { buffer: buffer.map(|b| BufferId(b.0 + first)), direction }
            }
        }));
        Ok(first)
    }
}
