// Entry points of the fused capsule layer; README.md explains the algebra and the loop structure.
// Tensors are contiguous: x [batch, child, dim, h, w], weight [cluster, vote, parent, dim, k, k],
// bias [cluster, vote, parent] or null, capsules and scale [batch, parent, h', w'].

#include "backward.h"
#include "conv.h"
#include "peak.h"
#include "vote_sums.h"

namespace caps {

template <typename S>
using Chunks = std::vector<std::unique_ptr<BackwardChunk<S>>>;

// Sums the gradients of the chunks, in order, into the layout of the convolution.
template <typename S>
void collect(const BackwardJob<S>& job, const Chunks<S>& chunks, S* weight, S* bias) {
  const Layer& layer = job.layer;
  const int64_t taps = layer.taps(), rows = layer.rows(), parents = layer.parents();
  const int64_t all = layer.all_clusters() * parents;
  const int64_t grain = std::max<int64_t>(1, 32768 / (taps * rows));
  at::parallel_for(0, all, grain, [&](int64_t begin, int64_t end) {
    std::vector<double> sums(rows * taps), bias_sums(rows);
    for (int64_t out = begin; out < end; ++out) {
      const int64_t cluster = out / parents, parent = out % parents;
      std::fill(sums.begin(), sums.end(), 0.0);
      std::fill(bias_sums.begin(), bias_sums.end(), 0.0);
      for (const auto& chunk : chunks) {
        const int64_t local = cluster - chunk->first_cluster();
        if (local < 0 || local >= chunk->clusters()) continue;
        const int64_t first = (local * parents + parent) * rows;
        for (int64_t row = 0; row < rows; ++row) {
          const S* weights = chunk->weight_gradient() + (first + row) * job.padded_taps;
          for (int64_t tap = 0; weight && tap < taps; ++tap) {
            sums[row * taps + tap] += job.gradient_of(weights, tap);
          }
          if (job.bias_as_tap()) bias_sums[row] += job.gradient_of(weights, taps);
          const S* lanes = chunk->bias_gradient();
          if (!lanes) continue;
          lanes += (first + row) * kLanes<S>;
          bias_sums[row] = std::accumulate(lanes, lanes + kLanes<S>, bias_sums[row]);
        }
      }
      const int64_t to = cluster * layer.votes * parents + parent;
      if (weight) from_contrasts(layer, sums.data(), taps, weight + to * taps, parents * taps);
      if (bias) from_contrasts(layer, bias_sums.data(), 1, bias + to, parents);
    }
  });
}

// The same for the gradients of the norm.
template <typename S>
void collect_norm(const BackwardJob<S>& job, const Chunks<S>& chunks, S* weight, S* bias) {
  const int64_t size = job.map_size();
  std::fill_n(weight, size, S(0));
  std::fill_n(bias, size, S(0));
  for (const auto& chunk : chunks) {
    if (!chunk->norm_gradient()) continue;
    add_exactly(weight, chunk->norm_gradient(), size);
    add_exactly(bias, chunk->norm_gradient() + size, size);
  }
}

// The number of parts into which images and children are divided: at most `threads` chunks, the
// largest as small as possible, and children undivided if that costs nothing.
inline std::pair<int64_t, int64_t> share_out(const Layer& layer, int64_t threads) {
  const auto largest = [](int64_t all, int64_t parts) { return (all + parts - 1) / parts; };
  std::pair<int64_t, int64_t> best{1, 1};
  int64_t least = layer.batch * layer.in_channels;
  for (int64_t children = 1; children <= std::min(threads, layer.in_channels); ++children) {
    const int64_t images = std::min(threads / children, layer.batch);
    const int64_t work = largest(layer.batch, images) * largest(layer.in_channels, children);
    if (work < least) least = work, best = {images, children};
  }
  return best;
}

// Output pointers of the gradients; null for those that are not needed.
template <typename S>
struct Gradients {
  S *x, *weight, *bias, *norm_weight, *norm_bias;
};

template <typename S>
void backward(const Layer& layer, S eps, const Norm<S>& norm, const S* x, const S* weight,
              const S* bias, const S* capsules, const S* scale, const S* moments,
              const S* gradient, const Gradients<S>& out) {
  Buffer<S> turned = to_contrasts(layer, weight, layer.taps()), pulled;
  const Buffer<S> turned_bias = to_contrasts(layer, bias, 1);
  const BackwardPanel<S> panels = backward_panel<S>(layer);
  const int64_t blocks = (layer.all_rows() + kBlockRows - 1) / kBlockRows;
  const int64_t block = std::max<int64_t>(1, (layer.parents() + blocks - 1) / blocks);
  if constexpr (kHasPairs<S>) {
    if (layer.pairs<S>()) {
      const int64_t clusters = layer.all_clusters(), rows = layer.all_rows(), taps = layer.taps();
      pulled = pair_block_rows(turned.get(), clusters, rows, block * layer.rows(), taps);
      turned = pair_taps(turned.get(), clusters * rows, taps);
    }
  }
  const int64_t step = product_rows(panels.width / kLanes<S>);
  const BackwardJob<S> job{layer, used_eps(layer, eps), norm, moments, x, turned.get(),
                           pulled.get(), turned_bias.get(), capsules, scale, gradient, out.x,
                           out.weight != nullptr, out.bias != nullptr, out.norm_weight != nullptr,
                           panels, block, round_up(layer.taps(), kLanes<S>),
                           round_up(layer.taps(), step)};
  Chunks<S> chunks;
  if (layer.batch > 0) {
    const auto [images, children] = share_out(layer, at::get_num_threads());
    chunks.resize(images * children);
    run_chunks(chunks.size(), [&, images = images, children = children](int64_t chunk) {
      const int64_t i = chunk / children, c = chunk % children;
      chunks[chunk] = std::make_unique<BackwardChunk<S>>(
          job, layer.batch * i / images, layer.batch * (i + 1) / images,
          layer.in_channels * c / children, layer.in_channels * (c + 1) / children);
      chunks[chunk]->run();
    });
  }
  collect(job, chunks, out.weight, out.bias);
  if (job.need_norm) collect_norm(job, chunks, out.norm_weight, out.norm_bias);
}

// Returns 0, 1 if memory is exhausted, or 2: exceptions must not reach the caller.
template <typename Work>
int guarded(Work work) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  } catch (...) {
    return 2;
  }
}

}  // namespace caps

#define CAPS_ENTRY_POINTS(S, SUFFIX)                                                              \
  extern "C" int clustercaps_forward_##SUFFIX(                                                    \
      const caps::Layer* layer, double eps, double norm_eps, const S* x, const S* weight,         \
      const S* bias, const S* norm_weight, const S* norm_bias, S* capsules, S* normalised,        \
      S* scale, S* moments) {                                                                     \
    return caps::guarded([&] {                                                                    \
      caps::forward<S>(*layer, S(eps), {norm_weight, norm_bias, S(norm_eps)}, x, weight, bias,    \
                       capsules, normalised, scale, moments);                                     \
    });                                                                                           \
  }                                                                                               \
  extern "C" int clustercaps_backward_##SUFFIX(                                                   \
      const caps::Layer* layer, double eps, double norm_eps, const S* x, const S* weight,         \
      const S* bias, const S* norm_weight, const S* norm_bias, const S* capsules, const S* scale, \
      const S* moments, const S* gradient, S* x_gradient, S* weight_gradient, S* bias_gradient,   \
      S* norm_weight_gradient, S* norm_bias_gradient) {                                           \
    return caps::guarded([&] {                                                                    \
      caps::backward<S>(*layer, S(eps), {norm_weight, norm_bias, S(norm_eps)}, x, weight, bias,   \
                        capsules, scale, moments, gradient,                                       \
                        {x_gradient, weight_gradient, bias_gradient, norm_weight_gradient,        \
                         norm_bias_gradient});                                                    \
    });                                                                                           \
  }

// Sums over votes, for routings that fit Gaussians.
#define CAPS_VOTE_SUMS(S, SUFFIX)                                                                 \
  extern "C" int clustercaps_sum_children_##SUFFIX(const caps::VoteSizes* sizes, const S* votes,  \
                                                   const S* pair, const S* mean, S* first,        \
                                                   S* second) {                                   \
    return caps::guarded(                                                                         \
        [&] { caps::sum_children<S>(*sizes, votes, pair, mean, first, second); });                \
  }                                                                                               \
  extern "C" int clustercaps_sum_dims_##SUFFIX(const caps::VoteSizes* sizes, const S* votes,      \
                                               const S* mean, const S* linear,                    \
                                               const S* quadratic, S* out) {                      \
    return caps::guarded(                                                                         \
        [&] { caps::sum_dims<S>(*sizes, votes, mean, linear, quadratic, out); });                 \
  }                                                                                               \
  extern "C" int clustercaps_add_terms_##SUFFIX(                                                  \
      const caps::VoteSizes* sizes, const S* votes, int64_t groups, const int64_t* counts,        \
      const S* const* means, const S* const* pairs, const S* const* parents, S* out) {            \
    return caps::guarded([&] {                                                                    \
      caps::add_terms<S>(*sizes, votes, {groups, counts, means, pairs, parents}, out);            \
    });                                                                                           \
  }

// Convolutions with fewer products, in float32 only. Tensors are contiguous: x [batch, channel, h, w],
// weight [channel, channel of the group, k, k], bias [channel] or null.
extern "C" int clustercaps_convolve_float32(const caps::ConvSizes* sizes, int64_t kernel,
                                            int64_t stride, const float* x, const float* weight,
                                            const float* bias, float* y) {
  return caps::guarded([&] {
    caps::with_filter(kernel, stride, [&]<typename F>(F) {
      caps::convolve<F>(*sizes, x, weight, bias, y);
    });
  });
}

extern "C" int clustercaps_convolve_backward_float32(const caps::ConvSizes* sizes, int64_t kernel,
                                                     int64_t stride, const float* x,
                                                     const float* weight, const float* gradient,
                                                     float* x_gradient, float* weight_gradient) {
  return caps::guarded([&] {
    caps::with_filter(kernel, stride, [&]<typename F>(F) {
      caps::convolve_backward<F>(*sizes, x, weight, gradient, x_gradient, weight_gradient);
    });
  });
}

// Whether this build can compute products in bfloat16.
extern "C" int clustercaps_has_bfloat16() { return caps::kHasPairs<float>; }

// Whether this build can use several threads.
extern "C" int clustercaps_has_threads() {
#if defined(INTRA_OP_PARALLEL)
  return 1;
#else
  return 0;
#endif
}

// Multiply-adds in registers, to time; `out` has room for 64 bytes per thread.
extern "C" int64_t clustercaps_multiply_adds_float32(int64_t rounds, float factor, float addend,
                                                     float* out) {
  return caps::multiply_adds<float>(rounds, factor, addend, out);
}

CAPS_ENTRY_POINTS(float, float32)
CAPS_ENTRY_POINTS(double, float64)
CAPS_VOTE_SUMS(float, float32)
CAPS_VOTE_SUMS(double, float64)
