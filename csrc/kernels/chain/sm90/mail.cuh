// SPDX-License-Identifier: MIT OR Apache-2.0
// Mailboxes: a worker of a chain kernel takes its items from its own small ring of words. A host fills it while the
// kernel runs, or worker 0 does and runs no items itself. A word names an item of the one checked list, and its run.
// The sender decides what may be sent when; here every word is executed, in order of its number.
//
// A launch fed by a host ends when no worker has received a word for a while. No worker leaves on its own, because
// another worker's item could wait for an item still in its mailbox. A worker that has finished everything it took goes
// to sleep, and a word wakes it. Once all are asleep one atomic operation closes the launch, after which no worker
// wakes. Words left in mailboxes belong to the next launch.
#pragma once
#include "cusync/semaphore.cuh"
#include "kernels/chain/sm90/config.cuh"

namespace cusync::kernels::sm90 {

/// State that this worker keeps between launches, in place of an epoch: finished words and launches. Host memory has
/// the same values, but with a higher latency. One thread reads and writes it.
template <class C>
CUSYNC_DEVICE uint32_t* kept(typename C::Params const& params) {
  return params.epochs + 2 * blockIdx.x;
}

/// Number of words that this worker had finished before this launch, as published by the thread above.
template <class C>
CUSYNC_DEVICE uint32_t words_before(typename C::SharedStorage& shared) {
  if constexpr (C::kMailed) {
    shared.epoch_known.wait(0);
    return shared.epoch;
  }
  return 0;
}

/// Address of word `number` of a worker, and the encoding of a word.
CUSYNC_DEVICE unsigned long long* word_at(cusync_mail const& mail, uint32_t worker, uint32_t number) {
  return mail.words + worker * CUSYNC_MAIL + number % CUSYNC_MAIL;
}
CUSYNC_DEVICE unsigned long long word_of(uint32_t number, uint32_t item, uint32_t epoch) {
  return (unsigned long long)(number % CUSYNC_NUMBERED) << 52 | (unsigned long long)(item) << 32 | epoch;
}

/// The worker's side of its mailbox; one warp, results are warp-uniform.
template <class C>
class Mailbox {
 public:
  CUSYNC_DEVICE explicit Mailbox(typename C::Params const& params) : params_(params) {
    // Launches do not overlap.
    ptx::griddepcontrol_wait();
    if (threadIdx.x % 32) return;
    cusync_mail const& mail = params.mail;
    taken_ = __ldcg(kept<C>(params));
    launch_ = __ldcg(kept<C>(params) + 1) + 1;
    if (mail.idle_ns) {
      if (blockIdx.x == 0) ptx::st_release_gpu(mail.awake + (launch_ + 1) % 2, 0);  // for the next launch
      closed_ = wake();
    }
    ptx::st_release_sys(mail.here + blockIdx.x, launch_);
  }

  /// The next item, with its list index and its epoch; no item if the launch ends for this worker.
  CUSYNC_DEVICE cusync_item next(uint32_t& index, uint32_t& epoch) {
    unsigned long long word = 0;
    if (threadIdx.x % 32 == 0) word = take();
    word = __shfl_sync(~0u, word, 0);
    index = uint32_t(word >> 32) & CUSYNC_NO_ITEM, epoch = uint32_t(word);
    if (index == CUSYNC_NO_ITEM) return cusync_item{};
    ptx::fence_proxy_async_global();  // TMA will load data that the sender has seen
    uint4 const words = __ldg(reinterpret_cast<uint4 const*>(params_.items + index));
    return reinterpret_cast<cusync_item const&>(words);
  }

  /// Number of words before this launch, until the first is taken; in lane 0.
  CUSYNC_DEVICE uint32_t before() const { return taken_; }

  /// Saves the state for the next launch. Called by one thread, as the last use of this object.
  CUSYNC_DEVICE void leave() const {
    kept<C>(params_)[0] = taken_, kept<C>(params_)[1] = launch_;
  }

 private:
  static constexpr uint32_t kClosed = 1u << 31;
  static constexpr unsigned long long kEnd = (unsigned long long)(CUSYNC_NO_ITEM) << 32;

  CUSYNC_DEVICE uint32_t* awake() const { return params_.mail.awake + launch_ % 2; }

  /// Returns true if it was too late: the launch is closed.
  CUSYNC_DEVICE bool wake() { return ptx::atom_acq_rel_gpu_add(awake(), 1) & kClosed; }

  /// Waits for the next word.
  CUSYNC_DEVICE unsigned long long take() {
    cusync_mail const& mail = params_.mail;
    uint32_t const number = taken_ + 1, idle = mail.idle_ns;
    unsigned long long const limit = 4 * (params_.coupling.timeout_ns ? params_.coupling.timeout_ns : kDefaultTimeoutNs);
    unsigned long long const begin = ptx::globaltimer();
    bool asleep = false;
    while (!closed_) {
      unsigned long long const word = ptx::ld_acquire_sys(word_at(mail, blockIdx.x, number));
      if (uint32_t(word >> 52) == number % CUSYNC_NUMBERED) {
        if (asleep && wake()) break;  // the word stays in the mailbox
        taken_ = number;
        if ((uint32_t(word >> 32) & CUSYNC_NO_ITEM) == CUSYNC_NO_ITEM) end();
        return word;
      }
      unsigned long long const waited = ptx::globaltimer() - begin;
      if (!idle) {
        if (waited > limit)
          report_and_trap({params_.coupling.report, params_.coupling.timeout_ns, 0}, {~0u, 0, blockIdx.x, 0}, number, taken_, number);
      } else if (!asleep) {
        if (waited > idle / 2 && ptx::ld_acquire_sys(mail.done + blockIdx.x) == taken_) {
          ptx::atom_acq_rel_gpu_add(awake(), ~0u);
          asleep = true;
        }
      } else {
        uint32_t const others = ptx::ld_acquire_gpu(awake());
        closed_ = others & kClosed;
        if (others == 0 && waited > idle && ptx::atom_acq_rel_sys_cas(awake(), 0, kClosed) == 0) {
          ptx::st_release_sys(mail.left, launch_);
          closed_ = true;
        }
      }
      ptx::nanosleep(100);
    }
    closed_ = true;
    return kEnd;
  }

  /// The word that ends the launch counts as finished only after all others.
  CUSYNC_DEVICE void end() {
    uint32_t* const done = params_.mail.done + blockIdx.x;
    while (ptx::ld_acquire_sys(done) != taken_ - 1) ptx::nanosleep(100);
    ptx::st_release_sys(done, taken_);
    closed_ = true;
  }

  typename C::Params const& params_;
  uint32_t taken_ = 0, launch_ = 0;
  bool closed_ = false;
};

/// Worker 0 as the scheduler: sends all items in list order, each to a worker that is present and has room, and finally
/// sends every worker the end of the launch. It is the first worker to get an SM. One warp; each lane serves every 32nd
/// worker.
template <class C>
CUSYNC_DEVICE void send_all(typename C::Params const& params) {
  constexpr uint32_t kOfLane = 8;
  cusync_mail const& mail = params.mail;
  uint32_t const lane = threadIdx.x % 32, first = 1 + lane;
  ptx::griddepcontrol_wait();
  // Each launch is one run.
  uint32_t const run = ptx::ld_acquire_gpu(mail.here), launch = run + 1;
  uint32_t sent[kOfLane];
#pragma unroll
  for (uint32_t i = 0; i < kOfLane; ++i) {
    uint32_t const worker = first + 32 * i;
    sent[i] = worker < params.workers ? ptx::ld_acquire_gpu(mail.done + worker) : 0;
  }
  unsigned long long const limit = 4 * (params.coupling.timeout_ns ? params.coupling.timeout_ns : kDefaultTimeoutNs);
  unsigned long long last = ptx::globaltimer();
  for (uint32_t next = 0; next < params.list_length;) {
    uint32_t done[kOfLane];
    bool here[kOfLane];
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      uint32_t const worker = first + 32 * i;
      here[i] = worker < params.workers && ptx::ld_acquire_gpu(mail.here + worker) == launch;
      done[i] = worker < params.workers ? ptx::ld_acquire_gpu(mail.done + worker) : 0;
    }
    uint32_t const before = next;
    // Serve the workers with the fewest words first, so the first items go to one worker each.
#pragma unroll 1
    for (uint32_t room = 1; room <= mail.ahead; ++room)
#pragma unroll
      for (uint32_t i = 0; i < kOfLane; ++i) {
        bool const takes = here[i] && sent[i] - done[i] < room;
        uint32_t const takers = __ballot_sync(~0u, takes);
        uint32_t const item = next + __popc(takers & ((1u << lane) - 1));
        if (takes && item < params.list_length) {
          ++sent[i];
          ptx::st_release_gpu(word_at(mail, first + 32 * i, sent[i]), word_of(sent[i], item, run));
        }
        next = min_u32(next + __popc(takers), params.list_length);
      }
    unsigned long long const now = ptx::globaltimer();
    if (next != before) last = now;
    if (now - last > limit)
      report_and_trap({params.coupling.report, params.coupling.timeout_ns, 0}, {~0u, 0, 0, 0}, next, next, params.list_length);
  }
#pragma unroll
  for (uint32_t i = 0; i < kOfLane; ++i) {
    uint32_t const worker = first + 32 * i;
    if (worker < params.workers) ptx::st_release_gpu(word_at(mail, worker, sent[i] + 1), word_of(sent[i] + 1, CUSYNC_NO_ITEM, run));
  }
  if (lane == 0) ptx::st_release_gpu(mail.here, launch);
}

}  // namespace cusync::kernels::sm90
