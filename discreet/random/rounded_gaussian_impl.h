#pragma once

#include <cstdint>
#include <vector>

#include "discreet/random/exact.h"

namespace discreet::random {

// A uniform real number in (0, 1) whose base-2^32 digits are drawn on demand.
class LazyUniform {
 public:
  std::uint32_t digit(std::size_t i, WordReader& words) {
    while (digits_.size() <= i) digits_.push_back(static_cast<std::uint32_t>(words.next() >> 32));
    return digits_[i];
  }
  // Compares two independent uniforms; they differ with probability 1.
  bool less_than(LazyUniform& other, WordReader& words) {
    for (std::size_t i = 0;; ++i) {
      const std::uint32_t a = digit(i, words), b = other.digit(i, words);
      if (a != b) return a < b;
    }
  }

 private:
  std::vector<std::uint32_t> digits_;
};

// The integer nearest to (n / m)·Z with Z a standard normal, exactly. 1 ≤ n, m ≤ 2^53.
std::int64_t sample_rounded_gaussian(WordReader& words, std::uint64_t n, std::uint64_t m);

}  // namespace discreet::random
