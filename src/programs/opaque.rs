//! Opaque nodes: callbacks that queue any work on a stream, captured once, and the workspaces of that work.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cusync_dag::{Node, Program, Workspaces};

use super::error::{Error, Result};
use crate::device::{Device, DeviceBuffer, Graph, Stream};

/// Scratch memory that an opaque node may overwrite. The nodes of a workspace never run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its number among the workspaces of an executable, at most one for each lane.
    pub index: usize,
    /// Its device address, a multiple of 256 if it is not lent; 0 if no node needs bytes.
    pub address: u64,
    /// Its size in bytes, at least the size that the node requested.
    pub bytes: u64,
}

/// Queues the work of an opaque node on a stream, which is capturing. Errors are texts for the user.
pub type Enqueue = dyn FnMut(&Stream, &Workspace) -> std::result::Result<(), String> + Send;

/// The work of an opaque node.
#[derive(Clone)]
pub struct OpaqueCall {
    enqueue: Option<Arc<Mutex<Box<Enqueue>>>>,
}

impl fmt::Debug for OpaqueCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpaqueCall").field("has_callback", &self.enqueue.is_some()).finish()
    }
}

impl OpaqueCall {
    /// Work that is not known yet.
    pub(super) const UNKNOWN: OpaqueCall = OpaqueCall { enqueue: None };

    pub(super) fn new(enqueue: Box<Enqueue>) -> OpaqueCall {
        OpaqueCall { enqueue: Some(Arc::new(Mutex::new(enqueue))) }
    }

    /// Captures the work of a node with a CUDA priority, and judges the addresses in it.
    pub(super) fn capture(
        &self,
        scratch: &Scratch,
        program: &Program,
        node: usize,
        priority: Option<i32>,
    ) -> Result<Graph> {
        let this = &program.nodes()[node];
        let fault = |text: String| Error::Opaque { node: this.name.clone(), what: text };
        let missing = || fault("it has no callback: give it one with `BoundRecording::set_opaque`".into());
        let enqueue = self.enqueue.as_ref().ok_or_else(missing)?;
        let workspace = scratch.workspaces[scratch.index_of[node]];
        // Kernels inherit the priority of the stream on which they are captured.
        let stream = match priority {
            Some(priority) => Stream::with_priority(&scratch.device, priority)?,
            None => Stream::new(&scratch.device)?,
        };
        let graph = Graph::captured(&stream, || {
            let mut enqueue = enqueue.lock().unwrap_or_else(PoisonError::into_inner);
            enqueue(&stream, &workspace).map_err(|error| fault(format!("its callback failed: {error}")))
        })?;
        if graph.is_empty() {
            return Err(fault("its callback queued nothing: use the stream that it is given".into()));
        }
        match graph.words()?.into_iter().find_map(|word| scratch.fault(program, this, workspace.index, word))
        {
            Some(text) => Err(fault(text)),
            None => Ok(graph),
        }
    }
}

/// The workspaces of an executable, and the memory against which captured nodes are judged.
#[derive(Debug)]
pub(super) struct Scratch {
    workspaces: Vec<Workspace>,
    /// The workspace of each node; meaningless for kernels and copies.
    index_of: Vec<usize>,
    device: Device,
    /// Addresses of each buffer of the program.
    memory: Arc<[Range<u64>]>,
    _own: Vec<Arc<DeviceBuffer<u8>>>,
}

impl Scratch {
    /// Workspaces of a proved plan: `lent` ones if there are any, or new ones.
    pub(super) fn new(
        device: &Device,
        nodes: usize,
        proved: &Workspaces,
        lent: &[Arc<DeviceBuffer<u8>>],
        memory: &Arc<[Range<u64>]>,
    ) -> Result<Scratch> {
        let mut own = lent.to_vec();
        if lent.is_empty() && proved.bytes().iter().any(|&bytes| bytes > 0) {
            let new = |&bytes: &u64| DeviceBuffer::new(device, bytes as usize, "a workspace").map(Arc::new);
            own = proved.bytes().iter().map(new).collect::<std::result::Result<_, _>>()?;
        }
        let places: Vec<Range<u64>> = own.iter().map(|w| place(w)).collect();
        judge_lent(&places, proved.bytes(), memory)?;
        let found = |(index, _)| {
            let place = places.get(index).cloned().unwrap_or(0..0);
            Workspace { index, address: place.start, bytes: place.end - place.start }
        };
        Ok(Scratch {
            workspaces: proved.bytes().iter().enumerate().map(found).collect(),
            index_of: (0..nodes).map(|node| proved.of_node(node).unwrap_or_default()).collect(),
            device: device.clone(),
            memory: memory.clone(),
            _own: own,
        })
    }

    /// Why a node with this workspace must not access an address, and the fix.
    fn fault(&self, program: &Program, node: &Node, own: usize, address: u64) -> Option<String> {
        let inside = |w: &&Workspace| (w.address..w.address + w.bytes).contains(&address);
        if let Some(other) = self.workspaces.iter().filter(|w| w.index != own).find(inside) {
            return Some(format!(
                "it uses {address:#x} in workspace {}, which is not its own: use the workspace that the callback is given",
                other.index
            ));
        }
        let buffer = self.memory.iter().position(|place| place.contains(&address))?;
        let declared = node.accesses.iter().any(|access| access.buffer.index() == buffer);
        let name = &program.buffers()[buffer].name;
        (!declared)
            .then(|| format!("it uses {address:#x} in buffer `{name}`: declare what it accesses there"))
    }
}

fn place(buffer: &DeviceBuffer<u8>) -> Range<u64> {
    let place = buffer.addresses();
    place.start as u64..place.end as u64
}

/// Workspaces must suffice, and share no byte with each other or with the program's memory.
fn judge_lent(places: &[Range<u64>], bytes: &[u64], memory: &[Range<u64>]) -> Result<()> {
    let fault = |text| Err(Error::Lent { what: text });
    let needed = bytes.iter().rposition(|&bytes| bytes > 0).map_or(0, |last| last + 1);
    if places.len() < needed {
        return fault(format!(
            "the plan needs {needed} workspaces and {} are lent: lend more, or limit `ScheduleOptions::streams`",
            places.len()
        ));
    }
    for (index, place) in places.iter().enumerate() {
        let need = bytes.get(index).copied().unwrap_or(0);
        if place.end - place.start < need {
            let have = place.end - place.start;
            return fault(format!(
                "workspace {index} has {have} bytes and {need} are needed: lend a larger one"
            ));
        }
        let meets = |other: &&Range<u64>| place.start < other.end && other.start < place.end;
        if let Some(other) = places[..index].iter().chain(memory).find(meets) {
            let (from, to) = (other.start, other.end);
            return fault(format!(
                "workspace {index} overlaps memory at {from:#x}..{to:#x}, which others use: lend memory of its own"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::judge_lent;

    #[test]
    fn lent_workspaces_are_judged() {
        let judge = |places: &[(u64, u64)], bytes: &[u64]| {
            let places: Vec<_> = places.iter().map(|&(start, end)| start..end).collect();
            judge_lent(&places, bytes, std::slice::from_ref(&(0..64))).map_err(|fault| fault.to_string())
        };
        assert_eq!(judge(&[(64, 128), (128, 256)], &[64, 100]), Ok(()));
        assert_eq!(judge(&[], &[0, 0]), Ok(()), "no node needs bytes");
        let fault = |places: &[_], bytes: &[_]| judge(places, bytes).expect_err("refused");
        assert!(fault(&[(64, 128)], &[64, 1]).contains("needs 2 workspaces and 1 are lent"));
        assert!(fault(&[(64, 128)], &[65]).contains("has 64 bytes and 65 are needed"));
        assert!(
            fault(&[(64, 128), (127, 256)], &[64, 64]).contains("workspace 1 overlaps memory at 0x40..0x80")
        );
        assert!(fault(&[(63, 128)], &[64]).contains("workspace 0 overlaps memory at 0x0..0x40"));
    }
}
