// SPDX-License-Identifier: MIT OR Apache-2.0
// Who attends to what in an attention stage of a decode kernel, for any lengths of the sequences. Host and device.
//
// A unit is up to 64 cached tokens of one key/value head of one sequence; the last unit of a head holds the tokens that are
// left, none to 63, and the new token. Units are numbered by sequence, head, token. Workers have runs of them, of one head each
// where that is even enough and else equal ones, so a ragged batch is balanced without a plan: lengths are read when the kernel
// runs, and prefix sums say the rest.
//
// Law: every (sequence, head) is finished, and posted, by exactly one worker, whatever the lengths are. So a head's semaphore
// gets as many posts a run as there are sequences.
#pragma once
#include "cusync/policy.hpp"

namespace cusync::kernels::decode {

inline constexpr uint32_t kUnitTokens = 64;    ///< and tokens of a page
inline constexpr uint32_t kMaxSequences = 64;  ///< the most tokens of a decode kernel, one a sequence
inline constexpr uint32_t kMaxGroup = 8;       ///< query heads of a key/value head
inline constexpr uint32_t kFewestUnits = 2;    ///< that are worth a worker while others have none
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

/// How many units a worker may have when each has units of one head alone, so that none adds up two parts one after the other;
/// 0: too uneven. `needed(n)`: workers that runs of up to n units of one head take.
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
  uint32_t const* before;  ///< of sequences + 1: units of one head of all sequences before
  uint32_t const* runs;    ///< the same for workers, where each has units of one head
  uint32_t sequences, heads;
  uint32_t all;            ///< workers
  uint32_t run;            ///< longest_run

  CUSYNC_HD constexpr uint32_t count() const { return before[sequences] * heads; }

  /// Workers that have any.
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

  /// The segment that begins at `unit`, of a worker whose units end at `end`.
  CUSYNC_HD constexpr Segment segment(uint32_t unit, uint32_t end) const {
    uint32_t const s = sequence_at(before, unit), base = before[s] * heads, each = before[s + 1] - before[s];
    uint32_t const head = (unit - base) / each, first = base + head * each, last = first + each;
    return {s, head, unit, min_u32(end, last), first, last};
  }

  /// The workers that have units of a segment's head: the first, and how many.
  CUSYNC_HD constexpr UnitShare owners(Segment const& segment) const {
    uint32_t const s = segment.sequence;
    if (run) {
      uint32_t const each = runs[s + 1] - runs[s], first = runs[s] * heads + segment.head * each;
      return {first, first + each};
    }
    return {owner(segment.first), owner(segment.last - 1) + 1};
  }

 private:
  /// The worker that has a unit of even shares.
  CUSYNC_HD constexpr uint32_t owner(uint32_t unit) const { return ((unit + 1) * workers() - 1) / count(); }

  /// The last sequence that begins at or before number `at`, of what `sums` counts.
  CUSYNC_HD constexpr uint32_t sequence_at(uint32_t const* sums, uint32_t at) const {
    uint32_t low = 0, high = sequences;
    while (high - low > 1) {
      uint32_t const middle = (low + high) / 2;
      if (sums[middle] * heads <= at) low = middle; else high = middle;
    }
    return low;
  }
};

/// The order in which a worker takes its segments: a part of a head that the next worker goes on with comes first. So parts are
/// left early, and what a worker ends with is whole wherever it has more than two segments.
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
  CUSYNC_HD constexpr bool done() const { return passed_ == share_.end - share_.begin; }
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

CUSYNC_HD constexpr Parts parts_of(Units const& units, Segment const& segment) {
  UnitShare const owners = units.owners(segment);
  return {owners.begin, owners.end - owners.begin,
          slab_of(owners.begin, segment.first, units.share(owners.begin).begin)};
}

}  // namespace cusync::kernels::decode
