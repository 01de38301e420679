#pragma once

#include "discreet/accounting/accountant.h"
#include "discreet/mechanism/noise/schedule.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.DPScalingLawProjector_v1
//
// Projects the epsilon at the planned end of the run if the schedule stays as decided. Advisory: it
// warns and may raise the noise in advance. Only the accountant decides whether a step is released.

struct Projection {
  double epsilon = 0;     // upper end, at the planned end; +inf if there is no planned end
  double confidence = 0;  // in [0, 1]
};

// spent: the accountant before step t. The remaining steps are those of schedule.goal() after t.
// For the current schedule, epsilon is exact up to the accountant's own interval.
// confidence is 1 if the schedule can no longer change: fixed, step_decay and, after its inversion,
// meet_exactly. Modes with reviews have confidence t / T, the share of the run that is decided; 0
// without target_steps.
// model_scale d (trainable parameters) and the number of steps T determine the charge to delta for
// the error of the noise sampler (random/gaussian.h: at most T * d * 2^-127 * (1 + e^epsilon)),
// which is subtracted from delta.
Projection project(const accounting::Accountant& spent, const Scheduler& scheduler, std::uint64_t t,
                   std::uint64_t model_scale);

// The confidence of project() at step t, without the epsilon.
double confidence(const Scheduler& scheduler, std::uint64_t t) noexcept;

// The factor, >= 1, by which the noise from step t on must increase for the projection to meet the
// target; 1 if it already does. Throws as least_scale.
double upscale_factor(const accounting::Accountant& spent, const Scheduler& scheduler,
                      std::uint64_t t);

// The charge to delta for `steps` steps of noise on `coordinates` coordinates, because no
// floating-point sampler is an ideal Gaussian. Rounded up. 0 for exact families.
double sampler_delta(NoiseFamily family, std::uint64_t coordinates, std::uint64_t steps,
                     double epsilon);

}  // namespace discreet::mechanism
