// Panel functions for more rows than fit in registers: they are processed in blocks.
#pragma once

#include "layer.h"
#include "panels.h"

namespace caps {

template <typename S, bool Pairs>
struct InBlocks {
  static constexpr int kVectors = panel_vectors(kMaxRows);
  static constexpr int kWidth = kVectors * kLanes<S>;
  typedef InBlocks Narrow;

  static void forward(Panel<S> panel, S* sum, S* total) {
    for (; panel.parents > 0; panel.next_parents(1), sum += kWidth, total += kWidth) {
      Vec<S> centroid[kVectors], confidence[kVectors];
      judge(panel, centroid, confidence, [](int64_t, const auto&) {});
      add_centroid<S>(centroid, confidence, sum, total);
    }
  }

  static void backward(Panel<S> panel, const S* pull, const S* parent, S* gradients) {
    for (; panel.parents > 0; panel.next_parents(1), pull += kWidth, parent += kWidth) {
      Vec<S> centroid[kVectors], lean[kVectors];
      judge(panel, centroid, lean, [&](int64_t first, const auto& rows) {
        keep(rows, gradients + first * kRowStride<S>);
      });
      differentiate<S>(centroid, lean, pull, parent);
      for (int v = 0; v < kVectors; ++v) store(gradients + v * kLanes<S>, centroid[v]);
      gradients += kRowStride<S>;
      for (int64_t k = 1; k < panel.rows; ++k, gradients += kRowStride<S>) {
        CAPS_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          S* at = gradients + v * kLanes<S>;
          store(at, load(at) * lean[v]);
        }
      }
    }
  }

  static void learn(Panel<S> panel, const S* pull, const S* parent, S* sums) {
    panel.parents = 1;
    backward(panel, pull, parent, panel.scratch);
    in_blocks(panel.rows, [&](int64_t first, auto size) {
      constexpr int count = decltype(size)::value;
      Vec<S> rows[count][kVectors];
      CAPS_UNROLL
      for (int k = 0; k < count; ++k) {
        CAPS_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          rows[k][v] = load(panel.scratch + (first + k) * kRowStride<S> + v * kLanes<S>);
        }
      }
      add_products<S, Pairs>(panel, rows, sums + first * kLanes<S>);
    });
  }

 private:
  // Calls work(first row, number of rows) for blocks of 8, then 4, then single rows.
  template <typename Work>
  static CAPS_INLINE void in_blocks(int64_t rows, Work work) {
    int64_t first = 0;
    for (; first + kMaxRows <= rows; first += kMaxRows) {
      work(first, std::integral_constant<int, kMaxRows>{});
    }
    if (first + 4 <= rows) work(first, std::integral_constant<int, 4>{}), first += 4;
    for (; first < rows; ++first) work(first, std::integral_constant<int, 1>{});
  }

  // Centroid and confidence of one parent; calls seen(first row, rows) for every block.
  template <typename Seen>
  static CAPS_INLINE void judge(const Panel<S>& panel, Vec<S> (&centroid)[kVectors],
                                Vec<S> (&confidence)[kVectors], Seen seen) {
    CAPS_UNROLL
    for (int v = 0; v < kVectors; ++v) confidence[v] = Vec<S>{} + panel.eps;
    in_blocks(panel.rows, [&](int64_t first, auto size) {
      constexpr int count = decltype(size)::value;
      Vec<S> rows[count][kVectors];
      cast<S, Pairs>(panel, first, rows);
      seen(first, rows);
      if (first == 0) {
        CAPS_UNROLL
        for (int v = 0; v < kVectors; ++v) centroid[v] = rows[0][v], rows[0][v] = Vec<S>{};
      }
      add_squares<S, 0, count>(rows, confidence);
    });
    to_confidence<S>(panel.eps, confidence);
  }

  template <int Count>
  static CAPS_INLINE void keep(const Vec<S> (&rows)[Count][kVectors], S* to) {
    CAPS_UNROLL
    for (int k = 0; k < Count; ++k, to += kRowStride<S>) {
      CAPS_UNROLL
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes<S>, rows[k][v]);
    }
  }
};

template <typename S, bool Pairs, typename Choose>
auto with_rows(int64_t rows, Choose choose) {
  switch (rows) {
    case 1: return choose(InRegisters<S, 1, Pairs>{});
    case 2: return choose(InRegisters<S, 2, Pairs>{});
    case 3: return choose(InRegisters<S, 3, Pairs>{});
    case 4: return choose(InRegisters<S, 4, Pairs>{});
    case 5: return choose(InRegisters<S, 5, Pairs>{});
    case 6: return choose(InRegisters<S, 6, Pairs>{});
    case 7: return choose(InRegisters<S, 7, Pairs>{});
    case 8: return choose(InRegisters<S, 8, Pairs>{});
    default: return choose(InBlocks<S, Pairs>{});
  }
}

// Calls choose(how) with the panel functions for the rows and products of the layer.
template <typename S, typename Choose>
auto with_panels(const Layer& layer, Choose choose) {
  if constexpr (kHasPairs<S>) {
    if (layer.pairs<S>()) return with_rows<S, true>(layer.rows(), choose);
  }
  return with_rows<S, false>(layer.rows(), choose);
}

template <typename S>
BackwardPanel<S> backward_panel(const Layer& layer) {
  return with_panels<S>(layer, [](auto how) {
    return BackwardPanel<S>{how.kWidth, how.backward, how.learn};
  });
}

// Every position is computed in the same way whatever the width. A narrow panel takes slightly more
// time per vector, so it has to save more than a sixteenth of them.
template <typename S>
ForwardPanel<S> forward_panel(const Layer& layer) {
  const int64_t positions = layer.batch * layer.positions();
  return with_panels<S>(layer, [&](auto how) {
    typedef typename decltype(how)::Narrow Narrow;
    const int64_t narrow = round_up(positions, Narrow::kWidth);
    const int64_t wide = round_up(positions, how.kWidth);
    return 16 * narrow < 15 * wide ? ForwardPanel<S>{Narrow::kWidth, Narrow::forward}
                                   : ForwardPanel<S>{how.kWidth, how.forward};
  });
}

}  // namespace caps
