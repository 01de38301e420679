#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/event.h"
#include "discreet/ledger/entry.h"

// Proof: spend.md

namespace discreet::ledger {

// The part of a descriptor's promise on which spends depend.
struct Bound {
  std::uint64_t clip = 0;  // as in Admission
  Promise promise = Promise::kWorstCase;
  std::uint64_t multiplier = 0, uses = 0, epsilon = 0;
  friend auto operator<=>(const Bound&, const Bound&) = default;
};

// Throws kInvalidDpConfig, naming the number, if no contribution can be used under these terms: a
// number is beyond its range (entry.h), the sampler is unknown or does not fit the other numbers or
// the adjacency, the family has no grid or needs one, or a sampler whose event is the epoch has
// parts of epochs.
void require_possible(const Terms& terms);

// The privacy event of an epoch under these terms for one such contribution, and its number: one
// per step, or one in total if the sampler makes the epoch the event.
//
// With noise of standard deviation s the record is clipped to min(C, s / m), so its noise
// multiplier is max(s / C, m). Under a worst-case promise (C, z, k), m is the multiplier that k
// uses need to keep it: z·sqrt(k); with Laplace noise, where norms are L1, that of
// admission/families.h. For Skellam noise m depends on the model, so only C is used. Under an
// amplified promise, m is the recorded multiplier. Rounds towards less noise and a higher rate.
// Throws as require_possible().
accounting::RepeatedEvent event_of(const Terms& terms, const Bound& bound);
// The same for all steps that the run of the terms has planned.
accounting::RepeatedEvent plan_of(const Terms& terms, const Bound& bound);

// True if k uses clipped in this way are jointly 1/z-GDP, so that their spend is at most that of
// one Gaussian release of multiplier z: Gaussian, rounded Gaussian and Laplace noise.
bool is_capped(Family family) noexcept;

Bound bound_of(const Admission& admission);

// The spend to report for a withdrawn contribution, under the header of its ledger: the last
// recorded spend, which covers the plans of its runs. In a ledger of schema 1, which has no plans,
// the larger of the last recorded spend and Spends::withdrawn(). used: the terms of its epochs.
std::uint64_t withdrawn_spend(const Header& header, const Admission& admission,
                              std::span<const Terms> used, std::uint64_t recorded);

// Cumulative spends. Contributions with equal histories share a state, so the accountant runs once
// per distinct history, not once per contribution. Memory grows with the number of distinct
// histories times the logarithm of the number of distinct events.
class Spends {
 public:
  using StateId = std::uint32_t;
  static constexpr StateId kNothing = 0;  // no event yet

  // accountant: a name known to make_accountant. delta: in (0, 1). Epsilons use the share 1 - 2^-30
  // of it; the rest covers the errors of the noise samplers.
  Spends(std::string accountant, double delta);

  // The state after composing `next` with a state; it composes events and never adds epsilons.
  // Throws kInvalidDpConfig if an event then occurs more than kMostNumber times.
  StateId after(StateId state, const accounting::RepeatedEvent& next);
  // The certified upper end of epsilon at delta, in millionths, rounded up. Throws kInvalidDpConfig
  // if the accountant finds no bound.
  std::uint64_t least(StateId state) const { return states_[state].micro; }
  // The same by pld, for any accountant: amplified promises are calibrated with pld.
  std::uint64_t certified(StateId state) const;
  // least() for `count` times one event, independent of any state.
  std::uint64_t least(const accounting::Event& event, std::uint64_t count) const;
  // The cost of one Gaussian release with the multiplier of a worst-case promise; the epsilon of an
  // amplified promise.
  std::uint64_t promised(const Bound& bound, accounting::Adjacency adjacency) const;
  // The cost of all uses that a contribution allowed; 0 if it has no epochs. In a ledger without
  // plans this is reported for a withdrawn contribution: the time of a withdrawal may depend on
  // earlier releases, and no composition up to such a time is a bound (spend.md). used: the events
  // of its epochs.
  std::uint64_t withdrawn(const Bound& bound, std::span<const accounting::Event> used) const;
  // The distinct events of a state.
  std::vector<accounting::Event> events(StateId state) const;
  std::size_t states() const noexcept { return states_.size(); }

 private:
  // A multiset is a binary tree of the least height for the numbers of its events; its leaves have
  // the counts. Equal trees are one node, so equal multisets have the same root, and states that
  // differ in one event share all nodes but a path.
  using NodeId = std::uint32_t;  // 0: an empty tree
  struct Node {
    NodeId left = 0, right = 0;
    std::uint64_t count = 0;  // of a leaf
    friend auto operator<=>(const Node&, const Node&) = default;
  };
  struct State {
    NodeId root = 0;
    int height = 0;
    std::uint64_t micro = 0;
  };
  NodeId node(const Node& node);
  // The tree with `count` more of an event.
  NodeId more(NodeId root, int height, std::uint32_t event, std::uint64_t count);
  // Calls work(event, count) in ascending order of the events' numbers.
  void each(const State& state, const auto& work) const;
  void each(NodeId root, int height, std::uint32_t first, const auto& work) const;
  std::uint64_t evaluate(const accounting::Accountant& accountant) const;

  std::string accountant_;
  double delta_;
  std::vector<accounting::Event> events_;
  std::map<accounting::Event, std::uint32_t> event_ids_;
  std::vector<Node> nodes_;
  std::map<Node, NodeId> node_ids_;
  std::vector<State> states_;
  std::map<NodeId, StateId> state_ids_;  // by root
};

}  // namespace discreet::ledger
