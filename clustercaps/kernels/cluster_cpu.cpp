// Entry points of the fused capsule layer; README.md has the algebra and the loop structure.
// Tensors are contiguous: x [batch, child, dim, h, w], weight [cluster, vote, parent, dim, k, k],
// bias [cluster, vote, parent] or null, capsules and scale [batch, parent, h', w'].

#include "backward.h"

namespace caps {

// Adds up the chunks' gradients, in their order, into the layout of the convolution.
template <typename S>
void collect(const BackwardJob<S>& job,
             const std::vector<std::unique_ptr<BackwardChunk<S>>>& chunks, S* weight, S* bias) {
  const Layer& layer = job.layer;
  const int64_t taps = layer.taps();
  const std::vector<int64_t> offsets = weight_offsets(layer);
  at::parallel_for(0, layer.all_clusters() * layer.votes, 1, [&](int64_t begin, int64_t end) {
    std::vector<S> sum(job.padded_taps);
    for (int64_t out = begin * layer.parents; out < end * layer.parents; ++out) {
      const int64_t cluster = out / job.rows(), vote = out / layer.parents % layer.votes;
      std::fill(sum.begin(), sum.end(), S(0));
      S bias_sum = 0;
      for (const auto& chunk : chunks) {
        const int64_t local = cluster - chunk->first_cluster();
        if (local < 0 || local >= chunk->clusters()) continue;
        const int64_t row = local * job.rows() + out % layer.parents * layer.votes + vote;
        const S* weights = chunk->weight_gradient() + row * job.padded_taps;
        for (int64_t tap = 0; weight && tap < taps; ++tap) sum[tap] += weights[tap];
        const S* lanes = chunk->bias_gradient() + row * kLanes<S>;
        for (int64_t lane = 0; bias && lane < kLanes<S>; ++lane) bias_sum += lanes[lane];
      }
      for (int64_t tap = 0; weight && tap < taps; ++tap) {
        weight[out * taps + offsets[tap]] = sum[tap];
      }
      if (bias) bias[out] = bias_sum;
    }
  });
}

// Gradients whose pointer is null are not computed.
template <typename S>
void backward(const Layer& layer, S eps, const S* x, const S* weight, const S* bias,
              const S* capsules, const S* scale, const S* gradient, S* x_gradient,
              S* weight_gradient, S* bias_gradient) {
  const Buffer<S> packed = pack_votes(layer, weight), packed_bias = pack_bias(layer, bias);
  const PanelFunctions<S> panels = panel_functions<S>(layer.votes);
  const int64_t blocks = (layer.parents * layer.votes + kBlockRows - 1) / kBlockRows;
  const int64_t step = product_rows(panels.width / kLanes<S>);
  BackwardJob<S> job{layer,
                     eps,
                     x,
                     packed.get(),
                     nullptr,
                     packed_bias.get(),
                     capsules,
                     scale,
                     gradient,
                     x_gradient,
                     weight_gradient != nullptr,
                     bias_gradient != nullptr,
                     panels,
                     std::max<int64_t>(1, (layer.parents + blocks - 1) / blocks),
                     round_up(layer.taps(), kLanes<S>),
                     round_up(layer.taps(), step)};
  Buffer<S> transposed;
  if (x_gradient) transposed = pack_transposed(job, weight);
  job.transposed = transposed.get();

  const int64_t units = layer.in_channels * layer.batch;
  const int64_t count = std::min<int64_t>(at::get_num_threads(), units);
  std::vector<std::unique_ptr<BackwardChunk<S>>> chunks(count);
  run_chunks(count, [&](int64_t chunk) {
    chunks[chunk] = std::make_unique<BackwardChunk<S>>(job, units * chunk / count,
                                                       units * (chunk + 1) / count);
    chunks[chunk]->run();
  });
  collect(job, chunks, weight_gradient, bias_gradient);
}

// 0, or 1 when memory ran out: exceptions must not cross into the caller.
template <typename Work>
int guarded(Work work) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // namespace caps

#define CAPS_ENTRY_POINTS(S, SUFFIX)                                                             \
  extern "C" int clustercaps_forward_##SUFFIX(const caps::Layer* layer, double eps, const S* x,  \
                                              const S* weight, const S* bias, S* capsules,       \
                                              S* scale) {                                        \
    return caps::guarded(                                                                        \
        [&] { caps::forward<S>(*layer, S(eps), x, weight, bias, capsules, scale); });            \
  }                                                                                              \
  extern "C" int clustercaps_backward_##SUFFIX(                                                  \
      const caps::Layer* layer, double eps, const S* x, const S* weight, const S* bias,          \
      const S* capsules, const S* scale, const S* gradient, S* x_gradient, S* weight_gradient,   \
      S* bias_gradient) {                                                                        \
    return caps::guarded([&] {                                                                   \
      caps::backward<S>(*layer, S(eps), x, weight, bias, capsules, scale, gradient, x_gradient,  \
                        weight_gradient, bias_gradient);                                         \
    });                                                                                          \
  }

CAPS_ENTRY_POINTS(float, float32)
CAPS_ENTRY_POINTS(double, float64)
