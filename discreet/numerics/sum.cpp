#include "discreet/numerics/sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/rounding.h"

#ifndef DISCREET_NUMERICS_SUM_ONCE_H_
#define DISCREET_NUMERICS_SUM_ONCE_H_
namespace discreet::numerics {

// (sum - compensation) * 4^exponent is the exact running total up to u^2.
struct Partial {
  double sum = 0;
  double compensation = 0;
  double exponent = 0;
};

}  // namespace discreet::numerics
#endif

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/numerics/sum.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::numerics::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLanes = 16;  // of a chunk: two vectors of AVX-512, eight of SSE2 or NEON
using Tag = hn::CappedTag<double, 8>;
using V = hn::Vec<Tag>;
constexpr std::size_t kVectors = kLanes / hn::MaxLanes(Tag());

HWY_INLINE V Widen(const double* x) { return hn::LoadU(Tag(), x); }
HWY_INLINE V Widen(const float* x) {
  return hn::PromoteTo(Tag(), hn::LoadU(hn::Rebind<float, Tag>(), x));
}

// 16 Kahan sums of 16 terms each, then a fixed tree of exact two-sums.
template <class Term>
HWY_INLINE Partial AddChunk(Term term) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  V s[kVectors], c[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) s[v] = c[v] = hn::Zero(d);
  for (std::size_t i = 0; i < kChunk; i += kLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const V y = hn::Sub(term(i + v * lanes), c[v]);
      const V t = hn::Add(s[v], y);
      c[v] = hn::Sub(hn::Sub(t, s[v]), y);
      s[v] = t;
    }
  }
  HWY_ALIGN double sums[kLanes], lost[kLanes];
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(s[v], d, sums + v * lanes);
    hn::Store(c[v], d, lost + v * lanes);
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) {
      const double a = sums[j], b = sums[j + half];
      const double t = a + b, from_b = t - a;
      const double error = (a - (t - from_b)) + (b - from_b);
      sums[j] = t;
      lost[j] = (lost[j] + lost[j + half]) - error;
    }
  }
  return {sums[0], lost[0], 0};
}

template <class T>
HWY_INLINE Partial SumOf(const T* x) {
  return AddChunk([&](std::size_t i) HWY_ATTR { return Widen(x + i); });
}

template <class T>
HWY_INLINE Partial DotOf(const T* x, const T* y) {
  return AddChunk([&](std::size_t i) HWY_ATTR { return hn::Mul(Widen(x + i), Widen(y + i)); });
}

// Squares of floats are exact and far from the ends of binary64.
HWY_INLINE Partial SquaresOf(const float* x) { return DotOf(x, x); }

HWY_INLINE Partial SquaresOf(const double* x) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  V a = hn::Zero(d), b = a;
  for (std::size_t i = 0; i < kChunk; i += 2 * lanes) {
    a = hn::Max(hn::Abs(hn::LoadU(d, x + i)), a);
    b = hn::Max(hn::Abs(hn::LoadU(d, x + i + lanes)), b);
  }
  // Only the exponent matters. 1000 instead of 1023 keeps the factor and its inverse normal.
  const double largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
  const int biased = static_cast<int>(std::bit_cast<std::uint64_t>(largest) >> 52 & 0x7ff);
  const int exponent = std::clamp(biased - 1023, -1000, 1000);
  const V factor =
      hn::Set(d, std::bit_cast<double>(static_cast<std::uint64_t>(1023 - exponent) << 52));
  Partial result = AddChunk([&](std::size_t i) HWY_ATTR {
    const V scaled = hn::Mul(Widen(x + i), factor);
    return hn::Mul(scaled, scaled);
  });
  result.exponent = exponent;
  return result;
}

// out[k] for each chunk of the range; the last one may be incomplete.
template <class T>
void SumChunks(const T* x, std::size_t count, Partial* out) {
  for (; count >= kChunk; x += kChunk, count -= kChunk) *out++ = SumOf(x);
  if (count == 0) return;
  T rest[kChunk] = {};
  std::copy_n(x, count, rest);
  *out = SumOf(rest);
}

template <class T>
void DotChunks(const T* x, const T* y, std::size_t count, Partial* out) {
  for (; count >= kChunk; x += kChunk, y += kChunk, count -= kChunk) *out++ = DotOf(x, y);
  if (count == 0) return;
  T rest_x[kChunk] = {}, rest_y[kChunk] = {};
  std::copy_n(x, count, rest_x);
  std::copy_n(y, count, rest_y);
  *out = DotOf(rest_x, rest_y);
}

template <class T>
void SquareChunks(const T* x, std::size_t count, Partial* out) {
  for (; count >= kChunk; x += kChunk, count -= kChunk) *out++ = SquaresOf(x);
  if (count == 0) return;
  T rest[kChunk] = {};
  std::copy_n(x, count, rest);
  *out = SquaresOf(rest);
}

void SumDoubles(const double* x, std::size_t n, Partial* out) { SumChunks(x, n, out); }
void SumFloats(const float* x, std::size_t n, Partial* out) { SumChunks(x, n, out); }
void SquareDoubles(const double* x, std::size_t n, Partial* out) { SquareChunks(x, n, out); }
void SquareFloats(const float* x, std::size_t n, Partial* out) { SquareChunks(x, n, out); }
void DotDoubles(const double* x, const double* y, std::size_t n, Partial* out) {
  DotChunks(x, y, n, out);
}
void DotFloats(const float* x, const float* y, std::size_t n, Partial* out) {
  DotChunks(x, y, n, out);
}
double SquareRoot(double x) {
  const hn::CappedTag<double, 1> d;
  return hn::GetLane(hn::Sqrt(hn::Set(d, x)));
}

}  // namespace discreet::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::numerics {
HWY_EXPORT(SumDoubles);
HWY_EXPORT(SumFloats);
HWY_EXPORT(SquareDoubles);
HWY_EXPORT(SquareFloats);
HWY_EXPORT(DotDoubles);
HWY_EXPORT(DotFloats);
namespace {

// 2^k for |k| <= 1022.
double power_of_two(double k) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + static_cast<int>(k)) << 52);
}

// 4^k for k <= 0; what is below 2^-1020 is negligible relative to the larger total.
double rescale(double k) { return k < -510 ? 0 : power_of_two(2 * k); }

void merge(Partial& total, Partial next) {
  if (next.sum != 0 && next.exponent != total.exponent) {
    if (total.sum == 0) {
      total.exponent = next.exponent;
    } else if (next.exponent > total.exponent) {
      const double factor = rescale(total.exponent - next.exponent);
      total = {total.sum * factor, total.compensation * factor, next.exponent};
    } else {
      const double factor = rescale(next.exponent - total.exponent);
      next.sum *= factor;
      next.compensation *= factor;
    }
  }
  const double y = next.sum - (total.compensation + next.compensation);
  const double t = total.sum + y;
  total.compensation = (t - total.sum) - y;
  total.sum = t;
}

// chunks(begin, end, out) writes one partial per chunk of [begin, end).
template <class Chunks>
Partial reduce(std::size_t count, int threads, Chunks chunks) {
  Partial total;
  if (threads <= 1 || count < 2 * kSmallestShare) {
    constexpr std::size_t kBlock = 32;  // chunks at a time, without allocating
    Partial partials[kBlock];
    for (std::size_t begin = 0; begin < count; begin += kBlock * kChunk) {
      const std::size_t end = std::min(count, begin + kBlock * kChunk);
      chunks(begin, end, partials);
      for (std::size_t k = 0; k < (end - begin + kChunk - 1) / kChunk; ++k)
        merge(total, partials[k]);
    }
    return total;
  }
  std::vector<Partial> partials((count + kChunk - 1) / kChunk);
  parallel_for(count, threads, [&](std::size_t begin, std::size_t end) {
    chunks(begin, end, partials.data() + begin / kChunk);
  });
  for (const Partial& partial : partials) merge(total, partial);
  return total;
}

bool finite(double x) { return x - x == 0; }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Plain addition, for when an infinity or an overflow has spoilt the compensated sum.
template <class Term>
double plain_sum(std::size_t count, Term term) {
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += term(i);
  return total == total ? total : std::bit_cast<double>(std::uint64_t{0x7ff8} << 48);
}

template <class T, class Kernel>
double sum_with(std::span<const T> x, int threads, Kernel kernel) {
  const Partial total =
      reduce(x.size(), threads, [&](std::size_t begin, std::size_t end, Partial* out) {
        kernel(x.data() + begin, end - begin, out);
      });
  if (finite(total.sum)) return total.sum;
  return plain_sum(x.size(), [&](std::size_t i) { return double{x[i]}; });
}

template <class T, class Kernel>
double dot_with(std::span<const T> x, std::span<const T> y, int threads, Kernel kernel) {
  if (x.size() != y.size())
    invalid_input("dot", "the arrays have {} and {} elements; they must have equal size",
                  std::to_string(x.size()), std::to_string(y.size()));
  const Partial total =
      reduce(x.size(), threads, [&](std::size_t begin, std::size_t end, Partial* out) {
        kernel(x.data() + begin, y.data() + begin, end - begin, out);
      });
  if (finite(total.sum)) return total.sum;
  return plain_sum(x.size(), [&](std::size_t i) { return double{x[i]} * double{y[i]}; });
}

// relative: a factor on the root before it is scaled back.
template <class T, class Kernel>
double norm_with(std::span<const T> x, int threads, double relative, Kernel kernel) {
  const Partial total =
      reduce(x.size(), threads, [&](std::size_t begin, std::size_t end, Partial* out) {
        kernel(x.data() + begin, end - begin, out);
      });
  if (!finite(total.sum)) {  // scaled squares do not overflow, so an element is not finite
    for (const T value : x)
      if (std::isnan(value)) return std::bit_cast<double>(std::uint64_t{0x7ff8} << 48);
    return kInfinity;
  }
  return HWY_STATIC_DISPATCH(SquareRoot)(total.sum) * relative * power_of_two(total.exponent);
}

template <class T, class U>
void scaled_add_to(double a, std::span<const T> x, std::span<U> y, int threads) {
  if (x.size() != y.size())
    invalid_input("scaled_add", "the arrays have {} and {} elements; they must have equal size",
                  std::to_string(x.size()), std::to_string(y.size()));
  parallel_for(x.size(), threads, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      y[i] = static_cast<U>(double{y[i]} + a * double{x[i]});
  });
}

// Five units of relative error (sum.md), and some to cover the product itself.
constexpr double kUpper = 1 + 0x1p-50;

double upper(double norm) { return norm == 0 ? norm : next_up(norm); }

}  // namespace

double sum(std::span<const double> x, int threads) {
  return sum_with(x, threads, HWY_DYNAMIC_DISPATCH(SumDoubles));
}
double sum(std::span<const float> x, int threads) {
  return sum_with(x, threads, HWY_DYNAMIC_DISPATCH(SumFloats));
}
double dot(std::span<const double> x, std::span<const double> y, int threads) {
  return dot_with(x, y, threads, HWY_DYNAMIC_DISPATCH(DotDoubles));
}
double dot(std::span<const float> x, std::span<const float> y, int threads) {
  return dot_with(x, y, threads, HWY_DYNAMIC_DISPATCH(DotFloats));
}
double norm_l2(std::span<const double> x, int threads) {
  return norm_with(x, threads, 1, HWY_DYNAMIC_DISPATCH(SquareDoubles));
}
double norm_l2(std::span<const float> x, int threads) {
  return norm_with(x, threads, 1, HWY_DYNAMIC_DISPATCH(SquareFloats));
}
PiecewiseNorm::PiecewiseNorm(std::size_t count) : partials_((count + kChunk - 1) / kChunk) {}

void PiecewiseNorm::add(std::size_t begin, std::span<const double> x) noexcept {
  constexpr std::size_t kBlock = 16;  // chunks at a time
  Partial partials[kBlock];
  for (auto to = partials_.begin() + static_cast<std::ptrdiff_t>(begin / kChunk); !x.empty();) {
    const auto block = x.first(std::min(x.size(), kBlock * kChunk));
    HWY_DYNAMIC_DISPATCH(SquareDoubles)(block.data(), block.size(), partials);
    for (std::size_t k = 0; k * kChunk < block.size(); ++k)
      *to++ = {partials[k].sum, partials[k].compensation, partials[k].exponent};
    x = x.subspan(block.size());
  }
}

double PiecewiseNorm::value() const noexcept {
  Partial total;
  for (const auto& [sum, compensation, exponent] : partials_)
    merge(total, {sum, compensation, exponent});
  if (!finite(total.sum)) return std::numeric_limits<double>::quiet_NaN();
  return HWY_STATIC_DISPATCH(SquareRoot)(total.sum) * power_of_two(total.exponent);
}

double norm_l2_upper(std::span<const double> x, int threads) {
  return upper(norm_with(x, threads, kUpper, HWY_DYNAMIC_DISPATCH(SquareDoubles)));
}
double norm_l2_upper(std::span<const float> x, int threads) {
  return upper(norm_with(x, threads, kUpper, HWY_DYNAMIC_DISPATCH(SquareFloats)));
}
void scaled_add(double a, std::span<const double> x, std::span<double> y, int threads) {
  scaled_add_to(a, x, y, threads);
}
void scaled_add(double a, std::span<const float> x, std::span<float> y, int threads) {
  scaled_add_to(a, x, y, threads);
}
void scaled_add(double a, std::span<const float> x, std::span<double> y, int threads) {
  scaled_add_to(a, x, y, threads);
}

}  // namespace discreet::numerics
#endif
