#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "discreet/unlearning/capacity/odometer.h"
#include "discreet/unlearning/noise_source.h"

namespace discreet::unlearning {

struct DriftOptions {
  double loss_bound = 1;       // B > 0: losses are clipped to [0, B]
  std::uint64_t window = 100;  // number of losses per window, 1 to 2^17; windows do not overlap
  double threshold = 0.5;      // mean loss above which a window counts as drift, in (0, B)
  // Noise on a window's sum. 0: the losses are of public records, and nothing is charged.
  double sigma = 0;
};

// Monitors the losses of arriving records in windows, each evaluated on the last *published* model.
// A window's decision uses sum (loss - B/2) + N(0, sigma^2). A record is in one window, so all
// windows together cost it rho = B^2/(8 sigma^2), charged once, at the start, to the reserve of a
// per-record or transcript odometer. Nothing else is revealed; recalibration then uses public
// constants and the remaining budget.
// Proof: drift.md
class DriftDetector {
 public:
  // odometer: required if sigma > 0; charged here. Throws kInvalidInput for an option out of range,
  // kPrivacyBudgetExceeded if its reserve is too small; nothing is then charged.
  DriftDetector(DriftOptions options, std::shared_ptr<PrivacyOdometer> odometer, NoiseSource noise);

  // Adds one loss of one record; call it once per record. Every `window` losses it returns whether
  // the window drifted, otherwise nothing. Throws kInvalidInput for a NaN.
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
