//! A model on GPUs of one machine that run every step together, each on its part of the weights. Sums over them have
//! the same bits on all, so all draw the same tokens.

use cusync::Session;
use cusync::device::Device;
use cusync::runtime::Pipeline;

use crate::architecture::Decoder;
use crate::error::Result;
use crate::gpu::GpuModel;
use crate::page::Sizes;
use crate::pool::Pool;
use crate::prompts::group;
use crate::sample::Next;
use crate::weights::{Loaded, Weights};

pub(crate) struct Gpus {
    /// The GPU whose tokens and logits are read.
    first: GpuModel,
    others: Vec<GpuModel>,
    name: String,
}

impl Gpus {
    /// Opens a model on a GPU and on others; each gets a part of the decoder.
    pub(crate) fn open(
        decoder: &Decoder,
        weights: &Weights,
        sizes: &Sizes,
        (first, others): (&Device, &[Device]),
        progress: &mut impl FnMut(Loaded),
    ) -> Result<Gpus> {
        let count = 1 + others.len();
        let mut open = |number: usize, device: &Device| {
            let mut counted = |Loaded { layers, total }| {
                progress(Loaded { layers: number * total + layers, total: count * total });
            };
            GpuModel::open(&decoder.shard(number, count)?, weights, sizes, device, &mut counted)
        };
        let mut first_model = open(0, first)?;
        let mut models: Vec<GpuModel> =
            (1..).zip(others).map(|(number, device)| open(number, device)).collect::<Result<_>>()?;
        for part in 0..first_model.parts.len() {
            let others = models.iter_mut().map(|model| &mut model.parts[part]);
            let mut parts: Vec<&mut Session> =
                std::iter::once(&mut first_model.parts[part]).chain(others).collect();
            join(&mut parts)?;
        }
        let name = match count {
            1 => first.name().to_owned(),
            _ => format!("{count} x {}", first.name()),
        };
        Ok(Gpus { first: first_model, others: models, name })
    }

    /// Name of the first GPU, and the number of them if there are several.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that the GPUs together can read from memory per second, if the first one's profile is known.
    pub(crate) fn read_bandwidth(&self) -> Option<f64> {
        let rate = self.first.device().profile()?.read_tbs * 1e12;
        Some(rate * (1 + self.others.len()) as f64)
    }

    /// How many of the next `tokens` tokens of a sequence with `cached` ones are computed at once; `None`: none.
    pub(crate) fn prompt_tokens(&self, cached: usize, tokens: usize) -> Option<usize> {
        let others = self.others.iter().map(|model| model.prompt_tokens(cached, tokens));
        others
            .fold(self.first.prompt_tokens(cached, tokens), |count, other| count.filter(|_| other.is_some()))
    }

    /// Appends the keys and values of tokens to the `cached` ones of a sequence on these pages, behind the steps in
    /// flight.
    pub(crate) fn prompt(&mut self, pages: &[i32], cached: usize, tokens: &[u32]) -> Result<()> {
        let each = self.models().map(GpuModel::prompts).collect::<Result<Option<Vec<_>>>>();
        match each?.as_deref_mut() {
            Some([(prompts, embedding)]) => prompts.run(pages, cached, tokens, embedding),
            Some(several) => group::run(several, pages, cached, tokens),
            None => Ok(()),
        }
    }

    /// See [`GpuModel::queue`].
    pub(crate) fn queue(&mut self, next: &[Next], lengths: &[i32], pool: &Pool) -> Result<()> {
        // A GPU waits for the others' sums, and loading kernels might wait for that GPU: all are ready before one starts.
        self.models().try_for_each(GpuModel::ready)?;
        self.models().try_for_each(|model| model.queue(next, lengths, pool))
    }

    /// See [`GpuModel::drawn`].
    pub(crate) fn drawn(&mut self) -> Result<Vec<u32>> {
        // The step of every GPU is waited for, whether or not another one's failed.
        let drawn: Vec<_> = self.models().map(GpuModel::drawn).collect();
        Ok(drawn.into_iter().collect::<Result<Vec<_>>>()?.swap_remove(0))
    }

    /// See [`GpuModel::logits`].
    pub(crate) fn logits(&mut self) -> Result<&[u16]> {
        self.first.logits()
    }

    fn models(&mut self) -> impl Iterator<Item = &mut GpuModel> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

/// Joins the pipelines of one launch, one per GPU, so that they sum over each other's products.
fn join(parts: &mut [&mut Session]) -> Result<()> {
    if parts.len() == 1 {
        return Ok(());
    }
    let pipelines = parts.iter_mut().map(|part| part.pipeline());
    let mut pipelines = pipelines.collect::<cusync::SessionResult<Vec<_>>>()?;
    Ok(Pipeline::form_group(&mut pipelines)?)
}
