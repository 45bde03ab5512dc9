// SPDX-License-Identifier: MIT OR Apache-2.0
// Pooling over NHWC images in a chain kernel: each output pixel is the maximum or the mean of the pixels under its
// window, per channel. A tile is whole rows of pixels of one image, or whole images, with all their channels.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/sm90/rows.cuh"

namespace cusync::kernels::sm90 {

/// A pool's images and window.
struct PoolTable {
  void const* in;
  void* out;
  cusync_images images;
  uint32_t tile_pixels;
};

template <>
struct Operation<CUSYNC_POOL> {
  static constexpr cusync_operation kOperation = CUSYNC_POOL;
  static constexpr bool kProduct = false;
  using Load = RowLoad;
  using Store = RowStore;
  using Table = PoolTable;

  static Table table(cusync_stage const& stage) { return {data_of(stage, CUSYNC_OPERAND_A), stage.out, stage.shape.images, stage.tiles.rows}; }

  template <class C>
  class Rows {
    using Element = typename C::Element;
    /// Window pixels in flight per thread.
    static constexpr int kBatch = 8;

   public:
    template <class Item>
    CUSYNC_DEVICE Rows(typename C::Params const& params, Item const& item, int thread)
        : table_(static_cast<typename C::template RowTable<kOperation> const&>(params.table[item.stage]).table),
          vectors_(params.stages[item.stage].columns / kRowElements), thread_(thread) {
      begin_ = item.range.m * table_.tile_pixels;
      end_ = min_u32(begin_ + table_.tile_pixels, params.stages[item.stage].m);
    }

    /// A thread computes eight channels of a pixel at a time. `mark` is called when the pixels may be read.
    template <class Item, class Mark>
    CUSYNC_DEVICE void run(typename C::Params const& params, Item const& item, typename C::SharedStorage& shared,
                           typename C::LoadPipeline&, typename C::LoadState&, Mark&& mark) {
      await_rows<C>(params, item, shared, thread_);
      mark();
      uint32_t const count = (end_ - begin_) * vectors_;
      cusync_images const& images = table_.images;
      bool const most = !images.mean && images.filter_rows == images.filter_cols;
      if (most && images.filter_rows == 3)
        greatest<3>(count);
      else if (most && images.filter_rows == 2)
        greatest<2>(count);
      else
#pragma unroll 1
      for (uint32_t i = thread_; i < count; i += C::kConsumerThreads) {
        uint32_t const pixel = i / vectors_, vector = i - pixel * vectors_;
        uint64_t const to = uint64_t(begin_ + pixel) * vectors_ + vector;
        static_cast<uint4*>(table_.out)[to] = narrow<Element>(pool(begin_ + pixel, vector));
      }
      ptx::fence_proxy_async_global();
    }

   private:
    /// Input positions under the window of an output position, along one axis.
    struct Under {
      uint32_t begin, end;

      CUSYNC_DEVICE Under(uint32_t at, uint32_t stride, uint32_t filter, uint32_t padding, uint32_t length) {
        uint32_t const first = at * stride;
        begin = first > padding ? first - padding : 0;
        end = min_u32(first + filter - padding, length);
      }
    };

    CUSYNC_DEVICE static __half2 greater(__half2 x, __half2 y) { return __hmax2_nan(x, y); }
    CUSYNC_DEVICE static __nv_bfloat162 greater(__nv_bfloat162 x, __nv_bfloat162 y) { return __hmax2_nan(x, y); }

    /// Windows of Filter x Filter, two output pixels at a time, with all their input pixels in flight together. At an
    /// image's edge an existing pixel replaces a missing one.
    template <int Filter>
    CUSYNC_DEVICE void greatest(uint32_t count) const {
      using Pair = std::conditional_t<std::is_same_v<Element, cutlass::half_t>, __half2, __nv_bfloat162>;
      constexpr int kTogether = 2, kWindow = Filter * Filter;
      cusync_images const& i = table_.images;
#pragma unroll 1
      for (uint32_t begin = thread_; begin < count; begin += kTogether * C::kConsumerThreads) {
        uint4 pixels[kTogether][kWindow];
        uint64_t to[kTogether];
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          uint32_t const at = min_u32(begin + t * C::kConsumerThreads, count - 1), in_tile = at / vectors_, vector = at - in_tile * vectors_;
          uint32_t const pixel = begin_ + in_tile, line = pixel / i.out_width, image = line / i.out_height;
          to[t] = uint64_t(pixel) * vectors_ + vector;
          Under const rows(line - image * i.out_height, i.stride_rows, i.filter_rows, i.padding_rows, i.height);
          Under const cols(pixel - line * i.out_width, i.stride_cols, i.filter_cols, i.padding_cols, i.width);
          uint4 const* const from = static_cast<uint4 const*>(table_.in) + uint64_t(image) * i.height * i.width * vectors_ + vector;
#pragma unroll
          for (int r = 0; r < Filter; ++r)
#pragma unroll
            for (int s = 0; s < Filter; ++s) {
              uint32_t const row = min_u32(rows.begin + r, rows.end - 1), col = min_u32(cols.begin + s, cols.end - 1);
              pixels[t][r * Filter + s] = __ldcg(from + (row * i.width + col) * vectors_);
            }
        }
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          uint4 result = pixels[t][0];
          Pair* const greatest = reinterpret_cast<Pair*>(&result);
#pragma unroll
          for (int p = 1; p < kWindow; ++p)
#pragma unroll
            for (int e = 0; e < 4; ++e) greatest[e] = greater(greatest[e], reinterpret_cast<Pair const*>(&pixels[t][p])[e]);
          if (begin + t * C::kConsumerThreads < count) static_cast<uint4*>(table_.out)[to[t]] = result;
        }
      }
    }

    CUSYNC_DEVICE RowFloats pool(uint32_t pixel, uint32_t vector) const {
      cusync_images const& i = table_.images;
      uint32_t const line = pixel / i.out_width, image = line / i.out_height;
      Under const rows(line - image * i.out_height, i.stride_rows, i.filter_rows, i.padding_rows, i.height);
      Under const cols(pixel - line * i.out_width, i.stride_cols, i.filter_cols, i.padding_cols, i.width);
      uint32_t const count = (rows.end - rows.begin) * (cols.end - cols.begin);
      uint4 const* const from = static_cast<uint4 const*>(table_.in) + vector;
      uint64_t const first = uint64_t(image) * i.height;
      RowFloats result;
#pragma unroll
      for (int e = 0; e < kRowElements; ++e) result[e] = i.mean ? 0.f : -INFINITY;
      uint32_t row = rows.begin, col = cols.begin;
#pragma unroll 1
      for (uint32_t done = 0; done < count; done += kBatch) {
        uint4 pixels[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b)
          if (done + b < count) {
            pixels[b] = __ldcg(from + ((first + row) * i.width + col) * vectors_);
            if (++col == cols.end) col = cols.begin, ++row;
          }
#pragma unroll
        for (int b = 0; b < kBatch; ++b)
          if (done + b < count) {
            RowFloats const x = widen<Element>(pixels[b]);
            // NaN is preserved.
#pragma unroll
            for (int e = 0; e < kRowElements; ++e)
              result[e] = i.mean ? result[e] + x[e] : result[e] >= x[e] || result[e] != result[e] ? result[e] : x[e];
          }
      }
      if (i.mean)
#pragma unroll
        for (int e = 0; e < kRowElements; ++e) result[e] *= 1.f / float(count);
      return result;
    }

    Table table_;
    uint32_t vectors_, begin_, end_;
    int thread_;
  };
};

}  // namespace cusync::kernels::sm90
