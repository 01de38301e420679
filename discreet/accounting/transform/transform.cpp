#include "discreet/accounting/transform/transform.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "discreet/accounting/transform/loss_grid_impl.h"
#include "discreet/accounting/transform/subsampled_gaussian_impl.h"
#include "discreet/accounting/transform/transform_plan_impl.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/fft.h"

namespace discreet::accounting {
namespace {

using namespace transform_impl;

constexpr int kMaxRounds = 5;
// Spectra below e^-kNegligible are set to zero, and that is charged.
constexpr double kNegligible = 80;

using Complex = std::complex<double>;

Complex power(Complex base, std::uint64_t exponent) {
  double br = base.real(), bi = base.imag(), r = 1, i = 0;
  bool started = false;
  for (;;) {
    if (exponent & 1) {
      if (started) {
        const double t = r * br - i * bi;
        i = r * bi + i * br;
        r = t;
      } else {
        r = br;
        i = bi;
        started = true;
      }
    }
    exponent >>= 1;
    if (exponent == 0) return {r, i};
    const double t = br * br - bi * bi;
    bi = 2 * (br * bi);
    br = t;
  }
}

class Composed {
 public:
  Composed(const Composition& steps, Direction direction, const Plan& plan, double sharpness,
           double h, double tail, std::uint64_t group)
      : h_(h), th_(plan.tilt * h) {
    double support_low = 0, support_high = 0;
    std::vector<LossGrid> laws;
    std::vector<std::uint64_t> counts;
    for (const GaussianSteps& event : steps.gaussians) {
      laws.push_back(gaussian_grid(event.rate, event.sigma, direction, h, tail,
                                   {std::min(plan.tilt, sharpness), std::max(plan.tilt, sharpness)},
                                   group));
      counts.push_back(event.count);
    }
    for (const ExplicitSteps& event : steps.explicits) {
      laws.push_back(explicit_grid(event.epsilon, event.delta, h));
      counts.push_back(event.count);
    }
    double log_finite_upper = 0, log_finite_lower = 0;
    for (std::size_t e = 0; e < laws.size(); ++e) {
      const double n = static_cast<double>(counts[e]);
      const auto [least, most] = std::minmax_element(laws[e].index.begin(), laws[e].index.end());
      support_low += n * static_cast<double>(*least);
      support_high += n * static_cast<double>(*most + 1);
      offset_ += n * static_cast<double>(laws[e].offset);
      log_finite_upper += n * numerics::log1p(-laws[e].infinity_upper);
      log_finite_lower += n * numerics::log1p(-laws[e].infinity_lower);
    }
    const double rounding = 8 * kU * (static_cast<double>(laws.size()) + 1);
    infinity_upper_ = -numerics::expm1(log_finite_upper) * (1 + rounding);
    infinity_lower_ = -numerics::expm1(log_finite_lower) * (1 - rounding);

    offset_ *= h / static_cast<double>(kOffsetUnits);
    const double high = std::min(std::ceil((plan.high - offset_) / h), support_high);
    const double low = std::min(std::max(std::floor((plan.low - offset_) / h), support_low), high);
    if (!(std::abs(low) < kMostIndex && high - low < 8 * kMaxLength)) throw GridTooLarge();
    length_ = 2 * numerics::fft_length(static_cast<std::size_t>(high - low + 16) / 2);
    first_ = static_cast<std::int64_t>(low);
    const bool no_left = low <= support_low;
    const bool no_right = low + static_cast<double>(length_) > support_high;
    compose(laws, counts, plan, no_left, no_right);
  }

  double grid() const { return h_; }
  std::size_t length() const { return length_; }
  double last_loss() const {
    return static_cast<double>(first_ + static_cast<std::int64_t>(length_) - 1) * h_ + offset_;
  }
  // The share of delta_bounds' width that is charged rather than due to the grid.
  double charge(double epsilon) const {
    return charge_ * numerics::exp(log_mass_ - th_ * ((epsilon - offset_) / h_));
  }

  // [lower, upper] for delta(epsilon); first = lower.
  Interval delta_bounds(double epsilon) const {
    const double index = std::ceil((epsilon - offset_) / h_);
    const auto k =
        std::max(static_cast<std::int64_t>(std::clamp(index, -kMostIndex, kMostIndex)), first_);
    const double place = static_cast<double>(k) * h_ + offset_;
    const double d = place - epsilon;
    const std::int64_t at = k - first_;
    double up = 0, low = 0;
    const double exponent = log_mass_ - th_ * static_cast<double>(k);
    const double noise = 8 * kU *
                             (log_mass_size_ + std::abs(th_ * static_cast<double>(k)) +
                              th_ / h_ * (std::abs(place) + std::abs(offset_)) + 4) +
                         value_error_;
    if (at < static_cast<std::int64_t>(length_)) {
      const double scale = numerics::exp(exponent);
      const double missing = -numerics::expm1(-d);
      const double slack = 4 * kU * (std::abs(place) + std::abs(epsilon) + 2 * std::abs(offset_));
      const auto i = static_cast<std::size_t>(at);
      up = scale * (upper_gain_[i] + (missing + slack) * std::max(upper_mass_[i], 0.0));
      low = scale * (lower_gain_[i] + (missing - slack) * std::max(lower_mass_[i], 0.0));
    }
    const double charged = charge(epsilon) * (1 + 4 * noise);
    Interval delta{infinity_lower_ + low - std::abs(low) * noise - charged,
                   infinity_upper_ + up + std::abs(up) * noise + charged};
    delta.lower = std::max(delta.lower * (1 - 4 * kU), 0.0);
    delta.upper = delta.upper * (1 + 4 * kU);
    // NaN certifies nothing.
    if (!(delta.upper <= 1)) delta.upper = 1;
    if (!(delta.lower >= 0)) delta.lower = 0;
    return delta;
  }

 private:
  void compose(const std::vector<LossGrid>& laws, const std::vector<std::uint64_t>& counts,
               const Plan& plan, bool no_left, bool no_right) {
    const std::size_t n = length_;
    const double step_left = (plan.left - plan.tilt) * h_;
    const double step_right = (plan.right - plan.tilt) * h_;
    const numerics::Fft fft(n);
    std::vector<Complex> packed(n), work(n);
    double log_left[2] = {0, 0}, log_right[2] = {0, 0};
    double log_cap = 0, forward = 0, multiplications = 0;
    const double eta = fft.relative_error() + 4 * kU;
    std::vector<Complex> up(n / 2 + 1, 1.0), low(n / 2 + 1, 1.0);

    for (std::size_t e = 0; e < laws.size(); ++e) {
      const LossGrid& law = laws[e];
      const double count = static_cast<double>(counts[e]);
      const double kappa = tilted_cumulant(law);
      std::fill(packed.begin(), packed.end(), Complex(0));
      double total = 0, lefts[2] = {0, 0}, rights[2] = {0, 0}, largest = 0;
      for (std::size_t i = 0; i < law.upper.size(); ++i) {
        const auto at = static_cast<double>(law.index[i]);
        const double exponent = th_ * at - kappa;
        const double weight = numerics::exp(exponent);
        const double error = kU * (3 * std::abs(th_ * at) + 3 * std::abs(kappa) + 16);
        const double masses[2] = {law.upper[i] * weight * (1 + error),
                                  law.lower[i] * weight * (1 - error)};
        const double left = no_left ? 0 : numerics::exp(exponent + step_left * at);
        const double right = no_right ? 0 : numerics::exp(exponent + step_right * at);
        largest = std::max(
            {largest, std::abs(th_ * at), std::abs(step_left * at), std::abs(step_right * at)});
        total += masses[0];
        for (int s = 0; s < 2; ++s) {
          const double mass = s == 0 ? law.upper[i] : law.lower[i];
          lefts[s] += mass > 0 ? mass * left : 0;
          rights[s] += mass > 0 ? mass * right : 0;
        }
        auto slot = law.index[i] % static_cast<std::int64_t>(n);
        if (slot < 0) slot += static_cast<std::int64_t>(n);
        Complex& cell = packed[static_cast<std::size_t>(slot)];
        // Each fold rounds once: away from zero for upper, towards it for lower.
        cell = {(cell.real() + masses[0]) * (1 + 4 * kU), (cell.imag() + masses[1]) * (1 - 4 * kU)};
      }
      const double size = static_cast<double>(law.upper.size());
      const double pad = count * kU * (8 * largest + 4 * std::abs(kappa) + 4 * size + 32);
      for (int s = 0; s < 2; ++s) {
        log_left[s] += no_left ? 0 : count * numerics::log(lefts[s]) + pad;
        log_right[s] += no_right ? 0 : count * numerics::log(rights[s]) + pad;
      }
      log_mass_ += count * kappa;
      log_mass_size_ += std::abs(count * kappa);

      double norm = 0;
      for (const Complex& c : packed) norm += std::norm(c);
      norm = std::sqrt(norm) * (1 + kU * (static_cast<double>(n) + 8));
      fft.forward(packed, work);
      const double threshold = numerics::exp(-2 * kNegligible / count);
      double peak = total * (1 + 4 * kU * (size + 4));
      peak = peak * peak;
      for (std::size_t j = 0; j <= n / 2; ++j) {
        const Complex a = packed[j], b = std::conj(packed[j == 0 ? 0 : n - j]);
        const Complex phi_up = 0.5 * (a + b);
        const Complex half = 0.5 * (a - b);
        const Complex phi_low(half.imag(), -half.real());
        const double size_up = std::norm(phi_up), size_low = std::norm(phi_low);
        peak = std::max(peak, std::max(size_up, size_low));
        up[j] = size_up < threshold ? 0.0 : multiply(up[j], power(phi_up, counts[e]));
        low[j] = size_low < threshold ? 0.0 : multiply(low[j], power(phi_low, counts[e]));
      }
      log_cap += count * std::max(0.5 * numerics::log(peak) + 4 * kU, 0.0);
      forward += count * eta * norm;
      multiplications += count + 1;
    }

    for (std::size_t j = 0; j <= n / 2; ++j) {
      packed[j] = {up[j].real() - low[j].imag(), up[j].imag() + low[j].real()};
      if (j > 0) {
        packed[n - j] = {up[j].real() + low[j].imag(), -up[j].imag() + low[j].real()};
      }
    }
    if (n % 2 == 0) packed[n / 2] = {up[n / 2].real(), low[n / 2].real()};
    fft.inverse(packed, work);

    double norm = 0;
    for (Complex& c : packed) {
      norm += std::norm(c);
    }
    norm = std::sqrt(norm) * (1 + kU * (static_cast<double>(n) + 8));
    const double cap = numerics::exp(log_cap) * (1 + 1e-9);
    const double noise = forward * cap + 2.3 * kU * multiplications * cap * norm * 1.1 +
                         2 * eta * norm +
                         static_cast<double>(laws.size()) * numerics::exp(-kNegligible + 1) * cap;

    // |S - delta| <= charge_ e^{log_mass - tilt epsilon}; transform.md, sections 4 and 5.
    const double last = static_cast<double>(first_ + static_cast<std::int64_t>(n));
    double tails = 0;
    for (int s = 0; s < 2; ++s) {
      double tail = 0;
      if (!no_left) {
        tail += numerics::exp(log_left[s] - step_left * static_cast<double>(first_));
      }
      if (!no_right) tail += numerics::exp(log_right[s] - step_right * last);
      tails = tail <= kInfinity ? std::max(tails, tail) : kInfinity;
    }
    const double weights = std::min(weight_norm(th_ / h_, h_), std::sqrt(static_cast<double>(n)));
    charge_ = (tails * numerics::exp(log_kernel(th_ / h_)) + noise * weights) * (1 + 1e-9);
    value_error_ = 16 * kU * (static_cast<double>(n) + 4);

    accumulate(packed);
  }

  // A normaliser near the law's cumulant; any value is sound.
  double tilted_cumulant(const LossGrid& law) const {
    double top = -kInfinity, sum = 0;
    std::vector<double> exponents(law.upper.size());
    for (std::size_t i = 0; i < law.upper.size(); ++i) {
      exponents[i] = th_ * static_cast<double>(law.index[i]);
      if (law.upper[i] > 0) top = std::max(top, exponents[i] + numerics::log(law.upper[i]));
    }
    for (std::size_t i = 0; i < law.upper.size(); ++i)
      sum += law.upper[i] * numerics::exp(exponents[i] - top);
    return top + numerics::log(sum);
  }

  static Complex multiply(Complex x, Complex y) {
    return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
  }

  // gain_k = sum_{j >= k} y_j a^{j-k} (1 - b^{j-k}) and mass_k = sum_{j >= k} y_j (ab)^{j-k}, by
  // recurrences without cancellation.
  void accumulate(const std::vector<Complex>& y) {
    const std::size_t n = length_;
    const double a = numerics::exp(-th_), b = numerics::exp(-h_), lift = -numerics::expm1(-h_);
    upper_gain_.resize(n);
    upper_mass_.resize(n);
    lower_gain_.resize(n);
    lower_mass_.resize(n);
    double gain[2] = {0, 0}, mass[2] = {0, 0};
    auto slot = (first_ + static_cast<std::int64_t>(n) - 1) % static_cast<std::int64_t>(n);
    if (slot < 0) slot += static_cast<std::int64_t>(n);
    for (std::size_t k = n; k-- > 0;) {
      const Complex value = y[static_cast<std::size_t>(slot)];
      slot = slot == 0 ? static_cast<std::int64_t>(n) - 1 : slot - 1;
      gain[0] = a * (gain[0] + lift * mass[0]);
      gain[1] = a * (gain[1] + lift * mass[1]);
      mass[0] = value.real() + a * b * mass[0];
      mass[1] = value.imag() + a * b * mass[1];
      upper_gain_[k] = gain[0];
      lower_gain_[k] = gain[1];
      upper_mass_[k] = mass[0];
      lower_mass_[k] = mass[1];
    }
  }

  double h_, th_;  // the tilt is th_ / h_ exactly
  std::size_t length_ = 0;
  std::int64_t first_ = 0;
  double offset_ = 0;  // of the composed grid: point k sits at k h + offset
  double infinity_upper_ = 0, infinity_lower_ = 0;
  double log_mass_ = 0, log_mass_size_ = 0;
  double charge_ = 0, value_error_ = 0;
  std::vector<double> upper_gain_, upper_mass_, lower_gain_, lower_mass_;
};

// The least epsilon found with an upper delta at most `delta`, and the greatest with a lower delta
// at least that. Bisection may assume monotone bounds to find them; what it returns was tested.
Interval invert(const Composed& composed, double delta) {
  Interval epsilon{0, kInfinity};
  const double top = std::max(composed.last_loss(), 0.0);
  if (composed.delta_bounds(0).upper <= delta) {
    epsilon.upper = 0;
  } else if (composed.delta_bounds(top).upper <= delta) {
    double no = 0, yes = top;
    for (int i = 0; i < 60 && yes - no > 1e-13 * yes; ++i) {
      const double middle = 0.5 * (no + yes);
      (composed.delta_bounds(middle).upper <= delta ? yes : no) = middle;
    }
    epsilon.upper = yes;
  }
  // Far below the answer the charge e^{-tilt epsilon} swamps the lower bound: search from above.
  double no = std::min(epsilon.upper, top), yes = no;
  for (double step = 0.125 * composed.grid(); yes > 0; step *= 2) {
    yes = std::max(no - step, 0.0);
    if (composed.delta_bounds(yes).lower >= delta) break;
    if (yes == 0) return epsilon;
    no = yes;
  }
  for (int i = 0; i < 60 && no - yes > 1e-13 * no; ++i) {
    const double middle = 0.5 * (no + yes);
    (composed.delta_bounds(middle).lower >= delta ? yes : no) = middle;
  }
  epsilon.lower = yes;
  return epsilon;
}

}  // namespace

// Empty if no grid of bounded size holds the composition.
static std::optional<Composed> composed_if_it_fits(const Composition& steps, Direction direction,
                                                   const Plan& plan, double sharpness, double h,
                                                   double tail, std::uint64_t group) try {
  return std::optional<Composed>(std::in_place, steps, direction, plan, sharpness, h, tail, group);
} catch (const GridTooLarge&) {
  return std::nullopt;
}

TransformResult transform_epsilon(const Composition& steps, Direction direction, double delta,
                                  double width, std::uint64_t group) {
  const double log_delta = numerics::log(delta);
  // Outcomes cut off cost at most their mass: as much as the width allows, because what is kept of
  // the tail can dominate the log-moments.
  const double least_tail = delta / total_steps(steps);
  double tail = 1e-3 * least_tail;
  Table table = make_table(steps, direction, tail, group);
  TransformResult best{{0, kInfinity}, 0, 0, false};
  const Interval failure = failure_mass(steps);
  if (failure.lower > delta) return {{kInfinity, kInfinity}, 0, 0, true};
  if (failure.upper <= delta) best.value.upper = largest_loss(steps, direction, group);
  double epsilon = std::clamp(chernoff_epsilon(table, log_delta), 0.0, best.value.upper);
  const double share_cut = 0.03 * width * sharpness_at(table, epsilon);
  if (share_cut < 3e-4) {
    tail = std::max(share_cut, 1e-9) * least_tail;
    table = make_table(steps, direction, tail, group);
    epsilon = std::clamp(chernoff_epsilon(table, log_delta), 0.0, best.value.upper);
  }
  if (!(table.max_loss < kMaxLoss)) return best;
  double coarsest = kInfinity, thrift = 1;
  for (int round = 0; round < kMaxRounds; ++round) {
    const double sharpness = sharpness_at(table, epsilon);
    const double share = thrift * std::clamp(0.003 * width * sharpness, 1e-12, 1e-2);
    const double noise_share = 0.02 * width * sharpness;
    double h = grid_for(steps, table, sharpness, width, coarsest);
    Plan plan = make_plan(table, epsilon, log_delta, share, noise_share, h);
    if ((plan.high - plan.low) / h > kMaxLength) {
      h = with_20_bits((plan.high - plan.low) / (0.95 * kMaxLength));
      plan = make_plan(table, epsilon, log_delta, share, noise_share, h);
    }
    if (!(plan.tilt > 0) || !((plan.high - plan.low) / h < 4 * kMaxLength)) return best;
    const auto fits = composed_if_it_fits(steps, direction, plan, sharpness, h, tail, group);
    if (!fits) return best;
    const Composed& composed = *fits;
    const Interval found = invert(composed, delta);
    best.value.lower = std::max(best.value.lower, found.lower);
    best.value.upper = std::min(best.value.upper, found.upper);
    best.grid = h;
    best.length = composed.length();
    const double reached = best.value.upper - best.value.lower;
    if (reached <= width) {
      best.reached = true;
      return best;
    }
    if (static_cast<double>(composed.length()) > 0.7 * kMaxLength) return best;
    const double charged =
        2 * composed.charge(std::min(found.upper, epsilon)) / (delta * sharpness);
    if (!(charged < 0.2 * width)) thrift *= 1e-2;
    epsilon = std::min(epsilon, best.value.upper);
    coarsest = h * std::clamp(std::sqrt(0.8 * width / reached), 0.3, 0.8);
  }
  return best;
}

TransformResult transform_delta(const Composition& steps, Direction direction, double epsilon,
                                double relative_width, std::uint64_t group) {
  const double scale = 1e-4 * relative_width / total_steps(steps);
  const Interval failure = failure_mass(steps);
  if (epsilon >= largest_loss(steps, direction, group)) return {failure, 0, 0, true};
  TransformResult best{{failure.lower, 1}, 0, 0, false};
  Table table = make_table(steps, direction, scale * 1e-30, group);
  double log_delta = std::max(chernoff_log_delta(table, epsilon) - 3, -160.0);
  double share = 1e-3 * relative_width, coarsest = kInfinity;
  const double noise_share = 0.02 * relative_width;
  for (int round = 0; round < kMaxRounds; ++round) {
    const double tail = std::max(scale * numerics::exp(log_delta), 1e-290);
    table = make_table(steps, direction, tail, group);
    if (!(table.max_loss < kMaxLoss)) return best;
    const double sharpness = sharpness_at(table, epsilon);
    double h = grid_for(steps, table, sharpness, relative_width / sharpness, coarsest);
    Plan plan = make_plan(table, epsilon, log_delta, share, noise_share, h);
    if ((plan.high - plan.low) / h > kMaxLength) {
      h = with_20_bits((plan.high - plan.low) / (0.95 * kMaxLength));
      plan = make_plan(table, epsilon, log_delta, share, noise_share, h);
    }
    if (!(plan.tilt > 0) || !((plan.high - plan.low) / h < 4 * kMaxLength)) return best;
    const auto fits = composed_if_it_fits(steps, direction, plan, sharpness, h, tail, group);
    if (!fits) return best;
    const Composed& composed = *fits;
    const Interval found = composed.delta_bounds(epsilon);
    best.value.lower = std::max(best.value.lower, found.lower);
    best.value.upper = std::min(best.value.upper, found.upper);
    best.grid = h;
    best.length = composed.length();
    const double reached = 1 - best.value.lower / best.value.upper;
    if (reached <= relative_width) {
      best.reached = true;
      return best;
    }
    if (static_cast<double>(composed.length()) > 0.7 * kMaxLength) return best;
    if (!(2 * composed.charge(epsilon) < 0.2 * relative_width * best.value.upper)) share *= 1e-3;
    if (best.value.lower > 0) log_delta = numerics::log(best.value.lower);
    coarsest = h * std::clamp(std::sqrt(0.8 * relative_width / reached), 0.3, 0.8);
  }
  return best;
}

}  // namespace discreet::accounting
