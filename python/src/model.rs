//! `Model`: a language model that holds sequences in slots.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use cusync_cli::embed::Failure;
use cusync_models::{GivenWeight, Model, Options, Place, Request, Sampling, Tokenizer, WeightType};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use super::error::{argument, detached, raised};
use super::generation::{Generation, Stops};
use super::memory::{Borrowed, Number};
use super::pipeline::{self, element, element_name, place};

/// A model, and its tokenizer if the checkpoint has one.
pub(crate) struct Opened {
    pub(crate) model: Model,
    text: Result<Arc<Tokenizer>, String>,
}

/// Room for a model, which a generation takes away while it runs.
pub(crate) type Room = Arc<Mutex<Option<Box<Opened>>>>;

/// A language model.
#[pyclass(module = "cusync._cusync", name = "Model", frozen)]
pub(crate) struct PyModel {
    room: Room,
    text: Result<Arc<Tokenizer>, String>,
}

/// A text to continue, or its tokens.
#[derive(FromPyObject)]
pub(crate) enum Prompt {
    /// Text.
    Text(String),
    /// Tokens.
    Tokens(Vec<u32>),
}

fn busy() -> Failure {
    argument("the model is generating", "read the stream to its end, or close it: stream.close()")
}

fn options(
    (slots, context, cache_tokens): (usize, Option<usize>, Option<usize>),
    element: Option<&str>,
    device: &str,
    devices: usize,
) -> Result<Options, Failure> {
    let place = match place(device)? {
        pipeline::Place::Best => Place::Best,
        pipeline::Place::Host => Place::Host,
        pipeline::Place::Gpu(number) => Place::Gpu(number),
    };
    if devices == 0 {
        return Err(argument("`devices` is 0", "a model runs on at least one"));
    }
    let element = self::element(element)?;
    Ok(Options { slots, context, cache_tokens, element, place, devices, ..Options::default() })
}

impl PyModel {
    fn holding(opened: Opened) -> PyModel {
        let text = opened.text.clone();
        PyModel { room: Arc::new(Mutex::new(Some(Box::new(opened)))), text }
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Model) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        detached(py, || {
            let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            question(&mut room.as_mut().ok_or_else(busy)?.model)
        })
    }

    fn tokenizer(&self) -> Result<&Arc<Tokenizer>, Failure> {
        self.text.as_ref().map_err(|why| argument(why.clone(), "give tokens to `append` and `step`"))
    }
}

#[pymethods]
impl PyModel {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    #[pyo3(signature = (folder, slots, context, cache_tokens, element, device, devices))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        slots: usize,
        context: Option<usize>,
        cache_tokens: Option<usize>,
        element: Option<&str>,
        device: &str,
        devices: usize,
    ) -> PyResult<PyModel> {
        let opened = detached(py, || {
            let options = options((slots, context, cache_tokens), element, device, devices)?;
            let model = Model::open(&folder, &options, |_| ())?;
            // Tokens can be continued without a tokenizer.
            let text = Tokenizer::open(&folder).map(Arc::new).map_err(|error| error.to_string());
            Ok(Opened { model, text })
        })?;
        Ok(PyModel::holding(opened))
    }

    /// A model from live weights by name, the text of its `config.json`, and that of its tokenizer.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn from_tensors(
        py: Python<'_>,
        config: &str,
        tensors: Vec<(String, Bound<'_, PyAny>)>,
        tokenizer: Option<&str>,
        slots: usize,
        context: Option<usize>,
        cache_tokens: Option<usize>,
        element: Option<&str>,
        device: &str,
        devices: usize,
    ) -> PyResult<PyModel> {
        let given = |(name, tensor): (String, Bound<'_, PyAny>)| {
            let memory = Borrowed::from_object(&tensor, &name, 0)?;
            let kind = match memory.number {
                Number::F16 => WeightType::F16,
                Number::Bf16 => WeightType::Bf16,
                Number::F32 => WeightType::F32,
                Number::I32 | Number::U16 => {
                    let message = format!("`{name}` has type {}", memory.number.name());
                    return Err(raised(py, argument(message, "weights are float16, bfloat16 or float32")));
                }
            };
            Ok(GivenWeight { name, kind, shape: memory.shape.clone(), bytes: Box::new(memory) })
        };
        let weights = tensors.into_iter().map(given).collect::<PyResult<Vec<_>>>()?;
        let opened = detached(py, || {
            let options = options((slots, context, cache_tokens), element, device, devices)?;
            let model = Model::from_given(config, weights, &options, |_| ())?;
            let text = match tokenizer {
                Some(json) => Ok(Arc::new(Tokenizer::from_json(json)?)),
                None => Err("the model was made without a tokenizer".to_owned()),
            };
            Ok(Opened { model, text })
        })?;
        Ok(PyModel::holding(opened))
    }

    /// Slots, context, vocabulary, and the tokens that end a text.
    fn sizes(&self, py: Python<'_>) -> PyResult<(usize, usize, usize, Vec<u32>)> {
        self.ask(py, |model| {
            Ok((model.slots(), model.context(), model.decoder().vocabulary, model.ends().to_vec()))
        })
    }

    /// Element type and place.
    fn names(&self, py: Python<'_>) -> PyResult<(&'static str, String)> {
        self.ask(py, |model| Ok((element_name(model.element()), model.place().to_owned())))
    }

    fn tokens(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        detached(py, || Ok(self.tokenizer()?.tokens(text)?))
    }

    fn text(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<String> {
        detached(py, || Ok(self.tokenizer()?.text(&tokens)?))
    }

    fn append(&self, py: Python<'_>, slot: usize, tokens: Vec<u32>) -> PyResult<()> {
        self.ask(py, |model| Ok(model.append(slot, &tokens)?))
    }

    /// Bytes of float32 logits, a row for each slot named.
    fn step<'py>(&self, py: Python<'py>, tokens: Vec<(usize, u32)>) -> PyResult<Bound<'py, PyByteArray>> {
        let logits = self.ask(py, |model| {
            let logits = model.step(&tokens)?;
            Ok((0..logits.len()).flat_map(|row| logits.row(row)).collect::<Vec<f32>>())
        })?;
        Ok(PyByteArray::new(py, bytemuck::cast_slice(&logits)))
    }

    fn clear(&self, py: Python<'_>, slot: usize) -> PyResult<()> {
        self.ask(py, |model| Ok(model.clear(slot)?))
    }

    fn free_pages(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |model| Ok(model.free_pages()))
    }

    fn length(&self, py: Python<'_>, slot: usize) -> PyResult<usize> {
        self.ask(py, |model| Ok(model.length(slot)?))
    }

    /// Starts to continue texts; the result is an iterator.
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn start(
        &self,
        py: Python<'_>,
        prompts: Vec<Prompt>,
        max_tokens: usize,
        temperature: f32,
        top_k: u32,
        top_p: f32,
        seed: u64,
        stop: Vec<String>,
        ignore_end: bool,
    ) -> PyResult<Generation> {
        let sampling = Sampling { temperature, top_k, top_p };
        check(&sampling).map_err(|failure| raised(py, failure))?;
        let text = self.tokenizer().map_err(|failure| raised(py, failure))?.clone();
        let tokens = detached(py, || {
            let tokens = |prompt| match prompt {
                Prompt::Text(prompt) => Ok(text.tokens(&prompt)?),
                Prompt::Tokens(tokens) => Ok(tokens),
            };
            prompts.into_iter().map(tokens).collect::<Result<Vec<_>, Failure>>()
        })?;
        let opened = detached(py, || {
            self.room.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(busy)
        })?;
        let ends = if ignore_end { Vec::new() } else { opened.model.ends().to_vec() };
        let request = |(seed, prompt)| Request { prompt, max_tokens, sampling, seed, ends: ends.clone() };
        let requests = (0..).map(|n: u64| seed.wrapping_add(n)).zip(tokens).map(request).collect();
        Ok(Generation::start(self.room.clone(), opened, requests, text, Stops(stop)))
    }
}

fn check(sampling: &Sampling) -> Result<(), Failure> {
    let wrong = |name: &str, value: f32, range: &str| {
        Err(argument(format!("`{name}` is {value}"), &format!("give a number {range}")))
    };
    match sampling {
        Sampling { temperature, .. } if !(temperature.is_finite() && *temperature >= 0.0) => {
            wrong("temperature", *temperature, "of at least 0")
        }
        Sampling { top_p, .. } if !(*top_p > 0.0 && *top_p <= 1.0) => {
            wrong("top_p", *top_p, "above 0, and at most 1")
        }
        _ => Ok(()),
    }
}
