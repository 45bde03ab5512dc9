// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads a convolution, a tile's pixels, and a kernel's slots, room, and warpgroups if it is transposed; prints the
// window and the multiplied slots, or 0 if no window fits.
#include <cstdio>

#include "kernels/conv2d/window.h"

int main() {
  using namespace cusync::kernels::sm90;
  cusync_stage stage{};
  cusync_images& i = stage.shape.images;
  unsigned slots, area, groups;
  while (std::scanf("%u %u %u %u %u %u %u %u %u %u %u %u %u %u %u", &i.height, &i.width, &i.channels, &i.out_height, &i.out_width,
                    &i.filter_rows, &i.filter_cols, &i.stride_rows, &i.stride_cols, &i.padding_rows, &i.padding_cols,
                    &stage.tiles.rows, &slots, &area, &groups) == 15) {
    Window w{};
    if (make_window(stage, slots, area, groups, w))
      std::printf("%u %u %u %u %u\n", w.rows, w.images, w.pitch, w.buffers, groups ? groups * w.multiplied() : slots);
    else
      std::printf("0\n");
  }
}
