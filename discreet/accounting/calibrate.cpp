#include "discreet/accounting/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "discreet/accounting/least.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kTolerance = 1e-4;
// epsilon must be known more accurately than the setting, but not more than that requires.
constexpr double kContour = 1e-8, kFine = 2e-5;
constexpr double kRough = 1e-2, kNear = 0.05;  // far from the target

constexpr const char* kOperator = "calibrate";

// Rejects what Event rejects, with the same message.
Composition steps_of(double rate, double noise_multiplier, std::uint64_t steps) {
  return reduce({{Event(Gaussian{noise_multiplier}, Poisson{rate}, Adjacency::kAddRemove), steps}});
}

// Searches x = "strictness" on a logarithmic scale; epsilon decreases in x. Finds the smallest x
// that keeps the promise. (Steps are counted by most_keeping().)
class Search {
 public:
  Search(const Target& target, Evaluation evaluation, std::function<Composition(double)> at)
      : target_(target), evaluation_(evaluation), at_(std::move(at)) {}

  struct Point {
    double x;
    Certified epsilon;
    double height;  // log(epsilon.upper / target): <= 0 keeps the promise
  };

  Point evaluate(double x) {
    ++evaluations;
    Point point{x, {{0, HUGE_VAL}, Path::kTransform, Direction::kRemove}, 0};
    try {
      point.epsilon =
          evaluation_ == Evaluation::kNear
              ? epsilon_near(at_(x), target_)
              : certified_group_epsilon(at_(x), target_.group, target_.delta, {kContour, kFine});
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
  void narrow(Point& bad, Point& good, double tolerance) {
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
      const double x = numerics::exp(aim);
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
  Evaluation evaluation_;
  std::function<Composition(double)> at_;
};

}  // namespace

void check_target(const char* op, const Target& target) {
  if (!(target.epsilon > 0) || !std::isfinite(target.epsilon))
    invalid_config(op, "the target epsilon is {}; it must be a finite number above 0",
                   target.epsilon);
  if (!(target.delta > 0 && target.delta < 1))
    invalid_config(op, "delta is {}; it must be in (0, 1)", target.delta);
}

Certified epsilon_near(const Composition& steps, const Target& target) {
  // Widths are relative for groups. For one record they are absolute above 1, and follow epsilon
  // below.
  const double scale = target.group > 1 ? 1 : std::max(target.epsilon, 1.0);
  const auto evaluate = [&](double width) {
    return certified_group_epsilon(steps, target.group, target.delta,
                                   {kContour, std::min(width * scale, 1.0)});
  };
  const Certified rough = evaluate(kRough);
  const Interval& found = rough.value;
  const bool is_far =
      found.lower > target.epsilon * (1 + kNear) || found.upper < target.epsilon * (1 - kNear);
  if (is_far || found.upper - found.lower <= kFine * target.epsilon) return rough;
  return evaluate(kFine);
}

Calibrated<double> calibrate_noise_multiplier(double rate, std::uint64_t steps,
                                              const Target& target, Evaluation evaluation) {
  check_target(kOperator, target);
  steps_of(rate, 1, steps);
  constexpr double kLeast = 0.05, kMost = 1e7;
  Search search(target, evaluation, [&](double sigma) { return steps_of(rate, sigma, steps); });
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
  check_target(kOperator, target);
  Search search(target, Evaluation::kNear, [&](double count) {
    return steps_of(rate, noise_multiplier, static_cast<std::uint64_t>(count));
  });
  const auto evaluate = [&](std::uint64_t count) -> Trial<Certified> {
    const Search::Point point = search.evaluate(static_cast<double>(count));
    return {point.x, point.height, point.epsilon};
  };
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50;
  const Most<Certified> most = most_keeping<Certified>(evaluate, 64, kMost, kMaxStepEvaluations);
  if (!most.kept) {
    invalid_config(
        kOperator,
        "even one step has epsilon {} at delta {}, above {}; add noise or lower the rate",
        most.broken->value.value.upper, target.delta, target.epsilon);
  }
  const auto found = static_cast<std::uint64_t>(most.kept->x);
  const auto breaks = [&](const Certified& more) { return more.value.lower > target.epsilon; };
  const bool proven =
      most.broken && (breaks(most.broken->value) ||
                      breaks(search.evaluate(std::ceil(most.kept->x * (1 + kTolerance))).epsilon));
  return {found, most.kept->value, proven, search.evaluations};
}

Calibrated<double> calibrate_rate(double noise_multiplier, std::uint64_t steps,
                                  const Target& target) {
  check_target(kOperator, target);
  steps_of(1, noise_multiplier, steps);
  // Strictness 1/q.
  constexpr double kMost = 1e12;
  const auto rate = [](double x) { return std::min(1 / x, 1.0); };
  Search search(target, Evaluation::kUniform,
                [&](double x) { return steps_of(rate(x), noise_multiplier, steps); });
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
