#include "discreet/accounting/contour_totals_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace discreet::accounting::contour {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Event::Event(const GaussianSteps& steps, Direction direction) : parameter_(steps.sigma) {
  if (steps.rate == 1) {
    full_batch_ = true;
  } else {
    grid_ = std::make_unique<CoarseGrid>(Step{steps.rate, steps.sigma, direction});
  }
}

Event::Event(const ExplicitSteps& steps) : parameter_(steps.epsilon) {}

double Event::log_mass(int order, int window_order, Tolerance tolerance) const {
  const double c = ladder(order);
  if (full_batch_) return full_batch_log_mass(parameter_, c);
  if (!grid_) return explicit_log_mass(parameter_, c);
  const Window window = grid_->window(ladder(window_order), tolerance);
  return window.feasible ? grid_->log_mass(c, window) : kNaN;
}

void Event::decays(int order, Tolerance tolerance, int first, std::span<double> out) const {
  if (!grid_ && !full_batch_) return std::fill(out.begin(), out.end(), 0.0);
  const double c = ladder(order);
  std::optional<Layers> layers;
  double mass = 0;
  if (grid_) {
    const Window window = grid_->window(c, tolerance);
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
      scratch_[0] = event.log_mass(contour.order, contour.image_order, contour.tolerance);
      break;
    case Kind::kDecays:
      event.decays(contour.order, contour.tolerance, contour.cut, scratch_);
      break;
    case Kind::kContributions:
      nodes_ += event.contribute(
          contour, spoil,
          static_cast<std::int64_t>(kMostWork / static_cast<double>(contour.terms())), scratch_);
      break;
  }
  for (std::size_t i = 0; i < scratch_.size(); ++i) {
    sum.total[i] += Fixed::product(count, scratch_[i]);
  }
}

Totals::Sum& Totals::find(const Key& key, const Spoil& spoil) {
  for (Sum& sum : sums_) {
    if (sum.key == key) {
      sum.used = true;
      return sum;
    }
  }
  std::size_t size = 1;
  if (key.kind == Kind::kDecays) size = kDecays;
  if (key.kind == Kind::kContributions) size = contribution_size(key.contour);
  Sum& sum = sums_.emplace_back(Sum{key, std::vector<Fixed>(size), true});
  for (const auto& entry : events_) {
    add(sum, entry->event, static_cast<std::int64_t>(entry->count), spoil);
    if (key.kind == Kind::kContributions && sum.total[kUnfit].value() != 0) break;
  }
  return sum;
}

double Totals::log_mass(int order, int window_order, Tolerance tolerance) {
  return find({Kind::kMass, {order, window_order, 0, 0, tolerance}}, {}).total[0].value();
}

std::vector<double> Totals::decays(int order, Tolerance tolerance, int first) {
  const Sum& sum = find({Kind::kDecays, {order, 0, 0, first, tolerance}}, {});
  std::vector<double> values(kDecays);
  for (std::size_t i = 0; i < kDecays; ++i) values[i] = sum.total[i].value();
  return values;
}

const std::vector<Fixed>* Totals::contributions(const Contour& contour, const Spoil& spoil) {
  if (static_cast<double>(contour.terms()) * 16 > kMostWork) return nullptr;
  Sum& sum = find({Kind::kContributions, contour}, spoil);
  if (sum.total[kUnfit].value() == 0) return &sum.total;
  sum.used = false;
  return nullptr;
}

void Totals::move_to(const Composition& composition) {
  std::erase_if(sums_, [](const Sum& sum) { return !sum.used; });
  for (Sum& sum : sums_) sum.used = false;

  struct Change {
    const Event* event;
    std::int64_t count;
  };
  std::vector<Change> changes;
  std::vector<std::unique_ptr<Entry>> now, gone;
  now.reserve(composition.gaussians.size() + composition.explicits.size());
  subsampled_count_ = 0;
  nodes_ = 0;
  std::size_t old = 0;
  // Both lists are sorted, Gaussians first: one walk finds what differs.
  const auto visit = [&](const auto& steps, bool gaussian, auto before, auto same, auto make) {
    while (old < events_.size() && before(*events_[old])) {
      changes.push_back({&events_[old]->event, -static_cast<std::int64_t>(events_[old]->count)});
      gone.push_back(std::move(events_[old++]));
    }
    if (old < events_.size() && same(*events_[old])) {
      const auto more = static_cast<std::int64_t>(steps.count - events_[old]->count);
      if (more != 0) changes.push_back({&events_[old]->event, more});
      events_[old]->count = steps.count;
      now.push_back(std::move(events_[old++]));
    } else {
      now.push_back(make());
      changes.push_back({&now.back()->event, static_cast<std::int64_t>(steps.count)});
    }
    if (gaussian && now.back()->event.subsampled()) {
      subsampled_count_ += static_cast<double>(steps.count);
    }
  };
  for (const GaussianSteps& steps : composition.gaussians) {
    const auto key = [](const GaussianSteps& s) { return std::pair(s.rate, s.sigma); };
    visit(
        steps, true,
        [&](const Entry& e) { return e.gaussian.count != 0 && key(e.gaussian) < key(steps); },
        [&](const Entry& e) { return e.gaussian.count != 0 && key(e.gaussian) == key(steps); },
        [&] {
          return std::make_unique<Entry>(
              Entry{Event(steps, direction_), steps, {0, 0, 0}, steps.count});
        });
  }
  for (const ExplicitSteps& steps : composition.explicits) {
    const auto key = [](const ExplicitSteps& s) { return std::pair(s.epsilon, s.delta); };
    visit(
        steps, false,
        [&](const Entry& e) { return e.gaussian.count != 0 || key(e.listed) < key(steps); },
        [&](const Entry& e) { return e.gaussian.count == 0 && key(e.listed) == key(steps); },
        [&] {
          return std::make_unique<Entry>(Entry{Event(steps), {0, 0, 0}, steps, steps.count});
        });
  }
  for (; old < events_.size(); ++old) {
    changes.push_back({&events_[old]->event, -static_cast<std::int64_t>(events_[old]->count)});
    gone.push_back(std::move(events_[old]));
  }
  events_ = std::move(now);

  if (2 * changes.size() > events_.size()) {
    sums_.clear();
    return;
  }
  for (Sum& sum : sums_) {
    for (const Change& change : changes) add(sum, *change.event, change.count, {});
  }
  // A sum that overflowed on the way is computed afresh when asked for.
  std::erase_if(sums_, [](const Sum& sum) {
    return std::any_of(sum.total.begin(), sum.total.end(),
                       [](const Fixed& f) { return std::isnan(f.value()); });
  });
}

}  // namespace discreet::accounting::contour
