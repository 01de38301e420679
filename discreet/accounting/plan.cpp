#include "discreet/accounting/plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "discreet/accounting/least.h"
#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/accounting/sampling/fixed_size.h"
#include "discreet/accounting/sampling/shuffle.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kTolerance = 1e-3;  // of a searched noise multiplier
constexpr double kWidth = 1e-3;      // of epsilon during that search
constexpr Accuracy kRough{1e-6, kWidth};
constexpr double kLeastSigma = 0.1, kMostSigma = 1000;  // what balls_and_bins.h takes
constexpr double kLeastShuffled = 0.01;                 // shuffle.h; up to kMostSigma too

constexpr const char* kOperator = "plan";

Composition poisson_steps(double rate, double sigma, std::uint64_t steps) {
  return reduce({{Event(Gaussian{sigma}, Poisson{rate}, Adjacency::kAddRemove), steps}});
}

Interval full_batches(double sigma, std::uint64_t steps, const Target& target) {
  return certified_group_epsilon(poisson_steps(1, sigma, steps), target.group, target.delta).value;
}

double noise_to_batch(const Workload& workload, double sigma) {
  return sigma / (workload.sizes ? double(workload.sizes->batch) : workload.rate);
}

double height(double upper, double target) {
  if (std::isinf(upper)) return upper;
  return upper == target ? 0 : numerics::log(std::max(upper, 1e-300) / target);
}

// The least noise for a sampler whose epsilon has no calibration of its own.
template <class F>
Trial<Interval> least_noise(F&& epsilon, double start, double least, double most,
                            const Target& target) {
  const auto evaluate = [&](double sigma) -> Trial<Interval> {
    const Interval value = epsilon(sigma);
    double above = height(value.upper, target.epsilon);
    // Decisions compare exactly; the logarithm only guides.
    if (value.upper > target.epsilon) above = std::max(above, 1e-300);
    return {sigma, above, value};
  };
  const auto found = least_keeping<Interval>(evaluate, start, least, most, kTolerance);
  if (found.height > 0) {
    invalid_config(kOperator,
                   "no noise multiplier up to {} gives epsilon {} at delta {}: {} is attainable",
                   most, target.epsilon, target.delta, found.value.upper);
  }
  return found;
}

class Planner {
 public:
  Planner(const Workload& workload, const Target& target) : workload_(workload), target_(target) {}

  PlannedSampler poisson() {
    const auto found =
        calibrate_noise_multiplier(workload_.rate, workload_.steps, target_, Evaluation::kNear);
    poisson_sigma_ = found.value;
    poisson_epsilon_ = found.reached.value;
    return row(Poisson{workload_.rate}, Adjacency::kAddRemove, found.value, found.reached.value,
               full_batches(found.value, workload_.steps, target_));
  }

  PlannedSampler balls_and_bins() const {
    const auto& sizes = known_sizes();
    const double group = double(target_.group);
    // A group is bounded by one record of its size.
    auto found = least_noise(
        [&](double sigma) {
          const AllocationEpochs epochs{sigma / group, sizes.batches, sizes.epochs};
          return allocation_epsilon({&epochs, 1}, target_.delta, kWidth);
        },
        poisson_sigma_, kLeastSigma * group, kMostSigma * group, target_);
    if (target_.group > 1) {
      found.x *= 1 + 1e-15;  // group_epsilon() rounds sigma / group down
      const Event event(Gaussian{found.x}, BallsAndBins{sizes.batches}, Adjacency::kAddRemove);
      found.value = certified_by_event(event, sizes.epochs);
    }
    PlannedSampler out = row(BallsAndBins{sizes.batches}, Adjacency::kAddRemove, found.x,
                             found.value, full_batches(found.x, sizes.epochs, target_));
    out.noise_to_batch = found.x * double(sizes.batches) / double(sizes.records);
    return out;
  }

  PlannedSampler fixed_size() const {
    if (target_.group > 1)
      invalid_config(kOperator,
                     "no group epsilon is certified for fixed_size sampling; use poisson");
    if (workload_.rate == 1) invalid_config(kOperator, "full batches need no sampling");
    // Its pair is that of Poisson sampling at half the noise: nothing to search.
    double sigma = 2 * poisson_sigma_;
    fixed_size_add_remove(workload_.rate, sigma, workload_.steps);
    if (!workload_.sizes) {
      return row(FixedSize{}, Adjacency::kAddRemove, sigma, poisson_epsilon_,
                 full_batches(poisson_sigma_, workload_.steps, target_));
    }
    // Poisson's rate is the binary64 number nearest to B/N, which here is a ratio of counts.
    const FixedSize sampling{workload_.sizes->batch, workload_.sizes->records};
    const auto epsilon_at = [&](double noise) {
      const Event event(Gaussian{noise}, sampling, Adjacency::kAddRemove);
      return certified_epsilon(reduce({{event, workload_.steps}}), target_.delta).value;
    };
    Interval epsilon = epsilon_at(sigma);
    for (double more = 1e-12; epsilon.upper > target_.epsilon && more < 1e-4; more *= 10) {
      sigma *= 1 + more;
      epsilon = epsilon_at(sigma);
    }
    if (epsilon.upper > target_.epsilon)
      invalid_config(kOperator, "its bound could not be evaluated");
    return row(sampling, Adjacency::kAddRemove, sigma, epsilon,
               full_batches(sigma / 2, workload_.steps, target_));
  }

  PlannedSampler shuffled() const {
    const auto& sizes = known_sizes();
    const auto found = calibrate_noise_multiplier(1, sizes.epochs, target_, Evaluation::kNear);
    double sigma = found.value;
    if (!(sigma >= kLeastShuffled && sigma <= kMostSigma)) {
      invalid_config(kOperator,
                     "needs noise multiplier {:.6g}; its bounds are available from {} to {}", sigma,
                     kLeastShuffled, kMostSigma);
    }
    const auto epsilon_at = [&](double noise) {
      if (target_.group == 1) return shuffled_at(workload_, noise, target_.delta);
      const Event event(Gaussian{noise}, ShuffledEpoch{sizes.batches}, Adjacency::kZeroOut);
      return group_epsilon({{event, sizes.epochs}}, target_.group, target_.delta).value;
    };
    Interval epsilon = epsilon_at(sigma);
    for (double more = 1e-12; epsilon.upper > target_.epsilon && more < 1e-4; more *= 10) {
      // The two evaluations of one closed form may round differently.
      sigma *= 1 + more;
      epsilon = epsilon_at(sigma);
    }
    if (epsilon.upper > target_.epsilon)
      invalid_config(kOperator, "its bound could not be evaluated");
    const Interval known = full_batches(sigma, sizes.epochs, target_);
    return row(ShuffledEpoch{sizes.batches}, Adjacency::kZeroOut, sigma, epsilon,
               {known.lower, std::max(known.upper, epsilon.upper)});
  }

  PlannedSampler none() const {
    const auto found = calibrate_noise_multiplier(1, workload_.steps, target_, Evaluation::kNear);
    PlannedSampler out = row(NoSampling{}, Adjacency::kAddRemove, found.value, found.reached.value,
                             found.reached.value);
    out.noise_to_batch =
        workload_.sizes ? found.value / double(workload_.sizes->records) : found.value;
    return out;
  }

 private:
  Interval certified_by_event(const Event& event, std::uint64_t count) const {
    const Interval epsilon = group_epsilon({{event, count}}, target_.group, target_.delta).value;
    if (epsilon.upper > target_.epsilon)
      invalid_config(kOperator, "its bound could not be evaluated");
    return epsilon;
  }

  const Workload::Sizes& known_sizes() const {
    if (!workload_.sizes) {
      invalid_config(kOperator, "needs the size of the data set, the batch size and the epochs");
    }
    return *workload_.sizes;
  }

  PlannedSampler row(Sampling sampling, Adjacency adjacency, double sigma, Interval epsilon,
                     Interval unamplified) const {
    return {sampling, adjacency, sigma, epsilon, unamplified, noise_to_batch(workload_, sigma)};
  }

  Workload workload_;
  Target target_;
  double poisson_sigma_ = 0;
  Interval poisson_epsilon_{0, 0};
};

}  // namespace

Workload workload_from_rate(double rate, std::uint64_t steps) {
  if (!(rate > 0 && rate <= 1)) {
    invalid_config(kOperator, "the sampling rate is {}; it must be in (0, 1]", rate);
  }
  if (steps < 1) invalid_config(kOperator, "the number of steps is 0; it must be at least 1");
  return {rate, steps, {}};
}

Workload workload_from_sizes(std::uint64_t records, std::uint64_t batch, std::uint64_t epochs) {
  if (records < 1) invalid_config(kOperator, "the data set has 0 records; expected at least 1");
  if (batch < 1 || batch > records) {
    invalid_config(kOperator,
                   "the batch size is {}; it must be an integer from 1 to the {} records", batch,
                   records);
  }
  if (epochs < 1) invalid_config(kOperator, "the number of epochs is 0; it must be at least 1");
  const std::uint64_t batches = (records - 1) / batch + 1;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 53;
  if (batches > kMost / epochs) {
    invalid_config(kOperator, "{} epochs of {} batches exceed 2^53 steps; use fewer epochs", epochs,
                   batches);
  }
  return {double(batch) / double(records), batches * epochs,
          Workload::Sizes{records, batch, epochs, batches}};
}

Interval shuffled_at(const Workload& workload, double noise_multiplier, double delta) {
  if (!workload.sizes)
    invalid_config(kOperator, "shuffled epochs need the number of batches and epochs");
  return shuffle_zero_out_epsilon(
      {noise_multiplier, workload.sizes->batches, workload.sizes->epochs}, delta);
}

SamplerPlan plan_samplers(const Workload& workload, const Target& target,
                          const Progress& progress) {
  SamplerPlan out;
  Planner planner(workload, target);
  const auto announce = [&](std::string_view sampler) {
    if (progress) progress(sampler);
  };
  announce("poisson");
  out.planned.push_back(planner.poisson());
  const std::pair<std::string_view, PlannedSampler (Planner::*)() const> others[] = {
      {name(Sampling(BallsAndBins{})), &Planner::balls_and_bins},
      {name(Sampling(FixedSize{})), &Planner::fixed_size},
      {name(Sampling(ShuffledEpoch{})), &Planner::shuffled},
      {name(Sampling(NoSampling{})), &Planner::none},
  };
  for (const auto& [sampler, plan] : others) {
    announce(sampler);
    try {
      out.planned.push_back((planner.*plan)());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidDpConfig && error.code() != ErrorCode::kInvalidInput &&
          error.code() != ErrorCode::kAccountantOverflow) {
        throw;
      }
      out.skipped.push_back({sampler, error.sentence()});
    }
  }
  return out;
}

std::vector<Spent> epsilon_over_run(const Workload& workload, double noise_multiplier,
                                    const Target& target, const std::vector<std::uint64_t>& steps) {
  std::vector<Spent> out;
  for (const std::uint64_t each : steps) {
    const Composition run = poisson_steps(workload.rate, noise_multiplier, each);
    // The spend at the end was calibrated, so its interval must not be wider than that of the
    // calibration.
    out.push_back(
        {each, each == workload.steps
                   ? epsilon_near(run, target).value
                   : certified_group_epsilon(run, target.group, target.delta, kRough).value});
  }
  return out;
}

AdaptiveClipping price_of_adaptive_clipping(const Workload& workload, double noise_multiplier,
                                            const Target& target) {
  constexpr std::uint32_t kCounts = 2;
  const double batch = workload.sizes ? double(workload.sizes->batch) : 0;
  const double deviation = std::max(5 * noise_multiplier, batch / 20);
  const auto steps = [&](double sigma) {
    const GaussianGroups groups{{{sigma, 1}}, {}, Adaptation{kCounts, deviation}};
    const Event event(groups, Poisson{workload.rate}, Adjacency::kAddRemove);
    return reduce({{event, workload.steps}});
  };
  // sigma^-2 + m / (4 sigma_b^2) as before, and a little more for its rounding towards less noise.
  const double share = noise_multiplier / deviation;
  double sigma = noise_multiplier / std::sqrt(1 - kCounts / 4.0 * share * share) * (1 + 1e-12);
  Interval reached = epsilon_near(steps(sigma), target).value;
  for (double more = 1e-8; reached.upper > target.epsilon && more < 1e-2; more *= 10) {
    sigma *= 1 + more;
    reached = epsilon_near(steps(sigma), target).value;
  }
  if (reached.upper > target.epsilon) {
    invalid_config(kOperator, "noise multiplier {} does not give epsilon {}", noise_multiplier,
                   target.epsilon);
  }
  const Interval unchanged =
      certified_group_epsilon(steps(noise_multiplier), target.group, target.delta, kRough).value;
  return {kCounts, deviation, sigma, reached, unchanged};
}

std::optional<LargerBatch> batch_that_halves_noise(const Workload& workload,
                                                   double noise_multiplier, const Target& target) {
  const double wanted = noise_to_batch(workload, noise_multiplier) / 2;
  const auto grown = [&](double factor) {
    if (workload.sizes) {
      const auto& sizes = *workload.sizes;
      const double batch = std::min(std::ceil(double(sizes.batch) * factor), double(sizes.records));
      return workload_from_sizes(sizes.records, static_cast<std::uint64_t>(batch), sizes.epochs);
    }
    const double rate = std::min(workload.rate * factor, 1.0);
    const double steps = std::ceil(double(workload.steps) * (workload.rate / rate));
    return workload_from_rate(rate, static_cast<std::uint64_t>(steps));
  };
  std::map<double, LargerBatch> known;  // by rate: small batches round to the same size
  const auto evaluate = [&](double factor) -> Trial<LargerBatch> {
    const Workload larger = grown(factor);
    if (!known.contains(larger.rate)) {
      const auto epsilon = [&](double sigma) {
        const Composition run = poisson_steps(larger.rate, sigma, larger.steps);
        return certified_group_epsilon(run, target.group, target.delta, kRough).value;
      };
      const auto found = least_noise(epsilon, noise_multiplier, 0.05, 1e7, target);
      known[larger.rate] = {larger, found.x, found.value, noise_to_batch(larger, found.x)};
    }
    const LargerBatch& found = known[larger.rate];
    return {factor, numerics::log(found.noise_to_batch / wanted), found};
  };
  if (workload.rate == 1) return std::nullopt;
  // Between a square-root law and a linear one the factor is 2 to 4.
  const auto found = least_keeping<LargerBatch>(evaluate, 2.5, 1, 1 / workload.rate, 1e-2, 10);
  if (found.height > 0) return std::nullopt;
  return found.value;
}

}  // namespace discreet::accounting
