// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel half of the C ABI for a build without a CUDA toolchain: the same symbols, so the same Rust code links,
// and every function that would need a kernel says so. The host half (cusync_host_*) is host/policy.cpp in every build.
#include "abi/cusync.h"

#include <stddef.h>

uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity) {
  (void)out, (void)capacity;
  return 0;
}

int32_t cusync_gemm_create(const cusync_gemm_args* args, cusync_gemm** out) {
  (void)args;
  if (out) *out = NULL;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_gemm_launch(const cusync_gemm* gemm, const cusync_launch* launch) {
  (void)gemm, (void)launch;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_gemm_grid(const cusync_gemm* gemm, uint32_t* ctas, uint32_t* ctas_per_sm) {
  (void)gemm, (void)ctas, (void)ctas_per_sm;
  return CUSYNC_ERROR_NOT_BUILT;
}

void cusync_gemm_destroy(cusync_gemm* gemm) { (void)gemm; }

int32_t cusync_streamk_create(const cusync_gemm_args* args, void* workspace, unsigned long long* workspace_bytes,
                              cusync_streamk** out) {
  (void)args, (void)workspace, (void)workspace_bytes;
  if (out) *out = NULL;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_streamk_launch(cusync_streamk* gemm, void* stream) {
  (void)gemm, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

void cusync_streamk_destroy(cusync_streamk* gemm) { (void)gemm; }

int32_t cusync_fill_random(void* data, unsigned long long count, uint32_t element, float scale, uint32_t seed,
                           void* stream) {
  (void)data, (void)count, (void)element, (void)scale, (void)seed, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_compare(const void* x, const float* y, unsigned long long count, uint32_t element, float* out,
                       void* stream) {
  (void)x, (void)y, (void)count, (void)element, (void)out, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_reference_gemm(const cusync_gemm_args* args, float* d, uint32_t round, void* stream) {
  (void)args, (void)d, (void)round, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_pack_gated(const void* gate, const void* up, void* packed, uint32_t k, uint32_t n, void* stream) {
  (void)gate, (void)up, (void)packed, (void)k, (void)n, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_gated_activation(const void* packed, void* d, uint32_t m, uint32_t n, uint32_t element, void* stream) {
  (void)packed, (void)d, (void)m, (void)n, (void)element, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_activation_kernel(const void* x, void* d, unsigned long long count, uint32_t activation,
                                 uint32_t element, void* stream) {
  (void)x, (void)d, (void)count, (void)activation, (void)element, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_stream_read(const void* data, unsigned long long bytes, void* sink, void* stream) {
  (void)data, (void)bytes, (void)sink, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_measure_semaphores(uint32_t* scratch, uint32_t count, float* out, void* stream) {
  (void)scratch, (void)count, (void)out, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

uint32_t cusync_fused_kernels(cusync_fused_info* out, uint32_t capacity) {
  (void)out, (void)capacity;
  return 0;
}

int32_t cusync_fused_workers(const cusync_fused_info* kernel, uint32_t* workers) {
  (void)kernel;
  if (workers) *workers = 0;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_fused_create(const cusync_fused_args* args, cusync_fused** out) {
  (void)args;
  if (out) *out = NULL;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_fused_launch(const cusync_fused* fused, const cusync_launch* launch) {
  (void)fused, (void)launch;
  return CUSYNC_ERROR_NOT_BUILT;
}

void cusync_fused_destroy(cusync_fused* fused) { (void)fused; }

uint32_t cusync_decode_kernels(cusync_decode_info* out, uint32_t capacity) {
  (void)out, (void)capacity;
  return 0;
}

int32_t cusync_decode_workers(uint32_t* workers) {
  if (workers) *workers = 0;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_decode_relay(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, const void* weights,
                            const void* up, void* out, void* stream) {
  (void)operation, (void)k, (void)n, (void)workers, (void)weights, (void)up, (void)out, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_decode_create(const cusync_decode_args* args, cusync_decode** out) {
  (void)args;
  if (out) *out = NULL;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_decode_launch(const cusync_decode* decode, const cusync_launch* launch) {
  (void)decode, (void)launch;
  return CUSYNC_ERROR_NOT_BUILT;
}

void cusync_decode_destroy(cusync_decode* decode) { (void)decode; }
