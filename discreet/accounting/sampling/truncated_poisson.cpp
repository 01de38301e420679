#include "discreet/accounting/sampling/truncated_poisson.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/sampling/ranges_impl.h"
#include "discreet/accounting/sampling/refine_impl.h"
#include "discreet/accounting/sampling/subsampled_law_impl.h"

namespace discreet::accounting {
namespace {

constexpr double kUnit = 0x1p-53;

constexpr Ranges check{"truncated_poisson"};

// P[Bin(n, q) >= k]: all terms relative to the largest, by their ratios, so that no factorial is
// needed and every number is positive.
Interval binomial_tail(std::uint64_t n, double q, std::uint64_t k) {
  if (k == 0) return {1, 1};
  if (k > n) return {0, 0};
  const auto count = double(n);
  const double odds = q / (1 - q);
  const auto mode = std::min(n, std::uint64_t((count + 1) * q));
  double inside = 0, outside = 0;  // at least k; fewer
  double farthest = 0;
  // The terms left out are below 1e-30 of their kind and fall geometrically.
  const auto walk = [&](bool up) {
    double term = 1, index = double(mode);
    for (std::uint64_t j = mode;;) {
      const bool skip = !up && j == mode;  // counted by the walk upwards
      if (!skip) (j >= k ? inside : outside) += term;
      farthest = std::max(farthest, std::abs(index - double(mode)));
      if (up ? j == n : j == 0) break;
      term *= up ? (count - index) / (index + 1) * odds : index / (count - index + 1) / odds;
      up ? ++j : --j;
      index = double(j);
      // From here on all terms are of one kind.
      const bool past = up ? j > k : j < k;
      if (term < 1e-290 || (past && term < 1e-30 * (up ? inside : outside))) break;
    }
  };
  walk(true);
  walk(false);
  const double relative = 16 * kUnit * (farthest + 16) + 1e-20;
  const double tail = inside / (inside + outside);
  return {std::max(0.0, tail * (1 - relative) - 1e-280),
          std::min(1.0, tail * (1 + relative) + 1e-280)};
}

// a x + b y on the grid of both.
GeometricLaw mixture(double a, const GeometricLaw& x, double b, const GeometricLaw& y) {
  GeometricLaw law;
  law.step = x.step;
  law.first = std::min(x.first, y.first);
  const auto end =
      std::max(x.first + std::int64_t(x.mass.size()), y.first + std::int64_t(y.mass.size()));
  law.mass.assign(std::size_t(end - law.first), 0.0);
  for (std::size_t i = 0; i < x.mass.size(); ++i)
    law.mass[std::size_t(x.first - law.first) + i] += a * x.mass[i];
  for (std::size_t i = 0; i < y.mass.size(); ++i)
    law.mass[std::size_t(y.first - law.first) + i] += b * y.mass[i];
  law.zero = a * x.zero + b * y.zero;
  law.lost = a * x.lost + b * y.lost;
  law.mass_error = std::max(x.mass_error, y.mass_error) + 4 * kUnit;
  law.position_error = std::max(x.position_error, y.position_error);
  return law;
}

Interval epsilon_for(const TruncatedPoissonSteps& steps, std::uint64_t n, double delta,
                     Direction direction, double relative_width) {
  const Truncation cut_off = truncation(steps.rate, steps.capacity, n);
  const auto count = double(steps.steps);
  const double cut = 1e-5 * delta / (30 * count);
  const bool truncates = cut_off.tau.upper > 0 && cut_off.rate_upper > 0;
  double first = first_subsampled_step(steps.rate, steps.sigma, count);
  if (cut_off.tau.upper > 1e-3)
    first = std::min(first, first_subsampled_step(cut_off.rate_upper, steps.sigma / 2,
                                                  std::max(1.0, count * cut_off.tau.upper)));
  double finest = finest_subsampled_step(steps.rate, steps.sigma, cut);
  if (truncates)
    finest = std::max(finest, finest_subsampled_step(cut_off.rate_upper, steps.sigma / 2, cut));
  const auto result = refine(std::max(first, finest), finest, [&](double step) {
    const auto law = [&](double rate, double sigma, Rounding rounding) {
      return subsampled_law(rate, sigma, step, cut, rounding);
    };
    const ScaledLaw plain = law(steps.rate, steps.sigma, Rounding::kUp);
    const GeometricLaw mixed =
        truncates ? mixture(1 - cut_off.tau.lower, plain.law, cut_off.tau.upper,
                            law(cut_off.rate_upper, steps.sigma / 2, Rounding::kUp).law)
                  : plain.law;
    const LossLaw dominating = loss_of(mixed, 1, direction);
    const LossLaw above = loss_of(plain, direction);
    const LossLaw below = loss_of(law(steps.rate, steps.sigma, Rounding::kDown), direction);
    const LossLaw realised =
        loss_of(law(cut_off.inclusion_lower, steps.sigma, Rounding::kDown), direction);
    const auto copies = [&](const LossLaw& loss) { return LossCopies{&loss, steps.steps}; };
    const LossCopies d = copies(dominating), a = copies(above), b = copies(below),
                     r = copies(realised);
    const double upper = LossSum({&d, 1}, order_for_delta({&d, 1}, delta)).epsilon_upper(delta);
    const double order = order_for_delta({&a, 1}, delta);
    const double ceiling = LossSum({&a, 1}, order).epsilon_upper(delta);
    const double lower = LossSum({&r, 1}, order).epsilon_lower(delta, ceiling);
    // The pair without truncation shows the effect of discretisation.
    const Interval shown{LossSum({&b, 1}, order).epsilon_lower(delta, ceiling), ceiling};
    return GridBounds{std::vector{Interval{std::min(lower, upper), upper}},
                      epsilon_excess(shown, relative_width)};
  });
  return result.front();
}

}  // namespace

Truncation truncation(double rate, std::uint64_t capacity, std::uint64_t n) {
  const Interval tau = binomial_tail(n - 1, rate, capacity);
  const Interval more = binomial_tail(n, rate, capacity + 1);
  const double share = double(capacity) / double(n);
  const double bound = tau.lower > 0 ? share * more.upper / tau.lower * (1 + 8 * kUnit) : rate;
  const double included = (1 - tau.upper) * rate + share * more.lower;
  // rate' <= q B / (B + 1) < q as every such batch has at least B + 1 candidates.
  return {tau, std::min(bound, rate), included * (1 - 16 * kUnit)};
}

Interval truncated_poisson_epsilon(TruncatedPoissonSteps steps, double delta, Direction direction,
                                   double relative_width) {
  const auto limit = std::uint64_t{1} << 40;
  check(steps.rate > 0 && steps.rate < 1, "the rate must be in (0, 1); it", steps.rate);
  check(steps.capacity >= 1 && steps.capacity <= limit, "the capacity must be in [1, 2^40]; it",
        double(steps.capacity));
  check(steps.records >= 1 && steps.records <= limit,
        "the public number of records must be in [1, 2^40]; it", double(steps.records));
  check(double(steps.records) * steps.rate <= 1e10, "records * rate must be at most 1e10; it",
        double(steps.records) * steps.rate);
  check.sigma(steps.sigma);
  check(steps.steps >= 1 && steps.steps <= (std::uint64_t{1} << 32),
        "the number of steps must be in [1, 2^32]; it", double(steps.steps));
  check.delta(delta);
  check.relative_width(relative_width);
  // n is the larger of the two neighbours.
  const Interval a = epsilon_for(steps, steps.records, delta, direction, relative_width);
  const Interval b = epsilon_for(steps, steps.records + 1, delta, direction, relative_width);
  return {std::max(a.lower, b.lower), std::max(a.upper, b.upper)};
}

}  // namespace discreet::accounting
