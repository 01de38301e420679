#include "discreet/ledger/spend.h"

#include <algorithm>
#include <bit>
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

bool has_grid(Family family) {
  return family == Family::kDiscreteGaussian || family == Family::kSkellam;
}

// The sampler makes the epoch the event.
bool is_whole_epoch(const Terms& terms) { return terms.sampler >= 4; }

// m: every use is clipped until the noise is at least m times its norm.
double least_multiplier(Family family, const Bound& bound) {
  const double z = round_down(static_cast<double>(bound.multiplier) / kNano, 1);
  if (bound.promise == Promise::kAmplified) return z;
  if (family == Family::kSkellam) return 0;
  const auto k = static_cast<std::uint32_t>(std::min<std::uint64_t>(bound.uses, 0xffffffff));
  // Those round up; a run clips further by more than that (resolver.cpp, kRoom).
  return round_down(
      family == Family::kLaplace ? admission::laplace_use(k, z) : admission::gaussian_use(k, z), 8);
}

accounting::Mechanism mechanism_of(const Terms& terms, const Bound& bound) {
  if (bound.clip == 0) invalid_config(kOperator, "the clip norm is 0");
  const double deviation = static_cast<double>(terms.deviation);
  const double clip = static_cast<double>(bound.clip);
  const double declared = round_down(deviation / clip, 2);
  const double multiplier = std::max(declared, least_multiplier(terms.family, bound));
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

void require_possible(const Terms& terms) {
  const auto require = [&](std::string_view name, std::uint64_t number, std::uint64_t least) {
    if (number < least || number > kMostNumber)
      invalid_config(kOperator,
                     "the {} in the terms of run {} is {}; it must be from {} to {} (2^53)", name,
                     terms.run, number, least, kMostNumber);
  };
  require("number of steps", terms.steps, 1);
  require("number of planned steps", terms.planned_steps, 0);  // none in schema 1
  require("standard deviation of the noise", terms.deviation, 1);
  require("grid step of the noise", terms.grid, 0);
  require("batch", terms.batch, 0);
  require("population", terms.population, 0);
  if (terms.family > Family::kSkellam) invalid_config(kOperator, "the noise family is unknown");
  // Rounded up it is above 0: an event that costs nothing.
  if (terms.rate == 0 && (terms.sampler == 1 || terms.sampler == 2))
    invalid_config(kOperator, "the sampling rate in the terms of run {} is 0; it must be above 0",
                   terms.run);
  if (has_grid(terms.family) != (terms.grid != 0))
    invalid_config(kOperator, "only discrete Gaussian and Skellam noise have a grid");
  static_cast<void>(Event(accounting::Gaussian{1}, sampling_of(terms), terms.adjacency));
  if (!is_whole_epoch(terms)) return;
  if (terms.steps != terms.batch)
    invalid_config(kOperator, "{} steps are not an epoch of {} batches", terms.steps, terms.batch);
  if (terms.planned_steps % terms.batch != 0)
    invalid_config(kOperator, "{} planned steps are not whole epochs of {} batches",
                   terms.planned_steps, terms.batch);
}

accounting::RepeatedEvent event_of(const Terms& terms, const Bound& bound) {
  require_possible(terms);
  return {Event(mechanism_of(terms, bound), sampling_of(terms), terms.adjacency),
          is_whole_epoch(terms) ? 1 : terms.steps};
}

accounting::RepeatedEvent plan_of(const Terms& terms, const Bound& bound) {
  accounting::RepeatedEvent plan = event_of(terms, bound);
  plan.count = is_whole_epoch(terms) ? terms.planned_steps / terms.batch : terms.planned_steps;
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
      nodes_(1),
      states_(1),
      state_ids_{{0, kNothing}} {
  if (accounting::make_accountant(accountant_)->epsilon(delta_).epsilon.upper != 0)
    invalid_config(kOperator, "an event cannot cost nothing");
}

void Spends::each(NodeId root, int height, std::uint32_t first, const auto& work) const {
  if (root == 0) return;
  if (height == 0) {
    work(first, nodes_[root].count);
    return;
  }
  each(nodes_[root].left, height - 1, first, work);
  each(nodes_[root].right, height - 1, first | std::uint32_t{1} << (height - 1), work);
}

void Spends::each(const State& state, const auto& work) const {
  each(state.root, state.height, 0, work);
}

Spends::NodeId Spends::node(const Node& node) {
  const auto [known, fresh] = node_ids_.try_emplace(node, static_cast<NodeId>(nodes_.size()));
  if (fresh) nodes_.push_back(node);
  return known->second;
}

Spends::NodeId Spends::more(NodeId root, int height, std::uint32_t event, std::uint64_t count) {
  Node at = nodes_[root];
  if (height == 0) {
    if (count > kMostNumber - at.count)
      invalid_config(kOperator,
                     "an event occurs {} times and then {} times more; it may occur {} times "
                     "(2^53) in total",
                     at.count, count, kMostNumber);
    return node({0, 0, at.count + count});
  }
  NodeId& child = (event >> (height - 1) & 1) != 0 ? at.right : at.left;
  child = more(child, height - 1, event, count);
  return node(at);
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
  each(states_[state], [&](std::uint32_t event, std::uint64_t count) {
    accountant->compose(events_[event], count);
  });
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
  // k uses of each kind of noise that it met, regardless of who took part.
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
  each(states_[state], [&](std::uint32_t event, std::uint64_t) { out.push_back(events_[event]); });
  return out;
}

Spends::StateId Spends::after(StateId state, const accounting::RepeatedEvent& next) {
  const auto [known, fresh] =
      event_ids_.try_emplace(next.event, static_cast<std::uint32_t>(events_.size()));
  if (fresh) events_.push_back(next.event);
  State to = states_[state];
  for (const int height = std::bit_width(known->second); to.height < height; ++to.height)
    if (to.root != 0) to.root = node({to.root, 0, 0});
  to.root = more(to.root, to.height, known->second, next.count);
  if (const auto found = state_ids_.find(to.root); found != state_ids_.end()) return found->second;
  const auto accountant = accounting::make_accountant(accountant_);
  each(to, [&](std::uint32_t event, std::uint64_t count) {
    accountant->compose(events_[event], count);
  });
  to.micro = evaluate(*accountant);
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back(to);
  state_ids_.emplace(to.root, id);
  return id;
}

}  // namespace discreet::ledger
