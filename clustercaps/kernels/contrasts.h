// Centroid and contrasts. Cluster routing needs only the mean and variance of K votes. An
// orthogonal matrix transforms the votes to their mean m and K - 1 contrasts,
//
//     c_j = a_j (v_0 + ... + v_{j-1} - j v_j),   a_j = 1 / sqrt(j (j + 1) K),   j = 1 ... K - 1,
//
// whose squares sum to the variance. A vote is linear in its weights, so the weights are
// transformed instead, once per call, and no vote has to be centred.
#pragma once

#include <ATen/Parallel.h>

#include "layer.h"

namespace caps {

// Multiplied as double: the product of integers would overflow for two million votes.
inline double contrast_scale(int64_t j, int64_t votes) {
  const double first = static_cast<double>(j), count = static_cast<double>(votes);
  return 1 / std::sqrt(first * (first + 1) * count);
}

// Transforms the votes of a cluster for one parent, for as many consecutive entries as `Some` has.
template <typename Some, typename S>
CAPS_INLINE void turn(const Layer& layer, const S* votes, int64_t step, S* rows, int64_t size,
                      const std::vector<S>& scales) {
  typename Some::Type sum = as<Some>(votes);
  for (int64_t j = 1; j < layer.votes; ++j) {
    const typename Some::Type vote = as<Some>(votes + j * step);
    if (layer.rows() > 1) as<Some>(rows + j * size) = scales[j] * (sum - S(j) * vote);
    sum += vote;
  }
  as<Some>(rows) = sum * scales[0];
}

// Transforms weight [cluster, vote, parent, size] to [cluster, parent, row, size], row 0 for m and
// row j for c_j; `size` is the number of taps, or 1 for the bias.
template <typename S>
class Contrasts {
 public:
  Contrasts(const Layer& layer, const S* weight, int64_t size)
      : layer_(layer), weight_(weight), size_(size), scales_{S(1) / static_cast<S>(layer.votes)} {
    for (int64_t j = 1; j < layer.votes; ++j) {
      scales_.push_back(S(contrast_scale(j, layer.votes)));
    }
  }

  // The rows [row, size] of one cluster and parent.
  void turn_one(int64_t cluster, int64_t parent, S* rows) const {
    const int64_t parents = layer_.parents();
    const S* votes = weight_ + (cluster * layer_.votes * parents + parent) * size_;
    in_vectors<S>(size_, [&](int64_t i, auto some) {
      turn<decltype(some)>(layer_, votes + i, parents * size_, rows + i, size_, scales_);
    });
  }

 private:
  const Layer& layer_;
  const S* weight_;
  int64_t size_;
  std::vector<S> scales_;
};

// All clusters and parents; null means zeros.
template <typename S>
Buffer<S> to_contrasts(const Layer& layer, const S* weight, int64_t size) {
  const int64_t parents = layer.parents(), all = layer.all_clusters() * parents;
  Buffer<S> turned(all * layer.rows() * size);
  if (!weight) return turned;
  const Contrasts<S> contrasts(layer, weight, size);
  const int64_t grain = std::max<int64_t>(1, 65536 / (size * layer.votes));
  at::parallel_for(0, all, grain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      contrasts.turn_one(at / parents, at % parents, turned.get() + at * layer.rows() * size);
    }
  });
  return turned;
}

// The gradient of to_contrasts for one cluster and parent: from rows [row, size], which are
// overwritten, to the votes at weight, `step` apart.
template <typename S>
void from_contrasts(const Layer& layer, double* __restrict rows, int64_t size, S* weight,
                    int64_t step) {
  const double share = 1 / static_cast<double>(layer.votes);
  for (int64_t i = 0; i < size; ++i) rows[i] *= share;
  for (int64_t j = layer.votes - 1; j > 0; --j) {
    S* __restrict vote = weight + j * step;
    if (layer.rows() == 1) {
      for (int64_t i = 0; i < size; ++i) vote[i] = S(rows[i]);
      continue;
    }
    const double scale = contrast_scale(j, layer.votes), times = static_cast<double>(j);
    const double* __restrict row = rows + j * size;
    for (int64_t i = 0; i < size; ++i) {
      vote[i] = S(rows[i] - times * scale * row[i]);
      rows[i] += scale * row[i];
    }
  }
  for (int64_t i = 0; i < size; ++i) weight[i] = S(rows[i]);
}

}  // namespace caps
