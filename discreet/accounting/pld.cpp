#include "discreet/accounting/pld.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "discreet/accounting/closed_form.h"
#include "discreet/accounting/sampling/whole_epochs_impl.h"
#include "discreet/accounting/tradeoff/gdp.h"
#include "discreet/accounting/transform/transform.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"

namespace discreet::accounting {
namespace {

constexpr Direction kDirections[] = {Direction::kRemove, Direction::kAdd};
// At a coarser contour more settings certify, and still far better than by transform.
constexpr double kCoarseContour = 1e-6;
// Relative width for a direction that is probably not the worse one.
constexpr double kGlance = 0.1;
constexpr double kU = 0x1p-53;

struct Answer {
  Interval value;
  Path path;
};

void require_delta(double delta) {
  if (!(delta > 0 && delta < 1))
    invalid_config("PldAccountant", "delta is {}; it must be in (0, 1)", delta);
}

void require_epsilon(double epsilon) {
  if (!(epsilon >= 0) || !std::isfinite(epsilon))
    invalid_config("PldAccountant", "epsilon is {}; it must be finite and not negative", epsilon);
}

// NaN, and an infinity that is not the truth, are terminal.
Answer checked(Answer answer) {
  const bool lost = std::isinf(answer.value.upper) && !std::isinf(answer.value.lower);
  if (!(answer.value.lower <= answer.value.upper) || lost)
    fail(ErrorCode::kAccountantOverflow, "PldAccountant",
         "the {} path returned [{}, {}]; the schedule exceeds the range of binary64",
         to_string(answer.path), answer.value.lower, answer.value.upper);
  return answer;
}

// For losses beyond every grid: as if every record took part in every step, or by log-moments.
double far_epsilon_upper(const Composition& steps, double delta) {
  RenyiBudget budget;
  budget.add(steps);
  const double by_moments = budget.epsilon_upper(delta);
  if (!steps.explicits.empty()) return by_moments;
  double square = 0;
  for (const GaussianSteps& each : steps.gaussians)
    square += static_cast<double>(each.count) / (each.sigma * each.sigma);
  const auto kinds = static_cast<double>(steps.gaussians.size());
  // 1/sigma^2 may underflow, as in GdpAccountant.
  const double mu = std::sqrt(square) * (1 + kU * (kinds + 8)) + 1e-143 * kinds;
  constexpr double kMostMu = 1e150;  // whose square, about epsilon, is in range
  if (!(mu < kMostMu)) return by_moments;
  return std::min(by_moments, gaussian_epsilon(mu, delta).upper);
}

bool empty(const Composition& steps) { return steps.gaussians.empty() && steps.explicits.empty(); }

// One direction's evaluations of epsilon(delta).
class EpsilonPaths {
 public:
  EpsilonPaths(const Composition& steps, double delta, const Accuracy& accuracy,
               ContourSession* sessions[2])
      : steps_(steps), delta_(delta), accuracy_(accuracy), sessions_(sessions) {}

  std::optional<Answer> closed_form(Direction direction) const {
    const auto value = closed_form_epsilon(steps_, direction, delta_);
    if (!value) return std::nullopt;
    return checked({*value, Path::kClosedForm});
  }

  std::optional<Answer> contour(Direction direction) const {
    for (const double width : {accuracy_.contour, std::max(accuracy_.contour, kCoarseContour)}) {
      ContourSession* session = sessions_ ? sessions_[direction == Direction::kAdd] : nullptr;
      const auto result = session ? session->epsilon(steps_, delta_, width)
                                  : contour_epsilon(steps_, direction, delta_, width);
      if (result) return checked({result->value, Path::kContour});
    }
    return std::nullopt;
  }

  // Whether the direction is surely not worse than a value of the other one.
  bool no_worse(Direction direction, double level) const {
    if (!(level > 0)) return false;
    ContourSession* session = sessions_ ? sessions_[direction == Direction::kAdd] : nullptr;
    return session ? session->holds(steps_, level, delta_)
                   : contour_holds(steps_, direction, level, delta_);
  }

  // Wide, because it is enough to know that this direction is not the worse one.
  Answer glance(Direction direction, double level) const {
    return by_grid(direction, kGlance * level);
  }

  Answer transform(Direction direction) const {
    const Answer first = by_grid(direction, accuracy_.transform);
    Interval value = first.value;
    // A small epsilon deserves a width in proportion.
    const double wanted = accuracy_.transform * value.upper;
    if (value.upper < 1 && value.upper > 0 && value.upper - value.lower > wanted) {
      const Interval again = transform_epsilon(steps_, direction, delta_, wanted).value;
      value = {std::max(value.lower, again.lower), std::min(value.upper, again.upper)};
    }
    return checked({value, first.path});
  }

 private:
  Answer by_grid(Direction direction, double width) const {
    const Interval found = transform_epsilon(steps_, direction, delta_, width).value;
    if (!std::isinf(found.upper) || std::isinf(found.lower))
      return checked({found, Path::kTransform});
    return checked({{found.lower, far_epsilon_upper(steps_, delta_)}, Path::kBracket});
  }

  const Composition& steps_;
  double delta_;
  const Accuracy& accuracy_;
  ContourSession** sessions_;
};

class DeltaPaths {
 public:
  DeltaPaths(const Composition& steps, double epsilon, const Accuracy& accuracy,
             ContourSession* sessions[2])
      : steps_(steps), epsilon_(epsilon), accuracy_(accuracy), sessions_(sessions) {}

  std::optional<Answer> closed_form(Direction direction) const {
    const auto value = closed_form_delta(steps_, direction, epsilon_);
    if (!value) return std::nullopt;
    return checked({*value, Path::kClosedForm});
  }

  std::optional<Answer> contour(Direction direction) const {
    for (const double width : {accuracy_.contour, std::max(accuracy_.contour, kCoarseContour)}) {
      ContourSession* session = sessions_ ? sessions_[direction == Direction::kAdd] : nullptr;
      const auto result = session ? session->delta(steps_, epsilon_, width)
                                  : contour_delta(steps_, direction, epsilon_, width);
      if (result) return checked({result->value, Path::kContour});
    }
    return std::nullopt;
  }

  bool no_worse(Direction direction, double level) const {
    if (!(level > 0 && level < 1)) return false;
    ContourSession* session = sessions_ ? sessions_[direction == Direction::kAdd] : nullptr;
    return session ? session->holds(steps_, epsilon_, level)
                   : contour_holds(steps_, direction, epsilon_, level);
  }

  Answer glance(Direction direction, double) const { return by_grid(direction, kGlance); }

  Answer transform(Direction direction) const { return by_grid(direction, accuracy_.transform); }

 private:
  Answer by_grid(Direction direction, double width) const {
    // Losses of this size leave the range of e^x, and a grid of them would fill memory.
    constexpr double kMostEpsilon = 1000;
    if (epsilon_ <= kMostEpsilon)
      return checked({transform_delta(steps_, direction, epsilon_, width).value, Path::kTransform});
    RenyiBudget budget;
    budget.add(steps_);
    return checked({{0, budget.delta_upper(epsilon_)}, Path::kRenyi});
  }

  const Composition& steps_;
  double epsilon_;
  const Accuracy& accuracy_;
  ContourSession** sessions_;
};

template <class Paths>
std::optional<Answer> cheap(const Paths& paths, Direction direction) {
  if (auto answer = paths.closed_form(direction)) return answer;
  return paths.contour(direction);
}

// By transform, only as accurately as the known other direction requires.
template <class Paths>
Answer beside(const Paths& paths, Direction direction, const std::optional<Answer>& other) {
  if (other && other->value.lower > 0) {
    const Answer glance = paths.glance(direction, other->value.lower);
    if (glance.value.upper <= other->value.lower) return glance;
  }
  return paths.transform(direction);
}

Certified worse(const Answer& remove, const Answer& add) {
  const bool removes = remove.value.upper >= add.value.upper;
  return {{std::max(remove.value.lower, add.value.lower),
           std::max(remove.value.upper, add.value.upper)},
          removes ? remove.path : add.path,
          removes ? Direction::kRemove : Direction::kAdd};
}

constexpr Certified kNothing{{0, 0}, Path::kClosedForm, Direction::kRemove};

template <class Paths>
Certified certify(const Paths& paths) {
  std::optional<Answer> remove = cheap(paths, Direction::kRemove);
  // Adding nearly always has the smaller epsilon, usually by so much that a bound shows it.
  if (remove && remove->path == Path::kContour &&
      paths.no_worse(Direction::kAdd, remove->value.lower)) {
    return {remove->value, remove->path, Direction::kRemove};
  }
  std::optional<Answer> add = cheap(paths, Direction::kAdd);
  if (!remove) remove = beside(paths, Direction::kRemove, add);
  if (!add) add = beside(paths, Direction::kAdd, remove);
  return worse(*remove, *add);
}

Certified verify_paths(const EpsilonPaths& paths) {
  for (const Direction direction : kDirections) {
    std::vector<Answer> answers{paths.transform(direction)};
    if (auto answer = paths.closed_form(direction)) answers.push_back(*answer);
    if (auto answer = paths.contour(direction)) answers.push_back(*answer);
    for (const Answer& a : answers)
      for (const Answer& b : answers) require_overlap(a.path, a.value, b.path, b.value);
  }
  return certify(paths);
}

}  // namespace

std::string_view to_string(Path path) noexcept {
  switch (path) {
    case Path::kClosedForm: return "closed_form";
    case Path::kContour: return "contour";
    case Path::kTransform: return "transform";
    case Path::kRenyi: return "renyi";
    case Path::kAllocation: return "balls_and_bins";
    case Path::kBracket: return "bracket";
  }
  return "unknown";
}

std::string_view to_string(Direction worst) noexcept {
  return worst == Direction::kRemove ? "remove" : "add";
}

void require_overlap(Path first, const Interval& a, Path second, const Interval& b) {
  if (a.lower <= b.upper && b.lower <= a.upper) return;
  fail(ErrorCode::kAccountantDivergence, "PldAccountant",
       "the {} path returned [{}, {}] and the {} path [{}, {}], which do not overlap; trust "
       "neither and report this",
       to_string(first), a.lower, a.upper, to_string(second), b.lower, b.upper);
}

Certified certified_epsilon(const Composition& steps, double delta, const Accuracy& accuracy) {
  require_delta(delta);
  return empty(steps) ? kNothing : certify(EpsilonPaths(steps, delta, accuracy, nullptr));
}

Certified certified_delta(const Composition& steps, double epsilon, const Accuracy& accuracy) {
  require_epsilon(epsilon);
  return empty(steps) ? kNothing : certify(DeltaPaths(steps, epsilon, accuracy, nullptr));
}

Certified verified_epsilon(const Composition& steps, double delta, const Accuracy& accuracy) {
  require_delta(delta);
  return empty(steps) ? kNothing : verify_paths(EpsilonPaths(steps, delta, accuracy, nullptr));
}

ContourSession& PldAccountant::Sessions::of(Direction direction) {
  auto& session = direction == Direction::kRemove ? remove : add;
  if (!session) session.emplace(direction);
  return *session;
}

PldAccountant::PldAccountant(Adjacency adjacency) : adjacency_(adjacency) {}

void PldAccountant::add(const Event& event, std::uint64_t count) {
  if (event.adjacency() != adjacency_) {
    invalid_config("PldAccountant", "{} cannot be added to a total under {}", describe(event),
                   to_string(adjacency_));
  }
  if (!events_.empty()) require_joinable(events_.begin()->first, event);
  const bool composes = family_of(event) == Family::kComposition;
  const Composition reduced = composes ? reduce({{event, count}}) : Composition{};
  if (count == 0) {
    invalid_config("PldAccountant", "the count of {} is 0; it must be at least 1", describe(event));
  }
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 63;
  if (count >= kLimit - steps_) {
    fail(ErrorCode::kAccountantOverflow, "PldAccountant", "{} plus {} steps exceed the counter",
         steps_, count);
  }
  events_[event] += count;
  steps_ += count;
  reduced_.merge(reduced);
  budget_.add(reduced);
}

std::vector<RepeatedEvent> PldAccountant::events() const {
  std::vector<RepeatedEvent> all;
  all.reserve(events_.size());
  for (const auto& [event, count] : events_) all.push_back({event, count});
  return all;
}

bool PldAccountant::composes() const {
  return events_.empty() || family_of(events_.begin()->first) == Family::kComposition;
}

Certified PldAccountant::epsilon(double delta, const Accuracy& accuracy) const {
  require_delta(delta);
  if (events_.empty()) return kNothing;
  if (!composes()) return whole_epochs_epsilon(events(), delta, accuracy.transform);
  ContourSession* sessions[2] = {&sessions_.of(Direction::kRemove), &sessions_.of(Direction::kAdd)};
  return certify(EpsilonPaths(reduced_, delta, accuracy, sessions));
}

Certified PldAccountant::delta(double epsilon, const Accuracy& accuracy) const {
  require_epsilon(epsilon);
  if (events_.empty()) return kNothing;
  if (!composes()) return whole_epochs_delta(events(), epsilon, accuracy.transform);
  ContourSession* sessions[2] = {&sessions_.of(Direction::kRemove), &sessions_.of(Direction::kAdd)};
  return certify(DeltaPaths(reduced_, epsilon, accuracy, sessions));
}

Certified PldAccountant::verify(double delta, const Accuracy& accuracy) const {
  // Whole epochs have one path only; there is nothing to compare it with.
  return composes() ? verified_epsilon(reduced_, delta, accuracy) : epsilon(delta, accuracy);
}

bool PldAccountant::would_exceed(const Event& event, std::uint64_t count, double target,
                                 double delta) const {
  require_delta(delta);
  require_epsilon(target);
  if (event.adjacency() != adjacency_) {
    invalid_config("PldAccountant", "{} cannot be added to a total under {}", describe(event),
                   to_string(adjacency_));
  }
  if (family_of(event) != Family::kComposition) {
    PldAccountant after = *this;
    after.add(event, count);
    return !(after.epsilon(delta).value.upper <= target);
  }
  if (!events_.empty()) require_joinable(events_.begin()->first, event);
  RenyiBudget budget = budget_;
  const Composition more = reduce({{event, count}});
  budget.add(more);
  if (budget.epsilon_upper(delta) <= target) return false;
  Composition steps = reduced_;
  steps.merge(more);
  ContourSession* sessions[2] = {&sessions_.of(Direction::kRemove), &sessions_.of(Direction::kAdd)};
  const Accuracy accuracy;
  return !(certify(EpsilonPaths(steps, delta, accuracy, sessions)).value.upper <= target);
}

Bytes PldAccountant::save() const {
  std::vector<cbor::Value> items;
  for (const auto& [event, count] : events_)
    items.push_back(cbor::array({cbor::decode(encode(event)), count}));
  return cbor::encode(cbor::map({{"accountant", "pld"},
                                 {"adjacency", to_string(adjacency_)},
                                 {"events", cbor::array(std::move(items))}}));
}

PldAccountant PldAccountant::restore(ByteView bytes) {
  const cbor::Value value = cbor::decode(bytes);
  try {
    if (value.as_map().size() != 3 || value.at("accountant").as_text() != "pld")
      malformed("PldAccountant::restore", "this is not the state of a PLD accountant");
    std::optional<PldAccountant> restored;
    for (const Adjacency a : {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne})
      if (to_string(a) == value.at("adjacency").as_text()) restored.emplace(a);
    if (!restored) malformed("PldAccountant::restore", "the adjacency is unknown");
    for (const cbor::Value& item : value.at("events").as_array()) {
      if (item.as_array().size() != 2)
        malformed("PldAccountant::restore", "an event must have a count");
      const Event event = decode_event(cbor::encode(item.as_array()[0]));
      if (!restored->events_.empty() && !(restored->events_.rbegin()->first < event))
        malformed("PldAccountant::restore", "the events are not sorted");
      restored->add(event, item.as_array()[1].as_unsigned());
    }
    return std::move(*restored);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidInput) throw;
    malformed("PldAccountant::restore", "{}", error.sentence());
  }
}

}  // namespace discreet::accounting
