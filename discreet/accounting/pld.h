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

// The method that produced a result.
enum class Path : std::uint8_t {
  kClosedForm,  // closed_form.h
  kContour,     // contour.h
  kTransform,   // transform.h
  kRenyi,       // renyi_budget.h, from above only: delta at an epsilon above 1000
  kAllocation,  // balls_and_bins.h: balls and bins
  kBracket,     // an attack from below, a dominating pair from above; the gap is unknown
};
std::string_view to_string(Path path) noexcept;        // "closed_form", "contour" and so on
std::string_view to_string(Direction worst) noexcept;  // "remove", "add"

// A certified privacy quantity: the exact value lies in [lower, upper].
struct Certified {
  Interval value;   // epsilon or delta; decisions use value.upper
  Path path;        // method of the worse direction
  Direction worst;  // the direction with the larger upper
  double error() const noexcept { return value.upper - value.lower; }
};

// The requested width of results. If it cannot be reached at bounded cost, results are wider but
// still correct.
struct Accuracy {
  double contour = 1e-10;   // relative width in delta
  double transform = 1e-3;  // relative width in epsilon; absolute above epsilon = 1
};

// epsilon(delta) or delta(epsilon) of a composition. Both directions are evaluated; the worse one
// is returned. Each direction uses the first method that certifies: closed form, contour,
// transform. Throws kInvalidDpConfig unless delta is in (0, 1) and epsilon finite and >= 0. Without
// steps the result is [0, 0]. Throws kAccountantOverflow if a method returns NaN.
Certified certified_epsilon(const Composition& steps, double delta, const Accuracy& accuracy = {});
Certified certified_delta(const Composition& steps, double epsilon, const Accuracy& accuracy = {});

// Evaluates every applicable method in both directions, and throws kAccountantDivergence with the
// numbers unless all intervals of a direction overlap. Returns the result of certified_epsilon.
Certified verified_epsilon(const Composition& steps, double delta, const Accuracy& accuracy = {});

// Throws kAccountantDivergence, with methods and numbers, unless the two intervals overlap.
void require_overlap(Path first, const Interval& a, Path second, const Interval& b);

// The privacy spent by a run: a sorted multiset of events. Equal multisets give the same bits in
// every result and in save(), in whatever order events were added. Valid for schedules that are
// fixed in advance or depend only on this accountant's state; a schedule that depends on released
// values needs a filter. Queries keep caches: an object is not thread-safe, not even its const
// members.
class PldAccountant {
 public:
  // All events must have this adjacency.
  explicit PldAccountant(Adjacency adjacency);

  // Records `count` >= 1 occurrences of the event. Supported are all events that reduce() accepts;
  // or balls-and-bins epochs; or identical fixed-size steps under replace_one, shuffled epochs or
  // truncated Poisson steps. These kinds cannot be combined. Throws kInvalidDpConfig, naming the
  // event, if it cannot be accounted for, and kAccountantOverflow if the counts would exceed 2^63;
  // the state is then unchanged. Repeating an event costs a look-up in the multiset.
  void add(const Event& event, std::uint64_t count = 1);

  Adjacency adjacency() const noexcept { return adjacency_; }
  std::vector<RepeatedEvent> events() const;  // sorted
  std::uint64_t steps() const noexcept { return steps_; }

  Certified epsilon(double delta, const Accuracy& accuracy = {}) const;
  Certified delta(double epsilon, const Accuracy& accuracy = {}) const;
  // The result of verified_epsilon.
  Certified verify(double delta, const Accuracy& accuracy = {}) const;

  // True if the run with `count` more of this event would have epsilon(delta).upper > target; the
  // step must then not be released. Far below the target a sum of log-moments decides, near it the
  // full certificate. target >= 0.
  bool would_exceed(const Event& event, std::uint64_t count, double target, double delta) const;

  // The state as deterministic CBOR, restored bit for bit. Throws kMalformed for other bytes.
  Bytes save() const;
  static PldAccountant restore(ByteView bytes);

  friend bool operator==(const PldAccountant& a, const PldAccountant& b) {
    return a.adjacency_ == b.adjacency_ && a.events_ == b.events_;
  }

 private:
  bool composes() const;  // true if the events form a Composition

  // Contour evaluations of earlier queries; not copied.
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
  Composition reduced_;  // of events_, if they form a composition
  RenyiBudget budget_;
  mutable Sessions sessions_;
};

}  // namespace discreet::accounting
