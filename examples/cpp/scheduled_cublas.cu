// SPDX-License-Identifier: MIT OR Apache-2.0
// Two products by cuBLAS on one handle, beside kernels of our own: cusync finds that they can run at the same time, gives
// each the workspace of its lane, and proves the schedule. Every result is compared with the serial code.
//
//   cargo build --release -p cusync-capi
//   nvcc -std=c++17 -arch=sm_90 -Icapi/include examples/cpp/scheduled_cublas.cu -Ltarget/release -lcusync_c -lcublas
//     -Xlinker -rpath=target/release -o scheduled_cublas && ./scheduled_cublas
#include <cublas_v2.h>

#include <cstdio>

#include "cusync/dag.hpp"

constexpr int n = 512, elements = n * n;
constexpr size_t matrix = elements;

// A struct as a kernel's argument. Small integers keep all sums exact.
struct Fill {
  int factor, modulus;
};

__global__ void fill(float* out, Fill how, int const* round) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = static_cast<float>((i * how.factor + *round) % how.modulus - how.modulus / 2);
}

__global__ void add(float* sum, float const* a, float const* b) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  sum[i] = a[i] + b[i];
}

__global__ void count(int* round) { ++*round; }

struct Memory {
  float *a, *b, *c, *first, *second, *sum;
  int* round;
};

cublasStatus_t multiply(cublasHandle_t handle, float const* x, float const* y, float* out) {
  float const one = 1, zero = 0;
  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, x, n, y, n, &zero, out, n);
}

// The serial code, node by node.
cusync::Dag record(cublasHandle_t handle, Memory const& m) {
  using cusync::reads, cusync::updates, cusync::writes;
  cusync::Dag dag("two products");
  dim3 const grid(elements / 256), block(256);
  dag.kernel("count", count, 1, 1, 0, {updates(m.round, 1)}, {}, m.round);
  float* const filled[] = {m.a, m.b, m.c};
  for (int k = 0; k < 3; ++k)
    dag.kernel("fill", fill, grid, block, 0, {reads(m.round, 1), writes(filled[k], matrix)}, {}, filled[k],
               Fill{3 + k, 5 + 2 * k}, m.round);
  cusync::Cost cost;
  cost.flops = 2ull * n * n * n;
  dag.cublas("a b", handle, {reads(m.a, matrix), reads(m.b, matrix), writes(m.first, matrix)}, cost,
             [=](cublasHandle_t h) { return multiply(h, m.a, m.b, m.first); });
  dag.cublas("a c", handle, {reads(m.a, matrix), reads(m.c, matrix), writes(m.second, matrix)}, cost,
             [=](cublasHandle_t h) { return multiply(h, m.a, m.c, m.second); });
  dag.kernel("add", add, grid, block, 0, {reads(m.first, matrix), reads(m.second, matrix), writes(m.sum, matrix)}, {},
             m.sum, m.first, m.second);
  return dag;
}

std::vector<float> sums(cusync::Run const& run, Memory const& m, cudaStream_t stream) {
  std::vector<float> found(elements);
  cusync::check_cuda(cudaMemsetAsync(m.round, 0, sizeof(int), stream));
  for (int round = 0; round < 20; ++round) run.launch(stream);
  cusync::check_cuda(cudaMemcpyAsync(found.data(), m.sum, 4 * matrix, cudaMemcpyDeviceToHost, stream));
  cusync::check_cuda(cudaStreamSynchronize(stream));
  return found;
}

int main() try {
  Memory m{};
  for (float** p : {&m.a, &m.b, &m.c, &m.first, &m.second, &m.sum}) cusync::check_cuda(cudaMalloc(p, 4 * matrix));
  cusync::check_cuda(cudaMalloc(&m.round, sizeof(int)));
  cudaStream_t stream = nullptr;
  cusync::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cublasHandle_t handle = nullptr;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cublasCreate failed");

  cusync::Dag dag = record(handle, m);
  if (dag.depends(5, 4) || !dag.depends(6, 5)) throw std::runtime_error("wrong dependences");
  cusync_dag_options serial{};
  serial.form = "serial";
  std::vector<float> const expected = sums(dag.build(serial), m, stream);
  for (char const* form : {"", "streams", "branch-graph", "lane-mixed"}) {
    cusync_dag_options options{};
    options.form = *form ? form : nullptr;
    cusync::Run const run = dag.build(options);
    bool const same = sums(run, m, stream) == expected;
    std::printf("%s, %zu workspaces: %s\n", run.form(), run.workspaces(), same ? "as serial code" : "WRONG");
    if (!same) return 1;
  }
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
