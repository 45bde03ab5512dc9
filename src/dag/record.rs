//! A recorder: code is written as if it ran kernel after kernel, and becomes a program.
//!
//! ```
//! use cusync::args;
//! use cusync::dag::{Dag, KernelInfo, LaunchConfig, read, write};
//!
//! let (x, y) = (vec![1.0f32; 1024], vec![0.0f32; 1024]);
//! let square = KernelInfo { us: 3.0, ..KernelInfo::new("square") };
//! let mut dag = Dag::new("one");
//! dag.launch(&square, LaunchConfig::linear(4, 256), args![read(&x), write(&y), 1024u32])?;
//! assert_eq!(dag.program()?.nodes().len(), 1);
//! # Ok::<(), cusync::dag::DagError>(())
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::DagError;
use super::program::{
    Access, BufferId, Direction, Kernel, LaunchConfig, Mode, Node, NodeId, Program, StageRef, Work, ZoneId,
};
use super::refine::Tiles;

/// Memory that kernels can be given: its addresses, wherever they point.
pub trait Memory {
    /// First byte to one past the last.
    fn addresses(&self) -> Range<u64>;
}

impl<T> Memory for [T] {
    fn addresses(&self) -> Range<u64> {
        let start = self.as_ptr() as u64;
        start..start + size_of_val(self) as u64
    }
}

impl<T> Memory for Vec<T> {
    fn addresses(&self) -> Range<u64> {
        self.as_slice().addresses()
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn addresses(&self) -> Range<u64> {
        (**self).addresses()
    }
}

impl<M: Memory + ?Sized> Memory for &mut M {
    fn addresses(&self) -> Range<u64> {
        (**self).addresses()
    }
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// Memory, and what is done to it. The kernel is passed the first address.
    Memory {
        /// First byte to one past the last.
        addresses: Range<u64>,
        /// What is done to it.
        mode: Mode,
    },
    /// Any other value, as the bytes that the kernel is passed.
    Value(Vec<u8>),
}

/// Memory that a kernel reads.
pub fn read<M: Memory + ?Sized>(memory: &M) -> Argument {
    Argument::Memory { addresses: memory.addresses(), mode: Mode::Read }
}

/// Memory that a kernel writes without regard to what was there.
pub fn write<M: Memory + ?Sized>(memory: &M) -> Argument {
    Argument::Memory { addresses: memory.addresses(), mode: Mode::Write }
}

/// Memory that a kernel reads and writes.
pub fn update<M: Memory + ?Sized>(memory: &M) -> Argument {
    Argument::Memory { addresses: memory.addresses(), mode: Mode::ReadWrite }
}

macro_rules! values {
    ($($type:ty)*) => {$(
        impl From<$type> for Argument {
            fn from(value: $type) -> Self {
                Argument::Value(value.to_ne_bytes().to_vec())
            }
        }
    )*};
}

values!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// The arguments of a launch: `args![read(&x), write(&y), n]`.
#[macro_export]
macro_rules! args {
    ($($argument:expr),* $(,)?) => {
        vec![$($crate::dag::Argument::from($argument)),*]
    };
}

/// What the recorder has to know of a kernel; `handle` is whatever launches it.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelInfo<H = ()> {
    /// Its name.
    pub name: String,
    /// How long a launch takes, microseconds, measured or estimated.
    pub us: f64,
    /// CTAs that an SM holds at once.
    pub ctas_per_sm: u32,
    /// Whether it was built for programmatic edges (see [`Kernel::programmatic`]).
    pub programmatic: bool,
    /// The pipeline stage that it is, if any.
    pub stage: Option<StageRef>,
    /// What each of its CTAs touches, of a kernel that can wait for tiles (see [`Kernel::tiles`]).
    pub tiles: Option<Tiles>,
    /// What launches it.
    pub handle: H,
}

impl KernelInfo {
    /// A kernel of 2 us, 8 CTAs an SM, for full edges.
    pub fn new(name: impl Into<String>) -> Self {
        KernelInfo {
            name: name.into(),
            us: 2.0,
            ctas_per_sm: 8,
            programmatic: false,
            stage: None,
            tiles: None,
            handle: (),
        }
    }
}

/// A recorded launch: what runs the node of the same place.
#[derive(Clone, Debug, PartialEq)]
pub enum Launched<H> {
    /// A kernel.
    Kernel {
        /// What launches it.
        handle: H,
        /// Grid and CTAs.
        config: LaunchConfig,
        /// Its arguments.
        arguments: Vec<Argument>,
    },
    /// A copy.
    Copy {
        /// Addresses that are read.
        from: Range<u64>,
        /// Addresses that are written.
        to: Range<u64>,
        /// Which way.
        direction: Direction,
    },
}

/// Addresses, and what is done to them.
type Touched = Vec<(Range<u64>, Mode)>;

/// Serial code being written down.
#[derive(Clone, Debug)]
pub struct Dag<H = ()> {
    name: String,
    zones: Vec<(String, i32)>,
    nodes: Vec<(Node, Touched)>,
    launched: Vec<Launched<H>>,
}

impl<H: Clone> Dag<H> {
    /// Begins.
    pub fn new(name: impl Into<String>) -> Self {
        Dag { name: name.into(), zones: Vec::new(), nodes: Vec::new(), launched: Vec::new() }
    }

    /// What follows belongs to a new zone of this priority.
    pub fn zone(&mut self, name: impl Into<String>, priority: i32) {
        self.zones.push((name.into(), priority));
    }

    /// A kernel launch.
    ///
    /// # Errors
    /// [`DagError::EmptyLaunch`], [`DagError::Duration`]. Its node's id is the number of nodes before it.
    pub fn launch(
        &mut self,
        kernel: &KernelInfo<H>,
        config: LaunchConfig,
        arguments: Vec<Argument>,
    ) -> Result<NodeId, DagError> {
        let touched: Vec<_> = arguments
            .iter()
            .filter_map(|argument| match argument {
                Argument::Memory { addresses, mode } => Some((addresses.clone(), *mode)),
                Argument::Value(_) => None,
            })
            .collect();
        let passes = |mode: Mode| u64::from(mode.reads()) + u64::from(mode.writes());
        let work = Work::Kernel(Kernel {
            launch: config,
            ctas_per_sm: kernel.ctas_per_sm,
            traffic_bytes: touched.iter().map(|(a, mode)| (a.end - a.start) * passes(*mode)).sum(),
            programmatic: kernel.programmatic,
            stage: kernel.stage.clone(),
            tiles: kernel.tiles.clone(),
        });
        let launched = Launched::Kernel { handle: kernel.handle.clone(), config, arguments };
        self.push(&kernel.name, kernel.us, work, touched, launched)
    }

    /// A copy between host and device; of the two sizes the smaller counts.
    ///
    /// # Errors
    /// [`DagError::Duration`].
    pub fn copy<F: Memory + ?Sized, T: Memory + ?Sized>(
        &mut self,
        direction: Direction,
        from: &F,
        to: &T,
        us: f64,
    ) -> Result<NodeId, DagError> {
        let (mut from, mut to) = (from.addresses(), to.addresses());
        let bytes = (from.end - from.start).min(to.end - to.start);
        from.end = from.start + bytes;
        to.end = to.start + bytes;
        let touched = vec![(from.clone(), Mode::Read), (to.clone(), Mode::Write)];
        let name = match direction {
            Direction::HostToDevice => "to device",
            Direction::DeviceToHost => "to host",
        };
        self.push(name, us, Work::Copy { direction, bytes }, touched, Launched::Copy { from, to, direction })
    }

    fn push(
        &mut self,
        name: &str,
        us: f64,
        work: Work,
        touched: Touched,
        launched: Launched<H>,
    ) -> Result<NodeId, DagError> {
        // The program would refuse it later, when its line in the code is no longer known.
        let zone = ZoneId(self.zones.len() as u32);
        let node = Node { name: name.into(), work, accesses: Vec::new(), us, zone };
        Program::new("").push(Node { zone: ZoneId(0), ..node.clone() })?;
        self.nodes.push((node, touched));
        self.launched.push(launched);
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// By node: what runs it.
    pub fn launched(&self) -> &[Launched<H>] {
        &self.launched
    }

    /// The program. Memory that overlaps is one buffer, so slices of slices depend on each other as their bytes do.
    ///
    /// # Errors
    /// [`DagError::TooMany`].
    pub fn program(&self) -> Result<Program, DagError> {
        let mut program = Program::new(&self.name);
        let buffers = buffers(&mut program, self.nodes.iter().flat_map(|(_, t)| t.iter().map(|(a, _)| a)));
        self.zones.iter().for_each(|(name, priority)| {
            program.zone(name, *priority);
        });
        for (node, touched) in &self.nodes {
            let mut node = node.clone();
            for (addresses, mode) in touched.iter().filter(|(addresses, _)| !addresses.is_empty()) {
                let Some((&start, &buffer)) = buffers.range(..=addresses.start).next_back() else { continue };
                let bytes = addresses.start - start..addresses.end - start;
                node.accesses.push(Access { buffer, bytes, mode: *mode });
            }
            program.push(node)?;
        }
        Ok(program)
    }
}

/// Buffers by first address: ranges that overlap are merged.
fn buffers<'a>(
    program: &mut Program,
    ranges: impl Iterator<Item = &'a Range<u64>>,
) -> BTreeMap<u64, BufferId> {
    let mut ranges: Vec<_> = ranges.filter(|r| !r.is_empty()).cloned().collect();
    ranges.sort_by_key(|r| (r.start, r.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    let named = merged.iter().enumerate();
    named.map(|(i, r)| (r.start, program.buffer(format!("m{i}"), r.end - r.start))).collect()
}
