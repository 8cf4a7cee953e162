// The inner loops: votes of one cluster for one parent and one panel of positions, in registers.
#pragma once

#include <algorithm>

#include "simd.h"

namespace caps {

constexpr int kMaxVotes = 8;
constexpr int kMaxVectors = 4;

// Rows of vote gradients are this far apart whatever the panel's width, so that the loops over
// them have constant addresses.
template <typename S>
constexpr int kGradientStride = kMaxVectors * kLanes<S>;

// Vectors of positions in a panel: as many as let K x vectors sums, the vectors themselves and one
// broadcast weight live in registers. More votes than kMaxVotes are worked through in blocks.
constexpr int panel_vectors(int64_t votes) {
  const int rows = votes > kMaxVotes ? kMaxVotes : static_cast<int>(votes);
  const int fit = (kRegisters - 1) / (rows + 1);
  return fit > kMaxVectors ? kMaxVectors : fit;
}

// What a panel function reads: weight [tap, vote], bias [vote], patches [tap, width].
template <typename S>
struct Panel {
  const S* weight;
  const S* bias;
  const S* patches;
  int64_t taps, votes;
  S eps;
  bool uniform;
  // [vote, width], used only with more than kMaxVotes votes.
  S* scratch;
};

template <typename S, int Rows, int Vectors>
CAPS_INLINE void cast_votes(const Panel<S>& panel, int64_t first, Vec<S> (&sums)[Rows][Vectors]) {
  const S* weight = panel.weight + first;
  const S* patches = panel.patches;
  const int64_t taps = panel.taps, votes = panel.votes <= kMaxVotes ? Rows : panel.votes;
  CAPS_UNROLL
  for (int k = 0; k < Rows; ++k) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[k][v] = Vec<S>{};
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    Vec<S> x[Vectors];
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) x[v] = load(patches + v * kLanes<S>);
    CAPS_UNROLL
    for (int k = 0; k < Rows; ++k) {
      CAPS_UNROLL
      for (int v = 0; v < Vectors; ++v) sums[k][v] += weight[k] * x[v];
    }
    patches += Vectors * kLanes<S>;
    weight += votes;
  }
  // Last, so that small products are not rounded to the precision of a large bias.
  CAPS_UNROLL
  for (int k = 0; k < Rows; ++k) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) sums[k][v] += panel.bias[first + k];
  }
}

// Centroid and confidence r = 1 / sqrt(variance + eps) from the votes; the votes become their
// differences from the centroid. `vote(k, v)` is a reference to the k-th vote at the v-th vector of
// positions. Vectors innermost: their chains of dependent steps run side by side.
template <typename S, int Vectors, typename Vote>
CAPS_INLINE void summarise(int64_t votes, S eps, Vote vote, Vec<S> (&centroid)[Vectors],
                           Vec<S> (&confidence)[Vectors]) {
  const S share = S(1) / static_cast<S>(votes);
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) centroid[v] = vote(0, v);
  for (int64_t k = 1; k < votes; ++k) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) centroid[v] += vote(k, v);
  }
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) centroid[v] *= share, confidence[v] = Vec<S>{};
  for (int64_t k = 0; k < votes; ++k) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      vote(k, v) -= centroid[v];
      confidence[v] += vote(k, v) * vote(k, v);
    }
  }
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) confidence[v] = confidence[v] * share + eps;
  // Without eps the variance may be zero, which the bit-level guess takes for a small number.
  if (eps > S(1e-30)) {
    inverse_sqrt(confidence);
  } else {
    exact_inverse_sqrt<S>(confidence);
  }
}

// sum [width] += r * centroid, total [width] += r.
template <typename S, int Vectors, typename Vote>
CAPS_INLINE void add_centroid(const Panel<S>& panel, int64_t votes, Vote vote, S* sum, S* total) {
  Vec<S> centroid[Vectors], confidence[Vectors];
  summarise<S>(votes, panel.eps, vote, centroid, confidence);
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v, sum += kLanes<S>, total += kLanes<S>) {
    if (panel.uniform) confidence[v] = Vec<S>{} + S(1);
    store(sum, load(sum) + confidence[v] * centroid[v]);
    store(total, load(total) + confidence[v]);
  }
}

// The votes become their gradients, from the parent and `pull`, which is the parent's gradient over
// (total * votes): pull * r * (1 - (m - s) * r^2 * (v_k - m)).
template <typename S, int Vectors, typename Vote>
CAPS_INLINE void differentiate(const Panel<S>& panel, int64_t votes, Vote vote, const S* pull,
                               const S* parent) {
  Vec<S> spread[Vectors], even[Vectors];
  summarise<S>(votes, panel.eps, vote, spread, even);
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const Vec<S> square = even[v] * even[v];
    even[v] *= load(pull + v * kLanes<S>);
    spread[v] = even[v] * (spread[v] - load(parent + v * kLanes<S>)) * square;
  }
  for (int64_t k = 0; k < votes; ++k) {
    CAPS_UNROLL
    for (int v = 0; v < Vectors; ++v) vote(k, v) = even[v] - spread[v] * vote(k, v);
  }
}

// Up to kMaxVotes votes, all in registers.
template <typename S, int K>
struct InRegisters {
  static constexpr int kVectors = panel_vectors(K);
  static constexpr int kWidth = kVectors * kLanes<S>;

  static void forward(const Panel<S>& panel, S* sum, S* total) {
    Vec<S> votes[K][kVectors];
    cast_votes<S, K, kVectors>(panel, 0, votes);
    auto vote = [&](int64_t k, int v) -> Vec<S>& { return votes[k][v]; };
    add_centroid<S, kVectors>(panel, K, vote, sum, total);
  }

  static void backward(const Panel<S>& panel, const S* pull, const S* parent, S* gradients) {
    Vec<S> votes[K][kVectors];
    cast_votes<S, K, kVectors>(panel, 0, votes);
    auto vote = [&](int64_t k, int v) -> Vec<S>& { return votes[k][v]; };
    differentiate<S, kVectors>(panel, K, vote, pull, parent);
    CAPS_UNROLL
    for (int k = 0; k < K; ++k) {
      S* to = gradients + k * kGradientStride<S>;
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes<S>, votes[k][v]);
    }
  }

  static void learn(const Panel<S>& panel, const S* pull, const S* parent, S* sums) {
    Vec<S> votes[K][kVectors];
    cast_votes<S, K, kVectors>(panel, 0, votes);
    auto vote = [&](int64_t k, int v) -> Vec<S>& { return votes[k][v]; };
    differentiate<S, kVectors>(panel, K, vote, pull, parent);
    const S* patches = panel.patches;
    for (int64_t tap = 0; tap < panel.taps; ++tap, patches += kWidth, sums += K * kLanes<S>) {
      Vec<S> x[kVectors];
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) x[v] = load(patches + v * kLanes<S>);
      CAPS_UNROLL
      for (int k = 0; k < K; ++k) {
        Vec<S> sum = load(sums + k * kLanes<S>);
        CAPS_UNROLL
        for (int v = 0; v < kVectors; ++v) sum += votes[k][v] * x[v];
        store(sums + k * kLanes<S>, sum);
      }
    }
    CAPS_UNROLL
    for (int k = 0; k < K; ++k) {
      Vec<S> sum = load(sums + k * kLanes<S>);
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) sum += votes[k][v];
      store(sums + k * kLanes<S>, sum);
    }
  }
};

// Any number of votes, through scratch memory.
template <typename S>
struct InMemory {
  static constexpr int kVectors = panel_vectors(kMaxVotes);
  static constexpr int kWidth = kVectors * kLanes<S>;

  template <int Rows>
  static void cast(const Panel<S>& panel, int64_t first) {
    Vec<S> votes[Rows][kVectors];
    cast_votes<S, Rows, kVectors>(panel, first, votes);
    CAPS_UNROLL
    for (int k = 0; k < Rows; ++k) {
      S* to = panel.scratch + (first + k) * kWidth;
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes<S>, votes[k][v]);
    }
  }

  static void cast_all(const Panel<S>& panel) {
    int64_t first = 0;
    for (; first + kMaxVotes <= panel.votes; first += kMaxVotes) cast<kMaxVotes>(panel, first);
    for (; first < panel.votes; ++first) cast<1>(panel, first);
  }

  static void forward(const Panel<S>& panel, S* sum, S* total) {
    cast_all(panel);
    auto vote = [&](int64_t k, int v) -> Vec<S>& { return stored(panel, k, v); };
    add_centroid<S, kVectors>(panel, panel.votes, vote, sum, total);
  }

  static void backward(const Panel<S>& panel, const S* pull, const S* parent, S* gradients) {
    cast_all(panel);
    auto vote = [&](int64_t k, int v) -> Vec<S>& { return stored(panel, k, v); };
    differentiate<S, kVectors>(panel, panel.votes, vote, pull, parent);
    for (int64_t k = 0; k < panel.votes; ++k) {
      std::copy_n(panel.scratch + k * kWidth, kWidth, gradients + k * kGradientStride<S>);
    }
  }

  static Vec<S>& stored(const Panel<S>& panel, int64_t k, int v) {
    return *reinterpret_cast<Vec<S>*>(panel.scratch + k * kWidth + v * kLanes<S>);
  }

  static constexpr void (*learn)(const Panel<S>&, const S*, const S*, S*) = nullptr;
};

template <typename S>
struct PanelFunctions {
  int64_t width;
  // Adds a cluster to sum [width] and total [width] of a parent.
  void (*forward)(const Panel<S>&, S* sum, S* total);
  // Gradients of the votes [vote, kGradientStride].
  void (*backward)(const Panel<S>&, const S* pull, const S* parent, S* gradients);
  // Adds to the gradients of weight and bias, sums [tap + 1, vote, lane] with the bias last. For
  // layers with few taps whose input needs no gradient: their vote gradients are not stored.
  // Null with more than kMaxVotes votes.
  void (*learn)(const Panel<S>&, const S* pull, const S* parent, S* sums);
};

template <typename S, typename How>
PanelFunctions<S> panel_functions_of() {
  return {How::kWidth, How::forward, How::backward, How::learn};
}

template <typename S>
PanelFunctions<S> panel_functions(int64_t votes) {
  switch (votes) {
    case 1: return panel_functions_of<S, InRegisters<S, 1>>();
    case 2: return panel_functions_of<S, InRegisters<S, 2>>();
    case 3: return panel_functions_of<S, InRegisters<S, 3>>();
    case 4: return panel_functions_of<S, InRegisters<S, 4>>();
    case 5: return panel_functions_of<S, InRegisters<S, 5>>();
    case 6: return panel_functions_of<S, InRegisters<S, 6>>();
    case 7: return panel_functions_of<S, InRegisters<S, 7>>();
    case 8: return panel_functions_of<S, InRegisters<S, 8>>();
    default: return panel_functions_of<S, InMemory<S>>();
  }
}

}  // namespace caps
