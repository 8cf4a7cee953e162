// Reordering the entries of vectors: pairs of neighbours, and transposed blocks.
#pragma once

#include "simd.h"

namespace caps {

// Selects lanes `index` of the concatenation of a and b.
template <typename S, int... index>
CAPS_INLINE Vec<S> pick(Vec<S> a, Vec<S> b, std::integer_sequence<int, index...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, index...);
#else
  return __builtin_shuffle(a, b, typename SimdOf<S>::Bits{index...});
#endif
}

// even [i] = from [2 i] and odd [i] = from [2 i + 1], for `count` pairs.
template <typename S, int... lane>
CAPS_INLINE void part_pairs(const S* from, int64_t count, S* even, S* odd,
                            std::integer_sequence<int, lane...>) {
  int64_t i = 0;
  for (; i + kLanes<S> <= count; i += kLanes<S>) {
    const Vec<S> a = load(from + 2 * i), b = load(from + 2 * i + kLanes<S>);
    store(even + i, pick<S>(a, b, std::integer_sequence<int, 2 * lane...>{}));
    store(odd + i, pick<S>(a, b, std::integer_sequence<int, (2 * lane + 1)...>{}));
  }
  if (constexpr int half = kLanes<S> / 2; i + half <= count) {
    const Vec<S> a = load(from + 2 * i);
    S parts[kLanes<S>];
    store(parts, pick<S>(a, a, std::integer_sequence<int, (lane % half * 2 + lane / half)...>{}));
    as<Half<S>>(even + i) = as<Half<S>>(parts);
    as<Half<S>>(odd + i) = as<Half<S>>(parts + half);
    i += half;
  }
  for (; i < count; ++i) even[i] = from[2 * i], odd[i] = from[2 * i + 1];
}

// The inverse of part_pairs; may read up to half a vector past the last pair.
template <typename S, int... lane>
CAPS_INLINE void join_pairs(const S* even, const S* odd, int64_t count, S* to,
                            std::integer_sequence<int, lane...>) {
  constexpr int lanes = kLanes<S>;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vec<S> a = load(even + i), b = load(odd + i);
    store(to + 2 * i,
          pick<S>(a, b, std::integer_sequence<int, (lane / 2 + lane % 2 * lanes)...>{}));
    store(to + 2 * i + lanes, pick<S>(a, b,
                                      std::integer_sequence<int, ((lane + lanes) / 2 +
                                                                  lane % 2 * lanes)...>{}));
  }
  if (i + lanes / 2 <= count) {
    store(to + 2 * i, pick<S>(load(even + i), load(odd + i),
                              std::integer_sequence<int, (lane / 2 + lane % 2 * lanes)...>{}));
    i += lanes / 2;
  }
  for (; i < count; ++i) to[2 * i] = even[i], to[2 * i + 1] = odd[i];
}

template <typename S>
using EachLane = std::make_integer_sequence<int, kLanes<S>>;

// Swaps the lanes of a with bit `Step` set and the lanes of b without it.
template <typename S, int Step, int... lane>
CAPS_INLINE void swap_lanes(Vec<S>& a, Vec<S>& b, std::integer_sequence<int, lane...>) {
  constexpr int lanes = kLanes<S>;
  const Vec<S> low = a, high = b;
  a = pick<S>(low, high,
              std::integer_sequence<int, (lane & Step ? lanes + (lane ^ Step) : lane)...>{});
  b = pick<S>(low, high,
              std::integer_sequence<int, (lane & Step ? lanes + lane : lane ^ Step)...>{});
}

template <typename S, int Step>
CAPS_INLINE void swap_blocks(Vec<S> (&rows)[kLanes<S>]) {
  if constexpr (Step < kLanes<S>) {
    CAPS_UNROLL
    for (int i = 0; i < kLanes<S>; ++i) {
      if (i & Step) continue;
      swap_lanes<S, Step>(rows[i], rows[i | Step], EachLane<S>{});
    }
    swap_blocks<S, 2 * Step>(rows);
  }
}

// Transposes a square block of kLanes x kLanes entries.
template <typename S>
CAPS_INLINE void transpose(const S* from, int64_t from_row, S* to, int64_t to_row) {
  Vec<S> rows[kLanes<S>];
  CAPS_UNROLL
  for (int i = 0; i < kLanes<S>; ++i) rows[i] = load(from + i * from_row);
  swap_blocks<S, 1>(rows);
  CAPS_UNROLL
  for (int i = 0; i < kLanes<S>; ++i) store(to + i * to_row, rows[i]);
}

}  // namespace caps
