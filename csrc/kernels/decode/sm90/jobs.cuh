// SPDX-License-Identifier: MIT OR Apache-2.0
// Sessions: a decode kernel that takes jobs from a host. A job is one run of the stages.
//
// The host writes commands to pinned memory. The thread that streams worker 0's weights polls there once it has issued
// all weights of a job, and relays commands through device memory, where the other workers' weight threads poll. So the
// weights of a job that arrives early load while the previous job is still running. Everything else in a job waits
// until the previous job is over: jobs are consecutive runs, and use semaphores, epochs and intermediate tensors
// exactly as launches do. A host that knows the next job's set announces it; its first weights then load while the host
// decides.
//
// Within a CTA the weight thread passes jobs to all other warps through two slots of shared memory. The warps read the
// job there as long as they run it, because kernels for many tokens are short of registers. The last worker to finish a
// job notifies the device and the host. After a period without work the relay announces that this launch leaves. The
// announcement carries the launch number, so a later launch does not mistake it for its own.
#pragma once
#include "kernels/decode/sm90/config.cuh"

namespace cusync::kernels::decode {

/// The contents of a command; m = 0: the launch ends.
struct Job {
  uint32_t sequence, set, m;
};

/// A slot through which a CTA's weight thread passes a job to the other warps.
struct JobSlot {
  uint64_t full, empty;  ///< barriers: one arrival, and one arrival per other warp that has run the job
  Job job;
  uint32_t wasted;  ///< chunks in the weight ring that do not belong to the job
};

/// Two slots, used alternately, and each warp's job number within this launch, modulo 4, which would otherwise occupy a
/// register. Its lowest bit is the slot, the other bit the parity of the slot's barriers.
struct JobSlots {
  JobSlot of[2];
  uint32_t present[kThreads / 32];

  static constexpr uint32_t kNone = 7;  ///< before the first job
  CUSYNC_DEVICE static uint32_t behind(uint32_t number) { return (number + 1) % 4; }
  CUSYNC_DEVICE uint32_t& mine() { return present[threadIdx.x / 32]; }
  CUSYNC_DEVICE JobSlot& slot() { return of[mine() % 2]; }
};

inline constexpr uint32_t kNoSet = 0xfff;  ///< no announcement

struct SessionParams : Params {
  static constexpr bool kSession = true;
  uint32_t slots;  ///< offset of the JobSlots in shared memory
  cusync_jobs jobs;
  Tensors sets[CUSYNC_MAX_BOUND];  ///< by set, then by stage
};

CUSYNC_DEVICE JobSlots& job_slots(SessionParams const& p, Shared const& shared) {
  return *reinterpret_cast<JobSlots*>(shared.base + p.slots);
}

/// Tensors and row count of a run: from the parameters in a launch, from its set in a job.
template <class AnyParams>
struct Run {
  CUSYNC_DEVICE Tensors const& tensors(AnyParams const& p, uint32_t s) const { return p.stages[s]; }
  CUSYNC_DEVICE uint32_t m(AnyParams const& p) const { return p.m; }
};

template <>
struct Run<SessionParams> {
  Shared const* shared;
  CUSYNC_DEVICE Tensors const& tensors(SessionParams const& p, uint32_t s) const {
    return p.sets[job_slots(p, *shared).slot().job.set * p.stage_count + s];
  }
  CUSYNC_DEVICE uint32_t m(SessionParams const& p) const { return job_slots(p, *shared).slot().job.m; }
};

/// Called by one thread.
CUSYNC_DEVICE void prepare_jobs(SessionParams const& p, Shared const& shared) {
  JobSlots& slots = job_slots(p, shared);
  for (JobSlot& slot : slots.of) {
    ptx::mbarrier_init(&slot.full, 1);
    ptx::mbarrier_init(&slot.empty, kMathWarps + kLoadWarps);
  }
  for (uint32_t& present : slots.present) present = JobSlots::kNone;
}

/// The chunks of a run in streaming order.
struct ChunkWalk {
  SessionParams const& p;
  Shared const& shared;
  uint32_t s = 0, i = 0;

  CUSYNC_DEVICE ChunkWalk(SessionParams const& p_, Shared const& shared_) : p(p_), shared(shared_) { settle(); }
  CUSYNC_DEVICE bool is_in_run() const { return s < p.stage_count; }
  CUSYNC_DEVICE void restart() { s = i = 0, settle(); }
  CUSYNC_DEVICE void pass() { ++i, settle(); }

 private:
  CUSYNC_DEVICE void settle() {
    while (s < p.stage_count && i >= shared.share(s).chunks) ++s, i = 0;
  }
};

/// Jobs, from the weight thread's side.
class Commands {
 public:
  CUSYNC_DEVICE Commands(SessionParams const& p, Shared const& shared) : p_(p), shared_(shared) {
    // Launches of a session do not overlap, and no job ends without this CTA.
    ptx::griddepcontrol_wait();
    job_.sequence = ptx::ld_acquire_gpu(&p.jobs.relay->ended);
    launch_ = p.jobs.launches[blockIdx.x] + 1;
  }

  /// The set of the next job, as announced by the last one, or kNoSet.
  CUSYNC_DEVICE uint32_t announced() const { return announced_; }

  /// Starts looking for the next job.
  CUSYNC_DEVICE void begin() {
    ++job_.sequence;
    begin_ = ptx::globaltimer();
  }

  /// Polls for the next job. Worker 0 polls the mailbox and relays the command it finds. After the idle limit without a
  /// command this launch leaves, unless a job is still running: that will end, or be reported by its own waits. Other
  /// workers poll the relay.
  CUSYNC_DEVICE bool found() {
    cusync_relay* const relay = p_.jobs.relay;
    uint32_t const place = job_.sequence % CUSYNC_COMMANDS;
    bool const relays = blockIdx.x == 0;
    unsigned long long command = relays ? ptx::ld_acquire_sys(p_.jobs.mailbox->commands + place)
                                        : ptx::ld_acquire_gpu(relay->commands + place);
    // Ignore farewells of earlier launches.
    bool const there = uint32_t(command >> 32) == job_.sequence;
    uint32_t asked = uint32_t(command);
    bool const farewell = (asked & kMaskM) == 0, own = relays || asked >> 8 == (launch_ & kMaskLaunch);
    if (!there || (farewell && !own)) {
      unsigned long long const waited = ptx::globaltimer() - begin_;
      if (waited < (relays ? p_.jobs.idle_ns : p_.limit_ns)) return false;
      if (!relays)
        report_and_trap({p_.report, p_.timeout_ns, 0}, {~0u, 0, blockIdx.x, 0}, place, uint32_t(command >> 32), job_.sequence);
      if (!reached(ptx::ld_acquire_gpu(&relay->ended), job_.sequence - 1)) {
        begin_ = ptx::globaltimer();
        return false;
      }
      asked = 0;
    }
    job_.m = asked & kMaskM, job_.set = asked >> 8 & kNoSet, announced_ = asked >> 20;
    if (!relays) return true;
    if (job_.m == 0) asked = (launch_ & kMaskLaunch) << 8;
    ptx::st_release_gpu(relay->commands + place, (unsigned long long)(job_.sequence) << 32 | asked);
    if (job_.m == 0) ptx::st_release_sys(&p_.jobs.mailbox->left, launch_);
    return true;
  }

  CUSYNC_DEVICE Job const& job() const { return job_; }

  /// Ends the launch; the last call.
  CUSYNC_DEVICE void leave() {
    hand(0);
    p_.jobs.launches[blockIdx.x] = launch_;
  }

  /// The job passed last.
  CUSYNC_DEVICE Run<SessionParams> run() const { return {&shared_}; }

  /// Passes the job to the CTA's warps, with the number of chunks that they must discard after a wrong announcement.
  CUSYNC_DEVICE void hand(uint32_t wasted) {
    JobSlots& slots = job_slots(p_, shared_);
    uint32_t const number = slots.mine() = JobSlots::behind(slots.mine());
    JobSlot& slot = slots.slot();
    ptx::mbarrier_wait_parity_or_trap(&slot.empty, number / 2 ^ 1, p_.limit_ns);  // they have finished the job before last
    slot.job = job_, slot.wasted = wasted;
    ptx::mbarrier_arrive(&slot.full);
  }

 private:
  static constexpr uint32_t kMaskM = 0xff, kMaskLaunch = 0xffffff;

  SessionParams const& p_;
  Shared const& shared_;
  Job job_{};
  unsigned long long begin_ = 0;
  uint32_t launch_, announced_ = kNoSet;
};

/// Jobs, from the side of the other warps, each of which advances on its own.
class Jobs {
 public:
  CUSYNC_DEVICE Jobs(SessionParams const& p, Shared const& shared) : p_(p), shared_(shared) {}

  /// Waits for the next job; false: this launch ends. Called by whole warps that have finished the previous job.
  CUSYNC_DEVICE bool next() {
    JobSlots& slots = job_slots(p_, shared_);
    uint32_t const last = slots.mine(), next = JobSlots::behind(last);
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      if (last != JobSlots::kNone) ptx::mbarrier_arrive(&slots.slot().empty);
      slots.mine() = next;
    }
    __syncwarp();
    ptx::mbarrier_wait_parity_or_trap(&slots.slot().full, next / 2, p_.limit_ns);
    return slot().job.m != 0;
  }

  /// The same, but only after the previous job is over on all workers, as a launch begins after the previous one has
  /// ended. For the warps that load activations (`warp` is the caller's index): nothing is stored before they load.
  /// They poll while there is nothing else to do.
  CUSYNC_DEVICE bool next_behind_the_last(uint32_t warp) {
    if (job_slots(p_, shared_).mine() != JobSlots::kNone) {
      Watch const watch{p_.report, p_.timeout_ns, 0};
      if (warp == 0 && threadIdx.x % 32 == 0)
        wait_reached(&p_.jobs.relay->ended, 0, slot().job.sequence, {~0u, 0, blockIdx.x, 0}, watch);
      ptx::bar_sync(2, kLoadThreads);
    }
    return next();
  }

  /// Math warps discard chunks that were streamed for another set.
  CUSYNC_DEVICE void skip(RingPosition& at) const {
    ChunkWalk walk(p_, shared_);
#pragma unroll 1
    for (uint32_t i = 0; i < slot().wasted; ++i, walk.pass()) {
      uint32_t const bytes = p_.stages[walk.s].chunk_bytes;
      at.skip_for(bytes, p_.ring_bytes);
      ptx::mbarrier_wait_parity_or_trap(shared_.chunk_full(at.barrier), at.parity, p_.limit_ns);
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.chunk_empty(at.barrier));
      at.pass(bytes);
    }
  }

  /// All math threads: reports that this worker has finished the job.
  CUSYNC_DEVICE void end() const {
    ptx::bar_sync(1, kMathThreads);
    if (threadIdx.x != 0) return;
    cusync_relay* const relay = p_.jobs.relay;
    if (ptx::atom_acq_rel_gpu_add(&relay->arrived, 1) + 1 != p_.workers.value) return;
    ptx::st_release_sys(&p_.jobs.mailbox->ended, slot().job.sequence);
    ptx::st_release_gpu(&relay->arrived, 0);  // no worker arrives again before `ended` is set
    ptx::st_release_gpu(&relay->ended, slot().job.sequence);
  }

  CUSYNC_DEVICE Run<SessionParams> run() const { return {&shared_}; }

 private:
  CUSYNC_DEVICE JobSlot& slot() const { return job_slots(p_, shared_).slot(); }

  SessionParams const& p_;
  Shared const& shared_;
};

}  // namespace cusync::kernels::decode
