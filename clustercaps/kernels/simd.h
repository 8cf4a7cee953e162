// Vectors of the widest kind this machine has, without intrinsics, and aligned scratch memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace caps {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kRegisters = 32;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kRegisters = 32;
#else
constexpr int kVectorBytes = 16;
constexpr int kRegisters = 16;
#endif

#define CAPS_INLINE inline __attribute__((always_inline))

// Arrays of vectors live in registers only if every loop over them is unrolled.
#if defined(__clang__)
#define CAPS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CAPS_UNROLL _Pragma("GCC unroll 16")
#endif

template <typename S>
struct SimdOf;

template <>
struct SimdOf<float> {
  typedef float Vec __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
  typedef float Half __attribute__((vector_size(kVectorBytes / 2), aligned(4), may_alias));
  typedef int32_t Bits __attribute__((vector_size(kVectorBytes)));
};

template <>
struct SimdOf<double> {
  typedef double Vec __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
  typedef double Half __attribute__((vector_size(kVectorBytes / 2), aligned(8), may_alias));
};

template <typename S>
using Vec = typename SimdOf<S>::Vec;

template <typename S>
using HalfVec = typename SimdOf<S>::Half;

template <typename S>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(S));

template <typename S>
CAPS_INLINE Vec<S> load(const S* from) {
  return *reinterpret_cast<const Vec<S>*>(from);
}

template <typename S>
CAPS_INLINE void store(S* to, Vec<S> value) {
  *reinterpret_cast<Vec<S>*>(to) = value;
}

// x becomes 1 / sqrt(x). A bit-level guess (3 % off), a step of third order (1e-4) and one of Newton
// reach float32 precision on the multiply units alone; the divider would be the bottleneck of layers
// with few taps. Step by step for all vectors, so that none waits for its own last result.
template <int Vectors>
CAPS_INLINE void inverse_sqrt(Vec<float> (&x)[Vectors]) {
  typedef SimdOf<float>::Bits Bits;
  Vec<float> y[Vectors], w[Vectors];
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const Bits guess = 0x5f375a86 - ((Bits)x[v] >> 1);
    y[v] = (Vec<float>)guess;
    x[v] *= 0.5f;
  }
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) w[v] = x[v] * y[v] * y[v];
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) y[v] *= 1.875f - w[v] * (2.5f - 1.5f * w[v]);
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) x[v] = y[v] * (1.5f - x[v] * y[v] * y[v]);
}

template <typename S, int Vectors>
CAPS_INLINE void exact_inverse_sqrt(Vec<S> (&x)[Vectors]) {
  for (Vec<S>& one : x) {
    for (int lane = 0; lane < kLanes<S>; ++lane) one[lane] = S(1) / std::sqrt(one[lane]);
  }
}

template <int Vectors>
CAPS_INLINE void inverse_sqrt(Vec<double> (&x)[Vectors]) {
  exact_inverse_sqrt<double>(x);
}

// Zeroed scratch on cache-line boundaries, with one spare line after the end: copies in whole
// vectors may read or write a little past the last element they mean.
template <typename S>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size) {
    const size_t bytes = ((size * sizeof(S) + 63) / 64 + 1) * 64;
    data_.reset(static_cast<S*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    std::memset(static_cast<void*>(data_.get()), 0, bytes);
  }
  S* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(S* memory) const { std::free(memory); }
  };
  std::unique_ptr<S, Free> data_;
};

// Copies at least `length` numbers, in whole vectors.
template <typename S>
CAPS_INLINE void copy_over(S* to, const S* from, int64_t length) {
  for (int64_t i = 0; i < length; i += kLanes<S>) store(to + i, load(from + i));
}

// to += from, exactly `length` numbers.
template <typename S>
CAPS_INLINE void add_exactly(S* to, const S* from, int64_t length) {
  constexpr int half = kLanes<S> / 2;
  int64_t i = 0;
  for (; i + kLanes<S> <= length; i += kLanes<S>) store(to + i, load(to + i) + load(from + i));
  if (i + half <= length) {
    *reinterpret_cast<HalfVec<S>*>(to + i) += *reinterpret_cast<const HalfVec<S>*>(from + i);
    i += half;
  }
  for (; i < length; ++i) to[i] += from[i];
}

}  // namespace caps
