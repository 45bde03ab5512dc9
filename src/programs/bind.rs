//! Recordings with memory and kernels.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use cusync_dag::{
    Addressable, Argument, BufferId, Direction, Form, KernelSchedule, LaunchConfig, NodeId, NodeWork,
    Program, ProvedRefinement, Recorded, Recording, Refinement,
};

use super::calls::{Call, Calls};
use super::opaque::{OpaqueCall, Workspace};
use super::tiled::SyncArgs;
use super::verify::verified_calls;
use super::{Error, Executable, Result};
use crate::device::{
    Arg, CopyCall, Device, DeviceBuffer, Function, KernelCall, Module, PinnedBuffer, Plain, Shape, Stream,
    is_known,
};

/// A recording with memory and kernels.
#[derive(Debug)]
pub struct BoundRecording {
    recording: Recording,
    device: Device,
    calls: Calls,
    buffers: Vec<Memory>,
    pinned: HashMap<(BufferId, Direction), Arc<PinnedBuffer>>,
}

/// The memory of a buffer.
#[derive(Clone, Debug)]
enum Memory {
    Own(Arc<DeviceBuffer<u32>>),
    /// The first address of the caller's memory.
    Given(u64),
}

impl Memory {
    /// Memory of the recording, or an error if the caller's.
    fn own(&self) -> Result<&Arc<DeviceBuffer<u32>>> {
        match self {
            Memory::Own(buffer) => Ok(buffer),
            Memory::Given(_) => Err(Error::Addresses),
        }
    }

    /// The argument for the byte at an offset.
    fn arg(&self, first: u64) -> Arg {
        match self {
            Memory::Own(buffer) => Arg::Words(buffer.clone(), first as usize / 4),
            Memory::Given(address) => Arg::Value((address + first).to_ne_bytes().into()),
        }
    }
}

impl<T: Plain> Addressable for DeviceBuffer<T> {
    fn addresses(&self) -> Range<u64> {
        let range = DeviceBuffer::addresses(self);
        range.start as u64..range.end as u64
    }
}

impl BoundRecording {
    /// Allocates the buffers of a recording, and binds it to kernels from `module`. The caller keeps memory that was
    /// given by addresses alive as long as anything built from the result.
    ///
    /// # Errors
    /// [`Error::NoMemory`] for addresses that the GPU does not know; [`Error::Addresses`] for copies between addresses;
    /// [`Error::NeverWaits`] and [`Error::NeverTriggers`] for kernels whose code contradicts their declaration; device
    /// errors.
    pub fn new(recording: &Recording, device: &Device, module: &Module) -> Result<BoundRecording> {
        let mut functions: HashMap<String, Function> = HashMap::new();
        Self::with_functions(recording, device, |_, name| match functions.get(name) {
            Some(function) => Ok(function.clone()),
            None => Ok(functions.entry(name.into()).or_insert(module.function(name)?).clone()),
        })
    }

    /// The same with kernels from anywhere: `function` gets each node that is a kernel, and the kernel's name. Without
    /// [`Function::of_image`], declarations of a function that was loaded elsewhere are believed.
    ///
    /// # Errors
    /// As [`BoundRecording::new`].
    pub fn with_functions(
        recording: &Recording,
        device: &Device,
        mut function: impl FnMut(NodeId, &str) -> crate::device::Result<Function>,
    ) -> Result<BoundRecording> {
        let program = recording.program();
        let (mut buffers, mut memory) = (Vec::new(), Vec::new());
        for ((index, buffer), given) in program.buffers().iter().enumerate().zip(recording.addresses()) {
            let own = match given {
                Some(_) => None,
                None => {
                    let words = recording.initial(BufferId::from(index));
                    Some(Arc::new(DeviceBuffer::from_slice(device, &words, &buffer.name)?))
                }
            };
            memory.push(match (&own, given) {
                (Some(own), _) => Addressable::addresses(&**own),
                (None, first) => first.unwrap_or_default()..first.unwrap_or_default() + buffer.bytes,
            });
            buffers.push(own.map_or(Memory::Given(given.unwrap_or_default()), Memory::Own));
        }
        let mut pinned: HashMap<(BufferId, Direction), Arc<PinnedBuffer>> = HashMap::new();
        let mut calls = Vec::with_capacity(program.nodes().len());
        for ((id, node), recorded) in program.ids().zip(program.nodes()).zip(recording.recorded()) {
            calls.push(match (recorded, &node.work) {
                (Recorded::Kernel { function: name, arguments }, NodeWork::Kernel(kernel)) => {
                    judge_given(device, &node.name, arguments, &buffers)?;
                    let args = args(arguments, &buffers, &SyncArgs::default());
                    let LaunchConfig { grid, block, shared_bytes } = kernel.launch;
                    let shape = Shape { grid, block, shared_bytes };
                    Call::Kernel(KernelCall::new(&function(id, name)?, shape, &args)?)
                }
                (Recorded::Opaque, _) => Call::Opaque(OpaqueCall::UNKNOWN),
                (Recorded::Copy { buffer: Some(buffer), direction }, _) => {
                    let words = buffers[buffer.index()].own()?;
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
                            host.write(&recording.initial(*buffer))?;
                            CopyCall::upload(&host, words)?
                        }
                        Direction::DeviceToHost => CopyCall::download(words, &host)?,
                    })
                }
                _ => return Err(Error::Addresses),
            });
        }
        let program = verified_calls(program, &calls)?;
        let calls = Calls { program, calls: calls.into(), memory: memory.into(), watch: None };
        Ok(BoundRecording { recording: recording.clone(), device: device.clone(), calls, buffers, pinned })
    }

    /// The recorded program, with the evidence for its kernels, and durations measured since.
    pub fn program(&self) -> &Program {
        self.calls.program()
    }

    /// The GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Calls of each node.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Executable for a form of this program's schedule. The schedule is proved, and refined if the form has
    /// programmatic edges.
    ///
    /// # Errors
    /// [`Error::Unproved`]; device errors.
    pub fn executable(
        &self,
        main: &Arc<Stream>,
        schedule: &KernelSchedule,
        form: Form,
    ) -> Result<Executable> {
        let plain = Refinement::default();
        let refinement = if form.is_programmatic() { &schedule.refinement } else { &plain };
        self.refined(&refinement.clone().prove(self.program())?)?.scheduled(main, schedule, form)
    }

    /// Work of each node with the waits of a refinement, and semaphores of its own. Everything built from the
    /// result shares these semaphores, and may be launched in turn, on ordered streams.
    ///
    /// # Errors
    /// [`Error::OtherProgram`]; device errors.
    pub fn refined(&self, proved: &ProvedRefinement) -> Result<Calls> {
        let (program, refinement) = (self.program(), proved.refinement());
        if !proved.is_of(program) {
            return Err(Error::OtherProgram);
        }
        if refinement.is_empty() {
            return Ok(self.calls.clone());
        }
        let (args, watch) = SyncArgs::new(&self.device, program, refinement)?;
        let calls = self.calls_with(&args)?;
        let memory = self.calls.memory.clone();
        Ok(Calls { program: program.clone(), calls, memory, watch: Some(Arc::new(watch)) })
    }

    /// Calls of each node, with kernels synchronized by `sync`, by node.
    fn calls_with(&self, sync: &[SyncArgs]) -> Result<Arc<[Call]>> {
        let nodes = self.calls.calls.iter().zip(self.recording.recorded()).zip(sync);
        let call = |((call, recorded), sync): ((&Call, &Recorded), &SyncArgs)| match (call, recorded) {
            (Call::Kernel(call), Recorded::Kernel { arguments, .. }) => {
                let args = args(arguments, &self.buffers, sync);
                Ok(Call::Kernel(KernelCall::new(call.function(), *call.shape(), &args)?))
            }
            _ => Ok(call.clone()),
        };
        nodes.map(call).collect()
    }

    /// Gives an opaque node the callback that queues its work: on the stream that it gets, with the
    /// workspace that it gets, all of it before it returns. Every executable calls it once, while it is built, and
    /// repeats the captured kernels, copies and fills. Addresses in these that belong to other workspaces, or to
    /// buffers that the node has not declared, are errors; memory behind addresses in memory is not seen.
    ///
    /// # Errors
    /// [`Error::NotOpaque`].
    pub fn set_opaque(
        &mut self,
        node: NodeId,
        enqueue: impl FnMut(&Stream, &Workspace) -> std::result::Result<(), String> + Send + 'static,
    ) -> Result<()> {
        match Arc::make_mut(&mut self.calls.calls).get_mut(node.index()) {
            Some(call @ Call::Opaque(_)) => {
                *call = Call::Opaque(OpaqueCall::new(Box::new(enqueue)));
                Ok(())
            }
            Some(Call::Kernel(_) | Call::Copy(_) | Call::Adopted(_)) | None => Err(Error::NotOpaque(node)),
        }
    }

    /// Replaces the estimated duration of a node by a measured one.
    ///
    /// # Errors
    /// [`Error::Dag`], from the program.
    pub fn set_us(&mut self, node: NodeId, us: f64) -> Result<()> {
        Ok(self.calls.program.set_us(node, us)?)
    }

    /// Restores the initial contents of every buffer of the recording, and poisons `outputs` without initial contents with
    /// 0xFF bytes, which are NaNs in every float format. Nothing may be running.
    pub fn reset(&self, outputs: &[BufferId]) -> Result<()> {
        for (index, memory) in self.buffers.iter().enumerate() {
            let Memory::Own(buffer) = memory else { continue };
            let id = BufferId::from(index);
            if outputs.contains(&id) && !self.recording.is_filled(id) {
                buffer.upload(&vec![u32::MAX; buffer.len()])?;
            } else {
                buffer.upload(&self.recording.initial(id))?;
            }
        }
        for ((_, direction), host) in &self.pinned {
            if *direction == Direction::DeviceToHost {
                host.write(&vec![u32::MAX; host.len()])?;
            }
        }
        Ok(())
    }

    /// Fills a buffer of the recording. Nothing may be running.
    pub fn upload(&self, buffer: BufferId, words: &[u32]) -> Result<()> {
        let found = self.buffers.get(buffer.index()).ok_or(Error::NoBuffer(buffer))?.own()?;
        Ok(found.upload(words)?)
    }

    /// Words of a buffer of the recording, from the host if the program copies it there. Nothing may be running.
    pub fn download(&self, buffer: BufferId) -> Result<Vec<u32>> {
        if let Some(host) = self.pinned.get(&(buffer, Direction::DeviceToHost)) {
            return Ok(host.read());
        }
        let found = self.buffers.get(buffer.index()).ok_or(Error::NoBuffer(buffer))?.own()?;
        let mut words = vec![0; found.len()];
        found.download(&mut words)?;
        Ok(words)
    }
}

/// The GPU must know the caller's memory that is passed to a kernel.
fn judge_given(device: &Device, node: &str, arguments: &[Argument], buffers: &[Memory]) -> Result<()> {
    for argument in arguments {
        let Argument::Bytes { buffer, first, bytes, passed: true, .. } = *argument else { continue };
        let Memory::Given(start) = buffers[buffer.index()] else { continue };
        for address in [start + first, start + first + bytes.max(1) - 1] {
            if !is_known(device, address)? {
                return Err(Error::NoMemory { node: node.into(), address });
            }
        }
    }
    Ok(())
}

/// Arguments of a kernel.
fn args(arguments: &[Argument], buffers: &[Memory], sync: &SyncArgs) -> Vec<Arg> {
    let mut args = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match *argument {
            Argument::Bytes { buffer, first, passed: true, .. } => {
                args.push(buffers[buffer.index()].arg(first));
            }
            Argument::Bytes { passed: false, .. } => {}
            Argument::TileSync => args.extend(sync.args()),
            // Addresses become bytes of a buffer when they are recorded.
            Argument::Null | Argument::Addresses { .. } => args.push(Arg::Null),
            Argument::U32(value) => args.push(Arg::U32(value)),
            Argument::F32(value) => args.push(Arg::F32(value)),
            Argument::Value(ref bytes) => args.push(Arg::Value(bytes.clone())),
        }
    }
    args
}
