#include "discreet/numerics/elementary.h"

#include <bit>
#include <cmath>
#include <limits>
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

constexpr int kMany = 100'000, kSome = 10'000;

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
    {"erfc", erfc, mpfr_erfc, "[6, 26.5]", uniform(6, 26.5), kSome, 1},
    {"erfc", erfc, mpfr_erfc, "[26.5, 27.3] subnormal results", uniform(26.5, 27.3), kSome, 1},
    {"erfc", erfc, mpfr_erfc, "2^[-1074, 1]", any_size(-1074, 1), kMany, 1},
    {"log_erfc", log_erfc, mpfr_log_erfc, "[-0.7, 0.7]", uniform(-0.7, 0.7), kSome, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "[-7, 7]", uniform(-7, 7), kSome, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "[7, 40]", uniform(7, 40), kSome / 10, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "2^[-300, -1]", any_size(-300, -1), kSome, 3},
    {"log_erfc", log_erfc, mpfr_log_erfc, "2^[5, 13]", any_size(5, 13, false), kSome / 10, 3},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-1.5, 1.5]", uniform(-1.5, 1.5), kSome, 1},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-8, 8]", uniform(-8, 8), kSome, 1},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-37.5, -8]", uniform(-37.5, -8), kSome, 1},
    {"normal_cdf", normal_cdf, mpfr_normal_cdf, "[-38.5, -37.5] subnormal", uniform(-38.5, -37.5),
     kSome, 1},
};

INSTANTIATE_TEST_SUITE_P(Table, Accuracy, testing::ValuesIn(kTable), [](const auto& line) {
  return std::string(line.param.name) + "_" + std::to_string(line.index);
});

}  // namespace
}  // namespace discreet::numerics
