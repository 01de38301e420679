#include "discreet/ledger/spend.h"

#include <algorithm>
#include <cmath>

#include "discreet/admission/families.h"
#include "discreet/base/error.h"
#include "discreet/numerics/rounding.h"

namespace discreet::ledger {
namespace {

using accounting::Event;
using numerics::round_down;
using numerics::round_up;

constexpr const char* kOperator = "ledger terms";

// m: every use is cut until the noise is at least m times its norm.
double least_multiplier(Family family, const Bound& bound) {
  const double z = round_down(static_cast<double>(bound.multiplier) / kNano, 1);
  if (bound.promise == Promise::kAmplified) return z;
  if (family == Family::kSkellam) return 0;
  const auto k = static_cast<std::uint32_t>(std::min<std::uint64_t>(bound.uses, 0xffffffff));
  // Those round up; a run cuts by more than that much further (resolver.cpp, kRoom).
  return round_down(
      family == Family::kLaplace ? admission::laplace_use(k, z) : admission::gaussian_use(k, z), 8);
}

accounting::Mechanism mechanism_of(const Terms& terms, const Bound& bound) {
  if (terms.deviation == 0) invalid_config(kOperator, "the standard deviation of the noise is 0");
  if (bound.clip == 0) invalid_config(kOperator, "the clip norm is 0");
  const double deviation = static_cast<double>(terms.deviation);
  const double clip = static_cast<double>(bound.clip);
  const double declared = round_down(deviation / clip, 2);
  const double multiplier = std::max(declared, least_multiplier(terms.family, bound));
  const bool on_grid =
      terms.family == Family::kDiscreteGaussian || terms.family == Family::kSkellam;
  if (on_grid != (terms.grid != 0))
    invalid_config(kOperator, "only discrete Gaussian and Skellam noise have a grid");
  const double grid = static_cast<double>(terms.grid);
  switch (terms.family) {
    case Family::kGaussian: return accounting::Gaussian{multiplier};
    case Family::kRoundedGaussian: return accounting::RoundedGaussian{multiplier};
    case Family::kLaplace: return accounting::Laplace{round_down(multiplier / std::sqrt(2.0), 3)};
    case Family::kDiscreteGaussian:
      return accounting::DiscreteGaussian{multiplier, round_up(deviation / multiplier / grid, 4)};
    case Family::kSkellam: {
      const double norm = round_up(clip / grid, 3), scale = round_down(deviation / grid, 3);
      // A vector of whole numbers has |x| <= x^2, hence L1 norm at most the squared L2 norm.
      return accounting::Skellam{round_down(scale * scale, 1), round_up(norm * norm, 1), norm,
                                 norm};
    }
  }
  invalid_config(kOperator, "the noise family is unknown");
}

accounting::Sampling sampling_of(const Terms& terms) {
  const double rate = std::min(1.0, round_up(static_cast<double>(terms.rate) / kPico, 2));
  const auto unused = [&](bool no_rate, bool no_batch, bool no_population) {
    if ((no_rate && terms.rate != 0) || (no_batch && terms.batch != 0) ||
        (no_population && terms.population != 0))
      invalid_config(kOperator, "the terms contain a number that their sampler does not have");
  };
  if (terms.rate > static_cast<std::uint64_t>(kPico))
    invalid_config(kOperator, "the sampling rate is above 1");
  switch (terms.sampler) {
    case 0: unused(true, true, true); return accounting::NoSampling{};
    case 1: unused(false, true, true); return accounting::Poisson{rate};
    case 2: return accounting::TruncatedPoisson{rate, terms.batch, terms.population};
    case 3: unused(true, false, false); return accounting::FixedSize{terms.batch, terms.population};
    case 4: unused(true, false, true); return accounting::BallsAndBins{terms.batch};
    case 5: unused(true, false, true); return accounting::ShuffledEpoch{terms.batch};
  }
  invalid_config(kOperator, "{} is not a sampler", terms.sampler);
}

}  // namespace

bool is_capped(Family family) noexcept {
  return family == Family::kGaussian || family == Family::kRoundedGaussian ||
         family == Family::kLaplace;
}

accounting::RepeatedEvent event_of(const Terms& terms, const Bound& bound) {
  if (terms.steps == 0) invalid_config(kOperator, "an epoch must have at least one step");
  const bool whole_epoch = terms.sampler >= 4;
  if (whole_epoch && terms.steps != terms.batch)
    invalid_config(kOperator, "{} steps are not an epoch of {} batches", terms.steps, terms.batch);
  return {Event(mechanism_of(terms, bound), sampling_of(terms), terms.adjacency),
          whole_epoch ? 1 : terms.steps};
}

accounting::RepeatedEvent plan_of(const Terms& terms, const Bound& bound) {
  accounting::RepeatedEvent plan = event_of(terms, bound);
  const bool whole_epoch = terms.sampler >= 4;
  if (whole_epoch && terms.planned_steps % terms.batch != 0)
    invalid_config(kOperator, "{} planned steps are not whole epochs of {} batches",
                   terms.planned_steps, terms.batch);
  plan.count = whole_epoch ? terms.planned_steps / terms.batch : terms.planned_steps;
  return plan;
}

Bound bound_of(const Admission& a) { return {a.clip, a.promise, a.multiplier, a.uses, a.epsilon}; }

std::uint64_t withdrawn_spend(const Header& header, const Admission& admission,
                              std::span<const Terms> used, std::uint64_t recorded) {
  if (used.empty() || header.schema >= 2) return recorded;
  std::vector<Event> events;
  for (const Terms& terms : used) events.push_back(event_of(terms, bound_of(admission)).event);
  const Spends spends(header.accountant, static_cast<double>(header.delta) / kAtto);
  return std::max(recorded, spends.withdrawn(bound_of(admission), events));
}

Spends::Spends(std::string accountant, double delta)
    : accountant_(std::move(accountant)),
      delta_(round_down(delta * (1 - 0x1p-30), 1)),
      states_{{{}, 0}},
      state_ids_{{{}, 0}} {
  if (accounting::make_accountant(accountant_)->epsilon(delta_).epsilon.upper != 0)
    invalid_config(kOperator, "an event cannot cost nothing");
}

std::uint64_t Spends::evaluate(const accounting::Accountant& accountant) const {
  const double upper = accountant.epsilon(delta_).epsilon.upper;
  const double micro = std::ceil(round_up(upper * kMicro, 1));
  if (!(micro < 0x1p62)) invalid_config(kOperator, "the spend {} cannot be recorded", upper);
  return static_cast<std::uint64_t>(micro);
}

std::uint64_t Spends::certified(StateId state) const {
  if (accountant_ == "pld") return states_[state].micro;
  const auto accountant = accounting::make_accountant("pld");
  for (const auto& [event, count] : states_[state].events)
    accountant->compose(events_[event], count);
  return evaluate(*accountant);
}

std::uint64_t Spends::least(const accounting::Event& event, std::uint64_t count) const {
  const auto accountant = accounting::make_accountant(accountant_);
  accountant->compose(event, count);
  return evaluate(*accountant);
}

std::uint64_t Spends::promised(const Bound& bound, accounting::Adjacency adjacency) const {
  if (bound.promise == Promise::kAmplified) return bound.epsilon;
  const double z = round_down(static_cast<double>(bound.multiplier) / kNano, 1);
  return least(Event(accounting::Gaussian{z}, accounting::NoSampling{}, adjacency), 1);
}

std::uint64_t Spends::withdrawn(const Bound& bound, std::span<const Event> used) const {
  if (used.empty()) return 0;
  const auto capped = [](const Event& event) {
    return !std::holds_alternative<accounting::DiscreteGaussian>(event.mechanism()) &&
           !std::holds_alternative<accounting::Skellam>(event.mechanism());
  };
  if (bound.promise == Promise::kAmplified || std::ranges::all_of(used, capped))
    return promised(bound, used.front().adjacency());
  // k uses of each kind of noise that it met, whoever took part.
  std::vector<accounting::Mechanism> kinds;
  for (const Event& event : used)
    if (std::ranges::find(kinds, event.mechanism()) == kinds.end())
      kinds.push_back(event.mechanism());
  const auto accountant = accounting::make_accountant(accountant_);
  for (const accounting::Mechanism& kind : kinds)
    accountant->compose(Event(kind, accounting::NoSampling{}, used.front().adjacency()),
                        bound.uses);
  return evaluate(*accountant);
}

std::vector<Event> Spends::events(StateId state) const {
  std::vector<Event> out;
  for (const auto& [event, count] : states_[state].events) out.push_back(events_[event]);
  return out;
}

Spends::StateId Spends::after(StateId state, const accounting::RepeatedEvent& next) {
  const auto [known, fresh] =
      event_ids_.try_emplace(next.event, static_cast<std::uint32_t>(events_.size()));
  if (fresh) events_.push_back(next.event);
  Multiset events = states_[state].events;
  const auto at =
      std::lower_bound(events.begin(), events.end(), std::pair(known->second, std::uint64_t{0}));
  if (at != events.end() && at->first == known->second) {
    if (at->second + next.count < next.count)
      invalid_config(kOperator, "the count of an event exceeds 64 bits");
    at->second += next.count;
  } else {
    events.insert(at, {known->second, next.count});
  }
  if (const auto found = state_ids_.find(events); found != state_ids_.end()) return found->second;
  const auto accountant = accounting::make_accountant(accountant_);
  for (const auto& [event, count] : events) accountant->compose(events_[event], count);
  const std::uint64_t micro = evaluate(*accountant);
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back({events, micro});
  state_ids_.emplace(std::move(events), id);
  return id;
}

}  // namespace discreet::ledger
