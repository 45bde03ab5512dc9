//! Memory of candle's tensors on a GPU, in place. Feature `candle-cuda`.

use std::ffi::c_void;
use std::sync::Arc;

use candle_core::{CudaDevice, DType, Error, Result, Storage, Tensor};
use cudarc::driver::DevicePtr;

use super::context::Device;
use super::memory::DeviceBuffer;
use super::stream::Stream;
use crate::session::Session;

/// The memory of a contiguous tensor of 16-bit floats, which stays candle's.
///
/// # Errors
/// It is of another type, or not contiguous.
pub(crate) fn of_candle(
    device: &Device,
    gpu: &CudaDevice,
    tensor: &Tensor,
) -> Result<Arc<DeviceBuffer<u16>>> {
    if !tensor.is_contiguous() {
        candle_core::bail!("a tensor that is bound is contiguous: call `contiguous` before");
    }
    let stream = gpu.cuda_stream();
    stream.synchronize().map_err(Error::wrap)?;
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        candle_core::bail!("the tensor is not on the pipeline's GPU");
    };
    let first = match tensor.dtype() {
        DType::F16 => storage.as_cuda_slice::<half::f16>()?.device_ptr(&stream).0,
        DType::BF16 => storage.as_cuda_slice::<half::bf16>()?.device_ptr(&stream).0,
        other => candle_core::bail!("a tensor that is bound is of 16-bit floats, not {other:?}"),
    };
    let pointer = (first as usize + layout.start_offset() * size_of::<u16>()) as *mut c_void;
    // SAFETY: the storage holds the tensor's elements from there on, and the buffer keeps the tensor.
    let memory =
        unsafe { DeviceBuffer::lent(device, pointer, tensor.elem_count(), Some(Arc::new(tensor.clone()))) };
    memory.map(Arc::new).map_err(Error::wrap)
}

/// The ends of a chain: tensors of the planned size whose memory is bound.
pub(crate) struct CandleEnds {
    names: [String; 2],
    x: Tensor,
    z: Tensor,
    stream: Stream,
}

impl CandleEnds {
    /// Makes the tensors and binds them.
    pub(crate) fn bind(
        session: &mut Session,
        gpu: &CudaDevice,
        dtype: DType,
        names: [&str; 2],
    ) -> Result<Self> {
        let place = candle_core::Device::Cuda(gpu.clone());
        let device = session.pipeline().map_err(Error::wrap)?.device().clone();
        let mut end = |name: &str| -> Result<Tensor> {
            let tensor = Tensor::zeros(session.shape(name).map_err(Error::wrap)?, dtype, &place)?;
            session.bind(name, of_candle(&device, gpu, &tensor)?).map_err(Error::wrap)?;
            Ok(tensor)
        };
        let (x, z) = (end(names[0])?, end(names[1])?);
        let stream = Stream::from_cudarc(&device, &gpu.cuda_stream()).map_err(Error::wrap)?;
        Ok(CandleEnds { names: names.map(String::from), x, z, stream })
    }

    pub(crate) fn are(&self, input: &str, output: &str) -> bool {
        self.names == [input, output]
    }

    /// Copies `x` in, queues a run on candle's stream, and copies as many rows of the result out.
    pub(crate) fn run(&self, session: &mut Session, x: &Tensor) -> Result<Tensor> {
        let rows = x.dims2()?.0;
        self.x.slice_set(&x.contiguous()?, 0, 0)?;
        session.run_on(&self.stream).map_err(Error::wrap)?;
        self.z.narrow(0, 0, rows)?.force_contiguous()
    }
}
