// SPDX-License-Identifier: MIT OR Apache-2.0
// Whole pipelines from C and whatever can call C. Link with libcusync_c (capi/README.md).
//
// Functions return CUSYNC_PIPELINE_OK or another cusync_pipeline_status; cusync_pipeline_error() then says what is wrong and
// what to do. Text is UTF-8 and ends with a zero. A pipeline is used by one thread at a time; several pipelines are
// independent of each other. Tensors are row-major.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Changes when a program that was compiled with an older header could no longer run.
#define CUSYNC_PIPELINE_ABI 1u

enum cusync_pipeline_status {
  CUSYNC_PIPELINE_OK = 0,
  CUSYNC_PIPELINE_FAILED = 1,    ///< refused, or the run went wrong
  CUSYNC_PIPELINE_ARGUMENT = 2,  ///< a null pointer, or text that is not UTF-8
  CUSYNC_PIPELINE_PANIC = 3,     ///< a fault of the library; the pipeline may only be closed
};

/// A dim of the spec with a value in place of its default.
typedef struct cusync_dim {
  const char* name;
  uint64_t value;
} cusync_dim;

typedef struct cusync_pipeline cusync_pipeline;

/// CUSYNC_PIPELINE_ABI of the library: compare it with the header's before anything else is called.
uint32_t cusync_pipeline_abi(void);
/// The version of the library, such as "0.1.0".
const char* cusync_pipeline_version(void);
/// What went wrong in the last call of this thread that failed; valid until the next one fails.
const char* cusync_pipeline_error(void);

/// Plans and proves. `spec` is a page of RON, or the name of a spec that ships. `executor` is "serial", "library", "streams",
/// "programmatic", "fused" for GPU number `gpu`, "cpu" for host threads, or NULL: the best that is predicted for that GPU, or the host where
/// there is no GPU or no kernel for a stage.
int32_t cusync_pipeline_open(const char* spec, const cusync_dim* dims, size_t dim_count, const char* executor,
                             uint32_t gpu, cusync_pipeline** out);
/// The executor that runs it, such as "cpu"; valid forever.
const char* cusync_pipeline_executor(const cusync_pipeline* pipeline);
/// Rows and columns of a tensor.
int32_t cusync_pipeline_shape(const cusync_pipeline* pipeline, const char* tensor, size_t* rows, size_t* cols);
/// Copies `count` values into an input or a weight, rounded to the pipeline's element type.
int32_t cusync_pipeline_set_f32(cusync_pipeline* pipeline, const char* tensor, const float* values, size_t count);
/// The same from 16-bit floats of the element type.
int32_t cusync_pipeline_set_16(cusync_pipeline* pipeline, const char* tensor, const uint16_t* bits, size_t count);
/// The same for lengths and page numbers.
int32_t cusync_pipeline_set_i32(cusync_pipeline* pipeline, const char* tensor, const int32_t* values, size_t count);
/// Reads an input or a weight, or writes a result, in place from now on: `count` 16-bit floats of device memory that the caller
/// keeps, aligned to 16 bytes. GPU only. Weights in `layout: NK` are not read in place but transposed at once into memory of the
/// pipeline, through the host: bind them again after a change.
int32_t cusync_pipeline_bind(cusync_pipeline* pipeline, const char* tensor, void* device_memory, size_t count);
/// The same for lengths and page numbers, of 32 bits.
int32_t cusync_pipeline_bind_i32(cusync_pipeline* pipeline, const char* tensor, void* device_memory, size_t count);
/// The device memory of a tensor, for reading outputs in place. GPU only.
int32_t cusync_pipeline_memory(cusync_pipeline* pipeline, const char* tensor, void** device_memory);
/// A box of a tensor in host memory: rows x cols floats, row-major, from row `row` and column `col` of the tensor on.
typedef struct cusync_region {
  float* data;
  size_t row, col, rows, cols;
} cusync_region;
/// Adds k-block `k` of tile (m, n) of a Custom stage to `out`, which is zero before the first one. `reads` are its reads at this
/// k-block, clipped to their tensors. Host threads call it at the same time for different tiles; it writes `out` only.
typedef void (*cusync_custom_function)(void* user, uint32_t m, uint32_t n, uint32_t k, const cusync_region* reads, size_t read_count,
                                       const cusync_region* out);
/// Sets the arithmetic of a Custom stage of a pipeline on the host. `user` is passed to the function.
int32_t cusync_pipeline_custom(cusync_pipeline* pipeline, const char* stage, cusync_custom_function function, void* user);
/// Sets the kernel of a Custom stage of a pipeline on a GPU: a .cu file, which NVRTC compiles, or a .cubin, .fatbin or .ptx
/// (csrc/include/cusync/custom.cuh). A pipeline with Custom stages is opened for a stated executor.
int32_t cusync_pipeline_kernel(cusync_pipeline* pipeline, const char* stage, const char* file);
/// Makes everything ready that would disturb a capture: call it once before runs are captured. Runs do it else. Weights that are laid out
/// anew are read here, in the order of none of the caller's streams: what writes them has to be over.
int32_t cusync_pipeline_prepare(cusync_pipeline* pipeline);
/// Queues a run in the order of `stream`, a cudaStream_t which may be capturing, and returns. On the host the run is over when the
/// call returns, and `stream` is ignored. Runs of a pipeline have to follow each other.
int32_t cusync_pipeline_run(cusync_pipeline* pipeline, void* stream);
/// Waits foreverything queued on the GPU, and copies a tensor's values, widened to float.
int32_t cusync_pipeline_read_f32(const cusync_pipeline* pipeline, const char* tensor, float* values, size_t count);
/// Frees it; NULL is ignored. Nothing of it may be running.
void cusync_pipeline_close(cusync_pipeline* pipeline);

#ifdef __cplusplus
}
#endif
