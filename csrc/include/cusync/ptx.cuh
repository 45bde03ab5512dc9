// SPDX-License-Identifier: MIT OR Apache-2.0
// One function per PTX instruction, with memory order and scope in the name. All inline assembly of the project is
// here. Instructions that need sm_90 are declared for sm_90 only: using them elsewhere fails to compile instead of
// doing nothing.
#pragma once
#include <stdint.h>

#if !defined(__CUDACC__)
#error "ptx.cuh is device code: compile it with nvcc"
#endif

#define CUSYNC_DEVICE __device__ __forceinline__
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CUSYNC_HAS_SM90 1
#else
#define CUSYNC_HAS_SM90 0
#endif

namespace cusync::ptx {

// ---- semaphores: device scope -------------------------------------------------------------------------------

/// Later reads of this thread, and of threads it then synchronizes with, see everything visible to the releasing
/// thread.
CUSYNC_DEVICE uint32_t ld_acquire_gpu(uint32_t const* address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

CUSYNC_DEVICE unsigned long long ld_acquire_gpu(unsigned long long const* address) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

/// Adds without returning the old value. Releases earlier writes of this thread and writes it has synchronized with.
CUSYNC_DEVICE void red_release_gpu_add(uint32_t* address, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// Adds and returns the old value. Acquires and releases, so the last of several adding threads sees the writes of all.
CUSYNC_DEVICE uint32_t atom_acq_rel_gpu_add(uint32_t* address, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory");
  return old;
}

/// Stores with the ordering of red_release_gpu_add. Only for a word with one writer.
CUSYNC_DEVICE void st_release_gpu(uint32_t* address, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

CUSYNC_DEVICE void st_release_gpu(unsigned long long* address, unsigned long long value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

/// Draws from a counter; no ordering.
CUSYNC_DEVICE uint32_t atom_relaxed_gpu_add(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
  return before;
}

CUSYNC_DEVICE unsigned long long atom_relaxed_gpu_add(unsigned long long* address, unsigned long long value) {
  unsigned long long old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(address), "l"(value) : "memory");
  return old;
}

// ---- the report and the mailbox in host memory: system scope -----------------------------------------------------

CUSYNC_DEVICE uint32_t ld_acquire_sys(uint32_t const* address) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

CUSYNC_DEVICE unsigned long long ld_acquire_sys(unsigned long long const* address) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

CUSYNC_DEVICE void st_release_sys(uint32_t* address, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// A word that another GPU writes or reads; no ordering, but all 64 bits at once.
CUSYNC_DEVICE unsigned long long ld_relaxed_sys(unsigned long long const* address) {
  unsigned long long value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

CUSYNC_DEVICE void st_relaxed_sys(unsigned long long* address, unsigned long long value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

CUSYNC_DEVICE uint32_t atom_acq_rel_sys_cas(uint32_t* address, uint32_t expected, uint32_t desired) {
  uint32_t old;
  asm volatile("atom.acq_rel.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(address), "r"(expected), "r"(desired)
               : "memory");
  return old;
}

CUSYNC_DEVICE void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// ---- time and place -------------------------------------------------------------------------------------------

/// Nanoseconds; the resolution may be as coarse as a microsecond.
CUSYNC_DEVICE unsigned long long globaltimer() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

/// The lane number, read again each time, so values derived from it hold no register in between.
CUSYNC_DEVICE uint32_t lane_id() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
/// The same of `threadIdx.x`.
CUSYNC_DEVICE uint32_t thread_id() {
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

CUSYNC_DEVICE uint32_t smid() {
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}

/// Sleeps for up to twice `ns`.
CUSYNC_DEVICE void nanosleep(uint32_t ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory"); }

/// Ends the kernel with an error.
CUSYNC_DEVICE void trap() { asm volatile("trap;"); }

// ---- arithmetic ---------------------------------------------------------------------------------------------------

/// 2^x to 2 ulp; subnormal results are flushed to 0.
CUSYNC_DEVICE float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 ulp; 0 for infinities.
CUSYNC_DEVICE float rcp_approx_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Hides the value from the optimizer, so expressions that use it are not computed early, where they would hold
/// registers.
CUSYNC_DEVICE uint32_t opaque(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- words in shared memory: CTA scope --------------------------------------------------------------------------

// Atomics where a load and a store would suffice: race checkers recognize them as synchronization.

/// Reads the word with acquire semantics.
CUSYNC_DEVICE uint32_t atom_acquire_cta_shared_read(uint32_t const* word) {
  uint32_t value;
  asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], 0;"
               : "=r"(value)
               : "r"(uint32_t(__cvta_generic_to_shared(word)))
               : "memory");
  return value;
}

/// Sets the word with release semantics.
CUSYNC_DEVICE void atom_release_cta_shared_exch(uint32_t* word, uint32_t value) {
  [[maybe_unused]] uint32_t old;
  asm volatile("atom.release.cta.shared.exch.b32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(uint32_t(__cvta_generic_to_shared(word))), "r"(value)
               : "memory");
}

/// Adds and returns the old value. Acquires and releases within the CTA, so the last of several adding threads sees the
/// writes of all.
CUSYNC_DEVICE uint32_t atom_acq_rel_cta_shared_add(uint32_t* word, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(uint32_t(__cvta_generic_to_shared(word))), "r"(value)
               : "memory");
  return old;
}

// ---- named barriers ---------------------------------------------------------------------------------------------

/// Waits until `threads` threads (a multiple of 32) have arrived at barrier `id`; orders their memory accesses.
CUSYNC_DEVICE void bar_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if CUSYNC_HAS_SM90

// ---- the async proxy (TMA) ------------------------------------------------------------------------------------

/// Orders earlier generic accesses to global memory before later TMA accesses to global memory.
CUSYNC_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// The same for shared memory: generic writes to a buffer before a TMA store reads it.
CUSYNC_DEVICE void fence_proxy_async_shared_cta() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Commits the bulk copies that this thread has issued as one group.
CUSYNC_DEVICE void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the `Pending` youngest groups of this thread are complete: their writes to global memory are
/// visible to this thread. Posts need this form.
template <int Pending>
CUSYNC_DEVICE void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Waits only until the groups have read their sources, so shared memory can be reused. Guarantees nothing about global
/// memory: do not post after it.
template <int Pending>
CUSYNC_DEVICE void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// ---- mbarriers in shared memory ------------------------------------------------------------------------------------

/// Initializes a barrier: each phase completes after `arrivals` arrivals (and their expected bytes).
CUSYNC_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(uint32_t(__cvta_generic_to_shared(barrier))),
               "r"(arrivals)
               : "memory");
}

/// Makes initialized barriers visible to the async proxy; other threads also need a CTA barrier.
CUSYNC_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Waits until the phase with this parity is complete; traps after `limit_ns`. The loop is in assembly to hide its
/// divergent branch from the compiler, which would otherwise serialize WGMMA instructions next to it.
CUSYNC_DEVICE void mbarrier_wait_parity_or_trap(uint64_t* barrier, uint32_t parity, unsigned long long limit_ns) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      ".reg .u64 begin, now;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\n"
      "mov.u64 begin, %%globaltimer;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\n"
      "mov.u64 now, %%globaltimer;\n"
      "sub.u64 now, now, begin;\n"
      "setp.lt.u64 p, now, %2;\n"
      "@p bra AGAIN;\n"
      "trap;\n"
      "DONE:\n"
      "}\n" ::"r"(uint32_t(__cvta_generic_to_shared(barrier))),
      "r"(parity), "l"(limit_ns)
      : "memory");
}

/// Whether the phase with this parity is complete, without suspending the thread: for threads with other work to do.
CUSYNC_DEVICE bool mbarrier_test_parity(uint64_t* barrier, uint32_t parity) {
  uint32_t complete;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(complete)
      : "r"(uint32_t(__cvta_generic_to_shared(barrier))), "r"(parity)
      : "memory");
  return complete != 0;
}

/// Arrives `count` times; releases this thread's accesses to shared memory.
CUSYNC_DEVICE void mbarrier_arrive(uint64_t* barrier, uint32_t count = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(uint32_t(__cvta_generic_to_shared(barrier))),
               "r"(count)
               : "memory");
}

/// Arrives once and expects `bytes` from bulk copies in this phase.
CUSYNC_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   uint32_t(__cvta_generic_to_shared(barrier))),
               "r"(bytes)
               : "memory");
}

// ---- copies into shared memory ----------------------------------------------------------------------------------

/// Copies `bytes` (a multiple of 16, like both addresses) of read-once data, marked evict-first in L2. The barrier
/// counts the bytes as they arrive.
CUSYNC_DEVICE void cp_async_bulk_shared_evict_first(void* shared, void const* global, uint32_t bytes,
                                                    uint64_t* barrier) {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
          uint32_t(__cvta_generic_to_shared(shared))),
      "l"(global), "r"(bytes), "r"(uint32_t(__cvta_generic_to_shared(barrier))), "l"(policy)
      : "memory");
}

/// Loads 16 bytes of shared memory in one instruction; compilers split such a load if its parts are used separately.
CUSYNC_DEVICE uint4 ld_shared_v4(void const* shared) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(uint32_t(__cvta_generic_to_shared(shared)))
               : "memory");
  return v;
}

/// Prefetches the cache line of a global address into L2; returns immediately.
CUSYNC_DEVICE void prefetch_global_l2(void const* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

/// Copies 16 bytes, bypassing L1, or writes 16 zero bytes if not `valid` (the source is not read).
CUSYNC_DEVICE void cp_async_16_or_zero(uint32_t shared_address, void const* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
               "r"(valid ? 16u : 0u)
               : "memory");
}

/// Arrives once when all earlier cp.async of this thread are complete; counts toward the expected arrivals.
CUSYNC_DEVICE void cp_async_mbarrier_arrive_noinc(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   uint32_t(__cvta_generic_to_shared(barrier)))
               : "memory");
}

// ---- programmatic dependent launch ----------------------------------------------------------------------------

/// Allows the next kernel of the stream to start once every CTA of this one has issued it or exited.
CUSYNC_DEVICE void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Waits until the preceding kernels in the stream have completed and their memory is visible.
CUSYNC_DEVICE void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- election -------------------------------------------------------------------------------------------------

/// True in one lane of a converged warp.
CUSYNC_DEVICE bool elect_one() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

#endif  // CUSYNC_HAS_SM90

}  // namespace cusync::ptx
