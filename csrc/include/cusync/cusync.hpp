// SPDX-License-Identifier: MIT OR Apache-2.0
// The whole device library. A host compiler sees the index arithmetic, nvcc also the semaphores.
#pragma once
#include "cusync/desc.h"
#include "cusync/edge.hpp"
#include "cusync/fixed.hpp"
#include "cusync/order.hpp"
#include "cusync/policy.hpp"

#if defined(__CUDACC__)
#include "cusync/edge.cuh"
#include "cusync/epoch.cuh"
#include "cusync/ptx.cuh"
#include "cusync/semaphore.cuh"
#endif
