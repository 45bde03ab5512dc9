// SPDX-License-Identifier: MIT OR Apache-2.0
// The policies' 32-bit arithmetic against integers that never wrap, at every tile of small grids and at the corners of
// the largest ones. Prints the number of comparisons; stops at the first difference.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "cusync/order.hpp"
#include "cusync/policy.hpp"

using namespace cusync;
using Wide = __int128;

static unsigned long long compared = 0;

static void same(char const* what, Wide have, Wide want, Wide a = 0, Wide b = 0) {
  ++compared;
  if (have == want) return;
  std::printf("%s at %lld, %lld: %lld, and not %lld\n", what, (long long)a, (long long)b, (long long)have, (long long)want);
  std::exit(1);
}

/// A counter that is `ahead` of the awaited value, as unbounded numbers and as 32 bits.
static void counters() {
  Wide const top = Wide(1) << 32, half = Wide(1) << 31;
  for (uint32_t base : {0u, 1u, 12345u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    auto const at = [&](Wide ahead) {
      same("reached", reached(uint32_t((Wide(base) + ahead + top) % top), base), ahead >= 0, base, ahead);
    };
    for (Wide d = -half; d < half; d += 65537) at(d);
    for (Wide edge : {-half, Wide(0), half - 1})
      for (Wide d = edge - 70000; d <= edge + 70000; ++d)
        if (d >= -half && d < half) at(d);
  }
  // Run after run, over several wraps: the run's own last post reaches its value, and no earlier post does.
  for (uint32_t posts : {1u, 2u, 3u, 12u, 96u, 4095u, 65535u, 65536u, 1000003u, 0x3fffffffu, 0x7fffffffu})
    for (Wide wraps = 0; wraps < 4; ++wraps)
      for (Wide near = -40; near <= 40; ++near) {
        Wide const run = wraps * top / posts + near;
        if (run < 0) continue;
        uint32_t const want = wait_value(uint32_t(run % top), posts);
        same("wait_value", want, (run + 1) * posts % top, run, posts);
        for (Wide made : {Wide(0), Wide(posts) / 2, Wide(posts) - 1, Wide(posts)})
          same("a run's posts", reached(uint32_t((run * posts + made) % top), want), made == posts, run, made);
      }
}

/// All distances between two counters, each from a different start: only the difference matters, so this covers all
/// pairs.
static void distances() {
  uint32_t distance = 0, base = 0;
  do {
    base += 0x9e3779b9u;
    bool const is = reached(base + distance, base);
    if (is != (distance < 0x80000000u)) same("reached", is, !is, base, distance);
  } while (++distance);
  compared += 1ull << 32;
}

static Wide wide_slot(cusync_policy const& p, Wide m, Wide n) {
  return Wide(p.slot_base) + m / p.block_m * p.slots_n + (p.stride_n ? n % p.stride_n : n / p.block_n);
}

static cusync_policy policy(uint32_t gm, uint32_t gn, uint32_t bm, uint32_t bn, uint32_t stride, Wide top) {
  cusync_policy p{};
  p.grid_m = gm, p.grid_n = gn, p.block_m = bm, p.block_n = stride ? 1 : bn, p.stride_n = stride;
  p.slots_n = stride ? stride : ceil_div(gn, bn);
  p.slot_count = ceil_div(gm, bm) * p.slots_n;
  p.slot_base = uint32_t(top - p.slot_count);
  return p;
}

/// Every tile and every slot: posts are the tiles that map to a slot.
static void small_grids() {
  static unsigned tiles[4096];
  for (uint32_t gm = 1; gm <= 9; ++gm)
    for (uint32_t gn = 1; gn <= 9; ++gn)
      for (uint32_t bm = 1; bm <= gm + 1; ++bm)
        for (uint32_t bn = 1; bn <= 2 * gn + 2; ++bn) {
          uint32_t const stride = bn > gn + 1 ? bn - gn - 1 : 0;
          if (stride > gn) continue;
          // The last slot has the largest 32-bit number.
          cusync_policy const p = policy(gm, gn, bm, bn, stride, Wide(1) << 32);
          for (uint32_t s = 0; s < p.slot_count; ++s) tiles[s] = 0;
          for (uint32_t m = 0; m < gm; ++m)
            for (uint32_t n = 0; n < gn; ++n) {
              same("slot_of", slot_of(p, m, n), wide_slot(p, m, n), m, n);
              ++tiles[slot_of(p, m, n) - p.slot_base];
            }
          for (uint32_t s = 0; s < p.slot_count; ++s) same("posts_of", posts_of(p, p.slot_base + s), tiles[s], s);
        }
}

/// The corners of grids of up to 2^32 - 1 tiles.
static void large_grids() {
  for (uint32_t gm : {1u, 2u, 255u, 65535u, 65536u, 1u << 20, 0xffffffffu})
    for (uint32_t gn : {1u, 3u, 255u, 65535u, 65536u, 1u << 20, 0xffffffffu}) {
      if (Wide(gm) * gn >= Wide(1) << 32) continue;
      for (uint32_t bm : {1u, 2u, 7u, gm})
        for (uint32_t bn : {1u, 3u, gn}) {
          if (bm > gm || bn > gn || Wide(gm) + bm > Wide(1) << 32 || Wide(gn) + bn > Wide(1) << 32) continue;
          cusync_policy const p = policy(gm, gn, bm, bn, 0, Wide(1) << 32);
          for (uint32_t m : {0u, gm / 2, gm - 1})
            for (uint32_t n : {0u, gn / 2, gn - 1}) {
              Wide const slot = wide_slot(p, m, n);
              same("slot_of", slot_of(p, m, n), slot, m, n);
              Wide const row = Wide(m) / bm * bm, col = Wide(n) / bn * bn;
              Wide const rows = row + bm > gm ? gm - row : bm, cols = col + bn > gn ? gn - col : bn;
              same("posts_of", posts_of(p, uint32_t(slot)), rows * cols, m, n);
            }
        }
      for (uint32_t kind = 0; kind < CUSYNC_ORDER_TABLE; ++kind)
        for (uint32_t group : {1u, 8u}) {
          // Requests that overflow here are refused.
          if (Wide(group) * (kind == CUSYNC_ORDER_GROUPED_ROWS ? gn : gm) >= Wide(1) << 32) continue;
          cusync_order const order{kind, gm, gn, group, nullptr};
          for (uint32_t i : {0u, uint32_t(Wide(gm) * gn / 2), uint32_t(Wide(gm) * gn - 1)}) {
            TileCoord const tile = tile_at(order, i);
            bool const tall = kind == CUSYNC_ORDER_COLUMN_MAJOR, rows = kind == CUSYNC_ORDER_GROUPED_ROWS;
            Wide m = tall ? Wide(i) % gm : Wide(i) / gn, n = tall ? Wide(i) / gm : Wide(i) % gn;
            if (kind == CUSYNC_ORDER_GROUPED_ROWS || kind == CUSYNC_ORDER_GROUPED_COLUMNS) {
              Wide const along = rows ? gm : gn, across = rows ? gn : gm;
              Wide const first = Wide(i) / (Wide(group) * across) * group, in = Wide(i) % (Wide(group) * across);
              Wide const size = first + group > along ? along - first : Wide(group);
              (rows ? m : n) = first + in % size, (rows ? n : m) = in / size;
            }
            same("tile_at, m", tile.m, m, i, kind), same("tile_at, n", tile.n, n, i, kind);
          }
        }
    }
}

/// Ranges of elements, with the largest steps an axis may have and 16-bit coordinates, as in items.
static void footprints() {
  int32_t const far[] = {-2147483647 - 1, -65536, -1, 0, 1, 128, 65535, 2147483647};
  uint32_t const near[] = {0, 1, 255, 65535};
  for (int32_t m : far)
    for (int32_t n : far)
      for (int32_t k : far)
        for (int32_t offset : {-2147483647 - 1, -3, 0, 2147483647})
          for (int32_t extent : {1, 128, 2147483647})
            for (uint32_t length : {1u, 4096u, 0xffffffffu})
              for (uint32_t tile : near)
                for (uint32_t block : near) {
                  cusync_axis const axis{m, n, k, offset, extent};
                  Wide const first = Wide(m) * tile + Wide(n) * tile + Wide(k) * block + offset, last = first + extent;
                  auto const clip = [&](Wide x) { return x < 0 ? Wide(0) : x > length ? Wide(length) : x; };
                  Range const range = footprint(axis, length, tile, tile, block);
                  same("footprint, begin", range.begin, clip(first), tile, block);
                  same("footprint, end", range.end, clip(last), tile, block);
                }
}

int main() {
  counters(), distances(), small_grids(), large_grids(), footprints();
  std::printf("%llu results are those of wide integers\n", compared);
}
