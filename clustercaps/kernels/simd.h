// Vectors of the widest type of this machine (compiler extensions, and two AVX-512 intrinsics), and
// aligned scratch memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

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

// Arrays of vectors stay in registers only if every loop over them is unrolled.
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
  typedef int64_t Bits __attribute__((vector_size(kVectorBytes)));
};

template <typename S>
using Vec = typename SimdOf<S>::Vec;

template <typename S>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(S));

// Whether two neighbours can be repeated in all lanes, see `alternate`.
template <typename S>
constexpr bool kHasTails = sizeof(S) == 4;

template <typename S>
CAPS_INLINE Vec<S> load(const S* from) {
  return *reinterpret_cast<const Vec<S>*>(from);
}

template <typename S>
CAPS_INLINE void store(S* to, Vec<S> value) {
  *reinterpret_cast<Vec<S>*>(to) = value;
}

// Replaces x by 1 / sqrt(x) using only the multiply units; the divider would be the bottleneck of
// layers with few taps. Starts from the machine's estimate (relative error 2^-14) if it has one,
// else from a bit-level estimate (3 %) and a third-order step; then a Newton step. Each step is
// done for all vectors, to hide the latency of the dependent operations.
template <int Vectors>
CAPS_INLINE void inverse_sqrt(Vec<float> (&x)[Vectors]) {
  Vec<float> y[Vectors];
#if defined(__AVX512F__)
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) y[v] = (Vec<float>)_mm512_rsqrt14_ps((__m512)x[v]);
#else
  typedef SimdOf<float>::Bits Bits;
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const Bits guess = 0x5f375a86 - ((Bits)x[v] >> 1);
    y[v] = (Vec<float>)guess;
  }
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const Vec<float> w = 0.5f * x[v] * y[v] * y[v];
    y[v] *= 1.875f - w * (2.5f - 1.5f * w);
  }
#endif
  CAPS_UNROLL
  for (int v = 0; v < Vectors; ++v) {
    const Vec<float> off = 1.0f - x[v] * y[v] * y[v];
    x[v] = y[v] + 0.5f * y[v] * off;
  }
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

// 1 / x, also without the divider if the machine has an estimate.
template <typename T>
CAPS_INLINE T inverse(T x) {
  return 1 / x;
}

#if defined(__AVX512F__)
CAPS_INLINE Vec<float> inverse(Vec<float> x) {
  const Vec<float> y = (Vec<float>)_mm512_rcp14_ps((__m512)x);
  return y + y * (1.0f - x * y);
}
#endif

// Scratch memory aligned to cache lines, zeroed unless said otherwise, with one spare line at the
// end: copies in whole vectors may read or write slightly past the last element.
template <typename S>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t size, bool zeroed = true) {
    const size_t bytes = ((size * sizeof(S) + 63) / 64 + 1) * 64;
    data_.reset(static_cast<S*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    if (zeroed) std::memset(static_cast<void*>(data_.get()), 0, bytes);
  }
  S* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(S* memory) const { std::free(memory); }
  };
  std::unique_ptr<S, Free> data_;
};

// Lanes at [0], at [1], at [0], at [1], ...
CAPS_INLINE Vec<float> alternate(const float* at) {
  typedef int64_t Two __attribute__((aligned(4), may_alias));
  typedef int64_t Twos __attribute__((vector_size(kVectorBytes)));
  return (Vec<float>)(Twos{} + *reinterpret_cast<const Two*>(at));
}

// Copies at least `length` entries, in whole vectors.
template <typename S>
CAPS_INLINE void copy_over(S* to, const S* from, int64_t length) {
  for (int64_t i = 0; i < length; i += kLanes<S>) store(to + i, load(from + i));
}

// A vector, half a vector, or a scalar. These are tags, because template arguments would lose the
// alignment attributes of the types.
template <typename S>
struct Whole {
  typedef typename SimdOf<S>::Vec Type;
};
template <typename S>
struct Half {
  typedef typename SimdOf<S>::Half Type;
};
template <typename S>
struct One {
  typedef S Type;
};

template <typename Some, typename S>
CAPS_INLINE typename Some::Type& as(S* at) {
  return *reinterpret_cast<typename Some::Type*>(at);
}

template <typename Some, typename S>
CAPS_INLINE const typename Some::Type& as(const S* at) {
  return *reinterpret_cast<const typename Some::Type*>(at);
}

// Calls step(position, Whole, Half or One) such that exactly `length` entries are covered.
template <typename S, typename Step>
CAPS_INLINE void in_vectors(int64_t length, Step step) {
  int64_t i = 0;
  for (; i + kLanes<S> <= length; i += kLanes<S>) step(i, Whole<S>{});
  if (i + kLanes<S> / 2 <= length) step(i, Half<S>{}), i += kLanes<S> / 2;
  for (; i < length; ++i) step(i, One<S>{});
}

// to = from, and to += from.
template <typename S>
CAPS_INLINE void copy_exactly(S* to, const S* from, int64_t length) {
  in_vectors<S>(length, [&](int64_t i, auto some) {
    as<decltype(some)>(to + i) = as<decltype(some)>(from + i);
  });
}

template <typename S>
CAPS_INLINE void add_exactly(S* to, const S* from, int64_t length) {
  in_vectors<S>(length, [&](int64_t i, auto some) {
    as<decltype(some)>(to + i) += as<decltype(some)>(from + i);
  });
}

}  // namespace caps
