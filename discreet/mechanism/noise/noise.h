#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "discreet/config/config.h"
#include "discreet/layout/gradients.h"
#include "discreet/numerics/parallel.h"
#include "discreet/random/generator.h"

namespace discreet::mechanism {

// UML_OS.DifferentialPrivacy.GenerateNoise_v1: the only place of the mechanism that samples noise.
//
// Adds independent noise, with one standard deviation per part, to every private coordinate, and to
// a few scalars released with them (the counts of adaptive clipping, noised metrics). Values depend
// only on the generator's key, the state, the step, the tensor and the coordinate.

// The rng_dp_state of the specification: how much of the stream was consumed. Never the key.
struct NoiseState {
  std::uint64_t offset = 0;  // indices consumed in the sequential layout; 0 in the per-step layout
  friend bool operator==(const NoiseState&, const NoiseState&) = default;
};

struct NoiseRequest {
  std::uint64_t step = 0;  // t
  // false: consecutive indices over all tensors and steps; true: the counter of the specification,
  // t * 2^40 + tensor (random/position.h). A key must use one layout for its whole life.
  bool seed_per_step = false;
  NoiseFamily family = NoiseFamily::kGaussian;
  // One per part, in the unit of the values: finite, >= 0.
  //   gaussian           the standard deviation.
  //   laplace            the standard deviation; the scale is this / sqrt 2, rounded up.
  //   rounded_gaussian, discrete_gaussian, skellam
  //                      the standard deviation in grid steps, never rounded down
  //                      (random::Rational::at_least of it, of its square for the last two). The
  //                      values are integers of magnitude below 2^53 in grid steps, and stay so.
  std::span<const double> stddev;
  // Gaussian noise on further released numbers: one standard deviation each.
  std::span<double> scalars;
  std::span<const double> scalar_stddev;
  int threads = 1;  // values do not depend on it
  // Called on every value just before and just after its noise is added, by several threads at
  // once, on pieces of values.values() that start at multiples of numerics::kChunk and are in a
  // cache.
  std::function<void(std::size_t begin, std::span<double> piece)> before, after;
  // Run once by one of the threads while the others are already drawing. If it throws, the
  // exception is rethrown and the values must be discarded.
  std::function<void()> meanwhile;
  // For values stored elsewhere:
  const numerics::Team* team = nullptr;       // replaces `threads`
  double* square = nullptr;                   // receives the sum of squares before noise
  std::span<const std::span<float>> rounded;  // empty, or receives the noisy values in binary32
};

// Throws kInvalidDpConfig for a standard deviation that the family cannot draw.
void require_drawable(NoiseFamily family, std::span<const double> stddev);

// Adds the noise in place and returns the new state. Everything is checked before anything is
// written: kNanInSigma for a standard deviation that is not finite, naming its part;
// kInvalidDpConfig for a negative one, a wrong number of them, or one that the family cannot draw;
// kRngConsumptionViolation if the stream has too few indices left or the consumption would differ
// from the declaration.
NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, GradientSum& values);
// The same for values stored elsewhere: one span per tensor of the layout, in layout order; that of
// a tensor that is not private is not read. Gaussian only, otherwise kInvalidDpConfig.
NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, std::span<const std::span<double>> values);

// The number of indices that one step consumes in the sequential layout. It depends only on the
// layout, the family and the number of scalars, so it is known in advance.
std::uint64_t noise_indices(const ModelLayout& layout, NoiseFamily family, std::size_t scalars);

}  // namespace discreet::mechanism
