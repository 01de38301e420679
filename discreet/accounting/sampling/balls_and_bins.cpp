#include "discreet/accounting/sampling/balls_and_bins.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "discreet/accounting/sampling/balls_and_bins_impl.h"
#include "discreet/accounting/sampling/ranges_impl.h"
#include "discreet/accounting/sampling/refine_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

using numerics::expm1;

constexpr double kCoarsest = 0.06;
constexpr double kMostCells = 0x1p16;  // of one law
constexpr double kMostPairs = 1e8;     // of one sum

constexpr Ranges check{"allocation"};

void validate(std::span<const AllocationEpochs> epochs, double relative_width) {
  check(!epochs.empty(), "there must be at least one kind of epoch; their number", 0);
  for (const AllocationEpochs& e : epochs) {
    check.sigma(e.sigma);
    check(e.batches >= 1 && e.batches <= (1u << 24), "batches must be in [1, 2^24]; it",
          double(e.batches));
    check(e.epochs >= 1 && e.epochs <= (std::uint64_t{1} << 32), "epochs must be in [1, 2^32]; it",
          double(e.epochs));
  }
  check.relative_width(relative_width);
}

// The laws of all kinds of epochs on one step, and their losses in one direction.
struct Laws {
  std::vector<GeometricLaw> up, down;
};

Laws build(std::span<const AllocationEpochs> epochs, double step, double cut) {
  Laws laws;
  for (const AllocationEpochs& e : epochs) {
    laws.up.push_back(allocation_law(e.sigma, e.batches, step, cut, Rounding::kUp));
    laws.down.push_back(allocation_law(e.sigma, e.batches, step, cut, Rounding::kDown));
  }
  return laws;
}

struct Losses {
  std::vector<LossLaw> laws;
  std::vector<LossCopies> copies;
};

Losses losses(std::span<const AllocationEpochs> epochs, const std::vector<GeometricLaw>& laws,
              Direction direction) {
  Losses result;
  for (std::size_t i = 0; i < epochs.size(); ++i)
    result.laws.push_back(loss_of(laws[i], double(epochs[i].batches), direction));
  for (std::size_t i = 0; i < epochs.size(); ++i)
    result.copies.push_back({&result.laws[i], epochs[i].epochs});
  return result;
}

Interval epsilon_interval(std::span<const AllocationEpochs> epochs, const Laws& laws, double delta,
                          Direction direction) {
  const Losses up = losses(epochs, laws.up, direction);
  const double order = order_for_delta(up.copies, delta);
  const double upper = LossSum(up.copies, order).epsilon_upper(delta);
  const Losses down = losses(epochs, laws.down, direction);
  return {LossSum(down.copies, order).epsilon_lower(delta, upper), upper};
}

// The finest step that time and memory allow: a law of width w on step h has w/h cells and its sum
// with another costs min(w, log 2) w/h^2. One batch is widest; all batches have 16 deviations.
double finest_step(std::span<const AllocationEpochs> epochs, double cut) {
  double finest = 0;
  for (const AllocationEpochs& e : epochs) {
    const auto t = double(e.batches);
    const double width = 2 * std::sqrt(-2 * numerics::log(cut)) / e.sigma + 1 / (e.sigma * e.sigma);
    const double last =
        std::min(width, 16 * std::sqrt(expm1(std::min(1 / (e.sigma * e.sigma), 9.0)) / t));
    double step = width / kMostCells;
    if (e.batches > 1) step = std::max(step, std::sqrt(std::min(width, 0.7) * width / kMostPairs));
    step = std::max(step / numerics::exp(0.4 * numerics::log(t)),
                    std::sqrt(std::min(last, 0.7) * last / kMostPairs));
    finest = std::max(finest, step);
  }
  return finest;
}

double total(std::span<const AllocationEpochs> epochs) {
  double sum = 0;
  for (const AllocationEpochs& e : epochs) sum += double(e.epochs);
  return sum;
}

// A fifth of the smallest standard deviation of M.
double first_step(std::span<const AllocationEpochs> epochs) {
  double step = kCoarsest;
  for (const AllocationEpochs& e : epochs)
    step = std::min(step, 0.2 * std::sqrt(expm1(1 / (e.sigma * e.sigma)) / double(e.batches)));
  return step;
}

std::vector<Interval> epsilons(std::span<const AllocationEpochs> epochs, double delta,
                               std::span<const Direction> directions, double relative_width) {
  validate(epochs, relative_width);
  check.delta(delta);
  const double cut = 1e-5 * delta / (30 * total(epochs));
  const double finest = finest_step(epochs, cut);
  return refine(std::max(first_step(epochs), finest), finest, [&](double step) {
    const Laws laws = build(epochs, step, cut);
    GridBounds outcome{{}, 0};
    for (const Direction direction : directions) {
      const Interval e = epsilon_interval(epochs, laws, delta, direction);
      outcome.intervals.push_back(e);
      outcome.excess = std::max(outcome.excess, epsilon_excess(e, relative_width));
    }
    return outcome;
  });
}

}  // namespace

GeometricLaw allocation_law(double sigma, std::uint64_t batches, double step, double cut,
                            Rounding rounding) {
  const int top = int(std::bit_width(batches)) - 1;
  const int zeros = std::countr_zero(batches);
  // A stage of n summands enters t/n times but its relative variance is n/t as large: coarser
  // grids there cost nothing as long as the exponent stays below one half.
  const auto step_at = [&](std::uint64_t n) {
    int doublings = int(0.4 / 0.6931471805599453 * numerics::log(double(batches) / double(n)));
    while (doublings > 0 && std::ldexp(step, doublings) > kCoarsest) --doublings;
    return std::ldexp(step, doublings);
  };
  double now = step_at(1);
  std::uint64_t n = 1;
  GeometricLaw law = round_lognormal(sigma, now, cut, rounding);
  // Keeps the law of n + 1 copies beside that of n, as long as odd bits follow.
  GeometricLaw next;
  const auto reach = [](const GeometricLaw& x, const GeometricLaw& y) {
    return std::size_t(
        std::max(x.first + std::int64_t(x.mass.size()), y.first + std::int64_t(y.mass.size())) -
        std::min(x.first, y.first));
  };
  if (top > zeros) {
    next = add(law, law, plan_sum(now, now, law.mass.size(), rounding), 2, cut, rounding);
  }
  for (int shift = top - 1; shift >= 0; --shift) {
    const bool odd = batches >> shift & 1;
    const bool pair = shift + 1 > zeros, keep = shift > zeros;
    const std::uint64_t m = 2 * n + odd;
    const double then = step_at(m);
    const SumPlan plan = plan_sum(now, then, pair ? reach(law, next) : law.mass.size(), rounding);
    GeometricLaw sum = add(law, odd ? next : law, plan, double(m), cut, rounding);
    if (keep) next = add(odd ? next : law, next, plan, double(m + 1), cut, rounding);
    law = std::move(sum);
    n = m;
    now = then;
  }
  return law;
}

Interval allocation_epsilon(std::span<const AllocationEpochs> epochs, double delta,
                            Direction direction, double relative_width) {
  return epsilons(epochs, delta, std::span(&direction, 1), relative_width).front();
}

Interval allocation_epsilon(std::span<const AllocationEpochs> epochs, double delta,
                            double relative_width) {
  const Direction both[] = {Direction::kRemove, Direction::kAdd};
  const auto result = epsilons(epochs, delta, both, relative_width);
  return {std::max(result[0].lower, result[1].lower), std::max(result[0].upper, result[1].upper)};
}

Interval allocation_delta(std::span<const AllocationEpochs> epochs, double epsilon,
                          Direction direction, double relative_width) {
  validate(epochs, relative_width);
  check(epsilon >= 0 && epsilon <= 1e6, "epsilon must be in [0, 1e6]; it", epsilon);
  double guess = 1;  // of delta, for the cuts
  return refine(first_step(epochs), finest_step(epochs, 1e-30),
                [&](double step) {
                  const double cut =
                      std::max(1e-100, 1e-6 * guess) * relative_width / (30 * total(epochs));
                  const Laws laws = build(epochs, step, cut);
                  const Losses up = losses(epochs, laws.up, direction);
                  const double order = order_for_epsilon(up.copies, epsilon);
                  const double upper = LossSum(up.copies, order).delta_upper(epsilon);
                  const Losses down = losses(epochs, laws.down, direction);
                  const double lower =
                      std::min(upper, LossSum(down.copies, order).delta_lower(epsilon));
                  guess = std::min(guess, std::max(upper, 1e-90));
                  const double scale = std::max(std::min(upper, 1 - upper), 1e-100);
                  return GridBounds{{{lower, upper}}, (upper - lower) / (relative_width * scale)};
                })
      .front();
}

}  // namespace discreet::accounting
