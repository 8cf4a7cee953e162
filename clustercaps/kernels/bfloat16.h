// Products in bfloat16, summed in float32. Two neighbouring factors share a 32-bit lane, and one
// instruction (vdpbf16ps) adds both of their products, so a product takes half as many
// instructions. Lanes are kept in float arrays, but only moved and never computed with. Sizes in
// pairs are called items; without bfloat16, an item is a single entry.
#pragma once

#include <type_traits>

#include "simd.h"

namespace caps {

// Whether entries of type S can be multiplied in pairs.
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
template <typename S>
constexpr bool kHasPairs = std::is_same_v<S, float>;
#else
template <typename S>
constexpr bool kHasPairs = false;
#endif

inline int64_t items_of(int64_t entries, bool pairs) { return pairs ? (entries + 1) / 2 : entries; }

// sum += factor * x, for one entry or for the sum of a pair.
template <bool Pairs, typename S>
CAPS_INLINE void add_product(Vec<S>& sum, const S& factor, const Vec<S>& x) {
  if constexpr (!Pairs) {
    sum += factor * x;
  } else {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
    sum = (Vec<S>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(factor), (__m512bh)x);
#endif
  }
}

// sum += a * b, lane by lane, for one entry or for the sum of a pair.
template <bool Pairs, typename S>
CAPS_INLINE void add_vectors(Vec<S>& sum, const Vec<S>& a, const Vec<S>& b) {
  if constexpr (!Pairs) {
    sum += a * b;
  } else {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
    sum = (Vec<S>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
  }
}

#if defined(__AVX512BF16__) && defined(__AVX512BW__)

// Pairs (a [i], b [i]) of two vectors.
CAPS_INLINE Vec<float> pair_up(Vec<float> a, Vec<float> b) {
  alignas(64) static constexpr int16_t order[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
  return (Vec<float>)_mm512_permutexvar_epi16(_mm512_load_si512(order), both);
}

// Pairs of neighbours: (a [0], a [1]), ..., (b [14], b [15]).
CAPS_INLINE Vec<float> pair_neighbours(Vec<float> a, Vec<float> b) {
  return (Vec<float>)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
}

#else

CAPS_INLINE Vec<float> pair_up(Vec<float> a, Vec<float>) { return a; }
CAPS_INLINE Vec<float> pair_neighbours(Vec<float> a, Vec<float>) { return a; }

#endif

// Pairs of neighbouring vectors, in place: (x [0], x [1]), ...; the last of an odd number is paired
// with zeros.
template <int Vectors>
CAPS_INLINE void pair_vectors(Vec<float> (&x)[Vectors]) {
  CAPS_UNROLL
  for (int v = 0; v < Vectors; v += 2) {
    x[v / 2] = pair_up(x[v], v + 1 < Vectors ? x[v + 1] : Vec<float>{});
  }
}

// Pairs of neighbouring rows: from [rows, width], `step` apart, to [rows / 2 rounded up, width], as
// far apart; the last of an odd number of rows is paired with zeros. Width is in whole vectors.
inline void pair_rows(const float* from, int64_t rows, int64_t width, int64_t step, float* to) {
  for (int64_t row = 0; row < rows; row += 2, from += 2 * step, to += step) {
    for (int64_t i = 0; i < width; i += kLanes<float>) {
      const Vec<float> next = row + 1 < rows ? load(from + step + i) : Vec<float>{};
      store(to + i, pair_up(load(from + i), next));
    }
  }
}

// Pairs of neighbouring entries of every row: from [rows, width] to [rows, width / 2], both `step`
// apart. Width is in whole vectors; half a vector more may be written.
inline void pair_entries(const float* from, int64_t rows, int64_t width, int64_t step, float* to) {
  for (int64_t row = 0; row < rows; ++row, from += step, to += step) {
    for (int64_t i = 0; i < width; i += 2 * kLanes<float>) {
      const bool whole = i + kLanes<float> < width;
      const Vec<float> next = whole ? load(from + i + kLanes<float>) : Vec<float>{};
      store(to + i / 2, pair_neighbours(load(from + i), next));
    }
  }
}

// A pair of two numbers, in the bits of a float: rounded to the nearest bfloat16, ties to even.
inline float pair_of(float low, float high) {
  const auto rounded = [](float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
  };
  const uint32_t bits = (rounded(high) & 0xffff0000) | rounded(low) >> 16;
  float pair;
  std::memcpy(&pair, &bits, sizeof pair);
  return pair;
}

// Weights [rows, taps] as pairs of taps [rows, items]. The inner loop has no branch, so that the
// compiler turns it into vector instructions.
inline void pair_taps(const float* weight, int64_t rows, int64_t taps, float* __restrict pairs) {
  const int64_t items = items_of(taps, true), whole = taps / 2;
  for (int64_t row = 0; row < rows; ++row, weight += taps, pairs += items) {
    for (int64_t i = 0; i < whole; ++i) pairs[i] = pair_of(weight[2 * i], weight[2 * i + 1]);
    if (whole < items) pairs[whole] = pair_of(weight[taps - 1], 0.0f);
  }
}

inline Buffer<float> pair_taps(const float* weight, int64_t rows, int64_t taps) {
  Buffer<float> pairs(rows * items_of(taps, true));
  pair_taps(weight, rows, taps, pairs.get());
  return pairs;
}

// Weights [clusters, rows, taps] as pairs of rows [clusters, pairs, taps], paired inside blocks of
// `block` rows; the last of an odd number of rows is paired with zeros. A cluster has
// `pairs_in_blocks` pairs.
inline int64_t pairs_in_blocks(int64_t rows, int64_t block) {
  return rows / block * items_of(block, true) + items_of(rows % block, true);
}

inline Buffer<float> pair_block_rows(const float* weight, int64_t clusters, int64_t rows,
                                     int64_t block, int64_t taps) {
  Buffer<float> pairs(clusters * pairs_in_blocks(rows, block) * taps);
  float* to = pairs.get();
  for (int64_t cluster = 0; cluster < clusters; ++cluster, weight += rows * taps) {
    for (int64_t first = 0; first < rows; first += block) {
      const int64_t last = std::min(rows, first + block);
      for (int64_t row = first; row < last; row += 2, to += taps) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const float next = row + 1 < last ? weight[(row + 1) * taps + tap] : 0.0f;
          to[tap] = pair_of(weight[row * taps + tap], next);
        }
      }
    }
  }
  return pairs;
}

}  // namespace caps
