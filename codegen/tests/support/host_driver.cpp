// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads edges and orders as numbers and prints the results of the host-compiled C functions.
#include <iostream>
#include <string>
#include <vector>

#include "abi/cusync.h"
#include "dump.hpp"

static std::vector<uint32_t> read_list() {
  size_t count = 0;
  std::cin >> count;
  std::vector<uint32_t> list(count);
  for (uint32_t& x : list) std::cin >> x;
  return list;
}

static void run_edge() {
  cusync_edge e{};
  cusync_policy& p = e.policy;
  uint32_t consumer_m = 0, consumer_n = 0;
  std::cin >> p.grid_m >> p.grid_n >> p.block_m >> p.block_n >> p.stride_n >> p.slots_n >> p.slot_base >> p.slot_count >>
      p.width >> p.columns;
  std::vector<uint32_t> const table = read_list(), posts = read_list();
  if (!table.empty()) p.table = table.data(), p.table_posts = posts.data();
  std::cin >> e.id >> e.operand >> e.wait_at >> e.tile_rows >> e.tile_cols >> e.tensor_rows >> e.tensor_cols >>
      e.k_blocks;
  for (cusync_axis* a : {&e.rows, &e.cols}) std::cin >> a->m >> a->n >> a->k >> a->offset >> a->extent;
  std::cin >> consumer_m >> consumer_n;
  dump_edge(
      e, consumer_m, consumer_n,
      [&](uint32_t m, uint32_t n) {
        cusync::Range slots;
        cusync_host_posted_by(&p, m, n, &slots.begin, &slots.end);
        return slots;
      },
      [&](uint32_t slot) { return cusync_host_posts_of(&p, slot); },
      [&](uint32_t m, uint32_t n, uint32_t k, bool first, uint32_t k_end) {
        // The count comes first, then the pairs: a buffer that is too short must not be overrun.
        uint32_t const count = cusync_host_waits(&e, m, n, k, first, k_end, nullptr, nullptr, 0);
        std::vector<uint32_t> slots(count), expected(count);
        cusync_host_waits(&e, m, n, k, first, k_end, slots.data(), expected.data(), count);
        std::map<uint32_t, uint32_t> map;
        for (uint32_t i = 0; i < count; ++i) map[slots[i]] = expected[i];
        return map;
      });
}

static void run_order() {
  cusync_order o{};
  std::cin >> o.kind >> o.grid_m >> o.grid_n >> o.group;
  std::vector<uint32_t> const table = read_list();
  o.table = table.empty() ? nullptr : table.data();
  dump_order(o, [&](uint32_t i) {
    cusync::TileCoord t;
    cusync_host_tile_at(&o, i, &t.m, &t.n);
    return t;
  });
}

int main() {
  std::string word;
  while (std::cin >> word) {
    if (word == "edge") run_edge();
    else if (word == "order") run_order();
    else return 1;
    std::cout.flush();
    std::printf("end\n");
  }
  return std::cin.eof() ? 0 : 1;
}
