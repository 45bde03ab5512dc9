// SPDX-License-Identifier: MIT OR Apache-2.0
// The layout arithmetic of the decode kernels, compiled for the host: callers size buffers with it, and tests check it.
#include "host/decode.h"

#include "abi/cusync.h"
#include "kernels/decode/attend.h"
#include "kernels/decode/share.h"

extern "C" unsigned long long cusync_repacked_bytes(uint32_t operation, uint32_t k, uint32_t n) {
  return cusync::kernels::decode::weights_bytes(k, n, operation == CUSYNC_GATED_GEMM);
}

extern "C" unsigned long long cusync_host_decode_weight(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers,
                                                        uint32_t feature, uint32_t up, uint32_t at_k) {
  bool const gated = operation == CUSYNC_GATED_GEMM;
  return cusync::kernels::decode::weight_offset(feature, up, at_k, k, n, gated, workers);
}

extern "C" uint32_t cusync_host_decode_lead(uint32_t slots, uint32_t chunk_shift, uint32_t max_chunks) {
  return cusync::kernels::decode::turn_lead(slots, chunk_shift, max_chunks);
}

extern "C" uint32_t cusync_host_decode_order(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers,
                                             uint32_t chunk_bytes, uint32_t worker, uint32_t by_chunks,
                                             uint32_t* blocks, uint32_t capacity) {
  using namespace cusync::kernels::decode;
  Geometry const stage = geometry(k, n, operation == CUSYNC_GATED_GEMM, workers, chunk_bytes);
  Share const share = share_of(stage, worker, Divisor::of(workers), kFewTokens);
  uint32_t count = 0;
  auto const put = [&](uint32_t block) {
    if (count < capacity) blocks[count] = block;
    ++count;
  };
  if (by_chunks) {
    for (uint32_t i = 0; i < share.chunks; ++i)
      for (uint32_t b = 0; b < share.blocks_of(i, 1u << stage.chunk_shift); ++b)
        put((share.chunk(i) << stage.chunk_shift) + b);
  } else {
    for (uint32_t i = 0; i < share.tiles; ++i) put(share.tile(i, stage.chunk_shift));
  }
  return count;
}

extern "C" uint32_t cusync_host_decode_in_pairs(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, uint32_t width) {
  return cusync::kernels::decode::in_pairs(k, n, operation == CUSYNC_GATED_GEMM, workers, width);
}

extern "C" uint32_t cusync_host_decode_share(cusync_shared_product const* product, uint32_t worker, cusync_share* out,
                                             uint32_t* blocks, uint32_t capacity) {
  using namespace cusync::kernels::decode;
  Geometry const stage =
      geometry(product->k, product->n, product->operation == CUSYNC_GATED_GEMM, product->workers, product->chunk_bytes, 3,
               product->paired, {product->round, product->rounds});
  Share const share = share_of(stage, worker, Divisor::of(product->workers), kFewTokens, product->paired);
  *out = {share.first, share.count, share.rows, share.lead, share.chunks, share.offset};
  for (uint32_t i = 0; i < share.tiles && i < capacity; ++i) blocks[i] = share.begin + share.tile(i, stage.chunk_shift);
  return share.tiles;
}

extern "C" uint32_t cusync_host_attention_segments(int32_t const* lengths, uint32_t sequences, uint32_t cache_capacity,
                                                   uint32_t kv_heads, uint32_t workers, uint32_t worker,
                                                   uint32_t* sums, cusync_segment* segments, uint32_t capacity) {
  using namespace cusync::kernels::decode;
  auto const units_at = [&](uint32_t i) { return units_of(checked_length(lengths[i], cache_capacity)); };
  uint32_t *const before = sums, *const runs = sums + sequences + 1;
  before[0] = runs[0] = 0;
  for (uint32_t i = 0; i < sequences; ++i) before[i + 1] = before[i] + units_at(i);
  uint32_t const run = longest_run(before[sequences] * kv_heads, workers, [&](uint32_t most) {
    uint32_t needed = 0;
    for (uint32_t i = 0; i < sequences; ++i) needed += cusync::ceil_div(units_at(i), most);
    return needed * kv_heads;
  });
  for (uint32_t i = 0; i < sequences; ++i) runs[i + 1] = runs[i] + (run ? cusync::ceil_div(units_at(i), run) : 0);
  Units const units{before, runs, sequences, kv_heads, workers, run};
  uint32_t count = 0;
  for (Walk walk(units, worker); !walk.done(); ++count) {
    Segment const s = walk.segment();
    Parts const parts = parts_of(units, s);
    if (count < capacity)
      segments[count] = {s.sequence, s.head, s.begin, s.end, s.first, s.last, parts.count,
                         slab_of(worker, s.begin, walk.share().begin), parts.slab(worker - parts.first)};
    walk.pass(s);
  }
  return count;
}
