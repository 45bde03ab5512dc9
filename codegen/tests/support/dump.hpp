// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints everything that an edge or an order answers, one line a question, for comparison with the Rust model.
#pragma once
#include <cstdio>
#include <map>

#include "cusync/cusync.hpp"

/// `posted_by(m, n)` (a range of slots), `posts_of(slot)` and `waits(m, n, k, first, k_end)` (a map from slot to posts) are the functions
/// under test.
template <class PostedBy, class PostsOf, class Waits>
void dump_edge(cusync_edge const& e, uint32_t consumer_m, uint32_t consumer_n, PostedBy posted_by, PostsOf posts_of,
               Waits waits) {
  for (uint32_t m = 0; m < e.policy.grid_m; ++m)
    for (uint32_t n = 0; n < e.policy.grid_n; ++n) {
      cusync::Range const slots = posted_by(m, n);
      std::printf("slots %u %u =", m, n);
      for (uint32_t slot = slots.begin; slot < slots.end; ++slot) std::printf(" %u", slot);
      std::printf("\n");
    }
  for (uint32_t s = 0; s < e.policy.slot_count; ++s)
    std::printf("posts %u = %u\n", e.policy.slot_base + s, posts_of(e.policy.slot_base + s));
  // A work item of the whole reduction, and one that begins in its middle (a split-K slice).
  uint32_t const begins[] = {0, e.k_blocks / 2};
  for (uint32_t m = 0; m < consumer_m; ++m)
    for (uint32_t n = 0; n < consumer_n; ++n)
      for (uint32_t slice = 0; slice < (e.k_blocks > 1 ? 2u : 1u); ++slice) {
        uint32_t next = begins[slice], looks = 0;
        for (uint32_t k = begins[slice]; k < e.k_blocks; ++k) {
          std::map<uint32_t, uint32_t> const slots = waits(m, n, k, k == begins[slice], e.k_blocks);
          if (k >= next) {
            ++looks;
            next = cusync::next_wait(e, m, n, k, e.k_blocks);
          } else if (!slots.empty()) {
            std::printf("next_wait skips %u %u %u\n", m, n, k);
          }
          if (slots.empty()) continue;
          std::printf("wait %u %u %u %u =", m, n, begins[slice], k);
          for (auto const& [slot, posts] : slots) std::printf(" %u:%u", slot, posts);
          std::printf("\n");
        }
        std::printf("looks %u %u %u = %u\n", m, n, begins[slice], looks);
      }
}

template <class TileAt>
void dump_order(cusync_order const& o, TileAt tile_at) {
  for (uint32_t i = 0; i < o.grid_m * o.grid_n; ++i) {
    cusync::TileCoord const t = tile_at(i);
    std::printf("tile %u = %u %u\n", i, t.m, t.n);
  }
}

/// The types of a rendered header.
template <class Edge>
void dump_rendered_edge(uint32_t consumer_m, uint32_t consumer_n) {
  dump_edge(
      Edge::value(), consumer_m, consumer_n,
      [](uint32_t m, uint32_t n) {
        uint32_t const slot = Edge::Producer::slot_of(m, n);
        return cusync::Range{slot, slot + 1};
      },
      [](uint32_t slot) { return Edge::Producer::posts_of(slot); },
      [](uint32_t m, uint32_t n, uint32_t k, bool first, uint32_t k_end) {
        std::map<uint32_t, uint32_t> slots;
        cusync::for_each_slot(Edge::Producer::value(), Edge::wait_box(m, n, k, first, k_end),
                              [&](uint32_t slot, uint32_t posts) { slots[slot] = posts; });
        return slots;
      });
}

template <class Order>
void dump_rendered_order() {
  dump_order(Order::value(), [](uint32_t i) { return Order::tile_at(i); });
}
