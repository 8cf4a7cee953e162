// Layer norm of the feature map of a channel, applied while it is still in cache.
#pragma once

#include "simd.h"

namespace caps {

// Scale and shift, one value each per entry of a feature map, or null for none.
template <typename S>
struct Norm {
  const S* weight;
  const S* bias;
  S eps;
};

// Coefficients of the gradient of a feature map: for gradient g of the normalised map with weight
// w, gradient of x = deviation * (g w - mean_pull - (x - mean) * lean), where deviation is the
// inverse standard deviation 1 / sqrt(var + eps).
template <typename S>
struct Slope {
  S mean, deviation, mean_pull, lean;
};

// The sum of term(i, Whole or One) over `size` entries, in vectors as far as possible.
template <typename S, typename Term>
CAPS_INLINE S sum_up(int64_t size, Term term) {
  constexpr int64_t lanes = kLanes<S>;
  Vec<S> sums[4] = {};
  S sum = 0;
  int64_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    CAPS_UNROLL
    for (int v = 0; v < 4; ++v) sums[v] += term(i + v * lanes, Whole<S>{});
  }
  for (; i + lanes <= size; i += lanes) sums[0] += term(i, Whole<S>{});
  for (; i < size; ++i) sum += term(i, One<S>{});
  const Vec<S> all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int lane = 0; lane < lanes; ++lane) sum += all[lane];
  return sum;
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias; y may be x. Mean and 1 / sqrt are written
// to `moments` unless it is null.
template <typename S>
void normalise(const Norm<S>& norm, int64_t size, const S* x, S* y, S* moments) {
  const S share = S(1) / static_cast<S>(size);
  const S mean = share * sum_up<S>(size, [&](int64_t i, auto some) {
    return typename decltype(some)::Type(as<decltype(some)>(x + i));
  });
  const S variance = share * sum_up<S>(size, [&](int64_t i, auto some) {
    const auto off = as<decltype(some)>(x + i) - mean;
    return off * off;
  });
  const S deviation = S(1) / std::sqrt(variance + norm.eps);
  in_vectors<S>(size, [&](int64_t i, auto some) {
    typedef decltype(some) Some;
    auto value = (as<Some>(x + i) - mean) * deviation;
    if (norm.weight) value = value * as<Some>(norm.weight + i) + as<Some>(norm.bias + i);
    as<Some>(y + i) = value;
  });
  if (moments) moments[0] = mean, moments[1] = deviation;
}

// The slope of one feature map from its gradient; adds to the gradients of weight and bias unless
// null.
template <typename S>
Slope<S> norm_slope(const Norm<S>& norm, int64_t size, const S* x, const S* moments,
                    const S* gradient, S* weight_gradient, S* bias_gradient) {
  const S share = S(1) / static_cast<S>(size), mean = moments[0], deviation = moments[1];
  Vec<S> pulls = {};
  S last_pulls = 0;
  const S lean = sum_up<S>(size, [&](int64_t i, auto some) {
    typedef decltype(some) Some;
    const auto height = (as<Some>(x + i) - mean) * deviation;
    auto pull = as<Some>(gradient + i);
    if (weight_gradient) {
      as<Some>(weight_gradient + i) += pull * height;
      as<Some>(bias_gradient + i) += pull;
    }
    if (norm.weight) pull *= as<Some>(norm.weight + i);
    if constexpr (std::is_same_v<Some, One<S>>) {
      last_pulls += pull;
    } else {
      pulls += pull;
    }
    return pull * height;
  });
  for (int lane = 0; lane < kLanes<S>; ++lane) last_pulls += pulls[lane];
  return {mean, deviation, share * last_pulls, share * lean * deviation};
}

}  // namespace caps
