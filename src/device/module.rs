//! Kernels as functions of loaded images, and their calls, which graphs and streams take.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUlaunchAttributeID_enum as Attribute};

use super::context::Device;
use super::error::{Error, Result, check};
use super::image::{GridControl, Image};
use super::memory::{DeviceBuffer, TimeoutReport};
use super::stream::{LaunchAttributes, Stream};

/// A loaded image of kernels.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    device: Device,
    raw: sys::CUmodule,
    image: Image,
}

// SAFETY: a module may be used from any thread; the context is made current before each call.
unsafe impl Send for Loaded {}
// SAFETY: as above; the field is never written after loading.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: loaded in `Module::load`; every function holds this value, so none is left.
            unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

impl Module {
    /// The kernels of `csrc/suite`.
    ///
    /// # Errors
    /// [`Error::NotBuilt`] if the binary was built without nvcc.
    pub fn suite(device: &Device) -> Result<Module> {
        let image = Image::suite().ok_or_else(|| Error::NotBuilt("the kernel-level suite".into()))?;
        Module::load_image(device, image)
    }

    /// Loads a cubin, a fatbin, or PTX that ends with a zero byte.
    pub fn load(device: &Device, image: &[u8]) -> Result<Module> {
        Module::load_image(device, image.into())
    }

    fn load_image(device: &Device, image: Image) -> Result<Module> {
        let _entered = device.enter()?;
        let mut raw = std::ptr::null_mut();
        // The driver reads the image's length from its header, so the image must be aligned and padded to
        // whole words.
        let words: Vec<u64> = words_of(image.bytes()).collect();
        // SAFETY: a current context; the image is complete, aligned, and outlives the call, which copies it.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut raw, words.as_ptr().cast()) })?;
        Ok(Module { inner: Arc::new(Loaded { device: device.clone(), raw, image }) })
    }

    /// All kernels, loaded like [`Module::function`].
    pub fn functions(&self) -> Result<Vec<Function>> {
        let _entered = self.inner.device.enter()?;
        let mut count = 0;
        // SAFETY: a live module; `count` outlives the call.
        check("cuModuleGetFunctionCount", unsafe {
            sys::cuModuleGetFunctionCount(&mut count, self.inner.raw)
        })?;
        let mut list = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: as above; `list` has room for `count` handles.
        check("cuModuleEnumerateFunctions", unsafe {
            sys::cuModuleEnumerateFunctions(list.as_mut_ptr(), count, self.inner.raw)
        })?;
        let load = |raw| {
            // SAFETY: a live function.
            check("cuFuncLoad", unsafe { sys::cuFuncLoad(raw) })?;
            Ok(Function::of_raw(&self.inner.device, raw, Some(self.clone()))?.of_image(&self.inner.image))
        };
        list.into_iter().map(load).collect()
    }

    /// A kernel by its (unmangled) name. Its code is loaded at once, so that the first launch does not wait
    /// for it.
    pub fn function(&self, name: &str) -> Result<Function> {
        let _entered = self.inner.device.enter()?;
        let symbol = CString::new(name).map_err(|_| Error::BadArgument(format!("kernel `{name}`")))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a live module and a string that ends with a zero.
        let found = unsafe { sys::cuModuleGetFunction(&mut raw, self.inner.raw, symbol.as_ptr()) };
        if found == sys::CUresult::CUDA_ERROR_NOT_FOUND {
            return Err(Error::NotBuilt(format!("kernel `{name}`")));
        }
        check("cuModuleGetFunction", found)?;
        // SAFETY: a live function.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(raw) })?;
        Ok(Function::of_raw(&self.inner.device, raw, Some(self.clone()))?.of_image(&self.inner.image))
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Function {
    device: Device,
    raw: sys::CUfunction,
    name: Arc<str>,
    /// Bytes of each parameter.
    sizes: Arc<[usize]>,
    grid_control: Arc<GridControl>,
    /// `None` for a function loaded elsewhere: its owner keeps it loaded.
    _module: Option<Module>,
}

// SAFETY: a function may be launched from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; nothing is written after construction.
unsafe impl Sync for Function {}

impl Function {
    /// A kernel of a module that the caller loaded: a `CUfunction`, or the `cudaFunction_t` of a `__global__` function.
    ///
    /// # Safety
    /// `function` is a live kernel of `device`'s context, and stays loaded as long as this value, its clones and
    /// everything built with them.
    ///
    /// # Errors
    /// The handle is null, or the driver does not know it.
    pub unsafe fn from_raw(device: &Device, function: *mut c_void) -> Result<Function> {
        if function.is_null() {
            return Err(Error::BadArgument("a kernel that is null".into()));
        }
        let _entered = device.enter()?;
        // SAFETY: guaranteed by the caller. Code that is loaded late could not be captured.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(function.cast()) })?;
        Function::of_raw(device, function.cast(), None)
    }

    pub(super) fn of_raw(device: &Device, raw: sys::CUfunction, module: Option<Module>) -> Result<Function> {
        let mut text = std::ptr::null();
        // SAFETY: a live function; the string lives as long as it.
        let name = unsafe {
            check("cuFuncGetName", sys::cuFuncGetName(&mut text, raw))?;
            CStr::from_ptr(text).to_string_lossy()
        };
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: a live function; an index past the last parameter returns an error.
            let known = unsafe { sys::cuFuncGetParamInfo(raw, sizes.len(), &mut offset, &mut size) };
            if known != sys::CUresult::CUDA_SUCCESS {
                break;
            }
            sizes.push(size);
        }
        Ok(Function {
            device: device.clone(),
            raw,
            name: name.as_ref().into(),
            sizes: sizes.into(),
            grid_control: Arc::new(GridControl::unknown("no image is at hand")),
            _module: module,
        })
    }

    /// The same kernel, with the image from which its module was loaded. It is only read.
    pub fn of_image(self, image: &Image) -> Function {
        let found = image.grid_control(&self.name, self.device.capability());
        Function { grid_control: Arc::new(found), ..self }
    }

    /// Which instructions of programmatic edges its code has; unknown if its image is not at hand.
    pub fn grid_control(&self) -> &GridControl {
        &self.grid_control
    }

    /// Its name in the image.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of each parameter.
    pub fn parameter_sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// CTAs of the given threads and dynamic shared memory that are resident on one SM.
    pub fn resident_per_sm(&self, threads: u32, shared_bytes: u32) -> Result<u32> {
        let _entered = self.device.enter()?;
        let mut ctas = 0;
        // SAFETY: a live function; `ctas` outlives the call.
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut ctas,
                self.raw,
                threads as c_int,
                shared_bytes as usize,
            )
        })?;
        Ok(u32::try_from(ctas).unwrap_or(0))
    }

    /// Threads that a CTA may have: those of `__launch_bounds__`, or as many as the registers allow.
    pub fn max_threads(&self) -> Result<u32> {
        let _entered = self.device.enter()?;
        let mut threads = 0;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: a live function; `threads` outlives the call.
        check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut threads, attribute, self.raw) })?;
        Ok(u32::try_from(threads).unwrap_or(0))
    }

    /// Lets launches have this much dynamic shared memory.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let _entered = self.device.enter()?;
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a live function.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.raw, attribute, bytes as c_int) })
    }

    pub(super) fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub enum Arg {
    /// The address of word `offset` of a buffer.
    Words(Arc<DeviceBuffer<u32>>, usize),
    /// Address of the record that timed-out waits fill.
    Report(Arc<TimeoutReport>),
    /// A null pointer.
    Null,
    /// A 32-bit integer.
    U32(u32),
    /// A 32-bit float.
    F32(f32),
    /// The bytes of any other value.
    Value(Arc<[u8]>),
}

/// Dimensions of a grid and its CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// CTAs in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
}

impl Shape {
    /// A one-dimensional grid.
    pub fn linear(ctas: u32, threads: u32) -> Shape {
        Shape { grid: [ctas, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// CTAs of the grid.
    pub fn ctas(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Threads of one CTA.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// Bytes as whole words, filled up with zeros.
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

/// Memory whose address a kernel receives.
trait Kept: std::fmt::Debug + Send + Sync {}

impl Kept for DeviceBuffer<u32> {}
impl Kept for TimeoutReport {}

/// A kernel with its shape and arguments. Keeps all named memory alive.
#[derive(Clone, Debug)]
pub struct KernelCall {
    function: Function,
    shape: Shape,
    /// Parameter values, each starting at a new word.
    words: Box<[u64]>,
    /// Starting word of each parameter.
    starts: Box<[usize]>,
    _memory: Vec<Arc<dyn Kept>>,
}

impl KernelCall {
    /// Checks the arguments against the kernel's parameters.
    ///
    /// # Errors
    /// [`Error::Length`] if their number differs; [`Error::BadArgument`] if one has another size, or begins
    /// past its buffer's end.
    pub fn new(function: &Function, shape: Shape, args: &[Arg]) -> Result<KernelCall> {
        let sizes = function.parameter_sizes();
        if sizes.len() != args.len() {
            let name = format!("arguments of kernel `{}`", function.name());
            return Err(Error::Length { what: name, have: args.len(), want: sizes.len() });
        }
        let mut memory: Vec<Arc<dyn Kept>> = Vec::new();
        let (mut words, mut starts) = (Vec::with_capacity(args.len()), Vec::with_capacity(args.len()));
        for (index, (arg, &want)) in args.iter().zip(sizes).enumerate() {
            let wrong = || Error::BadArgument(format!("argument {index} of kernel `{}`", function.name()));
            starts.push(words.len());
            let (word, size) = match arg {
                Arg::Words(buffer, offset) => {
                    if *offset > buffer.len() {
                        return Err(wrong());
                    }
                    memory.push(buffer.clone());
                    (buffer.pointer() as u64 + 4 * *offset as u64, 8)
                }
                Arg::Report(report) => {
                    memory.push(report.clone());
                    (report.device_pointer() as u64, 8)
                }
                Arg::Null => (0, 8),
                Arg::U32(value) => (u64::from(*value), 4),
                Arg::F32(value) => (u64::from(value.to_bits()), 4),
                Arg::Value(bytes) => {
                    words.extend(words_of(bytes));
                    (0, bytes.len())
                }
            };
            if size != want {
                return Err(wrong());
            }
            if !matches!(arg, Arg::Value(_)) {
                words.push(word);
            }
        }
        let (words, starts) = (words.into(), starts.into());
        Ok(KernelCall { function: function.clone(), shape, words, starts, _memory: memory })
    }

    /// The kernel.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// The grid and its CTAs.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Calls `with` with pointers to the parameter values, valid during the call.
    pub(super) fn with_parameters<T>(&self, with: impl FnOnce(*mut *mut c_void) -> T) -> T {
        // Larger parameter lists are allocated on the heap.
        let mut few = [std::ptr::null_mut::<c_void>(); 24];
        let pointer = |start: &usize| (&raw const self.words[*start]).cast_mut().cast::<c_void>();
        if self.starts.len() <= few.len() {
            for (slot, start) in few.iter_mut().zip(&self.starts) {
                *slot = pointer(start);
            }
            return with(few.as_mut_ptr());
        }
        let mut many: Vec<_> = self.starts.iter().map(pointer).collect();
        with(many.as_mut_ptr())
    }
}

impl Stream {
    /// Queues a kernel. `programmatic`: it may launch once every CTA of the previous kernel in this stream
    /// has triggered or ended, so it must itself wait (`griddepcontrol.wait`) before it accesses memory.
    pub fn launch(&self, call: &KernelCall, programmatic: bool) -> Result<()> {
        call.launch(LaunchAttributes { stream: self, started: None, programmatic }, programmatic)
    }
}

impl KernelCall {
    /// [`Stream::launch`], which also records when all CTAs have begun. `triggers`: they issue triggers, as kernels
    /// for sm_90 do; otherwise the time of the record is a hint.
    pub(super) fn launch(&self, how: LaunchAttributes<'_>, triggers: bool) -> Result<()> {
        let _entered = how.stream.device().enter()?;
        let attribute = |id, value| sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let none = || sys::CUlaunchAttributeValue { pad: [0; 64] };
        let early = Attribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let (mut attributes, mut count) = ([attribute(early, none()); 2], 0);
        if how.programmatic {
            attributes[0].value.programmaticStreamSerializationAllowed = 1;
            count = 1;
        }
        if let Some(started) = how.started {
            let (event, flags, mut value) = (started.pointer().cast(), 0, none());
            let id = if triggers {
                value.programmaticEvent =
                    sys::CUlaunchAttributeValue_union__bindgen_ty_2 { event, flags, triggerAtBlockStart: 0 };
                Attribute::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            } else {
                value.launchCompletionEvent =
                    sys::CUlaunchAttributeValue_union__bindgen_ty_3 { event, flags };
                Attribute::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
            };
            attributes[count] = attribute(id, value);
            count += 1;
        }
        let shape = self.shape();
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared_bytes,
            hStream: how.stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        self.with_parameters(|parameters| {
            // SAFETY: a live stream and function; the parameters match the kernel's number and sizes, and the
            // driver copies them before it returns.
            check("cuLaunchKernelEx", unsafe {
                sys::cuLaunchKernelEx(&config, self.function.raw, parameters, std::ptr::null_mut())
            })
        })
    }
}
