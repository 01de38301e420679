#include "discreet/mechanism/step/amplification.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/sampling/shuffle_model.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/clip/clip.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

double upper_epsilon(const accounting::Event& event, double delta) {
  const auto accountant = accounting::make_accountant("pld");
  accountant->compose(event);
  return accountant->epsilon(delta).epsilon.upper;
}

}  // namespace

double amplification_factor(const SamplingPlan& plan, double noise_multiplier, double delta) {
  plan.check();
  if (subsampling_of(plan.mode) != Subsampling::kShuffleWithoutReplacement)
    invalid_config("AmplificationByShuffling_v1",
                   "{} does not shuffle; its events already include its amplification",
                   spelling(plan.mode));
  const accounting::Gaussian noise{noise_multiplier};
  const double open = upper_epsilon({noise, accounting::NoSampling{}, plan.adjacency}, delta);
  const double hidden = upper_epsilon({noise, plan.sampling(), plan.adjacency}, delta);
  return open / std::max(hidden, kEpsDenom);
}

InjectionBounds injection_bounds(double multiplier, std::uint64_t slots, double delta) {
  // Replacing a record moves the sum by two bounds.
  const double mu = numerics::round_up(2 / multiplier, 2);
  InjectionBounds out{accounting::gaussian_epsilon(mu, delta).upper, {}};
  const double local_mu = numerics::round_up(mu * std::sqrt(static_cast<double>(slots)), 2);
  // The cost of the local delta depends on the result, so several are tried.
  for (double share = 1e-2; share > 1e-16; share *= 1e-2) {
    const double delta0 = delta * share / static_cast<double>(slots);
    const double epsilon0 = accounting::gaussian_epsilon(local_mu, delta0).upper;
    if (!(epsilon0 > 0 && epsilon0 < 300)) continue;
    const accounting::ShuffledRecords records{slots, epsilon0, delta0};
    const double found = accounting::shuffle_epsilon(records, delta).upper;
    out.shuffled = std::min(found, out.shuffled.value_or(found));
  }
  return out;
}

}  // namespace discreet::mechanism
