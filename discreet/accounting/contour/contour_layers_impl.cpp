#include "discreet/accounting/contour/contour_layers_impl.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "discreet/accounting/contour/contour_rounding_impl.h"
#include "discreet/accounting/contour/contour_waves_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr double kLogSqrtTwoPi = 0.91893853320467274178;
constexpr std::size_t kCells = 96;
constexpr std::size_t kOuterCells = 16;

// log of the loss density f / l' at equally spaced x, and how its slope may vary within a cell.
struct Profile {
  Profile(const Step& step, double c, double left, double right, std::size_t cells)
      : width((right - left) / static_cast<double>(cells)),
        x(cells + 1),
        p(cells + 1),
        log_density(cells + 1),
        steepest(cells),
        slack(0x1p-30) {
    const double variance = step.sigma * step.sigma;
    const double w = step.weight(c);
    std::vector<double> l(cells + 1), scratch(cells + 1);
    for (std::size_t i = 0; i <= cells; ++i) x[i] = left + width * static_cast<double>(i);
    step.log_ratios(x, scratch, l, l);
    // log p = log q + v - l, and l' = p / sigma^2.
    const double log_rate = numerics::log(step.rate);
    const double constant = numerics::log(step.sigma) - kLogSqrtTwoPi;
    for (std::size_t i = 0; i <= cells; ++i) {
      const double log_p = std::min(0.0, log_rate + scratch[i] - l[i]);
      scratch[i] = log_p;
      log_density[i] = w * l[i] - x[i] * x[i] / (2 * variance) - log_p + constant;
    }
    slack = std::max(step.log_density_error(left, c, l.front()),
                     step.log_density_error(right, c, l.back()));
    numerics::exp(scratch, p);
    // The slope is ((w+1) p - x - 1) / sigma^2 and p increases: an interval of slopes per cell,
    // kept only where it contains zero.
    for (std::size_t i = 0; i < cells; ++i) {
      const double low_p = w + 1 >= 0 ? p[i] : p[i + 1];
      const double high_p = w + 1 >= 0 ? p[i + 1] : p[i];
      const double low = (w + 1) * low_p - x[i + 1] - 1;
      const double high = (w + 1) * high_p - x[i] - 1;
      const double guard = 0x1p-30 * (std::abs(w) + std::abs(x[i]) + 2);
      const bool monotone = low > guard || high < -guard;
      steepest[i] = monotone ? 0 : (std::max(std::abs(low), std::abs(high)) + guard) / variance;
    }
  }
  double sag(std::size_t cell) const noexcept { return 0.5 * width * steepest[cell]; }
  double low(std::size_t i) const noexcept {
    return std::min(log_density[i], log_density[i + 1]) - sag(i) - slack;
  }
  double high(std::size_t i) const noexcept {
    return std::max(log_density[i], log_density[i + 1]) + sag(i) + slack;
  }

  double width;
  std::vector<double> x, p, log_density, steepest;
  double slack;
};

double highest(const Profile& profile) {
  double result = -INFINITY;
  for (std::size_t i = 0; i + 1 < profile.x.size(); ++i) result = std::max(result, profile.high(i));
  return result;
}

}  // namespace

Layers::Layers(const CoarseGrid& grid, double c, const Window& window, double log_scale)
    : log_scale_(log_scale) {
  const Step& step = grid.step();
  const Window bulk = grid.bulk(c, window);
  const Profile profile(step, c, bulk.left, bulk.right, kCells);
  log_peak_ = highest(profile);
  if (window.left < bulk.left) {
    log_peak_ = std::max(log_peak_, highest(Profile(step, c, window.left, bulk.left, kOuterCells)));
  }
  if (window.right > bulk.right) {
    log_peak_ =
        std::max(log_peak_, highest(Profile(step, c, bulk.right, window.right, kOuterCells)));
  }
  log_peak_ -= log_scale;

  // Loss across a cell: log1p(p expm1(width/sigma^2)), without cancellation.
  const double growth = numerics::expm1(profile.width / (step.sigma * step.sigma));
  std::vector<double> heights(kCells), lengths(kCells);
  for (std::size_t i = 0; i < kCells; ++i) {
    heights[i] = profile.low(i) - log_scale;
    lengths[i] = std::min(profile.p[i] * growth, 1e300);
  }
  numerics::exp(heights, heights);
  numerics::log1p(lengths, lengths);
  for (double& length : lengths) length *= 1 - 0x1p-30;

  weights_.reserve(kCells + 8);
  half_lengths_.reserve(kCells + 8);
  // At most two modes: find the deepest valley next to the higher one and treat both parts
  // separately.
  const std::size_t mode =
      static_cast<std::size_t>(std::max_element(heights.begin(), heights.end()) - heights.begin());
  std::size_t valley = kCells;
  double best = 1.05;
  const auto search = [&](std::ptrdiff_t direction) {
    double floor = heights[mode];
    std::size_t lowest = mode;
    for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(mode); i >= 0 && i < std::ptrdiff_t{kCells};
         i += direction) {
      const double here = heights[static_cast<std::size_t>(i)];
      if (here < floor) {
        floor = here;
        lowest = static_cast<std::size_t>(i);
      } else if (floor > 0 && here > best * floor) {
        best = here / floor;
        valley = lowest;
      }
    }
  };
  search(1);
  search(-1);
  if (valley == kCells) {
    peel(heights, lengths, 0, kCells);
  } else if (valley > mode) {
    peel(heights, lengths, 0, valley + 1);
    peel(heights, lengths, valley + 1, kCells);
  } else {
    peel(heights, lengths, 0, valley);
    peel(heights, lengths, valley, kCells);
  }
  const std::size_t padded = (weights_.size() + 7) / 8 * 8;
  weights_.resize(padded);
  half_lengths_.resize(padded);
}

// From the mode outwards the running minimum is a unimodal minorant; each time the interval grows
// by the higher neighbour, the part above that neighbour is one uniform layer.
void Layers::peel(std::vector<double>& heights, const std::vector<double>& lengths,
                  std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  const auto mode = static_cast<std::size_t>(
      std::max_element(heights.begin() + static_cast<std::ptrdiff_t>(begin),
                       heights.begin() + static_cast<std::ptrdiff_t>(end)) -
      heights.begin());
  for (std::size_t i = mode + 1; i < end; ++i) heights[i] = std::min(heights[i], heights[i - 1]);
  for (std::size_t i = mode; i-- > begin;) heights[i] = std::min(heights[i], heights[i + 1]);
  std::size_t left = mode;
  std::size_t right = mode + 1;
  double length = lengths[mode];
  double height = heights[mode];
  while (true) {
    const double before = left > begin ? heights[left - 1] : 0;
    const double after = right < end ? heights[right] : 0;
    const double next = std::max(before, after);
    if (height > next) {
      weights_.push_back((height - next) * length);
      half_lengths_.push_back(0.5 * length);
      height = next;
    }
    if (left == begin && right == end) return;
    if (right == end || (left > begin && before >= after)) {
      length += lengths[--left];
    } else {
      length += lengths[right++];
    }
  }
}

double Layers::log_bound(double t, double log_mass) const noexcept {
  const double sum = missing_sum(weights_.data(), half_lengths_.data(), weights_.size(), t);
  const double lost = sum * exp_down(log_scale_ - log_mass) * (1 - 0x1p-30);
  // By bounded variation, |M(c + is)| <= 4 sup(f/l')/s.
  const double smooth = log_peak_ + log_scale_ - log_mass + numerics::log(4 / t) + 0x1p-30;
  const double layered = numerics::log1p(-std::min(lost, 1 - 0x1p-30));
  return std::max(-700.0, std::min({0.0, layered, smooth}));
}

}  // namespace discreet::accounting::contour
