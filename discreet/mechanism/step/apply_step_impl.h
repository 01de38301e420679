#pragma once

#include <functional>

#include "discreet/mechanism/step/apply_impl.h"

namespace discreet::mechanism {

// The decisions for a step, made before anything is drawn.
struct Decided {
  std::optional<Scheduler> scheduler;  // after the step's review
  std::optional<double> projected;
  double sigma = 0;  // 0: no noise (not enabled, or debug)
  std::optional<accounting::Event> event;
  bool due = false;  // the event is composed with this step
  std::vector<std::string> warnings;
};

// Steps 9 to 11, and the event of step 15.
Decided decide(const Mechanism::Fixed& fixed, const Mechanism::State& state);

// Throws kInvalidDpConfig if step t is beyond the steps for which delta is charged.
void require_step(const Mechanism::Fixed& fixed, const Mechanism::State& state);

// Steps 15 and 16: composes the event that is due and rejects a total above the target.
accounting::EpsilonBound compose_within_budget(const Mechanism::Fixed& fixed,
                                               const Mechanism::State& state,
                                               const Decided& decided);

// Standard deviations of the noise of a step, one per part.
struct NoiseScales {
  std::vector<double> average;  // of the noisy average
  std::vector<double> drawn;    // of the draw of a slot: on the sum and in grid steps, or as above
};
NoiseScales noise_scales(const Mechanism::Fixed& fixed, const Allocation& allocation, double sigma);

// What is released with the noisy average, and its properties.
struct Drawn {
  std::vector<double> stddev;   // of the average, one per part
  std::vector<double> normals;  // standard normal numbers, one per count
  double signal = 0;            // norm of the average before noise
  NoiseState noise;
};

// Averages stored elsewhere.
struct Held {
  const HeldGradients& values;
  const numerics::Team* team = nullptr;
};

// Steps 8, 9b, 13 and 14 in one pass over the sum: writes the noisy average to `values`. `account`
// is independent of it, and one thread runs it at the same time.
Drawn draw(const Mechanism::Fixed& fixed, const Mechanism::State& state, const GradientSum& sum,
           GradientSum& values, const Decided& decided, const std::function<void()>& account);
// The same for averages stored elsewhere.
Drawn draw(const Mechanism::Fixed& fixed, const Mechanism::State& state, Held& held,
           const Decided& decided);

}  // namespace discreet::mechanism
