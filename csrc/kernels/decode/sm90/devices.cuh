// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums over GPUs. Each GPU runs the same kernel on a part of the reduction, and a worker exchanges its partial sums with
// the workers of the same number. A sum travels in one 64-bit word with the number of its run, so the word itself says
// that it has arrived: nothing is fenced, flagged or posted between GPUs.
//
// Two sets of words, for alternate runs, are enough. A worker writes a word of run r + 2 only after it has finished the
// stage in run r + 1, and for that it has read what every other GPU sent in run r + 1. Each of those workers sent that
// after it had read the words of run r, which are the ones that are overwritten.
//
// The group is a type parameter of the decode kernel, so kernels of one GPU are unchanged.
#pragma once
#include "cusync/epoch.cuh"
#include "kernels/common/activation.cuh"
#include "kernels/common/delays.cuh"
#include "kernels/decode/sm90/config.cuh"

namespace cusync::kernels::decode {

/// What becomes of a stage's sums. Bias and residual are here, and not among its tensors, because they wait for the
/// complete sums, as an activation does.
struct Summed {
  uint32_t received;     ///< first word of the stage in the areas of GPUs; CUSYNC_NOT_SUMMED: the sums stay on this GPU
  uint32_t activation;   ///< enum cusync_activation
  void const* bias;
  void const* residual;
};

/// Of a run of a group.
struct GroupRun {
  uint32_t number;  ///< of the run, plus one
  uint32_t first;   ///< word of the first sum that this GPU sends in the current stage
};

/// Parameters of a kernel in a group of GPUs.
template <class Alone>
struct GroupParams : Alone {
  static constexpr bool kGroup = true;
  uint32_t devices, device;  ///< of the group, and this GPU's number there
  uint32_t run;              ///< offset of the GroupRun in shared memory
  uint32_t* runs;            ///< of the group, by worker
  unsigned long long* own;   ///< this GPU's area
  unsigned long long* next;  ///< that of the next GPU
  unsigned long long* areas[CUSYNC_MAX_DEVICES];
  Summed sums[Alone::kMostStages];
};

template <class AnyParams>
CUSYNC_DEVICE GroupRun& group_run(AnyParams const& p, Shared const& shared) {
  return *reinterpret_cast<GroupRun*>(shared.base + p.run);
}

/// The sums of a stage. An address that ran along with the stages would take registers from the main loop.
template <class AnyParams>
CUSYNC_DEVICE Summed const& summed_of(AnyParams const& p, uint32_t s) {
  return p.sums[ptx::opaque(s)];
}

/// Whether a stage is summed over GPUs.
template <class AnyParams>
CUSYNC_DEVICE bool is_summed(AnyParams const& p, uint32_t s) {
  return summed_of(p, s).received != CUSYNC_NOT_SUMMED;
}

/// Index of stage `s`'s first word from GPU `device` in run `run`.
template <class AnyParams>
CUSYNC_DEVICE uint32_t words_from(AnyParams const& p, uint32_t s, uint32_t device, uint32_t run) {
  return summed_of(p, s).received + (run % 2 * p.devices + device) * p.m * p.stages[s].features;
}

/// Begins a run. All math threads.
template <class AnyParams>
CUSYNC_DEVICE void begin_group_run(AnyParams const& p, Shared const& shared) {
  if (threadIdx.x == 0) group_run(p, shared).number = next_epoch_of_cta(p.runs, blockIdx.x) + 1;
  ptx::bar_sync(1, kMathThreads);
}

/// Begins a stage that is summed over GPUs. All math threads.
template <class AnyParams>
CUSYNC_DEVICE void begin_sums(AnyParams const& p, uint32_t s, Shared const& shared) {
  GroupRun& run = group_run(p, shared);
  if (threadIdx.x == 0) run.first = words_from(p, s, p.device, run.number - 1);
  ptx::bar_sync(1, kMathThreads);
}

/// Sends partial sum number `at` of a stage to this GPU and the next one; `sum_over_devices` passes it on to others. Few
/// registers are free here.
template <class AnyParams>
CUSYNC_DEVICE void send(AnyParams const& p, Shared const& shared, uint32_t at, float sum) {
  GroupRun const run = group_run(p, shared);
  unsigned long long const sent = uint64_t(run.number) << 32 | __float_as_uint(sum);
  ptx::st_relaxed_sys(p.next + (run.first + at), sent);
  ptx::st_relaxed_sys(p.own + (run.first + at), sent);
}

/// Reports that GPU `device` did not send sum number `at` of a stage in time, once per record, and traps.
template <class AnyParams>
CUSYNC_DEVICE void report_no_sums(AnyParams const& p, Stage const& stage, uint32_t device, uint32_t at, uint32_t have, uint32_t want) {
  cusync_report* const r = p.report;
  if (r && ptx::atom_acq_rel_sys_cas(&r->claimed, 0, 1) == 0) {
    r->kind = CUSYNC_REPORT_NO_SUMS, r->stage = stage.index, r->slot = device;
    r->tile_m = at / stage.features, r->tile_n = at % stage.features;
    r->have = have, r->want = want, r->sm = ptx::smid();
    ptx::fence_acq_rel_sys();
    ptx::st_release_sys(&r->claimed, 2);
    ptx::fence_acq_rel_sys();
  }
  // A trap ends the whole grid, so let another reporter finish.
  for (uint32_t i = 0; r && i < 1000 && ptx::ld_acquire_sys(&r->claimed) != 2; ++i) ptx::nanosleep(1000);
  ptx::trap();
}

/// Waits for `kCount` words from a GPU, and adds their sums to `sums`. An index of ~0 has no word.
template <int kCount, class AnyParams>
CUSYNC_DEVICE void receive(AnyParams const& p, uint32_t s, uint32_t device, uint32_t run, uint32_t const (&at)[kCount],
                           float (&sums)[kCount]) {
  unsigned long long const* const words = p.own + words_from(p, s, device, run);
  unsigned long long begin = 0;
  while (true) {
    uint32_t late = ~0u, have = 0;
    unsigned long long word[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) word[i] = at[i] == ~0u ? uint64_t(run + 1) << 32 : ptx::ld_relaxed_sys(words + at[i]);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (uint32_t(word[i] >> 32) != run + 1) late = at[i], have = uint32_t(word[i] >> 32);
    if (late == ~0u) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += __uint_as_float(uint32_t(word[i]));
      return;
    }
    unsigned long long const now = ptx::globaltimer(), limit = p.timeout_ns ? p.timeout_ns : kDefaultTimeoutNs;
    if (!begin) begin = now;
    // Waits for this stage began earlier: without a head start they would be reported, and not their cause.
    if (now - begin > limit - limit / 4) report_no_sums(p, p.stages[s], device, late, have, run + 1);
  }
}

/// Passes a worker's sums on from this GPU's area to those that `send` leaves out. All math threads.
template <class AnyParams>
CUSYNC_DEVICE void pass_on(AnyParams const& p, uint32_t s, Share const& share, uint32_t run) {
  ptx::bar_sync(1, kMathThreads);
  uint32_t const count = share.count * p.m, words = words_from(p, s, p.device, run);
#pragma unroll 1
  for (uint32_t number = threadIdx.x; number < count; number += kMathThreads) {
    uint32_t const token = number / share.count;
    uint32_t const word = words + token * p.stages[s].features + share.first + (number - token * share.count);
    unsigned long long const sent = ptx::ld_relaxed_sys(p.own + word);
#pragma unroll 1
    for (uint32_t i = 2; i < p.devices; ++i) ptx::st_relaxed_sys(p.areas[(p.device + i) % p.devices] + word, sent);
  }
}

/// Adds what all GPUs sent of a worker's share, and finishes its outputs. All math threads.
template <class Element, class AnyParams>
CUSYNC_DEVICE void sum_over_devices(AnyParams const& p, uint32_t s, Share const& share, Shared const& shared) {
  constexpr int kBatch = 2;
  Stage const& stage = p.stages[s];
  Summed const& summed = summed_of(p, s);
  uint32_t const run = group_run(p, shared).number - 1, count = share.count * p.m;
  if (CUSYNC_DELAYS && p.delays.limit_ns) delay(p.delays, DelayAt::kLoads, run, stage.index, blockIdx.x, p.device);
  if (p.devices > 2) pass_on(p, s, share, run);
#pragma unroll 1
  for (uint32_t first = threadIdx.x; first < count; first += kBatch * kMathThreads) {
    uint32_t at[kBatch];
    float sums[kBatch] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      uint32_t const number = first + i * kMathThreads, token = number / share.count;
      at[i] = number < count ? token * stage.features + share.first + (number - token * share.count) : ~0u;
    }
#pragma unroll 1
    for (uint32_t device = 0; device < p.devices; ++device) receive(p, s, device, run, at, sums);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (at[i] == ~0u) continue;
      Element const* const bias = static_cast<Element const*>(summed.bias);
      Element const* const residual = static_cast<Element const*>(summed.residual);
      float const more = residual ? float(residual[at[i]]) : 0.f;
      float sum = sums[i] + (bias ? float(bias[at[i] % stage.features]) : 0.f);
      if (stage.residual_first) sum += more;
      sum = summed.activation == CUSYNC_GELU_TANH ? gelu_tanh(sum) : summed.activation == CUSYNC_RELU ? relu(sum) : sum;
      if (!stage.residual_first) sum += more;
      static_cast<Element*>(stage.d)[at[i]] = Element(sum);
    }
  }
}

}  // namespace cusync::kernels::decode
