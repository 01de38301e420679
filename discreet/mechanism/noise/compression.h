#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "discreet/layout/gradients.h"
#include "discreet/random/generator.h"

namespace discreet::mechanism {

// `noise.compression`: a step that trains some coordinates only. The coordinates are chosen without
// looking at the step's records, the gradients are cut to them, and only then clipped; the others
// receive neither gradient nor noise, and stay where they are. So the event is that of the cut
// gradient, and epsilon is what it would be without compression.
//   sparse_dp  the coordinates come from public randomness, anew in every step
//   topk_dp    those of largest magnitude in earlier releases (post-processing)
// The adjustment to the smaller vector: a gradient of norm C that keeps the share k of its
// coordinates has norm about C sqrt(k), so clip bounds are multiplied by sqrt(k), and the standard
// deviation sigma_g C_g of the noise falls with them.

class CoordinateMask {
 public:
  // Every coordinate of every private tensor.
  static CoordinateMask all(const ModelLayout& layout);
  // ceil(keep n) coordinates of each private tensor of n, uniformly at random without replacement.
  //   keep: in (0, 1], else kInvalidDpConfig.   generator: of a public stream of its own.
  static CoordinateMask sparse(const ModelLayout& layout, double keep,
                               const random::Generator& generator, std::uint64_t step);
  // The ceil(keep n) coordinates of each private tensor with the largest magnitude; on a tie the
  // lower index. magnitudes: from released values only, none of them NaN (kInvalidInput).
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

// The kept coordinates of some records, for clipping under the reduced layout.
template <class Real>
class Gathered {
 public:
  // Records [begin, end) of gradients that match the layout the mask is of; checks sizes
  // (kInvalidGradient, naming the tensor).
  Gathered(const ModelLayout& layout, const CoordinateMask& mask,
           const PerSampleGradients<Real>& gradients, std::size_t begin, std::size_t end);
  const PerSampleGradients<Real>& gradients() const noexcept { return gradients_; }

 private:
  std::vector<std::vector<Real>> values_;
  PerSampleGradients<Real> gradients_;
};

// Adds the values of the reduced layout at their places.
void scatter(const CoordinateMask& mask, const GradientSum& reduced, GradientSum& full);

}  // namespace discreet::mechanism
