// Sums over votes, and the gradient with respect to the votes, for routings that fit Gaussians; see
// clustercaps/routing/vote_chunks.py, which computes the same in plain PyTorch.
//
// Votes are [batch, child, parent, dim, position], values per pair [batch, child, parent, position]
// and values per parent [batch, parent, dim, position], all contiguous. Every function reads the
// votes once and stores nothing of their size.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simd.h"

namespace caps {

// Entries of a strip, which stay in the first cache together with what belongs to them.
constexpr int64_t kStrip = 512;
// Addends that are added up before they are added to the sum: rounding errors grow slower.
constexpr int64_t kAddends = 16;

// Consecutive positions of one dimension in the map [dim, position] of a parent: where they begin in
// the map, how many they are, and the first position.
struct Strip {
  int64_t from, count, position;
};

// Filled by the caller, field by field; see `VoteSizes` in vote_sums.py.
struct VoteSizes {
  int64_t batch, children, parents, dim, positions;

  int64_t map() const { return dim * positions; }
  int64_t pairs() const { return parents * positions; }
  int64_t image() const { return parents * map(); }
  int64_t strips_of_row() const { return (positions + kStrip - 1) / kStrip; }
  int64_t strips() const { return dim * strips_of_row(); }
  Strip strip(int64_t number) const {
    const int64_t at = number % strips_of_row() * kStrip;
    const int64_t from = number / strips_of_row() * positions + at;
    return {from, std::min(kStrip, positions - at), at};
  }
};

// Adds a (V - m), and a (V - m)^2 if needed, of one child along a strip.
template <typename S>
CAPS_INLINE void add_child(const S* __restrict votes, const S* __restrict a,
                           const S* __restrict mean, int64_t count, bool squares,
                           S* __restrict first, S* __restrict second) {
  if (!squares) {
    for (int64_t n = 0; n < count; ++n) first[n] += a[n] * (votes[n] - mean[n]);
    return;
  }
  for (int64_t n = 0; n < count; ++n) {
    const S off = votes[n] - mean[n], weighted = a[n] * off;
    first[n] += weighted;
    second[n] += weighted * off;
  }
}

// first = sum_i a_i (V_i - m) and second = sum_i a_i (V_i - m)^2 per parent, for values a per pair
// and m per parent; m is 0 if null, and a null result is not needed.
template <typename S>
void sum_children(const VoteSizes& sizes, const S* votes, const S* pair, const S* mean, S* first,
                  S* second) {
  const int64_t map = sizes.map(), image = sizes.image(), pairs = sizes.pairs();
  const int64_t strips = sizes.strips(), all = sizes.batch * sizes.parents * strips;
  at::parallel_for(0, all, 4, [&](int64_t begin, int64_t end) {
    S centre[kStrip], sums[kStrip], squares[kStrip], part[kStrip], part_squares[kStrip];
    for (int64_t task = begin; task < end; ++task) {
      const auto [from, count, position] = sizes.strip(task % strips);
      const int64_t parent = task / strips, place = parent * map + from;
      const int64_t b = parent / sizes.parents, j = parent % sizes.parents;
      const S* of_image = votes + b * sizes.children * image + j * map + from;
      const S* weights = pair + b * sizes.children * pairs + j * sizes.positions + position;
      for (int64_t n = 0; n < count; ++n) {
        centre[n] = mean ? mean[place + n] : S(0);
        sums[n] = squares[n] = 0;
      }
      for (int64_t block = 0; block < sizes.children; block += kAddends) {
        const int64_t last = std::min(sizes.children, block + kAddends);
        std::fill_n(part, count, S(0));
        std::fill_n(part_squares, count, S(0));
        for (int64_t i = block; i < last; ++i) {
          add_child(of_image + i * image, weights + i * pairs, centre, count, second != nullptr, part,
                    part_squares);
        }
        for (int64_t n = 0; n < count; ++n) sums[n] += part[n], squares[n] += part_squares[n];
      }
      if (first) std::copy_n(sums, count, first + place);
      if (second) std::copy_n(squares, count, second + place);
    }
  });
}

// out = sum_d (V_d - m_d) (b_d + c_d (V_d - m_d)) per pair, for values m, b and c per parent, each 0
// if null.
template <typename S>
void sum_dims(const VoteSizes& sizes, const S* votes, const S* mean, const S* linear,
              const S* quadratic, S* out) {
  const int64_t map = sizes.map(), positions = sizes.positions;
  const int64_t all = sizes.batch * sizes.children * sizes.parents;
  at::parallel_for(0, all, 64, [&](int64_t begin, int64_t end) {
    const std::vector<S> zeros(map, S(0));
    S part[kStrip];
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t b = pair / sizes.parents / sizes.children, j = pair % sizes.parents;
      const int64_t parent = (b * sizes.parents + j) * map;
      const S* __restrict v = votes + pair * map;
      const S* __restrict m = mean ? mean + parent : zeros.data();
      const S* __restrict l = linear ? linear + parent : zeros.data();
      const S* __restrict q = quadratic ? quadratic + parent : zeros.data();
      S* __restrict to = out + pair * positions;
      const auto add_up = [&](auto value) {
        std::fill_n(to, positions, S(0));
        for (int64_t p = 0; p < positions; p += kStrip) {
          const int64_t count = std::min(kStrip, positions - p);
          for (int64_t d = 0; d < sizes.dim; d += kAddends) {
            // The first addends are added up where the sum will be.
            S* __restrict sums = d == 0 ? to + p : part;
            if (d > 0) std::fill_n(part, count, S(0));
            for (int64_t k = d; k < std::min(sizes.dim, d + kAddends); ++k) {
              const int64_t at = k * positions + p;
              for (int64_t n = at; n < at + count; ++n) sums[n - at] += value(v[n] - m[n], n);
            }
            for (int64_t n = 0; d > 0 && n < count; ++n) to[p + n] += part[n];
          }
        }
      };
      if (!quadratic) {
        add_up([&](S off, int64_t n) { return off * l[n]; });
      } else if (!linear) {
        add_up([&](S off, int64_t n) { return off * off * q[n]; });
      } else {
        add_up([&](S off, int64_t n) { return off * (l[n] + q[n] * off); });
      }
    }
  });
}

// Terms a_i b_d of the gradient with respect to the votes, in groups: counts[g] of them, one group
// after the other, are multiplied by V_id - m_d of the group's mean, or by 1 if it is null.
template <typename S>
struct Terms {
  int64_t groups;
  const int64_t* counts;
  const S* const* means;
  const S* const* pairs;
  const S* const* parents;
};

// A strip of votes with what belongs to it: offsets into values per pair and per parent.
struct TermPlace {
  int64_t vote, pair, parent;
};

// The sum of all terms for kVectors vectors of votes, in registers.
template <int kVectors, typename S>
CAPS_INLINE void add_terms_to(const Terms<S>& terms, const S* votes, const TermPlace& at, S* out) {
  Vec<S> total[kVectors] = {};
  for (int64_t group = 0, term = 0; group < terms.groups; ++group) {
    Vec<S> factor[kVectors] = {};
    for (int64_t k = 0; k < terms.counts[group]; ++k, ++term) {
      const S* pair = terms.pairs[term] + at.pair;
      const S* parent = terms.parents[term] + at.parent;
      CAPS_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        factor[n] += load(pair + n * kLanes<S>) * load(parent + n * kLanes<S>);
      }
    }
    const S* mean = terms.means[group];
    CAPS_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      if (mean) {
        const Vec<S> vote = load(votes + at.vote + n * kLanes<S>);
        factor[n] *= vote - load(mean + at.parent + n * kLanes<S>);
      }
      total[n] += factor[n];
    }
  }
  CAPS_UNROLL
  for (int n = 0; n < kVectors; ++n) store(out + at.vote + n * kLanes<S>, total[n]);
}

// The same for a single vote.
template <typename S>
CAPS_INLINE void add_terms_to_one(const Terms<S>& terms, const S* votes, const TermPlace& at,
                                  S* out) {
  S total = 0;
  for (int64_t group = 0, term = 0; group < terms.groups; ++group) {
    S factor = 0;
    for (int64_t k = 0; k < terms.counts[group]; ++k, ++term) {
      factor += terms.pairs[term][at.pair] * terms.parents[term][at.parent];
    }
    const S* mean = terms.means[group];
    total += mean ? factor * (votes[at.vote] - mean[at.parent]) : factor;
  }
  out[at.vote] = total;
}

// The sum of all terms along a strip.
template <typename S>
void add_terms_along(const Terms<S>& terms, const S* votes, TermPlace at, int64_t count, S* out) {
  constexpr int64_t kWide = 4 * kLanes<S>;
  const auto advance = [&](int64_t step) {
    at = {at.vote + step, at.pair + step, at.parent + step};
    count -= step;
  };
  for (; count >= kWide; advance(kWide)) add_terms_to<4>(terms, votes, at, out);
  for (; count >= kLanes<S>; advance(kLanes<S>)) add_terms_to<1>(terms, votes, at, out);
  for (; count > 0; advance(1)) add_terms_to_one(terms, votes, at, out);
}

// The sum of all terms, of the votes' size.
template <typename S>
void add_terms(const VoteSizes& sizes, const S* votes, const Terms<S>& terms, S* out) {
  const int64_t map = sizes.map(), row = sizes.positions;
  const int64_t all = sizes.batch * sizes.children * sizes.parents;
  at::parallel_for(0, all, 64, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t b = pair / sizes.parents / sizes.children, j = pair % sizes.parents;
      TermPlace at{pair * map, pair * sizes.positions, (b * sizes.parents + j) * map};
      for (int64_t n = 0; n < map; n += row, at.vote += row, at.parent += row) {
        add_terms_along(terms, votes, at, row, out);
      }
    }
  });
}

}  // namespace caps
