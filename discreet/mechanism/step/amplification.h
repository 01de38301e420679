#pragma once

#include <cstdint>
#include <optional>

#include "discreet/mechanism/sample/sample.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.AmplificationByShuffling_v1
//
// How much the secret of who takes part is worth: with one participation of a record under Gaussian
// noise,
//   factor = epsilon if the step of the record is public / epsilon under the plan's sampler,
// upper ends at `delta`, of one event of the plan: a step of fixed size, or an epoch where that is
// the event. Shuffled epochs have 1: no bound better than a public permutation is known. A factor
// below 1 says that the sampler costs more than it hides (fixed size under add_remove moves a
// second record, hence twice the sensitivity).
//
// Informational: the events hold the amplification already, and no epsilon is divided by this.
//   plan: checked, of subsampling SHUFFLE_WITHOUT_REPLACEMENT; else kInvalidDpConfig.
//   noise_multiplier, delta: as the accountant takes them (accounting/pld.h).
// The denominator is at least EPS_DENOM.
double amplification_factor(const SamplingPlan& plan, double noise_multiplier, double delta);

// Noise of a step that is injected record by record, in `slots` slots, may be looked at in two
// ways, and both are reported. Of one step, whoever takes part, adjacency replace_one, at `delta`:
struct InjectionBounds {
  double of_sum;  // epsilon of the sum, which is what leaves the mechanism and is accounted
  // Epsilon of the multiset of locally noised records (accounting/shuffle_model.h), had that been
  // released: usually the larger by far. None if the noise of a slot alone has no epsilon below
  // 300.
  std::optional<double> shuffled;
};
//   multiplier: standard deviation of the whole noise / clip bound, > 0; slots >= 1; delta in (0,
//   1)
InjectionBounds injection_bounds(double multiplier, std::uint64_t slots, double delta);

}  // namespace discreet::mechanism
