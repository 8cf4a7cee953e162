// The inner loops: votes of one cluster for its parents at one panel of positions, in registers.
#pragma once

#include <algorithm>

#include "bfloat16.h"
#include "simd.h"

namespace caps {

constexpr int kMaxRows = 8;
constexpr int kMaxVectors = 4;
constexpr int kNarrowVectors = 2;

// Distance between rows of gradients, the same for any panel width, so that loops over them have
// constant offsets.
template <typename S>
constexpr int kRowStride = kMaxVectors * kLanes<S>;

// Vectors of positions in a panel: as many as possible such that rows x vectors sums, the vectors
// themselves and one broadcast weight fit in registers. More than kMaxRows rows are processed in
// blocks.
constexpr int panel_vectors(int64_t rows) {
  const int block = rows > kMaxRows ? kMaxRows : static_cast<int>(rows);
  const int fit = (kRegisters - 1) / (block + 1);
  return fit > kMaxVectors ? kMaxVectors : fit;
}

// Parents processed together: with few rows, a single one would have too few independent sums to
// keep the multiply units busy.
constexpr int parents_together(int rows) {
  if (kRegisters < 32) return 1;
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// Input of a panel function. The weight of a cluster is [parent, row, tap] and its bias [parent,
// row], row 0 for the centroid and the others for the contrasts; patches are [tap, width]. In
// bfloat16, taps are counted in pairs.
template <typename S>
struct Panel {
  const S* patches;
  const S* weight;
  const S* bias;
  int64_t taps, rows, parents;
  S eps;
  // The rest is used only by `learn`: [row, kRowStride] for more than kMaxRows rows; patches [tap,
  // vector], or pairs of their vectors; and the number of taps, never in pairs.
  S* scratch = nullptr;
  const S* learned = nullptr;
  int64_t all_taps = 0;

  void next_parents(int64_t count) {
    weight += count * rows * taps;
    bias += count * rows;
    parents -= count;
  }
};

// sums [row, vector] of `Rows` rows, starting with row `first`.
template <typename S, bool Pairs, int Rows, int Vectors>
CAPS_INLINE void cast(const Panel<S>& panel, int64_t first, Vec<S> (&sums)[Rows][Vectors]) {
  const int64_t taps = panel.taps;
  const S* patches = panel.patches;
  const S* weight[Rows];
  CAPS_UNROLL
  for (int k = 0; k < Rows; ++k) {
    weight[k] = panel.weight + (first + k) * taps;
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[k][v] = Vec<S>{} + panel.bias[first + k];
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    Vec<S> x[Vectors];
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) x[v] = load(patches + v * kLanes<S>);
    CAPS_UNROLL
    for (int k = 0; k < Rows; ++k) {
      CAPS_UNROLL
      for (int v = 0; v < Vectors; ++v) add_product<Pairs, S>(sums[k][v], weight[k][tap], x[v]);
    }
    patches += Vectors * kLanes<S>;
  }
}

// variance += squares of the contrasts in `Rows` rows.
template <typename S, int First, int Rows, int All, int Vectors>
CAPS_INLINE void add_squares(const Vec<S> (&sums)[All][Vectors], Vec<S> (&variance)[Vectors]) {
  CAPS_UNROLL
  for (int k = First; k < First + Rows; ++k) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) variance[v] += sums[k][v] * sums[k][v];
  }
}

// Replaces variance + eps by the confidence r = 1 / sqrt(variance + eps).
template <typename S, int Vectors>
CAPS_INLINE void to_confidence(S eps, Vec<S> (&variance)[Vectors]) {
  // Without eps the variance may be zero, for which the estimate is not valid.
  if (eps > S(1e-30)) {
    inverse_sqrt(variance);
  } else {
    exact_inverse_sqrt<S>(variance);
  }
}

// sum [width] += r * centroid, total [width] += r.
template <typename S, int Vectors>
CAPS_INLINE void add_centroid(const Vec<S> (&centroid)[Vectors], const Vec<S> (&confidence)[Vectors],
                              S* sum, S* total) {
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v, sum += kLanes<S>, total += kLanes<S>) {
    store(sum, load(sum) + confidence[v] * centroid[v]);
    store(total, load(total) + confidence[v]);
  }
}

// Gradients from the parent s and its pull, the gradient divided by the total: that of the centroid
// m is pull * r, and that of a contrast c is `lean` * c with lean = -pull * r * (m - s) * r^2. The
// centroid is replaced by the former, the confidence by lean.
template <typename S, int Vectors>
CAPS_INLINE void differentiate(Vec<S> (&centroid)[Vectors], Vec<S> (&confidence)[Vectors],
                               const S* pull, const S* parent) {
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const Vec<S> even = confidence[v] * load(pull + v * kLanes<S>);
    const Vec<S> square = confidence[v] * confidence[v];
    confidence[v] = (load(parent + v * kLanes<S>) - centroid[v]) * even * square;
    centroid[v] = even;
  }
}

// sums [tap + 1, row, lane] += gradients [row, vector] x patches, with the gradients themselves
// last, for the bias. `sums` points to the first of `Rows` rows. In bfloat16, vectors are paired.
template <typename S, bool Pairs, int Rows, int Vectors>
CAPS_INLINE void add_products(const Panel<S>& panel, Vec<S> (&gradients)[Rows][Vectors], S* sums) {
  const S* patches = panel.learned;
  const int64_t step = panel.rows * kLanes<S>;
  S* bias = sums + panel.all_taps * step;
  CAPS_UNROLL
  for (int k = 0; k < Rows; ++k) {
    Vec<S> sum = load(bias + k * kLanes<S>);
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) sum += gradients[k][v];
    store(bias + k * kLanes<S>, sum);
  }
  constexpr int items = Pairs ? (Vectors + 1) / 2 : Vectors;
  if constexpr (Pairs) {
    CAPS_UNROLL
    for (int k = 0; k < Rows; ++k) pair_vectors(gradients[k]);
  }
  for (int64_t tap = 0; tap < panel.all_taps; ++tap, sums += step) {
    Vec<S> sum[Rows];
    CAPS_UNROLL
    for (int k = 0; k < Rows; ++k) sum[k] = load(sums + k * kLanes<S>);
    CAPS_UNROLL
    for (int v = 0; v < items; ++v, patches += kLanes<S>) {
      const Vec<S> x = load(patches);
      CAPS_UNROLL
      for (int k = 0; k < Rows; ++k) add_vectors<Pairs, S>(sum[k], gradients[k][v], x);
    }
    CAPS_UNROLL
    for (int k = 0; k < Rows; ++k) store(sums + k * kLanes<S>, sum[k]);
  }
}

// Up to kMaxRows rows, all in registers.
template <typename S, int K, bool Pairs, int Vectors = panel_vectors(K)>
struct InRegisters {
  static constexpr int kVectors = Vectors;
  static constexpr int kWidth = kVectors * kLanes<S>;
  static constexpr int kTogether = parents_together(K);
  // For few positions, of which the last wide panel would leave most vectors empty.
  typedef InRegisters<S, K, Pairs, std::min(Vectors, kNarrowVectors)> Narrow;

  static void forward(Panel<S> panel, S* sum, S* total) {
    each_parent(panel, [&](const Panel<S>& some, auto together) __attribute__((always_inline)) {
      constexpr int count = decltype(together)::value;
      Vec<S> rows[count * K][kVectors], confidence[count][kVectors];
      judge(some, rows, confidence);
      CAPS_UNROLL
      for (int p = 0; p < count; ++p, sum += kWidth, total += kWidth) {
        add_centroid<S>(rows[p * K], confidence[p], sum, total);
      }
    });
  }

  static void backward(Panel<S> panel, const S* pull, const S* parent, S* gradients) {
    each_parent(panel, [&](const Panel<S>& some, auto together) __attribute__((always_inline)) {
      constexpr int count = decltype(together)::value;
      Vec<S> rows[count * K][kVectors], confidence[count][kVectors];
      judge(some, rows, confidence);
      CAPS_UNROLL
      for (int p = 0; p < count; ++p, pull += kWidth, parent += kWidth) {
        differentiate<S>(rows[p * K], confidence[p], pull, parent);
        CAPS_UNROLL
        for (int k = 0; k < K; ++k, gradients += kRowStride<S>) {
          CAPS_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            store(gradients + v * kLanes<S>,
                  k ? rows[p * K + k][v] * confidence[p][v] : rows[p * K][v]);
          }
        }
      }
    });
  }

  static void learn(Panel<S> panel, const S* pull, const S* parent, S* sums) {
    Vec<S> rows[K][kVectors], confidence[1][kVectors];
    judge(panel, rows, confidence);
    differentiate<S>(rows[0], confidence[0], pull, parent);
    CAPS_UNROLL
    for (int k = 1; k < K; ++k) {
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) rows[k][v] *= confidence[0][v];
    }
    add_products<S, Pairs>(panel, rows, sums);
  }

 private:
  template <int All, int Count>
  static CAPS_INLINE void judge(const Panel<S>& panel, Vec<S> (&rows)[All][kVectors],
                                Vec<S> (&confidence)[Count][kVectors]) {
    cast<S, Pairs>(panel, 0, rows);
    judge_each(panel, rows, confidence, std::make_integer_sequence<int, Count>{});
  }

  template <int All, int Count, int... p>
  static CAPS_INLINE void judge_each(const Panel<S>& panel, const Vec<S> (&rows)[All][kVectors],
                                     Vec<S> (&confidence)[Count][kVectors],
                                     std::integer_sequence<int, p...>) {
    CAPS_UNROLL
    for (int i = 0; i < Count; ++i) {
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) confidence[i][v] = Vec<S>{} + panel.eps;
    }
    (add_squares<S, p * K + 1, K - 1>(rows, confidence[p]), ...);
    (to_confidence<S>(panel.eps, confidence[p]), ...);
  }

  template <typename Work>
  static CAPS_INLINE void each_parent(Panel<S> panel, Work work) {
    for (; panel.parents >= kTogether; panel.next_parents(kTogether)) {
      work(panel, std::integral_constant<int, kTogether>{});
    }
    for (; kTogether > 1 && panel.parents > 0; panel.next_parents(1)) {
      work(panel, std::integral_constant<int, 1>{});
    }
  }
};

template <typename S>
struct ForwardPanel {
  int64_t width;
  // Adds a cluster to sum [parent, width] and total [parent, width].
  void (*add)(Panel<S>, S* sum, S* total);
};

template <typename S>
struct BackwardPanel {
  int64_t width;
  // Gradients of the rows [parent, row, kRowStride].
  void (*backward)(Panel<S>, const S* pull, const S* parent, S* gradients);
  // Adds to the gradients of weight and bias of one parent, sums [tap + 1, row, lane] with the bias
  // last. For layers with few taps whose input needs no gradient; nothing else is stored.
  void (*learn)(Panel<S>, const S* pull, const S* parent, S* sums);
};

}  // namespace caps
