#include "discreet/accounting/renyi/rdp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/golden_testing.h"
#include "discreet/accounting/renyi/rdp_conversion.h"
#include "discreet/base/error_testing.h"

namespace discreet::accounting {
namespace {

TEST(Rdp, ContainsTheFortyDigitLogMoments) {
  for (const auto& row : golden_rows<4>("renyi.txt")) {
    const auto [rate, sigma, order, log_moment] = row;
    const auto k = poisson_gaussian_curve(rate, sigma)->at(order).value;
    SCOPED_TRACE(testing::Message() << rate << " " << sigma << " " << order);
    // The reference is rounded to binary64 when it is read.
    const double ulp = 2e-16 * log_moment;
    EXPECT_LE(k.lower, log_moment + ulp);
    EXPECT_GE(k.upper, log_moment - ulp);
    EXPECT_LE(k.upper - k.lower, 5e-14 + 1e-12 * log_moment);
  }
}

// Trapezoidal rule in extended precision with a step four times finer and wider ends.
long double extended_log_moment(long double q, long double sigma, long double order) {
  const long double h = std::min(sigma / 16, sigma * sigma / 8);
  const long double low = -13 * sigma;
  const long double high = order + 13 * sigma;
  long double peak = -1e4000L;
  std::vector<long double> exponents;
  for (long double x = low; x < high; x += h) {
    const long double v = (2 * x - 1) / (2 * sigma * sigma);
    const long double loss =
        v > 0 ? v + std::log(q + (1 - q) * std::exp(-v)) : std::log1p(q * std::expm1(v));
    exponents.push_back(order * loss - x * x / (2 * sigma * sigma));
    peak = std::max(peak, exponents.back());
  }
  long double sum = 0;
  for (const long double e : exponents) sum += std::exp(e - peak);
  return peak + std::log(sum * h / (sigma * 2.506628274631000502415765L));
}

TEST(Rdp, ContainsExtendedPrecisionAtRandomSettings) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit;
  for (int i = 0; i < 150; ++i) {
    const double rate = std::exp(-9 * unit(random));
    const double sigma = std::exp(-1 + 4 * unit(random));
    const double order = 1 + std::exp(-3 + 7 * unit(random));
    const auto k = poisson_gaussian_curve(rate, sigma)->at(order).value;
    const long double exact = extended_log_moment(rate, sigma, order);
    const long double slack = 2e-17L + 1e-17L * exact;
    SCOPED_TRACE(testing::Message() << rate << " " << sigma << " " << order);
    EXPECT_LE(k.lower, exact + slack);
    EXPECT_GE(k.upper, exact - slack);
    EXPECT_LE(k.upper - k.lower, 5e-14 + 1e-12 * static_cast<double>(exact));
  }
}

TEST(Rdp, KeepsRelativeAccuracyOfTinyMomentsAtIntegerOrders) {
  const auto k = poisson_gaussian_curve(1e-8, 4)->at(3).value;
  const double expected = 3e-16 * std::expm1(1.0 / 16);  // 3 q^2 (e^{1/s^2} - 1), to first order
  EXPECT_NEAR(k.upper / expected, 1, 1e-7);
  EXPECT_LE(k.upper - k.lower, 1e-12 * k.upper);
}

TEST(Rdp, MatchesPublishedDivergences) {
  // dp-accounting's rdp test: q=.01, sigma=2.5, 50 steps. Its value at order 1.5 (6.7058e-4) is 3%
  // above the exact one, which is checked here instead.
  const auto curve = poisson_gaussian_curve(0.01, 2.5);
  const auto fifty = [&](double order) { return 50 * curve->at(order).value.upper / (order - 1); };
  EXPECT_NEAR(fifty(1.5), 6.50070897e-4, 1e-12);
  EXPECT_NEAR(fifty(5), 2.18075656e-3, 1e-4 * 2.18e-3);
  EXPECT_NEAR(fifty(50), 2.38460375e-2, 1e-4 * 2.38e-2);
  EXPECT_NEAR(fifty(100), 167.416308, 1e-4 * 167);
  // autodp's unit test.
  EXPECT_NEAR(poisson_gaussian_curve(0.01, 0.25)->at(1.25).value.upper / 0.25, 0.1103603174, 1e-9);
}

TEST(Rdp, BinomialSumAndQuadratureAgree) {
  // An order one ulp above an integer is evaluated by quadrature.
  for (const double rate : {1e-4, 0.02, 0.3, 0.95}) {
    for (const double sigma : {0.3, 1.0, 6.0}) {
      const auto curve = poisson_gaussian_curve(rate, sigma);
      for (const double order : {2.0, 3.0, 20.0, 128.0, 256.0}) {
        const auto sum = curve->at(order).value;
        const auto integral = curve->at(std::nextafter(order, 1000.0)).value;
        EXPECT_LE(sum.lower, integral.upper) << rate << " " << sigma << " " << order;
        EXPECT_LE(integral.lower, sum.upper * (1 + 1e-14));
        EXPECT_NEAR(sum.upper, integral.upper, 1e-13 + 2e-13 * sum.upper);
      }
    }
  }
}

TEST(Rdp, IsBelowTheFullBatchAndAboveZeroWhateverTheScale) {
  for (const double sigma : {1e-8, 1e-3, 0.05, 1.0, 1e3, 1e8}) {
    for (const double rate : {1e-12, 0.01, 0.99}) {
      const auto curve = poisson_gaussian_curve(rate, sigma);
      const auto full = poisson_gaussian_curve(1, sigma);
      for (const double order : {1.0001, 1.5, 2.0, 77.3, 300.0, 3000.5}) {
        const auto k = curve->at(order).value;
        EXPECT_GE(k.lower, 0);
        EXPECT_GE(k.upper, 0);
        EXPECT_LE(k.upper, full->at(order).value.upper * (1 + 1e-13) + 1e-300)
            << rate << " " << sigma << " " << order;
      }
    }
  }
}

TEST(Rdp, LogMomentIsConvexAndItsSlopeIsItsDerivative) {
  const auto curve = poisson_gaussian_curve(0.03, 1.2);
  for (double order = 1.25; order < 30; order += 0.31) {
    const double h = 1e-4;
    const double left = curve->at(order - h).value.upper;
    const double middle = curve->at(order).value.upper;
    const double right = curve->at(order + h).value.upper;
    EXPECT_LE(2 * middle, left + right + 1e-13);
    EXPECT_NEAR(curve->at(order).slope, (right - left) / (2 * h), 1e-6 * (1 + right));
  }
}

// D_a of the unsampled pair by summing probabilities; the oracle for the discrete families.
double brute_force_moment(const std::vector<long double>& p, const std::vector<long double>& q,
                          long double order) {
  long double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0 && q[i] > 0)
      sum += std::exp(order * std::log(p[i]) + (1 - order) * std::log(q[i]));
  }
  return static_cast<double>(std::log(sum));
}

std::vector<long double> mixed(const std::vector<long double>& p, const std::vector<long double>& q,
                               long double rate) {
  std::vector<long double> out(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) out[i] = (1 - rate) * q[i] + rate * p[i];
  return out;
}

std::vector<long double> discrete_gaussian(long double sigma, int shift) {
  std::vector<long double> out;
  long double total = 0;
  for (int x = -200; x <= 200; ++x) {
    out.push_back(std::exp(-(x - shift) * (x - shift) / (2 * sigma * sigma)));
    total += out.back();
  }
  for (auto& value : out) value /= total;
  return out;
}

// Two Poisson variables of mean variance/2.
std::vector<long double> skellam(long double variance, int shift) {
  const long double mean = variance / 2;
  std::vector<long double> poisson;
  long double value = std::exp(-mean);
  for (int k = 0; k < 400; ++k) {
    poisson.push_back(value);
    value *= mean / (k + 1);
  }
  std::vector<long double> out(401, 0);
  for (int x = -200; x <= 200; ++x) {
    for (int k = 0; k < 400; ++k) {
      const int other = k - (x - shift);
      if (other >= 0 && other < 400) {
        out[static_cast<std::size_t>(x) + 200] +=
            poisson[static_cast<std::size_t>(k)] * poisson[static_cast<std::size_t>(other)];
      }
    }
  }
  return out;
}

void expect_dominates_both_directions(RenyiCurve& curve, const std::vector<long double>& p1,
                                      const std::vector<long double>& q, long double rate,
                                      double looseness) {
  const auto p = mixed(p1, q, rate);
  for (const double order : {1.3, 2.0, 3.0, 4.5, 8.0}) {
    const double bound = curve.at(order).value.upper;
    const double removed = brute_force_moment(p, q, order);
    const double added = brute_force_moment(q, p, order);
    EXPECT_GE(bound, removed * (1 - 1e-12)) << order;
    EXPECT_GE(bound, added * (1 - 1e-12)) << order;
    EXPECT_GE(removed * (1 + 1e-15), added) << order;  // the lemma of rdp.md
    if (order == std::floor(order)) {
      EXPECT_LE(bound, removed * looseness + 1e-12) << order;
    }
  }
}

TEST(Rdp, DiscreteGaussianIsExactAtIntegerOrders) {
  for (const double rate : {0.1, 0.6}) {
    const auto curve = poisson_discrete_gaussian_curve(rate, 1.5);
    expect_dominates_both_directions(*curve, discrete_gaussian(1.5, 1), discrete_gaussian(1.5, 0),
                                     rate, 1 + 1e-9);
    // Sensitivity 2 with noise 3 is the same multiplier.
    expect_dominates_both_directions(*curve, discrete_gaussian(3, 2), discrete_gaussian(3, 0), rate,
                                     1 + 1e-9);
  }
}

TEST(Rdp, SkellamBoundDominatesTheExactDivergence) {
  for (const double variance : {4.0, 20.0}) {
    for (const double rate : {0.2, 1.0}) {
      const auto curve = poisson_skellam_curve(rate, variance, 1, 1);
      expect_dominates_both_directions(*curve, skellam(variance, 1), skellam(variance, 0), rate,
                                       2.5);
    }
  }
}

TEST(Rdp, LaplaceMatchesBruteForceQuadrature) {
  for (const double scale : {0.7, 2.0}) {
    for (const double rate : {0.15, 1.0}) {
      std::vector<long double> p1;
      std::vector<long double> q;
      const long double h = 1.0L / 1024;
      for (long double x = -60 + h / 2; x < 60; x += h) {  // midpoints: no node on a kink
        p1.push_back(h / (2 * scale) * std::exp(-std::abs(x - 1) / scale));
        q.push_back(h / (2 * scale) * std::exp(-std::abs(x) / scale));
      }
      const auto curve = poisson_laplace_curve(rate, scale);
      const auto p = mixed(p1, q, rate);
      for (const double order : {2.0, 3.0, 7.0}) {
        EXPECT_NEAR(curve->at(order).value.upper, brute_force_moment(p, q, order), 1e-5);
      }
      if (rate == 1) {
        EXPECT_NEAR(curve->at(1.4).value.upper, brute_force_moment(p, q, 1.4), 1e-5);
      }
    }
  }
}

// P and Q of replace-one: the batch holds the record with probability q, and it moves by 2.
TEST(Rdp, FixedSizeReplaceDominatesTheExactPair) {
  for (const double rate : {0.05, 0.4}) {
    for (const long double sigma : {1.0L, 3.0L}) {
      std::vector<long double> moved;
      std::vector<long double> still;
      for (long double x = -30; x < 60; x += 0.01L) {
        moved.push_back(0.01L * std::exp(-(x - 2) * (x - 2) / (2 * sigma * sigma)) /
                        (sigma * 2.50662827463100050L));
        still.push_back(0.01L * std::exp(-x * x / (2 * sigma * sigma)) /
                        (sigma * 2.50662827463100050L));
      }
      const auto curve = fixed_size_replace_curve(rate, static_cast<double>(sigma));
      const auto p = mixed(moved, still, rate);
      for (const double order : {2.0, 2.5, 5.0}) {
        EXPECT_GE(curve->at(order).value.upper, brute_force_moment(p, still, order));
      }
    }
  }
}

TEST(Rdp, FixedSizeReplaceFollowsItsFormulaAtOrderTwo) {
  const double rate = 0.01;
  const double sigma = 4;
  // E_Q[M^2] = 1 + q^2 (e^v - 1) and W = e^v Phi(3/sigma) + 3 Phi(-1/sigma) - 2, v = 4/sigma^2.
  const double v = 4 / (sigma * sigma);
  const double w = std::exp(v) * 0.5 * std::erfc(-3 / sigma / std::sqrt(2.0)) +
                   1.5 * std::erfc(1 / sigma / std::sqrt(2.0)) - 2;
  const double expected = std::log1p(rate * rate * (std::expm1(v) + w));
  const double found = fixed_size_replace_curve(rate, sigma)->at(2).value.upper;
  EXPECT_NEAR(found, expected, 1e-12 * expected);
  // The theorem of Wang, Balle and Kasiviswanathan 2019 for any mechanism has 4(e^v - 1) here.
  EXPECT_LT(found, 0.45 * std::log1p(rate * rate * 4 * std::expm1(v)));
}

// The record moves from +1 to -1 while the one it displaces sits anywhere between.
TEST(Rdp, FixedSizeReplaceDominatesEveryPlaceOfTheOther) {
  const auto density = [](long double x, long double at, long double sigma) {
    return std::exp(-(x - at) * (x - at) / (2 * sigma * sigma)) / (sigma * 2.50662827463100050L);
  };
  for (const double rate : {0.02, 0.3, 0.9}) {
    for (const long double sigma : {1.2L, 4.0L}) {
      const auto curve = fixed_size_replace_curve(rate, static_cast<double>(sigma));
      for (const long double other : {-1.0L, -0.4L, 0.0L, 0.7L, 1.0L}) {
        std::vector<long double> first, second, still;
        for (long double x = -40; x < 40; x += 0.02L) {
          first.push_back(0.02L * density(x, 1, sigma));
          second.push_back(0.02L * density(x, -1, sigma));
          still.push_back(0.02L * density(x, other, sigma));
        }
        const auto p = mixed(first, still, rate);
        const auto q = mixed(second, still, rate);
        for (const double order : {1.1, 1.5, 2.0, 2.5, 4.0}) {
          const double found = curve->at(order).value.upper;
          EXPECT_GE(found, brute_force_moment(p, q, order)) << rate << ' ' << other << ' ' << order;
          EXPECT_GE(found, brute_force_moment(q, p, order)) << rate << ' ' << other << ' ' << order;
        }
      }
    }
  }
}

// Two records of which one is drawn, and the three others' contributions at their worst: with x = 1
// in place of y = -1 the batch sum moves by 2.
TEST(Rdp, FixedSizeAddRemoveDominatesAWorstCase) {
  for (const double rate : {0.1, 0.5}) {
    std::vector<long double> moved;
    std::vector<long double> still;
    for (long double x = -30; x < 60; x += 0.01L) {
      moved.push_back(0.01L * std::exp(-(x - 2) * (x - 2) / 8) / (2 * 2.50662827463100050L));
      still.push_back(0.01L * std::exp(-x * x / 8) / (2 * 2.50662827463100050L));
    }
    const auto curve = fixed_size_add_remove_curve(rate, 2);
    const auto p = mixed(moved, still, rate);
    for (const double order : {1.5, 2.0, 4.25}) {
      EXPECT_NEAR(curve->at(order).value.upper, brute_force_moment(p, still, order), 1e-9);
      EXPECT_GE(curve->at(order).value.upper, brute_force_moment(still, p, order));
    }
  }
}

MomentSum times(RenyiCurve& curve, double count) {
  return [&curve, count](double order) {
    LogMoment k = curve.at(order);
    k.value.upper *= count;
    k.slope *= count;
    return k;
  };
}

// Total variation exceeds delta in each case, so no epsilon is 0, however small.
TEST(RdpConversion, UnderflowDoesNotBecomeZeroEpsilon) {
  const struct {
    double rate, sigma, delta;
  } rows[] = {{1e-300, 1, 1e-302}, {1, 1e160, 1e-200}, {0.5, 1e160, 1e-200}, {1, 1e200, 1e-250}};
  for (const auto& row : rows) {
    const auto gaussian = poisson_gaussian_curve(row.rate, row.sigma);
    const auto discrete = poisson_discrete_gaussian_curve(row.rate, row.sigma);
    EXPECT_GT(gaussian->at(2).value.upper, 0) << row.sigma;
    EXPECT_GT(gaussian->at(1.5).value.upper, 0) << row.sigma;
    EXPECT_GT(minimise_epsilon(times(*gaussian, 100), row.delta).epsilon, 0) << row.sigma;
    EXPECT_GT(minimise_epsilon(times(*discrete, 100), row.delta).epsilon, 0) << row.sigma;
  }
  for (const char* name : {"rdp", "gdp"}) {
    const auto accountant = make_accountant(name);
    accountant->compose(Event(Gaussian{1e160}, NoSampling{}, Adjacency::kAddRemove), 3);
    EXPECT_GT(accountant->epsilon(1e-200).epsilon.upper, 0) << name;
    EXPECT_GT(accountant->delta(1).upper, 0) << name;
  }
}

TEST(RdpConversion, ReproducesOpacus) {
  // opacus accountants_test: sigma 1.5, q .04, 2250 steps, delta 1e-5.
  const auto curve = poisson_gaussian_curve(0.04, 1.5);
  const auto grid = epsilon_on_grid(times(*curve, 2250), 1e-5);
  EXPECT_NEAR(grid.epsilon, 7.32911117143, 5e-8);
  const auto best = minimise_epsilon(times(*curve, 2250), 1e-5);
  EXPECT_LE(best.epsilon, grid.epsilon);
  EXPECT_GT(best.epsilon, 7.328);
}

TEST(RdpConversion, IsBelowTheSeriesWithoutSigns) {
  // TF-privacy publishes 3.2392676 for sigma .7, q .01, 120 steps, delta 1e-5. Its series for
  // fractional orders adds absolute values; with the signs the same order, 4.4, gives 3.239192194
  // (mpmath, 30 digits).
  const auto curve = poisson_gaussian_curve(0.01, 0.7);
  const auto grid = epsilon_on_grid(times(*curve, 120), 1e-5);
  EXPECT_EQ(grid.order, 4.4);
  EXPECT_NEAR(grid.epsilon, 3.239192194, 1e-9);
  EXPECT_LT(minimise_epsilon(times(*curve, 120), 1e-5).epsilon, grid.epsilon);
}

TEST(RdpConversion, ContinuousMinimumIsNeverAboveTheGrid) {
  for (const double rate : {0.001, 0.1, 1.0}) {
    for (const double sigma : {0.5, 2.0, 50.0}) {
      for (const double count : {1.0, 100.0, 1e6}) {
        for (const double delta : {1e-2, 1e-6, 1e-12}) {
          const auto curve = poisson_gaussian_curve(rate, sigma);
          const auto moments = times(*curve, count);
          EXPECT_LE(minimise_epsilon(moments, delta).epsilon,
                    epsilon_on_grid(moments, delta).epsilon * (1 + 1e-9));
        }
      }
    }
  }
}

TEST(RdpConversion, DominatesTheExactGaussianAndDeltaInvertsEpsilon) {
  const auto exact_delta = [](double mu, double epsilon) {
    const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
    return phi(-epsilon / mu + mu / 2) - std::exp(epsilon) * phi(-epsilon / mu - mu / 2);
  };
  for (const double sigma : {0.5, 1.0, 5.0}) {
    const auto curve = poisson_gaussian_curve(1, sigma);
    const auto moments = times(*curve, 1);
    for (const double delta : {1e-3, 1e-8}) {
      const double epsilon = minimise_epsilon(moments, delta).epsilon;
      EXPECT_LE(exact_delta(1 / sigma, epsilon), delta);
      EXPECT_NEAR(std::log(minimise_delta(moments, epsilon)), std::log(delta), 1e-6);
    }
  }
}

TEST(RdpConversion, GivesZeroWhereDeltaExceedsTheTotalVariation) {
  const auto curve = poisson_gaussian_curve(1e-6, 10);
  EXPECT_EQ(minimise_epsilon(times(*curve, 1), 1e-3).epsilon, 0);
  EXPECT_LE(minimise_delta(times(*curve, 1), 0), 1e-6);
  // Never negative, also close to order 1 and for delta near 1.
  EXPECT_EQ(epsilon_at_order(1.001, 1e-9, 0.9), 0);
}

TEST(Rdp, RefusesBadParametersByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(0, 1); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(nan, 1); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(1.5, 1); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(0.5, nan); }), ErrorCode::kNanInSigma);
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(0.5, -1); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { poisson_skellam_curve(0.5, 10, 1, 2); }), ErrorCode::kInvalidDpConfig);
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(0.5, 1)->at(1); }), ErrorCode::kInvalidInput);
  EXPECT_EQ(code_of([&] { poisson_gaussian_curve(0.5, 1)->at(nan); }), ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace discreet::accounting
