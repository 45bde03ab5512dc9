//! Programs of kernels over memory of the caller: exactly the functions declared in `include/cusync/dag.h`. They wrap
//! [`cusync::dag::Recording`] and [`cusync::programs`].

use std::ffi::{c_char, c_void};

use cusync::dag::{Argument, DagError, NodeId, analyse};
use cusync::device::Image;
use cusync::prelude::{Device, Stream};

use super::program::{
    CAccess, CArgument, CDag, CDeclare, CEnqueue, CNode, COptions, CRun, Declare, Given, Span, Work,
    accesses, adopted, built, form, given, span,
};
use super::{Failure, call, null, slice, text};

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

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_open(name: *const c_char, out: *mut *mut CDag) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text(name, "name") }?;
        let dag = CDag::new(name);
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
pub unsafe extern "C" fn cusync_dag_image(dag: *mut CDag, image: *const c_void, bytes: usize) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (dag, given) = unsafe { (opened(dag)?, slice(image.cast::<u8>(), bytes, "image")?) };
        dag.image = (!given.is_empty()).then(|| Image::from(given));
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
        let work = Work::Kernel(function, dag.image.clone());
        let made = dag.record(node, name, passed, work, 0)?;
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
        let dag = unsafe { opened(dag) }?;
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: guaranteed by the caller.
        let (device, options) = unsafe { place(options) }?;
        let run = dag.build(device, &options)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give(out, Box::into_raw(Box::new(run)), "out") }
    })
}

/// The GPU that options name, and what else they say.
///
/// # Safety
/// The header's contract.
unsafe fn place(options: *const COptions) -> Result<(Device, Given), Failure> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options.as_ref() };
    options.map_or(Ok(None), form)?;
    let context = options.map_or(std::ptr::null_mut(), |options| options.context);
    let device = match context.is_null() {
        true => Device::current()?,
        // SAFETY: the header demands a live context that outlives the run.
        false => unsafe { Device::from_context(context) }?,
    };
    // SAFETY: guaranteed by the caller.
    let options = unsafe { options.map_or(Ok(Given::default()), |options| given(options, &device)) }?;
    Ok((device, options))
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_dag_adopt(
    graph: *mut c_void,
    memory: *const CAccess,
    memory_count: usize,
    declare: Option<CDeclare>,
    data: *mut c_void,
    options: *const COptions,
    out: *mut *mut CRun,
) -> i32 {
    call(|| {
        if graph.is_null() || out.is_null() {
            return Err(null("graph or out"));
        }
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { slice(memory, memory_count, "memory") }?;
        // SAFETY: guaranteed by the caller.
        let (device, options) = unsafe { place(options) }?;
        let declare = declare.map(|function| Declare { function, data });
        // SAFETY: guaranteed by the caller.
        let calls = unsafe { adopted(&device, graph, memory, declare.as_ref()) }?;
        let run = built(&calls, device, &options)?;
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
pub unsafe extern "C" fn cusync_dag_unverified(run: *const CRun) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { run.as_ref() }.map_or(c"".as_ptr(), |run| run.unverified.as_ptr())
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
