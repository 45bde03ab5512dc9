// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of adjustable duration. Their results show, bit for bit, whether they ran in a valid order.
#pragma once
#include "cusync/tile_sync.cuh"

namespace suite {

/// One round of an integer hash; benches/src/dag/random.rs mirrors it on the host.
__device__ __forceinline__ uint32_t mix(uint32_t h, uint32_t with) {
  h = (h ^ with) * 0x9e3779b1u;
  return h ^ (h >> 15);
}

}  // namespace suite

/// Every output word is a hash of `seed`, its index and one word of each input; `rounds` additional hash rounds take
/// time. Ranges have `words` words each; only the first `inputs` and `outputs` pointers are used. An input whose bit is
/// set in `in_place` is also an output, and is read at the thread's own word; the others are read at the mirrored word,
/// so every CTA depends on another one. `delay_ns`, if not null: how long every third CTA sleeps first. `stamps`, if
/// not null: start and end times of CTA 0, in nanoseconds.
extern "C" __global__ void spin(uint32_t const* in0, uint32_t const* in1, uint32_t const* in2, uint32_t const* in3,
                                uint32_t* out0, uint32_t* out1, uint32_t words, uint32_t inputs, uint32_t outputs,
                                uint32_t in_place, uint32_t seed, uint32_t rounds, uint32_t const* delay_ns,
                                unsigned long long* stamps) {
  suite::begin(in0, in1, in2, in3, out0, out1, words, inputs, outputs, in_place, seed, rounds, delay_ns, stamps);
  if (stamps != nullptr && suite::thread_index() == 0) stamps[0] = cusync::ptx::globaltimer();
  if (delay_ns != nullptr && (blockIdx.x + seed) % 3 == 0) {
    unsigned long long const begin = cusync::ptx::globaltimer(), delay = *delay_ns;
    while (cusync::ptx::globaltimer() - begin < delay) cusync::ptx::nanosleep(200);
  }
  uint32_t const* const sources[4] = {in0, in1, in2, in3};
  for (uint32_t i = suite::thread_index(); i < words; i += suite::thread_count()) {
    uint32_t h = suite::mix(seed, i);
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k)
      if (k < inputs) h = suite::mix(h, sources[k][in_place >> k & 1 ? i : words - 1 - i]);
    for (uint32_t round = 0; round < rounds; ++round) h = suite::mix(h, round);
    if (outputs > 0) out0[i] = h;
    if (outputs > 1) out1[i] = suite::mix(h, 1);
  }
  if (stamps != nullptr && suite::thread_index() == 0) stamps[1] = cusync::ptx::globaltimer();
}

/// Like spin, but able to wait for tiles. CTA `c` takes up to `ragged` more rounds, depending on the seed. If `shift`
/// is not 0, input 0 is read a second time, that many words further on (the last word if past the end), so CTAs also
/// depend on their neighbors. `words` = threads of the grid. Everything that earlier kernels do not write is read
/// before the wait.
extern "C" __global__ void spin_tiled(uint32_t const* in0, uint32_t const* in1, uint32_t const* in2,
                                      uint32_t const* in3, uint32_t* out0, uint32_t* out1, uint32_t words,
                                      uint32_t inputs, uint32_t outputs, uint32_t in_place, uint32_t seed,
                                      uint32_t rounds, uint32_t const* delay_ns, unsigned long long* stamps,
                                      uint32_t ragged, uint32_t shift, uint32_t* semaphores, uint32_t const* waits,
                                      cusync_report* report, uint32_t width, uint32_t first_slot, uint32_t node,
                                      uint32_t how) {
  cusync::TileSync const sync{semaphores, waits, report, width, first_slot, node, how};
  uint32_t const i = suite::thread_index();
  uint32_t const all_rounds = rounds + (ragged ? (suite::mix(seed, blockIdx.x) & 7) * ragged / 7 : 0);
  unsigned long long const delay = delay_ns != nullptr && (blockIdx.x + seed) % 3 == 0 ? *delay_ns : 0;
  uint32_t const* const sources[4] = {in0, in1, in2, in3};
  uint32_t h = suite::mix(seed, i);
  uint32_t const run = cusync::begin(sync);
  if (stamps != nullptr && i == 0) stamps[0] = cusync::ptx::globaltimer();
  if (delay != 0) {
    unsigned long long const begin = cusync::ptx::globaltimer();
    while (cusync::ptx::globaltimer() - begin < delay) cusync::ptx::nanosleep(200);
  }
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k)
    if (k < inputs) h = suite::mix(h, sources[k][in_place >> k & 1 ? i : words - 1 - i]);
  if (shift != 0) h = suite::mix(h, in0[min(i + shift, words - 1)]);
  for (uint32_t round = 0; round < all_rounds; ++round) h = suite::mix(h, round);
  if (outputs > 0) out0[i] = h;
  if (outputs > 1) out1[i] = suite::mix(h, 1);
  if (stamps != nullptr && i == 0) stamps[1] = cusync::ptx::globaltimer();
  cusync::end(sync, run);
}

/// stamp[0] = current time in nanoseconds: the start or end of a task.
extern "C" __global__ void stamp(unsigned long long* stamp) {
  suite::begin(stamp);
  if (suite::thread_index() == 0) stamp[0] = cusync::ptx::globaltimer();
}
