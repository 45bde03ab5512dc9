//! Programs of kernels over memory of the caller: exactly the functions declared in `include/cusync/dag.h`. They wrap
//! [`cusync::dag::Recording`] and [`cusync::programs`].

use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::sync::Arc;

use cusync::dag::{
    AccessMode, Addressable, Argument, DagError, Form, LaunchConfig, NodeId, Recording, ScheduleOptions,
    analyse, estimate_us, schedule,
};
use cusync::device::{DeviceBuffer, Function};
use cusync::prelude::{Device, Stream};
use cusync::programs::{BoundRecording, Error, Executable, Lent, Workspace};

use super::{Failure, call, null, slice, text};

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
    value: *const c_void,
    bytes: usize,
}

/// `cusync_dag_node` of the header.
#[repr(C)]
pub struct CNode {
    name: *const c_char,
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
type CEnqueue = unsafe extern "C" fn(*mut c_void, *mut c_void, *const CWorkspace) -> i32;

/// `cusync_dag_options` of the header.
#[repr(C)]
pub struct COptions {
    context: *mut c_void,
    form: *const c_char,
    most_streams: usize,
    streams: *const *mut c_void,
    stream_count: usize,
    workspaces: *const *mut c_void,
    workspace_count: usize,
    workspace_bytes: usize,
}

/// How a node runs.
#[derive(Clone, Copy)]
enum Work {
    Kernel(*mut c_void),
    Opaque(CEnqueue, *mut c_void),
}

/// `cusync_dag` of the header.
pub struct CDag {
    recording: Recording,
    work: Vec<Work>,
    /// Floating-point operations of nodes without a duration.
    estimated: Vec<(NodeId, u64)>,
}

/// `cusync_dag_run` of the header.
pub struct CRun {
    executable: Executable,
    device: Device,
    form: std::ffi::CString,
    workspaces: usize,
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
struct Span(Range<u64>);

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

/// # Safety
/// `dag` is null or created by this library, and not used concurrently.
unsafe fn opened<'a>(dag: *mut CDag) -> Result<&'a mut CDag, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { dag.as_mut() }.ok_or_else(|| null("dag"))
}

/// # Safety
/// `to` is null or valid for writes.
unsafe fn give<T>(to: *mut T, value: T, argument: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(null(argument));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// `made` is null, or was made by this library and is closed once.
unsafe fn close<T>(made: *mut T) {
    if !made.is_null() {
        let closed = call(|| {
            // SAFETY: guaranteed by the caller.
            drop(unsafe { Box::from_raw(made) });
            Ok(())
        });
        debug_assert_eq!(closed, 0);
    }
}

/// A range of memory; null is refused unless it is empty.
fn span(memory: *const c_void, bytes: usize, argument: &str) -> Result<Range<u64>, Failure> {
    match (memory.is_null(), bytes) {
        (true, 1..) => Err(null(argument)),
        _ => Ok(memory as u64..(memory as u64).saturating_add(bytes as u64)),
    }
}

/// The declared accesses of a node, as arguments that are not passed.
///
/// # Safety
/// The header's contract.
unsafe fn accesses(node: &CNode) -> Result<Vec<Argument>, Failure> {
    // SAFETY: guaranteed by the caller.
    let given = unsafe { slice(node.accesses, node.access_count, "accesses") }?;
    let access = |access: &CAccess| {
        let mode = match access.mode {
            0 => AccessMode::Read,
            1 => AccessMode::Write,
            2 => AccessMode::ReadWrite,
            other => return Err(Failure::Argument(format!("there is no mode {other} of an access"))),
        };
        let Range { start, end } = span(access.memory, access.bytes, "memory of an access")?;
        Ok(Argument::Addresses { first: start, bytes: end - start, mode, passed: false })
    };
    given.iter().map(access).collect()
}

/// A grid or a CTA: lengths past the first may be left out.
fn lengths(given: [u32; 3]) -> [u32; 3] {
    [given[0], given[1].max(1), given[2].max(1)]
}

impl CDag {
    /// Records a node; `function` and `arguments` are of a kernel, `workspace` of an opaque node.
    fn record(
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
    fn build(&self, device: Device, options: &Given) -> Result<CRun, Failure> {
        let function = |id: NodeId, _: &str| match self.work[id.index()] {
            // SAFETY: the header demands a kernel of this context that stays loaded.
            Work::Kernel(function) => unsafe { Function::from_raw(&device, function) },
            Work::Opaque(..) => unreachable!("only kernels have functions"),
        };
        let mut bound = BoundRecording::with_functions(&self.recording, &device, function)?;
        for (index, &work) in self.work.iter().enumerate() {
            if let Work::Opaque(enqueue, data) = work {
                let callback = Callback(enqueue, data);
                bound
                    .set_opaque(index.into(), move |stream, workspace| callback.enqueue(stream, workspace))?;
            }
        }
        let profile = device.profile().ok_or_else(|| {
            Failure::Failed(format!("{} is older than compute capability 8.0", device.name()))
        })?;
        for &(id, flops) in &self.estimated {
            let traffic = bound.program().node(id).kernel().map_or(0, |kernel| kernel.traffic_bytes);
            bound.set_us(id, estimate_us(traffic, flops, &profile))?;
        }
        let early = device.capability().0 >= 9;
        let forms = Form::ALL.into_iter().filter(|form| early || !form.is_programmatic());
        let forms = forms.filter(|form| options.form.is_none_or(|only| *form == only)).collect();
        let asked = ScheduleOptions { forms, streams: options.most, device: profile, ..Default::default() };
        let found = schedule(bound.program(), &asked);
        if options.form.is_some_and(|form| form != found.form) {
            return Err(Failure::Failed(
                "the form is not offered: it needs more streams, or a newer GPU".into(),
            ));
        }
        let plan = found.plan(bound.program(), found.form).prove(bound.program()).map_err(Error::from)?;
        let main = Arc::new(Stream::new(&device)?);
        let lent = Lent { streams: &options.streams, workspaces: &options.workspaces };
        let executable = bound.calls().executable_with(&main, &plan, &lent)?;
        let form = std::ffi::CString::new(format!("{:?}", found.form)).unwrap_or_default();
        Ok(CRun { executable, device: device.clone(), form, workspaces: plan.workspaces().bytes().len() })
    }
}

/// What `cusync_dag_options` says.
#[derive(Default)]
struct Given {
    form: Option<Form>,
    most: Option<usize>,
    streams: Vec<Arc<Stream>>,
    workspaces: Vec<Arc<DeviceBuffer<u8>>>,
}

/// # Safety
/// The header's contract.
unsafe fn given(options: &COptions, device: &Device) -> Result<Given, Failure> {
    // SAFETY: guaranteed by the caller.
    let (streams, workspaces) = unsafe {
        (
            slice(options.streams, options.stream_count, "streams")?,
            slice(options.workspaces, options.workspace_count, "workspaces")?,
        )
    };
    // SAFETY: the header demands streams of this context that outlive the run.
    let stream = |&raw: &*mut c_void| Arc::new(unsafe { Stream::from_raw(device, raw) });
    // SAFETY: the header demands that much memory of this context, which outlives the run.
    let workspace = |&raw: &*mut c_void| {
        unsafe { DeviceBuffer::borrow(device, raw, options.workspace_bytes) }.map(Arc::new)
    };
    Ok(Given {
        form: form(options)?,
        most: (options.most_streams > 0).then_some(options.most_streams),
        streams: streams.iter().map(stream).collect(),
        workspaces: workspaces.iter().map(workspace).collect::<Result<_, _>>()?,
    })
}

fn form(options: &COptions) -> Result<Option<Form>, Failure> {
    if options.form.is_null() {
        return Ok(None);
    }
    // SAFETY: the header demands a zero-terminated string.
    let id = unsafe { text(options.form, "form") }?;
    let none = || Failure::Argument(format!("there is no form `{id}`; there are {:?}", Form::ALL));
    Form::named(id).ok_or_else(none).map(Some)
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_open(name: *const c_char, out: *mut *mut CDag) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name, "name") }?;
        let dag = CDag { recording: Recording::new(name), work: Vec::new(), estimated: Vec::new() };
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: not null; guaranteed by the caller.
        unsafe { give(out, Box::into_raw(Box::new(dag)), "out") }
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_memory(dag: *mut CDag, memory: *const c_void, bytes: usize) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let dag = unsafe { opened(dag) }?;
        Ok(dag.recording.memory(&Span(span(memory, bytes, "memory")?))?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_zone(dag: *mut CDag, name: *const c_char, priority: i32) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (dag, name) = unsafe { (opened(dag)?, text(name, "name")?) };
        dag.recording.begin_zone(name, priority);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_kernel(
    dag: *mut CDag,
    node: *const CNode,
    function: *mut c_void,
    arguments: *const CArgument,
    argument_count: usize,
    id: *mut u32,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (dag, node) = unsafe { (opened(dag)?, node.as_ref().ok_or_else(|| null("node"))?) };
        // SAFETY: guaranteed by the caller.
        let (name, declared) = unsafe { (text(node.name, "name")?, accesses(node)?) };
        // SAFETY: guaranteed by the caller.
        let values = unsafe { slice(arguments, argument_count, "arguments") }?;
        let mut passed = Vec::with_capacity(values.len() + declared.len());
        for CArgument { value, bytes } in values {
            // SAFETY: guaranteed by the caller.
            let value = unsafe { slice(value.cast::<u8>(), *bytes, "value of an argument") }?;
            passed.push(Argument::Value(value.into()));
        }
        passed.extend(declared);
        if function.is_null() || id.is_null() {
            return Err(null("function or id"));
        }
        let made = dag.record(node, name, passed, Work::Kernel(function), 0)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(id, made.0, "id") }
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_opaque(
    dag: *mut CDag,
    node: *const CNode,
    enqueue: Option<CEnqueue>,
    data: *mut c_void,
    workspace_bytes: usize,
    id: *mut u32,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (dag, node) = unsafe { (opened(dag)?, node.as_ref().ok_or_else(|| null("node"))?) };
        // SAFETY: guaranteed by the caller.
        let (name, declared) = unsafe { (text(node.name, "name")?, accesses(node)?) };
        let (Some(enqueue), false) = (enqueue, id.is_null()) else { return Err(null("enqueue or id")) };
        let made = dag.record(node, name, declared, Work::Opaque(enqueue, data), workspace_bytes as u64)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(id, made.0, "id") }
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_depends(
    dag: *mut CDag,
    node: u32,
    before: u32,
    depends: *mut i32,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let program = unsafe { opened(dag) }?.recording.program();
        for node in [node, before] {
            if node as usize >= program.nodes().len() {
                return Err(DagError::NoNode { node }.into());
            }
        }
        let found = node != before && analyse(program).reaches(NodeId(before), NodeId(node));
        // SAFETY: guaranteed by the caller.
        unsafe { give(depends, i32::from(found), "depends") }
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_build(
    dag: *mut CDag,
    options: *const COptions,
    out: *mut *mut CRun,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (dag, options) = unsafe { (opened(dag)?, options.as_ref()) };
        if out.is_null() {
            return Err(null("out"));
        }
        options.map_or(Ok(None), form)?;
        let context = options.map_or(std::ptr::null_mut(), |options| options.context);
        let device = match context.is_null() {
            true => Device::current()?,
            // SAFETY: the header demands a live context that outlives the run.
            false => unsafe { Device::from_context(context) }?,
        };
        // SAFETY: guaranteed by the caller.
        let options = unsafe { options.map_or(Ok(Given::default()), |options| given(options, &device)) }?;
        let run = dag.build(device, &options)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Box::into_raw(Box::new(run)), "out") }
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_form(run: *const CRun) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { run.as_ref() }.map_or(c"".as_ptr(), |run| run.form.as_ptr())
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_workspaces(run: *const CRun) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { run.as_ref() }.map_or(0, |run| run.workspaces)
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_launch(run: *const CRun, stream: *mut c_void) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let run = unsafe { run.as_ref() }.ok_or_else(|| null("run"))?;
        // SAFETY: guaranteed by the caller; the stream outlives this call.
        let stream = unsafe { Stream::from_raw(&run.device, stream) };
        Ok(run.executable.launch_on(&stream)?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_end(run: *mut CRun) {
    // SAFETY: guaranteed by the caller.
    unsafe { close(run) }
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_close(dag: *mut CDag) {
    // SAFETY: guaranteed by the caller.
    unsafe { close(dag) }
}
