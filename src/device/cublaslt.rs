//! cuBLASLt, loaded if installed: a peer of the benchmarks, and the library of the `library` executor.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys;
use cusync_gen::graph::{Activation, Element, OperandKind, Stage};

use super::context::{Device, installed};
use super::error::{Error, Result};
use super::helpers;
use super::memory::DeviceBuffer;
use super::stage::BoundStage;
use super::stream::Stream;
use super::words::{element_code, fused_epilogue};

/// Workspace that algorithms may use; NVIDIA recommends this size on Hopper.
const WORKSPACE: usize = 32 << 20;

/// Number of heuristic algorithms to time, with and without a workspace each; the fastest is kept. Algorithms
/// with a workspace may draw tiles from a counter in it, which is cleared before each launch at a cost of 4
/// us; those without use lists.
const CANDIDATES: usize = 8;

/// Timings per algorithm, runs per timing, timings of algorithms close to the fastest, and the ratio of times
/// up to which they count as close: a few runs cannot distinguish 2 %.
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

/// Layout of operand B in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    /// K x N, as in pipelines.
    AsBound,
    /// N x K, a transposed copy, for which the library has other kernels.
    Turned,
}

/// How the library computes a product.
#[derive(Clone, Copy, Debug)]
struct Algorithm {
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// Bytes of workspace given to it: without one it may be another kernel.
    workspace: usize,
}

/// Owned handles of one matrix product. Matrices are row-major here and column-major in cuBLASLt, so the
/// product is computed transposed: D' (N x M) = B' (N x K) A' (K x M).
#[derive(Debug)]
struct Product {
    handle: sys::cublasLtHandle_t,
    desc: sys::cublasLtMatmulDesc_t,
    /// B' (or B if transposed), A', D'.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    preference: sys::cublasLtMatmulPreference_t,
}

// SAFETY: cuBLASLt handles may be used from any thread.
unsafe impl Send for Product {}
// SAFETY: the library is thread-safe, and its descriptors are written at creation only.
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
    /// Product of a stage before gating or rotation. `floats`: keep the results as float32.
    fn new(stage: &BoundStage, floats: bool, weights: Weights) -> Result<Product> {
        let mut product = Product {
            handle: std::ptr::null_mut(),
            desc: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            preference: std::ptr::null_mut(),
        };
        let element = data_type(stage.element);
        let (compute, scale) = (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F);
        let (Stage { name, op, m, k, .. }, n) = (&stage.stage, stage.packed_columns());
        let (bias, activation) = (stage.matrix(OperandKind::Bias), op.epilogue().activation);
        // Gates are computed by a second kernel.
        let activation = if op.is_gated() { Activation::Identity } else { activation };
        let Some(epilogue) = fused_epilogue(activation, bias.is_some()) else {
            let why = format!("{name}: cuBLASLt has no epilogue for {activation}");
            return Err(Error::BadArgument(why));
        };
        let late = activation != Activation::Identity && !op.epilogue().residual_first;
        if late && stage.matrix(OperandKind::Residual).is_some() {
            let why = format!("{name}: cuBLASLt adds a residual before the activation");
            return Err(Error::BadArgument(why));
        }
        let (m, n, k) = (u64::from(*m), u64::from(n), u64::from(*k));
        let result = if floats { sys::cudaDataType::CUDA_R_32F } else { element };
        let of_weights = if weights == Weights::Turned { (element, k, n) } else { (element, n, k) };
        let shapes = [of_weights, (element, k, m), (result, n, m)];
        // SAFETY: every out-pointer outlives its call, attributes have the stated size, and `Product`'s drop
        // destroys everything created, even if a later call fails.
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

    /// Transposed copy of a stage's operand B; `self` uses that layout.
    fn turn(&self, device: &Device, stage: &BoundStage) -> Result<DeviceBuffer<u16>> {
        let (_, from, _) = stage.product()?;
        let turned =
            DeviceBuffer::new(device, from.len(), &format!("turned weights of {}", stage.stage.name))?;
        let transform = Transform::new(stage)?;
        let stream = Stream::new(device)?;
        let (one, zero) = (1f32, 0f32);
        // SAFETY: the handles are live; both matrices hold N x K values, as checked by `BoundStage::product`,
        // and live until the stream is done; scalars are read on the host during the call.
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

    /// The heuristic's best algorithms with a workspace, best first, followed by its best without one.
    fn candidates(&self) -> Result<Vec<Algorithm>> {
        let mut found = self.candidates_within(WORKSPACE)?;
        found.extend(self.candidates_within(0)?);
        Ok(found)
    }

    fn candidates_within(&self, workspace: usize) -> Result<Vec<Algorithm>> {
        // SAFETY: the result type consists of plain numbers, for which zero is valid; zero is also the
        // success status.
        let empty: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut results = vec![empty; CANDIDATES];
        let mut count: c_int = 0;
        let [b, a, d] = self.layouts;
        // SAFETY: the preference is live, and the attribute has the stated size.
        check("cublasLtMatmulPreferenceSetAttribute", unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                self.preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast::<c_void>(),
                size_of_val(&workspace),
            )
        })?;
        // SAFETY: all handles are live, `results` holds CANDIDATES entries.
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

fn data_type(element: Element) -> sys::cudaDataType {
    match element {
        Element::F16 => sys::cudaDataType::CUDA_R_16F,
        Element::Bf16 => sys::cudaDataType::CUDA_R_16BF,
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
        let element = data_type(stage.element);
        let (n, k) = (u64::from(stage.packed_columns()), u64::from(stage.stage.k));
        // SAFETY: every out-pointer outlives its call, the attribute has the stated size, and `Transform`'s
        // drop destroys everything created, even if a later call fails.
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

/// A product in scratch memory that a second kernel finishes: gate and up of a gated stage, alternating every
/// 8 columns, or heads to be rotated.
#[derive(Debug)]
enum Unfinished {
    Halves(DeviceBuffer<u16>),
    /// Used for bf16: rounding to 8 bits twice would exceed the tolerance.
    Floats(DeviceBuffer<f32>),
}

impl Unfinished {
    fn new(device: &Device, stage: &BoundStage) -> Result<Option<Unfinished>> {
        let Stage { name, op, m, .. } = &stage.stage;
        let (len, label) = (*m as usize * stage.packed_columns() as usize, format!("the product of {name}"));
        Ok(match stage.element {
            Element::Bf16 if op.is_gated() || stage.rotates() => {
                Some(Unfinished::Floats(DeviceBuffer::new(device, len, &label)?))
            }
            Element::F16 if op.is_gated() => {
                Some(Unfinished::Halves(DeviceBuffer::new(device, len, &label)?))
            }
            // Heads are rotated in place.
            Element::F16 | Element::Bf16 => None,
        })
    }
}

/// A stage by cuBLASLt, with the activation fused, or with a second kernel if the stage is gated or rotates.
/// Uses the fastest of the heuristic's first eight algorithms for the shape, with and without a workspace and
/// with weights as bound or transposed, determined by timing them once.
#[derive(Debug)]
pub struct CublasLt {
    device: Device,
    product: Product,
    /// Operand B if transposed.
    turned: Option<DeviceBuffer<u16>>,
    algorithm: Algorithm,
    workspace: DeviceBuffer<u8>,
    stage: BoundStage,
    unfinished: Option<Unfinished>,
}

impl CublasLt {
    /// Prepares a stage; a residual is supported only if no activation precedes it. `constant`: nothing
    /// writes operand B during the lifetime of this value, so it may be copied to another layout now.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] if cuBLASLt is not installed.
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
        // cudarc panics on the first call otherwise.
        if !CublasLt::is_installed() {
            return Err(Error::NoLibrary("cuBLASLt (libcublasLt.so.13)"));
        }
        stage.product()?; // checks operand sizes
        let unfinished = Unfinished::new(device, &stage)?;
        let product = Product::new(&stage, matches!(unfinished, Some(Unfinished::Floats(_))), weights)?;
        let turned = (weights == Weights::Turned).then(|| product.turn(device, &stage)).transpose()?;
        let candidates = product.candidates()?;
        let Some(&algorithm) = candidates.first() else {
            let Stage { m, n, k, .. } = &stage.stage;
            return Err(Error::NotBuilt(format!("cuBLASLt: no algorithm for {m} x {n} x {k}: it")));
        };
        let workspace = DeviceBuffer::zeroed(device, WORKSPACE, "the cuBLASLt workspace")?;
        let mut gemm =
            CublasLt { device: device.clone(), product, turned, algorithm, workspace, stage, unfinished };
        gemm.tune(&candidates)?;
        Ok(gemm)
    }

    /// Whether cuBLASLt is installed.
    pub fn is_installed() -> bool {
        installed(&["libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"])
    }

    /// The same product on other operands of the same shape, without tuning again.
    pub fn like(&self, stage: BoundStage) -> Result<CublasLt> {
        stage.product()?;
        if !stage.is_like(&self.stage) {
            return Err(Error::BadArgument(format!("cuBLASLt product of {}", stage.stage.name)));
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

    /// Selects the fastest candidate; the fastest ones get extra turns.
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
        // Added before the activation: the residual of a stage that adds it there or has no activation.
        let residual = self.stage.matrix(OperandKind::Residual);
        let (one, beta) = (1f32, if residual.is_some() { 1f32 } else { 0f32 });
        let added = residual.map_or(to, |r| r.pointer());
        let [b, a, d] = self.product.layouts;
        let weights = self.turned.as_ref().map_or(from_b.pointer(), DeviceBuffer::pointer);
        // SAFETY: the handles are live, buffers have the sizes of the layouts (checked by
        // `BoundStage::product`), and scalars are read on the host during the call.
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
        let Stage { m, n, .. } = &self.stage.stage;
        let (size, element, rotates) = ((*m, *n), element_code(self.stage.element), self.stage.rotates());
        let gate = self.stage.stage.op.epilogue().activation;
        match &self.unfinished {
            None if rotates => helpers::rotate(out, &self.stage, stream),
            None => Ok(()),
            Some(Unfinished::Floats(product)) if rotates => helpers::rotate(product, &self.stage, stream),
            Some(Unfinished::Halves(x)) => helpers::gated_activation(x, out, size, gate, element, stream),
            Some(Unfinished::Floats(x)) => helpers::gated_activation(x, out, size, gate, element, stream),
        }
    }

    /// The stage that it computes.
    pub fn stage(&self) -> &BoundStage {
        &self.stage
    }
}
