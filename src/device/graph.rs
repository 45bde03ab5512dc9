//! Graphs of explicit nodes and edges.

use std::ffi::c_void;
use std::ops::Range;

use cudarc::driver::sys::{self, CUlaunchAttributeID_enum as Attribute};

use super::context::Device;
use super::error::{Error, Result, check};
use super::module::KernelCall;
use super::pinned::CopyCall;
use super::stream::{GraphExec, Stream};

/// How a node waits for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// Until the earlier node has ended.
    Full,
    /// Until every CTA of the earlier kernel has triggered or ended; the later kernel itself waits for the
    /// end. Between kernels only.
    Programmatic,
}

/// A node of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphNode(usize);

/// A graph under construction, or a captured graph.
#[derive(Debug)]
pub struct Graph {
    pub(super) device: Device,
    pub(super) raw: sys::CUgraph,
    pub(super) nodes: Vec<sys::CUgraphNode>,
    /// Whether each node is a kernel.
    pub(super) kernels: Vec<bool>,
}

// SAFETY: a graph is used by one thread at a time: adding nodes takes `&mut self`.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        if let (false, Ok(_entered)) = (self.raw.is_null(), self.device.enter()) {
            // SAFETY: created or captured; instances do not need it.
            unsafe { sys::cuGraphDestroy(self.raw) };
        }
    }
}

impl Graph {
    /// An empty graph.
    pub fn new(device: &Device) -> Result<Graph> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a current context; `raw` outlives the call.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&mut raw, 0) })?;
        Ok(Graph::owned(device, raw))
    }

    /// A graph that is destroyed with this value. Its nodes are not listed yet.
    pub(super) fn owned(device: &Device, raw: sys::CUgraph) -> Graph {
        Graph { device: device.clone(), raw, nodes: Vec::new(), kernels: Vec::new() }
    }

    /// Captures the work that `work` queues on `stream`, without running it. The capture also ends if `work`
    /// fails.
    pub fn captured<E: From<Error>>(
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        let device = stream.device();
        let _entered = device.enter()?;
        // Libraries may load kernels or allocate memory on their first call.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a live stream that is not capturing.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) })?;
        let outcome = work();
        let mut raw = std::ptr::null_mut();
        // SAFETY: capture began above on this thread.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream.raw(), &mut raw) });
        // Created before any return, so that the captured graph is freed.
        let graph = Graph::owned(device, raw);
        outcome?;
        ended?;
        Ok(graph.listed()?)
    }

    /// Adds a kernel. `priority`, if given: as for streams, lower numbers first.
    pub fn add_kernel(
        &mut self,
        call: &KernelCall,
        after: &[(GraphNode, EdgeKind)],
        priority: Option<i32>,
    ) -> Result<GraphNode> {
        let _entered = self.device.enter()?;
        let shape = call.shape();
        let mut raw = std::ptr::null_mut();
        call.with_parameters(|parameters| {
            let params = sys::CUDA_KERNEL_NODE_PARAMS {
                func: call.function().raw(),
                gridDimX: shape.grid[0],
                gridDimY: shape.grid[1],
                gridDimZ: shape.grid[2],
                blockDimX: shape.block[0],
                blockDimY: shape.block[1],
                blockDimZ: shape.block[2],
                sharedMemBytes: shape.shared_bytes,
                kernelParams: parameters,
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            };
            // SAFETY: a live graph and function; the driver copies the parameters before it returns.
            check("cuGraphAddKernelNode", unsafe {
                sys::cuGraphAddKernelNode_v2(&mut raw, self.raw, std::ptr::null(), 0, &params)
            })
        })?;
        if let Some(priority) = priority {
            let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
            value.priority = priority;
            // SAFETY: a kernel node of this graph; the value is read during the call.
            check("cuGraphKernelNodeSetAttribute", unsafe {
                sys::cuGraphKernelNodeSetAttribute(raw, Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY, &value)
            })?;
        }
        self.push(raw, true, after)
    }

    /// Adds a copy.
    pub fn add_copy(&mut self, call: &CopyCall, after: &[(GraphNode, EdgeKind)]) -> Result<GraphNode> {
        let _entered = self.device.enter()?;
        let (host, device) = call.ends();
        let (host_end, device_end) =
            (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        let (from, to) = if call.is_upload() { (host_end, device_end) } else { (device_end, host_end) };
        let params = sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: from,
            srcHost: host.cast(),
            srcDevice: device,
            srcArray: std::ptr::null_mut(),
            reserved0: std::ptr::null_mut(),
            srcPitch: 0,
            srcHeight: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: to,
            dstHost: host.cast(),
            dstDevice: device,
            dstArray: std::ptr::null_mut(),
            reserved1: std::ptr::null_mut(),
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: call.bytes(),
            Height: 1,
            Depth: 1,
        };
        let (mut raw, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live graph; only the ends named by the memory types are read; the buffers outlive the
        // graph, because its builder keeps the call.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut context))?;
            check(
                "cuGraphAddMemcpyNode",
                sys::cuGraphAddMemcpyNode(&mut raw, self.raw, std::ptr::null(), 0, &params, context),
            )?;
        }
        self.push(raw, false, after)
    }

    /// Adds a copy of another graph as one node.
    pub fn add_child(&mut self, child: &Graph, after: &[(GraphNode, EdgeKind)]) -> Result<GraphNode> {
        let _entered = self.device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: two live graphs; the driver copies the child.
        check("cuGraphAddChildGraphNode", unsafe {
            sys::cuGraphAddChildGraphNode(&mut raw, self.raw, std::ptr::null(), 0, child.raw)
        })?;
        self.push(raw, false, after)
    }

    /// Adds a copy of this graph to a stream's capture, as one node behind the work queued so far. A graph cannot be
    /// launched on a capturing stream.
    pub fn join_capture(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        let (raw, after, count) = captured_so_far(stream)?;
        let mut node = std::ptr::null_mut();
        // SAFETY: the graph under capture and its nodes, as just returned; the driver copies the child.
        check("cuGraphAddChildGraphNode", unsafe {
            sys::cuGraphAddChildGraphNode(&mut node, raw, after, count, self.raw)
        })?;
        let set = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES as u32;
        // SAFETY: a stream that is capturing the graph of the node; no edge data.
        check("cuStreamUpdateCaptureDependencies", unsafe {
            sys::cuStreamUpdateCaptureDependencies_v2(stream.raw(), &mut node, std::ptr::null(), 1, set)
        })
    }

    /// Adds an empty node: a point between some nodes and those that wait for all of them.
    pub fn add_join(&mut self, after: &[(GraphNode, EdgeKind)]) -> Result<GraphNode> {
        let _entered = self.device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live graph; no dependencies are read.
        check("cuGraphAddEmptyNode", unsafe {
            sys::cuGraphAddEmptyNode(&mut raw, self.raw, std::ptr::null(), 0)
        })?;
        self.push(raw, false, after)
    }

    pub(super) fn push(
        &mut self,
        raw: sys::CUgraphNode,
        kernel: bool,
        after: &[(GraphNode, EdgeKind)],
    ) -> Result<GraphNode> {
        self.nodes.push(raw);
        self.kernels.push(kernel);
        if !after.is_empty() {
            let from: Vec<_> = after.iter().map(|(node, _)| self.nodes[node.0]).collect();
            let to = vec![raw; after.len()];
            let edge = |(node, kind): &(GraphNode, EdgeKind)| {
                // An edge from or to a copy is always a full edge.
                let early = *kind == EdgeKind::Programmatic && kernel && self.kernels[node.0];
                let port = sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC * u32::from(early);
                sys::CUgraphEdgeData {
                    from_port: port as u8,
                    to_port: 0,
                    type_: early.into(),
                    reserved: [0; 5],
                }
            };
            let edges: Vec<_> = after.iter().map(edge).collect();
            // SAFETY: nodes of this graph, as many as edges.
            check("cuGraphAddDependencies", unsafe {
                sys::cuGraphAddDependencies_v2(
                    self.raw,
                    from.as_ptr(),
                    to.as_ptr(),
                    edges.as_ptr(),
                    edges.len(),
                )
            })?;
        }
        Ok(GraphNode(self.nodes.len() - 1))
    }

    /// Instantiates the graph, and uploads it in the order of `stream` so that the first launch need not.
    pub fn instantiate(&self, stream: &Stream) -> Result<GraphExec> {
        let _entered = self.device.enter()?;
        let mut exec = std::ptr::null_mut();
        let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
        // SAFETY: a complete graph.
        check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&mut exec, self.raw, u64::from(flags))
        })?;
        let exec = GraphExec::of_raw(&self.device, exec);
        exec.upload(stream)?;
        Ok(exec)
    }

    /// The handle, a `CUgraph`, for other libraries. This value keeps ownership.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Stream {
    /// Nodes of the graph that this stream is capturing, so far; 0 if it captures nothing.
    pub fn captured_len(&self) -> Result<usize> {
        let _entered = self.device().enter()?;
        let (graph, mut count) = (captured_so_far(self)?.0, 0);
        if !graph.is_null() {
            // SAFETY: the graph under capture; a null array asks for the count.
            check("cuGraphGetNodes", unsafe {
                sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count)
            })?;
        }
        Ok(count)
    }
}

/// The graph that a stream is capturing, null if there is none, and the nodes behind which the next one comes. The driver
/// owns them until the stream's capture goes on.
fn captured_so_far(stream: &Stream) -> Result<(sys::CUgraph, *const sys::CUgraphNode, usize)> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut raw, mut after, mut data, mut count) =
        (std::ptr::null_mut(), std::ptr::null(), std::ptr::null(), 0);
    // SAFETY: a live stream; all results outlive the call.
    check("cuStreamGetCaptureInfo", unsafe {
        let (raw, after, data) = (&mut raw, &mut after, &mut data);
        let id = std::ptr::null_mut();
        sys::cuStreamGetCaptureInfo_v3(stream.raw(), &mut status, id, raw, after, data, &mut count)
    })?;
    Ok((raw, after, count))
}

/// The allocation that contains an address, or the whole range that was reserved for it; `None` if there is none.
pub fn allocation(device: &Device, address: u64) -> Result<Option<Range<u64>>> {
    use sys::CUpointer_attribute as Attributes;
    let _entered = device.enter()?;
    let (mut first, mut bytes) = (0u64, 0u64);
    for (attribute, to) in [
        (Attributes::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, &raw mut first),
        (Attributes::CU_POINTER_ATTRIBUTE_RANGE_SIZE, &raw mut bytes),
    ] {
        // SAFETY: both attributes are 64-bit numbers, which outlive the call; any address is allowed.
        let found = unsafe { sys::cuPointerGetAttribute(to.cast(), attribute, address) };
        if found == sys::CUresult::CUDA_ERROR_INVALID_VALUE {
            return Ok(None);
        }
        check("cuPointerGetAttribute", found)?;
    }
    Ok(Some(first..first.saturating_add(bytes)).filter(|place| place.contains(&address)))
}

/// Whether an address is memory that the driver knows, of a GPU or page-locked.
pub fn is_known(device: &Device, address: u64) -> Result<bool> {
    let _entered = device.enter()?;
    let mut kind = 0u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the attribute is a 32-bit number, which outlives the call; any address is allowed.
    let found = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, address) };
    if found == sys::CUresult::CUDA_ERROR_INVALID_VALUE {
        return Ok(false);
    }
    check("cuPointerGetAttribute", found)?;
    Ok(true)
}
