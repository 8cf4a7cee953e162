// Sizes of the layer, and its zero-padded input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bfloat16.h"
#include "shuffles.h"

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

struct Tap {
  int64_t index, offset;
};

// All taps, in the order of the weight. Computed once: each offset costs several divisions.
inline std::vector<Tap> all_taps(const Layer& layer) {
  std::vector<Tap> taps;
  for (int64_t tap = 0; tap < layer.taps(); ++tap) taps.push_back({tap, layer.tap_offset(tap)});
  return taps;
}

// The same, first tap of each dimension first. Neighbouring taps of a dimension write to places that
// overlap, and a vector that was just written in two parts takes long to read.
inline std::vector<Tap> taps_across_dims(const Layer& layer) {
  const int64_t window = layer.kernel * layer.kernel;
  std::vector<Tap> taps;
  for (int64_t first = 0; first < window; ++first) {
    for (int64_t tap = first; tap < layer.taps(); tap += window) {
      taps.push_back({tap, layer.tap_offset(tap)});
    }
  }
  return taps;
}

// Where the columns of a feature map stand in a padded row: column w is in phase (w + padding) %
// stride. With stride 2, `pairs` pairs of columns start at `even` and at `odd`.
struct Columns {
  int64_t stride, padding, phase, width, pairs, even, odd;

  explicit Columns(const Layer& layer)
      : stride(layer.stride), padding(layer.padding), phase(layer.phase()), width(layer.width),
        pairs(stride == 2 ? width / 2 : 0), even(at(0)), odd(at(1)) {}

  int64_t at(int64_t w) const { return (w + padding) % stride * phase + (w + padding) / stride; }
};

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
  const Columns columns(layer);
  for_each_row(layer, image, planes, [&](const S* __restrict row, S* __restrict padded) {
    if (columns.stride == 1) return copy_exactly(padded + columns.padding, row, columns.width);
    part_pairs(row, columns.pairs, padded + columns.even, padded + columns.odd, EachLane<S>{});
    for (int64_t w = 2 * columns.pairs; w < columns.width; ++w) padded[columns.at(w)] = row[w];
  });
}

// The gradient of pad_planes.
template <typename S>
void crop_planes(const Layer& layer, const S* planes, S* image) {
  const Columns columns(layer);
  for_each_row(layer, image, planes, [&](S* __restrict row, const S* __restrict padded) {
    if (columns.stride == 1) return copy_exactly(row, padded + columns.padding, columns.width);
    join_pairs(padded + columns.even, padded + columns.odd, columns.pairs, row, EachLane<S>{});
    for (int64_t w = 2 * columns.pairs; w < columns.width; ++w) row[w] = padded[columns.at(w)];
  });
}

}  // namespace caps
