#pragma once

#include "discreet/accounting/accountant.h"
#include "discreet/mechanism/noise/schedule.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.DPScalingLawProjector_v1
//
// Where the run is heading: the epsilon at its planned end if the schedule stays as decided.
// Advisory: it warns and may raise the noise in advance; whether a step is released is decided by
// the accountant alone.

struct Projection {
  double epsilon = 0;     // upper end, at the planned end; +inf if there is no planned end
  double confidence = 0;  // in [0, 1]
};

// spent: the accountant before step t. remaining steps are those of schedule.goal() after t.
// epsilon is exact up to the accountant's own interval for what is decided now.
// confidence is 1 where nothing can change the schedule any more: fixed, step_decay and, after its
// inversion, meet_exactly. Modes that review have confidence t / T: the share of the run that can
// no longer change. 0 without target_steps.
// model_scale d (trainable parameters) and the steps charge delta for what the noise sampler leaves
// out (random/gaussian.h: at most T * d * 2^-127 * (1 + e^epsilon)); it is taken off delta.
Projection project(const accounting::Accountant& spent, const Scheduler& scheduler, std::uint64_t t,
                   std::uint64_t model_scale);

// The confidence of project() at step t, without the epsilon.
double confidence(const Scheduler& scheduler, std::uint64_t t) noexcept;

// The factor, >= 1, by which the noise from step t on must rise for the projection to meet the
// target; 1 if it does already. Throws as least_scale.
double upscale_factor(const accounting::Accountant& spent, const Scheduler& scheduler,
                      std::uint64_t t);

// What `steps` of noise on `coordinates` coordinates charge to delta because no floating-point
// sampler is an ideal Gaussian: rounded up. Exact families charge nothing.
double sampler_delta(NoiseFamily family, std::uint64_t coordinates, std::uint64_t steps,
                     double epsilon);

}  // namespace discreet::mechanism
