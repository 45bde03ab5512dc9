//! The kernel library: compiled kernels, and kernels with their stages as owned handles.

use std::ptr::NonNull;
use std::sync::Arc;

use cusync_gen::device::Operations;
use cusync_gen::graph::OperandKind;
use cusync_gen::schedule::decode::stage_in_pairs;

use super::context::Device;
use super::error::{Error, Result, check_status};
use super::group::GroupMember;
use super::helpers;
use super::memory::{DeviceBuffer, TimeoutReport};
use super::module::KernelCall;
use super::notes::Notes;
use super::stage::{BoundStage, scratch_bytes};
use super::stream::{LaunchAttributes, Stream};
use super::work::{SlabBuffers, WorkDistribution, ctas_of, parts_of};
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

/// Compiled kernels of one family, `CUSYNC_FAMILY_GEMM`, `CUSYNC_FAMILY_CHAIN` or `CUSYNC_FAMILY_DECODE`.
pub fn kernels_of(family: u32) -> Vec<ffi::cusync_kernel_info> {
    kernels().into_iter().filter(|k| k.id.family == family).collect()
}

/// Kernel for one stage per launch with this MMA tile, (M, N), for any operations.
pub fn gemm_id(arch: u32, element: u32, tile: (u32, u32)) -> ffi::cusync_kernel_id {
    let (family, (tile_m, tile_n)) = (ffi::CUSYNC_FAMILY_GEMM, tile);
    ffi::cusync_kernel_id {
        family,
        arch,
        element,
        tile_m,
        tile_n,
        cluster_m: 1,
        cluster_n: 1,
        ..Default::default()
    }
}

/// Chain kernel with this MMA tile, (M, N), per CTA, and the given cluster of CTAs per worker along M and N.
pub fn chain_id(element: u32, tile: (u32, u32), cluster: (u32, u32)) -> ffi::cusync_kernel_id {
    ffi::cusync_kernel_id {
        family: ffi::CUSYNC_FAMILY_CHAIN,
        cluster_m: cluster.0,
        cluster_n: cluster.1,
        ..gemm_id(ffi::CUSYNC_SM90A, element, tile)
    }
}

/// Kernel for one stage that neither waits nor posts, for any operations.
pub fn alone_id(element: u32) -> ffi::cusync_kernel_id {
    let family = ffi::CUSYNC_FAMILY_ALONE;
    ffi::cusync_kernel_id { family, ..gemm_id(ffi::CUSYNC_SM90A, element, (0, 0)) }
}

/// The decode kernel whose MMA takes `width` tokens.
pub fn decode_id(element: u32, width: u32) -> ffi::cusync_kernel_id {
    let family = ffi::CUSYNC_FAMILY_DECODE;
    ffi::cusync_kernel_id { family, width, ..gemm_id(ffi::CUSYNC_SM90A, element, (64, 0)) }
}

/// Compiled kernel that supports everything that `id` asks for.
///
/// # Errors
/// [`Error::NotBuilt`].
pub fn compiled(id: &ffi::cusync_kernel_id) -> Result<ffi::cusync_kernel_info> {
    let serves = |k: &ffi::cusync_kernel_info| {
        k.id.operations & id.operations == id.operations
            && ffi::cusync_kernel_id { operations: id.operations, ..k.id } == *id
    };
    kernels().into_iter().find(serves).ok_or_else(|| Error::NotBuilt(describe(id)))
}

/// Description of a kernel.
fn describe(id: &ffi::cusync_kernel_id) -> String {
    let (m, n, i, j) = (id.tile_m, id.tile_n, id.cluster_m, id.cluster_n);
    match id.family {
        ffi::CUSYNC_FAMILY_CHAIN => format!("a chain of {m} x {n} tiles in clusters of {i} x {j}"),
        ffi::CUSYNC_FAMILY_DECODE => format!("a decode chain for {} tokens", id.width),
        ffi::CUSYNC_FAMILY_ALONE => "a stage alone".into(),
        _ => format!("a stage of {m} x {n} tiles on sm_{}", id.arch),
    }
}

/// Workers of a kernel (clusters of CTAs) that are resident at once on a GPU.
pub fn resident(device: &Device, id: &ffi::cusync_kernel_id) -> Result<u32> {
    let _entered = device.enter()?;
    let mut workers = 0;
    // SAFETY: both outlive the call.
    let status = unsafe { ffi::cusync_resident(id, &mut workers) };
    check_status(|| format!("resident workers of {}", describe(id)), status)?;
    Ok(workers)
}

/// Pseudo-random delays inside a kernel, for tests: before work items, loads behind waits, stores and posts.
/// A delay is a hash of the seed, the run, the SM, the tile and the kind of place, so tiles become ready in a
/// different order in every run. Hopper kernels implement them, others ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Seed of the delays.
    pub seed: u32,
    /// Maximum of one delay in nanoseconds, up to 500 000; a sleep may take twice as long. 0: no delays.
    pub limit_ns: u32,
}

/// How a kernel deviates from an ordinary run, for tests and measurements; the default is an ordinary run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deviations {
    /// No stage posts, so consumers starve.
    pub starve: bool,
    /// No stage waits; the results are meaningless.
    pub skip_waits: bool,
    /// A decode kernel only streams its weights through the ring: measures the limit set by reading.
    pub stream_only: bool,
    /// Injected delays.
    pub delays: Delays,
}

/// Synchronization of a kernel with itself from run to run, and with other kernels. All counters are zeroed
/// once, when the pipeline is created. Kernels that share epochs or tickets must not run at the same time; on
/// one stream they do not, even with programmatic edges.
#[derive(Clone, Debug, Default)]
pub struct Synchronisation {
    /// The pipeline's slots.
    pub semaphores: Option<Arc<DeviceBuffer<u32>>>,
    /// One word per CTA.
    pub epochs: Option<Arc<DeviceBuffer<u32>>>,
    /// Ticket counters, and the index of the kernel's counter.
    pub tickets: Option<(Arc<DeviceBuffer<u64>>, usize)>,
    /// Record that a timed-out wait fills.
    pub report: Option<Arc<TimeoutReport>>,
    /// Trace buffer for the times of each CTA's items or stages.
    pub trace: Option<Arc<DeviceBuffer<ffi::cusync_trace>>>,
    /// Buffer for notes of events.
    pub notes: Option<Arc<Notes>>,
    /// Limit of one wait; 0: one second.
    pub timeout_ns: u64,
    /// Place in a group of GPUs; required if a stage is summed over devices.
    pub group: Option<Arc<GroupMember>>,
    /// Deviations of the kernel.
    pub deviations: Deviations,
}

impl Synchronisation {
    pub(super) fn raw(&self, stages: &[BoundStage]) -> ffi::cusync_sync {
        let words = |b: &Option<Arc<DeviceBuffer<u32>>>| {
            b.as_ref().map_or(std::ptr::null_mut(), |b| b.pointer().cast())
        };
        let Deviations { starve, skip_waits, stream_only, delays } = self.deviations;
        let ticket = |(counters, place): &(Arc<DeviceBuffer<u64>>, usize)| {
            counters.pointer().cast::<u64>().wrapping_add(*place).cast()
        };
        ffi::cusync_sync {
            semaphores: words(&self.semaphores),
            epochs: words(&self.epochs),
            tickets: self.tickets.as_ref().map_or(std::ptr::null_mut(), ticket),
            report: self.report.as_ref().map_or(std::ptr::null_mut(), |r| r.device_pointer()),
            trace: self.trace.as_ref().map_or(std::ptr::null_mut(), |t| t.pointer().cast()),
            timeout_ns: self.timeout_ns,
            test: ffi::cusync_test {
                starve: u32::from(starve),
                skip_waits: u32::from(skip_waits),
                stream_only: u32::from(stream_only),
                delays: ffi::cusync_delays { seed: delays.seed, limit_ns: delays.limit_ns },
                notes: self.notes.as_ref().map_or_else(ffi::cusync_notes::default, |notes| notes.raw()),
            },
            group: self.group.as_ref().map_or_else(ffi::cusync_group::default, |group| group.raw(stages)),
        }
    }
}

/// Everything needed to create a kernel.
#[derive(Clone, Debug)]
pub struct KernelArgs {
    /// Name of the pipeline or stage, for errors.
    pub name: String,
    /// Kernel to use; its operations are ignored in favor of the stages'.
    pub id: ffi::cusync_kernel_id,
    /// Producers before consumers; for a session, one set after another.
    pub stages: Vec<BoundStage>,
    /// Assignment of work to workers.
    pub work: WorkDistribution,
    /// Synchronization with itself and other kernels.
    pub sync: Synchronisation,
    /// Scratch memory, for stages that need some.
    pub scratch: Option<Arc<DeviceBuffer<u8>>>,
    /// Memory of the order and policy tables.
    pub tables: Vec<Arc<DeviceBuffer<u32>>>,
}

impl KernelArgs {
    /// Number of trace records.
    pub fn trace_records(&self) -> usize {
        let ctas = self.work.workers() as usize * ctas_of(&self.id);
        match &self.work {
            WorkDistribution::Order { .. } => 0,
            WorkDistribution::Lists { lists, .. } => ctas * lists.length() as usize,
            WorkDistribution::Shares { .. } => ctas * self.stages.len() / self.work.sets(),
        }
    }

    /// Bytes of repacked weights that one run of a decode kernel reads.
    pub fn weight_bytes(&self) -> usize {
        // The rounds of a stage share its weights.
        self.stages.iter().filter(|stage| stage.round.0 == 0).map(BoundStage::repacked_bytes).sum()
    }

    fn operations(&self) -> Operations {
        self.stages.iter().filter_map(|bound| bound.stage.op.operation()).collect()
    }

    /// Rejects arguments that would let a kernel access memory out of bounds.
    fn validate(&self, info: &ffi::cusync_kernel_info) -> Result<()> {
        let refuse = |why: String| Err(Error::BadArgument(format!("{}: {why}", self.name)));
        let most = info.stages as usize;
        let (all, sets) = (self.stages.len(), self.work.sets());
        if all == 0 || sets == 0 || all % sets != 0 || all / sets > most {
            return refuse(format!("{all} stages of {sets} sets, the kernel takes 1 to {most} a set"));
        }
        let length = |len: Option<usize>| len.unwrap_or(0);
        let slots = self.stages.iter().map(BoundStage::slots).max().unwrap_or(0);
        self.holds("semaphore slots", length(self.sync.semaphores.as_ref().map(|s| s.len())), slots)?;
        if let Some((counters, place)) = &self.sync.tickets {
            self.holds("ticket counters", counters.len(), place + 1)?;
        }
        if let Some(trace) = &self.sync.trace {
            self.holds("trace records", trace.len(), self.trace_records())?;
        }
        if let Some(group) = &self.sync.group {
            self.holds("runs of a group", group.workers(), self.work.workers() as usize)?;
        } else if let Some(bound) = self.stages.iter().find(|bound| bound.stage.devices > 1) {
            return refuse(format!("{} is summed over GPUs, and this one has no group", bound.stage.name));
        }
        let scratch = self.stages.iter().map(|bound| scratch_bytes(&bound.stage)).max().unwrap_or(0);
        self.holds("scratch memory", length(self.scratch.as_ref().map(|s| s.len())), scratch)?;
        let operations = self.operations();
        for bound in &self.stages {
            let (workers, given, stage) = (self.work.workers(), bound.laid_out_for(), &bound.stage);
            let paired = stage_in_pairs(stage, operations, workers, self.id.width);
            let parts = if paired { workers / 2 } else { workers * bound.round.1 };
            // Attention and normalizations stream no weights.
            let weights = bound.operands.iter().any(|(kind, _)| *kind == OperandKind::B);
            match &self.work {
                WorkDistribution::Shares { .. } if given == weights.then_some(parts) => {}
                WorkDistribution::Order { .. } | WorkDistribution::Lists { .. } if given.is_none() => {}
                WorkDistribution::Shares { .. }
                | WorkDistribution::Order { .. }
                | WorkDistribution::Lists { .. } => {
                    return refuse(format!("the weights of {} are laid out for other kernels", stage.name));
                }
            }
        }
        match &self.work {
            WorkDistribution::Order { .. } => return Ok(()),
            WorkDistribution::Lists { lists, slabs, mail } => {
                if let Some(mail) = mail {
                    self.holds("mailboxes", mail.workers() as usize, lists.workers() as usize)?;
                    if !lists.suit_mail() {
                        return refuse("mailboxes are for one list of whole tiles".into());
                    }
                }
                lists.suit(&self.name, &self.stages, info)?;
                let (count, ctas) = (lists.slabs() as usize, ctas_of(&self.id));
                let floats = ctas * self.id.tile_m as usize * self.id.tile_n as usize;
                self.holds("partial sums", slabs.sums.len(), count * floats)?;
                self.holds("flags of partial sums", slabs.flags.len(), 3 * count * ctas)?;
                self.holds("ticket counters", usize::from(self.sync.tickets.is_some()), 1)?;
            }
            WorkDistribution::Shares { workers, slabs, jobs, .. } => {
                if let Some(jobs) = jobs {
                    self.holds("launches of workers", jobs.workers(), *workers as usize)?;
                    let most = ffi::CUSYNC_MAX_BOUND as usize;
                    if all > most {
                        let sets = most / (all / sets);
                        return refuse(format!(
                            "{all} stages of all sets: a session takes {sets} sets of these"
                        ));
                    }
                }
                let attentions = self.stages.iter().map(|bound| &bound.stage);
                let attentions = attentions.filter_map(|s| Some((s.m, s.op.attend()?.heads.kv)));
                let wanted = parts_of(attentions, *workers);
                let have = |f: fn(&SlabBuffers) -> usize| slabs.as_deref().map_or(0, f);
                let floats = wanted.0 * ffi::CUSYNC_ATTEND_SLAB as usize;
                self.holds("parts of heads", have(|s| s.sums.len()), floats)?;
                self.holds("counters of parts", have(|s| s.flags.len()), wanted.1)?;
            }
        }
        // Mailboxes need two words per CTA: finished words and launches.
        let each = if matches!(self.work, WorkDistribution::Lists { mail: Some(_), .. }) { 2 } else { 1 };
        let ctas = self.work.workers() as usize * ctas_of(&self.id);
        self.holds("run counts", length(self.sync.epochs.as_ref().map(|e| e.len())), each * ctas)
    }

    pub(super) fn holds(&self, name: &str, have: usize, want: usize) -> Result<()> {
        if have >= want {
            return Ok(());
        }
        Err(Error::Length { what: format!("{name} of {}", self.name), have, want })
    }
}

/// Whether the kernel library accepts a request for a stage that runs alone. `None` on a machine with a GPU,
/// where the library would go on to use the memory, and in builds without kernels.
#[cfg(test)]
pub(crate) fn takes_alone(id: &ffi::cusync_kernel_id, stage: &ffi::cusync_stage) -> Option<bool> {
    use super::words;
    use cusync_gen::sync::Order;

    if super::gpu_count().is_ok_and(|count| count > 0) || kernels_of(id.family).is_empty() {
        return None;
    }
    let order = words::order(&Order::RowMajor, (stage.tiles.grid_m, stage.tiles.grid_n), None);
    let scratch = std::ptr::without_provenance_mut(1 << 12);
    let work = ffi::cusync_work { source: ffi::CUSYNC_SOURCE_ORDER, order, scratch, ..Default::default() };
    let sync = ffi::cusync_sync::default();
    let mut handle = std::ptr::null_mut();
    // SAFETY: the library looks at pointers, not behind them, until it needs a GPU, and there is none.
    let status = unsafe { ffi::cusync_create(id, stage, 1, &work, &sync, std::ptr::null_mut(), &mut handle) };
    assert_ne!(status as u32, ffi::CUSYNC_ERROR_NOT_BUILT, "{id:?}");
    Some(status as u32 != ffi::CUSYNC_ERROR_BAD_ARGUMENT)
}

/// A kernel ready to launch: module loaded, tensor maps encoded, stage table in device memory. Keeps all
/// memory alive that it accesses.
#[derive(Debug)]
pub struct Kernel {
    device: Device,
    code: Code,
    args: KernelArgs,
    grid: (u32, u32),
}

/// What a launch queues.
#[derive(Debug)]
pub(super) enum Code {
    /// A kernel of the library.
    Library(Handle),
    /// The kernel of a Custom stage.
    Own(KernelCall),
}

/// A kernel of the library, and the memory of its stages.
#[derive(Debug)]
pub(super) struct Handle {
    raw: NonNull<ffi::cusync_kernel>,
    _table: DeviceBuffer<u8>,
}

// SAFETY: the handle is plain host data that is read-only after creation.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `cusync_create`, destroyed once.
        unsafe { ffi::cusync_destroy(self.raw.as_ptr()) };
    }
}

impl Kernel {
    pub(super) fn with_code(device: &Device, code: Code, args: KernelArgs, grid: (u32, u32)) -> Kernel {
        Kernel { device: device.clone(), code, args, grid }
    }

    /// Prepares a kernel. Create all kernels of a pipeline before running any: loading a module may
    /// synchronize with a kernel that spins.
    ///
    /// # Errors
    /// No such kernel was compiled, an item or a slot is out of range, a buffer's size differs from its
    /// shape, or workers that wait for each other would not all be resident at once.
    pub fn new(device: &Device, mut args: KernelArgs) -> Result<Kernel> {
        let _entered = device.enter()?;
        args.id.operations = args.operations().bits();
        let info = compiled(&args.id)?;
        args.validate(&info)?;
        let resident = resident(device, &args.id)?;
        let workers = args.work.workers();
        if !matches!(args.work, WorkDistribution::Order { .. }) && workers > resident {
            return Err(Error::BadArgument(format!(
                "{}: {workers} workers, of which this GPU holds {resident} at once",
                args.name
            )));
        }
        let stages = args.stages.iter().map(BoundStage::raw).collect::<Result<Vec<_>>>()?;
        let scratch = args.scratch.as_ref().map_or(std::ptr::null_mut(), |scratch| scratch.pointer().cast());
        let work = ffi::cusync_work { scratch, ..args.work.raw() };
        let sync = args.sync.raw(&args.stages);
        let bytes = stages.len() / args.work.sets() * info.table_bytes as usize;
        let table = DeviceBuffer::<u8>::new(device, bytes.max(1), "the table of stages")?;
        let table_pointer = if bytes == 0 { std::ptr::null_mut() } else { table.pointer() };
        let mut handle = std::ptr::null_mut();
        // SAFETY: every pointer belongs to a buffer that `args` holds, with the size of its shape; `stages`
        // outlives the call, which copies it; items and slots were range-checked; the table has the size that
        // the library asked for and lives as long as the handle.
        let status = unsafe {
            let count = (stages.len() / args.work.sets()) as u32;
            ffi::cusync_create(&args.id, stages.as_ptr(), count, &work, &sync, table_pointer, &mut handle)
        };
        let call = || format!("{} ({})", args.name, describe(&args.id));
        check_status(call, status)?;
        let raw = NonNull::new(handle).ok_or_else(|| Error::NoHostMemory(call()))?;
        let grid = match &args.work {
            WorkDistribution::Order { order, .. } => {
                let ctas = if workers > 0 { workers } else { resident.min(order.grid_m * order.grid_n) };
                (ctas, resident / device.sms().max(1))
            }
            WorkDistribution::Lists { .. } | WorkDistribution::Shares { .. } => {
                (workers * ctas_of(&args.id) as u32, 1)
            }
        };
        Ok(Kernel::with_code(device, Code::Library(Handle { raw, _table: table }), args, grid))
    }

    /// Queues the kernel, and behind it the one that rotates the heads of its product, if any. With a
    /// programmatic edge, a chain or decode kernel streams weights while the previous kernel in the stream
    /// ends; everything else waits for that kernel's memory.
    pub fn launch(&self, launch: LaunchAttributes<'_>) -> Result<()> {
        let _entered = self.device.enter()?;
        let handle = match &self.code {
            Code::Library(handle) => handle.raw.as_ptr(),
            Code::Own(call) => return call.launch(launch, self.args.id.arch == ffi::CUSYNC_SM90A),
        };
        let how = ffi::cusync_how {
            stream: launch.stream.pointer(),
            started_event: launch.started.map_or(std::ptr::null_mut(), |e| e.pointer()),
            programmatic: u32::from(launch.programmatic),
        };
        // SAFETY: the handle, stream and event are live.
        let status = unsafe { ffi::cusync_launch(handle, &how) };
        check_status(|| format!("launch of {}", self.args.name), status)?;
        let mut rotated = self.args.stages.iter().filter(|stage| stage.rotates());
        rotated.try_for_each(|stage| helpers::rotate(&stage.out, stage, launch.stream))
    }

    /// Holds back a consumer's stream until every tile of this kernel has been drawn, once per run of both:
    /// kernels for sm_80 need this in place of a trigger. `runs` holds the words of such gates, zeroed once,
    /// and `place` is the index of this gate; `edge` leads from this kernel's stage to `stage`, for reports.
    pub fn hold_back(
        &self,
        stream: &Stream,
        runs: &DeviceBuffer<u64>,
        place: usize,
        (edge, stage): (u32, u32),
    ) -> Result<()> {
        let _entered = self.device.enter()?;
        let (WorkDistribution::Order { order, drawn: true }, Some((tickets, own))) =
            (&self.args.work, &self.args.sync.tickets)
        else {
            return Err(Error::BadArgument(format!("{} draws no tickets", self.args.name)));
        };
        if place >= runs.len() {
            let name = "words of gates".into();
            return Err(Error::Length { what: name, have: runs.len(), want: place + 1 });
        }
        let word =
            |words: &DeviceBuffer<u64>, at: usize| words.pointer().cast::<u64>().wrapping_add(at).cast();
        let gate = ffi::cusync_gate {
            tickets: word(tickets, *own),
            runs: word(runs, place),
            tiles: order.grid_m * order.grid_n,
            workers: self.grid.0,
            edge,
            stage,
            report: self.args.sync.report.as_ref().map_or(std::ptr::null_mut(), |r| r.device_pointer()),
            timeout_ns: self.args.sync.timeout_ns,
        };
        // SAFETY: both words are in live buffers, and the stream is live; the request is copied.
        let status = unsafe { ffi::cusync_wait_for_start(&gate, stream.pointer()) };
        check_status(|| format!("gate behind {}", self.args.name), status)
    }

    /// CTAs of a launch, and CTAs that fit an SM at once.
    pub fn grid(&self) -> (u32, u32) {
        self.grid
    }

    /// Arguments that it was created from.
    pub fn args(&self) -> &KernelArgs {
        &self.args
    }
}
