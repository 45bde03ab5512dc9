// SPDX-License-Identifier: MIT OR Apache-2.0
// The plain C ABI between the kernels and the Rust runtime (input of bindgen). Every tensor is row-major as written in
// a spec: A is M x K, B is K x N, D is M x N, and every row length is a multiple of 8 elements (16 bytes, the TMA
// granule). Functions return 0 or a cusync_status; CUDA error codes are added to CUSYNC_ERROR_CUDA. Nothing here
// synchronizes the device or allocates device memory.
#pragma once
#include "cusync/desc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cusync_status {
  CUSYNC_OK = 0,
  CUSYNC_ERROR_NOT_BUILT = 1,    ///< this binary has no kernels for the request (architecture, tile or type)
  CUSYNC_ERROR_BAD_ARGUMENT = 2, ///< a pointer, size or alignment violates the contract
  CUSYNC_ERROR_NO_MEMORY = 3,    ///< host allocation failed
  CUSYNC_ERROR_CUDA = 1000,      ///< plus the cudaError_t
};

enum cusync_element { CUSYNC_F16 = 0, CUSYNC_BF16 = 1 };
enum cusync_arch { CUSYNC_SM80 = 80, CUSYNC_SM90A = 90 };
enum cusync_operation {
  CUSYNC_GEMM = 0, CUSYNC_GATED_GEMM = 1, CUSYNC_CONV2D = 2, CUSYNC_ATTENTION = 3, CUSYNC_NORM = 4, CUSYNC_ATTEND = 5,
  CUSYNC_POOL = 6, CUSYNC_GROUP_NORM = 7,
  CUSYNC_INPUT_NORM = 8,  ///< of kernels, not of stages: products can normalize A
  CUSYNC_GROUPED_CONV = 9, CUSYNC_EXPERTS = 10
};
/// Element-wise functions. GELU: by tanh, by erf (x Phi(x)), and QUICK_GELU, x sigmoid(1.702 x); SILU: x sigmoid(x);
/// HARD_SWISH: x min(max(x + 3, 0), 6) / 6.
enum cusync_activation {
  CUSYNC_IDENTITY = 0,
  CUSYNC_GELU_TANH = 1,
  CUSYNC_RELU = 2,
  CUSYNC_SILU = 3,
  CUSYNC_GELU_ERF = 4,
  CUSYNC_QUICK_GELU = 5,
  CUSYNC_SQUARED_RELU = 6,
  CUSYNC_RELU6 = 7,
  CUSYNC_HARD_SWISH = 8,
  CUSYNC_SIGMOID = 9,
  CUSYNC_TANH = 10,
};

enum { CUSYNC_MAX_DELAY_NS = 500000 };

/// Timestamps of one work item of a chain kernel, taken by the first math thread of its CTA, in nanoseconds of the
/// device's global timer. One record per CTA and item.
typedef struct cusync_trace {
  unsigned long long begin;    ///< the item is known
  unsigned long long ready;    ///< all operands of the first k-block may be loaded (waits satisfied)
  unsigned long long loaded;   ///< the first k-block has arrived
  unsigned long long math_end; ///< the last k-block has been multiplied
  unsigned long long end;      ///< the epilogue has left the registers
  uint32_t sm, item;           ///< item: index in the list
} cusync_trace;

/// Pseudo-random delays before items, loads behind waits, stores and posts, for tests. A delay is a hash of seed, run,
/// SM, tile and kind of place. Only builds with CUSYNC_DELAYS support them, and only in kernels for sm_90a; others
/// return CUSYNC_ERROR_NOT_BUILT.
typedef struct cusync_delays {
  uint32_t seed;
  uint32_t limit_ns;  ///< maximum delay, at most CUSYNC_MAX_DELAY_NS; a sleep may take twice as long. 0: none
} cusync_delays;

/// Events that a kernel records, for the test that compares a run with its checked plan. Available in the same builds
/// and kernels as delays.
enum cusync_event {
  CUSYNC_EVENT_WAIT = 0,   ///< at: slot; value: observed posts
  CUSYNC_EVENT_LOAD = 1,   ///< at: enum cusync_operand; value: k-block, or the warpgroup that loads for its epilogue
  CUSYNC_EVENT_STORE = 2,  ///< at: unit; value: warpgroup
  CUSYNC_EVENT_POST = 3,   ///< at: slot; value: posts added
  CUSYNC_EVENT_GIVE = 4,   ///< at: slab; value: warpgroup
  CUSYNC_EVENT_TAKE = 5,   ///< at: slab; value: warpgroup
};
typedef struct cusync_note {
  uint32_t event;        ///< enum cusync_event
  uint32_t stage, m, n;  ///< the tile; for a share, n is the worker
  uint32_t item;         ///< first k-block of the item; for an attention tile in a decode kernel, the worker
  uint32_t at, value;
} cusync_note;
typedef struct cusync_notes {
  cusync_note* list;  ///< device
  uint32_t* count;    ///< device: number of events, including those that did not fit
  uint32_t capacity;  ///< 0: record nothing
} cusync_notes;

/// ---- stages, work, synchronization: arguments of every kernel
/// --------------------------------------------------------

enum {
  CUSYNC_MAX_STAGES = 64,      ///< per kernel
  CUSYNC_MAX_OPERANDS = 8,     ///< per stage
  CUSYNC_MAX_WAITS = 4,        ///< incoming edges per stage
  CUSYNC_MAX_POSTS = 4,        ///< outgoing edges per stage
  CUSYNC_COLUMN_TILE = 64,     ///< product columns of a decode kernel that share a semaphore
  CUSYNC_PAGE_TOKENS = 64,     ///< tokens per page of a paged cache
  CUSYNC_PROMPT_TOKENS = 128,  ///< tokens per step of CUSYNC_ATTENTION
  CUSYNC_ATTEND_SLAB = 8 * (128 + 2),  ///< floats per slab of a decode kernel with attention
  CUSYNC_MAX_NORMED = 16384,   ///< maximum row length that a decode kernel normalizes
  CUSYNC_MAX_EXPERTS = 512,    ///< of one stage
  CUSYNC_MAX_TOP_K = 16,       ///< experts of one row
  CUSYNC_MAX_DEVICES = 8,      ///< GPUs of a group
  CUSYNC_MAX_PARTS = 1625,     ///< parts of a decode kernel's output, over workers and rounds: the cube is below 2^32
  CUSYNC_TABLE_ALIGNMENT = 128,
};
#define CUSYNC_NOT_SUMMED 0xffffffffu  ///< of a stage whose sums stay on one GPU

/// How a kernel distributes work.
enum cusync_family {
  CUSYNC_FAMILY_GEMM = 0,    ///< one stage per launch: tiles in the order of `cusync_work.order`
  CUSYNC_FAMILY_CHAIN = 1,   ///< many stages: items from lists
  CUSYNC_FAMILY_DECODE = 2,  ///< few tokens: worker c of P owns columns [c * n / P, (c + 1) * n / P) of each stage
  CUSYNC_FAMILY_ALONE = 3,   ///< one stage per launch, without waits, posts, trace and notes; the kernel divides it
};

/// Identifies a compiled kernel.
typedef struct cusync_kernel_id {
  uint32_t family;      ///< enum cusync_family
  uint32_t arch;        ///< enum cusync_arch
  uint32_t operations;  ///< supported operations: bit 1 << o for each o of enum cusync_operation
  uint32_t element;     ///< enum cusync_element
  uint32_t tile_m, tile_n;        ///< MMA tile; 64 x 0 for decode kernels, which take any number of columns; 0 x 0: alone
  uint32_t cluster_m, cluster_n;  ///< CTAs per worker
  uint32_t width;       ///< tokens of a decode kernel's MMA; otherwise 0
} cusync_kernel_id;

/// One compiled kernel.
typedef struct cusync_kernel_info {
  cusync_kernel_id id;
  uint32_t tile_k;
  uint32_t ring;         ///< k-blocks in the operand ring; 0: sized by cusync_create
  uint32_t stages;       ///< maximum number of stages
  uint32_t table_bytes;  ///< device memory needed per stage; 0: none
  uint32_t row_tiles;    ///< decode: maximum 64-row weight tiles of a worker per stage; otherwise 0
  uint32_t threads, shared_bytes;
  uint32_t registers;    ///< registers per thread; 0 if unknown without a GPU
} cusync_kernel_info;

/// When a stage reads an operand.
enum cusync_read_at {
  CUSYNC_READ_IN_K_LOOP = 0,    ///< one part per k-block; its edges may be waited for k-block by k-block
  CUSYNC_READ_IN_EPILOGUE = 1,  ///< once per tile, after the last k-block
};

/// One operand of a stage.
typedef struct cusync_operand {
  const void* data;
  uint32_t role;     ///< enum cusync_role: its role in the operation; at most one operand per role
  uint32_t read_at;  ///< enum cusync_read_at
} cusync_operand;

/// The images of a convolution or a pool. A tile is rows of one image (a divisor of its height), or whole images.
typedef struct cusync_images {
  uint32_t height, width, channels;  ///< input image; `channels` is a multiple of 8
  uint32_t out_height, out_width;    ///< output image
  uint32_t filter_rows, filter_cols;
  uint32_t stride_rows, stride_cols;
  uint32_t padding_rows, padding_cols;
  uint32_t mean;  ///< CUSYNC_POOL: 1: average, without padding; 0: maximum
} cusync_images;

/// A convolution in groups of consecutive channels.
typedef struct cusync_grouped_conv {
  cusync_images images;  ///< a tile as of a pool
  uint32_t groups;       ///< more than one divide the channels, and n
  uint32_t dilation_rows, dilation_cols;  ///< input pixels from one tap to the next
} cusync_grouped_conv;

/// The tiles of a stage as they were planned and proved.
typedef struct cusync_tiles {
  uint32_t rows, columns;   ///< of one tile: output rows; columns of accumulators, or of the output of a row operation
  uint32_t grid_m, grid_n;  ///< tiles along the rows and the columns
  uint32_t k_blocks;        ///< k-blocks of the longest tile
} cusync_tiles;

/// Parameters of a normalization stage.
typedef struct cusync_norm {
  uint32_t centred;  ///< 1: subtracts the mean of the row (LayerNorm); 0: does not (RmsNorm)
  uint32_t one_plus_gain;  ///< 1: multiplies by one plus the gain; CUSYNC_NORM only
  float epsilon;     ///< added to the variance, or to the mean square
} cusync_norm;

/// Parameters of a stage that normalizes groups of channels.
typedef struct cusync_group_norm {
  uint32_t pixels;  ///< of an image: consecutive rows of A
  uint32_t groups;  ///< of n / groups consecutive columns
  uint32_t activation;  ///< enum cusync_activation, of the result
  float epsilon;    ///< added to the variance
} cusync_group_norm;

/// The heads of CUSYNC_ATTENTION and CUSYNC_ATTEND, and their key/value caches.
typedef struct cusync_heads {
  uint32_t query_heads, kv_heads;  ///< CUSYNC_ATTEND: at most 8 query heads, of at most 1024
                                   ///< columns together, share a key/value head
  uint32_t head_dim;               ///< a multiple of 8, at most 256; CUSYNC_ATTEND: 64, 80, 96, 128 or 256
  uint32_t tokens;                 ///< of each sequence in A; CUSYNC_ATTEND: 1
  uint32_t causal;                 ///< CUSYNC_ATTENTION: 1: tokens attend to themselves and earlier ones; 0: to all
  uint32_t capacity;               ///< tokens per sequence in the cache; 0: no cache
  uint32_t pages;                  ///< pages in the pool; 0: contiguous cache
  float norm_epsilon;              ///< CUSYNC_ATTEND: added to the mean of squares of a head; 0: no norm of heads
  float scale;                     ///< factor on the product of a query and a key
  float softcap;                   ///< c: scores become c tanh(score / c); 0: they do not
  uint32_t window;                 ///< tokens that a token attends to at most, itself included; 0: all
} cusync_heads;

/// The experts of a stage, each with a gate, an up and a down product.
typedef struct cusync_experts {
  uint32_t experts;     ///< columns of ROUTER, at most CUSYNC_MAX_EXPERTS
  uint32_t top_k;       ///< experts that compute each row, at most CUSYNC_MAX_TOP_K
  uint32_t features;    ///< columns between an expert's products, a multiple of 8
  uint32_t normalized;  ///< 1: the weights of a row's experts add up to 1; 0: those of all experts do
} cusync_experts;

/// The sizes of an operation that m, n and k do not state.
typedef union cusync_shape {
  cusync_images images;  ///< CUSYNC_CONV2D, CUSYNC_POOL
  cusync_norm norm;      ///< CUSYNC_NORM; CUSYNC_GEMM and CUSYNC_GATED_GEMM of decode kernels that normalize A
  cusync_group_norm group_norm;  ///< CUSYNC_GROUP_NORM
  cusync_grouped_conv grouped_conv;  ///< CUSYNC_GROUPED_CONV
  cusync_experts experts;  ///< CUSYNC_EXPERTS
  cusync_heads heads;    ///< CUSYNC_ATTENTION, CUSYNC_ATTEND
} cusync_shape;

/// One stage. CUSYNC_GEMM: out = act(A B + bias) + residual, or act(A B + bias + residual) if `residual_first` is 1.
/// CUSYNC_GATED_GEMM: out = act(A Bg) * (A Bu), where B interleaves the columns of Bg and Bu in groups of 8 (g0..g7
/// u0..u7 g8..g15 ...), so its rows have 2 n elements. Decode kernels read B in the layout of cusync_repack. Those with CUSYNC_INPUT_NORM, given
/// an `epsilon`, divide each row of A by the root of its mean square plus epsilon; gains are part of B.
/// CUSYNC_CONV2D: like CUSYNC_GEMM, where A is pixels x channels (an NHWC tensor), B is (filter_rows * filter_cols *
/// channels) x n, and the rows of `out` are output pixels. A k-block is 64 channels of one tap, channels outermost:
/// block b has channels from 64 * (b / taps) of tap b % taps. Taps are ordered by the remainders of row and column
/// modulo the strides, then by row and column. CUSYNC_NORM: out = (A - mean) / sqrt(variance + epsilon) * gain + bias
/// + residual for each row; A and the output are m x n. Its tiles have one k-block of n elements. In decode kernels its tiles are
/// single rows of at most CUSYNC_MAX_NORMED elements and post one slot, m times per run. CUSYNC_POOL: each output row
/// is the maximum or mean of the rows of A, pixels x n, under a filter window; its tiles have all columns, and one
/// k-block with as many elements as the window has pixels.
///
/// CUSYNC_GROUP_NORM (alone): out = act((A - mean) / sqrt(variance + epsilon) * gain + bias), with the mean and variance
/// of each group of columns over the rows of each image. A tile is one group of one image, with one k-block of all its
/// elements; k is their number. GAIN and BIAS have n elements.
///
/// CUSYNC_GROUPED_CONV (alone): like CUSYNC_CONV2D, but output channel j is a sum over the input channels of its group,
/// j / (n / groups), only. B is (filter_rows * filter_cols * channels / groups) x n. A tile has all columns, and one
/// k-block with all k terms of a sum.
///
/// CUSYNC_EXPERTS (alone): each row of A (m x k) is computed by the `top_k` experts e with the largest scores in its row
/// of ROUTER (m x experts); of equal scores the first are chosen. out = sum over them of w_e (act(A Ge) * (A Ue)) De +
/// residual, with w = softmax of the scores, over the chosen ones if `normalized`. B and UP have `features` rows of k
/// elements for each expert, DOWN has n rows of `features` elements: rows are output columns, and k is n. Hidden rows and the
/// rows of each expert are rounded to the element type. The device divides the work, by lists in `cusync_work.scratch`. A
/// tile has all columns and one k-block.
///
/// CUSYNC_ATTENTION (alone): attention over whole sequences, stored consecutively in the rows of operand A, m x
/// (query_heads + 2 kv_heads) * head_dim: queries, keys, values of all heads. If KEYS and VALUES (sequences, kv_heads,
/// capacity, head_dim) are given, keys and values are written there from row 0. With LENGTHS, sequences continue: their
/// tokens, a multiple of 64, attend causally to the first lengths[b] rows there too, and are written behind them. A
/// sequence whose length is negative or leaves no room is left out like one of CUSYNC_ATTEND. `pages` is 0.
///
/// CUSYNC_ATTEND (decode kernels): attention of one new token in each of m sequences. Operand A is m x (query_heads + 2
/// kv_heads) * head_dim: queries, keys, values of all heads; n is query_heads * head_dim. KEYS
/// and VALUES are (m, kv_heads, capacity, head_dim), or `pages` pages of (kv_heads, 64, head_dim), assigned to
/// sequences by PAGES (m x capacity / 64, rounded up). LENGTHS are read at run time: sequence b has lengths[b] tokens
/// in the cache. With ROTARY (capacity x head_dim; cosines of head_dim / 2 pairs, then sines) queries and the new key
/// are rotated by that position, with elements (i, i + head_dim / 2) as a pair. With a `norm_epsilon`, which needs
/// ROTARY, each head of queries and the new key is divided by the root of its mean square plus epsilon and multiplied
/// by QUERY_GAIN or KEY_GAIN (head_dim elements) first. The new key and value are appended to the cache and attended to
/// with the cached ones. If a sequence's length is negative or leaves no room, or if any of
/// its pages up to the new token's is not in the pool, its output is zero and nothing is appended; the report says so,
/// and the other results are correct. All attention stages of a kernel have the same LENGTHS, capacity and kv_heads.
/// They post one slot per key/value head, m times per run.
typedef struct cusync_stage {
  uint32_t operation;   ///< enum cusync_operation
  uint32_t activation;  ///< enum cusync_activation
  uint32_t residual_first;  ///< 1: residual added before the activation; 0: added after it, or none
  uint32_t index;       ///< index of the stage in the plan, for reports
  uint32_t m, n;        ///< size of `out`, also if gated
  uint32_t k;           ///< length of the reduction: terms of a product's sum, elements of a normalized row or group,
                        ///< pixels of a window, or tokens to which a query may attend
  cusync_tiles tiles;   ///< except in decode kernels
  cusync_shape shape;
  uint32_t round, rounds;  ///< decode: workers compute `rounds` even parts of `out` each, in as many stages that
                           ///< differ in `round` only; 0 of 1: one part each
  uint32_t operand_count, wait_count, post_count;
  cusync_operand operands[CUSYNC_MAX_OPERANDS];
  void* out;            ///< m x n
  cusync_edge waits[CUSYNC_MAX_WAITS];  ///< each feeds the operand of its role
  cusync_policy posts[CUSYNC_MAX_POSTS];
} cusync_stage;

/// How workers get work.
enum cusync_source {
  CUSYNC_SOURCE_ORDER = 0,    ///< worker c takes tiles c, c + workers, ... of `order`
  CUSYNC_SOURCE_TICKETS = 1,  ///< tiles of `order` from a device counter: workers that start early take more
  CUSYNC_SOURCE_LISTS = 2,    ///< one list of items per worker
  CUSYNC_SOURCE_DRAWN = 3,    ///< one list of items, drawn from a device counter
  CUSYNC_SOURCE_SHARES = 4,   ///< an equal share of every stage's columns
  CUSYNC_SOURCE_MAIL = 5,     ///< one list of items, each sent to a worker by a host or by worker 0
};

enum {
  CUSYNC_END_OF_LIST = 0,      ///< cusync_item.role: no item
  CUSYNC_WHOLE_TILE = 1,       ///< a tile over all of k
  CUSYNC_CONTRIBUTE = 2,       ///< no output: leaves float sums in slab `slab`
  CUSYNC_FINISH = 3,           ///< adds slabs slab ... slab + slabs - 1 to its own sums and finishes the tile
  CUSYNC_SHARE = 4,            ///< part `part` of `slabs` parts that each finish their own columns: leaves the sums of
                               ///< the other parts' columns in slab `slab + part`, and adds the others' sums for its
                               ///< own columns
  CUSYNC_POST_WEIGHT = 48,     ///< value that a tile adds to its slot, divided evenly among the parts that finish it
};

/// One unit of work of a worker (a cluster of CTAs): k-blocks [k_begin, k_end) of one tile of a stage. `m` and `n`
/// count cluster tiles: CTA (i, j) of the cluster computes tile (m * cluster_m + i, n * cluster_n + j) of the stage's
/// grid, or nothing if that is outside the grid.
typedef struct cusync_item {
  uint16_t m, n;
  uint16_t k_begin, k_end;
  uint8_t stage;
  uint8_t role;    ///< CUSYNC_END_OF_LIST, CUSYNC_WHOLE_TILE, CUSYNC_CONTRIBUTE, CUSYNC_FINISH or CUSYNC_SHARE
  uint8_t slabs;   ///< CUSYNC_FINISH: slabs to add; CUSYNC_SHARE: parts of the tile
  uint8_t part;    ///< CUSYNC_SHARE: part number
  uint32_t slab;   ///< first slab; a slab is written once per run
} cusync_item;

/// Shared-memory sizes of one CTA of a decode kernel, in bytes except for slots; 0: default.
typedef struct cusync_tuning {
  uint32_t chunk_bytes;       ///< target size of the weights in one ring entry
  uint32_t ring_bytes;        ///< weight ring; default: the remaining space
  uint32_t activation_slots;  ///< ring of 64-wide activation tiles, a multiple of 4
  uint32_t in_flight_bytes;   ///< maximum bytes of weights in flight
  uint32_t ahead_bytes;       ///< the same while prefetching weights of a stage that still waits
} cusync_tuning;

enum {
  CUSYNC_COMMANDS = 16,    ///< maximum commands that a host may be ahead of a session's kernel
  CUSYNC_MAX_BOUND = 512,  ///< maximum sets times stages of a session
};

/// Pinned host memory for communication between a host and a session's kernel. Command number q, from 1, is in
/// commands[q % CUSYNC_COMMANDS] as q << 32 | next << 20 | set << 8 | m: run the stages on the tensors of `set`, for
/// the first m rows. `next` announces the set of the following job, so its weights may be prefetched; 0xfff or a wrong
/// set announces nothing. m = 0 ends the launch. A command is one release store, made after the command previously in
/// that word has finished.
typedef struct cusync_mailbox {
  unsigned long long commands[CUSYNC_COMMANDS];  ///< written by the host
  uint32_t ended;                                ///< written by the kernel: number of the last finished job
  uint32_t left;                                 ///< written by the kernel: launches that have left and take no more commands
} cusync_mailbox;

/// Device memory, zeroed once, through which the workers of a session's kernel relay commands. Words that workers poll
/// do not share a cache line with words that others write.
typedef struct cusync_relay {
  unsigned long long commands[CUSYNC_COMMANDS];
  uint32_t ended, apart[31];  ///< number of the last finished job
  uint32_t arrived;           ///< workers that have finished the current job
} cusync_relay;

/// A session: a decode kernel that runs jobs at a host's request, and leaves after a period without requests. Its
/// launches do not overlap.
typedef struct cusync_jobs {
  cusync_mailbox* mailbox;  ///< device address
  cusync_relay* relay;      ///< device
  uint32_t* launches;       ///< device, zeroed once: one word per worker
  uint32_t sets;            ///< tensor sets: cusync_create takes stages set by set, alike except for pointers. 0: none
  uint32_t idle_ns;         ///< time without a command after which a launch leaves, 1 to 10^9
} cusync_jobs;

enum {
  CUSYNC_MAIL = 8,            ///< words per worker's mailbox
  CUSYNC_NO_ITEM = 0xfffff,   ///< instead of an item: the launch ends for this worker
  CUSYNC_NUMBERED = 0x1000,   ///< word numbers wrap here
};

/// Mailboxes of a chain kernel's workers: FIFOs of items. Word number q of worker w, from 1, is in words[w *
/// CUSYNC_MAIL + q % CUSYNC_MAIL] as (q % CUSYNC_NUMBERED) << 52 | item << 32 | epoch, where `item` is an index in the
/// list. A word is one release store, made after the word previously in that place is done. The first three arrays are
/// pinned host memory (device addresses) if a host sends words, or device memory if the kernel has a scheduler; all are
/// zeroed once. Launches do not overlap. If idle_ns is not 0, a launch continues until its workers have received no
/// word for that long; epochs come with the words, and words it leaves are taken by the next launch. If idle_ns is 0,
/// worker 0 takes no items: it sends all items to the other workers in list order, as one run, and ends the launch.
typedef struct cusync_mail {
  unsigned long long* words;  ///< CUSYNC_MAIL per worker
  uint32_t* done;             ///< per worker: number of its last finished word
  uint32_t* here;             ///< per worker: launches begun
  uint32_t* left;             ///< one word next to them: launches that have left and take no more words
  uint32_t* awake;            ///< device, two words for alternate launches: workers that are present and have work
  uint32_t idle_ns;           ///< 1 to 10^9; 0: worker 0 is a scheduler
  uint32_t ahead;             ///< maximum unfinished words that a scheduler has sent to a worker; below CUSYNC_MAIL
} cusync_mail;

/// The assignment of work to workers.
typedef struct cusync_work {
  uint32_t source;         ///< enum cusync_source
  uint32_t workers;        ///< workers in the grid. With lists, drawn items or shares all must be co-resident; with
                           ///< an order, 0 means as many as are resident, or as there are tiles
  cusync_order order;      ///< order of the single stage
  const cusync_item* items;  ///< device: `workers` lists of `length`, each ended by a CUSYNC_END_OF_LIST; drawn or by mail:
                             ///< one list of `length` items, without an end mark
  uint32_t length;
  uint32_t slab_count;
  /// Device, never cleared: slab_count * cluster_m * cluster_n * tile_m * tile_n floats. Decode kernels: 2 * workers
  /// slabs of CUSYNC_ATTEND_SLAB for each attention stage
  float* slabs;
  /// Device, zeroed once: 3 * slab_count * cluster_m * cluster_n. Decode kernels: m * kv_heads for each attention stage
  uint32_t* slab_flags;
  void* scratch;           ///< device: cusync_experts_scratch bytes, aligned to CUSYNC_TABLE_ALIGNMENT; for CUSYNC_EXPERTS
  cusync_tuning tuning;    ///< for shares
  cusync_jobs jobs;        ///< for shares of products only, in kernels for 8 and 64 tokens
  cusync_mail mail;        ///< for CUSYNC_SOURCE_MAIL: whole tiles of products, in kernels with tiles of 128 x 128 and 128 x 256
} cusync_work;

/// Deviations from a normal run, for tests and measurements; zeros: none.
typedef struct cusync_test {
  uint32_t starve;       ///< 1: no stage posts
  uint32_t skip_waits;   ///< 1: no stage waits (timing only: results are meaningless)
  uint32_t stream_only;  ///< 1: a decode kernel only streams its weights (the read limit)
  cusync_delays delays;
  cusync_notes notes;
} cusync_test;

/// GPUs that run the same decode kernel, each on a part of some reductions: they sum A B of those stages before bias,
/// activation and residual. A worker sends each of its sums to every GPU, itself included, in a word with the number of
/// the run: run + 1 in the upper half, the float in the lower. It adds the words of all GPUs in the order of their
/// numbers, so all get the same bits. An area, zeroed once, has for each of these stages two sets of `devices` matrices
/// of m x n words, which alternate runs use. All GPUs run equally often.
typedef struct cusync_group {
  uint32_t devices;  ///< 0: no group; at most CUSYNC_MAX_DEVICES
  uint32_t device;   ///< number of this GPU
  unsigned long long* areas[CUSYNC_MAX_DEVICES];  ///< each GPU's area, as this GPU addresses it
  uint32_t* epochs;  ///< device, zeroed once: one word per worker
  uint32_t received[CUSYNC_MAX_STAGES];  ///< first word in an area of each stage's sets; CUSYNC_NOT_SUMMED: not summed
} cusync_group;

/// State that couples a kernel's runs to each other and to other kernels. Zeroed once, when the pipeline is created,
/// and never reset: epochs come from here, never from the host.
typedef struct cusync_sync {
  uint32_t* semaphores;  ///< device: the pipeline's slots; needed if a stage waits or posts
  uint32_t* epochs;      ///< device: one word per CTA; needed by lists, drawn items and shares
  /// Device: a counter used by this kernel only. A run of T tiles or items by W workers draws exactly T + W tickets, so
  /// ticket / (T + W) is the epoch. Needed by tickets, drawn items, and ordered stages that wait or post.
  unsigned long long* tickets;
  cusync_report* report;  ///< device pointer of a pinned host record, or NULL
  cusync_trace* trace;    ///< device, or NULL. Lists, drawn, mail: CTAs * length records; shares: CTAs * stages
  unsigned long long timeout_ns;  ///< timeout of one wait; 0: the default of 1 s
  cusync_test test;
  cusync_group group;
} cusync_sync;

/// A kernel with its stages, ready to launch: tensor maps encoded, attributes set, module loaded.
typedef struct cusync_kernel cusync_kernel;

/// Launch options. The stream of a concurrently launched consumer waits for `started_event` (a CUevent, or NULL).
/// Kernels for sm_90a record it when every CTA has issued its early trigger or exited; for sm_80 nothing guarantees
/// when, so a gate must follow. `programmatic` lets the launch begin when every CTA of the preceding kernel in the
/// stream has issued its early trigger; a chain or decode kernel then streams weights, and all its other accesses wait
/// for that kernel's memory. Kernels for sm_80 do not support it and launch normally.
typedef struct cusync_how {
  void* stream;
  void* started_event;
  uint32_t programmatic;
} cusync_how;

/// Number of compiled kernels; fills up to `capacity` entries.
uint32_t cusync_kernels(cusync_kernel_info* out, uint32_t capacity);
/// Workers of a kernel that fit on the current device at once.
int32_t cusync_resident(const cusync_kernel_id* id, uint32_t* workers);
/// Prepares kernel `id` for `count` stages, producers before consumers; for a session, for `count` stages of each set.
/// `table` is device memory owned by the caller, count * table_bytes of the kernel's info, aligned to
/// CUSYNC_TABLE_ALIGNMENT (NULL if that is 0). This call fills it before it returns; it must outlive the kernel and
/// must not be shared. All other arguments are copied or only pointed to. Call it before any kernel of the pipeline
/// spins.
///
/// CUSYNC_ERROR_NOT_BUILT: there is no such kernel for this GPU, the kernel does not support a stage's operation, or a
/// part that a decode worker computes in one round has more rows than it has accumulators for.
int32_t cusync_create(const cusync_kernel_id* id, const cusync_stage* stages, uint32_t count, const cusync_work* work,
                      const cusync_sync* sync, void* table, cusync_kernel** out);
int32_t cusync_launch(const cusync_kernel* kernel, const cusync_how* how);
void cusync_destroy(cusync_kernel* kernel);

/// A gate waits until a kernel with a ticket schedule has drawn all tiles of the run: CTAs that are resident on an SM
/// then hold all of them. Gate and kernel each run once in every run of a pipeline.
typedef struct cusync_gate {
  unsigned long long* tickets;  ///< device: the kernel's counter
  unsigned long long* runs;     ///< device: a word used by this gate only, zeroed once
  uint32_t tiles, workers;      ///< of one launch of the kernel
  uint32_t edge, stage;         ///< for the report: the edge to the waiting stage, and that stage
  cusync_report* report;        ///< device pointer of a pinned host record, or NULL
  unsigned long long timeout_ns;  ///< the gate ends after four times this without a draw. 0: the default of 1 s
} cusync_gate;
/// Holds back later work on `stream`. Occupies one thread on one SM, without shared memory.
int32_t cusync_wait_for_start(const cusync_gate* gate, void* stream);

/// ---- auxiliary functions -------------------------------------------------------------------------------------------

/// Size in bytes of a stage's weights in the layout of cusync_repack: `n` output columns, gated or not, k rounded up to
/// 64.
unsigned long long cusync_repacked_bytes(uint32_t operation, uint32_t k, uint32_t n);
/// Repacks the k x n row-major `weights` (for a gated stage the gate's weights, with `up` the others; otherwise `up` is
/// NULL) into `out`, part by part in streaming order, for decode kernels that divide the output into `parts` parts. With
/// `gain` (k elements), row i of the weights is multiplied by gain[i] first. Asynchronous on `stream`.
int32_t cusync_repack(uint32_t operation, uint32_t element, uint32_t k, uint32_t n, uint32_t parts, const void* weights,
                      const void* up, const void* gain, void* out, void* stream);

/// Bytes of scratch memory of a stage of CUSYNC_EXPERTS with m x n outputs.
unsigned long long cusync_experts_scratch(const cusync_experts* experts, uint32_t m, uint32_t n);

/// The Stream-K baseline of the benchmarks: D = act(A B + bias) by CUTLASS's own kernel. `workspace` has
/// `workspace_bytes`; call with workspace NULL to query the size.
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
/// sums = a b with float accumulation on CUDA cores, sharing no code with the kernels above. `largest` is at least the
/// largest magnitude among the partial sums of each sum. a is m x k and b k x n, of `element`; k and n are multiples of
/// 8.
int32_t cusync_reference_product(const void* a, const void* b, uint32_t m, uint32_t n, uint32_t k, uint32_t element, float* sums,
                                 float* largest, void* stream);
/// Interleaves gate and up (each k x n) into packed (k x 2n), groups of 8 columns.
int32_t cusync_pack_gated(const void* gate, const void* up, void* packed, uint32_t k, uint32_t n, void* stream);
/// act(x[:, gate]) * x[:, up] for a packed m x 2n product, floats if `packed_bits` is 32, otherwise `element`: the
/// separate activation kernel that library GEMMs need.
int32_t cusync_gated_activation(const void* packed, uint32_t packed_bits, void* d, uint32_t m, uint32_t n,
                                uint32_t activation, uint32_t element, void* stream);
/// Copies an m x n product of heads of `head_dim` columns into d, rotating the first `rotated` columns: element i of a
/// head's first half and of its second half are a pair, and a row of `angles`, of which there are `positions`, has the
/// cosines of all pairs, then the sines. Row r has position r % tokens, plus lengths[r / tokens] unless `lengths` is NULL;
/// at a position without angles it is copied as it is. With an epsilon above 0, rotated heads are normalized first:
/// divided by the root of their mean square plus epsilon, and multiplied by `query_gain` in the first `queries` columns
/// and by `key_gain` in the others. The product has floats if `product_bits` is 32, otherwise `element`, and may then be
/// d itself.
int32_t cusync_rotate(const void* product, uint32_t product_bits, const void* angles, uint32_t positions,
                      const int32_t* lengths, void* d, uint32_t m, uint32_t n, uint32_t rotated, uint32_t head_dim,
                      uint32_t tokens, float epsilon, const void* query_gain, const void* key_gain, uint32_t queries,
                      uint32_t element, void* stream);
/// Copies row tokens[i] of a table, `vocabulary` x `width` 16-bit elements, to row i of `out`. If a token is negative,
/// drawn[i] is taken in its place (`drawn` may be NULL if none is). A token outside the table gives a row of zeros.
int32_t cusync_embed(const int32_t* tokens, const int32_t* drawn, const void* table, void* out, uint32_t count,
                     uint32_t vocabulary, uint32_t width, void* stream);
/// The cache of a sequence in two forms, each with keys and values of 16-bit elements: pages of 64 tokens in a pool,
/// `pages` x `heads` x 64 x `columns`, and rows, `heads` x `capacity` x `columns`.
typedef struct cusync_paged_cache {
  const int32_t* table;  ///< page of each 64 tokens of the sequence
  void* pool[2];         ///< keys and values
  void* rows[2];         ///< keys and values
  uint32_t pages;
  uint32_t heads;
  uint32_t capacity;
  uint32_t columns;
} cusync_paged_cache;
/// Copies the tokens of `count` entries of the table, from `first` on, from pages to rows or, if `to_pool` is not 0, from
/// rows to pages. An entry that names no page of the pool is left out.
int32_t cusync_copy_pages(const cusync_paged_cache* cache, uint32_t first, uint32_t count, int32_t to_pool,
                          void* stream);
/// How the next token of a sequence is drawn. Tokens are kept whose logit is at least that of the `top_k`-th (0: all),
/// and of these the most likely ones, until their probabilities add up to `top_p` of those kept; tokens with equal
/// logits are kept or left out together.
typedef struct cusync_sampling {
  float temperature;  ///< divides logits; 0: the most likely token; negative: no token is drawn
  float top_p;        ///< 1: all
  uint32_t top_k;     ///< 0: all
  uint32_t seed;
} cusync_sampling;
/// Draws a token from each row of logits, count x pitch, by the first `vocabulary` columns: drawn[i] depends on the row,
/// sampling[i] and positions[i] alone. Of equal candidates the first is drawn.
int32_t cusync_draw(const void* logits, const cusync_sampling* sampling, const int32_t* positions, int32_t* drawn,
                    uint32_t count, uint32_t vocabulary, uint32_t pitch, uint32_t element, void* stream);
/// d = act(x), element-wise, for baselines without a fused epilogue.
int32_t cusync_activation_kernel(const void* x, void* d, unsigned long long count, uint32_t activation,
                                 uint32_t element, void* stream);
/// Ceilings for the floor estimate: the first function reads `bytes` once; the second repeats a satisfied wait and a
/// post `count` times and stores nanoseconds per operation: out[0] (wait), out[1] (post), out[2] (one hand-off between
/// two SMs).
int32_t cusync_stream_read(const void* data, unsigned long long bytes, void* sink, void* stream);
int32_t cusync_measure_semaphores(uint32_t* scratch, uint32_t count, float* out, void* stream);
/// Reads every SM's clock and the global timer (nanoseconds) into out[2 * sm] and out[2 * sm + 1], for SMs below `sms`.
/// Two readings around some work give its mean clock rate; the entry of an SM that ran no CTA is unchanged.
int32_t cusync_read_clocks(unsigned long long* out, uint32_t sms, void* stream);

/// Host-compiled policy arithmetic, the same code that kernels run, for the cpu executor.
void cusync_host_posted_by(const cusync_policy* policy, uint32_t m, uint32_t n, uint32_t* begin, uint32_t* end);
uint32_t cusync_host_posts_of(const cusync_policy* policy, uint32_t slot);
/// Writes up to `capacity` (slot, posts) pairs that k-block `k` must wait for; returns their number.
uint32_t cusync_host_waits(const cusync_edge* edge, uint32_t m, uint32_t n, uint32_t k, uint32_t first,
                           uint32_t k_end, uint32_t* slots, uint32_t* posts, uint32_t capacity);
/// Byte offset of element `at_k` of a feature's weights (`up`: 1 for the up weights of a gated stage) after
/// cusync_repack.
unsigned long long cusync_host_decode_weight(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers,
                                             uint32_t feature, uint32_t up, uint32_t at_k);
/// The k-blocks of a decode stage in the order in which the CTAs of worker `worker` multiply them, in the order of
/// weights (`by_chunks`) or of activations; writes up to `capacity` and returns their number.
uint32_t cusync_host_decode_order(uint32_t operation, uint32_t k, uint32_t n, uint32_t workers, uint32_t chunk_bytes,
                                  uint32_t worker, uint32_t by_chunks, uint32_t* blocks, uint32_t capacity);
/// Maximum distance in chunks between the two warpgroups of a decode CTA, for `slots` activation slots, 1 <<
/// `chunk_shift` k-blocks per chunk and a ring of `max_chunks` chunks.
uint32_t cusync_host_decode_lead(uint32_t slots, uint32_t chunk_shift, uint32_t max_chunks);
/// One attention worker's segment of one (sequence, key/value head): units [begin, end) in global numbering, out of the
/// head's [first, last).
typedef struct cusync_segment {
  uint32_t sequence, head, begin, end, first, last;
  uint32_t parts;  ///< workers that share the head
  uint32_t slab;   ///< slab for this part, if there are others
  uint32_t slab_of_part;  ///< slab in which the combining worker reads this part
} cusync_segment;
/// The segments of worker `worker`, of `sequences` sequences with `lengths`; writes up to `capacity`, in the worker's
/// order, and returns their number. `sums`: scratch memory of 2 * sequences + 2 words.
uint32_t cusync_host_attention_segments(const int32_t* lengths, uint32_t sequences, uint32_t cache_capacity,
                                        uint32_t kv_heads, uint32_t workers, uint32_t worker, uint32_t* sums,
                                        cusync_segment* segments, uint32_t capacity);
void cusync_host_tile_at(const cusync_order* order, uint32_t i, uint32_t* m, uint32_t* n);

#ifdef __cplusplus
}
#endif
