#include "discreet/unlearning/online/drift.h"

#include <algorithm>
#include <cmath>

#include "discreet/unlearning/require_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "DriftDetector";

}  // namespace

DriftDetector::DriftDetector(DriftOptions options, std::shared_ptr<PrivacyOdometer> odometer,
                             NoiseSource noise)
    : o_(options), noise_(std::move(noise)) {
  require_positive(kOp, "loss_bound", o_.loss_bound);
  require_not_negative(kOp, "sigma", o_.sigma);
  if (o_.window < 1 || o_.window > (std::uint64_t{1} << 17)) {
    refuse(kOp, "window", static_cast<double>(o_.window), "1 to 2^17 losses");
  }
  if (!(o_.threshold > 0 && o_.threshold < o_.loss_bound)) {
    refuse(kOp, "threshold", o_.threshold, "a number between 0 and loss_bound");
  }
  if (o_.sigma == 0) return;
  if (!odometer) {
    invalid_input(kOp,
                  "losses of records cost privacy; pass the odometer whose reserve covers them");
  }
  // The factor covers the rounding of the sum (drift.md).
  const double sensitivity = o_.loss_bound / 2 * (1 + 0x1p-12);
  const double ratio = sensitivity / o_.sigma;
  const double rho = ratio * ratio / 2 * (1 + 0x1p-40);
  odometer->charge_reserve(rho);
  rho_ = rho;
}

std::optional<bool> DriftDetector::observe(double loss) {
  if (std::isnan(loss)) refuse(kOp, "a loss", loss, "a number");
  sum_ += std::clamp(loss, 0.0, o_.loss_bound) - o_.loss_bound / 2;
  if (++seen_ < o_.window) return std::nullopt;
  double total = sum_;
  noise_.add(o_.sigma, {&total, 1});
  sum_ = 0;
  seen_ = 0;
  return total > (o_.threshold - o_.loss_bound / 2) * static_cast<double>(o_.window);
}

}  // namespace discreet::unlearning
