#include "discreet/training/run_plan.h"

#include "discreet/config/config_resolve.h"
#include "discreet/run/environment.h"
#include "discreet/training/setup.h"

namespace discreet::training {
namespace {
using mechanism::Mechanism;

// The same run with gradients of each record.
std::optional<double> explicit_epsilon(const Config& config, const Setup& setup) {
  const DpConfig& dp = config.privacy;
  if (!dp.enabled || (!dp.clip_ghost && !dp.fused_kernel) || setup.corpus) return std::nullopt;
  Config other = config;
  other.privacy.clip_ghost = other.privacy.fused_kernel = false;
  other.privacy.accounting_adjustment_factor = 1;
  if (dp.clip_strategy == ClipStrategy::kGhost)
    other.privacy.clip_strategy = ClipStrategy::kPerSample;
  // The same number of steps, whatever the budget allows.
  other.privacy.target_steps = setup.forecast.steps;
  try {
    const Mechanism cheaper(other, setup.training->network.layout(), setup.streams->mechanism(), {},
                            1, 1, setup.data.before);
    const mechanism::Forecast forecast = cheaper.forecast();
    if (forecast.failure || !forecast.epsilon) return std::nullopt;
    return forecast.epsilon->upper;
  } catch (const Error&) {
    return std::nullopt;  // phases or schedules of other steps
  }
}

}  // namespace

std::string ghost_bound(const Config& resolved, int threads, data::BadRow on_bad_row) {
  const random::Key secret = random::Key::from_system();
  SetupOptions options{secret, run::environment()};
  options.threads = threads;
  options.on_bad_row = on_bad_row;
  options.plan_only = true;
  options.resumes = true;  // whatever hash it has
  return Setup(resolved, options).training->mechanism.ghost_bound();
}

Plan plan_run(const Config& resolved, int threads, data::BadRow on_bad_row) {
  const random::Key secret = random::Key::from_system();  // of nothing that is released
  SetupOptions options{secret, run::environment()};
  options.threads = threads;
  options.on_bad_row = on_bad_row;
  options.plan_only = true;
  const Setup setup(resolved, options);
  const Mechanism& mechanism = setup.training->mechanism;
  Plan out;
  out.config_hash = config_hash(resolved);
  out.forecast = setup.forecast;
  out.parameters = mechanism.layout().trainable_parameters();
  out.not_private = mechanism.not_private();
  out.notes = setup.notes;
  out.warnings = setup.warnings;
  if (setup.corpus) out.classes = setup.corpus->bounds(mechanism);
  out.epsilon_explicit = explicit_epsilon(resolved, setup);
  return out;
}

}  // namespace discreet::training
