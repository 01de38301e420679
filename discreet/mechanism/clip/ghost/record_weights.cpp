#include "discreet/mechanism/clip/ghost/record_weights.h"

#include <cmath>
#include <vector>

#include "discreet/mechanism/clip/clip.h"

namespace discreet::mechanism {
namespace {

// Roundings of these few operations, and upwards of adding the squares of up to 2^12 tensors.
constexpr double kUp = 1 + 0x1p-41, kDown = 1 - 0x1p-50;
constexpr double kDownBinary32 = 1 - 0x1p-22;
constexpr double kLeastWeight = 0x1p-60;

}  // namespace

void norms_from_squares(std::span<const double> squares, std::size_t parts, double factor,
                        std::span<double> norms) {
  const std::size_t records = parts == 0 ? 0 : squares.size() / parts;
  for (std::size_t i = 0; i < records; ++i)
    for (std::size_t g = 0; g < parts; ++g)
      norms[i * parts + g] = std::sqrt(squares[g * records + i]) * (factor * kUp);
}

void weights_from_scales(std::span<const double> norms, std::span<const double> scales,
                         std::size_t parts, double factor, bool wide, std::span<double> weights) {
  const std::size_t records = parts == 0 ? 0 : norms.size() / parts;
  const double down = factor * (wide ? kDown : kDownBinary32);
  for (std::size_t i = 0; i < records; ++i) {
    bool finite = true;
    for (std::size_t g = 0; g < parts; ++g) finite = finite && std::isfinite(norms[i * parts + g]);
    for (std::size_t g = 0; g < parts; ++g) {
      const double weight = finite ? scales[i * parts + g] * down : 0;
      weights[g * records + i] = weight >= kLeastWeight ? weight : 0;
    }
  }
}

void clipped_weights(std::span<const double> squares, double bound, double norm_factor,
                     double factor, bool wide, std::span<double> weights) {
  std::vector<double> norms(squares.size()), scales(squares.size());
  norms_from_squares(squares, 1, norm_factor, norms);
  for (std::size_t i = 0; i < norms.size(); ++i) scales[i] = clip_scale(norms[i], bound);
  weights_from_scales(norms, scales, 1, factor, wide, weights);
}

}  // namespace discreet::mechanism
