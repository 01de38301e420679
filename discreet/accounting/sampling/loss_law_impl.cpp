#include "discreet/accounting/sampling/loss_law_impl.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/fft.h"
#include "discreet/numerics/sum.h"

namespace discreet::accounting {
namespace {

using numerics::exp;
using numerics::log;

constexpr double kUnit = 0x1p-53;
constexpr double kMostPoints = 0x1p21;
constexpr double kTail = 1e-14;  // of tilted mass outside the window, on each side

double cumulant_of(const LossLaw& law, double order) {
  const std::size_t n = law.mass.size();
  const double last = law.first + double(n - 1) * law.step;
  const double top = std::max(order * law.first, order * last);
  std::vector<double> weight(n);
  for (std::size_t i = 0; i < n; ++i) weight[i] = order * (law.first + double(i) * law.step) - top;
  numerics::exp(weight, weight);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += law.mass[i] * weight[i];
  return log(sum) + top;
}

// The minimum over x in [low, high] (logarithmic scale) of a unimodal function, roughly.
template <class F>
double minimise(F&& f, double low, double high, int steps) {
  const double golden = 0.6180339887498949;
  double a = log(low), b = log(high);
  double x = b - golden * (b - a), y = a + golden * (b - a);
  double fx = f(exp(x)), fy = f(exp(y));
  for (int i = 0; i < steps; ++i) {
    if (fx <= fy) {
      b = y, y = x, fy = fx;
      x = b - golden * (b - a), fx = f(exp(x));
    } else {
      a = x, x = y, fx = fy;
      y = a + golden * (b - a), fy = f(exp(y));
    }
  }
  return exp(fx <= fy ? x : y);
}

using Complex = std::complex<double>;

Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

Complex power(Complex z, std::uint64_t n) {
  Complex result = z;
  for (int bit = int(std::bit_width(n)) - 2; bit >= 0; --bit) {
    result = times(result, result);
    if (n >> bit & 1) result = times(result, z);
  }
  return result;
}

// value <- mass e^{order loss - exponent}, wrapped around.
void tilt(const LossLaw& law, double order, double exponent, std::vector<double>& value) {
  std::vector<double> weight(law.mass.size());
  for (std::size_t i = 0; i < weight.size(); ++i)
    weight[i] = order * (law.first + double(i) * law.step) - exponent;
  numerics::exp(weight, weight);
  std::fill(value.begin(), value.end(), 0.0);
  for (std::size_t i = 0; i < weight.size(); ++i)
    value[i % value.size()] += law.mass[i] * weight[i];
}

}  // namespace

LossLaw loss_of(const GeometricLaw& law, double scale, Direction direction) {
  const double log_scale = log(scale);
  const std::size_t n = law.mass.size();
  LossLaw loss;
  loss.step = law.step;
  loss.mass.resize(n);
  const double lowest = double(law.first) * law.step - log_scale;
  const double highest = lowest + double(n) * law.step;
  const double size = std::max(std::abs(lowest), std::abs(highest)) + std::abs(log_scale);
  loss.position_error = 1.01 * law.position_error + 4 * kUnit * size;
  loss.mass_error = law.mass_error + 4 * kUnit * (size + 4);
  if (direction == Direction::kRemove) {
    loss.first = lowest;
    for (std::size_t i = 0; i < n; ++i) loss.mass[i] = lowest + double(i) * law.step;
    numerics::exp(loss.mass, loss.mass);
    for (std::size_t i = 0; i < n; ++i) loss.mass[i] *= law.mass[i];
    loss.infinite = law.lost / scale;
  } else {
    loss.first = -(double(law.first + std::int64_t(n) - 1) * law.step - log_scale);
    std::reverse_copy(law.mass.begin(), law.mass.end(), loss.mass.begin());
    loss.infinite = law.zero;
  }
  loss.infinite *= 1 + 2 * law.mass_error + 1e-9;
  return loss;
}

double cumulant(std::span<const LossCopies> copies, double order) {
  double sum = 0;
  for (const LossCopies& c : copies) sum += double(c.count) * cumulant_of(*c.law, order);
  return sum;
}

double order_for_delta(std::span<const LossCopies> copies, double delta) {
  const double budget = -log(delta);
  return minimise([&](double order) { return (cumulant(copies, order) + budget) / order; }, 0.05,
                  1e4, 18);
}

double order_for_epsilon(std::span<const LossCopies> copies, double epsilon) {
  return minimise([&](double order) { return cumulant(copies, order) - order * epsilon; }, 0.05,
                  1e4, 18);
}

LossSum::LossSum(std::span<const LossCopies> copies, double order)
    : order_(order), step_(copies.front().law->step) {
  double base = 0, support = 0, count = 0;
  std::vector<double> exponent;
  double log_scale = 0;
  double drift = 0;  // of the logarithm of all tilted mass, from the sums of cumulant_of
  for (const LossCopies& c : copies) {
    const auto n = double(c.count);
    const LossLaw& law = *c.law;
    base += n * law.first;
    support += n * double(law.mass.size() - 1);
    count += n;
    drift += n * kUnit * double(law.mass.size());
    exponent.push_back(cumulant_of(law, order));
    log_scale += n * exponent.back();
    infinite_ += n * law.infinite;
    position_ += n * law.position_error;
    const double reach =
        std::max(std::abs(law.first), std::abs(law.first + double(law.mass.size()) * step_));
    relative_ += n * (law.mass_error + law.position_error +
                      4 * kUnit * (order * reach + std::abs(exponent.back()) + 8));
  }
  infinite_ = std::min(1.0, infinite_);
  position_ += 8 * kUnit * (std::abs(base) + support * step_);

  // Chernoff: tilted mass above x is at most e^{K(order + a) - K(order) - a x}, likewise below.
  double low = 0, high = support;
  double outside = 0;
  if (support > 4096) {
    // Cumulants err by the drift and, at up to 51 times the order, by as many times relative_.
    const double budget = -log(kTail) + 1e-3 + 2 * drift + 60 * relative_;
    const auto edge = [&](double a) {
      return (cumulant(copies, order + a) - log_scale + budget) / a;
    };
    const double up = minimise([&](double b) { return edge(b); }, 0.02 * order, 50 * order, 12);
    const double down = minimise([&](double b) { return -edge(-b); }, 0.02 * order, 50 * order, 12);
    high = std::min(support, std::ceil((edge(up) - base) / step_));
    low = std::max(0.0, std::floor((edge(-down) - base) / step_));
    outside = 2 * kTail;
    if (!(low < high)) low = 0, high = support;
  }
  if (!(high - low < kMostPoints)) {
    // Too long to compute: every answer is the trivial bound.
    relative_ = 1;
    tail_p_ = tail_q_ = {0.0};
    return;
  }
  const std::size_t size = 2 * numerics::fft_length(std::size_t(high - low) / 2 + 2);

  std::vector<double> value(size);
  double norm = 0;
  if (count == 1) {
    tilt(*copies.front().law, order, exponent.front(), value);
  } else {
    const numerics::RealFft fft(size);
    std::vector<Complex> product(fft.spectrum_size(), Complex(1, 0)), spectrum(product.size());
    for (std::size_t k = 0; k < copies.size(); ++k) {
      tilt(*copies[k].law, order, exponent[k], value);
      norm = std::max(norm, numerics::norm_l2(value));
      fft.forward(value, spectrum);
      for (std::size_t i = 0; i < product.size(); ++i)
        product[i] = times(product[i], power(spectrum[i], copies[k].count));
    }
    fft.inverse(product, value);
    // Each forward transform enters `count` times, each factor costs less than 3 units, and the
    // two halves of a real spectrum err together: twice. No spectrum exceeds 1 but by its errors.
    drift += count * fft.relative_error() * std::sqrt(double(size)) * norm;
    norm *= 2.05 * exp(drift) * (fft.relative_error() * (count + 1) + 3 * kUnit * count);
  }

  const double peak = exp(order * log(order / (order + 1))) / (order + 1);
  const double a = 2 * order + 2;
  const double integral = 2 / ((a - 2) * (a - 1) * a);
  const double length =
      std::sqrt(std::min(double(size) * peak * peak, integral / step_ + peak * peak));
  noise_ = length * norm + 2 * outside * peak;

  lowest_ = base + low * step_;
  log_scale_ = log_scale;
  // Where the Chernoff bound meets the mean of the tilted law: near the epsilon in question.
  double mean = 0, total = 0;
  std::rotate(value.begin(), value.begin() + std::ptrdiff_t(std::uint64_t(low) % size),
              value.end());
  for (std::size_t i = 0; i < size; ++i) {
    mean += value[i] * double(i);
    total += value[i];
  }
  reference_ = lowest_ + step_ * mean / total;
  tail_p_.assign(size + 1, 0.0);
  tail_q_.assign(size + 1, 0.0);
  for (std::size_t i = size; i-- > 0;) {
    const double off = lowest_ + double(i) * step_ - reference_;
    if (-(order + 1) * off > 600) {
      // Too far below for this tilt; queries there return the trivial bound.
      const std::size_t skip = i + 1;
      tail_p_.erase(tail_p_.begin(), tail_p_.begin() + std::ptrdiff_t(skip));
      tail_q_.erase(tail_q_.begin(), tail_q_.begin() + std::ptrdiff_t(skip));
      lowest_ += double(skip) * step_;
      skipped_ = true;
      break;
    }
    tail_p_[i] = tail_p_[i + 1] + value[i] * exp(-order * off);
    tail_q_[i] = tail_q_[i + 1] + value[i] * exp(-(order + 1) * off);
  }
  relative_ += 8 * kUnit * (std::abs(log_scale) + order * std::abs(reference_) + 16);
}

LossSum::Value LossSum::evaluate(double epsilon) const {
  const double place = (epsilon - lowest_) / step_;
  const std::size_t last = tail_p_.size() - 1;
  if (place < 0 && skipped_) return {0, std::numeric_limits<double>::infinity()};
  const std::size_t index = place < 0                  ? 0
                            : place + 1 < double(last) ? std::size_t(place + 1)
                                                       : last;
  const double noise = noise_ * exp(log_scale_ - order_ * epsilon);
  if (index == last) return {0, noise};
  const double scale = log_scale_ - order_ * reference_;
  const double p = exp(scale) * tail_p_[index];
  const double q = exp(scale + (epsilon - reference_)) * tail_q_[index];
  const double rounding = (4 * double(last) + 4000) * kUnit * (std::abs(p) + std::abs(q));
  return {p - q, noise + rounding};
}

double LossSum::delta_upper(double epsilon) const {
  const Value value = evaluate(epsilon - position_);
  const double bound = (value.main + value.noise) * (1 + 1.01 * relative_) + infinite_;
  return relative_ < 0.01 && bound < 1 ? std::max(0.0, bound) : 1.0;
}

double LossSum::delta_lower(double epsilon) const {
  const Value value = evaluate(epsilon + position_);
  const double bound = (value.main - value.noise) * (1 - 1.01 * relative_);
  return relative_ < 0.01 && bound > 0 ? std::min(1.0, bound) : 0.0;
}

double LossSum::epsilon_upper(double delta) const {
  if (delta_upper(0) <= delta) return 0;
  double low = 0, high = std::max(1e-3, lowest_ + step_ * double(tail_p_.size()) + position_);
  if (delta_upper(high) > delta) return std::numeric_limits<double>::infinity();
  for (int i = 0; i < 100 && high - low > 1e-13 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (delta_upper(middle) <= delta ? high : low) = middle;
  }
  return high;
}

// Far below the losses that the tilt favours, rounding noise dominates, so the search starts from
// above.
double LossSum::epsilon_lower(double delta, double ceiling) const {
  double high = std::min(ceiling, lowest_ + step_ * double(tail_p_.size()) + position_);
  double low = high;
  for (double gap = 1e-9; !(delta_lower(low) >= delta); gap *= 2) {
    if (!(low > 0)) return 0;
    high = low;
    low = std::max(0.0, low - gap);
  }
  for (int i = 0; i < 100 && high - low > 1e-13 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (delta_lower(middle) >= delta ? low : high) = middle;
  }
  return low;
}

}  // namespace discreet::accounting
