// The bytes of the mechanism's state, its tokens, and its lines of the trace.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "discreet/accounting/sum_rule.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/config_table.h"
#include "discreet/mechanism/step/apply_impl.h"

namespace discreet::mechanism {
namespace {

constexpr std::string_view kFormat = "discreet-mechanism-state-1";
constexpr const char* kRestore = "Mechanism::restore";

// Numbers as their bits, little-endian: 8 bytes each and no item count to run out of.
Bytes packed(std::span<const double> values) {
  Bytes out(values.size() * sizeof(double));
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

void unpack(ByteView bytes, std::span<double> out, const char* what) {
  if (bytes.size() != out.size() * sizeof(double))
    malformed(kRestore, "{} has {} bytes; expected {}", what, bytes.size(),
              out.size() * sizeof(double));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
}

Digest digest_of(const cbor::Value& value) {
  const ByteView bytes = value.as_bytes();
  Digest out{};
  if (bytes.size() != out.size()) malformed(kRestore, "a digest has the wrong length");
  std::ranges::copy(bytes, out.begin());
  return out;
}

// By part: sigma_g / sigma_eff and C_g.
cbor::Value map_of(const Allocation& allocation) {
  std::vector<cbor::Entry> entries;
  for (std::size_t g = 0; g < allocation.multiplier.size(); ++g)
    entries.push_back({allocation.plan.partition.names[g],
                       cbor::array({allocation.multiplier[g], allocation.plan.clip[g]})});
  return cbor::map(std::move(entries));
}

// Which part each private tensor belongs to.
cbor::Value modules_of(const ModelLayout& layout, const Partition& partition) {
  std::vector<cbor::Entry> entries;
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (partition.part_of[i] != Partition::kNone)
      entries.push_back({layout.tensors()[i].name, partition.names[partition.part_of[i]]});
  return cbor::map(std::move(entries));
}

cbor::Value config_of(const DpConfig& dp) {
  return cbor::map({{"accountant", spelling(dp.accountant)},
                    {"clipping", spelling(dp.clip_strategy)},
                    {"mode", spelling(dp.mode)},
                    {"noise_multiplier", dp.noise_multiplier},
                    {"safety_budget_reserve", dp.safety_budget_reserve},
                    {"target_epsilon", dp.target_epsilon},
                    {"target_delta", dp.target_delta},
                    {"target_steps", dp.target_steps ? cbor::Value(*dp.target_steps) : nullptr}});
}

// The name of the stream derived for a lineage.
std::string lineage_name(const std::string& lineage) { return "lineage/" + lineage; }

void require_equal(const cbor::Value& saved, const cbor::Value& own, const char* what) {
  if (saved == own) return;
  if (saved.type() == cbor::Type::kMap && own.type() == cbor::Type::kMap)
    for (const cbor::Entry& entry : own.as_map()) {
      const cbor::Value* found = saved.find(entry.key);
      if (found == nullptr || !(*found == entry.value))
        invalid_input(kRestore, "the saved state belongs to another {}: {} differs", what,
                      entry.key.as_text());
    }
  invalid_input(kRestore, "the saved state belongs to another {}", what);
}

// The releases before the first step, as [event, coordinates] each.
cbor::Value encoded(const std::vector<PriorRelease>& before) {
  std::vector<cbor::Value> out;
  out.reserve(before.size());
  for (const PriorRelease& release : before)
    out.push_back(cbor::array({accounting::encode(release.event), release.coordinates}));
  return cbor::array(std::move(out));
}

// The specification's rate of each expert, for information: it is a statement about other records.
cbor::Value routing_aware(const RoutingStats& routing, const SamplingPlan& sampling) {
  std::vector<cbor::Value> rates;
  for (const double share : routing.values()) rates.emplace_back(share * sampling.rate.value_or(1));
  return cbor::map({{"rates", cbor::array(std::move(rates))}, {"note", "not a bound"}});
}

// A run without releases before the first step, or without routes, has no field for them.
cbor::Value with_optional(std::vector<cbor::Entry> entries, const Mechanism::Fixed& fixed) {
  if (!fixed.before.empty()) entries.push_back({"before", encoded(fixed.before)});
  if (fixed.router) entries.push_back({"routes", ByteView(hash_of(fixed.router->routes()))});
  return cbor::map(std::move(entries));
}

}  // namespace

Bytes Mechanism::save() const {
  const State& s = *state_;
  const auto& accumulation = s.accumulation;
  cbor::Value partial = nullptr;
  if (accumulation)
    partial = cbor::map({{"microbatches", accumulation->microbatches},
                         {"sum", packed(accumulation->sum.values())},
                         {"below", packed(accumulation->counts.below)},
                         {"within", packed(accumulation->counts.within)},
                         {"statistics", accumulation->statistics.encode()}});
  return cbor::encode(with_optional(
      {{"format", kFormat},
       {"specification", fmt::format("{} {}", kAlgorithm, kSpecVersion)},
       {"config_hash", ByteView(fixed_->config_hash)},
       {"layout_hash", ByteView(fixed_->layout.hash())},
       {"config", config_of(fixed_->dp())},
       {"t", s.t},
       {"t_micro_counter", s.t_micro},
       {"cumulative_epsilon", s.cumulative_epsilon},
       {"projected_final_epsilon", s.projected ? cbor::Value(*s.projected) : nullptr},
       {"accountant_state", s.accountant->save()},
       {"rng_dp_state", s.lineage.empty() ? cbor::Value(s.noise.offset)
                                          : cbor::array({s.noise.offset, s.lineage, s.again})},
       {"clip_norm_state", s.clip_norms ? cbor::Value(s.clip_norms->encode()) : nullptr},
       {"compression_state", s.magnitudes ? cbor::Value(packed(s.magnitudes->values())) : nullptr},
       {"accumulation_state", partial},
       {"allocation_map_snapshot", map_of(s.now.allocation)},
       {"per_module_snapshot", modules_of(s.now.layout, s.now.allocation.plan.partition)},
       {"sigma_schedule_cache", s.scheduler ? s.scheduler->cache() : cbor::Value(nullptr)},
       {"reserved_until", s.reserved_until},
       {"reserved_event", s.reserved ? cbor::Value(accounting::encode(*s.reserved)) : nullptr},
       {"sampling_rate_history_hash_chain", ByteView(s.sampling_rate_chain)},
       {"sigma_map_history_hash_chain", ByteView(s.sigma_map_chain)}},
      *fixed_));
}

// The state that the bytes encode, as far as it can be read.
std::unique_ptr<Mechanism::State> Mechanism::read(ByteView bytes) const {
  const cbor::Value saved = cbor::decode(bytes);
  auto next = std::make_unique<State>(*fixed_);
  State& s = *next;
  try {
    if (saved.at("format").as_text() != kFormat)
      malformed(kRestore, "its format is {}; expected {}", saved.at("format").as_text(), kFormat);
    require_equal(saved.at("config"), config_of(fixed_->dp()), "configuration");
    require_equal(saved.at("config_hash"), ByteView(fixed_->config_hash), "configuration");
    require_equal(saved.at("layout_hash"), ByteView(fixed_->layout.hash()), "model layout");
    const cbor::Value* before = saved.find("before");
    require_equal(before != nullptr ? *before : encoded({}), encoded(fixed_->before),
                  "release before the first step");
    const cbor::Value* routes = saved.find("routes");
    const cbor::Value own_routes =
        fixed_->router ? cbor::Value(ByteView(hash_of(fixed_->router->routes()))) : nullptr;
    require_equal(routes != nullptr ? *routes : cbor::Value(nullptr), own_routes, "set of routes");
    s.t = saved.at("t").as_unsigned();
    s.t_micro = saved.at("t_micro_counter").as_unsigned();
    s.elsewhere.reset();  // its sums are the caller's, and gone
    s.last_event = {};
    s.cumulative_epsilon = saved.at("cumulative_epsilon").as_float();
    if (!(s.cumulative_epsilon >= 0)) malformed(kRestore, "cumulative_epsilon is negative or NaN");
    s.projected.reset();
    if (const cbor::Value& projected = saved.at("projected_final_epsilon"); !projected.is_null()) {
      s.projected = projected.as_float();
      if (!(*s.projected >= 0)) malformed(kRestore, "projected_final_epsilon is negative or NaN");
    }
    s.accountant->restore(saved.at("accountant_state").as_bytes());
    s.spent = s.accountant->epsilon(fixed_->delta);
    const cbor::Value& rng = saved.at("rng_dp_state");
    if (rng.type() == cbor::Type::kArray) {
      if (rng.as_array().size() != 3) malformed(kRestore, "rng_dp_state is not a triple");
      s.noise.offset = rng.as_array()[0].as_unsigned();
      s.lineage = rng.as_array()[1].as_text();
      s.again = rng.as_array()[2].as_unsigned();
      s.stream = fixed_->streams.noise.fork(lineage_name(s.lineage));
    } else {
      s.noise.offset = rng.as_unsigned();
    }
    s.reserved_until = saved.at("reserved_until").as_unsigned();
    s.reserved.reset();
    if (!saved.at("reserved_event").is_null())
      s.reserved = accounting::decode_event(saved.at("reserved_event").as_bytes());
    if (s.t < s.reserved_until && !s.reserved) malformed(kRestore, "a reservation has no event");
    if (saved.at("clip_norm_state").is_null() == s.clip_norms.has_value())
      malformed(kRestore, "clip_norm_state does not fit the strategy");
    if (s.clip_norms) {
      const std::size_t parts = s.clip_norms->median.size();
      s.clip_norms = AdaptiveClipState::decode(saved.at("clip_norm_state").as_bytes());
      if (s.clip_norms->median.size() != parts)
        malformed(kRestore, "clip_norm_state has other parts");
    }
    if (!saved.at("compression_state").is_null()) {
      s.magnitudes.emplace(fixed_->layout);
      unpack(saved.at("compression_state").as_bytes(), s.magnitudes->values(), "compression_state");
    }
    if (saved.at("sigma_schedule_cache").is_null() == s.scheduler.has_value())
      malformed(kRestore, "sigma_schedule_cache does not fit the mode");
    if (s.scheduler) s.scheduler->restore(saved.at("sigma_schedule_cache"));
    s.sampling_rate_chain = digest_of(saved.at("sampling_rate_history_hash_chain"));
    s.sigma_map_chain = digest_of(saved.at("sigma_map_history_hash_chain"));
    s.now = prepare(*fixed_, s.t, s.clip_norms, s.magnitudes);
    require_equal(saved.at("allocation_map_snapshot"), map_of(s.now.allocation), "allocation");
    require_equal(saved.at("per_module_snapshot"),
                  modules_of(s.now.layout, s.now.allocation.plan.partition), "partition");
    if (const cbor::Value& partial = saved.at("accumulation_state"); !partial.is_null()) {
      const std::size_t parts = s.now.allocation.plan.partition.parts();
      s.accumulation.emplace(s.now.layout, parts);
      s.accumulation->microbatches = partial.at("microbatches").as_unsigned();
      if (s.accumulation->microbatches > fixed_->dp().gradient_accumulation_steps)
        malformed(kRestore, "more microbatches are accumulated than a step has");
      unpack(partial.at("sum").as_bytes(), s.accumulation->sum.values(), "accumulation_state.sum");
      unpack(partial.at("below").as_bytes(), s.accumulation->counts.below, "counts");
      unpack(partial.at("within").as_bytes(), s.accumulation->counts.within, "counts");
      s.accumulation->statistics = ClipStatistics::decode(partial.at("statistics").as_bytes());
      if (s.accumulation->statistics.parts() != parts)
        malformed(kRestore, "statistics have other parts");
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed || error.op() == kRestore) throw;
    malformed(kRestore, "{}", error.sentence());
  }
  return next;
}

void Mechanism::restore(ByteView bytes, std::optional<std::uint64_t> released, bool fresh) {
  std::unique_ptr<State> next = read(bytes);
  // What was not read back, or is not what it should be, shows in the bytes.
  state_.swap(next);
  const bool whole = save() == Bytes(bytes.begin(), bytes.end());
  state_.swap(next);
  if (!whole) malformed(kRestore, "it contains fields that this version does not write");

  const bool secure = fixed_->streams.noise.is_secure();
  if (!released && secure && fixed_->dp().enabled)
    invalid_input(kRestore,
                  "state how many steps the run has released: {} if none followed the saved state; "
                  "later steps must not reuse the same noise",
                  next->t);
  std::uint64_t until = released.value_or(next->t);
  if (secure && fixed_->dp().enabled && state_->t > 0) {
    // What this object released itself is known: no step of it may get the same noise again, and
    // none may be forgotten, however often a state is restored.
    if (until < state_->t)
      invalid_input(kRestore,
                    "released is {}, but this mechanism has released {}; pass that number, and "
                    "those steps are charged again",
                    until, state_->t);
    const std::uint64_t all = state_->t + state_->again, saved = next->t + next->again;
    if (all > saved) until = std::max(until, next->t + (all - saved));
  }
  if (until < next->t || (until > next->t && until > charged_steps(fixed_->dp())))
    invalid_input(kRestore,
                  "released is {}, but the saved state has {} steps, and the run has at most {}",
                  until, next->t, charged_steps(fixed_->dp()));
  // Other batches for the rest of an epoch may hold a record once more.
  const bool within_event = next->t % fixed_->sampling.steps_per_event() != 0;
  if (fixed_->dp().enabled && (until > next->t || (fresh && secure && within_event))) {
    std::unique_ptr<State> lost = read(bytes);
    charge_again(*fixed_, *lost, until);
    next->accountant = std::move(lost->accountant);
    next->spent = next->accountant->epsilon(fixed_->delta);
    next->cumulative_epsilon = std::max(next->cumulative_epsilon, next->spent.epsilon.upper);
    next->projected.reset();
    next->again += until - next->t;
  }
  if (fixed_->dp().enabled && (until > next->t || (fresh && secure))) {
    if (next->accumulation) next->t_micro -= next->accumulation->microbatches;
    next->accumulation.reset();
    next->lineage = to_hex(random::Key::from_system().secret_bytes());
    next->stream = fixed_->streams.noise.fork(lineage_name(next->lineage));
  }
  state_ = std::move(next);
}

std::string Mechanism::lineage() const {
  return state_->lineage.empty() ? std::string() : lineage_name(state_->lineage);
}

Digest Mechanism::replay() const {
  const DpConfig& dp = fixed_->dp();
  const Digest accountant = sha256(state_->accountant->save());
  return sha256(cbor::encode(
      cbor::array({"dp_apply_v3", ByteView(fixed_->token), state_->t, ByteView(accountant),
                   spelling(dp.privacy_allocation), dp.fused_kernel, dp.safety_budget_reserve})));
}

Digest Mechanism::fingerprint() const { return sha256(save()); }

FailureRecord Mechanism::emit_error(const Error& error) const {
  return {state_->t,     std::string(to_string(error.code())),
          error.op(),    replay(),
          fingerprint(), error.sentence()};
}

cbor::Value FailureRecord::to_cbor() const {
  return cbor::map({{"t", t},
                    {"failure_code", failure_code},
                    {"failure_operator", failure_operator},
                    {"dp_replay_t", ByteView(dp_replay)},
                    {"state_fp_t", ByteView(state_fp)},
                    {"diagnostics", diagnostics}});
}

cbor::Value Mechanism::trace_header() const {
  const DpConfig& dp = fixed_->dp();
  std::vector<cbor::Value> reasons(fixed_->not_private.begin(), fixed_->not_private.end());
  std::vector<cbor::Entry> entries = {
      {"specification", fmt::format("{} {}", kAlgorithm, kSpecVersion)},
      {"config_hash", ByteView(fixed_->config_hash)},
      {"layout_hash", ByteView(fixed_->layout.hash())},
      {"dp_mode", spelling(dp.mode)},
      {"accountant", spelling(dp.accountant)},
      {"clipping_strategy", spelling(dp.clip_strategy)},
      {"subsampling", spelling(dp.subsampling)},
      {"sampling_mode", spelling(dp.sampling_mode)},
      {"sampler_config_hash", ByteView(fixed_->sampling.hash())},
      {"adjacency", accounting::to_string(dp.adjacency)},
      {"parallelism.type", spelling(dp.parallelism)},
      {"noise_seed_per_step", dp.noise_seed_per_step},
      {"privacy_allocation_mode", spelling(dp.privacy_allocation)},
      // The allocation of the first step, whatever the state is now.
      {"allocation_map", map_of(prepare(*fixed_, 0, std::nullopt, std::nullopt).allocation)},
      {"fused_kernel", dp.fused_kernel},
      {"safety_budget_reserve", dp.safety_budget_reserve},
      {"accounting_approximation_policy", dp.accounting_approximation_policy
                                              ? cbor::Value(*dp.accounting_approximation_policy)
                                              : nullptr},
      {"target_epsilon", dp.target_epsilon},
      {"target_delta", dp.target_delta},
      {"accounted_delta", fixed_->delta},
      {"not_private", cbor::array(std::move(reasons))}};
  if (fixed_->routing)
    entries.push_back({"routing_aware_rates", routing_aware(*fixed_->routing, fixed_->sampling)});
  return with_optional(std::move(entries), *fixed_);
}

cbor::Value Mechanism::trace_end() const {
  const DpConfig& dp = fixed_->dp();
  const accounting::EpsilonBound bound = spent();
  const double warn = dp.target_epsilon * (1 - dp.safety_budget_reserve);
  const double upper = state_->cumulative_epsilon;
  cbor::Value sum_rule = nullptr;
  try {
    sum_rule = accounting::rdp_sum_rule_epsilon(state_->accountant->composed(), fixed_->delta)
                   .not_a_bound();
  } catch (const Error&) {
    // Defined for Gaussian groups under Poisson or no sampling only.
  }
  return cbor::map(
      {{"t", state_->t},
       {"final_epsilon", cbor::map({{"lower", bound.epsilon.lower}, {"upper", upper}})},
       {"delta", dp.target_delta},
       {"adjacency", accounting::to_string(dp.adjacency)},
       // PLD's declared bound on its own error; the others are upper bounds without one.
       {"epsilon_error_bound",
        dp.accountant == AccountantKind::kPld ? cbor::Value(upper - bound.epsilon.lower) : nullptr},
       {"budget_status", upper > dp.target_epsilon ? "exceeded"
                         : upper > warn            ? "within_reserve"
                                                   : "within_budget"},
       {"rdp_sum_rule_epsilon", sum_rule},
       {"rdp_sum_rule_epsilon_note", "not a bound"},
       {"accountant_summary_hash", ByteView(sha256(state_->accountant->save()))}});
}

cbor::Value trace_iter(const StepResult& step) {
  std::vector<cbor::Entry> entries = step.metrics.to_cbor().as_map();
  entries.push_back({"t", step.t});
  entries.push_back({"cumulative_epsilon_before", step.budget.before.upper});
  entries.push_back({"cumulative_epsilon_after", step.budget.after.upper});
  entries.push_back({"dp_replay_t", ByteView(step.replay)});
  // Noised inside the step's event: the one part of the line that may be published.
  if (step.released)
    entries.push_back(
        {"released", cbor::map({{"clip_fraction", step.released->clip_fraction},
                                {"group_clip_fraction",
                                 cbor::array({step.released->group_clip_fraction.begin(),
                                              step.released->group_clip_fraction.end()})}})});
  return cbor::map(std::move(entries));
}

}  // namespace discreet::mechanism
