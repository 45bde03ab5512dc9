// SPDX-License-Identifier: MIT OR Apache-2.0
// Sessions: a decode kernel that takes job after job from a host, a run of its stages each.
//
// The host writes commands into pinned memory. The thread that streams worker 0's weights looks there when it has issued all of a job,
// and hands what it finds on through device memory, where the other workers' weight threads look. So weights of a job that is
// there early come in while the one before is still computed. Everything else of a job waits until the one before is over: jobs
// are runs that follow each other, and semaphores, epochs and intermediate tensors mean to them what they mean to launches.
// A host that knows the set of the job after announces it; its first weights then come in while the host decides.
//
// In a CTA the weight thread hands jobs to all other warps by two slots of shared memory, where they read what they need of a job as
// long as they run it: registers are what kernels of many tokens are short of. The last worker to finish a job tells
// device and host. Without work for a while the relay says that this launch leaves, and what it says to workers carries the
// number of the launch, so that a later launch does not take it for its own.
#pragma once
#include "kernels/decode/sm90/config.cuh"

namespace cusync::kernels::decode {

/// What a command asks for; m = 0: the launch ends.
struct Job {
  uint32_t sequence, set, m;
};

/// A slot by which a CTA's weight thread hands a job to its other warps.
struct JobSlot {
  uint64_t full, empty;  ///< barriers: of one arrival, and of one of each other warp that has run the job
  Job job;
  uint32_t wasted;  ///< chunks in the ring of weights that are not the job's
};

/// The two, used in turn, and where each warp is: the number of its job in this launch, modulo 4, which would be a register more. Its lowest bit is the
/// slot, the other one the parity of the slot's barriers.
struct JobSlots {
  JobSlot of[2];
  uint32_t present[kThreads / 32];

  static constexpr uint32_t kNone = 7;  ///< before the first
  CUSYNC_DEVICE static uint32_t behind(uint32_t number) { return (number + 1) % 4; }
  CUSYNC_DEVICE uint32_t& mine() { return present[threadIdx.x / 32]; }
  CUSYNC_DEVICE JobSlot& slot() { return of[mine() % 2]; }
};

inline constexpr uint32_t kNoSet = 0xfff;  ///< nothing is announced

struct SessionParams : Params {
  static constexpr bool kSession = true;
  uint32_t slots;  ///< offset of the JobSlots into shared memory
  cusync_jobs jobs;
  Tensors sets[CUSYNC_MAX_BOUND];  ///< set by set, stage by stage
};

CUSYNC_DEVICE JobSlots& job_slots(SessionParams const& p, Shared const& shared) {
  return *reinterpret_cast<JobSlots*>(shared.base + p.slots);
}

/// What a run reads and writes: of a launch what its parameters say, of a job its set's tensors.
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

/// One thread.
CUSYNC_DEVICE void prepare_jobs(SessionParams const& p, Shared const& shared) {
  JobSlots& slots = job_slots(p, shared);
  for (JobSlot& slot : slots.of) {
    ptx::mbarrier_init(&slot.full, 1);
    ptx::mbarrier_init(&slot.empty, kMathWarps + kLoadWarps);
  }
  for (uint32_t& present : slots.present) present = JobSlots::kNone;
}

/// The chunks of a run in the order in which they are streamed.
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

/// Jobs as the weight thread gets them.
class Commands {
 public:
  CUSYNC_DEVICE Commands(SessionParams const& p, Shared const& shared) : p_(p), shared_(shared) {
    // Launches of a session follow each other, and no job ends without this CTA.
    ptx::griddepcontrol_wait();
    job_.sequence = ptx::ld_acquire_gpu(&p.jobs.relay->ended);
    launch_ = p.jobs.launches[blockIdx.x] + 1;
  }

  /// The set of the next job as the last one announced it, or kNoSet.
  CUSYNC_DEVICE uint32_t announced() const { return announced_; }

  /// From now on the next job is looked for.
  CUSYNC_DEVICE void begin() {
    ++job_.sequence;
    begin_ = ptx::globaltimer();
  }

  /// Looks for the next job. Of worker 0: in the mailbox, and hands on what it finds. Without a command for the limit, and with no job
  /// under way, which would end or be reported by its own waits, this launch leaves. Of other workers: for what is handed on.
  CUSYNC_DEVICE bool found() {
    cusync_relay* const relay = p_.jobs.relay;
    uint32_t const place = job_.sequence % CUSYNC_COMMANDS;
    bool const relays = blockIdx.x == 0;
    unsigned long long command = relays ? ptx::ld_acquire_sys(p_.jobs.mailbox->commands + place)
                                        : ptx::ld_acquire_gpu(relay->commands + place);
    // That an earlier launch has left does not concern this one.
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

  /// The last that this launch does.
  CUSYNC_DEVICE void leave() {
    hand(0);
    p_.jobs.launches[blockIdx.x] = launch_;
  }

  /// The job that was handed last.
  CUSYNC_DEVICE Run<SessionParams> run() const { return {&shared_}; }

  /// Hands the job to the CTA's warps, with the number of chunks that they have to let go: those of an announcement that was wrong.
  CUSYNC_DEVICE void hand(uint32_t wasted) {
    JobSlots& slots = job_slots(p_, shared_);
    uint32_t const number = slots.mine() = JobSlots::behind(slots.mine());
    JobSlot& slot = slots.slot();
    ptx::mbarrier_wait_parity_or_trap(&slot.empty, number / 2 ^ 1, p_.limit_ns);  // they have run the one before the last
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

/// Jobs as the other warps walk them, each for itself.
class Jobs {
 public:
  CUSYNC_DEVICE Jobs(SessionParams const& p, Shared const& shared) : p_(p), shared_(shared) {}

  /// Waits for the next job; false: this launch ends. Whole warps, which have run the one before.
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

  /// The same, once the job before is over on all workers, as a launch begins when the one before has ended. The warps that bring
  /// activations, `warp` of them: nothing is stored before what they bring. They look while nothing else is to be done.
  CUSYNC_DEVICE bool next_behind_the_last(uint32_t warp) {
    if (job_slots(p_, shared_).mine() != JobSlots::kNone) {
      Watch const watch{p_.report, p_.timeout_ns, 0};
      if (warp == 0 && threadIdx.x % 32 == 0)
        wait_reached(&p_.jobs.relay->ended, 0, slot().job.sequence, {~0u, 0, blockIdx.x, 0}, watch);
      ptx::bar_sync(2, kLoadThreads);
    }
    return next();
  }

  /// Math warps let go of what was streamed for another set.
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

  /// All math threads: this worker has finished the job.
  CUSYNC_DEVICE void end() const {
    ptx::bar_sync(1, kMathThreads);
    if (threadIdx.x != 0) return;
    cusync_relay* const relay = p_.jobs.relay;
    if (ptx::atom_acq_rel_gpu_add(&relay->arrived, 1) + 1 != p_.workers.value) return;
    ptx::st_release_sys(&p_.jobs.mailbox->ended, slot().job.sequence);
    ptx::st_release_gpu(&relay->arrived, 0);  // nobody arrives again before `ended` says so
    ptx::st_release_gpu(&relay->ended, slot().job.sequence);
  }

  CUSYNC_DEVICE Run<SessionParams> run() const { return {&shared_}; }

 private:
  CUSYNC_DEVICE JobSlot& slot() const { return job_slots(p_, shared_).slot(); }

  SessionParams const& p_;
  Shared const& shared_;
};

}  // namespace cusync::kernels::decode
