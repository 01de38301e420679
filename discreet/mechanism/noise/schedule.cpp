#include "discreet/mechanism/noise/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "discreet/accounting/least.h"
#include "discreet/base/error.h"
#include "discreet/config/config_resolve.h"
#include "discreet/numerics/elementary.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "PrivacyBudgetScheduler_v1";
constexpr std::uint64_t kReviews = 16;
constexpr double kTolerance = 1e-6;

double clamped(double sigma, std::uint64_t t) {
  if (!std::isfinite(sigma))
    fail(ErrorCode::kNanInSigma, kOperator,
         "the noise multiplier of step {} is {}; it must be finite", t, sigma);
  return std::clamp(sigma, kLeastSigma, kLargestSigma);
}

bool follows_budget(ScheduleMode mode) {
  return mode == ScheduleMode::kMeetExactly || mode == ScheduleMode::kBudgetAdaptive ||
         mode == ScheduleMode::kDynamicProjection;
}

std::uint64_t review_interval(ScheduleMode mode, std::uint64_t steps, std::uint64_t unit) {
  if (mode != ScheduleMode::kBudgetAdaptive && mode != ScheduleMode::kDynamicProjection) return 0;
  const std::uint64_t interval =
      std::max<std::uint64_t>(1, steps / kReviews + (steps % kReviews != 0));
  return (interval + unit - 1) / unit * unit;
}

Schedule scaled(std::span<const SchedulePiece> schedule, double scale) {
  Schedule out(schedule.begin(), schedule.end());
  for (SchedulePiece& piece : out) piece.sigma = clamped(piece.sigma * scale, piece.from);
  return out;
}

}  // namespace

double sigma_at(std::span<const SchedulePiece> schedule, std::uint64_t t) {
  const auto after = std::ranges::upper_bound(schedule, t, {}, &SchedulePiece::from);
  return std::prev(after)->sigma;
}

std::vector<accounting::RepeatedEvent> events_of(std::span<const SchedulePiece> schedule,
                                                 std::uint64_t begin, std::uint64_t end,
                                                 const StepEvent& event) {
  std::vector<accounting::RepeatedEvent> out;
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const std::uint64_t from = std::max(begin, schedule[i].from);
    const std::uint64_t to = i + 1 < schedule.size() ? std::min(end, schedule[i + 1].from) : end;
    if (from >= to) continue;
    // An event counts where it starts.
    const auto events_before = [&](std::uint64_t t) {
      return (t - begin) / event.steps + ((t - begin) % event.steps != 0);
    };
    const std::uint64_t count = events_before(to) - events_before(from);
    if (count != 0) out.push_back({event.at(schedule[i].sigma), count});
  }
  return out;
}

double least_scale(const accounting::Accountant& spent, std::span<const SchedulePiece> schedule,
                   std::uint64_t begin, const ScheduleGoal& goal, const StepEvent& event) {
  struct Nothing {};
  const auto evaluate = [&](double scale) -> accounting::Trial<Nothing> {
    const auto total = spent.clone();
    for (const auto& [step, count] : events_of(scaled(schedule, scale), begin, goal.steps, event))
      total->compose(step, count);
    const double upper = total->epsilon(goal.delta).epsilon.upper;
    // The logarithm makes the height nearly linear in log s; 0 is kept exactly at the target.
    const double height = upper <= goal.epsilon ? std::min(0.0, numerics::log(upper / goal.epsilon))
                                                : numerics::log(upper / goal.epsilon);
    return {scale, std::isnan(height) ? std::numeric_limits<double>::infinity() : height, {}};
  };
  const double base = sigma_at(schedule, begin);
  const auto best = accounting::least_keeping<Nothing>(evaluate, 1.0, 1e-3 / base,
                                                       kLargestSigma / base, kTolerance);
  if (best.height > 0)
    budget_exceeded(kOperator,
                    "no noise multiplier up to {} keeps {} steps from step {} on within epsilon {} "
                    "at delta {}; raise target_epsilon or plan fewer steps",
                    kLargestSigma, goal.steps - begin, begin, goal.epsilon, goal.delta);
  return best.x;
}

Scheduler::Scheduler(ScheduleMode mode, Schedule profile, const ScheduleGoal& goal, StepEvent event)
    : mode_(mode),
      profile_(std::move(profile)),
      goal_(goal),
      event_(std::move(event)),
      review_every_(review_interval(mode, goal.steps, std::max(event_.steps, event_.epoch))) {
  if (follows_budget(mode_) && goal_.steps == 0)
    invalid_config(kOperator, "a mode that follows the budget needs target_steps");
  decided_ = scaled(profile_, 1);
}

bool Scheduler::is_fixed() const noexcept { return review_every_ == 0; }

std::optional<std::uint64_t> Scheduler::next_review() const noexcept {
  if (!follows_budget(mode_) || next_review_ >= goal_.steps) return std::nullopt;
  return next_review_;
}

double Scheduler::sigma(std::uint64_t t, const accounting::Accountant& spent) {
  if (follows_budget(mode_) && t >= next_review_ && t < goal_.steps) review(t, spent);
  return sigma_at(decided_, t);
}

void Scheduler::review(std::uint64_t t, const accounting::Accountant& spent) {
  const double least = least_scale(spent, profile_, t, goal_, event_);
  if (mode_ == ScheduleMode::kDynamicProjection && least < scale_)
    scale_ = std::sqrt(scale_ * least);
  else
    scale_ = least;
  replace_from(t, scale_);
  next_review_ = review_every_ == 0 ? goal_.steps : t + review_every_;
}

void Scheduler::replace_from(std::uint64_t t, double scale) {
  Schedule next;
  for (const SchedulePiece& piece : decided_)
    if (piece.from < t) next.push_back(piece);
  next.push_back({t, clamped(sigma_at(profile_, t) * scale, t)});
  for (const SchedulePiece& piece : profile_)
    if (piece.from > t) next.push_back({piece.from, clamped(piece.sigma * scale, piece.from)});
  decided_ = std::move(next);
}

void Scheduler::scale_up(std::uint64_t t, double factor) {
  if (!(factor >= 1) || !std::isfinite(factor))
    fail(ErrorCode::kNanInSigma, kOperator,
         "the factor for scaling noise up is {}; it must be at least 1", factor);
  if (factor == 1) return;
  scale_ *= factor;
  replace_from(t, scale_);
}

cbor::Value Scheduler::cache() const {
  std::vector<cbor::Value> pieces;
  pieces.reserve(decided_.size());
  for (const SchedulePiece& piece : decided_)
    pieces.push_back(cbor::array({piece.from, piece.sigma}));
  return cbor::map({{"pieces", cbor::array(std::move(pieces))},
                    {"scale", scale_},
                    {"next_review", next_review_}});
}

void Scheduler::restore(const cbor::Value& cache) try {
  Schedule pieces;
  for (const cbor::Value& item : cache.at("pieces").as_array()) {
    const auto& pair = item.as_array();
    if (pair.size() != 2)
      malformed(kOperator, "the schedule of the checkpoint has a piece that is not a pair");
    const SchedulePiece piece{pair[0].as_unsigned(), pair[1].as_float()};
    if (!(piece.sigma >= kLeastSigma && piece.sigma <= kLargestSigma))
      malformed(kOperator, "the schedule of the checkpoint has the invalid sigma {}", piece.sigma);
    if (pieces.empty() ? piece.from != 0 : piece.from <= pieces.back().from)
      malformed(kOperator, "the schedule of the checkpoint is not in ascending order from step 0");
    pieces.push_back(piece);
  }
  if (pieces.empty()) malformed(kOperator, "the schedule of the checkpoint is empty");
  const double scale = cache.at("scale").as_float();
  if (!(std::isfinite(scale) && scale > 0))
    malformed(kOperator, "the schedule of the checkpoint has the invalid scale {}", scale);
  const std::uint64_t next_review = cache.at("next_review").as_unsigned();
  decided_ = std::move(pieces);
  scale_ = scale;
  next_review_ = next_review;
} catch (const Error& error) {
  if (error.code() == ErrorCode::kMalformed) throw;
  malformed(kOperator, "the schedule of the checkpoint is malformed: {}", error.sentence());
}

Schedule base_profile(const DpConfig& resolved) {
  std::vector<std::uint64_t> begins = {0};
  for (const PhaseOverride* phase : {&resolved.warmup, &resolved.main})
    if (phase->until_step) begins.push_back(*phase->until_step);
  const std::uint64_t last_phase = begins.back();
  const std::uint64_t end = resolved.target_steps.value_or(std::uint64_t{1} << 24);
  const bool decays = resolved.mode == ScheduleMode::kStepDecay && resolved.decay_factor != 1;
  if (decays)
    for (std::uint64_t t = resolved.decay_every; t < end; t += resolved.decay_every)
      begins.push_back(t);
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());

  Schedule out;
  double decay = 1;
  std::uint64_t decayed = 0;
  for (const std::uint64_t t : begins) {
    for (; decays && decayed < t / resolved.decay_every; ++decayed) decay *= resolved.decay_factor;
    const double configured = in_phase(resolved, phase_at(resolved, t)).noise_multiplier;
    out.push_back({t, configured * decay});
    // Clamped from here on: further pieces would only repeat the limit.
    const bool clamped = decay * configured < kLeastSigma || decay * configured > kLargestSigma;
    if (decays && clamped && t >= last_phase) break;
  }
  return out;
}

}  // namespace discreet::mechanism
