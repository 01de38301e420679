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
// Adds independent noise of one standard deviation per part to every private coordinate, and to a
// few scalars released beside them (the counts of adaptive clipping, noised metrics). Values depend
// on the generator's key, the state, the step, the tensor and the coordinate only.

// The specification's rng_dp_state: how much of the stream was consumed. Never the key.
struct NoiseState {
  std::uint64_t offset = 0;  // indices taken so far in the sequential layout; 0 in the other
  friend bool operator==(const NoiseState&, const NoiseState&) = default;
};

struct NoiseRequest {
  std::uint64_t step = 0;  // t
  // false: consecutive indices over all tensors and steps; true: the counter of the specification,
  // t * 2^40 + tensor (random/position.h). A key uses one layout for its whole life.
  bool seed_per_step = false;
  NoiseFamily family = NoiseFamily::kGaussian;
  // One per part, in the unit of the values: finite, >= 0.
  //   gaussian           standard deviation.
  //   laplace            standard deviation too: the scale is it / sqrt 2, rounded up.
  //   rounded_gaussian, discrete_gaussian, skellam: the values are whole numbers of grid steps
  //   below
  //                      2^53, and stay so: standard deviation in grid steps, never rounded down
  //                      (random::Rational::at_least of it, of its square for the last two).
  std::span<const double> stddev;
  // Gaussian noise on further released numbers: one standard deviation each.
  std::span<double> scalars;
  std::span<const double> scalar_stddev;
  int threads = 1;  // values do not depend on it
  // What else is done with every value just before and just after its noise is added: called by
  // several threads at once, on pieces of values.values() that begin at multiples of
  // numerics::kChunk and are in a cache.
  std::function<void(std::size_t begin, std::span<double> piece)> before, after;
  // Done once by one of the threads, while the others draw already. If it throws, that is thrown,
  // and what is in the values then is to be thrown away.
  std::function<void()> meanwhile;
  // For values that lie elsewhere:
  const numerics::Team* team = nullptr;       // instead of `threads`
  double* square = nullptr;                   // set to the sum of their squares before noise
  std::span<const std::span<float>> rounded;  // empty, or set to the noisy values in binary32
};

// Throws kInvalidDpConfig for a standard deviation that the family cannot draw.
void require_drawable(NoiseFamily family, std::span<const double> stddev);

// Adds the noise in place and returns the state after it. Everything is checked before anything is
// written: kNanInSigma for a standard deviation that is not finite, naming its part;
// kInvalidDpConfig for a negative one, a wrong number of them, or one that the family cannot draw;
// kRngConsumptionViolation if the stream has not enough left or would consume other than declared.
NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, GradientSum& values);
// The same where the values lie elsewhere: one span per tensor of the layout, in its order; that of
// a tensor that is not private is not read. Gaussian only, else kInvalidDpConfig.
NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, std::span<const std::span<double>> values);

// How many indices of the sequential layout one step consumes: a function of the layout, the family
// and the number of scalars, known in advance.
std::uint64_t noise_indices(const ModelLayout& layout, NoiseFamily family, std::size_t scalars);

}  // namespace discreet::mechanism
