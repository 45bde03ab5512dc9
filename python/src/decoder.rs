//! The layers of a language model as pipelines, for callers that hold weights and caches themselves.

use cusync::codegen::graph::Element;
use cusync_models::architecture::{self, Decoder};
use cusync_models::{ModelConfig, page};
use pyo3::prelude::*;

use super::error::detached;

/// A tensor of a page: its name, and the rows of the checkpoint that it is made of, one after the other, as the name of
/// a tensor, the first row and the number of rows.
type Made = (String, Vec<(String, usize, usize)>);

/// A stack of layers and a head.
#[pyclass(module = "cusync._cusync", name = "Decoder", frozen)]
pub(crate) struct PyDecoder {
    decoder: Decoder,
    element: Element,
}

#[pymethods]
impl PyDecoder {
    /// `config`: the text of `config.json`.
    #[new]
    fn new(py: Python<'_>, config: &str) -> PyResult<PyDecoder> {
        detached(py, || {
            let config = ModelConfig::from_json(config)?;
            Ok(PyDecoder { decoder: architecture::decoder(&config)?, element: config.element()? })
        })
    }

    /// Layers, elements of a hidden state, heads of keys and values, columns of a head, tokens of the vocabulary, columns
    /// of the logits.
    fn sizes(&self) -> (usize, usize, usize, usize, usize, usize) {
        let Decoder { layers, width, kv_heads, columns, vocabulary, .. } = self.decoder;
        (layers, width, kv_heads, columns, vocabulary, self.decoder.logits())
    }

    /// The launches of a step: the page of each, its first layer and the one behind its last, and its weights.
    fn launches(&self, slots: usize, rows: usize) -> Vec<(String, usize, usize, Vec<Made>)> {
        let launch = |layers: std::ops::Range<usize>| {
            let text = page::generation(&self.decoder, layers.clone(), slots, rows, self.element).text();
            let head = (layers.end == self.decoder.layers).then(|| self.decoder.head_weights());
            let weights = layers.clone().flat_map(|layer| self.decoder.layer_weights(layer));
            let made = |weight: architecture::Weight| {
                let rows = weight.rows.into_iter().map(|rows| (rows.tensor, rows.first, rows.count));
                (weight.name, rows.collect())
            };
            (text, layers.start, layers.end, weights.chain(head.into_iter().flatten()).map(made).collect())
        };
        page::launches(self.decoder.layers).into_iter().map(launch).collect()
    }
}
