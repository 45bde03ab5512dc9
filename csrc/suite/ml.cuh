// SPDX-License-Identifier: MIT OR Apache-2.0
// ML: an ensemble of ridge regression and naive Bayes; rows of features, ten classes.
#pragma once
#include "entry.cuh"

namespace suite {
constexpr uint32_t kClasses = 10;
}

/// rr_1: z = x with each column normalized to mean 0 and standard deviation 1. One thread per column: few threads, the
/// longest kernel of the suite.
extern "C" __global__ void ml_normalise(float const* x, float* z, uint32_t rows, uint32_t columns) {
  suite::begin(x, z, rows, columns);
  uint32_t const column = suite::thread_index();
  if (column >= columns) return;
  float sum = 0.f, squares = 0.f;
#pragma unroll 8
  for (uint32_t row = 0; row < rows; ++row) sum += x[row * columns + column];
  float const mean = sum / float(rows);
#pragma unroll 8
  for (uint32_t row = 0; row < rows; ++row) {
    float const distance = x[row * columns + column] - mean;
    squares += distance * distance;
  }
  float const scale = rsqrtf(squares / float(rows));
  // Batches of eight: loads cannot move past stores that might alias them, and single loads would each expose their
  // full latency.
  uint32_t row = 0;
  for (; row + 8 <= rows; row += 8) {
    float batch[8];
    for (uint32_t k = 0; k < 8; ++k) batch[k] = x[(row + k) * columns + column];
    for (uint32_t k = 0; k < 8; ++k) z[(row + k) * columns + column] = (batch[k] - mean) * scale;
  }
  for (; row < rows; ++row) z[row * columns + column] = (x[row * columns + column] - mean) * scale;
}

/// rr_2 and nb_1: scores(row, class) = sum over features of x(row, feature) * weights(class, feature).
extern "C" __global__ void ml_scores(float const* x, float const* weights, float* scores, uint32_t rows,
                                     uint32_t columns) {
  suite::begin(x, weights, scores, rows, columns);
  uint32_t const i = suite::thread_index();
  if (i >= rows * suite::kClasses) return;
  float const* row = x + i / suite::kClasses * columns;
  float const* weight = weights + i % suite::kClasses * columns;
  float sum = 0.f;
#pragma unroll 8
  for (uint32_t k = 0; k < columns; ++k) sum += row[k] * weight[k];
  scores[i] = sum;
}

/// rr_3: scores += intercept of the class.
extern "C" __global__ void ml_intercept(float* scores, float const* intercepts, uint32_t rows) {
  suite::begin(scores, intercepts, rows);
  uint32_t const i = suite::thread_index();
  if (i < rows * suite::kClasses) scores[i] += intercepts[i % suite::kClasses];
}

/// Turns each row of scores into a distribution, in place.
extern "C" __global__ void ml_softmax(float* scores, uint32_t rows) {
  suite::begin(scores, rows);
  uint32_t const row = suite::thread_index();
  if (row >= rows) return;
  float value[suite::kClasses], most = scores[row * suite::kClasses], sum = 0.f;
  for (uint32_t c = 0; c < suite::kClasses; ++c) {
    value[c] = scores[row * suite::kClasses + c];
    most = fmaxf(most, value[c]);
  }
  for (uint32_t c = 0; c < suite::kClasses; ++c) sum += value[c] = expf(value[c] - most);
  for (uint32_t c = 0; c < suite::kClasses; ++c) scores[row * suite::kClasses + c] = value[c] / sum;
}

/// nb_2: most = the largest score of each row.
extern "C" __global__ void ml_row_max(float const* scores, float* most, uint32_t rows) {
  suite::begin(scores, most, rows);
  uint32_t const row = suite::thread_index();
  if (row >= rows) return;
  float largest = scores[row * suite::kClasses];
  for (uint32_t c = 1; c < suite::kClasses; ++c) largest = fmaxf(largest, scores[row * suite::kClasses + c]);
  most[row] = largest;
}

/// nb_3: l = log-sum-exp of each row.
extern "C" __global__ void ml_log_sum(float const* scores, float const* most, float* l, uint32_t rows) {
  suite::begin(scores, most, l, rows);
  uint32_t const row = suite::thread_index();
  if (row >= rows) return;
  float sum = 0.f;
  for (uint32_t c = 0; c < suite::kClasses; ++c) sum += expf(scores[row * suite::kClasses + c] - most[row]);
  l[row] = logf(sum) + most[row];
}

/// nb_4: scores = exp(scores - l), in place.
extern "C" __global__ void ml_exponential(float* scores, float const* l, uint32_t rows) {
  suite::begin(scores, l, rows);
  uint32_t const i = suite::thread_index();
  if (i < rows * suite::kClasses) scores[i] = expf(scores[i] - l[i / suite::kClasses]);
}

/// result = the class with the largest sum of both scores; the first of equals.
extern "C" __global__ void ml_argmax(float const* first, float const* second, uint32_t* result, uint32_t rows) {
  suite::begin(first, second, result, rows);
  uint32_t const row = suite::thread_index();
  if (row >= rows) return;
  uint32_t best = 0;
  float most = first[row * suite::kClasses] + second[row * suite::kClasses];
  for (uint32_t c = 1; c < suite::kClasses; ++c) {
    float const score = first[row * suite::kClasses + c] + second[row * suite::kClasses + c];
    if (score > most) most = score, best = c;
  }
  result[row] = best;
}
