#include "discreet/random/gaussian.h"

#include <algorithm>
#include <array>
#include <optional>

#include "discreet/numerics/parallel.h"
#include "discreet/random/gaussian_kernels_impl.h"
#include "discreet/random/scale_impl.h"

namespace discreet::random {
namespace {

// The standard normal values of the coordinates [first, first + count) of a tensor, a tile at a
// time: consume(offset from first, values, how many).
template <class Consume>
void for_each_tile(const Generator& generator, const Position& position, std::uint64_t first,
                   std::size_t count, const Consume& consume) {
  using namespace kernels;
  alignas(64) std::array<std::uint64_t, kTileWords> words{};
  alignas(64) std::array<double, kTileWords> z;
  std::array<std::uint32_t, kTileWords / 2> rare;
  BlockSource source(generator);
  std::optional<BlockSource> reserve;  // rarely needed

  std::size_t skip = first % 2;  // the half of the first pair that belongs to the coordinate before
  std::uint64_t pair = first / 2;
  for (std::size_t done = 0; done < count; skip = 0) {
    const std::size_t pairs = std::min(kTileWords / 2, (skip + count - done + 1) / 2);
    source.read(position.high, position.block(pair), std::span(words).first(2 * pairs));
    const std::size_t found = box_muller(words.data(), pairs, z.data(), rare.data());
    for (std::size_t i = 0; i < found; ++i) {
      const std::size_t k = rare[i];
      std::array<std::uint64_t, 2> further;
      if (!reserve) reserve.emplace(generator);
      reserve->read(position.high, position.reserve(pair + k), further);
      box_muller_one(extended_uniform(words[2 * k], further[0]), words[2 * k + 1], &z[2 * k]);
    }
    const std::size_t n = std::min(2 * pairs - skip, count - done);
    consume(done, z.data() + skip, n);
    done += n;
    pair += pairs;
  }
}

template <class Consume>
void draw(const char* op, const Generator& generator, const Position& position, double stddev,
          std::size_t count, int threads, const Consume& consume) {
  require_scale(op, "stddev", stddev);
  position.require_indices(position.coordinate / 2, gaussian_indices(count) + 1);
  numerics::parallel_for(count, threads, [&](std::size_t begin, std::size_t end) {
    for_each_tile(
        generator, position, position.coordinate + begin, end - begin,
        [&](std::size_t offset, const double* z, std::size_t n) { consume(begin + offset, z, n); });
  });
}

template <class T>
void fill(const Generator& generator, const Position& position, double stddev, std::span<T> out,
          int threads) {
  draw("fill_gaussian", generator, position, stddev, out.size(), threads,
       [=](std::size_t at, const double* z, std::size_t n) {
         kernels::scale_to(stddev, z, n, out.data() + at);
       });
}

template <class T>
void add(const Generator& generator, const Position& position, double stddev, std::span<T> x,
         int threads) {
  draw("add_gaussian", generator, position, stddev, x.size(), threads,
       [=](std::size_t at, const double* z, std::size_t n) {
         kernels::add_to(stddev, z, n, x.data() + at);
       });
}

}  // namespace

void fill_gaussian(const Generator& generator, const Position& position, double stddev,
                   std::span<double> out, int threads) {
  fill(generator, position, stddev, out, threads);
}
void fill_gaussian(const Generator& generator, const Position& position, double stddev,
                   std::span<float> out, int threads) {
  fill(generator, position, stddev, out, threads);
}
void add_gaussian(const Generator& generator, const Position& position, double stddev,
                  std::span<double> x, int threads) {
  add(generator, position, stddev, x, threads);
}
void add_gaussian(const Generator& generator, const Position& position, double stddev,
                  std::span<float> x, int threads) {
  add(generator, position, stddev, x, threads);
}

void fill_gaussian_native32(const Generator& generator, const Position& position, float stddev,
                            std::span<float> out, int threads) {
  using namespace kernels;
  require_scale("fill_gaussian_native32", "stddev", stddev);
  position.require_indices(position.coordinate / 4, gaussian_native32_indices(out.size()) + 1);
  numerics::parallel_for(out.size(), threads, [&](std::size_t begin, std::size_t end) {
    alignas(64) std::array<std::uint64_t, kTileWords> words{};
    alignas(64) std::array<float, 2 * kTileWords> z;
    BlockSource source(generator);
    const std::uint64_t first = position.coordinate + begin;
    std::size_t skip = first % 4;
    std::uint64_t index = first / 4;
    for (std::size_t done = begin; done < end; skip = 0) {
      const std::size_t indices = std::min(kTileWords / 2, (skip + end - done + 3) / 4);
      source.read(position.high, position.block(index), std::span(words).first(2 * indices));
      box_muller_native32(words.data(), 2 * indices, z.data());
      const std::size_t n = std::min(4 * indices - skip, end - done);
      scale_to(stddev, z.data() + skip, n, out.data() + done);
      done += n;
      index += indices;
    }
  });
}

}  // namespace discreet::random
