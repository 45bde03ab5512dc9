//! The kernel that a user writes for a Custom stage: its code, compiled or loaded, and its launches.
//!
//! ```
//! use cusync::device::KernelCode;
//!
//! let code = KernelCode::source("scale.cu", "#include <cusync/custom.cuh>\n__global__ void scale(");
//! // Compiling needs NVRTC, but no GPU.
//! let wrong = code.compile((9, 0), None).expect_err("half a kernel").to_string();
//! assert!(wrong.contains("scale.cu(2): error") || wrong.contains("pip install nvidia-cuda-nvrtc"), "{wrong}");
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cusync_gen::graph::Element;

use super::context::Device;
use super::error::{Error, Result};
use super::kernel::{Code, Kernel, KernelArgs};
use super::module::{Arg, Function, KernelCall, Module, Shape};
use super::nvrtc::{self, Named};
use super::work::WorkDistribution;
use crate::ffi;
use crate::sources::{HEADERS, ROOT, compiler};

/// The integers of `<stdint.h>`, which NVRTC lacks.
const STDINT: &str = "#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
#define UINT32_MAX 0xffffffffu
#define UINT64_MAX 0xffffffffffffffffull
";

/// Code of the kernel of a Custom stage: `csrc/include/cusync/custom.cuh` says how it is written.
#[derive(Clone, Debug)]
pub struct KernelCode {
    file: String,
    form: Form,
    entry: Option<String>,
    shared_bytes: u32,
}

#[derive(Clone, Debug)]
enum Form {
    /// CUDA C++.
    Source(Arc<str>),
    /// For the driver.
    Image(Arc<[u8]>),
}

impl KernelCode {
    /// CUDA C++, compiled by NVRTC. Errors name `file`, and its own `#include "..."` are searched in its folder.
    pub fn source(file: &str, text: &str) -> KernelCode {
        KernelCode::new(file, Form::Source(text.into()))
    }

    /// A cubin, a fatbin, or PTX as text, compiled against the headers of this version.
    pub fn image(file: &str, image: &[u8]) -> KernelCode {
        // The driver reads PTX up to a zero byte.
        KernelCode::new(file, Form::Image([image, &[0]].concat().into()))
    }

    fn new(file: &str, form: Form) -> KernelCode {
        KernelCode { file: file.into(), form, entry: None, shared_bytes: 0 }
    }

    /// Reads a file: `.cu` is a source, `.cubin`, `.fatbin` and `.ptx` are images.
    ///
    /// # Errors
    /// [`Error::Code`] if it cannot be read, or has another ending.
    pub fn read(path: &Path) -> Result<KernelCode> {
        let file = path.display().to_string();
        const HELP: &str = "\n  help: give a file that ends with .cu, .cubin, .fatbin or .ptx";
        let unread = |e: std::io::Error| Error::Code { file: file.clone(), why: format!("{e}{HELP}") };
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("cu") => Ok(KernelCode::source(&file, &std::fs::read_to_string(path).map_err(unread)?)),
            Some("cubin" | "fatbin" | "ptx") => {
                Ok(KernelCode::image(&file, &std::fs::read(path).map_err(unread)?))
            }
            _ => Err(Error::Code { file, why: format!("it is neither CUDA C++ nor an image{HELP}") }),
        }
    }

    /// Names the kernel, as in the image; otherwise it is the only one, or that with the name of the stage.
    #[must_use]
    pub fn entry(self, name: &str) -> KernelCode {
        KernelCode { entry: Some(name.into()), ..self }
    }

    /// Dynamic shared memory of a CTA; 0 if not called.
    #[must_use]
    pub fn shared_bytes(self, bytes: u32) -> KernelCode {
        KernelCode { shared_bytes: bytes, ..self }
    }

    /// The image for a GPU of a compute capability; images stay as they are. `plan`: name and text of another header
    /// that the source may include, the rendered one of a plan.
    ///
    /// # Errors
    /// [`Error::Code`] with the compiler's messages; [`Error::NoLibrary`] without NVRTC.
    pub fn compile(&self, capability: (u32, u32), plan: Option<(&str, &str)>) -> Result<Arc<[u8]>> {
        let source = match &self.form {
            Form::Image(image) => return Ok(image.clone()),
            Form::Source(text) => text,
        };
        let names: Vec<String> = HEADERS.iter().map(|(name, _)| format!("cusync/{name}")).collect();
        let own = names.iter().zip(HEADERS).map(|(name, (_, text))| (name.as_str(), *text));
        let headers: Vec<Named<'_>> = own.chain([("stdint.h", STDINT)]).chain(plan).collect();
        let (major, minor) = capability;
        let features = if capability == (9, 0) { "a" } else { "" };
        let mut options =
            vec!["--std=c++17".to_owned(), format!("--gpu-architecture=sm_{major}{minor}{features}")];
        let folders = self.folders().into_iter().filter(|folder| folder.is_dir());
        options.extend(folders.map(|folder| format!("--include-path={}", folder.display())));
        let compiled = nvrtc::compile((&self.file, source), &headers, &options)?;
        compiled.map(Into::into).map_err(|log| self.wrong(format!(
                "it does not compile\n{log}\n  help: cusync/custom.cuh and docs/spec.md say how a kernel of a Custom stage is written"
            )))
    }

    /// Folders of headers: that of the source, and those of CUDA, for `cuda_fp16.h` and others.
    fn folders(&self) -> Vec<PathBuf> {
        let beside = Path::new(&self.file).parent().map(Path::to_owned);
        let beside = beside.map(|folder| if folder == Path::new("") { ".".into() } else { folder });
        let home = std::env::var_os("CUDA_HOME").map(PathBuf::from);
        let fetched = compiler::folders(ROOT.as_ref()).into_iter().map(|folder| folder.join("nvidia/cu13"));
        let usual = Some(PathBuf::from("/usr/local/cuda"));
        let cuda = home.into_iter().chain(fetched).chain(usual).map(|cuda| cuda.join("include"));
        let cuda = cuda.filter(|include| include.join("cuda_fp16.h").exists()).take(1);
        let cuda = cuda.flat_map(|include| [include.clone(), include.join("cccl")]);
        beside.into_iter().chain(cuda).collect()
    }

    /// Compiles the code if it is a source, and loads the kernel of a stage. `plan` as in [`KernelCode::compile`].
    ///
    /// # Errors
    /// Errors of [`KernelCode::compile`]; [`Error::Code`] if the GPU does not take the image, or if it has no such
    /// kernel.
    pub fn load(&self, device: &Device, stage: &str, plan: (&str, &str)) -> Result<OwnKernel> {
        let image = self.compile(device.capability(), Some(plan))?;
        let (major, minor) = device.capability();
        let module = Module::load(device, &image).map_err(|e| {
            self.wrong(format!("{e}\n  help: compile it for this GPU, of compute capability {major}.{minor}"))
        })?;
        let function = self.find(module.functions()?, stage)?;
        let (sizes, wanted) = (function.parameter_sizes(), size_of::<ffi::cusync_custom>());
        if sizes != [wanted] {
            let name = function.name();
            return Err(self.wrong(format!(
                "the parameters of `{name}` have {sizes:?} bytes, and a Custom stage passes one cusync_custom of {wanted}\n  help: write `extern \"C\" __global__ void {name}(const __grid_constant__ cusync_custom parameters)`, compiled against the headers of this version"
            )));
        }
        // A CTA is as large as the launch bounds or the registers allow, in whole warps.
        let threads = function.max_threads()? / 32 * 32;
        function.allow_shared(self.shared_bytes).map_err(|e| {
            self.wrong(format!("{} bytes of shared memory: {e}\n  help: ask for less", self.shared_bytes))
        })?;
        if threads == 0 || function.resident_per_sm(threads, self.shared_bytes)? == 0 {
            let name = function.name();
            return Err(self.wrong(format!(
                "no CTA of `{name}` fits an SM of {}\n  help: state fewer threads with __launch_bounds__, or less shared memory",
                device.name()
            )));
        }
        Ok(OwnKernel { function, threads, shared_bytes: self.shared_bytes })
    }

    /// The kernel of a stage.
    fn find(&self, functions: Vec<Function>, stage: &str) -> Result<Function> {
        let names: Vec<String> = functions.iter().map(|function| function.name().to_owned()).collect();
        let wanted = self.entry.as_deref().unwrap_or(stage);
        let only = self.entry.is_none() && functions.len() == 1;
        let found = functions.into_iter().find(|function| only || function.name() == wanted);
        found.ok_or_else(|| {
            let have = if names.is_empty() { "none".into() } else { names.join(", ") };
            self.wrong(format!("there is no kernel `{wanted}`\n  help: its kernels are: {have}"))
        })
    }

    fn wrong(&self, why: String) -> Error {
        Error::Code { file: self.file.clone(), why }
    }
}

/// A loaded kernel of a Custom stage.
#[derive(Clone, Debug)]
pub struct OwnKernel {
    function: Function,
    threads: u32,
    shared_bytes: u32,
}

/// A read of a Custom stage.
#[derive(Clone, Copy, Debug)]
pub struct OwnRead {
    /// Sizes of the tensor, and the box that a tile reads; the rest is for waits.
    pub edge: ffi::cusync_edge,
    /// Whether the kernel waits for the tiles that the edge names.
    pub waits: bool,
}

impl Kernel {
    /// Prepares the user's kernel of a Custom stage, the only one of `args`, whose waits and `id` are not used: `reads`
    /// has one entry per operand.
    ///
    /// # Errors
    /// A buffer's size differs from its shape, or there are too many reads or consumers.
    pub fn own(device: &Device, own: &OwnKernel, args: KernelArgs, reads: &[OwnRead]) -> Result<Kernel> {
        let WorkDistribution::Order { order, drawn } = args.work else {
            return Err(Error::BadArgument(format!("{} follows no order", args.name)));
        };
        let per_sm = own.function.resident_per_sm(own.threads, own.shared_bytes)?;
        let ctas = (per_sm * device.sms()).min(order.grid_m * order.grid_n).max(1);
        let parameters = parameters(&args, order, drawn, reads)?;
        let shape = Shape { shared_bytes: own.shared_bytes, ..Shape::linear(ctas, own.threads) };
        let call = KernelCall::new(&own.function, shape, &[Arg::Value(bytes(&parameters))])?;
        Ok(Kernel::with_code(device, Code::Own(call), args, (ctas, per_sm)))
    }
}

/// The parameter of a stage's kernel, after checking that every buffer has the size given by the shape.
fn parameters(
    args: &KernelArgs,
    order: ffi::cusync_order,
    drawn: bool,
    reads: &[OwnRead],
) -> Result<ffi::cusync_custom> {
    let [bound] = &args.stages[..] else {
        return Err(Error::BadArgument(format!("{}: one stage, not {}", args.name, args.stages.len())));
    };
    let most = |name: &str, have: usize, most: usize| {
        let why = || Error::BadArgument(format!("{}: {have} {name}, a kernel takes {most}", args.name));
        if have <= most { Ok(()) } else { Err(why()) }
    };
    let (stage, sync) = (&bound.stage, args.sync.raw(&args.stages));
    let (tile, skips) = (stage.out_tile(), sync.test.skip_waits != 0);
    let mut p = ffi::cusync_custom {
        read_count: reads.len() as u32,
        index: bound.index,
        bf16: u32::from(bound.element == Element::Bf16),
        rows: stage.m,
        cols: stage.n,
        tile_rows: tile.0,
        tile_cols: tile.1,
        k_blocks: stage.k_blocks,
        order,
        out: bound.out.pointer(),
        semaphores: sync.semaphores,
        tickets: if drawn { sync.tickets } else { std::ptr::null_mut() },
        report: sync.report,
        timeout_ns: sync.timeout_ns,
        ..Default::default()
    };
    most("reads", reads.len(), p.reads.len())?;
    most("consumers", bound.posts.len(), p.posts.len())?;
    bound.exact("the output", bound.out.len(), (stage.m, stage.n))?;
    bound.exact("the reads", reads.len(), (1, bound.operands.len() as u32))?;
    for (at, (read, (kind, source))) in reads.iter().zip(&bound.operands).enumerate() {
        let edge = &read.edge;
        bound.exact(&format!("{kind:?}"), source.len(), (edge.tensor_rows, edge.tensor_cols))?;
        (p.data[at], p.reads[at]) = (source.pointer(), *edge);
        p.waits |= u32::from(read.waits && !skips) << at;
    }
    let slots = bound.posts.iter().chain(reads.iter().filter(|r| r.waits).map(|r| &r.edge.policy));
    let slots = slots.map(|p| (p.slot_base + p.slot_count) as usize).max().unwrap_or(0);
    args.holds("semaphore slots", sync_words(args), slots)?;
    p.posts[..bound.posts.len()].copy_from_slice(&bound.posts);
    // A starved stage does not post.
    p.post_count = if sync.test.starve == 0 { bound.posts.len() as u32 } else { 0 };
    Ok(p)
}

fn sync_words(args: &KernelArgs) -> usize {
    args.sync.semaphores.as_ref().map_or(0, |semaphores| semaphores.len())
}

/// The bytes of a parameter.
fn bytes(parameters: &ffi::cusync_custom) -> Arc<[u8]> {
    const {
        let (edges, policies) = (8 * size_of::<ffi::cusync_edge>(), 4 * size_of::<ffi::cusync_policy>());
        let (numbers, order) = (10 * size_of::<u32>(), size_of::<ffi::cusync_order>());
        assert!(size_of::<ffi::cusync_custom>() == edges + policies + numbers + order + (8 + 5) * 8);
    }
    // SAFETY: plain data without padding, as checked above.
    let bytes = unsafe {
        let start = std::ptr::from_ref(parameters).cast::<u8>();
        std::slice::from_raw_parts(start, size_of::<ffi::cusync_custom>())
    };
    bytes.into()
}
