#include "discreet/accounting/sampling/fixed_size.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/sampling/ranges_impl.h"
#include "discreet/accounting/sampling/refine_impl.h"
#include "discreet/accounting/sampling/subsampled_law_impl.h"

namespace discreet::accounting {
namespace {

constexpr Ranges check{"fixed_size"};

}  // namespace

GaussianSteps fixed_size_add_remove(double rate, double sigma, std::uint64_t steps) {
  check(rate > 0 && rate < 1, "the rate must be in (0, 1); it", rate);
  check(sigma > 0 && std::isfinite(sigma), "sigma must be positive; it", sigma);
  check(steps >= 1, "the number of steps must be at least 1; it", double(steps));
  return {rate, sigma / 2, steps};
}

Interval fixed_size_replace_one_epsilon(FixedSizeSteps steps, double delta, double relative_width) {
  check(steps.rate > 0 && steps.rate <= 1, "the rate must be in (0, 1]; it", steps.rate);
  check.sigma(steps.sigma);
  check(steps.steps >= 1 && steps.steps <= (std::uint64_t{1} << 32),
        "the number of steps must be in [1, 2^32]; it", double(steps.steps));
  check.delta(delta);
  check.relative_width(relative_width);
  const double half = steps.sigma / 2, count = double(steps.steps);
  const double cut = 1e-5 * delta / (30 * count);
  // Two quantities, each between its own bounds: the dominating pair and the realised one.
  const double finest = finest_subsampled_step(steps.rate, half, cut);
  const double first = std::max(finest, first_subsampled_step(steps.rate, half, count));
  const auto both = refine(first, finest, [&](double step) {
    const LossLaw spliced = spliced_loss(steps.rate, half, step, cut);
    const LossCopies upper{&spliced, steps.steps};
    const double order = order_for_delta({&upper, 1}, delta);
    const LossSum dominating({&upper, 1}, order);
    const double above = dominating.epsilon_upper(delta);

    const ScaledLaw up = subsampled_law(steps.rate, half, step, cut, Rounding::kUp);
    const ScaledLaw down = subsampled_law(steps.rate, half, step, cut, Rounding::kDown);
    const LossLaw up_loss = loss_of(up, Direction::kRemove);
    const LossLaw down_loss = loss_of(down, Direction::kRemove);
    const LossCopies realised_up{&up_loss, steps.steps}, realised_down{&down_loss, steps.steps};
    const double realised_order = order_for_delta({&realised_up, 1}, delta);
    const double ceiling = LossSum({&realised_up, 1}, realised_order).epsilon_upper(delta);
    const double below = LossSum({&realised_down, 1}, realised_order).epsilon_lower(delta, ceiling);
    // The splice errs as the realised pair does.
    return GridBounds{std::vector{Interval{below, above}},
                      epsilon_excess({below, ceiling}, relative_width)};
  });
  return both.front();
}

}  // namespace discreet::accounting
