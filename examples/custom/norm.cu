// The stage `norm` of norm.ron: divides each row by its root mean square.
#include <cusync/custom.cuh>

/// The sum of a value over the CTA, for every thread.
__device__ float sum_of_cta(float value) {
  __shared__ float of_warp[32];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (uint32_t warp = 0; warp < blockDim.x / 32; ++warp) value += of_warp[warp];
  return value;
}

extern "C" __global__ void __launch_bounds__(256) normalize(const __grid_constant__ cusync_custom parameters) {
  cusync::CustomStage stage(parameters);
  while (stage.next_tile()) {
    stage.wait(0);  // until the rows of Y under this tile are written
    auto const [rows, cols] = stage.box();
    for (uint32_t row = rows.begin; row < rows.end; ++row) {
      float squares = 0;
      for (uint32_t col = threadIdx.x; col < cols.end; col += blockDim.x) {
        float const x = stage.load(0, row, col);
        squares += x * x;
      }
      float const scale = rsqrtf(sum_of_cta(squares) / cols.end + 1e-6f);
      for (uint32_t col = threadIdx.x; col < cols.end; col += blockDim.x)
        stage.store(row, col, stage.load(0, row, col) * scale);
    }
    stage.post();  // lets tiles of `after` start
  }
}
