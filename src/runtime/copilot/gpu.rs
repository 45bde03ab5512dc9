//! The kernel of a session on a GPU.

use std::sync::Arc;

use super::Runner;
use crate::device::{self, JobLine, Kernel, KernelArgs, LaunchAttributes, Words};
use crate::runtime::error::{Error, Result};
use crate::runtime::pipeline::{LaunchWork, Pipeline};
use crate::runtime::traced::ItemTrace;

/// Widths, in tokens, of the kernels that take jobs.
const WIDTHS: [u32; 3] = [8, 32, 64];

pub(super) struct GpuRunner<'a> {
    pipeline: &'a mut Pipeline,
    kernel: Kernel,
    line: Arc<JobLine>,
}

impl<'a> GpuRunner<'a> {
    pub(super) fn new(pipeline: &'a mut Pipeline, idle_ns: u32) -> Result<GpuRunner<'a>> {
        pipeline.healthy()?;
        pipeline.prepare()?;
        let LaunchWork::One(one) = &pipeline.shared.work else {
            return Err(Error::Unsupported("a session needs one kernel for all stages".into()));
        };
        let sets = (0..pipeline.sets()).map(|set| pipeline.one_kernel(set, one));
        let sets = sets.collect::<Result<Vec<KernelArgs>>>()?;
        let count = sets.len() as u32;
        let line = JobLine::new(&pipeline.device, one.work.workers(), count, idle_ns)?;
        let mut sets = sets.into_iter();
        let mut args = sets.next().ok_or_else(|| Error::Unsupported("a session without a set".into()))?;
        args.stages.extend(sets.flat_map(|set| set.stages));
        let of_plan = args.id.width;
        args.id.width = WIDTHS.into_iter().find(|width| *width >= of_plan).unwrap_or(of_plan);
        if let device::WorkDistribution::Shares { jobs, .. } = &mut args.work {
            *jobs = Some(line.clone());
        }
        let kernel = Kernel::new(&pipeline.device, args)?;
        Ok(GpuRunner { pipeline, kernel, line })
    }
}

impl Runner for GpuRunner<'_> {
    fn words(&self) -> &Words {
        self.line.words()
    }

    fn launch(&mut self, _: u32) -> Result<()> {
        // The kernel and the host number launches alike: each launch leaves once, and the next one follows it
        // in the stream.
        let launch = LaunchAttributes { stream: &self.pipeline.main, started: None, programmatic: false };
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

    fn read_f32(&self, set: usize, name: &str) -> Result<Vec<f32>> {
        widened(self.pipeline, set, name)
    }

    fn take_trace(&mut self) -> Result<Vec<ItemTrace>> {
        self.pipeline.synchronize()?;
        self.pipeline.take_trace()
    }
}

/// A tensor of a set as floats, once the run that writes it is over.
pub(super) fn widened(pipeline: &Pipeline, set: usize, name: &str) -> Result<Vec<f32>> {
    use crate::element::Bits;
    let tensor = pipeline.tensor(set, name)?;
    let mut bits = vec![0; tensor.len()];
    let mut values = vec![0.0; bits.len()];
    tensor.download(&mut bits)?;
    pipeline.plan.graph().element.widen(&bits, &mut values);
    Ok(values)
}
