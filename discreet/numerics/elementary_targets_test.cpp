// The same bits from every vector target this processor has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "discreet/numerics/elementary.h"

// The order of these matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "discreet/numerics/elementary_targets_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "discreet/numerics/special-inl.h"
#include "discreet/numerics/targets_testing.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace discreet::numerics::HWY_NAMESPACE {

// The templates that have no span form. count is a multiple of 64.
void TemplatesWithoutSpans(const double* in, double* sin, double* cos, double* log, double* angle,
                           std::size_t count) {
  const hn::ScalableTag<double> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, in + i);
    hn::Vec<decltype(d)> s, c;
    SinCosTwoPi(d, x, s, c);
    hn::StoreU(s, d, sin + i);
    hn::StoreU(c, d, cos + i);
    hn::StoreU(LogPositive(d, hn::Max(hn::Abs(x), hn::Set(d, 0x1p-1000))), d, log + i);
    hn::StoreU(Atan2(d, x, hn::LoadU(d, in + (i + count / 2) % count)), d, angle + i);
  }
}

}  // namespace discreet::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace discreet::numerics {
HWY_EXPORT(TemplatesWithoutSpans);
namespace {

// Every kind of argument: special values, all sizes, and a dense part around 1. 64 * 160 of them.
std::vector<double> arguments() {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> xs = {0.0,
                            -0.0,
                            inf,
                            -inf,
                            nan,
                            -nan,
                            1,
                            -1,
                            0x1p-1074,
                            -0x1p-1074,
                            0x1p-1022,
                            0x1.fffffffffffffp1023,
                            -0x1.fffffffffffffp1023,
                            0x1p20,
                            -0x1p20,
                            0.5};
  std::mt19937_64 random(7);
  while (xs.size() < 5120) {
    const double x = std::bit_cast<double>(random());
    xs.push_back(x == x ? x : 1.5);
  }
  while (xs.size() < 10240)
    xs.push_back((static_cast<double>(random() >> 11) * 0x1p-53 - 0.5) * 60);
  return xs;
}

std::vector<std::uint64_t> bits(const std::vector<double>& xs) {
  std::vector<std::uint64_t> out;
  out.reserve(xs.size());
  for (const double x : xs) out.push_back(std::bit_cast<std::uint64_t>(x));
  return out;
}

TEST(ElementaryTargets, SpansHaveTheBitsOfScalarsOnEveryTarget) {
  using Span = void (*)(std::span<const double>, std::span<double>);
  using Scalar = double (*)(double);
  struct Pair {
    const char* name;
    Scalar scalar;
    Span span;
  };
  const Pair pairs[] = {{"exp", exp, exp},
                        {"expm1", expm1, expm1},
                        {"log", log, log},
                        {"log1p", log1p, log1p},
                        {"sin", sin, sin},
                        {"cos", cos, cos},
                        {"erfc", erfc, erfc},
                        {"log_erfc", log_erfc, log_erfc},
                        {"normal_cdf", normal_cdf, normal_cdf}};
  const std::vector<double> xs = arguments();
  for_each_target([&] {
    for (const Pair& pair : pairs) {
      std::vector<double> expected(xs.size()), got(xs.size());
      for (std::size_t i = 0; i < xs.size(); ++i) expected[i] = pair.scalar(xs[i]);
      // An odd length and start, so that the last vector is incomplete.
      got[0] = pair.scalar(xs[0]);
      pair.span(std::span(xs).subspan(1), std::span(got).subspan(1));
      EXPECT_EQ(bits(got), bits(expected)) << pair.name;
    }
  });
}

TEST(ElementaryTargets, SpansOfTwoHaveTheBitsOfScalarsOnEveryTarget) {
  const std::vector<double> xs = arguments();
  const std::vector<double> ys(xs.rbegin(), xs.rend());
  for_each_target([&] {
    std::vector<double> sine(xs.size()), cosine(xs.size()), angle(xs.size());
    std::vector<double> got_sine(xs.size()), got_cosine(xs.size()), got_angle(xs.size());
    for (std::size_t i = 0; i < xs.size(); ++i) {
      sine[i] = sin(xs[i]);
      cosine[i] = cos(xs[i]);
      angle[i] = atan2(ys[i], xs[i]);
    }
    got_sine[0] = sine[0];
    got_cosine[0] = cosine[0];
    got_angle[0] = angle[0];
    const auto rest = [](auto& values) { return std::span(values).subspan(1); };
    sin_cos(rest(xs), rest(got_sine), rest(got_cosine));
    atan2(rest(ys), rest(xs), rest(got_angle));
    EXPECT_EQ(bits(got_sine), bits(sine));
    EXPECT_EQ(bits(got_cosine), bits(cosine));
    EXPECT_EQ(bits(got_angle), bits(angle));
  });
}

TEST(ElementaryTargets, TemplatesHaveTheSameBitsOnEveryTarget) {
  std::vector<double> xs = arguments();
  std::vector<std::vector<std::uint64_t>> first;
  for_each_target([&] {
    std::vector<double> s(xs.size()), c(xs.size()), l(xs.size()), a(xs.size());
    std::vector<double> turns = xs;
    for (double& x : turns) x = std::abs(x) < 1e5 ? x : 0.25;
    HWY_DYNAMIC_DISPATCH(TemplatesWithoutSpans)
    (turns.data(), s.data(), c.data(), l.data(), a.data(), xs.size());
    const std::vector<std::vector<std::uint64_t>> now = {bits(s), bits(c), bits(l), bits(a)};
    if (first.empty()) first = now;
    EXPECT_EQ(now, first);
  });
}

}  // namespace
}  // namespace discreet::numerics
#endif
