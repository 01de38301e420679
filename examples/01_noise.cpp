// Noise that anyone with the key can draw again, whole or in pieces.
#include <cstdio>
#include <vector>

#include "discreet/discreet.h"

using namespace discreet::random;

int main() {
  // A seed makes this example repeatable. A private run takes a fresh key instead:
  //   Generator noise = Generator::secure(Key::from_system().derive(stream::kNoise));
  const Generator noise(Algorithm::kPhilox4x32, Key::from_seed(7).derive(stream::kNoise));

  // Noise of standard deviation 0.5 onto the gradient of tensor 2 at step 10, in place.
  std::vector<float> gradient = {1, 2, 3, 4, 5, 6, 7, 8};
  add_gaussian(noise, Position::at(10, 2), 0.5, gradient);
  std::printf("noised gradient:");
  for (const float x : gradient) std::printf(" %.6f", x);

  // A rank that holds coordinates 3 … 5 draws the same values for them.
  std::vector<float> shard = {4, 5, 6};
  add_gaussian(noise, Position::at(10, 2, 3), 0.5, shard);
  std::printf("\nits coordinates 3 … 5:");
  for (const float x : shard) std::printf(" %.6f", x);

  // Integer noise, sampled exactly: discrete Gaussian of variance 100.
  std::vector<std::int64_t> integers(8);
  discrete_gaussian(noise, Position::at(10, 3), {100, 1}, integers);
  std::printf("\ndiscrete Gaussian:");
  for (const std::int64_t y : integers) std::printf(" %d", static_cast<int>(y));

  // Who takes part in step 10: each of 1000 records with probability 0.01, from its own stream.
  const Generator coins(Algorithm::kPhilox4x32, Key::from_seed(7).derive(stream::kSampling));
  std::printf("\nPoisson subset:");
  for (const auto record : poisson_subset(coins, Position::at(10, 0), {0, 1000}, 0.01)) {
    std::printf(" %d", static_cast<int>(record));
  }
  std::printf("\n");
}
