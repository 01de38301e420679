#include "discreet/numerics/sum.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/numerics/accuracy_testing.h"
#include "discreet/numerics/targets_testing.h"

namespace discreet::numerics {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kU = 0x1p-53;
constexpr mpfr_prec_t kExactBits = 4400;  // any sum of products of doubles

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

// Numbers of very different sizes with both signs.
std::vector<double> mixed(std::size_t n, int low, int high, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> x(n);
  for (double& v : x) {
    const double m = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
    v = std::ldexp(m, low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)));
    if (random() % 2) v = -v;
  }
  return x;
}

std::vector<float> to_floats(const std::vector<double>& x) {
  return std::vector<float>(x.begin(), x.end());
}

// The definition in sum.h, one number at a time.
double sum_by_definition(const std::vector<double>& x) {
  double total = 0, lost = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += 256) {
    double s[16] = {}, c[16] = {};
    for (std::size_t i = 0; i < 256; ++i) {
      const double y = (begin + i < x.size() ? x[begin + i] : 0.0) - c[i % 16];
      const double t = s[i % 16] + y;
      c[i % 16] = (t - s[i % 16]) - y;
      s[i % 16] = t;
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) {
        const double t = s[j] + s[j + half], b = t - s[j];
        c[j] = (c[j] + c[j + half]) - ((s[j] - (t - b)) + (s[j + half] - b));
        s[j] = t;
      }
    }
    const double y = s[0] - (lost + c[0]), t = total + y;
    lost = (t - total) - y;
    total = t;
  }
  return total;
}

// sqrt(sum x_i^2), the sum exact.
template <class T>
void exact_norm(const std::vector<T>& x, Exact& out) {
  Exact total(0, kExactBits), square(0, kExactBits);
  for (const T v : x) {
    mpfr_set_d(square.get(), v, MPFR_RNDN);
    mpfr_sqr(square.get(), square.get(), MPFR_RNDN);
    mpfr_add(total.get(), total.get(), square.get(), MPFR_RNDN);
  }
  mpfr_sqrt(out.get(), total.get(), MPFR_RNDN);
}

TEST(Sum, IsTheChunkedKahanSumOfItsDefinition) {
  for (const std::size_t n : {0, 1, 15, 16, 17, 255, 256, 257, 5000, 70000}) {
    const std::vector<double> x = mixed(n, -40, 40, n + 1);
    EXPECT_EQ(bits(sum(x)), bits(sum_by_definition(x))) << n;
  }
}

TEST(PiecewiseNorm, IsTheNormInAnyPiecesAndOrder) {
  for (const std::size_t n : {0, 1, 256, 5000, 70'001}) {
    const std::vector<double> x = mixed(n, -600, 600, n + 3);
    for (const std::size_t piece : {256, 768, 16'384}) {
      PiecewiseNorm norm(n);
      for (std::size_t k = (n + piece - 1) / piece; k-- > 0;)
        norm.add(k * piece, std::span(x).subspan(k * piece, std::min(piece, n - k * piece)));
      EXPECT_EQ(bits(norm.value()), bits(norm_l2(x))) << n << ", " << piece;
    }
  }
  PiecewiseNorm bad(2);
  bad.add(0, std::vector<double>{1, kInf});
  EXPECT_TRUE(std::isnan(bad.value()));
}

TEST(Sum, HasTheSameBitsForAnyNumberOfThreadsOnEveryTarget) {
  for (const std::size_t n : {1000, 100'003, 262'144}) {
    const std::vector<double> x = mixed(n, -600, 600, 5), y = mixed(n, -400, 400, 6);
    const std::vector<float> fx = to_floats(mixed(n, -60, 60, 7)),
                             fy = to_floats(mixed(n, -60, 60, 8));
    std::vector<std::uint64_t> first;
    for_each_target([&] {
      for (const int threads : {1, 2, 7}) {
        const std::vector<std::uint64_t> now = {
            bits(sum(x, threads)),           bits(sum(fx, threads)),
            bits(dot(x, y, threads)),        bits(dot(fx, fy, threads)),
            bits(norm_l2(x, threads)),       bits(norm_l2(fx, threads)),
            bits(norm_l2_upper(x, threads)), bits(norm_l2_upper(fx, threads))};
        if (first.empty()) first = now;
        EXPECT_EQ(now, first) << n << " elements, " << threads << " threads";
      }
    });
  }
}

TEST(Sum, StaysWithinItsErrorBoundUnderCancellation) {
  for (int seed = 0; seed < 40; ++seed) {
    std::vector<double> x = mixed(3000, -seed, seed, static_cast<std::uint64_t>(seed));
    // Half of the elements cancel the other half up to a relative 1e-10.
    for (std::size_t i = 1500; i < 3000; ++i) x[i] = -x[i - 1500] * (1 + 1e-10);
    Exact exact(0, kExactBits), exact_dot(0, kExactBits), product(0, kExactBits);
    double size = 0, dot_size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      mpfr_add_d(exact.get(), exact.get(), x[i], MPFR_RNDN);
      const double other = x[(i + 7) % x.size()];
      mpfr_set_d(product.get(), x[i], MPFR_RNDN);
      mpfr_mul_d(product.get(), product.get(), other, MPFR_RNDN);
      mpfr_add(exact_dot.get(), exact_dot.get(), product.get(), MPFR_RNDN);
      size += std::abs(x[i]);
      dot_size += std::abs(x[i] * other);
    }
    std::vector<double> y(x.begin() + 7, x.end());
    y.insert(y.end(), x.begin(), x.begin() + 7);
    mpfr_sub_d(exact.get(), exact.get(), sum(x), MPFR_RNDN);
    mpfr_sub_d(exact_dot.get(), exact_dot.get(), dot(x, y), MPFR_RNDN);
    EXPECT_LE(std::abs(mpfr_get_d(exact.get(), MPFR_RNDA)), 7 * kU * size);
    EXPECT_LE(std::abs(mpfr_get_d(exact_dot.get(), MPFR_RNDA)), 8 * kU * dot_size);
  }
}

TEST(Sum, PassesNonFiniteElementsOn) {
  std::vector<double> x(1000, 1.0);
  x[300] = kInf;
  EXPECT_EQ(sum(x), kInf);
  EXPECT_EQ(norm_l2(x), kInf);
  EXPECT_EQ(norm_l2_upper(x), kInf);
  x[301] = -kInf;
  EXPECT_EQ(bits(sum(x)), bits(kNan));
  EXPECT_EQ(norm_l2(x), kInf);
  x[999] = -kNan;
  EXPECT_EQ(bits(sum(x)), bits(kNan));
  EXPECT_EQ(bits(norm_l2(x)), bits(kNan));
  EXPECT_EQ(bits(norm_l2_upper(x)), bits(kNan));
  EXPECT_EQ(bits(dot(x, x)), bits(kNan));
  EXPECT_EQ(sum(std::vector<double>(300, 1e308)), kInf);
  EXPECT_EQ(sum(std::vector<double>(300, -1e308)), -kInf);
}

TEST(Dot, RefusesArraysOfDifferentSizes) {
  const std::vector<double> x(3), y(4);
  EXPECT_THROW(dot(x, y), Error);
}

TEST(Dot, OfFloatsIsExactInItsProducts) {
  const std::vector<float> x = {0x1.fffffep127f, 0x1p-126f}, y = {0x1.fffffep127f, 0x1p-126f};
  EXPECT_EQ(dot(x, y), 0x1.fffffcp255 + 0x1p208);
}

template <class T>
void expect_norms_hold(const std::vector<T>& x, const char* what) {
  Exact exact(0, 300), bound(0, 300);
  exact_norm(x, exact);
  const double norm = norm_l2(x), upper = norm_l2_upper(x);
  // relative 5u, plus 2^-1074
  const double error = ulp_error(norm, exact);
  EXPECT_LE(error, 5) << what << ": 5u is at most 5 ulp";
  EXPECT_LE(mpfr_cmp_d(exact.get(), upper), 0) << what << ": under-estimated, " << upper;
  mpfr_mul_d(bound.get(), exact.get(), 1 + 16 * kU, MPFR_RNDU);
  mpfr_add_d(bound.get(), bound.get(), 0x1p-1073, MPFR_RNDU);
  EXPECT_GE(mpfr_cmp_d(bound.get(), upper), 0) << what << ": loose, " << upper;
}

TEST(Norm, UpperBoundIsNeverBelowTheExactNorm) {
  for (int seed = 0; seed < 60; ++seed) {
    const auto s = static_cast<std::uint64_t>(seed);
    expect_norms_hold(mixed(700, -3, 3, s), "ordinary");
    expect_norms_hold(mixed(257, -30, 30, s), "spread");
    expect_norms_hold(mixed(600, 1000, 1017, s), "huge");
    expect_norms_hold(mixed(600, -1074, -1010, s), "subnormal");
    expect_norms_hold(mixed(1500, -1074, 1017, s), "everything");
    expect_norms_hold(to_floats(mixed(1000, -149, 127, s)), "floats");
  }
  // One large element, then many that each vanish beside it, but not together: plain addition
  // loses them all.
  std::vector<double> x(300'000, 0x1p-27);
  x[0] = 1;
  expect_norms_hold(x, "many small ones");
  x[0] = 1 + 0x1p-52;
  expect_norms_hold(x, "many small ones beside an odd one");
  // Squares that all round down (by almost half an ulp).
  x.assign(5000, 0x1.6a09e667f3bcdp0);
  expect_norms_hold(x, "squares rounded one way");
  for (double v = 1.0; v < 2.0; v += 0x1.37p-6)
    expect_norms_hold(std::vector<double>(999, v), "equal");
}

TEST(Norm, ReachesTheEndsOfTheRange) {
  const double max = std::numeric_limits<double>::max(), tiny = 0x1p-1074;
  EXPECT_EQ(norm_l2(std::vector<double>{max}), max);
  EXPECT_EQ(norm_l2(std::vector<double>{3e307, 4e307}), 5e307);
  EXPECT_EQ(norm_l2(std::vector<double>{tiny}), tiny);
  EXPECT_EQ(norm_l2(std::vector<double>{3 * tiny, -4 * tiny}), 5 * tiny);
  EXPECT_EQ(norm_l2(std::vector<double>{max, max}), kInf);
  EXPECT_EQ(norm_l2_upper(std::vector<double>{max}), kInf);
  EXPECT_EQ(bits(norm_l2(std::vector<double>(1000, -0.0))), bits(0.0));
  EXPECT_EQ(bits(norm_l2_upper(std::vector<double>(1000, 0.0))), bits(0.0));
  EXPECT_EQ(bits(norm_l2(std::vector<double>{})), bits(0.0));
  // Chunks of very different scale, in either order.
  std::vector<double> x(1024, 1e-300);
  x[700] = 1e300;
  EXPECT_EQ(norm_l2(x), 1e300);
  std::vector<double> y(1024, 3e-200);
  for (std::size_t i = 512; i < 1024; ++i) y[i] = 4e-200;
  EXPECT_NEAR(norm_l2(y) / (std::sqrt(512.0) * 5e-200), 1, 1e-15);
}

TEST(ScaledAdd, RoundsProductAndSumSeparately) {
  std::vector<double> y = {-1.0, 2.0}, x = {1 + 0x1p-30, 1.0};
  scaled_add(1 + 0x1p-30, x, y);
  EXPECT_EQ(y[0], 0x1p-29) << "a fused multiply-add would keep 2^-60";
  std::vector<float> fy = {1.0f}, fx = {0x1p-25f};
  scaled_add(1 + 0x1p-52, fx, fy);
  EXPECT_EQ(fy[0], 1.0f);
  scaled_add(3.0, fx, fy);
  EXPECT_EQ(fy[0], 1.0f + 0x1p-23f);
}

TEST(ScaledAdd, HasTheSameBitsForAnyNumberOfThreads) {
  const std::vector<double> x = mixed(100'001, -10, 10, 1), y = mixed(100'001, -10, 10, 2);
  std::vector<double> one = y;
  scaled_add(0.3, x, one, 1);
  for (const int threads : {2, 7}) {
    std::vector<double> several = y;
    scaled_add(0.3, x, several, threads);
    EXPECT_EQ(several, one);
  }
}

TEST(ScaledAdd, LeavesTheTargetAloneWhenSizesDiffer) {
  std::vector<double> y = {1.0, 2.0};
  EXPECT_THROW(scaled_add(1, std::vector<double>(3, 1.0), y), Error);
  EXPECT_EQ(y, (std::vector<double>{1.0, 2.0}));
}

}  // namespace
}  // namespace discreet::numerics
