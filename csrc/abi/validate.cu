// SPDX-License-Identifier: MIT OR Apache-2.0
// Validation of requests before any kernel sees them: pointers, alignment, the limits of the kernels, and sizes that
// bound accesses to memory or divide. That tiles, edges and shapes belong together is proved before a plan is launched;
// nothing here repeats it.
#include "abi/kernel.h"
#include "cusync/semaphore.cuh"
#include "kernels/common/notes.cuh"
#include "kernels/decode/attend.h"

namespace cusync::kernels {
namespace {

// Tensor maps and our own index arithmetic take sizes as signed 32-bit integers.
constexpr uint32_t kMaxSize = 1u << 30;

bool valid_policy(cusync_policy const& p) {
  if (p.grid_m == 0 || p.grid_n == 0 || p.slot_count == 0) return false;
  if (p.table) return p.table_posts != nullptr;
  if (p.block_m == 0 || p.block_n == 0 || p.slots_n == 0) return false;
  if (p.width) return p.columns && p.grid_m == 1 && p.slots_n == ceil_div(p.columns, p.width) && p.slots_n == p.slot_count;
  if (p.stride_n > p.grid_n || (p.stride_n && p.stride_n != p.slots_n)) return false;
  uint64_t const rows = ceil_div(p.grid_m, p.block_m);
  uint32_t const columns = p.stride_n ? p.stride_n : ceil_div(p.grid_n, p.block_n);
  return columns == p.slots_n && rows * columns <= p.slot_count;
}

bool valid_order(cusync_order const& o, uint32_t grid_m, uint32_t grid_n) {
  if (o.kind > CUSYNC_ORDER_TABLE || o.grid_m != grid_m || o.grid_n != grid_n) return false;
  if (o.kind == CUSYNC_ORDER_TABLE) return o.table != nullptr;
  bool const rows = o.kind == CUSYNC_ORDER_GROUPED_ROWS, grouped = rows || o.kind == CUSYNC_ORDER_GROUPED_COLUMNS;
  // Tiles of a group are counted in 32 bits.
  return !grouped || (o.group > 0 && uint64_t(o.group) * (rows ? grid_n : grid_m) <= UINT32_MAX);
}

/// Whether the operation multiplies A by B.
bool is_product(uint32_t operation) {
  return operation == CUSYNC_GEMM || operation == CUSYNC_GATED_GEMM || operation == CUSYNC_CONV2D;
}

/// The operands that a stage cannot do without, as bits 1 << role.
uint32_t required(cusync_stage const& s) {
  constexpr uint32_t a = 1 << CUSYNC_OPERAND_A, cache = 1 << CUSYNC_OPERAND_KEYS | 1 << CUSYNC_OPERAND_VALUES;
  switch (s.operation) {
    case CUSYNC_NORM: return a | 1 << CUSYNC_OPERAND_GAIN;
    case CUSYNC_GROUP_NORM: return a | 1 << CUSYNC_OPERAND_GAIN | 1 << CUSYNC_OPERAND_BIAS;
    case CUSYNC_POOL: return a;
    case CUSYNC_EXPERTS: return a | 1 << CUSYNC_OPERAND_ROUTER | 1 << CUSYNC_OPERAND_B | 1 << CUSYNC_OPERAND_UP | 1 << CUSYNC_OPERAND_DOWN;
    case CUSYNC_ATTENTION: return operand(s, CUSYNC_OPERAND_KEYS) ? a | cache : a;
    case CUSYNC_ATTEND: {
      constexpr uint32_t normed = 1 << CUSYNC_OPERAND_ROTARY | 1 << CUSYNC_OPERAND_QUERY_GAIN | 1 << CUSYNC_OPERAND_KEY_GAIN;
      return a | cache | 1 << CUSYNC_OPERAND_LENGTHS | (s.shape.heads.pages ? 1 << CUSYNC_OPERAND_PAGES : 0) |
             (s.shape.heads.norm_epsilon != 0.f ? normed : 0);
    }
    default: return a | 1 << CUSYNC_OPERAND_B;
  }
}

uintptr_t alignment(uint32_t role, bool scalar) {
  switch (role) {
    case CUSYNC_OPERAND_BIAS:
    case CUSYNC_OPERAND_RESIDUAL: return scalar ? 2 : 16;
    case CUSYNC_OPERAND_LENGTHS:
    case CUSYNC_OPERAND_PAGES: return 4;
    default: return 16;
  }
}

/// All memory of a stage. `scalar`: its epilogue reads and writes single elements.
bool valid_memory(cusync_stage const& s, bool scalar) {
  if (s.operand_count > CUSYNC_MAX_OPERANDS) return false;
  uint32_t given = 0;
  for (uint32_t i = 0; i < s.operand_count; ++i) {
    cusync_operand const& o = s.operands[i];
    if (o.role > CUSYNC_OPERAND_ROUTER || given >> o.role & 1 || o.read_at > CUSYNC_READ_IN_EPILOGUE) return false;
    if (!o.data || !aligned(o.data, alignment(o.role, scalar))) return false;
    given |= 1u << o.role;
  }
  return (required(s) & ~given) == 0 && s.out && aligned(s.out, scalar ? 2 : 16);
}

/// Sizes in the range of kernels and tensor maps. Rows are whole vectors of 16 bytes, except where `scalar`.
bool valid_sizes(cusync_stage const& s, bool scalar) {
  if (!s.m || !s.n || !s.k || s.m > kMaxSize || s.n > kMaxSize / 2 || s.k > kMaxSize) return false;
  if (s.activation > CUSYNC_TANH || s.residual_first > 1) return false;
  return (scalar || s.n % 8 == 0) && (!is_product(s.operation) || s.k % 8 == 0);
}

/// Images without empty axes, whose windows stay inside. Tiles are whole rows of pixels. Taps are `dilation_rows` and
/// `dilation_cols` pixels apart.
bool valid_images(cusync_stage const& s, uint32_t dilation_rows = 1, uint32_t dilation_cols = 1) {
  cusync_images const& i = s.shape.images;
  for (uint32_t const size : {i.height, i.width, i.channels, i.out_height, i.out_width, i.filter_rows, i.filter_cols,
                              i.stride_rows, i.stride_cols})
    if (size == 0 || size > kMaxSize) return false;
  if (i.padding_rows > kMaxSize || i.padding_cols > kMaxSize || i.channels % 8 || s.tiles.rows % i.out_width) return false;
  auto const fits = [](uint64_t in, uint64_t padding, uint64_t reach, uint64_t stride, uint64_t out) {
    return in + 2 * padding >= reach && (in + 2 * padding - reach) / stride + 1 == out;
  };
  auto const reach = [](uint64_t filter, uint64_t dilation) { return (filter - 1) * dilation + 1; };
  return fits(i.height, i.padding_rows, reach(i.filter_rows, dilation_rows), i.stride_rows, i.out_height) &&
         fits(i.width, i.padding_cols, reach(i.filter_cols, dilation_cols), i.stride_cols, i.out_width) &&
         s.m % (uint64_t(i.out_height) * i.out_width) == 0;
}

/// Heads that kernels support.
bool valid_heads(cusync_heads const& h) {
  if (!h.kv_heads || !h.query_heads || h.query_heads > 1024 || h.query_heads % h.kv_heads) return false;
  if (!(h.scale > 0.f) || !(h.softcap >= 0.f) || h.window > 1u << 22) return false;
  return h.head_dim && h.head_dim % 8 == 0 && h.head_dim <= 256 && h.capacity <= kMaxSize && h.tokens && h.tokens <= 1u << 22;
}

/// Whole sequences, which the kernel divides itself.
bool valid_prompt(cusync_stage const& s) {
  cusync_heads const& h = s.shape.heads;
  bool const cached = operand(s, CUSYNC_OPERAND_KEYS) || operand(s, CUSYNC_OPERAND_VALUES);
  if (!valid_heads(h) || (h.window && !h.causal) || s.m % h.tokens || h.pages || (cached ? h.capacity < h.tokens : h.capacity != 0)) return false;
  if (operand(s, CUSYNC_OPERAND_LENGTHS) && (!cached || !h.causal || h.tokens % CUSYNC_PAGE_TOKENS)) return false;
  return s.n == h.query_heads * h.head_dim;
}

/// The next token of each sequence. Rows of the cache are counted in 32 bits.
bool valid_attention(cusync_stage const& s) {
  cusync_heads const& h = s.shape.heads;
  if (!valid_heads(h) || !decode::takes_heads(h.query_heads / h.kv_heads, h.head_dim) || !h.capacity || s.n != h.query_heads * h.head_dim) return false;
  uint64_t const sequence = ceil_div(h.capacity, CUSYNC_PAGE_TOKENS) * uint64_t(CUSYNC_PAGE_TOKENS) * h.kv_heads;
  return s.m * sequence <= kMaxSize && uint64_t(h.pages) * h.kv_heads * CUSYNC_PAGE_TOKENS <= kMaxSize;
}

/// A tile is a group of an image.
bool valid_groups(cusync_stage const& s) {
  cusync_group_norm const& g = s.shape.group_norm;
  if (!g.pixels || !g.groups || g.activation > CUSYNC_TANH || !(g.epsilon > 0.f)) return false;
  return s.m % g.pixels == 0 && s.n % g.groups == 0 && s.tiles.rows == g.pixels && s.tiles.columns == s.n / g.groups;
}

/// Groups that divide the channels. The taps of a depthwise filter fit in shared memory.
bool valid_grouped_conv(cusync_stage const& s) {
  cusync_grouped_conv const& g = s.shape.grouped_conv;
  cusync_images const& i = g.images;
  if (!g.groups || !g.dilation_rows || !g.dilation_cols || g.dilation_rows > kMaxSize || g.dilation_cols > kMaxSize) return false;
  if (!valid_images(s, g.dilation_rows, g.dilation_cols) || i.channels % g.groups || s.n % g.groups) return false;
  uint64_t const taps = uint64_t(i.filter_rows) * i.filter_cols;
  bool const depthwise = i.channels == g.groups && s.n == g.groups;
  return taps * (i.channels / g.groups) == s.k && s.tiles.columns == s.n && (!depthwise || taps <= 255);
}

/// Experts that fit in the lists, whose places are counted in 32 bits. Weights are rows of tensor maps.
bool valid_experts(cusync_stage const& s) {
  cusync_experts const& e = s.shape.experts;
  if (!e.experts || e.experts > CUSYNC_MAX_EXPERTS || !e.top_k || e.top_k > CUSYNC_MAX_TOP_K || e.top_k > e.experts) return false;
  if (!e.features || e.features % 8 || e.features > kMaxSize || e.normalized > 1 || s.k != s.n) return false;
  uint64_t const widest = e.features > s.n ? e.features : s.n;
  return uint64_t(s.m) * e.top_k <= kMaxSize && e.experts * widest <= kMaxSize && s.tiles.columns == s.n;
}

/// The limits of an operation's kernels. `normalizes`: whether products can normalize A.
bool valid_shape(cusync_stage const& s, uint32_t family, bool normalizes) {
  bool const decode = family == CUSYNC_FAMILY_DECODE;
  cusync_images const& i = s.shape.images;
  switch (s.operation) {
    case CUSYNC_CONV2D: return !decode && valid_images(s) && uint64_t(i.filter_rows) * i.filter_cols * i.channels == s.k;
    case CUSYNC_POOL: return !decode && valid_images(s) && i.channels == s.n;
    case CUSYNC_GROUPED_CONV: return !decode && valid_grouped_conv(s);
    case CUSYNC_NORM: {
      bool const plain = !s.shape.norm.one_plus_gain && !operand(s, CUSYNC_OPERAND_RESIDUAL);
      return s.shape.norm.one_plus_gain <= 1 && (family == CUSYNC_FAMILY_CHAIN ? plain : !decode || s.n <= CUSYNC_MAX_NORMED);
    }
    case CUSYNC_GROUP_NORM: return !decode && valid_groups(s);
    case CUSYNC_EXPERTS: return !decode && valid_experts(s);
    case CUSYNC_ATTENTION: return !decode && valid_prompt(s);
    case CUSYNC_ATTEND: return decode && valid_attention(s);
    case CUSYNC_GEMM:
    case CUSYNC_GATED_GEMM: return s.shape.norm.epsilon == 0.f || (normalizes && s.shape.norm.epsilon > 0.f && !s.shape.norm.centred);
    default: return true;
  }
}

/// The planned tiles cover the output, and those of a product are the kernel's.
bool valid_tiles(cusync_stage const& s, cusync_kernel_id const& id) {
  cusync_tiles const& t = s.tiles;
  if (!t.rows || !t.columns || !t.k_blocks || t.rows > kMaxSize || t.columns > kMaxSize) return false;
  if (t.grid_m != ceil_div(s.m, t.rows) || t.grid_n != ceil_div(packed_columns(s), t.columns)) return false;
  if (is_product(s.operation) && (t.columns != id.tile_n || (t.rows != id.tile_m && s.operation != CUSYNC_CONV2D))) return false;
  return uint64_t(t.grid_m) * t.grid_n <= kMaxSize;
}

/// Edges feed operands that kernels wait for and that the stage has.
bool valid_edges(cusync_stage const& s) {
  if (s.wait_count > CUSYNC_MAX_WAITS || s.post_count > CUSYNC_MAX_POSTS) return false;
  for (uint32_t i = 0; i < s.wait_count; ++i) {
    cusync_edge const& e = s.waits[i];
    if (!valid_policy(e.policy) || e.wait_at > CUSYNC_WAIT_AT_START || !e.tile_rows || !e.tile_cols) return false;
    if (e.operand > CUSYNC_OPERAND_RESIDUAL || !operand(s, e.operand)) return false;
  }
  for (uint32_t i = 0; i < s.post_count; ++i)
    if (!valid_policy(s.posts[i])) return false;
  return true;
}

/// Posts are per tile of the stage's own grid.
bool posts_by_tile(cusync_stage const& s, uint32_t grid_m, uint32_t grid_n) {
  for (uint32_t i = 0; i < s.post_count; ++i)
    if (s.posts[i].grid_m != grid_m || s.posts[i].grid_n != grid_n) return false;
  return true;
}

bool valid_sync(Request const& r) {
  cusync_test const& test = r.sync.test;
  if (test.starve > 1 || test.skip_waits > 1 || test.stream_only > 1) return false;
  if (test.delays.limit_ns > CUSYNC_MAX_DELAY_NS) return false;
  if (test.notes.capacity && (!test.notes.list || !test.notes.count)) return false;
  bool coupled = false;
  for (uint32_t s = 0; s < r.count; ++s) coupled |= r.stages[s].wait_count || r.stages[s].post_count;
  return !coupled || (r.sync.semaphores && aligned(r.sync.semaphores, 4));
}

bool has_tickets(cusync_sync const& sync) { return sync.tickets && aligned(sync.tickets, 8); }

/// A single stage: tiles in an order.
bool valid_order_work(Request const& r, uint32_t grid_m, uint32_t grid_n) {
  cusync_work const& w = r.work;
  if (r.count != 1 || w.source > CUSYNC_SOURCE_TICKETS || w.workers > kMaxSize) return false;
  bool const draws = w.source == CUSYNC_SOURCE_TICKETS || r.stages[0].wait_count || r.stages[0].post_count;
  return valid_order(w.order, grid_m, grid_n) && (!draws || has_tickets(r.sync));
}

/// Mailboxes, and the requirements of their single list: item numbers have 20 bits, and there are no slabs.
bool valid_mail(cusync_work const& w) {
  cusync_mail const& mail = w.mail;
  if (w.source != CUSYNC_SOURCE_MAIL) return !mail.words;
  bool const memory = mail.words && aligned(mail.words, 8) && mail.done && aligned(mail.done, 4) && mail.here && aligned(mail.here, 4);
  bool const leaves = mail.left && aligned(mail.left, 4) && mail.awake && aligned(mail.awake, 4) && mail.idle_ns <= kDefaultTimeoutNs;
  bool const sends = mail.ahead && mail.ahead < CUSYNC_MAIL && w.workers > 1 && w.workers <= 256;
  return memory && (mail.idle_ns ? leaves : sends) && w.length < CUSYNC_NO_ITEM && !w.slab_count;
}

bool valid_lists(Request const& r) {
  cusync_work const& w = r.work;
  bool const one = w.source == CUSYNC_SOURCE_DRAWN || w.source == CUSYNC_SOURCE_MAIL;
  if ((w.source != CUSYNC_SOURCE_LISTS && !one) || !valid_mail(w)) return false;
  // Clusters cannot draw items: each of their CTAs would draw a different one.
  if (one && r.kernel.id.cluster_m * r.kernel.id.cluster_n != 1) return false;
  bool const lists = w.items && aligned(w.items, 16) && w.length && w.workers && w.workers <= 1u << 16;
  bool const slabs = w.slab_count == 0 || (w.slabs && aligned(w.slabs, 16) && w.slab_flags && aligned(w.slab_flags, 4));
  return lists && slabs && r.sync.epochs && aligned(r.sync.epochs, 4) && has_tickets(r.sync);
}

/// GPUs with an area each, which holds the words of all sums over them.
bool valid_group(Request const& r) {
  cusync_group const& g = r.sync.group;
  if (g.devices > CUSYNC_MAX_DEVICES || (g.devices && g.device >= g.devices)) return false;
  for (uint32_t d = 0; d < g.devices; ++d)
    if (!g.areas[d] || !aligned(g.areas[d], 8)) return false;
  // A session's jobs are not counted by the group.
  if (g.devices && (!g.epochs || !aligned(g.epochs, 4) || r.work.jobs.sets)) return false;
  for (uint32_t s = 0; s < r.count; ++s) {
    cusync_stage const& stage = r.stages[s];
    if (!g.devices || g.received[s] == CUSYNC_NOT_SUMMED) continue;
    uint64_t const words = uint64_t(2) * g.devices * stage.m * stage.n;
    if (stage.operation != CUSYNC_GEMM || stage.activation > CUSYNC_RELU || stage.shape.norm.epsilon != 0.f) return false;
    if (g.received[s] + words > UINT32_MAX) return false;
  }
  return true;
}

bool valid_shares(Request const& r) {
  cusync_work const& w = r.work;
  if (w.source != CUSYNC_SOURCE_SHARES || !w.workers || w.workers > 1024 || !valid_group(r)) return false;
  if (w.tuning.activation_slots % 4 || w.tuning.activation_slots > 64) return false;
  uint32_t attentions = 0;
  cusync_stage const* first = nullptr;
  for (uint32_t s = 0; s < r.count; ++s) {
    cusync_stage const& stage = r.stages[s];
    if (stage.operation != CUSYNC_ATTEND) continue;
    if (!first) first = &stage;
    cusync_heads const &h = stage.shape.heads, &same = first->shape.heads;
    if (h.capacity != same.capacity || h.kv_heads != same.kv_heads) return false;
    if (data_of(stage, CUSYNC_OPERAND_LENGTHS) != data_of(*first, CUSYNC_OPERAND_LENGTHS)) return false;
    ++attentions;
  }
  if (w.slab_count < attentions * 2 * w.workers) return false;
  if (attentions && !(w.slabs && aligned(w.slabs, 16) && w.slab_flags && aligned(w.slab_flags, 4))) return false;
  return r.sync.epochs && aligned(r.sync.epochs, 4);
}

/// The slots of a decode kernel's stage: the column tiles of a product, or a slot for each column of its tiles.
bool valid_slots(cusync_policy const& p, cusync_stage const& s) {
  if (is_product(s.operation)) return p.width == CUSYNC_COLUMN_TILE && p.columns == s.n;
  return !p.width && !p.table && !p.stride_n && p.block_m == s.m && p.block_n == 1;
}

/// Additional requirements of decode kernels on a stage: it waits only for operand A, produced by the earlier stage that
/// posts to these slots.
bool valid_share(Request const& r, uint32_t index) {
  cusync_stage const& s = r.stages[index];
  uint32_t const width = r.kernel.id.width, workers = r.work.workers;
  bool const attends = s.operation == CUSYNC_ATTEND;
  cusync_heads const& heads = s.shape.heads;
  if (attends && !(heads.norm_epsilon >= 0.f)) return false;
  uint32_t const read = attends ? (heads.query_heads + 2 * heads.kv_heads) * heads.head_dim : s.k;  // columns of A
  if (s.m != r.stages[0].m || s.m > width || s.n > 1u << 24 || read > 1u << 24) return false;
  // The index arithmetic of decode/attend.h, decode/layout.h and decode/share.h is 32-bit.
  uint64_t const units = attends ? uint64_t(s.m) * heads.kv_heads * ceil_div(heads.capacity, CUSYNC_PAGE_TOKENS) : 0;
  if ((units + 1) * workers >> 32) return false;
  if (s.rounds > CUSYNC_MAX_STAGES || (is_product(s.operation) && s.round >= s.rounds)) return false;
  uint64_t const parts = uint64_t(workers) * s.rounds;
  if (parts > CUSYNC_MAX_PARTS || (s.n + 1) * parts >> 32) return false;
  if (uint64_t(ceil_div(read, r.kernel.tile_k)) * workers * workers >> 32) return false;
  if (s.wait_count > 1 || s.post_count > 1) return false;
  // Attention has one column of tiles per head; normalizations have single-row tiles.
  bool const product = is_product(s.operation);
  if (!posts_by_tile(s, product ? 1 : s.m, product ? workers * s.rounds : attends ? heads.kv_heads : 1)) return false;
  if (s.post_count && !valid_slots(s.posts[0], s)) return false;
  void const* const a = data_of(s, CUSYNC_OPERAND_A);
  if (a == s.out) return false;
  if (s.wait_count == 0) return true;
  if (s.waits[0].operand != CUSYNC_OPERAND_A) return false;
  for (uint32_t p = 0; p < index; ++p) {
    cusync_stage const& producer = r.stages[p];
    if (producer.post_count && producer.posts[0].slot_base == s.waits[0].policy.slot_base)
      return valid_slots(s.waits[0].policy, producer) && s.waits[0].policy.grid_n == producer.posts[0].grid_n &&
             producer.n == read && producer.out == a && !(attends && producer.operation > CUSYNC_GATED_GEMM);
  }
  return false;
}

/// Whether two sets of a session differ only in pointers: their kernel reads no more of the others.
bool alike(cusync_stage const& x, cusync_stage const& y) {
  return x.operation == y.operation && x.m == y.m && x.n == y.n && x.k == y.k && x.round == y.round &&
         x.rounds == y.rounds && x.operand_count == y.operand_count;
}

/// Additional requirements of a session; other kernels have no mailbox.
bool valid_jobs(Request const& r) {
  cusync_jobs const& jobs = r.work.jobs;
  if (!jobs.sets) return !jobs.mailbox && !jobs.relay;
  if (r.kernel.id.family != CUSYNC_FAMILY_DECODE || r.sync.test.stream_only) return false;
  if (jobs.sets > CUSYNC_MAX_BOUND || jobs.sets * r.count > CUSYNC_MAX_BOUND) return false;
  if (!jobs.idle_ns || jobs.idle_ns > kDefaultTimeoutNs) return false;
  for (uint32_t i = r.count; i < jobs.sets * r.count; ++i)
    if (!alike(r.stages[i], r.stages[i % r.count])) return false;
  bool const memory = jobs.mailbox && aligned(jobs.mailbox, 8) && jobs.relay && aligned(jobs.relay, 8);
  return memory && jobs.launches && aligned(jobs.launches, 4);
}

bool valid_table(Request const& r) {
  return !r.kernel.table_bytes || (r.table && aligned(r.table, CUSYNC_TABLE_ALIGNMENT));
}

/// A stage that neither waits nor posts; its kernel records nothing.
bool valid_alone(Request const& r) {
  cusync_stage const& s = r.stages[0];
  bool const scratch = r.work.scratch && aligned(r.work.scratch, CUSYNC_TABLE_ALIGNMENT);
  if (s.operation == CUSYNC_EXPERTS && !scratch) return false;
  return !s.wait_count && !s.post_count && !r.sync.trace && !r.sync.test.notes.capacity && r.work.source == CUSYNC_SOURCE_ORDER;
}

bool valid(Request const& r) {
  cusync_kernel_id const& id = r.kernel.id;
  bool const decode = id.family == CUSYNC_FAMILY_DECODE, normalizes = id.operations >> CUSYNC_INPUT_NORM & 1;
  if (!r.stages || !r.count || r.count > r.kernel.stages || !valid_sync(r) || !valid_table(r)) return false;
  for (uint32_t i = 0; i < r.count; ++i) {
    cusync_stage const& s = r.stages[i];
    bool const scalar = decode && is_product(s.operation);
    if (!valid_memory(s, scalar) || !valid_sizes(s, scalar) || !valid_edges(s)) return false;
    if ((!decode && !valid_tiles(s, id)) || !valid_shape(s, id.family, normalizes)) return false;
    if (decode) continue;
    if (!posts_by_tile(s, s.tiles.grid_m, s.tiles.grid_n)) return false;
    if (id.family != CUSYNC_FAMILY_CHAIN && !valid_order_work(r, s.tiles.grid_m, s.tiles.grid_n)) return false;
  }
  if (id.family == CUSYNC_FAMILY_CHAIN) return valid_lists(r);
  if (!decode) return id.family != CUSYNC_FAMILY_ALONE || valid_alone(r);
  if (!valid_shares(r)) return false;
  for (uint32_t i = 0; i < r.count; ++i)
    if (!valid_share(r, i)) return false;
  return true;
}

}  // namespace

int32_t validate(Request const& r) {
  for (uint32_t i = 0; r.stages && i < r.count; ++i) {
    uint32_t const operation = r.stages[i].operation;
    if (operation > CUSYNC_EXPERTS || operation == CUSYNC_INPUT_NORM) return CUSYNC_ERROR_BAD_ARGUMENT;
    if (!(r.kernel.id.operations >> operation & 1)) return CUSYNC_ERROR_NOT_BUILT;
  }
  if (!valid(r) || !valid_jobs(r)) return CUSYNC_ERROR_BAD_ARGUMENT;
  for (uint32_t set = 1; set < r.work.jobs.sets; ++set)
    if (!valid({r.kernel, r.stages + set * r.count, r.count, r.work, r.sync, r.table})) return CUSYNC_ERROR_BAD_ARGUMENT;
  return has_delays(r.sync.test.delays) && has_notes(r.sync.test.notes) ? CUSYNC_OK : CUSYNC_ERROR_NOT_BUILT;
}

}  // namespace cusync::kernels
