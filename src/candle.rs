//! Pipelines inside candle models, with candle's tensors: on the CPU and, with the feature `candle-cuda`, on
//! GPUs in place.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use cusync::candle::CandlePipeline;
//!
//! let cpu = Device::Cpu;
//! let spec = cusync::runtime::shipped("two_gemms").expect("it ships");
//! let mut chain = CandlePipeline::open(spec, &[("M", 16), ("N", 32), ("K", 24)], &cpu)?;
//! chain.bind("B", &Tensor::ones((24, 32), DType::F16, &cpu)?)?;
//! chain.bind("D", &Tensor::ones((32, 24), DType::F16, &cpu)?)?;
//! // Fewer rows than planned.
//! let e = chain.forward("A", &Tensor::ones((5, 24), DType::F16, &cpu)?, "E")?;
//! assert_eq!(e.dims(), [5, 24]);
//! # Ok::<(), candle_core::Error>(())
//! ```

use candle_core::{DType, Device, Error, Result, Tensor};

use crate::session::Session;

/// A pipeline with candle tensors as inputs, weights and results, on one of candle's devices.
pub struct CandlePipeline {
    session: Session,
    device: Device,
    /// Input and result of the last run on a GPU: their memory is bound.
    #[cfg(feature = "candle-cuda")]
    bound: Option<gpu::Ends>,
}

impl CandlePipeline {
    /// Plans a spec, as text, for a device: host threads, or the best executor of a GPU.
    ///
    /// # Errors
    /// The spec is refused, memory is short, or the device is neither the CPU nor, with the feature
    /// `candle-cuda`, an NVIDIA GPU.
    pub fn open(spec: &str, dims: &[(&str, u64)], device: &Device) -> Result<CandlePipeline> {
        let session = match device {
            Device::Cpu => Session::on_host(spec, dims).map_err(Error::wrap)?,
            #[cfg(feature = "candle-cuda")]
            Device::Cuda(gpu) => {
                let gpu =
                    crate::device::Device::from_cudarc(gpu.cuda_stream().context()).map_err(Error::wrap)?;
                Session::on_gpu(spec, dims, &gpu, None, crate::runtime::Options::default())
                    .map_err(Error::wrap)?
            }
            other => candle_core::bail!(
                "cusync runs on the CPU, and on CUDA with the feature `candle-cuda`: not on {other:?}"
            ),
        };
        Ok(CandlePipeline {
            session,
            device: device.clone(),
            #[cfg(feature = "candle-cuda")]
            bound: None,
        })
    }

    /// The pipeline.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Binds a weight, `(rows, columns)` as in the spec. On a GPU it is read in place and must be contiguous
    /// and of the spec's element type; the weight of candle's `Linear` is transposed: pass
    /// `weight.t()?.contiguous()?`.
    ///
    /// # Errors
    /// There is no such tensor, or its shape differs.
    pub fn bind(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let shape = self.session.shape(name).map_err(Error::wrap)?;
        if tensor.dims2()? != shape {
            candle_core::bail!("`{name}` is {shape:?}, and the tensor is {:?}", tensor.dims());
        }
        #[cfg(feature = "candle-cuda")]
        if let Device::Cuda(gpu) = &self.device {
            let device = self.session.pipeline().map_err(Error::wrap)?.device().clone();
            let memory = crate::device::of_candle(&device, gpu, tensor)?;
            return self.session.bind(name, memory).map_err(Error::wrap);
        }
        self.session.set_f32(name, &values(tensor)?).map_err(Error::wrap)
    }

    /// Runs the pipeline for the rows of `x`, which may be fewer than planned, and returns the same number of
    /// rows of a result.
    ///
    /// # Errors
    /// A weight is missing, a shape differs, or the run failed.
    pub fn forward(&mut self, input: &str, x: &Tensor, output: &str) -> Result<Tensor> {
        let planned = self.session.shape(input).map_err(Error::wrap)?;
        let result = self.session.shape(output).map_err(Error::wrap)?;
        let (rows, cols) = x.dims2()?;
        if rows > planned.0 || cols != planned.1 {
            candle_core::bail!("`{input}` was planned as {planned:?}, and x is {:?}", x.dims());
        }
        #[cfg(feature = "candle-cuda")]
        if let Device::Cuda(gpu) = &self.device {
            let bound = match self.bound.take().filter(|ends| ends.are(input, output)) {
                Some(bound) => bound,
                None => gpu::Ends::bind(&mut self.session, gpu, x.dtype(), [input, output])?,
            };
            let z = bound.run(&mut self.session, x)?;
            self.bound = Some(bound);
            return Ok(z);
        }
        let mut padded = values(x)?;
        padded.resize(planned.0 * planned.1, 0.0);
        self.session.set_f32(input, &padded).map_err(Error::wrap)?;
        self.session.run().map_err(Error::wrap)?;
        let mut z = self.session.read_f32(output).map_err(Error::wrap)?;
        z.truncate(rows * result.1);
        Tensor::from_vec(z, (rows, result.1), &self.device)?.to_dtype(x.dtype())
    }
}

fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

#[cfg(feature = "candle-cuda")]
mod gpu {
    use candle_core::{CudaDevice, DType, Device, Error, Result, Tensor};

    use crate::device::{Stream, of_candle};
    use crate::session::Session;

    /// Input and result of a chain: tensors of the planned size with bound memory.
    pub(super) struct Ends {
        names: [String; 2],
        x: Tensor,
        z: Tensor,
        stream: Stream,
    }

    impl Ends {
        /// Allocates the tensors and binds them.
        pub(super) fn bind(
            session: &mut Session,
            gpu: &CudaDevice,
            dtype: DType,
            names: [&str; 2],
        ) -> Result<Self> {
            let place = Device::Cuda(gpu.clone());
            let device = session.pipeline().map_err(Error::wrap)?.device().clone();
            let mut end = |name: &str| -> Result<Tensor> {
                let tensor = Tensor::zeros(session.shape(name).map_err(Error::wrap)?, dtype, &place)?;
                session.bind(name, of_candle(&device, gpu, &tensor)?).map_err(Error::wrap)?;
                Ok(tensor)
            };
            let (x, z) = (end(names[0])?, end(names[1])?);
            let stream = Stream::from_cudarc(&device, &gpu.cuda_stream()).map_err(Error::wrap)?;
            Ok(Ends { names: names.map(String::from), x, z, stream })
        }

        pub(super) fn are(&self, input: &str, output: &str) -> bool {
            self.names == [input, output]
        }

        /// Copies `x` in, queues a run on candle's stream, and copies the same number of rows of the result
        /// out.
        pub(super) fn run(&self, session: &mut Session, x: &Tensor) -> Result<Tensor> {
            let rows = x.dims2()?.0;
            self.x.slice_set(&x.contiguous()?, 0, 0)?;
            session.run_on(&self.stream).map_err(Error::wrap)?;
            self.z.narrow(0, 0, rows)?.force_contiguous()
        }
    }
}
