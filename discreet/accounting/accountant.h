#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/event.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/base/bytes.h"

// The interface of every accountant.
//
// An accountant is a multiset of events and a method to bound its privacy. Every accountant has
// these properties, which one test suite checks (accountant_contract_test.cpp):
//   - The order of events does not matter. Composing an event n times gives the same bits as
//     composing it once with count n.
//   - More events never give a smaller upper end; a larger delta never gives a larger one.
//   - upper is at least the true value, lower at most.
//   - An event that the accountant cannot bound is rejected by name, and the state is unchanged.
//   - save and restore reproduce every answer bit for bit.
// Answers hold for schedules that are fixed in advance or depend only on the accountant's state.
// Noise that depends on released values needs a filter (filter.h).
namespace discreet::accounting {

// The bound on epsilon at a given delta.
struct EpsilonBound {
  Interval epsilon;     // decisions use upper; lower is 0 if an accountant provides none
  Adjacency adjacency;  // adjacency of the events, without which epsilon has no meaning
  // An approximation justified only by the central limit theorem; never part of `epsilon`.
  std::optional<CltEpsilon> approximation;
};

struct AccountantOptions {
  // Form sums of log-moments over events as logarithms (max-rescaled), so that neither a tiny nor a
  // huge spend leaves the range of binary64 in runs beyond 10^4 steps. Both methods round up and
  // agree to 1e-12; recorded results name the method. Accountants without such sums (pld, f_dp and
  // the exact part of gdp) always work with logarithms and ignore this option.
  bool log_space_accounting = false;
  friend bool operator==(const AccountantOptions&, const AccountantOptions&) = default;
};

class Accountant {
 public:
  virtual ~Accountant() = default;

  // "pld", "rdp", "moments", "gdp" or "f_dp".
  virtual std::string_view name() const noexcept = 0;
  // The accountant whose theorem gives the upper end of epsilon() for the current events. This is
  // name(), except that gdp uses "rdp" if a step is subsampled.
  virtual std::string_view bounded_by() const noexcept { return name(); }
  virtual std::unique_ptr<Accountant> clone() const = 0;
  // The adjacency of the events; kAddRemove if there are none.
  virtual Adjacency adjacency() const noexcept = 0;

  // The multiset, sorted by event.
  virtual std::vector<RepeatedEvent> composed() const = 0;

  // Adds `count` >= 1 occurrences. Throws kInvalidDpConfig, naming the event, if this accountant
  // cannot bound it or its adjacency differs from that of the present events; kAccountantOverflow
  // if the count exceeds 64 bits. The state is then unchanged.
  virtual void compose(const Event& event, std::uint64_t count = 1) = 0;

  // delta in (0, 1), otherwise kInvalidDpConfig. Without events, epsilon is [0, 0].
  virtual EpsilonBound epsilon(double delta) const = 0;
  // delta(epsilon) for finite epsilon >= 0, otherwise kInvalidDpConfig.
  virtual Interval delta(double epsilon) const = 0;

  // True if `count` more of this event would raise epsilon(delta).upper above the target; such a
  // step must not be released. Throws as compose() and epsilon() do; the state is unchanged.
  virtual bool would_exceed(const Event& event, std::uint64_t count, double target,
                            double delta) const {
    const std::unique_ptr<Accountant> after = clone();
    after->compose(event, count);
    return !(after->epsilon(delta).epsilon.upper <= target);
  }

  // The state as deterministic CBOR, and its restoration. restore throws kMalformed for bytes that
  // save() of the same kind of accountant cannot produce; the state is then unchanged.
  virtual Bytes save() const = 0;
  virtual void restore(ByteView bytes) = 0;
};

// The accountant with this name; throws kInvalidDpConfig if the name is unknown.
std::unique_ptr<Accountant> make_accountant(std::string_view name, AccountantOptions options = {});

// Computes epsilon(delta) of the accountant's events a second time, by every method of
// PldAccountant that applies to them, and compares: throws kAccountantDivergence, with both
// intervals, if two intervals contain no common value. An accountant without a lower end is
// compared by its upper end alone. Events that PldAccountant cannot compose are not compared
// (returns false). Slow: for runs that ask for it, and tests.
bool require_agreement(const Accountant& accountant, double delta);

}  // namespace discreet::accounting
