// SPDX-License-Identifier: MIT OR Apache-2.0
// Holds back a consumer's stream until its producer can no longer be kept off the SMs, for kernels without such a
// guarantee by the GPU.
#include "cusync/semaphore.cuh"
#include "kernels/common/host.h"

namespace cusync::kernels {
namespace {

/// One thread. A run of the producer draws tiles + workers tickets, and the first `tiles` are its tiles: once those are
/// drawn, every tile belongs to a resident CTA, and later CTAs find nothing to do.
__global__ void gate(cusync_gate const g) {
  unsigned long long const run = ptx::atom_relaxed_gpu_add(g.runs, 1);
  unsigned long long const want = run * (uint64_t(g.tiles) + g.workers) + g.tiles;
  // A producer may itself wait before it draws again. Allow as long as chain kernels allow their waits, and the
  // barriers within them.
  unsigned long long const limit = 4 * (g.timeout_ns ? g.timeout_ns : kDefaultTimeoutNs);
  unsigned long long have = ptx::atom_relaxed_gpu_add(g.tickets, 0), last = have, begin = ptx::globaltimer();
  while (have < want) {
    if (ptx::globaltimer() - begin > limit) {
      Watch const watch{g.report, g.timeout_ns, g.stage};
      report_and_trap(watch, {g.edge, 0, 0, 0}, 0, uint32_t(have - (want - g.tiles)), g.tiles);
    }
    ptx::nanosleep(200);
    have = ptx::atom_relaxed_gpu_add(g.tickets, 0);
    if (have != last) last = have, begin = ptx::globaltimer();
  }
}

}  // namespace
}  // namespace cusync::kernels

extern "C" int32_t cusync_wait_for_start(cusync_gate const* g, void* stream) {
  if (!g || !g->tickets || !g->runs || !g->tiles || !g->workers) return CUSYNC_ERROR_BAD_ARGUMENT;
  cusync::kernels::gate<<<1, 1, 0, cudaStream_t(stream)>>>(*g);
  return cusync::kernels::status_of(cudaGetLastError());
}
