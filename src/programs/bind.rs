//! Recordings with memory and kernels.

use std::collections::HashMap;
use std::sync::Arc;

use cusync_dag::{
    Argument, BufferId, Direction, Form, KernelSchedule, LaunchConfig, NodeId, NodeWork, Program,
    ProvedRefinement, Recorded, Recording, Refinement,
};

use super::calls::{Call, Calls};
use super::tiled::SyncArgs;
use super::{Error, Executable, Result};
use crate::device::{
    Arg, CopyCall, Device, DeviceBuffer, Function, KernelCall, Module, PinnedBuffer, Shape, Stream,
};

/// A recording with memory and kernels.
#[derive(Debug)]
pub struct BoundRecording {
    recording: Recording,
    device: Device,
    calls: Calls,
    buffers: Vec<Arc<DeviceBuffer<u32>>>,
    pinned: HashMap<(BufferId, Direction), Arc<PinnedBuffer>>,
}

impl BoundRecording {
    /// Allocates memory for a recording, and binds it to kernels from `module`.
    ///
    /// # Errors
    /// [`Error::Addresses`] if memory was given by addresses; device errors.
    pub fn new(recording: &Recording, device: &Device, module: &Module) -> Result<BoundRecording> {
        if recording.has_addresses() {
            return Err(Error::Addresses);
        }
        let program = recording.program();
        let mut buffers = Vec::new();
        for (index, buffer) in program.buffers().iter().enumerate() {
            let words = recording.initial(BufferId::from(index));
            buffers.push(Arc::new(DeviceBuffer::from_slice(device, &words, &buffer.name)?));
        }
        let mut functions: HashMap<&str, Function> = HashMap::new();
        let mut pinned: HashMap<(BufferId, Direction), Arc<PinnedBuffer>> = HashMap::new();
        let mut calls = Vec::with_capacity(program.nodes().len());
        for (node, recorded) in program.nodes().iter().zip(recording.recorded()) {
            calls.push(match (recorded, &node.work) {
                (Recorded::Kernel { function, arguments }, NodeWork::Kernel(kernel)) => {
                    if !functions.contains_key(function.as_str()) {
                        functions.insert(function, module.function(function)?);
                    }
                    let function = &functions[function.as_str()];
                    let args = args(arguments, &buffers, &SyncArgs::default());
                    let LaunchConfig { grid, block, shared_bytes } = kernel.launch;
                    Call::Kernel(KernelCall::new(function, Shape { grid, block, shared_bytes }, &args)?)
                }
                (Recorded::Copy { buffer: Some(buffer), direction }, _) => {
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
                            host.write(&recording.initial(*buffer))?;
                            CopyCall::upload(&host, words)?
                        }
                        Direction::DeviceToHost => CopyCall::download(words, &host)?,
                    })
                }
                _ => return Err(Error::Addresses),
            });
        }
        let calls = Calls { program: program.clone(), calls: calls.into(), watch: None };
        Ok(BoundRecording { recording: recording.clone(), device: device.clone(), calls, buffers, pinned })
    }

    /// The recorded program, with durations measured since.
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
        Ok(Calls { program: program.clone(), calls, watch: Some(Arc::new(watch)) })
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

    /// Replaces the estimated duration of a node by a measured one.
    ///
    /// # Errors
    /// [`Error::Dag`], from the program.
    pub fn set_us(&mut self, node: NodeId, us: f64) -> Result<()> {
        Ok(self.calls.program.set_us(node, us)?)
    }

    /// Restores the initial contents of every buffer, and poisons `outputs` without initial contents with
    /// 0xFF bytes, which are NaNs in every float format. Nothing may be running.
    pub fn reset(&self, outputs: &[BufferId]) -> Result<()> {
        for (index, buffer) in self.buffers.iter().enumerate() {
            let id = BufferId::from(index);
            if outputs.contains(&id) && !self.recording.is_filled(id) {
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

    /// Words of a buffer, from the host if the program copies it there. Nothing may be running.
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

/// Arguments of a kernel.
fn args(arguments: &[Argument], buffers: &[Arc<DeviceBuffer<u32>>], sync: &SyncArgs) -> Vec<Arg> {
    let mut args = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match *argument {
            Argument::Bytes { buffer, first, passed: true, .. } => {
                args.push(Arg::Words(buffers[buffer.index()].clone(), first as usize / 4));
            }
            Argument::Bytes { passed: false, .. } => {}
            Argument::TileSync => args.extend(sync.args()),
            // Addresses become bytes of a buffer when they are recorded.
            Argument::Null | Argument::Addresses { .. } => args.push(Arg::Null),
            Argument::U32(value) => args.push(Arg::U32(value)),
            Argument::F32(value) => args.push(Arg::F32(value)),
        }
    }
    args
}
