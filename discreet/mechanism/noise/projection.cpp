#include "discreet/mechanism/noise/projection.h"

#include <algorithm>
#include <limits>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"

namespace discreet::mechanism {

double sampler_delta(NoiseFamily family, std::uint64_t coordinates, std::uint64_t steps,
                     double epsilon) {
  double per_coordinate = 0x1p-127;
  if (family == NoiseFamily::kDiscreteGaussian || family == NoiseFamily::kRoundedGaussian) return 0;
  if (family == NoiseFamily::kSkellam) per_coordinate = 0x1p-169;
  const double draws = static_cast<double>(coordinates) * static_cast<double>(steps);
  if (draws == 0) return 0;
  const double both = 1 + numerics::exp(std::min(epsilon, 700.0));
  return numerics::round_up(draws * per_coordinate * both, 4);
}

Projection project(const accounting::Accountant& spent, const Scheduler& scheduler, std::uint64_t t,
                   std::uint64_t model_scale) {
  const ScheduleGoal& goal = scheduler.goal();
  if (goal.steps == 0) return {std::numeric_limits<double>::infinity(), 0};
  const auto total = spent.clone();
  if (t < goal.steps)
    for (const auto& [event, count] :
         events_of(scheduler.schedule(), t, goal.steps, scheduler.event()))
      total->compose(event, count);
  const double charge =
      sampler_delta(NoiseFamily::kGaussian, model_scale, goal.steps, goal.epsilon);
  const double delta = numerics::next_down(goal.delta - charge);
  Projection out;
  out.epsilon =
      delta > 0 ? total->epsilon(delta).epsilon.upper : std::numeric_limits<double>::infinity();
  out.confidence = confidence(scheduler, t);
  return out;
}

double confidence(const Scheduler& scheduler, std::uint64_t t) noexcept {
  const std::uint64_t steps = scheduler.goal().steps;
  if (steps == 0) return 0;
  if (scheduler.is_fixed() || t >= steps) return 1;
  return static_cast<double>(t) / static_cast<double>(steps);
}

double upscale_factor(const accounting::Accountant& spent, const Scheduler& scheduler,
                      std::uint64_t t) {
  if (scheduler.goal().steps <= t) return 1;
  return std::max(1.0,
                  least_scale(spent, scheduler.schedule(), t, scheduler.goal(), scheduler.event()));
}

}  // namespace discreet::mechanism
