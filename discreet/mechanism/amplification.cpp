#include "discreet/mechanism/amplification.h"

#include <fmt/core.h>

#include <algorithm>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "discreet/mechanism/clip.h"
#include "discreet/mechanism/config_table.h"
#include "discreet/mechanism/prevalidation.h"

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
    throw Error(ErrorCode::kInvalidDpConfig, "AmplificationByShuffling_v1",
                fmt::format("{} does not shuffle; its amplification is in its own events",
                            spelling(plan.mode)));
  const accounting::Gaussian noise{noise_multiplier};
  const double open = upper_epsilon({noise, accounting::NoSampling{}, plan.adjacency}, delta);
  const double hidden = upper_epsilon({noise, plan.sampling(), plan.adjacency}, delta);
  return open / std::max(hidden, kEpsDenom);
}

}  // namespace discreet::mechanism
