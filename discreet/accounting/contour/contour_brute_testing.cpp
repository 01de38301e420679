#include "discreet/accounting/contour/contour_brute_testing.h"

#include <algorithm>
#include <cmath>
#include <complex>

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
      loss[kept++] = loss[i];
      weight.push_back(expl(exponent[i] - peak));
      sum += weight.back();
    }
    loss.resize(kept);
    for (Real& value : weight) value /= sum;
    log_mass = peak + logl(sum * h / (s * sqrtl(2 * kPi)));
  }
};

Real log_mass(const Composition& composition, Direction direction, Real c) {
  Real total = 0;
  for (const auto& step : composition.gaussians) {
    const Real n = static_cast<Real>(step.count), s = step.sigma;
    const Real h = std::min<Real>(s / 5, s * s / 3);
    total += step.rate == 1 ? n * c * (c + 1) / (2 * s * s)
                            : n * Lattice(step, direction, c, h).log_mass;
  }
  for (const auto& step : composition.explicits) {
    const Real e = step.epsilon, n = static_cast<Real>(step.count);
    total += n * (e * c + log1pl(expl(-e * (1 + 2 * c))) - log1pl(expl(-e)));
  }
  return total;
}

Real log_b(Real c) { return c * logl(c) - (1 + c) * logl(1 + c); }

std::optional<BruteCurve::Line> evaluate(const Composition& composition, Direction direction,
                                         Real c, Real period, Real cut, Real finer, double work) {
  const Real dt = 2 * kPi / period;
  const auto terms = static_cast<std::size_t>(cut / dt) + 2;
  BruteCurve::Line line{c, dt, std::vector<Real>(terms), std::vector<Real>(terms)};
  const auto add = [&](std::size_t j, Complex value) {
    line.re[j] += value.real();
    line.im[j] += value.imag();
  };
  for (const auto& step : composition.gaussians) {
    const Real n = static_cast<Real>(step.count), s = step.sigma;
    if (step.rate == 1) {
      for (std::size_t j = 0; j < terms; ++j) {
        const Complex z(c, dt * static_cast<Real>(j));
        add(j, n * z * (z + Real{1}) / (2 * s * s));
      }
      continue;
    }
    const Real theta = std::min<Real>(2.4L, 10 / s);
    const Real need = 48 + s * s * theta * theta / 2 + cut * theta +
                      (direction == Direction::kAdd ? c * 1.2L : 0);
    const Real h = 2 * kPi * theta * s * s / need / finer;
    if ((40 * s + c) / h > 4e5L) return std::nullopt;
    const Lattice lattice(step, direction, c, h);
    const std::size_t size = lattice.loss.size();
    work -= static_cast<double>(size) * static_cast<double>(terms);
    if (work < 0) return std::nullopt;
    std::vector<Real> re(lattice.weight), im(size), turn_re(size), turn_im(size);
    for (std::size_t i = 0; i < size; ++i) {
      turn_re[i] = cosl(dt * lattice.loss[i]);
      turn_im[i] = sinl(dt * lattice.loss[i]);
    }
    for (std::size_t j = 0; j < terms; ++j) {
      Real sum_re = 0, sum_im = 0;
      for (std::size_t i = 0; i < size; ++i) {
        sum_re += re[i];
        sum_im += im[i];
        const Real a = re[i] * turn_re[i] - im[i] * turn_im[i];
        im[i] = re[i] * turn_im[i] + im[i] * turn_re[i];
        re[i] = a;
      }
      add(j, n * (std::log(Complex(sum_re, sum_im)) + lattice.log_mass));
    }
  }
  for (const auto& step : composition.explicits) {
    const Real e = step.epsilon, n = static_cast<Real>(step.count);
    for (std::size_t j = 0; j < terms; ++j) {
      const Complex z(c, dt * static_cast<Real>(j));
      add(j, n * (e * z +
                  std::log((Real{1} + std::exp(-e * (Real{1} + Real{2} * z))) / (1 + expl(-e)))));
    }
  }
  return line;
}

Real integral(const BruteCurve::Line& line, Real epsilon, Real& magnitude) {
  Real sum = 0;
  magnitude = 0;
  for (std::size_t j = line.re.size(); j-- > 0;) {
    const Complex z(line.c, line.dt * static_cast<Real>(j));
    const Complex term = std::exp(Complex(line.re[j], line.im[j]) - z * epsilon);
    sum += (j == 0 ? 1 : 2) * (term / (z * (z + Real{1}))).real();
    magnitude += 2 * std::abs(term) / (std::norm(z));
  }
  return sum * line.dt / (2 * kPi);
}

}  // namespace

std::optional<BruteCurve> BruteCurve::near(const Composition& composition, Direction direction,
                                           double epsilon, double delta, double work) {
  Real survival = 0;
  for (const auto& step : composition.explicits) {
    survival += static_cast<Real>(step.count) * log1pl(-static_cast<Real>(step.delta));
  }
  BruteCurve curve;
  curve.failure_ = -expm1l(survival);
  const Real hint = logl((static_cast<Real>(delta) - curve.failure_) / (1 - curve.failure_));
  if (!std::isfinite(hint)) return std::nullopt;

  // The order of the best Chernoff bound; then, a little to the left, a period for both images.
  Real best = HUGE_VALL, saddle = 1;
  for (Real order = 0.02L; order < 20000; order *= 1.4L) {
    const Real value = log_mass(composition, direction, order) + log_b(order) - order * epsilon;
    if (value < best) {
      best = value;
      saddle = order;
    } else if (value > best + 30) {
      break;
    }
  }
  const Real wanted = logl(1e19L) - hint;
  Real c = 0, period = HUGE_VALL;
  for (const Real share : {0.9L, 0.7L, 0.5L, 0.35L}) {
    const Real order = share * saddle;
    Real right = HUGE_VALL;
    for (const Real factor : {1.2L, 1.5L, 2.0L, 2.6L}) {
      const Real far = factor * order;
      const Real excess =
          log_mass(composition, direction, far) + log_b(far) - far * epsilon + wanted;
      right = std::min(right, std::max<Real>(excess, 1) / (far - order));
    }
    const Real both = std::max(wanted / order, right);
    if (both < period) {
      period = both;
      c = order;
    }
  }

  // Cut where the last eighth of the terms is negligible relative to the sum.
  const Real d = c * 0.05L;
  const Real second =
      (log_mass(composition, direction, c + d) - 2 * log_mass(composition, direction, c) +
       log_mass(composition, direction, c - d)) /
      (d * d);
  Real cut = sqrtl(2 * 46 / std::max<Real>(second, 1e-9L));
  for (int attempt = 0;; ++attempt) {
    auto line = evaluate(composition, direction, c, period, cut, 1, work);
    if (!line || attempt == 16) return std::nullopt;
    Real largest = -HUGE_VALL;
    for (std::size_t j = line->re.size() * 7 / 8; j < line->re.size(); ++j) {
      largest = std::max(largest, line->re[j]);
    }
    curve.first_ = std::move(*line);
    if (largest - c * epsilon + logl(period / c) < hint - 44) break;
    cut *= 1.5L;
  }
  auto other =
      evaluate(composition, direction, c * 0.96L, period * 1.12L, cut * 1.15L, 1.13L, 2 * work);
  if (!other) return std::nullopt;
  curve.second_ = std::move(*other);
  for (const auto& step : composition.gaussians) curve.count_ += static_cast<Real>(step.count);
  return curve;
}

BruteCurve::Value BruteCurve::at(double epsilon) const {
  Real magnitude, unused;
  const Real second = integral(second_, epsilon, unused);
  const Real first = integral(first_, epsilon, magnitude);
  const Real lost = magnitude * first_.dt / (2 * kPi) / first * (1 + count_) * 1e-17L;
  return {failure_ + (1 - failure_) * first, std::abs(first / second - 1) + lost};
}

}  // namespace discreet::accounting
