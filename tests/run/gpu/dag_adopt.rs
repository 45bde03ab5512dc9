//! Captured graphs of foreign code, rescheduled: kernels with attributes of their launch, memsets, copies of all kinds, a
//! graph in the graph and a function on the host leave the same bytes as the graph itself.

// The tests act as the foreign code, which has raw handles instead of types.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{self, CUlaunchAttributeID_enum as Attribute};
use cusync::device::{
    CapturedNode, CapturedWork, Device, DeviceBuffer, EdgeKind, Error as DeviceError, Graph, Image, Stream,
};
use cusync::programs::{AddressAccess, AddressMap, Calls, Declaration, Error};
use cusync_dag::{AccessMode, NodeId, analyse};

use crate::common::{Gpu, gpu, quick};

const CTAS: u32 = 6;
const THREADS: u32 = 128;
const WORDS: usize = (CTAS * THREADS) as usize;
const BYTES: usize = 4 * WORDS;
/// How long every third CTA of a delayed kernel sleeps, nanoseconds.
const DELAY: u32 = 200_000;

fn ok(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// Foreign code: a module, a stream, and memory with names for tests.
struct Foreign {
    _gpu: Gpu,
    device: Device,
    module: sys::CUmodule,
    spin: sys::CUfunction,
    stream: Stream,
    /// On the device, by name: `a` to `g`, then `end`.
    memory: Vec<DeviceBuffer<u32>>,
    delay: DeviceBuffer<u32>,
    /// Page-locked memory: what is uploaded, then what is downloaded.
    host: [*mut u32; 2],
    calls: Arc<AtomicU32>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _entered = self.device.enter().expect("a context");
        // SAFETY: nothing is running.
        unsafe {
            ok(sys::cuModuleUnload(self.module));
            self.host.iter().for_each(|memory| ok(sys::cuMemFreeHost(memory.cast())));
        }
    }
}

unsafe extern "C" fn count(calls: *mut c_void) {
    // SAFETY: the counter of a `Foreign`, which outlives its graphs.
    unsafe { &*calls.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn foreign() -> Option<Foreign> {
    let gpu = gpu()?;
    let device = gpu.device.clone();
    let image = Image::suite().expect("built with the other kernels");
    let stream = Stream::new(&device).expect("a stream");
    let buffer = |k: usize| DeviceBuffer::from_slice(&device, &vec![0; WORDS], &format!("memory {k}"));
    let memory = (0..8).map(|k| buffer(k).expect("memory")).collect();
    let delay = DeviceBuffer::from_slice(&device, &[DELAY], "the delay").expect("memory");
    let (mut module, mut spin) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut host = [std::ptr::null_mut::<u32>(); 2];
    let _entered = device.enter().expect("a context");
    // SAFETY: a complete image, aligned by its copy in words; the handles outlive the calls.
    unsafe {
        let mut words = vec![0u64; image.bytes().len().div_ceil(8)];
        std::ptr::copy_nonoverlapping(image.bytes().as_ptr(), words.as_mut_ptr().cast(), image.bytes().len());
        ok(sys::cuModuleLoadData(&mut module, words.as_ptr().cast()));
        ok(sys::cuModuleGetFunction(&mut spin, module, c"spin".as_ptr()));
        for memory in &mut host {
            ok(sys::cuMemAllocHost_v2((&raw mut *memory).cast(), BYTES));
        }
    }
    let calls = Arc::default();
    Some(Foreign { _gpu: gpu, device, module, spin, stream, memory, delay, host, calls })
}

impl Foreign {
    fn raw(&self) -> sys::CUstream {
        self.stream.as_raw().cast()
    }

    fn address(&self, name: usize) -> u64 {
        self.memory[name].pointer() as u64
    }

    /// Queues `spin` from two buffers to a third one with attributes of its launch.
    fn spin(
        &self,
        from: [usize; 2],
        to: usize,
        seed: u32,
        delayed: bool,
        attributes: &[sys::CUlaunchAttribute],
    ) {
        let (from, to) = (from.map(|name| self.address(name)), self.address(to));
        let delay = if delayed { self.delay.pointer() as u64 } else { 0 };
        let pointers = [from[0], from[1], 0, 0, to, 0, delay, 0];
        let numbers = [WORDS as u32, 2, 1, 0, seed, 0];
        let place = |index: usize| (&raw const pointers[index]).cast_mut().cast::<c_void>();
        let number = |index: usize| (&raw const numbers[index]).cast_mut().cast::<c_void>();
        let mut parameters: Vec<*mut c_void> = (0..6).map(place).collect();
        parameters.extend((0..6).map(number));
        parameters.extend([place(6), place(7)]);
        let config = sys::CUlaunchConfig {
            gridDimX: CTAS,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: THREADS,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: self.raw(),
            attrs: attributes.as_ptr().cast_mut(),
            numAttrs: attributes.len() as u32,
        };
        // SAFETY: a live stream and kernel; the parameters are copied.
        ok(unsafe {
            sys::cuLaunchKernelEx(&config, self.spin, parameters.as_mut_ptr(), std::ptr::null_mut())
        });
    }

    /// What `work` queues on the stream.
    fn captured(&self, work: impl FnOnce()) -> Graph {
        Graph::captured(&self.stream, || {
            work();
            Ok::<(), Error>(())
        })
        .expect("captured")
    }

    /// Two branches, `a` to `c` and `b` to `g`, and their join, with a node of each type.
    fn graph(&self) -> Graph {
        let inner = self.captured(|| {
            self.spin([3, 3], 5, 3, true, &[]);
            self.spin([5, 3], 6, 4, false, &[]);
        });
        self.captured(|| {
            // SAFETY: memory of this size, which outlives the graph.
            unsafe {
                ok(sys::cuMemcpyHtoDAsync_v2(self.address(0), self.host[0].cast(), BYTES, self.raw()));
                ok(sys::cuMemsetD32Async(self.address(1), 7, WORDS, self.raw()));
            }
            self.spin([0, 0], 2, 1, true, &attributes(&self.device, 2));
            self.spin([1, 1], 3, 2, true, &attributes(&self.device, 1));
            // Every second half of a row of 16 bytes.
            let rows = sys::CUDA_MEMCPY2D {
                srcXInBytes: 8,
                srcY: 0,
                srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
                srcHost: std::ptr::null(),
                srcDevice: self.address(2),
                srcArray: std::ptr::null_mut(),
                srcPitch: 16,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstHost: std::ptr::null_mut(),
                dstDevice: self.address(4),
                dstArray: std::ptr::null_mut(),
                dstPitch: 16,
                WidthInBytes: 8,
                Height: BYTES / 16,
            };
            // SAFETY: rows inside both buffers.
            ok(unsafe { sys::cuMemcpy2DAsync_v2(&rows, self.raw()) });
            inner.join_capture(&self.stream).expect("joined");
            let calls = Arc::as_ptr(&self.calls).cast_mut().cast();
            // SAFETY: the counter outlives the graph.
            ok(unsafe { sys::cuLaunchHostFunc(self.raw(), Some(count), calls) });
            self.spin([4, 6], 7, 5, false, &[]);
            // SAFETY: as above.
            ok(unsafe { sys::cuMemcpyDtoHAsync_v2(self.host[1].cast(), self.address(7), BYTES, self.raw()) });
        })
    }

    /// Poisons all memory but the delay, uploads an input, lets `launch` run, and returns all memory.
    fn run(&self, input: u32, launch: impl FnOnce()) -> Vec<Vec<u32>> {
        self.memory.iter().for_each(|buffer| buffer.upload(&vec![u32::MAX; WORDS]).expect("poisoned"));
        // SAFETY: page-locked memory of this size, which nothing is using.
        unsafe {
            (0..WORDS).for_each(|word| self.host[0].add(word).write(input.wrapping_add(word as u32)));
            (0..WORDS).for_each(|word| self.host[1].add(word).write(u32::MAX));
        }
        launch();
        self.device.synchronize().expect("ended");
        let words = |buffer: &DeviceBuffer<u32>| {
            let mut words = vec![0; WORDS];
            buffer.download(&mut words).expect("downloaded");
            words
        };
        let mut found: Vec<_> = self.memory.iter().map(words).collect();
        // SAFETY: as above.
        found.push((0..WORDS).map(|word| unsafe { self.host[1].add(word).read() }).collect());
        found
    }

    /// Adopts a graph with accesses by addresses; all kernels only read the delay.
    fn adopted(&self, graph: Graph) -> Calls {
        let delay = self.delay.addresses();
        let addresses = delay.start as u64..delay.end as u64;
        let map = AddressMap::new([AddressAccess { addresses, mode: AccessMode::Read }]);
        Calls::adopt(&self.device, graph, |node: &CapturedNode| {
            let accesses = map.accesses(&self.device, node, &[])?;
            Ok(Declaration { accesses, us: Some(200.0), ..Declaration::default() })
        })
        .expect("adopted")
    }
}

/// Clusters of so many CTAs where the GPU has them, and a priority.
fn attributes(device: &Device, cluster: u32) -> Vec<sys::CUlaunchAttribute> {
    let attribute =
        |id| sys::CUlaunchAttribute { id, pad: [0; 4], value: sys::CUlaunchAttributeValue { pad: [0; 64] } };
    let mut priority = attribute(Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY);
    priority.value.priority = -1;
    let mut clusters = attribute(Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    clusters.value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: cluster, y: 1, z: 1 };
    if device.capability().0 >= 9 { vec![priority, clusters] } else { vec![priority] }
}

/// Priority and first length of clusters of each kernel of a graph.
fn attributes_of(graph: &Graph) -> Vec<(i32, u32)> {
    let mut count = 64;
    let mut nodes = vec![std::ptr::null_mut(); count];
    let mut found = Vec::new();
    // SAFETY: a live graph of fewer nodes than there is room for.
    unsafe {
        ok(sys::cuGraphGetNodes(graph.as_raw().cast(), nodes.as_mut_ptr(), &mut count));
        for &node in &nodes[..count] {
            let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            ok(sys::cuGraphNodeGetType(node, &mut kind));
            if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
                continue;
            }
            let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
            let priority = Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY;
            ok(sys::cuGraphKernelNodeGetAttribute(node, priority, &mut value));
            let priority = value.priority;
            let cluster = Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            ok(sys::cuGraphKernelNodeGetAttribute(node, cluster, &mut value));
            found.push((priority, value.clusterDim.x));
        }
    }
    found
}

#[test]
fn a_foreign_graph_is_bit_equal_to_its_own_replay() {
    let Some(foreign) = foreign() else { return };
    let graph = foreign.graph();
    let own = graph.instantiate(&foreign.stream).expect("instantiated");
    // SAFETY: a live graph that nobody else uses; its memory outlives the copy.
    let copy = unsafe { Graph::copy_of(&foreign.device, graph.as_raw()) }.expect("a copy");
    assert!(copy.is_serial().expect("listed"), "one stream was captured");
    drop(graph);
    let adopted = foreign.adopted(copy);
    let program = adopted.program();
    let names: Vec<&str> = program.nodes().iter().map(|node| &*node.name).collect();
    let want = ["memcpy", "memset", "spin", "spin", "memcpy", "graph", "host", "spin", "memcpy"];
    assert_eq!(names, want);
    let found = analyse(program);
    let waits = |after: u32| (0..after).filter(|&id| found.reaches(NodeId(id), NodeId(after))).collect();
    let all: Vec<Vec<u32>> = (0..7).map(waits).collect();
    let before: [&[u32]; 7] = [&[], &[], &[0], &[1], &[0, 2], &[1, 3], &[0, 1, 2, 3, 4, 5]];
    assert_eq!(all, before, "two branches, and a barrier behind them");
    let main = Arc::new(Stream::new(&foreign.device).expect("a stream"));
    let schedule = adopted.schedule(&foreign.device, &[], None).expect("a schedule");
    let offered = schedule.predictions.iter().map(|prediction| prediction.form);
    for form in offered {
        let exec = adopted.scheduled(&main, &schedule, form).expect("built");
        let most = if quick() { 10 } else { 100 };
        for run in 0..if form == schedule.form { most } else { 5 } {
            let want = foreign.run(run * 31, || own.launch(&foreign.stream).expect("launched"));
            let have = foreign.run(run * 31, || exec.launch().expect("launched"));
            assert!(have == want, "{}, run {run}: not bit-equal", form.name());
            assert!(have[7] != vec![u32::MAX; WORDS] && have[7] == have[8], "the end is downloaded");
        }
    }
    let plain = foreign.calls.swap(0, Ordering::SeqCst);
    assert!(plain.is_multiple_of(2) && plain > 0, "{plain} calls of the host by two graphs in turns");
}

#[test]
fn attributes_of_launches_are_kept() {
    let Some(foreign) = foreign() else { return };
    let graph = foreign.graph();
    let mut again = Graph::new(&foreign.device).expect("a graph");
    let mut last = None;
    for node in graph.captured_nodes().expect("listed") {
        let after: Vec<_> = last.map(|last| (last, EdgeKind::Full)).into_iter().collect();
        last = Some(again.add_captured(&graph, node.index, &after).expect("added"));
    }
    let clusters = u32::from(foreign.device.capability().0 >= 9);
    let have = attributes_of(&again);
    assert_eq!(have, attributes_of(&graph));
    assert!(have.contains(&(-1, 2 * clusters)), "as they were launched: {have:?}");
}

#[test]
fn nodes_that_cannot_be_moved_are_refused_by_name() {
    let Some(foreign) = foreign() else { return };
    let mut event = std::ptr::null_mut();
    // SAFETY: a current context; the event outlives the graph.
    let graph = unsafe {
        let _entered = foreign.device.enter().expect("a context");
        ok(sys::cuEventCreate(&mut event, 0));
        foreign.captured(|| {
            foreign.spin([0, 0], 1, 1, false, &[]);
            let external = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
            ok(sys::cuEventRecordWithFlags(event, foreign.raw(), external));
        })
    };
    let refused = |fault: DeviceError| {
        assert!(matches!(fault, DeviceError::Unmovable { node: 1, .. }), "{fault}");
        assert!(fault.to_string().contains("help: record and wait for events before or after"), "{fault}");
    };
    // SAFETY: a live graph that nobody else uses.
    refused(unsafe { Graph::copy_of(&foreign.device, graph.as_raw()) }.expect_err("an event"));
    match Calls::adopt(&foreign.device, graph, |_| Ok(Declaration::default())) {
        Err(Error::Device(fault)) => refused(fault),
        other => panic!("an event was taken: {other:?}"),
    }
    // SAFETY: no graph that records it is left.
    ok(unsafe { sys::cuEventDestroy_v2(event) });
    let empty = Graph::new(&foreign.device).expect("a graph");
    let fault = Calls::adopt(&foreign.device, empty, |_| Ok(Declaration::default())).expect_err("nothing");
    assert!(matches!(fault, Error::NothingCaptured), "{fault}");
}

/// Arguments of kernels hold tensor maps by value: the address of the tensor is a word of them.
#[test]
fn tensor_maps_hold_their_address_as_a_word() {
    let Some(foreign) = foreign() else { return };
    if foreign.device.capability().0 < 9 {
        println!("skipped: tensor maps exist from compute capability 9.0 on");
        return;
    }
    let (sizes, box_sizes, strides) = ([16u64, 8], [16u32, 8], [64u64]);
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: a live buffer of at least 8 rows of 64 bytes.
    ok(unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            2,
            foreign.memory[3].pointer(),
            sizes.as_ptr(),
            strides.as_ptr(),
            box_sizes.as_ptr(),
            [1u32, 1].as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    });
    assert!(map.opaque.contains(&foreign.address(3)), "{map:x?}");
}

/// Words of arguments are found, and a kernel of which nothing is known is a barrier.
#[test]
fn kernels_without_known_addresses_are_barriers() {
    let Some(foreign) = foreign() else { return };
    let graph = foreign.captured(|| {
        foreign.spin([0, 0], 1, 1, false, &[]);
        foreign.spin([2, 2], 3, 2, false, &[]);
    });
    let nodes = graph.captured_nodes().expect("listed");
    let CapturedWork::Kernel(kernel) = &nodes[1].work else { panic!("{:?}", nodes[1].work) };
    let addresses = [foreign.address(2), foreign.address(2), 0, 0, foreign.address(3), 0];
    assert_eq!((kernel.function.name(), &kernel.words[..6]), ("spin", &addresses[..]));
    let calls = Calls::adopt(&foreign.device, graph, |_| Ok(Declaration::default())).expect("adopted");
    assert!(analyse(calls.program()).reaches(NodeId(0), NodeId(1)), "nothing is known");
    let again = foreign.captured(|| {
        foreign.spin([0, 0], 1, 1, false, &[]);
        foreign.spin([2, 2], 3, 2, false, &[]);
    });
    let derived = foreign.adopted(again);
    assert!(!analyse(derived.program()).reaches(NodeId(0), NodeId(1)), "no byte is shared");
}
