#pragma once

#include <map>

#include "discreet/accounting/accountant.h"

// The common part of the accountants: the multiset of events in canonical order, its arithmetic and
// its serialisation.
namespace discreet::accounting {

using EventCounts = std::map<Event, std::uint64_t>;

class TallyAccountant : public Accountant {
 public:
  explicit TallyAccountant(AccountantOptions options) : options_(options) {}
  Adjacency adjacency() const noexcept final;
  std::vector<RepeatedEvent> composed() const final;
  void compose(const Event& event, std::uint64_t count = 1) final;
  Bytes save() const final;
  void restore(ByteView bytes) final;
  EpsilonBound epsilon(double delta) const final;
  Interval delta(double epsilon) const final;

 protected:
  // Throws as `compose` does if this accountant has no bound for the event.
  virtual void check(const Event& event) const = 0;
  // Called only if there are events, with checked arguments.
  virtual EpsilonBound evaluate_epsilon(double delta) const = 0;
  virtual Interval evaluate_delta(double epsilon) const = 0;

  const EventCounts& events() const noexcept { return events_; }
  const AccountantOptions& options() const noexcept { return options_; }

 private:
  EventCounts events_;
  AccountantOptions options_;
};

// Throws kInvalidDpConfig: "<event> has no bound in this accountant".
[[noreturn]] void refuse(std::string_view accountant, const Event& event);

}  // namespace discreet::accounting
