#include "discreet/random/laplace.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "discreet/base/error.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/parallel.h"
#include "discreet/random/gaussian_kernels_impl.h"
#include "discreet/random/scale_impl.h"

namespace discreet::random {

void require_scale(const char* op, const char* name, double scale) {
  if (!std::isfinite(scale)) {
    fail(ErrorCode::kNanInSigma, op, "{} is {}; it must be finite", name, scale);
  }
  if (scale < 0) {
    invalid_config(op, "{} is {}; it must not be negative", name, scale);
  }
}

namespace {

template <class Consume>
void draw(const char* op, const Generator& generator, const Position& position, double scale,
          std::size_t count, int threads, const Consume& consume) {
  constexpr std::size_t kTile = 256;
  require_scale(op, "scale", scale);
  position.require_indices(position.coordinate, count);
  numerics::parallel_for(count, threads, [&](std::size_t begin, std::size_t end) {
    BlockSource source(generator), reserve(generator);
    std::array<std::uint64_t, 2 * kTile> words;
    for (std::size_t at = begin; at < end; at += kTile) {
      const std::size_t n = std::min(kTile, end - at);
      const std::uint64_t first = position.coordinate + at;
      source.read(position.high, position.block(first), std::span(words).first(2 * n));
      for (std::size_t i = 0; i < n; ++i) {
        std::array<std::uint64_t, 2> further{};
        if (words[2 * i] < kernels::kRareRadius) {
          reserve.read(position.high, position.reserve(first + i), further);
        }
        const double size = -numerics::log(kernels::extended_uniform(words[2 * i], further[0]));
        consume(at + i, words[2 * i + 1] >> 63 ? -size : size);
      }
    }
  });
}

}  // namespace

void fill_laplace(const Generator& generator, const Position& position, double scale,
                  std::span<double> out, int threads) {
  draw("fill_laplace", generator, position, scale, out.size(), threads,
       [=](std::size_t i, double value) { out[i] = scale * value; });
}

void add_laplace(const Generator& generator, const Position& position, double scale,
                 std::span<double> x, int threads) {
  draw("add_laplace", generator, position, scale, x.size(), threads,
       [=](std::size_t i, double value) { x[i] = x[i] + scale * value; });
}

}  // namespace discreet::random
