// The layer's sizes, its zero-padded input, and tiles of output positions as columns of patches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.h"

namespace caps {

// Filled in by the caller, field by field; see `Layer` in cluster_cpu.py.
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

// Calls visit(to, from, count) for every row and phase: planes[to + i] is image[from + i * stride].
template <typename Visit>
void for_each_phase(const Layer& layer, Visit visit) {
  const int64_t stride = layer.stride, padding = layer.padding;
  for (int64_t line = 0; line < layer.in_dim * layer.height; ++line) {
    const int64_t dim = line / layer.height, h = line % layer.height;
    const int64_t to = dim * layer.plane() + (h + padding) * layer.row();
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int64_t first = (phase - padding % stride + stride) % stride;
      if (first >= layer.width) continue;
      visit(to + phase * layer.phase() + (first + padding) / stride, line * layer.width + first,
            (layer.width - first + stride - 1) / stride);
    }
  }
}

// image [dim, h, w] into planes whose borders are already zero.
template <typename S>
void pad_planes(const Layer& layer, const S* image, S* planes) {
  for_each_phase(layer, [&](int64_t to, int64_t from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) planes[to + i] = image[from + i * layer.stride];
  });
}

// The gradient of pad_planes.
template <typename S>
void crop_planes(const Layer& layer, const S* planes, S* image) {
  for_each_phase(layer, [&](int64_t to, int64_t from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) image[from + i * layer.stride] = planes[to + i];
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
  // Corner of the first output's window in the planes.
  int64_t source;
};

// Neighbouring outputs of one image inside a tile.
struct Segment {
  int64_t column, length, image, position;
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
      runs.push_back({done / width, done % width, length, corner + column});
      if (segments.empty() || segments.back().image != image) {
        segments.push_back({done, 0, image, at});
      }
      segments.back().length += length;
      done += length;
    }
  }
};

// patches [panel, tap, width] of the tile. Whole-vector copies spill over the end of a run; going
// through panels, taps and runs in memory order, the next copy overwrites what was spilled.
template <typename S>
void gather_patches(const Layer& layer, const Tile& tile, const S* planes, S* patches) {
  const int64_t taps = layer.taps();
  for (size_t begin = 0, end = 0; begin < tile.runs.size(); begin = end) {
    const int64_t panel = tile.runs[begin].panel;
    while (end < tile.runs.size() && tile.runs[end].panel == panel) ++end;
    for (int64_t tap = 0; tap < taps; ++tap) {
      S* to = patches + (panel * taps + tap) * tile.width;
      const S* from = planes + layer.tap_offset(tap);
      for (size_t r = begin; r < end; ++r) {
        copy_over(to + tile.runs[r].column, from + tile.runs[r].source, tile.runs[r].length);
      }
    }
  }
}

// The gradient of gather_patches; a panel of `patches` holds `padded_taps` rows.
template <typename S>
void scatter_patches(const Layer& layer, const Tile& tile, const S* patches, int64_t padded_taps,
                     S* planes) {
  for (int64_t tap = 0; tap < layer.taps(); ++tap) {
    S* to = planes + layer.tap_offset(tap);
    for (const Run& run : tile.runs) {
      const S* from = patches + (run.panel * padded_taps + tap) * tile.width + run.column;
      add_exactly(to + run.source, from, run.length);
    }
  }
}

// columns [position, padded_taps]: the same patches, a row for each position of the tile.
template <typename S>
void gather_columns(const Layer& layer, const Tile& tile, const S* pixels, int64_t padded_taps,
                    S* columns) {
  const int64_t line = layer.kernel * layer.in_dim, width = layer.padded_width() * layer.in_dim;
  for (const Segment& segment : tile.segments) {
    const S* image = pixels + segment.image * layer.pixels_size();
    for (int64_t i = 0; i < segment.length; ++i) {
      const int64_t h = (segment.position + i) / layer.out_width() * layer.stride;
      const int64_t w = (segment.position + i) % layer.out_width() * layer.stride;
      const S* from = image + h * width + w * layer.in_dim;
      S* to = columns + (segment.column + i) * padded_taps;
      for (int64_t k = 0; k < layer.kernel; ++k) copy_over(to + k * line, from + k * width, line);
    }
  }
}

}  // namespace caps
