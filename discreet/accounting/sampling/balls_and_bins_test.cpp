#include "discreet/accounting/sampling/balls_and_bins.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "discreet/accounting/sampling/balls_and_bins_impl.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

constexpr Direction kBoth[] = {Direction::kRemove, Direction::kAdd};

Interval epsilon(double sigma, std::uint64_t batches, std::uint64_t epochs, double delta,
                 Direction direction, double width) {
  const AllocationEpochs kind{sigma, batches, epochs};
  return allocation_epsilon(std::span(&kind, 1), delta, direction, width);
}

Interval delta(double sigma, std::uint64_t batches, std::uint64_t epochs, double epsilon,
               Direction direction, double width) {
  const AllocationEpochs kind{sigma, batches, epochs};
  return allocation_delta(std::span(&kind, 1), epsilon, direction, width);
}

double normal_tail(double x) { return 0.5 * std::erfc(x / std::sqrt(2)); }

// Gaussian mechanism of mu = sensitivity / standard deviation (Balle and Wang 2018).
double gaussian_delta(double mu, double epsilon) {
  return normal_tail(epsilon / mu - mu / 2) -
         std::exp(epsilon) * normal_tail(epsilon / mu + mu / 2);
}

// Certified intervals of an independent implementation, of requested width 1.5e-4.
struct Row {
  double sigma;
  std::uint64_t batches, epochs;
  double delta;
  Interval remove, add;
};
constexpr Row kRows[] = {
    {1, 2, 1, 1e-5, {3.69735, 3.69747}, {3.07971, 3.07983}},
    {1, 10, 1, 1e-5, {2.18881, 2.18892}, {1.36484, 1.36495}},
    {.5, 100, 1, 1e-6, {6.39362, 6.39367}, {1.48140, 1.48152}},
    {1, 1000, 1, 1e-5, {.13881, .13892}, {.12624, .12637}},
    {.5, 1000, 1, 1e-6, {4.10597, 4.10606}, {.56098, .56111}},
    {.8, 1000, 1, 1e-10, {1.67789, 1.67801}, {.31192, .31201}},
    {.5, 10000, 1, 1e-6, {1.94182, 1.94193}, {.20343, .20352}},
    {1, 10000, 1, 1e-6, {.04578, .04589}, {.04447, .04458}},
    {1, 1000, 10, 1e-5, {.46440, .46455}, {.45123, .45138}},
    {.5, 1000, 10, 1e-5, {5.06002, 5.06013}, {2.09711, 2.09724}},
    {1.1, 235, 60, 1e-5, {2.33486, 2.33499}, {2.29435, 2.29448}},
    {5, 10, 50, 1e-6, {2.01473, 2.01485}, {2.01366, 2.01378}},
    {2, 100, 1000, 1e-6, {8.95274, 8.95288}, {8.94399, 8.94412}},
    {1, 10000, 100, 1e-6, {.53092, .53103}, {.52920, .52931}},
    {.8, 7777, 333, 1e-8, {2.14967, 2.14980}, {2.13132, 2.13146}},
    {1, 10000, 1000, 1e-6, {1.83648, 1.83661}, {1.83438, 1.83451}},
    {.5, 10000, 1000, 1e-6, {13.58829, 13.58842}, {12.06994, 12.07006}},
};

void expect_rows_at(double width) {
  for (const Row& row : kRows)
    for (const Direction direction : kBoth) {
      const Interval known = direction == Direction::kRemove ? row.remove : row.add;
      const Interval e = epsilon(row.sigma, row.batches, row.epochs, row.delta, direction, width);
      SCOPED_TRACE(testing::Message() << row.sigma << ' ' << row.batches << ' ' << row.epochs << ' '
                                      << (direction == Direction::kRemove ? "remove" : "add")
                                      << " [" << e.lower << ", " << e.upper << "]");
      EXPECT_LE(e.lower, known.upper);
      EXPECT_GE(e.upper, known.lower);
      EXPECT_LE(e.upper - e.lower, width * std::max(0.1, e.upper));
    }
}

TEST(Allocation, AgreesWithTheReferenceRowsAtOnePercent) { expect_rows_at(1e-2); }
TEST(Allocation, AgreesWithTheReferenceRowsAtOnePerMille) { expect_rows_at(1e-3); }

TEST(Allocation, OfOneBatchIsTheGaussianMechanism) {
  for (const std::uint64_t epochs : {1, 2, 10, 1000})
    for (const double sigma : {0.7, 1.0, 5.0, 40.0})
      for (const Direction direction : kBoth)
        for (const double e : {0.1, 1.0, 3.0}) {
          const double exact = gaussian_delta(std::sqrt(double(epochs)) / sigma, e);
          if (exact < 1e-30 || exact > 0.999) continue;
          const Interval d = delta(sigma, 1, epochs, e, direction, 1e-3);
          EXPECT_LE(d.lower, exact * (1 + 1e-9)) << sigma << ' ' << epochs << ' ' << e;
          EXPECT_GE(d.upper, exact * (1 - 1e-9)) << sigma << ' ' << epochs << ' ' << e;
          EXPECT_LE(d.upper - d.lower, 1e-3 * exact * 1.01);
        }
}

// The density of log M on a grid that holds `epsilon`, for one or two batches, each convolved with
// itself over the epochs. All integrands but the last are smooth on the whole line, where the
// trapezoid rule is spectrally accurate; the last starts at epsilon, and Simpson's rule with it.
class Quadrature {
 public:
  Quadrature(double sigma, int batches, int epochs) : epochs_(epochs) {
    std::vector<double> one(2 * kHalf + 1);
    for (int i = -kHalf; i <= kHalf; ++i) {
      const double y = i * kStep;
      one[std::size_t(i) + std::size_t(kHalf)] =
          batches == 1 ? density(sigma, y) : of_two(sigma, y);
    }
    density_ = one;
    for (int e = 1; e < epochs; ++e) {
      std::vector<double> next(density_.size() + one.size() - 1);
      for (std::size_t i = 0; i < density_.size(); ++i)
        for (std::size_t j = 0; j < one.size(); ++j) next[i + j] += kStep * density_[i] * one[j];
      density_ = next;
    }
  }
  double remove(double epsilon) const {
    return from(epsilon, +1, [&](double y) { return std::exp(y) - std::exp(epsilon); });
  }
  double add(double epsilon) const {
    return from(-epsilon, -1, [&](double y) { return 1 - std::exp(epsilon + y); });
  }

 private:
  static constexpr int kHalf = 1500;
  static constexpr double kStep = 1.0 / 128;

  // The density of log V at y.
  static double density(double sigma, double y) {
    const double z = sigma * y + 0.5 / sigma;
    return sigma * std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
  }
  // V1 = 2 e^y s, V2 = 2 e^y (1 - s), s = 1 / (1 + e^-w).
  static double of_two(double sigma, double y) {
    double sum = 0;
    const double h = 0.04;
    for (int k = -600; k <= 600; ++k) {
      const double w = k * h;
      const double a = y + std::log(2.0) - std::log1p(std::exp(-w));
      const double b = y + std::log(2.0) - std::log1p(std::exp(w));
      sum += density(sigma, a) * density(sigma, b);
    }
    return sum * h;
  }
  template <class F>
  double from(double start, int direction, F&& f) const {
    const auto origin = long(epochs_) * kHalf;
    double sum = 0;
    const auto index = long(std::lround(start / kStep));
    for (int k = 0;; ++k) {
      const long at = origin + index + long{direction} * k;
      if (at < 0 || at >= long(density_.size())) break;
      const double weight = k == 0 ? 1 : (k & 1) ? 4 : 2;
      sum += weight * density_[std::size_t(at)] * f(double(index + long{direction} * k) * kStep);
    }
    return sum * kStep / 3;
  }
  int epochs_;
  std::vector<double> density_;
};

TEST(Allocation, ContainsTheQuadratureForTwoBatchesAndUpToThreeEpochs) {
  for (const int epochs : {1, 2, 3}) {
    const Quadrature exact(1, 2, epochs);
    for (const double e : {0.5, 1.0, 2.0}) {
      const Interval r = delta(1, 2, std::uint64_t(epochs), e, Direction::kRemove, 1e-4);
      const Interval a = delta(1, 2, std::uint64_t(epochs), e, Direction::kAdd, 1e-4);
      EXPECT_LE(r.lower, exact.remove(e) * (1 + 1e-8)) << epochs << ' ' << e;
      EXPECT_GE(r.upper, exact.remove(e) * (1 - 1e-8)) << epochs << ' ' << e;
      EXPECT_LE(a.lower, exact.add(e) * (1 + 1e-8)) << epochs << ' ' << e;
      EXPECT_GE(a.upper, exact.add(e) * (1 - 1e-8)) << epochs << ' ' << e;
    }
  }
  const Quadrature self(1, 1, 3);
  EXPECT_NEAR(self.remove(1), gaussian_delta(std::sqrt(3.0), 1), 1e-9) << "the oracle itself";
}

TEST(Allocation, ContainsTheExactValuesForTwoBatches) {
  const struct {
    double epsilon;
    Interval remove, add;
  } known[] = {
      {.5, {.1491775168, .1491775427}, {.1426869594, .1426869859}},
      {1, {.0592064968, .0592065144}, {.0501976581, .0501976757}},
  };
  for (const auto& row : known) {
    const Interval r = delta(1, 2, 1, row.epsilon, Direction::kRemove, 1e-5);
    const Interval a = delta(1, 2, 1, row.epsilon, Direction::kAdd, 1e-5);
    EXPECT_LE(r.lower, row.remove.upper);
    EXPECT_GE(r.upper, row.remove.lower);
    EXPECT_LE(a.lower, row.add.upper);
    EXPECT_GE(a.upper, row.add.lower);
    EXPECT_LE(r.upper - r.lower, 1e-5 * r.upper);
  }
}

// Given two of three, the third integrates in closed form to a smooth function.
TEST(Allocation, ContainsTheQuadratureForThreeBatches) {
  for (const double sigma : {0.5, 1.0})
    for (const double e : {0.25, 1.5}) {
      const auto tails = [&](double strike) {  // E(V - k)+ and E(k - V)+
        if (strike <= 0) return std::pair{1 - strike, 0.0};
        const double above = sigma * std::log(strike) - 0.5 / sigma;
        const double below = above + 1 / sigma;
        return std::pair{normal_tail(above) - strike * normal_tail(below),
                         strike * normal_tail(-below) - normal_tail(-above)};
      };
      const double h = 0.03;
      double remove = 0, add = 0;
      for (int i = -400; i <= 400; ++i)
        for (int j = -400; j <= i; ++j) {
          const double x = i * h, y = j * h;
          if (x * x + y * y > 150) continue;
          const double v = std::exp(x / sigma - 0.5 / (sigma * sigma)) +
                           std::exp(y / sigma - 0.5 / (sigma * sigma));
          const double weight =
              (i == j ? 1 : 2) * h * h / (2 * M_PI) * std::exp(-0.5 * (x * x + y * y));
          remove += weight * tails(3 * std::exp(e) - v).first / 3;
          add += weight * std::exp(e) * tails(3 * std::exp(-e) - v).second / 3;
        }
      const Interval r = delta(sigma, 3, 1, e, Direction::kRemove, 1e-3);
      const Interval a = delta(sigma, 3, 1, e, Direction::kAdd, 1e-3);
      EXPECT_LE(r.lower, remove * (1 + 1e-7)) << sigma << ' ' << e;
      EXPECT_GE(r.upper, remove * (1 - 1e-7)) << sigma << ' ' << e;
      EXPECT_LE(a.lower, add * (1 + 1e-7)) << sigma << ' ' << e;
      EXPECT_GE(a.upper, add * (1 - 1e-7)) << sigma << ' ' << e;
    }
}

// Simulates the mechanism. With a new seed, each comparison would fail with probability 6e-7.
TEST(Allocation, AgreesWithSimulatedEpochs) {
  const struct {
    double sigma;
    int batches, epochs;
    double epsilon;
  } settings[] = {{1, 10, 1, 0.5}, {0.8, 100, 3, 0.4}, {0.5, 25, 2, 1.5}, {2, 7, 20, 1}};
  std::mt19937_64 random(20240607);
  std::normal_distribution<double> normal;
  for (const auto& s : settings) {
    const int samples = 40000;
    double sums[4] = {};
    for (int k = 0; k < samples; ++k) {
      double with = 1, without = 1;  // likelihood ratios, drawn under P and under Q
      for (int e = 0; e < s.epochs; ++e) {
        double rest = 0, first_p = 0, first_q = 0;
        for (int i = 0; i < s.batches; ++i) {
          const double z = normal(random);
          const double v = std::exp(z / s.sigma - 0.5 / (s.sigma * s.sigma));
          if (i > 0) {
            rest += v;
          } else {
            first_q = v;
            first_p = v * std::exp(1 / (s.sigma * s.sigma));
          }
        }
        with *= (first_p + rest) / s.batches;
        without *= (first_q + rest) / s.batches;
      }
      const double r = std::max(0.0, 1 - std::exp(s.epsilon) / with);
      const double a = std::max(0.0, 1 - std::exp(s.epsilon) * without);
      sums[0] += r, sums[1] += r * r, sums[2] += a, sums[3] += a * a;
    }
    for (int d = 0; d < 2; ++d) {
      const double mean = sums[std::size_t{2} * std::size_t(d)] / samples;
      const double error = std::sqrt((sums[2 * d + 1] / samples - mean * mean) / samples);
      const Interval certified = delta(s.sigma, std::uint64_t(s.batches), std::uint64_t(s.epochs),
                                       s.epsilon, kBoth[d], 1e-3);
      EXPECT_LE(certified.lower, mean + 5 * error) << s.sigma << ' ' << d;
      EXPECT_GE(certified.upper, mean - 5 * error) << s.sigma << ' ' << d;
      EXPECT_LT(error, 0.03 * mean) << "too few samples to tell anything";
    }
  }
}

// E M^a = a! t^-a [x^a] (sum_k e^{k(k-1)/2 sigma^2} x^k / k!)^t.
long double exact_moment(double sigma, std::uint64_t batches, int order) {
  std::vector<long double> base(std::size_t(order) + 1), power(base.size());
  long double factorial = 1;
  for (int k = 0; k <= order; ++k) {
    if (k > 0) factorial *= k;
    base[std::size_t(k)] = std::exp(0.5L * k * (k - 1) / ((long double)sigma * sigma)) / factorial;
  }
  power[0] = 1;
  const auto multiply = [&](const auto& a, const auto& b) {
    std::vector<long double> c(a.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; i + j < a.size(); ++j) c[i + j] += a[i] * b[j];
    return c;
  };
  for (std::uint64_t n = batches; n > 0; n >>= 1) {
    if (n & 1) power = multiply(power, base);
    base = multiply(base, base);
  }
  return factorial * power.back() / std::pow((long double)batches, (long double)order);
}

TEST(Allocation, LawsBracketTheExactMoments) {
  const struct {
    double sigma;
    std::uint64_t batches;
    int order;
  } settings[] = {{1, 2, 4},    {1, 1000, 8},   {2, 100, 16},
                  {0.7, 37, 3}, {5, 10000, 32}, {1, 7777, 8}};
  for (const auto& s : settings) {
    // So small a cut that truncation does not matter to these orders.
    const double step = std::ldexp(1.0, std::ilogb(0.1 / std::sqrt(double(s.batches)) / s.sigma));
    const auto up = allocation_law(s.sigma, s.batches, step, 1e-60, Rounding::kUp);
    const auto down = allocation_law(s.sigma, s.batches, step, 1e-60, Rounding::kDown);
    for (int order = 2; order <= s.order; order *= 2) {
      const long double exact = exact_moment(s.sigma, s.batches, order);
      const auto moment = [&](const GeometricLaw& law) {
        long double sum = 0;
        for (std::size_t i = 0; i < law.mass.size(); ++i)
          sum += law.mass[i] * std::exp((long double)order *
                                        ((long double)(law.first + std::int64_t(i)) * law.step -
                                         std::log((long double)s.batches)));
        return sum;
      };
      EXPECT_GE(moment(up), exact * (1 - 1e-9L)) << s.sigma << ' ' << s.batches << ' ' << order;
      EXPECT_LE(moment(down), exact * (1 + 1e-9L)) << s.sigma << ' ' << s.batches << ' ' << order;
      EXPECT_LE(moment(up) - moment(down), 0.1L * exact) << s.sigma << ' ' << s.batches;
    }
  }
}

TEST(Allocation, IntervalsFromThreeGridsIntersectOnRandomSettings) {
  std::mt19937_64 random(7);
  const auto log_uniform = [&](double low, double high) {
    return low * std::exp(std::uniform_real_distribution<>(0, std::log(high / low))(random));
  };
  for (int k = 0; k < 60; ++k) {
    const double sigma = log_uniform(0.25, 8);
    const auto batches = std::uint64_t(log_uniform(1, 20000));
    const auto epochs = std::uint64_t(log_uniform(1, 1000));
    const double d = log_uniform(1e-12, 1e-3);
    for (const Direction direction : kBoth) {
      Interval all{0, HUGE_VAL};
      for (const double width : {0.3, 0.03, 0.01}) {
        const Interval e = epsilon(sigma, batches, epochs, d, direction, width);
        EXPECT_LE(e.lower, e.upper);
        all = {std::max(all.lower, e.lower), std::min(all.upper, e.upper)};
      }
      EXPECT_LE(all.lower, all.upper) << sigma << ' ' << batches << ' ' << epochs << ' ' << d;
    }
  }
}

TEST(Allocation, ComposesEpochsOfDifferentKinds) {
  const AllocationEpochs whole[] = {{1, 100, 5}};
  const AllocationEpochs parts[] = {{1, 100, 2}, {1, 100, 3}};
  const AllocationEpochs mixed[] = {{1, 100, 2}, {0.9, 60, 3}};
  const AllocationEpochs worse[] = {{0.9, 60, 5}};
  for (const Direction direction : kBoth) {
    const Interval a = allocation_epsilon(whole, 1e-6, direction, 1e-3);
    const Interval b = allocation_epsilon(parts, 1e-6, direction, 1e-3);
    const Interval c = allocation_epsilon(mixed, 1e-6, direction, 1e-3);
    const Interval d = allocation_epsilon(worse, 1e-6, direction, 1e-3);
    EXPECT_LE(std::max(a.lower, b.lower), std::min(a.upper, b.upper));
    EXPECT_LT(a.upper, c.lower);
    EXPECT_LT(c.upper, d.lower);
    EXPECT_LE(c.upper - c.lower, 1e-3 * c.upper);
  }
}

TEST(Allocation, OfOneBatchAndManyKindsIsOneGaussian) {
  const AllocationEpochs kinds[] = {{2, 1, 3}, {5, 1, 7}, {1.5, 1, 1}};
  const double mu = std::sqrt(3 / 4.0 + 7 / 25.0 + 1 / 2.25);
  const Interval d = allocation_delta(kinds, 1, Direction::kRemove, 1e-4);
  EXPECT_LE(d.lower, gaussian_delta(mu, 1));
  EXPECT_GE(d.upper, gaussian_delta(mu, 1));
}

TEST(Allocation, GivesTheWorseDirectionForAddRemove) {
  const AllocationEpochs kind[] = {{1, 100, 10}};
  const Interval both = allocation_epsilon(kind, 1e-5, 1e-3);
  const Interval remove = allocation_epsilon(kind, 1e-5, Direction::kRemove, 1e-3);
  EXPECT_LE(both.lower, remove.upper);
  EXPECT_GE(both.upper, remove.lower);
}

TEST(Allocation, IsZeroWhereDeltaIsGenerous) {
  const Interval e = epsilon(100, 1000, 1, 0.5, Direction::kRemove, 1e-2);
  EXPECT_EQ(e.lower, 0);
  EXPECT_EQ(e.upper, 0);
}

TEST(Allocation, SurvivesExtremeSettings) {
  for (const Direction direction : kBoth) {
    const Interval tiny = epsilon(1, 100, 10, 1e-40, direction, 1e-2);
    EXPECT_LE(tiny.lower, tiny.upper);
    EXPECT_LE(tiny.upper - tiny.lower, 0.02 * tiny.upper);
    const Interval loud = epsilon(0.1, 3, 2, 1e-6, direction, 1e-2);
    EXPECT_LE(loud.lower, loud.upper);
    EXPECT_GT(loud.lower, 10);
    const Interval quiet = epsilon(1000, 5, 10, 1e-6, direction, 1e-1);
    EXPECT_LE(quiet.lower, quiet.upper);
    EXPECT_LT(quiet.upper, 0.1);
    const Interval many = epsilon(1, 1 << 20, 100, 1e-8, direction, 1e-1);
    EXPECT_LE(many.lower, many.upper);
    EXPECT_TRUE(std::isfinite(many.upper));
    const Interval long_run = epsilon(2, 1000, std::uint64_t{1} << 20, 1e-6, direction, 1e-1);
    EXPECT_LE(long_run.lower, long_run.upper);
    EXPECT_TRUE(std::isfinite(long_run.upper));
    const Interval fine = epsilon(0.1, 1, 1, 1e-6, direction, 1e-6);
    EXPECT_LE(fine.lower, fine.upper);
    EXPECT_LE(fine.upper - fine.lower, 1e-3 * fine.upper);
  }
}

TEST(Allocation, RefusesArgumentsOutsideTheirRange) {
  const AllocationEpochs good{1, 10, 1};
  const AllocationEpochs bad[] = {{0, 10, 1},   {NAN, 10, 1},    {0.05, 10, 1},
                                  {1e4, 10, 1}, {-1, 10, 1},     {INFINITY, 10, 1},
                                  {1, 0, 1},    {1, 1 << 25, 1}, {1, 10, 0}};
  for (const AllocationEpochs& kind : bad) {
    try {
      allocation_epsilon(std::span(&kind, 1), 1e-5, 1e-2);
      ADD_FAILURE() << kind.sigma << " " << kind.batches << " " << kind.epochs;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidDpConfig);
    }
  }
  const std::span one(&good, 1);
  for (const double d : {0.0, 1.0, -1.0, double(NAN), 1e-200})
    EXPECT_THROW(allocation_epsilon(one, d, 1e-2), Error);
  for (const double width : {0.0, 2.0, double(NAN), 1e-9})
    EXPECT_THROW(allocation_epsilon(one, 1e-5, width), Error);
  for (const double e : {-1.0, double(NAN), double(INFINITY)})
    EXPECT_THROW(allocation_delta(one, e, Direction::kAdd, 1e-2), Error);
  EXPECT_THROW(allocation_epsilon({}, 1e-5, 1e-2), Error);
}

}  // namespace
}  // namespace discreet::accounting
