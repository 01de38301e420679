#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "discreet/accounting/contour/contour.h"
#include "discreet/accounting/event.h"
#include "discreet/accounting/renyi/renyi_budget.h"

namespace discreet::accounting {

// Proof: pld.md

// Which evaluation gave a result.
enum class Path : std::uint8_t {
  kClosedForm,  // closed_form.h
  kContour,     // contour.h
  kTransform,   // transform.h
  kAllocation,  // balls_and_bins.h: balls and bins
  kBracket,     // an attack from below, a dominating pair from above: the gap is not known
};
std::string_view to_string(Path path) noexcept;        // "closed_form", "contour" and so on
std::string_view to_string(Direction worst) noexcept;  // "remove", "add"

// A privacy quantity with its proof obligations: the exact value lies in [lower, upper].
struct Certified {
  Interval value;   // epsilon or delta; decisions use value.upper
  Path path;        // of the worse direction
  Direction worst;  // the direction with the larger upper
  double error() const noexcept { return value.upper - value.lower; }
};

// How narrow results should be. Where it cannot be had at a bounded cost, they are wider, never
// wrong.
struct Accuracy {
  double contour = 1e-10;   // of delta, relative
  double transform = 1e-3;  // of epsilon, relative; absolute above epsilon = 1
};

// epsilon(delta), or delta(epsilon), of a composition: both directions separately, the worse one
// wins. Each direction takes the first path that certifies: closed form, contour, transform. delta
// in (0, 1), epsilon >= 0 and finite, else kInvalidDpConfig. No steps: [0, 0]. Throws
// kAccountantOverflow if a path yields NaN.
Certified certified_epsilon(const Composition& steps, double delta, const Accuracy& accuracy = {});
Certified certified_delta(const Composition& steps, double epsilon, const Accuracy& accuracy = {});

// Evaluates every path that applies, in both directions, and throws kAccountantDivergence with the
// numbers unless all intervals of a direction overlap. Returns what certified_epsilon returns.
Certified verified_epsilon(const Composition& steps, double delta, const Accuracy& accuracy = {});

// Throws kAccountantDivergence, with paths and numbers, unless the two intervals overlap.
void require_overlap(Path first, const Interval& a, Path second, const Interval& b);

// The privacy spent by a run: a sorted multiset of events. The same multiset has the same bits in
// every result and in save(), whatever the order of add(). For schedules fixed in advance or driven
// by this accountant's own state; a schedule that reacts to released values needs a filter.
// Queries keep caches: an object is not thread-safe, not even its const members.
class PldAccountant {
 public:
  // All events must be under this adjacency.
  explicit PldAccountant(Adjacency adjacency);

  // Events are those that reduce() takes; or balls-and-bins epochs; or fixed-size steps under
  // replace_one, shuffled epochs or truncated Poisson steps, all alike. These kinds do not mix.
  // Records that the event happened `count` times, count >= 1. Throws kInvalidDpConfig, naming the
  // event, if it cannot be accounted for, and kAccountantOverflow if counts would pass 2^63; the
  // state is then as it was. Repeating an event takes a look-up in the multiset.
  void add(const Event& event, std::uint64_t count = 1);

  Adjacency adjacency() const noexcept { return adjacency_; }
  std::vector<RepeatedEvent> events() const;  // in their order
  std::uint64_t steps() const noexcept { return steps_; }

  Certified epsilon(double delta, const Accuracy& accuracy = {}) const;
  Certified delta(double epsilon, const Accuracy& accuracy = {}) const;
  // As verified_epsilon.
  Certified verify(double delta, const Accuracy& accuracy = {}) const;

  // Whether the run with `count` more of this event would have epsilon(delta).upper > target: the
  // step must then not be released. Far below the target a sum of log-moments decides, near it the
  // full certificate. target >= 0.
  bool would_exceed(const Event& event, std::uint64_t count, double target, double delta) const;

  // Deterministic CBOR of the state, and back bit for bit. Throws kMalformed for other bytes.
  Bytes save() const;
  static PldAccountant restore(ByteView bytes);

  friend bool operator==(const PldAccountant& a, const PldAccountant& b) {
    return a.adjacency_ == b.adjacency_ && a.events_ == b.events_;
  }

 private:
  bool composes() const;  // whether the events are a Composition

  // Contour evaluations of earlier queries; a copy starts without.
  struct Sessions {
    std::optional<ContourSession> remove, add;
    Sessions() = default;
    Sessions(const Sessions&) {}
    Sessions(Sessions&&) = default;
    Sessions& operator=(const Sessions&) {
      remove.reset();
      add.reset();
      return *this;
    }
    Sessions& operator=(Sessions&&) = default;
    ContourSession& of(Direction direction);
  };

  Adjacency adjacency_;
  std::map<Event, std::uint64_t> events_;
  std::uint64_t steps_ = 0;
  Composition reduced_;  // of events_, where they are a composition
  RenyiBudget budget_;
  mutable Sessions sessions_;
};

}  // namespace discreet::accounting
