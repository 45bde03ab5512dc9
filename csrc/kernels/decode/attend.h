// SPDX-License-Identifier: MIT OR Apache-2.0
// Who attends to what in an attention stage of a decode kernel, for any lengths of the sequences. Host and device.
//
// A unit is up to 64 cached tokens of one key/value head of one sequence; the last unit of a head holds the tokens that are
// left, none to 63, and the new token. Units are numbered by sequence, head, token. Workers have equal runs of them, so a
// ragged batch is balanced without a plan: lengths are read when the kernel runs, and prefix sums say the rest.
//
// Law: every (sequence, head) is finished, and posted, by exactly one worker, whatever the lengths are. So a head's semaphore
// gets as many posts a run as there are sequences.
#pragma once
#include "cusync/policy.hpp"

namespace cusync::kernels::decode {

inline constexpr uint32_t kUnitTokens = 64;    ///< and tokens of a page
inline constexpr uint32_t kMaxSequences = 64;  ///< the most tokens of a decode kernel, one a sequence
inline constexpr uint32_t kMaxGroup = 8;       ///< query heads of a key/value head
inline constexpr uint32_t kFewestUnits = 4;    ///< that are worth a worker while others have none
inline constexpr uint32_t kBadLength = ~0u;    ///< in place of a length that is negative or leaves no room for a new token

/// The cached tokens of a sequence, or kBadLength.
CUSYNC_HD constexpr uint32_t checked_length(int32_t length, uint32_t capacity) {
  return uint32_t(length) < capacity ? uint32_t(length) : kBadLength;
}

/// Units of one head of a sequence; one, which does nothing, of a sequence of bad length.
CUSYNC_HD constexpr uint32_t units_of(uint32_t length) {
  return length == kBadLength ? 1 : length / kUnitTokens + 1;
}

/// Units [begin, end) of one worker.
struct UnitShare {
  uint32_t begin, end;
};

/// The units of one (sequence, head) that one worker has.
struct Segment {
  uint32_t sequence, head;
  uint32_t begin, end;   ///< units, as all units are numbered
  uint32_t first, last;  ///< units [first, last) are all of this (sequence, head)

  CUSYNC_HD constexpr bool whole() const { return begin == first && end == last; }
  /// Whether the new token is in it.
  CUSYNC_HD constexpr bool ends() const { return end == last; }
};

/// All units of a stage.
struct Units {
  uint32_t const* before;  ///< of sequences + 1: units of one head of all sequences before
  uint32_t sequences, heads;

  CUSYNC_HD constexpr uint32_t count() const { return before[sequences] * heads; }

  /// Workers that have any.
  CUSYNC_HD constexpr uint32_t workers(uint32_t all) const { return min_u32(all, ceil_div(count(), kFewestUnits)); }

  /// Units of worker `worker`; products stay below 2^32.
  CUSYNC_HD constexpr UnitShare share(uint32_t worker, uint32_t all) const {
    uint32_t const units = count(), some = workers(all);
    if (worker >= some) return {units, units};
    return {worker * units / some, (worker + 1) * units / some};
  }

  /// The worker that has a unit.
  CUSYNC_HD constexpr uint32_t owner(uint32_t unit, uint32_t all) const {
    return ((unit + 1) * workers(all) - 1) / count();
  }

  /// The segment that begins at `unit`, of a worker whose units end at `end`.
  CUSYNC_HD constexpr Segment segment(uint32_t unit, uint32_t end) const {
    uint32_t low = 0, high = sequences;  // the last sequence that begins at or before the unit
    while (high - low > 1) {
      uint32_t const middle = (low + high) / 2;
      if (before[middle] * heads <= unit) low = middle; else high = middle;
    }
    uint32_t const base = before[low] * heads, each = before[low + 1] - before[low], head = (unit - base) / each;
    uint32_t const first = base + head * each, last = first + each;
    return {low, head, unit, min_u32(end, last), first, last};
  }
};

/// A head that several workers have parts of: each leaves its part in a slab. A worker has two slabs, for the segment that
/// it begins with and for the one that it ends with; segments between are whole.
struct Parts {
  uint32_t first, count;  ///< workers
  uint32_t slab_of_first;

  CUSYNC_HD constexpr uint32_t slab(uint32_t part) const { return part ? 2 * (first + part) : slab_of_first; }
};

CUSYNC_HD constexpr uint32_t slab_of(uint32_t worker, uint32_t segment_begin, uint32_t share_begin) {
  return 2 * worker + (segment_begin == share_begin ? 0 : 1);
}

CUSYNC_HD constexpr Parts parts_of(Units const& units, Segment const& segment, uint32_t all) {
  uint32_t const first = units.owner(segment.first, all), last = units.owner(segment.last - 1, all);
  return {first, last - first + 1, slab_of(first, segment.first, units.share(first, all).begin)};
}

}  // namespace cusync::kernels::decode
