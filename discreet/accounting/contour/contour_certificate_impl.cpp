#include "discreet/accounting/contour/contour_certificate_impl.h"

#include <cmath>

#include "discreet/accounting/contour/contour_rounding_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

double log_chernoff(double c) noexcept { return -numerics::log1p(c) - c * numerics::log1p(1 / c); }

Certificate::Certificate(const Contour& contour, std::span<const Fixed> totals,
                         std::size_t distinct, double log_delta)
    : contour_(contour),
      c_(contour.c()),
      dt_(contour.dt()),
      log_delta_(log_delta),
      log_mass_(totals[kLogMass]),
      centre_(totals[kCentre]),
      image_mass_(totals[kImageMass]),
      mass_error_(0),
      tilted_(0),
      tail_(0),
      cut_(0),
      grid_(static_cast<double>(distinct + 1) * 0x1p-64) {
  mass_error_ = up(totals[kMassError].value()) + grid_;
  tilted_ = up(std::ldexp(totals[kTilted].value() + grid_, -contour.tolerance.density));
  tail_ = up(totals[kTail].value() + grid_);

  for (std::size_t i = 0; i < kPieces; ++i) {
    const double begin = ladder(contour.cut + static_cast<int>(i));
    const double end = ladder(contour.cut + static_cast<int>(i) + 1);
    // The integral of 1/(c^2+t^2) over the piece; the last one reaches to infinity.
    const double angle = i + 1 < kPieces
                             ? numerics::atan2(c_ * (end - begin), c_ * c_ + begin * end)
                             : numerics::atan2(c_, begin);
    cut_ += exp_up(totals[kDecay + i].value() + grid_) * up(angle / c_);
  }
  cut_ = up(cut_ / kPi);

  const std::size_t terms = (totals.size() - kFirstTerm) / kPerTerm;
  t_.resize(terms);
  re_.resize(terms);
  im_.resize(terms);
  std::vector<double> angle(terms), sizes(terms), errors(terms);
  for (std::size_t j = 0; j < terms; ++j) {
    const Fixed* const total = totals.data() + kFirstTerm + kPerTerm * j;
    const double log_size = total[0].value();
    sizes[j] = log_size;
    angle[j] = total[1].value();
    // X_j, then what computing F_j/(z(z+1)) itself costs (contour.md, Assembling).
    errors[j] = up(total[2].value()) + 4 * grid_ +
                kUnit * (32 + 4 * std::abs(log_size) + 4 * std::abs(angle[j]));
  }
  numerics::exp(sizes, sizes);
  numerics::sin_cos(angle, im_, re_);
  numerics::expm1(errors, errors);
  magnitude_ = 1 / (c_ * (c_ + 1));
  error_ = magnitude_ * numerics::expm1(mass_error_);
  leverage_ = 0;
  for (std::size_t j = 0; j < terms; ++j) {
    const double t = static_cast<double>(j + 1) * dt_;
    const double re = sizes[j] * re_[j];
    const double im = sizes[j] * im_[j];
    // Divided by z(z+1) = c(c+1) - t^2 + i t (2c+1).
    const double down_re = c_ * (c_ + 1) - t * t;
    const double down_im = t * (2 * c_ + 1);
    const double norm = (c_ * c_ + t * t) * ((c_ + 1) * (c_ + 1) + t * t);
    t_[j] = t;
    re_[j] = 2 * ((re * down_re + im * down_im) / norm);
    im_[j] = 2 * ((im * down_re - re * down_im) / norm);
    const double size = 2 * up(sizes[j] / std::sqrt(norm));
    magnitude_ += size;
    error_ += up(size * errors[j]) + 0x1p-999;
    leverage_ += size * t;
  }
}

double Certificate::exponent(double epsilon) const {
  return (log_mass_ - Fixed::short_product(c_, epsilon) - Fixed::product(1, log_delta_)).value();
}

double Certificate::outside_windows(double exponent) const {
  const double log_tail = numerics::log(tail_) - contour_.tolerance.tail * 0.6931471805599453;
  return up(exp_up(log_tail - log_delta_)) +
         up(exp_up(exponent + log_chernoff(c_) + mass_error_) * numerics::expm1(tilted_));
}

double Certificate::chernoff(double epsilon) const {
  const double x = exponent(epsilon);
  return up(exp_up(x + log_chernoff(c_) + mass_error_ + grid_) + outside_windows(x));
}

Certificate::Value Certificate::at(double epsilon) const {
  const double exponent = this->exponent(epsilon);
  const double psi = (centre_ - Fixed::product(1, epsilon)).value();
  const double scale = numerics::exp(exponent);
  const double first = 1 / (c_ * (c_ + 1));

  double sum = first, slope = first * c_;
  std::vector<double> angle(t_.size()), sine(t_.size()), cosine(t_.size());
  for (std::size_t j = 0; j < t_.size(); ++j) angle[j] = t_[j] * psi;
  numerics::sin_cos(angle, sine, cosine);
  for (std::size_t j = 0; j < t_.size(); ++j) {
    const double re = re_[j] * cosine[j] - im_[j] * sine[j];
    const double im = re_[j] * sine[j] + im_[j] * cosine[j];
    sum += re;
    slope += c_ * re - t_[j] * im;
  }
  const double lattice = dt_ / (2 * kPi);
  const double terms = static_cast<double>(t_.size());
  const double period = 2 * kPi / dt_;

  Value value;
  value.estimate = scale * lattice * sum;
  value.slope = -slope / sum;
  // What rounding did to the sum, to its phases and to the prefactor.
  value.round_off = up(scale * lattice *
                       (error_ +
                        kUnit * ((terms + 24 + 4 * std::abs(exponent)) * magnitude_ +
                                 4 * leverage_ * std::abs(psi)) +
                        4 * grid_ * magnitude_));
  value.cut = up(scale * exp_up(mass_error_) * cut_);
  const double image_c = contour_.image_c();
  const double image_exponent =
      (image_mass_ - Fixed::short_product(image_c, epsilon) - Fixed::product(1, log_delta_))
          .value() +
      log_chernoff(image_c) + grid_;
  value.images =
      up(exp_up(-down(c_ * period) - log_delta_) / (1 - numerics::exp(-down(c_ * period)))) +
      up(exp_up(image_exponent) / numerics::expm1(down((image_c - c_) * period)));
  const double outside = outside_windows(exponent);
  value.upper = (value.estimate + (value.round_off + value.cut + outside)) * (1 + 8 * kUnit);
  value.lower = value.estimate - (value.round_off + value.cut + value.images) * (1 + 8 * kUnit);
  value.lower -= std::abs(value.lower) * 8 * kUnit;
  return value;
}

}  // namespace discreet::accounting::contour
