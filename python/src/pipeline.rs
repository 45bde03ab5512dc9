//! `Pipeline`: a session with its tensors by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cusync::codegen::graph::{DataType, Element};
use cusync::device::Plain;
use cusync::element::Bits;
use cusync::prelude::*;
use cusync::runtime::{Overlap, Overrides};
use cusync::tune::{PlanCache, Store};
use cusync_cli::embed::{self, Failure, SpecRequest};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use super::error::{argument, detached};
use super::memory::{Borrowed, Number};

/// A proved pipeline that can be given inputs and run repeatedly.
#[pyclass(module = "cusync._cusync", name = "Pipeline", frozen)]
pub(crate) struct PyPipeline {
    inner: Mutex<Inner>,
}

struct Inner {
    session: Session,
    /// The GPU, with its number.
    device: Option<(u32, Device)>,
    /// Objects whose device memory is bound, by tensor.
    kept: HashMap<String, Py<PyAny>>,
}

/// Where something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Best,
    Host,
    Gpu(u32),
}

/// Place by its name: `auto`, `cpu`, `gpu` or `gpu:1`.
pub(crate) fn place(name: &str) -> Result<Place, Failure> {
    match (name, name.strip_prefix("gpu:").map(str::parse)) {
        ("auto", _) => Ok(Place::Best),
        ("cpu", _) => Ok(Place::Host),
        ("gpu", _) => Ok(Place::Gpu(0)),
        (_, Some(Ok(number))) => Ok(Place::Gpu(number)),
        _ => {
            Err(argument(format!("there is no device `{name}`"), "devices: auto, cpu, gpu, gpu:1 and so on"))
        }
    }
}

/// Name of an element type.
pub(crate) fn element_name(element: Element) -> &'static str {
    match element {
        Element::F16 => "f16",
        Element::Bf16 => "bf16",
    }
}

/// Element type by its name: `f16` or `bf16`.
pub(crate) fn element(name: Option<&str>) -> Result<Option<Element>, Failure> {
    match name {
        None => Ok(None),
        Some("f16" | "float16") => Ok(Some(Element::F16)),
        Some("bf16" | "bfloat16") => Ok(Some(Element::Bf16)),
        Some(other) => {
            Err(argument(format!("there is no element type `{other}`"), "element types: f16, bf16"))
        }
    }
}

fn open(
    spec: &str,
    dims: Vec<(String, u64)>,
    element: Option<Element>,
    at: Place,
    options: Options,
) -> Result<Inner, Failure> {
    // Refusals come with their place in the spec.
    let text = embed::text(&SpecRequest { dims: &dims, ..SpecRequest::new(spec) })?;
    let overrides = Overrides { dims, element, ..Overrides::default() };
    let (session, device) = match at {
        Place::Host => (Session::on_host_with(&text, &overrides)?, None),
        Place::Best => {
            let (session, device) = Session::open_with(&text, &overrides)?;
            (session, device.map(|device| (0, device)))
        }
        Place::Gpu(number) => {
            let device =
                Device::open(number).map_err(cusync::runtime::Error::from).map_err(SessionError::from)?;
            // Without a readable cache, the prediction is used.
            let cache: PlanCache = Store::usual().and_then(|store| store.load()).unwrap_or_default();
            let session = Session::on_gpu_with(&text, &overrides, &device, None, options, &cache)?;
            (session, Some((number, device)))
        }
    };
    Ok(Inner { session, device, kept: HashMap::new() })
}

impl Inner {
    fn element(&self) -> Element {
        self.session.plan().graph().element
    }

    fn check(&self, name: &str, given: &Borrowed) -> Result<(), Failure> {
        let (rows, cols) = self.session.shape(name)?;
        let graph = self.session.plan().graph();
        let integers =
            graph.tensors.iter().any(|tensor| tensor.name == name && tensor.data == DataType::Int32);
        let expected = match self.element() {
            _ if integers => Number::I32,
            Element::F16 => Number::F16,
            Element::Bf16 => Number::Bf16,
        };
        let accepted = match given.number {
            number if number == expected => true,
            Number::U16 => !integers,
            Number::F32 => !integers && given.gpu.is_none(),
            Number::F16 | Number::Bf16 | Number::I32 => false,
        };
        if !accepted {
            let message = format!("`{name}` has type {}, not {}", expected.name(), given.number.name());
            let help = match (integers, given.gpu) {
                (true, _) => "give lengths and page numbers as int32",
                (false, None) => "convert it, or give float32, which is rounded",
                (false, Some(_)) => "memory of a GPU is used in place: convert it first",
            };
            return Err(argument(message, help));
        }
        let split = |at| {
            let (left, right) = given.shape.split_at(at);
            (left.iter().product::<usize>(), right.iter().product::<usize>()) == (rows, cols)
        };
        if !(0..=given.shape.len()).any(split) {
            let shape = given.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let help = "rows and columns may have several axes each, but not one axis together";
            return Err(argument(format!("`{name}` has shape ({rows}, {cols}), not ({shape})"), help));
        }
        Ok(())
    }

    fn set(&mut self, name: &str, given: &Borrowed) -> Result<(), Failure> {
        match given.number {
            Number::F32 => self.session.set_f32(name, given.elements()?)?,
            Number::I32 => self.session.set_integers(name, given.elements()?)?,
            Number::F16 | Number::Bf16 | Number::U16 => {
                self.session.set_bits(name, given.elements()?.to_vec())?;
            }
        }
        Ok(())
    }

    fn bind(&mut self, name: &str, given: &Borrowed) -> Result<(), Failure> {
        match given.number {
            Number::I32 => {
                let buffer = self.buffer(given)?;
                self.session.bind_integers(name, buffer)?;
            }
            Number::F16 | Number::Bf16 | Number::U16 | Number::F32 => {
                let buffer = self.buffer(given)?;
                self.session.bind(name, buffer)?;
            }
        }
        Ok(())
    }

    fn buffer<T: Plain>(&self, given: &Borrowed) -> Result<Arc<DeviceBuffer<T>>, Failure> {
        let help = "open the pipeline with device=\"gpu\", or copy the tensor to the host: tensor.cpu()";
        let (number, device) =
            self.device.as_ref().ok_or_else(|| argument("the pipeline runs on the host", help))?;
        if given.gpu != Some(*number) {
            let message = format!("the pipeline runs on GPU {number}, and the tensor is on another device");
            return Err(argument(
                message,
                "open the pipeline with the device of its tensors: device=\"gpu:1\"",
            ));
        }
        let wrong =
            |e: cusync::device::Error| Failure::from(SessionError::from(cusync::runtime::Error::from(e)));
        // SAFETY: the object states that this memory belongs to it. `kept` holds the object until another one takes
        // its place; memory that is lent lives when a run uses it, as its lender states. It is on this device.
        let buffer = unsafe { DeviceBuffer::borrow(device, given.device_address(), given.count()) };
        Ok(Arc::new(buffer.map_err(wrong)?))
    }

    fn run(&mut self, stream: Option<usize>) -> Result<(), Failure> {
        match (&self.device, stream) {
            (None, None) => self.session.run()?,
            (None, Some(_)) => {
                return Err(argument("the pipeline runs on the host", "leave `stream` out"));
            }
            (Some((_, device)), stream) => {
                if let Some(fault) = self.session.pipeline()?.fault() {
                    return Err(SessionError::from(fault).into());
                }
                // SAFETY: the caller states that this is a stream of the device; it outlives this call.
                let named = unsafe { Stream::from_raw(device, stream.unwrap_or(0) as *mut _) };
                self.session.run_on(&named)?;
                if stream.is_none() {
                    let wrong = |e| SessionError::from(cusync::runtime::Error::from(e));
                    named.synchronize().map_err(wrong)?;
                }
            }
        }
        Ok(())
    }
}

impl PyPipeline {
    /// Waits for other calls; called without the interpreter's lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Inner) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        detached(py, || question(&mut self.lock()))
    }
}

#[pymethods]
impl PyPipeline {
    /// `constant`: nothing writes weights while runs are queued, so they are loaded behind any earlier launch.
    #[new]
    fn new(
        py: Python<'_>,
        spec: &str,
        dims: Vec<(String, u64)>,
        element: Option<&str>,
        device: &str,
        constant: bool,
    ) -> PyResult<PyPipeline> {
        let overlap = if constant { Overlap::All } else { Overlap::default() };
        let options = Options { overlap, ..Options::default() };
        let inner = detached(py, || open(spec, dims, self::element(element)?, place(device)?, options))?;
        Ok(PyPipeline { inner: Mutex::new(inner) })
    }

    /// Another pipeline of the same plan, with the same weights and results and semaphores of its own.
    fn fork(&self, py: Python<'_>) -> PyResult<PyPipeline> {
        let (session, device) = self.ask(py, |inner| Ok((inner.session.fork()?, inner.device.clone())))?;
        let kept =
            self.lock().kept.iter().map(|(name, object)| (name.clone(), object.clone_ref(py))).collect();
        Ok(PyPipeline { inner: Mutex::new(Inner { session, device, kept }) })
    }

    /// Takes the laid out weights of another pipeline where they fit; whether all of them do.
    fn share(&self, py: Python<'_>, other: &PyPipeline) -> PyResult<bool> {
        if std::ptr::eq(self, other) {
            return Ok(true);
        }
        self.ask(py, |inner| {
            let pipeline = inner.session.pipeline()?;
            let mut other = other.lock();
            Ok(pipeline.share_repacked(0, other.session.pipeline()?).map_err(SessionError::from)?)
        })
    }

    /// Lays out the weights and drops the originals of those named.
    fn release(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        let dropped = self.ask(py, |inner| {
            if inner.session.plan().launch().shares().is_none() {
                return Err(argument(
                    "only decode kernels lay out weights",
                    "keep the weights of this pipeline",
                ));
            }
            inner.session.pipeline()?.release_originals().map_err(SessionError::from)?;
            Ok(names.iter().filter_map(|name| inner.kept.remove(name)).collect::<Vec<_>>())
        })?;
        drop(dropped);
        Ok(())
    }

    /// Whether it lays out weights, as decode kernels do.
    fn lays_out(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |inner| Ok(inner.session.plan().launch().shares().is_some()))
    }

    /// Laid out weights: for each stage a number that those who share them have in common, and the bytes.
    fn laid_out(&self, py: Python<'_>) -> PyResult<Vec<(usize, usize)>> {
        self.ask(py, |inner| {
            let all = inner.session.pipeline()?.all_repacked(0);
            Ok(all.map(|weights| (Arc::as_ptr(weights).addr(), weights.bytes())).collect())
        })
    }

    /// Makes everything that a run needs, so that the run can be captured.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |inner| Ok(inner.session.pipeline()?.prepare().map_err(SessionError::from)?))
    }

    /// Forgets the memory of some tensors.
    fn unbind(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        self.ask(py, |inner| {
            let pipeline = inner.session.pipeline()?;
            Ok(names.iter().try_for_each(|name| pipeline.unbind(name)).map_err(SessionError::from)?)
        })
    }

    /// Binds device memory that the caller keeps: it must live when a run uses it, and need not between runs.
    fn lend(&self, py: Python<'_>, name: &str, object: &Bound<'_, PyAny>, stream: usize) -> PyResult<()> {
        let given = Borrowed::from_object(object, name, stream)?;
        self.ask(py, |inner| {
            inner.check(name, &given)?;
            inner.bind(name, &given)
        })
    }

    fn inputs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.ask(py, |inner| Ok(inner.session.inputs()))
    }

    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.ask(py, |inner| Ok(inner.session.outputs()))
    }

    fn integers(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.ask(py, |inner| {
            let tensors = inner.session.plan().graph().tensors.iter();
            Ok(tensors.filter(|tensor| tensor.data == DataType::Int32).map(|t| t.name.clone()).collect())
        })
    }

    fn shape(&self, py: Python<'_>, name: &str) -> PyResult<(usize, usize)> {
        self.ask(py, |inner| Ok(inner.session.shape(name)?))
    }

    fn executor(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.ask(py, |inner| Ok(cusync::runtime::executor_name(inner.session.executor())))
    }

    fn element(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.ask(py, |inner| Ok(element_name(inner.element())))
    }

    /// Sets a tensor from host memory, or binds device memory.
    fn set(&self, py: Python<'_>, name: &str, object: &Bound<'_, PyAny>, stream: usize) -> PyResult<()> {
        let given = Borrowed::from_object(object, name, stream)?;
        let mut keeper = Some(given.keeper(py));
        let before = self.ask(py, |inner| {
            inner.check(name, &given)?;
            match given.gpu {
                None => {
                    inner.set(name, &given)?;
                    Ok(inner.kept.remove(name))
                }
                Some(_) => {
                    inner.bind(name, &given)?;
                    Ok(keeper.take().and_then(|keeper| inner.kept.insert(name.to_owned(), keeper)))
                }
            }
        })?;
        // The memory bound before is no longer used, so its object may go.
        drop(before);
        Ok(())
    }

    fn run(&self, py: Python<'_>, stream: Option<usize>) -> PyResult<()> {
        self.ask(py, |inner| inner.run(stream))
    }

    /// What runs on the GPU have reported so far: the edge and the tile of a wait that was never satisfied, or the
    /// sequence that had no room.
    fn fault(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.ask(py, |inner| Ok(inner.session.pipeline()?.fault().map(|fault| fault.to_string())))
    }

    /// Bytes of a tensor: float32 if `wide`, else bits of the element type.
    fn read<'py>(&self, py: Python<'py>, name: &str, wide: bool) -> PyResult<Bound<'py, PyByteArray>> {
        let (values, bits) = self.ask(py, |inner| {
            let values = inner.session.read_f32(name)?;
            let mut bits = Vec::new();
            if !wide {
                bits.resize(values.len(), 0);
                inner.element().round(&values, &mut bits);
            }
            Ok((values, bits))
        })?;
        let bytes: &[u8] = if wide { bytemuck::cast_slice(&values) } else { bytemuck::cast_slice(&bits) };
        Ok(PyByteArray::new(py, bytes))
    }

    /// Judges the last run: whether it is right, and a sentence for each tensor.
    fn verify(&self, py: Python<'_>) -> PyResult<Vec<(String, bool, f64, String)>> {
        self.ask(py, |inner| {
            let judged = inner.session.verify()?;
            let row = |stage: &cusync::reference::Accuracy| {
                (stage.tensor.clone(), stage.verified, stage.of_bound, stage.to_string())
            };
            Ok(judged.iter().map(row).collect())
        })
    }
}
