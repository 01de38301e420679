#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "discreet/config/config.h"
#include "discreet/data/scattering.h"
#include "discreet/random/key.h"

namespace discreet::data {

// A fixed map of each record by itself, from the configuration and public randomness only. What a
// record becomes does not depend on the other records, so that neighbouring data sets stay
// neighbours: it costs no privacy.
// Proof: features.md
//
//   none        the record as it is
//   scattering  Scattering of an image, then, unless scattering_groups is 0, within this record
//                 1. group normalisation: in scattering_groups groups of consecutive channels, v
//                    becomes (v - mean) / sqrt(variance + 1e-5), over channels and positions
//                 2. centring: at every position, each family of channels (order 1 of scale 0,
//                 order
//                    1 of scale 1, order 2) loses its mean
//                 3. group normalisation once more
//   fourier     random Fourier features (Rahimi and Recht 2007): with frequencies
//               w_k ~ N(0, fourier_scale² I), k < fourier_count / 2,
//                 sqrt(2 / fourier_count) (cos w_k·x, sin w_k·x),
//               all cosines first; vectors of norm 1, whose products approach
//               e^(-fourier_scale² ||x - y||² / 2)
class FeatureMap {
 public:
  // features: of a record; height, width: if it is an image, else 0. public_key: frequencies come
  // from its stream "features". Throws kInvalidDpConfig, naming the key, for scattering of what is
  // no image, groups that do not divide 81, an odd number of Fourier features or none, a scale that
  // is not positive and finite.
  FeatureMap(const ModelConfig& config, std::size_t features, std::size_t height, std::size_t width,
             const random::Key& public_key);

  // Numbers that a record becomes.
  std::size_t size() const noexcept { return size_; }

  // x: records x features, row-major. out: records x size(). The same bits for any number of
  // threads and any cut of the records into calls; scattering: on every processor; Fourier: for one
  // kind of BLAS kernels (blas_core). Throws kInvalidInput for other sizes.
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
