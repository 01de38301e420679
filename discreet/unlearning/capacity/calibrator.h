#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "discreet/base/cbor.h"
#include "discreet/unlearning/capacity/literal.h"
#include "discreet/unlearning/lbfgs.h"

namespace discreet::unlearning {

// The result of calibration for MemoryPair and PrivacyOdometer.
struct CalibrationStats {
  Constants constants;                // G, D, c, C: estimates, not certified
  std::uint64_t N_star = 1;           // sample_complexity of the constants at gamma_learn
  std::vector<std::string> warnings;  // one sentence for each fallback used
};

struct CalibratorOptions {
  double quantile = 0.95;       // of the gradient norms, in (0, 1]
  std::optional<double> D_cap;  // largest reported D, > 0; empty: no limit
};

// Estimates G, D, c and C from a short run of observations.
//   G  the quantile of the gradient norms, interpolated linearly between order statistics; at most
//      kExtreme times their median, so that a single gradient cannot make N* absurdly large
//   D  the largest distance of a parameter vector from the first one, at most D_cap
//   c, C  from the model's L-BFGS pairs; (1, 1) if it has none
// With fewer than kFewest observations G = D = c = C = 1. Each fallback adds a warning. The
// collected values depend on every observed record: they are confidential, and clear() erases them.
class Calibrator {
 public:
  static constexpr std::size_t kFewest = 10;
  static constexpr double kExtreme = 100;

  // Throws kInvalidInput for an option out of range.
  explicit Calibrator(CalibratorOptions options = {});

  // gradient and theta: of equal, constant length, finite. Otherwise throws kInvalidInput and
  // records nothing.
  void observe(std::span<const double> gradient, std::span<const double> theta);

  // gamma: the average regret that learning aims at, > 0. curvature: Lbfgs::bounds of the model.
  CalibrationStats finalize(double gamma, std::optional<CurvatureBounds> curvature) const;

  void clear() noexcept;

  cbor::Value save() const;
  static Calibrator restore(const cbor::Value& value);  // throws kMalformed for anything else

  const CalibratorOptions& options() const noexcept { return options_; }
  const std::vector<double>& grad_norms() const noexcept { return grad_norms_; }
  const std::vector<std::vector<double>>& thetas() const noexcept { return thetas_; }

 private:
  CalibratorOptions options_;
  std::vector<double> grad_norms_;
  std::vector<std::vector<double>> thetas_;
};

}  // namespace discreet::unlearning
