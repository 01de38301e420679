#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "discreet/accounting/composition.h"
#include "discreet/accounting/contour_fixed_impl.h"
#include "discreet/accounting/contour_layers_impl.h"
#include "discreet/accounting/contour_step_impl.h"
#include "discreet/accounting/contour_terms_impl.h"

namespace discreet::accounting::contour {

// One distinct step of a composition, of any kind, seen from one direction.
class Event {
 public:
  Event(const GaussianSteps& steps, Direction direction);
  explicit Event(const ExplicitSteps& steps);

  bool subsampled() const noexcept { return grid_ != nullptr; }
  // Estimate of log M at one order over the window of another; NaN if there is no window.
  double log_mass(int order, int window_order, Tolerance tolerance) const;
  // Estimates of log |M(c+it)|/M(c) at t = ladder(first), ladder(first + 2), ...
  void decays(int order, Tolerance tolerance, int first, std::span<double> out) const;
  std::int64_t contribute(const Contour& contour, const Spoil& spoil, std::int64_t most_nodes,
                          std::span<double> out) const;

 private:
  std::unique_ptr<CoarseGrid> grid_;
  bool full_batch_ = false;
  double parameter_;  // sigma, or the explicit epsilon
};

// The sums over a composition that planning and certificate need. Each is exact (Fixed), hence the
// same whether it was summed afresh or carried along while steps were added and removed.
class Totals {
 public:
  explicit Totals(Direction direction) : direction_(direction) {}

  // Moves to another composition. Sums used since the last move are carried along at the cost of
  // the steps that differ; others are dropped.
  void move_to(const Composition& composition);

  double log_mass(int order, int window_order, Tolerance tolerance);
  std::vector<double> decays(int order, Tolerance tolerance, int first);
  // Contributions on the contour, or nullptr if a step cannot be evaluated there within kMostWork.
  // Valid until the next call.
  const std::vector<Fixed>* contributions(const Contour& contour, const Spoil& spoil);

  std::size_t distinct() const noexcept { return events_.size(); }
  double subsampled_count() const noexcept { return subsampled_count_; }
  // Nodes along x that were evaluated since the last move.
  std::int64_t nodes() const noexcept { return nodes_; }
  static constexpr std::size_t kDecays = 16;
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
    bool used = true;
  };
  struct Entry {
    Event event;
    GaussianSteps gaussian;
    ExplicitSteps listed;
    std::uint64_t count;
  };

  Sum& find(const Key& key, const Spoil& spoil);
  void add(Sum& sum, const Event& event, std::int64_t count, const Spoil& spoil);

  Direction direction_;
  std::vector<std::unique_ptr<Entry>> events_;  // in the order of the composition
  std::vector<Sum> sums_;
  std::vector<double> scratch_;
  double subsampled_count_ = 0;
  std::int64_t nodes_ = 0;
};

}  // namespace discreet::accounting::contour
