// Feature maps between PyTorch's layout [channel, row, column] and vectors of neighbouring channels.
#pragma once

#include <algorithm>

#include "shuffles.h"

namespace caps {

// Where maps of height x width lie in frames of rows x columns: beyond the frame, nothing is used;
// beyond the maps, the frame is zero.
struct Frame {
  int64_t height, width, top, left, rows, columns;

  int64_t size() const { return rows * columns; }
  int64_t last_row() const { return std::min(height, rows - top); }
  int64_t last_column() const { return std::min(width, columns - left); }
};

// Calls whole(x) for every vector of a row, and single(x) for columns if it is shorter than one. The
// last vector may overlap the one before.
template <typename Whole, typename Single>
CAPS_INLINE void along_row(int64_t length, Whole whole, Single single) {
  constexpr int64_t lanes = kLanes<float>;
  if (length < lanes) {
    for (int64_t x = 0; x < length; ++x) single(x);
    return;
  }
  for (int64_t x = 0; x < length; x += lanes) whole(std::min(x, length - lanes));
}

// A frame [position, lane] from the maps of as many channels as a vector has lanes. The margin of
// the frame is zero before.
inline void gather_maps(const Frame& frame, const float* maps, float* to) {
  constexpr int64_t lanes = kLanes<float>;
  const int64_t plane = frame.height * frame.width;
  for (int64_t y = 0; y < frame.last_row(); ++y) {
    const float* row = maps + y * frame.width;
    float* out = to + ((y + frame.top) * frame.columns + frame.left) * lanes;
    along_row(
        frame.last_column(), [&](int64_t x) { transpose(row + x, plane, out + x * lanes, lanes); },
        [&](int64_t x) {
          for (int64_t c = 0; c < lanes; ++c) out[x * lanes + c] = row[c * plane + x];
        });
  }
}

// The inverse: maps of height x width from a frame, plus one value for every channel. What lies
// beyond the frame is that value only.
inline void scatter_maps(const Frame& frame, const float* from, const float* bias, float* maps) {
  constexpr int64_t lanes = kLanes<float>;
  const int64_t plane = frame.height * frame.width;
  const Vec<float> shift = bias ? load(bias) : Vec<float>{};
  const int64_t columns = frame.last_column();
  for (int64_t y = 0; y < frame.height; ++y) {
    const bool outside = y >= frame.last_row();
    const float* in = from + ((y + frame.top) * frame.columns + frame.left) * lanes;
    float* row = maps + y * frame.width;
    if (outside || columns < frame.width) {
      for (int64_t c = 0; c < lanes; ++c) std::fill_n(row + c * plane, frame.width, shift[c]);
      if (outside) continue;
    }
    along_row(
        columns,
        [&](int64_t x) {
          Vec<float> block[lanes];
          CAPS_UNROLL
          for (int i = 0; i < lanes; ++i) block[i] = load(in + (x + i) * lanes) + shift;
          swap_blocks<float, 1>(block);
          CAPS_UNROLL
          for (int i = 0; i < lanes; ++i) store(row + i * plane + x, block[i]);
        },
        [&](int64_t x) {
          for (int64_t c = 0; c < lanes; ++c) row[c * plane + x] = in[x * lanes + c] + shift[c];
        });
  }
}

// taps [tap, lane] from windows [tap] of as many pairs of channels as a vector has lanes.
template <int Taps>
CAPS_INLINE void gather_taps(const float* windows, int64_t distance, float* taps) {
  constexpr int lanes = kLanes<float>;
  int tap = 0;
  for (; tap + lanes <= Taps; tap += lanes) {
    transpose(windows + tap, distance, taps + tap * lanes, lanes);
  }
  for (; tap < Taps; ++tap) {
    for (int c = 0; c < lanes; ++c) taps[tap * lanes + c] = windows[c * distance + tap];
  }
}

// The inverse; with `add`, windows are added to.
template <int Taps>
CAPS_INLINE void scatter_taps(const float* taps, bool add, float* windows, int64_t distance) {
  constexpr int lanes = kLanes<float>, blocks = (Taps + lanes - 1) / lanes, row = blocks * lanes;
  float turned[lanes * row];
  for (int n = 0; n < blocks; ++n) {
    transpose(taps + n * lanes * lanes, lanes, turned + n * lanes, row);
  }
  for (int c = 0; c < lanes; ++c) {
    if (add) {
      add_exactly(windows + c * distance, turned + c * row, Taps);
    } else {
      copy_exactly(windows + c * distance, turned + c * row, Taps);
    }
  }
}

}  // namespace caps
