#include "discreet/accounting/group_privacy.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/accounting/sampling/whole_epochs_impl.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/accounting/transform/transform.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"

namespace discreet::accounting {
namespace {

constexpr std::size_t kMostParts = 400;   // of a mixture that the transform takes
constexpr double kWidth = 2e-4;           // of the answers, relative
constexpr double kGlance = 1e-2;          // of a first, rough bound
constexpr double kFinest = 1e-6;          // epsilon is never requested more accurately than this
constexpr double kLeastAllocation = 0.1;  // noise multiplier that balls_and_bins.h takes
constexpr double kLeastRate = 1e-200;     // below it the mass of one member is lost in binary64

constexpr const char* kOperator = "group_epsilon";

void check(std::uint64_t group) {
  if (group < 1 || group > kLargestGroup)
    invalid_config(kOperator, "the group size is {}; it must be an integer from 1 to 2^32", group);
}

void check(const std::vector<RepeatedEvent>& events, std::uint64_t group) {
  check(group);
  for (const auto& [event, count] : events) {
    const Sampling& sampling = event.sampling();
    const bool explicit_only = std::holds_alternative<Guarantee>(event.mechanism());
    if (!explicit_only && !gaussian_noise_multiplier(event.mechanism()))
      invalid_config(kOperator,
                     "no group epsilon is certified for {}: use gaussian or rounded_gaussian "
                     "noise",
                     describe(event));
    if (std::holds_alternative<TruncatedPoisson>(sampling))
      invalid_config(kOperator,
                     "no group epsilon is certified for {}: records of the group displace "
                     "others from a full batch; use poisson sampling",
                     describe(event));
    if (std::holds_alternative<FixedSize>(sampling))
      invalid_config(kOperator,
                     "no group epsilon is certified for {}: records of the group are drawn "
                     "together and displace others; use poisson sampling",
                     describe(event));
  }
}

// ---------------------------------------------------------------- Poisson sampling, full batches

// A guarantee for a chain of `group` neighbours.
ExplicitSteps chained(const ExplicitSteps& one, double group) {
  const double whole = group * one.epsilon;
  const double log_chain = one.epsilon == 0
                               ? numerics::log(group)
                               : (whole - one.epsilon) + numerics::log(-numerics::expm1(-whole)) -
                                     numerics::log(-numerics::expm1(-one.epsilon));
  const double slack =
      1e-12 * (1 + whole + (one.epsilon > 0 ? std::abs(numerics::log(one.epsilon)) : 0));
  const double delta =
      one.delta == 0
          ? 0
          : numerics::exp(std::min(numerics::log(one.delta) + log_chain + slack + 1e-12, 1.0));
  if (!(delta < 1))
    invalid_config(kOperator,
                   "a guarantee of epsilon {} and delta {} does not cover {} records together: "
                   "delta would be 1",
                   one.epsilon, one.delta, group);
  return {numerics::next_up(whole), delta, one.count};
}

Composition with_chains(const Composition& steps, std::uint64_t group) {
  for (const GaussianSteps& each : steps.gaussians)
    if (group > 1 && each.rate > 0 && each.rate < kLeastRate)
      invalid_config(kOperator, "the sampling rate is {}; for groups it must be at least {}",
                     each.rate, kLeastRate);
  Composition out{steps.gaussians, {}};
  for (const ExplicitSteps& each : steps.explicits) out.merge({{}, {chained(each, double(group))}});
  return out;
}

// mu of full batches, enclosed.
Interval mu_of(const Composition& steps, double group) {
  double square = 0;
  for (const GaussianSteps& each : steps.gaussians)
    square += double(each.count) / (each.sigma * each.sigma);
  const double mu = group * std::sqrt(square);
  const double slack = kU * (double(steps.gaussians.size()) + 8);
  // As in GdpAccountant: 1/sigma^2 may underflow.
  return {std::max(mu * (1 - slack) - 1e-143 * group, 0.0), mu * (1 + slack) + 1e-143 * group};
}

// As if the largest likely number of members took part in every step; the probability of more is
// charged.
struct MostMembers {
  double mu = 0;      // rounded up
  double charge = 0;  // bound of the probability that a step has more
  std::size_t parts = 0;
};

MostMembers most_members(const Composition& steps, std::uint64_t group, double charge) {
  MostMembers out;
  double square = 0, count = 0;
  for (const GaussianSteps& each : steps.gaussians) count += double(each.count);
  for (const GaussianSteps& each : steps.gaussians) {
    const Participation part = participation(each.rate, group, 1e-300);
    const double least = charge / count;
    double tail = part.dropped;
    std::size_t last = part.parts.size() - 1;
    for (; last > 0; --last) {
      const double more = tail + part.some * part.parts[last].share * (1 + 1e-9);
      if (more > least) break;
      tail = more;
    }
    const double ratio = part.parts[last].members / each.sigma;
    square += double(each.count) * ratio * ratio;
    out.charge += double(each.count) * tail * (1 + 1e-9);
    out.parts = std::max(out.parts, last + 1);
  }
  out.mu =
      std::sqrt(square) * (1 + kU * (double(steps.gaussians.size()) + 16)) + 1e-143 * double(group);
  return out;
}

bool is_full_batch(const Composition& steps) {
  return steps.explicits.empty() &&
         std::all_of(steps.gaussians.begin(), steps.gaussians.end(),
                     [](const GaussianSteps& each) { return each.rate == 1; });
}

Interval intersect(const Interval& a, const Interval& b) {
  return {std::max(a.lower, b.lower), std::min(a.upper, b.upper)};
}

Interval one_direction(const Composition& steps, Direction direction, std::uint64_t group,
                       double delta, double width) {
  const Interval first = transform_epsilon(steps, direction, delta, kGlance, group).value;
  const double wanted = std::max(width * first.upper, kFinest);
  if (!(first.upper - first.lower > wanted) || !std::isfinite(first.upper)) return first;
  return intersect(first, transform_epsilon(steps, direction, delta, wanted, group).value);
}

Certified composed_epsilon(const Composition& one_record, std::uint64_t group, double delta,
                           double width) {
  const Composition steps = with_chains(one_record, group);
  if (is_full_batch(steps)) {
    const Interval mu = mu_of(steps, double(group));
    return {{gaussian_epsilon(mu.lower, delta).lower, gaussian_epsilon(mu.upper, delta).upper},
            Path::kClosedForm,
            Direction::kRemove};
  }
  const MostMembers most = most_members(steps, group, 1e-6 * delta);
  const auto coarse = [&]() -> Certified {
    const double left = numerics::next_down(delta - most.charge);
    const double upper = steps.explicits.empty()
                             ? gaussian_epsilon(most.mu, left).upper + 2 * most.charge
                             : HUGE_VAL;
    return {{certified_epsilon(one_record, delta).value.lower, numerics::next_up(upper)},
            Path::kBracket,
            Direction::kRemove};
  };
  if (most.parts > kMostParts) return coarse();
  const Interval remove = one_direction(steps, Direction::kRemove, group, delta, width);
  // Adding nearly always has the smaller epsilon: a rough bound may be enough.
  Interval add = transform_epsilon(steps, Direction::kAdd, delta,
                                   std::max(kGlance * remove.lower, kFinest), group)
                     .value;
  if (!(add.upper <= remove.lower)) {
    const double wanted = std::max(width * remove.upper, kFinest);
    if (std::isfinite(wanted))
      add = intersect(add, transform_epsilon(steps, Direction::kAdd, delta, wanted, group).value);
  }
  const Certified out{{std::max(remove.lower, add.lower), std::max(remove.upper, add.upper)},
                      Path::kTransform,
                      remove.upper >= add.upper ? Direction::kRemove : Direction::kAdd};
  if (!std::isinf(out.value.upper) || std::isinf(out.value.lower)) return out;
  // Losses beyond what the transform takes.
  const Certified bound = coarse();
  if (std::isinf(bound.value.upper))
    fail(ErrorCode::kAccountantOverflow, "group_epsilon",
         "the epsilon of {} records together exceeds the range of binary64; use a smaller group or "
         "more noise",
         group);
  return bound;
}

// ---------------------------------------------------------------- whole epochs

// Every member is in one batch of an epoch: E Gaussians of k times the size, mu = k sqrt(E)/sigma;
// and balls and bins are no worse than all k in the same bin.
Certified epochs_epsilon(const PldAccountant& one, std::uint64_t group, double delta) {
  const double k = double(group);
  const bool replace = one.adjacency() == Adjacency::kReplaceOne;
  double square = 0;
  std::vector<AllocationEpochs> joint;
  for (const auto& [event, count] : one.events()) {
    const double sigma = *gaussian_noise_multiplier(event.mechanism()) / (replace ? 2 : 1);
    square += double(count) / (sigma * sigma);
    if (const auto* bins = std::get_if<BallsAndBins>(&event.sampling()))
      joint.push_back({numerics::next_down(sigma / k), bins->batches, count});
  }
  const double mu = k * std::sqrt(square) * (1 + 1e-12) + 1e-143 * k;
  Certified out{{one.epsilon(delta).value.lower, gaussian_epsilon(mu, delta).upper},
                Path::kBracket,
                Direction::kRemove};
  const bool in_range = std::all_of(joint.begin(), joint.end(), [](const AllocationEpochs& each) {
    return each.sigma >= kLeastAllocation;
  });
  if (!joint.empty() && in_range)
    out.value.upper = std::min(out.value.upper, allocation_epsilon(joint, delta, kWidth).upper);
  return out;
}

// ---------------------------------------------------------------- both

PldAccountant accountant_of(const std::vector<RepeatedEvent>& events) {
  PldAccountant one(events.empty() ? Adjacency::kAddRemove : events.front().event.adjacency());
  for (const auto& [event, count] : events) one.add(event, count);
  return one;
}

bool composes(const std::vector<RepeatedEvent>& events) {
  return family_of(events.front().event) == Family::kComposition;
}

Certified ideal_epsilon(const PldAccountant& one, std::uint64_t group, double delta) {
  if (group == 1 || one.steps() == 0) return one.epsilon(delta);
  const std::vector<RepeatedEvent> events = one.events();
  return composes(events) ? composed_epsilon(reduce(events), group, delta, kWidth)
                          : epochs_epsilon(one, group, delta);
}

}  // namespace

Certified certified_group_epsilon(const Composition& steps, std::uint64_t group, double delta,
                                  const Accuracy& accuracy) {
  check(group);
  const bool nothing = steps.gaussians.empty() && steps.explicits.empty();
  if (group == 1 || nothing || !(delta > 0 && delta < 1))
    return certified_epsilon(steps, delta, accuracy);
  return composed_epsilon(steps, group, delta, accuracy.transform);
}

Certified group_epsilon(const std::vector<RepeatedEvent>& events, std::uint64_t group, double delta,
                        double distance) {
  check(events, group);
  if (!(distance >= 0 && distance < 1))
    invalid_config(kOperator, "the distance from the ideal mechanism is {}; it must be in [0, 1)",
                   distance);
  const PldAccountant one = accountant_of(events);
  Certified found = ideal_epsilon(one, group, delta);
  if (distance == 0) return found;
  // Charged at an epsilon at least as large as the one returned.
  constexpr int kMostRounds = 12;
  for (int round = 0; round < kMostRounds; ++round) {
    const double charged_at = found.value.upper * (1 + 1e-3) + 1e-3;
    const double charge =
        numerics::round_up(distance * (1 + numerics::exp(std::min(charged_at, 700.0))), 8);
    const double left = numerics::next_down(delta - charge);
    if (!(left > 0) || charged_at > 700) break;
    found = ideal_epsilon(one, group, left);
    if (found.value.upper <= charged_at) return found;
  }
  invalid_config(kOperator,
                 "no epsilon is certified for {} records together at delta {}: near epsilon "
                 "{:.4g}, e^epsilon times the error of the noise sampler ({:.3g}) exceeds delta; "
                 "use a smaller group, more noise or a discrete noise family",
                 group, delta, found.value.upper, distance);
}

Certified group_delta(const std::vector<RepeatedEvent>& events, std::uint64_t group,
                      double epsilon) {
  check(events, group);
  const PldAccountant one = accountant_of(events);
  if (group == 1 || events.empty()) return one.delta(epsilon);
  if (!(epsilon >= 0) || !std::isfinite(epsilon))
    invalid_config(kOperator, "epsilon is {}; it must be finite and not negative", epsilon);
  if (!composes(one.events()))
    invalid_config(kOperator,
                   "delta of a group is not available for {}; request epsilon at a delta",
                   describe(events.front().event));
  const Composition steps = with_chains(reduce(one.events()), group);
  if (is_full_batch(steps)) {
    const Interval mu = mu_of(steps, double(group));
    return {{gaussian_delta(mu.lower, epsilon).lower, gaussian_delta(mu.upper, epsilon).upper},
            Path::kClosedForm,
            Direction::kRemove};
  }
  const Interval remove =
      transform_delta(steps, Direction::kRemove, epsilon, 10 * kWidth, group).value;
  const Interval add = transform_delta(steps, Direction::kAdd, epsilon, 10 * kWidth, group).value;
  return {{std::max(remove.lower, add.lower), std::max(remove.upper, add.upper)},
          Path::kTransform,
          remove.upper >= add.upper ? Direction::kRemove : Direction::kAdd};
}

}  // namespace discreet::accounting
