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

// What a descriptor promises of one contribution, as far as spends depend on it.
struct Bound {
  std::uint64_t clip = 0;  // as in Admission
  Promise promise = Promise::kWorstCase;
  std::uint64_t multiplier = 0, uses = 0, epsilon = 0;
  friend auto operator<=>(const Bound&, const Bound&) = default;
};

// The privacy event that an epoch under these terms is for one such contribution, and how often it
// happens: per step, or once where the sampler makes the epoch the event.
//
// With noise of standard deviation s the record is clipped to min(C, s / m), so its noise
// multiplier is max(s / C, m). Under a worst-case promise (C, z, k) m is what k uses need to keep
// it: z·sqrt(k), with Laplace noise, where norms are L1, that of admission/families.h. Of Skellam
// noise it depends on the model; what is counted on is C. Under an amplified promise m is the
// recorded multiplier. Rounded towards less noise and a higher rate. Throws kInvalidDpConfig for
// terms out of range.
accounting::RepeatedEvent event_of(const Terms& terms, const Bound& bound);
// The same of all steps that the terms' run has planned.
accounting::RepeatedEvent plan_of(const Terms& terms, const Bound& bound);

// Whether k uses so cut are 1/z-GDP together, so that their spend is at most that of one Gaussian
// release of multiplier z: Gaussian, rounded Gaussian and Laplace noise.
bool is_capped(Family family) noexcept;

Bound bound_of(const Admission& admission);

// The spend that is stated of a contribution that was withdrawn, under the header of its ledger:
// the last recorded one, which is of the plans of its runs. In a ledger of schema 1, which has no
// plans, Spends::withdrawn() if that is more. used: the terms of its epochs.
std::uint64_t withdrawn_spend(const Header& header, const Admission& admission,
                              std::span<const Terms> used, std::uint64_t recorded);

// Cumulative spends, each computed once: contributions with the same history share a state, so the
// accountant runs as often as there are different histories, not contributions.
class Spends {
 public:
  using StateId = std::uint32_t;
  static constexpr StateId kNothing = 0;  // no event yet

  // accountant: a name that make_accountant takes. delta in (0, 1); epsilons are for a part
  // 1 - 2^-30 of it, the rest is for what the samplers of noise leave out.
  Spends(std::string accountant, double delta);

  // The state after `next` in a state; composes events, never adds epsilons.
  StateId after(StateId state, const accounting::RepeatedEvent& next);
  // The least number of millionths that is no less than the certified upper end of epsilon at
  // delta. Throws kInvalidDpConfig if the accountant finds none.
  std::uint64_t least(StateId state) const { return states_[state].micro; }
  // The same by pld, whatever the accountant: what an amplified promise was calibrated by.
  std::uint64_t certified(StateId state) const;
  // least() for `count` times one event, outside of every state.
  std::uint64_t least(const accounting::Event& event, std::uint64_t count) const;
  // What one Gaussian release with the multiplier of a worst-case promise costs; the epsilon of an
  // amplified one.
  std::uint64_t promised(const Bound& bound, accounting::Adjacency adjacency) const;
  // What all uses that a contribution allowed would have cost. In a ledger without plans it is
  // stated of one that was withdrawn: the time of a withdrawal may depend on what was released
  // before it, and no composition up to such a time is a bound (spend.md). used: the events of its
  // epochs; 0 if there are none.
  std::uint64_t withdrawn(const Bound& bound, std::span<const accounting::Event> used) const;
  // The events of a state, each once.
  std::vector<accounting::Event> events(StateId state) const;
  std::size_t states() const noexcept { return states_.size(); }

 private:
  using Multiset = std::vector<std::pair<std::uint32_t, std::uint64_t>>;  // event, count; sorted
  struct State {
    Multiset events;
    std::uint64_t micro;
  };
  std::uint64_t evaluate(const accounting::Accountant& accountant) const;

  std::string accountant_;
  double delta_;
  std::vector<accounting::Event> events_;
  std::map<accounting::Event, std::uint32_t> event_ids_;
  std::vector<State> states_;
  std::map<Multiset, StateId> state_ids_;
};

}  // namespace discreet::ledger
