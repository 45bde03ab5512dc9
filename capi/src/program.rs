//! What the functions of [`crate::dag`] record, schedule and build.

use std::ffi::{CString, c_char, c_void};
use std::ops::Range;
use std::sync::Arc;

use cusync::dag::{
    AccessMode, Addressable, Argument, DagError, Form, LaunchConfig, NodeId, Recording, estimate_us,
};
use cusync::device::{CapturedNode, CapturedWork, DeviceBuffer, Function, Graph, Image};
use cusync::prelude::{Device, Stream};
use cusync::programs::{
    AddressAccess, AddressMap, BoundRecording, Calls, Declaration, Error, Executable, Lent, Workspace,
};

use super::{Failure, null, slice, text};

/// `cusync_dag_access` of the header.
#[repr(C)]
pub struct CAccess {
    memory: *const c_void,
    bytes: usize,
    mode: u32,
}

/// `cusync_dag_argument` of the header.
#[repr(C)]
pub struct CArgument {
    pub(crate) value: *const c_void,
    pub(crate) bytes: usize,
}

/// `cusync_dag_node` of the header.
#[repr(C)]
pub struct CNode {
    pub(crate) name: *const c_char,
    accesses: *const CAccess,
    access_count: usize,
    us: f64,
    traffic: u64,
    flops: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    ctas_per_sm: u32,
    programmatic: u32,
}

/// `cusync_dag_workspace` of the header.
#[repr(C)]
pub struct CWorkspace {
    index: usize,
    memory: *mut c_void,
    bytes: usize,
}

/// `cusync_dag_enqueue` of the header.
pub(crate) type CEnqueue = unsafe extern "C" fn(*mut c_void, *mut c_void, *const CWorkspace) -> i32;

/// `cusync_dag_options` of the header.
#[repr(C)]
pub struct COptions {
    pub(crate) context: *mut c_void,
    form: *const c_char,
    most_streams: usize,
    streams: *const *mut c_void,
    stream_count: usize,
    workspaces: *const *mut c_void,
    workspace_count: usize,
    workspace_bytes: usize,
}

/// `cusync_dag_declare` of the header.
pub(crate) type CDeclare = unsafe extern "C" fn(*mut c_void, usize, *const c_char, *mut CNode) -> i32;

/// How a node runs.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(*mut c_void, Option<Image>),
    Opaque(CEnqueue, *mut c_void),
}

/// `cusync_dag` of the header.
pub struct CDag {
    pub(crate) recording: Recording,
    /// The image of later kernels.
    pub(crate) image: Option<Image>,
    work: Vec<Work>,
    /// Floating-point operations of nodes without a duration.
    estimated: Vec<(NodeId, u64)>,
}

/// `cusync_dag_run` of the header.
pub struct CRun {
    pub(crate) executable: Executable,
    pub(crate) device: Device,
    pub(crate) form: CString,
    pub(crate) unverified: CString,
    pub(crate) workspaces: usize,
}

/// A callback with its data.
struct Callback(CEnqueue, *mut c_void);

// SAFETY: the header demands that the callback may be called by the thread that builds a run, whichever it is.
unsafe impl Send for Callback {}

impl Callback {
    fn enqueue(&self, stream: &Stream, workspace: &Workspace) -> Result<(), String> {
        let Workspace { index, address, bytes } = *workspace;
        let given = CWorkspace { index, memory: address as *mut c_void, bytes: bytes as usize };
        // SAFETY: the header demands a function that is valid until the program is closed; both live during the call.
        match unsafe { (self.0)(self.1, stream.as_raw(), &given) } {
            0 => Ok(()),
            status => Err(format!("it returned {status}")),
        }
    }
}

/// Memory by its addresses.
pub(crate) struct Span(pub(crate) Range<u64>);

impl Addressable for Span {
    fn addresses(&self) -> Range<u64> {
        self.0.clone()
    }
}

impl From<DagError> for Failure {
    fn from(error: DagError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

/// A range of memory; null is refused unless it is empty.
pub(crate) fn span(memory: *const c_void, bytes: usize, argument: &str) -> Result<Range<u64>, Failure> {
    match (memory.is_null(), bytes) {
        (true, 1..) => Err(null(argument)),
        _ => Ok(memory as u64..(memory as u64).saturating_add(bytes as u64)),
    }
}

/// The declared accesses of a node, as arguments that are not passed.
///
/// # Safety
/// The header's contract.
pub(crate) unsafe fn accesses(node: &CNode) -> Result<Vec<Argument>, Failure> {
    // SAFETY: guaranteed by the caller.
    let given = unsafe { slice(node.accesses, node.access_count, "accesses") }?;
    let access = |access: &CAccess| {
        let AddressAccess { addresses: Range { start, end }, mode } = by_address(access)?;
        Ok(Argument::Addresses { first: start, bytes: end - start, mode, passed: false })
    };
    given.iter().map(access).collect()
}

fn by_address(access: &CAccess) -> Result<AddressAccess, Failure> {
    let mode = match access.mode {
        0 => AccessMode::Read,
        1 => AccessMode::Write,
        2 => AccessMode::ReadWrite,
        other => return Err(Failure::Argument(format!("there is no mode {other} of an access"))),
    };
    Ok(AddressAccess { addresses: span(access.memory, access.bytes, "memory of an access")?, mode })
}

/// A grid or a CTA: lengths past the first may be left out.
fn lengths(given: [u32; 3]) -> [u32; 3] {
    [given[0], given[1].max(1), given[2].max(1)]
}

impl CDag {
    /// An empty program.
    pub(crate) fn new(name: &str) -> CDag {
        CDag { recording: Recording::new(name), image: None, work: Vec::new(), estimated: Vec::new() }
    }

    /// Records a node; `function` and `arguments` are of a kernel, `workspace` of an opaque node.
    pub(crate) fn record(
        &mut self,
        node: &CNode,
        name: &str,
        arguments: Vec<Argument>,
        work: Work,
        workspace: u64,
    ) -> Result<NodeId, Failure> {
        let mut launch = LaunchConfig {
            grid: lengths(node.grid),
            block: lengths(node.block),
            shared_bytes: node.shared_bytes,
        };
        let mut ctas_per_sm = node.ctas_per_sm;
        if matches!(work, Work::Opaque(..)) && node.grid[0] == 0 {
            // As many CTAs as fill any GPU, one on each SM.
            (launch, ctas_per_sm) = (LaunchConfig::linear(1 << 16, 256), 1);
        }
        let opaque = matches!(work, Work::Opaque(..)).then_some(workspace);
        let id = self.recording.launch_with(name, launch, node.us, &arguments, |kernel| {
            (kernel.programmatic, kernel.workspace) = (node.programmatic != 0, opaque);
            if ctas_per_sm > 0 {
                kernel.ctas_per_sm = ctas_per_sm;
            }
            if node.traffic > 0 {
                kernel.traffic_bytes = node.traffic;
            }
        })?;
        self.work.push(work);
        if node.us == 0.0 {
            self.estimated.push((id, node.flops));
        }
        Ok(id)
    }

    /// Schedules the program, proves the schedule, and builds what it launches.
    pub(crate) fn build(&self, device: Device, options: &Given) -> Result<CRun, Failure> {
        let function = |id: NodeId, _: &str| match &self.work[id.index()] {
            Work::Kernel(function, image) => {
                // SAFETY: the header demands a kernel of this context that stays loaded.
                let function = unsafe { Function::from_raw(&device, *function) }?;
                Ok(image.iter().fold(function, Function::of_image))
            }
            Work::Opaque(..) => unreachable!("only kernels have functions"),
        };
        let mut bound = BoundRecording::with_functions(&self.recording, &device, function)?;
        for (index, work) in self.work.iter().enumerate() {
            if let &Work::Opaque(enqueue, data) = work {
                let callback = Callback(enqueue, data);
                bound
                    .set_opaque(index.into(), move |stream, workspace| callback.enqueue(stream, workspace))?;
            }
        }
        let profile = device.profile().ok_or_else(|| Error::TooOld(device.name().into()))?;
        for &(id, flops) in &self.estimated {
            let traffic = bound.program().node(id).kernel().map_or(0, |kernel| kernel.traffic_bytes);
            bound.set_us(id, estimate_us(traffic, flops, &profile))?;
        }
        built(bound.calls(), device, options)
    }
}

/// Schedules a program, proves the schedule, and builds what it launches.
pub(crate) fn built(calls: &Calls, device: Device, options: &Given) -> Result<CRun, Failure> {
    let program = calls.program();
    let found = calls.schedule(&device, options.form.as_slice(), options.most)?;
    let plan = found.plan(program, found.form).prove(program).map_err(Error::from)?;
    let main = Arc::new(Stream::new(&device)?);
    let lent = Lent { streams: &options.streams, workspaces: &options.workspaces };
    let executable = calls.executable_with(&main, &plan, &lent)?;
    let form = CString::new(format!("{:?}", found.form)).unwrap_or_default();
    let name = |id: NodeId| &program.node(id).name;
    let unverified: String = plan.unverified().map(|(id, why)| format!("{}: {why}\n", name(id))).collect();
    let unverified = CString::new(unverified).unwrap_or_default();
    let workspaces = plan.workspaces().bytes().len();
    Ok(CRun { executable, device, form, unverified, workspaces })
}

/// A function that declares captured nodes, with its data.
pub(crate) struct Declare {
    pub(crate) function: CDeclare,
    pub(crate) data: *mut c_void,
}

impl Declare {
    /// Asks the function about a node; 0 and nothing for what it leaves to be derived.
    fn ask(&self, node: &CapturedNode) -> Result<(Option<Vec<AddressAccess>>, f64, bool), Failure> {
        let kernel = match &node.work {
            CapturedWork::Kernel(kernel) => CString::new(kernel.function.name()).ok(),
            _ => None,
        };
        let name = kernel.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: numbers may be 0, and pointers null.
        let mut given: CNode = unsafe { std::mem::zeroed() };
        // SAFETY: the header demands a function that keeps what it states until it is called again.
        match unsafe { (self.function)(self.data, node.index, name, &mut given) } {
            0 => Ok((None, given.us, false)),
            1 => {
                // SAFETY: as above.
                let stated = unsafe { slice(given.accesses, given.access_count, "accesses") }?;
                let stated = stated.iter().map(by_address).collect::<Result<_, _>>()?;
                Ok((Some(stated), given.us, given.programmatic != 0))
            }
            status => Err(Failure::Failed(format!("node {}: `declare` returned {status}", node.index))),
        }
    }
}

/// The program of a captured graph, from what a function declares, and otherwise from addresses in memory.
///
/// # Safety
/// The header's contract.
pub(crate) unsafe fn adopted(
    device: &Device,
    graph: *mut c_void,
    memory: &[CAccess],
    declare: Option<&Declare>,
) -> Result<Calls, Failure> {
    let map = AddressMap::new(memory.iter().map(by_address).collect::<Result<Vec<_>, _>>()?);
    // SAFETY: guaranteed by the caller.
    let graph = unsafe { Graph::copy_of(device, graph) }?;
    let mut failed = None;
    let found = Calls::adopt(device, graph, |node| {
        let (stated, us, programmatic) = match declare.map(|declare| declare.ask(node)) {
            None => (None, 0.0, false),
            Some(Ok(answer)) => answer,
            Some(Err(failure)) => {
                // The first failure is the caller's answer.
                failed.get_or_insert(failure);
                (None, 0.0, false)
            }
        };
        let accesses = match stated {
            Some(stated) => Some(stated),
            None => map.accesses(device, node, &[])?,
        };
        Ok(Declaration { accesses, us: (us != 0.0).then_some(us), programmatic, image: None })
    })?;
    failed.map_or(Ok(found), Err)
}

/// What `cusync_dag_options` says.
#[derive(Default)]
pub(crate) struct Given {
    form: Option<Form>,
    most: Option<usize>,
    streams: Vec<Arc<Stream>>,
    workspaces: Vec<Arc<DeviceBuffer<u8>>>,
}

/// # Safety
/// The header's contract.
pub(crate) unsafe fn given(options: &COptions, device: &Device) -> Result<Given, Failure> {
    // SAFETY: guaranteed by the caller.
    let (streams, workspaces) = unsafe {
        (
            slice(options.streams, options.stream_count, "streams")?,
            slice(options.workspaces, options.workspace_count, "workspaces")?,
        )
    };
    // SAFETY: the header demands streams of this context that outlive the run.
    let stream = |&raw: &*mut c_void| Arc::new(unsafe { Stream::from_raw(device, raw) });
    let workspace = |&raw: &*mut c_void| {
        // SAFETY: the header demands that much memory of this context, which outlives the run.
        unsafe { DeviceBuffer::borrow(device, raw, options.workspace_bytes) }.map(Arc::new)
    };
    Ok(Given {
        form: form(options)?,
        most: (options.most_streams > 0).then_some(options.most_streams),
        streams: streams.iter().map(stream).collect(),
        workspaces: workspaces.iter().map(workspace).collect::<Result<_, _>>()?,
    })
}

pub(crate) fn form(options: &COptions) -> Result<Option<Form>, Failure> {
    if options.form.is_null() {
        return Ok(None);
    }
    // SAFETY: the header demands a zero-terminated string.
    let id = unsafe { text(options.form, "form") }?;
    let none = || Failure::Argument(format!("there is no form `{id}`; there are {:?}", Form::ALL));
    Form::named(id).ok_or_else(none).map(Some)
}
