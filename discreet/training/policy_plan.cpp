#include "discreet/training/policy_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "discreet/accounting/least.h"
#include "discreet/base/error.h"
#include "discreet/config/config_table.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"
#include "discreet/run/environment.h"
#include "discreet/training/setup.h"

namespace discreet::training {
namespace {

constexpr const char* kOperator = "plan";
constexpr std::size_t kPoints = 16;

admission::Scaled scaled_up(const admission::Scaled& value, double factor) {
  const double units = std::ceil(numerics::round_up(static_cast<double>(value.units) * factor, 2));
  return {static_cast<std::uint64_t>(
      std::clamp(units, 1.0, static_cast<double>(admission::Scaled::kMost)))};
}

// The policy with every stddev multiplied.
admission::Policy with_noise(admission::Policy policy, double factor) {
  policy.noise = scaled_up(policy.noise, factor);
  for (auto& [name, stddev] : policy.blocks) stddev = scaled_up(stddev, factor);
  return policy;
}

class Planner {
 public:
  Planner(const Setup& setup, const admission::Policy& policy, std::optional<double> target,
          double delta)
      : setup_(setup),
        policy_(policy),
        target_(target),
        delta_(delta),
        noise_{dp().noise_family, dp().noise_discrete.value_or(0)},
        layout_(setup.training->network.layout().with_public(dp().public_modules,
                                                             dp().public_groups)) {}

  ClassPlan plan(std::size_t c) const {
    const CorpusClass& terms = setup_.classes[c];
    ClassPlan out{terms.descriptor.data_class, terms, mechanism().use_of(c)};
    out.multiplier = mechanism().router()->noise_multiplier(c);
    out.most_uses = terms.resolution.most_uses;
    out.account = account(terms, out.use, out.most_uses);
    for (std::size_t i = 1; i <= kPoints; ++i)
      out.epsilon.push_back(
          account(terms, out.use, std::max<std::uint64_t>(1, out.most_uses * i / kPoints)).epsilon);
    out.factor_for_clip_norm = factor_for_clip_norm(terms);
    if (target_) out.factor_for_target = factor_for_target(terms);
    return out;
  }

 private:
  const mechanism::Mechanism& mechanism() const { return setup_.training->mechanism; }
  const DpConfig& dp() const { return mechanism().config().privacy; }

  ContributionAccount account(const CorpusClass& terms, const accounting::Mechanism& use,
                              std::uint64_t uses) const {
    return account_of_contribution(policy_, terms, use, uses, delta_);
  }

  // Flat: c = min(C, min s / m). Per block: sum c^2 = min(C^2, sum s^2 / (m^2 B)).
  double factor_for_clip_norm(const CorpusClass& terms) const {
    const RoutePlan& plan = terms.resolution.plan;
    double least = HUGE_VAL, squares = 0;
    for (const RouteBlock& block : plan.blocks) {
      least = std::min(least, block.stddev);
      squares += block.stddev * block.stddev;
    }
    const double blocks = static_cast<double>(plan.blocks.size());
    const double reach = plan.flat_clip ? least : std::sqrt(squares / blocks);
    return terms.descriptor.clip_norm.from_above() * terms.resolution.required_multiplier / reach *
           (1 + 1e-12);
  }

  std::optional<double> factor_for_target(const CorpusClass& terms) const {
    const auto epsilon_of = [&](const accounting::Mechanism& use) {
      return account(terms, use, terms.resolution.most_uses).epsilon;
    };
    if (epsilon_of(accounting::Gaussian{terms.resolution.required_multiplier}) <= *target_)
      return 0;
    const auto evaluate = [&](double factor) -> accounting::Trial<double> {
      const admission::Resolution at =
          admission::resolve(with_noise(policy_, factor), terms.descriptor, layout_, noise_);
      const double epsilon = epsilon_of(noise_of_use(at.plan));
      const double height = numerics::log(std::max(epsilon, 1e-300) / *target_);
      return {factor, epsilon <= *target_ ? std::min(height, 0.0) : std::max(height, 1e-300),
              epsilon};
    };
    constexpr double kMost = 1e6;
    const auto found = accounting::least_keeping<double>(evaluate, factor_for_clip_norm(terms),
                                                         1e-6, kMost, 1e-5, 60);
    if (found.height > 0) return std::nullopt;
    return found.x;
  }

  const Setup& setup_;
  const admission::Policy& policy_;
  std::optional<double> target_;
  double delta_;
  admission::UseNoise noise_;
  ModelLayout layout_;
};

}  // namespace

PolicyPlan plan_policy(const Config& config, const admission::Policy& policy,
                       std::optional<double> target_epsilon, std::optional<double> delta) {
  const NoiseFamily family = config.privacy.noise_family;
  if (target_epsilon && family != NoiseFamily::kGaussian && family != NoiseFamily::kRoundedGaussian)
    invalid_config(kOperator,
                   "the noise that a target needs is searched for gaussian and rounded_gaussian "
                   "noise, not {}; leave out the target",
                   spelling(family));
  const random::Key secret = random::Key::from_system();  // of nothing that is released
  SetupOptions options{secret, run::environment()};
  options.plan_only = true;
  options.policy = &policy;
  const Setup setup(config, options);
  const Planner planner(setup, policy, target_epsilon, delta.value_or(config.privacy.target_delta));
  PolicyPlan out;
  out.corpus = policy.corpus;
  out.accountant = to_string(policy.accountant);
  out.steps = config.privacy.target_steps.value_or(setup.forecast.steps);
  out.sampling = setup.training->mechanism.sampling().sampling();
  out.noise = spelling(family);
  out.delta = config.privacy.target_delta;
  out.forecast = setup.forecast;
  for (std::size_t c = 0; c < setup.classes.size(); ++c) out.classes.push_back(planner.plan(c));
  return out;
}

}  // namespace discreet::training
