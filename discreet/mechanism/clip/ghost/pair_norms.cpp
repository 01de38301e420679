#include "discreet/mechanism/clip/ghost/pair_norms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "discreet/mechanism/clip/clip_kernels_impl.h"
#include "discreet/mechanism/clip/ghost/ghost_impl.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/mechanism/clip/ghost/pair_norms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::mechanism::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Real>
using Tag = hn::CappedTag<Real, 64 / sizeof(Real)>;

constexpr std::size_t kDown = 2, kAcross = 4;  // pairs of rows whose sums fit the registers
constexpr std::size_t kLongest = 4096;         // elements added up in the precision of the factors

// The dot products of two rows with four others, from `k` to `n`.
template <class Real>
HWY_INLINE void RunOfDots(const Real* const* x, const Real* const* y, std::size_t k, std::size_t n,
                          double* out) {
  const Tag<Real> d;
  hn::Vec<Tag<Real>> sum[kDown][kAcross];
  for (auto& row : sum)
    for (auto& v : row) v = hn::Zero(d);
  const auto add = [&](auto load, std::size_t at) HWY_ATTR {
    const auto x0 = load(x[0] + at), x1 = load(x[1] + at);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kAcross; ++j) {
      const auto v = load(y[j] + at);
      sum[0][j] = hn::MulAdd(x0, v, sum[0][j]);
      sum[1][j] = hn::MulAdd(x1, v, sum[1][j]);
    }
  };
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d))
    add([&](const Real* at) HWY_ATTR { return hn::LoadU(d, at); }, k);
  if (k < n) {
    const auto rest = hn::FirstN(d, n - k);
    add([&](const Real* at) HWY_ATTR { return hn::MaskedLoad(rest, d, at); }, k);
  }
  for (std::size_t i = 0; i < kDown; ++i)
    for (std::size_t j = 0; j < kAcross; ++j)
      out[i * kAcross + j] = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum[i][j])));
}

template <class Real>
HWY_NOINLINE void AddFurtherDots(const Real* const* x, const Real* const* y, std::size_t n,
                                 double* out) {
  double run[kDown * kAcross];
  for (std::size_t k = kLongest; k < n; k += kLongest) {
    RunOfDots(x, y, k, std::min(n, k + kLongest), run);
    for (std::size_t i = 0; i < kDown * kAcross; ++i) out[i] += run[i];
  }
}

template <class Real>
HWY_INLINE void Dots(const Real* const* x, const Real* const* y, std::size_t n, double* out) {
  RunOfDots(x, y, 0, std::min(n, kLongest), out);
  if (HWY_UNLIKELY(n > kLongest)) AddFurtherDots(x, y, n, out);
}

// The maximum error of a dot product of n elements by Dots: relative |x||y| + absolute.
template <class Real>
struct DotError {
  double relative, absolute;
  explicit DotError(std::size_t n) {
    constexpr double kUnit = std::numeric_limits<Real>::epsilon() / 2;
    const Tag<Real> d;
    const double lanes = static_cast<double>(hn::Lanes(d));
    // A product meets a rounding in each step of its lane and in the sum of lanes, then those of
    // the runs.
    const double run = static_cast<double>(std::min(n, kLongest));
    relative = 1.001 * ((std::ceil(run / lanes) + lanes) * kUnit +
                        std::ceil(static_cast<double>(n) / kLongest) * 0x1p-53);
    absolute = 2 * static_cast<double>(n + 1) * std::numeric_limits<Real>::denorm_min();
  }
  // At least |x|^2, from its computed value, and so much that absolute <= 2^-10 relative |x||y|.
  double square(double computed) const {
    return (computed + 1024 * absolute / relative) * (1 + 2 * relative);
  }
};

// At least |sum_t g_t a_t^T|^2 of one record, by ghost.md (pairs).
//   one: what a column of ones adds to the products of rows of a; 1 or 0
template <class Real>
HWY_INLINE double Pairs(const Real* a, const Real* g, std::size_t positions, std::size_t inputs,
                        std::size_t outputs, double one) {
  constexpr std::size_t kCache = std::size_t{1} << 14;  // bytes of one factor's block
  const std::size_t fit = kCache / sizeof(Real) / std::max<std::size_t>(1, inputs + outputs);
  const std::size_t block = std::max(kAcross, fit / kAcross * kAcross);
  const DotError<Real> of_a(inputs), of_g(outputs);
  double sum = 0, lengths = 0;
  for (std::size_t begin = 0; begin < positions; begin += block) {
    const std::size_t end = std::min(positions, begin + block);
    for (std::size_t t = begin; t < positions; t += kDown) {
      for (std::size_t s = begin; s < end && s < t + kDown; s += kAcross) {
        const Real *at[kDown], *gt[kDown], *as[kAcross], *gs[kAcross];
        // Rows beyond the last repeat the last row and are not counted.
        for (std::size_t i = 0; i < kDown; ++i) {
          const std::size_t row = std::min(t + i, positions - 1);
          at[i] = a + row * inputs;
          gt[i] = g + row * outputs;
        }
        for (std::size_t j = 0; j < kAcross; ++j) {
          const std::size_t row = std::min(s + j, positions - 1);
          as[j] = a + row * inputs;
          gs[j] = g + row * outputs;
        }
        double p[kDown * kAcross], q[kDown * kAcross];
        Dots(at, as, inputs, p);
        Dots(gt, gs, outputs, q);
        for (std::size_t i = 0; i < kDown && t + i < positions; ++i)
          for (std::size_t j = 0; j < kAcross && s + j < end && s + j <= t + i; ++j) {
            const double product = (p[i * kAcross + j] + one) * q[i * kAcross + j];
            sum += s + j == t + i ? product : 2 * product;
            if (s + j == t + i)
              lengths += std::sqrt(of_a.square(p[i * kAcross + j]) + one) *
                         std::sqrt(of_g.square(q[i * kAcross + j]));
          }
      }
    }
  }
  const double n = static_cast<double>(positions);
  const double error = 1.02 * (of_a.relative + of_g.relative + (n * n + n + 16) * 0x1p-53);
  return std::isfinite(sum) ? std::max(sum, 0.0) + error * lengths * lengths
                            : std::numeric_limits<double>::infinity();
}

double PairsFloat(const float* a, const float* g, std::size_t positions, std::size_t inputs,
                  std::size_t outputs, double one) {
  return Pairs(a, g, positions, inputs, outputs, one);
}
double PairsDouble(const double* a, const double* g, std::size_t positions, std::size_t inputs,
                   std::size_t outputs, double one) {
  return Pairs(a, g, positions, inputs, outputs, one);
}

HWY_INLINE auto Widen(const double* x) { return hn::LoadU(hn::CappedTag<double, 8>(), x); }
HWY_INLINE auto Widen(const float* x) {
  const hn::CappedTag<double, 8> d;
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), x));
}

// The sums of rows, and of their magnitudes, in binary64.
template <class Real>
HWY_INLINE void AddUp(const Real* const* rows, std::size_t count, std::size_t width, double* sums,
                      double* magnitudes) {
  constexpr std::size_t kAtOnce = 4;
  const hn::CappedTag<double, 8> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t k = 0;
  for (; k + kAtOnce * lanes <= width; k += kAtOnce * lanes) {
    hn::Vec<decltype(d)> sum[kAtOnce], magnitude[kAtOnce];
    for (std::size_t j = 0; j < kAtOnce; ++j) sum[j] = magnitude[j] = hn::Zero(d);
    for (std::size_t r = 0; r < count; ++r)
#pragma GCC unroll 4
      for (std::size_t j = 0; j < kAtOnce; ++j) {
        const auto v = Widen(rows[r] + k + j * lanes);
        sum[j] = hn::Add(sum[j], v);
        magnitude[j] = hn::Add(magnitude[j], hn::Abs(v));
      }
    for (std::size_t j = 0; j < kAtOnce; ++j) {
      hn::StoreU(sum[j], d, sums + k + j * lanes);
      hn::StoreU(magnitude[j], d, magnitudes + k + j * lanes);
    }
  }
  for (; k < width; ++k) {
    sums[k] = magnitudes[k] = 0;
    for (std::size_t r = 0; r < count; ++r) {
      sums[k] += rows[r][k];
      magnitudes[k] += std::fabs(rows[r][k]);
    }
  }
}

void AddUpFloat(const float* const* rows, std::size_t count, std::size_t width, double* sums,
                double* magnitudes) {
  AddUp(rows, count, width, sums, magnitudes);
}
void AddUpDouble(const double* const* rows, std::size_t count, std::size_t width, double* sums,
                 double* magnitudes) {
  AddUp(rows, count, width, sums, magnitudes);
}

}  // namespace discreet::mechanism::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::mechanism {
namespace {

HWY_EXPORT(PairsFloat);
HWY_EXPORT(PairsDouble);
HWY_EXPORT(AddUpFloat);
HWY_EXPORT(AddUpDouble);

using numerics::next_up;

template <class Real>
constexpr double kUp = 1 + 2 * (std::is_same_v<Real, float> ? 0x1p-17 : 0x1p-45);
constexpr std::size_t kRows = 64;  // rows handed to a kernel at once
constexpr double kUnderflow = 0x1p-1000;

// out_r = |row|^2 of `count` <= kRows rows, from above but for underflow.
template <class Real>
void squares_of(const Real* first, std::size_t count, std::size_t length, double* out) {
  std::fill_n(out, count, 0.0);
  for (std::size_t begin = 0; begin < length; begin += kernels::kMostMeasured) {
    const Real* rows[kRows];
    double norms[kRows];
    for (std::size_t r = 0; r < count; ++r) rows[r] = first + r * length + begin;
    kernels::norms_from_above(rows, count, std::min(kernels::kMostMeasured, length - begin), norms);
    for (std::size_t r = 0; r < count; ++r) out[r] = next_up(out[r] + next_up(norms[r] * norms[r]));
  }
}

}  // namespace

template <class Real>
void add_row_squares(const Real* rows, std::size_t length, std::span<double> squares) {
  numerics::require_round_to_nearest();
  double own[kRows];
  for (std::size_t i = 0; i < squares.size(); i += kRows) {
    const std::size_t count = std::min(kRows, squares.size() - i);
    squares_of(rows + i * length, count, length, own);
    for (std::size_t r = 0; r < count; ++r) squares[i + r] += own[r] * kUp<Real> + kUnderflow;
  }
}

namespace {

void add_up(const float* const* rows, std::size_t count, std::size_t width, double* sums,
            double* magnitudes) {
  HWY_DYNAMIC_DISPATCH(AddUpFloat)(rows, count, width, sums, magnitudes);
}
void add_up(const double* const* rows, std::size_t count, std::size_t width, double* sums,
            double* magnitudes) {
  HWY_DYNAMIC_DISPATCH(AddUpDouble)(rows, count, width, sums, magnitudes);
}

// At least |x|^2 of one record, but for underflow.
template <class Real>
double placed(const Real* g, const std::int64_t* places, std::size_t positions, std::size_t width) {
  std::vector<std::size_t> order(positions);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (places != nullptr)
    std::sort(order.begin(), order.end(),
              [&](std::size_t t, std::size_t s) { return places[t] < places[s]; });
  std::vector<const Real*> rows(positions);
  for (std::size_t t = 0; t < positions; ++t) rows[t] = g + order[t] * width;
  std::vector<double> sums(width), magnitudes(width);
  double norm = 0, size = 0;
  for (std::size_t first = 0, last = 0; first < positions; first = last) {
    const auto same = [&](std::size_t t) {
      return places == nullptr || places[order[t]] == places[order[first]];
    };
    while (last < positions && same(last)) ++last;
    if (last - first == 1) {
      norm = hypotenuse_upper(norm, numerics::norm_l2_upper(std::span(rows[first], width)));
      continue;
    }
    add_up(&rows[first], last - first, width, sums.data(), magnitudes.data());
    norm = hypotenuse_upper(norm, numerics::norm_l2_upper(sums));
    size = hypotenuse_upper(size, numerics::norm_l2_upper(magnitudes));
  }
  const double error = size * (1.001 * static_cast<double>(positions + 8) * 0x1p-53);
  return (norm + error) * (norm + error) * kUp<Real>;
}

}  // namespace

template <class Real>
void add_placed_squares(const PlacedRows<Real>& f, const numerics::Team* team,
                        std::span<double> squares) {
  numerics::require_round_to_nearest();
  const auto one = [&](std::size_t i) {
    squares[i] +=
        placed(f.g + i * f.positions * f.width,
               f.places == nullptr ? nullptr : f.places + i * f.positions, f.positions, f.width) +
        kUnderflow;
  };
  if (team != nullptr && static_cast<double>(f.records * f.positions * f.width) > 0x1p16)
    (*team)(f.records, one);
  else
    for (std::size_t i = 0; i < f.records; ++i) one(i);
}

template <class Real>
void add_outer_squares(const OuterFactors<Real>& f, const numerics::Team* team,
                       std::span<double> squares) {
  numerics::require_round_to_nearest();
  const double bias = f.bias ? 1 : 0;
  if (f.positions == 1) {
    double a2[kRows], g2[kRows];
    for (std::size_t i = 0; i < f.records; i += kRows) {
      const std::size_t count = std::min(kRows, f.records - i);
      squares_of(f.a + i * f.inputs, count, f.inputs, a2);
      squares_of(f.g + i * f.outputs, count, f.outputs, g2);
      for (std::size_t r = 0; r < count; ++r)
        squares[i + r] += a2[r] > 1e60 ? std::numeric_limits<double>::infinity()
                                       : (a2[r] + bias) * g2[r] * kUp<Real> + kUnderflow;
    }
    return;
  }
  const auto one = [&](std::size_t i) {
    const Real* a = f.a + i * f.positions * f.inputs;
    const Real* g = f.g + i * f.positions * f.outputs;
    if constexpr (std::is_same_v<Real, float>)
      squares[i] += HWY_DYNAMIC_DISPATCH(PairsFloat)(a, g, f.positions, f.inputs, f.outputs, bias) +
                    kUnderflow;
    else
      squares[i] +=
          HWY_DYNAMIC_DISPATCH(PairsDouble)(a, g, f.positions, f.inputs, f.outputs, bias) +
          kUnderflow;
  };
  const double cost = static_cast<double>(f.records * f.positions * f.positions) *
                      static_cast<double>(f.inputs + f.outputs);
  if (team != nullptr && cost > 0x1p18)
    (*team)(f.records, one);
  else
    for (std::size_t i = 0; i < f.records; ++i) one(i);
}

template void add_placed_squares(const PlacedRows<float>&, const numerics::Team*,
                                 std::span<double>);
template void add_placed_squares(const PlacedRows<double>&, const numerics::Team*,
                                 std::span<double>);
template void add_row_squares(const float*, std::size_t, std::span<double>);
template void add_row_squares(const double*, std::size_t, std::span<double>);
template void add_outer_squares(const OuterFactors<float>&, const numerics::Team*,
                                std::span<double>);
template void add_outer_squares(const OuterFactors<double>&, const numerics::Team*,
                                std::span<double>);

}  // namespace discreet::mechanism
#endif
