//! Nodes of captured graphs: what the driver says about them, and the same nodes in other graphs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;

use cudarc::driver::sys::{self, CUgraphNodeType_enum as NodeType, CUmemorytype_enum as MemoryType};

use super::context::Device;
use super::error::{Error, Result, check};
use super::graph::{EdgeKind, Graph, GraphNode};
use super::module::{Function, Shape, words_of};

/// A node of a captured graph.
#[derive(Clone, Debug)]
pub struct CapturedNode {
    /// Its place in an order that the edges of its graph allow; in a captured stream, the order of the calls.
    pub index: usize,
    /// What it does.
    pub work: CapturedWork,
}

/// The work of a captured node.
#[derive(Clone, Debug)]
pub enum CapturedWork {
    /// A kernel.
    Kernel(CapturedKernel),
    /// A memset of bytes at these addresses, from the first to the last.
    Fill(Range<u64>),
    /// A copy.
    Copy {
        /// Its source.
        from: CopyEnd,
        /// Its destination.
        to: CopyEnd,
    },
    /// The nodes of a graph in the graph.
    Graph(Vec<CapturedNode>),
    /// Nothing: a point between some nodes and those that wait for all of them.
    Empty,
    /// A function on the host.
    Host,
}

/// A captured kernel.
#[derive(Clone, Debug)]
pub struct CapturedKernel {
    /// The kernel.
    pub function: Function,
    /// The grid and its CTAs.
    pub shape: Shape,
    /// The argument values as words of eight bytes, each argument from a new word on.
    pub words: Box<[u64]>,
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// Addresses from the first byte to the last; `None`: those of an array, which has no addresses.
    pub addresses: Option<Range<u64>>,
    /// Whether the driver calls it host memory.
    pub host: bool,
}

impl CapturedNode {
    /// Words that may be addresses: those of a kernel's arguments, and the first of a copy or a fill.
    fn words(&self) -> Vec<u64> {
        match &self.work {
            CapturedWork::Kernel(kernel) => kernel.words.to_vec(),
            CapturedWork::Fill(to) => vec![to.start],
            CapturedWork::Copy { from, to } => {
                [from, to].iter().filter_map(|end| Some(end.addresses.as_ref()?.start)).collect()
            }
            CapturedWork::Graph(_) | CapturedWork::Empty | CapturedWork::Host => Vec::new(),
        }
    }
}

impl Graph {
    /// A copy of a graph that other code captured or built, a `CUgraph` or `cudaGraph_t`. The copy keeps the user objects
    /// of the graph, which may be destroyed after the call.
    ///
    /// # Errors
    /// [`Error::Unmovable`] for a node that no other graph can have.
    ///
    /// # Safety
    /// A live graph of `device`'s context that nobody uses during the call. Memory, kernels and host functions of its
    /// nodes stay valid as long as anything that is built from the copy.
    pub unsafe fn copy_of(device: &Device, raw: *mut c_void) -> Result<Graph> {
        let _entered = device.enter()?;
        // The driver refuses to copy some nodes, without a name for them.
        contents(device, &in_order(raw.cast())?)?;
        // SAFETY: guaranteed by the caller.
        unsafe { cloned(device, raw.cast()) }?.listed()
    }

    /// Its nodes, in an order that its edges allow.
    ///
    /// # Errors
    /// [`Error::Unmovable`] for a node that no other graph can have.
    pub fn captured_nodes(&self) -> Result<Vec<CapturedNode>> {
        let _entered = self.device.enter()?;
        contents(&self.device, &self.nodes)
    }

    /// Addresses that its nodes may access: every word of the arguments of kernels, whether an address or not, and the
    /// ends of copies and fills. Other nodes, and graphs in it, are left out.
    pub fn words(&self) -> Result<Vec<u64>> {
        let _entered = self.device.enter()?;
        let mut found = Vec::new();
        for (index, &node) in self.nodes.iter().enumerate() {
            match work(&self.device, node, index) {
                Ok(work) => found.extend(CapturedNode { index, work }.words()),
                Err(Error::Unmovable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Adds a node that equals one of another graph: its arguments, and all attributes of its launch.
    pub fn add_captured(
        &mut self,
        graph: &Graph,
        index: usize,
        after: &[(GraphNode, EdgeKind)],
    ) -> Result<GraphNode> {
        let _entered = self.device.enter()?;
        let node = graph.nodes[index];
        let (mut raw, mut context, none) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null());
        let kind = node_type(node)?;
        // SAFETY: two live graphs, and parameters that the driver gave for a node of this type; it copies them. What they
        // refer to stays valid, as the maker of the other graph guarantees.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut context))?;
            match kind {
                NodeType::CU_GRAPH_NODE_TYPE_KERNEL => {
                    let params = kernel_parameters(node)?;
                    let added = sys::cuGraphAddKernelNode_v2(&mut raw, self.raw, none, 0, &params);
                    check("cuGraphAddKernelNode", added)?;
                    check(
                        "cuGraphKernelNodeCopyAttributes",
                        sys::cuGraphKernelNodeCopyAttributes(raw, node),
                    )?;
                }
                NodeType::CU_GRAPH_NODE_TYPE_MEMSET => {
                    let params = fill_parameters(node)?;
                    let added = sys::cuGraphAddMemsetNode(&mut raw, self.raw, none, 0, &params, context);
                    check("cuGraphAddMemsetNode", added)?;
                }
                NodeType::CU_GRAPH_NODE_TYPE_MEMCPY => {
                    let params = copy_parameters(node)?;
                    let added = sys::cuGraphAddMemcpyNode(&mut raw, self.raw, none, 0, &params, context);
                    check("cuGraphAddMemcpyNode", added)?;
                }
                NodeType::CU_GRAPH_NODE_TYPE_GRAPH => {
                    // The driver does not take a graph out of another one.
                    let child = cloned(&self.device, child(node)?)?;
                    let added = sys::cuGraphAddChildGraphNode(&mut raw, self.raw, none, 0, child.raw);
                    check("cuGraphAddChildGraphNode", added)?;
                }
                NodeType::CU_GRAPH_NODE_TYPE_HOST => {
                    let mut params = MaybeUninit::zeroed();
                    let got = sys::cuGraphHostNodeGetParams(node, params.as_mut_ptr());
                    check("cuGraphHostNodeGetParams", got)?;
                    let added = sys::cuGraphAddHostNode(&mut raw, self.raw, none, 0, params.as_ptr());
                    check("cuGraphAddHostNode", added)?;
                }
                NodeType::CU_GRAPH_NODE_TYPE_EMPTY => {
                    let added = sys::cuGraphAddEmptyNode(&mut raw, self.raw, none, 0);
                    check("cuGraphAddEmptyNode", added)?;
                }
                other => return Err(unmovable(other, index)),
            }
        }
        self.push(raw, kind == NodeType::CU_GRAPH_NODE_TYPE_KERNEL, after)
    }

    /// Whether its edges allow one order only, as those of a captured serial stream do.
    pub fn is_serial(&self) -> Result<bool> {
        let _entered = self.device.enter()?;
        let (nodes, pairs) = connected(self.raw)?;
        let order = topological(nodes.len(), &pairs);
        let pairs: HashSet<(usize, usize)> = pairs.into_iter().collect();
        Ok(order.windows(2).all(|next| pairs.contains(&(next[0], next[1]))))
    }

    /// The graph with a list of its nodes.
    pub(super) fn listed(mut self) -> Result<Graph> {
        self.nodes = in_order(self.raw)?;
        for &node in &self.nodes {
            self.kernels.push(node_type(node)? == NodeType::CU_GRAPH_NODE_TYPE_KERNEL);
        }
        Ok(self)
    }
}

/// A copy without a list of its nodes.
///
/// # Safety
/// A live graph.
unsafe fn cloned(device: &Device, raw: sys::CUgraph) -> Result<Graph> {
    let mut copy = std::ptr::null_mut();
    // SAFETY: guaranteed by the caller.
    check("cuGraphClone", unsafe { sys::cuGraphClone(&mut copy, raw) })?;
    Ok(Graph::owned(device, copy))
}

/// The error for a node that no other graph can have.
fn unmovable(kind: NodeType, index: usize) -> Error {
    let (kind, help) = match kind {
        NodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT | NodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
            ("an external event", "record and wait for events before or after the graph")
        }
        NodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC | NodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => {
            ("an allocation", "allocate before the capture, or from a pool that does")
        }
        NodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
            ("a condition", "capture each branch as a graph of its own")
        }
        _ => ("a semaphore or an operation on memory", "signal and wait before or after the graph"),
    };
    Error::Unmovable { node: index, kind, help }
}

/// Nodes with their work.
fn contents(device: &Device, nodes: &[sys::CUgraphNode]) -> Result<Vec<CapturedNode>> {
    let node = |(index, &node)| Ok(CapturedNode { index, work: work(device, node, index)? });
    nodes.iter().enumerate().map(node).collect()
}

fn work(device: &Device, node: sys::CUgraphNode, index: usize) -> Result<CapturedWork> {
    Ok(match node_type(node)? {
        NodeType::CU_GRAPH_NODE_TYPE_KERNEL => CapturedWork::Kernel(kernel(device, node)?),
        NodeType::CU_GRAPH_NODE_TYPE_MEMSET => {
            let fill = fill_parameters(node)?;
            let row = fill.width * fill.elementSize as usize;
            CapturedWork::Fill(hull(fill.dst, [fill.pitch, 0], [row, fill.height, 1]))
        }
        NodeType::CU_GRAPH_NODE_TYPE_MEMCPY => {
            let copy = copy_parameters(node)?;
            let extent = [copy.WidthInBytes, copy.Height, copy.Depth];
            let end = |kind, (host, device), [x, y, z]: [usize; 3], [pitch, height]: [usize; 2]| {
                let base = match kind {
                    MemoryType::CU_MEMORYTYPE_HOST => Some(host),
                    MemoryType::CU_MEMORYTYPE_DEVICE | MemoryType::CU_MEMORYTYPE_UNIFIED => Some(device),
                    MemoryType::CU_MEMORYTYPE_ARRAY => None,
                };
                let first = |base: u64| base + (x + y * pitch + z * pitch * height) as u64;
                let addresses = base.map(|base| hull(first(base), [pitch, pitch * height], extent));
                CopyEnd { addresses, host: kind == MemoryType::CU_MEMORYTYPE_HOST }
            };
            let from = end(
                copy.srcMemoryType,
                (copy.srcHost as u64, copy.srcDevice),
                [copy.srcXInBytes, copy.srcY, copy.srcZ],
                [copy.srcPitch, copy.srcHeight],
            );
            let to = end(
                copy.dstMemoryType,
                (copy.dstHost as u64, copy.dstDevice),
                [copy.dstXInBytes, copy.dstY, copy.dstZ],
                [copy.dstPitch, copy.dstHeight],
            );
            CapturedWork::Copy { from, to }
        }
        NodeType::CU_GRAPH_NODE_TYPE_GRAPH => {
            CapturedWork::Graph(contents(device, &in_order(child(node)?)?)?)
        }
        NodeType::CU_GRAPH_NODE_TYPE_EMPTY => CapturedWork::Empty,
        NodeType::CU_GRAPH_NODE_TYPE_HOST => CapturedWork::Host,
        other => return Err(unmovable(other, index)),
    })
}

/// Addresses from the first byte to the last of a box with these distances of rows and of slices.
fn hull(first: u64, [pitch, slice]: [usize; 2], [width, height, depth]: [usize; 3]) -> Range<u64> {
    if width * height * depth == 0 {
        return first..first;
    }
    first..first + ((depth - 1) * slice + (height - 1) * pitch + width) as u64
}

fn kernel(device: &Device, node: sys::CUgraphNode) -> Result<CapturedKernel> {
    let params = kernel_parameters(node)?;
    let mut raw = params.func;
    if raw.is_null() {
        // SAFETY: a node without a function has a kernel.
        check("cuKernelGetFunction", unsafe { sys::cuKernelGetFunction(&mut raw, params.kern) })?;
    }
    let function = Function::of_raw(device, raw, None)?;
    let mut words = Vec::new();
    if !params.kernelParams.is_null() {
        for (index, &size) in function.parameter_sizes().iter().enumerate() {
            // SAFETY: the driver's array has a pointer for each parameter of the kernel, to as many bytes as it has.
            let bytes =
                unsafe { std::slice::from_raw_parts((*params.kernelParams.add(index)).cast::<u8>(), size) };
            words.extend(words_of(bytes));
        }
    } else if !params.extra.is_null() {
        // SAFETY: the driver's list of the packed arguments, which ends as it demands.
        words.extend(words_of(unsafe { packed(params.extra) }));
    }
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared_bytes: params.sharedMemBytes,
    };
    Ok(CapturedKernel { function, shape, words: words.into() })
}

/// Arguments that a caller packed itself (`CU_LAUNCH_PARAM_BUFFER_POINTER`).
///
/// # Safety
/// `extra` is the list that `cuLaunchKernel` defines.
unsafe fn packed<'a>(mut extra: *mut *mut c_void) -> &'a [u8] {
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    let (mut bytes, mut size) = (std::ptr::null::<u8>(), 0);
    // SAFETY: names and values alternate up to a name that is null; the size is behind a pointer.
    unsafe {
        while !(*extra).is_null() {
            let value = *extra.add(1);
            match *extra as usize {
                POINTER => bytes = value.cast(),
                SIZE => size = *value.cast::<usize>(),
                _ => {}
            }
            extra = extra.add(2);
        }
        if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes, size) }
    }
}

fn kernel_parameters(node: sys::CUgraphNode) -> Result<sys::CUDA_KERNEL_NODE_PARAMS> {
    let mut params = MaybeUninit::zeroed();
    // SAFETY: a live node of this type; all fields may be zero, and the driver fills them.
    unsafe {
        let got = sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr());
        check("cuGraphKernelNodeGetParams", got)?;
        Ok(params.assume_init())
    }
}

fn fill_parameters(node: sys::CUgraphNode) -> Result<sys::CUDA_MEMSET_NODE_PARAMS> {
    let mut params = MaybeUninit::zeroed();
    // SAFETY: as above.
    unsafe {
        check("cuGraphMemsetNodeGetParams", sys::cuGraphMemsetNodeGetParams(node, params.as_mut_ptr()))?;
        Ok(params.assume_init())
    }
}

fn copy_parameters(node: sys::CUgraphNode) -> Result<sys::CUDA_MEMCPY3D> {
    let mut params = MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
    // SAFETY: as above; the memory types have values where the driver fills them.
    unsafe {
        (*params.as_mut_ptr()).srcMemoryType = MemoryType::CU_MEMORYTYPE_DEVICE;
        (*params.as_mut_ptr()).dstMemoryType = MemoryType::CU_MEMORYTYPE_DEVICE;
        check("cuGraphMemcpyNodeGetParams", sys::cuGraphMemcpyNodeGetParams(node, params.as_mut_ptr()))?;
        Ok(params.assume_init())
    }
}

fn child(node: sys::CUgraphNode) -> Result<sys::CUgraph> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: a live node of this type, which keeps the graph.
    check("cuGraphChildGraphNodeGetGraph", unsafe { sys::cuGraphChildGraphNodeGetGraph(node, &mut raw) })?;
    Ok(raw)
}

fn node_type(node: sys::CUgraphNode) -> Result<NodeType> {
    let mut kind = NodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: a live node; `kind` outlives the call.
    check("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, &mut kind) })?;
    Ok(kind)
}

/// Nodes in topological order; for a captured serial stream, its order.
fn in_order(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>> {
    let (nodes, pairs) = connected(graph)?;
    Ok(topological(nodes.len(), &pairs).into_iter().map(|index| nodes[index]).collect())
}

/// Nodes, and their edges by places in this list.
type Connected = (Vec<sys::CUgraphNode>, Vec<(usize, usize)>);

fn connected(graph: sys::CUgraph) -> Result<Connected> {
    let mut count = 0;
    // SAFETY: a live graph; a null array asks for the count.
    check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) })?;
    // The driver rejects a request for nothing, here and below.
    if count == 0 {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: room for `count` nodes.
    check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) })?;
    let mut edges = 0;
    let null = || std::ptr::null_mut::<sys::CUgraphNode_st>();
    // SAFETY: as above.
    check("cuGraphGetEdges", unsafe {
        sys::cuGraphGetEdges_v2(
            graph,
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
            sys::cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut edges)
        })?;
    }
    let place: HashMap<_, _> = nodes.iter().enumerate().map(|(index, &node)| (node, index)).collect();
    let pairs = from.iter().zip(&to).map(|(a, b)| (place[a], place[b])).collect();
    Ok((nodes, pairs))
}

/// An order of `0..count` in which the first of every pair precedes the second; lowest ready number first.
fn topological(count: usize, pairs: &[(usize, usize)]) -> Vec<usize> {
    let mut waits = vec![0; count];
    let mut next = vec![Vec::new(); count];
    for &(before, after) in pairs {
        waits[after] += 1;
        next[before].push(after);
    }
    let mut ready: BTreeSet<usize> = (0..count).filter(|&n| waits[n] == 0).collect();
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
    fn hulls_reach_from_the_first_byte_to_the_last() {
        assert_eq!(hull(100, [0, 0], [12, 1, 1]), 100..112, "one row needs no pitch");
        assert_eq!(hull(100, [32, 0], [12, 3, 1]), 100..176);
        assert_eq!(hull(100, [32, 128], [12, 3, 2]), 100..304);
        assert_eq!(hull(100, [32, 128], [12, 0, 2]), 100..100, "nothing");
    }

    #[test]
    fn packed_arguments_are_found() {
        let (values, size) = ([7u64, 0x1000], 16usize);
        let name = |number| std::ptr::without_provenance_mut::<c_void>(number);
        let (first, size) = (values.as_ptr().cast_mut().cast(), (&raw const size).cast_mut().cast());
        let mut list = [name(1), first, name(2), size, name(0)];
        // SAFETY: a list as `cuLaunchKernel` defines it.
        let bytes = unsafe { packed(list.as_mut_ptr()) };
        assert_eq!(words_of(bytes).collect::<Vec<_>>(), values);
    }

    #[test]
    fn captured_nodes_come_in_the_order_of_their_edges() {
        assert_eq!(topological(4, &[(3, 1), (1, 2), (2, 0)]), [3, 1, 2, 0]);
        assert_eq!(topological(3, &[]), [0, 1, 2]);
        assert_eq!(topological(4, &[(2, 0), (2, 1), (0, 3), (1, 3)]), [2, 0, 1, 3]);
    }
}
