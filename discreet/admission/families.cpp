#include "discreet/admission/families.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "discreet/numerics/elementary.h"
#include "discreet/numerics/rounding.h"

namespace discreet::admission {
namespace {

using numerics::next_down;
using numerics::next_up;
using numerics::round_up;

// More than the rounding of a dozen operations and elementary functions.
constexpr double kRoom = 0x1p-40;

// At most log(Phi(x/2) / Phi(-x/2)) = 2 artanh(erf(x / sqrt 8)).
double log_odds_from_below(double x) noexcept {
  const double y = x / std::sqrt(8.0);
  if (y < 0x1p-10) {
    // erf(y) >= 2/sqrt(pi) (y - y^3/3), artanh(t) >= t.
    const double erf = 2 * std::numbers::inv_sqrtpi * y * (1 - y * y / 3);
    return 2 * erf * (1 - kRoom);
  }
  if (y > 26) return y * y * (1 - kRoom);  // log((2 - t) / t) >= -log t, t = erfc(y) <= e^{-y^2}
  const double tail = numerics::erfc(y);
  return numerics::log1p(2 * (1 - tail) / tail) * (1 - kRoom);
}

}  // namespace

bool promises_gdp(NoiseFamily family) noexcept {
  return family != NoiseFamily::kDiscreteGaussian && family != NoiseFamily::kSkellam;
}

double gaussian_use(std::uint32_t k, double z) noexcept {
  return round_up(std::sqrt(static_cast<double>(k)) * z, 2);
}

double laplace_use(std::uint32_t k, double z) noexcept {
  const double x = next_down(1 / gaussian_use(k, z));
  return round_up(std::numbers::sqrt2 / log_odds_from_below(x) * (1 + kRoom), 4);
}

double skellam_rho(double d, double variance, std::uint64_t dimension) noexcept {
  // A vector of whole numbers has L1 norm at most the squared L2 norm.
  const double square = d * d;
  const double l1 = std::min(square, std::sqrt(static_cast<double>(dimension)) * d);
  const double first =
      (2 * square + std::max(0.0, 6 * l1 - square) / 2) / (4 * variance) / variance;
  const double second = 3 * l1 / (4 * variance);
  return (square / (2 * variance) + std::min(first, second)) * (1 + kRoom);
}

double skellam_use(std::uint32_t k, double z, double stddev, std::uint64_t dimension) noexcept {
  const double variance = next_down(stddev * stddev);
  const double most = next_down(1 / (2 * next_up(z * z)));
  const auto kept = [&](double d) {
    return next_up(k * skellam_rho(d, variance, dimension)) <= most;
  };
  double low = 0, high = stddev / gaussian_use(k, z);
  if (!kept(high)) {
    for (int i = 0; i < 200; ++i) {
      const double middle = low + (high - low) / 2;
      (kept(middle) ? low : high) = middle;
    }
  } else {
    low = high;
  }
  // A margin for the rounding of the bound to grid steps.
  return low > 0 ? round_up(stddev / low * (1 + kRoom), 4)
                 : std::numeric_limits<double>::infinity();
}

}  // namespace discreet::admission
