// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel half of the C ABI for builds without a CUDA toolchain: the same symbols, so the same Rust code links.
// Functions that need a kernel return CUSYNC_ERROR_NOT_BUILT. The host half (cusync_host_*) is host/policy.cpp in every
// build.
#include "abi/cusync.h"

#include <stddef.h>

uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity) {
  (void)out, (void)capacity;
  return 0;
}

int32_t cusync_resident(const cusync_kernel_id* id, uint32_t* workers) {
  (void)id;
  if (workers) *workers = 0;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_create(const cusync_kernel_id* id, const cusync_stage* stages, uint32_t count, const cusync_work* work,
                      const cusync_sync* sync, void* table, cusync_kernel** out) {
  (void)id, (void)stages, (void)count, (void)work, (void)sync, (void)table;
  if (out) *out = NULL;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_launch(const cusync_kernel* kernel, const cusync_how* how) {
  (void)kernel, (void)how;
  return CUSYNC_ERROR_NOT_BUILT;
}

void cusync_destroy(cusync_kernel* kernel) { (void)kernel; }

int32_t cusync_wait_for_start(const cusync_gate* gate, void* stream) {
  (void)gate, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_streamk_create(const cusync_stage* stage, uint32_t element, void* workspace,
                              unsigned long long* workspace_bytes, cusync_streamk** out) {
  (void)stage, (void)element, (void)workspace, (void)workspace_bytes;
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

int32_t cusync_reference_product(const void* a, const void* b, uint32_t m, uint32_t n, uint32_t k, uint32_t element, float* sums,
                                 float* largest, void* stream) {
  (void)a, (void)b, (void)m, (void)n, (void)k, (void)element, (void)sums, (void)largest, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_pack_gated(const void* gate, const void* up, void* packed, uint32_t k, uint32_t n, void* stream) {
  (void)gate, (void)up, (void)packed, (void)k, (void)n, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_gated_activation(const void* packed, uint32_t packed_bits, void* d, uint32_t m, uint32_t n,
                                uint32_t activation, uint32_t element, void* stream) {
  (void)packed, (void)packed_bits, (void)d, (void)m, (void)n, (void)activation, (void)element, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_rotate(const void* product, uint32_t product_bits, const void* angles, uint32_t positions,
                      const int32_t* lengths, void* d, uint32_t m, uint32_t n, uint32_t rotated, uint32_t head_dim,
                      uint32_t tokens, float epsilon, const void* query_gain, const void* key_gain, uint32_t queries,
                      uint32_t element, void* stream) {
  (void)product, (void)product_bits, (void)angles, (void)positions, (void)lengths, (void)d, (void)m, (void)n, (void)rotated;
  (void)head_dim, (void)tokens;
  (void)epsilon, (void)query_gain, (void)key_gain, (void)queries, (void)element, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_embed(const int32_t* tokens, const int32_t* drawn, const void* table, void* out, uint32_t count,
                     uint32_t vocabulary, uint32_t width, void* stream) {
  (void)tokens, (void)drawn, (void)table, (void)out, (void)count, (void)vocabulary, (void)width, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_copy_pages(const cusync_paged_cache* cache, uint32_t first, uint32_t count, int32_t to_pool,
                          void* stream) {
  (void)cache, (void)first, (void)count, (void)to_pool, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_draw(const void* logits, const cusync_sampling* sampling, const int32_t* positions, int32_t* drawn,
                    uint32_t count, uint32_t vocabulary, uint32_t pitch, uint32_t element, void* stream) {
  (void)logits, (void)sampling, (void)positions, (void)drawn, (void)count, (void)vocabulary, (void)pitch, (void)element;
  (void)stream;
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

int32_t cusync_read_clocks(unsigned long long* out, uint32_t sms, void* stream) {
  (void)out, (void)sms, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}

int32_t cusync_repack(uint32_t operation, uint32_t element, uint32_t k, uint32_t n, uint32_t parts, const void* weights,
                      const void* up, const void* gain, void* out, void* stream) {
  (void)operation, (void)element, (void)k, (void)n, (void)parts, (void)weights, (void)up, (void)gain, (void)out, (void)stream;
  return CUSYNC_ERROR_NOT_BUILT;
}
