#include "discreet/accounting/contour/contour_totals_impl.h"

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

// Planning sums start with the number of steps that have no window; those add nothing else.
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
    for (std::size_t i = 0; i < kept.steps.size(); ++i) {
      add(sum, *kept.events[i], static_cast<std::int64_t>(kept.steps[i].count), spoil);
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

namespace {

template <class Steps>
Totals::Part part_that_differs(const std::vector<Steps>& kept, const std::vector<Steps>& now) {
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(kept.size(), now.size()));
  const auto front = std::mismatch(kept.begin(), kept.begin() + shorter, now.begin()).first;
  const std::ptrdiff_t begin = front - kept.begin();
  const auto back =
      std::mismatch(kept.rbegin(), kept.rbegin() + (shorter - begin), now.rbegin()).first;
  const auto end = static_cast<std::size_t>(back - kept.rbegin());
  return {static_cast<std::size_t>(begin), kept.size() - end, now.size() - end};
}

Int128 subsampled(const std::vector<GaussianSteps>& steps, std::size_t begin, std::size_t end) {
  Int128 count = 0;
  for (std::size_t i = begin; i < end; ++i) {
    if (steps[i].rate < 1) count += static_cast<Int128>(steps[i].count);
  }
  return count;
}

}  // namespace

Totals::Difference Totals::difference(const Composition& composition) const {
  return {part_that_differs(gaussians_.steps, composition.gaussians),
          part_that_differs(explicits_.steps, composition.explicits)};
}

// Both lists are sorted: one walk over the part that differs finds how.
template <class Steps>
void Totals::update(Kept<Steps>& kept, const std::vector<Steps>& now, const Part& part,
                    Changes& changes) {
  std::vector<std::unique_ptr<Event>> middle;
  std::size_t old = part.begin;
  const auto drop = [&] {
    changes.list.push_back(
        {kept.events[old].get(), -static_cast<std::int64_t>(kept.steps[old].count)});
    changes.gone.push_back(std::move(kept.events[old++]));
  };
  for (std::size_t i = part.begin; i < part.new_end; ++i) {
    while (old < part.old_end && key_of(kept.steps[old]) < key_of(now[i])) drop();
    auto count = static_cast<std::int64_t>(now[i].count);
    if (old < part.old_end && key_of(kept.steps[old]) == key_of(now[i])) {
      count -= static_cast<std::int64_t>(kept.steps[old].count);
      middle.push_back(std::move(kept.events[old++]));
    } else {
      middle.push_back(std::make_unique<Event>(now[i], direction_));
    }
    changes.list.push_back({middle.back().get(), count});
  }
  while (old < part.old_end) drop();
  const auto replace = [&part](auto& list, auto first, auto last) {
    const auto at = [&](std::size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
    list.erase(at(part.begin), at(part.old_end));
    list.insert(at(part.begin), first, last);
  };
  replace(kept.events, std::make_move_iterator(middle.begin()),
          std::make_move_iterator(middle.end()));
  replace(kept.steps, now.begin() + static_cast<std::ptrdiff_t>(part.begin),
          now.begin() + static_cast<std::ptrdiff_t>(part.new_end));
}

void Totals::move_to(const Composition& composition, const Difference& difference) {
  std::erase_if(sums_, [](Sum& sum) { return sum.idle++ >= kPatience; });
  nodes_ = 0;
  const Part& part = difference.gaussians;
  subsampled_count_ += subsampled(composition.gaussians, part.begin, part.new_end) -
                       subsampled(gaussians_.steps, part.begin, part.old_end);
  Changes changes;
  update(gaussians_, composition.gaussians, part, changes);
  update(explicits_, composition.explicits, difference.explicits, changes);
  if (2 * changes.list.size() > distinct()) {
    sums_.clear();
    return;
  }
  for (Sum& sum : sums_) {
    for (const Change& change : changes.list) add(sum, *change.event, change.count, {});
  }
  // A sum that overflowed on the way is computed again when it is requested.
  std::erase_if(sums_, [](const Sum& sum) {
    return std::any_of(sum.total.begin(), sum.total.end(),
                       [](const Fixed& f) { return std::isnan(f.value()); });
  });
}

}  // namespace discreet::accounting::contour
