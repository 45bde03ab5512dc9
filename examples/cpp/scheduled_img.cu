// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs a schedule that was rendered for the shipped program `img`, with kernels that mix integers in place of those of
// an image filter, and compares every result with serial code on the host:
//
//   cusync schedule img --dim N=64 -o img.cu
//   nvcc -arch=sm_90 -I. scheduled_img.cu -o scheduled_img && ./scheduled_img
#include "img.cu"

#include <cstdint>

using program_img::check;
using program_img::Temporaries;

constexpr uint32_t n = 64 * 64;

// Kernels of `img` are stated to be built for programmatic edges: they wait for earlier grids before they touch memory.
__device__ void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// A delay before the store: a kernel that does not wait for this one reads old data.
__device__ void linger() {
  const long long begin = clock64();
  while (clock64() - begin < 50000) {
  }
}

__host__ __device__ uint32_t mixed(uint32_t a, uint32_t b, uint32_t c, uint32_t seed) {
  return ((a * 31 + b) * 31 + c) * 2654435761u + seed;
}

// Buffers that a kernel does not have are null and count as 0.
__global__ void mix(uint32_t* out, const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t seed) {
  wait_for_earlier_grids();
  linger();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = mixed(a[i], b ? b[i] : 0, c ? c[i] : 0, seed);
}

__global__ void extreme(uint32_t* out, const uint32_t* in, bool largest) {
  wait_for_earlier_grids();
  linger();
  uint32_t found = in[0];
  for (uint32_t i = 1; i < n; ++i) found = largest ? max(found, in[i]) : min(found, in[i]);
  *out = found;
}

__global__ void extend(uint32_t* inout, const uint32_t* low, const uint32_t* high) {
  wait_for_earlier_grids();
  linger();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) inout[i] = mixed(inout[i], *low, *high, 7);
}

// The serial code.
std::vector<uint32_t> expected(const std::vector<uint32_t>& image) {
  using Image = std::vector<uint32_t>;
  auto filter = [](const Image& a, const Image* b, const Image* c, uint32_t seed) {
    Image out(n);
    for (uint32_t i = 0; i < n; ++i) out[i] = mixed(a[i], b ? (*b)[i] : 0, c ? (*c)[i] : 0, seed);
    return out;
  };
  const Image small = filter(image, nullptr, nullptr, 1), large = filter(image, nullptr, nullptr, 2);
  const Image unsharpen = filter(image, nullptr, nullptr, 3);
  const Image sobel_small = filter(small, nullptr, nullptr, 4);
  Image sobel_large = filter(large, nullptr, nullptr, 5);
  const uint32_t high = *std::max_element(sobel_large.begin(), sobel_large.end());
  const uint32_t low = *std::min_element(sobel_large.begin(), sobel_large.end());
  for (uint32_t& x : sobel_large) x = mixed(x, low, high, 7);
  const Image sharp = filter(image, &unsharpen, nullptr, 8);
  const Image half = filter(sharp, &large, &sobel_large, 9);
  return filter(half, &small, &sobel_small, 10);
}

int main() try {
  uint32_t *image = nullptr, *out = nullptr;
  check(cudaMalloc(&image, 4 * n), "cudaMalloc");
  check(cudaMalloc(&out, 4 * n), "cudaMalloc");

  auto words = [](void* buffer) { return static_cast<uint32_t*>(buffer); };
  auto filter = [](cudaStream_t stream, uint32_t* to, const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t seed) {
    mix<<<n / 256, 256, 0, stream>>>(to, a, b, c, seed);
  };
  program_img::Launchers launch;
  launch.blur_small = [=](cudaStream_t s, const Temporaries& t) { filter(s, words(t.blur_s), image, nullptr, nullptr, 1); };
  launch.blur_large = [=](cudaStream_t s, const Temporaries& t) { filter(s, words(t.blur_l), image, nullptr, nullptr, 2); };
  launch.blur_unsharpen = [=](cudaStream_t s, const Temporaries& t) { filter(s, words(t.blur_u), image, nullptr, nullptr, 3); };
  launch.sobel_small = [=](cudaStream_t s, const Temporaries& t) { filter(s, words(t.sobel_s), words(t.blur_s), nullptr, nullptr, 4); };
  launch.sobel_large = [=](cudaStream_t s, const Temporaries& t) { filter(s, words(t.sobel_l), words(t.blur_l), nullptr, nullptr, 5); };
  launch.maximum = [=](cudaStream_t s, const Temporaries& t) { extreme<<<1, 1, 0, s>>>(words(t.max), words(t.sobel_l), true); };
  launch.minimum = [=](cudaStream_t s, const Temporaries& t) { extreme<<<1, 1, 0, s>>>(words(t.min), words(t.sobel_l), false); };
  launch.extend = [=](cudaStream_t s, const Temporaries& t) {
    extend<<<n / 256, 256, 0, s>>>(words(t.sobel_l), words(t.min), words(t.max));
  };
  launch.unsharpen = [=](cudaStream_t s, const Temporaries& t) { filter(s, words(t.sharp), image, words(t.blur_u), nullptr, 8); };
  launch.combine_1 = [=](cudaStream_t s, const Temporaries& t) {
    filter(s, words(t.half), words(t.sharp), words(t.blur_l), words(t.sobel_l), 9);
  };
  launch.combine_2 = [=](cudaStream_t s, const Temporaries& t) { filter(s, out, words(t.half), words(t.blur_s), words(t.sobel_s), 10); };

  program_img::Program program(launch);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  std::vector<uint32_t> host(n), found(n);
  for (uint32_t round = 0; round < 20; ++round) {
    for (uint32_t i = 0; i < n; ++i) host[i] = mixed(i, round, 0, 11);
    check(cudaMemcpyAsync(image, host.data(), 4 * n, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    program.launch(stream);
    check(cudaMemcpyAsync(found.data(), out, 4 * n, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (found != expected(host)) {
      std::fprintf(stderr, "round %u differs from serial code\n", round);
      return 1;
    }
  }
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  check(cudaFree(image), "cudaFree");
  check(cudaFree(out), "cudaFree");
  std::puts("20 rounds agree with serial code");
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
