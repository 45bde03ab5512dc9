//! Verification of the tensors that a pipeline on a GPU wrote.
//!
//! Each stage is verified from the operands that it read, which are read back ([`crate::reference`]). Matrix
//! products run on the same GPU, on plain CUDA cores, one thread per output, in float32; everything else
//! follows its definition on the host. Verification shares no code with the kernels under test, and reads
//! weights as they were bound, not as repacked for kernels.

use std::collections::HashMap;
use std::sync::Arc;

use cusync_gen::check::How;
use cusync_gen::graph::{DataType, Element, Op, Stage, TensorId};

use super::error::{Error, Result};
use super::pipeline::{Pipeline, TensorBuffer};
use crate::device::{self, DeviceBuffer, element_code, helpers};
use crate::element::Bits;
use crate::reference::gemm::Sums;
pub use crate::reference::{Accuracy, first_wrong, worst};
use crate::reference::{CustomReference, Matrix, ReferenceError, Stages, TensorValues};

/// Expected results of a pipeline for one set of inputs.
pub struct Reference {
    set: usize,
    stages: Stages<'static>,
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reference").field("set", &self.set).finish_non_exhaustive()
    }
}

impl Reference {
    /// Runs the pipeline by its definition, on the inputs of a set. Takes about a second at the largest
    /// sizes. Results of Custom stages are taken as given: they are not compared, only checked to be numbers, and
    /// later stages are verified from them.
    pub fn new(pipeline: &mut Pipeline, set: usize) -> Result<Reference> {
        Reference::with_forms(pipeline, set, HashMap::new())
    }

    /// [`Reference::new`] with whole-matrix forms of Custom stages, which are then compared.
    pub fn with_forms(
        pipeline: &mut Pipeline,
        set: usize,
        custom: HashMap<String, CustomReference<'static>>,
    ) -> Result<Reference> {
        pipeline.prepare()?;
        pipeline.synchronize()?;
        let memory = OnGpu { pipeline, set, outputs: &[] };
        let stages = Stages::new(pipeline.plan().graph(), &[&memory], custom, true).map_err(refused)?;
        Ok(Reference { set, stages })
    }

    /// Compares every tensor that the pipeline's last run wrote, including rows appended to caches, with the
    /// result expected from the operands that each stage read. Waits for the run. Skips outputs whose memory
    /// a later stage overwrites.
    pub fn compare(&self, pipeline: &mut Pipeline) -> Result<Vec<Accuracy>> {
        pipeline.synchronize()?;
        self.compare_outputs(pipeline, &[])
    }

    /// [`Reference::compare`] for finished stages that left their results in other memory.
    pub fn compare_outputs(
        &self,
        pipeline: &Pipeline,
        outputs: &[(TensorId, TensorBuffer)],
    ) -> Result<Vec<Accuracy>> {
        self.stages.compare(&[&OnGpu { pipeline, set: self.set, outputs }], 0, None).map_err(refused)
    }
}

fn refused(error: ReferenceError) -> Error {
    Error::Unsupported(error.to_string())
}

/// Tensors of a pipeline in device memory; no run may be writing them.
struct OnGpu<'a> {
    pipeline: &'a Pipeline,
    set: usize,
    /// Results that another library left in its own memory.
    outputs: &'a [(TensorId, TensorBuffer)],
}

impl OnGpu<'_> {
    fn element(&self) -> Element {
        self.pipeline.plan().graph().element
    }

    fn buffer(&self, id: TensorId) -> Result<TensorBuffer> {
        match self.outputs.iter().find(|(tensor, _)| *tensor == id) {
            Some((_, buffer)) => Ok(buffer.clone()),
            None => self.pipeline.memory(self.set, id),
        }
    }

    /// A tensor in place, or a matrix uploaded to the GPU.
    fn factor(&self, (id, instead): (TensorId, Option<&Matrix>)) -> Result<TensorBuffer> {
        let Some(matrix) = instead else { return self.buffer(id) };
        let mut bits = vec![0; matrix.data.len()];
        self.element().round(&matrix.data, &mut bits);
        Ok(Arc::new(DeviceBuffer::from_slice(self.pipeline.device(), &bits, "a rounded reference")?))
    }

    fn values(&self, id: TensorId) -> Result<Vec<f32>> {
        if self.pipeline.plan().graph().tensors[id.0].data == DataType::Int32 {
            let buffer = self.pipeline.integers(self.set, id)?;
            let mut numbers = vec![0i32; buffer.len()];
            buffer.download(&mut numbers)?;
            return Ok(numbers.into_iter().map(|x| x as f32).collect());
        }
        let buffer = self.buffer(id)?;
        let mut bits = vec![0u16; buffer.len()];
        buffer.download(&mut bits)?;
        let mut values = vec![0.0; bits.len()];
        self.element().widen(&bits, &mut values);
        Ok(values)
    }
}

impl From<Error> for ReferenceError {
    fn from(error: Error) -> Self {
        ReferenceError::Executor(error.to_string())
    }
}

impl From<device::Error> for ReferenceError {
    fn from(error: device::Error) -> Self {
        ReferenceError::Executor(error.to_string())
    }
}

impl TensorValues for OnGpu<'_> {
    fn tensor(&self, id: TensorId) -> std::result::Result<Matrix, ReferenceError> {
        let tensor = &self.pipeline.plan().graph().tensors[id.0];
        let (rows, cols) = (tensor.rows as usize, tensor.cols as usize);
        Ok(Matrix { rows, cols, data: self.values(id)? })
    }

    fn product(
        &self,
        left: (TensorId, Option<&Matrix>),
        right: (TensorId, Option<&Matrix>),
    ) -> std::result::Result<Sums, ReferenceError> {
        let tensors = &self.pipeline.plan().graph().tensors;
        let (a, b) = (&tensors[left.0.0], &tensors[right.0.0]);
        let factors = (self.factor(left)?, self.factor(right)?);
        let (element, stream) = (element_code(self.element()), self.pipeline.stream());
        // A matrix in place of a tensor may have another shape.
        let (rows, terms) = left.1.map_or((a.rows, a.cols), |own| (own.rows as u32, own.cols as u32));
        let shape = (rows, b.cols, terms);
        let (sums, largest) = helpers::reference_product((&factors.0, &factors.1), shape, element, stream)?;
        stream.synchronize()?;
        let host = |from: &DeviceBuffer<f32>| -> device::Result<Vec<f32>> {
            let mut to = vec![0.0; from.len()];
            from.download(&mut to)?;
            Ok(to)
        };
        let values = Matrix { rows: rows as usize, cols: b.cols as usize, data: host(&sums)? };
        Ok(Sums { values, largest: host(&largest)? })
    }

    fn rounds_product(&self, stage: &Stage) -> bool {
        // Libraries finish some products with a second kernel, and so do ours where heads are rotated.
        !self.outputs.is_empty()
            || matches!(stage.op, Op::RotatedGemm(_))
            || self.pipeline.plan().launch().how() == Some(How::Library) && stage.in_library()
    }
}
