#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/data/scattering.h"
#include "discreet/random/key.h"

namespace discreet::data {

// A fixed map applied to each record separately, determined by the configuration and public
// randomness only. The features of a record do not depend on other records, so neighbouring data
// sets stay neighbours, and the map costs no privacy.
// Proof: features.md
//
//   none        the record itself
//   scattering  Scattering of an image and then, unless scattering_groups is 0, within this record
//                 1. group normalisation: in scattering_groups groups of consecutive channels, v
//                    becomes (v - mean) / sqrt(variance + 1e-5), over channels and positions
//                 2. centring: at every position, subtract its mean from each family of channels
//                    (order 1 of scale 0, order 1 of scale 1, order 2)
//                 3. group normalisation once more
//   fourier     random Fourier features (Rahimi and Recht 2007): with frequencies
//               w_k ~ N(0, fourier_scale² I), k < fourier_count / 2,
//                 sqrt(2 / fourier_count) (cos w_k·x, sin w_k·x),
//               all cosines first; vectors of norm 1, whose inner products approximate
//               e^(-fourier_scale² ||x - y||² / 2)
class FeatureMap {
 public:
  // features: number of features of a record; height, width: of an image, otherwise 0. public_key:
  // frequencies come from its stream "features". Throws kInvalidDpConfig, naming the key, for
  // scattering of records that are not images, groups that do not divide 81, a number of Fourier
  // features that is odd or 0, or a scale that is not positive and finite.
  FeatureMap(const ModelConfig& config, std::size_t features, std::size_t height, std::size_t width,
             const random::Key& public_key);

  // The number of features after the map.
  std::size_t size() const noexcept { return size_; }

  // x: records x features, row-major. out: records x size(). The bits do not depend on threads or
  // on how records are divided into calls; for scattering they are the same on every processor, for
  // Fourier features per kind of BLAS kernels (blas_core). Throws kInvalidInput for other sizes.
  void apply(std::span<const float> x, std::size_t records, std::span<float> out,
             int threads) const;

 private:
  void normalise(std::span<float> record) const;

  std::size_t features_, size_;
  std::size_t groups_ = 0;
  std::optional<Scattering> scattering_;
  std::vector<float> frequencies_;  // [size / 2][features]
};

}  // namespace discreet::data
