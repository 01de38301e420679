#include "discreet/run/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "discreet/base/error.h"
#include "discreet/base/version.h"

namespace discreet::run {
namespace {
using mechanism::Forecast;
using mechanism::Mechanism;

template <class Number>
cbor::Value or_null(const std::optional<Number>& number) {
  return number ? cbor::Value(*number) : cbor::Value(nullptr);
}

cbor::Value or_null(const std::optional<accounting::Interval>& interval) {
  if (!interval) return nullptr;
  return cbor::map({{"lower", interval->lower}, {"upper", interval->upper}});
}

cbor::Value to_cbor(const mechanism::PeftStats& stats) {
  return cbor::map({{"parameters", stats.parameters},
                    {"trainable_parameters", stats.trainable_parameters},
                    {"private_parameters", stats.private_parameters},
                    {"adapter_parameters", stats.adapter_parameters},
                    {"noise_reduction_factor", stats.noise_reduction_factor}});
}

// A run whose randomness is public has a number that it would claim under a secret one; the trace
// and every printed line mark it not_private.
bool has_claim(const DpConfig& dp) {
  return dp.enabled && !(dp.debug && dp.noise_multiplier == 0) &&
         dp.adaptive_accounting != AdaptiveAccounting::kHeuristic;
}

bool is_recorded(ErrorCode code) {
  return code == ErrorCode::kPrivacyBudgetExceeded || code == ErrorCode::kInvalidGradient ||
         code == ErrorCode::kNanInSigma || code == ErrorCode::kAccountantOverflow ||
         code == ErrorCode::kAccountantDivergence || code == ErrorCode::kRngConsumptionViolation;
}

// Whether the budget rejects the next step.
bool is_at_budget(const Mechanism& mechanism, const Forecast& forecast) {
  return forecast.is_ended_by_budget() && forecast.steps == mechanism.t();
}

Ended judged(const Mechanism& mechanism, const Forecast& forecast, std::optional<Ended> said) {
  const std::uint64_t t = mechanism.t();
  const std::optional<std::uint64_t> planned = mechanism.config().privacy.target_steps;
  const Ended is = planned && t >= *planned            ? Ended::kCompleted
                   : is_at_budget(mechanism, forecast) ? Ended::kBudgetReached
                                                       : Ended::kInterrupted;
  if (!said || *said == is || *said == Ended::kInterrupted) return said.value_or(is);
  const std::string found = planned ? fmt::format("{} of {} planned steps were taken", t, *planned)
                                    : fmt::format("{} steps were taken, and none were planned", t);
  invalid_input("run", "the run is not {}: {}{}; pass interrupted, or omit it", to_string(*said),
                found,
                is == Ended::kInterrupted     ? ", and the budget allows the next one"
                : is == Ended::kBudgetReached ? ", and the budget does not allow the next one"
                                              : "");
}

std::optional<accounting::Interval> claimed(const Mechanism& mechanism, const Forecast& forecast,
                                            Ended ended) {
  const DpConfig& dp = mechanism.config().privacy;
  if (!has_claim(dp)) return std::nullopt;
  const cbor::Value spent = mechanism.trace_end().at("final_epsilon");
  accounting::Interval out{spent.at("lower").as_float(), spent.at("upper").as_float()};
  if (ended != Ended::kInterrupted) return out;
  const bool is_planned = forecast.epsilon && (!forecast.failure || forecast.is_ended_by_budget());
  const double plan = is_planned ? forecast.epsilon->upper : dp.target_epsilon;
  out.upper = std::max(out.upper, std::min(plan, dp.target_epsilon));
  return out;
}

}  // namespace

std::string specification() {
  return fmt::format("{} {}", mechanism::kAlgorithm, mechanism::kSpecVersion);
}

std::string_view to_string(Ended ended) noexcept {
  switch (ended) {
    case Ended::kCompleted: return "completed";
    case Ended::kBudgetReached: return "budget_reached";
    case Ended::kInterrupted: return "interrupted";
  }
  return "";
}

Ended ended(const Mechanism& mechanism, std::optional<Ended> said) {
  return judged(mechanism, mechanism.forecast(), said);
}

std::optional<accounting::Interval> claim(const Mechanism& mechanism, Ended ended) {
  return claimed(mechanism, mechanism.forecast(), ended);
}

Session::Session(RunFiles& files, Mechanism& mechanism, const random::Key& key,
                 cbor::Value environment)
    : files_(files), mechanism_(mechanism), key_(key), environment_(std::move(environment)) {
  const cbor::Value header = mechanism_.trace_header();
  std::ranges::copy(header.at("config_hash").as_bytes(), config_hash_.begin());
}

cbor::Value Session::header(const Digest& data_commitment, std::string_view generator, bool fused,
                            std::vector<cbor::Entry> more) const {
  const mechanism::SamplingPlan& plan = mechanism_.sampling();
  const DpConfig& dp = mechanism_.config().privacy;
  std::vector<cbor::Entry> entries = mechanism_.trace_header().as_map();
  for (cbor::Entry& entry : entries)
    if (entry.key.as_text() == "fused_kernel") entry.value = fused;
  entries.push_back({"clip_operator", fused ? "FlashEfficientClip_v1" : "Clip_v1"});
  entries.push_back({"data_commitment", ByteView(data_commitment)});
  entries.push_back({"environment", environment_});
  entries.push_back({"noise_generator", generator});
  entries.push_back({"objective", "minimize"});
  entries.push_back({"declared_size", or_null(plan.size)});
  entries.push_back({"effective_batch_size", or_null(plan.batch)});
  entries.push_back({"sampling_rate", or_null(plan.rate)});
  entries.push_back({"gradient_accumulation_steps", dp.gradient_accumulation_steps});
  entries.push_back({"planned_steps", or_null(dp.target_steps)});
  entries.push_back({"steps_per_epoch", plan.steps_per_epoch});
  if (const auto& peft = mechanism_.peft_stats()) entries.push_back({"peft_stats", to_cbor(*peft)});
  entries.push_back({"parameters", mechanism_.layout().trainable_parameters()});
  std::ranges::move(more, std::back_inserter(entries));
  return cbor::map(std::move(entries));
}

void Session::write_checkpoint(ByteView state, std::vector<cbor::Entry> more) {
  more.push_back({"environment", environment_});
  more.push_back({"state", state});
  if (zeroed_steps_ != 0)
    more.push_back({"zeroed", cbor::array({zeroed_steps_, cbor::Value(has_learned_)})});
  files_.write_checkpoint({specification(),
                           config_hash_,
                           mechanism_.layout().hash(),
                           mechanism_.t(),
                           {},
                           mechanism_.save(),
                           cbor::encode(cbor::map(std::move(more)))},
                          key_);
}

void Session::restore(const cbor::Value& training) {
  const cbor::Value* zeroed = training.find("zeroed");
  zeroed_steps_ = zeroed == nullptr ? 0 : zeroed->as_array().at(0).as_unsigned();
  has_learned_ = zeroed == nullptr ? mechanism_.t() > 0 : zeroed->as_array().at(1).as_bool();
}

void Session::record(const mechanism::StepResult& step) {
  files_.append("iter", trace_iter(step));
  // Past its safety reserve every step says so, last of all: the first one is recorded.
  const DpConfig& dp = mechanism_.config().privacy;
  const bool was_past =
      step.t > 0 && step.budget.before.upper > dp.target_epsilon * (1 - dp.safety_budget_reserve);
  const std::size_t repeated = step.budget.past_warning && was_past ? 1 : 0;
  for (std::size_t i = 0; i + repeated < step.warnings.size(); ++i)
    files_.append("warning", cbor::map({{"t", step.t}, {"warning", step.warnings[i]}}));
  const mechanism::DpMetrics& metrics = step.metrics;
  if (metrics.zeroed_records < metrics.records) has_learned_ = true;
  if (metrics.records == 0 || metrics.zeroed_records < metrics.records) return;
  if (++zeroed_steps_ == 1)
    files_.append("warning",
                  cbor::map({{"t", step.t},
                             {"warning",
                              "every gradient of the step was not finite and was left out as zero; "
                              "further such steps are counted at the end"}}));
}

void Session::fail(const Error& error) {
  if (!is_recorded(error.code()) || failed_ == mechanism_.t()) return;
  failed_ = mechanism_.t();
  files_.append("failure", mechanism_.emit_error(error).to_cbor());
  files_.flush();
}

std::string Session::zeroed_sentence() const {
  if (zeroed_steps_ == 0) return {};
  const std::string remedy =
      "lower the learning rate, check the data for values out of range, or set nonfinite: abort to "
      "see the first such record";
  if (!has_learned_)
    return fmt::format(
        "the model holds noise only: every gradient was not finite and was left out as zero; {}",
        remedy);
  return fmt::format(
      "{} of {} steps learned nothing: every gradient was not finite and was left out as zero; {}",
      zeroed_steps_, mechanism_.t(), remedy);
}

std::map<std::string, std::string> Session::about_model() const {
  return {{"producer", fmt::format("discreet {}", version())},
          {"config_hash", to_hex(config_hash_)}};
}

Session::End Session::end(std::optional<Ended> said, std::vector<cbor::Entry> more) {
  const Forecast forecast = mechanism_.forecast();
  End out;
  out.ended = judged(mechanism_, forecast, said);
  out.epsilon = claimed(mechanism_, forecast, out.ended);
  out.steps = mechanism_.t();
  out.planned = mechanism_.config().privacy.target_steps;
  out.zeroed = zeroed_sentence();
  out.is_noise_only = zeroed_steps_ != 0 && !has_learned_;
  if (out.ended == Ended::kBudgetReached) fail(*forecast.failure);
  std::vector<cbor::Entry> entries = mechanism_.trace_end().as_map();
  entries.push_back({"epsilon", or_null(out.epsilon)});
  entries.push_back({"steps", out.steps});
  entries.push_back({"planned_steps", or_null(out.planned)});
  entries.push_back({"ended", to_string(out.ended)});
  const bool failed = out.ended == Ended::kBudgetReached;
  entries.push_back({"status", failed ? "failed" : "success"});
  if (failed) entries.push_back({"failure_code", to_string(ErrorCode::kPrivacyBudgetExceeded)});
  if (zeroed_steps_ != 0) entries.push_back({"zeroed_steps", zeroed_steps_});
  std::ranges::move(more, std::back_inserter(entries));
  files_.end(cbor::map(std::move(entries)));
  return out;
}

}  // namespace discreet::run
