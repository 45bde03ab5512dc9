// SPDX-License-Identifier: MIT OR Apache-2.0
// The whole device library. Host compilers see the index arithmetic; nvcc also sees the semaphores.
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
