// Feature maps as overlapping tiles at all points of a filter, and back.
#pragma once

#include <ATen/Parallel.h>

#include "conv_maps.h"
#include "filter_matrices.h"

namespace caps {

// Filled by the caller, field by field; see `ConvSizes` in conv.py. Channels are per group.
struct ConvSizes {
  int64_t batch, groups, in_chans, out_chans, height, width, out_height, out_width, top, left;

  int64_t in_image() const { return groups * in_chans * height * width; }
  int64_t out_image() const { return groups * out_chans * out_height * out_width; }
};

// Floats between points, beside what a point needs: a power of two would put all points into the
// same few lines of the cache.
constexpr int64_t kApart = 16;

// Channels are divided into blocks of one or two vectors.
struct Channels {
  int64_t all, vectors;

  explicit Channels(int64_t count)
      : all(count), vectors(count % (2 * kLanes<float>) == 0 ? 2 : 1) {}
  int64_t block() const { return vectors * kLanes<float>; }
  int64_t blocks() const { return all / block(); }
};

// A convolution for the images of a chunk.
template <typename F>
struct ConvJob {
  ConvSizes sizes;
  Channels in, out;
  int64_t images, across, down;

  static constexpr int kPointsOfTile = F::kTile * F::kTile;

  ConvJob(const ConvSizes& s, int64_t chunk)
      : sizes(s), in(s.in_chans), out(s.out_chans), images(chunk),
        across((s.out_width + F::kOutputs - 1) / F::kOutputs),
        down((s.out_height + F::kOutputs - 1) / F::kOutputs) {}

  int64_t tiles() const { return images * down * across; }
  // Distance of two points in blocks of tiles [point, tile, channel].
  int64_t step(const Channels& channels) const { return tiles() * channels.block() + kApart; }
  int64_t block_size(const Channels& channels) const { return kPointsOfTile * step(channels); }
  Frame in_frame() const {
    return {sizes.height, sizes.width, sizes.top, sizes.left,
            F::kStride * (down * F::kOutputs - 1) + F::kTaps,
            F::kStride * (across * F::kOutputs - 1) + F::kTaps};
  }
  Frame out_frame() const {
    return {sizes.out_height, sizes.out_width, 0, 0, down * F::kOutputs, across * F::kOutputs};
  }
};

// Tiles of one block of channels at all points: out [point, tile, channel], from maps [image,
// channel, ...] `image_size` apart. Tiles are `stride` apart in the frame.
template <typename F, typename Matrix>
void spread_block(const ConvJob<F>& job, const Channels& channels, const Frame& frame,
                  int64_t stride, const float* maps, int64_t image_size, float* out) {
  constexpr int64_t lanes = kLanes<float>;
  const int64_t step = job.step(channels);
  const Buffer<float> buffer(frame.size() * lanes);
  for (int64_t v = 0; v < channels.vectors; ++v) {
    for (int64_t image = 0; image < job.images; ++image) {
      gather_maps(frame, maps + image * image_size + v * lanes * frame.height * frame.width,
                  buffer.get());
      for (int64_t tile = 0; tile < job.down * job.across; ++tile) {
        const float* from = buffer.get() + (tile / job.across * stride * frame.columns +
                                            tile % job.across * stride) * lanes;
        float* to = out + (image * job.down * job.across + tile) * channels.block() + v * lanes;
        multiply_both<Matrix>(
            [&](int r, int c) { return load(from + (r * frame.columns + c) * lanes); },
            [&](int r, int s, Vec<float> value) {
              store(to + (r * F::kTile + s) * step, value);
            });
      }
    }
  }
}

// The same for all channels of all groups: [group, block, point, tile, channel].
template <typename F, typename Matrix>
Buffer<float> spread(const ConvJob<F>& job, const Channels& channels, const Frame& frame,
                     int64_t stride, const float* maps) {
  const int64_t blocks = job.sizes.groups * channels.blocks(), size = job.block_size(channels);
  const int64_t plane = frame.height * frame.width;
  Buffer<float> result(blocks * size, false);
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      spread_block<F, Matrix>(job, channels, frame, stride, maps + n * channels.block() * plane,
                              job.sizes.groups * channels.all * plane, result.get() + n * size);
    }
  });
  return result;
}

// Adds the tiles of rows `first` to `last` of the points to a frame per vector and image.
template <typename F, typename Matrix>
void collect_tiles(const ConvJob<F>& job, const Channels& channels, const Frame& frame,
                   int64_t stride, int first, int last, const float* points, float* frames) {
  constexpr int64_t lanes = kLanes<float>;
  constexpr int side = Matrix::value.kRows;
  const int64_t step = job.step(channels), of_image = job.down * job.across;
  for (int64_t v = 0; v < channels.vectors; ++v) {
    for (int64_t t = 0; t < job.tiles(); ++t) {
      const int64_t tile = t % of_image;
      float* to = frames + ((v * job.images + t / of_image) * frame.size() +
                            tile / job.across * stride * frame.columns +
                            tile % job.across * stride) * lanes;
      const float* from = points + t * channels.block() + v * lanes;
      for (int i = first; i < last; ++i, from += F::kTile * step) {
        Vec<float> in[F::kTile], row[side];
        CAPS_UNROLL
        for (int s = 0; s < F::kTile; ++s) in[s] = load(from + s * step);
        multiply<Matrix>(in, [&](auto s, Vec<float> value) { row[s] = value; });
        for (int r = 0; r < side; ++r) {
          const float factor = Matrix::value.at[r][i];
          if (factor == 0) continue;
          CAPS_UNROLL
          for (int s = 0; s < side; ++s) {
            float* at = to + (r * frame.columns + s) * lanes;
            store(at, load(at) + factor * row[s]);
          }
        }
      }
    }
  }
}

}  // namespace caps
