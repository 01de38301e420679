// What Apply_v3 has spent for several records together.
#include "discreet/accounting/group_privacy.h"
#include "discreet/mechanism/noise/projection.h"
#include "discreet/mechanism/step/apply_impl.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {
namespace {

// In total variation, over the whole run: what the samplers of noise leave out, and the batches
// that are rejected (apply.md). Half of what is charged at epsilon 0, where 1 + e^epsilon is 2.
double distance_from_ideal(const Mechanism::Fixed& fixed) {
  const DpConfig& dp = fixed.dp();
  const std::uint64_t steps = 2 * charged_steps(dp);
  const bool counts = adapts_bounds(dp) || dp.metrics_release == MetricsRelease::kDp;
  double charged =
      sampler_delta(dp.noise_family, fixed.layout.private_parameters(), steps * fixed.noise_slots(),
                    0) +
      sampler_delta(NoiseFamily::kGaussian, counts ? 3 * fixed.layout.size() + 1 : 0, steps, 0);
  for (const PriorRelease& release : fixed.before)
    charged += sampler_delta(NoiseFamily::kGaussian, release.coordinates, 1, 0);
  const double batches = static_cast<double>(steps) * 0x1p-144;
  return numerics::round_up(charged / 2 + batches, 4 + static_cast<int>(fixed.before.size()));
}

}  // namespace

accounting::Certified Mechanism::group_epsilon(std::uint64_t group, double delta) const {
  return accounting::group_epsilon(state_->accountant->composed(), group, delta,
                                   distance_from_ideal(*fixed_));
}

}  // namespace discreet::mechanism
