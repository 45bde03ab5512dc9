// SPDX-License-Identifier: MIT OR Apache-2.0
// B&S: prices of European call options, double precision.
#pragma once
#include "entry.cuh"

/// price = value of the call at spot price `spot` (positive): rate 0.08, volatility 0.3, one year, strike 60.
extern "C" __global__ void black_scholes(double const* spot, double* price, uint32_t n) {
  suite::begin(spot, price, n);
  double const rate = 0.08, volatility = 0.3, years = 1.0, strike = 60.0;
  double const spread = volatility * sqrt(years), discounted = strike * exp(-rate * years);
  for (uint32_t i = suite::thread_index(); i < n; i += suite::thread_count()) {
    double const s = spot[i];
    double const d1 = (log(s / strike) + (rate + 0.5 * volatility * volatility) * years) / spread;
    price[i] = s * normcdf(d1) - discounted * normcdf(d1 - spread);
  }
}
