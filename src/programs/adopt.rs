//! Captured serial streams, rescheduled from the declared accesses of their kernels.

use std::collections::HashMap;
use std::sync::Arc;

use cusync_dag::{Access, AccessMode, BufferId, Kernel, LaunchConfig, Node, NodeWork, Program};

use super::calls::{Call, Calls};
use super::error::{Error, Result};
use super::verify::verified;
use crate::device::{Device, Graph, Image, KernelCall, allocation};

/// A kernel's access through one of its pointer parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterAccess {
    /// Parameter index, from 0.
    pub parameter: usize,
    /// Access mode.
    pub mode: AccessMode,
    /// Bytes accessed from the pointer on; `None`: to the end of the allocation.
    pub bytes: Option<u64>,
}

/// Declared accesses of a kernel. Unlisted pointers are not followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// Name of the kernel in its image (mangled, for C++).
    pub kernel: String,
    /// Its accesses.
    pub accesses: Vec<ParameterAccess>,
    /// Time it takes alone, microseconds, if known.
    pub us: f64,
    /// Whether the kernel itself waits for earlier kernels (`griddepcontrol.wait`).
    pub programmatic: bool,
    /// The image with its code. Without one, `programmatic` is believed.
    pub image: Option<Image>,
}

impl Calls {
    /// Creates a program from a captured graph of kernels, in the order in which they were queued. Its
    /// buffers are the allocations that the kernels access; the caller keeps these alive.
    ///
    /// # Errors
    /// [`Error::Undeclared`] for a kernel without declaration; [`Error::Parameter`] for a declaration that
    /// does not fit; [`Error::NeverWaits`] for one that its code contradicts.
    pub fn adopt(device: &Device, graph: &Graph, declarations: &[Declaration]) -> Result<Calls> {
        let declared: HashMap<&str, &Declaration> =
            declarations.iter().map(|d| (d.kernel.as_str(), d)).collect();
        let calls = graph.kernel_calls()?;
        let mut program = Program::new("captured");
        let mut buffers: HashMap<u64, BufferId> = HashMap::new();
        for call in &calls {
            let kernel = call.function().name();
            let declaration =
                *declared.get(kernel).ok_or_else(|| Error::Undeclared { kernel: kernel.into() })?;
            let mut accesses = Vec::new();
            for access in &declaration.accesses {
                let parameter = access.parameter;
                let wrong = |fault| Error::Parameter { kernel: kernel.into(), parameter, what: fault };
                let address = call.address(parameter).ok_or_else(|| wrong("is no pointer"))?;
                if address == 0 {
                    continue;
                }
                let (base, size) =
                    allocation(device, address)?.ok_or_else(|| wrong("is no device address"))?;
                let first = address - base;
                let end = access.bytes.map_or(size, |bytes| first + bytes);
                if end > size {
                    return Err(wrong("reaches past the end of its allocation"));
                }
                let next = || program.buffer(format!("{base:#x}"), size);
                let buffer = *buffers.entry(base).or_insert_with(next);
                accesses.push(Access { buffer, bytes: first..end, mode: access.mode });
            }
            program.push(node(call, declaration, accesses)?)?;
        }
        let program = verified(&program, |id| {
            let function = calls[id.index()].function();
            let image = declared.get(function.name()).and_then(|d| d.image.as_ref());
            let found = image.map(|image| image.grid_control(function.name(), device.capability()));
            (function.name(), found.unwrap_or_else(|| function.grid_control().clone()))
        })?;
        let calls = calls.into_iter().map(Call::Kernel).collect();
        Ok(Calls { program, calls, memory: Arc::default(), watch: None })
    }
}

fn node(call: &KernelCall, declaration: &Declaration, accesses: Vec<Access>) -> Result<Node> {
    let shape = call.shape();
    let resident = call.function().resident_per_sm(shape.threads(), shape.shared_bytes)?;
    let launch = LaunchConfig { grid: shape.grid, block: shape.block, shared_bytes: shape.shared_bytes };
    let kernel = Kernel {
        ctas_per_sm: resident.max(1),
        programmatic: declaration.programmatic,
        ..Kernel::new(launch, &accesses)
    };
    Ok(Node::new(declaration.kernel.clone(), NodeWork::Kernel(kernel), accesses, declaration.us))
}
