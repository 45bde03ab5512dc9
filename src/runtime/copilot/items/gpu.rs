//! The chain kernel with mailboxes, filled by the host or by worker 0.

use std::sync::Arc;

use super::super::gpu::widened;
use super::{Handing, Taker, ledger_of};
use crate::device::{self, Boxes, DeviceBuffer, Kernel, LaunchAttributes, MailLine, Stream};
use crate::runtime::error::{Error, Result};
use crate::runtime::pipeline::{LaunchWork, Pipeline};
use crate::runtime::traced::ItemTrace;

/// Kernel of a pipeline with mailboxes and its own counters.
fn mailed(
    pipeline: &mut Pipeline,
    line: impl FnOnce(u32) -> Result<Arc<MailLine>>,
) -> Result<(Kernel, Arc<MailLine>)> {
    pipeline.healthy()?;
    pipeline.prepare()?;
    let LaunchWork::One(one) = &pipeline.shared.work else {
        return Err(Error::Unsupported("mailboxes need one kernel for all stages".into()));
    };
    let mut args = pipeline.one_kernel(0, one)?;
    let workers = args.work.workers();
    let line = line(workers)?;
    if let device::WorkDistribution::Lists { mail, .. } = &mut args.work {
        *mail = Some(line.clone());
    }
    // Epochs come from mailbox words or count launches of this kernel; other runs of the pipeline use
    // different epochs.
    let slots = pipeline.plan.slot_count().max(1) as usize;
    args.sync.semaphores = Some(Arc::new(DeviceBuffer::zeroed(&pipeline.device, slots, "semaphores")?));
    let kept = 2 * workers as usize;
    args.sync.epochs =
        Some(Arc::new(DeviceBuffer::zeroed(&pipeline.device, kept, "what workers have come to")?));
    Ok((Kernel::new(&pipeline.device, args)?, line))
}

pub(super) struct GpuTaker<'a> {
    pipeline: &'a mut Pipeline,
    kernel: Kernel,
    line: Arc<MailLine>,
    beside: bool,
}

impl<'a> GpuTaker<'a> {
    pub(super) fn new(pipeline: &'a mut Pipeline, idle_ns: u32, beside: bool) -> Result<GpuTaker<'a>> {
        let device = pipeline.device.clone();
        let (kernel, line) = mailed(pipeline, |workers| Ok(MailLine::from_host(&device, workers, idle_ns)?))?;
        Ok(GpuTaker { pipeline, kernel, line, beside })
    }
}

impl Taker for GpuTaker<'_> {
    fn boxes(&self) -> Result<Boxes<'_>> {
        self.line.boxes().ok_or_else(|| Error::Unsupported("mailboxes that a host cannot reach".into()))
    }

    fn launch(&mut self, _: u32) -> Result<()> {
        // The kernel and the host number launches alike: each launch leaves once, and the next one follows it
        // in the stream.
        let launch =
            LaunchAttributes { stream: &self.pipeline.main, started: None, programmatic: self.beside };
        self.pipeline.in_turn(&self.pipeline.main, || Ok(self.kernel.launch(launch)?))
    }

    fn check(&mut self) -> Result<()> {
        match self.pipeline.main.is_idle() {
            Ok(_) => Ok(()),
            // Identifies the wait that failed.
            Err(_) => self.pipeline.synchronize(),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.pipeline.synchronize()
    }

    fn read_f32(&self, name: &str) -> Result<Vec<f32>> {
        widened(self.pipeline, 0, name)
    }

    fn take_trace(&mut self) -> Result<Vec<ItemTrace>> {
        self.pipeline.synchronize()?;
        self.pipeline.take_trace()
    }
}

/// The same kernel with its own scheduler: worker 0 hands out the items of each run in list order.
#[derive(Debug)]
pub struct Scheduled<'a> {
    pipeline: &'a mut Pipeline,
    kernel: Kernel,
}

impl<'a> Scheduled<'a> {
    /// Creates the kernel for the first set of a pipeline, with up to `ahead` items for each other worker, 1
    /// to 7.
    ///
    /// # Errors
    /// As [`Items::open`](super::Items::open); also if there is only one worker.
    pub fn new(pipeline: &'a mut Pipeline, ahead: u32) -> Result<Scheduled<'a>> {
        ledger_of(pipeline.plan(), Handing { ahead, ..Handing::default() })?;
        let device = pipeline.device.clone();
        let (kernel, _) = mailed(pipeline, |workers| Ok(MailLine::from_scheduler(&device, workers, ahead)?))?;
        Ok(Scheduled { pipeline, kernel })
    }

    /// Queues a run; with `beside`, it begins with the SMs that it gets.
    ///
    /// # Errors
    /// The launch failed.
    pub fn run_on(&self, stream: &Stream, beside: bool) -> Result<()> {
        let launch = LaunchAttributes { stream, started: None, programmatic: beside };
        self.pipeline.in_turn(stream, || Ok(self.kernel.launch(launch)?))
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &Pipeline {
        self.pipeline
    }
}
