// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels' policy arithmetic, compiled for the host: used by the cpu executor.
#include "abi/cusync.h"

#include "cusync/order.hpp"
#include "cusync/policy.hpp"

extern "C" {

void cusync_host_posted_by(const cusync_policy* policy, uint32_t m, uint32_t n, uint32_t* begin, uint32_t* end) {
  cusync::Range const slots = cusync::posted_by(*policy, m, n);
  *begin = slots.begin;
  *end = slots.end;
}

uint32_t cusync_host_posts_of(const cusync_policy* policy, uint32_t slot) { return cusync::posts_of(*policy, slot); }

uint32_t cusync_host_waits(const cusync_edge* edge, uint32_t m, uint32_t n, uint32_t k, uint32_t first, uint32_t k_end,
                           uint32_t* slots, uint32_t* posts, uint32_t capacity) {
  cusync::TileBox const box = cusync::wait_box(*edge, m, n, k, first != 0, k_end);
  if (box.empty()) return 0;
  uint32_t count = 0;
  cusync::for_each_slot(edge->policy, box, [&](uint32_t slot, uint32_t expected) {
    if (count < capacity) {
      slots[count] = slot;
      posts[count] = expected;
    }
    ++count;
  });
  return count;
}

void cusync_host_tile_at(const cusync_order* order, uint32_t i, uint32_t* m, uint32_t* n) {
  cusync::TileCoord const tile = cusync::tile_at(*order, i);
  *m = tile.m;
  *n = tile.n;
}

}  // extern "C"
