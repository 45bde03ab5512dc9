// SPDX-License-Identifier: MIT OR Apache-2.0
// The inputs of an attention stage: the weight thread streams cached keys and values; separate warps wait for and load
// each segment's queries, new key and new value.
#pragma once
#include <type_traits>

#include "cute/arch/copy_sm90_desc.hpp"
#include "cute/arch/copy_sm90_tma.hpp"

#include "kernels/decode/sm90/attend_config.cuh"

namespace cusync::kernels::decode {

/// The page of a tile of a sequence; 0 for invalid table entries, which the warp that gathers the segment reports.
CUSYNC_DEVICE uint32_t page_of(Attend const& attend, uint32_t sequence, uint32_t tile) {
  uint32_t const page = uint32_t(__ldcg(attend.page_table + uint64_t(sequence) * attend.page_row + tile));
  return page < attend.pages ? page : 0;
}

/// Streams this worker's units. Earlier runs wrote them, so they wait for no stage of this run.
template <class AnyParams, class Ring>
CUSYNC_DEVICE void stream_cache(AnyParams const& p, Shared const& shared, uint32_t s, Ring& ring) {
  Stage const& stage = p.stages[s];
  Attend const& attend = p.attends[p.attend_of[s] - 1];
  // The preceding kernel may have written the last rows and the lengths.
  ptx::griddepcontrol_wait();
  ptx::fence_proxy_async_global();
  Units const units = await_units(p, shared, attend);
  uint32_t const* const lengths = attend_shared(p, shared).lengths;
  uint32_t const bytes = stage.chunk_bytes, chunks = unit_chunks(attend.head_dim), tokens = kUnitTokens / chunks;
  uint32_t const copies = attend.head_dim % kBlock ? ceil_div(attend.head_dim, kBlock) : 1;
  uint32_t ahead = stage.waits ? p.ring_bytes / bytes : 0;
#pragma unroll 1
  for (Walk walk(units, blockIdx.x); !walk.done();) {
    Segment const segment = walk.segment();
    uint32_t unit = segment.begin;
    uint32_t const length = lengths[segment.sequence] == kBadLength ? 0 : lengths[segment.sequence];
    uint32_t const loaded = segment.first + ceil_div(length, kUnitTokens);  // units from here on hold no cached tokens
    auto const page_at = [&](uint32_t u) {
      return attend.pages && u < loaded ? page_of(attend, segment.sequence, u - segment.first) : 0;
    };
    uint32_t const first_row = (segment.sequence * attend.kv_heads + segment.head) * p.capacity;
    uint32_t page = page_at(unit), next = page_at(unit + 1);  // requested before they are needed
#pragma unroll 1
    for (; unit < segment.end; ++unit) {
      uint32_t const after_next = page_at(unit + 2), before = (unit - segment.first) * kUnitTokens;
      uint32_t const first = attend.pages ? (page * attend.kv_heads + segment.head) * kUnitTokens : first_row + before;
#pragma unroll 1
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        char* const place = ring.reserve(bytes, ahead ? p.ahead_bytes : p.in_flight_bytes);
        if (ahead) --ahead;
        if (before + chunk * tokens < length) {
          int32_t const row = int32_t(first + chunk * tokens);
          constexpr auto kOnce = uint64_t(cute::TMA::CacheHintSm90::EVICT_FIRST);
          ptx::mbarrier_arrive_expect_tx(ring.full(), bytes);
#pragma unroll 1
          for (uint32_t i = 0; i < copies; ++i) {
            char* const tile = place + i * tokens * kRowBytes;
            cute::SM90_TMA_LOAD_3D::copy(&attend.keys, ring.full(), kOnce, tile, int32_t(i * kBlock), row, 0);
            cute::SM90_TMA_LOAD_3D::copy(&attend.values, ring.full(), kOnce, tile + bytes / 2, int32_t(i * kBlock), row, 0);
          }
        } else {
          ptx::mbarrier_arrive(ring.full());
        }
        ring.pass(bytes);
      }
      page = next, next = after_next;
    }
    walk.pass(segment);
  }
}

/// One warp's loop over segments: every kSegmentSlots-th segment of each attention stage, into a fixed slot.
template <class AnyParams>
class SegmentLoader {
 public:
  CUSYNC_DEVICE SegmentLoader(AnyParams const& p, Shared const& shared, uint32_t warp, uint32_t epoch)
      : p_(p), shared_(shared), own_(attend_shared(p, shared)), slot_(warp), lane_(threadIdx.x % 32), epoch_(epoch) {}

  CUSYNC_DEVICE void stage(uint32_t s) {
    if (slot_ >= kSegmentSlots) return;
    Units const units = await_units(p_, shared_, p_.attends[p_.attend_of[s] - 1]);
    delay(p_.delays, DelayAt::kItem, epoch_, s, blockIdx.x, slot_);
    uint32_t number = 0;
#pragma unroll 1
    for (Walk walk(units, blockIdx.x); !walk.done(); ++number) {
      Segment const segment = walk.segment();
      walk.pass(segment);
      if (number % kSegmentSlots != slot_) continue;
      load(s, {segment, 0, slab_of(blockIdx.x, segment.begin, walk.share().begin), walk.left()}, number == 0);
    }
  }

 private:
  CUSYNC_DEVICE void load(uint32_t s, LoadedSegment loaded, bool first) {
    Stage const& stage = p_.stages[s];
    Attend const& attend = p_.attends[p_.attend_of[s] - 1];
    Segment const& segment = loaded.segment;
    uint32_t const length = own_.lengths[segment.sequence];
    loaded.append = append_row(attend, segment, length);
    ptx::mbarrier_wait_parity_or_trap(own_.empty + slot_, parity_ ^ 1, p_.limit_ns);
    if (!loaded.bad()) {
      // The rotary table's row comes from device memory, so prefetch it before the wait; the awaited data is in L2.
      if (attend.rotary && lane_ < ceil_div(attend.head_dim * 2, kLine))
        ptx::prefetch_global_l2(attend.rotary + uint64_t(length) * attend.head_dim * 2 + lane_ * kLine);
      if (stage.waits) await(stage, attend, segment);
      delay(p_.delays, DelayAt::kLoads, epoch_, stage.index, segment.sequence, segment.head);
      if (lane_ == 0)
        note(p_.notes, CUSYNC_EVENT_LOAD, {stage.index, segment.sequence, segment.head, blockIdx.x}, CUSYNC_OPERAND_A, 0);
      copy(stage, attend, segment, length);
    }
    if (p_.trace && lane_ == 0 && first)
      p_.trace[blockIdx.x * p_.stage_count + s].ready = ptx::globaltimer();
    ptx::cp_async_mbarrier_arrive_noinc(own_.full + slot_);
    if (lane_ == 0) {
      own_.segments[slot_] = loaded;
      ptx::mbarrier_arrive(own_.full + slot_);
    }
    parity_ ^= 1;
  }

  /// The key and value row of the new token; kBadSequence if the length or any page of the sequence is invalid, so all
  /// its heads agree. Called by the whole warp.
  CUSYNC_DEVICE uint32_t append_row(Attend const& attend, Segment const& segment, uint32_t length) const {
    if (length == kBadLength) return kBadSequence;
    if (!attend.pages) return (segment.sequence * attend.kv_heads + segment.head) * p_.capacity + length;
    int32_t const* const table = attend.page_table + uint64_t(segment.sequence) * attend.page_row;
    uint32_t const last = length / kUnitTokens;
    bool bad = false;
#pragma unroll 1
    for (uint32_t i = lane_; i <= last; i += 32) {
      uint32_t const page = uint32_t(__ldcg(table + i));
      if (page < attend.pages) continue;
      bad = true;
      report_only(p_.report, CUSYNC_REPORT_BAD_PAGE, segment.sequence, i, page, attend.pages);
    }
    if (__any_sync(~0u, bad)) return kBadSequence;
    uint32_t const page = uint32_t(__ldcg(table + last));
    return (page * attend.kv_heads + segment.head) * kUnitTokens + length % kUnitTokens;
  }

  /// Waits for the column tiles of the group's queries, the key and the value, one per lane.
  CUSYNC_DEVICE void await(Stage const& stage, Attend const& attend, Segment const& segment) const {
    uint32_t const dim = attend.head_dim, columns = attend.group * dim, all = attend.kv_heads * columns;
    uint32_t tile = lane_, end = 0;
    // Lanes are numbered through the column tiles of the queries, then of the key, then of the value.
    auto const next = [&](uint32_t begin, uint32_t count) {
      if (tile < end) return;
      tile = tile - end + begin / kBlock, end = ceil_div(begin + count, kBlock);
    };
    next(segment.head * columns, columns);
    next(all + segment.head * dim, dim);
    next(all + (attend.kv_heads + segment.head) * dim, dim);
    if (tile < end) {
      uint32_t const posts = stage.posts_of(tile);
      Watch const watch{p_.report, p_.timeout_ns, stage.index};
      wait_reached(stage.waits, stage.wait_base + tile, wait_value(epoch_, posts), {stage.edge, 0, blockIdx.x, tile},
                   watch);
      note(p_.notes, CUSYNC_EVENT_WAIT, {stage.index, segment.sequence, segment.head, blockIdx.x}, tile,
           wait_value(epoch_, posts));
    }
    __syncwarp();
  }

  CUSYNC_DEVICE void copy(Stage const& stage, Attend const& attend, Segment const& segment, uint32_t length) const {
    uint32_t const dim = attend.head_dim, pieces = dim / 8, row_bytes = segment_row(dim) * 2;
    uint32_t const rows = attend.group + (attend.epsilon > 0.f ? 5 : attend.rotary ? 3 : 2);
    uint32_t const to = uint32_t(__cvta_generic_to_shared(segment_rows(p_, shared_, attend, slot_)));
    auto const* const token = static_cast<char const*>(stage.a) + uint64_t(segment.sequence) * attend.columns() * 2;
    uint32_t const first_key = attend.group * attend.kv_heads;  // heads before the keys
#pragma unroll 4
    for (uint32_t i = lane_; i < rows * pieces; i += 32) {
      uint32_t const row = i / pieces, piece = i % pieces;
      uint32_t const head = row < attend.group    ? segment.head * attend.group + row
                            : row == attend.group ? first_key + segment.head
                                                  : first_key + attend.kv_heads + segment.head;
      char const* const from = row < attend.group + 2    ? token + uint64_t(head) * dim * 2
                               : row == attend.group + 2 ? attend.rotary + uint64_t(length) * dim * 2
                               : row == attend.group + 3 ? attend.query_gain
                                                         : attend.key_gain;
      ptx::cp_async_16_or_zero(to + row * row_bytes + piece * 16, from + piece * 16, true);
    }
  }

  AnyParams const& p_;
  Shared const& shared_;
  AttendShared& own_;
  uint32_t slot_, lane_, epoch_;
  uint32_t parity_ = 0;
};

/// Replaces SegmentLoader in kernels without attention.
struct NoSegments {
  CUSYNC_DEVICE NoSegments(Common const&, Shared const&, uint32_t, uint32_t) {}
};

template <class AnyParams>
using SegmentLoaderOf = std::conditional_t<AnyParams::kAttends, SegmentLoader<AnyParams>, NoSegments>;

}  // namespace cusync::kernels::decode
