// SPDX-License-Identifier: MIT OR Apache-2.0
// What a kernel does, noted event by event as it does it, for the test that holds it against what `check` judged. Like delays,
// notes are in builds with CUSYNC_DELAYS only.
#pragma once
#include "kernels/common/delays.cuh"

namespace cusync::kernels {

/// Whether a request for notes can be met.
inline bool has_notes(cusync_notes const& notes) { return CUSYNC_DELAYS || !notes.capacity; }

/// What an event belongs to: a tile of a stage, and which of those who work on it has it. Of an item that is its first k-block,
/// of a tile of an attention in a decode kernel its worker.
struct NoteOf {
  uint32_t stage, m, n, item;
};

/// Notes an event. One thread: of a wait behind the look that satisfied it, of a load just before it, of a post just before it. So a
/// note is behind those of all that its event is behind, whatever the kernel rests on: places are drawn from one word, without
/// an order of their own, and orders of one thread, releases and acquires order those too.
CUSYNC_DEVICE void note(cusync_notes const& notes, cusync_event event, NoteOf const& of, uint32_t at, uint32_t value) {
#if CUSYNC_DELAYS
  if (!notes.capacity) return;
  uint32_t const place = ptx::atom_relaxed_gpu_add(notes.count, 1u);
  if (place < notes.capacity) notes.list[place] = {uint32_t(event), of.stage, of.m, of.n, of.item, at, value};
#endif
}

}  // namespace cusync::kernels
