// The matrix product at one point of a filter, with sums in registers.
#pragma once

#include <algorithm>

#include "simd.h"

namespace caps {

// out [row, channel] (+)= sum over k of a [row, k] b [k, channel], with as many channels as the
// vectors have lanes. Distances of a are in floats; rows of b and out follow each other.
struct PointProduct {
  const float* a;
  int64_t a_k;
  const float* b;
  float* out;
  int64_t rows, count;
  // Whether to set or to add to the result.
  bool fresh;
};

// `Distance` is that of two rows of a.
template <int Rows, int Vectors, int Distance>
CAPS_INLINE void point_rows(const PointProduct& job, int64_t row) {
  constexpr int lanes = kLanes<float>, width = Vectors * lanes;
  const float* a = job.a + row * Distance;
  const float* b = job.b;
  Vec<float> sums[Rows][Vectors] = {};
  for (int64_t k = 0; k < job.count; ++k, a += job.a_k, b += width) {
    Vec<float> x[Vectors];
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) x[v] = load(b + v * lanes);
    CAPS_UNROLL
    for (int m = 0; m < Rows; ++m) {
      CAPS_UNROLL
      for (int v = 0; v < Vectors; ++v) sums[m][v] += a[m * Distance] * x[v];
    }
  }
  // Added at the end: the rounding errors of two short sums are smaller than those of a long one.
  float* out = job.out + row * width;
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      float* at = out + m * width + v * lanes;
      store(at, job.fresh ? sums[m][v] : load(at) + sums[m][v]);
    }
  }
}

template <int Vectors, int Distance>
void multiply_point(const PointProduct& job) {
  constexpr int most = (kRegisters >= 32 ? 24 : 12) / Vectors;
  int64_t row = 0;
  for (; row + most <= job.rows; row += most) point_rows<most, Vectors, Distance>(job, row);
  if constexpr (most > 8) {
    for (; row + 8 <= job.rows; row += 8) point_rows<8, Vectors, Distance>(job, row);
  }
  for (; row + 4 <= job.rows; row += 4) point_rows<4, Vectors, Distance>(job, row);
  for (; row < job.rows; ++row) point_rows<1, Vectors, Distance>(job, row);
}

// Blocks of channels are one or two vectors wide.
template <int Distance>
void multiply_point(int64_t vectors, const PointProduct& job) {
  return vectors == 2 ? multiply_point<2, Distance>(job) : multiply_point<1, Distance>(job);
}

}  // namespace caps
