//! Serial code written down: buffers, kernels by name with what they read and write, and copies.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::{
    Access, BufferId, DagError, Direction, Kernel, LaunchConfig, Mode, Node, NodeId, Program, Tiles,
};
use super::super::{Work, ZoneId};
use super::call::Call;
use super::operand::{Operand, args};
use super::tiled::SyncArgs;
use super::{Error, Result};
use crate::device::{CopyCall, Device, DeviceBuffer, Function, KernelCall, Module, PinnedBuffer, Shape};

/// A recorded node's work.
#[derive(Clone, Debug)]
enum Recorded {
    Kernel { function: String, launch: LaunchConfig, operands: Vec<Operand> },
    Copy { buffer: BufferId, direction: Direction },
}

/// Serial code, before it meets a GPU. [`Recording::program`] is what is scheduled, [`Recording::bind`] gives it memory
/// and kernels.
#[derive(Clone, Debug)]
pub struct Recording {
    program: Program,
    nodes: Vec<Recorded>,
    /// Contents of each buffer before the first run; zeros where `None`.
    initial: Vec<Option<Vec<u32>>>,
    zone: ZoneId,
}

impl Recording {
    /// An empty recording.
    pub fn new(name: &str) -> Recording {
        Recording { program: Program::new(name), nodes: Vec::new(), initial: Vec::new(), zone: ZoneId(0) }
    }

    /// The program recorded so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The recorded launches: the kernel's name and its operands.
    pub fn launches(&self) -> impl Iterator<Item = (&str, &[Operand])> {
        self.nodes.iter().filter_map(|node| match node {
            Recorded::Kernel { function, operands, .. } => Some((function.as_str(), operands.as_slice())),
            Recorded::Copy { .. } => None,
        })
    }

    /// Adds a buffer of so many words of zero.
    pub fn zeros(&mut self, name: &str, words: usize) -> BufferId {
        self.initial.push(None);
        self.program.buffer(name, 4 * words as u64)
    }

    /// Adds a buffer with these words in it.
    pub fn filled(&mut self, name: &str, words: Vec<u32>) -> BufferId {
        let id = self.program.buffer(name, 4 * words.len() as u64);
        self.initial.push(Some(words));
        id
    }

    /// Adds a buffer with these floats in it.
    pub fn floats(&mut self, name: &str, values: &[f32]) -> BufferId {
        self.filled(name, values.iter().map(|v| v.to_bits()).collect())
    }

    /// What a buffer holds before the first run.
    pub fn initial(&self, buffer: BufferId) -> Vec<u32> {
        let bytes = self.program.buffers()[buffer.index()].bytes;
        self.initial[buffer.index()].clone().unwrap_or_else(|| vec![0; bytes as usize / 4])
    }

    /// Nodes recorded from now on belong to a new zone of this priority; the larger, the sooner they run.
    pub fn begin_zone(&mut self, name: &str, priority: i32) -> ZoneId {
        self.zone = self.program.zone(name, priority);
        self.zone
    }

    /// All words of a buffer, read.
    pub fn read(&self, buffer: BufferId) -> Operand {
        self.whole(buffer, Some(Mode::Read))
    }

    /// All words of a buffer, written without regard to what was there.
    pub fn write(&self, buffer: BufferId) -> Operand {
        self.whole(buffer, Some(Mode::Write))
    }

    /// All words of a buffer, read and written.
    pub fn update(&self, buffer: BufferId) -> Operand {
        self.whole(buffer, Some(Mode::ReadWrite))
    }

    fn whole(&self, buffer: BufferId, mode: Option<Mode>) -> Operand {
        let words = self.program.buffers()[buffer.index()].bytes as usize / 4;
        Operand::Words { buffer, first: 0, words, mode }
    }

    /// Records a launch of a kernel, `us` microseconds long as far as is known.
    ///
    /// # Errors
    /// [`DagError`], from the program.
    pub fn launch(
        &mut self,
        function: &str,
        launch: LaunchConfig,
        us: f64,
        operands: &[Operand],
    ) -> std::result::Result<NodeId, DagError> {
        self.launch_with(function, launch, us, operands, None)
    }

    /// As [`Recording::launch`], of a kernel that can wait for tiles: [`Operand::TileSync`] stands last among the operands,
    /// and `tiles` has an entry for each of the others that are accesses.
    ///
    /// # Errors
    /// [`DagError`], from the program.
    pub fn launch_tiled(
        &mut self,
        function: &str,
        launch: LaunchConfig,
        us: f64,
        operands: &[Operand],
        tiles: Tiles,
    ) -> std::result::Result<NodeId, DagError> {
        self.launch_with(function, launch, us, operands, Some(tiles))
    }

    fn launch_with(
        &mut self,
        function: &str,
        launch: LaunchConfig,
        us: f64,
        operands: &[Operand],
        tiles: Option<Tiles>,
    ) -> std::result::Result<NodeId, DagError> {
        let accesses: Vec<Access> = operands.iter().filter_map(|o| o.access(&self.program)).collect();
        let traffic = |a: &Access| (a.bytes.end - a.bytes.start) * (1 + u64::from(a.mode == Mode::ReadWrite));
        let kernel = Kernel {
            launch,
            // All kernels that are recorded so use few registers: threads and CTAs of an SM are what limits.
            ctas_per_sm: (2048 / launch.threads().max(1)).clamp(1, 32) as u32,
            traffic_bytes: accesses.iter().map(traffic).sum(),
            programmatic: true,
            stage: None,
            tiles,
        };
        let id = self.program.push(Node {
            name: function.into(),
            work: Work::Kernel(kernel),
            accesses,
            us,
            zone: self.zone,
        })?;
        self.nodes.push(Recorded::Kernel { function: function.into(), launch, operands: operands.to_vec() });
        Ok(id)
    }

    /// Records a copy of a whole buffer between host and device.
    ///
    /// # Errors
    /// [`DagError`], from the program.
    pub fn copy(&mut self, buffer: BufferId, direction: Direction) -> std::result::Result<NodeId, DagError> {
        let bytes = self.program.buffers().get(buffer.index()).map_or(0, |b| b.bytes);
        let (name, mode) = match direction {
            Direction::HostToDevice => ("upload", Mode::Write),
            Direction::DeviceToHost => ("download", Mode::Read),
        };
        let id = self.program.push(Node {
            name: name.into(),
            work: Work::Copy { direction, bytes },
            accesses: vec![self.program.whole(buffer, mode)],
            // A PCIe 5 link moves about 50 GB/s, and a copy takes 2 us to begin.
            us: 2.0 + bytes as f64 / 50e3,
            zone: self.zone,
        })?;
        self.nodes.push(Recorded::Copy { buffer, direction });
        Ok(id)
    }

    /// The same with a copy of every filled buffer to the device before the first node that touches it, and of `results`
    /// to the host after the last.
    ///
    /// # Errors
    /// [`DagError`], from the program.
    pub fn with_copies(&self, results: &[BufferId]) -> std::result::Result<Recording, DagError> {
        let mut copied = Recording {
            program: Program::new(self.program.name()),
            nodes: Vec::new(),
            initial: self.initial.clone(),
            zone: ZoneId(0),
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

    /// Appends another recording's buffers, zones and nodes, its zones raised by `priority`; gives the number that its
    /// first buffer has here. Nodes recorded from now on belong to its last zone.
    ///
    /// # Errors
    /// [`DagError`], from the program.
    pub fn append(&mut self, other: &Recording, priority: i32) -> std::result::Result<u32, DagError> {
        let own = std::mem::replace(&mut self.program, Program::new(""));
        let first = own.buffers().len() as u32;
        let name = own.name().to_owned();
        self.program = Program::merge(name, &[(&own, 0), (&other.program, priority)])?;
        self.zone = ZoneId(self.program.zones().len() as u32 - 1);
        self.initial.extend(other.initial.iter().cloned());
        self.nodes.extend(other.nodes.iter().map(|node| match node {
            Recorded::Kernel { function, launch, operands } => Recorded::Kernel {
                function: function.clone(),
                launch: *launch,
                operands: operands.iter().map(|operand| operand.moved(first)).collect(),
            },
            Recorded::Copy { buffer, direction } => {
                Recorded::Copy { buffer: BufferId(buffer.0 + first), direction: *direction }
            }
        }));
        Ok(first)
    }

    /// Gives it memory, and kernels from `module`.
    pub fn bind(&self, device: &Device, module: &Module) -> Result<Bound> {
        let mut buffers = Vec::new();
        for (index, buffer) in self.program.buffers().iter().enumerate() {
            let words = self.initial(BufferId(index as u32));
            buffers.push(Arc::new(DeviceBuffer::from_slice(device, &words, &buffer.name)?));
        }
        let mut functions: HashMap<&str, Function> = HashMap::new();
        let mut pinned: HashMap<(BufferId, Direction), Arc<PinnedBuffer>> = HashMap::new();
        let mut calls = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            calls.push(match node {
                Recorded::Kernel { function, launch, operands } => {
                    if !functions.contains_key(function.as_str()) {
                        functions.insert(function, module.function(function)?);
                    }
                    let function = &functions[function.as_str()];
                    let args = args(operands, &buffers, &SyncArgs::default());
                    let shape =
                        Shape { grid: launch.grid, block: launch.block, shared_bytes: launch.shared_bytes };
                    Call::Kernel(KernelCall::new(function, shape, &args)?)
                }
                Recorded::Copy { buffer, direction } => {
                    let words = &buffers[buffer.index()];
                    let host = match pinned.get(&(*buffer, *direction)) {
                        Some(host) => host.clone(),
                        None => {
                            let host = Arc::new(PinnedBuffer::new(device, words.len())?);
                            pinned.insert((*buffer, *direction), host.clone());
                            host
                        }
                    };
                    Call::Copy(match direction {
                        Direction::HostToDevice => {
                            host.write(&self.initial(*buffer))?;
                            CopyCall::upload(&host, words)?
                        }
                        Direction::DeviceToHost => CopyCall::download(words, &host)?,
                    })
                }
            });
        }
        Ok(Bound { recording: self.clone(), device: device.clone(), calls: calls.into(), buffers, pinned })
    }
}

/// A recording with memory and kernels.
#[derive(Debug)]
pub struct Bound {
    recording: Recording,
    device: Device,
    calls: Arc<[Call]>,
    buffers: Vec<Arc<DeviceBuffer<u32>>>,
    pinned: HashMap<(BufferId, Direction), Arc<PinnedBuffer>>,
}

impl Bound {
    /// What was recorded.
    pub fn program(&self) -> &Program {
        self.recording.program()
    }

    /// The GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The work of each node. Executables made from it keep all of its memory alive.
    pub fn calls(&self) -> &Arc<[Call]> {
        &self.calls
    }

    /// The work of each node, with kernels synchronised as `sync` says, by node.
    pub(super) fn calls_with(&self, sync: &[SyncArgs]) -> Result<Arc<[Call]>> {
        let nodes = self.calls.iter().zip(&self.recording.nodes).zip(sync);
        let call = |((call, recorded), sync): ((&Call, &Recorded), &SyncArgs)| match (call, recorded) {
            (Call::Kernel(call), Recorded::Kernel { operands, .. }) => {
                let args = args(operands, &self.buffers, sync);
                Ok(Call::Kernel(KernelCall::new(call.function(), *call.shape(), &args)?))
            }
            _ => Ok(call.clone()),
        };
        nodes.map(call).collect()
    }

    /// Puts the measured duration of a node in place of the estimate.
    ///
    /// # Errors
    /// [`DagError`], from the program.
    pub fn set_us(&mut self, node: NodeId, us: f64) -> Result<()> {
        Ok(self.recording.program.set_us(node, us)?)
    }

    /// Puts every buffer back to what it held before the first run, and poisons those of `outputs` that nothing was put
    /// into with 0xFF bytes, NaNs of every float format. Nothing may be running.
    pub fn reset(&self, outputs: &[BufferId]) -> Result<()> {
        for (index, buffer) in self.buffers.iter().enumerate() {
            let id = BufferId(index as u32);
            if outputs.contains(&id) && self.recording.initial[index].is_none() {
                buffer.upload(&vec![u32::MAX; buffer.len()])?;
            } else {
                buffer.upload(&self.recording.initial(id))?;
            }
        }
        for ((buffer, direction), host) in &self.pinned {
            if *direction == Direction::DeviceToHost {
                host.write(&vec![u32::MAX; self.buffers[buffer.index()].len()])?;
            }
        }
        Ok(())
    }

    /// Fills a buffer. Nothing may be running.
    pub fn upload(&self, buffer: BufferId, words: &[u32]) -> Result<()> {
        let found = self.buffers.get(buffer.index()).ok_or(Error::NoBuffer(buffer))?;
        Ok(found.upload(words)?)
    }

    /// The words of a buffer, from the host where the program copies it there. Nothing may be running.
    pub fn download(&self, buffer: BufferId) -> Result<Vec<u32>> {
        if let Some(host) = self.pinned.get(&(buffer, Direction::DeviceToHost)) {
            return Ok(host.read());
        }
        let found = self.buffers.get(buffer.index()).ok_or(Error::NoBuffer(buffer))?;
        let mut words = vec![0; found.len()];
        found.download(&mut words)?;
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::analyse;

    /// y = f(x), z = g(y), recorded with two words each.
    fn two_kernels(name: &str) -> (Recording, BufferId) {
        let mut r = Recording::new(name);
        let (x, y, z) = (r.filled("x", vec![1, 2]), r.zeros("y", 2), r.zeros("z", 2));
        let launch = LaunchConfig::linear(1, 32);
        r.launch("f", launch, 1.0, &[r.read(x), r.write(y)]).expect("a valid node");
        r.launch("g", launch, 1.0, &[r.read(y), r.write(z), Operand::U32(2)]).expect("a valid node");
        (r, z)
    }

    #[test]
    fn copies_stand_before_the_first_use_and_after_the_last() {
        let (plain, z) = two_kernels("plain");
        let copied = plain.with_copies(&[z]).expect("a valid program");
        let names: Vec<_> = copied.program().nodes().iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["upload", "f", "g", "download"]);
        let pairs: Vec<_> =
            analyse(copied.program()).reduced_edges().map(|e| (e.before.0, e.after.0)).collect();
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 3)]);
        assert_eq!((copied.initial(BufferId(0)), copied.initial(z)), (vec![1, 2], vec![0, 0]));
    }

    #[test]
    fn appended_tasks_are_independent_and_keep_their_priorities() {
        let mut both = Recording::new("both");
        for (name, priority) in [("first", 5), ("second", 2)] {
            let first = both.append(&two_kernels(name).0, priority).expect("a valid program");
            // An end of the task: it reads z, which is no argument.
            let z = BufferId(first + 2);
            let end = [Operand::Null, Operand::Unpassed(z, Mode::Read)];
            both.launch("end", LaunchConfig::linear(1, 32), 1.0, &end).expect("a valid node");
        }
        let program = both.program();
        let pairs: Vec<_> = analyse(program).reduced_edges().map(|e| (e.before.0, e.after.0)).collect();
        assert_eq!(pairs, [(0, 1), (1, 2), (3, 4), (4, 5)]);
        let priority = |node: &Node| program.zones()[node.zone.index()].priority;
        let priorities: Vec<_> = program.nodes().iter().map(priority).collect();
        assert_eq!(priorities, [5, 5, 5, 2, 2, 2]);
        let operands: Vec<_> = both.launches().map(|(_, operands)| operands[0]).collect();
        let Operand::Words { buffer, .. } = operands[3] else { panic!("{:?}", operands[3]) };
        assert_eq!(buffer, BufferId(3), "the second task's x");
    }
}
