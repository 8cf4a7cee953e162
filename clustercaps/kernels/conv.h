// Convolutions with fewer products: forward pass and gradients. filter_matrices.h has the algebra.
//
// The weights are transformed block by block, each used at once for all tiles of some images and then
// overwritten: all of them at all points would take several times the memory of the weights, and
// longer to write and read than the products take. The gradient of the weights likewise leaves the
// cache only after it is transformed back.
#pragma once

#include <stdexcept>

#include "conv_product.h"
#include "conv_tiles.h"

namespace caps {

// Sums of one block of channels at all points should stay in the second cache, and the tiles of the
// images that are computed at a time in the third.
constexpr int64_t kSumBytes = 800 << 10, kChunkBytes = 6 << 20;
// Tiles that are added up before they are added to the gradient of the weights.
constexpr int64_t kTilesAtATime = 64;

// What a pass reads and writes: from tiles of `k` channels, with the weights, to maps of `to`.
struct Pass {
  Channels k, to;
  // Where the maps lie, and the distance of their tiles.
  Frame frame;
  int64_t stride;
  // Windows of the weights: distances in floats between channels of either kind.
  const float* weight;
  int64_t k_distance, to_distance;
  // Added to the maps; null for gradients.
  const float* bias;
};

// Rows `first` to `last` of the points of one block of weights: out [point, k, to], which begins
// at `weight`.
template <typename F>
void spread_weights(const Pass& pass, const float* weight, int first, int last, float* out) {
  constexpr int lanes = kLanes<float>, taps = F::kTaps;
  const int64_t block = pass.to.block(), step = pass.k.block() * block + kApart;
  float turned[taps * taps * lanes];
  for (int64_t k = 0; k < pass.k.block(); ++k, weight += pass.k_distance) {
    for (int64_t v = 0; v < pass.to.vectors; ++v) {
      gather_taps<taps * taps>(weight + v * lanes * pass.to_distance, pass.to_distance, turned);
      float* to = out + k * block + v * lanes;
      for (int i = first; i < last; ++i, to += F::kTile * step) {
        Vec<float> row[taps] = {};
        for (int r = 0; r < taps; ++r) {
          const float factor = G<F>::value.at[i][r];
          if (factor == 0) continue;
          CAPS_UNROLL
          for (int c = 0; c < taps; ++c) row[c] += factor * load(turned + (r * taps + c) * lanes);
        }
        multiply<G<F>>(row, [&](auto s, Vec<float> value) { store(to + s * step, value); });
      }
    }
  }
}

// Frames of one block of channels, from tiles [block, point, tile, channel] of its group. Scratch
// memory is for `rows` rows of points.
template <typename F, typename Matrix>
void compute_frames(const ConvJob<F>& job, const Pass& pass, const float* tiles,
                    const float* weight, int rows, float* weights, float* points, float* frames) {
  constexpr int lanes = kLanes<float>;
  const Channels &k = pass.k, &to = pass.to;
  const int64_t weight_step = k.block() * to.block() + kApart;
  for (int first = 0; first < F::kTile; first += rows) {
    const int last = std::min(first + rows, F::kTile);
    for (int64_t b = 0; b < k.blocks(); ++b) {
      spread_weights<F>(pass, weight + b * k.block() * pass.k_distance, first, last, weights);
      const float* a = tiles + b * job.block_size(k) + first * F::kTile * job.step(k);
      for (int p = 0; p < (last - first) * F::kTile; ++p) {
        const PointProduct product{a + p * job.step(k), 1, weights + p * weight_step,
                                   points + p * job.step(to), job.tiles(), k.block(), b == 0};
        if (k.vectors == 2) {
          multiply_point<2 * lanes>(to.vectors, product);
        } else {
          multiply_point<lanes>(to.vectors, product);
        }
      }
    }
    collect_tiles<F, Matrix>(job, to, pass.frame, pass.stride, first, last, points, frames);
  }
}

// Maps of all channels from tiles at all points. `Matrix` leads from points to the maps.
template <typename F, typename Matrix>
void run_pass(const ConvJob<F>& job, const Pass& pass, const float* tiles, float* maps) {
  constexpr int64_t lanes = kLanes<float>;
  const Channels &k = pass.k, &to = pass.to;
  const int64_t row_bytes = F::kTile * job.step(to) * sizeof(float);
  const int rows = std::clamp<int64_t>(kSumBytes / row_bytes, 1, F::kTile);
  const int64_t plane = pass.frame.height * pass.frame.width, frame = pass.frame.size() * lanes;
  const int64_t group_weights = k.all * to.all * F::kTaps * F::kTaps;
  at::parallel_for(0, job.sizes.groups * to.blocks(), 1, [&](int64_t begin, int64_t end) {
    const Buffer<float> weights(rows * F::kTile * (k.block() * to.block() + kApart), false);
    const Buffer<float> points(rows * F::kTile * job.step(to), false);
    const Buffer<float> frames(to.vectors * job.images * frame, false);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t group = n / to.blocks(), block = n % to.blocks();
      std::fill_n(frames.get(), to.vectors * job.images * frame, 0.0f);
      compute_frames<F, Matrix>(
          job, pass, tiles + group * k.blocks() * job.block_size(k),
          pass.weight + group * group_weights + block * to.block() * pass.to_distance, rows,
          weights.get(), points.get(), frames.get());
      for (int64_t m = 0; m < to.vectors * job.images; ++m) {
        const int64_t channel = n * to.block() + m / job.images * lanes, image = m % job.images;
        scatter_maps(pass.frame, frames.get() + m * frame,
                     pass.bias ? pass.bias + channel : nullptr,
                     maps + (image * job.sizes.groups * to.all + channel) * plane);
      }
    }
  });
}

// Gradients of the windows of a block of output channels x a block of input channels at all points:
// out [point, output, input], from tiles [point, tile, channel] of both.
template <typename F>
void multiply_tiles(const ConvJob<F>& job, const float* gradients, const float* inputs, float* out) {
  const int64_t outer = job.out.block(), inner = job.in.block();
  for (int p = 0; p < ConvJob<F>::kPointsOfTile; ++p, out += outer * inner + kApart) {
    for (int64_t t = 0; t < job.tiles(); t += kTilesAtATime) {
      const int64_t count = std::min(kTilesAtATime, job.tiles() - t);
      multiply_point<1>(job.in.vectors, {gradients + p * job.step(job.out) + t * outer, outer,
                                         inputs + p * job.step(job.in) + t * inner, out, outer,
                                         count, t == 0});
    }
  }
}

// The gradient of all weights; with `add`, it is added.
template <typename F>
void weight_gradient(const ConvJob<F>& job, const float* inputs, const float* gradients, bool add,
                     float* weight) {
  constexpr int64_t lanes = kLanes<float>, taps = F::kTaps * F::kTaps;
  const int64_t outer = job.out.block(), inner = job.in.block(), step = outer * inner + kApart;
  at::parallel_for(0, job.sizes.groups * job.in.blocks(), 1, [&](int64_t begin, int64_t end) {
    const Buffer<float> points(ConvJob<F>::kPointsOfTile * step, false);
    const Buffer<float> windows((taps + lanes) * lanes);
    float* turned = windows.get();
    for (int64_t n = begin; n < end; ++n) {
      const int64_t group = n / job.in.blocks(), block = n % job.in.blocks();
      for (int64_t o = 0; o < job.out.all; o += outer) {
        multiply_tiles(job,
                       gradients + (group * job.out.blocks() + o / outer) * job.block_size(job.out),
                       inputs + n * job.block_size(job.in), points.get());
        for (int64_t v = 0; v < outer * job.in.vectors; ++v) {
          const float* from = points.get() + v * lanes;
          multiply_both<Transposed<G<F>>>(
              [&](int i, int j) { return load(from + (i * F::kTile + j) * step); },
              [&](int i, int j, Vec<float> value) {
                store(turned + (i * F::kTaps + j) * lanes, value);
              });
          const int64_t row = group * job.out.all + o + v / job.in.vectors;
          const int64_t column = block * inner + v % job.in.vectors * lanes;
          scatter_taps<taps>(turned, add, weight + (row * job.in.all + column) * taps, taps);
        }
      }
    }
  });
}

// Calls work(job, first image) for chunks of images.
template <typename F, typename Work>
void in_chunks(const ConvSizes& sizes, Work work) {
  const int64_t bytes = ConvJob<F>(sizes, 1).tiles() * ConvJob<F>::kPointsOfTile * sizeof(float) *
                        sizes.groups * std::max(sizes.in_chans, sizes.out_chans);
  const int64_t most = std::clamp<int64_t>(kChunkBytes / bytes, 1, sizes.batch);
  const int64_t chunks = (sizes.batch + most - 1) / most;
  for (int64_t n = 0; n < chunks; ++n) {
    const int64_t begin = sizes.batch * n / chunks, end = sizes.batch * (n + 1) / chunks;
    work(ConvJob<F>(sizes, end - begin), begin);
  }
}

template <typename F>
void convolve(const ConvSizes& sizes, const float* x, const float* weight, const float* bias,
              float* y) {
  constexpr int64_t taps = F::kTaps * F::kTaps, stride = F::kStride * F::kOutputs;
  in_chunks<F>(sizes, [&](const ConvJob<F>& job, int64_t first) {
    const Buffer<float> tiles =
        spread<F, B<F>>(job, job.in, job.in_frame(), stride, x + first * sizes.in_image());
    const Pass pass{job.in, job.out,         job.out_frame(), F::kOutputs, weight,
                    taps,   job.in.all * taps, bias};
    run_pass<F, A<F>>(job, pass, tiles.get(), y + first * sizes.out_image());
  });
}

// Gradients of input and weights from that of the output; null for one that is not needed.
template <typename F>
void convolve_backward(const ConvSizes& sizes, const float* x, const float* weight,
                       const float* gradient, float* x_gradient, float* w_gradient) {
  constexpr int64_t taps = F::kTaps * F::kTaps, stride = F::kStride * F::kOutputs;
  in_chunks<F>(sizes, [&](const ConvJob<F>& job, int64_t first) {
    const Buffer<float> gradients = spread<F, Transposed<A<F>>>(
        job, job.out, job.out_frame(), F::kOutputs, gradient + first * sizes.out_image());
    if (x_gradient) {
      const Pass pass{job.out,           job.in, job.in_frame(), stride, weight,
                      job.in.all * taps, taps,   nullptr};
      run_pass<F, Transposed<B<F>>>(job, pass, gradients.get(),
                                    x_gradient + first * sizes.in_image());
    }
    if (!w_gradient) return;
    const Buffer<float> inputs =
        spread<F, B<F>>(job, job.in, job.in_frame(), stride, x + first * sizes.in_image());
    weight_gradient(job, inputs.get(), gradients.get(), first > 0, w_gradient);
  });
}

// Calls work(filter) for a kernel size and stride; `FILTERS` in conv.py lists those that exist.
template <typename Work>
void with_filter(int64_t kernel, int64_t stride, Work work) {
  if (kernel == 9 && stride == 2) return work(Filter<9, 2, 3>{});
  if (kernel == 3 && stride == 1) return work(Filter<3, 1, 4>{});
  throw std::invalid_argument("no filter of this size");
}

}  // namespace caps
