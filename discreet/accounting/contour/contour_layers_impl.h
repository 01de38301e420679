#pragma once

#include <vector>

#include "discreet/accounting/contour/contour_step_impl.h"

namespace discreet::accounting::contour {

// A lower bound, as a stack of uniform densities, of the tilted density of one step's loss. It
// bounds the characteristic function phi from above for *all* frequencies beyond t (theorem
// Truncation).
class Layers {
 public:
  // log_scale: the layers are relative to exp(log_scale); any number near log M(c) is suitable.
  Layers(const CoarseGrid& grid, double c, const Window& window, double log_scale);

  // log of an upper bound of |M(c + is)| / exp(log_mass) for every s >= t, provided that
  // exp(log_mass) is at least the integral of f over the window. Within [-700, 0].
  double log_bound(double t, double log_mass) const noexcept;

 private:
  void peel(std::vector<double>& heights, const std::vector<double>& lengths, std::size_t begin,
            std::size_t end);

  double log_scale_;
  double log_peak_;  // log of the largest density, relative to exp(log_scale)
  std::vector<double> weights_, half_lengths_;
};

}  // namespace discreet::accounting::contour
