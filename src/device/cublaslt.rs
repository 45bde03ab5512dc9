//! cuBLASLt, loaded when it is there: a peer of the benchmarks, and what the `library` executor runs.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys;

use super::context::{Device, installed};
use super::error::{Error, Result};
use super::helpers;
use super::memory::DeviceBuffer;
use super::stage::{BoundStage, Role};
use super::stream::Stream;
use crate::ffi;

/// Workspace that algorithms may use, the size that NVIDIA recommends on Hopper.
const WORKSPACE: usize = 32 << 20;

/// Algorithms of the heuristic that are timed, as many with a workspace as without one; the fastest is kept. Those that have a workspace
/// may draw their tiles from a counter in it, which is cleared before each launch and takes 4 us of it; without one they have lists.
const CANDIDATES: usize = 8;

/// How often each of them is timed, the runs of one timing, and how often those are timed again that took at most so many times
/// what the fastest did: a few runs do not tell 2 % apart.
const TURNS: usize = 3;
const TIMED: usize = 5;
const TURNS_OF_NEAR: usize = 12;
const NEAR: f64 = 1.05;

/// `CUBLAS_OP_T` of `cublasOperation_t`.
static TRANSPOSED: i32 = 1;

fn check(call: &'static str, status: sys::cublasStatus_t) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        other => Err(Error::Library { call, status: format!("{other:?}") }),
    }
}

/// How operand B of a product lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    /// K x N, as pipelines have it.
    AsBound,
    /// N x K, a copy, for which the library has other kernels.
    Turned,
}

/// How the library computes a product.
#[derive(Clone, Copy, Debug)]
struct Algorithm {
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Bytes of workspace that it is given: it may be another kernel with none.
    workspace: usize,
}

/// Owned handles of one matrix product. Matrices are row-major here and column-major there, so the product is
/// computed transposed: D' (N x M) = B' (N x K) A' (K x M).
#[derive(Debug)]
struct Product {
    handle: sys::cublasLtHandle_t,
    desc: sys::cublasLtMatmulDesc_t,
    /// B', or B where that is turned, A', D'.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    preference: sys::cublasLtMatmulPreference_t,
}

// SAFETY: cuBLASLt handles may be used from any thread.
unsafe impl Send for Product {}
// SAFETY: the library is thread-safe, and what it is described by is written at creation alone.
unsafe impl Sync for Product {}

impl Drop for Product {
    fn drop(&mut self) {
        // SAFETY: each handle is null or was created once; destroying fails harmlessly at worst.
        unsafe {
            if !self.preference.is_null() {
                sys::cublasLtMatmulPreferenceDestroy(self.preference);
            }
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                sys::cublasLtMatrixLayoutDestroy(layout);
            }
            if !self.desc.is_null() {
                sys::cublasLtMatmulDescDestroy(self.desc);
            }
            if !self.handle.is_null() {
                sys::cublasLtDestroy(self.handle);
            }
        }
    }
}

impl Product {
    /// The product of a stage, before it is gated or rotated. `floats`: its results are left as such.
    fn new(stage: &BoundStage, floats: bool, weights: Weights) -> Result<Product> {
        let mut product = Product {
            handle: std::ptr::null_mut(),
            desc: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            preference: std::ptr::null_mut(),
        };
        let element = match stage.element {
            ffi::CUSYNC_F16 => sys::cudaDataType::CUDA_R_16F,
            ffi::CUSYNC_BF16 => sys::cudaDataType::CUDA_R_16BF,
            other => return Err(Error::BadArgument(format!("cuBLASLt with elements of kind {other}"))),
        };
        let (compute, scale) = (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F);
        use sys::cublasLtEpilogue_t as Epilogue;
        let bias = stage.matrix(Role::Bias);
        let activation = if stage.gated() { ffi::CUSYNC_IDENTITY } else { stage.activation };
        let epilogue = match (activation, bias.is_some()) {
            (ffi::CUSYNC_GELU_TANH, false) => Epilogue::CUBLASLT_EPILOGUE_GELU,
            (ffi::CUSYNC_GELU_TANH, true) => Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS,
            (ffi::CUSYNC_RELU, false) => Epilogue::CUBLASLT_EPILOGUE_RELU,
            (ffi::CUSYNC_RELU, true) => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
            (ffi::CUSYNC_IDENTITY, false) => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            (ffi::CUSYNC_IDENTITY, true) => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            (other, _) => return Err(Error::BadArgument(format!("cuBLASLt with activation {other}"))),
        };
        let late = activation != ffi::CUSYNC_IDENTITY && !stage.residual_first;
        if late && stage.matrix(Role::Residual).is_some() {
            let why = format!("{}: cuBLASLt adds a residual before the activation", stage.name);
            return Err(Error::BadArgument(why));
        }
        let (m, n, k) =
            (u64::from(stage.shape.0), u64::from(stage.packed_columns()), u64::from(stage.shape.2));
        let result = if floats { sys::cudaDataType::CUDA_R_32F } else { element };
        let of_weights = if weights == Weights::Turned { (element, k, n) } else { (element, n, k) };
        let shapes = [of_weights, (element, k, m), (result, n, m)];
        // SAFETY: every out-pointer outlives its call, attributes have the size stated, and what was created is
        // destroyed by `Product`'s drop also when a later call fails.
        unsafe {
            check("cublasLtCreate", sys::cublasLtCreate(&mut product.handle))?;
            check(
                "cublasLtMatmulDescCreate",
                sys::cublasLtMatmulDescCreate(&mut product.desc, compute, scale),
            )?;
            check(
                "cublasLtMatmulDescSetAttribute",
                sys::cublasLtMatmulDescSetAttribute(
                    product.desc,
                    sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_EPILOGUE,
                    (&raw const epilogue).cast::<c_void>(),
                    size_of_val(&epilogue),
                ),
            )?;
            if weights == Weights::Turned {
                check(
                    "cublasLtMatmulDescSetAttribute",
                    sys::cublasLtMatmulDescSetAttribute(
                        product.desc,
                        sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                        (&raw const TRANSPOSED).cast::<c_void>(),
                        size_of_val(&TRANSPOSED),
                    ),
                )?;
            }
            if let Some(bias) = bias {
                let pointer = bias.pointer();
                check(
                    "cublasLtMatmulDescSetAttribute",
                    sys::cublasLtMatmulDescSetAttribute(
                        product.desc,
                        sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                        (&raw const pointer).cast::<c_void>(),
                        size_of_val(&pointer),
                    ),
                )?;
            }
            for (layout, (element, rows, columns)) in product.layouts.iter_mut().zip(shapes) {
                check(
                    "cublasLtMatrixLayoutCreate",
                    sys::cublasLtMatrixLayoutCreate(layout, element, rows, columns, rows as i64),
                )?;
            }
            check(
                "cublasLtMatmulPreferenceCreate",
                sys::cublasLtMatmulPreferenceCreate(&mut product.preference),
            )?;
        }
        Ok(product)
    }

    /// Operand B of a stage, turned; `self` has that layout.
    fn turn(&self, device: &Device, stage: &BoundStage) -> Result<DeviceBuffer<u16>> {
        let (_, from, _) = stage.product()?;
        let turned = DeviceBuffer::new(device, from.len(), &format!("turned weights of {}", stage.name))?;
        let transform = Transform::new(stage)?;
        let stream = Stream::new(device)?;
        let (one, zero) = (1f32, 0f32);
        // SAFETY: handles live, both matrices are N x K values, as `BoundStage::product` has checked, and live until the stream is done;
        // scalars are read on the host during the call.
        check("cublasLtMatrixTransform", unsafe {
            sys::cublasLtMatrixTransform(
                self.handle,
                transform.desc,
                (&raw const one).cast(),
                from.pointer(),
                transform.from,
                (&raw const zero).cast(),
                std::ptr::null(),
                std::ptr::null_mut(),
                turned.pointer(),
                self.layouts[0],
                stream.pointer().cast(),
            )
        })?;
        stream.synchronize()?;
        Ok(turned)
    }

    /// The heuristic's best algorithms with a workspace, its favourite first, and behind them its best without one.
    fn candidates(&self) -> Result<Vec<Algorithm>> {
        let mut found = self.candidates_within(WORKSPACE)?;
        found.extend(self.candidates_within(0)?);
        Ok(found)
    }

    fn candidates_within(&self, workspace: usize) -> Result<Vec<Algorithm>> {
        // SAFETY: the result type is plain numbers, for which zero is valid; zero is also the status of success.
        let empty: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut results = vec![empty; CANDIDATES];
        let mut count: c_int = 0;
        let [b, a, d] = self.layouts;
        // SAFETY: the preference lives, and the attribute has the size stated.
        check("cublasLtMatmulPreferenceSetAttribute", unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                self.preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast::<c_void>(),
                size_of_val(&workspace),
            )
        })?;
        // SAFETY: all handles live, `results` holds CANDIDATES entries.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.desc,
                b,
                a,
                d,
                d,
                self.preference,
                CANDIDATES as c_int,
                results.as_mut_ptr(),
                &mut count,
            )
        };
        if status == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            return Ok(Vec::new());
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        results.truncate(usize::try_from(count).unwrap_or(0));
        results.retain(|r| {
            r.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && r.workspaceSize <= workspace
        });
        Ok(results.into_iter().map(|r| Algorithm { algorithm: r.algo, workspace }).collect())
    }
}

/// Owned handles of the transposition of a stage's operand B.
struct Transform {
    desc: sys::cublasLtMatrixTransformDesc_t,
    from: sys::cublasLtMatrixLayout_t,
}

impl Transform {
    fn new(stage: &BoundStage) -> Result<Transform> {
        let mut transform = Transform { desc: std::ptr::null_mut(), from: std::ptr::null_mut() };
        let element = match stage.element {
            ffi::CUSYNC_BF16 => sys::cudaDataType::CUDA_R_16BF,
            _ => sys::cudaDataType::CUDA_R_16F,
        };
        let (n, k) = (u64::from(stage.packed_columns()), u64::from(stage.shape.2));
        // SAFETY: every out-pointer outlives its call, the attribute has the size stated, and what was created is destroyed by
        // `Transform`'s drop also when a later call fails.
        unsafe {
            check(
                "cublasLtMatrixTransformDescCreate",
                sys::cublasLtMatrixTransformDescCreate(&mut transform.desc, sys::cudaDataType::CUDA_R_32F),
            )?;
            check(
                "cublasLtMatrixTransformDescSetAttribute",
                sys::cublasLtMatrixTransformDescSetAttribute(
                    transform.desc,
                    sys::cublasLtMatrixTransformDescAttributes_t::CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA,
                    (&raw const TRANSPOSED).cast::<c_void>(),
                    size_of_val(&TRANSPOSED),
                ),
            )?;
            check(
                "cublasLtMatrixLayoutCreate",
                sys::cublasLtMatrixLayoutCreate(&mut transform.from, element, n, k, n as i64),
            )?;
        }
        Ok(transform)
    }
}

impl Drop for Transform {
    fn drop(&mut self) {
        // SAFETY: each handle is null or was created once; destroying fails harmlessly at worst.
        unsafe {
            if !self.from.is_null() {
                sys::cublasLtMatrixLayoutDestroy(self.from);
            }
            if !self.desc.is_null() {
                sys::cublasLtMatrixTransformDescDestroy(self.desc);
            }
        }
    }
}

/// A product that a kernel of its own finishes, where it does not lie in the output: gate and up of a gated stage, in turns of 8 columns,
/// and heads that are to be rotated.
#[derive(Debug)]
enum Unfinished {
    Halves(DeviceBuffer<u16>),
    /// What bf16 stages have: values rounded to its 8 bits twice would take results past the tolerance.
    Floats(DeviceBuffer<f32>),
}

impl Unfinished {
    fn new(device: &Device, stage: &BoundStage) -> Result<Option<Unfinished>> {
        let len = stage.shape.0 as usize * stage.packed_columns() as usize;
        let what = format!("the product of {}", stage.name);
        Ok(match (stage.gated() || stage.rotates(), stage.element) {
            (true, ffi::CUSYNC_BF16) => Some(Unfinished::Floats(DeviceBuffer::new(device, len, &what)?)),
            // Heads are rotated where they lie.
            (true, _) if stage.gated() => Some(Unfinished::Halves(DeviceBuffer::new(device, len, &what)?)),
            _ => None,
        })
    }
}

/// A stage by cuBLASLt, the activation fused, or with a kernel of its own where the stage is gated or rotates: the fastest of the
/// heuristic's first eight algorithms for the shape with and without a workspace, found by timing them once, with weights as they are
/// bound or turned.
#[derive(Debug)]
pub struct CublasLt {
    device: Device,
    product: Product,
    /// Operand B where it is turned.
    turned: Option<DeviceBuffer<u16>>,
    algorithm: Algorithm,
    workspace: DeviceBuffer<u8>,
    stage: BoundStage,
    unfinished: Option<Unfinished>,
}

impl CublasLt {
    /// Makes a stage ready; a residual only where no activation stands before it. `constant`: nobody writes operand B while this lives, so
    /// that a copy may be laid out anew, now.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] where cuBLASLt is not installed.
    pub fn new(device: &Device, stage: BoundStage, constant: bool) -> Result<CublasLt> {
        let as_bound = CublasLt::with(device, stage.clone(), Weights::AsBound)?;
        if !constant {
            return Ok(as_bound);
        }
        let turned = match CublasLt::with(device, stage, Weights::Turned) {
            Ok(turned) => turned,
            // No algorithm, or no memory for the copy.
            Err(_) => return Ok(as_bound),
        };
        let stream = Stream::new(device)?;
        let both = [as_bound, turned];
        let least = stream.least_us((2, TURNS_OF_NEAR, TIMED), |index| both[index].launch(&stream))?;
        let [as_bound, turned] = both;
        Ok(if least[1] < least[0] { turned } else { as_bound })
    }

    fn with(device: &Device, stage: BoundStage, weights: Weights) -> Result<CublasLt> {
        let _entered = device.enter()?;
        // cudarc would panic on the first call.
        if !CublasLt::is_installed() {
            return Err(Error::NoLibrary("cuBLASLt (libcublasLt.so.13)"));
        }
        stage.product()?; // the sizes of the operands
        let unfinished = Unfinished::new(device, &stage)?;
        let product = Product::new(&stage, matches!(unfinished, Some(Unfinished::Floats(_))), weights)?;
        let turned = (weights == Weights::Turned).then(|| product.turn(device, &stage)).transpose()?;
        let candidates = product.candidates()?;
        let Some(&algorithm) = candidates.first() else {
            return Err(Error::NotBuilt(format!("cuBLASLt: no algorithm for {:?}: it", stage.shape)));
        };
        let workspace = DeviceBuffer::zeroed(device, WORKSPACE, "the cuBLASLt workspace")?;
        let mut gemm =
            CublasLt { device: device.clone(), product, turned, algorithm, workspace, stage, unfinished };
        gemm.tune(&candidates)?;
        Ok(gemm)
    }

    /// Whether the library is there.
    pub fn is_installed() -> bool {
        installed(&["libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"])
    }

    /// The same product on other operands of the same shape, without tuning again.
    pub fn like(&self, stage: BoundStage) -> Result<CublasLt> {
        stage.product()?;
        let alike = |s: &BoundStage| (s.operation, s.shape, s.element, s.activation);
        if alike(&stage) != alike(&self.stage) {
            return Err(Error::BadArgument(format!("cuBLASLt product of {}", stage.name)));
        }
        let unfinished = Unfinished::new(&self.device, &stage)?;
        let weights = if self.turned.is_some() { Weights::Turned } else { Weights::AsBound };
        let product = Product::new(&stage, matches!(unfinished, Some(Unfinished::Floats(_))), weights)?;
        let turned = self.turned.as_ref().map(|_| product.turn(&self.device, &stage)).transpose()?;
        Ok(CublasLt {
            device: self.device.clone(),
            product,
            turned,
            unfinished,
            algorithm: self.algorithm,
            workspace: DeviceBuffer::zeroed(&self.device, WORKSPACE, "the cuBLASLt workspace")?,
            stage,
        })
    }

    /// Takes the fastest candidate; the fastest take more turns than the others.
    fn tune(&mut self, candidates: &[Algorithm]) -> Result<()> {
        let stream = Stream::new(&self.device)?;
        let mut timed = |candidates: &[Algorithm], turns| {
            stream.least_us((candidates.len(), turns, TIMED), |index| {
                self.algorithm = candidates[index];
                self.launch(&stream)
            })
        };
        let least = timed(candidates, TURNS)?;
        let near = NEAR * least.iter().copied().fold(f64::INFINITY, f64::min);
        let kept: Vec<_> =
            candidates.iter().zip(least).filter(|(_, us)| *us <= near).map(|(c, _)| *c).collect();
        let least = timed(&kept, TURNS_OF_NEAR)?;
        if let Some((&fastest, _)) = kept.iter().zip(&least).min_by(|a, b| a.1.total_cmp(b.1)) {
            self.algorithm = fastest;
        }
        Ok(())
    }

    /// Queues the product.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        let (from_a, from_b, out) = self.stage.product()?;
        let to = match &self.unfinished {
            None => out.pointer(),
            Some(Unfinished::Halves(product)) => product.pointer(),
            Some(Unfinished::Floats(product)) => product.pointer(),
        };
        // What is added before the activation: a residual that stands there, or that of a stage without one.
        let residual = self.stage.matrix(Role::Residual);
        let (one, beta) = (1f32, if residual.is_some() { 1f32 } else { 0f32 });
        let added = residual.map_or(to, |r| r.pointer());
        let [b, a, d] = self.product.layouts;
        let weights = self.turned.as_ref().map_or(from_b.pointer(), DeviceBuffer::pointer);
        // SAFETY: handles live, buffers of the sizes that the layouts say (checked by `BoundStage::product`), scalars read
        // on the host during the call.
        check("cublasLtMatmul", unsafe {
            sys::cublasLtMatmul(
                self.product.handle,
                self.product.desc,
                (&raw const one).cast(),
                weights,
                b,
                from_a.pointer(),
                a,
                (&raw const beta).cast(),
                added,
                d,
                to,
                d,
                &self.algorithm.algorithm,
                self.workspace.pointer(),
                self.algorithm.workspace,
                stream.pointer().cast(),
            )
        })?;
        let ((m, n, _), element) = (self.stage.shape, self.stage.element);
        let rotates = self.stage.rotates();
        match &self.unfinished {
            None if rotates => helpers::rotate(out, &self.stage, stream),
            None => Ok(()),
            Some(Unfinished::Halves(product)) if rotates => helpers::rotate(product, &self.stage, stream),
            Some(Unfinished::Floats(product)) if rotates => helpers::rotate(product, &self.stage, stream),
            Some(Unfinished::Halves(gates)) => helpers::gated_activation(gates, out, m, n, element, stream),
            Some(Unfinished::Floats(gates)) => helpers::gated_activation(gates, out, m, n, element, stream),
        }
    }

    /// What it computes.
    pub fn stage(&self) -> &BoundStage {
        &self.stage
    }
}
