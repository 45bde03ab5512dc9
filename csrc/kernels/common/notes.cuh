// SPDX-License-Identifier: MIT OR Apache-2.0
// Notes: events that a kernel records, for the test that compares a run with the plan judged by `check`. Like delays,
// only in builds with CUSYNC_DELAYS.
#pragma once
#include "kernels/common/delays.cuh"

namespace cusync::kernels {

/// Whether this build supports notes.
inline bool has_notes(cusync_notes const& notes) { return CUSYNC_DELAYS || !notes.capacity; }

/// The owner of an event: a tile of a stage, and one of its workers. `item` is the first k-block of the work item; for
/// an attention tile of a decode kernel, the worker.
struct NoteOf {
  uint32_t stage, m, n, item;
};

/// Records an event. Called by one thread: for a wait, after the poll that satisfied it; for a load or a post, just
/// before it. A note therefore comes after the notes of everything its event depends on: places are drawn from one
/// word, without an ordering of their own, and program order, releases and acquires order the draws too.
CUSYNC_DEVICE void note(cusync_notes const& notes, cusync_event event, NoteOf const& where, uint32_t at, uint32_t value) {
#if CUSYNC_DELAYS
  if (!notes.capacity) return;
  uint32_t const place = ptx::atom_relaxed_gpu_add(notes.count, 1u);
  if (place < notes.capacity) notes.list[place] = {uint32_t(event), where.stage, where.m, where.n, where.item, at, value};
#endif
}

}  // namespace cusync::kernels
