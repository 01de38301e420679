#pragma once

#include "discreet/accounting/composition.h"
#include "discreet/accounting/sampling/geometric_law_impl.h"
#include "discreet/accounting/sampling/loss_law_impl.h"

namespace discreet::accounting {

// The Poisson-subsampled Gaussian step P = (1-q) N(0, sigma^2) + q N(1, sigma^2), Q = N(0, sigma^2)
// as the law of scale * M, where M = dP/dQ under Q and E M = 1, rounded in convex order
// (geometric_law_impl.h). rate: q in (0, 1]. sigma: in [0.05, 1000]. cut: mass and mean beyond the
// grid, in (0, 1e-3]; for kUp more is charged if binary64 limits the grid: 1e-64 at sigma 0.05, and
// far below 1e-100 from sigma 0.08 on.
// Proof: fixed_size.md
struct ScaledLaw {
  GeometricLaw law;
  double scale;
};
ScaledLaw subsampled_law(double rate, double sigma, double step, double cut, Rounding rounding);

inline LossLaw loss_of(const ScaledLaw& scaled, Direction direction) {
  return loss_of(scaled.law, scaled.scale, direction);
}

// An upper bound on the loss of the symmetric pair whose profile is that of the step above (remove)
// at positive losses and its mirror image at negative losses; the remaining mass is at loss 0.
LossLaw spliced_loss(double rate, double sigma, double step, double cut);

// A first grid step for `count` such steps, and the finest that memory allows.
double first_subsampled_step(double rate, double sigma, double count);
double finest_subsampled_step(double rate, double sigma, double cut);

}  // namespace discreet::accounting
