//! Graphs of explicit nodes and edges, and the contents of captured graphs.

use std::collections::HashMap;

use cudarc::driver::sys::{self, CUgraphNodeType_enum as NodeType, CUlaunchAttributeID_enum as Attribute};

use super::context::Device;
use super::error::{Error, Result, check};
use super::module::{Function, KernelCall, Shape};
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
    device: Device,
    raw: sys::CUgraph,
    nodes: Vec<sys::CUgraphNode>,
    /// Whether each node is a kernel.
    kernels: Vec<bool>,
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
        Ok(Graph { device: device.clone(), raw, nodes: Vec::new(), kernels: Vec::new() })
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
        let graph = Graph { device: device.clone(), raw, nodes: Vec::new(), kernels: Vec::new() };
        outcome?;
        ended?;
        let mut graph = graph;
        graph.nodes = graph.in_order()?;
        for &node in &graph.nodes {
            graph.kernels.push(node_type(node)? == NodeType::CU_GRAPH_NODE_TYPE_KERNEL);
        }
        Ok(graph)
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
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut raw, mut after, mut data, mut count) =
            (std::ptr::null_mut(), std::ptr::null(), std::ptr::null(), 0);
        // SAFETY: a live stream; the driver owns the arrays that it returns, until the stream's capture goes on.
        check("cuStreamGetCaptureInfo", unsafe {
            let id = std::ptr::null_mut();
            sys::cuStreamGetCaptureInfo_v3(
                stream.raw(),
                &mut status,
                id,
                &mut raw,
                &mut after,
                &mut data,
                &mut count,
            )
        })?;
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

    fn push(
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

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Kernels of a captured graph, in an order that its edges allow.
    ///
    /// # Errors
    /// [`Error::BadArgument`] if it has nodes other than kernels: their memory accesses are not declared.
    pub fn kernel_calls(&self) -> Result<Vec<KernelCall>> {
        let _entered = self.device.enter()?;
        self.nodes.iter().map(|&node| self.kernel_call(node)).collect()
    }

    fn kernel_call(&self, node: sys::CUgraphNode) -> Result<KernelCall> {
        let kind = node_type(node)?;
        if kind != NodeType::CU_GRAPH_NODE_TYPE_KERNEL {
            return Err(Error::BadArgument(format!(
                "a captured node of type {kind:?} (only kernels are taken)"
            )));
        }
        let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // SAFETY: a live kernel node; all fields may be zero, and the driver fills them.
        let params = unsafe {
            check(
                "cuGraphKernelNodeGetParams",
                sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr()),
            )?;
            params.assume_init()
        };
        let mut raw = params.func;
        if raw.is_null() {
            // SAFETY: a node without a function has a kernel.
            check("cuKernelGetFunction", unsafe { sys::cuKernelGetFunction(&mut raw, params.kern) })?;
        }
        let function = Function::of_raw(&self.device, raw, None)?;
        if params.kernelParams.is_null() && !function.parameter_sizes().is_empty() {
            return Err(Error::BadArgument(format!("packed arguments of kernel `{}`", function.name())));
        }
        let shape = Shape {
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared_bytes: params.sharedMemBytes,
        };
        // SAFETY: the driver's own array of this node, which lives as long as the graph.
        Ok(unsafe { KernelCall::of_node(function, shape, params.kernelParams) })
    }

    /// Addresses that its nodes may access: every word of the arguments of kernels, whether an address or not, and the
    /// ends of copies and fills. Nodes that the driver does not describe, and graphs in it, are left out.
    pub fn words(&self) -> Result<Vec<u64>> {
        let _entered = self.device.enter()?;
        let mut found = Vec::new();
        for &node in &self.nodes {
            let kind = node_type(node)?;
            if kind == NodeType::CU_GRAPH_NODE_TYPE_KERNEL {
                found.extend(self.kernel_call(node).iter().flat_map(KernelCall::words));
            } else if kind == NodeType::CU_GRAPH_NODE_TYPE_MEMSET {
                let mut fill = std::mem::MaybeUninit::<sys::CUDA_MEMSET_NODE_PARAMS>::zeroed();
                // SAFETY: a live node of this type; all fields may be zero.
                let fill = unsafe {
                    check(
                        "cuGraphMemsetNodeGetParams",
                        sys::cuGraphMemsetNodeGetParams(node, fill.as_mut_ptr()),
                    )?;
                    fill.assume_init()
                };
                found.push(fill.dst);
            } else if kind == NodeType::CU_GRAPH_NODE_TYPE_MEMCPY {
                let mut copy = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
                // SAFETY: as above; the memory types have values where the driver fills them.
                let copy = unsafe {
                    (*copy.as_mut_ptr()).srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
                    (*copy.as_mut_ptr()).dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
                    check(
                        "cuGraphMemcpyNodeGetParams",
                        sys::cuGraphMemcpyNodeGetParams(node, copy.as_mut_ptr()),
                    )?;
                    copy.assume_init()
                };
                found.extend([copy.srcDevice, copy.dstDevice]);
            }
        }
        Ok(found)
    }

    /// Nodes in topological order; for a captured serial stream, its order.
    fn in_order(&self) -> Result<Vec<sys::CUgraphNode>> {
        let mut count = 0;
        // SAFETY: a live graph; a null array asks for the count.
        check("cuGraphGetNodes", unsafe {
            sys::cuGraphGetNodes(self.raw, std::ptr::null_mut(), &mut count)
        })?;
        // The driver rejects a request for nothing, here and below.
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut nodes = vec![std::ptr::null_mut(); count];
        // SAFETY: room for `count` nodes.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &mut count) })?;
        let mut edges = 0;
        let null = || std::ptr::null_mut::<sys::CUgraphNode_st>();
        // SAFETY: as above.
        check("cuGraphGetEdges", unsafe {
            sys::cuGraphGetEdges_v2(
                self.raw,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &mut edges,
            )
        })?;
        let (mut from, mut to) = (vec![null(); edges], vec![null(); edges]);
        let empty = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut data = vec![empty; edges];
        if edges > 0 {
            // SAFETY: room for `edges` of each.
            check("cuGraphGetEdges", unsafe {
                sys::cuGraphGetEdges_v2(
                    self.raw,
                    from.as_mut_ptr(),
                    to.as_mut_ptr(),
                    data.as_mut_ptr(),
                    &mut edges,
                )
            })?;
        }
        let place: HashMap<_, _> = nodes.iter().enumerate().map(|(index, &node)| (node, index)).collect();
        let pairs: Vec<_> = from.iter().zip(&to).map(|(a, b)| (place[a], place[b])).collect();
        Ok(topological(nodes.len(), &pairs).into_iter().map(|index| nodes[index]).collect())
    }
}

/// Base address and size of the allocation that contains an address; `None` if there is none.
pub fn allocation(device: &Device, address: u64) -> Result<Option<(u64, u64)>> {
    let _entered = device.enter()?;
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: a current context; both outlive the call, and any address is allowed.
    let found = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut bytes, address) };
    if matches!(found, sys::CUresult::CUDA_ERROR_INVALID_VALUE | sys::CUresult::CUDA_ERROR_NOT_FOUND) {
        return Ok(None);
    }
    check("cuMemGetAddressRange", found)?;
    Ok(Some((base, bytes as u64)))
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

fn node_type(node: sys::CUgraphNode) -> Result<NodeType> {
    let mut kind = NodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: a live node; `kind` outlives the call.
    check("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, &mut kind) })?;
    Ok(kind)
}

/// An order of `0..count` in which the first of every pair precedes the second; lowest ready number first.
fn topological(count: usize, pairs: &[(usize, usize)]) -> Vec<usize> {
    let mut waits = vec![0; count];
    let mut next = vec![Vec::new(); count];
    for &(before, after) in pairs {
        waits[after] += 1;
        next[before].push(after);
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..count).filter(|&n| waits[n] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for &after in &next[node] {
            waits[after] -= 1;
            if waits[after] == 0 {
                ready.insert(after);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_nodes_come_in_the_order_of_their_edges() {
        assert_eq!(topological(4, &[(3, 1), (1, 2), (2, 0)]), [3, 1, 2, 0]);
        assert_eq!(topological(3, &[]), [0, 1, 2]);
        assert_eq!(topological(4, &[(2, 0), (2, 1), (0, 3), (1, 3)]), [2, 0, 1, 3]);
    }
}
