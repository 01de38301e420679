#include "discreet/accounting/contour/contour_plan_impl.h"

#include <algorithm>
#include <cmath>

#include "discreet/accounting/contour/contour_certificate_impl.h"
#include "discreet/accounting/contour/contour_rounding_impl.h"

namespace discreet::accounting::contour {
namespace {

constexpr int kLowestOrder = -48;
constexpr int kHighestOrder = 88;
constexpr double kLog2 = 0.6931471805599453;

// Coarse steps, so that a growing composition keeps its contour for long.
int round_up_to_8(double bits) noexcept { return static_cast<int>(std::ceil(bits / 8)) * 8; }

Tolerance choose_tolerance(const Totals& totals, double log_delta, double relative) noexcept {
  const double count = std::max(1.0, totals.subsampled_count());
  const double bits = numerics::log(count / relative) / kLog2;
  return {std::min(round_up_to_8(bits + 6), 72),
          std::min(round_up_to_8(bits + 6 - log_delta / kLog2), 1000),
          static_cast<int>(-numerics::log(relative) / kLog2)};
}

// Descends a function of the order, in ever smaller strides. Values may be NaN or infinite.
template <class F>
std::optional<int> best_order(F&& value, int finest = 1) {
  int order = 8;
  double best = value(order);
  while (!std::isfinite(best) && order - 8 >= kLowestOrder) best = value(order -= 8);
  if (!std::isfinite(best)) return std::nullopt;
  for (int stride = 8; stride >= finest; stride /= 2) {
    for (const int step : {stride, -stride}) {
      while (order + step >= kLowestOrder && order + step <= kHighestOrder) {
        const double next = value(order + step);
        if (!(next < best)) break;
        best = next;
        order += step;
      }
    }
  }
  return order;
}

// Second derivative of log M at an order, by differences along the ladder over one window.
double curvature(Totals& totals, int order, Tolerance tolerance) {
  const double c0 = ladder(order - 1), c1 = ladder(order), c2 = ladder(order + 1);
  const double k0 = totals.log_mass(order - 1, order, tolerance);
  const double k1 = totals.log_mass(order, order, tolerance);
  const double k2 = totals.log_mass(order + 1, order, tolerance);
  return 2 * ((k2 - k1) / (c2 - c1) - (k1 - k0) / (c1 - c0)) / (c2 - c0);
}

// log of (Chernoff bound / saddle-point value), at least 0.
double chernoff_excess(Totals& totals, int order, Tolerance tolerance) {
  const double c = ladder(order);
  const double second = curvature(totals, order, tolerance);
  const double excess = log_chernoff(c) + numerics::log(c * (c + 1)) +
                        0.5 * numerics::log(2 * 3.14159265358979 * second);
  return excess > 0 ? excess : 0;
}

}  // namespace

std::optional<Point> estimate_from_delta(Totals& totals, double log_delta, double relative) {
  const Tolerance tolerance = choose_tolerance(totals, log_delta, relative);
  const auto bound = [&](int order) {
    const double c = ladder(order);
    return (totals.log_mass(order, order, tolerance) + log_chernoff(c) - log_delta) / c;
  };
  const auto order = best_order(bound);
  if (!order) return std::nullopt;
  return Point{bound(*order) - chernoff_excess(totals, *order, tolerance) / ladder(*order),
               log_delta};
}

std::optional<Point> estimate_from_epsilon(Totals& totals, double epsilon, double relative) {
  double log_delta = -12;  // sets the tolerance only; one repetition is enough
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Tolerance tolerance = choose_tolerance(totals, log_delta, relative);
    const auto bound = [&](int order) {
      const double c = ladder(order);
      return totals.log_mass(order, order, tolerance) + log_chernoff(c) - c * epsilon;
    };
    const auto order = best_order(bound);
    if (!order) return std::nullopt;
    log_delta = std::min(-1e-3, bound(*order) - chernoff_excess(totals, *order, tolerance));
    if (!(log_delta > -690)) return std::nullopt;
  }
  return Point{epsilon, log_delta};
}

std::optional<Contour> contour_for_bound(Totals& totals, double epsilon, double log_delta) {
  const Tolerance tolerance = choose_tolerance(totals, log_delta, 1e-3);
  const auto bound = [&](int order) {
    const double c = ladder(order);
    return totals.log_mass(order, order, tolerance) + log_chernoff(c) - c * epsilon;
  };
  const auto order = best_order(bound, 2);  // the bound is flat around its least value
  if (!order || !(bound(*order) < log_delta - 0.05)) return std::nullopt;
  return Contour{*order, *order, 0, 0, tolerance};
}

std::optional<Contour> choose_contour(Totals& totals, const Point& point, double relative,
                                      int effort) {
  const Tolerance tolerance =
      choose_tolerance(totals, point.log_delta, std::ldexp(relative, -2 * effort));
  const double wanted = numerics::log(6 / relative);
  const auto above = [&](int order, int window_order) {  // log of Chernoff bound / delta
    const double c = ladder(order);
    return totals.log_mass(order, window_order, tolerance) + log_chernoff(c) - c * point.epsilon -
           point.log_delta;
  };
  const auto saddle = best_order([&](int order) { return above(order, order); });
  if (!saddle) return std::nullopt;

  // The period must push both images below the wanted error; a smaller period means fewer terms.
  // Round-off grows with A = (Chernoff bound / delta), which is least at the saddle.
  const double rounding = std::min(2.0, 7e-15 * totals.subsampled_count() / relative);
  Contour best{0, 0, 0, 0, tolerance};
  double least = INFINITY;
  double least_period = 0;
  double least_loss = 0;
  const auto search = [&](int stride) {
    int worse = 0;
    for (int order = (*saddle + 1) & -stride; order >= *saddle - 16 && worse < 2; order -= stride) {
      const double amplification = above(order, order);
      if (!(amplification < 40)) {
        if (order < *saddle) ++worse;
        continue;
      }
      const double c = ladder(order);
      const double left = (wanted - point.log_delta) / c;
      double right = INFINITY;
      int image_order = 0;
      for (const int image : {order + 1, order + 2, order + 4}) {
        const double excess = above(image, order) + wanted;
        const double need = (excess > 0 ? excess + numerics::log1p(numerics::exp(-excess))
                                        : numerics::log1p(numerics::exp(excess))) /
                            (ladder(image) - c);
        if (need < right) {
          right = need;
          image_order = image;
        }
      }
      const double period = std::max(left, right);
      const double loss = 0.2 * numerics::exp(amplification) * rounding;
      const double cost = period * (1 + loss);
      if (cost < least) {
        least_loss = loss;
        least = cost;
        least_period = period;
        best.order = order;
        best.image_order = image_order;
        worse = 0;
      } else {
        ++worse;
      }
    }
  };
  // Even orders and spacings, so that a growing composition keeps them for long; every order where
  // round-off limits the width.
  search(2);
  if (!(std::isfinite(least) && least_loss < 2)) search(1);
  if (!std::isfinite(least)) return std::nullopt;
  best.spacing = 2 * static_cast<int>(std::floor(
                         2 * numerics::log(2 * 3.14159265358979 / least_period) / kLog2)) -
                 effort;

  // Cut where the bound of what remains is small; look further where the loss has spikes.
  const double c = ladder(best.order);
  const double second = curvature(totals, best.order, tolerance);
  const double scale =
      totals.log_mass(best.order, best.order, tolerance) - c * point.epsilon - point.log_delta;
  const double gaussian = std::sqrt(2 * wanted / (second > 0 ? second : 1));
  int first = 8 * static_cast<int>(std::floor(numerics::log(gaussian) / (2 * kLog2))) - 4;
  for (int group = 0; group < 4; ++group, first += 2 * static_cast<int>(Totals::kDecays)) {
    const std::vector<double> decays = totals.decays(best.order, tolerance, first);
    for (std::size_t i = 0; i < decays.size(); ++i) {
      const int cut = first + 2 * static_cast<int>(i);
      const double t = ladder(cut);
      const double rest = scale + decays[i] + numerics::log(numerics::atan2(c, t) / c / 3.14159);
      if (rest < -wanted) {
        best.cut = cut + effort;
        return best;
      }
    }
  }
  return std::nullopt;
}

}  // namespace discreet::accounting::contour
