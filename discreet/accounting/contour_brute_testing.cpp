#include "discreet/accounting/contour_brute_testing.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

namespace discreet::accounting {
namespace {

using Real = long double;
using Complex = std::complex<Real>;
constexpr Real kPi = 3.14159265358979323846264338327950288L;

// Losses and tilted weights of one subsampled step on a lattice of outcomes.
struct Lattice {
  std::vector<Real> loss, weight;
  Real log_mass;

  Lattice(const GaussianSteps& step, Direction direction, Real c, Real h) {
    const Real q = step.rate, s = step.sigma, variance = s * s;
    const bool remove = direction == Direction::kRemove;
    const Real w = remove ? 1 + c : -c;
    const Real left = -20 * s - (remove ? 0 : 3), right = (remove ? 1 + c : 0) + 20 * s;
    std::vector<Real> exponent;
    Real peak = -HUGE_VALL;
    for (Real x = left; x <= right; x += h) {
      const Real v = (2 * x - 1) / (2 * variance);
      const Real l = v < 1000 ? log1pl(q * expm1l(v)) : v + logl(q);
      exponent.push_back(w * l - x * x / (2 * variance));
      loss.push_back(remove ? l : -l);
      peak = std::max(peak, exponent.back());
    }
    Real sum = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < exponent.size(); ++i) {
      if (exponent[i] < peak - 58) continue;
      loss[kept] = loss[i];
      weight.push_back(expl(exponent[i] - peak));
      sum += weight.back();
      ++kept;
    }
    loss.resize(kept);
    for (Real& value : weight) value /= sum;
    log_mass = peak + logl(sum * h / (s * sqrtl(2 * kPi)));
  }
};

Real coarse(const GaussianSteps& step) {
  return std::min<Real>(step.sigma / 6, step.sigma * step.sigma / 4);
}

Real log_mass(const Composition& composition, Direction direction, Real c) {
  Real total = 0;
  for (const auto& step : composition.gaussians) {
    const Real n = static_cast<Real>(step.count), s = step.sigma;
    total += step.rate == 1 ? n * c * (c + 1) / (2 * s * s)
                            : n * Lattice(step, direction, c, coarse(step)).log_mass;
  }
  for (const auto& step : composition.explicits) {
    const Real e = step.epsilon, n = static_cast<Real>(step.count);
    total += n * (e * c + log1pl(expl(-e * (1 + 2 * c))) - log1pl(expl(-e)));
  }
  return total;
}

Real log_b(Real c) { return c * logl(c) - (1 + c) * logl(1 + c); }

struct Plan {
  Real c, period, cut;
};

Real evaluate(const Composition& composition, Direction direction, Real epsilon, const Plan& plan,
              Real finer, double work, bool& complete) {
  const Real dt = 2 * kPi / plan.period;
  const auto terms = static_cast<std::size_t>(plan.cut / dt) + 2;
  std::vector<Complex> exponent(terms, Complex(0));
  double done = 0;
  for (const auto& step : composition.gaussians) {
    const Real n = static_cast<Real>(step.count), s = step.sigma;
    if (step.rate == 1) {
      for (std::size_t j = 0; j < terms; ++j) {
        const Complex z(plan.c, dt * static_cast<Real>(j));
        exponent[j] += n * z * (z + Real{1}) / (2 * s * s);
      }
      continue;
    }
    const Real theta = std::min<Real>(2.4L, 10 / s);
    const Real need = 48 + s * s * theta * theta / 2 + plan.cut * theta +
                      (direction == Direction::kAdd ? plan.c * 1.2L : 0);
    const Lattice lattice(step, direction, plan.c, 2 * kPi * theta * s * s / need / finer);
    const std::size_t size = lattice.loss.size();
    done += static_cast<double>(size) * static_cast<double>(terms);
    if (done > work) {
      complete = false;
      return 0;
    }
    std::vector<Complex> wave(size), turn(size);
    for (std::size_t i = 0; i < size; ++i) {
      wave[i] = lattice.weight[i];
      turn[i] = Complex(cosl(dt * lattice.loss[i]), sinl(dt * lattice.loss[i]));
    }
    Real turned = 0;  // arguments add up; keep log phi continuous enough for integer powers
    (void)turned;
    for (std::size_t j = 0; j < terms; ++j) {
      Real re = 0, im = 0;
      for (std::size_t i = 0; i < size; ++i) {
        re += wave[i].real();
        im += wave[i].imag();
        const Real a = wave[i].real() * turn[i].real() - wave[i].imag() * turn[i].imag();
        const Real b = wave[i].real() * turn[i].imag() + wave[i].imag() * turn[i].real();
        wave[i] = Complex(a, b);
      }
      exponent[j] += n * (std::log(Complex(re, im)) + lattice.log_mass);
    }
  }
  for (const auto& step : composition.explicits) {
    const Real e = step.epsilon, n = static_cast<Real>(step.count);
    for (std::size_t j = 0; j < terms; ++j) {
      const Complex z(plan.c, dt * static_cast<Real>(j));
      exponent[j] += n * (e * z + std::log((Real{1} + std::exp(-e * (Real{1} + Real{2} * z))) /
                                           (1 + expl(-e))));
    }
  }
  Real sum = 0;
  for (std::size_t j = terms; j-- > 0;) {
    const Complex z(plan.c, dt * static_cast<Real>(j));
    sum += (j == 0 ? 1 : 2) * (std::exp(exponent[j] - z * epsilon) / (z * (z + Real{1}))).real();
  }
  return sum * dt / (2 * kPi);
}

}  // namespace

std::optional<Brute> brute_delta(const Composition& composition, Direction direction,
                                 double epsilon, double delta_hint, double work) {
  Real survival = 0;
  for (const auto& step : composition.explicits) {
    survival += static_cast<Real>(step.count) * log1pl(-static_cast<Real>(step.delta));
  }
  const Real failure = -expm1l(survival);
  const Real hint = logl((static_cast<Real>(delta_hint) - failure) / (1 - failure));
  if (!std::isfinite(hint)) return std::nullopt;

  // The order of the best Chernoff bound, a little to the left; then a period for both images.
  Real best = HUGE_VALL, c = 1;
  for (Real order = 0.02L; order < 4000; order *= 1.25L) {
    const Real value = log_mass(composition, direction, order) + log_b(order) - order * epsilon;
    if (value < best) {
      best = value;
      c = order;
    } else if (value > best + 30) {
      break;
    }
  }
  std::optional<Plan> plan;
  for (const Real share : {0.93L, 0.8L, 0.65L, 0.5L, 0.35L}) {
    const Real order = share * c;
    const Real left = (logl(1e19L) - hint) / order;
    Real right = HUGE_VALL;
    for (const Real factor : {1.15L, 1.3L, 1.6L, 2.0L, 2.6L}) {
      const Real far = factor * order;
      const Real excess =
          log_mass(composition, direction, far) + log_b(far) - far * epsilon - hint + logl(1e19L);
      right = std::min(right, std::max<Real>(excess, 1) / (far - order));
    }
    const Real period = std::max(left, right);
    if (!plan || period < plan->period) plan = Plan{order, period, 0};
  }

  // The cut: double it until the last quarter of the terms no longer matters.
  const Real at = log_mass(composition, direction, plan->c);
  const Real up = log_mass(composition, direction, plan->c * 1.02L);
  const Real down = log_mass(composition, direction, plan->c * 0.98L);
  const Real second = (up - 2 * at + down) / (plan->c * 0.02L * plan->c * 0.02L);
  plan->cut = sqrtl(2 * 46 / std::max<Real>(second, 1e-6L));
  Real previous = 0;
  for (int doubling = 0; doubling < 12; ++doubling) {
    bool complete = true;
    const Real value = evaluate(composition, direction, epsilon, *plan, 1, work, complete);
    if (!complete) return std::nullopt;
    if (doubling > 0 && std::abs(value - previous) < 1e-17L * std::abs(value)) break;
    previous = value;
    plan->cut *= 1.5L;
  }
  bool complete = true;
  const Real first = evaluate(composition, direction, epsilon, *plan, 1, work, complete);
  Plan other = *plan;
  other.c *= 0.97L;
  other.period *= 1.11L;
  other.cut *= 1.2L;
  const Real second_value = evaluate(composition, direction, epsilon, other, 1.13L, 4 * work, complete);
  if (!complete) return std::nullopt;
  return Brute{failure + (1 - failure) * first, std::abs(first / second_value - 1)};
}

}  // namespace discreet::accounting
