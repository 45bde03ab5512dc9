//! The decode kernels: a chain of GEMM stages for up to 64 tokens, and the layout of its weights.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Device;
use super::error::{Error, Result, check_status};
use super::gemm::Delays;
use super::memory::{DeviceBuffer, Report};
use super::stream::{Launch, Stream};
use crate::ffi;

/// Columns of a stage's output behind one semaphore.
const COLUMN_TILE: u32 = 64;

/// Decode kernels compiled into this binary.
pub fn decode_kernels() -> Vec<ffi::cusync_decode_info> {
    // SAFETY: capacity 0 writes nothing.
    let count = unsafe { ffi::cusync_decode_kernels(std::ptr::null_mut(), 0) };
    let mut list = vec![ffi::cusync_decode_info::default(); count as usize];
    // SAFETY: `list` holds `count` entries.
    let filled = unsafe { ffi::cusync_decode_kernels(list.as_mut_ptr(), count) };
    list.truncate(filled as usize);
    list
}

/// Workers that are resident at once, a CTA an SM.
pub fn decode_workers(device: &Device) -> Result<u32> {
    device.enter()?;
    let mut workers = 0;
    // SAFETY: `workers` outlives the call.
    check_status(|| "decode workers".into(), unsafe { ffi::cusync_decode_workers(&mut workers) })?;
    Ok(workers)
}

/// A stage's weights as its workers stream them: laid out once, for one number of workers.
#[derive(Debug)]
pub struct DecodeWeights {
    bytes: DeviceBuffer<u8>,
    gated: bool,
    k: u32,
    n: u32,
    workers: u32,
}

impl DecodeWeights {
    /// Lays out K x N row-major `weights` (with `up`: the gate's, `up` being the other), in the order of `stream`: the
    /// sources must stay as they are until that has run.
    pub fn new(
        weights: &DeviceBuffer<u16>,
        up: Option<&DeviceBuffer<u16>>,
        (k, n): (u32, u32),
        workers: u32,
        stream: &Stream,
    ) -> Result<Self> {
        let length = |what: &str, have: usize| {
            let want = k as usize * n as usize;
            if have == want {
                return Ok(());
            }
            Err(Error::Length { what: what.into(), have, want })
        };
        length("weights to lay out", weights.len())?;
        up.map_or(Ok(()), |up| length("up weights to lay out", up.len()))?;
        let operation = if up.is_some() { ffi::CUSYNC_GATED_GEMM } else { ffi::CUSYNC_GEMM };
        // SAFETY: arithmetic only.
        let size = unsafe { ffi::cusync_decode_weights_bytes(operation, k, n) };
        let bytes = DeviceBuffer::new(weights.device(), size as usize, "weights laid out for decoding")?;
        let up_pointer = up.map_or(std::ptr::null(), |up| up.pointer().cast_const());
        // SAFETY: the sources hold k x n values each, the destination what the library asked for.
        let status = unsafe {
            ffi::cusync_decode_relay(
                operation,
                k,
                n,
                workers,
                weights.pointer(),
                up_pointer,
                bytes.pointer(),
                stream.pointer(),
            )
        };
        check_status(|| format!("layout of {k} x {n} weights for decoding"), status)?;
        Ok(DecodeWeights { bytes, gated: up.is_some(), k, n, workers })
    }

    /// Bytes that one run reads.
    pub fn bytes(&self) -> usize {
        self.bytes.bytes()
    }
}

/// One stage: d = act(a w + bias) + residual, or silu(a wg) * (a wu) where its weights are gated.
#[derive(Clone, Debug)]
pub struct DecodeStage {
    /// The stage's name, for errors.
    pub name: String,
    /// K x N, of one set.
    pub weights: Arc<DecodeWeights>,
    /// M x K.
    pub a: Arc<DeviceBuffer<u16>>,
    /// M x N.
    pub d: Arc<DeviceBuffer<u16>>,
    /// N.
    pub bias: Option<Arc<DeviceBuffer<u16>>>,
    /// M x N: an input, or the output of any earlier stage.
    pub residual: Option<Arc<DeviceBuffer<u16>>>,
    /// `CUSYNC_IDENTITY`, `CUSYNC_GELU_TANH` or `CUSYNC_RELU`.
    pub activation: u32,
    /// The stage of the chain that writes `a`; `None`: an input.
    pub producer: Option<u32>,
    /// First semaphore of its column tiles; used where another stage reads `d`.
    pub slot_base: u32,
    /// Index of the stage in its plan, for reports.
    pub stage: u32,
    /// Index of the edge that it waits for in the plan, for reports.
    pub edge: u32,
}

/// Sizes in shared memory, in bytes of one CTA; 0 takes the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeTuning {
    /// Weights that one entry of the ring aims at.
    pub chunk_bytes: u32,
    /// The ring of weights.
    pub ring_bytes: u32,
    /// Slots (not bytes) of the ring of activations, a multiple of 4.
    pub activation_slots: u32,
    /// Most weights on their way at once.
    pub in_flight_bytes: u32,
    /// The same while the ring fills with the weights of a stage that still waits.
    pub ahead_bytes: u32,
}

/// What a chain keeps from run to run. Chains that share it must not run at the same time; on one stream they do not,
/// with programmatic edges either.
#[derive(Clone, Debug)]
pub struct DecodeMemory {
    /// The slots, zeroed when the pipeline is made.
    pub semaphores: Arc<DeviceBuffer<u32>>,
    /// A word for each CTA, zeroed when the pipeline is made.
    pub epochs: Arc<DeviceBuffer<u32>>,
    /// Where a wait that times out writes.
    pub report: Arc<Report>,
}

/// How a chain deviates from an ordinary run, for tests and measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodeMode {
    /// It does not.
    #[default]
    Run,
    /// No stage waits; the results are meaningless.
    SkipWaits,
    /// No stage posts: the consumers starve.
    Starve,
    /// Weights stream through the ring and nothing else happens: the limit that reading sets.
    StreamOnly,
}

/// A chain of stages over one set of operands.
#[derive(Clone, Debug)]
pub struct DecodeArgs {
    /// The pipeline's name, for errors.
    pub name: String,
    /// `CUSYNC_F16` or `CUSYNC_BF16`.
    pub element: u32,
    /// Tokens, at most 64.
    pub m: u32,
    /// Tokens of the MMA: 8, 16, 32 or 64; 0: the least that holds `m`.
    pub width: u32,
    /// Producers before consumers.
    pub stages: Vec<DecodeStage>,
    /// State from run to run.
    pub memory: DecodeMemory,
    /// Sizes.
    pub tuning: DecodeTuning,
    /// What to leave out.
    pub mode: DecodeMode,
    /// Limit of one wait; 0: one second.
    pub timeout_ns: u64,
    /// Where each CTA notes the times of its stages: CTAs times stages records.
    pub trace: Option<Arc<DeviceBuffer<ffi::cusync_trace>>>,
    /// Injected delays.
    pub delays: Delays,
}

impl DecodeArgs {
    /// CTAs of a launch: as many workers as the weights are laid out for.
    pub fn workers(&self) -> u32 {
        self.stages.first().map_or(0, |s| s.weights.workers)
    }

    /// Bytes of weights that one run reads.
    pub fn weight_bytes(&self) -> usize {
        self.stages.iter().map(|s| s.weights.bytes()).sum()
    }

    /// Refuses whatever would let the kernel leave its memory.
    fn validate(&self) -> Result<()> {
        let most = ffi::CUSYNC_MAX_DECODE_STAGES as usize;
        if self.stages.is_empty() || self.stages.len() > most {
            let count = self.stages.len();
            return self.refuse(format!("{count} stages, a decode kernel takes 1 to {most}"));
        }
        let workers = self.workers();
        for (index, stage) in self.stages.iter().enumerate() {
            let (k, n) = (stage.weights.k as usize, stage.weights.n as usize);
            let exact = |what: &str, have: usize, want: usize| {
                if have == want {
                    return Ok(());
                }
                Err(Error::Length { what: format!("{what} of {}", stage.name), have, want })
            };
            exact("A", stage.a.len(), self.m as usize * k)?;
            exact("D", stage.d.len(), self.m as usize * n)?;
            stage.bias.as_ref().map_or(Ok(()), |b| exact("bias", b.len(), n))?;
            stage.residual.as_ref().map_or(Ok(()), |r| exact("residual", r.len(), self.m as usize * n))?;
            if stage.weights.workers != workers {
                return self.refuse(format!("{} is laid out for other workers than the first", stage.name));
            }
            if stage.producer.is_some_and(|p| p as usize >= index) {
                return self.refuse(format!("{} does not come after its producer", stage.name));
            }
            if self.stages.iter().any(|s| s.producer == Some(index as u32)) {
                let end = stage.slot_base as usize + stage.weights.n.div_ceil(COLUMN_TILE) as usize;
                self.holds("semaphore slots", self.memory.semaphores.len(), end)?;
            }
        }
        self.holds("run counts", self.memory.epochs.len(), workers as usize)?;
        if let Some(trace) = &self.trace {
            self.holds("trace records", trace.len(), workers as usize * self.stages.len())?;
        }
        Ok(())
    }

    fn refuse(&self, why: String) -> Result<()> {
        Err(Error::BadArgument(format!("{}: {why}", self.name)))
    }

    fn holds(&self, what: &str, have: usize, want: usize) -> Result<()> {
        if have >= want {
            return Ok(());
        }
        Err(Error::Length { what: format!("{what} of {}", self.name), have, want })
    }

    fn raw_stages(&self) -> Vec<ffi::cusync_decode_stage> {
        let optional = |buffer: &Option<Arc<DeviceBuffer<u16>>>| {
            buffer.as_ref().map_or(std::ptr::null(), |b| b.pointer().cast_const())
        };
        let one = |s: &DecodeStage| ffi::cusync_decode_stage {
            operation: if s.weights.gated { ffi::CUSYNC_GATED_GEMM } else { ffi::CUSYNC_GEMM },
            k: s.weights.k,
            n: s.weights.n,
            activation: s.activation,
            producer: s.producer.unwrap_or(ffi::CUSYNC_DECODE_INPUT),
            slot_base: s.slot_base,
            stage: s.stage,
            edge: s.edge,
            weights: s.weights.bytes.pointer(),
            a: s.a.pointer(),
            d: s.d.pointer(),
            bias: optional(&s.bias),
            residual: optional(&s.residual),
        };
        self.stages.iter().map(one).collect()
    }

    /// The C form; `stages` must outlive it.
    fn raw(&self, stages: &[ffi::cusync_decode_stage]) -> ffi::cusync_decode_args {
        ffi::cusync_decode_args {
            element: self.element,
            width: self.width,
            m: self.m,
            workers: self.workers(),
            stage_count: stages.len() as u32,
            stages: stages.as_ptr(),
            semaphores: self.memory.semaphores.pointer().cast(),
            epochs: self.memory.epochs.pointer().cast(),
            chunk_bytes: self.tuning.chunk_bytes,
            ring_bytes: self.tuning.ring_bytes,
            activation_slots: self.tuning.activation_slots,
            in_flight_bytes: self.tuning.in_flight_bytes,
            ahead_bytes: self.tuning.ahead_bytes,
            starve: u32::from(self.mode == DecodeMode::Starve),
            skip_waits: u32::from(self.mode == DecodeMode::SkipWaits),
            stream_only: u32::from(self.mode == DecodeMode::StreamOnly),
            timeout_ns: self.timeout_ns,
            report: self.memory.report.device_pointer(),
            trace: self.trace.as_ref().map_or(std::ptr::null_mut(), |t| t.pointer().cast()),
            delays: self.delays.raw(),
        }
    }
}

/// A chain ready to launch: module loaded, shared memory planned. Keeps its memory alive.
#[derive(Debug)]
pub struct Decode {
    device: Device,
    handle: NonNull<ffi::cusync_decode>,
    args: DecodeArgs,
}

// SAFETY: the handle is plain host data that is read-only after creation.
unsafe impl Send for Decode {}
// SAFETY: as above.
unsafe impl Sync for Decode {}

impl Drop for Decode {
    fn drop(&mut self) {
        // SAFETY: made by `cusync_decode_create`, destroyed once.
        unsafe { ffi::cusync_decode_destroy(self.handle.as_ptr()) };
    }
}

impl Decode {
    /// Makes the chain ready. Must run before any kernel spins: loading a module may synchronise.
    pub fn new(device: &Device, args: DecodeArgs) -> Result<Decode> {
        device.enter()?;
        args.validate()?;
        let stages = args.raw_stages();
        let raw = args.raw(&stages);
        let mut handle = std::ptr::null_mut();
        // SAFETY: every pointer is of a buffer that `args` holds, of the size that the stages say; `stages` outlives
        // the call, which copies it.
        let status = unsafe { ffi::cusync_decode_create(&raw, &mut handle) };
        let call = || format!("decode chain {} ({} tokens)", args.name, args.m);
        check_status(call, status)?;
        let handle = NonNull::new(handle).ok_or_else(|| Error::NoHostMemory(call()))?;
        Ok(Decode { device: device.clone(), handle, args })
    }

    /// Queues the kernel. With a programmatic edge its weights stream while the kernel before it ends.
    pub fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.device.enter()?;
        let raw = ffi::cusync_launch {
            stream: launch.stream.pointer(),
            completion_event: launch.started.map_or(std::ptr::null_mut(), |e| e.pointer()),
            programmatic: u32::from(launch.programmatic),
        };
        // SAFETY: the handle is live, and so are stream and event.
        let status = unsafe { ffi::cusync_decode_launch(self.handle.as_ptr(), &raw) };
        check_status(|| format!("launch of decode chain {}", self.args.name), status)
    }

    /// What it was made from.
    pub fn args(&self) -> &DecodeArgs {
        &self.args
    }
}
