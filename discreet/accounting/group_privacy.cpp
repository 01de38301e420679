#include "discreet/accounting/group_privacy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/least_impl.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"

namespace discreet::accounting {
namespace {

constexpr Accuracy kAccuracy{1e-6, 1e-4};
// Below this the curve's upper end is arithmetic and no longer the curve.
constexpr double kLeastDelta = 1e-200;

Composition composition_of(double rate, double sigma, std::uint64_t count) {
  return {{{rate, sigma, count}}, {}};
}

// At least log((e^(G e) - 1) / (e^e - 1)).
double log_factor_upper(double epsilon, double size) {
  if (epsilon == 0) return numerics::log(size) * (1 + 1e-12) + 1e-12;
  const double whole = size * epsilon;
  const double value = (whole - epsilon) + numerics::log(-numerics::expm1(-whole)) -
                       numerics::log(-numerics::expm1(-epsilon));
  return value + 1e-12 * (1 + whole + std::abs(numerics::log(epsilon)));
}

double by_conversion(const Composition& steps, double size, double delta, double epsilon_of_one) {
  const double log_delta = numerics::log(delta);
  const auto evaluate = [&](double epsilon) -> Trial<double> {
    const double one = certified_delta(steps, epsilon, kAccuracy).value.upper;
    const double log_one = numerics::log(std::max(one, kLeastDelta)) + 1e-12;
    return {epsilon, log_one + log_factor_upper(epsilon, size) - log_delta, epsilon};
  };
  // log_factor grows at least like (G - 1) e: past this the least delta cannot be enough.
  const double most = (log_delta - numerics::log(kLeastDelta)) / std::max(size - 1, 1e-3);
  if (evaluate(0).height <= 0) return 0;
  const double least = 1e-6, start = std::max(epsilon_of_one, least);
  if (start > most) return HUGE_VAL;
  const auto found = least_keeping<double>(evaluate, start, least, most, 1e-4);
  return found.height <= 0 ? numerics::next_up(size * found.value) : HUGE_VAL;
}

double jointly(const GaussianSteps& steps, double size, double delta) {
  const double rate =
      steps.rate == 1
          ? 1
          : std::min(1.0,
                     numerics::round_up(-numerics::expm1(size * numerics::log1p(-steps.rate)), 16));
  const double sigma = numerics::next_down(steps.sigma / size);
  try {
    return certified_epsilon(composition_of(rate, sigma, steps.count), delta, kAccuracy)
        .value.upper;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kAccountantOverflow) throw;
    return HUGE_VAL;
  }
}

}  // namespace

std::string_view to_string(GroupBound bound) noexcept {
  return bound == GroupBound::kConversion ? "conversion" : "joint";
}

GroupEpsilon group_epsilon(const GaussianSteps& steps, std::uint64_t size, double delta) {
  if (size < 1 || size > std::uint64_t{1} << 32) {
    throw Error(ErrorCode::kInvalidDpConfig, "group_epsilon",
                fmt::format("the group size is {}; give a whole number from 1 to 2^32", size));
  }
  // The event refuses what is out of range, with its words.
  const Event event(Gaussian{steps.sigma}, Poisson{steps.rate}, Adjacency::kAddRemove);
  const Composition one_record = reduce({{event, steps.count}});
  const Interval one = certified_epsilon(one_record, delta).value;
  if (size == 1) return {one, GroupBound::kJoint};
  const double joint = jointly(steps, double(size), delta);
  const double converted = by_conversion(one_record, double(size), delta, one.upper);
  return {{one.lower, std::min(joint, converted)},
          joint <= converted ? GroupBound::kJoint : GroupBound::kConversion};
}

}  // namespace discreet::accounting
