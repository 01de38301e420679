#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/contour/contour_fixed_impl.h"
#include "discreet/accounting/contour/contour_layers_impl.h"
#include "discreet/accounting/contour/contour_step_impl.h"
#include "discreet/accounting/contour/contour_terms_impl.h"

namespace discreet::accounting::contour {

// One distinct step of a composition, of any kind, in one direction.
class Event {
 public:
  Event(const GaussianSteps& steps, Direction direction);
  Event(const ExplicitSteps& steps, Direction direction);

  bool subsampled() const noexcept { return grid_ != nullptr; }
  // Estimate of log M at one order over the window of another; NaN if there is no window.
  double log_mass(int order, int window_order, Tolerance tolerance) const;
  // Estimates of log |M(c+it)|/M(c) at t = ladder(first), ladder(first + 2), ...
  void decays(int order, Tolerance tolerance, int first, std::span<double> out) const;
  std::int64_t contribute(const Contour& contour, const Spoil& spoil, std::int64_t most_nodes,
                          std::span<double> out) const;

 private:
  const Window& window(int order, Tolerance tolerance) const;

  std::unique_ptr<CoarseGrid> grid_;
  // The last window requested: planning requests the same window many times in a row.
  struct Asked {
    int order = 0;
    Tolerance tolerance{0, 0, 0};
    Window window;
  };
  mutable Asked asked_;
  bool full_batch_ = false;
  double parameter_;  // sigma, or the explicit epsilon
};

// The sums over a composition that planning and certificate need. Each is exact (Fixed), so it does
// not matter whether it was summed from scratch or updated while steps were added and removed.
class Totals {
 public:
  explicit Totals(Direction direction) : direction_(direction) {}

  // The difference between another composition and the current one: steps [begin, old_end) of this
  // one correspond to [begin, new_end) of the other; the steps before and after are common.
  struct Part {
    std::size_t begin, old_end, new_end;
  };
  struct Difference {
    Part gaussians, explicits;
  };
  Difference difference(const Composition& composition) const;

  // Moves to another composition. Sums are updated at the cost of the steps that differ, and
  // dropped if they were not requested during kPatience moves.
  void move_to(const Composition& composition) { move_to(composition, difference(composition)); }
  void move_to(const Composition& composition, const Difference& difference);

  double log_mass(int order, int window_order, Tolerance tolerance);
  std::vector<double> decays(int order, Tolerance tolerance, int first);
  // Contributions on the contour, or nullptr if a step cannot be evaluated there within kMostWork.
  // Valid until the next call.
  const std::vector<Fixed>* contributions(const Contour& contour, const Spoil& spoil);

  std::size_t distinct() const noexcept {
    return gaussians_.steps.size() + explicits_.steps.size();
  }
  double subsampled_count() const noexcept { return static_cast<double>(subsampled_count_); }
  // The number of nodes along x evaluated since the last move.
  std::int64_t nodes() const noexcept { return nodes_; }
  static constexpr std::size_t kDecays = 16;
  static constexpr int kPatience = 8;
  static constexpr double kMostWork = 2e6;  // nodes times terms, for one distinct step

 private:
  enum class Kind { kMass, kDecays, kContributions };
  struct Key {
    Kind kind;
    Contour contour;  // fields that a kind does not use are 0
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Sum {
    Key key;
    std::vector<Fixed> total;
    int idle = 0;  // number of moves since the last request
  };
  template <class Steps>
  struct Kept {
    std::vector<Steps> steps;  // in the order of the composition
    std::vector<std::unique_ptr<Event>> events;
  };
  struct Change {
    const Event* event;
    std::int64_t count;
  };
  struct Changes {
    std::vector<Change> list;
    std::vector<std::unique_ptr<Event>> gone;  // still needed for subtraction
  };

  template <class Steps>
  void update(Kept<Steps>& kept, const std::vector<Steps>& now, const Part& part, Changes& changes);
  Sum& find(const Key& key, const Spoil& spoil);
  void add(Sum& sum, const Event& event, std::int64_t count, const Spoil& spoil);

  Direction direction_;
  Kept<GaussianSteps> gaussians_;
  Kept<ExplicitSteps> explicits_;
  std::vector<Sum> sums_;
  std::vector<double> scratch_;
  Int128 subsampled_count_ = 0;  // exact, hence independent of the order
  std::int64_t nodes_ = 0;
};

}  // namespace discreet::accounting::contour
