// The two matrix products of the backward pass, blocked so that sums stay in registers.
#pragma once

#include "panels.h"
#include "tiles.h"

namespace caps {

// Rows of one operand of a product that are kept in registers for `vectors` vectors of the other.
constexpr int product_rows(int vectors) {
  const int fit = (kRegisters - 1) / vectors - 1;
  if (kRegisters >= 32) return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
  return vectors == 4 ? 2 : vectors == 3 ? 4 : vectors == 2 ? 6 : fit > 8 ? 8 : fit;
}

// Gradient of the patches: out [Rows, width] (+)= sum over r of weight [r, Rows] * votes [r, ...],
// with rows of weights `taps` apart. In bfloat16, rows are counted in pairs.
template <typename S, bool Pairs, int Rows, int Vectors>
void pull_patches(const S* weight, int64_t taps, const S* votes, int64_t count, bool fresh,
                  S* out) {
  constexpr int width = Vectors * kLanes<S>;
  Vec<S> sums[Rows][Vectors];
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      sums[m][v] = fresh ? Vec<S>{} : load(out + m * width + v * kLanes<S>);
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    Vec<S> y[Vectors];
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) y[v] = load(votes + v * kLanes<S>);
    CAPS_UNROLL
    for (int m = 0; m < Rows; ++m) {
      CAPS_UNROLL
      for (int v = 0; v < Vectors; ++v) add_product<Pairs, S>(sums[m][v], weight[m], y[v]);
    }
    weight += taps;
    votes += kRowStride<S>;
  }
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) store(out + m * width + v * kLanes<S>, sums[m][v]);
  }
}

// All taps of one panel: weight [count, taps], out [taps rounded up to product_rows, width]. Beyond
// the last tap it reads from the next row and writes values that are not used.
template <typename S, bool Pairs, int Vectors>
void pull_panel(const S* weight, const S* votes, int64_t count, int64_t taps, bool fresh, S* out) {
  constexpr int rows = product_rows(Vectors);
  for (int64_t tap = 0; tap < taps; tap += rows) {
    pull_patches<S, Pairs, rows, Vectors>(weight + tap, taps, votes, count, fresh,
                                          out + tap * Vectors * kLanes<S>);
  }
}

template <typename S, bool Pairs>
void pull_panel(int64_t width, const S* weight, const S* votes, int64_t count, int64_t taps,
                bool fresh, S* out) {
  switch (width / kLanes<S>) {
    case 1: return pull_panel<S, Pairs, 1>(weight, votes, count, taps, fresh, out);
    case 2: return pull_panel<S, Pairs, 2>(weight, votes, count, taps, fresh, out);
    case 3: return pull_panel<S, Pairs, 3>(weight, votes, count, taps, fresh, out);
    default: return pull_panel<S, Pairs, 4>(weight, votes, count, taps, fresh, out);
  }
}

// Operands of the weight gradient: out [row, padded taps] += votes [panel, row, position] times
// columns [panel, position, padded taps]. In bfloat16, positions are counted in pairs.
template <typename S>
struct WeightProduct {
  const S* votes;
  const S* columns;
  S* out;
  int64_t rows, padded_taps, panels, width;
  // Whether the last vector of columns is a tail, see `fold_tail`.
  bool tail;
};

template <typename S, bool Pairs, int Rows, int Vectors>
void push_block(const WeightProduct<S>& job, int64_t row, int64_t tap) {
  const int64_t taps = job.padded_taps;
  S* out = job.out + row * taps + tap;
  Vec<S> sums[Rows][Vectors];
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[m][v] = load(out + m * taps + v * kLanes<S>);
  }
  const S* columns = job.columns + tap;
  for (int64_t panel = 0; panel < job.panels; ++panel) {
    const S* votes = job.votes + (panel * job.rows + row) * kRowStride<S>;
    for (int64_t q = 0; q < job.width; ++q) {
      Vec<S> x[Vectors];
      CAPS_UNROLL
      for (int v = 0; v < Vectors; ++v) x[v] = load(columns + v * kLanes<S>);
      CAPS_UNROLL
      for (int m = 0; m < Rows; ++m) {
        CAPS_UNROLL
        for (int v = 0; v < Vectors; ++v) {
          add_product<Pairs, S>(sums[m][v], votes[m * kRowStride<S> + q], x[v]);
        }
      }
      columns += taps;
    }
  }
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) store(out + m * taps + v * kLanes<S>, sums[m][v]);
  }
}

template <typename S, bool Pairs, int Vectors>
void push_columns(const WeightProduct<S>& job, int64_t tap) {
  constexpr int rows = product_rows(Vectors);
  int64_t row = 0;
  for (; row + rows <= job.rows; row += rows) push_block<S, Pairs, rows, Vectors>(job, row, tap);
  if (rows > 4) {
    for (; row + 4 <= job.rows; row += 4) push_block<S, Pairs, 4, Vectors>(job, row, tap);
  }
  for (; row + 2 <= job.rows; row += 2) push_block<S, Pairs, 2, Vectors>(job, row, tap);
  for (; row < job.rows; ++row) push_block<S, Pairs, 1, Vectors>(job, row, tap);
}

// The last vector of taps, of which less than half is used, for two positions at a time: columns
// [panel, position, padded taps] are changed in place such that the last vector of every second
// position has lanes (tap, its position), (tap, next position), (next tap, its position), ...
template <int... lane>
void fold_tail(const Tile& tile, int64_t padded_taps, float* columns,
               std::integer_sequence<int, lane...>) {
  constexpr int lanes = kLanes<float>;
  columns += padded_taps - lanes;
  for (int64_t q = 0; q < tile.panels() * tile.width; q += 2, columns += 2 * padded_taps) {
    store(columns, pick<float>(load(columns), load(columns + padded_taps),
                               std::integer_sequence<int, (lane / 2 + lane % 2 * lanes)...>{}));
  }
}

// The product with a folded tail: lanes of `out` are those of the tail, two for each tap.
template <int Rows>
void push_tail(const WeightProduct<float>& job, int64_t row) {
  const int64_t taps = job.padded_taps;
  float* out = job.out + (row + 1) * taps - kLanes<float>;
  Vec<float> sums[Rows];
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) sums[m] = load(out + m * taps);
  const float* columns = job.columns + taps - kLanes<float>;
  for (int64_t panel = 0; panel < job.panels; ++panel) {
    const float* votes = job.votes + (panel * job.rows + row) * kRowStride<float>;
    for (int64_t q = 0; q < job.width; q += 2, columns += 2 * taps) {
      const Vec<float> x = load(columns);
      CAPS_UNROLL
      for (int m = 0; m < Rows; ++m) sums[m] += alternate(votes + m * kRowStride<float> + q) * x;
    }
  }
  CAPS_UNROLL
  for (int m = 0; m < Rows; ++m) store(out + m * taps, sums[m]);
}

// The whole product; the taps are divided such that no single vector is left over, if possible.
template <typename S, bool Pairs>
void push_weight(const WeightProduct<S>& job) {
  if constexpr (kHasTails<S>) {
    constexpr int rows = product_rows(1);
    int64_t row = 0;
    for (; job.tail && row + rows <= job.rows; row += rows) push_tail<rows>(job, row);
    for (; job.tail && row < job.rows; ++row) push_tail<1>(job, row);
  }
  int64_t left = job.padded_taps / kLanes<S> - job.tail;
  for (int64_t tap = 0; left > 0;) {
    const int64_t take = left <= 2 || left == 4 ? left : left % 3 == 0 || left == 5 ? 3 : 4;
    switch (take) {
      case 1: push_columns<S, Pairs, 1>(job, tap); break;
      case 2: push_columns<S, Pairs, 2>(job, tap); break;
      case 3: push_columns<S, Pairs, 3>(job, tap); break;
      default: push_columns<S, Pairs, 4>(job, tap); break;
    }
    tap += take * kLanes<S>;
    left -= take;
  }
}

}  // namespace caps
