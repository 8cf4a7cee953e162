// The layer's sizes, its zero-padded input, and tiles of output positions as columns of patches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.h"

namespace caps {

// Filled in by the caller, field by field; see `Layer` in library.py.
struct Layer {
  int64_t batch, in_channels, in_dim, height, width;
  // Weight clusters per child channel, votes per cluster, parent channels x parent dims.
  int64_t clusters, votes, parents;
  int64_t kernel, stride, padding;
  // Routing weights all equal instead of by agreement.
  int64_t uniform;

  int64_t padded_height() const { return height + 2 * padding; }
  int64_t padded_width() const { return width + 2 * padding; }
  int64_t out_height() const { return (padded_height() - kernel) / stride + 1; }
  int64_t out_width() const { return (padded_width() - kernel) / stride + 1; }
  int64_t positions() const { return out_height() * out_width(); }
  int64_t all_clusters() const { return in_channels * clusters; }
  int64_t taps() const { return kernel * kernel * in_dim; }
  int64_t image_size() const { return in_dim * height * width; }

  // A padded row is stored as `stride` phases (columns 0, s, 2s, ...; then 1, s+1, ...), so that
  // what one tap reads for neighbouring outputs is contiguous for every stride.
  int64_t phase() const { return (padded_width() + stride - 1) / stride; }
  int64_t row() const { return phase() * stride; }
  int64_t plane() const { return padded_height() * row(); }
  int64_t planes_size() const { return in_dim * plane(); }
  int64_t pixels_size() const { return padded_height() * padded_width() * in_dim; }

  // Where a tap lies from its window's corner in the planes. Taps are ordered (row, column, dim).
  int64_t tap_offset(int64_t tap) const {
    const int64_t dim = tap % in_dim, column = tap / in_dim % kernel, line = tap / in_dim / kernel;
    return dim * plane() + line * row() + column % stride * phase() + column / stride;
  }
  // The same tap in a weight as the convolution holds it: (dim, row, column).
  int64_t weight_offset(int64_t tap) const {
    return tap % in_dim * kernel * kernel + tap / in_dim;
  }
};

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Where a map row's numbers lie in its padded row: column w in phase (w + padding) % stride.
// Calls one(w, offset) for single numbers and pairs(even, odd, count) for a row of stride 2, with
// the offsets of its first two columns: whole vectors from the row's start, for the compiler to
// shuffle.
template <typename One, typename Pairs>
CAPS_INLINE void for_each_column(const Layer& layer, int64_t phase_size, One one, Pairs pairs) {
  const int64_t stride = layer.stride, width = layer.width;
  const auto offset = [&](int64_t w) {
    return (w + layer.padding) % stride * phase_size + (w + layer.padding) / stride;
  };
  int64_t w = 0;
  if (stride == 2) {
    pairs(offset(0), offset(1), width / 2);
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

// image [dim, h, w] into planes whose borders are already zero.
template <typename S>
void pad_planes(const Layer& layer, const S* image, S* planes) {
  const int64_t phase = layer.phase();
  for_each_row(layer, image, planes, [&](const S* __restrict row, S* __restrict padded) {
    if (layer.stride == 1) {
      std::copy_n(row, layer.width, padded + layer.padding);
      return;
    }
    for_each_column(
        layer, phase, [&](int64_t w, int64_t at) { padded[at] = row[w]; },
        [&](int64_t even, int64_t odd, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            padded[even + i] = row[2 * i];
            padded[odd + i] = row[2 * i + 1];
          }
        });
  });
}

// The gradient of pad_planes.
template <typename S>
void crop_planes(const Layer& layer, const S* planes, S* image) {
  const int64_t phase = layer.phase();
  for_each_row(layer, image, planes, [&](S* __restrict row, const S* __restrict padded) {
    if (layer.stride == 1) {
      std::copy_n(padded + layer.padding, layer.width, row);
      return;
    }
    for_each_column(
        layer, phase, [&](int64_t w, int64_t at) { row[w] = padded[at]; },
        [&](int64_t even, int64_t odd, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            row[2 * i] = padded[even + i];
            row[2 * i + 1] = padded[odd + i];
          }
        });
  });
}

// image [dim, h, w] into padded [h, w, dim], where a window's row is contiguous.
template <typename S>
void pad_pixels(const Layer& layer, const S* image, S* pixels) {
  for (int64_t h = 0; h < layer.height; ++h) {
    S* to = pixels + ((h + layer.padding) * layer.padded_width() + layer.padding) * layer.in_dim;
    for (int64_t dim = 0; dim < layer.in_dim; ++dim) {
      const S* from = image + (dim * layer.height + h) * layer.width;
      for (int64_t w = 0; w < layer.width; ++w) to[w * layer.in_dim + dim] = from[w];
    }
  }
}

// Neighbouring outputs of one map row inside one panel of a tile.
struct Run {
  int64_t panel, column, length;
  // Corner of the first output's window in the planes, and in the pixels.
  int64_t source, pixel;
};

// Neighbouring outputs of one image inside one panel.
struct Segment {
  int64_t panel, column, length, image, position;
};

// Consecutive output positions, counted through a group of images, cut into panels of `width`.
struct Tile {
  int64_t first, count, width;
  std::vector<Run> runs;
  std::vector<Segment> segments;

  int64_t panels() const { return (count + width - 1) / width; }

  void place(const Layer& layer, int64_t first_position, int64_t how_many, int64_t panel_width) {
    first = first_position, count = how_many, width = panel_width;
    runs.clear();
    segments.clear();
    const int64_t out_width = layer.out_width(), positions = layer.positions();
    for (int64_t done = 0; done < count;) {
      const int64_t image = (first + done) / positions, at = (first + done) % positions;
      const int64_t line = at / out_width, column = at % out_width;
      const int64_t length =
          std::min({out_width - column, count - done, width - done % width});
      const int64_t corner = image * layer.planes_size() + line * layer.stride * layer.row();
      const int64_t pixel = line * layer.stride * layer.padded_width() + column * layer.stride;
      runs.push_back({done / width, done % width, length, corner + column,
                      image * layer.pixels_size() + pixel * layer.in_dim});
      if (done % width == 0 || segments.back().image != image) {
        segments.push_back({done / width, done % width, 0, image, at});
      }
      segments.back().length += length;
      done += length;
    }
  }
};

// Both tables are made once: finding an offset costs several divisions.
inline std::vector<int64_t> tap_offsets(const Layer& layer) {
  std::vector<int64_t> offsets(layer.taps());
  for (int64_t tap = 0; tap < layer.taps(); ++tap) offsets[tap] = layer.tap_offset(tap);
  return offsets;
}

inline std::vector<int64_t> weight_offsets(const Layer& layer) {
  std::vector<int64_t> offsets(layer.taps());
  for (int64_t tap = 0; tap < layer.taps(); ++tap) offsets[tap] = layer.weight_offset(tap);
  return offsets;
}

// patches [panel, tap, width] of the tile. Whole-vector copies spill over the end of a run; going
// through panels, taps and runs in memory order, the next copy overwrites what was spilled.
template <typename S>
void gather_patches(const std::vector<int64_t>& offsets, const Tile& tile, const S* planes,
                    S* patches) {
  for (size_t begin = 0, end = 0; begin < tile.runs.size(); begin = end) {
    const int64_t panel = tile.runs[begin].panel;
    while (end < tile.runs.size() && tile.runs[end].panel == panel) ++end;
    S* to = patches + panel * offsets.size() * tile.width;
    for (const int64_t offset : offsets) {
      for (size_t r = begin; r < end; ++r) {
        const Run& run = tile.runs[r];
        copy_over(to + run.column, planes + offset + run.source, run.length);
      }
      to += tile.width;
    }
  }
}

// The gradient of gather_patches; a panel of `patches` holds `padded_taps` rows.
template <typename S>
void scatter_patches(const std::vector<int64_t>& offsets, const Tile& tile, const S* patches,
                     int64_t padded_taps, S* planes) {
  for (const Run& run : tile.runs) {
    const S* from = patches + run.panel * padded_taps * tile.width + run.column;
    for (const int64_t offset : offsets) {
      add_exactly(planes + offset + run.source, from, run.length);
      from += tile.width;
    }
  }
}

// columns [position, padded_taps]: the same patches, a row for each position of the tile.
template <typename S>
void gather_columns(const Layer& layer, const Tile& tile, const S* pixels, int64_t padded_taps,
                    S* columns) {
  const int64_t kernel = layer.kernel, line = kernel * layer.in_dim;
  const int64_t row = layer.padded_width() * layer.in_dim, step = layer.stride * layer.in_dim;
  for (const Run& run : tile.runs) {
    const S* from = pixels + run.pixel;
    S* to = columns + (run.panel * tile.width + run.column) * padded_taps;
    for (int64_t i = 0; i < run.length; ++i, from += step, to += padded_taps) {
      for (int64_t k = 0; k < kernel; ++k) copy_over(to + k * line, from + k * row, line);
    }
  }
}

}  // namespace caps
