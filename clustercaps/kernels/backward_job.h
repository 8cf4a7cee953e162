// What a backward pass works on, the same for all threads.
#pragma once

#include "layer.h"
#include "norm.h"
#include "panels.h"

namespace caps {

// Positions of a group of images, whose padded children and their gradients stay in cache.
constexpr int64_t kBackwardGroup = 512;
constexpr int64_t kBackwardPanels = 4;
// With so few taps, and no gradient for the input, the weight gradient is summed lane by lane.
constexpr int64_t kFewTaps = 16;
constexpr int64_t kFewTapsPanels = 16;
constexpr int64_t kAhead = 3;
// Gradients kept at once: about this many rows of the parents stay in the nearest cache.
constexpr int64_t kBlockRows = 128;

template <typename S>
struct BackwardJob {
  Layer layer;
  S eps;
  // Null moments: there is no norm.
  Norm<S> norm;
  const S* moments;
  const S* x;
  // Weights of mean and contrasts, for the votes and for the gradient of the patches: the same, or
  // pairs of taps and pairs of rows.
  const S* weight;
  const S* pull_weight;
  const S* bias;
  const S* capsules;
  const S* scale;
  const S* gradient;
  S* x_gradient;
  bool need_weight, need_bias, need_norm;
  BackwardPanel<S> panels;
  // Parents in a block of rows; taps rounded up to whole vectors, and to whole product rows.
  int64_t block, padded_taps, pulled_taps;

  int64_t map_size() const { return layer.dim * layer.positions(); }
  bool few_taps() const { return layer.taps() <= kFewTaps && !x_gradient; }
  // Whether the last taps and the bias fill at most half a vector, used for two positions then.
  bool tail() const {
    const int64_t last = layer.taps() % kLanes<S>;
    return kHasTails<S> && !layer.template pairs<S>() && !few_taps() && last > 0 &&
           2 * (last + 1) <= kLanes<S>;
  }
  // Whether a tap of ones stands in the padding: its weight's gradient is that of the bias.
  bool bias_as_tap() const {
    const int64_t room = padded_taps - layer.taps() - (tail() ? kLanes<S> / 2 : 0);
    return need_weight && need_bias && !few_taps() && room > 0;
  }
  // The sum for a tap in a row of weight gradients; that of the bias is tap number `taps`.
  S gradient_of(const S* row, int64_t tap) const {
    const int64_t first = padded_taps - kLanes<S>;
    if (!tail() || tap < first) return row[tap];
    return row[2 * tap - first] + row[2 * tap - first + 1];
  }
  // Rows of patches in a panel: whole blocks where they are turned.
  int64_t patch_rows() const { return few_taps() ? layer.taps() : padded_taps; }
};

}  // namespace caps
