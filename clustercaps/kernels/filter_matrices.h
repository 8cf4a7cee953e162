// Minimal filtering: M outputs of a one-dimensional convolution with K taps and a stride, from
// stride (M - 1) + K products instead of K M (Toom and Cook; for images, Winograd and Lavin).
//
// With matrices A [M, points], G [points, K] and B [points, points],
//     y = A [(G w) . (B x)],
// where . multiplies entry by entry: G w and B x are values of polynomials at some points, and A
// adds up the products. For images, the matrices are applied to rows and to columns. The gradients
// are the transposes: dx = B^T [(G w) . (A^T dy)] and dw = G^T [(B x) . (A^T dy)].
//
// A convolution with stride 2 is the sum of one of the even and one of the odd inputs and taps, both
// with stride 1: its matrices are those of both, one after the other.
#pragma once

#include "simd.h"

namespace caps {

// The last point is always infinity. Small points and their inverses, with both signs, keep
// rounding errors small.
constexpr double kPoints[] = {0, 1, -1, 0.5, -2, 2, -0.5};

template <int Rows, int Columns>
struct Grid {
  static constexpr int kRows = Rows, kColumns = Columns;
  double at[Rows][Columns] = {};

  constexpr Grid<Columns, Rows> transposed() const {
    Grid<Columns, Rows> result;
    for (int r = 0; r < Rows; ++r) {
      for (int c = 0; c < Columns; ++c) result.at[c][r] = at[r][c];
    }
    return result;
  }
};

template <int K, int Stride, int M>
struct Filter {
  static constexpr int kTaps = K, kStride = Stride, kOutputs = M;
  // Inputs of a tile of M outputs, which is also the number of points.
  static constexpr int kTile = Stride * (M - 1) + K;

  Grid<M, kTile> a;
  Grid<kTile, K> g;
  Grid<kTile, kTile> b;

  constexpr Filter() {
    int first = 0;
    for (int phase = 0; phase < Stride; ++phase) {
      const int taps = (K - phase + Stride - 1) / Stride;
      if (taps == 1) {
        add_single(phase, first);
      } else {
        add_phase(phase, taps, first);
      }
      first += M + taps - 1;
    }
  }

 private:
  // One tap: nothing can be saved.
  constexpr void add_single(int phase, int first) {
    for (int m = 0; m < M; ++m) {
      a.at[m][first + m] = g.at[first + m][phase] = b.at[first + m][phase + Stride * m] = 1;
    }
  }

  // The taps and inputs phase, phase + Stride, ...; points are numbered from `first`.
  constexpr void add_phase(int phase, int taps, int first) {
    const int finite = M + taps - 2;
    for (int p = 0; p <= finite; ++p) {
      // Coefficients of the product of (z - other point), and its value at the point itself.
      double product[kTile + 1] = {1}, value = 1;
      int degree = 0;
      for (int other = 0; other < finite; ++other) {
        if (other == p) continue;
        for (int i = ++degree; i >= 0; --i) {
          product[i] = (i > 0 ? product[i - 1] : 0) - kPoints[other] * product[i];
        }
        if (p < finite) value *= kPoints[p] - kPoints[other];
      }
      for (int i = 0; i <= degree; ++i) b.at[first + p][phase + Stride * i] = product[i];
      if (p == finite) {
        g.at[first + p][phase + Stride * (taps - 1)] = a.at[M - 1][first + p] = 1;
        continue;
      }
      double power = 1;
      for (int i = 0; i < M || i < taps; ++i, power *= kPoints[p]) {
        if (i < taps) g.at[first + p][phase + Stride * i] = power / value;
        if (i < M) a.at[i][first + p] = power;
      }
    }
  }
};

// The matrices and their transposes, as types that a template can take.
template <typename F>
inline constexpr F kFilter{};
template <typename F>
struct A {
  static constexpr auto value = kFilter<F>.a;
};
template <typename F>
struct G {
  static constexpr auto value = kFilter<F>.g;
};
template <typename F>
struct B {
  static constexpr auto value = kFilter<F>.b;
};
template <typename Of>
struct Transposed {
  static constexpr auto value = Of::value.transposed();
};

// Calls step(0), step(1), ... with numbers known to the compiler.
template <int Count, typename Step>
CAPS_INLINE void unrolled(Step step) {
  [&]<int... n>(std::integer_sequence<int, n...>) __attribute__((always_inline)) {
    (step(std::integral_constant<int, n>{}), ...);
  }(std::make_integer_sequence<int, Count>{});
}

// Sum over c of matrix [r][c] in [c], without the entries that are 0.
template <typename Matrix, int r, int columns>
CAPS_INLINE Vec<float> row_product(const Vec<float> (&in)[columns]) {
  Vec<float> sum{};
  unrolled<columns>([&](auto c) __attribute__((always_inline)) {
    constexpr float factor = Matrix::value.at[r][c];
    if constexpr (factor == 1) {
      sum += in[c];
    } else if constexpr (factor == -1) {
      sum -= in[c];
    } else if constexpr (factor != 0) {
      sum += factor * in[c];
    }
  });
  return sum;
}

// Calls put(r, entry r of matrix times in).
template <typename Matrix, int columns, typename Put>
CAPS_INLINE void multiply(const Vec<float> (&in)[columns], Put put) {
  unrolled<Matrix::value.kRows>([&](auto r) __attribute__((always_inline)) {
    put(r, row_product<Matrix, r>(in));
  });
}

// Calls put(r, s, entry [r][s] of matrix times in times matrix^T), with in [column, column] from
// get(row, column).
template <typename Matrix, typename Get, typename Put>
CAPS_INLINE void multiply_both(Get get, Put put) {
  constexpr int rows = Matrix::value.kRows, columns = Matrix::value.kColumns;
  Vec<float> half[rows][columns];
  for (int c = 0; c < columns; ++c) {
    Vec<float> in[columns];
    unrolled<columns>([&](auto r) { in[r] = get(r, c); });
    multiply<Matrix>(in, [&](auto r, Vec<float> value) { half[r][c] = value; });
  }
  for (int r = 0; r < rows; ++r) {
    multiply<Matrix>(half[r], [&](auto s, Vec<float> value) { put(r, s, value); });
  }
}

}  // namespace caps
