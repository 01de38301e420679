#include "discreet/accounting/sampling/geometric_law_impl.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "discreet/numerics/elementary.h"

namespace discreet::accounting {
namespace {

using numerics::exp;
using numerics::expm1;
using numerics::log;
using numerics::log1p;

constexpr double kUnit = 0x1p-53;
constexpr double kStagePosition = 24 * kUnit;  // relative, of one sum and its split

void trim_up(GeometricLaw& law, double mean, double cut) {
  auto& mass = law.mass;
  std::size_t begin = 0;
  double below = 0;
  while (begin + 1 < mass.size() && below + mass[begin] <= cut) below += mass[begin++];
  for (std::size_t i = 0; i < begin; ++i) {
    const double gap = double(begin - i) * law.step;
    law.zero += mass[i] * -expm1(-gap);
    mass[begin] += mass[i] * exp(-gap);
  }
  // Lowering an atom at g' to g loses g' - g of the mean.
  std::size_t end = mass.size();
  double above = 0, lost = 0;
  while (end > begin + 1) {
    const double top = exp(double(law.first + std::int64_t(end) - 2) * law.step);
    const double more = (above + mass[end - 1]) * top * expm1(law.step);
    if (lost + more > cut * mean) break;
    lost += more;
    above += mass[--end];
  }
  mass[end - 1] += above;
  law.lost += lost;
  mass.resize(end);
  mass.erase(mass.begin(), mass.begin() + std::ptrdiff_t(begin));
  law.first += std::int64_t(begin);
}

void trim_down(GeometricLaw& law, double mean, double cut) {
  auto& mass = law.mass;
  std::size_t begin = 0, end = mass.size();
  double below = 0, above = 0;
  while (begin + 1 < end && (below += mass[begin]) <= cut) ++begin;
  while (end > begin + 1) {
    above += mass[end - 1] * exp(double(law.first + std::int64_t(end) - 1) * law.step);
    if (above > cut * mean) break;
    --end;
  }
  mass.resize(end);
  mass.erase(mass.begin(), mass.begin() + std::ptrdiff_t(begin));
  law.first += std::int64_t(begin);
}

GeometricLaw round_up(const Cells& cells) {
  GeometricLaw law;
  law.step = cells.step;
  law.first = cells.first;
  law.mass.assign(cells.low.size() + 1, 0.0);
  for (std::size_t c = 0; c < cells.low.size(); ++c) {
    law.mass[c] += cells.low[c];
    law.mass[c + 1] += cells.high[c];
  }
  return law;
}

// Merges the atoms of half-cells, each at its cell's mean, in order and fractionally, into groups
// whose mean is a point of the coarse grid (the even indices). Works from both tails towards the
// mode, where it is stable.
class Grouping {
 public:
  explicit Grouping(const Cells& cells)
      : cells_(cells), grow_(expm1(cells.step)), base_(floor_even(cells.first)) {
    out_.assign((cells.low.size() + 6) / 2 + 2, 0.0);
  }

  GeometricLaw run() {
    const std::size_t n = cells_.low.size();
    std::size_t mode = 0;
    for (std::size_t c = 0; c < n; ++c)
      if (weight(c) > weight(mode)) mode = c;
    Group left, right;
    for (std::size_t c = 0; c <= mode; ++c) feed(left, +1, c, weight(c), false);
    // The mode may hold most of the mass: its group takes what it needs from beyond.
    std::size_t meet = mode + 1;
    double rest = 0;
    while (left.mass > 0 && meet < n) {
      rest = feed(left, +1, meet, weight(meet), true);
      ++meet;
    }
    for (std::size_t c = n; c-- > meet;) feed(right, -1, c, weight(c), false);
    if (rest > 0) feed(right, -1, meet - 1, rest, false);
    join(left, right, cells_.first + std::int64_t(meet) - 1);
    GeometricLaw law;
    law.step = 2 * cells_.step;
    law.first = base_ / 2;
    law.mass = std::move(out_);
    widest_ = std::max(widest_, 2 * cells_.step);
    return law;
  }

  // The largest logarithm of the ratio of two atoms in one group.
  double widest() const { return widest_; }

 private:
  struct Group {
    double mass = 0;
    double need = 0;          // sum of mass times distance to the target, in units of the target
    std::int64_t target = 0;  // even index
    std::int64_t start = 0;
  };

  static std::int64_t floor_even(std::int64_t c) { return c - (c & 1); }
  double weight(std::size_t c) const { return cells_.low[c] + cells_.high[c]; }
  double& out(std::int64_t index) { return out_[std::size_t((index - base_) / 2)]; }

  // (mean of cell c - target) / target, signed by direction; both branches add positive terms.
  double beyond(std::int64_t c, double high_share, double low_share, std::int64_t target,
                int direction) const {
    const double shift = double(c - target) * cells_.step;
    const double above = expm1(shift) + exp(shift) * high_share * grow_;
    const double below = -expm1(shift + cells_.step) + exp(shift) * low_share * grow_;
    return c >= target ? direction * above : -direction * below;
  }

  // Adds an atom to the group, which is closed when its mean arrives at the target. The rest opens
  // the next group or, if `once`, is returned.
  double feed(Group& group, int direction, std::size_t local, double mass, bool once) {
    const std::int64_t c = cells_.first + std::int64_t(local);
    const double whole = weight(local);
    if (whole == 0) return 0;
    const double high = cells_.high[local] / whole, low = cells_.low[local] / whole;
    while (mass > 0) {
      if (group.mass == 0) {
        group.start = c;
        group.target = direction > 0 ? floor_even(c) + 2 : floor_even(c);
        if ((c & 1) && direction > 0) group.target = c + 1;
        if (high == 0 && !(c & 1)) group.target = c;
        if (low == 0 && (c & 1)) group.target = c + 1;
      }
      const double distance = beyond(c, high, low, group.target, direction);
      if (distance > 0 && group.mass > 0 && group.need <= mass * distance) {
        const double taken = std::min(mass, group.need / distance);
        out(group.target) += group.mass + taken;
        note_width(group.start, c);
        mass -= taken;
        group = {};
        if (once) return mass;
        continue;
      }
      group.mass += mass;
      group.need = std::max(0.0, group.need - mass * distance);
      mass = 0;
    }
    return 0;
  }

  // What is left of the two sides becomes one atom at its mean, moved onto the grid by a share of a
  // neighbour; if no neighbour has enough, it is dropped, which is sound as well.
  void join(Group left, Group right, std::int64_t mode) {
    const double total = left.mass + right.mass;
    if (total == 0) return;
    const std::int64_t base = left.mass > 0 ? left.target : right.target;
    double mean = 0;  // (mean - base) / base
    if (left.mass > 0) mean -= left.need / total;
    if (right.mass > 0) {
      const double shift = double(right.target - base) * cells_.step;
      mean += (expm1(shift) * right.mass + exp(shift) * right.need) / total;
    }
    const std::int64_t lowest = left.mass > 0 ? left.start : mode;
    const std::int64_t highest = right.mass > 0 ? right.start : mode;
    const double where = double(base) + log1p(mean) / cells_.step;
    const std::int64_t nearest = 2 * std::int64_t(std::llround(where / 2));
    for (std::int64_t target : {nearest, nearest - 2, nearest + 2}) {
      // Distance from the target to the mean, in units of the target.
      const double shift = double(base - target) * cells_.step;
      const double off = expm1(shift) + exp(shift) * mean;
      if (!inside(target)) continue;
      if (off == 0) {
        out(target) += total;
        note_width(lowest, highest);
        return;
      }
      const std::int64_t side = off > 0 ? -1 : +1;
      for (std::int64_t k = 1; k <= 16; ++k) {
        const std::int64_t donor = target + 2 * side * k;
        if (!inside(donor)) break;
        const double share =
            total * std::abs(off) / std::abs(expm1(double(donor - target) * cells_.step));
        if (share > out(donor)) continue;
        out(donor) -= share;
        out(target) += total + share;
        note_width(std::min(lowest, donor), std::max(highest, donor));
        return;
      }
    }
  }

  bool inside(std::int64_t index) const {
    return index >= base_ && std::size_t((index - base_) / 2) < out_.size();
  }
  void note_width(std::int64_t a, std::int64_t b) {
    widest_ = std::max(widest_, double(std::abs(a - b) + 2) * cells_.step);
  }

  const Cells& cells_;
  double grow_;
  std::int64_t base_;
  double widest_ = 0;
  std::vector<double> out_;
};

// Sums over windows of 2^m neighbours of x, all by additions of nonnegative numbers:
//   sum[i]    = sum_s x[i+s]
//   rising[i] = sum_s x[i+s] (e^{s h} - 1),  falling[i] = sum_s x[i+s] (e^{(2^m-1) h} - e^{s h}).
class Windows {
 public:
  // longest: of the windows asked for.
  Windows(std::span<const double> x, std::size_t longest, double step)
      : pad_(longest), size_(longest + x.size()), step_(step) {
    levels_.push_back({});
    levels_[0].sum.assign(size_, 0.0);
    std::copy(x.begin(), x.end(), levels_[0].sum.begin() + std::ptrdiff_t(pad_));
  }
  struct Level {
    std::vector<double> sum, rising, falling;
  };
  // Window i, -longest < i, is at index i + pad(). At level 0 rising and falling vanish.
  std::size_t pad() const { return pad_; }
  const Level& level(int m) {
    while (int(levels_.size()) <= m) grow();
    return levels_[std::size_t(m)];
  }

 private:
  void grow() {
    const std::size_t half = std::size_t{1} << (levels_.size() - 1);
    Level& a = levels_.back();
    if (half == 1) a.rising = a.falling = std::vector<double>(size_, 0.0);
    Level b{std::vector<double>(size_), std::vector<double>(size_), std::vector<double>(size_)};
    const double lift = expm1(double(half) * step_);
    const double drop = exp(double(half - 1) * step_) * lift;
    for (std::size_t i = 0; i + half < size_; ++i) {
      b.sum[i] = a.sum[i] + a.sum[i + half];
      b.rising[i] = a.rising[i] + (1 + lift) * a.rising[i + half] + lift * a.sum[i + half];
      b.falling[i] = a.falling[i] + drop * a.sum[i] + (1 + lift) * a.falling[i + half];
    }
    levels_.push_back(std::move(b));
  }
  std::size_t pad_;
  std::size_t size_;
  double step_;
  std::vector<Level> levels_;
};

struct Phases {
  std::vector<std::vector<double>> low, high;  // [cell mod ratio][cell / ratio]
};

void accumulate(std::span<const double> big, Windows& small, const SumPlan& plan, bool diagonal,
                double factor, Phases& phases) {
  const std::size_t n = big.size();
  for (std::size_t b = diagonal ? 0 : 1; b < plan.blocks.size(); ++b) {
    const SumPlan::Block& block = plan.blocks[b];
    if (block.first >= n) break;
    const std::size_t length = std::size_t{1} << block.level;
    const Windows::Level& level = small.level(block.level);
    const std::size_t count = n - block.first;
    const std::size_t offset =
        small.pad() + 1 - length;  // of i = j - first - length + 1 at j = first
    const double* __restrict sum = level.sum.data() + offset;
    const double* __restrict x = big.data() + block.first;
    const std::size_t phase = std::size_t(block.cell % plan.ratio);
    const std::size_t start = block.first + std::size_t(block.cell / plan.ratio);
    double* __restrict low = phases.low[phase].data() + start;
    double* __restrict high = phases.high[phase].data() + start;
    const double to_low = factor * block.low, to_high = factor * block.high;
    const double slope = factor * block.slope;
    if (block.level == 0) {
      for (std::size_t j = 0; j < count; ++j) {
        const double pair = x[j] * sum[j];
        low[j] += pair * to_low;
        high[j] += pair * to_high;
      }
    } else {
      const double* __restrict rising = level.rising.data() + offset;
      const double* __restrict falling = level.falling.data() + offset;
      for (std::size_t j = 0; j < count; ++j) {
        low[j] += x[j] * (sum[j] * to_low + falling[j] * slope);
        high[j] += x[j] * (sum[j] * to_high + rising[j] * slope);
      }
    }
  }
}

}  // namespace

GeometricLaw round_cells(const Cells& cells, double mass_error, double position_error,
                         Rounding rounding) {
  GeometricLaw law;
  if (rounding == Rounding::kUp) {
    law = round_up(cells);
  } else {
    Grouping grouping(cells);
    law = grouping.run();
    // A group adds at most one atom per cell; its mean is that of masses off by mass_error.
    mass_error += 4 * kUnit * grouping.widest() / cells.step;
    position_error += 4 * expm1(grouping.widest()) * mass_error;
  }
  law.mass_error = mass_error;
  law.position_error = position_error;
  return law;
}

GeometricLaw round_lognormal(double sigma, double step, double cut, Rounding rounding) {
  // Eight-point Gauss-Legendre on panels so short that its error is below 1e-14 of the cell.
  static constexpr double kNode[] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                                     0.9602898564975363};
  static constexpr double kWeight[] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                       0.1012285362903763};
  static constexpr double kInvSqrt2Pi = 0.3989422804014327;
  const double z = std::sqrt(2 * log(1 / cut));
  const double half_square = 0.5 / (sigma * sigma);
  const double width = rounding == Rounding::kUp ? step : step / 2;
  const double lowest = -z / sigma - half_square, highest = z / sigma + half_square;
  Cells cells{
      .step = width,
      .first = std::int64_t(std::floor(lowest / step)) * (rounding == Rounding::kUp ? 1 : 2),
      .low = {},
      .high = {}};
  const auto count = std::size_t(std::ceil(highest / width) - double(cells.first));
  cells.low.assign(count, 0.0);
  cells.high.assign(count, 0.0);
  std::vector<double> density(count);
  const double z_most = z + 1 / sigma + sigma * step;
  const int panels = int(std::ceil(std::max(z_most + 1, 10.0) * sigma * width));
  for (int panel = 0; panel < panels; ++panel) {
    for (int node = 0; node < 8; ++node) {
      const double place = (node & 1) ? kNode[node / 2] : -kNode[node / 2];
      const double w = width * ((panel + 0.5 + 0.5 * place) / panels);
      const double share = sigma * kInvSqrt2Pi * kWeight[node / 2] * width / (2 * panels);
      const double high = share * expm1(w) / expm1(width);
      const double low = share * exp(w) * expm1(width - w) / expm1(width);
      for (std::size_t c = 0; c < count; ++c) {
        const double at = sigma * (double(cells.first + std::int64_t(c)) * width + w) + 0.5 / sigma;
        density[c] = -0.5 * at * at;
      }
      exp(density, density);
      for (std::size_t c = 0; c < count; ++c) {
        cells.low[c] += density[c] * low;
        cells.high[c] += density[c] * high;
      }
    }
  }
  const double mass_error = 2e-14 + (64 + 8 * z_most * z_most) * kUnit;
  GeometricLaw law = round_cells(cells, mass_error, kStagePosition, rounding);
  if (rounding == Rounding::kUp) {
    // Mills: the normal tail beyond z is at most phi(z) / z. Below the grid all goes to zero, which
    // loses the little mean it had; above, where the mean is the tail beyond z - 1/sigma, to the
    // last point.
    const auto tail = [](double at) { return 1.0001 * kInvSqrt2Pi * exp(-0.5 * at * at) / at; };
    law.zero = tail(z);
    law.lost = 2 * tail(z);
    law.mass.back() += tail(z + 1 / sigma);
  }
  return law;
}

SumPlan plan_sum(double step, double result_step, std::size_t reach, Rounding rounding) {
  const double width = rounding == Rounding::kUp ? result_step : result_step / 2;
  SumPlan plan{.step = step, .ratio = std::llround(step / width), .reach = reach, .blocks = {}};
  std::vector<double> decay(reach), growth(reach);
  for (std::size_t d = 0; d < reach; ++d) {
    decay[d] = -double(d) * step;
    growth[d] = double(d) * step;
  }
  exp(decay, decay);
  expm1(growth, growth);
  const double whole = expm1(width);
  for (std::size_t d = 0; d < reach;) {
    const double offset = log1p(decay[d]);
    const auto cell = std::int64_t(std::floor(offset / width));
    const double edge = double(cell) * width;
    std::size_t last = reach - 1;
    if (d == 0) {
      last = 0;
    } else if (cell > 0) {
      const double bound = std::floor(-log(expm1(edge)) / step);
      last = std::size_t(std::clamp(bound, double(d), double(reach - 1)));
    }
    // In units of the cell's lower end. A misjudged edge moves sums by a few units in the last
    // place; the weights stay nonnegative and add up to one.
    double unit = exp(-edge);
    const double span = decay[last] * unit * growth[last - d];
    if (span > whole) unit *= whole / span;
    const double far =
        std::max(0.0, std::min(expm1(log1p(decay[last]) - edge), whole - std::min(span, whole)));
    for (std::size_t end = last + 1; end > d;) {
      const int level = int(std::bit_width(end - d)) - 1;
      const std::size_t length = std::size_t{1} << level;
      const double slope = decay[end - 1] * unit;
      const double high = far + decay[last] * unit * growth[last + 1 - end];
      const double low = std::max(0.0, whole - (high + slope * growth[length - 1]));
      plan.blocks.push_back({cell, end - length, level, low / whole, high / whole, slope / whole});
      end -= length;
    }
    d = last + 1;
  }
  return plan;
}

GeometricLaw add(const GeometricLaw& x, const GeometricLaw& y, const SumPlan& plan, double mean,
                 double cut, Rounding rounding) {
  const std::int64_t first = std::min(x.first, y.first);
  const std::int64_t end =
      std::max(x.first + std::int64_t(x.mass.size()), y.first + std::int64_t(y.mass.size()));
  const auto n = std::size_t(end - first);
  const bool same = &x == &y;
  const auto widen = [&](const GeometricLaw& law) {
    std::vector<double> wide(n, 0.0);
    std::copy(law.mass.begin(), law.mass.end(), wide.begin() + (law.first - first));
    return wide;
  };
  const std::vector<double> a = widen(x);
  const std::vector<double> b = same ? std::vector<double>{} : widen(y);

  const auto ratio = std::size_t(plan.ratio);
  const std::size_t length = n + std::size_t(plan.blocks.front().cell) / ratio + 2;
  Phases phases;
  phases.low.assign(ratio, std::vector<double>(length, 0.0));
  phases.high = phases.low;
  Windows of_a(a, plan.reach, plan.step);
  if (same) {
    SumPlan::Block diagonal = plan.blocks.front();
    SumPlan only{plan.step, plan.ratio, plan.reach, {diagonal}};
    accumulate(a, of_a, only, true, 1, phases);
    accumulate(a, of_a, plan, false, 2, phases);
  } else {
    Windows of_b(b, plan.reach, plan.step);
    accumulate(a, of_b, plan, true, 1, phases);
    accumulate(b, of_a, plan, false, 1, phases);
  }
  const std::vector<double>& other = same ? a : b;
  for (std::size_t j = 0; j < n; ++j) phases.low[0][j] += x.zero * other[j] + y.zero * a[j];

  Cells cells{
      .step = plan.step / double(plan.ratio), .first = first * plan.ratio, .low = {}, .high = {}};
  cells.low.resize(length * ratio);
  cells.high.resize(length * ratio);
  for (std::size_t c = 0; c < cells.low.size(); ++c) {
    cells.low[c] = phases.low[c % ratio][c / ratio];
    cells.high[c] = phases.high[c % ratio][c / ratio];
  }
  const double terms = double(plan.blocks.size()) + 8 * double(std::bit_width(n)) + 64;
  const double mass_error = (x.mass_error + y.mass_error) * (1 + x.mass_error) + 2 * terms * kUnit;
  const double position_error = std::max(x.position_error, y.position_error) + kStagePosition;
  GeometricLaw law = round_cells(cells, mass_error, position_error, rounding);
  law.zero = x.zero * y.zero;
  law.lost = x.lost + y.lost;
  if (rounding == Rounding::kUp) {
    trim_up(law, mean, cut);
  } else {
    trim_down(law, mean, cut);
  }
  return law;
}

}  // namespace discreet::accounting
