#pragma once

#include <cstdint>
#include <optional>

#include "discreet/mechanism/sample/sample.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.AmplificationByShuffling_v1
//
// The amplification by hiding who takes part: for one participation of a record under Gaussian
// noise,
//   factor = epsilon if the step of the record is public / epsilon under the plan's sampler,
// with upper ends at `delta`, for one event of the plan: a step of fixed size, or an epoch if that
// is the event. Shuffled epochs have factor 1: no bound better than that of a public permutation is
// known. A factor below 1 means that the sampler costs more than it hides (fixed size under
// add_remove moves a second record, hence twice the sensitivity).
//
// Informational: the events already include the amplification; never divide an epsilon by this.
//   plan: checked, of subsampling SHUFFLE_WITHOUT_REPLACEMENT, otherwise kInvalidDpConfig.
//   noise_multiplier, delta: in the ranges of the accountant (accounting/pld.h).
// The denominator is at least EPS_DENOM.
double amplification_factor(const SamplingPlan& plan, double noise_multiplier, double delta);

// Two views of a step whose noise is injected record by record, in `slots` slots; both are
// reported. For one step, with any participating records, adjacency replace_one, at `delta`:
struct InjectionBounds {
  double of_sum;  // epsilon of the sum, which is released and accounted
  // Epsilon of the multiset of locally noised records (accounting/shuffle_model.h), if that were
  // released: usually much larger. Empty if the noise of one slot has no epsilon below 300.
  std::optional<double> shuffled;
};
//   multiplier: standard deviation of the total noise / clip bound, > 0; slots >= 1; delta in (0,
//   1)
InjectionBounds injection_bounds(double multiplier, std::uint64_t slots, double delta);

}  // namespace discreet::mechanism
