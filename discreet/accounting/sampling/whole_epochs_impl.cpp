#include "discreet/accounting/sampling/whole_epochs_impl.h"

#include <algorithm>
#include <string>

#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/accounting/sampling/fixed_size.h"
#include "discreet/accounting/sampling/shuffle.h"
#include "discreet/accounting/sampling/truncated_poisson.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

constexpr const char* kOperator = "PldAccountant";

double multiplier(const Event& event) { return *gaussian_noise_multiplier(event.mechanism()); }

std::vector<AllocationEpochs> allocations(const std::vector<RepeatedEvent>& events) {
  std::vector<AllocationEpochs> epochs;
  epochs.reserve(events.size());
  for (const auto& [event, count] : events) {
    epochs.push_back({multiplier(event), std::get<BallsAndBins>(event.sampling()).batches, count});
  }
  return epochs;
}

template <class Evaluate>
Certified worse_direction(Path path, const Evaluate& evaluate) {
  const Interval remove = evaluate(Direction::kRemove);
  const Interval add = evaluate(Direction::kAdd);
  return {{std::max(remove.lower, add.lower), std::max(remove.upper, add.upper)},
          path,
          remove.upper >= add.upper ? Direction::kRemove : Direction::kAdd};
}

}  // namespace

Family family_of(const Event& event) {
  const Sampling& sampling = event.sampling();
  if (std::holds_alternative<Guarantee>(event.mechanism())) return Family::kComposition;
  if (!gaussian_noise_multiplier(event.mechanism())) {
    invalid_config(kOperator,
                   "cannot account for {}: no privacy loss distribution is known for this "
                   "noise; use the accountant rdp",
                   describe(event));
  }
  if (std::holds_alternative<BallsAndBins>(sampling)) return Family::kBallsAndBins;
  if (std::holds_alternative<ShuffledEpoch>(sampling)) return Family::kShuffledEpochs;
  if (std::holds_alternative<TruncatedPoisson>(sampling)) return Family::kTruncated;
  if (std::holds_alternative<FixedSize>(sampling) && event.adjacency() == Adjacency::kReplaceOne) {
    return Family::kFixedReplace;
  }
  return Family::kComposition;
}

void require_joinable(const Event& before, const Event& next) {
  const Family family = family_of(next);
  if (family != family_of(before)) {
    invalid_config(kOperator,
                   "cannot account for {} together with {}: no bound for the mixture is known",
                   describe(next), describe(before));
  }
  if (family != Family::kComposition && family != Family::kBallsAndBins && next != before) {
    invalid_config(kOperator, "cannot account for {} with two different settings in one run",
                   describe(next));
  }
}

Certified whole_epochs_epsilon(const std::vector<RepeatedEvent>& events, double delta,
                               double relative_width) {
  const Event& event = events.front().event;
  const std::uint64_t count = events.front().count;
  const double sigma = multiplier(event);
  switch (family_of(event)) {
    case Family::kBallsAndBins: {
      const auto epochs = allocations(events);
      return worse_direction(Path::kAllocation, [&](Direction direction) {
        return allocation_epsilon(epochs, delta, direction, relative_width);
      });
    }
    case Family::kFixedReplace: {
      const auto& sampling = std::get<FixedSize>(event.sampling());
      const double rate = rounded_up_rate(sampling);
      return {fixed_size_replace_one_epsilon({rate, sigma, count}, delta, relative_width),
              Path::kBracket, Direction::kRemove};
    }
    case Family::kShuffledEpochs: {
      const ShuffledEpochs epochs{sigma, std::get<ShuffledEpoch>(event.sampling()).batches, count};
      return {event.adjacency() == Adjacency::kReplaceOne
                  ? shuffle_replace_one_epsilon(epochs, delta)
                  : shuffle_zero_out_epsilon(epochs, delta),
              Path::kBracket, Direction::kRemove};
    }
    case Family::kTruncated: {
      const auto& s = std::get<TruncatedPoisson>(event.sampling());
      return worse_direction(Path::kBracket, [&](Direction direction) {
        return truncated_poisson_epsilon({s.rate, s.batch, s.population, sigma, count}, delta,
                                         direction, relative_width);
      });
    }
    case Family::kComposition: break;
  }
  invalid_config(kOperator, "this is a composition");
}

Certified whole_epochs_delta(const std::vector<RepeatedEvent>& events, double epsilon,
                             double relative_width) {
  const Event& event = events.front().event;
  if (family_of(event) != Family::kBallsAndBins) {
    invalid_config(kOperator, "delta of {} is not available; request epsilon at a delta",
                   describe(event));
  }
  const auto epochs = allocations(events);
  return worse_direction(Path::kAllocation, [&](Direction direction) {
    return allocation_delta(epochs, epsilon, direction, relative_width);
  });
}

}  // namespace discreet::accounting
