#include "discreet/accounting/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kTolerance = 1e-4;
// epsilon must be known more accurately than the setting, but not more than that requires.
constexpr Accuracy kAccuracy{1e-8, 2e-5};

constexpr const char* kOperator = "calibrate";

void check(const Target& target) {
  if (!(target.epsilon > 0) || !std::isfinite(target.epsilon))
    invalid_config(kOperator, "the target epsilon is {}; it must be a finite number above 0",
                   target.epsilon);
  if (!(target.delta > 0 && target.delta < 1))
    invalid_config(kOperator, "delta is {}; it must be in (0, 1)", target.delta);
}

// Rejects what Event rejects, with the same message.
Composition steps_of(double rate, double noise_multiplier, std::uint64_t steps) {
  return reduce({{Event(Gaussian{noise_multiplier}, Poisson{rate}, Adjacency::kAddRemove), steps}});
}

// Searches x = "strictness" on a logarithmic scale; epsilon decreases in x. Finds the smallest x
// that keeps the promise.
class Search {
 public:
  Search(const Target& target, std::function<Composition(double)> at)
      : target_(target), at_(std::move(at)) {}

  struct Point {
    double x;
    Certified epsilon;
    double height;  // log(epsilon.upper / target): <= 0 keeps the promise
  };

  Point evaluate(double x) {
    ++evaluations;
    Point point{x, {{0, HUGE_VAL}, Path::kTransform, Direction::kRemove}, 0};
    try {
      point.epsilon = certified_group_epsilon(at_(x), target_.group, target_.delta, kAccuracy);
    } catch (const Error& error) {
      // An epsilon beyond binary64 is above every target.
      if (error.code() != ErrorCode::kAccountantOverflow) throw;
    }
    const double upper = point.epsilon.value.upper;
    // Decisions compare exactly; the logarithm only guides.
    point.height =
        std::clamp(numerics::log(std::max(upper, 1e-300) / target_.epsilon), -50.0, 50.0);
    if (upper <= target_.epsilon) {
      point.height = std::min(point.height, -1e-300);
    } else {
      point.height = std::max(point.height, 1e-300);
    }
    return point;
  }

  static bool keeps(const Point& point) { return point.height < 0; }

  // Narrows to bad.x < good.x with good.x <= bad.x (1 + tolerance), by false position with the
  // Illinois weights and bisection whenever that stalls.
  void narrow(
      Point& bad, Point& good, double tolerance,
      const std::function<double(double, double, double)>& round = [](double x, double, double) {
        return x;
      }) {
    double bad_height = bad.height, good_height = good.height;
    int side = 0;
    while (good.x > bad.x * (1 + tolerance) && evaluations < kMaxEvaluations) {
      const double low = numerics::log(bad.x), high = numerics::log(good.x);
      double share = bad_height / (bad_height - good_height);
      const bool steep = bad.height > 2 || good.height < -2 || evaluations % 4 == 3;
      share = steep ? 0.5 : std::clamp(share, 0.0, 1.0);
      // Aim a little to either side of the estimate, so that the bracket closes from both.
      const double margin = 0.3 * numerics::log1p(tolerance);
      double aim = low + share * (high - low) + (side < 0 ? -margin : margin);
      aim = std::clamp(aim, low + 0.01 * (high - low), high - 0.01 * (high - low));
      const double x = round(numerics::exp(aim), bad.x, good.x);
      if (!(x > bad.x && x < good.x)) return;
      const Point middle = evaluate(x);
      if (keeps(middle)) {
        good = middle;
        good_height = middle.height;
        if (side < 0) bad_height /= 2;
        side = -1;
      } else {
        bad = middle;
        bad_height = middle.height;
        if (side > 0) good_height /= 2;
        side = 1;
      }
    }
  }

  bool proven(const Point& bad) const { return bad.epsilon.value.lower > target_.epsilon; }

  int evaluations = 0;

 private:
  Target target_;
  std::function<Composition(double)> at_;
};

}  // namespace

Calibrated<double> calibrate_noise_multiplier(double rate, std::uint64_t steps,
                                              const Target& target) {
  check(target);
  steps_of(rate, 1, steps);
  constexpr double kLeast = 0.05, kMost = 1e7;
  Search search(target, [&](double sigma) { return steps_of(rate, sigma, steps); });
  // A first guess from the central limit, then steps that grow until both sides are found.
  const double guess = rate * std::sqrt(static_cast<double>(steps)) *
                       std::sqrt(-2 * numerics::log(target.delta)) / target.epsilon *
                       static_cast<double>(target.group);
  Search::Point point = search.evaluate(std::clamp(guess, 0.6, 1e4));
  std::optional<Search::Point> bad, good;
  double factor = 1.3;
  for (;;) {
    (Search::keeps(point) ? good : bad) = point;
    if (bad && good) break;
    if (good && good->x <= kLeast) return {good->x, good->epsilon, false, search.evaluations};
    if ((bad && bad->x >= kMost) || search.evaluations >= kMaxEvaluations) {
      invalid_config(kOperator,
                     "no noise multiplier up to {} gives epsilon {} at delta {}: {} is attainable",
                     point.x, target.epsilon, target.delta, point.epsilon.value.upper);
    }
    const double jump = std::max(factor, numerics::exp(std::min(std::abs(point.height), 2.0)));
    point = search.evaluate(std::clamp(good ? point.x / jump : point.x * jump, kLeast, kMost));
    factor *= factor;
  }
  search.narrow(*bad, *good, 0.9 * kTolerance);
  const bool proven = good->x <= bad->x * (1 + kTolerance) && search.proven(*bad);
  return {good->x, good->epsilon, proven, search.evaluations};
}

Calibrated<std::uint64_t> calibrate_steps(double rate, double noise_multiplier,
                                          const Target& target) {
  check(target);
  // Strictness 1/T.
  const auto count = [](double x) { return static_cast<std::uint64_t>(std::llround(1 / x)); };
  Search search(target, [&](double x) { return steps_of(rate, noise_multiplier, count(x)); });
  Search::Point good = search.evaluate(1);
  if (!Search::keeps(good)) {
    invalid_config(
        kOperator,
        "even one step has epsilon {} at delta {}, above {}; add noise or lower the rate",
        good.epsilon.value.upper, target.delta, target.epsilon);
  }
  constexpr double kMost = 0x1p50;
  double factor = 16;
  std::optional<Search::Point> bad;
  while (!bad && search.evaluations < kMaxEvaluations) {
    if (1 / good.x >= kMost) return {count(good.x), good.epsilon, false, search.evaluations};
    const double grown = std::min(std::round(1 / good.x * factor), kMost);
    const Search::Point point = search.evaluate(1 / grown);
    if (Search::keeps(point)) {
      good = point;
      factor *= 2;
    } else {
      bad = point;
    }
  }
  if (!bad) return {count(good.x), good.epsilon, false, search.evaluations};
  // A whole number strictly between the ends, where there is one.
  const auto whole = [](double x, double bad_x, double good_x) {
    const double few = std::round(1 / good_x) + 1, many = std::round(1 / bad_x) - 1;
    return few <= many ? 1 / std::clamp(std::round(1 / x), few, many) : bad_x;
  };
  search.narrow(*bad, good, 0.9 * kTolerance, whole);
  const std::uint64_t most = count(good.x), least_bad = count(bad->x);
  const bool close = least_bad == most + 1 || good.x <= bad->x * (1 + kTolerance);
  return {most, good.epsilon, close && search.proven(*bad), search.evaluations};
}

Calibrated<double> calibrate_rate(double noise_multiplier, std::uint64_t steps,
                                  const Target& target) {
  check(target);
  steps_of(1, noise_multiplier, steps);
  // Strictness 1/q.
  constexpr double kMost = 1e12;
  const auto rate = [](double x) { return std::min(1 / x, 1.0); };
  Search search(target, [&](double x) { return steps_of(rate(x), noise_multiplier, steps); });
  Search::Point bad = search.evaluate(1);
  if (Search::keeps(bad)) return {1, bad.epsilon, true, search.evaluations};
  std::optional<Search::Point> good;
  double factor = 4;
  while (!good) {
    if (bad.x >= kMost || search.evaluations >= kMaxEvaluations) {
      invalid_config(kOperator,
                     "no sampling rate down to {} gives epsilon {} at delta {}: {} is attainable",
                     rate(bad.x), target.epsilon, target.delta, bad.epsilon.value.upper);
    }
    const Search::Point point = search.evaluate(std::min(bad.x * factor, kMost));
    if (Search::keeps(point)) {
      good = point;
    } else {
      bad = point;
      factor *= 2;
    }
  }
  search.narrow(bad, *good, 0.9 * kTolerance);
  const bool proven = good->x <= bad.x * (1 + kTolerance) && search.proven(bad);
  return {rate(good->x), good->epsilon, proven, search.evaluations};
}

Certified calibrate_delta(double rate, double noise_multiplier, std::uint64_t steps,
                          double epsilon) {
  return certified_delta(steps_of(rate, noise_multiplier, steps), epsilon);
}

}  // namespace discreet::accounting
