// SPDX-License-Identifier: MIT OR Apache-2.0
// One function per PTX instruction, memory order and scope in its name. No other file holds inline assembly.
// What needs sm_90 is declared for sm_90 only: using it elsewhere does not compile, rather than doing nothing.
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

/// Later reads of this thread, and of threads it then synchronises with, see what the releasing thread had seen.
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

/// Adds without reading back; earlier writes of this thread, and those it has synchronised with, come first.
CUSYNC_DEVICE void red_release_gpu_add(uint32_t* address, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/// Adds and returns what was there; acquires and releases, so that the last of several threads to add has seen what all of
/// them had done.
CUSYNC_DEVICE uint32_t atom_acq_rel_gpu_add(uint32_t* address, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory");
  return old;
}

/// Stores; the order is that of red_release_gpu_add. Only for a word with one writer.
CUSYNC_DEVICE void st_release_gpu(uint32_t* address, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

CUSYNC_DEVICE void st_release_gpu(unsigned long long* address, unsigned long long value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

/// Draws from a counter; orders nothing else.
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

// ---- the report and the mailbox in host memory: system scope ---------------------------------------------------

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

/// Nanoseconds; its resolution may be as coarse as a microsecond.
CUSYNC_DEVICE unsigned long long globaltimer() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

/// The lane, read anew each time: what is reckoned from it takes no register in between.
CUSYNC_DEVICE uint32_t lane_id() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

CUSYNC_DEVICE uint32_t smid() {
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}

/// Sleeps for up to twice `ns`.
CUSYNC_DEVICE void nanosleep(uint32_t ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory"); }

/// Ends the kernel with an error; nothing after it runs.
CUSYNC_DEVICE void trap() { asm volatile("trap;"); }

// ---- arithmetic ---------------------------------------------------------------------------------------------------

/// 2^x to 2 units in the last place; subnormal results are 0.
CUSYNC_DEVICE float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 unit in the last place; 0 for infinities.
CUSYNC_DEVICE float rcp_approx_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The value, as if it were not known before: what follows from it is not computed early, where it would hold registers.
CUSYNC_DEVICE uint32_t opaque(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- words in shared memory: CTA scope --------------------------------------------------------------------------

// Atomic operations where a load and a store would do: checkers of races know that these synchronise.

/// The word, acquiring what was done before it was set.
CUSYNC_DEVICE uint32_t atom_acquire_cta_shared_read(uint32_t const* word) {
  uint32_t value;
  asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], 0;"
               : "=r"(value)
               : "r"(uint32_t(__cvta_generic_to_shared(word)))
               : "memory");
  return value;
}

/// Sets the word, releasing what this thread has done.
CUSYNC_DEVICE void atom_release_cta_shared_exch(uint32_t* word, uint32_t value) {
  [[maybe_unused]] uint32_t old;
  asm volatile("atom.release.cta.shared.exch.b32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(uint32_t(__cvta_generic_to_shared(word))), "r"(value)
               : "memory");
}

/// Adds and returns what was there; acquires and releases within the CTA, so that the last of several threads to add
/// has seen what all of them had done.
CUSYNC_DEVICE uint32_t atom_acq_rel_cta_shared_add(uint32_t* word, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(uint32_t(__cvta_generic_to_shared(word))), "r"(value)
               : "memory");
  return old;
}

// ---- barriers of a part of the CTA ----------------------------------------------------------------------------

/// Waits until `threads` threads (a multiple of 32) have arrived at barrier `id`; orders their memory accesses.
CUSYNC_DEVICE void bar_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if CUSYNC_HAS_SM90

// ---- the async proxy (TMA) ------------------------------------------------------------------------------------

/// Orders generic accesses to global memory before it with TMA accesses to global memory after it.
CUSYNC_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// The same for shared memory: generic writes to a buffer before a TMA store reads it.
CUSYNC_DEVICE void fence_proxy_async_shared_cta() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Closes the group of bulk copies that this thread has issued.
CUSYNC_DEVICE void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the `Pending` youngest groups of this thread are complete: their writes to global memory
/// are visible to this thread. What a post needs.
template <int Pending>
CUSYNC_DEVICE void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Waits only until the groups have read their sources: shared memory may be reused. Says nothing of global
/// memory, so no post may follow from it.
template <int Pending>
CUSYNC_DEVICE void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// ---- barriers of shared memory (mbarrier) -----------------------------------------------------------------------

/// Prepares a barrier whose phase completes after `arrivals` arrivals (and the bytes that they announce).
CUSYNC_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(uint32_t(__cvta_generic_to_shared(barrier))),
               "r"(arrivals)
               : "memory");
}

/// Makes initialised barriers visible to the async proxy; a barrier of the CTA must follow for its other threads.
CUSYNC_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Whether the phase of this parity is complete.
CUSYNC_DEVICE bool mbarrier_test_parity(uint64_t* barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(passed)
      : "r"(uint32_t(__cvta_generic_to_shared(barrier))), "r"(parity)
      : "memory");
  return passed != 0;
}

/// Waits until the phase of this parity is complete; after `limit_ns` it ends the kernel. The loop is in the assembly,
/// where the compiler does not see a divergent branch: beside one it would serialise WGMMA instructions.
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

/// Whether the phase of this parity is complete, without suspending: for a thread that has other things to do meanwhile.
CUSYNC_DEVICE bool mbarrier_test_wait_parity(uint64_t* barrier, uint32_t parity) {
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

/// Arrives `count` times, releasing this thread's accesses to shared memory.
CUSYNC_DEVICE void mbarrier_arrive(uint64_t* barrier, uint32_t count = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(uint32_t(__cvta_generic_to_shared(barrier))),
               "r"(count)
               : "memory");
}

/// Arrives once and announces `bytes` that bulk copies will bring in this phase.
CUSYNC_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   uint32_t(__cvta_generic_to_shared(barrier))),
               "r"(bytes)
               : "memory");
}

// ---- copies into shared memory ----------------------------------------------------------------------------------

/// Copies `bytes` (a multiple of 16, like both addresses) that are read once: the L2 evicts them first. The barrier
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

/// 16 bytes of shared memory in one load, which compilers take apart where only parts are used at a time.
CUSYNC_DEVICE uint4 ld_shared_v4(void const* shared) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(uint32_t(__cvta_generic_to_shared(shared)))
               : "memory");
  return v;
}

/// Brings the line of an address in global memory to the L2; returns at once.
CUSYNC_DEVICE void prefetch_global_l2(void const* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

/// Copies 16 bytes past the L1, or writes 16 zero bytes when not `valid` (the source is then not read).
CUSYNC_DEVICE void cp_async_16_or_zero(uint32_t shared_address, void const* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
               "r"(valid ? 16u : 0u)
               : "memory");
}

/// Arrives once when all of this thread's cp.async so far are complete; counts among the expected arrivals.
CUSYNC_DEVICE void cp_async_mbarrier_arrive_noinc(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   uint32_t(__cvta_generic_to_shared(barrier)))
               : "memory");
}

// ---- programmatic dependent launch ----------------------------------------------------------------------------

/// Lets the next kernel of the stream start once every CTA of this one has issued it or has ended.
CUSYNC_DEVICE void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Waits until the kernels before this one in the stream have ended and their memory is visible.
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
