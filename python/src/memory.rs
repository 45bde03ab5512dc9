//! Memory of Python objects: numpy arrays by `__array_interface__`, other tensors by DLPack.

use std::ffi::{c_char, c_void};

use cusync_cli::embed::Failure;
use cusync_models::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::error::{argument, raised};

/// Type of an object's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F16,
    Bf16,
    F32,
    I32,
    /// Bits of the pipeline's element type.
    U16,
}

impl Number {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Number::F16 => "float16",
            Number::Bf16 => "bfloat16",
            Number::F32 => "float32",
            Number::I32 => "int32",
            Number::U16 => "uint16",
        }
    }
}

/// Memory of an object, row-major without gaps.
#[derive(Debug)]
pub(crate) struct Borrowed {
    address: usize,
    pub(crate) number: Number,
    pub(crate) shape: Vec<usize>,
    /// Number of the GPU that the memory belongs to; `None`: the host.
    pub(crate) gpu: Option<u32>,
    /// The object, or the capsule that keeps its memory.
    keeper: Py<PyAny>,
}

/// Element types of slices.
pub(crate) trait Scalar: Copy {}
impl Scalar for u8 {}
impl Scalar for u16 {}
impl Scalar for f32 {}
impl Scalar for i32 {}

impl Borrowed {
    /// Borrows the memory of an object, which is the tensor `name`. `stream`: where a GPU is about to use it.
    pub(crate) fn from_object(object: &Bound<'_, PyAny>, name: &str, stream: usize) -> PyResult<Borrowed> {
        if let Some(interface) = object.getattr_opt("__array_interface__")? {
            return Borrowed::from_interface(object, name, &interface.cast_into::<PyDict>()?);
        }
        if object.hasattr("__dlpack__")? {
            return Borrowed::from_dlpack(object, name, stream);
        }
        let kind = object.get_type().name()?;
        Err(refused(object, format!("`{name}` is {kind}"), "give an array of numpy, or a tensor with DLPack"))
    }

    fn from_interface(
        object: &Bound<'_, PyAny>,
        name: &str,
        interface: &Bound<'_, PyDict>,
    ) -> PyResult<Borrowed> {
        let field = |key: &str| -> PyResult<Bound<'_, PyAny>> {
            let help = "give an array of numpy";
            interface.get_item(key)?.ok_or_else(|| refused(object, format!("`{name}` lacks `{key}`"), help))
        };
        let unknown = |kind: &str| Err(refused(object, format!("`{name}` has type {kind}"), TYPES));
        let kind: String = field("typestr")?.extract()?;
        let number = match kind.as_str() {
            "<f2" => Number::F16,
            "<f4" => Number::F32,
            "<i4" => Number::I32,
            "<u2" => Number::U16,
            // numpy has no name for it, so the array's type is asked.
            "<V2" | "|V2" => {
                let kind: String = object.getattr("dtype")?.getattr("name")?.extract()?;
                if kind != "bfloat16" {
                    return unknown(&kind);
                }
                Number::Bf16
            }
            other => return unknown(other),
        };
        let strides = interface.get_item("strides")?;
        if strides.is_some_and(|strides| !strides.is_none()) {
            let message = format!("`{name}` is not contiguous");
            return Err(refused(object, message, "give a copy of it: numpy.ascontiguousarray"));
        }
        let (address, _): (usize, bool) = field("data")?.extract()?;
        let shape = field("shape")?.extract()?;
        Ok(Borrowed { address, number, shape, gpu: None, keeper: object.clone().unbind() })
    }

    fn from_dlpack(object: &Bound<'_, PyAny>, name: &str, stream: usize) -> PyResult<Borrowed> {
        let (kind, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        let arguments = PyDict::new(object.py());
        if kind == GPU {
            // The legacy default stream has the number 1 in this protocol.
            arguments.set_item("stream", if stream == 0 { 1 } else { stream })?;
        }
        let capsule = object.call_method("__dlpack__", (), Some(&arguments))?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"dltensor"))?.cast::<DlManaged>();
        // SAFETY: a capsule of this name holds a `DLManagedTensor`, which lives as long as the capsule.
        let tensor = unsafe { &pointer.as_ref().tensor };
        let axes = usize::try_from(tensor.axes).unwrap_or(0);
        let lengths = |first: *const i64| {
            // SAFETY: the protocol has one length and one stride for each axis, unless the pointer is null.
            let values = (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, axes) });
            values.map(|values| values.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect::<Vec<_>>())
        };
        let shape = lengths(tensor.shape).unwrap_or_default();
        if lengths(tensor.strides).is_some_and(|strides| !row_major(&shape, &strides)) {
            let message = format!("`{name}` is not contiguous");
            return Err(refused(object, message, "give a copy of it: tensor.contiguous()"));
        }
        let number = match (tensor.kind.code, tensor.kind.bits, tensor.kind.lanes) {
            (0, 32, 1) => Number::I32,
            (1, 16, 1) => Number::U16,
            (2, 16, 1) => Number::F16,
            (2, 32, 1) => Number::F32,
            (4, 16, 1) => Number::Bf16,
            (code, bits, lanes) => {
                let kind = format!("type {code} of DLPack, with {bits} bits and {lanes} lanes");
                return Err(refused(object, format!("`{name}` has {kind}"), TYPES));
            }
        };
        let gpu = match tensor.device.kind {
            HOST | PINNED => None,
            GPU => Some(u32::try_from(tensor.device.number).unwrap_or(0)),
            other => {
                let message = format!("`{name}` is in the memory of a device of type {other}");
                return Err(refused(object, message, "copy it to the host, or to an NVIDIA GPU"));
            }
        };
        let address = tensor.data as usize + tensor.offset as usize;
        Ok(Borrowed { address, number, shape, gpu, keeper: capsule.into_any().unbind() })
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Address in device memory.
    pub(crate) fn device_address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// The object that keeps the memory.
    pub(crate) fn keeper(&self, py: Python<'_>) -> Py<PyAny> {
        self.keeper.clone_ref(py)
    }

    /// Elements in host memory.
    ///
    /// # Errors
    /// The memory is that of a GPU, or not aligned.
    pub(crate) fn elements<T: Scalar>(&self) -> Result<&[T], Failure> {
        if self.gpu.is_some() {
            return Err(argument(
                "the tensor is in the memory of a GPU",
                "copy it to the host: tensor.cpu()",
            ));
        }
        let size = match self.number {
            Number::F16 | Number::Bf16 | Number::U16 => 2,
            Number::F32 | Number::I32 => 4,
        };
        if !self.address.is_multiple_of(align_of::<T>()) {
            return Err(argument("the array is not aligned", "give a copy of it: array.copy()"));
        }
        let count = self.count() * size / size_of::<T>();
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: the object states an address, a size of its elements, and a contiguous shape, so there are this
        // many values. It is kept by `keeper`, and the package states that arrays must not be changed during a
        // call. Every bit pattern is a value of these types.
        Ok(unsafe { std::slice::from_raw_parts(self.address as *const T, count) })
    }
}

const TYPES: &str =
    "give float16, bfloat16, float32, uint16 (bits of the element type) or int32 (for lengths)";

fn refused(object: &Bound<'_, PyAny>, message: String, help: &str) -> PyErr {
    raised(object.py(), argument(message, help))
}

impl Bytes for Borrowed {
    fn read_at(&self, out: &mut [u8], begin: u64) -> std::io::Result<()> {
        let all: &[u8] = self.elements().map_err(|failure| std::io::Error::other(failure.message))?;
        let rest = usize::try_from(begin).ok().and_then(|begin| all.get(begin..)?.get(..out.len()));
        out.copy_from_slice(rest.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Whether strides (in elements) describe row-major memory without gaps.
fn row_major(shape: &[usize], strides: &[usize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(length, stride)| {
        let fits = *length == 1 || *stride == expected;
        expected *= length;
        fits
    })
}

const HOST: i32 = 1;
const GPU: i32 = 2;
const PINNED: i32 = 3;

/// `DLDevice` of DLPack.
#[repr(C)]
struct DlDevice {
    kind: i32,
    number: i32,
}

/// `DLDataType` of DLPack.
#[repr(C)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor` of DLPack.
#[repr(C)]
struct DlTensor {
    data: *mut c_char,
    device: DlDevice,
    axes: i32,
    kind: DlType,
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

/// The start of `DLManagedTensor` of DLPack.
#[repr(C)]
struct DlManaged {
    tensor: DlTensor,
}
