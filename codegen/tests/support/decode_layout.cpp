// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads pairs of columns and workers; prints where each worker begins, and the owners of each column tile.
#include <cstdio>

#include "kernels/decode/layout.h"

int main() {
  using namespace cusync::kernels::decode;
  unsigned columns, workers;
  while (std::scanf("%u %u", &columns, &workers) == 2) {
    for (unsigned w = 0; w <= workers; ++w) std::printf("%u ", first_feature(w, columns, workers));
    std::printf("|");
    for (unsigned t = 0; t < cusync::ceil_div(columns, kBlock); ++t)
      std::printf(" %u", owners_of_tile(t, columns, workers));
    std::printf("\n");
  }
}
