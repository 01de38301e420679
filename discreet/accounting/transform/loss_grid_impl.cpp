#include "discreet/accounting/transform/loss_grid_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Tilted mass times squared width (in grid steps) below which a cell may be wide.
constexpr double kIdle = 2e-4;
// A grid of more cells would take hundreds of megabytes; useful ones have far fewer.
constexpr std::size_t kMostCells = std::size_t{1} << 21;

double up(double x) { return x * (1 + 8 * kU); }
double down(double x) { return x * (1 - 8 * kU); }

// One subsampled Gaussian on a grid: its outcomes in order of x, so of rising remove-loss, cut into
// cells of two halves each, and the masses of both of its laws on the cells' ends.
class GaussianGrid {
 public:
  GaussianGrid(const SubsampledGaussian& pair, Direction direction, double h)
      : pair_(pair), remove_(direction == Direction::kRemove), h_(h), unit_(h / kOffsetUnits) {
    // A grid point where the bulk of a small step would sit if it were one outcome: then neither
    // law has to trade bulk against tail when h exceeds the bulk's spread.
    const Cell bulk = pair_.cell(nowhere_, pair_.edge_at_loss(h_ / 2));
    const double centre =
        numerics::log1p(pair_.excess(bulk, pair_.slope_at(0)).value / bulk.without.value) / unit_;
    if (std::abs(centre) < kOffsetUnits) offset_ = static_cast<std::int64_t>(std::ceil(centre));
  }

  void cut(Interval range, Interval orders);
  LossGrid laws() const;

 private:
  double loss_of(std::int64_t halves_up) const {
    constexpr std::int64_t kHalfUnits = kOffsetUnits / 2;
    return static_cast<double>(halves_up * kHalfUnits + offset_) * unit_;
  }
  std::size_t cells() const { return ends_.size() - 1; }
  void put_upper(LossGrid& law) const;
  void put_lower(LossGrid& law) const;

  const SubsampledGaussian& pair_;
  bool remove_;
  double h_, unit_;
  std::int64_t offset_ = 0;
  Edge nowhere_ = pair_.edge_at(-kInfinity), everywhere_ = pair_.edge_at(kInfinity);
  Edge first_{}, last_{};
  std::vector<Cell> halves_;
  std::vector<std::int64_t> ends_;  // cell c spans ends_[c] .. ends_[c + 1]
  std::vector<double> loss_error_;
};

// Cells are one grid step wide where the tilted mass is and wider where there is next to none.
void GaussianGrid::cut(Interval range, Interval orders) {
  const double lowest = std::max(pair_.loss_at(range.lower), pair_.least_loss());
  const double start_at = static_cast<double>(offset_) * unit_;
  // Losses so low that the tilt leaves nothing of them need no cells.
  const double floor = 45 / orders.lower;
  const double low = std::floor((std::max(lowest, remove_ ? -floor : -kInfinity) - start_at) / h_);
  if (!(std::abs(low) < kMostIndex)) throw GridTooLarge();
  const auto grid_low = static_cast<std::int64_t>(low);
  const double highest = std::min(pair_.loss_at(range.upper), remove_ ? kInfinity : floor);

  ends_ = {grid_low};
  first_ = last_ = pair_.edge_at_loss(loss_of(2 * grid_low));
  loss_error_ = {first_.loss_error};
  const auto widest = static_cast<std::int64_t>(std::max(1.0, 0.5 / h_));
  for (std::int64_t width = 1; ends_.size() < 2 || loss_of(2 * ends_.back()) < highest;) {
    if (ends_.size() > kMostCells) throw GridTooLarge();
    const std::int64_t end = ends_.back() + width;
    const Edge middle = pair_.edge_at_loss(loss_of(2 * ends_.back() + width));
    const Edge right = pair_.edge_at_loss(loss_of(2 * end));
    const Cell near = pair_.cell(last_, middle), far = pair_.cell(middle, right);
    const double loss = loss_of(2 * (remove_ ? end : ends_.back())) * (remove_ ? 1 : -1);
    const double order = loss > 0 ? orders.upper : orders.lower;
    const double weight = (pair_.a_mass(near).value + pair_.a_mass(far).value) *
                          numerics::exp(std::min(order * loss, 600.0)) *
                          static_cast<double>(width * width);
    if (weight > kIdle && width > 1) {
      width /= 2;
      continue;
    }
    halves_.push_back(near);
    halves_.push_back(far);
    ends_.push_back(end);
    loss_error_.push_back(right.loss_error);
    last_ = right;
    if (weight < kIdle / 32 && 2 * width <= widest) width *= 2;
  }
}

LossGrid GaussianGrid::laws() const {
  // Two atoms for each cell end, in the loss of this direction: the end itself, and one grid step
  // above it for the slivers by which rounded cell edges overshoot the grid.
  LossGrid law;
  law.offset = remove_ ? offset_ : -offset_;
  law.index.resize(2 * (cells() + 1));
  law.upper.assign(law.index.size(), 0);
  law.lower.assign(law.index.size(), 0);
  for (std::size_t c = 0; c <= cells(); ++c) {
    law.index[2 * c] = remove_ ? ends_[c] : -ends_[c];
    law.index[2 * c + 1] = law.index[2 * c] + 1;
  }
  put_upper(law);
  put_lower(law);
  return law;
}

void GaussianGrid::put_upper(LossGrid& law) const {
  for (std::size_t c = 0; c < cells(); ++c) {
    const std::size_t from = remove_ ? c : c + 1;  // the end of lower loss
    const std::size_t to = remove_ ? c + 1 : c;
    const double width = static_cast<double>(ends_[c + 1] - ends_[c]) * h_;
    const double loss = loss_of(2 * ends_[from]);  // as a remove-loss
    const Slope slope = pair_.slope_at(loss);
    double mass = 0, shifted = 0;
    for (const std::size_t half : {2 * c, 2 * c + 1}) {
      const Mass a = pair_.a_mass(halves_[half]);
      const Mass d = pair_.excess(halves_[half], slope);
      mass += a.value + a.error;
      shifted += (remove_ ? d.value : -d.value) + d.error;
    }
    mass = up(mass);
    if (!remove_) shifted *= numerics::exp(-loss);
    const double high = up(std::max(0.0, up(shifted)) / (-numerics::expm1(-width) * (1 - 4 * kU)));
    const double sliver = std::max(loss_error_[c], loss_error_[c + 1]);
    law.upper[2 * from] += std::max(mass - high, 0.0);
    law.upper[2 * to] += high;
    law.upper[2 * to + 1] += up(mass * sliver * 3 * numerics::exp(width + 2 * h_) / h_);
  }
  {
    // Outcomes beyond the last edges: on the side of low loss they move up to the first atom.
    const Mass below = pair_.a_mass(pair_.cell(nowhere_, first_));
    const Mass above = pair_.a_mass(pair_.cell(last_, everywhere_));
    const Mass& lost = remove_ ? above : below;
    const Mass& cheap = remove_ ? below : above;
    law.upper[remove_ ? 0 : 2 * cells()] += cheap.value + cheap.error;
    law.infinity_upper = up(lost.value + lost.error + (remove_ ? pair_.dropped() : 0));
  }
  for (double& mass : law.upper) mass = up(mass);
}

// Groups: from the sharp edge of the loss outwards, so in order of x in both directions.
// A group may take the grid loss g once sum f (B - e^{-g} A) <= 0 holds with all errors added.
void GaussianGrid::put_lower(LossGrid& law) const {
  std::vector<double> remaining(halves_.size(), 1);   // fraction of a half-cell not yet in a group
  std::vector<std::pair<std::size_t, double>> taken;  // half-cells of the group, with fractions
  std::size_t start = 0;
  for (std::size_t t = 1; t <= cells(); ++t) {
    const Slope slope = pair_.slope_at(loss_of(2 * ends_[t]));
    double defect = 0, scale = 0, mass = 0;
    const auto step_of = [&](std::size_t j) {
      const Mass d = pair_.excess(halves_[j], slope);
      return ((remove_ ? -d.value : d.value) + d.error) * remaining[j];
    };
    taken.clear();
    const auto take = [&](std::size_t j, double step, double fraction) {
      taken.push_back({j, remaining[j] * fraction});
      const Mass a = pair_.a_mass(halves_[j]);
      mass =
          (mass + down(std::max(a.value - a.error, 0.0)) * remaining[j] * fraction) * (1 - 2 * kU);
      defect += step * fraction + 4 * kU * (scale + std::abs(step));
      scale += std::abs(step);
      remaining[j] *= (1 - fraction) * (1 - 4 * kU);
    };
    // Everything before the grid point is taken whole. Then as much behind it is taken as brings
    // the defect to zero: from the nearest half-cell alone, then equally from the next two (which
    // keeps the groups one cell wide), then in order.
    for (; start < 2 * t; ++start) {
      if (remaining[start] > 0) take(start, step_of(start), 1);
    }
    if (!(mass > 0) || (!remove_ && !(defect < 0))) continue;
    bool balanced = false;
    for (std::size_t j = 2 * t; j < halves_.size() && !balanced;) {
      const std::size_t width = j == 2 * t + 1 && j + 1 < halves_.size() ? 2 : 1;
      const double steps[2] = {step_of(j), width == 2 ? step_of(j + 1) : 0};
      const double step = steps[0] + steps[1];
      if (remove_ ? step < 0 : step > 0) {
        const double pad = 16 * kU * (scale + std::abs(steps[0]) + std::abs(steps[1]));
        const double wanted = remove_ ? (defect + pad) / -step : (-defect - pad) / step;
        balanced = wanted <= 1;
        const double fraction = wanted > 0 ? std::min(wanted, 1.0) : 0;
        for (std::size_t k = 0; k < width; ++k) take(j + k, steps[k], fraction);
      }
      j += width;
    }
    // A group that ran out of outcomes behind its grid point belongs to one before.
    std::size_t place = t;
    while (defect > 0 && place > 0 && t - place < 8) {
      const Slope below = pair_.slope_at(loss_of(2 * ends_[--place]));
      defect = scale = 0;
      for (const auto& [j, fraction] : taken) {
        const Mass d = pair_.excess(halves_[j], below);
        const double step = ((remove_ ? -d.value : d.value) + d.error) * fraction;
        defect += step + 8 * kU * (scale + std::abs(step));
        scale += std::abs(step);
      }
    }
    if (defect <= 0) law.lower[2 * place] += mass;
  }
  for (double& mass : law.lower) mass = down(mass);
}

}  // namespace

LossGrid gaussian_grid(double q, double sigma, Direction direction, double h, double tail,
                       Interval orders, std::uint64_t group) {
  const SubsampledGaussian pair(q, sigma, direction, group, negligible_part(q, group, tail));
  GaussianGrid grid(pair, direction, h);
  grid.cut(pair.outcome_range(tail), orders);
  return grid.laws();
}

LossGrid explicit_grid(double epsilon, double delta, double h) {
  LossGrid law;
  law.infinity_upper = law.infinity_lower = delta;
  const auto top = static_cast<std::int64_t>(std::ceil(epsilon / h));
  const auto add = [&](std::int64_t index, double upper, double lower) {
    law.index.push_back(index);
    law.upper.push_back(upper);
    law.lower.push_back(lower);
  };
  const double rest = 1 - delta;
  const double a = rest / (1 + numerics::exp(-epsilon));
  const double b = rest / (1 + numerics::exp(epsilon));
  if (top == 0) {
    add(0, up(rest), 0);
  } else {
    // Connect the dots for an atom between two grid points; see gaussian_grid.
    const double spread = -numerics::expm1(-h) * (1 - 4 * kU);
    const double gap = epsilon - static_cast<double>(top - 1) * h;  // in (0, h]
    const double noise = 8 * kU * (epsilon + 1);
    const double raised = up(a * (-numerics::expm1(-gap) + noise) / spread);
    add(top, raised, 0);
    add(top - 1, std::max(up(a) - raised, 0.0), 0);
    const double lifted = up(b * (-numerics::expm1(gap - h) + noise) / spread);
    add(1 - top, lifted, 0);
    add(-top, std::max(up(b) - lifted, 0.0), 0);
  }
  const auto floor = static_cast<std::int64_t>(std::floor(epsilon / h));
  const double low = static_cast<double>(floor) * h;
  add(floor, 0, down(rest / (1 + numerics::exp(-low))));
  add(-floor, 0, down(rest / (1 + numerics::exp(low))));
  return law;
}

}  // namespace discreet::accounting
