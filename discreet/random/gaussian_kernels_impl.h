#pragma once

#include <cstddef>
#include <cstdint>

namespace discreet::random::kernels {

// Words and values are processed in tiles that stay in the first-level cache.
inline constexpr std::size_t kTileWords = 1024;

// Radius words below this are extended by a further word.
inline constexpr std::uint64_t kRareRadius = std::uint64_t{1} << 53;

// z[2k], z[2k+1] from words[2k] (radius) and words[2k+1] (angle) for k < pairs. Reads and writes
// whole vectors: both arrays must have kTileWords elements. Lists in `rare`, in ascending order,
// the pairs whose radius word is below kRareRadius, and returns their number; the caller must
// replace the z of these pairs.
std::size_t box_muller(const std::uint64_t* words, std::size_t pairs, double* z,
                       std::uint32_t* rare) noexcept;

// One pair from a uniform radius u in (0, 1] and an angle word, by the same arithmetic.
void box_muller_one(double u, std::uint64_t angle, double* z) noexcept;

// The uniform of a rare pair: (radius·2^64 + further)·2^-128 rounded to nearest; 2^-128 if it is 0.
double extended_uniform(std::uint64_t radius, std::uint64_t further) noexcept;

// Native binary32: z[2k], z[2k+1] from the low (radius) and high (angle) half of words[k].
// Both arrays must have whole tiles: kTileWords words, 2·kTileWords values.
void box_muller_native32(const std::uint64_t* words, std::size_t count, float* z) noexcept;

void scale_to(double stddev, const double* z, std::size_t n, double* out) noexcept;
void scale_to(double stddev, const double* z, std::size_t n, float* out) noexcept;
void add_to(double stddev, const double* z, std::size_t n, double* x) noexcept;
void add_to(double stddev, const double* z, std::size_t n, float* x) noexcept;
void scale_to(float stddev, const float* z, std::size_t n, float* out) noexcept;

}  // namespace discreet::random::kernels
