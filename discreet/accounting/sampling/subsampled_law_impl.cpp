#include "discreet/accounting/sampling/subsampled_law_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

constexpr double kUnit = 0x1p-53;
constexpr double kInvSqrt2Pi = 0.3989422804014327;

// Mills: the standard normal tail beyond z > 0 is at most phi(z) / z.
double tail_bound(double z) { return 1.0001 * kInvSqrt2Pi * exp(-0.5 * z * z) / z; }

// M = 1 - q + q e^u, u = mu z - mu^2 / 2, z standard normal under Q, mu = 1 / sigma.
struct Step {
  double rate;
  double mu;

  double exponent(double z) const { return mu * (z - 0.5 * mu); }
  double ratio(double z) const { return 1 - rate + rate * exp(exponent(z)); }
  // The z at which M = e^loss; minus infinity if there is none.
  double outcome(double loss) const {
    if (rate == 1) return loss / mu + 0.5 * mu;
    const double excess = expm1(loss) / rate;
    if (!(excess > -1)) return -std::numeric_limits<double>::infinity();
    return log1p(excess) / mu + 0.5 * mu;
  }
};

// The cells of e^shift M under Q for z in [low, high].
Cells cells_of(const Step& step, double width, double low, double high, double shift) {
  static constexpr double kNode[] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                                     0.9602898564975363};
  static constexpr double kWeight[] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                       0.1012285362903763};
  Cells cells;
  cells.step = width;
  cells.first = std::int64_t(std::floor((log(step.ratio(low)) + shift) / width));
  const auto last = std::int64_t(std::ceil((log(step.ratio(high)) + shift) / width));
  const auto count = std::size_t(std::max<std::int64_t>(1, last - cells.first));
  cells.low.assign(count, 0.0);
  cells.high.assign(count, 0.0);
  const double rate_of_change = std::max(std::abs(low), std::abs(high)) + step.mu + 1;
  double from = low;
  for (std::size_t c = 0; c < count; ++c) {
    const auto index = cells.first + std::int64_t(c);
    const double end = c + 1 == count ? high : step.outcome(double(index + 1) * width - shift);
    const double to = std::clamp(end, from, high);
    if (!(to > from)) continue;
    const double bottom = exp(double(index) * width - shift);
    const double top = exp(double(index + 1) * width - shift);
    // The distance of M's range from the cell's ends; 0 at edges that were solved for.
    const double below = std::max(0.0, step.ratio(from) - bottom);
    const double above = std::max(0.0, top - step.ratio(to));
    const double u_from = step.exponent(from), u_to = step.exponent(to);
    const double unit = step.rate * exp(u_from);
    const int panels = int(std::ceil((to - from) * std::max(rate_of_change, 10.0)));
    for (int panel = 0; panel < panels; ++panel)
      for (int node = 0; node < 8; ++node) {
        const double place = (node & 1) ? kNode[node / 2] : -kNode[node / 2];
        const double z = from + (to - from) * ((panel + 0.5 + 0.5 * place) / panels);
        const double mass =
            kInvSqrt2Pi * exp(-0.5 * z * z) * kWeight[node / 2] * (to - from) / (2 * panels);
        const double u = step.exponent(z);
        const double rise = below + unit * expm1(std::max(0.0, u - u_from));
        const double fall = above + step.rate * exp(u) * expm1(std::max(0.0, u_to - u));
        cells.high[c] += mass * (rise / (rise + fall));
        cells.low[c] += mass * (fall / (rise + fall));
      }
    from = to;
  }
  return cells;
}

// Beyond 37 deviations the density under Q is not a normal number, while P may still have mass
// there, because P is mu deviations nearer. So the grid ends there, and the mass outside is charged
// as a tail.
constexpr double kFarthest = 37;

double reach(double cut, double mu) {
  return std::min(std::sqrt(2 * log(1 / cut)), kFarthest - mu);
}

double mass_error_of(double z_most) { return 2e-14 + (64 + 8 * z_most * z_most) * kUnit; }

// Edges are solved within a few units of e^u q; relative to the smallest M.
double position_error_of(const Step& step, double z_most, double smallest) {
  const double ill = step.rate == 1 ? 0 : step.rate / smallest;
  return kUnit * (64 + 8 * step.mu * z_most) * (1 + ill);
}

}  // namespace

ScaledLaw subsampled_law(double rate, double sigma, double step, double cut, Rounding rounding) {
  const Step pair{rate, 1 / sigma};
  const double z = reach(cut, pair.mu), low = -z, high = z + pair.mu;
  const double width = rounding == Rounding::kUp ? step : step / 2;
  double shift = 0;
  if (rounding == Rounding::kDown) {
    // Most mass may sit just above log(1 - q) with little beyond to balance it: a point of the grid
    // belongs at the mean of the first step's length of it.
    const double edge = log(pair.ratio(low));
    const double end = std::min(high, pair.outcome(edge + step));
    const Cells lowest = cells_of(pair, step, low, end, -edge);
    shift = -edge - log1p(lowest.high[0] / (lowest.low[0] + lowest.high[0]) * expm1(step));
  }
  const Cells cells = cells_of(pair, width, low, high, shift);
  ScaledLaw result{round_cells(cells, mass_error_of(high),
                               position_error_of(pair, high, pair.ratio(low)), rounding),
                   exp(shift)};
  if (rounding == Rounding::kUp) {
    // Below z everything goes to 0 and loses its mean, above it goes down to the last point.
    result.law.zero = tail_bound(z);
    result.law.lost = 2 * tail_bound(z);
    result.law.mass.back() += tail_bound(high);
  }
  return result;
}

LossLaw spliced_loss(double rate, double sigma, double step, double cut) {
  const Step pair{rate, 1 / sigma};
  const double z = reach(cut, pair.mu), high = z + pair.mu,
               middle = 0.5 * pair.mu;  // M = 1 at middle
  Cells cells = cells_of(pair, step, middle, high, 0);
  // The first cell starts at M = 1, wherever rounding put its edge.
  std::vector<double> mass(cells.low.size() + 1, 0.0);
  for (std::size_t c = 0; c < cells.low.size(); ++c) {
    const auto index = std::size_t(std::max<std::int64_t>(0, cells.first + std::int64_t(c)));
    mass[std::min(index, mass.size() - 1)] += cells.low[c];
    mass[std::min(index + (cells.first + std::int64_t(c) >= 0), mass.size() - 1)] += cells.high[c];
  }
  const std::size_t n = mass.size();
  LossLaw loss;
  loss.step = step;
  loss.first = -double(n - 1) * step;
  loss.mass.assign(2 * n - 1, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    loss.mass[n - 1 - i] += mass[i];
    loss.mass[n - 1 + i] += mass[i] * exp(double(i) * step);
  }
  const double inside = 1 - numerics::erfc(middle * 0.7071067811865476);
  loss.mass[n - 1] += (1 - rate) * inside;
  // 1 - erfc is a difference: its error is relative to 1, and the atom may be that much larger.
  loss.mass[n - 1] += 8 * kUnit;
  loss.infinite = 2 * tail_bound(z) * (1 + 1e-9);
  loss.mass.back() += tail_bound(z);
  loss.mass_error = mass_error_of(high) + 4 * kUnit * (double(n) * step + 4);
  loss.position_error = position_error_of(pair, high, 1) + 4 * kUnit * double(n) * step;
  return loss;
}

double first_subsampled_step(double rate, double sigma, double count) {
  // Near sqrt(8 w / (T (lambda + 1))), lambda = z / (sd sqrt T), for a width w of a tenth.
  const double sd = rate * std::sqrt(expm1(std::min(1 / (sigma * sigma), 100.0)));
  const double order = 5 / (sd * std::sqrt(count)) + 1;
  return std::min({0.1, 0.8 * sd, std::sqrt(0.8 / (count * order))});
}

double finest_subsampled_step(double rate, double sigma, double cut) {
  const Step pair{rate, 1 / sigma};
  const double z = reach(cut, pair.mu);
  return (log(pair.ratio(z + pair.mu)) - log(pair.ratio(-z))) * 0x1p-18;
}

}  // namespace discreet::accounting
