// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads a convolution, the pixels of a tile, and a kernel's slots and room; prints the window, or 0 where none fits.
#include <cstdio>

#include "kernels/conv2d/window.h"

int main() {
  using namespace cusync::kernels::sm90;
  cusync_images i{};
  unsigned slots, area;
  while (std::scanf("%u %u %u %u %u %u %u %u %u %u %u %u %u %u", &i.height, &i.width, &i.channels, &i.out_height, &i.out_width,
                    &i.filter_rows, &i.filter_cols, &i.stride_rows, &i.stride_cols, &i.padding_rows, &i.padding_cols,
                    &i.tile_pixels, &slots, &area) == 14) {
    Window w{};
    if (make_window(i, slots, area, w))
      std::printf("%u %u %u %u\n", w.rows, w.images, w.pitch, w.buffers);
    else
      std::printf("0\n");
  }
}
