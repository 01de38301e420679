#include "discreet/accounting/longest_run.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "discreet/accounting/least.h"
#include "discreet/accounting/sampling/balls_and_bins.h"
#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr const char* kOperator = "plan";
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 50;
constexpr std::uint64_t kMostEpochs = std::uint64_t{1} << 32;  // that the epoch samplers take
constexpr double kWidth = 1e-3;                                // of balls and bins, relative

class Search {
 public:
  Search(const Workload& one_epoch, double sigma, const Target& target)
      : one_(one_epoch), sigma_(sigma), target_(target) {}

  LongestRun poisson() {
    LongestRun out = steps(Poisson{one_.rate}, Adjacency::kAddRemove, 64);
    guess_ = out.steps;
    return out;
  }

  LongestRun balls_and_bins() const {
    const std::uint64_t batches = known_sizes().batches;
    const Event event(Gaussian{sigma_}, BallsAndBins{batches}, Adjacency::kAddRemove);
    return epochs(event, batches, [&](std::uint64_t count) {
      if (target_.group > 1)
        return group_epsilon({{event, count}}, target_.group, target_.delta).value;
      const AllocationEpochs all{sigma_, batches, count};
      return allocation_epsilon({&all, 1}, target_.delta, kWidth);
    });
  }

  LongestRun fixed_size() const {
    if (target_.group > 1)
      invalid_config(kOperator,
                     "no group epsilon is certified for fixed_size sampling; use poisson");
    if (one_.rate == 1) invalid_config(kOperator, "full batches need no sampling");
    if (one_.sizes)
      return steps(FixedSize{one_.sizes->batch, one_.sizes->records}, Adjacency::kAddRemove,
                   guess_);
    // Its pair is that of Poisson sampling at half the noise.
    LongestRun out = steps(Poisson{one_.rate}, Adjacency::kAddRemove, guess_, sigma_ / 2);
    out.sampling = FixedSize{};
    return out;
  }

  LongestRun shuffled() const {
    const std::uint64_t batches = known_sizes().batches;
    const Event event(Gaussian{sigma_}, ShuffledEpoch{batches}, Adjacency::kZeroOut);
    return epochs(event, batches, [&](std::uint64_t count) {
      return group_epsilon({{event, count}}, target_.group, target_.delta).value;
    });
  }

  LongestRun none() const { return steps(NoSampling{}, Adjacency::kAddRemove, 64); }

 private:
  const Workload::Sizes& known_sizes() const {
    if (!one_.sizes) invalid_config(kOperator, "needs the size of the data set and the batch size");
    return *one_.sizes;
  }

  LongestRun steps(const Sampling& sampling, Adjacency adjacency, std::uint64_t start,
                   std::optional<double> sigma = std::nullopt) const {
    const Event event(Gaussian{sigma.value_or(sigma_)}, sampling, adjacency);
    return search(event, 1, start, kMostSteps, [&](std::uint64_t count) {
      return epsilon_near(reduce({{event, count}}), target_).value;
    });
  }

  template <class F>
  LongestRun epochs(const Event& event, std::uint64_t batches, const F& epsilon) const {
    return search(event, batches, guess_ / batches, std::min(kMostEpochs, kMostSteps / batches),
                  epsilon);
  }

  template <class F>
  LongestRun search(const Event& event, std::uint64_t unit, std::uint64_t start, std::uint64_t most,
                    const F& epsilon) const {
    const auto evaluate = [&](std::uint64_t count) -> Trial<Interval> {
      Interval found{0, HUGE_VAL};
      try {
        found = epsilon(count);
      } catch (const Error& error) {
        // An epsilon beyond binary64 is above every target.
        if (error.code() != ErrorCode::kAccountantOverflow) throw;
      }
      double height = numerics::log(std::max(found.upper, 1e-300) / target_.epsilon);
      // Decisions compare exactly; the logarithm only guides.
      height = found.upper <= target_.epsilon ? std::min(height, 0.0) : std::max(height, 1e-300);
      return {static_cast<double>(count), height, found};
    };
    const Most<Interval> found = most_keeping<Interval>(evaluate, start, most, kMaxStepEvaluations);
    if (!found.kept)
      invalid_config(
          kOperator,
          "even one {} has epsilon {} at delta {}, above {}; add noise or use smaller batches",
          unit > 1 ? "epoch" : "step", found.broken->value.upper, target_.delta, target_.epsilon);
    LongestRun out{event.sampling(),
                   event.adjacency(),
                   static_cast<std::uint64_t>(found.kept->x) * unit,
                   unit,
                   found.kept->value,
                   {}};
    if (found.broken)
      out.beyond = Spent{static_cast<std::uint64_t>(found.broken->x) * unit, found.broken->value};
    return out;
  }

  Workload one_;
  double sigma_;
  Target target_;
  std::uint64_t guess_ = 64;
};

}  // namespace

LongestRuns longest_runs(const Workload& one_epoch, double noise_multiplier, const Target& target,
                         const Progress& progress) {
  check_target(kOperator, target);
  LongestRuns out;
  Search search(one_epoch, noise_multiplier, target);
  const auto announce = [&](std::string_view sampler) {
    if (progress) progress(sampler);
  };
  announce("poisson");
  out.planned.push_back(search.poisson());
  const std::pair<std::string_view, LongestRun (Search::*)() const> others[] = {
      {name(Sampling(BallsAndBins{})), &Search::balls_and_bins},
      {name(Sampling(FixedSize{})), &Search::fixed_size},
      {name(Sampling(ShuffledEpoch{})), &Search::shuffled},
      {name(Sampling(NoSampling{})), &Search::none},
  };
  for (const auto& [sampler, find] : others) {
    announce(sampler);
    try {
      out.planned.push_back((search.*find)());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidDpConfig && error.code() != ErrorCode::kInvalidInput)
        throw;
      out.skipped.push_back({sampler, error.sentence()});
    }
  }
  return out;
}

}  // namespace discreet::accounting
