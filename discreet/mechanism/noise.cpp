#include "discreet/mechanism/noise.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "discreet/base/error.h"
#include "discreet/numerics/rounding.h"
#include "discreet/random/discrete.h"
#include "discreet/random/gaussian.h"
#include "discreet/random/laplace.h"
#include "discreet/random/skellam.h"

namespace discreet::mechanism {
namespace {

constexpr const char* kOperator = "GenerateNoise_v1";
constexpr std::size_t kPiece = std::size_t{1} << 16;  // integers drawn at a time

std::uint64_t indices(NoiseFamily family, std::uint64_t n) {
  switch (family) {
    case NoiseFamily::kGaussian: return random::gaussian_indices(n);
    case NoiseFamily::kLaplace: return random::laplace_indices(n);
    case NoiseFamily::kDiscreteGaussian:
    case NoiseFamily::kRoundedGaussian:
    case NoiseFamily::kSkellam: return random::discrete_indices(n);
  }
  return 0;
}

void check(double stddev, std::string_view what) {
  if (!std::isfinite(stddev))
    throw Error(ErrorCode::kNanInSigma, kOperator,
                fmt::format("the standard deviation of {} is {}", what, stddev));
  if (stddev < 0)
    throw Error(
        ErrorCode::kInvalidDpConfig, kOperator,
        fmt::format("the standard deviation of {} is {}; it cannot be negative", what, stddev));
}

void check(const Partition& partition, const NoiseRequest& request) {
  if (request.stddev.size() != partition.parts() ||
      request.scalar_stddev.size() != request.scalars.size())
    throw Error(
        ErrorCode::kInvalidDpConfig, kOperator,
        fmt::format("{} standard deviations for {} parts, {} for {} scalars", request.stddev.size(),
                    partition.parts(), request.scalar_stddev.size(), request.scalars.size()));
  for (std::size_t g = 0; g < partition.parts(); ++g) check(request.stddev[g], partition.names[g]);
  for (const double stddev : request.scalar_stddev) check(stddev, "a released scalar");
}

// A discrete family with its parameter, drawn exactly.
class Discrete {
 public:
  Discrete(NoiseFamily family, double stddev) : family_(family) {
    parameter_ = random::Rational::at_least(
        family == NoiseFamily::kRoundedGaussian ? stddev : numerics::next_up(stddev * stddev));
    if (family == NoiseFamily::kSkellam) parameter_ = rounded_up_to_24_bits(parameter_);
  }

  void add(const random::Generator& generator, random::Position position, std::span<double> values,
           int threads) const {
    std::vector<std::int64_t> drawn(std::min(values.size(), kPiece));
    for (std::size_t begin = 0; begin < values.size(); begin += kPiece) {
      const auto piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
      const auto noise = std::span(drawn).first(piece.size());
      draw(generator, position.from(position.coordinate + begin), noise, threads);
      for (std::size_t i = 0; i < piece.size(); ++i) piece[i] += static_cast<double>(noise[i]);
    }
  }

 private:
  // skellam() takes numerators up to 2^24 and denominators up to 2^23.
  static random::Rational rounded_up_to_24_bits(random::Rational x) {
    while (x.numerator > (1u << 24) || x.denominator > (1u << 23)) {
      if (x.denominator == 1)
        throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                    fmt::format("Skellam noise of variance {} grid steps squared is beyond 2^24; "
                                "take a coarser noise.discrete or rounded_gaussian",
                                x.numerator));
      x.numerator = x.numerator / 2 + x.numerator % 2;
      x.denominator /= 2;
    }
    return x;
  }

  void draw(const random::Generator& generator, const random::Position& position,
            std::span<std::int64_t> out, int threads) const {
    if (family_ == NoiseFamily::kRoundedGaussian)
      random::rounded_gaussian(generator, position, parameter_, out, threads);
    else if (family_ == NoiseFamily::kDiscreteGaussian)
      random::discrete_gaussian(generator, position, parameter_, out, threads);
    else
      random::skellam(generator, position, parameter_, out, threads);
  }

  NoiseFamily family_;
  random::Rational parameter_;
};

void add_to(std::span<double> values, NoiseFamily family, double stddev,
            const random::Generator& generator, const random::Position& position, int threads) {
  if (stddev == 0) return;
  if (family == NoiseFamily::kGaussian) {
    random::add_gaussian(generator, position, stddev, values, threads);
  } else if (family == NoiseFamily::kLaplace) {
    const double scale = numerics::next_up(stddev / std::numbers::sqrt2);
    random::add_laplace(generator, position, scale, values, threads);
  } else {
    Discrete(family, stddev).add(generator, position, values, threads);
  }
}

}  // namespace

std::uint64_t noise_indices(const ModelLayout& layout, NoiseFamily family, std::size_t scalars) {
  std::uint64_t total = random::gaussian_indices(scalars);
  for (std::size_t i = 0; i < layout.size(); ++i)
    if (layout.tensors()[i].is_private()) total += indices(family, layout.elements(i));
  return total;
}

namespace {

// add: puts noise of a standard deviation on tensor i from a position on.
template <class Add>
NoiseState generate(const ModelLayout& layout, const Partition& partition,
                    const NoiseRequest& request, const random::Generator& generator,
                    const NoiseState& state, Add add) {
  check(partition, request);
  if (request.family != NoiseFamily::kGaussian && request.family != NoiseFamily::kLaplace)
    for (const double stddev : request.stddev)
      if (stddev != 0) Discrete(request.family, stddev);  // throws before anything is written

  random::SequentialCounter counter(state.offset);
  if (!request.seed_per_step)
    counter.declare(noise_indices(layout, request.family, request.scalars.size()));
  const auto position = [&](std::size_t tensor, std::uint64_t count) {
    return request.seed_per_step ? random::Position::at(request.step, tensor) : counter.take(count);
  };
  if (request.seed_per_step) random::Position::at(request.step, layout.size());  // checks the range

  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (!layout.tensors()[i].is_private()) continue;
    const auto at = position(i, indices(request.family, layout.elements(i)));
    add(i, request.stddev[partition.part_of[i]], at);
  }
  if (!request.scalars.empty()) {
    // The scalars are one more tensor, after the last.
    const auto at = position(layout.size(), random::gaussian_indices(request.scalars.size()));
    for (std::size_t k = 0; k < request.scalars.size(); ++k)
      random::add_gaussian(generator, at.from(k), request.scalar_stddev[k],
                           request.scalars.subspan(k, 1));
  }
  if (!request.seed_per_step) counter.settle();
  return {request.seed_per_step ? 0 : counter.offset()};
}

template <class Real>
NoiseState generate_into(const ModelLayout& layout, const Partition& partition,
                         const NoiseRequest& request, const random::Generator& generator,
                         const NoiseState& state, std::span<const std::span<Real>> values) {
  if (request.family != NoiseFamily::kGaussian)
    throw Error(ErrorCode::kInvalidDpConfig, kOperator,
                "noise on values that lie elsewhere is gaussian; take that noise.family");
  // The value of a coordinate depends on its position only, so a range may be cut anywhere.
  struct Task {
    random::Position at;
    double stddev;
    std::span<Real> values;
  };
  std::vector<Task> tasks;
  const NoiseState after = generate(
      layout, partition, request, generator, state,
      [&](std::size_t i, double stddev, const random::Position& at) {
        if (stddev == 0) return;
        if (request.team == nullptr) {
          random::add_gaussian(generator, at, stddev, values[i], request.threads);
          return;
        }
        for (std::size_t begin = 0; begin < values[i].size(); begin += kPiece)
          tasks.push_back({at.from(at.coordinate + begin), stddev,
                           values[i].subspan(begin, std::min(kPiece, values[i].size() - begin))});
      });
  if (!tasks.empty())
    (*request.team)(tasks.size(), [&](std::size_t k) {
      random::add_gaussian(generator, tasks[k].at, tasks[k].stddev, tasks[k].values);
    });
  return after;
}

}  // namespace

NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, GradientSum& values) {
  return generate(layout, partition, request, generator, state,
                  [&](std::size_t i, double stddev, const random::Position& at) {
                    add_to(values.tensor(i), request.family, stddev, generator, at,
                           request.threads);
                  });
}

NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, std::span<const std::span<float>> values) {
  return generate_into(layout, partition, request, generator, state, values);
}

NoiseState generate_noise(const ModelLayout& layout, const Partition& partition,
                          const NoiseRequest& request, const random::Generator& generator,
                          const NoiseState& state, std::span<const std::span<double>> values) {
  return generate_into(layout, partition, request, generator, state, values);
}

}  // namespace discreet::mechanism
