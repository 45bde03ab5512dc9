// SPDX-License-Identifier: MIT OR Apache-2.0
// The division of an attention stage among the workers of a decode kernel, for any sequence lengths. Host and device.
//
// A unit is up to 64 cached tokens of one key/value head of one sequence; the last unit of a head holds the remaining 0
// to 63 tokens and the new token. Units are numbered by sequence, head, token. Each worker gets one run of units: of a
// single head if that is balanced enough, otherwise equal runs. Ragged batches are therefore balanced without a plan:
// lengths are read when the kernel runs, and prefix sums determine the rest.
//
// Law: every (sequence, head) is finished, and posted, by exactly one worker, for any lengths. So a head's semaphore
// gets one post per sequence in each run.
#pragma once
#include <utility>

#include "cusync/policy.hpp"

namespace cusync::kernels::decode {

inline constexpr uint32_t kUnitTokens = 64;    ///< also tokens per page
inline constexpr uint32_t kMaxSequences = 64;  ///< maximum tokens of a decode kernel, one per sequence
inline constexpr uint32_t kMaxGroup = 8;       ///< query heads per key/value head
inline constexpr uint32_t kGroupColumns = 1024;  ///< columns of these heads together: four per math thread
inline constexpr uint32_t kFewestUnits = 2;    ///< minimum units worth a worker of their own
inline constexpr uint32_t kBadLength = ~0u;    ///< replaces a length that is negative or leaves no room for a new token

/// Widths of heads (HEADS in codegen/src/schedule/decode.rs).
using HeadColumns = std::integer_sequence<uint32_t, 64, 80, 96, 128, 256>;

template <uint32_t... Columns>
CUSYNC_HD constexpr bool is_head(uint32_t columns, std::integer_sequence<uint32_t, Columns...>) {
  return ((columns == Columns) || ...);
}
/// Whether there is code for `group` query heads of `columns` columns per key/value head.
CUSYNC_HD constexpr bool takes_heads(uint32_t group, uint32_t columns) {
  return is_head(columns, HeadColumns{}) && group && group <= min_u32(kMaxGroup, kGroupColumns / columns);
}

/// Cached tokens of a sequence, or kBadLength.
CUSYNC_HD constexpr uint32_t checked_length(int32_t length, uint32_t capacity) {
  return uint32_t(length) < capacity ? uint32_t(length) : kBadLength;
}

/// Units per head of a sequence; one empty unit if the length is bad.
CUSYNC_HD constexpr uint32_t units_of(uint32_t length) {
  return length == kBadLength ? 1 : length / kUnitTokens + 1;
}

/// Units [begin, end) of one worker.
struct UnitShare {
  uint32_t begin, end;
};

/// The units of one (sequence, head) in one worker's share.
struct Segment {
  uint32_t sequence, head;
  uint32_t begin, end;   ///< units, in global numbering
  uint32_t first, last;  ///< units [first, last) are all units of this (sequence, head)

  CUSYNC_HD constexpr bool whole() const { return begin == first && end == last; }
  /// Whether it contains the new token.
  CUSYNC_HD constexpr bool ends() const { return end == last; }
};

/// Maximum units per worker if each worker has units of only one head, so that no worker combines two parts in
/// sequence; 0: too unbalanced. `needed(n)`: number of workers for runs of up to n units of one head.
template <class Needed>
CUSYNC_HD constexpr uint32_t longest_run(uint32_t units, uint32_t workers, Needed&& needed) {
  uint32_t const even = ceil_div(units, workers), fewest = even < kFewestUnits ? kFewestUnits : even;
  uint32_t low = fewest, high = fewest * 3 / 2;
  if (needed(high) > workers) return 0;
  while (low < high) {
    uint32_t const middle = (low + high) / 2;
    if (needed(middle) <= workers) high = middle; else low = middle + 1;
  }
  return low;
}

/// All units of a stage.
struct Units {
  uint32_t const* before;  ///< sequences + 1 entries: units per head of all earlier sequences
  uint32_t const* runs;    ///< the same for workers, if each has units of one head
  uint32_t sequences, heads;
  uint32_t all;            ///< workers
  uint32_t run;            ///< longest_run

  CUSYNC_HD constexpr uint32_t count() const { return before[sequences] * heads; }

  /// Number of workers with units.
  CUSYNC_HD constexpr uint32_t workers() const {
    return run ? runs[sequences] * heads : min_u32(all, ceil_div(count(), kFewestUnits));
  }

  /// Units of worker `worker`; products stay below 2^32.
  CUSYNC_HD constexpr UnitShare share(uint32_t worker) const {
    uint32_t const units = count(), some = workers();
    if (worker >= some) return {units, units};
    if (!run) return {worker * units / some, (worker + 1) * units / some};
    uint32_t const s = sequence_at(runs, worker), each = before[s + 1] - before[s], count = runs[s + 1] - runs[s];
    uint32_t const rest = worker - runs[s] * heads, first = before[s] * heads + rest / count * each, part = rest % count;
    return {first + part * each / count, first + (part + 1) * each / count};
  }

  /// The segment that begins at `unit`; the worker's share ends at `end`.
  CUSYNC_HD constexpr Segment segment(uint32_t unit, uint32_t end) const {
    uint32_t const s = sequence_at(before, unit), base = before[s] * heads, each = before[s + 1] - before[s];
    uint32_t const head = (unit - base) / each, first = base + head * each, last = first + each;
    return {s, head, unit, min_u32(end, last), first, last};
  }

  /// The workers with units of a segment's head, as a range.
  CUSYNC_HD constexpr UnitShare owners(Segment const& segment) const {
    uint32_t const s = segment.sequence;
    if (run) {
      uint32_t const each = runs[s + 1] - runs[s], first = runs[s] * heads + segment.head * each;
      return {first, first + each};
    }
    return {owner(segment.first), owner(segment.last - 1) + 1};
  }

 private:
  /// The worker of a unit, with equal shares.
  CUSYNC_HD constexpr uint32_t owner(uint32_t unit) const { return ((unit + 1) * workers() - 1) / count(); }

  /// The last sequence that begins at or before number `at`, in the counts of `sums`.
  CUSYNC_HD constexpr uint32_t sequence_at(uint32_t const* sums, uint32_t at) const {
    uint32_t low = 0, high = sequences;
    while (high - low > 1) {
      uint32_t const middle = (low + high) / 2;
      if (sums[middle] * heads <= at) low = middle; else high = middle;
    }
    return low;
  }
};

/// The order in which a worker processes its segments: a part of a head that continues in the next worker comes first.
/// Parts are therefore written early, and with more than two segments a worker's last one is whole.
class Walk {
 public:
  CUSYNC_HD constexpr Walk(Units const& units, uint32_t worker) : units_(units), share_(units.share(worker)) {
    if (share_.begin == share_.end) return;
    Segment const last = units.segment(share_.end - 1, share_.end);
    bool const others = last.first > share_.begin;
    turn_ = others && last.last > share_.end ? last.first : share_.begin;
    at_ = turn_;
  }

  CUSYNC_HD constexpr UnitShare const& share() const { return share_; }
  CUSYNC_HD constexpr uint32_t left() const { return share_.end - share_.begin - passed_; }  ///< units
  CUSYNC_HD constexpr bool done() const { return !left(); }
  CUSYNC_HD constexpr Segment segment() const {
    return units_.segment(at_, turn_ > share_.begin && at_ < turn_ ? turn_ : share_.end);
  }
  CUSYNC_HD constexpr void pass(Segment const& segment) {
    passed_ += segment.end - segment.begin;
    at_ = segment.end == share_.end ? share_.begin : segment.end;
  }

 private:
  Units const& units_;
  UnitShare share_;
  uint32_t turn_ = 0, at_ = 0, passed_ = 0;
};

/// A head divided among several workers, each of which writes its part to a slab. A worker has two slabs, for its first
/// and its last segment; segments in between are whole.
struct Parts {
  uint32_t first, count;  ///< workers
  uint32_t slab_of_first;

  CUSYNC_HD constexpr uint32_t slab(uint32_t part) const { return part ? 2 * (first + part) : slab_of_first; }
};

CUSYNC_HD constexpr uint32_t slab_of(uint32_t worker, uint32_t segment_begin, uint32_t share_begin) {
  return 2 * worker + (segment_begin == share_begin ? 0 : 1);
}

CUSYNC_HD constexpr Parts parts_of(Units const& units, Segment const& segment) {
  UnitShare const owners = units.owners(segment);
  return {owners.begin, owners.end - owners.begin,
          slab_of(owners.begin, segment.first, units.share(owners.begin).begin)};
}

}  // namespace cusync::kernels::decode
