//! Streams, events and graphs: explicit ordering by the caller.

use std::ffi::c_void;

use cudarc::driver::sys;

use super::context::{Device, Keeper, Owner};
use super::error::{Result, check};
use super::helpers::fill_random;
use super::memory::DeviceBuffer;
use crate::ffi;

/// Bytes that evict everything else from the L2, which has 50 MB on the largest supported GPU.
const WRITTEN_OVER: usize = 64 << 20;

/// A stream that does not synchronize with the default stream.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    raw: sys::CUstream,
    owner: Owner,
}

// SAFETY: streams may be used from any thread; the context is made current before each call.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver serializes calls.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        if matches!(self.owner, Owner::Lent { .. }) {
            return;
        }
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: created in `new`; work still queued runs to its end.
            unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

impl Stream {
    /// Creates a stream. Do so before any kernel spins: stream creation may synchronize.
    pub fn new(device: &Device) -> Result<Stream> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a current context; `raw` outlives the call.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Stream { device: device.clone(), raw, owner: Owner::Own })
    }

    /// Minimum time in microseconds of each of `count` alternatives, for the given number of runs in a graph.
    /// They alternate in both directions, and the first turn is not counted: falling clocks would favor the
    /// first one. Before each run the caches are overwritten, and that time counts: in a layer, code and
    /// operands of a kernel are not cached, which affects kernels differently.
    pub(crate) fn least_us(
        &self,
        (count, turns, runs): (usize, usize, usize),
        mut run: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let (begin, end) = (Event::timing(&self.device)?, Event::timing(&self.device)?);
        // Without memory for it, runs find their data cached.
        let over =
            DeviceBuffer::<u16>::new(&self.device, WRITTEN_OVER / 2, "what is written over caches").ok();
        // By a kernel, as in a layer: an algorithm that first clears its workspace waits longer behind a
        // kernel than behind a fill.
        let write_over = |over| fill_random(over, ffi::CUSYNC_F16, 1.0, 0, self);
        let graphs = (0..count)
            .map(|index| {
                run(index)?; // a module that is loaded late cannot be captured
                self.capture(|| {
                    (0..runs).try_for_each(|_| {
                        over.iter().try_for_each(write_over)?;
                        run(index)
                    })
                })
            })
            .collect::<Result<Vec<GraphExec>>>()?;
        let mut least = vec![f64::INFINITY; count];
        for turn in 0..=turns {
            for step in 0..count {
                let index = if turn % 2 == 0 { step } else { count - 1 - step };
                self.record(&begin)?;
                graphs[index].launch(self)?;
                self.record(&end)?;
                self.synchronize()?;
                if turn > 0 {
                    least[index] = least[index].min(end.us_since(&begin)?);
                }
            }
        }
        Ok(least)
    }

    /// A stream created and destroyed by the caller; a `CUstream` or `cudaStream_t`, null for the default
    /// stream.
    ///
    /// # Safety
    /// It is a live stream of `device`'s context, and stays alive as long as this value.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Stream {
        // SAFETY: guaranteed by the caller.
        unsafe { Stream::lent(device, raw, None) }
    }

    /// # Safety
    /// [`Stream::from_raw`] with an optional `keeper` that keeps the stream alive instead of the caller.
    pub(super) unsafe fn lent(device: &Device, raw: *mut c_void, keeper: Option<Keeper>) -> Stream {
        Stream { device: device.clone(), raw: raw.cast(), owner: Owner::Lent { _keeper: keeper } }
    }

    /// Whether queued work becomes part of a graph instead of running.
    pub fn is_capturing(&self) -> Result<bool> {
        let _entered = self.device.enter()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a live stream; `status` outlives the call.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The handle, a `CUstream`, for other libraries. This value keeps ownership.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Waits for everything queued so far.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: a live stream.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Whether all work queued so far is done.
    pub fn is_idle(&self) -> Result<bool> {
        let _entered = self.device.enter()?;
        // SAFETY: a live stream.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuStreamQuery", other).map(|()| true),
        }
    }

    /// Records `event` after everything queued so far.
    pub fn record(&self, event: &Event) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both live, of one context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, self.raw) })
    }

    /// Makes later work wait for the latest record of `event`, which may be of another GPU.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both live.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    /// Captures the work that `work` queues on this stream (and on streams that it forks to and joins) into a
    /// graph, without running it. The capture also ends if `work` fails.
    pub fn capture<E: From<super::Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<GraphExec, E> {
        let _entered = self.device.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream that is not capturing.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) })?;
        let outcome = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: capture began above on this thread.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) });
        let instantiated = ended.and_then(|()| {
            let mut exec = std::ptr::null_mut();
            // SAFETY: a complete graph; destroyed below.
            check("cuGraphInstantiate", unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) })?;
            Ok(GraphExec { device: self.device.clone(), raw: exec })
        });
        if !graph.is_null() {
            // SAFETY: ended above; instances do not need it.
            unsafe { sys::cuGraphDestroy(graph) };
        }
        outcome?;
        Ok(instantiated?)
    }

    /// Creates a stream with a priority: lower numbers first, within [`Stream::priorities`].
    pub fn with_priority(device: &Device, priority: i32) -> Result<Stream> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a current context; `raw` outlives the call. A priority out of range is clamped.
        check("cuStreamCreateWithPriority", unsafe {
            sys::cuStreamCreateWithPriority(&mut raw, flags, priority)
        })?;
        Ok(Stream { device: device.clone(), raw, owner: Owner::Own })
    }

    /// Least and greatest priority; the greatest is the lower number.
    pub fn priorities(device: &Device) -> Result<(i32, i32)> {
        let _entered = device.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: a current context; both outlive the call.
        check("cuCtxGetStreamPriorityRange", unsafe {
            sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest)
        })?;
        Ok((least, greatest))
    }

    /// The GPU of the stream.
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The handle as the C ABI takes it.
    pub(super) fn pointer(&self) -> *mut c_void {
        self.raw.cast()
    }
}

/// A point in a stream's order.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: sys::CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: created in `with_flags`.
            unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

impl Event {
    /// An event for ordering only; start events must be of this kind.
    pub fn ordering(device: &Device) -> Result<Event> {
        Self::with_flags(device, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)
    }

    /// An event with a time stamp.
    pub fn timing(device: &Device) -> Result<Event> {
        Self::with_flags(device, sys::CUevent_flags::CU_EVENT_DEFAULT as u32)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Event> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a current context; `raw` outlives the call.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Event { device: device.clone(), raw })
    }

    /// Waits until the event has occurred.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: a live event.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Microseconds from `start` to this event; both must be of [`Event::timing`], recorded and completed.
    pub fn us_since(&self, start: &Event) -> Result<f64> {
        let _entered = self.device.enter()?;
        let mut ms = 0.0;
        // SAFETY: both live, of one context.
        check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime_v2(&mut ms, start.raw, self.raw) })?;
        Ok(f64::from(ms) * 1e3)
    }

    pub(super) fn pointer(&self) -> *mut c_void {
        self.raw.cast()
    }
}

/// An instantiated graph. It holds addresses, not memory: the code that captured it keeps the buffers alive.
#[derive(Debug)]
pub struct GraphExec {
    device: Device,
    raw: sys::CUgraphExec,
}

// SAFETY: launches are serialized by `&self` calls into the driver, which locks.
unsafe impl Send for GraphExec {}

impl Drop for GraphExec {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: instantiated in `Stream::capture`; a running instance is freed when it ends.
            unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

impl GraphExec {
    pub(super) fn of_raw(device: &Device, raw: sys::CUgraphExec) -> GraphExec {
        GraphExec { device: device.clone(), raw }
    }

    /// Uploads it to the GPU in stream order, so that the first launch need not.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both live.
        check("cuGraphUpload", unsafe { sys::cuGraphUpload(self.raw, stream.raw) })
    }

    /// Queues the graph on `stream`.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both live.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.raw, stream.raw) })
    }
}

/// How a stage's kernel is queued.
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttributes<'a> {
    /// Stream to queue on.
    pub stream: &'a Stream,
    /// Recorded when every CTA has issued its trigger or ended; of [`Event::ordering`]. For sm_80 kernels the
    /// time is not guaranteed: [`Kernel::hold_back`](super::Kernel::hold_back) must follow.
    pub started: Option<&'a Event>,
    /// Whether the kernel may begin when every CTA of the previous kernel in the stream has issued its
    /// trigger.
    pub programmatic: bool,
}
