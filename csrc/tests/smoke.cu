// SPDX-License-Identifier: MIT OR Apache-2.0
// Smoke test of the kernel library through its C ABI, without Rust: single GEMMs of ragged shapes and all epilogues,
// edges on every operand, and the two MLPs under each way of launching, against the float reference.
//   smoke [arch] [starve]      arch: 90 (default) or 80; exits 1 when anything is wrong
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "abi/cusync.h"
#include "cusync/policy.hpp"

namespace {

int failures = 0;
uint32_t arch = CUSYNC_SM90A;

void check_cuda(cudaError_t error, char const* what, int line) {
  if (error == cudaSuccess) return;
  std::printf("FATAL line %d: %s: %s\n", line, what, cudaGetErrorString(error));
  std::exit(2);
}
void check_status(int32_t status, char const* what, int line) {
  if (status == CUSYNC_OK) return;
  std::printf("FATAL line %d: %s: status %d\n", line, what, status);
  std::exit(2);
}
#define CUDA(call) check_cuda(call, #call, __LINE__)
#define OK(call) check_status(call, #call, __LINE__)

/// Device memory of 16-bit elements.
struct Tensor {
  void* data = nullptr;
  size_t count = 0;
  uint32_t element = CUSYNC_F16;
  Tensor() = default;
  Tensor(size_t n, uint32_t type) : count(n), element(type) { CUDA(cudaMalloc(&data, n * 2)); }
  Tensor(Tensor&& other) noexcept { *this = static_cast<Tensor&&>(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(data, other.data), std::swap(count, other.count), std::swap(element, other.element);
    return *this;
  }
  ~Tensor() { cudaFree(data); }
  Tensor& random(float scale, uint32_t seed) {
    OK(cusync_fill_random(data, count, element, scale, seed, nullptr));
    return *this;
  }
  void poison(cudaStream_t stream = nullptr) { CUDA(cudaMemsetAsync(data, 0xff, count * 2, stream)); }  // NaNs
};

struct Floats {
  float* data = nullptr;
  explicit Floats(size_t n) { CUDA(cudaMalloc(&data, n * 4)); }
  Floats(Floats const&) = delete;
  ~Floats() { cudaFree(data); }
};

/// Relative error of `x` against `reference`, in the Frobenius norm.
double relative_error(Tensor const& x, Floats const& reference) {
  static Floats sums(4);
  CUDA(cudaMemset(sums.data, 0, 16));
  OK(cusync_compare(x.data, reference.data, x.count, x.element, sums.data, nullptr));
  float host[3];
  CUDA(cudaMemcpy(host, sums.data, sizeof host, cudaMemcpyDeviceToHost));
  return std::sqrt(double(host[0]) / double(host[1]));
}

void judge(char const* what, double error) {
  bool const good = error < 2e-3;  // also false for a NaN
  if (!good) ++failures;
  std::printf("%s %-72s %.2e\n", good ? "ok  " : "FAIL", what, error);
}

struct Tile {
  uint32_t m, n;
};

/// One stage with the kernel that runs it.
struct Args {
  cusync_kernel_id id{};
  cusync_stage stage{};
  cusync_work work{};
  cusync_sync sync{};

  bool gated() const { return stage.operation == CUSYNC_GATED_GEMM; }
  Args& operand(uint32_t role, void const* data) {
    bool const epilogue = role == CUSYNC_OPERAND_BIAS || role == CUSYNC_OPERAND_RESIDUAL;
    uint32_t const when = epilogue ? CUSYNC_READ_IN_EPILOGUE : CUSYNC_READ_IN_K_LOOP;
    stage.operands[stage.operand_count++] = {data, role, when};
    return *this;
  }
};

/// n: columns of B, gate and up side by side when gated.
Args gemm_args(uint32_t m, uint32_t n, uint32_t k, Tile tile, bool gated, uint32_t element) {
  Args a;
  uint32_t const operation = gated ? CUSYNC_GATED_GEMM : CUSYNC_GEMM;
  a.id = {CUSYNC_FAMILY_GEMM, arch, 1u << operation, element, tile.m, tile.n, 1, 1, 0};
  a.stage.operation = operation;
  a.stage.m = m, a.stage.n = gated ? n / 2 : n, a.stage.k = {k, 0, k};
  a.work.order.kind = CUSYNC_ORDER_GROUPED_ROWS, a.work.order.group = 8;  // a column of B serves 8 tiles while L2 has it
  a.work.order.grid_m = cusync::ceil_div(m, tile.m), a.work.order.grid_n = cusync::ceil_div(n, tile.n);
  return a;
}

void reference(Args const& a, Floats const& d, uint32_t round) {
  OK(cusync_reference_gemm(&a.stage, a.id.element, d.data, round, nullptr));
}

uint32_t tile_k() { return arch == CUSYNC_SM90A ? 64 : 32; }

/// Pinned report, tickets and semaphores of one pipeline.
struct Sync {
  unsigned long long* tickets;
  uint32_t* semaphores;
  cusync_report *report, *report_on_device;
  Sync() {
    CUDA(cudaMalloc(&tickets, 8 * 8));
    CUDA(cudaMemset(tickets, 0, 8 * 8));
    CUDA(cudaMalloc(&semaphores, 4 << 16));
    CUDA(cudaMemset(semaphores, 0, 4 << 16));
    CUDA(cudaHostAlloc(&report, sizeof *report, cudaHostAllocMapped));
    std::memset(report, 0, sizeof *report);
    CUDA(cudaHostGetDevicePointer(reinterpret_cast<void**>(&report_on_device), report, 0));
  }
  ~Sync() {
    cudaFree(tickets), cudaFree(semaphores), cudaFreeHost(report);
  }
  void join(Args& a, uint32_t stage) const {
    a.work.source = CUSYNC_SOURCE_TICKETS, a.sync.tickets = tickets + stage, a.sync.semaphores = semaphores;
    a.sync.report = report_on_device, a.stage.index = stage;
  }
};

enum class Kind { kTile, kRow, kBatched, kStrided };

/// Adds an edge from `producer` to `consumer`'s operand of a role, slots from `base` on; returns the number of slots.
uint32_t connect(Args& producer, Args& consumer, uint32_t role, Kind kind, uint32_t base,
                 uint32_t wait_at = CUSYNC_WAIT_PER_K_BLOCK) {
  cusync_policy p{};
  p.grid_m = producer.work.order.grid_m, p.grid_n = producer.work.order.grid_n;
  p.block_m = 1, p.block_n = kind == Kind::kRow ? p.grid_n : kind == Kind::kBatched ? 2 : 1;
  if (kind == Kind::kStrided) p.stride_n = cusync::min_u32(3, p.grid_n);
  p.slots_n = p.stride_n ? p.stride_n : cusync::ceil_div(p.grid_n, p.block_n);
  p.slot_base = base, p.slot_count = p.grid_m * p.slots_n;
  producer.stage.posts[producer.stage.post_count++] = p;

  cusync_edge e{};
  e.policy = p, e.id = base, e.operand = role, e.wait_at = wait_at;
  e.tile_rows = producer.id.tile_m, e.tile_cols = producer.gated() ? producer.id.tile_n / 2 : producer.id.tile_n;
  e.tensor_rows = producer.stage.m, e.tensor_cols = producer.stage.n;
  int32_t const k = int32_t(tile_k()), m = int32_t(consumer.id.tile_m), n = int32_t(consumer.id.tile_n);
  e.k_blocks = cusync::ceil_div(consumer.stage.k.most, uint32_t(k));
  cusync_axis const by_m{m, 0, 0, 0, m}, by_n{0, n, 0, 0, n}, by_k{0, 0, k, 0, k}, whole{0, 0, 0, 0, 1};
  e.rows = role == CUSYNC_OPERAND_B ? by_k : role == CUSYNC_OPERAND_BIAS ? whole : by_m;
  e.cols = role == CUSYNC_OPERAND_A ? by_k : by_n;
  consumer.stage.waits[consumer.stage.wait_count++] = e;
  return p.slot_count;
}

struct Gemm {
  cusync_kernel* handle = nullptr;
  explicit Gemm(Args const& a) { OK(cusync_create(&a.id, &a.stage, 1, &a.work, &a.sync, nullptr, &handle)); }
  Gemm(Gemm const&) = delete;
  ~Gemm() { cusync_destroy(handle); }
  void launch(cudaStream_t stream, bool programmatic = false, cudaEvent_t completion = nullptr) const {
    cusync_how const how{stream, completion, programmatic};
    OK(cusync_launch(handle, &how));
  }
};

void single(uint32_t m, uint32_t n, uint32_t k, Tile tile, bool gated, uint32_t element, uint32_t activation,
            bool bias, bool residual, bool residual_first = false) {
  uint32_t const columns = gated ? n / 2 : n;
  Tensor a(size_t(m) * k, element), b(size_t(k) * n, element), d(size_t(m) * columns, element), v(n, element),
      r(size_t(m) * columns, element);
  a.random(1.f, 1), b.random(1.f / std::sqrt(float(k)), 2), v.random(1.f, 3), r.random(1.f, 4), d.poison();
  Args args = gemm_args(m, n, k, tile, gated, element);
  args.operand(CUSYNC_OPERAND_A, a.data).operand(CUSYNC_OPERAND_B, b.data);
  args.stage.out = d.data, args.stage.activation = activation, args.stage.residual_first = residual_first;
  if (bias) args.operand(CUSYNC_OPERAND_BIAS, v.data);
  if (residual) args.operand(CUSYNC_OPERAND_RESIDUAL, r.data);
  Floats want(d.count);
  reference(args, want, 0);
  Gemm gemm(args);
  gemm.launch(nullptr);
  CUDA(cudaDeviceSynchronize());
  char name[128];
  std::snprintf(name, sizeof name, "gemm %ux%ux%u tile %ux%u %s%s act %u%s%s", m, n, k, tile.m, tile.n,
                element == CUSYNC_F16 ? "f16" : "bf16", gated ? " gated" : "", activation, bias ? " bias" : "",
                residual_first ? " residual first" : residual ? " residual" : "");
  judge(name, relative_error(d, want));
}

/// Two stages; the first one's output is the second's operand of a role. 20 runs, launched programmatically.
void operand_edge(uint32_t role, Kind kind, uint32_t wait_at, Tile tile) {
  uint32_t const m = role == CUSYNC_OPERAND_BIAS ? 1 : 600, size = 1000;
  Tensor a(size_t(size) * size, CUSYNC_F16), b(size_t(size) * size, CUSYNC_F16), y(size_t(size) * size, CUSYNC_F16),
      z(size_t(600) * size, CUSYNC_F16);
  a.random(1.f, 1), b.random(0.05f, 2);
  bool const is_b = role == CUSYNC_OPERAND_B;
  Args first = gemm_args(is_b ? size : m, size, size, tile, false, CUSYNC_F16);
  Args second = gemm_args(600, size, size, tile, false, CUSYNC_F16);
  first.operand(CUSYNC_OPERAND_A, a.data).operand(CUSYNC_OPERAND_B, b.data);
  first.stage.out = y.data, second.stage.out = z.data;
  second.operand(CUSYNC_OPERAND_A, role == CUSYNC_OPERAND_A ? y.data : a.data);
  second.operand(CUSYNC_OPERAND_B, is_b ? y.data : b.data);
  if (role == CUSYNC_OPERAND_BIAS || role == CUSYNC_OPERAND_RESIDUAL) second.operand(role, y.data);
  Sync sync;
  connect(first, second, role, kind, 0, wait_at);
  sync.join(first, 0), sync.join(second, 1);
  Gemm up(first), down(second);
  Floats want(z.count);
  double worst = 0;
  for (int run = 0; run < 20; ++run) {
    y.poison(), z.poison();
    up.launch(nullptr), down.launch(nullptr, arch == CUSYNC_SM90A);
    CUDA(cudaDeviceSynchronize());
    reference(second, want, 0);
    double const error = relative_error(z, want);
    if (!(error <= worst)) worst = error;
  }
  char name[128];
  std::snprintf(name, sizeof name, "edge on operand %u policy %d wait_at %u tile %ux%u", role, int(kind), wait_at,
                tile.m, tile.n);
  judge(name, worst);
}

/// Both MLP stages and the ways to run them.
struct Mlp {
  uint32_t m, h, inner;
  bool gated;
  Tile tile;
  Tensor x, y, z;
  std::vector<Tensor> w1, w2;  // rotated, so that L2 does not serve weights
  Floats y_reference, z_reference;
  cudaStream_t streams[2];
  cudaEvent_t started, done, begin, end;
  static constexpr int kSets = 3;

  Mlp(uint32_t m_, uint32_t h_, uint32_t inner_, bool gated_, Tile tile_)
      : m(m_), h(h_), inner(inner_), gated(gated_), tile(tile_), x(size_t(m) * h, CUSYNC_F16),
        y(size_t(m) * inner, CUSYNC_F16), z(size_t(m) * h, CUSYNC_F16), y_reference(y.count), z_reference(z.count) {
    x.random(1.f, 7);
    for (uint32_t i = 0; i < kSets; ++i) {
      w1.emplace_back(size_t(h) * inner * (gated ? 2 : 1), CUSYNC_F16);
      w2.emplace_back(size_t(h) * inner, CUSYNC_F16);
      w1.back().random(2.f / std::sqrt(float(h)), 11 + i), w2.back().random(2.f / std::sqrt(float(inner)), 21 + i);
    }
    for (auto& s : streams) CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&started, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CUDA(cudaEventCreate(&begin)), CUDA(cudaEventCreate(&end));
    Args const up = up_args(0), down = down_args(0);
    reference(up, y_reference, 1);
    // The reference's second stage reads the 16-bit product of its own kind of first stage.
    Gemm first(up);
    first.launch(nullptr);
    CUDA(cudaDeviceSynchronize());
    double const error = relative_error(y, y_reference);
    if (!(error < 2e-3)) ++failures, std::printf("FAIL first stage %.2e\n", error);
    reference(down, z_reference, 0);
    CUDA(cudaDeviceSynchronize());
  }
  ~Mlp() {
    for (auto s : streams) cudaStreamDestroy(s);
    for (auto e : {started, done, begin, end}) cudaEventDestroy(e);
  }

  Args up_args(int set) const {
    Args a = gemm_args(m, gated ? 2 * inner : inner, h, tile, gated, CUSYNC_F16);
    a.operand(CUSYNC_OPERAND_A, x.data).operand(CUSYNC_OPERAND_B, w1[set].data);
    a.stage.out = y.data, a.stage.activation = gated ? CUSYNC_IDENTITY : CUSYNC_GELU_TANH;
    return a;
  }
  Args down_args(int set) const {
    Args a = gemm_args(m, h, inner, tile, false, CUSYNC_F16);
    a.operand(CUSYNC_OPERAND_A, y.data).operand(CUSYNC_OPERAND_B, w2[set].data);
    a.stage.out = z.data;
    return a;
  }

  enum class How { kSerial, kStreams, kProgrammatic };

  /// One way of running the chain: its own semaphores, and a stage pair for each weight set.
  struct Variant {
    char const* name;
    How how;
    bool skip_waits = false;
    Sync sync;
    std::vector<std::unique_ptr<Gemm>> up, down;
    std::vector<double> times;
    double worst = 0;
  };
  std::vector<std::unique_ptr<Variant>> variants;

  void add(char const* name, How how, Kind kind, bool skip_waits = false) {
    if (how == How::kProgrammatic && arch != CUSYNC_SM90A) return;
    auto v = std::make_unique<Variant>();
    v->name = name, v->how = how, v->skip_waits = skip_waits;
    for (int set = 0; set < kSets; ++set) {
      Args a = up_args(set), b = down_args(set);
      if (how != How::kSerial) {
        connect(a, b, CUSYNC_OPERAND_A, kind, 0);
        v->sync.join(a, 0), v->sync.join(b, 1);
        b.sync.test.skip_waits = skip_waits;
      }
      v->up.push_back(std::make_unique<Gemm>(a)), v->down.push_back(std::make_unique<Gemm>(b));
    }
    variants.push_back(std::move(v));
  }

  void once(Variant& v, int set) {
    if (v.how == How::kStreams) {
      v.up[set]->launch(streams[0], false, started);
      CUDA(cudaStreamWaitEvent(streams[1], started, 0));
      v.down[set]->launch(streams[1]);
      CUDA(cudaEventRecord(done, streams[1]));
      CUDA(cudaStreamWaitEvent(streams[0], done, 0));
    } else {
      v.up[set]->launch(streams[0]);
      v.down[set]->launch(streams[0], v.how == How::kProgrammatic);
    }
  }

  void finish(Variant& v) {
    cudaError_t const error = cudaStreamSynchronize(streams[0]);
    if (error == cudaSuccess) return;
    cusync_report const& r = *v.sync.report;
    std::printf("FATAL %s M=%u: %s; report %u: edge %u stage %u tile (%u, %u) k %u slot %u have %u want %u\n", v.name, m,
                cudaGetErrorString(error), r.claimed, r.edge, r.stage, r.tile_m, r.tile_n, r.k_block, r.slot, r.have,
                r.want);
    std::exit(2);
  }

  void verify(Variant& v) {
    finish(v);
    double const error = relative_error(z, z_reference);
    if (!(error <= v.worst)) v.worst = error;
  }

  /// 10 verified runs on poisoned buffers; then timing, the variants interleaved forwards and backwards because
  /// clocks drift under load; then enough runs for 200, and a last look.
  void measure() {
    constexpr int rounds = 12, runs = 4;
    for (auto& v : variants)
      for (int i = 0; i < 10; ++i) {
        y.poison(streams[0]), z.poison(streams[0]);
        once(*v, 0);
        verify(*v);
      }
    int set = 0;
    for (int round = 0; round < rounds; ++round)
      for (size_t i = 0; i < variants.size(); ++i) {
        Variant& v = *variants[round % 2 ? variants.size() - 1 - i : i];
        once(v, set++ % kSets);
        CUDA(cudaEventRecord(begin, streams[0]));
        for (int r = 0; r < runs; ++r) once(v, set++ % kSets);
        CUDA(cudaEventRecord(end, streams[0]));
        finish(v);
        float ms = 0;
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        v.times.push_back(ms * 1e3 / runs);
      }
    double serial = 0;
    for (auto& v : variants) {
      for (int i = 10 + rounds * (runs + 1); i < 200; ++i) once(*v, i % kSets);
      once(*v, 0);
      verify(*v);
      std::sort(v->times.begin(), v->times.end());
      double const us = v->times[rounds / 2], flops = 2.0 * m * h * inner * (gated ? 3 : 2);
      if (v->how == How::kSerial) serial = us;
      char line[128];
      std::snprintf(line, sizeof line, "%s M=%-4u %3ux%-3u %-21s %7.1f us %4.0f TFLOP/s %5.3fx", gated ? "llama" : "gpt3 ",
                    m, tile.m, tile.n, v->name, us, flops / us * 1e-6, serial / us);
      if (v->skip_waits)
        std::printf("     %s\n", line);
      else
        judge(line, v->worst);
    }
  }

  void all() {
    add("serial", How::kSerial, Kind::kRow);
    add("streams row", How::kStreams, Kind::kRow);
    add("streams tile", How::kStreams, Kind::kTile);
    add("programmatic row", How::kProgrammatic, Kind::kRow);
    add("programmatic tile", How::kProgrammatic, Kind::kTile);
    add("programmatic batched", How::kProgrammatic, Kind::kBatched);
    add("programmatic no waits", How::kProgrammatic, Kind::kTile, true);
    measure();
  }
};

/// An edge that is never posted must end in an error with a complete report.
void starve() {
  Tensor a(1024 * 1024, CUSYNC_F16), b(1024 * 1024, CUSYNC_F16), y(1024 * 1024, CUSYNC_F16), z(1024 * 1024, CUSYNC_F16);
  a.random(1.f, 1), b.random(1.f, 2);
  Tile const tile{128, 128};
  Args first = gemm_args(1024, 1024, 1024, tile, false, CUSYNC_F16), second = first;
  first.operand(CUSYNC_OPERAND_A, a.data).operand(CUSYNC_OPERAND_B, b.data);
  second.operand(CUSYNC_OPERAND_A, y.data).operand(CUSYNC_OPERAND_B, b.data);
  first.stage.out = y.data, second.stage.out = z.data;
  Sync sync;
  connect(first, second, CUSYNC_OPERAND_A, Kind::kRow, 0);
  sync.join(first, 0), sync.join(second, 1);
  first.sync.test.starve = 1, second.sync.timeout_ns = 100'000'000;
  Gemm up(first), down(second);
  up.launch(nullptr), down.launch(nullptr);
  cudaError_t const error = cudaDeviceSynchronize();
  cusync_report const& r = *sync.report;
  bool const good = error != cudaSuccess && r.claimed == 2 && r.edge == 0 && r.stage == 1 && r.have == 0 && r.want == 8;
  if (!good) ++failures;
  std::printf("%s starved edge: %s; report %u: edge %u stage %u tile (%u, %u) slot %u have %u want %u sm %u\n",
              good ? "ok  " : "FAIL", cudaGetErrorString(error), r.claimed, r.edge, r.stage, r.tile_m, r.tile_n, r.slot,
              r.have, r.want, r.sm);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  bool only_starve = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "80")) arch = CUSYNC_SM80;
    if (!std::strcmp(argv[i], "starve")) only_starve = true;
  }
  if (only_starve) {
    starve();
    return failures != 0;
  }
  cusync_kernel_info kernels[64];
  uint32_t const count = cusync_kernels(kernels, 64);
  std::vector<Tile> tiles;
  for (uint32_t i = 0; i < count && i < 64; ++i) {
    cusync_kernel_info const& k = kernels[i];
    std::printf("kernel family %u sm%u ops %u element %u tile %ux%ux%u width %u ring %u threads %u shared %u registers %u\n",
                k.id.family, k.id.arch, k.id.operations, k.id.element, k.id.tile_m, k.id.tile_n, k.tile_k, k.id.width,
                k.ring, k.threads, k.shared_bytes, k.registers);
    bool const plain = k.id.family == CUSYNC_FAMILY_GEMM && k.id.operations == 1u << CUSYNC_GEMM;
    if (plain && k.id.arch == arch && k.id.element == CUSYNC_F16) tiles.push_back({k.id.tile_m, k.id.tile_n});
  }
  for (Tile const tile : tiles)
    for (uint32_t element : {CUSYNC_F16, CUSYNC_BF16}) {
      single(256, 512, 512, tile, false, element, CUSYNC_IDENTITY, false, false);
      single(1, 2752, 1000, tile, false, element, CUSYNC_GELU_TANH, true, false);
      single(37, 2752, 72, tile, false, element, CUSYNC_RELU, true, true);
      single(300, 304, 1000, tile, false, element, CUSYNC_RELU, true, true, true);
      single(1000, 1096, 2752, tile, false, element, CUSYNC_IDENTITY, true, true);
      single(200, 5504, 1024, tile, true, element, CUSYNC_IDENTITY, false, false);
      single(1, 5504, 8, tile, true, element, CUSYNC_IDENTITY, false, false);
      single(300, 304, 1000, tile, true, element, CUSYNC_IDENTITY, false, false);
    }
  for (uint32_t role :
       {CUSYNC_OPERAND_A, CUSYNC_OPERAND_B, CUSYNC_OPERAND_BIAS, CUSYNC_OPERAND_RESIDUAL})
    for (uint32_t wait_at : {CUSYNC_WAIT_PER_K_BLOCK, CUSYNC_WAIT_AT_START})
      for (Kind kind : {Kind::kTile, Kind::kRow, Kind::kStrided}) operand_edge(role, kind, wait_at, {128, 128});
  std::printf("%d failures so far\n", failures);

  uint32_t const small = arch == CUSYNC_SM90A ? 64 : 128;
  for (uint32_t m : {1u, 37u, 64u, 128u, 200u})
    for (Tile const tile : {Tile{small, 128}, Tile{128, 128}}) {
      Mlp(m, 12288, 6144, false, tile).all();
      Mlp(m, 8192, 2752, true, tile).all();
    }
  for (uint32_t m : {256u, 512u, 768u, 1024u, 1536u, 2048u})
    for (Tile const tile : {Tile{128, 128}, Tile{128, 256}}) {
      Mlp(m, 12288, 6144, false, tile).all();
      Mlp(m, 8192, 2752, true, tile).all();
    }
  if (arch == CUSYNC_SM90A)
    for (uint32_t m : {512u, 1024u, 1536u}) Mlp(m, 12288, 6144, false, {256, 128}).all();

  float* out;
  uint32_t* scratch;
  CUDA(cudaMalloc(&out, 16)), CUDA(cudaMalloc(&scratch, 4096));
  OK(cusync_measure_semaphores(scratch, 1000, out, nullptr));
  float ns[3];
  CUDA(cudaMemcpy(ns, out, sizeof ns, cudaMemcpyDeviceToHost));
  std::printf("wait %.0f ns, post %.0f ns, hand-off %.0f ns\n", ns[0], ns[1], ns[2]);
  Tensor big(size_t(2) << 30, CUSYNC_F16);
  big.random(1.f, 5);
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin)), CUDA(cudaEventCreate(&end));
  OK(cusync_stream_read(big.data, big.count * 2, scratch, nullptr));
  CUDA(cudaEventRecord(begin));
  for (int i = 0; i < 5; ++i) OK(cusync_stream_read(big.data, big.count * 2, scratch, nullptr));
  CUDA(cudaEventRecord(end));
  CUDA(cudaDeviceSynchronize());
  float ms;
  CUDA(cudaEventElapsedTime(&ms, begin, end));
  std::printf("streaming read %.2f TB/s\n", 5.0 * big.count * 2 / ms * 1e-9);
  std::printf("%s: %d failures\n", failures ? "FAIL" : "PASS", failures);
  return failures != 0;
}
