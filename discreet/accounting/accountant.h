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

// One interface for every accountant.
//
// An accountant is a multiset of events and a way to bound its privacy. What follows holds for each
// of them and is checked by one test-suite (accountant_contract_test.cpp):
//   - the order in which events come does not matter, and composing an event n times is composing
//   it
//     once with count n: the same bits;
//   - more events never give a smaller upper end; a larger delta never gives a larger one;
//   - upper is at least the truth, lower at most;
//   - an event it cannot bound is refused by name and the state stays as it was;
//   - save and restore reproduce every answer bit for bit.
// Answers are for schedules fixed in advance (or driven by the accountant's own state). Noise that
// reacts to released values needs a filter (filter.h).
namespace discreet::accounting {

// What is known about epsilon at a delta.
struct EpsilonBound {
  Interval epsilon;     // decisions use epsilon.upper; lower is 0 where an accountant has none
  Adjacency adjacency;  // of the events; an epsilon means nothing without it
  // A number only the central limit theorem vouches for; never part of `epsilon`.
  std::optional<CltEpsilon> approximation;
};

struct AccountantOptions {
  // Sums of log-moments over events are formed as logarithms (max-rescaled), so that neither a tiny
  // nor a huge spend leaves the range of binary64 in runs beyond 10^4 steps. Both ways are rounded
  // up and agree to 1e-12; recorded results name the one they used. Accountants that keep no such
  // sums (pld, f_dp and the exact part of gdp) work with logarithms anyway and ignore it.
  bool log_space_accounting = false;
  friend bool operator==(const AccountantOptions&, const AccountantOptions&) = default;
};

class Accountant {
 public:
  virtual ~Accountant() = default;

  // "pld", "rdp", "moments", "gdp" or "f_dp".
  virtual std::string_view name() const noexcept = 0;
  // The one whose theorem gives the upper end of epsilon() for the events so far: name(), except
  // that gdp takes it from "rdp" where a step is subsampled.
  virtual std::string_view bounded_by() const noexcept { return name(); }
  virtual std::unique_ptr<Accountant> clone() const = 0;
  // Of the events; kAddRemove while there are none.
  virtual Adjacency adjacency() const noexcept = 0;

  // The multiset, in the order of events.
  virtual std::vector<RepeatedEvent> composed() const = 0;

  // Adds `count` >= 1 occurrences. Throws kInvalidDpConfig, naming the event, if this accountant
  // cannot bound it or its adjacency is not that of the events already there; kAccountantOverflow
  // if the count leaves 64 bits. The state is unchanged then.
  virtual void compose(const Event& event, std::uint64_t count = 1) = 0;

  // delta in (0, 1); kInvalidDpConfig otherwise. No events: epsilon is [0, 0].
  virtual EpsilonBound epsilon(double delta) const = 0;
  // delta(epsilon) for finite epsilon >= 0; kInvalidDpConfig otherwise.
  virtual Interval delta(double epsilon) const = 0;

  // Whether `count` more of this event would take epsilon(delta).upper above the target: such a
  // step must not be released. Throws as compose() and epsilon() do; the state stays as it is.
  virtual bool would_exceed(const Event& event, std::uint64_t count, double target,
                            double delta) const {
    const std::unique_ptr<Accountant> after = clone();
    after->compose(event, count);
    return !(after->epsilon(delta).epsilon.upper <= target);
  }

  // The state as deterministic CBOR, and back. restore throws kMalformed for bytes that save of the
  // same kind of accountant does not produce; the state is unchanged then.
  virtual Bytes save() const = 0;
  virtual void restore(ByteView bytes) = 0;
};

// By its name; kInvalidDpConfig for any other.
std::unique_ptr<Accountant> make_accountant(std::string_view name, AccountantOptions options = {});

}  // namespace discreet::accounting
