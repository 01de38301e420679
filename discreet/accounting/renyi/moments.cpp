#include "discreet/accounting/renyi/moments.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/renyi/rdp_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {

double moments_epsilon(const MomentSum& moments, double delta) {
  const double budget = -numerics::log(delta);
  double best = kInfinity;
  for (int lambda = 1; lambda <= kMaxMoment; ++lambda) {
    const double moment = moments(lambda + 1).value.upper;
    best = std::min(best, (moment + budget) / lambda * (1 + 8 * kUnit));
    // alpha is convex with alpha(0) = 0, so alpha(lambda)/lambda never falls again.
    if (moment / lambda > best) break;
  }
  return best;
}

double moments_delta(const MomentSum& moments, double epsilon) {
  double best = 0;  // the logarithm
  for (int lambda = 1; lambda <= kMaxMoment; ++lambda) {
    const double moment = moments(lambda + 1).value.upper;
    const double exponent = moment - lambda * epsilon;
    if (std::isfinite(moment)) {
      best = std::min(best, exponent + 4 * kUnit * (moment + lambda * epsilon));
    }
    if (moment / lambda > epsilon && exponent > best) break;
  }
  return std::min(1.0, numerics::exp(best) * (1 + 4 * kUnit) + kUnderflow);
}

}  // namespace discreet::accounting
