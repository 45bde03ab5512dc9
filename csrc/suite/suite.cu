// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels of the kernel-level suite as one image for the driver to load: graphs need functions, not C calls.
#include "black_scholes.cuh"
#include "dl.cuh"
#include "hits.cuh"
#include "img.cuh"
#include "ml.cuh"
#include "spin.cuh"
#include "transformer.cuh"
#include "vec.cuh"
