#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/layout/gradients.h"
#include "discreet/random/generator.h"

namespace discreet::mechanism {

// `noise.compression`: a step that trains only some coordinates. They are chosen without using the
// step's records; gradients are restricted to them and then clipped; the other coordinates receive
// neither gradient nor noise and do not change. So the event is that of the restricted gradient,
// and epsilon is the same as without compression.
//   sparse_dp  coordinates from public randomness, new in every step
//   topk_dp    the coordinates of largest magnitude in earlier releases (post-processing)
// Adjustment to the smaller vector: a gradient of norm C restricted to a share k of its coordinates
// has norm about C sqrt(k), so clip bounds are multiplied by sqrt(k), and the standard deviation
// sigma_g C_g of the noise decreases with them.

class CoordinateMask {
 public:
  // Every coordinate of every private tensor.
  static CoordinateMask all(const ModelLayout& layout);
  // ceil(keep n) coordinates of each private tensor of n, uniformly at random without replacement.
  //   keep: in (0, 1], otherwise kInvalidDpConfig.   generator: of a separate public stream.
  static CoordinateMask sparse(const ModelLayout& layout, double keep,
                               const random::Generator& generator, std::uint64_t step);
  // The ceil(keep n) coordinates of each private tensor with the largest magnitude; of equal ones
  // the lower index. magnitudes: derived from released values only; a NaN is kInvalidInput.
  static CoordinateMask largest(const ModelLayout& layout, double keep,
                                const GradientSum& magnitudes);

  // Ascending coordinates of tensor i; empty if it is not private.
  std::span<const std::uint64_t> kept(std::size_t i) const { return kept_.at(i); }
  // The layout of the kept coordinates: same names, layers, groups and flags; a private tensor is a
  // vector of its kept coordinates.
  ModelLayout reduced(const ModelLayout& layout) const;

  friend bool operator==(const CoordinateMask&, const CoordinateMask&) = default;

 private:
  std::vector<std::vector<std::uint64_t>> kept_;
};

// The kept coordinates of some records, for clipping with the reduced layout.
template <class Real>
class Gathered {
 public:
  // Records [begin, end) of gradients that match the mask's layout; checks sizes (kInvalidGradient,
  // naming the tensor).
  Gathered(const ModelLayout& layout, const CoordinateMask& mask,
           const PerSampleGradients<Real>& gradients, std::size_t begin, std::size_t end);
  const PerSampleGradients<Real>& gradients() const noexcept { return gradients_; }

 private:
  std::vector<std::vector<Real>> values_;
  PerSampleGradients<Real> gradients_;
};

// Adds the values of the reduced layout to their positions in the full one.
void scatter(const CoordinateMask& mask, const GradientSum& reduced, GradientSum& full);

}  // namespace discreet::mechanism
