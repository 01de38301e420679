#include "discreet/run/recount.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "discreet/accounting/accountant.h"
#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/config/prevalidation.h"
#include "discreet/mechanism/sample/sample.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"

namespace discreet::run {
namespace {
using nlohmann::json;

[[noreturn]] void reject(std::size_t line, const std::string& what) {
  malformed("recount", "line {} of trace.jsonl: {}", line, what);
}

double number_in(const json& line, const char* key, std::size_t number) {
  const auto at = line.find(key);
  if (at == line.end() || !at->is_number() || !std::isfinite(at->get<double>()))
    reject(number, fmt::format("{} must be a finite number", key));
  return at->get<double>();
}

bool is_gaussian(NoiseFamily family) {
  return family == NoiseFamily::kGaussian || family == NoiseFamily::kRoundedGaussian;
}

// Nothing but the configuration decides the noise, and it is the same in every step.
bool is_constant(const Config& config) {
  const DpConfig& dp = config.privacy;
  const auto overrides = [](const PhaseOverride& phase) {
    return phase.noise_multiplier || phase.clip_norm || phase.until_step;
  };
  return dp.mode == ScheduleMode::kFixed && !overrides(dp.warmup) && !overrides(dp.main) &&
         !overrides(dp.cooldown) && dp.projection_policy != ProjectionPolicy::kUpscale;
}

class Counter {
 public:
  explicit Counter(const Config& config)
      : config_(config),
        dp_(config.privacy),
        accountant_(
            accounting::make_accountant(spelling(dp_.accountant), {dp_.log_space_accounting})) {
    const mechanism::SamplingPlan plan = mechanism::plan_sampling(dp_);
    const std::uint64_t event = plan.steps_per_event();
    at_once_ = dp_.accountant_granularity == Granularity::kPerEpoch
                   ? std::max(event, plan.steps_per_epoch)
                   : event;
    events_at_once_ = at_once_ / event;
  }

  void header(const json& line) {
    delta_ = number_in(line, "accounted_delta", 1);
    if (!(delta_ > 0 && delta_ <= dp_.target_delta))
      reject(1, fmt::format("accounted_delta is {}; expected a number in (0, {}]", delta_,
                            dp_.target_delta));
    const auto before = line.find("before");
    if (before == line.end()) return;
    try {
      for (const json& release : *before)
        accountant_->compose(accounting::decode_event(from_hex(release.at(0).get<std::string>())));
    } catch (const std::exception&) {
      reject(1, "the releases before the first step cannot be read");
    }
  }

  void step(const json& line, std::size_t number) {
    const double place = number_in(line, "t", number);
    if (!(place >= 0 && place <= 0x1p53)) reject(number, "t must be a number in [0, 2^53]");
    const auto t = static_cast<std::uint64_t>(place);
    const double scheduled = number_in(line, "noise_scale_sigma", number);
    const double accounted = number_in(line, "effective_noise_multiplier", number);
    if (!(scheduled > 0 && accounted > 0)) reject(number, "a step has no noise");
    require_scheduled(t, scheduled, accounted, number);
    steps_ = t + 1;
    const std::uint64_t unit = t / at_once_;
    if (at_once_ > 1 && unit_ == unit) return;
    unit_ = unit;
    counts_[is_gaussian(dp_.noise_family) ? accounted : scheduled] += events_at_once_;
  }

  // Steps after a checkpoint were executed again with new randomness: what they released counts
  // twice.
  void again() { unit_.reset(); }

  void read(const TraceLine& line, std::size_t number) {
    if (line.kind == "run_header") header(read_json(line.text));
    if (line.kind == "iter") step(read_json(line.text), number);
    if (line.kind == "resumed" && read_json(line.text).value("charged_again", 0u) > 0) again();
  }

  Recount finish() {
    for (const auto& [noise, count] : counts_) accountant_->compose(event(noise), count);
    Recount out;
    out.known = true;
    out.spent = accountant_->epsilon(delta_).epsilon;
    out.events = accountant_->composed();
    // target_delta - accounted_delta is at least distance (1 + e^target_epsilon) (apply.md).
    out.distance = numerics::round_up(numerics::next_up(dp_.target_delta - delta_) /
                                          (1 + numerics::exp(std::min(dp_.target_epsilon, 700.0))),
                                      8);
    if (!is_constant(config_) || counts_.size() != 1) return out;
    const accounting::Event next = event(counts_.begin()->first);
    out.at_budget = accountant_->would_exceed(next, events_at_once_, dp_.target_epsilon, delta_);
    if (!dp_.target_steps) return out;
    const auto units = [&](std::uint64_t steps) { return (steps + at_once_ - 1) / at_once_; };
    const std::uint64_t done = units(steps_), all = units(*dp_.target_steps);
    const std::uint64_t left = all > done ? most_within_budget(next, all - done) : 0;
    if (left > 0) accountant_->compose(next, left * events_at_once_);
    out.planned = accountant_->epsilon(delta_).epsilon.upper;
    out.planned_events = accountant_->composed();
    return out;
  }

 private:
  // How many of `units` further ones the budget lets a run take.
  std::uint64_t most_within_budget(const accounting::Event& next, std::uint64_t units) const {
    std::uint64_t fits = 0, above = units + 1;
    while (above - fits > 1) {
      const std::uint64_t middle = above - fits > units ? units : fits + (above - fits) / 2;
      const bool exceeds =
          accountant_->would_exceed(next, middle * events_at_once_, dp_.target_epsilon, delta_);
      (exceeds ? above : fits) = middle;
    }
    return fits;
  }

  // Noise beyond that of the configuration would make the run cheaper than it was. Maps of factors
  // and corpora have noise of their own.
  void require_scheduled(std::uint64_t t, double scheduled, double accounted,
                         std::size_t number) const {
    if (config_.corpus.policy || dp_.per_layer_multiplier || dp_.sigma_map) return;
    constexpr double kRounding = 1 + 1e-9;
    if (accounted > scheduled * kRounding)
      reject(number, fmt::format("the noise multiplier {} is above the scheduled {}", accounted,
                                 scheduled));
    if (dp_.mode != ScheduleMode::kFixed || dp_.projection_policy == ProjectionPolicy::kUpscale)
      return;
    const double declared = in_phase(dp_, phase_at(dp_, t)).noise_multiplier;
    if (scheduled > declared * kRounding)
      reject(number, fmt::format("the noise multiplier is {}, but the configuration has {}",
                                 scheduled, declared));
  }

  accounting::Event event(double noise) const {
    if (!is_gaussian(dp_.noise_family)) return step_event(dp_, noise);
    const accounting::Mechanism release =
        dp_.noise_family == NoiseFamily::kGaussian
            ? accounting::Mechanism(accounting::Gaussian{noise})
            : accounting::Mechanism(accounting::RoundedGaussian{noise});
    return {release, sampling_of(dp_), dp_.adjacency};
  }

  const Config& config_;
  const DpConfig& dp_;
  std::unique_ptr<accounting::Accountant> accountant_;
  double delta_ = 0;
  std::uint64_t at_once_ = 1, events_at_once_ = 1;  // steps, and events, that are composed together
  std::optional<std::uint64_t> unit_;               // the last that was counted
  std::uint64_t steps_ = 0;
  std::map<double, std::uint64_t> counts_;  // events, by noise
};

}  // namespace

bool is_below(double claimed, double recomputed) noexcept {
  return !(claimed >= recomputed * (1 - 1e-9));
}

Recount recount(const Config& resolved, std::span<const TraceLine> lines) {
  const DpConfig& dp = resolved.privacy;
  Recount unknown;
  if (!dp.enabled || dp.noise_multiplier == 0) {
    unknown.unknown = "the run has no noise";
    return unknown;
  }
  if (resolved.corpus.policy && !is_gaussian(dp.noise_family)) {
    unknown.unknown =
        fmt::format("the {} noise of a corpus depends on its classes", spelling(dp.noise_family));
    return unknown;
  }
  if (lines.empty() || lines[0].kind != "run_header")
    reject(1, "a trace must start with its run_header");
  Counter counter(resolved);
  std::size_t i = 0;
  try {
    for (; i < lines.size(); ++i) counter.read(lines[i], i + 1);
  } catch (const json::exception&) {
    reject(i + 1, "a field has the wrong type");
  }
  return counter.finish();
}

}  // namespace discreet::run
