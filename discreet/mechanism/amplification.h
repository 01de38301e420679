#pragma once

#include "discreet/mechanism/sample.h"

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

}  // namespace discreet::mechanism
