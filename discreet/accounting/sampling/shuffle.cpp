#include "discreet/accounting/sampling/shuffle.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "discreet/accounting/sampling/ranges_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

constexpr double kUnit = 0x1p-53;
constexpr double kHalfSqrt2 = 0.7071067811865476;
constexpr std::uint64_t kMostEpochs = 4096;  // the attacker may forget the others
constexpr double kMargin = 1e-7;             // relative, of binomial tails; see shuffle.md

constexpr Ranges check{"shuffle"};

// Above delta(epsilon) of the Gaussian mechanism (Balle and Wang 2018), rounding included.
double gaussian_delta_upper(double mu, double epsilon) {
  const double a = epsilon / mu - mu / 2, b = epsilon / mu + mu / 2;
  const double tail = 0.5 * numerics::erfc(a * kHalfSqrt2);
  const double exponent = epsilon + numerics::log_erfc(b * kHalfSqrt2);
  const double scaled = 0.5 * exp(exponent);
  const double size = epsilon + mu * mu + 1;
  const double error = kUnit * ((16 + 16 * (std::abs(a) + 1) * (std::abs(a) + mu)) * tail +
                                (16 + 32 * b * b + 32 * size) * scaled);
  return tail - scaled + error;
}

double gaussian_epsilon_upper(double mu, double delta) {
  if (gaussian_delta_upper(mu, 0) <= delta) return 0;
  double low = 0, high = 1;
  while (gaussian_delta_upper(mu, high) > delta) low = high, high *= 2;
  for (int i = 0; i < 80 && high - low > 1e-14 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (gaussian_delta_upper(mu, middle) <= delta ? high : low) = middle;
  }
  return high;
}

// log Phi(x).
double log_normal_cdf(double x) {
  if (x > 0) return log1p(-0.5 * numerics::erfc(x * kHalfSqrt2));
  return numerics::log_erfc(-x * kHalfSqrt2) - 0.6931471805599453;
}

// All terms of Bin(trials, p), from the logarithms of p and 1 - p.
std::vector<double> binomial(std::size_t trials, double log_p, double log_rest,
                             const std::vector<double>& logs) {
  std::vector<double> mass(trials + 1);
  double term = double(trials) * log_rest;
  for (std::size_t k = 0; k <= trials; ++k) {
    mass[k] = term;
    if (k < trials) term += logs[trials - k] - logs[k + 1] + (log_p - log_rest);
  }
  exp(mass, mass);
  return mass;
}

class Attack {
 public:
  // moved: by how much the record's batch moves in the neighbour, 1 (zero-out) or 0 (replaced).
  Attack(ShuffledEpochs epochs, double delta, double moved)
      : epochs_(epochs),
        delta_(delta),
        moved_(moved),
        trials_(std::size_t(std::min(epochs.epochs, kMostEpochs))),
        logs_(trials_ + 1) {
    for (std::size_t i = 1; i <= trials_; ++i) logs_[i] = log(double(i));
  }

  // The epsilon proved by the events "at least k epochs had a batch above the threshold", best k,
  // and their complements.
  double epsilon_at(double threshold) const {
    const double others = double(epochs_.batches - 1) * log_normal_cdf(threshold / epochs_.sigma);
    const double quiet1 = others + log_normal_cdf((threshold - 2) / epochs_.sigma);
    const double quiet0 = others + log_normal_cdf((threshold - moved_) / epochs_.sigma);
    const double p1 = -expm1(quiet1), p0 = -expm1(quiet0);
    // Logarithms this large would exceed the margin.
    if (!(p0 > 1e-290) || !(p1 < 1) || !(double(trials_) * quiet1 > -1e4)) return 0;
    const auto with = binomial(trials_, log(p1), quiet1, logs_);
    const auto without = binomial(trials_, log(p0), quiet0, logs_);
    double best = 0, above1 = 0, above0 = 0, below1 = 0, below0 = 0;
    const auto consider = [&](double more, double less) {
      const double excess = more * (1 - kMargin) - delta_;
      if (excess > 0 && less > 0)
        best = std::max(best, log(excess / (less * (1 + kMargin) + 1e-290)));
    };
    for (std::size_t k = 0; k <= trials_; ++k) {
      above1 += with[trials_ - k];
      above0 += without[trials_ - k];
      consider(above1, above0);
      below1 += with[k];
      below0 += without[k];
      consider(below0, below1);
    }
    return best;
  }

  double best() const {
    double low = -2 * epochs_.sigma, high = 2 + 12 * epochs_.sigma, found = 0;
    for (int round = 0; round < 3; ++round) {
      const int points = round == 0 ? 64 : 16;
      const double gap = (high - low) / points;
      double at = low;
      for (int i = 0; i <= points; ++i) {
        const double value = epsilon_at(low + i * gap);
        if (value > found) found = value, at = low + i * gap;
      }
      low = at - gap, high = at + gap;
    }
    return found;
  }

 private:
  ShuffledEpochs epochs_;
  double delta_;
  double moved_;
  std::size_t trials_;
  std::vector<double> logs_;
};

Interval epsilon(ShuffledEpochs epochs, double delta, double sensitivity, double moved) {
  check(epochs.sigma >= 0.01 && epochs.sigma <= 1000, "sigma must be in [0.01, 1000]; it",
        epochs.sigma);
  const auto limit = std::uint64_t{1} << 32;
  check(epochs.batches >= 1 && epochs.batches <= limit, "batches must be in [1, 2^32]; it",
        double(epochs.batches));
  check(epochs.epochs >= 1 && epochs.epochs <= limit, "epochs must be in [1, 2^32]; it",
        double(epochs.epochs));
  check.delta(delta);
  const double mu = sensitivity * std::sqrt(double(epochs.epochs)) / epochs.sigma;
  const double upper = gaussian_epsilon_upper(mu * (1 + 4 * kUnit), delta);
  return {std::min(upper, Attack(epochs, delta, moved).best()), upper};
}

}  // namespace

Interval shuffle_zero_out_epsilon(ShuffledEpochs epochs, double delta) {
  return epsilon(epochs, delta, 1, 1);
}

Interval shuffle_replace_one_epsilon(ShuffledEpochs epochs, double delta) {
  return epsilon(epochs, delta, 2, 0);
}

}  // namespace discreet::accounting
