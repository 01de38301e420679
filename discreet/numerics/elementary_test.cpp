#include "discreet/numerics/elementary.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "discreet/numerics/accuracy_testing.h"

namespace discreet::numerics {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Points uniform(double a, double b) {
  return [=](std::mt19937_64& random) {
    return a + (b - a) * (static_cast<double>(random() >> 11) * 0x1p-53);
  };
}

// Sign and mantissa random, binary exponent uniform in [low, high].
Points any_size(int low, int high, bool negative_too = true) {
  return [=](std::mt19937_64& random) {
    const double m = 1 + static_cast<double>(random() >> 12) * 0x1p-52;
    const int e = low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    const double x = std::ldexp(m, e);
    return negative_too && random() % 2 ? -x : x;
  };
}

// Within a few thousand ulp of k * pi/2.
Points near_quarter_turns(double max_k) {
  return [=](std::mt19937_64& random) {
    const double k = std::floor(max_k * (static_cast<double>(random() >> 11) * 0x1p-53)) + 1;
    const double x = k * 0x1.921fb54442d18p0;
    const auto away = static_cast<std::int64_t>(random() % 4001) - 2000;
    return std::bit_cast<double>(std::bit_cast<std::int64_t>(x) +
                                 (random() % 4 ? away / 100 : away));
  };
}

struct Line {
  const char* name;
  double (*f)(double);
  int (*oracle)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
  const char* range;
  Points points;
  int count;
  double bound;
};

void PrintTo(const Line& line, std::ostream* out) { *out << line.name << " on " << line.range; }

int mpfr_log_erfc(mpfr_ptr out, mpfr_srcptr in, mpfr_rnd_t mode) {
  // erfc(-x) is 2 - tiny and erfc(tiny) is 1 - tiny; erfc(x) has no such trouble, and is slow.
  Exact wide(0, mpfr_cmp_d(in, 0.5) > 0 ? 120 : 450);
  mpfr_erfc(wide.get(), in, mode);
  return mpfr_log(out, wide.get(), mode);
}

int mpfr_normal_cdf(mpfr_ptr out, mpfr_srcptr in, mpfr_rnd_t mode) {
  Exact z(0, 180), two(2);
  mpfr_sqrt(z.get(), two.get(), mode);
  mpfr_div(z.get(), in, z.get(), mode);
  mpfr_neg(z.get(), z.get(), mode);
  mpfr_erfc(out, z.get(), mode);
  return mpfr_div_2ui(out, out, 1, mode);
}

class Accuracy : public testing::TestWithParam<Line> {};

TEST_P(Accuracy, IsWithinItsBound) {
  const Line& line = GetParam();
  Exact x;
  const Reference reference = [&](mpfr_ptr result, double at) {
    mpfr_set_d(x.get(), at, MPFR_RNDN);
    line.oracle(result, x.get(), MPFR_RNDN);
  };
  const Measurement m = measure(line.f, reference, line.points, line.count, 20240229);
  report(line.name, line.range, line.count, m, line.bound);
}

// Points per line; MPFR's erfc is slow, so the lines that need it have fewer. The slow test takes
// ten times as many.
const int kScale = std::getenv("DISCREET_MORE_POINTS") != nullptr ? 10 : 1;
const int kMany = 100'000 * kScale, kSome = 10'000 * kScale, kFew = 3'000 * kScale;

const Line kTable[] = {
    {"exp", exp, mpfr_exp, "[-1, 1]", uniform(-1, 1), kMany, 1},
    {"exp", exp, mpfr_exp, "[-708, 709.7]", uniform(-708, 709.7), kMany, 1},
    {"exp", exp, mpfr_exp, "[-745.2, -708] subnormal results", uniform(-745.2, -708), kMany, 1},
    {"exp", exp, mpfr_exp, "2^[-1074, 9]", any_size(-1074, 9), kMany, 1},
    {"expm1", expm1, mpfr_expm1, "[-1, 1]", uniform(-1, 1), kMany, 1},
    {"expm1", expm1, mpfr_expm1, "[-45, 60]", uniform(-45, 60), kMany, 1},
    {"expm1", expm1, mpfr_expm1, "[-1.1, 1.8] seams", uniform(-1.1, 1.8), kMany, 1},
    {"expm1", expm1, mpfr_expm1, "2^[-1074, 9]", any_size(-1074, 9), kMany, 1},
    {"log", log, mpfr_log, "[0.7, 1.42]", uniform(0.7, 1.42), kMany, 1},
    {"log", log, mpfr_log, "[1 - 1e-4, 1 + 1e-4]", uniform(1 - 1e-4, 1 + 1e-4), kMany, 1},
    {"log", log, mpfr_log, "[0.3, 3]", uniform(0.3, 3), kMany, 1},
    {"log", log, mpfr_log, "2^[-1074, 1023]", any_size(-1074, 1023, false), kMany, 1},
    {"log1p", log1p, mpfr_log1p, "[-0.9, 1]", uniform(-0.9, 1), kMany, 1},
    {"log1p", log1p, mpfr_log1p, "[-1, -0.999999]", uniform(-1 + 0x1p-53, -0.999999), kMany, 1},
    {"log1p", log1p, mpfr_log1p, "[0, 20]", uniform(0, 20), kMany, 1},
    {"log1p", log1p, mpfr_log1p, "2^[-1074, -1]", any_size(-1074, -2), kMany, 1},
    {"log1p", log1p, mpfr_log1p, "2^[-30, 1023]", any_size(-30, 1023, false), kMany, 1},
    {"sin", sin, mpfr_sin, "[-4, 4]", uniform(-4, 4), kMany, 1},
    {"sin", sin, mpfr_sin, "2^[-1074, 1]", any_size(-1074, 1), kMany, 1},
    {"sin", sin, mpfr_sin, "2^[1, 20]", any_size(1, 20), kMany, 1},
    {"sin", sin, mpfr_sin, "2^[20, 1023]", any_size(20, 1023), kSome, 1},
    {"sin", sin, mpfr_sin, "near k pi/2, k < 7e5", near_quarter_turns(7e5), kMany, 1},
    {"sin", sin, mpfr_sin, "near k pi/2, k < 2^52", near_quarter_turns(0x1p52), kMany, 1},
    {"cos", cos, mpfr_cos, "[-4, 4]", uniform(-4, 4), kMany, 1},
    {"cos", cos, mpfr_cos, "2^[-1074, 1]", any_size(-1074, 1), kMany, 1},
    {"cos", cos, mpfr_cos, "2^[1, 20]", any_size(1, 20), kMany, 1},
    {"cos", cos, mpfr_cos, "2^[20, 1023]", any_size(20, 1023), kSome, 1},
    {"cos", cos, mpfr_cos, "near k pi/2, k < 7e5", near_quarter_turns(7e5), kMany, 1},
    {"cos", cos, mpfr_cos, "near k pi/2, k < 2^52", near_quarter_turns(0x1p52), kMany, 1},
    {"erfc", erfc, mpfr_erfc, "[-1, 1]", uniform(-1, 1), kMany, 1},
    {"erfc", erfc, mpfr_erfc, "[-6, -0.5]", uniform(-6, -0.5), kSome, 1},
    {"erfc", erfc, mpfr_erfc, "[0.5, 6]", uniform(0.5, 6), kSome, 1},
    {"erfc", erfc, mpfr_erfc, "[6, 26.5]", uniform(6, 26.5), kFew, 1},
    {"erfc", erfc, mpfr_erfc, "[26.5, 27.3] subnormal results", uniform(26.5, 27.3), kSome, 1},
    {"erfc", erfc, mpfr_erfc, "2^[-1074, 1]", any_size(-1074, 1), kMany, 1},
    {"log_erfc", log_erfc, mpfr_log_erfc, "[-0.7, 0.7]", uniform(-0.7, 0.7), kSome, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "[-7, 7]", uniform(-7, 7), kSome, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "[7, 40]", uniform(7, 40), kFew / 3, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "2^[-300, -1]", any_size(-300, -1), kSome, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "2^[5, 13]", any_size(5, 13, false), kFew / 3, 3},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-1.5, 1.5]", uniform(-1.5, 1.5), kSome, 1},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-8, 8]", uniform(-8, 8), kSome, 1},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-37.5, -8]", uniform(-37.5, -8), kFew, 1},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-38.5, -37.5] subnormal", uniform(-38.5, -37.5),
     kSome, 1},
};

INSTANTIATE_TEST_SUITE_P(Table, Accuracy, testing::ValuesIn(kTable), [](const auto& line) {
  return std::string(line.param.name) + "_" + std::to_string(line.index);
});

TEST(Accuracy, OfAtan2) {
  std::mt19937_64 random(3);
  const Points sizes[] = {any_size(-2, 2), any_size(-30, 30), any_size(-1074, 1023),
                          any_size(-1074, -1000)};
  const char* ranges[] = {"2^[-2, 2]", "2^[-30, 30]", "2^[-1074, 1023]", "2^[-1074, -1000]"};
  Exact exact, my, mx;
  for (int i = 0; i < 4; ++i) {
    Measurement m;
    for (int n = 0; n < kMany; ++n) {
      const double y = sizes[i](random);
      // A third of the points near the seams a/b = j/16.
      const double x =
          n % 3 ? sizes[i](random) : y * (16 / (0.5 * static_cast<double>(random() % 32) + 0.5));
      mpfr_set_d(my.get(), y, MPFR_RNDN);
      mpfr_set_d(mx.get(), x, MPFR_RNDN);
      mpfr_atan2(exact.get(), my.get(), mx.get(), MPFR_RNDN);
      const double error = ulp_error(atan2(y, x), exact);
      if (error > m.worst) m = {error, y};
    }
    report("atan2", ranges[i], kMany, m, 1);
  }
}

// Beyond 2^13 MPFR's erfc underflows; its logarithm is the asymptotic series, here to 1e-20.
TEST(Accuracy, OfLogErfcFarOut) {
  const Reference reference = [](mpfr_ptr out, double at) {
    Exact x(at), pi;
    mpfr_const_pi(pi.get(), MPFR_RNDN);
    mpfr_sqrt(pi.get(), pi.get(), MPFR_RNDN);
    mpfr_mul(pi.get(), pi.get(), x.get(), MPFR_RNDN);
    mpfr_log(pi.get(), pi.get(), MPFR_RNDN);  // log(x sqrt pi)
    mpfr_sqr(out, x.get(), MPFR_RNDN);
    mpfr_ui_div(x.get(), 1, out, MPFR_RNDN);
    mpfr_div_2ui(x.get(), x.get(), 1, MPFR_RNDN);  // 1/(2x^2)
    mpfr_add(out, out, pi.get(), MPFR_RNDN);
    mpfr_add(out, out, x.get(), MPFR_RNDN);
    mpfr_neg(out, out, MPFR_RNDN);
  };
  report("log_erfc", "2^[13, 511]", kMany,
         measure(log_erfc, reference, any_size(13, 511, false), kMany, 5), 3);
}

// The error of a quantile x for p: x - (Phi(x) - p)/phi(x), exact to second order.
TEST(Accuracy, OfNormalQuantile) {
  const Reference reference = [](mpfr_ptr out, double p) {
    const double x = normal_quantile(p);
    Exact at(x), phi, density;
    mpfr_normal_cdf(phi.get(), at.get(), MPFR_RNDN);
    mpfr_sub_d(phi.get(), phi.get(), p, MPFR_RNDN);
    mpfr_sqr(density.get(), at.get(), MPFR_RNDN);
    mpfr_div_si(density.get(), density.get(), -2, MPFR_RNDN);
    mpfr_exp(density.get(), density.get(), MPFR_RNDN);
    mpfr_mul_d(density.get(), density.get(), 0x1.9884533d43651p-2, MPFR_RNDN);  // 1/sqrt(2 pi)
    mpfr_div(phi.get(), phi.get(), density.get(), MPFR_RNDN);
    mpfr_sub(out, at.get(), phi.get(), MPFR_RNDN);
  };
  const auto line = [&](const char* range, const Points& points) {
    report("normal_quantile", range, kSome, measure(normal_quantile, reference, points, kSome, 6),
           2);
  };
  line("[0, 1]", uniform(0x1p-60, 1));
  line("[0.24, 0.26]", uniform(0.24, 0.26));
  line("1/2 + 2^[-53, -3]",
       [](std::mt19937_64& random) { return 0.5 + any_size(-53, -3)(random); });
  line("2^[-1074, -2]", any_size(-1074, -2, false));
  line("2^[-1074, -1000]", any_size(-1074, -1000, false));
  line("1 - 2^[-53, -2]",
       [](std::mt19937_64& random) { return 1 - any_size(-53, -2, false)(random); });
}

TEST(Accuracy, OfSinCosTwoPi) {
  const auto both = [](double u, bool want_sin) {
    double sine, cosine;
    sin_cos_two_pi(u, sine, cosine);
    return want_sin ? sine : cosine;
  };
  Measurement worst[2];
  std::mt19937_64 random(9);
  Exact exact;
  for (int n = 0; n < kMany; ++n) {
    double u = static_cast<double>(random() >> 11) * 0x1p-53;
    if (n % 4 == 0) u = 0.25 * static_cast<double>(random() % 4) + 0x1p-30 * u;
    for (const bool want_sin : {false, true}) {
      Exact angle(u, 300);
      Exact pi(0, 300);
      mpfr_const_pi(pi.get(), MPFR_RNDN);
      mpfr_mul(angle.get(), angle.get(), pi.get(), MPFR_RNDN);
      mpfr_mul_2ui(angle.get(), angle.get(), 1, MPFR_RNDN);
      (want_sin ? mpfr_sin : mpfr_cos)(exact.get(), angle.get(), MPFR_RNDN);
      const double got = both(u, want_sin);
      if (mpfr_get_exp(exact.get()) < -200) {
        EXPECT_EQ(got, 0) << "at a multiple of a quarter turn";
        continue;
      }
      const double error = ulp_error(got, exact);
      if (error > worst[want_sin].worst) worst[want_sin] = {error, u};
    }
  }
  report("sin 2 pi u", "[0, 1)", kMany, worst[1], 1);
  report("cos 2 pi u", "[0, 1)", kMany, worst[0], 1);
}

// ---- special values: exact, as elementary.h states them ----

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

#define EXPECT_BITS(got, expected) EXPECT_EQ(bits(got), bits(expected)) << #got

TEST(SpecialValues, OfExpAndExpm1) {
  for (const double zero : {0.0, -0.0}) {
    EXPECT_BITS(exp(zero), 1.0);
    EXPECT_BITS(expm1(zero), zero);
  }
  EXPECT_BITS(exp(-kInf), 0.0);
  EXPECT_BITS(exp(kInf), kInf);
  EXPECT_BITS(exp(-kMax), 0.0);
  EXPECT_BITS(exp(kMax), kInf);
  EXPECT_BITS(exp(0x1.62e42fefa39efp9), 0x1.fffffffffff2ap1023);  // the last before overflow
  EXPECT_BITS(exp(0x1.62e42fefa39fp9), kInf);
  EXPECT_BITS(exp(-0x1.74910d52d3051p9), kTiny);  // the last before zero
  EXPECT_BITS(exp(-0x1.74910d52d3052p9), 0.0);
  EXPECT_BITS(exp(kTiny), 1.0);
  EXPECT_BITS(expm1(-kInf), -1.0);
  EXPECT_BITS(expm1(kInf), kInf);
  EXPECT_BITS(expm1(kMax), kInf);
  EXPECT_BITS(expm1(-kMax), -1.0);
  EXPECT_BITS(expm1(kTiny), kTiny);
  EXPECT_BITS(expm1(-kTiny), -kTiny);
}

TEST(SpecialValues, OfLogAndLog1p) {
  EXPECT_BITS(log(1.0), 0.0);
  EXPECT_BITS(log(0.0), -kInf);
  EXPECT_BITS(log(-0.0), -kInf);
  EXPECT_BITS(log(kInf), kInf);
  EXPECT_BITS(log(kTiny), -0x1.74385446d71c3p9);
  EXPECT_BITS(log1p(0.0), 0.0);
  EXPECT_BITS(log1p(-0.0), -0.0);
  EXPECT_BITS(log1p(kTiny), kTiny);
  EXPECT_BITS(log1p(-1.0), -kInf);
  EXPECT_BITS(log1p(kInf), kInf);
  for (const double x : {-kTiny, -1.0, -kMax, -kInf}) EXPECT_BITS(log(x), kNan);
  for (const double x : {-1 - 0x1p-52, -kMax, -kInf}) EXPECT_BITS(log1p(x), kNan);
}

TEST(SpecialValues, OfSinCosAndAtan2) {
  EXPECT_BITS(sin(0.0), 0.0);
  EXPECT_BITS(sin(-0.0), -0.0);
  EXPECT_BITS(sin(-kTiny), -kTiny);
  EXPECT_BITS(cos(-0.0), 1.0);
  for (const double x : {kInf, -kInf}) {
    EXPECT_BITS(sin(x), kNan);
    EXPECT_BITS(cos(x), kNan);
  }
  // The double closest to a multiple of pi/2, and the largest one.
  EXPECT_NEAR(cos(0x1.6ac5b262ca1ffp849), -4.6871659242546276e-19, 1e-34);
  EXPECT_NEAR(sin(kMax), 0.004961954789184062, 1e-17);

  constexpr double kPi = 0x1.921fb54442d18p1;
  for (const double s : {1.0, -1.0}) {
    EXPECT_BITS(atan2(s * 0.0, 0.0), s * 0.0);
    EXPECT_BITS(atan2(s * 0.0, 1.0), s * 0.0);
    EXPECT_BITS(atan2(s * 0.0, kInf), s * 0.0);
    EXPECT_BITS(atan2(s * 1.0, kInf), s * 0.0);
    EXPECT_BITS(atan2(s * kTiny, kMax), s * 0.0);
    EXPECT_BITS(atan2(s * 0.0, -0.0), s * kPi);
    EXPECT_BITS(atan2(s * 0.0, -1.0), s * kPi);
    EXPECT_BITS(atan2(s * 1.0, -kInf), s * kPi);
    EXPECT_BITS(atan2(s * kTiny, -kMax), s * kPi);
    for (const double x : {0.0, -0.0}) EXPECT_BITS(atan2(s * 1.0, x), s * kPi / 2);
    for (const double x : {1.0, -1.0}) EXPECT_BITS(atan2(s * kInf, x), s * kPi / 2);
    EXPECT_BITS(atan2(s * kInf, kInf), s * kPi / 4);
    EXPECT_BITS(atan2(s * kInf, -kInf), s * 0x1.2d97c7f3321d2p1);
    EXPECT_BITS(atan2(s * 1.0, kNan), kNan);
    EXPECT_BITS(atan2(kNan, s * 1.0), kNan);
  }
}

TEST(SpecialValues, OfErfcAndTheNormalDistribution) {
  EXPECT_BITS(erfc(0.0), 1.0);
  EXPECT_BITS(erfc(-0.0), 1.0);
  EXPECT_BITS(erfc(-kInf), 2.0);
  EXPECT_BITS(erfc(kInf), 0.0);
  EXPECT_BITS(erfc(28.0), 0.0);
  EXPECT_BITS(erfc(kTiny), 1.0);
  EXPECT_BITS(log_erfc(0.0), -0.0);
  EXPECT_BITS(log_erfc(-0.0), 0.0);
  EXPECT_BITS(log_erfc(-kInf), 0x1.62e42fefa39efp-1);
  EXPECT_BITS(log_erfc(kInf), -kInf);
  EXPECT_BITS(log_erfc(0x1p512), -kInf);
  EXPECT_BITS(log_erfc(1e150), -1e150 * 1e150);
  EXPECT_BITS(normal_cdf(0.0), 0.5);
  EXPECT_BITS(normal_cdf(-kInf), 0.0);
  EXPECT_BITS(normal_cdf(kInf), 1.0);
  EXPECT_BITS(normal_cdf(-39.0), 0.0);
  EXPECT_BITS(normal_quantile(0.0), -kInf);
  EXPECT_BITS(normal_quantile(1.0), kInf);
  EXPECT_BITS(normal_quantile(0.5), 0.0);
  for (const double p : {-kTiny, -1.0, 1 + 0x1p-52, kInf, -kInf})
    EXPECT_BITS(normal_quantile(p), kNan);
}

TEST(SpecialValues, AnyNanGivesTheOneQuietNan) {
  using Scalar = double (*)(double);
  const Scalar all[] = {exp, expm1, log,      log1p,      sin,
                        cos, erfc,  log_erfc, normal_cdf, normal_quantile};
  for (const Scalar f : all)
    for (const std::uint64_t nan : {0x7ff8000000000000u, 0xfff8000000000000u, 0x7ff0000000000001u})
      EXPECT_EQ(bits(f(std::bit_cast<double>(nan))), 0x7ff8000000000000u);
}

}  // namespace
}  // namespace discreet::numerics
