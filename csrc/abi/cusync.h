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
enum cusync_operation {
  CUSYNC_GEMM = 0, CUSYNC_GATED_GEMM = 1, CUSYNC_CONV2D = 2, CUSYNC_ATTENTION = 3, CUSYNC_NORM = 4, CUSYNC_ATTEND = 5,
  CUSYNC_POOL = 6, CUSYNC_ROTATED_GEMM = 7
};
enum cusync_activation { CUSYNC_IDENTITY = 0, CUSYNC_GELU_TANH = 1, CUSYNC_RELU = 2 };

enum { CUSYNC_MAX_DELAY_NS = 500000 };

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

/// What a kernel notes of itself, event by event, for the test that holds it against what was judged. Builds and kernels that have
/// delays have notes, too.
enum cusync_event {
  CUSYNC_EVENT_WAIT = 0,   ///< at: slot; value: the posts that were seen
  CUSYNC_EVENT_LOAD = 1,   ///< at: enum cusync_operand; value: k-block, or the warpgroup whose epilogue it is for
  CUSYNC_EVENT_STORE = 2,  ///< at: unit; value: warpgroup
  CUSYNC_EVENT_POST = 3,   ///< at: slot; value: the posts that it adds
  CUSYNC_EVENT_GIVE = 4,   ///< at: slab; value: warpgroup
  CUSYNC_EVENT_TAKE = 5,   ///< at: slab; value: warpgroup
};
typedef struct cusync_note {
  uint32_t event;        ///< enum cusync_event
  uint32_t stage, m, n;  ///< the tile; of a share, n: the worker
  uint32_t item;         ///< the item's first k-block; of a tile of an attention in a decode kernel, the worker
  uint32_t at, value;
} cusync_note;
typedef struct cusync_notes {
  cusync_note* list;  ///< device
  uint32_t* count;    ///< device: how many there are, those without a place included
  uint32_t capacity;  ///< 0: none are taken
} cusync_notes;

/// ---- stages, work, synchronisation: what every kernel takes --------------------------------------------------------

enum {
  CUSYNC_MAX_STAGES = 64,      ///< of one kernel
  CUSYNC_MAX_OPERANDS = 6,     ///< of a stage
  CUSYNC_MAX_WAITS = 4,        ///< incoming edges of a stage
  CUSYNC_MAX_POSTS = 4,        ///< outgoing edges of a stage
  CUSYNC_COLUMN_TILE = 64,     ///< columns of a product of a decode kernel that share a semaphore
  CUSYNC_PAGE_TOKENS = 64,     ///< of a paged cache
  CUSYNC_PROMPT_TOKENS = 128,  ///< of a k-block of CUSYNC_ATTENTION
  CUSYNC_ATTEND_SLAB = 8 * (128 + 2),  ///< floats of a slab of a decode kernel that attends
  CUSYNC_MAX_NORMED = 16384,   ///< elements of a row that a decode kernel normalises
  CUSYNC_MAX_PARTS = 1625,     ///< parts of an output in a decode kernel, of all workers and rounds: the cube is below 2^32
  CUSYNC_TABLE_ALIGNMENT = 128,
};

/// How a kernel hands out work.
enum cusync_family {
  CUSYNC_FAMILY_GEMM = 0,    ///< one stage a launch: tiles in the order of `cusync_work.order`
  CUSYNC_FAMILY_CHAIN = 1,   ///< many stages: items from lists
  CUSYNC_FAMILY_DECODE = 2,  ///< many stages for few tokens: worker c of P has columns [c * n / P, (c + 1) * n / P) of each
};

/// What tells a compiled kernel from all others.
typedef struct cusync_kernel_id {
  uint32_t family;      ///< enum cusync_family
  uint32_t arch;        ///< enum cusync_arch
  uint32_t operations;  ///< the stages it runs: bit 1 << o for each o of enum cusync_operation
  uint32_t element;     ///< enum cusync_element
  uint32_t tile_m, tile_n;        ///< MMA tile; 64 x 0 for decode kernels, which take any number of columns
  uint32_t cluster_m, cluster_n;  ///< CTAs of a worker
  uint32_t width;       ///< tokens of a decode kernel's MMA, 0 for others
} cusync_kernel_id;

/// One compiled kernel.
typedef struct cusync_kernel_info {
  cusync_kernel_id id;
  uint32_t tile_k;
  uint32_t ring;         ///< k-blocks that the ring of operands holds; 0: sized by cusync_create
  uint32_t stages;       ///< most stages that it takes
  uint32_t table_bytes;  ///< device memory that it needs for each stage; 0: none
  uint32_t row_tiles;    ///< decode: most 64-row tiles of weights that a worker may own in a stage; else 0
  uint32_t threads, shared_bytes;
  uint32_t registers;    ///< of the compiled code, 0 when unknown without a GPU
} cusync_kernel_info;

/// When a stage reads an operand.
enum cusync_read_at {
  CUSYNC_READ_IN_K_LOOP = 0,    ///< a part for each k-block: its edges may be waited for k-block by k-block
  CUSYNC_READ_IN_EPILOGUE = 1,  ///< once a tile, behind the last k-block
};

/// One operand of a stage.
typedef struct cusync_operand {
  const void* data;
  uint32_t role;     ///< enum cusync_role: what it is to the operation. A stage has at most one operand of a role
  uint32_t read_at;  ///< enum cusync_read_at
} cusync_operand;

/// How far the tiles in row m of a stage's grid reduce: over min(first + m * step, most) elements of k. A product of
/// matrices has one value for all rows: first = most = k, step = 0. Under a causal mask later rows of a sequence reduce further;
/// m counts the rows of a sequence then.
typedef struct cusync_depth {
  uint32_t first, step, most;
} cusync_depth;

/// The images of a convolution or a pool, and how it is cut into tiles.
typedef struct cusync_images {
  uint32_t height, width, channels;  ///< of an input image; `channels` is a multiple of 8
  uint32_t out_height, out_width;    ///< of an output image
  uint32_t filter_rows, filter_cols;
  uint32_t stride_rows, stride_cols;
  uint32_t padding_rows, padding_cols;
  uint32_t tile_pixels;  ///< output pixels of a tile: rows of one image, a number that divides its height, or whole images
  uint32_t mean;         ///< CUSYNC_POOL: 1: pixels are averaged, and there is no padding; 0: the greatest is taken
} cusync_images;

/// What a normalisation adds to a stage.
typedef struct cusync_norm {
  uint32_t tile_rows;  ///< of a tile, which is as wide as the output
  uint32_t centred;    ///< 1: the mean of a row is taken away (LayerNorm); 0: it is not (RmsNorm)
  float epsilon;       ///< added to the variance, or to the mean of the squares
} cusync_norm;

/// The heads of CUSYNC_ATTENTION, CUSYNC_ATTEND and CUSYNC_ROTATED_GEMM, and where their keys and values are kept.
typedef struct cusync_heads {
  uint32_t query_heads, kv_heads;  ///< CUSYNC_ATTEND: at most 8 query heads share a key/value head
  uint32_t head_dim;               ///< 64 or 128
  uint32_t capacity;               ///< tokens of a sequence that the cache holds; CUSYNC_ROTATED_GEMM: tokens of a sequence
  uint32_t pages;                  ///< of the pool; 0: the cache is contiguous
} cusync_heads;

/// One stage. CUSYNC_GEMM: out = act(A B + bias) + residual, or act(A B + bias + residual) where `residual_first` is 1.
/// CUSYNC_GATED_GEMM: out = silu(A Bg) * (A Bu), where B holds Bg and Bu interleaved by columns in groups of 8 (g0..g7 u0..u7
/// g8..g15 ...), so that its rows are 2 n long. A decode kernel reads B as cusync_repack leaves it. CUSYNC_CONV2D: the same
/// as CUSYNC_GEMM, where A is pixels x channels (an NHWC tensor), B is (filter_rows * filter_cols * channels) x n, and the
/// rows of `out` are output pixels. Its k-blocks are 64 channels of one tap, channels outermost: block b has the channels
/// from 64 * (b / taps) on, of tap b % taps, where taps are ordered by what the strides leave of row and column, then by both.
/// CUSYNC_NORM: out = (A - mean) / sqrt(variance + epsilon) * gain + bias, row by
/// row, where A, like the output, is m x n. Its tiles have one k-block of n elements. In decode kernels they are
/// of one row, of at most CUSYNC_MAX_NORMED elements, and post one slot, m times a run. CUSYNC_POOL: each row of the output is
/// the greatest or the mean of the rows of A, pixels x n, that lie under a filter's window; its tiles have all columns, and
/// one k-block of as many elements as the window has pixels.
///
/// CUSYNC_ATTENTION, of chain kernels, is attention of whole sequences, each of k.most tokens, one after the other in the rows
/// of operand A, m x (query_heads + 2 kv_heads) * head_dim: queries, keys, values of all heads. A tile is one head and
/// CUSYNC_PROMPT_TOKENS tokens of a sequence, or the whole sequence where that is shorter; with several sequences these are the
/// only lengths. Its k-blocks are CUSYNC_PROMPT_TOKENS keys and values. Where k.first = k.step, the rows of a tile, tokens see
/// themselves and earlier ones; where k.first = k.most and k.step = 0, all of their sequence. With KEYS and
/// VALUES (sequences, kv_heads, capacity, head_dim) keys and values are written there from row 0 on. `pages` is 0.
///
/// CUSYNC_ROTATED_GEMM, of chain kernels that attend, makes that operand A: out = A B + bias, where n is (query_heads + 2 kv_heads) *
/// head_dim, and queries and keys are rotated before they are rounded: row r by position r % capacity of ROTARY (capacity x head_dim or
/// longer; cosines of head_dim / 2 pairs, then sines), elements (i, i + head_dim / 2) of a head together. Its tiles are shared by at
/// most half as many parts as they have units, for both elements of a pair are of one part.
///
/// CUSYNC_ATTEND, of decode kernels, makes one token of each of m sequences. Operand A is m x (query_heads + 2 kv_heads) *
/// head_dim: queries, keys, values of all heads; k says its columns, n is query_heads * head_dim. KEYS and VALUES are
/// (m, kv_heads, capacity, head_dim), or `pages` pages of (kv_heads, 64, head_dim), of which PAGES (m x capacity / 64, rounded
/// up) says which are whose. LENGTHS are read when the kernel runs: sequence b has lengths[b] tokens in the cache. With ROTARY
/// (capacity x head_dim; cosines of head_dim / 2 pairs, then sines) queries and the new key are rotated by that position,
/// elements (i, i + head_dim / 2) together. The new key and value are written behind the cached ones, and attended to with them.
/// A sequence whose length is negative, or leaves no room, or any of whose pages up to the new token's is not in the pool, gets
/// zeros and nothing is appended; the report says so, and the run is otherwise right. All attention stages of a kernel have the
/// same LENGTHS, capacity and kv_heads. They post one slot for each key/value head, m times a run.
typedef struct cusync_stage {
  uint32_t operation;   ///< enum cusync_operation
  uint32_t activation;  ///< enum cusync_activation
  uint32_t residual_first;  ///< 1: the residual is added before the activation; 0: after it, or there is none
  uint32_t index;       ///< of the stage in the plan, for reports
  uint32_t m, n;        ///< of `out`, also when gated
  cusync_depth k;
  cusync_images images;  ///< CUSYNC_CONV2D, CUSYNC_POOL; else zeros
  cusync_norm norm;      ///< CUSYNC_NORM; else zeros
  cusync_heads heads;    ///< CUSYNC_ATTENTION, CUSYNC_ATTEND; else zeros
  uint32_t round, rounds;  ///< decode: workers make `rounds` even parts of `out` each, in as many stages that differ in `round` alone;
                           ///< 0 of 1: a part each
  uint32_t operand_count, wait_count, post_count;
  cusync_operand operands[CUSYNC_MAX_OPERANDS];
  void* out;            ///< m x n
  cusync_edge waits[CUSYNC_MAX_WAITS];  ///< each feeds the operand of its role
  cusync_policy posts[CUSYNC_MAX_POSTS];
} cusync_stage;

/// How work reaches workers.
enum cusync_source {
  CUSYNC_SOURCE_ORDER = 0,    ///< worker c takes tiles c, c + workers, ... of `order`
  CUSYNC_SOURCE_TICKETS = 1,  ///< tiles of `order` by a device counter: a worker that starts early takes more
  CUSYNC_SOURCE_LISTS = 2,    ///< a list of items for each worker
  CUSYNC_SOURCE_DRAWN = 3,    ///< one list of items, by a device counter
  CUSYNC_SOURCE_SHARES = 4,   ///< an equal share of every stage's columns
  CUSYNC_SOURCE_MAIL = 5,     ///< one list of items, of which a host or a worker sends each to a worker
};

enum {
  CUSYNC_END_OF_LIST = 0,      ///< cusync_item.role: no item
  CUSYNC_WHOLE_TILE = 1,       ///< the item is a tile over all of k
  CUSYNC_CONTRIBUTE = 2,       ///< adds nothing to the output: leaves its float sums in slab `slab`
  CUSYNC_FINISH = 3,           ///< adds slabs slab ... slab + slabs - 1 to its own sums, then finishes the tile
  CUSYNC_SHARE = 4,            ///< part `part` of `slabs` parts, each of which finishes its own columns: leaves the sums
                               ///< of the others' columns in slab `slab + part`, adds theirs of its own
  CUSYNC_POST_WEIGHT = 48,     ///< what a tile adds to its slot, shared evenly among the parts that finish it
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

/// Sizes in shared memory of one CTA of a decode kernel, in bytes but for the slots; 0 takes the default of each.
typedef struct cusync_tuning {
  uint32_t chunk_bytes;       ///< weights that one ring entry aims at
  uint32_t ring_bytes;        ///< ring of weights; default: what is left
  uint32_t activation_slots;  ///< ring of 64-wide activation tiles, a multiple of 4
  uint32_t in_flight_bytes;   ///< most weights on their way at once
  uint32_t ahead_bytes;       ///< the same while the ring fills with weights of a stage that still waits
} cusync_tuning;

enum {
  CUSYNC_COMMANDS = 16,    ///< that a host may be ahead of a session's kernel
  CUSYNC_MAX_BOUND = 512,  ///< sets times stages of a session
};

/// Pinned host memory through which a host and the kernel of a session speak. Command number q, from 1, lies in
/// commands[q % CUSYNC_COMMANDS] as q << 32 | next << 20 | set << 8 | m: a run of the stages with the tensors of a set, for the first m
/// rows. `next` announces the set of the job after, whose weights then may come in early; 0xfff, or a wrong one, announces nothing. m =
/// 0 ends the launch. A command is one store, which releases, and is written when the one that lay there is over.
typedef struct cusync_mailbox {
  unsigned long long commands[CUSYNC_COMMANDS];  ///< the host writes
  uint32_t ended;                                ///< the kernel writes: number of the last job that is over
  uint32_t left;                                 ///< the kernel writes: launches that have left; they take no command any more
} cusync_mailbox;

/// Device memory, zeroed once, by which the workers of a session's kernel hand commands on. What one waits for does not share a
/// line with what others write.
typedef struct cusync_relay {
  unsigned long long commands[CUSYNC_COMMANDS];
  uint32_t ended, apart[31];  ///< number of the last job that is over
  uint32_t arrived;           ///< workers that have finished the present one
} cusync_relay;

/// A session: a decode kernel that runs job after job, as a host asks for them, and leaves when it has been asked for none for a
/// while. Its launches follow each other.
typedef struct cusync_jobs {
  cusync_mailbox* mailbox;  ///< as the device addresses it
  cusync_relay* relay;      ///< device
  uint32_t* launches;       ///< device, zeroed once: a word for each worker
  uint32_t sets;            ///< of tensors: cusync_create takes the stages set after set, alike but for pointers. 0: no session
  uint32_t idle_ns;         ///< without a command after which a launch leaves, 1 to 10^9
} cusync_jobs;

enum {
  CUSYNC_MAIL = 8,            ///< words of a worker's mailbox
  CUSYNC_NO_ITEM = 0xfffff,   ///< in place of an item: the launch ends for the worker
  CUSYNC_NUMBERED = 0x1000,   ///< the numbers of words wrap here
};

/// Mailboxes of the workers of a chain kernel, from which they take items first in, first out. Word number q of worker w, from 1, lies in
/// words[w * CUSYNC_MAIL + q % CUSYNC_MAIL] as (q % CUSYNC_NUMBERED) << 52 | item << 32 | epoch, where `item` is its place in the list. It is one
/// store, which releases, made when what lay there is done. The first three are memory of a host that sends words, pinned and as the device
/// addresses it, or device memory where the kernel has a scheduler; all is zeroed once. Launches follow each other. With idle_ns a launch
/// goes on until its workers have had no word for so long, and takes epochs as they come; words that it leaves are the next one's.
/// Without, worker 0 takes none and sends all items to the others in the order of the list, as one run, and ends the launch.
typedef struct cusync_mail {
  unsigned long long* words;  ///< CUSYNC_MAIL for each worker
  uint32_t* done;             ///< for each worker: number of the last word that it has done
  uint32_t* here;             ///< for each worker: launches that it has begun
  uint32_t* left;             ///< one word beside them: launches that have left; they take no word any more
  uint32_t* awake;            ///< device, two words: workers that are here and have work, of launches in turn
  uint32_t idle_ns;           ///< 1 to 10^9; 0: worker 0 is a scheduler
  uint32_t ahead;             ///< most words, done ones apart, that a scheduler sends a worker; below CUSYNC_MAIL
} cusync_mail;

/// Who computes what.
typedef struct cusync_work {
  uint32_t source;         ///< enum cusync_source
  uint32_t workers;        ///< of the grid. With lists, drawn items or shares all of them must be resident at once; with an
                           ///< order 0 takes as many as are resident, or as there are tiles
  cusync_order order;      ///< of the one stage
  const cusync_item* items;  ///< device: `workers` lists of `length`, each ended by a CUSYNC_END_OF_LIST; drawn or by mail: one
                             ///< list of `length` items, without
  uint32_t length;
  uint32_t slab_count;
  /// Device, never cleared: slab_count * cluster_m * cluster_n * tile_m * tile_n. Of a decode kernel 2 * workers slabs of
  /// CUSYNC_ATTEND_SLAB for each attention stage
  float* slabs;
  /// Device, zeroed once: 3 * slab_count * cluster_m * cluster_n. Of a decode kernel m * kv_heads for each attention stage
  uint32_t* slab_flags;
  cusync_tuning tuning;    ///< of shares
  cusync_jobs jobs;        ///< of shares, of products alone, in kernels for 8 and 64 tokens
  cusync_mail mail;        ///< of CUSYNC_SOURCE_MAIL: whole tiles of products, in kernels with tiles of 128 x 128 and 128 x 256
} cusync_work;

/// How a kernel deviates from an ordinary run, for tests and measurements; zeros: in nothing.
typedef struct cusync_test {
  uint32_t starve;       ///< 1: no stage posts
  uint32_t skip_waits;   ///< 1: no stage waits (timing only: results are then meaningless)
  uint32_t stream_only;  ///< 1: a decode kernel streams its weights and nothing else happens (the read limit)
  cusync_delays delays;
  cusync_notes notes;
} cusync_test;

/// What couples a kernel's work, to itself from run to run and to other work. All of it is zeroed once, when the pipeline is
/// made, and counts on for ever: epochs come from here, never from the host.
typedef struct cusync_sync {
  uint32_t* semaphores;  ///< device: the pipeline's slots; needed where a stage waits or posts
  uint32_t* epochs;      ///< device: a word for each CTA; needed by lists, drawn items and shares
  /// Device: one counter of the kernel's own. A run of T tiles or items by W workers draws exactly T + W tickets, so
  /// ticket / (T + W) is the epoch. Needed by tickets, by drawn items, and by an ordered stage that waits or posts.
  unsigned long long* tickets;
  cusync_report* report;  ///< device pointer of a pinned host record, or NULL
  cusync_trace* trace;    ///< device, or NULL. Lists, drawn, mail: CTAs * length records; shares: CTAs * stages
  unsigned long long timeout_ns;  ///< of one wait; 0: the default of 1 s
  cusync_test test;
} cusync_sync;

/// A kernel with its stages, ready to launch: tensor maps encoded, attributes set, module loaded.
typedef struct cusync_kernel cusync_kernel;

/// How to launch. `started_event` (a CUevent, or NULL) is what a concurrently launched consumer's stream waits for. Of kernels for
/// sm_90a it is recorded when every CTA has issued its early trigger or has ended; of kernels for sm_80 nothing guarantees when, and a
/// gate has to follow. `programmatic` allows the launch to begin when every CTA of the kernel before it
/// in the stream has issued its early trigger; a chain or decode kernel then streams weights, and everything else waits
/// for that kernel's memory. Kernels for sm_80 do not offer it and are launched ordinarily.
typedef struct cusync_how {
  void* stream;
  void* started_event;
  uint32_t programmatic;
} cusync_how;

/// Number of compiled kernels; fills up to `capacity` entries.
uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity);
/// Workers of a kernel that are resident at once on the current device.
int32_t cusync_resident(const cusync_kernel_id* id, uint32_t* workers);
/// Makes the kernel `id` ready for `count` stages, producers before consumers; of a session, for as many of each set. `table` is device memory of the caller's,
/// count * table_bytes of the kernel's info, aligned to CUSYNC_TABLE_ALIGNMENT (NULL where that is 0). This call fills it and
/// returns when it is filled; it must outlive the kernel and belongs to it alone. Everything else is copied or only pointed
/// to. Must run before any kernel of the pipeline spins.
///
/// CUSYNC_ERROR_NOT_BUILT: there is no such kernel for this GPU, a stage's operation is not among the kernel's, or a part
/// that a worker of a decode kernel makes in a round has more rows than it has accumulators for.
int32_t cusync_create(const cusync_kernel_id* id, const cusync_stage* stages, uint32_t count, const cusync_work* work,
                      const cusync_sync* sync, void* table, cusync_kernel** out);
int32_t cusync_launch(const cusync_kernel* kernel, const cusync_how* how);
void cusync_destroy(cusync_kernel* kernel);

/// What a gate waits for: that in its run a kernel with a ticket schedule has drawn all of its tiles, which CTAs with an SM then
/// have. Gate and kernel run once each in every run of a pipeline.
typedef struct cusync_gate {
  unsigned long long* tickets;  ///< device: the kernel's counter
  unsigned long long* runs;     ///< device: a word of the gate's own, zeroed once
  uint32_t tiles, workers;      ///< of a launch of the kernel
  uint32_t edge, stage;         ///< for the report: the edge to the waiting stage, and that stage
  cusync_report* report;        ///< device pointer of a pinned host record, or NULL
  unsigned long long timeout_ns;  ///< of one wait; four times that without a draw ends the gate. 0: the default of 1 s
} cusync_gate;
/// Holds back what follows on `stream`. One thread of one SM waits, without shared memory.
int32_t cusync_wait_for_start(const cusync_gate* gate, void* stream);

/// ---- what surrounds them --------------------------------------------------------------------------------------------

/// Bytes of a stage's weights as cusync_repack leaves them: `n` columns of its output, gated or not, k rounded up to 64.
unsigned long long cusync_repacked_bytes(uint32_t operation, uint32_t k, uint32_t n);
/// Lays out the k x n row-major `weights` (of a gated stage: the gate's, and `up` the other; else `up` is NULL) for decode
/// kernels that make `parts` parts of the output into `out`, part by part in the order of streaming, asynchronously on `stream`.
int32_t cusync_repack(uint32_t operation, uint32_t k, uint32_t n, uint32_t parts, const void* weights, const void* up,
                      void* out, void* stream);

/// The Stream-K peer: D = act(A B + bias), CUTLASS's own kernel, one of the benchmark's baselines. `workspace` of
/// `workspace_bytes`; call with workspace NULL to learn the size.
typedef struct cusync_streamk cusync_streamk;
int32_t cusync_streamk_create(const cusync_stage* stage, uint32_t element, void* workspace,
                              unsigned long long* workspace_bytes, cusync_streamk** out);
int32_t cusync_streamk_launch(cusync_streamk* gemm, void* stream);
void cusync_streamk_destroy(cusync_streamk* gemm);

/// Device helpers of tests and benchmarks; all asynchronous on `stream`.
/// Fills with uniform random values in (-scale, scale).
int32_t cusync_fill_random(void* data, unsigned long long count, uint32_t element, float scale, uint32_t seed,
                           void* stream);
/// out[0] += sum (x - y)^2, out[1] += sum y^2, out[2] = max |x - y|; x of `element`, y float.
int32_t cusync_compare(const void* x, const float* y, unsigned long long count, uint32_t element, float* out,
                       void* stream);
/// sums = a b with float accumulation on plain CUDA cores, sharing nothing with the kernels above, and at least the largest
/// magnitude of each sum's partial sums; a is m x k and b k x n, of `element`, with k and n multiples of 8.
int32_t cusync_reference_product(const void* a, const void* b, uint32_t m, uint32_t n, uint32_t k, uint32_t element, float* sums,
                                 float* largest, void* stream);
/// Interleaves gate and up (each k x n) into packed (k x 2n), groups of 8 columns.
int32_t cusync_pack_gated(const void* gate, const void* up, void* packed, uint32_t k, uint32_t n, void* stream);
/// silu(x[:, gate]) * x[:, up] for a packed m x 2n product, floats when `packed_bits` is 32, else of `element`: the
/// separate activation kernel that libraries need.
int32_t cusync_gated_activation(const void* packed, uint32_t packed_bits, void* d, uint32_t m, uint32_t n,
                                uint32_t element, void* stream);
/// The first `rotated` columns of an m x n product of heads of `head_dim` columns, rotated into d, and the others as they are: element i of
/// a head's first half and of its second are a pair, row r has the position r modulo `tokens`, and a row of `angles` has the cosines
/// of all pairs, then the sines. The product has floats when `product_bits` is 32, else `element`, and may then be d.
int32_t cusync_rotate(const void* product, uint32_t product_bits, const void* angles, void* d, uint32_t m, uint32_t n,
                      uint32_t rotated, uint32_t head_dim, uint32_t tokens, uint32_t element, void* stream);
/// d = act(x), element-wise, for peers without a fused epilogue.
int32_t cusync_activation_kernel(const void* x, void* d, unsigned long long count, uint32_t activation,
                                 uint32_t element, void* stream);
/// The two ceilings, for the floor: reads `bytes` once; and one post or one satisfied wait repeated `count` times,
/// nanoseconds each into out[0] (wait), out[1] (post), out[2] (one hand-off between two SMs).
int32_t cusync_stream_read(const void* data, unsigned long long bytes, void* sink, void* stream);
int32_t cusync_measure_semaphores(uint32_t* scratch, uint32_t count, float* out, void* stream);
/// What every SM's clock and the global timer (nanoseconds) show now: out[2 * sm] and out[2 * sm + 1], for SMs below `sms`. Two
/// readings on both sides of some work give the mean clock that it ran at; an SM that no CTA came to keeps what it had.
int32_t cusync_read_clocks(unsigned long long* out, uint32_t sms, void* stream);

/// Host-compiled policy arithmetic, the same code that kernels run: what the cpu executor calls.
uint32_t cusync_host_slot_of(const cusync_policy* policy, uint32_t m, uint32_t n);
uint32_t cusync_host_posts_of(const cusync_policy* policy, uint32_t slot);
/// Writes up to `capacity` (slot, posts) pairs that must be reached before k-block `k`; returns how many there are.
uint32_t cusync_host_waits(const cusync_edge* edge, uint32_t m, uint32_t n, uint32_t k, uint32_t first,
                           uint32_t k_end, uint32_t* slots, uint32_t* posts, uint32_t capacity);
/// Byte offset of element `at_k` of a feature's weights (`up`: 1 for the up weights of a gated stage) after
/// cusync_repack.
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
/// What one worker of an attention stage has of one (sequence, key/value head): units [begin, end), as all units are
/// numbered, of the head's [first, last).
typedef struct cusync_segment {
  uint32_t sequence, head, begin, end, first, last;
  uint32_t parts;  ///< workers that have some of the head
  uint32_t slab;   ///< where this part is left, if there are others
  uint32_t slab_of_part;  ///< where the one that adds up looks for this part
} cusync_segment;
/// The segments of worker `worker`, of `sequences` sequences with `lengths`; writes up to `capacity`, in
/// the order in which the worker takes them, and returns how many there are. `sums`: scratch memory of 2 * sequences + 2 words.
uint32_t cusync_host_attention_segments(const int32_t* lengths, uint32_t sequences, uint32_t cache_capacity,
                                        uint32_t kv_heads, uint32_t workers, uint32_t worker, uint32_t* sums,
                                        cusync_segment* segments, uint32_t capacity);
void cusync_host_tile_at(const cusync_order* order, uint32_t i, uint32_t* m, uint32_t* n);

#ifdef __cplusplus
}
#endif
