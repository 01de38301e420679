#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "discreet/data/scattering.h"

namespace discreet::data {

// Sixteen images are processed together, one per lane: element [pixel][lane].
inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kAngles = 8;

// One pass of a Stockham transform of radix r on n = r m points with distance `stride`.
struct FftPass {
  std::size_t radix, groups, stride;  // r, m
  std::vector<float> cosine, sine;    // of 2 pi p j / (r m), [p][j], p < m, j < r
};
using FftPasses = std::vector<FftPass>;

// A plane of the torus at one resolution.
struct Plane {
  std::size_t height, width;
  FftPasses columns, rows;        // transforms of length height, width
  std::vector<float> tall, wide;  // phi: [H/4][height], [W/4][width]
  std::size_t pixels() const { return height * width; }
};

struct Scattering::Plan {
  std::size_t height, width;  // of an image
  std::size_t out_height, out_width;
  Plane full, half;                                // every pixel of the torus, every other
  std::vector<std::size_t> from_row, from_column;  // in the image, per row of the torus
  // Transforms of the wavelets, which are real, divided by the number of pixels of the plane on
  // which the convolution is evaluated (full for j = 0, half for j = 1; and by 4 for taking every
  // other pixel).
  std::array<std::array<std::vector<float>, kAngles>, 2> wavelets;

  std::size_t scratch() const;  // number of floats that scatter needs
};

// Features of kLanes images. torus: [pixels][kLanes]. out: [kChannels][positions][kLanes].
void scatter(const Scattering::Plan& plan, const float* torus, float* out, float* scratch);

}  // namespace discreet::data
