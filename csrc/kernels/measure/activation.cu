// SPDX-License-Identifier: MIT OR Apache-2.0
// The element-wise kernels that finish products: a library's without a fused epilogue, and any whose heads are rotated.
#include "kernels/common/activation.cuh"
#include "kernels/common/elementwise.cuh"

namespace cusync::kernels {
namespace {

template <class From, class Element>
__global__ void gated_activation(Group<From> const* packed, Group<Element>* d, unsigned long long groups, uint32_t activation) {
  for (auto i = first_index(); i < groups; i += index_stride()) {
    Group<From> const gate = packed[2 * i], up = packed[2 * i + 1];
    Group<Element> out;
    float gates[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) gates[j] = to_float(gate.values[j]);
    activate_gates<8>(activation, gates);
#pragma unroll
    for (int j = 0; j < 8; ++j) out.values[j] = from_float<Element>(gates[j] * to_float(up.values[j]));
    d[i] = out;
  }
}

/// The heads of a row and their rotation angles: one row per position, cosines, then sines.
struct Heads {
  uint32_t count, rotated, groups;  ///< heads per row; rotated heads (the first ones); groups of 8 columns per half head
  uint32_t tokens;                  ///< tokens per sequence
  uint32_t positions;               ///< rows of angles
  uint32_t queries;                 ///< heads of queries
  float epsilon;                    ///< 0: heads are not normalized
};

/// Multiplies the two parts of a head that a thread has by the head's norm and gain. The threads of a head are
/// neighbors in a warp, a power of two of them.
template <class Element>
__device__ void normalise(float (&x)[8], float (&y)[8], Group<Element> const* gain, uint32_t group, Heads const& heads) {
  float squares = 0.f;
#pragma unroll
  for (int j = 0; j < 8; ++j) squares += x[j] * x[j] + y[j] * y[j];
  uint32_t const lane = threadIdx.x % 32, members = ((1ull << heads.groups) - 1) << (lane & ~(heads.groups - 1));
  for (uint32_t step = 1; step < heads.groups; step *= 2) squares += __shfl_xor_sync(members, squares, step);
  float const scale = rsqrtf(squares / (16.f * heads.groups) + heads.epsilon);
  Group<Element> const low = gain[group], high = gain[group + heads.groups];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    x[j] *= scale * to_float(low.values[j]);
    y[j] *= scale * to_float(high.values[j]);
  }
}

template <class From, class Element>
__global__ void rotate(Group<From> const* product, Group<Element> const* angles, int32_t const* lengths, Group<Element> const* query_gain,
                       Group<Element> const* key_gain, Group<Element>* d, unsigned long long pairs, Heads heads) {
  bool const in_place = static_cast<void const*>(product) == d;
  for (auto i = first_index(); i < pairs; i += index_stride()) {
    auto const head = i / heads.groups, row = head / heads.count;
    uint32_t const group = uint32_t(i - head * heads.groups);
    uint32_t const number = uint32_t(head - row * heads.count);
    // A negative length is outside the angles too.
    auto const position = row % heads.tokens + (lengths ? uint32_t(lengths[row / heads.tokens]) : 0);
    bool const turns = number < heads.rotated && position < heads.positions;
    if (in_place && !turns) continue;
    auto const first = head * 2 * heads.groups + group, second = first + heads.groups;
    Group<From> const x = product[first], y = product[second];
    Group<Element> cosines{}, sines{}, u, v;
    if (turns) {
      auto const at = position * 2 * heads.groups + group;
      cosines = angles[at], sines = angles[at + heads.groups];
    }
    float left[8], right[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) left[j] = to_float(x.values[j]), right[j] = to_float(y.values[j]);
    if (turns && heads.epsilon > 0.f) normalise(left, right, number < heads.queries ? query_gain : key_gain, group, heads);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float const a = left[j], b = right[j];
      float const c = turns ? to_float(cosines.values[j]) : 1.f, s = turns ? to_float(sines.values[j]) : 0.f;
      u.values[j] = from_float<Element>(a * c - b * s);
      v.values[j] = from_float<Element>(a * s + b * c);
    }
    d[first] = u, d[second] = v;
  }
}

template <class Element>
__global__ void elementwise(Element const* x, Element* d, unsigned long long count, uint32_t activation) {
  for (auto i = first_index(); i < count; i += index_stride())
    d[i] = from_float<Element>(activate(activation, to_float(x[i])));
}

}  // namespace
}  // namespace cusync::kernels

using namespace cusync::kernels;

extern "C" int32_t cusync_gated_activation(void const* packed, uint32_t packed_bits, void* d, uint32_t m, uint32_t n,
                                           uint32_t activation, uint32_t element, void* stream) {
  if (!packed || !d || n % 8 || !aligned16(packed) || !aligned16(d)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if ((packed_bits != 16 && packed_bits != 32) || activation > CUSYNC_TANH) return CUSYNC_ERROR_BAD_ARGUMENT;
  unsigned long long const groups = (unsigned long long)m * (n / 8);
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    auto const launch = [&](auto const* from) {
      gated_activation<<<blocks_for(groups), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
          from, static_cast<Group<Element>*>(d), groups, activation);
    };
    if (packed_bits == 32)
      launch(static_cast<Group<float> const*>(packed));
    else
      launch(static_cast<Group<Element> const*>(packed));
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_rotate(void const* product, uint32_t product_bits, void const* angles, uint32_t positions,
                                 int32_t const* lengths, void* d, uint32_t m, uint32_t n, uint32_t rotated, uint32_t head_dim,
                                 uint32_t tokens, float epsilon, void const* query_gain, void const* key_gain, uint32_t queries,
                                 uint32_t element, void* stream) {
  if (!product || !angles || !d || !tokens || positions < tokens || m % tokens || !head_dim || head_dim % 16 || n % head_dim || rotated % head_dim || rotated > n)
    return CUSYNC_ERROR_BAD_ARGUMENT;
  if (!aligned16(product) || !aligned16(angles) || !aligned16(d)) return CUSYNC_ERROR_BAD_ARGUMENT;
  if (product_bits != 16 && product_bits != 32) return CUSYNC_ERROR_BAD_ARGUMENT;
  Heads const heads{n / head_dim, rotated / head_dim, head_dim / 16, tokens, positions, queries / head_dim, epsilon};
  if (epsilon > 0.f) {
    bool const in_a_warp = heads.groups <= 16 && (heads.groups & (heads.groups - 1)) == 0;
    if (!in_a_warp || !query_gain || !key_gain || !aligned16(query_gain) || !aligned16(key_gain)) return CUSYNC_ERROR_BAD_ARGUMENT;
  }
  unsigned long long const pairs = (unsigned long long)m * (n / 16);
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    auto const launch = [&](auto const* from) {
      rotate<<<blocks_for(pairs), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
          from, static_cast<Group<Element> const*>(angles), lengths, static_cast<Group<Element> const*>(query_gain),
          static_cast<Group<Element> const*>(key_gain), static_cast<Group<Element>*>(d), pairs, heads);
    };
    if (product_bits == 32)
      launch(static_cast<Group<float> const*>(product));
    else
      launch(static_cast<Group<Element> const*>(product));
    return status_of(cudaGetLastError());
  });
}

extern "C" int32_t cusync_activation_kernel(void const* x, void* d, unsigned long long count, uint32_t activation,
                                            uint32_t element, void* stream) {
  if (!x || !d || activation > CUSYNC_TANH) return CUSYNC_ERROR_BAD_ARGUMENT;
  return with_element(element, [&](auto* type) {
    using Element = std::remove_pointer_t<decltype(type)>;
    elementwise<<<blocks_for(count), kElementwiseThreads, 0, cudaStream_t(stream)>>>(
        static_cast<Element const*>(x), static_cast<Element*>(d), count, activation);
    return status_of(cudaGetLastError());
  });
}
