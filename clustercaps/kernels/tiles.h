// Tiles of output positions, and the patches that they read.
#pragma once

#include "layer.h"

namespace caps {

// Neighbouring outputs of one map row inside one panel of a tile; `source` is the corner of the
// first output's window in the planes.
struct Run {
  int64_t panel, column, length, source;
};

// Neighbouring outputs of one image inside one panel.
struct Segment {
  int64_t panel, column, length, image, position;
};

// Consecutive output positions, numbered across a group of images, divided into panels of `width`.
struct Tile {
  int64_t count, width;
  std::vector<Run> runs;
  std::vector<Segment> segments;
  // If every run consists of whole vectors, or of half vectors: the number of positions in such a
  // piece, and the corner of each. Otherwise 0.
  int64_t piece;
  std::vector<int64_t> corners;

  int64_t panels() const { return (count + width - 1) / width; }

  void place(const Layer& layer, int64_t first, int64_t how_many, int64_t panel_width,
             int64_t lanes) {
    count = how_many, width = panel_width;
    runs.clear();
    segments.clear();
    const int64_t out_width = layer.out_width(), positions = layer.positions();
    for (int64_t done = 0; done < count;) {
      const int64_t image = (first + done) / positions, at = (first + done) % positions;
      const int64_t line = at / out_width, column = at % out_width;
      const int64_t length = std::min({out_width - column, count - done, width - done % width});
      const int64_t corner = image * layer.planes_size() + line * layer.stride * layer.row();
      runs.push_back({done / width, done % width, length, corner + column});
      if (done % width == 0 || segments.back().image != image) {
        segments.push_back({done / width, done % width, 0, image, at});
      }
      segments.back().length += length;
      done += length;
    }
    if (!cut(lanes) && !cut(lanes / 2)) piece = 0;
  }

 private:
  bool cut(int64_t size) {
    piece = size;
    corners.clear();
    for (const Run& run : runs) {
      if (run.column % size || run.length % size) return false;
      for (int64_t i = 0; i < run.length; i += size) corners.push_back(run.source + i);
    }
    return true;
  }
};

// Calls one(offset in the patches, offset in the planes) for every piece of a tile; a panel of
// patches has `padded_taps` rows.
template <int64_t Size, typename One>
CAPS_INLINE void for_each_piece(const std::vector<Tap>& taps, const Tile& tile,
                                int64_t padded_taps, One one) {
  const int64_t pieces = tile.width / Size, all = tile.corners.size();
  for (int64_t begin = 0; begin < all; begin += pieces) {
    const int64_t* corners = tile.corners.data() + begin;
    const int64_t count = std::min(pieces, all - begin);
    const int64_t panel = begin / pieces * padded_taps;
    if (count == 4) {
      const int64_t a = corners[0], b = corners[1], c = corners[2], d = corners[3];
      for (const auto [index, offset] : taps) {
        const int64_t to = (panel + index) * tile.width;
        one(to, offset + a), one(to + Size, offset + b);
        one(to + 2 * Size, offset + c), one(to + 3 * Size, offset + d);
      }
      continue;
    }
    for (const auto [index, offset] : taps) {
      const int64_t to = (panel + index) * tile.width;
      for (int64_t p = 0; p < count; ++p) one(to + p * Size, offset + corners[p]);
    }
  }
}

// Copies the patches [panel, tap, width] of the tile; taps are in the order of the weight.
template <typename S>
void gather_patches(const std::vector<Tap>& taps, const Tile& tile, const S* planes,
                    int64_t padded_taps, S* patches) {
  if (tile.piece == kLanes<S>) {
    return for_each_piece<kLanes<S>>(taps, tile, padded_taps, [&](int64_t to, int64_t from) {
      store(patches + to, load(planes + from));
    });
  }
  if (tile.piece) {
    return for_each_piece<kLanes<S> / 2>(taps, tile, padded_taps, [&](int64_t to, int64_t from) {
      as<Half<S>>(patches + to) = as<Half<S>>(planes + from);
    });
  }
  // Whole-vector copies write past the end of a run; since panels, taps and runs are in memory
  // order, the next copy overwrites the excess.
  for (size_t begin = 0, end = 0; begin < tile.runs.size(); begin = end) {
    const int64_t panel = tile.runs[begin].panel;
    while (end < tile.runs.size() && tile.runs[end].panel == panel) ++end;
    for (const auto [index, offset] : taps) {
      S* to = patches + (panel * padded_taps + index) * tile.width;
      for (size_t r = begin; r < end; ++r) {
        const Run& run = tile.runs[r];
        copy_over(to + run.column, planes + offset + run.source, run.length);
      }
    }
  }
}

// Patches [panel, padded_taps, width] as pairs of taps [panel, items, width].
inline void pair_patches(const Layer& layer, const Tile& tile, const float* patches,
                         int64_t padded_taps, float* pairs) {
  for (int64_t panel = 0; panel < tile.panels(); ++panel) {
    pair_rows(patches, layer.taps(), tile.width, tile.width, pairs);
    patches += padded_taps * tile.width;
    pairs += layer.items<float>() * tile.width;
  }
}

// Patches [panel, tap, width] as pairs of neighbouring vectors [panel, tap, vectors / 2], for the
// sums of `learn`; the last of an odd number is paired with zeros.
inline void pair_vectors_of(const Layer& layer, const Tile& tile, const float* patches,
                            float* pairs) {
  constexpr int64_t lanes = kLanes<float>;
  for (int64_t row = 0; row < tile.panels() * layer.taps(); ++row, patches += tile.width) {
    for (int64_t i = 0; i < tile.width; i += 2 * lanes, pairs += lanes) {
      const Vec<float> next = i + lanes < tile.width ? load(patches + i + lanes) : Vec<float>{};
      store(pairs, pair_up(load(patches + i), next));
    }
  }
}

// The gradient of gather_patches; taps may be in another order.
template <typename S>
void scatter_patches(const std::vector<Tap>& taps, const Tile& tile, const S* patches,
                     int64_t padded_taps, S* planes) {
  if (tile.piece == kLanes<S>) {
    return for_each_piece<kLanes<S>>(taps, tile, padded_taps, [&](int64_t from, int64_t to) {
      store(planes + to, load(planes + to) + load(patches + from));
    });
  }
  if (tile.piece) {
    return for_each_piece<kLanes<S> / 2>(taps, tile, padded_taps, [&](int64_t from, int64_t to) {
      as<Half<S>>(planes + to) += as<Half<S>>(patches + from);
    });
  }
  for (const Run& run : tile.runs) {
    const S* from = patches + run.panel * padded_taps * tile.width + run.column;
    for (const auto [index, offset] : taps) {
      add_exactly(planes + offset + run.source, from + index * tile.width, run.length);
    }
  }
}

// Transposes patches [panel, padded_taps, position] to columns [panel, position, padded_taps];
// padded_taps is a multiple of the vector length, and the rows beyond the last tap are arbitrary.
template <typename S>
void turn_patches(const Tile& tile, const S* patches, int64_t padded_taps, S* columns) {
  for (int64_t panel = 0; panel < tile.panels(); ++panel) {
    for (int64_t tap = 0; tap < padded_taps; tap += kLanes<S>) {
      for (int64_t q = 0; q < tile.width; q += kLanes<S>) {
        transpose(patches + tap * tile.width + q, tile.width, columns + q * padded_taps + tap,
                  padded_taps);
      }
    }
    patches += padded_taps * tile.width;
    columns += padded_taps * tile.width;
  }
}

}  // namespace caps
