// Sizes of the layer, and its zero-padded input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bfloat16.h"
#include "simd.h"

namespace caps {

// Filled by the caller, field by field; see `Layer` in library.py.
struct Layer {
  int64_t batch, in_channels, in_dim, height, width;
  // Weight clusters per child channel, votes per cluster, parent channels and their dimension.
  int64_t clusters, votes, channels, dim;
  int64_t kernel, stride, padding;
  // Whether all routing weights are equal, and whether products may be computed in bfloat16.
  int64_t uniform, bfloat16;

  int64_t parents() const { return channels * dim; }
  int64_t padded_height() const { return height + 2 * padding; }
  int64_t padded_width() const { return width + 2 * padding; }
  int64_t out_height() const { return (padded_height() - kernel) / stride + 1; }
  int64_t out_width() const { return (padded_width() - kernel) / stride + 1; }
  int64_t positions() const { return out_height() * out_width(); }
  int64_t all_clusters() const { return in_channels * clusters; }
  int64_t taps() const { return kernel * kernel * in_dim; }
  int64_t image_size() const { return in_dim * height * width; }
  // Values of a cluster for a parent entry, see contrasts.h: the centroid and the contrasts, or
  // only the centroid for uniform routing.
  int64_t rows() const { return uniform ? 1 : votes; }
  int64_t all_rows() const { return parents() * rows(); }

  // Whether products are computed in bfloat16.
  template <typename S>
  bool pairs() const {
    return kHasPairs<S> && bfloat16;
  }
  // Taps of a product, or pairs of them.
  template <typename S>
  int64_t items() const {
    return items_of(taps(), pairs<S>());
  }

  // A padded row is stored as `stride` phases (columns 0, s, 2s, ...; then 1, s+1, ...), so that
  // what one tap reads for neighbouring outputs is contiguous for every stride.
  int64_t phase() const { return (padded_width() + stride - 1) / stride; }
  int64_t row() const { return phase() * stride; }
  int64_t plane() const { return padded_height() * row(); }
  int64_t planes_size() const { return in_dim * plane(); }

  // Offset of a tap from the corner of its window in the planes; taps are ordered as in the weight.
  int64_t tap_offset(int64_t tap) const {
    const int64_t column = tap % kernel, line = tap / kernel % kernel, dim = tap / kernel / kernel;
    return dim * plane() + line * row() + column % stride * phase() + column / stride;
  }
};

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Computed once: each offset costs several divisions.
inline std::vector<int64_t> tap_offsets(const Layer& layer) {
  std::vector<int64_t> offsets(layer.taps());
  for (int64_t tap = 0; tap < layer.taps(); ++tap) offsets[tap] = layer.tap_offset(tap);
  return offsets;
}

// Positions of a row of a feature map in its padded row: column w is in phase (w + padding) %
// stride. Calls one(w, offset) for single entries and pairs(even, odd, count) for a row of stride
// 2, with the offsets of its first two columns.
template <typename One, typename Pairs>
CAPS_INLINE void for_each_column(const Layer& layer, int64_t phase_size, One one, Pairs pairs) {
  const int64_t stride = layer.stride, width = layer.width;
  const auto offset = [&](int64_t w) {
    return (w + layer.padding) % stride * phase_size + (w + layer.padding) / stride;
  };
  int64_t w = 0;
  if (stride == 2) {
    pairs(layer.padding % 2 * phase_size + layer.padding / 2,
          (layer.padding + 1) % 2 * phase_size + (layer.padding + 1) / 2, width / 2);
    w = width / 2 * 2;
  }
  for (; w < width; ++w) one(w, offset(w));
}

// Calls visit(row of the image, padded row of the planes).
template <typename S, typename T, typename Visit>
CAPS_INLINE void for_each_row(const Layer& layer, S* image, T* planes, Visit visit) {
  const int64_t row = layer.row();
  for (int64_t dim = 0; dim < layer.in_dim; ++dim) {
    T* padded = planes + dim * layer.plane() + layer.padding * row;
    for (int64_t h = 0; h < layer.height; ++h, padded += row, image += layer.width) {
      visit(image, padded);
    }
  }
}

// Copies image [dim, h, w] to planes whose borders are already zero.
template <typename S>
void pad_planes(const Layer& layer, const S* image, S* planes) {
  const int64_t phase = layer.phase();
  for_each_row(layer, image, planes, [&](const S* __restrict row, S* __restrict padded) {
    if (layer.stride == 1) return copy_exactly(padded + layer.padding, row, layer.width);
    for_each_column(
        layer, phase, [&](int64_t w, int64_t at) { padded[at] = row[w]; },
        [&](int64_t even, int64_t odd, int64_t count) {
          part_pairs(row, count, padded + even, padded + odd, EachLane<S>{});
        });
  });
}

// The gradient of pad_planes.
template <typename S>
void crop_planes(const Layer& layer, const S* planes, S* image) {
  const int64_t phase = layer.phase();
  for_each_row(layer, image, planes, [&](S* __restrict row, const S* __restrict padded) {
    if (layer.stride == 1) return copy_exactly(row, padded + layer.padding, layer.width);
    for_each_column(
        layer, phase, [&](int64_t w, int64_t at) { row[w] = padded[at]; },
        [&](int64_t even, int64_t odd, int64_t count) {
          join_pairs(padded + even, padded + odd, count, row, EachLane<S>{});
        });
  });
}

}  // namespace caps
