#include "tests/conformance/falsifier.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace discreet::conformance {
namespace {

bool beyond(double loss, Direction direction, double epsilon) {
  return direction == Direction::kRemove ? loss > epsilon : loss < -epsilon;
}

}  // namespace

Verdict judge(std::size_t first, std::size_t second, std::size_t both, std::size_t trials,
              double epsilon, double delta) {
  const double n = static_cast<double>(trials), growth = std::exp(epsilon);
  const double p = static_cast<double>(first), q = static_cast<double>(second);
  const double mean = (p - growth * q) / n;
  const double squares = p + growth * growth * q - 2 * growth * static_cast<double>(both);
  const double variance = (squares - n * mean * mean) / (n - 1);
  const double level = std::log(2 / kFalseAlarm);
  const double slack =
      std::sqrt(2 * variance * level / n) + 7 * level * (1 + growth) / (3 * (n - 1));
  return {mean - slack - delta, std::sqrt(variance / n)};
}

Verdict falsify(const Losses& losses, Direction direction, double epsilon, double delta) {
  std::size_t first = 0, second = 0, both = 0;
  for (std::size_t i = 0; i < losses.with.size(); ++i) {
    const bool with = beyond(losses.with[i], direction, epsilon);
    const bool without = beyond(losses.without[i], direction, epsilon);
    first += with;
    second += without;
    both += with && without;
  }
  if (direction == Direction::kAdd) std::swap(first, second);
  return judge(first, second, both, losses.with.size(), epsilon, delta);
}

double enumerated_epsilon(std::span<const Outcome> outcomes, int steps, Direction direction,
                          double delta) {
  std::vector<Outcome> all{{1, 1}};
  for (int step = 0; step < steps; ++step) {
    std::vector<Outcome> next;
    next.reserve(all.size() * outcomes.size());
    for (const Outcome& a : all) {
      for (const Outcome& b : outcomes) next.push_back({a.with * b.with, a.without * b.without});
    }
    all = std::move(next);
  }
  double low = 0, high = 50;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2, growth = std::exp(middle);
    double sum = 0;
    for (const Outcome& o : all) {
      sum += std::max(0.0, direction == Direction::kRemove ? o.with - growth * o.without
                                                           : o.without - growth * o.with);
    }
    (sum > delta ? low : high) = middle;
  }
  return low;
}

}  // namespace discreet::conformance
