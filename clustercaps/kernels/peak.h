// The arithmetic peak of this machine, the yardstick of `clustercaps bench bounds`.
#pragma once

#include <ATen/Parallel.h>

#include "simd.h"

namespace caps {

// Independent sums: enough to hide the latency of a multiply-add, and few enough for registers.
constexpr int kPeakSums = kRegisters >= 32 ? 16 : 12;

// Every thread computes `rounds` times a multiply-add of all its sums, in registers, and writes
// their total to out [thread, lane], so that the compiler cannot leave them out. Returns the number
// of multiply-adds.
template <typename S>
int64_t multiply_adds(int64_t rounds, S factor, S addend, S* out) {
  const int64_t threads = at::get_num_threads();
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      const Vec<S> times = Vec<S>{} + factor, plus = Vec<S>{} + addend;
      Vec<S> sums[kPeakSums];
      CAPS_UNROLL
      for (int i = 0; i < kPeakSums; ++i) sums[i] = Vec<S>{} + static_cast<S>(i);
      for (int64_t round = 0; round < rounds; ++round) {
        CAPS_UNROLL
        for (int i = 0; i < kPeakSums; ++i) sums[i] = sums[i] * times + plus;
      }
      CAPS_UNROLL
      for (int i = 1; i < kPeakSums; ++i) sums[0] += sums[i];
      store(out + thread * kLanes<S>, sums[0]);
    }
  });
  return threads * rounds * kPeakSums * kLanes<S>;
}

}  // namespace caps
