//! The layers of a language model as pipelines, for callers that hold weights and caches themselves.

use cusync::PipelineBuilder;
use cusync::codegen::graph::Element;
use cusync_models::architecture::{self, Decoder, Weight};
use cusync_models::page::{self, Caches};
use cusync_models::{Error, ModelConfig, Rotary};
use pyo3::prelude::*;

use super::error::detached;

/// A tensor of a page: its name, and the rows of the checkpoint that it is made of, one after the other, as the name of
/// a tensor, the first row and the number of rows. The last two are `added` and `factor` of a [`Weight`].
type Made = (String, Vec<(String, usize, usize)>, f32, f32);

/// A launch: its page, its first layer and the one behind its last, and its weights.
type Launch = (String, usize, usize, Vec<Made>);

/// A stack of layers and a head.
#[pyclass(module = "cusync._cusync", name = "Decoder", frozen)]
pub(crate) struct PyDecoder {
    decoder: Decoder,
    element: Element,
}

impl PyDecoder {
    /// Launches of all layers, by the page and the weights that each needs beside those of its layers.
    fn each(&self, page: impl Fn(&page::Launch) -> (PipelineBuilder, Vec<Weight>)) -> Vec<Launch> {
        let launch = |launch: page::Launch| {
            let layers = launch.layers(&self.decoder);
            let (page, more) = page(&launch);
            let weights = layers.clone().flat_map(|layer| self.decoder.layer_weights(layer));
            (page.text(), layers.start, layers.end, weights.chain(more).map(made).collect())
        };
        page::launches(&self.decoder).into_iter().map(launch).collect()
    }
}

/// Caches that callers hold: `rows` tokens for each of some sequences.
fn caches(slots: usize, rows: usize) -> Caches {
    Caches { slots, rows, pages: None }
}

fn made(weight: Weight) -> Made {
    let rows = weight.rows.into_iter().map(|rows| (rows.tensor, rows.first, rows.count));
    (weight.name, rows.collect(), weight.added, weight.factor)
}

#[pymethods]
impl PyDecoder {
    /// `config`: the text of `config.json`.
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<PyDecoder> {
        detached(py, || {
            let config = ModelConfig::from_json(config)?;
            let decoder = architecture::decoder(&config)?;
            let name = config.architectures.first().map_or("this model", String::as_str);
            if decoder.experts.is_some() {
                let fault = format!("{name} has experts, which steps in torch do not run");
                return Err(Error::Config(fault + "\n  help: `cusync.torch.Model` runs it").into());
            }
            // Prompts of torch leave keys in the order of its columns.
            if !decoder.rotaries.iter().all(Rotary::is_whole) {
                let fault = format!("{name} rotates heads in part, which steps in torch do not");
                return Err(Error::Config(fault + "\n  help: `cusync.torch.Model` runs it").into());
            }
            Ok(PyDecoder { decoder, element: config.element()? })
        })
    }

    /// Layers that belong to no architecture, so `bias` and `head_norm` are stated here.
    #[staticmethod]
    fn plain(py: Python<'_>, config: &str, bias: bool, head_norm: bool) -> PyResult<PyDecoder> {
        detached(py, || {
            let config = ModelConfig::from_json(config)?;
            let decoder = Decoder { bias, head_norm, ..Decoder::new(&config)? };
            Ok(PyDecoder { decoder, element: config.element()? })
        })
    }

    /// Layers, elements of a hidden state, heads of keys and values, columns of a head, tokens of the vocabulary, columns
    /// of the logits.
    fn sizes(&self) -> (usize, usize, usize, usize, usize, usize) {
        let Decoder { layers, width, kv_heads, columns, vocabulary, .. } = self.decoder;
        (layers, width, kv_heads, columns, vocabulary, self.decoder.logits())
    }

    /// Tables of rotations by their names in pages, each with a layer that it rotates.
    fn rotations(&self) -> Vec<(String, usize)> {
        let first = |number| self.decoder.rotated.iter().position(|rotated| *rotated == Some(number));
        let numbers = (0..self.decoder.rotaries.len()).filter_map(first);
        numbers.filter_map(|layer| Some((self.decoder.angles(layer)?, layer))).collect()
    }

    /// Factor of embedded tokens, if the module that embeds them does not multiply: that of Gemma does.
    fn embedding_factor(&self) -> Option<f32> {
        self.decoder.embedding_factor.filter(|_| !self.decoder.one_plus_gain)
    }

    /// Bound of logits: a step writes logits divided by it.
    fn bound(&self) -> Option<f64> {
        self.decoder.logit_cap
    }

    /// The launches of a step.
    fn launches(&self, slots: usize, rows: usize) -> Vec<Launch> {
        self.each(|launch| {
            let head = launch.has_head(&self.decoder).then(|| self.decoder.head_weights());
            let page = page::generation(&self.decoder, launch, caches(slots, rows), self.element);
            (page, head.unwrap_or_default())
        })
    }

    /// The launches of a step that ends with the last layer, without the head.
    fn layers(&self, slots: usize, rows: usize) -> Vec<Launch> {
        self.each(|launch| {
            let layers = launch.layers(&self.decoder);
            (page::layers(&self.decoder, layers, caches(slots, rows), self.element), Vec::new())
        })
    }

    /// The launch of the first layer's attention: see [`page::attention`].
    fn attention(&self, slots: usize, rows: usize, norm: bool, residual: bool) -> Vec<Launch> {
        let caches = caches(slots, rows);
        let page = page::attention(&self.decoder, caches, self.element, (norm, residual));
        let weights = self.decoder.layer_weights(0).into_iter().filter(|weight| page::attends(weight, norm));
        vec![(page.text(), 0, 1, weights.map(made).collect())]
    }
}
