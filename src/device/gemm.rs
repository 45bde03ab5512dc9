//! The kernel library's GEMMs as owned handles.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Device;
use super::error::{Error, Result, check_status};
use super::memory::{DeviceBuffer, Report};
use super::stream::{Launch, Stream};
use crate::ffi;

/// Kernels compiled into this binary.
pub fn kernels() -> Vec<ffi::cusync_kernel_info> {
    // SAFETY: capacity 0 writes nothing.
    let count = unsafe { ffi::cusync_kernels(std::ptr::null_mut(), 0) };
    let mut list = vec![ffi::cusync_kernel_info::default(); count as usize];
    // SAFETY: `list` holds `count` entries.
    let filled = unsafe { ffi::cusync_kernels(list.as_mut_ptr(), count) };
    list.truncate(filled as usize);
    list
}

/// How tiles are handed to CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// CTA c takes tiles c, c + grid, ...
    #[default]
    Static,
    /// A device counter: a CTA that starts early takes more.
    Ticket,
}

/// Delays of pseudo-random length inside a kernel, for tests: before work items, loads behind waits, stores and posts.
/// A length is a hash of the seed, the run, the SM, the tile and the kind of place, so tiles become ready in another order
/// in every run. Kernels for Hopper have them, others ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Another seed, other lengths.
    pub seed: u32,
    /// Nanoseconds that one delay asks for at most, up to 500 000; a sleep may take twice as long. 0: no delays.
    pub limit_ns: u32,
}

impl Delays {
    pub(super) fn raw(self) -> ffi::cusync_delays {
        ffi::cusync_delays { seed: self.seed, limit_ns: self.limit_ns }
    }
}

/// What couples a stage to others. Every address in it points into memory that it owns a share of.
#[derive(Clone, Debug)]
pub struct Synchronisation {
    /// One counter a stage, zeroed when the pipeline is made.
    pub tickets: Arc<DeviceBuffer<u64>>,
    /// The pipeline's slots, zeroed when the pipeline is made.
    pub semaphores: Arc<DeviceBuffer<u32>>,
    /// Where a wait that times out writes.
    pub report: Arc<Report>,
    /// Incoming edges.
    pub waits: Vec<ffi::cusync_edge>,
    /// Outgoing edges.
    pub posts: Vec<ffi::cusync_policy>,
    /// Times that each post counts: 1, or 0 to starve the consumers in a test.
    pub post_value_scale: u32,
    /// Skips the waits: for timing alone, the results are meaningless.
    pub skip_waits: bool,
    /// Limit of one wait; 0: one second.
    pub timeout_ns: u64,
    /// Injected delays.
    pub delays: Delays,
}

/// One GEMM stage: shapes, operands, order, synchronisation. Matrices are row-major; 16-bit floats are kept as bits.
#[derive(Clone, Debug)]
pub struct GemmArgs {
    /// The stage's name, for errors.
    pub name: String,
    /// Kernel family, `CUSYNC_SM80` or `CUSYNC_SM90A`.
    pub arch: u32,
    /// `CUSYNC_GEMM` or `CUSYNC_GATED_GEMM`.
    pub operation: u32,
    /// `CUSYNC_F16` or `CUSYNC_BF16`.
    pub element: u32,
    /// MMA tile, (M, N).
    pub tile: (u32, u32),
    /// (M, N, K); N counts packed columns when gated.
    pub shape: (u32, u32, u32),
    /// M x K.
    pub a: Arc<DeviceBuffer<u16>>,
    /// K x N.
    pub b: Arc<DeviceBuffer<u16>>,
    /// M x N, or M x N / 2 when gated.
    pub d: Arc<DeviceBuffer<u16>>,
    /// N.
    pub bias: Option<Arc<DeviceBuffer<u16>>>,
    /// M x N.
    pub residual: Option<Arc<DeviceBuffer<u16>>>,
    /// `CUSYNC_IDENTITY`, `CUSYNC_GELU_TANH` or `CUSYNC_RELU`.
    pub activation: u32,
    /// Index of the stage in its plan.
    pub stage: u32,
    /// Handing out of tiles.
    pub schedule: Schedule,
    /// Order of tiles.
    pub order: ffi::cusync_order,
    /// `None`: the kernel neither waits nor posts.
    pub sync: Option<Synchronisation>,
    /// Memory that tables of the order and of policies lie in.
    pub tables: Vec<Arc<DeviceBuffer<u32>>>,
}

impl GemmArgs {
    /// Columns of D.
    pub fn d_columns(&self) -> u32 {
        if self.operation == ffi::CUSYNC_GATED_GEMM { self.shape.1 / 2 } else { self.shape.1 }
    }

    /// The C form, after checking that every buffer has the size that the shape says.
    pub(super) fn raw(&self) -> Result<ffi::cusync_gemm_args> {
        let (m, n, k) = self.shape;
        let exact = |what: &str, have: usize, want: u64| {
            if have as u64 == want {
                return Ok(());
            }
            Err(Error::Length { what: format!("{what} of {}", self.name), have, want: want as usize })
        };
        let area = |rows: u32, columns: u32| u64::from(rows) * u64::from(columns);
        exact("A", self.a.len(), area(m, k))?;
        exact("B", self.b.len(), area(k, n))?;
        exact("D", self.d.len(), area(m, self.d_columns()))?;
        let optional = |what: &str, buffer: &Option<Arc<DeviceBuffer<u16>>>, want: u64| match buffer {
            None => Ok(std::ptr::null()),
            Some(b) => exact(what, b.len(), want).map(|()| b.pointer().cast_const()),
        };
        let bias = optional("bias", &self.bias, u64::from(n))?;
        let residual = optional("residual", &self.residual, area(m, n))?;
        let mut raw = ffi::cusync_gemm_args {
            arch: self.arch,
            operation: self.operation,
            element: self.element,
            tile_m: self.tile.0,
            tile_n: self.tile.1,
            m,
            n,
            k,
            a: self.a.pointer(),
            b: self.b.pointer(),
            d: self.d.pointer(),
            bias,
            residual,
            activation: self.activation,
            stage: self.stage,
            schedule: match self.schedule {
                Schedule::Static => ffi::CUSYNC_SCHEDULE_STATIC,
                Schedule::Ticket => ffi::CUSYNC_SCHEDULE_TICKET,
            },
            order: self.order,
            post_value_scale: 1,
            ..Default::default()
        };
        if let Some(sync) = &self.sync {
            self.couple(sync, &mut raw)?;
        }
        Ok(raw)
    }

    fn couple(&self, sync: &Synchronisation, raw: &mut ffi::cusync_gemm_args) -> Result<()> {
        let too_many = |what: &str, have: usize, most: usize| {
            if have <= most {
                return Ok(());
            }
            Err(Error::BadArgument(format!("{}: {have} {what} edges, a kernel takes {most}", self.name)))
        };
        too_many("incoming", sync.waits.len(), raw.waits.len())?;
        too_many("outgoing", sync.posts.len(), raw.posts.len())?;
        let slots = sync.waits.iter().map(|e| &e.policy).chain(&sync.posts);
        for policy in slots {
            let end = policy.slot_base as usize + policy.slot_count as usize;
            if end > sync.semaphores.len() {
                return Err(Error::Length {
                    what: format!("semaphore slots of {}", self.name),
                    have: sync.semaphores.len(),
                    want: end,
                });
            }
        }
        if self.stage as usize >= sync.tickets.len() {
            return Err(Error::Length {
                what: format!("ticket counters up to stage {}", self.name),
                have: sync.tickets.len(),
                want: self.stage as usize + 1,
            });
        }
        raw.tickets = sync.tickets.pointer().cast::<u64>().wrapping_add(self.stage as usize).cast();
        raw.semaphores = sync.semaphores.pointer().cast();
        raw.wait_count = sync.waits.len() as u32;
        raw.waits[..sync.waits.len()].copy_from_slice(&sync.waits);
        raw.post_count = sync.posts.len() as u32;
        raw.posts[..sync.posts.len()].copy_from_slice(&sync.posts);
        raw.post_value_scale = sync.post_value_scale;
        raw.skip_waits = u32::from(sync.skip_waits);
        raw.timeout_ns = sync.timeout_ns;
        raw.report = sync.report.device_pointer();
        raw.delays = sync.delays.raw();
        Ok(())
    }
}

/// A stage ready to launch: module loaded, tensor maps encoded. Keeps its operands alive.
#[derive(Debug)]
pub struct Gemm {
    device: Device,
    handle: NonNull<ffi::cusync_gemm>,
    args: GemmArgs,
}

// SAFETY: the handle is plain host data that is read-only after creation.
unsafe impl Send for Gemm {}
// SAFETY: as above.
unsafe impl Sync for Gemm {}

impl Drop for Gemm {
    fn drop(&mut self) {
        // SAFETY: made by `cusync_gemm_create`, destroyed once.
        unsafe { ffi::cusync_gemm_destroy(self.handle.as_ptr()) };
    }
}

impl Gemm {
    /// Makes a stage ready. All stages of a pipeline must be made before one of its kernels runs: loading a module
    /// may synchronise with a kernel that spins.
    pub fn new(device: &Device, args: GemmArgs) -> Result<Gemm> {
        device.enter()?;
        let raw = args.raw()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: every pointer in `raw` is of a buffer that `args` holds, of the size that the shape says.
        let status = unsafe { ffi::cusync_gemm_create(&raw, &mut handle) };
        let call = || {
            let (m, n) = args.tile;
            format!("stage {} (tile {m} x {n}, sm_{})", args.name, args.arch)
        };
        check_status(call, status)?;
        let handle = NonNull::new(handle).ok_or_else(|| Error::NoHostMemory(call()))?;
        Ok(Gemm { device: device.clone(), handle, args })
    }

    /// Queues the kernel.
    pub fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.device.enter()?;
        let raw = ffi::cusync_launch {
            stream: launch.stream.pointer(),
            completion_event: launch.started.map_or(std::ptr::null_mut(), |e| e.pointer()),
            programmatic: u32::from(launch.programmatic),
        };
        // SAFETY: the handle is live, and so are stream and event.
        let status = unsafe { ffi::cusync_gemm_launch(self.handle.as_ptr(), &raw) };
        check_status(|| format!("launch of stage {}", self.args.name), status)
    }

    /// CTAs of a launch, and CTAs that fit an SM at once.
    pub fn grid(&self) -> Result<(u32, u32)> {
        self.device.enter()?;
        let (mut ctas, mut per_sm) = (0, 0);
        // SAFETY: the handle is live; both outlive the call.
        let status = unsafe { ffi::cusync_gemm_grid(self.handle.as_ptr(), &mut ctas, &mut per_sm) };
        check_status(|| format!("grid of stage {}", self.args.name), status)?;
        Ok((ctas, per_sm))
    }

    /// What it was made from.
    pub fn args(&self) -> &GemmArgs {
        &self.args
    }
}

/// CUTLASS's Stream-K kernel on the same operands: a peer of the benchmarks, never part of a pipeline.
#[derive(Debug)]
pub struct StreamK {
    device: Device,
    handle: NonNull<ffi::cusync_streamk>,
    args: GemmArgs,
    /// Scratch of the partial sums.
    _workspace: DeviceBuffer<u8>,
}

// SAFETY: the handle is host data, changed only by `launch(&mut self)`.
unsafe impl Send for StreamK {}

impl Drop for StreamK {
    fn drop(&mut self) {
        // SAFETY: made by `cusync_streamk_create`, destroyed once.
        unsafe { ffi::cusync_streamk_destroy(self.handle.as_ptr()) };
    }
}

impl StreamK {
    /// Makes the peer ready; `args` without synchronisation.
    pub fn new(device: &Device, args: GemmArgs) -> Result<StreamK> {
        device.enter()?;
        let raw = args.raw()?;
        let call = || format!("Stream-K peer of stage {}", args.name);
        let (mut bytes, mut handle) = (0, std::ptr::null_mut());
        // SAFETY: a null workspace asks for the size only.
        let status = unsafe {
            ffi::cusync_streamk_create(&raw, std::ptr::null_mut::<c_void>(), &mut bytes, &mut handle)
        };
        check_status(call, status)?;
        // One byte at least: a null workspace would ask for the size again.
        let workspace = DeviceBuffer::zeroed(device, (bytes as usize).max(1), "the Stream-K workspace")?;
        // SAFETY: the workspace has the size asked for; the operands are those of `args`.
        let status =
            unsafe { ffi::cusync_streamk_create(&raw, workspace.pointer(), &mut bytes, &mut handle) };
        check_status(call, status)?;
        let handle = NonNull::new(handle).ok_or_else(|| Error::NoHostMemory(call()))?;
        Ok(StreamK { device: device.clone(), handle, args, _workspace: workspace })
    }

    /// Queues the kernel, with whatever resets its workspace.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        self.device.enter()?;
        // SAFETY: handle and stream are live.
        let status = unsafe { ffi::cusync_streamk_launch(self.handle.as_ptr(), stream.pointer()) };
        check_status(|| format!("launch of the Stream-K peer of {}", self.args.name), status)
    }
}
