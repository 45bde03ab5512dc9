//! A program: buffers, and the kernels and copies that serial code would issue, in order.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::error::DagError;
use super::history::Touched;
use super::refine::TileAccesses;

/// Maximum nodes of a program. The analysis keeps one bit for every pair of nodes: 32 MiB at this size.
pub const MAX_NODES: usize = 1 << 14;

/// Maximum duration of a node, microseconds: one hour. Sums over all nodes stay exact to about a nanosecond.
pub const MAX_US: f64 = 3.6e9;

/// Whether a number is a valid duration.
pub(crate) fn is_duration(us: f64) -> bool {
    (0.0..=MAX_US).contains(&us)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Index in the program's list.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                $name(index as u32)
            }
        }
    )*};
}

ids! {
    /// A buffer of a program.
    BufferId
    /// A node of a program; ids follow program order.
    NodeId
    /// A zone of a program.
    ZoneId
}

/// A piece of memory that kernels share. Two buffers never overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its name, for display.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it is visible from outside: filled before the program or read after it. Such a buffer keeps its own
    /// memory; other buffers may reuse the memory of buffers that are dead by then.
    pub external: bool,
}

/// How a node accesses a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Reads.
    Read,
    /// Writes without reading the old contents.
    Write,
    /// Reads and writes, such as an atomic addition.
    ReadWrite,
}

impl AccessMode {
    /// Whether the old contents matter.
    pub fn reads(self) -> bool {
        self != AccessMode::Write
    }

    /// Whether the old contents are overwritten.
    pub fn writes(self) -> bool {
        self != AccessMode::Read
    }
}

/// An access to bytes of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte to one past the last; inside the buffer and not empty.
    pub bytes: Range<u64>,
    /// How they are accessed.
    pub mode: AccessMode,
}

impl Access {
    /// The access as recorded in the history of buffers.
    pub(crate) fn touched(&self) -> Touched {
        (self.buffer.index(), self.bytes.clone(), self.mode)
    }
}

/// Maximum CTAs along y and z.
pub(crate) const MAX_GRID_YZ: u32 = 65535;

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchConfig {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a CTA, bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn linear(ctas: u32, threads: u32) -> Self {
        LaunchConfig { grid: [ctas, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// CTAs of the grid.
    pub fn ctas(&self) -> u64 {
        self.grid.iter().fold(1, |ctas: u64, &n| ctas.saturating_mul(n.into()))
    }

    /// Threads of a CTA.
    pub fn threads(&self) -> u64 {
        self.block.iter().fold(1, |threads: u64, &n| threads.saturating_mul(n.into()))
    }

    /// Why no GPU can launch this; `None` if one can.
    fn fault(&self) -> Option<&'static str> {
        let [x, y, z] = self.grid;
        if self.ctas() == 0 || self.threads() == 0 {
            return Some("nothing: grid and block are at least 1");
        }
        if x > i32::MAX as u32 || y.max(z) > MAX_GRID_YZ {
            return Some("too many CTAs: a grid has at most 2^31 - 1 along x, and 65535 along y and z");
        }
        (self.threads() > 1024).then_some("too many threads: a CTA has at most 1024")
    }
}

/// Properties of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Grid and CTAs.
    pub launch: LaunchConfig,
    /// CTAs that fit an SM at once (`cuOccupancyMaxActiveBlocksPerMultiprocessor`).
    pub ctas_per_sm: u32,
    /// Bytes transferred to and from device memory.
    pub traffic_bytes: u64,
    /// Whether it was built for programmatic edges: every thread that accesses memory which earlier grids read or
    /// write first waits for those grids (`griddepcontrol.wait`). This includes its first *write*, because earlier
    /// grids may still be reading the old contents. It may let the next grid start early
    /// (`griddepcontrol.launch_dependents`). A declaration; [`Node::evidence`] says whether the code supports it.
    pub programmatic: bool,
    /// Accesses of each of its CTAs, for a kernel that can wait for tiles.
    pub tiles: Option<TileAccesses>,
    /// For an opaque node, which stands for any work on one stream, such as a call of a library: bytes of scratch memory
    /// that the work needs, or 0. Opaque nodes with one workspace never run at the same time. `None`: a kernel.
    pub workspace: Option<u64>,
}

impl Kernel {
    /// A kernel with occupancy limited only by its threads, which transfers every byte of its accesses once per read
    /// and write. It is not built for programmatic edges.
    pub fn new(launch: LaunchConfig, accesses: &[Access]) -> Self {
        let moved = |a: &Access| {
            (a.bytes.end - a.bytes.start) * (u64::from(a.mode.reads()) + u64::from(a.mode.writes()))
        };
        Kernel {
            launch,
            // An SM has 2048 threads and holds 32 CTAs; registers and shared memory may allow fewer.
            ctas_per_sm: (2048 / launch.threads().max(1)).clamp(1, 32) as u32,
            traffic_bytes: accesses.iter().map(moved).sum(),
            programmatic: false,
            tiles: None,
            workspace: None,
        }
    }
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From host memory, which nothing in the program writes unless a buffer says so.
    HostToDevice,
    /// To host memory.
    DeviceToHost,
}

/// The work of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeWork {
    /// A kernel, on the SMs.
    Kernel(Kernel),
    /// A copy between host and device, on the copy engine of its direction.
    Copy {
        /// The direction.
        direction: Direction,
        /// Bytes copied.
        bytes: u64,
    },
}

/// What supports the declaration that a kernel was built for programmatic edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The instructions that it needs are in its code. When threads reach them is still only declared.
    Code,
    /// Nothing: the reason why its code was not verified.
    Declaration(Cow<'static, str>),
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence::Declaration("no image is at hand".into())
    }
}

/// A kernel or a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name; need not be unique.
    pub name: String,
    /// Its work.
    pub work: NodeWork,
    /// All its accesses.
    pub accesses: Vec<Access>,
    /// Its time alone on the device, microseconds, measured or estimated.
    pub us: f64,
    /// The task to which it belongs.
    pub zone: ZoneId,
    /// What supports [`Kernel::programmatic`].
    pub evidence: Evidence,
}

impl Node {
    /// A node of the first zone, without evidence.
    pub fn new(name: impl Into<String>, work: NodeWork, accesses: Vec<Access>, us: f64) -> Node {
        Node { name: name.into(), work, accesses, us, zone: ZoneId(0), evidence: Evidence::default() }
    }

    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&Kernel> {
        match &self.work {
            NodeWork::Kernel(kernel) => Some(kernel),
            NodeWork::Copy { .. } => None,
        }
    }
}

/// A task: nodes that share a priority.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// Larger values run earlier.
    pub priority: i32,
}

/// Serial code: the nodes it would issue, in order. Ranges are always inside their buffers, and durations are finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    name: String,
    buffers: Vec<Buffer>,
    zones: Vec<Zone>,
    /// Shared by clones: proofs keep the program that they are of.
    nodes: Arc<Vec<Node>>,
}

impl Program {
    /// An empty program with one zone of priority 0.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let zone = Zone { name: name.clone(), priority: 0 };
        Program { name, buffers: Vec::new(), zones: vec![zone], nodes: Arc::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its buffers, by id.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Its zones, by id; there is at least one.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Its nodes, by id: program order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Ids of its nodes, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Adds a buffer that is visible from outside.
    pub fn buffer(&mut self, name: impl Into<String>, bytes: u64) -> BufferId {
        self.add_buffer(Buffer { name: name.into(), bytes, external: true })
    }

    /// Adds a buffer that is used only inside the program.
    pub fn temporary(&mut self, name: impl Into<String>, bytes: u64) -> BufferId {
        self.add_buffer(Buffer { name: name.into(), bytes, external: false })
    }

    fn add_buffer(&mut self, buffer: Buffer) -> BufferId {
        self.buffers.push(buffer);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Adds a zone.
    pub fn zone(&mut self, name: impl Into<String>, priority: i32) -> ZoneId {
        self.zones.push(Zone { name: name.into(), priority });
        ZoneId(self.zones.len() as u32 - 1)
    }

    /// Sets the priority of an existing zone.
    ///
    /// # Errors
    /// [`DagError::NoZone`].
    pub fn set_priority(&mut self, zone: ZoneId, priority: i32) -> Result<(), DagError> {
        let found = self.zones.get_mut(zone.index()).ok_or(DagError::NoZone { zone: zone.0 })?;
        found.priority = priority;
        Ok(())
    }

    /// An access to a whole buffer. An unknown buffer gives an access that [`Program::push`] rejects.
    pub fn whole(&self, buffer: BufferId, mode: AccessMode) -> Access {
        let bytes = self.buffers.get(buffer.index()).map_or(0, |b| b.bytes);
        Access { buffer, bytes: 0..bytes, mode }
    }

    /// Appends a node.
    ///
    /// # Errors
    /// [`DagError`]: an access outside its buffer or to no bytes, a duration that is negative, not finite or longer
    /// than [`MAX_US`], a launch that no GPU supports, tiles that do not match its accesses, an opaque node with
    /// programmatic edges or tiles, an unknown zone, or too many nodes.
    pub fn push(&mut self, node: Node) -> Result<NodeId, DagError> {
        let name = || node.name.clone();
        if self.nodes.len() >= MAX_NODES {
            return Err(DagError::TooMany { most: MAX_NODES });
        }
        if !is_duration(node.us) {
            return Err(DagError::Duration { node: name(), us: node.us });
        }
        if node.zone.index() >= self.zones.len() {
            return Err(DagError::NoZone { zone: node.zone.0 });
        }
        if let NodeWork::Kernel(k) = &node.work {
            let crowded = || (k.ctas_per_sm == 0).then_some("no CTA on an SM: `ctas_per_sm` is at least 1");
            if let Some(fault) = k.launch.fault().or_else(crowded) {
                return Err(DagError::Launch { node: name(), what: fault });
            }
            if k.workspace.is_some() && (k.programmatic || k.tiles.is_some()) {
                return Err(DagError::Opaque { node: name() });
            }
        }
        for access in &node.accesses {
            let Some(buffer) = self.buffers.get(access.buffer.index()) else {
                return Err(DagError::NoBuffer { node: name(), buffer: access.buffer.0 });
            };
            if access.bytes.is_empty() || access.bytes.end > buffer.bytes {
                return Err(DagError::Range {
                    node: name(),
                    buffer: buffer.name.clone(),
                    range: access.bytes.clone(),
                    bytes: buffer.bytes,
                });
            }
        }
        if let NodeWork::Kernel(Kernel { launch, tiles: Some(tiles), .. }) = &node.work
            && let Some(fault) = tiles.fault(launch, &node.accesses)
        {
            return Err(DagError::Tiles { node: name(), what: fault });
        }
        Arc::make_mut(&mut self.nodes).push(node);
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    /// Whether the nodes of both programs access the same bytes of the same buffers in the same way and are launched
    /// alike, which proofs rely on. Names, durations, zones and evidence may differ.
    pub fn is_like(&self, other: &Program) -> bool {
        let sizes = |p: &Program| p.buffers.iter().map(|b| (b.bytes, b.external)).collect::<Vec<_>>();
        let alike = |(a, b): (&Node, &Node)| a.work == b.work && a.accesses == b.accesses;
        self.nodes.len() == other.nodes.len()
            && (Arc::ptr_eq(&self.nodes, &other.nodes) || self.nodes.iter().zip(&*other.nodes).all(alike))
            && sizes(self) == sizes(other)
    }

    /// The priority of a node's zone.
    pub fn priority(&self, id: NodeId) -> i32 {
        self.zones[self.node(id).zone.index()].priority
    }

    /// Replaces a node's duration by a measured one, microseconds.
    ///
    /// # Errors
    /// [`DagError::Duration`] if it is negative, not finite or longer than [`MAX_US`]; [`DagError::NoNode`].
    pub fn set_us(&mut self, id: NodeId, us: f64) -> Result<(), DagError> {
        let node =
            Arc::make_mut(&mut self.nodes).get_mut(id.index()).ok_or(DagError::NoNode { node: id.0 })?;
        if !is_duration(us) {
            return Err(DagError::Duration { node: node.name.clone(), us });
        }
        node.us = us;
        Ok(())
    }

    /// States what supports a node's declaration that it was built for programmatic edges.
    ///
    /// # Errors
    /// [`DagError::NoNode`].
    pub fn set_evidence(&mut self, id: NodeId, evidence: Evidence) -> Result<(), DagError> {
        let node = Arc::make_mut(&mut self.nodes).get_mut(id.index());
        node.ok_or(DagError::NoNode { node: id.0 })?.evidence = evidence;
        Ok(())
    }

    /// The same program issued `times` times over the same buffers. Node `i` of round `r` has id `r * n + i`.
    ///
    /// # Errors
    /// [`DagError::TooMany`].
    pub fn repeat(&self, times: usize) -> Result<Program, DagError> {
        let mut program = Program { nodes: Arc::default(), ..self.clone() };
        for _ in 0..times {
            for node in &*self.nodes {
                program.push(node.clone())?;
            }
        }
        Ok(program)
    }

    /// The nodes of some zones only, in order, over the same buffers and zones; nodes get new ids.
    pub fn only(&self, keep: impl Fn(ZoneId) -> bool) -> Program {
        let nodes = self.nodes.iter().filter(|node| keep(node.zone)).cloned().collect::<Vec<_>>();
        Program { nodes: Arc::new(nodes), ..self.clone() }
    }

    /// Independent tasks in one program: buffers and zones stay separate, and nodes are concatenated task by task. The
    /// priorities of each task's zones are raised by the number paired with it, and its zone names come from the task.
    ///
    /// # Errors
    /// [`DagError::TooMany`].
    pub fn merge(name: impl Into<String>, tasks: &[(&Program, i32)]) -> Result<Program, DagError> {
        let (buffers, zones) = (Vec::new(), Vec::new());
        let mut merged = Program { name: name.into(), buffers, zones, nodes: Arc::default() };
        for &(task, priority) in tasks {
            let (first_buffer, first_zone) = (merged.buffers.len() as u32, merged.zones.len() as u32);
            merged.buffers.extend(task.buffers.iter().cloned());
            let raised = |z: &Zone| Zone { priority: z.priority.saturating_add(priority), ..z.clone() };
            merged.zones.extend(task.zones.iter().map(raised));
            for node in &*task.nodes {
                let mut node = node.clone();
                node.zone.0 += first_zone;
                node.accesses.iter_mut().for_each(|access| access.buffer.0 += first_buffer);
                merged.push(node)?;
            }
        }
        if merged.zones.is_empty() {
            merged.zones.push(Zone { name: merged.name.clone(), priority: 0 });
        }
        Ok(merged)
    }
}
