#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "discreet/random/gaussian.h"
#include "discreet/random/generator.h"
#include "discreet/random/position.h"

namespace discreet::unlearning {

// Gaussian noise that never repeats: a generator and the number of indices consumed.
class NoiseSource {
 public:
  // A fresh key from the operating system, for noise that protects people.
  static NoiseSource secure() {
    return NoiseSource(random::Generator::secure(random::Key::from_system()));
  }
  // Philox under a public seed, for tests and comparisons; it protects nobody.
  static NoiseSource insecure(std::uint64_t seed) {
    return NoiseSource(
        random::Generator(random::Algorithm::kPhilox4x32, random::Key::from_seed(seed)));
  }
  explicit NoiseSource(random::Generator generator) : generator_(std::move(generator)) {}

  // An independent source. name: not empty; use each name once.
  NoiseSource fork(std::string_view name) const { return NoiseSource(generator_.fork(name)); }

  bool is_secure() const noexcept { return generator_.is_secure(); }

  // x[i] += sigma * z. sigma >= 0, finite.
  void add(double sigma, std::span<double> x) {
    const std::uint64_t indices = random::gaussian_indices(x.size());
    counter_.declare(indices);
    random::add_gaussian(generator_, counter_.take(indices), sigma, x);
    counter_.settle();
  }

 private:
  random::Generator generator_;
  random::SequentialCounter counter_;
};

}  // namespace discreet::unlearning
