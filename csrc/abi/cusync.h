// SPDX-License-Identifier: MIT OR Apache-2.0
// The pure C ABI between the kernels and the Rust runtime (bindgen reads this file).
// Every tensor is row-major exactly as a spec writes it: A is M x K, B is K x N, D is M x N, and every row length
// is a multiple of 8 elements (16 bytes, the TMA's granule). Functions return 0 or a cusync_status; a CUDA error
// code is added to CUSYNC_ERROR_CUDA. Nothing here synchronises the device or allocates device memory.
#pragma once
#include "cusync/desc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cusync_status {
  CUSYNC_OK = 0,
  CUSYNC_ERROR_NOT_BUILT = 1,    ///< this binary has no kernels for the request (architecture, tile or type)
  CUSYNC_ERROR_BAD_ARGUMENT = 2, ///< a pointer, size or alignment breaks the contract
  CUSYNC_ERROR_NO_MEMORY = 3,    ///< host allocation failed
  CUSYNC_ERROR_CUDA = 1000,      ///< plus the cudaError_t
};

enum cusync_element { CUSYNC_F16 = 0, CUSYNC_BF16 = 1 };
enum cusync_arch { CUSYNC_SM80 = 80, CUSYNC_SM90A = 90 };
enum cusync_operation { CUSYNC_GEMM = 0, CUSYNC_GATED_GEMM = 1 };
enum cusync_activation { CUSYNC_IDENTITY = 0, CUSYNC_GELU_TANH = 1, CUSYNC_RELU = 2 };

enum {
  CUSYNC_MAX_WAITS = 4,  ///< incoming edges of a stage
  CUSYNC_MAX_POSTS = 4,  ///< outgoing edges of a stage
  CUSYNC_MAX_DELAY_NS = 500000,
};

/// Where the time of one work item of a chain kernel went, as the first thread of its CTA's arithmetic saw it:
/// nanoseconds of the device's global clock. Written per CTA and item.
typedef struct cusync_trace {
  unsigned long long begin;    ///< the item is known
  unsigned long long ready;    ///< every operand of the first k-block may be loaded (its waits are satisfied)
  unsigned long long loaded;   ///< the first k-block has arrived
  unsigned long long math_end; ///< the last k-block is multiplied
  unsigned long long end;      ///< the epilogue has left the registers
  uint32_t sm, item;           ///< item: index in the list
} cusync_trace;

/// Delays of pseudo-random length before items, loads behind waits, stores and posts, for tests. A length is a hash of
/// the seed, the run, the SM, the tile and the kind of place. Only a build with CUSYNC_DELAYS has them, and of it only the
/// kernels for sm_90a; others answer CUSYNC_ERROR_NOT_BUILT.
typedef struct cusync_delays {
  uint32_t seed;
  uint32_t limit_ns;  ///< of one delay, at most CUSYNC_MAX_DELAY_NS; a sleep may take twice as long. 0: no delays
} cusync_delays;

/// One compiled kernel.
typedef struct cusync_kernel_info {
  uint32_t arch;       ///< enum cusync_arch
  uint32_t operation;  ///< enum cusync_operation
  uint32_t element;    ///< enum cusync_element
  uint32_t tile_m, tile_n, tile_k;  ///< MMA tile; a gated kernel's output tile is tile_m x tile_n / 2
  uint32_t stages;     ///< depth of the shared-memory ring
  uint32_t threads, shared_bytes;
  uint32_t registers;  ///< of the compiled code, 0 when unknown without a GPU
} cusync_kernel_info;

/// How tiles are handed to CTAs.
enum cusync_schedule {
  CUSYNC_SCHEDULE_STATIC = 0,  ///< CTA c takes tiles c, c + grid, ...
  CUSYNC_SCHEDULE_TICKET = 1,  ///< a device counter: a CTA that starts early takes more
};

/// One GEMM stage of a pipeline: D = act(A B + bias) + residual, or, gated, D = silu(A Bg) * (A Bu) with Bg and Bu
/// interleaved by columns in groups of 8 (g0..g7 u0..u7 g8..g15 ...), so that n is twice D's width.
typedef struct cusync_gemm_args {
  uint32_t arch, operation, element;
  uint32_t tile_m, tile_n;
  uint32_t m, n, k;             ///< n counts packed columns when gated
  const void* a;
  const void* b;
  void* d;
  const void* bias;             ///< NULL, or n elements
  const void* residual;         ///< NULL, or m x n
  uint32_t activation;          ///< enum cusync_activation
  uint32_t stage;               ///< index of the stage in the plan, for reports

  uint32_t schedule;            ///< enum cusync_schedule
  uint32_t grid;                ///< CTAs to launch; 0: min(tiles, SMs x CTAs per SM)
  cusync_order order;
  /// Monotonic 64-bit counter in device memory, zeroed once when the pipeline is made. One run draws exactly
  /// tiles + grid tickets, so ticket / (tiles + grid) is the epoch. Needed by CUSYNC_SCHEDULE_TICKET and whenever
  /// waits or posts are present.
  unsigned long long* tickets;
  uint32_t* semaphores;         ///< the pipeline's slots, zeroed once when the pipeline is made
  uint32_t wait_count, post_count;
  cusync_edge waits[CUSYNC_MAX_WAITS];
  cusync_policy posts[CUSYNC_MAX_POSTS];
  uint32_t post_value_scale;    ///< 1; other values exist to test starved edges (0: never post)
  uint32_t skip_waits;          ///< 1: do not wait (timing only: results are then meaningless)
  unsigned long long timeout_ns;  ///< of one wait; 0: the default of 1 s
  cusync_report* report;        ///< device pointer of a pinned host record
  cusync_delays delays;
} cusync_gemm_args;

/// A stage made ready to launch: tensor maps encoded, kernel attributes set, module loaded.
typedef struct cusync_gemm cusync_gemm;

/// Launch attributes. `completion_event` (a CUevent, or NULL) is recorded when every CTA has begun: the start
/// guarantee that a concurrently launched consumer needs. `programmatic` allows the launch to begin when every
/// CTA of the kernel before it in the stream has issued its early trigger.
typedef struct cusync_launch {
  void* stream;
  void* completion_event;
  uint32_t programmatic;
} cusync_launch;

/// Number of compiled kernels; `cusync_kernels` fills up to `capacity` entries and returns how many there are.
uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity);

/// Makes a stage ready. Must run before any kernel of the pipeline spins. Host work only.
int32_t cusync_gemm_create(const cusync_gemm_args* args, cusync_gemm** out);
int32_t cusync_gemm_launch(const cusync_gemm* gemm, const cusync_launch* launch);
/// CTAs that a launch has, and CTAs of it that fit an SM at once.
int32_t cusync_gemm_grid(const cusync_gemm* gemm, uint32_t* ctas, uint32_t* ctas_per_sm);
void cusync_gemm_destroy(cusync_gemm* gemm);

/// ---- fused: a whole chain of GEMM stages in one persistent kernel ---------------------------------------------

enum {
  CUSYNC_MAX_FUSED_STAGES = 8,
  CUSYNC_END_OF_LIST = 0,      ///< cusync_item.role: no item
  CUSYNC_WHOLE_TILE = 1,       ///< the item is a tile over all of k
  CUSYNC_CONTRIBUTE = 2,       ///< adds nothing to the output: leaves its float sums in slab `slab`
  CUSYNC_FINISH = 3,           ///< adds slabs slab ... slab + slabs - 1 to its own sums, then finishes the tile
  CUSYNC_SHARE = 4,            ///< part `part` of `slabs` parts, each of which finishes its own columns: leaves the sums
                               ///< of the others' columns in slab `slab + part`, adds theirs of its own
  CUSYNC_POST_WEIGHT = 12,     ///< what a tile adds to its slot, shared evenly among the parts that finish it
};

/// One piece of work of a worker (a cluster of CTAs): k-blocks [k_begin, k_end) of a tile of a stage. `m` and `n` count
/// cluster tiles: CTA (i, j) of the cluster computes tile (m * cluster_m + i, n * cluster_n + j) of the stage's grid,
/// or nothing where that lies outside.
typedef struct cusync_item {
  uint16_t m, n;
  uint16_t k_begin, k_end;
  uint8_t stage;
  uint8_t role;    ///< CUSYNC_END_OF_LIST, CUSYNC_WHOLE_TILE, CUSYNC_CONTRIBUTE, CUSYNC_FINISH or CUSYNC_SHARE
  uint8_t slabs;   ///< CUSYNC_FINISH: slabs to add; CUSYNC_SHARE: parts of the tile
  uint8_t part;    ///< CUSYNC_SHARE: which part
  uint32_t slab;   ///< first slab; a slab is written once a run
} cusync_item;

/// One compiled chain kernel.
typedef struct cusync_fused_info {
  uint32_t element;                 ///< enum cusync_element
  uint32_t tile_m, tile_n, tile_k;  ///< of one CTA
  uint32_t cluster_m, cluster_n;
  uint32_t stages, threads, shared_bytes, registers;
} cusync_fused_info;

/// A chain. Stages are described as for cusync_gemm_create, and of each these fields are used: operation, m, n, k, a,
/// b, d, bias, residual, activation, stage, wait_count, waits, post_count, posts. The rest is the chain's.
typedef struct cusync_fused_args {
  uint32_t element;
  uint32_t tile_m, tile_n;
  uint32_t cluster_m, cluster_n;
  uint32_t stage_count;
  const cusync_gemm_args* stages;     ///< host array, producers before consumers
  uint32_t workers;                   ///< clusters of the grid; all of them must be resident at once
  uint32_t schedule;                  ///< enum cusync_schedule: a list for each worker, or one list drawn by ticket
  const cusync_item* items;           ///< device: static: workers lists of `list_length`, each ended by a
                                      ///< CUSYNC_END_OF_LIST; ticket: one list of `list_length` items, without
  uint32_t list_length;
  uint32_t slab_count;
  float* slabs;                       ///< device: slab_count * cluster_m * cluster_n * tile_m * tile_n; never cleared
  uint32_t* slab_flags;               ///< device: 2 * slab_count * cluster_m * cluster_n, zeroed once
  uint32_t* epochs;                   ///< device: a word for each CTA, zeroed once
  unsigned long long* tickets;        ///< device: one counter, zeroed once; used by CUSYNC_SCHEDULE_TICKET
  uint32_t* semaphores;               ///< device: the plan's slots, zeroed once
  uint32_t post_value_scale, skip_waits;
  unsigned long long timeout_ns;
  cusync_report* report;
  cusync_trace* trace;                ///< device, or NULL: workers * cluster * list_length records
  cusync_delays delays;
} cusync_fused_args;

typedef struct cusync_fused cusync_fused;

uint32_t cusync_fused_kernels(cusync_fused_info* out, uint32_t capacity);
/// Workers of a chain kernel that are resident at once on the current device.
int32_t cusync_fused_workers(const cusync_fused_info* kernel, uint32_t* workers);
int32_t cusync_fused_create(const cusync_fused_args* args, cusync_fused** out);
/// `programmatic`: the launch may begin while the kernel before it ends: weights stream meanwhile, everything else
/// waits for that kernel's memory.
int32_t cusync_fused_launch(const cusync_fused* fused, const cusync_launch* launch);
void cusync_fused_destroy(cusync_fused* fused);

/// ---- decode: a chain of GEMM stages for at most 64 tokens, one persistent kernel ---------------------------------
///
/// Weights stand on the tensor cores' M side and tokens on the N side. Worker c of P, a CTA, computes features (columns of
/// D) [c * n / P, (c + 1) * n / P) of every stage over all of k, so nothing is added twice. Its share of the weights is
/// laid out once (cusync_decode_relay) in the order in which it is streamed. A stage that others of the chain read posts
/// one semaphore for every 64 columns of its D, once from each worker that computes some of them.

enum {
  CUSYNC_MAX_DECODE_STAGES = 8,
  CUSYNC_DECODE_INPUT = 0xffffffffu,  ///< cusync_decode_stage.producer: `a` is written before the launch
};

/// One stage: d = act(a w + bias) + residual or, gated, d = silu(a wg) * (a wu).
typedef struct cusync_decode_stage {
  uint32_t operation;    ///< CUSYNC_GEMM or CUSYNC_GATED_GEMM
  uint32_t k, n;         ///< n: columns of d, also when gated
  uint32_t activation;   ///< enum cusync_activation
  uint32_t producer;     ///< the earlier stage of this chain that writes `a`, or CUSYNC_DECODE_INPUT
  uint32_t slot_base;    ///< first of its ceil(n / 64) semaphores; used where another stage reads d
  uint32_t stage, edge;  ///< of the plan, for reports
  const void* weights;   ///< as cusync_decode_relay leaves them, for the same number of workers
  const void* a;         ///< m x k
  void* d;               ///< m x n; n is a multiple of 8 when another stage reads it
  const void* bias;      ///< NULL, or n elements
  const void* residual;  ///< NULL, or m x n: an input, or any earlier stage's d
} cusync_decode_stage;

typedef struct cusync_decode_args {
  uint32_t element;                   ///< enum cusync_element
  uint32_t width;                     ///< tokens of the MMA: 8, 16, 32 or 64; 0: the least that holds m
  uint32_t m;                         ///< tokens, at most `width`
  uint32_t workers;                   ///< all of them must be resident at once, a CTA an SM
  uint32_t stage_count;
  const cusync_decode_stage* stages;  ///< host array, producers before consumers
  uint32_t* semaphores;               ///< device: the plan's slots, zeroed once
  uint32_t* epochs;                   ///< device: a word for each CTA, zeroed once
  // Tuning; 0 takes the default of each. All are in bytes of shared memory of one CTA, but for the slots.
  uint32_t chunk_bytes;               ///< weights that one ring entry aims at
  uint32_t ring_bytes;                ///< ring of weights; default: what is left
  uint32_t activation_slots;          ///< ring of 64-wide activation tiles, a multiple of 4
  uint32_t in_flight_bytes;           ///< most weights on their way at once
  uint32_t ahead_bytes;               ///< the same while the ring fills with weights of a stage that still waits
  uint32_t starve;                    ///< 1: no stage posts (tests)
  uint32_t skip_waits;                ///< 1: no stage waits (timing only: results are then meaningless)
  uint32_t stream_only;               ///< 1: weights stream through the ring and nothing else happens (the read limit)
  unsigned long long timeout_ns;      ///< of one wait; 0: the default of 1 s
  cusync_report* report;              ///< device pointer of a pinned host record
  cusync_trace* trace;                ///< device, or NULL: CTAs * stage_count records, `item` being the stage
  cusync_delays delays;
} cusync_decode_args;

/// One compiled decode kernel.
typedef struct cusync_decode_info {
  uint32_t element;    ///< enum cusync_element
  uint32_t width;      ///< tokens
  uint32_t row_tiles;  ///< most 64-row tiles of weights that a worker may own in a stage
  uint32_t threads, shared_bytes, registers;
} cusync_decode_info;

typedef struct cusync_decode cusync_decode;

uint32_t cusync_decode_kernels(cusync_decode_info* out, uint32_t capacity);
/// Workers that are resident at once on the current device, a CTA an SM.
int32_t cusync_decode_workers(uint32_t* workers);
/// Bytes of a stage's re-laid weights: `n` columns of d, gated or not, k rounded up to 64.
unsigned long long cusync_decode_weights_bytes(uint32_t operation, uint32_t k, uint32_t n);
/// Lays out the k x n row-major `weights` (of a gated stage: the gate's, and `up` the other; else `up` is NULL) for
/// `workers` workers into `out`, asynchronously on `stream`.
int32_t cusync_decode_relay(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, const void* weights,
                            const void* up, void* out, void* stream);
/// CUSYNC_ERROR_NOT_BUILT: a stage gives a worker more rows than `row_tiles`, or the GPU is of another architecture.
int32_t cusync_decode_create(const cusync_decode_args* args, cusync_decode** out);
/// `programmatic` as for cusync_fused_launch.
int32_t cusync_decode_launch(const cusync_decode* decode, const cusync_launch* launch);
void cusync_decode_destroy(cusync_decode* decode);

/// The Stream-K peer: D = act(A B + bias), CUTLASS's own kernel, one of the benchmark's baselines. `workspace` of
/// `workspace_bytes`; call with workspace NULL to learn the size.
typedef struct cusync_streamk cusync_streamk;
int32_t cusync_streamk_create(const cusync_gemm_args* args, void* workspace, unsigned long long* workspace_bytes,
                              cusync_streamk** out);
int32_t cusync_streamk_launch(cusync_streamk* gemm, void* stream);
void cusync_streamk_destroy(cusync_streamk* gemm);

/// Device helpers of tests and benchmarks; all asynchronous on `stream`.
/// Fills with uniform random values in (-scale, scale).
int32_t cusync_fill_random(void* data, unsigned long long count, uint32_t element, float scale, uint32_t seed,
                           void* stream);
/// out[0] += sum (x - y)^2, out[1] += sum y^2, out[2] = max |x - y|; x of `element`, y float.
int32_t cusync_compare(const void* x, const float* y, unsigned long long count, uint32_t element, float* out,
                       void* stream);
/// Reference with float accumulation and plain CUDA cores, sharing nothing with the kernels above; d is float.
/// Rounds the result through `element` once when `round` is set, as a stage that stores it would.
int32_t cusync_reference_gemm(const cusync_gemm_args* args, float* d, uint32_t round, void* stream);
/// Interleaves gate and up (each k x n) into packed (k x 2n), groups of 8 columns.
int32_t cusync_pack_gated(const void* gate, const void* up, void* packed, uint32_t k, uint32_t n, void* stream);
/// silu(x[:, gate]) * x[:, up] for a packed m x 2n product: the separate activation kernel that peers need.
int32_t cusync_gated_activation(const void* packed, void* d, uint32_t m, uint32_t n, uint32_t element, void* stream);
/// d = act(x), element-wise, for peers without a fused epilogue.
int32_t cusync_activation_kernel(const void* x, void* d, unsigned long long count, uint32_t activation,
                                 uint32_t element, void* stream);
/// The two ceilings, for the floor: reads `bytes` once; and one post or one satisfied wait repeated `count` times,
/// nanoseconds each into out[0] (wait), out[1] (post), out[2] (one hand-off between two SMs).
int32_t cusync_stream_read(const void* data, unsigned long long bytes, void* sink, void* stream);
int32_t cusync_measure_semaphores(uint32_t* scratch, uint32_t count, float* out, void* stream);

/// Host-compiled policy arithmetic, the same code that kernels run: what the cpu executor calls.
uint32_t cusync_host_slot_of(const cusync_policy* policy, uint32_t m, uint32_t n);
uint32_t cusync_host_posts_of(const cusync_policy* policy, uint32_t slot);
/// Writes up to `capacity` (slot, posts) pairs that must be reached before k-block `k`; returns how many there are.
uint32_t cusync_host_waits(const cusync_edge* edge, uint32_t m, uint32_t n, uint32_t k, uint32_t first,
                           uint32_t k_end, uint32_t* slots, uint32_t* posts, uint32_t capacity);
/// Byte offset of element `at_k` of a feature's weights (`up`: 1 for the up weights of a gated stage) after
/// cusync_decode_relay.
unsigned long long cusync_host_decode_weight(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers,
                                             uint32_t feature, uint32_t up, uint32_t at_k);
/// The k-blocks of a decode stage in the order in which the CTAs of worker `worker` multiply them, as weights
/// (`by_chunks`) or activations are brought; writes up to `capacity` and returns how many there are.
uint32_t cusync_host_decode_order(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, uint32_t chunk_bytes,
                                  uint32_t worker, uint32_t by_chunks, uint32_t* blocks, uint32_t capacity);
/// How many chunks the two warpgroups of a decode CTA may be apart, for `slots` of activations, 1 << `chunk_shift` k-blocks
/// a chunk and a ring of `max_chunks` chunks.
uint32_t cusync_host_decode_lead(uint32_t slots, uint32_t chunk_shift, uint32_t max_chunks);
/// Workers that post the semaphore of 64-wide column tile `tile`.
uint32_t cusync_host_decode_owners(uint32_t n, uint32_t workers, uint32_t tile);
void cusync_host_tile_at(const cusync_order* order, uint32_t i, uint32_t* m, uint32_t* n);

#ifdef __cplusplus
}
#endif
