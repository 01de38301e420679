#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "discreet/unlearning/capacity/odometer.h"
#include "discreet/unlearning/noise_source.h"

namespace discreet::unlearning {

struct DriftOptions {
  double loss_bound = 1;       // B > 0: losses are clipped to [0, B]
  std::uint64_t window = 100;  // losses to a window, 1 to 2^17; windows do not overlap
  double threshold = 0.5;      // mean loss above which a window counts as drift, in (0, B)
  // Noise of a window's sum. 0: the losses are of public records, nothing is charged.
  double sigma = 0;
};

// Watches the losses of arriving records, each evaluated on the last *published* model, in windows.
// A window's decision uses sum (loss - B/2) + N(0, sigma^2). A record is in one window, so all
// windows together cost it rho = B^2/(8 sigma^2), charged once, at the start, to the reserve of a
// per-record or transcript odometer. Nothing else is revealed; recalibration then uses public
// constants and what is left of the budget.
// Proof: drift.md
class DriftDetector {
 public:
  // odometer: needed when sigma > 0; charged here. Throws kInvalidInput for an option out of range,
  // kPrivacyBudgetExceeded when its reserve does not suffice; nothing is then charged.
  DriftDetector(DriftOptions options, std::shared_ptr<PrivacyOdometer> odometer, NoiseSource noise);

  // One loss of one record, given once. Ends a window every `window` losses: true if it drifted,
  // false if not; nothing in between. Throws kInvalidInput for a NaN.
  std::optional<bool> observe(double loss);

  double rho() const noexcept { return rho_; }

 private:
  DriftOptions o_;
  NoiseSource noise_;
  double rho_ = 0;
  double sum_ = 0;
  std::uint64_t seen_ = 0;
};

}  // namespace discreet::unlearning
