#include "discreet/accounting/contour_totals_impl.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace discreet::accounting::contour {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::pair<double, double> key_of(const GaussianSteps& steps) { return {steps.rate, steps.sigma}; }
std::pair<double, double> key_of(const ExplicitSteps& steps) {
  return {steps.epsilon, steps.delta};
}

// Planning sums begin with the number of steps that have no window; those add nothing else.
void count_failure(std::span<double> values) {
  const bool failed = std::isnan(values[1]);
  if (failed) std::fill(values.begin(), values.end(), 0.0);
  values[0] = failed ? 1 : 0;
}

double value_unless_failed(const std::vector<Fixed>& total, std::size_t i) {
  return total[0].value() == 0 ? total[i + 1].value() : kNaN;
}

}  // namespace

Event::Event(const GaussianSteps& steps, Direction direction) : parameter_(steps.sigma) {
  if (steps.rate == 1) {
    full_batch_ = true;
  } else {
    grid_ = std::make_unique<CoarseGrid>(Step{steps.rate, steps.sigma, direction});
  }
}

Event::Event(const ExplicitSteps& steps, Direction) : parameter_(steps.epsilon) {}

const Window& Event::window(int order, Tolerance tolerance) const {
  if (asked_.order != order || !(asked_.tolerance == tolerance)) {
    asked_ = {order, tolerance, grid_->window(ladder(order), tolerance)};
  }
  return asked_.window;
}

double Event::log_mass(int order, int window_order, Tolerance tolerance) const {
  const double c = ladder(order);
  if (full_batch_) return full_batch_log_mass(parameter_, c);
  if (!grid_) return explicit_log_mass(parameter_, c);
  const Window& window = this->window(window_order, tolerance);
  return window.feasible ? grid_->log_mass(c, window) : kNaN;
}

void Event::decays(int order, Tolerance tolerance, int first, std::span<double> out) const {
  if (!grid_ && !full_batch_) return std::fill(out.begin(), out.end(), 0.0);
  const double c = ladder(order);
  std::optional<Layers> layers;
  double mass = 0;
  if (grid_) {
    const Window& window = this->window(order, tolerance);
    if (!window.feasible) return std::fill(out.begin(), out.end(), kNaN);
    mass = grid_->log_mass(c, window);
    layers.emplace(*grid_, c, window, mass);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double t = ladder(first + 2 * static_cast<int>(i));
    out[i] = layers ? layers->log_bound(t, mass)
                    : std::max(-700.0, -t * t / (2 * parameter_ * parameter_));
  }
}

std::int64_t Event::contribute(const Contour& contour, const Spoil& spoil, std::int64_t most_nodes,
                               std::span<double> out) const {
  if (grid_) return contribute_subsampled(*grid_, contour, spoil, most_nodes, out);
  if (full_batch_) {
    contribute_full_batch(parameter_, contour, out);
  } else {
    contribute_explicit(parameter_, contour, out);
  }
  return 0;
}

void Totals::add(Sum& sum, const Event& event, std::int64_t count, const Spoil& spoil) {
  scratch_.resize(sum.total.size());
  const Contour& contour = sum.key.contour;
  switch (sum.key.kind) {
    case Kind::kMass:
      scratch_[1] = event.log_mass(contour.order, contour.image_order, contour.tolerance);
      count_failure(scratch_);
      break;
    case Kind::kDecays:
      event.decays(contour.order, contour.tolerance, contour.cut, std::span(scratch_).subspan(1));
      count_failure(scratch_);
      break;
    case Kind::kContributions:
      nodes_ +=
          event.contribute(contour, spoil,
                           static_cast<std::int64_t>(
                               kMostWork / std::max(1.0, static_cast<double>(contour.terms()))),
                           scratch_);
      break;
  }
  for (std::size_t i = 0; i < scratch_.size(); ++i) {
    sum.total[i] += Fixed::product(count, scratch_[i]);
  }
}

Totals::Sum& Totals::find(const Key& key, const Spoil& spoil) {
  for (Sum& sum : sums_) {
    if (sum.key == key) {
      sum.idle = 0;
      return sum;
    }
  }
  std::size_t size = 2;
  if (key.kind == Kind::kDecays) size = 1 + kDecays;
  if (key.kind == Kind::kContributions) size = contribution_size(key.contour);
  Sum& sum = sums_.emplace_back(Sum{key, std::vector<Fixed>(size)});
  const auto add_all = [&](const auto& kept) {
    for (const auto& [steps, event] : kept) {
      add(sum, *event, static_cast<std::int64_t>(steps.count), spoil);
      if (key.kind == Kind::kContributions && sum.total[kUnfit].value() != 0) return;
    }
  };
  add_all(gaussians_);
  add_all(explicits_);
  return sum;
}

double Totals::log_mass(int order, int window_order, Tolerance tolerance) {
  const Sum& sum = find({Kind::kMass, {order, window_order, 0, 0, tolerance}}, {});
  return value_unless_failed(sum.total, 0);
}

std::vector<double> Totals::decays(int order, Tolerance tolerance, int first) {
  const Sum& sum = find({Kind::kDecays, {order, 0, 0, first, tolerance}}, {});
  std::vector<double> values(kDecays);
  for (std::size_t i = 0; i < kDecays; ++i) values[i] = value_unless_failed(sum.total, i);
  return values;
}

const std::vector<Fixed>* Totals::contributions(const Contour& contour, const Spoil& spoil) {
  if (static_cast<double>(contour.terms()) * 16 > kMostWork) return nullptr;
  Sum& sum = find({Kind::kContributions, contour}, spoil);
  if (sum.total[kUnfit].value() == 0) return &sum.total;
  sum.idle = kPatience;
  return nullptr;
}

// Both lists are sorted: beside a common beginning and end, one walk finds what differs.
template <class Steps>
void Totals::update(std::vector<Kept<Steps>>& kept, const std::vector<Steps>& now,
                    Changes& changes) {
  std::size_t begin = 0;
  std::size_t old_end = kept.size();
  std::size_t new_end = now.size();
  while (begin < old_end && begin < new_end && kept[begin].steps == now[begin]) ++begin;
  while (old_end > begin && new_end > begin && kept[old_end - 1].steps == now[new_end - 1]) {
    --old_end;
    --new_end;
  }
  std::vector<Kept<Steps>> middle;
  std::size_t old = begin;
  const auto drop = [&](Kept<Steps>& gone) {
    const auto count = static_cast<std::int64_t>(gone.steps.count);
    changes.list.push_back({gone.event.get(), -count});
    changes.gone.push_back(std::move(gone.event));
  };
  for (std::size_t i = begin; i < new_end; ++i) {
    while (old < old_end && key_of(kept[old].steps) < key_of(now[i])) drop(kept[old++]);
    const auto count = static_cast<std::int64_t>(now[i].count);
    if (old < old_end && key_of(kept[old].steps) == key_of(now[i])) {
      const auto more = count - static_cast<std::int64_t>(kept[old].steps.count);
      changes.list.push_back({kept[old].event.get(), more});
      middle.push_back({now[i], std::move(kept[old++].event)});
    } else {
      middle.push_back({now[i], std::make_unique<Event>(now[i], direction_)});
      changes.list.push_back({middle.back().event.get(), count});
    }
  }
  while (old < old_end) drop(kept[old++]);
  const auto at = [&](std::size_t i) { return kept.begin() + static_cast<std::ptrdiff_t>(i); };
  kept.erase(at(begin), at(old_end));
  kept.insert(at(begin), std::make_move_iterator(middle.begin()),
              std::make_move_iterator(middle.end()));
}

void Totals::move_to(const Composition& composition) {
  std::erase_if(sums_, [](Sum& sum) { return sum.idle++ >= kPatience; });
  nodes_ = 0;
  subsampled_count_ = 0;
  for (const GaussianSteps& steps : composition.gaussians) {
    if (steps.rate < 1) subsampled_count_ += static_cast<double>(steps.count);
  }
  Changes changes;
  update(gaussians_, composition.gaussians, changes);
  update(explicits_, composition.explicits, changes);
  if (2 * changes.list.size() > distinct()) {
    sums_.clear();
    return;
  }
  for (Sum& sum : sums_) {
    for (const Change& change : changes.list) add(sum, *change.event, change.count, {});
  }
  // A sum that overflowed on the way is computed afresh when asked for.
  std::erase_if(sums_, [](const Sum& sum) {
    return std::any_of(sum.total.begin(), sum.total.end(),
                       [](const Fixed& f) { return std::isnan(f.value()); });
  });
}

}  // namespace discreet::accounting::contour
