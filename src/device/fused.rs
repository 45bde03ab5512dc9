//! A whole chain of GEMMs as one persistent kernel.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Device;
use super::error::{Error, Result, check_status};
use super::gemm::{Delays, GemmArgs, Schedule};
use super::lists::WorkLists;
use super::memory::{DeviceBuffer, Report};
use super::stream::Launch;
use crate::ffi;

/// Chain kernels compiled into this binary.
pub fn fused_kernels() -> Vec<ffi::cusync_fused_info> {
    // SAFETY: capacity 0 writes nothing.
    let count = unsafe { ffi::cusync_fused_kernels(std::ptr::null_mut(), 0) };
    let mut list = vec![ffi::cusync_fused_info::default(); count as usize];
    // SAFETY: `list` holds `count` entries.
    let filled = unsafe { ffi::cusync_fused_kernels(list.as_mut_ptr(), count) };
    list.truncate(filled as usize);
    list
}

/// Workers of a chain kernel, clusters of CTAs each, that are resident at once on a GPU.
pub fn fused_workers(device: &Device, kernel: &ffi::cusync_fused_info) -> Result<u32> {
    device.enter()?;
    let mut workers = 0;
    // SAFETY: both outlive the call.
    let status = unsafe { ffi::cusync_fused_workers(kernel, &mut workers) };
    check_status(|| "resident workers of a chain kernel".into(), status)?;
    Ok(workers)
}

/// Shape of a chain kernel: what selects it among [`fused_kernels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FusedShape {
    /// `CUSYNC_F16` or `CUSYNC_BF16`.
    pub element: u32,
    /// MMA tile of one CTA, (M, N).
    pub tile: (u32, u32),
    /// CTAs of a worker along M and N.
    pub cluster: (u32, u32),
}

impl FusedShape {
    /// CTAs of a worker.
    pub fn ctas(&self) -> usize {
        self.cluster.0 as usize * self.cluster.1 as usize
    }

    /// Float sums of one slab: an MMA tile for each CTA of the worker.
    pub fn slab_floats(&self) -> usize {
        self.ctas() * self.tile.0 as usize * self.tile.1 as usize
    }

    /// The compiled kernel of this shape.
    ///
    /// # Errors
    /// [`Error::NotBuilt`].
    pub fn kernel(&self) -> Result<ffi::cusync_fused_info> {
        let same = |k: &ffi::cusync_fused_info| {
            (k.element, k.tile_m, k.tile_n, k.cluster_m, k.cluster_n)
                == (self.element, self.tile.0, self.tile.1, self.cluster.0, self.cluster.1)
        };
        fused_kernels().into_iter().find(same).ok_or_else(|| {
            let ((m, n), (i, j)) = (self.tile, self.cluster);
            Error::NotBuilt(format!("a chain of {m} x {n} tiles in clusters of {i} x {j}"))
        })
    }
}

/// What runs of a chain share and count on in: zeroed once, never cleared.
#[derive(Clone, Debug)]
pub struct FusedMemory {
    /// Partial sums of split tiles.
    pub slabs: Arc<DeviceBuffer<f32>>,
    /// Two words a slab and CTA.
    pub slab_flags: Arc<DeviceBuffer<u32>>,
    /// One word a CTA.
    pub epochs: Arc<DeviceBuffer<u32>>,
    /// One counter.
    pub tickets: Arc<DeviceBuffer<u64>>,
    /// The plan's slots.
    pub semaphores: Arc<DeviceBuffer<u32>>,
    /// Where a wait that times out writes.
    pub report: Arc<Report>,
}

impl FusedMemory {
    /// Allocates for a kernel shape, a number of workers, slabs and semaphore slots.
    pub fn new(
        device: &Device,
        shape: FusedShape,
        workers: u32,
        slabs: u32,
        slots: u32,
        report: Arc<Report>,
    ) -> Result<FusedMemory> {
        let (slabs, ctas) = (slabs as usize, shape.ctas());
        let flags = 2 * slabs * ctas;
        Ok(FusedMemory {
            slabs: Arc::new(DeviceBuffer::new(device, slabs * shape.slab_floats(), "partial sums")?),
            slab_flags: Arc::new(DeviceBuffer::zeroed(device, flags, "flags of partial sums")?),
            epochs: Arc::new(DeviceBuffer::zeroed(device, workers as usize * ctas, "run counts")?),
            tickets: Arc::new(DeviceBuffer::zeroed(device, 1, "the ticket counter")?),
            semaphores: Arc::new(DeviceBuffer::zeroed(device, slots.max(1) as usize, "semaphores")?),
            report,
        })
    }
}

/// One stage of a chain.
#[derive(Clone, Debug)]
pub struct FusedStage {
    /// Shape and operands; tile, order, schedule and synchronisation are the chain's.
    pub gemm: GemmArgs,
    /// Incoming edges.
    pub waits: Vec<ffi::cusync_edge>,
    /// Outgoing edges.
    pub posts: Vec<ffi::cusync_policy>,
}

/// A chain of GEMM stages over one set of operands.
#[derive(Clone, Debug)]
pub struct FusedArgs {
    /// The pipeline's name, for errors.
    pub name: String,
    /// Kernel.
    pub shape: FusedShape,
    /// Producers before consumers.
    pub stages: Vec<FusedStage>,
    /// Who computes what.
    pub lists: Arc<WorkLists>,
    /// State from run to run.
    pub memory: FusedMemory,
    /// Times that each post counts: 1, or 0 to starve the consumers in a test.
    pub post_value_scale: u32,
    /// Skips the waits: for timing alone, the results are meaningless.
    pub skip_waits: bool,
    /// Limit of one wait; 0: one second.
    pub timeout_ns: u64,
    /// Where each CTA notes the times of its items: a record an item of its list, lists of CTAs one after the other.
    pub trace: Option<Arc<DeviceBuffer<ffi::cusync_trace>>>,
    /// Injected delays.
    pub delays: Delays,
}

impl FusedArgs {
    /// Records that a trace of these lists takes.
    pub fn trace_records(&self) -> usize {
        self.lists.workers() as usize * self.shape.ctas() * self.lists.length() as usize
    }

    /// Refuses whatever would let a kernel leave its memory.
    fn validate(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::BadArgument(format!("{}: {why}", self.name)));
        let most = ffi::CUSYNC_MAX_FUSED_STAGES as usize;
        if self.stages.is_empty() || self.stages.len() > most {
            return refuse(format!("{} stages, a chain kernel takes 1 to {most}", self.stages.len()));
        }
        let kernel = self.shape.kernel()?;
        let floor = |a: u32, b: u32| u64::from(a.div_ceil(b));
        for (index, stage) in self.stages.iter().enumerate() {
            let (m, n, k) = stage.gemm.shape;
            let grid = (
                floor(m, self.shape.tile.0 * self.shape.cluster.0),
                floor(n, self.shape.tile.1 * self.shape.cluster.1),
                floor(k, kernel.tile_k),
            );
            if let Some(item) = self.lists.outside(index, grid) {
                return refuse(format!(
                    "an item of stage {} lies outside its grid: {item:?}",
                    stage.gemm.name
                ));
            }
            let slots = stage.waits.iter().map(|e| &e.policy).chain(&stage.posts);
            let end = slots.map(|p| p.slot_base as usize + p.slot_count as usize).max().unwrap_or(0);
            self.holds("semaphore slots", self.memory.semaphores.len(), end)?;
        }
        if let Some(item) = self.lists.of_other_stage(self.stages.len()) {
            return refuse(format!("an item of no stage: {item:?}"));
        }
        let (slabs, ctas) = (self.lists.slabs() as usize, self.shape.ctas());
        self.holds("partial sums", self.memory.slabs.len(), slabs * self.shape.slab_floats())?;
        self.holds("flags of partial sums", self.memory.slab_flags.len(), 2 * slabs * ctas)?;
        self.holds("run counts", self.memory.epochs.len(), self.lists.workers() as usize * ctas)?;
        self.holds("ticket counters", self.memory.tickets.len(), 1)?;
        if let Some(trace) = &self.trace {
            self.holds("trace records", trace.len(), self.trace_records())?;
        }
        Ok(())
    }

    fn holds(&self, what: &str, have: usize, want: usize) -> Result<()> {
        if have >= want {
            return Ok(());
        }
        Err(Error::Length { what: format!("{what} of {}", self.name), have, want })
    }

    fn raw_stages(&self) -> Result<Vec<ffi::cusync_gemm_args>> {
        let one = |stage: &FusedStage| {
            let alone = GemmArgs { sync: None, schedule: Schedule::Static, ..stage.gemm.clone() };
            let mut raw = alone.raw()?;
            let too_many = |what: &str, have: usize, most: usize| {
                if have <= most {
                    return Ok(());
                }
                let name = &stage.gemm.name;
                Err(Error::BadArgument(format!("{name}: {have} {what} edges, a kernel takes {most}")))
            };
            too_many("incoming", stage.waits.len(), raw.waits.len())?;
            too_many("outgoing", stage.posts.len(), raw.posts.len())?;
            (raw.tile_m, raw.tile_n) = self.shape.tile;
            raw.wait_count = stage.waits.len() as u32;
            raw.waits[..stage.waits.len()].copy_from_slice(&stage.waits);
            raw.post_count = stage.posts.len() as u32;
            raw.posts[..stage.posts.len()].copy_from_slice(&stage.posts);
            Ok(raw)
        };
        self.stages.iter().map(one).collect()
    }

    /// The C form; `stages` must outlive it.
    fn raw(&self, stages: &[ffi::cusync_gemm_args]) -> ffi::cusync_fused_args {
        ffi::cusync_fused_args {
            element: self.shape.element,
            tile_m: self.shape.tile.0,
            tile_n: self.shape.tile.1,
            cluster_m: self.shape.cluster.0,
            cluster_n: self.shape.cluster.1,
            stage_count: stages.len() as u32,
            stages: stages.as_ptr(),
            workers: self.lists.workers(),
            schedule: match self.lists.schedule() {
                Schedule::Static => ffi::CUSYNC_SCHEDULE_STATIC,
                Schedule::Ticket => ffi::CUSYNC_SCHEDULE_TICKET,
            },
            items: self.lists.items().pointer().cast_const().cast(),
            list_length: self.lists.length(),
            slab_count: self.lists.slabs(),
            slabs: self.memory.slabs.pointer().cast(),
            slab_flags: self.memory.slab_flags.pointer().cast(),
            epochs: self.memory.epochs.pointer().cast(),
            tickets: self.memory.tickets.pointer().cast(),
            semaphores: self.memory.semaphores.pointer().cast(),
            post_value_scale: self.post_value_scale,
            skip_waits: u32::from(self.skip_waits),
            timeout_ns: self.timeout_ns,
            report: self.memory.report.device_pointer(),
            trace: self.trace.as_ref().map_or(std::ptr::null_mut(), |t| t.pointer().cast()),
            delays: self.delays.raw(),
        }
    }
}

/// A chain ready to launch: module loaded, tensor maps encoded. Keeps its memory alive.
///
/// Chains that share a [`FusedMemory`] must not run at the same time; on one stream they do not, with programmatic
/// edges either.
#[derive(Debug)]
pub struct Fused {
    device: Device,
    handle: NonNull<ffi::cusync_fused>,
    args: FusedArgs,
}

// SAFETY: the handle is plain host data that is read-only after creation.
unsafe impl Send for Fused {}
// SAFETY: as above.
unsafe impl Sync for Fused {}

impl Drop for Fused {
    fn drop(&mut self) {
        // SAFETY: made by `cusync_fused_create`, destroyed once.
        unsafe { ffi::cusync_fused_destroy(self.handle.as_ptr()) };
    }
}

impl Fused {
    /// Makes a chain ready.
    ///
    /// # Errors
    /// When no kernel of the shape was compiled, an item or a slot lies outside what it indexes, a buffer has another
    /// size than its shape says, or not all workers would be resident at once.
    pub fn new(device: &Device, args: FusedArgs) -> Result<Fused> {
        device.enter()?;
        args.validate()?;
        let resident = fused_workers(device, &args.shape.kernel()?)?;
        if args.lists.workers() > resident {
            let have = args.lists.workers();
            return Err(Error::BadArgument(format!(
                "{}: {have} workers, of which this GPU holds {resident} at once",
                args.name
            )));
        }
        let stages = args.raw_stages()?;
        let raw = args.raw(&stages);
        let mut handle = std::ptr::null_mut();
        // SAFETY: every pointer in `raw` is of a buffer that `args` holds, of the size that its shape says; `stages`
        // outlives the call, which copies it; items and slots were checked against what they index.
        let status = unsafe { ffi::cusync_fused_create(&raw, &mut handle) };
        let call = || {
            let ((m, n), (i, j)) = (args.shape.tile, args.shape.cluster);
            format!("chain {} ({m} x {n} tiles, clusters of {i} x {j})", args.name)
        };
        check_status(call, status)?;
        let handle = NonNull::new(handle).ok_or_else(|| Error::NoHostMemory(call()))?;
        Ok(Fused { device: device.clone(), handle, args })
    }

    /// Queues the kernel. `programmatic`: it may begin while the kernel before it in the stream ends; weights stream
    /// meanwhile, and everything else waits for that kernel's memory.
    pub fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.device.enter()?;
        let raw = ffi::cusync_launch {
            stream: launch.stream.pointer(),
            completion_event: launch.started.map_or(std::ptr::null_mut(), |e| e.pointer()),
            programmatic: u32::from(launch.programmatic),
        };
        // SAFETY: the handle is live, and so are stream and event.
        let status = unsafe { ffi::cusync_fused_launch(self.handle.as_ptr(), &raw) };
        check_status(|| format!("launch of chain {}", self.args.name), status)
    }

    /// What it was made from.
    pub fn args(&self) -> &FusedArgs {
        &self.args
    }
}
