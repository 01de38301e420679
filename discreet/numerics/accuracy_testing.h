#pragma once

#include <gtest/gtest.h>
#include <mpfr.h>

#include <cstdio>
#include <functional>
#include <random>

// Measures the error of a function of one or two binary64 arguments against MPFR. Only for tests.
namespace discreet::numerics {

// An MPFR number that frees itself; 120 bits leave 67 below any binary64 result.
class Exact {
 public:
  explicit Exact(double x = 0, mpfr_prec_t precision = 120) {
    mpfr_init2(value_, precision);
    mpfr_set_d(value_, x, MPFR_RNDN);
  }
  ~Exact() { mpfr_clear(value_); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

// |got - exact| in units in the last place of the exact value; an ulp is at least 2^-1074.
inline double ulp_error(double got, Exact& exact) {
  if (got != got || mpfr_nan_p(exact.get())) return HUGE_VAL;
  if (mpfr_zero_p(exact.get())) return got == 0 ? 0 : HUGE_VAL;
  mpfr_exp_t exponent = mpfr_get_exp(exact.get()) - 53;
  if (exponent < -1074) exponent = -1074;
  // Overflow is correct for exact values at least half an ulp beyond the largest double.
  if (got - got != 0) return mpfr_get_exp(exact.get()) > 1024 ? 0 : HUGE_VAL;
  Exact difference(got, 200);
  mpfr_sub(difference.get(), difference.get(), exact.get(), MPFR_RNDN);
  mpfr_mul_2si(difference.get(), difference.get(), -exponent, MPFR_RNDN);
  return std::abs(mpfr_get_d(difference.get(), MPFR_RNDA));
}

struct Measurement {
  double worst = 0;
  double at = 0;
};

using Reference = std::function<void(mpfr_ptr result, double x)>;
using Points = std::function<double(std::mt19937_64&)>;

inline Measurement measure(double (*f)(double), const Reference& reference, const Points& points,
                           int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Exact exact;
  Measurement result;
  for (int i = 0; i < count; ++i) {
    const double x = points(random);
    reference(exact.get(), x);
    const double error = ulp_error(f(x), exact);
    if (error > result.worst) result = {error, x};
  }
  return result;
}

// Prints one line of the accuracy table and checks it against the bound.
inline void report(const char* function, const char* range, int count, Measurement m,
                   double bound) {
  std::printf("| %-15s | MPFR | %-34s | %7d | %.4f | %g |\n", function, range, count, m.worst,
              bound);
  EXPECT_LE(m.worst, bound) << function << " on " << range << ", worst at " << std::hexfloat
                            << m.at;
}

}  // namespace discreet::numerics
