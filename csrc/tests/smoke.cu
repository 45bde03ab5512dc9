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

cusync_gemm_args gemm_args(uint32_t m, uint32_t n, uint32_t k, Tile tile, bool gated, uint32_t element) {
  cusync_gemm_args a{};
  a.arch = arch, a.operation = gated ? CUSYNC_GATED_GEMM : CUSYNC_GEMM, a.element = element;
  a.tile_m = tile.m, a.tile_n = tile.n, a.m = m, a.n = n, a.k = k;
  a.order.kind = CUSYNC_ORDER_GROUPED_ROWS, a.order.group = 8;  // a column of B serves 8 tiles while L2 has it
  a.order.grid_m = cusync::ceil_div(m, tile.m), a.order.grid_n = cusync::ceil_div(n, tile.n);
  a.post_value_scale = 1;
  return a;
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
  void join(cusync_gemm_args& a, uint32_t stage) const {
    a.schedule = CUSYNC_SCHEDULE_TICKET, a.tickets = tickets + stage, a.semaphores = semaphores;
    a.report = report_on_device, a.stage = stage;
  }
};

enum class Kind { kTile, kRow, kBatched, kStrided };

/// Adds an edge from `producer` to `consumer`'s operand, slots from `base` on; returns the number of slots.
uint32_t connect(cusync_gemm_args& producer, cusync_gemm_args& consumer, uint32_t operand, Kind kind, uint32_t base,
                 uint32_t wait_at = CUSYNC_WAIT_PER_K_BLOCK) {
  cusync_policy p{};
  p.grid_m = producer.order.grid_m, p.grid_n = producer.order.grid_n;
  p.block_m = 1, p.block_n = kind == Kind::kRow ? p.grid_n : kind == Kind::kBatched ? 2 : 1;
  if (kind == Kind::kStrided) p.stride_n = cusync::min_u32(3, p.grid_n);
  p.slots_n = p.stride_n ? p.stride_n : cusync::ceil_div(p.grid_n, p.block_n);
  p.slot_base = base, p.slot_count = p.grid_m * p.slots_n;
  producer.posts[producer.post_count++] = p;

  bool const gated = producer.operation == CUSYNC_GATED_GEMM;
  cusync_edge e{};
  e.policy = p, e.id = base, e.operand = operand, e.wait_at = wait_at;
  e.tile_rows = producer.tile_m, e.tile_cols = gated ? producer.tile_n / 2 : producer.tile_n;
  e.tensor_rows = producer.m, e.tensor_cols = gated ? producer.n / 2 : producer.n;
  int32_t const k = int32_t(tile_k()), m = int32_t(consumer.tile_m), n = int32_t(consumer.tile_n);
  e.k_blocks = cusync::ceil_div(consumer.k, uint32_t(k));
  cusync_axis const by_m{m, 0, 0, 0, m}, by_n{0, n, 0, 0, n}, by_k{0, 0, k, 0, k}, whole{0, 0, 0, 0, 1};
  e.rows = operand == CUSYNC_OPERAND_B ? by_k : operand == CUSYNC_OPERAND_BIAS ? whole : by_m;
  e.cols = operand == CUSYNC_OPERAND_A ? by_k : by_n;
  consumer.waits[consumer.wait_count++] = e;
  return p.slot_count;
}

struct Gemm {
  cusync_gemm* handle = nullptr;
  explicit Gemm(cusync_gemm_args const& a) { OK(cusync_gemm_create(&a, &handle)); }
  Gemm(Gemm const&) = delete;
  ~Gemm() { cusync_gemm_destroy(handle); }
  void launch(cudaStream_t stream, bool programmatic = false, cudaEvent_t completion = nullptr) const {
    cusync_launch const how{stream, completion, programmatic};
    OK(cusync_gemm_launch(handle, &how));
  }
};

void single(uint32_t m, uint32_t n, uint32_t k, Tile tile, bool gated, uint32_t element, uint32_t activation,
            bool bias, bool residual) {
  uint32_t const columns = gated ? n / 2 : n;
  Tensor a(size_t(m) * k, element), b(size_t(k) * n, element), d(size_t(m) * columns, element), v(n, element),
      r(size_t(m) * columns, element);
  a.random(1.f, 1), b.random(1.f / std::sqrt(float(k)), 2), v.random(1.f, 3), r.random(1.f, 4), d.poison();
  cusync_gemm_args args = gemm_args(m, n, k, tile, gated, element);
  args.a = a.data, args.b = b.data, args.d = d.data, args.activation = activation;
  if (bias) args.bias = v.data;
  if (residual) args.residual = r.data;
  Floats reference(d.count);
  OK(cusync_reference_gemm(&args, reference.data, 0, nullptr));
  Gemm gemm(args);
  gemm.launch(nullptr);
  CUDA(cudaDeviceSynchronize());
  char name[128];
  std::snprintf(name, sizeof name, "gemm %ux%ux%u tile %ux%u %s%s act %u%s%s", m, n, k, tile.m, tile.n,
                element == CUSYNC_F16 ? "f16" : "bf16", gated ? " gated" : "", activation, bias ? " bias" : "",
                residual ? " residual" : "");
  judge(name, relative_error(d, reference));
}

/// Two stages; the first one's output is operand `operand` of the second. 20 runs, launched programmatically.
void operand_edge(uint32_t operand, Kind kind, uint32_t wait_at, Tile tile) {
  uint32_t const m = operand == CUSYNC_OPERAND_BIAS ? 1 : 600, size = 1000;
  Tensor a(size_t(size) * size, CUSYNC_F16), b(size_t(size) * size, CUSYNC_F16), y(size_t(size) * size, CUSYNC_F16),
      z(size_t(600) * size, CUSYNC_F16);
  a.random(1.f, 1), b.random(0.05f, 2);
  bool const is_b = operand == CUSYNC_OPERAND_B;
  cusync_gemm_args first = gemm_args(is_b ? size : m, size, size, tile, false, CUSYNC_F16);
  cusync_gemm_args second = gemm_args(600, size, size, tile, false, CUSYNC_F16);
  first.a = a.data, first.b = b.data, first.d = y.data;
  second.a = operand == CUSYNC_OPERAND_A ? y.data : a.data, second.b = is_b ? y.data : b.data, second.d = z.data;
  if (operand == CUSYNC_OPERAND_BIAS) second.bias = y.data;
  if (operand == CUSYNC_OPERAND_RESIDUAL) second.residual = y.data;
  Sync sync;
  connect(first, second, operand, kind, 0, wait_at);
  sync.join(first, 0), sync.join(second, 1);
  Gemm up(first), down(second);
  Floats reference(z.count);
  double worst = 0;
  for (int run = 0; run < 20; ++run) {
    y.poison(), z.poison();
    up.launch(nullptr), down.launch(nullptr, arch == CUSYNC_SM90A);
    CUDA(cudaDeviceSynchronize());
    OK(cusync_reference_gemm(&second, reference.data, 0, nullptr));
    double const error = relative_error(z, reference);
    if (!(error <= worst)) worst = error;
  }
  char name[128];
  std::snprintf(name, sizeof name, "edge on operand %u policy %d wait_at %u tile %ux%u", operand, int(kind), wait_at,
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
    cusync_gemm_args const up = up_args(0), down = down_args(0);
    OK(cusync_reference_gemm(&up, y_reference.data, 1, nullptr));
    // The reference's second stage reads the 16-bit product of its own kind of first stage.
    Gemm first(up);
    first.launch(nullptr);
    CUDA(cudaDeviceSynchronize());
    double const error = relative_error(y, y_reference);
    if (!(error < 2e-3)) ++failures, std::printf("FAIL first stage %.2e\n", error);
    OK(cusync_reference_gemm(&down, z_reference.data, 0, nullptr));
    CUDA(cudaDeviceSynchronize());
  }
  ~Mlp() {
    for (auto s : streams) cudaStreamDestroy(s);
    for (auto e : {started, done, begin, end}) cudaEventDestroy(e);
  }

  cusync_gemm_args up_args(int set) const {
    cusync_gemm_args a = gemm_args(m, gated ? 2 * inner : inner, h, tile, gated, CUSYNC_F16);
    a.a = x.data, a.b = w1[set].data, a.d = y.data, a.activation = gated ? CUSYNC_IDENTITY : CUSYNC_GELU_TANH;
    return a;
  }
  cusync_gemm_args down_args(int set) const {
    cusync_gemm_args a = gemm_args(m, h, inner, tile, false, CUSYNC_F16);
    a.a = y.data, a.b = w2[set].data, a.d = z.data;
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
      cusync_gemm_args a = up_args(set), b = down_args(set);
      if (how != How::kSerial) {
        connect(a, b, CUSYNC_OPERAND_A, kind, 0);
        v->sync.join(a, 0), v->sync.join(b, 1);
        b.skip_waits = skip_waits;
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
  cusync_gemm_args first = gemm_args(1024, 1024, 1024, tile, false, CUSYNC_F16), second = first;
  first.a = a.data, first.b = b.data, first.d = y.data;
  second.a = y.data, second.b = b.data, second.d = z.data;
  Sync sync;
  connect(first, second, CUSYNC_OPERAND_A, Kind::kRow, 0);
  sync.join(first, 0), sync.join(second, 1);
  first.post_value_scale = 0, second.timeout_ns = 100'000'000;
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
    std::printf("kernel sm%u op %u element %u tile %ux%ux%u stages %u threads %u shared %u registers %u\n", k.arch,
                k.operation, k.element, k.tile_m, k.tile_n, k.tile_k, k.stages, k.threads, k.shared_bytes,
                k.registers);
    if (k.arch == arch && k.operation == CUSYNC_GEMM && k.element == CUSYNC_F16) tiles.push_back({k.tile_m, k.tile_n});
  }
  for (Tile const tile : tiles)
    for (uint32_t element : {CUSYNC_F16, CUSYNC_BF16}) {
      single(256, 512, 512, tile, false, element, CUSYNC_IDENTITY, false, false);
      single(1, 2752, 1000, tile, false, element, CUSYNC_GELU_TANH, true, false);
      single(37, 2752, 72, tile, false, element, CUSYNC_RELU, true, true);
      single(1000, 1096, 2752, tile, false, element, CUSYNC_IDENTITY, true, true);
      single(200, 5504, 1024, tile, true, element, CUSYNC_IDENTITY, false, false);
      single(1, 5504, 8, tile, true, element, CUSYNC_IDENTITY, false, false);
      single(300, 304, 1000, tile, true, element, CUSYNC_IDENTITY, false, false);
    }
  for (uint32_t operand :
       {CUSYNC_OPERAND_A, CUSYNC_OPERAND_B, CUSYNC_OPERAND_BIAS, CUSYNC_OPERAND_RESIDUAL})
    for (uint32_t wait_at : {CUSYNC_WAIT_PER_K_BLOCK, CUSYNC_WAIT_AT_START})
      for (Kind kind : {Kind::kTile, Kind::kRow, Kind::kStrided}) operand_edge(operand, kind, wait_at, {128, 128});
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
